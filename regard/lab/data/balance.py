"""Warnings about imbalanced labels, and the recommended remedy."""

from collections.abc import Mapping

FEW_TRAIN = 20  # minimum training texts of a label
FEW_TEST = 5  # minimum test texts of a label
LOPSIDED = 0.8  # warn about a label with a larger share of the training texts
RARE = 0.5  # a label with fewer texts than this times the mean over the labels is rare
ADVICE = "consider metric=macro-f1 and class_weights=balanced"


def imbalance(train: Mapping[str, int], test: Mapping[str, int] | None = None) -> list[str]:
    """Return one sentence for each kind of label imbalance, with the numbers.

    `train` and `test` count the texts of each label. Few texts of every label are no imbalance.

    >>> imbalance({"no": 90, "yes": 10}, {"no": 18, "yes": 2})
    ["90.0 % of the training texts have the label 'no'", \
"1 of 2 labels has fewer than 20 training texts (fewest: 'yes', 10)", \
"1 of 2 labels has fewer than 5 test texts (fewest: 'yes', 2)"]
    """
    warnings = []
    texts = sum(train.values())
    most = max(train, key=train.__getitem__, default="")
    if len(train) > 1 and train[most] > LOPSIDED * texts:
        share = f"{100 * train[most] / texts:.1f} %"
        warnings.append(f"{share} of the training texts have the label {most[:40]!r}")
    parts = [("training", train, FEW_TRAIN)]
    if test is not None:
        parts.append(("test", {label: test.get(label, 0) for label in train}, FEW_TEST))
    for what, counts, least in parts:
        rare = min(least, RARE * sum(counts.values()) / max(len(counts), 1))
        few = [label for label, count in counts.items() if count < rare]
        if few and len(counts) > 1:
            rarest = min(few, key=counts.__getitem__)
            has = "has" if len(few) == 1 else "have"
            warnings.append(
                f"{len(few):,} of {len(counts):,} labels {has} fewer than {least} {what} texts "
                f"(fewest: {rarest[:40]!r}, {counts[rarest]})"
            )
    return warnings
