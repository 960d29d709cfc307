"""The task of regression: loss, predictions, their evaluation, and a linear baseline."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy.stats import rankdata
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.reading import checked, parse_rows
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import Example
from regard.lab.data.files import read_examples
from regard.lab.data.labels import MOST, number_of, why_no_number
from regard.lab.tasks import unit_of
from regard.lab.tasks.baselines import TfidfFeatures
from regard.lab.tasks.encoded import Batch, plain
from regard.lab.tasks.evaluation import half_width
from regard.lab.tasks.family_evaluation import FamilyEvaluation
from regard.lab.tasks.regression import METRICS, RegressionSettings, RidgeSettings
from regard.lab.tasks.task import no_labels
from regard.lab.tasks.texts import TextTask, outputs_of
from regard.training.learnable import Split

Numbers = NDArray[np.float64]
GUESS = "training mean"  # the guess that ignores the text


@dataclass(frozen=True)
class Number:
    """The number that a model predicts for a text."""

    value: float
    unknown: tuple[str, ...] = ()  # words of the text that the model does not know

    def line(self) -> str:
        """Return the number with six significant digits."""
        return f"{self.value:.6g}"

    def phrase(self) -> str:
        """Return the number with four significant digits."""
        return f"{self.value:.4g}"

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""
        named = {"unknown": list(self.unknown)} if self.unknown else {}
        return {"value": self.value, **named}


def metric_of(name: str, predicted: Numbers, true: Numbers) -> float:
    """Compute R², MAE, RMSE or Spearman's ρ, by the metric's name in tables.

    R² = 1 − Σ (yᵢ − ŷᵢ)² / Σ (yᵢ − ȳ)²; ρ is Pearson's correlation of the ranks. If all true
    numbers are equal, R² and ρ are 0.

    >>> metric_of("MAE", np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    1.5
    """
    wrong = predicted - true
    if name == "MAE":
        return float(np.abs(wrong).mean())
    if name == "RMSE":
        return float(np.sqrt((wrong**2).mean()))
    if name == "R²":
        spread = 0.0 if all_equal(true) else float(((true - true.mean()) ** 2).sum())
        return 1 - float((wrong**2).sum()) / spread if spread else 0.0
    a, b = (x - x.mean() for x in (rankdata(predicted), rankdata(true)))
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else 0.0


def all_equal(numbers: Numbers) -> bool:
    """Return whether all numbers are equal up to rounding, even if their variance is not 0."""
    return bool(np.ptp(numbers) <= 8 * np.finfo(np.float64).eps * np.abs(numbers).max())


def pseudo_values(name: str, predicted: Numbers, true: Numbers) -> Numbers:
    """Return one number per example, larger is better, whose mean is the metric, or minus it.

    MAE: minus the absolute error. RMSE (negated) and R²: the jackknife's n θ − (n − 1) θ₋ᵢ
    (Miller 1974), shifted to have mean θ, in O(n). ρ: the influence of each example, which is the
    first-order term of the jackknife, shifted to have mean ρ, in O(n log n). With
    two examples for R², and four for ρ, the metric is often the same without any one of them: the
    last example then has the full value, so that t is 1 for any difference.
    """
    n, wrong = len(true), (predicted - true) ** 2
    if name == "MAE":
        return -np.abs(predicted - true)
    if n < {"RMSE": 2, "R²": 3}.get(name, 5):
        values = np.zeros(n)
        values[-1:] = n * (-1 if name == "RMSE" else 1) * metric_of(name, predicted, true)
        return values
    if name == "RMSE":
        whole, left = -np.sqrt(wrong.mean()), -np.sqrt((wrong.sum() - wrong) / (n - 1))
    elif name == "R²":
        # Without example i, the sum of squares is smaller by n/(n − 1) (yᵢ − ȳ)².
        spread = 0.0 if all_equal(true) else ((true - true.mean()) ** 2).sum()
        rest = spread - n / (n - 1) * (true - true.mean()) ** 2
        whole = metric_of(name, predicted, true)
        varied = rest > 1e-9 * spread  # otherwise the others are all equal, and their R² is 0
        left = np.where(varied, 1 - (wrong.sum() - wrong) / np.where(varied, rest, 1), 0)
    else:
        whole, influence = metric_of(name, predicted, true), _influence_on_rho(predicted, true)
        return np.asarray(whole + influence - influence.mean())
    values = n * whole - (n - 1) * left
    return np.asarray(values - values.mean() + whole, dtype=np.float64)


def _influence_on_rho(predicted: Numbers, true: Numbers) -> Numbers:
    """Compute the influence of each pair (x, y) on the rank correlation, up to a constant.

        (uᵢvᵢ + a_x(v)ᵢ + a_y(u)ᵢ) / √(s_u s_v)
            − ρ/2 ((uᵢ² + 2a_x(u)ᵢ) / s_u + (vᵢ² + 2a_y(v)ᵢ) / s_v)

    with u, v the centred ranks divided by n, s_u, s_v their variances (constants without ties), and
    a_x(w)ᵢ the sum of w where x > xᵢ, half of it where x = xᵢ, over n. Croux & Dehon 2010.
    """
    u, v = ((rank - rank.mean()) / len(rank) for rank in (rankdata(predicted), rankdata(true)))
    one, other = float(u.var()), float(v.var())
    if not one or not other:
        return np.zeros(len(u))
    size = math.sqrt(one * other)
    both = (u * v + _above(predicted, v) + _above(true, u)) / size
    ties = (u * u + 2 * _above(predicted, u)) / one + (v * v + 2 * _above(true, v)) / other
    return np.asarray(both - float((u * v).mean()) / size / 2 * ties)


def _above(x: Numbers, weights: Numbers) -> Numbers:
    """Return for each i the sum of weights with x > xᵢ, plus half of those with x = xᵢ, over n."""
    order = np.argsort(x, kind="stable")
    ordered, sums = x[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    first, last = (np.searchsorted(ordered, x, side=side) for side in ("left", "right"))
    return np.asarray((sums[-1] - 0.5 * (sums[first] + sums[last])) / len(x))


@dataclass(frozen=True, repr=False)
class RegressionEvaluation(FamilyEvaluation):
    """Predicted and true numbers with their scores.

    `guesses` is the metric of predicting the mean of the training numbers for every text.
    """

    metric: str
    references: tuple[Example, ...] = field(repr=False)
    numbers: Numbers = field(repr=False)
    true: Numbers = field(repr=False)
    guesses: Mapping[str, float]

    @classmethod
    def judge(
        cls, metric: str, examples: Sequence[Example], predicted: Numbers, mean: float
    ) -> "RegressionEvaluation":
        """Evaluate predicted numbers; ``mean`` is the mean of the training numbers.

        Raises: no examples; a label that is not a number.
        """
        if not examples:
            raise RegardError("there are no examples to evaluate; give at least one")
        true = parsed(examples)
        guess = metric_of(metric, np.full(len(true), mean), true)
        return cls(metric, tuple(examples), np.asarray(predicted, np.float64), true, {GUESS: guess})

    @property
    def n(self) -> int:
        """Return the number of texts."""
        return len(self.true)

    @property
    def examples(self) -> Sequence[Example]:
        """Return the texts with their numbers."""
        return self.references

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each text whether the predicted number equals the true one."""
        return np.asarray(self.numbers == self.true)

    @cached_property
    def value(self) -> float:
        """Return the metric."""
        return metric_of(self.metric, self.numbers, self.true)

    @cached_property
    def per_example(self) -> Numbers:
        """Return each text's contribution to the metric: `pseudo_values`."""
        return pseudo_values(self.metric, self.numbers, self.true)

    @property
    def low(self) -> float:
        """Return the lower end of the 95 % interval over texts, value ± 1.96 s/√n."""
        return max(unit_of(self.metric).least, self.value - self._half)

    @property
    def high(self) -> float:
        """Return the upper end of the interval."""
        return min(unit_of(self.metric).most, self.value + self._half)

    @property
    def _half(self) -> float:
        return half_width(self.per_example, 3)

    @property
    def is_constant(self) -> bool:
        """Return whether predicted numbers are equal, up to rounding, but the true ones differ."""
        return bool(np.ptp(self.numbers) <= 1e-6 * np.ptp(self.true)) and not all_equal(self.true)

    @property
    def other_metrics(self) -> dict[str, float]:
        """Return the other metrics."""
        others = [name for name in METRICS.values() if name != self.metric]
        return {name: metric_of(name, self.numbers, self.true) for name in others}

    @property
    def trivial(self) -> Mapping[str, float]:
        """Return the metric of predicting the mean of the training numbers for every text."""
        return self.guesses

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values."""
        values: dict[str, Any] = {
            key: getattr(self, key) for key in ("metric", "value", "low", "high", "n")
        }
        ends = {key: None for key in ("low", "high") if not math.isfinite(values[key])}
        return {**values, **ends, "also": self.other_metrics, "trivial": self.trivial}

    def line(self) -> str:
        """Return the summary in one line."""
        unit = unit_of(self.metric)
        value, low, high = (unit.write(x) for x in (self.value, self.low, self.high))
        others = (f"{name} {unit_of(name).write(x)}" for name, x in self.other_metrics.items())
        summary = f"{self.metric} {value} (95 % interval {low} to {high}, {self.n:,} texts)"
        return ", ".join([summary, *others])

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        unit = unit_of(self.metric)
        value, low, high = (unit.write(x) for x in (self.value, self.low, self.high))
        guess = unit.write(self.guesses[GUESS])
        return [
            (self.metric, f"{value}  (95 % interval {low} to {high}, of texts, not seeds)"),
            (GUESS, f"{guess}  ({self.metric} of predicting the training mean for every text)"),
            *((name, unit_of(name).write(x)) for name, x in self.other_metrics.items()),
        ]

    def rows(self) -> bytes:
        """Return JSON lines: source, text, value (the true number), number, group if any."""
        rows = zip(self.examples, self.true.tolist(), self.numbers.tolist(), strict=True)
        lines = (
            json.dumps(
                {
                    "source": example.source,
                    "text": example.text,
                    "value": true,
                    "number": number,
                    **({"group": example.group} if example.group else {}),
                },
                ensure_ascii=False,
            )
            for example, true, number in rows
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def parse(cls, rows: bytes, metric: str, mean: float, name: str) -> "RegressionEvaluation":
        """Rebuild the evaluation from `rows` of a file ``name``. Raises: malformed rows."""
        lines = list(parse_rows(rows, name))
        try:
            examples = [
                Example(
                    str(row["text"]),
                    f"{float(row['value'])!r}",
                    str(row["source"]),
                    str(row.get("group", "")),
                )
                for row in lines
            ]
            predicted = np.array([float(row["number"]) for row in lines])
            if not (np.abs(predicted) < MOST).all():
                raise ValueError("a number is not finite, or too large")
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls.judge(metric, examples, predicted, mean)


def parsed(examples: Sequence[Example]) -> Numbers:
    """Return the number of each example. Raises: a label that is not a number, by file:line."""
    numbers = [number_of(example.label) for example in examples]
    for example, value in zip(examples, numbers, strict=True):
        if value is None:
            problem = why_no_number(example.label)
            if ";" not in problem:
                problem += (
                    "; name the column of the numbers by label=NAME (--label NAME for regard "
                    "evaluate), or learn labels with regard train classification"
                )
            raise RegardError(f"{example.source}: {problem}")
    return np.array(numbers, dtype=np.float64)


class Scale(BaseModel):
    """Mean and standard deviation of the training numbers, saved in a run's ``env.json``."""

    mean: float = Field(gt=-MOST, lt=MOST)
    deviation: float = Field(gt=0, lt=MOST)


class Ridge(TfidfFeatures):
    """Ridge regression on `TfidfFeatures`: min Σ (w·x + b − z)² + α‖w‖², with z standardised.

    α is the setting ``penalty``. Hoerl & Kennard 1970; solved by scikit-learn's sparse solver.
    """

    name = "ridge"
    settings_class = RidgeSettings

    def fit(self, texts: Sequence[str], numbers: Numbers) -> None:
        """Fit to standardised numbers. Raises: no word occurs in ``minimum`` texts."""
        from sklearn.linear_model import Ridge as Solver

        counts = self.count(texts)
        self.learn_rarity(counts)
        model = Solver(alpha=self.settings.penalty, solver="sparse_cg", tol=1e-6)
        model.fit(self.features(counts), numbers)
        self.arrays["weights"] = model.coef_.astype(np.float32)[None]
        self.arrays["bias"] = np.array([model.intercept_], dtype=np.float32)


class Regression(TextTask):
    """Regression on texts; networks predict standardised numbers."""

    settings: RegressionSettings
    numbers = True

    def __init__(
        self,
        settings: RegressionSettings,
        tokenizer: Any = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(settings, tokenizer, facts)
        self.metric = METRICS[settings.metric]

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the sizes for which a model is built; ``special_tokens`` are the tokenizer's."""
        sizes = {"vocabulary": len(self.tokenizer), "labels": 1}
        return (
            sizes
            if self.tokenizer.special_tokens is None
            else {**sizes, "special_tokens": self.tokenizer.special_tokens}
        )

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Return mean and standard deviation of the training numbers. Raises: all are equal."""
        if self.known:
            saved = {key: self.known.get(key) for key in ("mean", "deviation")}
            known = checked(Scale, saved, Path("env.json"))
            return known.mean, known.deviation
        numbers = parsed(self._split_examples[0])
        if all_equal(numbers):
            raise RegardError(
                f"all {len(numbers):,} training texts have the number {numbers[0]}; give texts "
                "with different numbers"
            )
        return float(numbers.mean()), float(numbers.std())

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, with mean and standard deviation."""
        mean, deviation = self.scale
        return {**super().facts(), "mean": mean, "deviation": deviation}

    def numbered(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return each example's standardised number. Raises: not a number, by file:line."""
        mean, deviation = self.scale
        return np.asarray((parsed(examples) - mean) / deviation, dtype=np.float32)

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean squared error of the standardised numbers."""
        predicted = outputs_of(model, batch.tokens, batch.lengths, batch.parents).float()
        return F.mse_loss(predicted[:, 0], batch.labels)

    def predict_numbers(self, model: Any, what: Split | Sequence[str | Example]) -> Numbers:
        """Return the predicted number of each text, in the units of the data."""
        if isinstance(model, nn.Module):
            outputs = self.outputs(model, what)[:, 0].astype(np.float64)
        else:
            texts = self.split(what).examples if isinstance(what, str) else what
            outputs = model.scores([plain(text) for text in texts])[:, 0]
        mean, deviation = self.scale
        return np.asarray(mean + deviation * outputs)

    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric (larger is better) and the loss.

        For MAE and RMSE, the metric is the relative gain over predicting the training mean:
        1 − error / error of the mean.
        """
        predicted, true = self.predict_numbers(model, split), parsed(self.split(split).examples)
        mean, deviation = self.scale
        loss = float((((predicted - true) / deviation) ** 2).mean())
        value = metric_of(self.metric, predicted, true)
        if unit_of(self.metric).lower:
            worst = metric_of(self.metric, np.full(len(true), mean), true)
            value = 0.0 if all_equal(np.append(true, mean)) else 1 - value / worst
        return value, loss

    @property
    def validates(self) -> str:
        """Return the name of the score that `judge` returns."""
        return f"gain in {self.metric}" if unit_of(self.metric).lower else self.metric

    def fit(self, baseline: Ridge, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the train split, or to its texts at the indexes ``chosen``."""
        baseline.fit(*self.chosen(chosen))

    def predict(self, model: Any, inputs: Sequence[str | Example]) -> list[Number]:
        """Predict the numbers of texts."""
        return [Number(float(value)) for value in self.predict_numbers(model, list(inputs))]

    def answer(self, model: Any) -> RegressionEvaluation:
        """Return the evaluation of the model on the test split."""
        return self._evaluation(self.test.examples, self.predict_numbers(model, "test"))

    def restore(self, rows: bytes, name: str) -> RegressionEvaluation:
        """Rebuild an evaluation from its rows. Raises: malformed rows."""
        return RegressionEvaluation.parse(rows, self.metric, self.scale[0], name)

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> RegressionEvaluation:
        """Return the evaluation of the model on a file of texts with numbers.

        Columns default to those of the training. Raises: a bad row, by file:line.
        """
        no_labels(columns)
        usual = Columns(self.settings.text, self.settings.label)
        examples = read_examples(data, columns.filled(usual))
        return self._evaluation(examples, self.predict_numbers(model, examples))

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network: also the unit of a number."""
        mean, deviation = self.scale
        return {**super().exported(), "mean": mean, "deviation": deviation}

    def weigh(self, model: Any, text: str, answer: Number) -> Any:
        """Return each word's contribution to the number, in standard deviations of the training."""
        if isinstance(model, nn.Module):
            return super().weigh(model, text, answer)
        return model.shares(text, 0, "the number, in standard deviations of the training")

    @property
    def output_names(self) -> list[str]:
        return ["the number, in standard deviations from the training mean"]

    def _evaluation(self, examples: Sequence[Example], predicted: Numbers) -> RegressionEvaluation:
        return RegressionEvaluation.judge(self.metric, examples, predicted, self.scale[0])
