"""Statistics of each attention head: which keys it attends to, and how broadly."""

import unicodedata
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.analysis.maps import entropy, reach

#: Tokens that separate texts and represent no word.
MARKS = frozenset({"[CLS]", "[SEP]", "[END]", "[PAD]", "[MASK]", "<s>", "</s>", "<pad>"})

Weights = NDArray[np.floating]


def habits(
    weights: Weights, tokens: Sequence[str], asking: Sequence[str] | None = None
) -> dict[str, list[float]]:
    """Return for each head of (heads, queries, keys) the mean over its queries of:

    * ``words``: exp(entropy), the effective number of keys; ``broad``: entropy / log(keys);
    * the weight on ``separator``, marks and punctuation, and on ``same word``, other positions with
      the query's word;
    * in self-attention, the weight on ``itself``, ``previous``, ``next`` and ``first``, and
      ``reach``, Σ w |i − j|;
    * in cross-attention, ``in order`` and ``reversed``: the correlation of a query's position with
      the mean position of its keys.

    With one query (a pool) only the first three.

    >>> import numpy as np
    >>> found = habits(np.eye(4, k=-1)[None], ["a", "b", "a", "."])
    >>> found["previous"], found["itself"], found["reach"]
    ([0.75], [0.0], [0.75])
    """
    _, queries, keys = weights.shape
    table = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float32))
    spread = entropy(table)
    patterns: dict[str, Weights] = {
        "words": spread.exp().mean(-1).numpy(),
        "broad": (spread / np.log(max(keys, 2))).mean(-1).numpy(),
        "separator": weights[..., separators(tokens)].sum(-1).mean(-1),
    }
    if queries > 1:
        same = _same(asking or tokens, tokens)
        if asking is None:
            np.fill_diagonal(same, False)
        patterns["same word"] = (weights * same).sum((-1, -2)) / queries
    if queries > 1 and asking is None and queries == keys:
        patterns |= _within(weights)
        patterns["reach"] = reach(table).mean(-1).numpy()
    elif asking is not None and queries > 2:
        patterns |= _across(weights)
    return {name: [float(v) for v in np.nan_to_num(values)] for name, values in patterns.items()}


def separators(tokens: Sequence[str]) -> list[int]:
    """Return the positions of marks and punctuation.

    >>> separators(["[CLS]", "a", "'s", ",", "…"])
    [0, 3, 4]
    """
    return [i for i, token in enumerate(tokens) if token in MARKS or _is_punctuation(token)]


def _is_punctuation(token: str) -> bool:
    bare = token.strip()
    return bool(bare) and all(unicodedata.category(sign)[0] == "P" for sign in bare)


def _same(asking: Sequence[str], tokens: Sequence[str]) -> NDArray[np.bool_]:
    numbers = {token: i for i, token in enumerate(dict.fromkeys([*asking, *tokens]))}
    rows = np.array([numbers[token] for token in asking])
    columns = np.array([numbers[token] for token in tokens])
    return np.asarray(rows[:, None] == columns[None, :])


def _within(weights: Weights) -> dict[str, Weights]:
    n = weights.shape[-1]

    def diagonal(k: int) -> Weights:
        return np.asarray(np.diagonal(weights, k, -2, -1).sum(-1) / n)

    return {
        "itself": diagonal(0),
        "previous": diagonal(-1),
        "next": diagonal(1),
        "first": weights[..., 0].mean(-1),
    }


def _across(weights: Weights) -> dict[str, Weights]:
    queries, keys = weights.shape[-2:]
    place = weights @ np.arange(keys, dtype=np.float64)
    own = np.arange(queries) - (queries - 1) / 2
    away = place - place.mean(-1, keepdims=True)
    spread = np.sqrt((away**2).sum(-1) * (own**2).sum())
    r = np.where(spread > 0, (away * own).sum(-1) / np.where(spread > 0, spread, 1), 0)
    return {"in order": np.maximum(r, 0), "reversed": np.maximum(-r, 0)}
