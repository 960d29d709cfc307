"""The linear path: attention without a softmax as a state of constant size, in chunks.

S_t = A_t S_{t−1} + k_t u_tᵀ and o_t = S_tᵀ q_t, with a decay A_t of the state (columns, width).
Time and memory are O(n). The cache of a step is S.
"""

import itertools
from ctypes import CDLL
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.native import call, library_for
from regard.attention.tracing import refuse_second_derivative

CHUNK = 64  # rows whose products are computed as one matrix
SEGMENT = 1024  # rows whose matrices are in memory at once: larger ones are mapped anew each time
CHUNK_PER_COLUMN = 16  # with decays per column a chunk takes rows² · columns numbers


class Inputs(NamedTuple):
    """The inputs of the recurrence, in the order of time.

    Each query follows as many rows of the others as these have for a query; usually one.
    ``log_decay`` is ln A_t ≤ 0: one number per row, one per column of the keys, or None for A = 1.
    Without ``rate`` u_t = v_t. With it the write is a step of the delta rule,
    u_t = rate_t (v_t − (A_t S_{t−1})ᵀ k_t), Schlag et al. 2021.
    """

    queries: Float[Tensor, "*batch n columns"]
    keys: Float[Tensor, "*batch n columns"]
    values: Float[Tensor, "*batch n width"]
    log_decay: Float[Tensor, "*batch n columns_or_1"] | None = None
    rate: Float[Tensor, "*batch n 1"] | None = None


