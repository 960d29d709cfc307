import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.testing import assert_close

from regard.core.errors import RegardError
from regard.core.settings import build
from regard.lab.runs.build import build_network
from regard.lab.runs.config import Config
from regard.lab.tasks import TASKS
from regard.lab.tasks.classification import metrics
from regard.lab.tasks.classification.task import Classification, class_weights
from regard.lab.tasks.encoded import truncate
from regard.lab.tasks.settings import ClassificationSettings

LABELS = ("bad", "good", "odd")


@pytest.fixture
def task(tmp_path: Path) -> Classification:
    """120 + 20 texts of 1 to 9 words; the label stands in the text."""
    chance = np.random.default_rng(0)
    for name, count in (("train", 120), ("test", 20)):
        rows = []
        for row in range(count):
            label = LABELS[chance.integers(3)]
            words = [*(f"w{number}" for number in chance.integers(5, size=row % 9)), label]
            text = " ".join([*chance.permutation(words), f"{name}{row}"])
            rows.append(json.dumps({"text": text, "label": label}))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    return make(tmp_path)


def make(folder: Path, **options: object) -> Classification:
    values = {"data": folder / "train.jsonl", "test": folder / "test.jsonl", "length": 7}
    values |= {"validation": 0.2, **options}
    return Classification(build(ClassificationSettings, {k: str(v) for k, v in values.items()}))


