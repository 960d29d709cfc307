"""Users' networks and estimators, called as regard calls its own."""

import inspect
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import logit
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.plugins import a
from regard.lab.tasks.heads import NEVER

LENGTHS = {"lengths", "lens", "seq_lens", "valid_lens", "valid_len", "src_lengths"}
KEPT = {"attention_mask", "mask"}  # True: a token
HIDDEN = {"padding_mask", "key_padding_mask", "src_key_padding_mask"}  # True: padding, as in torch


class Called(nn.Module):
    """A user's network as ``network(tokens, lengths)``, which returns logits.

    Its ``forward`` takes token ids (batch, tokens); padding has the id 0. Parameters with these
    names get the numbers of tokens, or which tokens are none of the padding: ``lengths``,
    ``valid_lens``, …; ``mask``, ``attention_mask`` (True: a token); ``key_padding_mask``, … (True:
    padding, as in torch). Of a tuple the first tensor are the logits, of an object or dictionary
    ``logits``.

    Raises: no network; a ``forward`` with other parameters that need a value.

    >>> class Bag(nn.Module):
    ...     def forward(self, ids, mask):
    ...         return mask.sum(1, keepdim=True)
    >>> Called(Bag())(torch.tensor([[3, 4, 0], [5, 0, 0]]), torch.tensor([2, 1])).tolist()
    [[2], [1]]
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        if not isinstance(inner, nn.Module):
            raise RegardError(f"the model is {a(type(inner).__name__)}, not an nn.Module")
        first, *others = inspect.signature(inner.forward).parameters.values()
        named = {one.name for one in others}
        known = LENGTHS | KEPT | HIDDEN
        needs = [
            one.name
            for one in others
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        if left := [name for name in needs if name not in known]:
            raise RegardError(
                f"{type(inner).__name__}.forward needs {', '.join(left)} besides {first.name}; "
                f"name them as one of {', '.join(sorted(known))}, or give them a default"
            )
        self.takes = sorted(named & known)
        self.inner = inner

    def forward(
        self, tokens: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch ..."]:
        """Return the logits of a batch."""
        kept = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        named: dict[str, Tensor] = {}
        for name in self.takes:
            named[name] = lengths if name in LENGTHS else kept if name in KEPT else ~kept
        output: Any = self.inner(tokens, **named)
        if isinstance(output, tuple):
            output = next((one for one in output if isinstance(one, Tensor)), output)
        elif not isinstance(output, Tensor):
            inside = getattr(output, "logits", None)
            output = output["logits"] if inside is None and isinstance(output, dict) else inside
        return cast(Tensor, output)


class Estimator:
    """An estimator of scikit-learn's kind, which reads texts as strings.

    `model` is the estimator with the names of its unset ``random_state`` parameters, which get the
    seed. ``predict_proba`` gives the probabilities; without it the prediction has probability 1.
    """

    #: Nothing is stored.
    arrays: dict[str, NDArray[np.float32]]

    def __init__(self, model: tuple[Any, Sequence[str]], labels: int) -> None:
        from sklearn.base import clone

        estimator, unset = model
        seed = torch.initial_seed() % 2**32
        self.model = clone(estimator).set_params(**dict.fromkeys(unset, seed))
        self.labels, self.arrays = labels, {}

    def fit(
        self,
        texts: Sequence[str],
        answers: NDArray[Any],
        weights: NDArray[np.floating] | None = None,
    ) -> Self:
        """Fit to label numbers, indicators or numbers. Raises: weights; an estimator that fails."""
        if weights is not None:
            raise RegardError("give class_weight to the estimator, and leave class_weights out")
        try:
            self.model.fit([*map(str, texts)], answers)
        except (ValueError, TypeError, AttributeError) as error:
            name, first = type(self.model).__name__, str(error).partition("\n")[0]
            raise RegardError(f"{name}.fit on a list of {len(texts)} texts: {first}") from error
        return self

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return probabilities (texts, labels); 0 for labels that are not in the training texts."""
        inputs, rows = [*map(str, texts)], np.zeros((len(texts), self.labels))
        if not inputs:
            return rows
        if hasattr(self.model, "predict_proba"):
            rows[:, self.model.classes_] = self.model.predict_proba(inputs)
        else:
            rows[np.arange(len(rows)), self.model.predict(inputs)] = 1
        return rows

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return numbers (texts, 1), or log odds of several labels (texts, labels)."""
        inputs = [*map(str, texts)]
        if self.labels > 1 and hasattr(self.model, "predict_proba"):
            return np.asarray(logit(self.model.predict_proba(inputs)))
        answers = np.asarray(self.model.predict(inputs), np.float64).reshape(len(inputs), -1)
        return answers if self.labels == 1 else np.where(answers > 0.5, -NEVER, NEVER)
