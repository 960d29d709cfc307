"""Compile the kernels of calls for a GPU that need not be there: Triton → PTX → machine code.

    python -m tests.attention.kernels.triton_targets

The interpreter proves what the kernels compute, and not that Triton can compile them.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from examples.my_score import Laplacian
from regard.attention import Mask, Score, causal, lengths, make_score, window
from regard.attention.arguments import Arguments
from regard.attention.computation import Computation
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.triton import launch
from regard.attention.kernels.triton.program import templates

TYPES = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
    torch.int32: "*i32", torch.bool: "*i1",
}  # fmt: skip
kernels = templates()
H100 = GPUTarget("cuda", 90, 32)


class Compiling:
    """A kernel that compiles when it is launched, and computes nothing."""

    def __init__(self, kernel: Any, done: Callable[[str, Any], None]) -> None:
        self.kernel, self.done = kernel, done

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launched(*arguments: Any, **constants: Any) -> None:
            names = list(inspect.signature(self.kernel.fn).parameters)
            given = dict(zip(names, arguments, strict=False))
            constants.pop("num_warps")
            constants["IP"] = "tf32x3" if constants["DOT"] == kernels.tl.float32 else "ieee"
            signature = {n: signature_of(given[n]) if n in given else "constexpr" for n in names}
            fixed = {(names.index(n),): value for n, value in constants.items()}
            source = ASTSource(self.kernel, signature=signature, constexprs=fixed)
            self.done(self.kernel.fn.__name__, triton.compile(source, target=H100))

        return launched


def signature_of(x: Any) -> Any:
    """Return the type of an argument, as Triton writes it."""
    if isinstance(x, tuple):
        return tuple(map(signature_of, x))
    return TYPES[x.dtype] if isinstance(x, Tensor) else "fp32" if isinstance(x, float) else "i32"


def compiled(
    score: Score, mask: Mask | None, normalize: str, dtype: torch.dtype, dropout: float = 0.0
) -> dict[str, Any]:
    """Return the compiled kernels of a small call by their names."""
    q, k = (torch.randn(2, 2, n, 24, dtype=dtype, requires_grad=True) for n in (70, 90))
    call = Computation.of(Arguments(q, k, k, score, mask, normalize)).call
    found: dict[str, Any] = {}
    real = {
        name: getattr(kernels, name) for name in ("forward", "backward_rows", "backward_columns")
    }
    try:
        for name, kernel in real.items():
            setattr(kernels, name, Compiling(kernel, found.__setitem__))
        output = launch.attended(call, Dropout(dropout, 3) if dropout else None)
        output.sum().backward()
    finally:
        for name, kernel in real.items():
            setattr(kernels, name, kernel)
    return found


def calls() -> list[tuple[Any, ...]]:
    """Return calls that have every kind of code between them."""

    def made(name: str, position: str = "none") -> Score:
        return make_score(name, position, 24, 24, heads=2)

    full, half = torch.float32, torch.bfloat16
    near, short = window(9) & causal(), causal() & lengths(torch.tensor([70, 3]))
    return [
        (made("additive"), None, "softmax", full),
        (made("additive", "alibi"), near, "entmax15", full, 0.1),
        (made("scaled-dot"), short, "sparsemax", half),
        (made("scaled-dot", "alibi"), near, "softmax", full, 0.1),
        (made("scaled-dot+soft-cap-50"), near, "entmax15", half),
        (made("epanechnikov"), None, "softmax", full),
        (Laplacian(24, 24, heads=2), near, "softmax", half),
    ]


def main() -> int:
    """Compile all of them."""
    for call in calls():
        for name, kernel in compiled(*call).items():
            spilled = kernel.metadata.shared
            sys.stdout.write(f"{call[0].name} {call[2]} {call[3]} {name}: {spilled} B shared\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
