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
from torch.nn.parameter import is_lazy

from regard.core.errors import RegardError
from regard.core.plugins import a
from regard.lab.tasks.heads import NEVER

LENGTHS = {"lengths", "lens", "seq_lens", "valid_lens", "valid_len", "src_lengths"}
KEPT = {"attention_mask", "mask"}
HIDDEN = {"padding_mask", "key_padding_mask", "src_key_padding_mask"}


class Called(nn.Module):
    """A user's network as ``network(tokens, lengths)``, which returns logits.

    Its ``forward`` takes token ids (batch, tokens), with 0 for padding, and by their names the
    numbers of tokens (`LENGTHS`) or masks, True for tokens (`KEPT`) or for padding (`HIDDEN`, as in
    torch). Of a tuple the first tensor are the logits, of an object or dictionary ``logits``.

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
        known = LENGTHS | KEPT | HIDDEN
        first, *others = inspect.signature(inner.forward).parameters.values()
        self.takes = [one.name for one in others if one.name in known]
        needs = [x for x in others if x.default is x.empty and x.kind is x.POSITIONAL_OR_KEYWORD]
        if left := [one.name for one in needs if one.name not in known]:
            raise RegardError(
                f"{type(inner).__name__}.forward needs {', '.join(left)} besides {first.name}; "
                f"name them as one of {', '.join(sorted(known))}, or give them a default"
            )
        self.inner = inner
        if any(map(is_lazy, inner.parameters())):  # the optimizer needs them
            with torch.no_grad():
                self(torch.ones(1, 8, dtype=torch.long))

    def forward(
        self, tokens: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch ..."]:
        """Return the logits of a batch."""
        if lengths is None:
            lengths = tokens.new_full((len(tokens),), tokens.shape[1])
        kept = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        values = {**dict.fromkeys(LENGTHS, lengths), **dict.fromkeys(KEPT, kept)}
        output: Any = self.inner(tokens, **{name: values.get(name, ~kept) for name in self.takes})
        if isinstance(output, tuple):
            output = next((one for one in output if isinstance(one, Tensor)), output)
        elif not isinstance(output, Tensor):
            output = output["logits"] if isinstance(output, dict) else output.logits
        return cast(Tensor, output)

    def start(self, *_: Any) -> Any:
        """Raise an error: the network has no states from which a text is continued."""
        raise RegardError("a network from elsewhere is compared by its losses and writes no texts")


def unset(estimator: Any) -> list[str]:
    """Return the names of an estimator's parameters ``random_state`` that are not set."""
    items = estimator.get_params().items()
    return [key for key, x in items if x is None and key.split("__")[-1] == "random_state"]


class Estimator:
    """An estimator of scikit-learn's kind, which reads texts as strings.

    An unset ``random_state`` is the seed. Without ``predict_proba`` a prediction has probability 1.
    """

    def __init__(self, estimator: Any, settings: Any, vocabulary: int, labels: int, _: Any) -> None:
        from sklearn.base import clone

        seed = torch.initial_seed() % 2**32  # of the run, as for the weights of a network
        self.model = clone(estimator).set_params(**dict.fromkeys(unset(estimator), seed))
        self.labels, self.arrays = labels, dict[str, NDArray[np.float32]]()  # nothing is stored

    def fit(self, texts: Sequence[str], answers: Any = None, weights: Any = None) -> Self:
        """Fit to label numbers, indicators or numbers. Raises: weights; a task of other inputs."""
        if answers is None or not isinstance(texts[0], str):
            raise RegardError("an estimator labels texts or predicts numbers; give a network here")
        if weights is not None:
            raise RegardError("give class_weight to the estimator, and leave class_weights out")
        self.model.fit([*map(str, texts)], answers)
        return self

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return probabilities (texts, labels); 0 for labels that are not in the training texts."""
        inputs, rows = [*map(str, texts)], np.zeros((len(texts), self.labels))
        if inputs and hasattr(self.model, "predict_proba"):
            rows[:, self.model.classes_] = self.model.predict_proba(inputs)
        elif inputs:
            rows[np.arange(len(rows)), self.model.predict(inputs)] = 1
        return rows

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return numbers (texts, 1), or log odds of several labels (texts, labels)."""
        inputs = [*map(str, texts)]
        if self.labels > 1 and hasattr(self.model, "predict_proba"):
            return np.asarray(logit(self.model.predict_proba(inputs)))
        answers = np.asarray(self.model.predict(inputs), np.float64).reshape(len(inputs), -1)
        return answers if self.labels == 1 else np.where(answers > 0.5, -NEVER, NEVER)
