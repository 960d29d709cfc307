"""A linear head on the vectors of a text encoder: static word vectors or a sentence encoder."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy.special import softmax
from torch import Tensor

from regard.analysis.attribution import Scalar, apart, close_gradients
from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.interop.sentences import SentenceEncoder, load, load_static
from regard.lab.data.embeddings import embed
from regard.lab.data.examples import texts_of
from regard.lab.data.features import matrix
from regard.lab.tasks.baseline_settings import SentenceSettings, StaticSettings
from regard.lab.tasks.baselines import Weighed, describe, read_saved
from regard.lab.tasks.heads import PENALTIES, Head, fit_each, fit_labels, fit_numbers
from regard.training.batches import pad


class Embedded(ABC):
    """Logistic regression, or with ``labels=1`` ridge regression, on an encoder's vectors.

    Fitted to indicators (texts, labels), it is a logistic regression for each label.

    Save stores the head, the encoder's name and its fingerprint, not the weights.
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]]

    def __init__(self, settings: Any, labels: int) -> None:
        self.settings, self.labels = settings, labels
        self.head: Head | None = None

    @cached_property
    @abstractmethod
    def encoder(self) -> SentenceEncoder:
        """Return the encoder. Raises: as `load` and `load_static` of `regard.interop.sentences`."""

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the numbers of the head that are saved."""
        head = self._fitted
        return {
            "weights": head.weight.astype(np.float32),
            "bias": head.bias.astype(np.float32),
        }

    def vectors(self, texts: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        """Return the vectors of texts, from the cache where they are in it.

        The vector of two texts with the vectors u and v of width w is [u; v; |u − v|; √w u ∘ v]
        (Reimers and Gurevych 2019, section 3 and table 6), whose parts are of similar length if u
        and v are of length 1. The numbers of further columns follow.
        """
        prompt, windows = self.settings.prompt or None, self.settings.long == "windows"
        first, *second = (
            embed(self.encoder, side, prompt=prompt, windows=windows).astype(np.float64)
            for side in zip(*map(texts_of, texts), strict=True)
        )
        parts = [first]
        for other in second:
            product = first * other * math.sqrt(first.shape[1])
            parts += [other, np.abs(first - other), product]
        return np.hstack([*parts, matrix(texts)])

    def fit(
        self,
        texts: Sequence[str],
        answers: NDArray[Any],
        weights: NDArray[np.floating] | None = None,
    ) -> Self:
        """Fit the head; C is chosen by cross-validation: see `regard.lab.tasks.heads`.

        A second call keeps C: after the choice by the training texts, the head is fitted again with
        those of validation. Raises: texts of fewer than two labels.
        """
        vectors = self.vectors(texts)
        penalties = PENALTIES if self.head is None else (self.head.inverse_penalty,)
        if np.ndim(answers) == 2:
            self.head = fit_each(vectors, answers, penalties)
        elif self.labels == 1:
            self.head = fit_numbers(vectors, np.asarray(answers, dtype=np.float64), penalties)
        else:
            labels = np.asarray(answers)
            self.head = fit_labels(vectors, labels, self.labels, penalties, weights=weights)
        return self

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the outputs (texts, labels): logits, or numbers."""
        if not len(texts):
            return np.zeros((0, self.labels))
        return np.asarray(self._fitted(self.vectors(texts)), dtype=np.float64)

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return probabilities (texts, labels)."""
        return np.asarray(softmax(self.scores(texts), axis=1))

    def weigh(self, text: str, label: int, name: str = "") -> Weighed:
        """Return the contribution of each token to the logit of a label: see `shares`."""
        return self.shares(text, label, f"the logit of {name}")

    def shares(self, text: str, column: int, of: str = "") -> Weighed:
        """Return the integrated gradients of an output for a text's tokens, in their order.

        Their sum and the bias, the output without words, are the output. Only the first window of a
        long text is read. Further columns add to the bias. Raises: two texts.
        """
        if len(texts_of(text)) > 1:
            raise RegardError(f"{self.name} cannot weigh the words of two texts; tfidf can")
        encoder, head = self.encoder, self._fitted
        before = self.settings.prompt or encoder.reading.prompt
        ids = encoder.reading.tokens([before + texts_of(text)[0]])
        names = [encoder.reading.tokenizer.decode([i], skip_special_tokens=False) for i in ids[0]]
        begins = 0 if encoder.pool.prompt else encoder.reading.begins(before)
        columns = matrix([text])[0]
        width = head.weight.shape[1] - len(columns)
        weight = torch.from_numpy(head.weight[column, :width].astype(np.float32))
        bias = float(head.bias[column] + head.weight[column, width:] @ columns)
        if not names:
            return Weighed([], np.zeros(0), {}, bias, of)
        tokens, lengths = pad(ids)

        def forward(copies: int) -> Tensor:
            vectors = encoder(tokens.expand(copies, -1), lengths.expand(copies), begins)
            output: Tensor = vectors @ weight + bias
            return output

        table: Any = encoder.body.embedding
        found = close_gradients(Scalar(of, forward, [table], [names]))
        terms = dict(zip(apart(names), found.values.tolist(), strict=True))
        return Weighed(names, found.values, terms, found.baseline, of)

    def save(self, folder: Path) -> None:
        """Write baseline.json and baseline.safetensors into an existing folder."""
        penalty = self._fitted.inverse_penalty
        describe(self, folder, sha256=self.encoder.fingerprint, inverse_penalty=penalty)
        save_file(self.arrays, folder / "baseline.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a model that `save` wrote. Raises: damaged files; an encoder with other weights."""
        model: Self
        model, arrays, saved = read_saved(folder, cls)
        if saved.sha256 != model.encoder.fingerprint:
            raise RegardError(
                f"{model.settings.weights} has changed since {folder} was written: its weights or "
                "settings have another hash; restore them, or train again"
            )
        shape = {name: array.shape for name, array in arrays.items()}
        width = shape.get("weights", (0, 0))[-1]
        if shape != {"weights": (model.labels, width), "bias": (model.labels,)} or not all(
            np.isfinite(array).all() for array in arrays.values()
        ):
            raise RegardError(f"{folder} is damaged: restore its files, or train again")
        weight, bias = (arrays[name].astype(np.float64) for name in ("weights", "bias"))
        model.head = Head(weight, bias, saved.inverse_penalty, math.nan)
        return model

    @property
    def _fitted(self) -> Head:
        if self.head is None:
            raise RegardError(f"{self.name} is not fitted; call fit first")
        return self.head


class Static(Embedded):
    """A head on the mean of static word vectors."""

    name = "static"
    settings_class = StaticSettings

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """Return static vectors."""
        return load_static(self.settings.weights)


class Sentence(Embedded):
    """A head on the vectors of a sentence encoder. Reimers and Gurevych 2019."""

    name = "sentence"
    settings_class = SentenceSettings

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """Return a sentence encoder."""
        return load(self.settings.weights)
