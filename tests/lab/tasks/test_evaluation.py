"""Whether a score exceeds that of a guess, and its interval over groups, for every metric."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from regard.lab.data.examples import Example
from regard.lab.data.pairs import Pair
from regard.lab.tasks.birthplace.evaluation import answer_evaluation
from regard.lab.tasks.classification.evaluation import Prediction, label_evaluation
from regard.lab.tasks.classification.metrics import METRICS as METRICS_OF_LABELS
from regard.lab.tasks.classification.metrics import MOST_NATS
from regard.lab.tasks.evaluation import Evaluation, learned, read_rows
from regard.lab.tasks.multilabel.evaluation import set_evaluation
from regard.lab.tasks.pretraining.evaluation import TokenLosses, token_evaluation, unigram_loss
from regard.lab.tasks.regression import METRICS as METRICS_OF_NUMBERS
from regard.lab.tasks.regression.evaluation import number_evaluation
from regard.lab.tasks.symbols.task import SymbolTask
from regard.lab.tasks.tagging.evaluation import tag_evaluation
from regard.lab.tasks.writing.evaluation import Text, text_evaluation

RNG = np.random.default_rng(0)
MANY = 1000


def labelled(metric: str, right: float) -> Evaluation:
    """Three labels, 60, 30 and 10 %; so many answers are right, the others drawn by frequency."""
    truth = RNG.choice(3, MANY, p=[0.6, 0.3, 0.1])
    said = np.where(RNG.random(MANY) < right, truth, RNG.choice(3, MANY, p=[0.6, 0.3, 0.1]))
    shares = np.full((MANY, 3), [0.6, 0.3, 0.1]) + 3 * right * np.eye(3)[said]
    examples = [Example("a", "xyz"[label], "f:1") for label in truth]
    chances = shares / shares.sum(1, keepdims=True) if metric == "log-loss" else np.eye(3)[said]
    trained = [600, 300, 100]
    return label_evaluation("xyz", examples, chances, metric=metric, trained=trained)


def regression(metric: str, right: float) -> Evaluation:
    true = RNG.normal(10, 2, MANY)
    said = 10 + right * (true - 10) + 0.1 * RNG.normal(size=MANY)
    examples = [Example("a", f"{x!r}", "f:1") for x in true.tolist()]
    return number_evaluation(metric, examples, said, 10.0)


def spans(right: float) -> Evaluation:
    examples = [Example("a b c", "O B-x O", f"f:{i}", parents=(-1, 0, 1)) for i in range(100)]
    tags = [["O", "B-x" if i < 100 * right else "O", "B-y"] for i in range(100)]
    return tag_evaluation("span F1", examples, tags, "O")


def symbols(right: float) -> Evaluation:
    true = RNG.choice(20, MANY)
    said = np.where(RNG.random(MANY) < right, true, RNG.choice(20, MANY))
    examples = [Example("a", f"s{x}", "f:1", parents=(-1,)) for x in true]
    return tag_evaluation("accuracy", examples, [[f"s{x}"] for x in said], "s3", SymbolTask.scoring)


def written(metric: str, right: float) -> Evaluation:
    pairs = [Pair(f"s {i}", f"t{i} goes to the town {i}", f"f:{i}") for i in range(200)]
    texts = [Text(p.target if i < 200 * right else "x y z w", -1.0, True)
             for i, p in enumerate(pairs)]  # fmt: skip
    return text_evaluation(metric, [pair.example for pair in pairs], texts)


def answered(right: float) -> Evaluation:
    places = ["London"] * 10 + [f"P{i}" for i in range(190)]
    pairs = [Pair(f"who {i}", place, f"f:{i}") for i, place in enumerate(places)]
    texts = [Text(p.target if i < 200 * right else "Rome", -1.0, True)
             for i, p in enumerate(pairs)]  # fmt: skip
    return answer_evaluation([pair.example for pair in pairs], texts, "London")


def tokens(right: float) -> Evaluation:
    ids = RNG.choice(50, 2000, p=np.arange(1, 51) / 1275)
    nats = -np.log((1 - right) * (ids + 1) / 1275 + right)
    halves = zip(np.split(nats, 2), np.split(RNG.random(2000) < 0.1, 2), strict=True)
    chunks = [TokenLosses(*half, unigram_loss(ids)) for half in halves]
    return token_evaluation([Example(text, "", f"piece:{text}") for text in "ab"], chunks)


CASES = {
    **{name: (lambda r, m=name: labelled(m, r)) for name in METRICS_OF_LABELS},
    **{name: (lambda r, m=name: regression(m, r)) for name in METRICS_OF_NUMBERS.values()},
    "span F1": spans,
    "symbols": symbols,
    "BLEU": lambda r: written("BLEU", r),
    "exact match": lambda r: written("exact match", r),
    "birthplace": answered,
    "tokens": tokens,
}


@pytest.mark.parametrize("case", CASES)
def test_a_score_that_left_the_trivial_answer_is_told_from_one_that_did_not(case: str) -> None:
    assert not CASES[case](0.0).learned
    assert CASES[case](0.8).learned


def test_a_plateau_at_chance_by_its_numbers() -> None:
    scores = np.repeat([1.0, 0.0], [63, 937])
    assert not learned(scores, 0.051, 1.0)  # 6.3 % where the most frequent answer has 5.1 %
    assert learned(np.repeat([1.0, 0.0], [100, 900]), 0.051, 1.0)
    assert not learned(np.repeat([1.0, 0.0], [9, 91]), 0.051, 1.0)  # 100 examples: chance
    assert learned(np.repeat([1.0, 0.0], [35, 15]), 0.6, 1.0)  # 50 examples, a tenth is enough
    assert learned(np.ones(5), 1.0, 1.0)  # nothing is better than the guess


def test_the_loss_of_token_frequencies_is_kept_with_the_answers() -> None:
    kept = tokens(0.5)
    examples, again = read_rows(kept.rows(), "p", TokenLosses.of_row)
    assert examples == kept.examples
    assert again[0].unigram == kept.answers[0].unigram == pytest.approx(3.7, abs=0.15)
    unknown = TokenLosses(np.ones(3), np.ones(3, bool))
    assert token_evaluation(examples[:1], [unknown]).learned


def test_the_answer_by_a_threshold_is_the_first_of_the_ranked() -> None:
    answer = Prediction("x", {"y": 0.7, "x": 0.2, "z": 0.1})
    assert [label for label, _ in answer.top()] == ["x", "y", "z"]
    assert answer.line() == "x\t0.200"


def of_texts(metric: str) -> Callable[[list[Example]], Evaluation]:
    return lambda asked: label_evaluation(
        "xy", asked, [[0.8, 0.2] if int(x.text) % 4 else [0.3, 0.7] for x in asked], metric=metric
    )


GROUPED: dict[str, Callable[[list[Example]], Evaluation]] = {
    **{name: of_texts(name) for name in METRICS_OF_LABELS},
    "subset accuracy": lambda asked: set_evaluation(
        "subset accuracy", ["x", "y"], asked, [[0.9, 0.1 * (int(x.text) % 8)] for x in asked],
        [0.5, 0.5], [5, 5], 10,
    ),
    "MAE": lambda asked: number_evaluation(
        "MAE", [replace(x, label=x.text) for x in asked], [1.1 * int(x.text) for x in asked], 10.0
    ),
    "span F1": lambda asked: tag_evaluation(
        "span F1", [replace(x, label="B-x", parents=(-1,)) for x in asked],
        [["B-x" if int(x.text) % 3 else "O"] for x in asked], "O",
    ),
}  # fmt: skip


@pytest.mark.parametrize("metric", GROUPED)
def test_texts_of_a_group_count_as_one(metric: str) -> None:
    once = [Example(str(i), "xy"[i % 5 > 2], f"f:{i}") for i in range(40)]
    alike = [replace(x, group=f"author {x.text}") for x in once for _ in range(10)]
    alone, together = GROUPED[metric](once), GROUPED[metric](alike)
    width = together.high - together.low
    assert width == pytest.approx(1.03 * (alone.high - alone.low), rel=0.05)  # t for normal
    naive = GROUPED[metric]([replace(x, group="") for x in alike])
    assert width > 2.5 * (naive.high - naive.low)
    assert together.value == pytest.approx(naive.value)
    one = GROUPED[metric]([replace(x, group="one author") for x in once])
    assert (one.low, one.high) == (0, {"MAE": math.inf, "log-loss": MOST_NATS}.get(metric, 1))
