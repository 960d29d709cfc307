"""The task of regression: loss, predictions, and a linear baseline."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.reading import checked
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import Example
from regard.lab.data.features import matrix
from regard.lab.data.files import read_examples
from regard.lab.data.labels import MOST
from regard.lab.tasks import unit_of
from regard.lab.tasks.baselines import TfidfFeatures, joined
from regard.lab.tasks.encoded import Batch
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.regression import METRICS, RegressionSettings, RidgeSettings
from regard.lab.tasks.regression.evaluation import (
    Number,
    Numbers,
    all_equal,
    metric_of,
    number_evaluation,
    parsed,
)
from regard.lab.tasks.task import no_labels
from regard.lab.tasks.texts import TextTask, logits_of
from regard.training.learnable import Split


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

    def fit(self, texts: Sequence[str], numbers: Numbers, weights: None = None) -> None:
        """Fit to standardised numbers. Raises: no word occurs in ``minimum`` texts."""
        from sklearn.linear_model import Ridge as Solver

        counts = self.count(texts)
        self.learn_rarity(counts)
        model = Solver(alpha=self.settings.penalty, solver="sparse_cg", tol=1e-6)
        model.fit(joined(self.features(counts), matrix(texts)), numbers)
        self.arrays["weights"] = model.coef_.astype(np.float32)[None]
        self.arrays["bias"] = np.array([model.intercept_], dtype=np.float32)


class Regression(TextTask):
    """Regression on texts; networks predict standardised numbers."""

    settings: RegressionSettings
    metrics = METRICS
    numbers = True

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
        predicted = logits_of(model, batch)
        return F.mse_loss(predicted[:, 0], batch.labels)

    def predict_numbers(self, model: Any, what: Split | Sequence[str | Example]) -> Numbers:
        """Return the predicted number of each text, in the units of the data."""
        if isinstance(model, nn.Module):
            outputs = self.outputs(model, what)[:, 0].astype(np.float64)
        else:
            texts = self.split(what).examples if isinstance(what, str) else what
            outputs = model.scores(self.inputs(texts))[:, 0]
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

    def predict(self, model: Any, inputs: Sequence[str | Example]) -> list[Number]:
        """Predict the numbers of texts."""
        return [Number(float(value)) for value in self.predict_numbers(model, list(inputs))]

    def answer(self, model: Any) -> Evaluation:
        """Return the evaluation of the model on the test split."""
        return self.evaluation(self.test.examples, self.predict_numbers(model, "test"))

    def evaluation(self, examples: Sequence[Example], answers: ArrayLike) -> Evaluation:
        """Evaluate predicted numbers."""
        return number_evaluation(self.metric, examples, answers, self.scale[0])

    def read_row(self, row: Mapping[str, Any]) -> float:
        """Return the number of a row. Raises: it is not finite, or too large."""
        number = float(row["number"])
        if not abs(number) < MOST:
            raise ValueError("a number is not finite, or too large")
        return number

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation of the model on a file of texts with numbers.

        Columns default to those of the training. Raises: a bad row, by file:line.
        """
        no_labels(columns)
        examples = read_examples(data, columns.filled(self.columns))
        return self.evaluation(examples, self.predict_numbers(model, examples))

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network: also the unit of a number."""
        mean, deviation = self.scale
        return {**super().exported(), "mean": mean, "deviation": deviation}

    def weigh(self, model: Any, text: str, answer: Number) -> Any:
        """Return each word's contribution to the number, in standard deviations of the training."""
        if isinstance(model, nn.Module):
            return super().weigh(model, text, answer)
        return model.shares(
            self.inputs([text])[0], 0, "the number, in standard deviations of the training"
        )

    @property
    def output_names(self) -> list[str]:
        return ["the number, in standard deviations from the training mean"]
