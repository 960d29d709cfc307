"""Twenty parts that are right, in the styles that users write: `regard check` flags none."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from regard.attention import Mask, MultiHeadAttention, Normalizer, Score, window
from regard.attention.mask import as_mask
from regard.attention.mechanism import Mechanism, both_sides
from regard.attention.prepared import distance
from regard.attention.score import InnerProduct
from regard.attention.scores.wrapper import Wrapper


class Plain(Mechanism):
    """Softmax attention in plain PyTorch, with a table of scores; heads may share keys."""

    def __init__(self, width, heads, *, key_value_heads=None, dropout=0.0, **settings):
        super().__init__()
        self.width, self.heads, self.groups = width, heads, key_value_heads or heads
        self.size, self.dropout = width // heads, dropout
        self.ask = nn.Linear(width, heads * self.size)
        self.key = nn.Linear(width, self.groups * self.size)
        self.value = nn.Linear(width, self.groups * self.size)
        self.output = nn.Linear(heads * self.size, width)

    def split(self, x):
        return x.unflatten(-1, (-1, self.size)).transpose(-3, -2)

    def scores(self, q, k, rows, columns):
        return torch.einsum("...id,...jd->...ij", q, k) / math.sqrt(self.size)

    def weights(self, scores, allowed):
        scores = scores.masked_fill(~allowed, -math.inf)
        top = scores.amax(-1, keepdim=True).detach()
        weights = (scores - top.masked_fill(top.isinf(), 0)).exp()
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)

    def averaged(self, q, k, v, allowed, rows, columns):
        weights = self.weights(self.scores(q, k, rows, columns), allowed)
        return F.dropout(weights, self.dropout, self.training) @ v

    def shared(self, x):
        return x.repeat_interleave(self.heads // self.groups, -3)

    def stored(self, cache, k, v, columns):
        return (k, v, columns) if cache is None else cache.append(k, v, columns)

    def allowed(self, mask, rows, columns):
        if mask is None:
            return torch.ones(len(rows), len(columns), dtype=torch.bool)
        return as_mask(mask).over_heads().allows(rows, columns)

    def without_junk(self, x, mask, rows, columns):
        """Zeros in words that nobody sees: padding may hold NaN, and 0 · NaN is NaN."""
        if mask is None:
            return x
        seen = as_mask(mask).allows(rows, columns).any(-2).unsqueeze(-1)
        return torch.where(seen, x, torch.zeros_like(x))

    def forward(self, queries, memory=None, mask=None, *, positions=None, cache=None, packing=None):
        ours, theirs = both_sides(packing, memory)
        rows, columns = both_sides(positions, memory)
        queries = queries if ours is None else ours.unpack(queries)
        if memory is not None and theirs is not None:
            memory = theirs.unpack(memory)
        n, m = queries.shape[-2], (queries if memory is None else memory).shape[-2]
        past = 0 if cache is None else len(cache)
        if columns is None:
            columns = torch.arange(past, past + m)
        if rows is None:
            rows = columns if n == m else torch.arange(past + m - n, past + m)
        if cache is None:
            keys = self.without_junk(queries if memory is None else memory, mask, rows, columns)
            queries = keys if memory is None else queries
        else:
            keys = queries if memory is None else memory
        q, k, v = (self.split(x) for x in (self.ask(queries), self.key(keys), self.value(keys)))
        k, v, columns = self.stored(cache, k, v, columns)
        allowed = self.allowed(mask, rows, columns)
        output = self.averaged(q, self.shared(k), self.shared(v), allowed, rows, columns)
        output = output.transpose(-3, -2).flatten(-2)
        return self.output(output if ours is None else ours.pack(output))


class ByLoops(Plain):
    """The same average, one query at a time."""

    def averaged(self, q, k, v, allowed, rows, columns):
        allowed = allowed.expand(*q.shape[:-1], k.shape[-2])
        outputs = []
        for i in range(q.shape[-2]):
            row = slice(i, i + 1)
            outputs.append(
                super().averaged(
                    q[..., row, :], k, v, allowed[..., row, :], rows[..., row], columns
                )
            )
        return torch.cat(outputs, -2)


class ByTorch(Plain):
    """Torch's own kernel."""

    def averaged(self, q, k, v, allowed, rows, columns):
        empty = ~allowed.any(-1, keepdim=True)
        rate = self.dropout if self.training else 0.0
        output = F.scaled_dot_product_attention(q, k, v, allowed | empty, rate)
        return output.masked_fill(empty, 0)