def by_steps(
    inputs: Inputs, state: Float[Tensor, "*batch columns width"] | None = None
) -> tuple[Float[Tensor, "*batch n width"], Float[Tensor, "*batch columns width"]]:
    """Return the outputs and the last state by the recurrence, one row at a time.

    >>> q = k = torch.tensor([[1.0], [2.0]])
    >>> by_steps(Inputs(q, k, torch.tensor([[3.0], [4.0]])))[0].tolist()
    [[3.0], [22.0]]
    """
    queries, keys, values, log_decay, rate = inputs
    if state is None:
        state = first_state(keys, values)
    outputs = []
    every = keys.shape[-2] // max(1, queries.shape[-2])
    for t in range(keys.shape[-2]):
        row = slice(t, t + 1)
        if log_decay is not None:
            state = log_decay[..., row, :].mT.exp() * state
        written = values[..., row, :]
        if rate is not None:
            written = rate[..., row, :] * (written - keys[..., row, :] @ state)
        state = state + keys[..., row, :].mT @ written
        if (t + 1) % every == 0:
            outputs.append(queries[..., t // every : t // every + 1, :] @ state)
    if not outputs:
        return queries @ state, state
    return torch.cat(outputs, -2), state


def by_chunks(
    inputs: Inputs,
    state: Float[Tensor, "*batch columns width"] | None = None,
    *,
    chunk: int | None = None,
) -> tuple[Float[Tensor, "*batch n width"], Float[Tensor, "*batch columns width"]]:
    """Return the result of `by_steps`, by matrix products over chunks of rows.

    In a chunk, D_ij = A_{j+1} … A_i for j ≤ i, and the outputs are (Q Kᵀ ⊙ D) U plus the
    contribution of the previous state (Yang et al. 2024, GLA, section 4). Under the delta rule U
    solves a triangular system (Yang et al. 2024, DeltaNet, section 3). All exponents are at most 0,
    so no decay overflows.

    >>> x = torch.ones(1, 3, 1)
    >>> by_chunks(Inputs(x, x, x), chunk=2)[0].flatten().tolist()
    [1.0, 2.0, 3.0]
    """
    decay = inputs.log_decay
    if state is None:
        state = first_state(inputs.keys, inputs.values)
    if not inputs.queries.shape[-2]:
        return inputs.queries @ state, state
    per_column = decay is not None and decay.shape[-1] > 1
    every = inputs.keys.shape[-2] // inputs.queries.shape[-2]
    large = per_column and (every > 1 or decays_for(inputs, CHUNK) is None)
    chunk = chunk or (CHUNK_PER_COLUMN if large else CHUNK)
    chunk = max(every, chunk - chunk % every)
    rows = chunk * max(1, SEGMENT // chunk)
    many = per_column or inputs.rate is not None  # numbers per row: computed again for gradients
    asking = inputs.queries.split(rows // every, -2)
    main = zip(asking, *(x.split(rows, -2) for x in inputs[1:3]), strict=True)
    gates = [itertools.repeat(None) if x is None else x.split(rows, -2) for x in inputs[3:]]
    outputs = []
    for (queries, keys, values), log_decay, rate in zip(main, *gates, strict=False):
        segment = Inputs(queries, keys, values, log_decay, rate)
        if many and torch.is_grad_enabled() and inputs.keys.shape[-2] > rows:
            output, state = checkpoint(
                _segment, segment, state, chunk, use_reentrant=False, preserve_rng_state=False
            )
        else:
            output, state = _segment(segment, state, chunk)
        outputs.append(output)
    return torch.cat(outputs, -2), state


def _segment(inputs: Inputs, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Return the outputs and the last state of consecutive chunks."""
    n, m = inputs.queries.shape[-2], inputs.keys.shape[-2]
    every = m // n
    per_column = inputs.log_decay is not None and inputs.log_decay.shape[-1] > 1
    chunk = min(chunk, m)
    q, k, v = _split(inputs.queries, chunk // every), *(_split(x, chunk) for x in inputs[1:3])
    log_decay, rate = (None if x is None else _split(x, chunk) for x in inputs[3:])
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    after = slice(every - 1, None, every)  # the row that a query follows
    inside, kept, fading = q, k, None
    compiled = decays_for(inputs, chunk)
    direct = compiled if per_column and every == 1 else None
    if log_decay is not None and direct is not None:
        arguments = log_decay, direct
        pairs = _Decayed.apply(q, k, *arguments, False)  # type: ignore[no-untyped-call]
        if rate is not None:
            similar = _Decayed.apply(k, k, *arguments, True)  # type: ignore[no-untyped-call]
        since = log_decay.cumsum(-2).exp()
        later_rows = F.pad(log_decay[..., 1:, :], (0, 0, 0, 1))
        until = later_rows.flip(-2).cumsum(-2).flip(-2).exp()
        inside, kept, fading = q * since, k * until, since[..., -1:, :].mT
    else:
        pairs, similar = q @ k.mT, k @ k.mT
    if log_decay is not None and direct is None:
        between, since, until = _decays(log_decay, later)
        at = between[..., after, :, :]
        if per_column:
            pairs = torch.einsum("...id,...jd,...ijd->...ij", q, k, at)
            if rate is not None:
                similar = torch.einsum("...id,...jd,...ijd->...ij", k, k, between)
        else:
            pairs, similar = pairs * at.squeeze(-1), similar * between.squeeze(-1)
        inside, kept, fading = q * since[..., after, :], k * until, since[..., -1:, :].mT
    pairs = pairs.masked_fill(later[after], 0)
    read = None
    if rate is not None:
        reading = k if log_decay is None else k * since
        below, given = rate * similar.tril(-1), rate * torch.cat([v, reading], -1)
        if compiled is not None:
            inverse: Tensor = _Inverse.apply(below, compiled)  # type: ignore[no-untyped-call]
            solved = inverse @ given
        else:
            solved = torch.linalg.solve_triangular(below, given, upper=False, unitriangular=True)
        v, read = solved.split([v.shape[-1], k.shape[-1]], -1)
    v, before, state = _states(v, read, kept, fading, state)
    return (pairs @ v + inside @ before).flatten(-3, -2)[..., :n, :], state


def _states(
    v: Tensor, read: Tensor | None, kept: Tensor, fading: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the written values, the states before each chunk, and the state after the last.

    S_{c+1} = A_c S_c + K_cᵀ U_c. Under the delta rule U_c = V_c − R_c S_c, else V_c.
    """
    batch = torch.broadcast_shapes(v.shape[:-3], kept.shape[:-3], state.shape[:-2])
    # unbind, because the gradient of each x[..., c, :, :] would be as large as x.
    chunks = [
        [None] * v.shape[-3] if x is None
        else x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:]).unbind(-3)
        for x in (v, read, kept.mT, fading)
    ]  # fmt: skip
    states, written = [state.expand(*batch, *state.shape[-2:]).reshape(-1, *state.shape[-2:])], []
    for values, known, stored, faded in zip(*chunks, strict=True):
        last = states[-1]
        if known is not None:
            written.append(values := torch.baddbmm(values, known, last, alpha=-1))
        last = last if faded is None else faded * last
        states.append(torch.baddbmm(last, stored, values))
    if written:
        v = torch.stack(written, -3).view(*batch, *v.shape[-3:])
    after = states.pop().view(*batch, *state.shape[-2:])
    before = torch.stack(states, -3) if len(states) > 1 else states[0].unsqueeze(-3)
    return v, before.view(*batch, *before.shape[-3:]), after


def decays_for(inputs: Inputs, chunk: int) -> CDLL | None:
    """Return the library of `_Decayed` and `_Inverse` if it serves these inputs, else None."""
    keys = inputs.keys
    same = all(x is None or x.dtype == keys.dtype for x in inputs)
    return library_for("decays", keys, keys.numel() * chunk) if same else None


class _Inverse(torch.autograd.Function):
    """(I + L)⁻¹ for the numbers L below the diagonal, in C++."""

    @staticmethod
    def forward(ctx: Any, below: Tensor, compiled: CDLL) -> Tensor:
        below = below.contiguous()
        inverse = torch.empty_like(below)
        call("inverse", compiled, below, inverse, below.shape[:-2].numel(), below.shape[-1])
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ upstream[0] @ inverse.mT), None


class _Decayed(torch.autograd.Function):
    """Σ_d q_id k_jd A_{j+1,d} … A_{i,d} for j ≤ i, or j < i if strict, (…, rows, rows), in C++."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, log_decay: Tensor, compiled: CDLL, strict: bool
    ) -> Tensor:
        q, k, decay = q.contiguous(), k.contiguous(), log_decay.exp().contiguous()
        ctx.save_for_backward(q, k, decay)
        ctx.how = compiled, (q.shape[:-2].numel(), *q.shape[-2:], int(strict))
        pairs = q.new_empty(*q.shape[:-1], q.shape[-2])
        call("forward", compiled, q, k, decay, pairs, *ctx.how[1])
        return pairs

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("the linear path in C++")
        q, k, decay = ctx.saved_tensors
        compiled, sizes = ctx.how
        of_q, of_k = torch.empty_like(q), torch.empty_like(k)
        call("backward", compiled, q, k, decay, upstream[0].contiguous(), of_q, of_k, *sizes)
        # ln A_t is in the decay of each pair with j < t ≤ i.
        ends = (q * of_q).sub_(k * of_k)
        return of_q, of_k, ends.flip(-2).cumsum(-2).flip(-2), None, None


def first_state(keys: Tensor, values: Tensor) -> Tensor:
    """Return a state of zeros, (*batch, columns, width)."""
    batch = torch.broadcast_shapes(keys.shape[:-2], values.shape[:-2])
    return values.new_zeros(*batch, keys.shape[-1], values.shape[-1])


def _decays(log_decay: Tensor, later: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the decays from j to i (…, i, j, d), from the chunk's start to i, from j to its end.

    Sums of ln A from j + 1 to i, not differences of two sums, which lose digits.
    """
    rows = log_decay.unsqueeze(-2).expand(*log_decay.shape[:-1], *later.shape[-1:], -1)
    hidden = later | torch.eye(len(later), dtype=torch.bool, device=later.device)
    gap = rows.masked_fill(hidden.unsqueeze(-1), 0).cumsum(-3)
    return gap.exp(), log_decay.cumsum(-2).exp(), gap[..., -1, :, :].exp()


def _split(x: Tensor, chunk: int) -> Tensor:
    """Split (*batch, n, d) into (*batch, chunks, chunk, d), with zeros after the end.

    A zero key, rate and ln A leave the state as it is.
    """
    missing = -x.shape[-2] % chunk
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    chunks: Tensor = x.unflatten(-2, (-1, chunk))
    return chunks
