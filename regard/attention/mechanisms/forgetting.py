"""The forgetting attention: softmax attention whose words fade by a gate that each word sets."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.arguments import Arguments, places
from regard.attention.attended import Attended
from regard.attention.cache import KeyValueCache
from regard.attention.head_spec import HeadSpec
from regard.attention.layer import Attention
from regard.attention.mask import Mask, conjuncts
from regard.attention.mask_context import hidden_keys
from regard.attention.mechanisms.multihead import Inputs, MultiHeadAttention
from regard.attention.positions.biases import ColumnsAcceleration, joined
from regard.attention.prepared import Prepared
from regard.attention.scores.wrapper import ProductWrapper
from regard.core.errors import RegardError

#: Pairs of columns whose products add up to a sum: three digits of base 256, and the rest.
DIGITS = 4
#: The largest size of a sum that its digits hold: beyond it nothing more is forgotten.
MOST = 255 * 2.0**16
#: The factor on the other side; 256 keeps the highest digit, times 256, in float16's range.
FACTORS = (256.0, 1.0, 1.0, 1.0)


class ForgettingAttention(MultiHeadAttention):
    """Multi-head attention with score(q_i, k_j) + Σ_{t=j+1..i} ln f_t, f_t = σ(W_f x_t + b_f).

    Lin et al. 2025 (FoX), section 3: the gates of the words after a word forget it. x is the input
    of the keys; each key head has its own gate, and b_f starts at 0. Words are in the order of
    their rows. Words that the mask hides from every query, such as padding, forget nothing.

    A query has the position of its own word if the mask is ``causal()``, alone or joined to others
    by ``&``. With any other mask, and over a memory, it is after the last key, so that late words
    weigh more unless the gates stay open. A cache stores the sum so far with its keys, in a beam
    search one for each row.

    Queries (*batch, n, width) and a memory (*batch, m, key_width) give (*batch, n, width).
    The sum is an inner product of eight additional columns, which torch's fused kernel serves.
    Arguments are those of `MultiHeadAttention`. Raise a RegardError for a score and position that
    are not an inner product, for compress, and for a causal mask over another number of keys.

    >>> from regard.attention import causal
    >>> ForgettingAttention(8, 2)(torch.zeros(3, 5, 8), mask=causal()).shape
    torch.Size([3, 5, 8])
    """

    name = "forgetting"
    ordered = True
    attention_last = True

    def build(self, spec: HeadSpec) -> None:
        spec.must_not_compress(self.name, "reads words in order")
        super().build(spec)
        self.gate = nn.Linear(spec.memory_width, self.groups)
        nn.init.zeros_(self.gate.bias)

    def make_attention(self, spec: HeadSpec) -> Attention:
        score = SumColumns(spec.make_inner_product(self.name))
        return Forgetting(score, spec.normalize, spec.dropout, heads=spec.heads)

    def projected(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads, with the gate's logit as a last column of the keys."""
        q, k, v = super().projected(inputs)
        if inputs.cached:
            return q, F.pad(k, (0, 1)), v
        logits = self.gate(inputs.keys)
        if inputs.key_packing is not None:
            logits = inputs.key_packing.unpack(logits)
        return q, torch.cat([k, logits.mT.unsqueeze(-1).to(k.dtype)], -1), v


class Forgetting(Attention):
    """Attention over keys whose last column is the logit of their gate."""

    def compute(self, arguments: Arguments) -> Attended:
        """Compute the weighted average of the values."""
        queries, mask, cache = arguments.queries, arguments.mask, arguments.cache
        assert not isinstance(mask, Tensor)
        keys, logits = arguments.keys.split([arguments.keys.shape[-1] - 1, 1], -1)
        past = 0 if cache is None or cache.fixed else len(cache)
        given = arguments.query_positions, arguments.key_positions
        _, columns = places(queries, keys, past + keys.shape[-2], *given)
        hidden = hidden_keys(mask, columns, past)
        lost = amounts(logits.squeeze(-1).mT, hidden)
        of_queries, of_keys = sums(lost, queries.shape[-2], mask, cache)
        shared = queries.shape[-3] // keys.shape[-3]
        of_queries = digits(of_queries.repeat_interleave(shared, -1).mT)
        of_keys = digits(of_keys.mT)
        queries = with_columns(queries, -of_queries, of_keys=False)
        keys = with_columns(keys, of_keys, of_keys=True)
        return super().compute(arguments._replace(queries=queries, keys=keys))


