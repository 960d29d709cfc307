"""The planted bugs of `planted`, as plain torch modules with other signatures.

    python -m tests.conformance.planted_elsewhere

prints the laws that each breaks, then those of right modules that break one, and the counts.
"""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from tests.conformance.bugs import KINDS, OTHERS, WrongSlope, below, report


class Right(nn.Module):
    """``forward(query, key, value, …)``, True hides; ``cu_seqlens`` has texts in one row."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, num_kv_heads=None):
        super().__init__()
        self.heads, self.groups = num_heads, num_kv_heads or num_heads
        self.size, self.dropout = embed_dim // num_heads, dropout
        self.q_proj = nn.Linear(embed_dim, num_heads * self.size)
        self.k_proj = nn.Linear(embed_dim, self.groups * self.size)
        self.v_proj = nn.Linear(embed_dim, self.groups * self.size)
        self.out_proj = nn.Linear(num_heads * self.size, embed_dim)

    def split(self, x):
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def shared(self, x):
        return x.repeat_interleave(self.heads // self.groups, 1)

    def scores(self, q, k, rows, columns):
        return q @ k.transpose(-2, -1) / math.sqrt(self.size)

    def weights(self, scores, hidden):
        scores = scores.masked_fill(hidden, -math.inf)
        top = scores.amax(-1, keepdim=True).detach()
        weights = (scores - top.masked_fill(top.isinf(), 0)).exp()
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)

    def averaged(self, q, k, v, hidden, rows, columns):
        weights = self.weights(self.scores(q, k, rows, columns), hidden)
        return F.dropout(weights, self.dropout, self.training) @ v

    def hidden(self, n, m, key_padding_mask, attn_mask, cu_seqlens):
        hidden = torch.zeros(1, 1, n, m, dtype=torch.bool)
        if attn_mask is not None:
            hidden = hidden | attn_mask
        if key_padding_mask is not None:
            hidden = hidden | key_padding_mask[:, None, None]
        if cu_seqlens is not None:
            text = torch.bucketize(torch.arange(n), cu_seqlens[1:-1], right=True)
            hidden = hidden | (text[:, None] != text)
        return hidden

    def forward(
        self, query, key, value, key_padding_mask=None, attn_mask=None, position_ids=None,
        cu_seqlens=None,
    ):  # fmt: skip
        q, k, v = (
            self.split(x) for x in (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        )
        n, m = q.shape[-2], k.shape[-2]
        columns = torch.arange(m)[None] if position_ids is None or n != m else position_ids
        rows = columns if n == m else torch.arange(m - n, m)[None]
        hidden = self.hidden(n, m, key_padding_mask, attn_mask, cu_seqlens)
        hidden = hidden.expand(len(q), 1, n, m)
        output = self.averaged(q, self.shared(k), self.shared(v), hidden, rows, columns)
        return self.out_proj(output.transpose(1, 2).flatten(2))


def slope(rows, columns):
    """−0.1 |i − j|, with an axis for heads."""
    return -0.1 * (rows[:, None, :, None] - columns[:, None, None, :]).abs()


class RightSlope(Right):
    """A slope by the distance of position_ids."""

    def scores(self, q, k, rows, columns):
        return super().scores(q, k, rows, columns) + slope(rows, columns).to(q)


class RightCausal(Right):
    """``forward(hidden_states, …)``: causal, with a cache of keys and values, and a slope."""

    def store(self, past, k, v, columns):
        if past is not None:
            k, v, columns = (torch.cat(both, -2 if both[0].ndim > 2 else -1)
                             for both in zip(past, (k, v, columns), strict=True))  # fmt: skip
        return k, v, columns

    def forward(self, hidden_states, position_ids=None, layer_past=None, use_cache=False):
        x = hidden_states
        q, k, v = (self.split(y) for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        past = 0 if layer_past is None else int(layer_past[2][0, -1]) + 1
        rows = position_ids
        if rows is None:
            rows = torch.arange(past, past + x.shape[1])[None]
        k, v, columns = self.store(layer_past, k, v, rows)
        hidden = rows[:, None, :, None] < columns[:, None, None, :]
        scores = self.scores(q, self.shared(k), rows, columns) + slope(rows, columns).to(q)
        weights = F.dropout(self.weights(scores, hidden), self.dropout, self.training)
        output = self.out_proj((weights @ self.shared(v)).transpose(1, 2).flatten(2))
        return (output, (k, v, columns)) if use_cache else (output,)


class LeaksAfter64(Right):
    """Words after the 64th hear the next one."""

    def forward(self, query, key, value, *more, **named):
        output = super().forward(query, key, value, *more, **named)
        if query.shape != key.shape:
            return output
        late = (torch.arange(query.shape[1]) >= 64)[:, None]
        return output + 0.1 * torch.where(late, query.roll(-1, 1), 0 * query)


class LeaksAtBlockEnds(Right):
    """The last key of a block of 128 is mixed with the first of the next."""

    def scores(self, q, k, rows, columns):
        last = (torch.arange(k.shape[-2]) % 128 == 127)[:, None]
        return super().scores(q, torch.where(last, k + k.roll(-1, -2), k), rows, columns)


class Forgets64(Right):
    """Gives weights to the first 64 keys alone."""

    def weights(self, scores, hidden):
        weights = super().weights(scores[..., :64], hidden[..., :64])
        return F.pad(weights, (0, scores.shape[-1] - weights.shape[-1]))


class Sharper65(Right):
    """Doubles the scores of more than 64 keys."""

    def scores(self, q, k, rows, columns):
        return super().scores(q, k, rows, columns) * (2 if k.shape[-2] > 64 else 1)


class LastBlock(Right):
    """Computes queries in blocks of 64 and forgets the mask of a last block of one row."""

    def averaged(self, q, k, v, hidden, rows, columns):
        outputs = []
        for i in range(0, q.shape[-2], 64):
            at = slice(i, i + 64)
            part = hidden[..., at, :]
            part = torch.zeros_like(part) if i and part.shape[-2] == 1 else part
            outputs.append(super().averaged(q[..., at, :], k, v, part, rows[:, at], columns))
        return torch.cat(outputs, -2)


class Clipped64(RightSlope):
    """Key positions end at 64."""

    def scores(self, q, k, rows, columns):
        return super().scores(q, k, rows, columns.clamp(max=64))


class ClippedBoth(RightSlope):
    """All positions end at 64."""

    def scores(self, q, k, rows, columns):
        return super().scores(q, k, rows.clamp(max=64), columns.clamp(max=64))


class Only140(Right):
    """Keys after the 140th are not seen."""

    def hidden(self, n, m, *masks):
        return super().hidden(n, m, *masks) | (torch.arange(m) >= 140)


class Fades140(Right):
    """Keys after the 140th are zeros."""

    def scores(self, q, k, rows, columns):
        near = (torch.arange(k.shape[-2]) < 140)[:, None]
        return super().scores(q, torch.where(near, k, 0 * k), rows, columns)


class NoSlope32Keys(Right):
    """The gradient of keys ends at the 32nd."""

    def scores(self, q, k, rows, columns):
        k = torch.cat([k[..., :32, :], k[..., 32:, :].detach()], -2)
        return super().scores(q, k, rows, columns)


class SlopeOf100(Right):
    """Softmax whose gradient is of the first 100 keys."""

    def weights(self, scores, hidden):
        empty = hidden.all(-1, keepdim=True)
        scores = scores.masked_fill(hidden & ~empty, -math.inf)
        return WrongSlope.apply(scores).masked_fill(empty, 0)


class Evicts16(RightCausal):
    """A step with a cache sees the last sixteen keys."""

    def store(self, past, k, v, columns):
        k, v, columns = super().store(past, k, v, columns)
        if past is None:
            return k, v, columns
        return k[..., -16:, :], v[..., -16:, :], columns[..., -16:]


class Restarts100(RightCausal):
    """The cache begins anew after a hundred keys."""

    def store(self, past, k, v, columns):
        long = past is not None and past[0].shape[-2] > 100
        return super().store(None if long else past, k, v, columns)


class NoPositions(RightSlope):
    """Takes position_ids and counts rows."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, position_ids=None):
        return super().forward(query, key, value, key_padding_mask, attn_mask)


