"""Mechanisms on the linear path: O(n) time, and a state of constant size as cache."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.arguments import must_be_tensors, must_suit, places
from regard.attention.attended import Attended, sources_of
from regard.attention.cache import KeyValueCache
from regard.attention.head_spec import HeadMechanism, HeadSpec
from regard.attention.kernels.convolution import convolve
from regard.attention.kernels.linear import Inputs, by_chunks
from regard.attention.kernels.summary import Summary
from regard.attention.layer import Attention
from regard.attention.mask import Mask, as_mask, conjuncts
from regard.attention.mask_context import hidden_keys
from regard.attention.mechanism import PerSide, both_sides
from regard.attention.mechanisms.multihead import without_hidden
from regard.attention.mechanisms.stages import FirstValues
from regard.attention.packing import Packing
from regard.attention.tracing import unrounded
from regard.core.errors import RegardError

State: TypeAlias = tuple[Tensor, ...]
#: Values, the logarithms of decays and the rates of writes; None for decays and rates of 1.
Written: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None]
TAPS = 4  # words that a short convolution sees
TAIL = TAPS - 1


class Visible(NamedTuple):
    """A mask as the linear path reads it: the order, the padding, and the beams of a step.

    ``parents`` are the rows of the previous step that each row continues.
    """

    causal: bool
    seen: Tensor | None
    parents: Tensor | None


class Rows(NamedTuple):
    """The inputs of a pass, and the features of queries and keys before their positions.

    Each word has ``products`` consecutive rows of keys and values, and one query after them.
    """

    inputs: Inputs
    queries: Tensor
    keys: Tensor
    products: int = 1


class StateAttention(HeadMechanism):
    """Multi-head attention without a softmax, as a recurrence S_t = A_t S_{t−1} + k_t u_tᵀ.

    The output of head i is S_tᵀ q_t, and each mechanism has its own decay A_t and write u_t. With
    a causal mask a query reads the state after its own word. Without one, the passes over the text
    and over the reversed text are added; a decoder's query reads the state after all of the memory.
    Padding leaves the state as it is. A cache stores the state.

    ``score`` and ``position`` are those whose value is an inner product (scaled-dot, cosine,
    +qk-norm; rotary). Queries (*batch, n, width) and a memory (*batch, m, key_width) give
    (*batch, n, width). Raise a RegardError for other scores, for a normaliser, dropout of weights
    and compress, and for masks other than causal() and padding.
    """

    ordered = True
    takes_values = True
    #: Whether queries, keys and values of self-attention pass a short convolution over time.
    convolved: ClassVar[bool] = False
    #: Whether the output is normalised per head and gated by the query.
    gated: ClassVar[bool] = True
    #: Whether all heads share one query and one key.
    shared: ClassVar[bool] = False
    #: Writes of a word, each with a key and a value of its own.
    products = 1

    def build(self, spec: HeadSpec) -> None:
        if self.shared and spec.key_value_heads not in (None, 1):
            raise RegardError(
                f"attention={self.name} has one key for all heads, so key_value_heads="
                f"{spec.key_value_heads} does not apply; remove it"
            )
        for name in ("normalize", "compress", "dropout"):
            if (value := getattr(spec, name)) != getattr(HeadSpec, name):
                raise RegardError(
                    f"attention={self.name} computes no weights, so {name}={value} does not "
                    "apply; remove it, or use attention=multi-head"
                )
        spec.must_name_score(self.name)
        spec.must_share_memory(self.name)
        score, heads, bias = spec.make_inner_product(self.name), spec.heads, spec.bias
        if self.shared:
            self.groups = 1
        askers, values = (self.groups, heads) if self.shared else (heads, self.groups)
        written = self.products * self.head_width
        self.sizes = [askers * self.head_width, self.groups * written, values * written]
        self.project_queries = nn.Linear(spec.width, self.sizes[0], bias)
        self.project_keys = nn.Linear(spec.memory_width, self.sizes[1], bias)
        self.project_values = nn.Linear(spec.memory_width, self.sizes[2], bias)
        if self.convolved:
            self.taps = nn.Parameter((2 * torch.rand(TAPS, sum(self.sizes)) - 1) * TAPS**-0.5)
        if self.gated:
            self.gain = nn.Parameter(torch.ones(self.head_width))
            self.gate = nn.Linear(spec.width, heads * self.head_width)
        self.attention = Maps(score, heads=heads)
        self.output = spec.make_output()
        self.reset()

    def extra_repr(self) -> str:
        return f"width={self.width}, heads={self.heads}"

    def forward(
        self,
        queries: Tensor,
        memory: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        *,
        positions: PerSide[Tensor] = None,
        cache: KeyValueCache | None = None,
        packing: PerSide[Packing] = None,
        first_values: FirstValues | None = None,
    ) -> Tensor:
        """Read the state for each query; arguments as in `Mechanism`.

        ``first_values``: of the first layer, for stages that mix values.
        """
        tensors = {"queries": queries} if memory is None else {"queries": queries, "keys": memory}
        must_be_tensors(**tensors)
        for (name, x), linear in zip(
            tensors.items(), (self.project_queries, self.project_keys), strict=False
        ):
            must_suit(name, x, linear)
        mask = as_mask(mask)
        query_positions, key_positions = both_sides(positions, memory)
        packing, key_packing = both_sides(packing, memory)
        itself = memory is None or memory is queries
        if packing is not None:
            queries = packing.unpack(queries)
        source = queries if memory is None or itself else memory
        if key_packing is not None and not itself:
            source = key_packing.unpack(source)
        past = len(cache) if cache is not None and not cache.fixed else 0
        rows, columns = places(
            queries, source, past + source.shape[-2], query_positions, key_positions
        )
        visible = self.visible(mask, columns, past)
        if mask is not None and cache is None:
            at = query_positions, key_positions
            queries, found, _ = without_hidden(mask, queries, None if itself else source, None, *at)
            source = queries if found is None else found
        if not itself:
            output = self._of_memory(queries, source, visible, (rows, columns), cache, first_values)
        elif cache is None:
            output, _ = self._of_itself(queries, visible, (rows, columns), None, first_values)
        else:
            output = self._step(queries, visible, (rows, columns), cache, first_values)
        if packing is not None:
            output, queries = packing.pack(output), packing.pack(queries)
        output = self.finished(output, queries)
        if self.stages:
            heads = output.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            heads = self.staged(heads, queries, None, values=False)
            output = heads.transpose(-3, -2).flatten(-2)
        return output if self.output is None else self.output(output)

    def features(self, x: Tensor) -> Tensor:
        """Return the features of queries or keys (*batch, heads, n, head_width)."""
        return x

    def written(self, values: Tensor, source: Tensor) -> Written:
        """Return the values (*batch, heads, m, head_width), ln A and the rate of the writes."""
        return values, None, None

    #: Computes outputs and the last state; see `passed`.
    run: ClassVar[Callable[..., tuple[Tensor, State]]]

    def skipped(self, output: Tensor, values: Tensor) -> Tensor:
        """Return the heads' output plus a term of the query's own values."""
        return output

    def finished(self, output: Tensor, queries: Tensor) -> Tensor:
        """Return (*batch, n, heads · head_width) as the output projection reads it.

        The output (*batch, n, heads, head_width) of a gated mechanism is divided by the root of
        its mean square and multiplied by SiLU(W_g q), or what ``gating`` makes of W_g q.
        """
        if not self.gated:
            return output.flatten(-2)
        size = output.square().mean(-1, keepdim=True) + 1e-5
        normed = (self.gain * output * size.rsqrt()).flatten(-2)
        return self.gating(self.gate(queries)) * normed

    def gating(self, x: Tensor) -> Tensor:
        """Return the gate of the output."""
        return F.silu(x)

    def visible(self, mask: Mask | None, columns: Tensor, past: int) -> Visible:
        """Return the order, the keys that may be seen, and the beams of a mask."""
        if mask is not None and mask.parents is not None:
            return Visible(False, None, mask.parents)
        parts = conjuncts(mask)
        for part in parts:
            if part.kind != "causal" and (part.kind != "keys" or part.has_heads):
                raise RegardError(
                    f"attention={self.name} reads words in order, so its mask can only be causal "
                    f"and hide padding, not {part!r}; remove pattern= or use attention=multi-head"
                )
        hidden = hidden_keys(mask, columns, past)
        causal, seen = any(part.kind == "causal" for part in parts), None
        if hidden is not None:
            seen = ~hidden
        return Visible(causal, seen, None)

    def _values(self, x: Tensor, first_values: FirstValues | None) -> Tensor:
        values = self.project_values(x)
        return self.mixed(values, first_values) if self.stages else values

    def _of_itself(
        self,
        x: Tensor,
        visible: Visible,
        at: tuple[Tensor, Tensor],
        state: State | None,
        first_values: FirstValues | None,
    ) -> tuple[Tensor, State]:
        projected = [self.project_queries(x), self.project_keys(x), self._values(x, first_values)]
        if visible.causal or state is not None:
            return self._pass(projected, x, visible.seen, at, state, "causal")
        if self.run is normalized:
            return self._pass(projected, x, visible.seen, at, None, "all")
        ahead, last = self._pass(projected, x, visible.seen, at, None, "causal")
        back, _ = self._pass(projected, x, visible.seen, at, None, "reversed")
        return ahead + back, last

    def _of_memory(
        self,
        queries: Tensor,
        source: Tensor,
        visible: Visible,
        at: tuple[Tensor, Tensor],
        cache: KeyValueCache | None,
        first_values: FirstValues | None,
    ) -> Tensor:
        if cache is not None and not cache.fixed:
            raise RegardError("a cache of a memory must be fixed: use KeyValueCache(fixed=True)")
        if visible.causal:
            raise RegardError(
                f"attention={self.name} reads all of a memory; a causal mask needs self-attention"
            )
        if cache is not None and len(cache):
            assert cache.state is not None
            asked = self.project_queries(queries)
            asked = self._asked(F.silu(asked) if self.convolved else asked, at[0])[1:]
            return self.attention.read(self.run, asked, cache.state).transpose(-3, -2)
        projected = [
            self.project_queries(queries),
            self.project_keys(source),
            self._values(source, first_values),
        ]
        output, state = self._pass(projected, source, visible.seen, at, None, "all", convolve=False)
        if cache is not None:
            cache.hold(state, source.shape[-2])
        return output

    def _step(
        self,
        x: Tensor,
        visible: Visible,
        at: tuple[Tensor, Tensor],
        cache: KeyValueCache,
        first_values: FirstValues | None,
    ) -> Tensor:
        """Read rows after those of a cache: consecutive words, or one word for each beam."""
        n, parents, state, (rows, columns) = x.shape[-2], visible.parents, cache.state, at
        if parents is None and n > 1 and not visible.causal:
            raise RegardError(f"attention={self.name} with a cache reads {n} rows in order: "
                              "add causal() to the mask")  # fmt: skip
        axis = -3 if parents is None else -2
        if axis == -2:
            rows, columns = (at.unsqueeze(-1) for at in (rows, columns))
        else:
            rows, columns = (at.unsqueeze(-2) if at.ndim > 1 else at for at in (rows, columns))
        if state is not None and parents is not None:
            state = tuple(_gathered(part, parents) for part in state)
        seen = visible.seen
        if seen is not None and seen.ndim > 1:
            seen = seen.unsqueeze(-2)
        output, state = self._of_itself(
            x.unsqueeze(axis), Visible(True, seen, None), (rows, columns), state, first_values
        )
        cache.hold(tuple(part.detach() for part in state), n)
        return output.squeeze(axis - 1)  # a further axis for the heads

    def _pass(
        self,
        projected: list[Tensor],
        source: Tensor,
        seen: Tensor | None,
        at: tuple[Tensor, Tensor],
        state: State | None,
        way: str,
        *,
        convolve: bool = True,
    ) -> tuple[Tensor, State]:
        """Return the heads' outputs (*batch, n, heads, head_width), and the state after it."""
        rows, columns = at
        hidden = None if seen is None else ~seen.unsqueeze(-1)
        if hidden is not None:
            projected = [projected[0], *(x.masked_fill(hidden, 0) for x in projected[1:])]
        if way == "reversed":
            projected = [x.flip(-2) for x in projected]
            source, rows, columns = source.flip(-2), rows.flip(-1), columns.flip(-1)
            seen, hidden = (
                None if x is None else x.flip(axis) for x, axis in ((seen, -1), (hidden, -2))
            )
        kept: State = ()
        if self.convolved and convolve:
            joined = torch.cat(projected, -1)
            if hidden is not None:
                joined = joined.masked_fill(hidden, 0)
            tail = None if state is None else state[-1]
            joined, tail = self._convolve(joined, tail, seen)
            state, kept = None if state is None else state[:-1], (tail,)
            projected = list(joined.split(self.sizes, -1))
        elif self.convolved:
            projected = [F.silu(x) for x in projected]
        asked, q, plain_q = self._asked(projected[0], rows)
        each = self.products, -1, self.head_width
        k, v = (x.unflatten(-1, each).flatten(-4, -3).transpose(-3, -2) for x in projected[1:])
        k, v = self._over_heads(k), self._over_heads(v)
        if self.products > 1:
            columns = columns.repeat_interleave(self.products, -1)
            hidden = None if hidden is None else hidden.repeat_interleave(self.products, -2)
        plain_k = self.features(k)
        k = self._placed(plain_k, columns, "prepare_keys")
        own = v
        v, log_decay, rate = self.written(v, source)
        if hidden is not None:
            hide = hidden.unsqueeze(-3)
            k, plain_k = k.masked_fill(hide, 0), plain_k.masked_fill(hide, 0)
            log_decay = None if log_decay is None else log_decay.masked_fill(hide, 0)
            rate = None if rate is None else rate.masked_fill(hide, 0)
        inputs = Rows(Inputs(q, k, v, log_decay, rate), plain_q, plain_k, self.products)
        order = "all" if way == "all" else "causal"
        attended = self.attention(self.run, inputs, state, order)
        # Before they are rounded: a stage may subtract nearly all of an output.
        output, own = attended.output, own.to(attended.output.dtype)
        if way != "all":
            output = self.skipped(output, own)
        if self.stages and convolve:  # of self-attention
            own = own[..., self.products - 1 :: self.products, :]
            output = self.staged(output, source, own, values=True)
        output = output.to(asked.dtype).transpose(-3, -2)
        output = output.flip(-3) if way == "reversed" else output
        return output, (*attended.state, *kept)

    def _asked(self, projected: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return projected queries, with their positions, and without them."""
        q = self._over_heads(projected.unflatten(-1, (-1, self.head_width)).transpose(-3, -2))
        plain = self.features(q)
        score = self.attention.score
        scale = score.acceleration.scale(score, self.head_width)
        return q, scale * self._placed(plain, rows, "prepare_queries"), scale * plain

    def _placed(self, x: Tensor, positions: Tensor, how: str) -> Tensor:
        positions = positions.unsqueeze(-2) if positions.ndim > 1 else positions
        prepared: Tensor = getattr(self.attention.score, how)(x, positions)
        return prepared

    def _over_heads(self, x: Tensor) -> Tensor:
        return x if x.shape[-3] == self.heads else x.repeat_interleave(
            self.heads // x.shape[-3], -3
        )  # fmt: skip

    def _convolve(
        self, x: Tensor, tail: Tensor | None, seen: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return SiLU(Σ_i taps_i x_{t−i}), and the last rows, for the step after them."""
        n = x.shape[-2]
        if tail is None:
            tail = x.new_zeros(*x.shape[:-2], TAIL, x.shape[-1])
        if not n:  # torch convolves at least as many rows as taps
            return x, tail
        whole = torch.cat([tail.to(x.dtype), x], -2)
        mixed = F.silu(convolve(whole, self.taps.to(x.dtype)))
        if seen is None:
            return mixed, whole[..., n:, :]
        last = (seen * torch.arange(1, n + 1, device=x.device)).amax(-1, keepdim=True)
        index = (last + torch.arange(TAIL, device=x.device)).unsqueeze(-1)
        index = index.expand(*x.shape[:-2], TAIL, x.shape[-1])
        return mixed, whole.gather(-2, index)


class Maps(Attention):
    """The maps of a mechanism on the linear path, as recordings see them."""

    def __init__(self, score: Any, *, heads: int) -> None:
        super().__init__(score, "softmax", 0.0, heads=heads)

    def forward(  # type: ignore[override]
        self, run: Callable[..., tuple[Tensor, State]], rows: Rows, state: State | None, way: str
    ) -> "AttendedState":
        """Run a pass and return the outputs, the weights on request, and the state after it."""
        inputs = Inputs(*map(_wide, rows.inputs))
        rows = Rows(inputs, _wide(rows.queries), _wide(rows.keys), rows.products)
        with unrounded(rows.queries):
            output, last = run(rows, state, way)
        weigh = partial(weights_of, run, rows, way)
        sources = [x for x in (*inputs, rows.queries, rows.keys) if x is not None]
        shape = torch.Size([*output.shape[:-1], rows.keys.shape[-2] // rows.products])
        return AttendedState(output, weigh, partial(summary_of, weigh), sources_of(*sources),
                             shape, self.heads, last)  # fmt: skip

    def read(
        self, run: Callable[..., tuple[Tensor, State]], asked: tuple[Tensor, Tensor], state: State
    ) -> Tensor:
        """Return the outputs of queries that read a state."""
        q, plain = map(_wide, asked)
        none = q[..., :0, :]
        width = state[0].shape[-1]
        rows = Rows(Inputs(q, none, q.new_zeros(*q.shape[:-2], 0, width)), plain, none)
        output, _ = run(rows, state, "read")
        return output.to(asked[0].dtype)


class AttendedState(Attended):
    """The result of a pass, and the state after it. The weights may be negative."""

    def __init__(self, *given: Any) -> None:
        *rest, self.state = given
        super().__init__(*rest)


def passed(rows: Rows, state: State | None, way: str) -> tuple[Tensor, State]:
    """Return the outputs and the last state of a recurrence.

    ``way``: "causal", each query after its own row; "all", each query after all rows; "read", each
    query reads the state.
    """
    inputs, first = rows.inputs, None if state is None else state[0]
    if way == "causal":
        output, last = by_chunks(inputs, first)
        return output, (last,)
    if way == "all":
        _, last = by_chunks(inputs._replace(queries=inputs.keys), first)  # of as many rows
    else:
        assert first is not None
        last = first
    return inputs.queries @ last, (last,)


def normalized(rows: Rows, state: State | None, way: str) -> tuple[Tensor, State]:
    """Return what `passed` returns, divided by Σ_j φ(q)·φ(k_j), for a recurrence without decay."""
    output, (last,) = passed(rows, state, way)
    before = 0 if state is None else state[1]
    end = total = rows.keys.sum(-2, keepdim=True) + before
    if way == "causal":
        total = rows.keys.cumsum(-2) + before
    mass = (rows.queries * total).sum(-1, keepdim=True)
    return output / mass.masked_fill(mass == 0, 1), (last, end)


def weights_of(run: Callable[..., tuple[Tensor, State]], rows: Rows, way: str) -> Tensor:
    """Return w with output = w v: (*batch, heads, n, m). A state before the pass is left out.

    The weight of a word with several products is the sum of theirs.
    """
    values = rows.inputs.values
    m = values.shape[-2]
    unit = torch.eye(m, dtype=values.dtype, device=values.device).expand(*values.shape[:-1], m)
    weights = run(rows._replace(inputs=rows.inputs._replace(values=unit)), None, way)[0]
    summed: Tensor = weights.unflatten(-1, (-1, rows.products)).sum(-1)
    return summed


@torch.no_grad()
def summary_of(weigh: Callable[[], Tensor], top: int) -> Summary:
    """Return the summary of weights; the entropy is that of |w| / Σ |w|."""
    weights = weigh()
    sizes = weights.abs()
    values, places = sizes.topk(min(top, weights.shape[-1]), -1)
    share = sizes / sizes.sum(-1, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)
    indices = places.masked_fill(values == 0, -1).int()
    entropy = torch.special.entr(share).sum(-1)
    return Summary(indices, weights.gather(-1, places), entropy, weights.sum(-2))


def _wide(x: Tensor | None) -> Any:
    return x.float() if x is not None and x.dtype in (torch.float16, torch.bfloat16) else x


def _gathered(state: Tensor, parents: Tensor) -> Tensor:
    """Return the states (*batch, rows, …) of each row's parent."""
    index = parents.reshape(*parents.shape, *[1] * (state.ndim - parents.ndim))
    return state.gather(
        parents.ndim - 1, index.expand(*parents.shape, *state.shape[parents.ndim :])
    )


StateAttention.run = staticmethod(passed)