class Rotating(Plain):
    """Queries and keys are rotated by the positions that the call is given."""

    def scores(self, q, k, rows, columns):
        return super().scores(self.rotated(q, rows), self.rotated(k, columns), rows, columns)

    def rotated(self, x, positions):
        angles = positions[..., None] * 100.0 ** -torch.arange(0, 1, 2 / self.size).to(x)
        if positions.ndim > 1:
            angles = angles.unsqueeze(-3)
        even, odd = x[..., ::2], x[..., 1::2]
        turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
        return torch.stack(turned, -1).flatten(-2)


class Near(Plain):
    """Sees the twenty words before and after a word."""

    def allowed(self, mask, rows, columns):
        return super().allowed(mask, rows, columns) & window(20, 20).over_heads().allows(
            rows, columns
        )


class Talking(Plain):
    """Weights of the heads are mixed by a learned matrix (talking heads)."""

    def __init__(self, width, heads, **settings):
        super().__init__(width, heads, **settings)
        self.mix = nn.Parameter(torch.eye(heads) + 0.1)

    def weights(self, scores, allowed):
        return torch.einsum("gh,...hij->...gij", self.mix, super().weights(scores, allowed))


class Latent(Plain):
    """Keys and values of all heads from one small vector of each word."""

    def __init__(self, width, heads, *, key_value_heads=None, **settings):
        if key_value_heads:
            raise ValueError("all heads share one vector; leave key_value_heads out")
        super().__init__(width, heads, **settings)
        self.down = nn.Linear(width, width // 2, bias=False)
        self.key = nn.Sequential(self.down, nn.Linear(width // 2, width))
        self.value = nn.Sequential(self.down, nn.Linear(width // 2, width))


class Scaled(MultiHeadAttention):
    """A gain of each head, learned."""

    def __init__(self, width, heads, **settings):
        super().__init__(width, heads, **settings)
        self.gain = nn.Parameter(torch.ones(heads, 1, 1))

    def joined(self, output):
        return self.gain * output


class Sliding(MultiHeadAttention):
    """A window is joined to the mask of the call."""

    def forward(self, queries, memory=None, mask=None, **more):
        mask = window(10, 10) if mask is None else as_mask(mask) & window(10, 10)
        return super().forward(queries, memory, mask, **more)


class Fading(Mechanism):
    """S_t = γ S_{t−1} + k_t v_tᵀ, word by word; a query reads its state, or that of a memory."""

    def __init__(self, width, heads, **settings):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.project, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fade = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, queries, memory=None, mask=None, *, positions=None, cache=None, packing=None):
        ours, theirs = both_sides(packing, memory)
        queries = queries if ours is None else ours.unpack(queries)
        words = queries if memory is None else memory if theirs is None else theirs.unpack(memory)
        past, m = 0 if cache is None else len(cache), words.shape[-2]
        columns = torch.arange(past, past + m)
        seen = torch.ones(m, dtype=torch.bool)
        if mask is not None:
            seen = as_mask(mask).allows(torch.tensor([past + m - 1]), columns)[..., 0, :]
        seen = seen.unsqueeze(-1)
        words = torch.where(seen, words, torch.zeros_like(words))
        queries = words if memory is None else queries
        q, k, v = (
            x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for x in (
                self.project(queries).chunk(3, -1)[0], *self.project(words).chunk(3, -1)[1:]
            )
        )  # fmt: skip
        seen = seen.to(v).unsqueeze(-3)
        seen = seen.expand(*v.shape[:-1], 1)
        state = v.new_zeros(*v.shape[:-2], self.size, self.size)
        state = state if cache is None or cache.state is None else cache.state[0]
        outputs = []
        for t in range(m):
            at = slice(t, t + 1)
            on = seen[..., at, :]
            state = (self.fade.sigmoid() * on + 1 - on) * state
            state = state + on * k[..., at, :].mT @ v[..., at, :]
            if memory is None:
                outputs.append(q[..., at, :] @ state)
        if cache is not None:
            cache.hold((state.detach(),), m)
        output = torch.cat(outputs, -2) if memory is None and m else q @ state
        output = output.transpose(-3, -2).flatten(-2)
        return self.output(output if ours is None else ours.pack(output))


class LowRank(InnerProduct):
    """q Aᵀ B k, with two learned matrices of rank 3."""

    def __init__(self, query_width=None, key_width=None, *, heads=None, length=None):
        super().__init__(query_width, key_width, heads=heads, length=length)
        self.ask = nn.Parameter(torch.randn(query_width, 3) / 2)
        self.answer = nn.Parameter(torch.randn(key_width, 3) / 2)

    def prepare_queries(self, queries, positions):
        return queries @ self.ask

    def prepare_keys(self, keys, positions):
        return keys @ self.answer


class Network(Score):
    """A network of one hidden layer over query and key."""

    def __init__(self, query_width=None, key_width=None, *, heads=None, length=None):
        super().__init__(query_width, key_width, heads=heads, length=length)
        self.ask, self.key = nn.Linear(query_width, 4), nn.Linear(key_width, 4)
        self.last = nn.Linear(4, 1)

    def prepare_queries(self, queries, positions):
        return self.ask(queries)

    def prepare_keys(self, keys, positions):
        return self.key(keys)

    def compare(self, queries, keys, positions):
        return self.last((queries[..., :, None, :] + keys[..., None, :, :]).tanh()).squeeze(-1)


class Cauchy(Score):
    """−log(1 + ‖q − k‖²): far keys fade slowly."""

    def compare(self, queries, keys, positions):
        gap = queries[..., :, None, :] - keys[..., None, :, :]
        return -gap.square().sum(-1).log1p()


class Conversing(Score):
    """Every head adds a share of the other heads' scores: an intended break, declared."""

    mixes_heads = True

    def compare(self, queries, keys, positions):
        scores = queries @ keys.mT
        return scores + 0.1 * scores.mean(-3, keepdim=True) if self.heads else scores


class Waves(Wrapper):
    """Adds cosines of the distance, with learned sizes."""

    def __init__(self, inner):
        super().__init__(inner)
        self.sizes = nn.Parameter(torch.tensor([0.5, -0.3, 0.2]))

    def added(self, queries, keys, positions):
        away = distance(positions).to(self.sizes.dtype)
        return sum(size * (away / 3**i).cos() for i, size in enumerate(self.sizes))


class Table(Wrapper):
    """A learned number for each distance up to 32, on each side."""

    def __init__(self, inner):
        super().__init__(inner)
        self.table = nn.Parameter(torch.randn(*((inner.heads,) if inner.heads else ()), 65))

    def added(self, queries, keys, positions):
        away = distance(positions).clamp(-32, 32) + 32
        if self.heads is None:
            return self.table[away]
        away = away if away.ndim > 2 else away.unsqueeze(0)
        return self.table[torch.arange(self.heads)[:, None, None], away]


class Nothing(Normalizer):
    """Softmax beside a key of nothing, with a learned score of each head."""

    def __init__(self, heads=None):
        super().__init__(heads)
        self.score = nn.Parameter(torch.zeros((heads or 1, 1, 1)))

    def forward(self, scores):
        score = self.score.expand(*scores.shape[:-1], 1) if self.heads else self.score[0, 0].expand(
            *scores.shape[:-1], 1
        )  # fmt: skip
        return torch.cat([scores, score], -1).softmax(-1)[..., :-1]


class Sign(Normalizer):
    """tanh(s) / (1 + number of keys seen)^½: weights may be negative, which is declared."""

    signed = True

    def forward(self, scores):
        seen = (scores > -math.inf).sum(-1, keepdim=True)
        return scores.masked_fill(scores == -math.inf, 0).tanh() / (1 + seen).sqrt()


def dilated():
    """Every third word before a word."""
    return Mask(
        lambda r, c: (
            ((r[..., :, None] - c[..., None, :]) % 3 == 0) & (c[..., None, :] <= r[..., :, None])
        )
    )


def paragraphs():
    """Blocks of 64 words, and the first four words for all."""
    return Mask(
        lambda r, c: (r[..., :, None] // 64 == c[..., None, :] // 64) | (c[..., None, :] < 4)
    )


RIGHT = (
    Plain, ByLoops, ByTorch, Rotating, Near, Talking, Latent, Scaled, Sliding, Fading,
    LowRank, Network, Cauchy, Conversing, Waves, Table, Nothing, Sign, dilated, paragraphs,
)  # fmt: skip
