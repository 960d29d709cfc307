"""Attention by Triton tiles: which calls have them, and how the kernels are launched."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.triton.expression import UnsupportedScore
from regard.attention.kernels.triton.kept import program_for
from regard.attention.kernels.triton.program import Program, Sides, templates
from regard.attention.mask import Blocks
from regard.attention.mask_context import MaskContext
from regard.attention.prepared import repeat_kv
from regard.attention.tracing import refuse_second_derivative

#: Normalisers that the kernels compute, by name.
KINDS = {"softmax": 0, "sparsemax": 1, "entmax15": 2}
#: Rows and columns of a tile, its warps, and the widest values.
BLOCK, WARPS, WIDEST = 64, 4, 256


def refusal(call: Call) -> str | None:
    """Return why a call has no Triton tiles, or None if it has."""
    try:
        job_of(call, None)
    except UnsupportedScore as reason:
        return str(reason)
    return None


class Job(NamedTuple):
    """A call with its program: all that both passes need except the tensors with gradients."""

    program: Program
    sides: Sides
    context: MaskContext
    kind: int
    dropout: Dropout | None


def job_of(call: Call, dropout: Dropout | None) -> Job:
    """Return the job of a call. Raise an UnsupportedScore with the reason if it has none."""
    normalizer, context, values = call.normalizer, call.context, call.values
    if normalizer.name not in KINDS or type(normalizer).__module__.split(".")[0] != "regard":
        raise UnsupportedScore(f"its kernels do not know the normaliser {normalizer.name}")
    if call.nonfinite is not None:
        raise UnsupportedScore("inputs contain NaN or infinity")
    if values.dtype == torch.float64 or values.shape[-1] > WIDEST:
        raise UnsupportedScore(f"values are float64, or wider than {WIDEST}")
    if 0 in context.shape or not values.shape[-1]:
        raise UnsupportedScore("there is nothing to compare")
    heads = repeat_kv(values, context.heads).shape[:-2]
    if torch.broadcast_shapes(heads, context.shape[:-2]) != context.shape[:-2]:
        raise UnsupportedScore("values have more batches than scores")
    sides = Sides.of(call)
    wanted = [
        torch.is_grad_enabled() and x.requires_grad and x.is_floating_point() for x in sides.tensors
    ]
    program = program_for(call, sides, wanted)
    return Job(program, sides, context, KINDS[normalizer.name], dropout)


def attended(call: Call, dropout: Dropout | None) -> Tensor:
    """Compute normalize(score(q, k)) v, (*batch, n, value_width), in O(n) memory.

    Differentiable once, in the prepared queries and keys, the values, and the score's parameters.
    """
    job = job_of(call, dropout)
    values = repeat_kv(call.values, call.context.heads)
    values = values.expand(*call.context.shape[:-2], *values.shape[-2:])
    output: Tensor = _Tiles.apply(job, values, *job.sides.tensors)  # type: ignore[no-untyped-call]
    return output


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: Job, values: Tensor, *tensors: Tensor) -> Tensor:
        launch = Launch.of(job, values, tensors)
        output, *statistics = launch.forward()
        ctx.job = job
        ctx.save_for_backward(output, values, *statistics, *tensors)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("the triton kernel")
        output, values, a, b, mean, *tensors = ctx.saved_tensors
        launch = Launch.of(ctx.job, values, tensors)
        return None, *launch.backward(upstream[0], output, a, b, mean)


@dataclass(frozen=True)
class Launch:
    """The arguments that the kernels of a job share."""

    job: Job
    values: Tensor
    tensors: Sequence[Tensor]
    read: tuple[Tensor, ...]
    sizes: tuple[int, ...]
    constants: dict[str, Any]

    @classmethod
    def of(cls, job: Job, values: Tensor, tensors: Sequence[Tensor]) -> "Launch":
        """Return the arguments; tensors become contiguous."""
        module, batch, width = job.program.module, job.context.shape[:-2], values.shape[-1]
        contiguous = [x.contiguous() for x in tensors]
        captured = [x.to(values.device, non_blocking=True) for x in job.program.captured]
        read = (*contiguous, *(x.contiguous() for x in job.sides.positions), *captured)
        one = len(job.sides.queries) + len(job.sides.keys)
        strided = (*contiguous[one:], *captured)
        sizes = (*batch, *(stride for x in strided for stride in x.stride()))
        of = contiguous[0].dtype
        constants = {
            "SCORES": module.scores,
            "ALLOWED": None if job.context.mask is None else module.allowed,
            "KIND": job.kind,
            "DROPS": job.dropout is not None,
            "WIDTH": width,
            "PADDED": max(16, 1 << (width - 1).bit_length()),
            "BR": BLOCK,
            "BC": BLOCK,
            "num_warps": WARPS,
            **precision(of, values.device),
        }
        return cls(job, values.contiguous(), contiguous, read, sizes or (1,), constants)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of batch entries, rows and columns."""
        *batch, n, m = self.job.context.shape
        return prod(batch), n, m

    def dropout(self) -> tuple[int, int, float]:
        """Return seed, limit and factor of the dropout."""
        dropout = self.job.dropout
        if dropout is None:
            return 0, 0, 1.0
        assert isinstance(dropout.seed, int)
        return dropout.seed, int(-(2**31) + dropout.rate * 2**32), 1 / (1 - dropout.rate)

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the tensors' GPU is the current one."""
        return torch.cuda.device_of(self.values) if self.values.is_cuda else nullcontext()

    def forward(self) -> tuple[Tensor, ...]:
        """Return the output, and two statistics and a mean of values for each row."""
        kernels = templates()
        z, n, m = self.shape
        output = self.values.new_empty(*self.job.context.shape[:-1], self.values.shape[-1])
        like = self.values.new_empty(0, dtype=torch.float32)
        a, b = like.new_empty(z, n), like.new_empty(z, n)
        mean = like.new_empty(output.shape if self.job.kind else (1,))
        states = self.states()
        with self.on_device():
            kernels.forward[(blocks(n) * z,)](
                self.read, self.sizes, self.values, output, mean, a, b, states.table, states.rows,
                n, m, blocks(m), *self.dropout(), MASKED=states.masked, STEPS=kernels.NEWTON,
                **self.constants,
            )  # fmt: skip
        return output, a, b, mean

    def backward(
        self, upstream: Tensor, output: Tensor, a: Tensor, b: Tensor, mean: Tensor
    ) -> list[Tensor | None]:
        """Return the gradients of the values and of all tensors."""
        kernels = templates()
        z, n, m = self.shape
        program, module, states = self.job.program, self.job.program.module, self.states()
        upstream = upstream.contiguous()
        # With dropout, ⟨g, Σ w d v⟩ for softmax is that of the output too.
        delta = (upstream.float() * (mean if self.job.kind else output.float())).sum(-1)
        of_values = torch.empty_like(self.values)
        like = self.values.new_empty(0, dtype=torch.float32)
        queries = [like.new_zeros(z, n, x.width) for x in program.rows]
        keys = [like.new_zeros(z, m, x.width) for x in program.columns]
        spare = (a,)  # a tuple of pointers is never empty
        shared = (self.values, upstream, a, b, delta.contiguous(), states.table)
        with self.on_device():
            if queries:
                values, *rest = shared
                kernels.backward_rows[(blocks(n) * z,)](
                    self.read, self.sizes, tuple(queries), values, *rest, states.rows, n, m,
                    blocks(m), *self.dropout(), SEND=module.to_rows, MASKED=states.masked,
                    **self.constants,
                )  # fmt: skip
            values, *rest = shared
            kernels.backward_columns[(blocks(m) * z,)](
                self.read, self.sizes, tuple(keys) or spare, values, of_values, *rest,
                states.columns, n, m, blocks(n), blocks(m), *self.dropout(),
                SEND=module.to_columns, MASKED=states.masked, **self.constants,
            )  # fmt: skip
        gradients: list[Tensor | None] = [None] * len(self.tensors)
        batch = self.job.context.shape[:-2]
        for buffer, numbers in (
            *zip(program.rows, queries, strict=True),
            *zip(program.columns, keys, strict=True),
        ):
            more = buffer.gradient(numbers, self.tensors[buffer.place], batch)
            before = gradients[buffer.place]
            gradients[buffer.place] = more if before is None else before + more
        return [of_values, *gradients]

    def states(self) -> "States":
        """Return which blocks of pairs the mask may allow, without reading a GPU."""
        context, device = self.job.context, self.values.device
        known = context.on_host
        nothing = self.values.new_empty(1, dtype=torch.int32)
        if context.mask is None or context.mask.kind == "keys" or known is None:
            return States(nothing, nothing, nothing, False)
        rows, columns = (Blocks.of(x, BLOCK) for x in known)
        may = context.mask.reach(rows, columns).may.to(torch.int32)

        def there(x: Tensor) -> Tensor:
            return x.contiguous().to(device, non_blocking=True)

        return States(there(may), there(ranges(may)), there(ranges(may.T)), True)


