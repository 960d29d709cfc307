"""Planted bugs: parts that are each wrong in one way that a small example does not show.

    python -m tests.conformance.planted

prints a line for each bug with the laws that break, then for each part of `right` that breaks one,
and the counts.
``KINDS`` were missed by the laws of short texts, or are close to such; ``OTHERS`` are of any kind.
"""

import sys

import torch
from torch import nn

from regard.attention import KeyValueCache, MultiHeadAttention, Normalizer, Score
from regard.attention.mask import as_mask
from regard.attention.normalizers import Softmax
from regard.attention.prepared import distance
from regard.attention.scores.wrapper import Wrapper
from tests.conformance import bugs
from tests.conformance.bugs import WrongSlope, below, report
from tests.conformance.right import RIGHT, Plain


class LeaksAfter64(MultiHeadAttention):
    """Words after the 64th hear the word that follows."""

    def forward(self, queries, memory=None, mask=None, **more):
        output = super().forward(queries, memory, mask, **more)
        if memory is not None or queries.ndim < 3:
            return output
        ahead = queries.roll(-1, -2)
        late = (torch.arange(queries.shape[-2]) >= 64)[:, None]
        return output + 0.1 * torch.where(late, ahead, 0 * ahead).nan_to_num()


class LeaksAtBlockEnds(Score):
    """The last key of a block of 128 is mixed with the first of the next."""

    def prepare_keys(self, keys, positions):
        after = keys.roll(-1, -2)
        last = (torch.arange(keys.shape[-2]) % 128 == 127)[:, None]
        return torch.where(last, keys + after, keys)

    def compare(self, queries, keys, positions):
        return queries @ keys.mT


class Forgets64(Softmax):
    """Gives weights to the first 64 keys alone."""

    def forward(self, scores):
        weights = super().forward(scores[..., :64])
        return nn.functional.pad(weights, (0, scores.shape[-1] - weights.shape[-1]))

    def statistics(self, scores):
        return super().statistics(scores[..., :64])

    def weights(self, scores, statistics):
        return self.forward(scores)

    def gradient(self, given):
        return Normalizer.gradient(self, given)


class Sharper65(Score):
    """Doubles the scores of more than 64 keys."""

    def compare(self, queries, keys, positions):
        return queries @ keys.mT * (2 if keys.shape[-2] > 64 else 1)


class LastBlock(Plain):
    """Computes queries in blocks of 64 and forgets the mask of a last block of one row."""

    def averaged(self, q, k, v, allowed, rows, columns):
        allowed = allowed.expand(*q.shape[:-1], k.shape[-2])
        outputs = []
        for i in range(0, q.shape[-2], 64):
            at = slice(i, i + 64)
            part = allowed[..., at, :]
            part = torch.ones_like(part) if i and part.shape[-2] == 1 else part
            outputs.append(super().averaged(q[..., at, :], k, v, part, rows[..., at], columns))
        return torch.cat(outputs, -2)


class Clipped64(Wrapper):
    """A slope by distance, of key positions that end at 64."""

    def added(self, queries, keys, positions):
        rows, columns = positions
        return -0.1 * distance((rows, columns.clamp(max=64))).abs()


class ClippedRotation(Plain):
    """Positions of a table that ends at 64, in a mechanism of its own."""

    def scores(self, q, k, rows, columns):
        away = distance((rows.clamp(max=64), columns.clamp(max=64)))
        away = away if away.ndim < 3 else away.unsqueeze(-3)
        return super().scores(q, k, rows, columns) - (0.1 * away.abs()).to(q)


class Only140(Plain):
    """Keys after the 140th are not seen."""

    def allowed(self, mask, rows, columns):
        allowed = super().allowed(mask, rows, columns)
        return allowed & (torch.arange(len(columns)) < 140)


class Fades140(Score):
    """Keys after the 140th are zeros."""

    def prepare_keys(self, keys, positions):
        return torch.where((torch.arange(keys.shape[-2]) < 140)[:, None], keys, 0 * keys)

    def compare(self, queries, keys, positions):
        return queries @ keys.mT


class NoSlope32Keys(Score):
    """The gradient of keys ends at the 32nd."""

    def prepare_keys(self, keys, positions):
        return torch.cat([keys[..., :32, :], keys[..., 32:, :].detach()], -2)

    def compare(self, queries, keys, positions):
        return queries @ keys.mT


class SlopeOf100(Normalizer):
    """Softmax whose gradient is of the first 100 keys."""

    shift_invariant = True

    def forward(self, scores):
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        return WrongSlope.apply(scores.masked_fill(empty, 0)).masked_fill(empty, 0)


class Evicts16(Plain):
    """A step with a cache sees the last sixteen keys."""

    def stored(self, cache, k, v, columns):
        if cache is None:
            return k, v, columns
        k, v, columns = cache.append(k, v, columns)
        return k[..., -16:, :], v[..., -16:, :], columns[..., -16:]


class Restarts100(Plain):
    """The cache begins anew after a hundred keys."""

    def stored(self, cache, k, v, columns):
        if cache is not None and len(cache) > 100 and not hasattr(cache, "second"):
            cache.second = KeyValueCache()
        return super().stored(getattr(cache, "second", cache), k, v, columns)


class NoPositions(MultiHeadAttention):
    """Does not hand its positions on."""

    def forward(self, queries, memory=None, mask=None, *, positions=None, cache=None, packing=None):
        return super().forward(queries, memory, mask, cache=cache, packing=packing)


