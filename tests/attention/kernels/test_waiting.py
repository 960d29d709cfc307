"""`attend` reads no number of a GPU: the reads would wait for all that was launched before.

On a CPU the same code runs as if its tensors were on a GPU, and a dispatch mode follows the numbers
of the inputs; on a GPU torch itself raises an error.
"""

import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from regard.attention import attend, bigbird, causal, dense, documents, lengths, use, window
from regard.attention.kernels.choose import Constants, using
from tests.attention.parts import HEADS, WIDTH, score_of

aten = torch.ops.aten
READS = {aten._local_scalar_dense, aten.nonzero, aten.equal, aten.is_nonzero, aten.unique_dim}


class Waiting(AssertionError):
    """A number that depends on the inputs was read."""


class Following(TorchDispatchMode):
    """Raise `Waiting` when a number that was computed from some tensors is read."""

    def __init__(self, *tensors):
        super().__init__()
        self.there = WeakIdKeyDictionary()
        for x in tensors:
            self.there[x] = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        flat = torch.utils._pytree.tree_leaves((args, kwargs or {}))
        follows = any(isinstance(x, torch.Tensor) and x in self.there for x in flat)
        if follows and function.overloadpacket in READS:
            raise Waiting(f"{function} reads a number of a GPU")
        found = function(*args, **(kwargs or {}))
        if follows:
            for x in torch.utils._pytree.tree_leaves(found):
                if isinstance(x, torch.Tensor):
                    self.there[x] = True
        return found


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Answer that no tensor is on the CPU, wherever the package asks."""
    for name, module in list(sys.modules.items()):
        if name.startswith("regard.attention") and hasattr(module, "on_cpu"):
            monkeypatch.setattr(module, "on_cpu", lambda x: False)


def inputs(dtype=torch.float32, device="cpu"):
    made = [torch.randn(3, HEADS, 70, WIDTH, dtype=dtype, device=device) for _ in range(3)]
    return [x.requires_grad_() for x in made]


MASKS = {
    "none": lambda there: None,
    "causal": lambda there: causal(),
    "lengths": lambda there: lengths(there(torch.tensor([70, 3, 0]))),
    "causal & lengths": lambda there: causal() & lengths(there(torch.tensor([70, 3, 0]))),
    "window": lambda there: window(9) & causal(),
    "bigbird": lambda there: bigbird(70, block=16, random=1),
    "documents": lambda there: documents(there(torch.arange(70) // 9)),
    "dense": lambda there: dense(there(torch.arange(4900).view(70, 70) % 3 > 0)),
}
CALLS = [
    *(("scaled-dot", "none", mask, "softmax", 0.0) for mask in MASKS),
    *(("additive", "alibi", mask, "softmax", 0.2) for mask in ("none", "window", "bigbird")),
    ("additive", "none", "causal", "entmax15", 0.0),
    ("dot", "t5-bias", "causal & lengths", "sparsemax", 0.0),
    ("cosine", "rotary", "documents", "entmax", 0.0),
    ("dot", "xpos", "causal", "softmax-plus-one", 0.0),
    ("epanechnikov", "none", "lengths", "sum", 0.0),
    ("synthesizer", "none", "causal", "sigmoid", 0.0),
    ("gaussian", "none", "causal", "softmax", 0.0),  # without a mask it asks for its largest norm
]


@pytest.mark.parametrize(("score", "position", "mask", "normalize", "dropout"), CALLS)
def test_no_number_of_the_inputs_is_read(as_on_a_gpu, score, position, mask, normalize, dropout):
    given, made = inputs(), score_of(score, position, torch.float32)
    followed = [*given, *made.parameters()]
    chosen = MASKS[mask](lambda x: followed.append(x) or x)
    small = Constants(strip_numbers=2**12, strip_rows=1, exact_pairs=0, compile_hidden=0)
    with using(small), Following(*followed):
        output = attend(*given, made, chosen, normalize=normalize, dropout=dropout).output
        output.sum().backward()
    assert given[2].grad is not None


def test_a_read_is_noticed(as_on_a_gpu):
    x = torch.randn(3)
    with Following(x), pytest.raises(Waiting, match="reads a number"):
        bool((x * 2).sum() > 0)
    with Following(x):
        assert bool(torch.ones(()) > 0)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [None, "tiled"])
@pytest.mark.parametrize(("score", "position", "mask", "normalize", "dropout"), CALLS)
def test_a_gpu_is_not_waited_for(score, position, mask, normalize, dropout, kernel):
    given, made = inputs(device="cuda"), score_of(score, position, torch.float32).cuda()
    chosen = MASKS[mask](lambda x: x.cuda())

    def call():
        output = attend(*given, made, chosen, normalize=normalize, dropout=dropout).output
        output.sum().backward()

    small = Constants(gpu_strip_numbers=2**12, strip_rows=1, gpu_exact_pairs=0, compile_hidden=0)
    with using(small), use(kernel) if kernel else using(small):
        call()  # compiles, which may wait
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