class NoPositionsInSteps(RightCausal):
    """Does not read position_ids if there is a cache."""

    def forward(self, hidden_states, position_ids=None, layer_past=None, use_cache=False):
        position_ids = position_ids if layer_past is None else None
        return super().forward(hidden_states, position_ids, layer_past, use_cache)


class QueriesByIndex(RightSlope):
    """Counts the queries and reads the positions of keys."""

    def scores(self, q, k, rows, columns):
        n, m = q.shape[-2], k.shape[-2]
        return super().scores(q, k, torch.arange(m - n, m)[None], columns)


class NoSharedKeys(Right):
    """Makes keys of every head, whatever it is asked."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, num_kv_heads=None):
        super().__init__(embed_dim, num_heads, dropout)


class SharesOtherwise(RightCausal):
    """Heads that share keys read another head's if there is a cache."""

    def store(self, past, k, v, columns):
        self.late = past is not None
        return super().store(past, k, v, columns)

    def shared(self, x):
        if not self.late:
            return super().shared(x)
        return x.repeat(1, self.heads // self.groups, 1, 1)


class NoPacking(Right):
    """Takes cu_seqlens and attends over all texts as one."""

    def hidden(self, n, m, key_padding_mask, attn_mask, cu_seqlens):
        return super().hidden(n, m, key_padding_mask, attn_mask, None)


class PackedWithoutEnd(Right):
    """The last text of a row hears the one before it."""

    def hidden(self, n, m, key_padding_mask, attn_mask, cu_seqlens):
        cu_seqlens = (
            cu_seqlens if cu_seqlens is None else cu_seqlens[[*range(len(cu_seqlens) - 2), -1]]
        )
        return super().hidden(n, m, key_padding_mask, attn_mask, cu_seqlens)


class MasksQueries(Right):
    """The mask of padding hides queries, not keys."""

    def hidden(self, n, m, key_padding_mask, attn_mask, cu_seqlens):
        hidden = super().hidden(n, m, None, attn_mask, cu_seqlens)
        if key_padding_mask is None or n != m:
            return hidden
        return hidden | key_padding_mask[:, None, :, None]


class LowScores(Right):
    """A hidden key has a score of −1e4, and so a weight where no key is seen."""

    def weights(self, scores, hidden):
        return scores.masked_fill(hidden, -1e4).softmax(-1)


class TimesMask(Right):
    """Weights are multiplied by the mask after the softmax."""

    def weights(self, scores, hidden):
        return scores.softmax(-1) * ~hidden


class ChangesInput(Right):
    """Adds to its input in place."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        with torch.no_grad():
            query += 0.1
        return super().forward(query, key, value, key_padding_mask, attn_mask)


class Upcasts(Right):
    """Computes in float32 and stays there."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        output = super().forward(query, key, value, key_padding_mask, attn_mask)
        return output.float() if output.dtype == torch.bfloat16 else output


class ViewsHeads(Right):
    """Splits heads by a view of the wrong axes, which mixes words."""

    def split(self, x):
        return x.reshape(len(x), -1, x.shape[1], self.size)


class UniformEmpty(Right):
    """Equal weights for a row that sees nothing."""

    def weights(self, scores, hidden):
        return scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num(1 / scores.shape[-1])


class OwnKeys(Right):
    """Reads its own words where it is given a memory of as many."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        if key.shape == query.shape:
            key = value = query
        return super().forward(query, key, value, key_padding_mask, attn_mask)


RIGHT = (Right, RightSlope, RightCausal)
#: The law that finds each.
PLANTED = {
    LeaksAfter64: "long prefixes",
    LeaksAtBlockEnds: "long prefixes",
    Forgets64: "long order",
    Sharper65: "long prefixes",
    LastBlock: "long mask",
    Clipped64: "long positions",
    ClippedBoth: "long positions",
    Only140: "long order",
    Fades140: "long order",
    NoSlope32Keys: "long gradients",
    SlopeOf100: "long gradients",
    Evicts16: "long cache",
    Restarts100: "long cache",
    NoPositions: "positions",
    NoPositionsInSteps: "positions",
    QueriesByIndex: "positions",
    NoSharedKeys: "key_value_heads",
    SharesOtherwise: "key_value_heads",
    NoPacking: "packing",
    PackedWithoutEnd: "packing",
    MasksQueries: "padding 1e3",
    LowScores: "large words",
    TimesMask: "padding 1e3",
    ChangesInput: "untouched",
    Upcasts: "bfloat16",
    ViewsHeads: "future",
    UniformEmpty: "sees nothing",
    OwnKeys: "memory",
    **below(Right, KINDS | OTHERS),
}


if __name__ == "__main__":
    sys.exit(report(PLANTED, RIGHT))
