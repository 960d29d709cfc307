"""The task of text classification: film reviews, or the user's own file."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from regard.core.errors import RegardError, look_up
from regard.lab.data.balance import ADVICE, imbalance
from regard.lab.data.class_files import is_classes
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.data.examples import Example
from regard.lab.data.files import read_examples
from regard.lab.data.labels import parse_labels, rename
from regard.lab.data.texts import NAMES
from regard.lab.data.tokenizers import Tokenizer
from regard.lab.tasks.classification.evaluation import (
    Prediction,
    label_evaluation,
    label_numbers,
    predictions,
)
from regard.lab.tasks.classification.metrics import METRICS, log_loss, score_of_cuts, scores
from regard.lab.tasks.encoded import Batch
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.ranking import best_threshold
from regard.lab.tasks.settings import ClassificationSettings
from regard.lab.tasks.texts import TextTask, logits_of
from regard.training.learnable import Split


class Classification(TextTask):
    """Text classification; a model predicts the probability of each label."""

    settings: ClassificationSettings
    metrics = METRICS
    ranks = True

    def __init__(
        self,
        settings: ClassificationSettings,
        tokenizer: Tokenizer | EncoderTokenizer | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(settings, tokenizer, facts)
        if facts is not None:
            if not facts.get("labels"):
                raise RegardError("the run's env.json has no labels; train the run again")
            self.labels = tuple(facts["labels"])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the labels; a label's number is its index here."""
        return self.corpus.labels

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the number of training texts of each label, in the order of `labels`."""
        if "counts" in self.known:
            return dict(zip(self.labels, self.known["counts"], strict=False))
        examples = self._split_examples[0]
        counts = Counter(label for example in examples for label in self.labels_of(example))
        return {label: counts[label] for label in self.labels}

    def labels_of(self, example: Example) -> list[str]:
        """Return the labels of an example."""
        return [example.label]

    @property
    def notes(self) -> list[str]:
        """Return the notes of the data and its labels."""
        return [*super().notes, *self.label_notes]

    @property
    def label_notes(self) -> list[str]:
        """Return notes about imbalanced labels."""
        test = Counter(example.label for example in self.corpus.test)
        uneven = imbalance(self.counts, test)
        if uneven and (self.settings.metric, self.settings.class_weights) == ("accuracy", "none"):
            uneven[-1] += f"; {ADVICE}"
        return uneven

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, with its labels and their training texts."""
        counts = list(self.counts.values())
        if self.settings.threshold != 0.5 and len(counts) > 2:
            raise RegardError(
                f"threshold={self.settings.threshold} needs two labels, and these data have "
                f"{len(counts)}; leave it out"
            )
        return {**super().facts(), "labels": list(self.labels), "counts": counts}

    @cached_property
    def weights(self) -> NDArray[np.float32] | None:
        """Return the weight of each label in the training loss; None for equal weights."""
        return class_weights(self.settings.class_weights, self.counts)

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean cross entropy in nats, weighted by label.

        Σᵢ w[yᵢ] · −ln p(yᵢ) / Σᵢ w[yᵢ], with w from the setting ``class_weights``, 1 by default.
        """
        logits = logits_of(model, batch)
        weights = None
        if self.weights is not None:
            weights = torch.from_numpy(self.weights).to(logits.device)
        return F.cross_entropy(logits, batch.labels, weights)

    def items(self, batch: Batch) -> Sequence[float]:
        """Return Σᵢ w[yᵢ], over which the loss is a mean."""
        if self.weights is None:
            return super().items(batch)
        return [float(self.weights[batch.labels.numpy()].sum(dtype=np.float64))]

    def probabilities(
        self, model: Any, what: Split | Sequence[str | Example], *, tokens: int = 16_384
    ) -> NDArray[np.floating]:
        """Return probabilities (examples, labels) in the order of a split or of texts.

        Raises: a model of trees and texts without trees.
        """
        if isinstance(model, nn.Module):
            logits = torch.from_numpy(self.outputs(model, what, tokens=tokens))
            return logits.softmax(-1).numpy()
        texts = self.split(what).examples if isinstance(what, str) else what
        probabilities: NDArray[np.floating] = model.probabilities(self.inputs(texts))
        return probabilities

    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric (larger is better) and the log loss of a split.

        With metric=log-loss the metric is exp(−log loss), the geometric mean of the probabilities
        of the true labels.
        """
        probabilities, answers = (
            self.probabilities(model, split, tokens=tokens),
            self.answers(split),
        )
        threshold = self.threshold
        if self.settings.threshold == "chosen" and "threshold" not in self.known:
            threshold = self._best(probabilities, answers)
        values = scores(probabilities, answers, threshold)
        value = values[self.metric]
        if self.metric == METRICS["log-loss"]:
            value = float(np.exp(-value))
        return value, log_loss(probabilities, answers)

    @property
    def threshold(self) -> float:
        """Return the probability above which the second of two labels is predicted."""
        if self.settings.threshold == "chosen":
            return float(self.known.get("threshold", 0.5))
        return float(self.settings.threshold)

    def decide(self, model: Any) -> dict[str, Any]:
        """Return the threshold with the best metric on the validation split, if it is chosen.

        For log loss and average precision it is that of the best macro-F1.
        """
        if self.settings.threshold != "chosen":
            return {}
        probabilities, answers = self.probabilities(model, "validation"), self.answers("validation")
        return {"threshold": self._best(probabilities, answers)}

    def _best(self, probabilities: NDArray[np.floating], answers: NDArray[np.int64]) -> float:
        score = score_of_cuts(self.settings.metric, int(answers.sum()), len(answers))
        return best_threshold(probabilities[:, 1], answers == 1, score)

    def answers(self, split: Split) -> NDArray[np.int64]:
        """Return the true label numbers of a split."""
        return self.split(split).labels

    def sample(self, every: int) -> list[int]:
        """Return the index of every ``every``-th text, and of the first text of each label."""
        first = np.unique(self.answers("train"), return_index=True)[1]
        return sorted({*super().sample(every), *first.tolist()})

    def predict(self, model: Any, inputs: Sequence[str | Example]) -> list[Prediction]:
        """Predict labels of texts. Raises: a model of trees and texts without trees."""
        return predictions(self.labels, self.probabilities(model, inputs), self.threshold)

    @property
    def output_names(self) -> list[str]:
        return [f"logit of {label}" for label in self.labels]

    def answer(self, model: Any) -> Evaluation:
        """Return the evaluation of the model on the test split."""
        return self.evaluation(self.test.examples, self.probabilities(model, "test"))

    def evaluation(self, examples: Sequence[Example], answers: ArrayLike) -> Evaluation:
        """Evaluate probabilities (examples, labels)."""
        settings, trained = self.settings, list(self.counts.values())
        return label_evaluation(
            self.labels,
            examples,
            answers,
            metric=settings.metric,
            trained=trained,
            threshold=self.threshold,
        )

    def read_row(self, row: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the probabilities of a row. Raises: they are not between 0 and 1."""
        chances = np.array([row["probabilities"][label] for label in self.labels], np.float64)
        if not ((chances >= 0) & (chances <= 1)).all():
            raise ValueError("a probability is not between 0 and 1")
        return chances

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation of the model on a labelled file.

        Columns default to those of the training. Raises: a bad row or an unknown label, by
        file:line.
        """
        settings = self.settings
        usual = NAMED if is_classes(data) else self.columns
        examples = read_examples(data, columns.filled(usual))
        names = parse_labels(columns.labels or settings.labels)
        examples = rename(examples, names, must_occur=bool(columns.labels))
        return self.evaluation(examples, self.probabilities(model, examples))

    def weigh(self, model: Any, text: str, answer: Prediction) -> Any:
        """Return each word's contribution to the score of the label that a baseline predicts."""
        if isinstance(model, nn.Module):
            return super().weigh(model, text, answer)
        (text,) = self.inputs([text])
        return model.weigh(text, self.labels.index(answer.label), answer.label)

    def excluded_from(self, texts: str) -> dict[str, str]:
        """Return the settings of a pretraining on ``texts`` that exclude the test split.

        Raises: ``texts`` is the file that the test split is taken from.
        """
        data, test = self.settings.data, self.settings.test
        same = Path(texts).expanduser().resolve() == Path(data).expanduser().resolve()
        if test or not same:
            return {"without": test or data, "without_text": self.settings.text}
        if texts in NAMES:  # these exclude their own test split
            return {}
        raise RegardError(
            f"--pretrain-on {texts} is the task's own data, which includes its test split; give "
            "the test as a file by test=FILE, or other texts"
        )

    def about(self) -> dict[str, Any]:
        """Return the labels, and a threshold other than 0.5."""
        threshold = {} if self.threshold == 0.5 else {"threshold": self.threshold}
        return {"labels": list(self.labels), **threshold}

    def numbered(self, examples: Sequence[Example]) -> NDArray[np.int64]:
        """Return each example's label number. Raises: an unknown label, by file:line."""
        return label_numbers(self.labels, examples)


def class_weights(text: str, counts: Mapping[str, int]) -> NDArray[np.float32] | None:
    """Parse the setting ``class_weights`` to label weights of a loss; None for equal weights.

    "balanced": n / (C · nᵢ) for a label with nᵢ of the n training texts, where C labels have any
    (scikit-learn's rule; King & Zeng 2001). "LABEL:WEIGHT,…": these weights, and 1 for all others.

    >>> class_weights("balanced", {"no": 6, "yes": 2}).tolist()
    [0.6666666865348816, 2.0]
    >>> class_weights("yes:5", {"no": 6, "yes": 2}).tolist()
    [1.0, 5.0]

    Raises: another form; an unknown label; a weight that is not above 0.
    """
    if text == "none":
        return None
    if text == "balanced":
        many = np.array(list(counts.values()), dtype=np.float64)
        weights = many.sum() / (np.count_nonzero(many) * np.maximum(many, 1))
        return np.asarray(np.where(many > 0, weights, 1.0), dtype=np.float32)
    weight_of = dict.fromkeys(counts, 1.0)
    for pair in text.split(","):
        label, colon, weight = pair.rpartition(":")
        if not colon:
            raise RegardError(
                f"invalid class_weights={text!r:.80}; give none, balanced or LABEL:WEIGHT,…"
            )
        look_up(weight_of, label.strip(), "label")
        try:
            weight_of[label.strip()] = float(weight)
        except ValueError:
            weight_of[label.strip()] = math.nan
        if not 0 < weight_of[label.strip()] < math.inf:
            raise RegardError(
                f"class_weights: the weight of {label!r} must be a number above 0, not {weight!r}"
            )
    return np.array(list(weight_of.values()), dtype=np.float32)