class NoPositionsInSteps(MultiHeadAttention):
    """Does not hand its positions on if there is a cache."""

    def forward(self, queries, memory=None, mask=None, *, positions=None, cache=None, **more):
        positions = positions if cache is None else None
        return super().forward(queries, memory, mask, positions=positions, cache=cache, **more)


class LateSteps(MultiHeadAttention):
    """Counts the words of a cache, and one more."""

    def forward(self, queries, memory=None, mask=None, *, positions=None, cache=None, **more):
        if cache is not None and len(cache) and positions is None:
            positions = len(cache) + 1 + torch.arange(queries.shape[-2])
        return super().forward(queries, memory, mask, positions=positions, cache=cache, **more)


class QueriesByIndex(Plain):
    """A slope by distance that counts the queries, and reads the positions of keys."""

    def scores(self, q, k, rows, columns):
        n, m = q.shape[-2], k.shape[-2]
        away = torch.arange(m - n, m)[:, None] - columns[..., None, :]
        away = away if away.ndim < 3 else away.unsqueeze(-3)
        return super().scores(q, k, rows, columns) - (0.1 * away.abs()).to(q)


class NoSharedKeys(MultiHeadAttention):
    """Makes keys of every head, whatever it is asked."""

    def __init__(self, width, heads, *, key_value_heads=None, **settings):
        super().__init__(width, heads, **settings)


class SharesOtherwise(Plain):
    """Heads that share keys read another head's if there is a cache."""

    def stored(self, cache, k, v, columns):
        self.steps = cache is not None
        return super().stored(cache, k, v, columns)

    def shared(self, x):
        if not self.steps:
            return super().shared(x)
        return x.repeat(*[1] * (x.ndim - 3), self.heads // self.groups, 1, 1)


class NoPacking(Plain):
    """Takes a packing and attends over all texts as one."""

    def forward(self, queries, memory=None, mask=None, *, packing=None, **more):
        mask = None if packing is not None else mask
        return super().forward(queries, memory, mask, **more)


class PackedWithoutMask(Plain):
    """Sees padding, and so a row of another text, if rows are packed."""

    def forward(self, queries, memory=None, mask=None, *, packing=None, **more):
        mask = None if packing is not None else mask
        return super().forward(queries, memory, mask, packing=packing, **more)


class MasksQueries(Plain):
    """The mask of padding hides queries, not keys."""

    def allowed(self, mask, rows, columns):
        allowed = super().allowed(mask, rows, columns)
        if as_mask(mask) is None or as_mask(mask).kind != "keys":
            return allowed
        return allowed.mT


class LowScores(Plain):
    """A hidden key has a score of −1e4, and so a weight where no key is seen."""

    def weights(self, scores, allowed):
        return scores.masked_fill(~allowed, -1e4).softmax(-1)


class TimesMask(Plain):
    """Weights are multiplied by the mask after the softmax."""

    def weights(self, scores, allowed):
        return scores.softmax(-1) * allowed


class ChangesInput(Plain):
    """Adds to its input in place."""

    def forward(self, queries, memory=None, mask=None, **more):
        with torch.no_grad():
            queries += 0.1
        return super().forward(queries, memory, mask, **more)


class Upcasts(Plain):
    """Computes in float32 and stays there."""

    def forward(self, queries, memory=None, mask=None, **more):
        output = super().forward(queries, memory, mask, **more)
        return output.float() if output.dtype == torch.bfloat16 else output


class ViewsHeads(Plain):
    """Splits heads by a view of the wrong axes, which mixes words."""

    def split(self, x):
        return x.reshape(*x.shape[:-2], -1, x.shape[-2], self.size)


class UniformEmpty(Normalizer):
    """Equal weights for a row that sees nothing."""

    shift_invariant = True

    def forward(self, scores):
        return scores.softmax(-1).nan_to_num(1 / scores.shape[-1])


class OwnKeys(Plain):
    """Reads its own words where it is given a memory of as many."""

    def forward(self, queries, memory=None, mask=None, **more):
        if memory is not None and memory.shape[-2] == queries.shape[-2]:
            memory = queries
        return super().forward(queries, memory, mask, **more)


#: The law that finds each. These kinds were missed by laws of short texts without options.
KINDS = {
    LeaksAfter64: "long prefixes",
    LeaksAtBlockEnds: "long prefixes",
    Forgets64: "long rows",
    Sharper65: "long prefixes",
    LastBlock: "long mask",
    Clipped64: "long positions",
    ClippedRotation: "long positions",
    Only140: "long order",
    Fades140: "long order",
    NoSlope32Keys: "long gradients",
    SlopeOf100: "long rows",
    Evicts16: "long cache",
    Restarts100: "long cache",
    NoPositions: "positions",
    NoPositionsInSteps: "positions",
    LateSteps: "positions",
    QueriesByIndex: "positions",
    NoSharedKeys: "key_value_heads",
    SharesOtherwise: "key_value_heads",
    NoPacking: "packing",
    PackedWithoutMask: "packing",
    **below(Plain, bugs.KINDS),
}
#: The law that finds each of other kinds.
OTHERS = {
    MasksQueries: "padding 1e3",
    LowScores: "large words",
    TimesMask: "padding NaN",
    ChangesInput: "untouched",
    Upcasts: "bfloat16",
    ViewsHeads: "future",
    UniformEmpty: "empty rows",
    OwnKeys: "memory",
    **below(Plain, bugs.OTHERS),
}
PLANTED = {**KINDS, **OTHERS}


if __name__ == "__main__":
    sys.exit(report(PLANTED, RIGHT))
