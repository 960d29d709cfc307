"""The task of several labels for each text, and logistic regression for each of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import Example
from regard.lab.data.features import matrix
from regard.lab.data.files import read_examples
from regard.lab.data.label_lists import labels_in, with_lists
from regard.lab.data.spelling import counted
from regard.lab.tasks.baselines import TfidfFeatures, joined
from regard.lab.tasks.classification.evaluation import Prediction
from regard.lab.tasks.classification.task import Classification
from regard.lab.tasks.encoded import Batch
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.heads import PENALTIES, Head, fit_each, one_against_rest
from regard.lab.tasks.multilabel import METRICS, MultilabelSettings, OneVsRestSettings
from regard.lab.tasks.multilabel.evaluation import (
    Labels,
    indicators,
    label_sets,
    log_loss,
    scores,
    set_evaluation,
)
from regard.lab.tasks.ranking import best_threshold
from regard.lab.tasks.task import no_labels
from regard.lab.tasks.texts import TextTask, logits_of
from regard.training.learnable import Split


class OneVsRest(TfidfFeatures):
    """Logistic regression for each label on `TfidfFeatures`; C is chosen by cross-validation."""

    name = "tfidf"
    settings_class = OneVsRestSettings

    def fit(
        self, texts: Sequence[str], answers: NDArray[np.floating], weights: None = None
    ) -> None:
        """Fit to indicators (texts, labels). Raises: no word occurs in ``minimum`` texts."""
        counts = self.count(texts)
        self.learn_rarity(counts)
        head = one_against_rest(
            joined(self.features(counts), matrix(texts)), answers, PENALTIES[::2]
        )
        self.arrays["weights"] = head.weight.astype(np.float32)
        self.arrays["bias"] = head.bias.astype(np.float32)


class Multilabel(Classification):
    """Several labels for each text; a model predicts the probability of each label on its own."""

    settings: MultilabelSettings  # type: ignore[assignment]
    metrics = METRICS

    def labels_of(self, example: Example) -> list[str]:
        """Return the labels of an example."""
        return labels_in(example.label)

    @property
    def label_notes(self) -> list[str]:
        """Return a note about texts without a label."""
        train = self.corpus.train
        bare = sum(not example.label for example in train)
        return [f"{counted(bare, 'training text')} of {len(train):,} without a label"] * (bare > 0)

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, with its labels and their separator."""
        facts = {**TextTask.facts(self), "labels": list(self.labels)}
        facts |= {"counts": list(self.counts.values()), "separator": self.separator}
        return {**facts, "texts": self.trained}

    @cached_property
    def trained(self) -> int:
        """Return the number of training texts."""
        return int(self.known["texts"]) if "texts" in self.known else len(self._split_examples[0])

    @property
    def separator(self) -> str:
        """Return what stands between the labels in the file."""
        return str(self.known.get("separator") or self.corpus.separator)

    @property
    def weights(self) -> None:
        """Return None: the labels have equal weights."""
        return None

    def numbered(self, examples: Sequence[Example]) -> NDArray[np.float32]:  # type: ignore[override]
        """Return 1 where an example has a label. Raises: an unknown label, by file:line."""
        return indicators(self.labels, examples).astype(np.float32)

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean binary cross entropy over texts and labels, in nats."""
        logits = logits_of(model, batch)
        return F.binary_cross_entropy_with_logits(logits, batch.labels)

    def probabilities(
        self, model: Any, what: Split | Sequence[str | Example], *, tokens: int = 16_384
    ) -> NDArray[np.floating]:
        """Return probabilities (examples, labels), σ(outputs)."""
        if isinstance(model, nn.Module):
            return torch.from_numpy(self.outputs(model, what, tokens=tokens)).sigmoid().numpy()
        texts = self.split(what).examples if isinstance(what, str) else what
        return np.asarray(expit(model.scores(self.inputs(texts))))

    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric (larger is better) and the log loss of a split.

        Thresholds that are chosen, but not yet known, are chosen on this split.
        """
        chances, truth = self.probabilities(model, split, tokens=tokens), self.answers(split) > 0
        thresholds: ArrayLike = self.thresholds
        if self.settings.threshold == "chosen" and "thresholds" not in self.known:
            thresholds = _best(chances, truth)
        return scores(chances, truth, thresholds)[0][self.metric], log_loss(chances, truth)

    @property
    def thresholds(self) -> list[float]:
        """Return for each label the probability above which it is predicted."""
        if self.settings.threshold != "chosen":
            return [float(self.settings.threshold)] * len(self.labels)
        thresholds = list(self.known.get("thresholds", [0.5] * len(self.labels)))
        if len(thresholds) != len(self.labels):
            raise RegardError("the run's env.json needs a threshold for each label; train it again")
        return thresholds

    def decide(self, model: Any) -> dict[str, Any]:
        """Return for each label the threshold with the best F1 on the validation split."""
        if self.settings.threshold != "chosen":
            return {}
        chances = self.probabilities(model, "validation")
        return {"thresholds": _best(chances, self.answers("validation") > 0)}

    def fit_head(
        self, states: NDArray[np.floating], answers: NDArray[Any], penalties: Sequence[float]
    ) -> Head:
        """Fit a linear layer to the states of an encoder; C is chosen among the penalties."""
        return fit_each(states, answers, penalties)

    def sample(self, every: int) -> list[int]:
        """Return the index of every ``every``-th text, and of the first text of each label."""
        first = self.answers("train").argmax(0)
        return sorted({*TextTask.sample(self, every), *first.tolist()})

    def predict(self, model: Any, inputs: Sequence[str | Example]) -> list[Labels]:  # type: ignore[override]
        """Predict the labels of texts. Raises: a model of trees and texts without trees."""
        return label_sets(self.labels, self.probabilities(model, inputs), self.thresholds)

    def evaluation(self, examples: Sequence[Example], answers: ArrayLike) -> Evaluation:
        """Evaluate probabilities (examples, labels)."""
        counts = list(self.counts.values())
        return set_evaluation(
            self.metric, self.labels, examples, answers, self.thresholds, counts, self.trained
        )

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation of the model on a labelled file.

        Columns default to those of the training. Raises: a bad row or an unknown label, by
        file:line.
        """
        no_labels(columns)
        usual = replace(self.columns, separator=self.separator)
        examples = with_lists(read_examples(data, columns.filled(usual)), self.separator)
        return self.evaluation(examples, self.probabilities(model, examples))

    def weigh(self, model: Any, text: str, answer: Prediction) -> Any:
        """Return each word's contribution to the score of the first label of an answer."""
        if isinstance(model, nn.Module):
            return super().weigh(model, text, answer)
        (text,) = self.inputs([text])
        label = answer.top(1)[0][0]
        return model.shares(text, self.labels.index(label), f"the score of {label}")

    def about(self) -> dict[str, Any]:
        """Return the labels and their thresholds."""
        return {"labels": list(self.labels), "thresholds": self.thresholds}


def _best(chances: NDArray[np.floating], truth: NDArray[np.bool_]) -> list[float]:
    """Return for each label the threshold of the best F1; 0.5 without a text that has it."""
    thresholds = []
    for chance, true in zip(chances.T, truth.T, strict=True):
        f1 = partial(_f1, support=int(true.sum()))
        thresholds.append(best_threshold(chance, true, f1) if true.any() else 0.5)
    return thresholds


def _f1(hits: NDArray[np.int64], cut: NDArray[np.int64], support: int) -> NDArray[np.float64]:
    return np.asarray(2 * hits / (cut + support))