def amounts(logits: Tensor, hidden: Tensor | None) -> Tensor:
    """Return −ln f of each word, (*batch, m, heads), in float64; 0 where nothing is forgotten."""
    idle = ~logits.isfinite()  # in padding, or where an input is not finite
    if hidden is not None:
        idle = idle | hidden.unsqueeze(-1)
    return -F.logsigmoid(logits.double().masked_fill(idle, 0)).masked_fill(idle, 0)


def sums(
    lost: Tensor, n: int, mask: Mask | None, cache: KeyValueCache | None
) -> tuple[Tensor, Tensor]:
    """Return the sums of the amounts up to each query and key, (*batch, n or m, heads).

    A cache stores the last sum, or in a beam search that of each row. Raise a RegardError for a
    causal mask with more or fewer queries than new keys.
    """
    parts = conjuncts(mask)
    parents = next((part.parents for part in parts if part.parents is not None), None)
    ordered = parents is not None or any(part.kind == "causal" for part in parts)
    if ordered and n != lost.shape[-2]:
        raise RegardError(
            "attention=forgetting reads all of a memory; a causal mask needs self-attention, and "
            f"there are {n} queries and {lost.shape[-2]} keys"
        )
    stored = None if cache is None else cache.state
    start = lost.new_zeros(*lost.shape[:-2], 1, lost.shape[-1])
    state = start if stored is None else stored[0]
    if parents is not None:  # one word for each row
        rows = parents.unsqueeze(-1).expand(*parents.shape, state.shape[-1])
        of_keys = last = state.gather(-2, rows) + lost
    else:
        of_keys = state[..., -1:, :] + lost.cumsum(-2)
        last = torch.cat([state, of_keys], -2)[..., -1:, :]
        if stored is None and (cache is not None or not ordered):
            # Count from the last word, near which all that is read next is small.
            of_keys, last = of_keys - last, start
    if cache is not None:
        cache.state = (last if cache.fixed else last.detach(),)
    return of_keys if ordered else last.expand(*last.shape[:-2], n, -1), of_keys


def digits(total: Tensor) -> Tensor:
    """Return columns that, times `FACTORS`, add up to a sum: (…, n) gives (…, n, 4).

    The first three are exact in every dtype, bfloat16 too, so that the difference of two sums is as
    exact as their last columns, which are below 1 and alone carry the gradient. All have the sign
    of the sum: no large digits cancel in a small one.

    >>> digits(torch.tensor([70000.25])).tolist()
    [[256.0, 4352.0, 112.0, 0.25]]
    """
    total = total.clamp(-MOST, MOST)
    whole = total.detach().trunc()
    high = (whole / 65536).trunc()
    middle = (whole / 256).trunc() - 256 * high
    low = whole - 65536 * high - 256 * middle
    return torch.stack([256 * high, 256 * middle, low, total - whole], -1)


def with_columns(x: Tensor, columns: Tensor, *, of_keys: bool) -> Tensor:
    """Return x behind its columns, alternating with the factors of the other side's.

    The product of two sides adds a digit of the key and subtracts that of the query in turn, from
    the highest: the sum stays small, and rounds little, before the columns of x are added.
    """
    columns = columns.to(x.dtype)
    factors = columns.new_tensor(FACTORS).expand_as(columns)
    pairs = (columns, factors) if of_keys else (factors, columns)
    return joined(torch.stack(pairs, -1).flatten(-2), x)


class SumColumns(ProductWrapper):
    """scale · q'·k' + Σ of the products of the first columns, which both sides bring along.

    The inner score prepares the columns behind them. The result is an inner product, with the scale
    in the queries.
    """

    accelerated_by = ColumnsAcceleration
    columns: ClassVar[int] = 2 * DIGITS

    def scale(self, width: int) -> float:
        return 1.0

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        sums, queries = self._split(queries)
        prepared = self.inner.prepare_queries(queries, positions)
        assert isinstance(prepared, Tensor)
        scale = self.inner.acceleration.scale(self.inner, prepared.shape[-1])
        return joined(sums, scale * prepared)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        sums, keys = self._split(keys)
        prepared = self.inner.prepare_keys(keys, positions)
        assert isinstance(prepared, Tensor)
        return joined(sums, prepared)

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        assert isinstance(queries, Tensor)
        return self._split(queries)

    def split_keys(self, keys: Prepared) -> tuple[Prepared, Prepared]:
        assert isinstance(keys, Tensor)
        return self._split(keys)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sums, rest = x.split([self.columns, x.shape[-1] - self.columns], -1)
        return sums, rest

    def check(self, query_width: int, key_width: int) -> None:
        self.inner.check(query_width - self.columns, key_width - self.columns)