class Counter(nn.Module):
    """Logits are how often each of the first tokens stands in the text: no parameters."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels
        self.seen: list[tuple[int, bool]] = []

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        self.seen.append((tokens.numel(), self.training))
        inside = torch.arange(tokens.shape[1]) < lengths[:, None]
        counts = [((tokens == 2 + label) & inside).sum(1) for label in range(self.labels)]
        return torch.stack(counts, 1).float() + lengths[:, None] * torch.arange(self.labels) / 100


def test_truncated_texts_are_counted(tmp_path: Path, task: Classification) -> None:
    (note,) = [note for note in task.notes if "longer than 7 tokens" in note]
    whole = [len(task.whole(example.text)) for example in task.train.examples]
    assert note.startswith(f"{sum(size > 7 for size in whole) / len(whole):.0%} of the training")
    assert note.endswith("; a network reads the last 7 (length=7 truncate=tail)")
    assert not [note for note in make(tmp_path, length=10).notes if "longer" in note]


def test_operations_are_counted_without_a_change_of_the_network(task: Classification) -> None:
    network = build_network(Config.make("classification", "mean", ["width=4"]), **task.sizes)
    before = task.operations(network, ["w1 good", "w2"])
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert task.operations(network, ["w1 good", "w2"]) == before


def test_splits_are_disjoint_and_complete(task: Classification) -> None:
    texts = [{e.text for e in task.split(s).examples} for s in ("train", "validation", "test")]
    assert [len(part) for part in texts] == [len(task.train), len(task.validation), 20]
    assert len(task.train) + len(task.validation) == 120
    assert 12 <= len(task.validation) <= 36
    assert not texts[0] & texts[1]
    assert task.labels == LABELS


def test_encoded_is_compact_truncated_and_in_order(task: Classification) -> None:
    encoded = task.test
    assert {ids.dtype for ids in encoded.ids} == {np.dtype(np.int32)}
    assert encoded.lengths.max() == 7
    for ids, label, example in zip(encoded.ids, encoded.labels, encoded.examples, strict=True):
        assert LABELS[label] == example.label
        whole = task.tokenizer.encode([example.text])[0]
        assert ids.tolist() == whole[-7:]


def test_the_tokenizer_knows_the_train_part_only(task: Classification) -> None:
    known = set(task.tokenizer.vocabulary)
    assert all(f"train{row}" not in known for row in range(120))  # each stands once


@pytest.mark.parametrize(
    ("keep", "expected"),
    [("head", [1, 2, 3, 4, 5]), ("tail", [5, 6, 7, 8, 9]), ("ends", [1, 2, 3, 8, 9])],
)
def test_truncation(keep: str, expected: list[int]) -> None:
    ids = list(range(1, 10))
    assert list(truncate(ids, 5, keep)) == expected
    assert list(truncate(ids, 9, keep)) == ids
    assert len(truncate(ids, 1, keep)) == 1


def test_batches_hold_every_example_once(task: Classification) -> None:
    plan = task.batches("train", tokens=40, seed=3, epoch=2)
    assert sorted(np.concatenate(plan)) == list(range(len(task.train)))
    again = task.batches("train", tokens=40, seed=3, epoch=2)
    assert all((one == two).all() for one, two in zip(plan, again, strict=True))
    for indexes in plan:
        batch = task.batch("train", indexes)
        assert batch.tokens.numel() <= 40
        for row, index in enumerate(indexes):
            ids = task.train.ids[index].tolist()
            assert batch.tokens[row, : batch.lengths[row]].tolist() == ids
            assert batch.labels[row] == task.train.labels[index]


def test_loss_by_hand(task: Classification) -> None:
    model = Counter(3)
    batch = task.batch("train", np.array([4, 0, 9]))
    p = model(batch.tokens, batch.lengths).softmax(1)
    expected = -torch.stack([p[row, batch.labels[row]].log() for row in range(3)]).mean()
    assert_close(task.loss(model, batch), expected)


def test_predictions_are_in_order_and_in_evaluation_mode(task: Classification) -> None:
    model = Counter(3).train()
    probabilities = task.probabilities(model, "validation", tokens=20)
    assert model.training
    assert {training for _, training in model.seen} == {False}
    assert max(size for size, _ in model.seen) <= 20
    for row, index in enumerate(range(len(task.validation))):
        batch = task.batch("validation", np.array([index]))
        expected = model(batch.tokens, batch.lengths).softmax(1)[0]
        np.testing.assert_allclose(probabilities[row], expected.numpy(), rtol=1e-6)
    texts = [example.text for example in task.validation.examples]
    np.testing.assert_array_equal(task.probabilities(model, texts, tokens=20), probabilities)


def test_predict_takes_empty_texts_and_none(task: Classification) -> None:
    assert task.probabilities(Counter(3), ["", "bad"]).shape == (2, 3)
    assert task.probabilities(Counter(3), []).shape == (0, 3)
    with pytest.raises(RegardError, match="unknown split 'a film'; choose train"):
        task.probabilities(Counter(3), "a film")


def test_texts_are_judged_without_data(task: Classification, tmp_path: Path) -> None:
    texts = [example.text for example in task.test.examples]
    saved = Classification(
        build(ClassificationSettings, {"data": "nowhere.csv", "length": 7}),
        task.tokenizer,
        {"labels": task.labels},
    )
    expected = task.probabilities(Counter(3), "test")
    np.testing.assert_array_equal(saved.probabilities(Counter(3), texts), expected)


def test_a_label_the_model_never_learned_is_named(task: Classification, tmp_path: Path) -> None:
    other = Classification(task.settings, task.tokenizer, {"labels": LABELS[:2]})
    with pytest.raises(
        RegardError, match=r"test\.jsonl:\d+: unknown label 'odd'; the model learned"
    ):
        _ = other.test


def test_fewer_examples(tmp_path: Path, task: Classification) -> None:
    few = make(tmp_path, examples=50)
    assert len(few.train) + len(few.validation) == 50
    fewest = make(tmp_path, examples=15)
    assert len(fewest.train) + len(fewest.validation) == 15
    assert len(fewest.test) == len(task.test) == 20, "the test is whole"
    assert {e.text for e in few.train.examples} <= {e.text for e in task.corpus.train}
    assert set(few.train.labels.tolist()) == {0, 1, 2}


def test_too_few_to_split_is_said(tmp_path: Path, task: Classification) -> None:
    with pytest.raises(RegardError, match="leaves one side of 120 texts empty"):
        _ = make(tmp_path, examples=1).train


def test_prepared_once_in_a_process() -> None:
    settings = build(ClassificationSettings, {"data": "reviews"})
    prepare = TASKS["classification"].prepare
    one = prepare(settings)
    assert one is prepare(build(ClassificationSettings, {"data": "reviews"}))
    assert one is not prepare(build(ClassificationSettings, {"data": "reviews", "length": 9}))


@pytest.mark.parametrize("metric", list(metrics.METRICS))
def test_the_metric_of_the_settings_is_judged(
    task: Classification, tmp_path: Path, metric: str
) -> None:
    asked = make(tmp_path, metric=metric)
    model = Counter(3)
    value, loss = asked.judge(model, "test")
    expected = metrics.scores(asked.probabilities(model, "test"), asked.answers("test"))
    title = metrics.METRICS[metric]
    assert asked.metric == title
    assert loss == pytest.approx(expected["log loss"])
    assert value == pytest.approx(np.exp(-loss) if metric == "log-loss" else expected[title])


def test_balanced_weights_are_scikit_learns(task: Classification, tmp_path: Path) -> None:
    asked = make(tmp_path, class_weights="balanced")
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=asked.train.labels)
    assert asked.weights == pytest.approx(theirs)
    assert list(asked.counts.values()) == np.bincount(asked.train.labels).tolist()
    assert class_weights("balanced", {"a": 3, "b": 0}).tolist() == [1.0, 1.0]
    assert task.weights is None


def test_the_loss_weighs_texts_by_their_label(task: Classification, tmp_path: Path) -> None:
    model, indexes = Counter(3), np.arange(9)
    asked = make(tmp_path, class_weights="odd:3,bad:0.5")
    batch = asked.batch("train", indexes)
    logits = model(batch.tokens, batch.lengths)
    weights = torch.tensor([0.5, 1.0, 3.0])[batch.labels]
    each = -logits.log_softmax(1)[torch.arange(9), batch.labels]
    assert_close(asked.loss(model, batch), (weights * each).sum() / weights.sum())
    assert_close(task.loss(model, batch), each.mean())


@pytest.mark.parametrize(
    ("weights", "says"),
    [("heavy", "give none, balanced or LABEL:WEIGHT"), ("fine:2", "no label is called 'fine'"),
     ("odd:0", "number above 0, not '0'"), ("odd:much", "number above 0, not 'much'")],
)  # fmt: skip
def test_bad_weights_are_refused(
    tmp_path: Path, task: Classification, weights: str, says: str
) -> None:
    with pytest.raises(RegardError, match=says):
        _ = make(tmp_path, class_weights=weights).weights


def test_uneven_labels_are_told(tmp_path: Path) -> None:
    for name, counts in (("train", (300, 25)), ("test", (40, 3))):
        rows = [
            json.dumps({"text": f"{name} {label} {i}", "label": label})
            for label, count in zip(("many", "few"), counts, strict=True)
            for i in range(count)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    found = make(tmp_path).notes
    share = make(tmp_path).counts
    assert found[0] == (
        f"{100 * share['many'] / sum(share.values()):.1f} % of the training texts have the label "
        "'many'"
    )
    assert found[-1].startswith("1 of 2 labels has fewer than 5 test texts (fewest: 'few', 3)")
    assert found[-1].endswith("; consider metric=macro-f1 and class_weights=balanced")
    assert make(tmp_path, metric="macro-f1").notes[-1].endswith("'few', 3)")


def test_a_file_for_validation(task: Classification, tmp_path: Path) -> None:
    rows = [{"text": f"other {label}", "label": label} for label in LABELS]
    rows.append({"text": task.corpus.train[0].text.upper(), "label": "odd"})
    held = tmp_path / "dev.jsonl"
    held.write_text("\n".join(map(json.dumps, rows)))
    own = make(tmp_path, validation=held)
    assert [e.text for e in own.validation.examples] == [row["text"] for row in rows]
    assert len(own.train) == 119, "all of train but what validation has too"
    assert "1 row of train dropped: text also in validation or test" in own.notes
    few = make(tmp_path, validation=held, examples=50)
    assert (len(few.train), len(few.validation)) == (50, 4)
    held.write_text('{"text": "x", "label": "Good"}')
    with pytest.raises(
        RegardError, match=r"dev\.jsonl:1: the label 'Good' occurs only in validation"
    ):
        assert make(tmp_path, validation=held).validation
    with pytest.raises(RegardError, match=r"none\.csv: no such file"):
        assert make(tmp_path, validation=tmp_path / "none.csv").validation


def test_near_copies_in_validation_are_told(tmp_path: Path) -> None:
    words = [[f"w{i}x{j}" for j in range(12)] for i in range(60)]
    rows = [
        {"text": " ".join(words[i][j:]), "label": LABELS[i % 2]}
        for i in range(60)
        for j in range(6)
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "test.jsonl").write_text('{"text": "x", "label": "bad"}')
    told = [note for note in make(tmp_path).notes if "nearly contained" in note]
    assert len(told) == 1
    assert told[0].endswith("set group=COLUMN to a column with their origin, or "
                            "give validation=FILE")  # fmt: skip
    (tmp_path / "dev.jsonl").write_text('{"text": "y", "label": "bad"}')
    held = make(tmp_path, validation=tmp_path / "dev.jsonl")
    assert not [note for note in held.notes if "nearly contained" in note]


@pytest.mark.parametrize("bad", ["0", "1", "-0.1", "nan", "inf", " "])
def test_a_share_for_validation_is_between_0_and_1(bad: str) -> None:
    with pytest.raises(RegardError, match=r"validation=.*a fraction of train"):
        build(ClassificationSettings, {"validation": bad})


def test_a_share_or_a_file_is_kept_as_it_was_given() -> None:
    for given, kept in (("0.2", 0.2), (0.3, 0.3), ("dev.csv", "dev.csv"), (Path("a/b"), "a/b")):
        settings = build(ClassificationSettings, {"validation": given})
        assert settings.validation == kept
        again = build(ClassificationSettings, json.loads(settings.model_dump_json()))
        assert again == settings


def test_a_task_in_a_notebook_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("text,label\n" + "".join(f"word{i},{i % 2}\n" for i in range(50)))
    task = Classification(ClassificationSettings(data=str(path)))
    assert repr(task) == f"Classification(data={str(path)!r})", "nothing is read for it"
    corpus = task.corpus
    sizes = f"train={len(corpus.train)}, test={len(corpus.test)}"
    assert repr(task) == f"Classification(data={str(path)!r}, {sizes})"