class States(NamedTuple):
    """A mask by blocks: whether some pair may be allowed, and the range of each row."""

    table: Tensor
    rows: Tensor
    columns: Tensor
    masked: bool


def ranges(may: Tensor) -> Tensor:
    """Return the first block of each row of a table that is not 0, and the one after the last.

    >>> ranges(torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0]])).tolist()
    [[1, 3], [0, 0]]
    """
    some = may.any(1)
    first = may.bool().int().argmax(1)
    last = may.shape[1] - may.bool().flip(1).int().argmax(1)
    return (torch.stack([first, last], 1) * some[:, None]).to(torch.int32)


def blocks(size: int) -> int:
    """Return the number of blocks of rows or columns."""
    return -(-size // BLOCK)


def precision(dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Return the dtype and the precision of matrix products for queries of a dtype.

    In float32 three products of TF32 stand for one, unless torch itself may take a single one.
    """
    import triton.language as tl

    if dtype in (torch.bfloat16, torch.float16):
        half = tl.bfloat16 if dtype == torch.bfloat16 else tl.float16
        return {"DOT": half, "IP": "ieee"}
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 8:
        return {"DOT": tl.float32, "IP": "ieee"}
    single = torch.backends.cuda.matmul.allow_tf32
    return {"DOT": tl.float32, "IP": "tf32" if single else "tf32x3"}
