"""Graphs of torch.compile and torch.export, the meta device, torch.func and forward mode."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacrev, jvp, vmap
from torch.testing import assert_close

from regard.attention import (
    POSITIONS,
    SCORES,
    MultiHeadAttention,
    attend,
    bigbird,
    causal,
    lengths,
    make_score,
    use,
    window,
)
from regard.attention.kernels.choose import Properties, plan
from regard.core.errors import RegardError
from regard.lab.tasks.models import MODELS
from tests.attention.parts import fits

#: Torch's own, as it loads what forward mode needs.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
ROOT = Path(__file__).parents[2]
NETWORKS = [name for name, entry in MODELS.items() if not entry.deterministic]
#: Scores, positions and normalisers that differ in how they are computed.
PARTS = [
    ("scaled-dot", "none", "softmax"),
    ("additive", "t5-bias", "sparsemax"),
    ("gaussian", "relative-keys", "entmax"),
    ("cosine", "alibi", "top-k-2"),
    ("epanechnikov", "rotary", "sum"),
    ("dot", "tree-keys", "sink"),
]


def in_a_graph(folder: Path, *arguments: str) -> None:
    """Run `in_a_graph` in a fresh process, with nothing compiled before."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.attention.in_a_graph", *arguments],
        cwd=ROOT,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == list(arguments[1:])


def test_one_graph_forward_and_backward_for_batches_of_several_lengths(tmp_path):
    in_a_graph(tmp_path, "aot_eager", "dropped", "moba", "dsa", "states", "outside", "attended")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_one_graph_of_every_kind(tmp_path, backend):
    from tests.attention.in_a_graph import ALONE, CASES

    in_a_graph(tmp_path, backend, *CASES, *ALONE)


def test_an_exported_program_takes_other_batches_and_lengths(tmp_path):
    cases = ("rotary", "causal", "forgetting", "moba", "dsa", "transformer", "gpt", "trees")
    in_a_graph(tmp_path, "export", *cases)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_made_on_the_meta_device(name):
    entry = MODELS[name]
    with torch.device("meta"):
        model = entry.build(entry.configure(), vocabulary=50, labels=3)
        logits = model(torch.zeros(2, 7, dtype=torch.long), torch.full((2,), 7))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert logits.is_meta
    assert logits.shape == (2, 3)


@pytest.mark.parametrize("score", SCORES)
def test_a_layer_gives_shapes_on_the_meta_device(score):
    for position in (name for name in POSITIONS if fits(score, name)):
        with torch.device("meta"):
            layer = MultiHeadAttention(
                8, 4, score=score, position=position, length=9, key_value_heads=2, dropout=0.1
            )
            x = torch.zeros(2, 7, 8)
            for mask in (None, causal() & lengths([7, 3]), bigbird(9, block=2) | window(2)):
                output = layer(x, mask=mask)
                assert output.is_meta
                assert output.shape == (2, 7, 8)


def test_a_summary_without_numbers_is_refused():
    x = torch.zeros(2, 3, 4, device="meta")
    given = attend(x, x, x)
    assert given.weights.shape == (2, 3, 3)
    with pytest.raises(RegardError, match=r"reads numbers.*read \.weights there"):
        given.summary()


@pytest.mark.parametrize(("score", "position", "normalize"), PARTS)
def test_torch_func_and_forward_mode(score, position, normalize):
    layer = MultiHeadAttention(8, 2, score=score, position=position, normalize=normalize).double()
    x, way = torch.randn(2, 2, 5, 8, dtype=torch.float64).unbind(0)
    mask = causal() & lengths([5, 3])

    def call(x, mask=mask):
        return layer(x, mask=mask)

    with use("exact"):
        wanted, along = torch.autograd.functional.jvp(call, x, way)
        x.requires_grad_()
        (slope,) = torch.autograd.grad(call(x).square().sum(), x)
        x = x.detach()
        many = torch.stack([x, way, x + way])
        each = torch.stack([call(x) for x in many])
    found, tangent = jvp(call, (x,), (way,))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(call(forward_ad.make_dual(x, way)))
    for ours, theirs in ((found, tangent), dual[:2]):
        assert_close(ours, wanted)
        assert_close(theirs, along)
    assert_close(grad(lambda x: call(x).square().sum())(x), slope)
    assert_close(vmap(call)(many), each)
    short = x[:1, :3]
    table = jacrev(lambda x: call(x, causal()))(short)
    assert table.shape == (1, 3, 8, 1, 3, 8)
    assert table[0, 0, :, 0, 1:].count_nonzero() == 0, "what comes later has no slope"
    assert table[0, 2, :, 0, :].count_nonzero() > 0
    bent = hessian(lambda x: call(x, causal()).square().sum())(short).reshape(24, 24)
    assert_close(bent, bent.T)


def test_dropout_under_vmap_differs_from_call_to_call():
    x, score = torch.randn(3, 2, 40, 4), make_score("dot")

    def call(x):
        return attend(x, x, torch.ones_like(x), score, dropout=0.5).output

    found = vmap(call, randomness="different")(x[:1].expand(3, -1, -1, -1))
    assert (found[0] - found[1]).abs().max() > 0.1
    assert abs(found.mean() - 1) < 0.1


@pytest.mark.parametrize("kernel", ["tiled", "fused"])
def test_a_kernel_that_lacks_a_derivative_names_the_remedy(kernel):
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 20, 8)
    remedy = "regard.use\\('exact'\\)"
    with use(kernel):
        with pytest.raises(
            RegardError, match=f"{kernel} kernel does not support torch.func.*{remedy}"
        ):
            grad(lambda x: layer(x).sum())(x)
        with pytest.raises(
            RegardError, match=f"{kernel} kernel does not support torch.func.*{remedy}"
        ):
            vmap(layer)(x[None])
        with (
            forward_ad.dual_level(),
            pytest.raises(
                RegardError, match=f"{kernel} kernel does not support forward-mode.*{remedy}"
            ),
        ):
            layer(forward_ad.make_dual(x, x))
        once = layer(x.requires_grad_()).square().sum()
        twice = pytest.raises(
            RegardError, match=f"the {kernel} kernel is differentiable once.*{remedy}"
        )
        with twice:
            (slope,) = torch.autograd.grad(once, x, create_graph=True)
            slope.square().sum().backward()
    with use("exact"):
        (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        assert torch.autograd.grad(slope.square().sum(), x)[0].count_nonzero() == x.numel()


def test_a_first_derivative_by_torchs_kernel_may_be_part_of_a_graph():
    x = torch.randn(2, 20, 8, requires_grad=True)
    layer, other = MultiHeadAttention(8, 2), torch.ones((), requires_grad=True)
    (slope,) = torch.autograd.grad(other * layer(x).sum(), layer.output.bias, create_graph=True)
    assert torch.autograd.grad(slope.sum(), other)[0] == 40 * 8


@pytest.mark.parametrize(
    ("given", "kernel", "why"),
    [
        ({"graph": True}, "fused", "a graph is made of an inner product with softmax"),
        ({"graph": True, "asked": "exact"}, "exact", "requested by use()"),
        ({"graph": True, "dropout": 0.1}, "exact", "inside a graph, and torch's kernels do"),
        ({"graph": True, "asked": "tiled", "inner_product": False}, "exact", "inside a graph"),
        ({"transformed": "torch.func"}, "exact", "torch.func supports no other"),
    ],
)
def test_plans_of_graphs(given, kernel, why):
    made = plan(
        Properties(
            **{"inner_product": True, "normalize": "softmax", "shape": (2, 900, 900), **given}
        )
    )
    assert made.kernel == kernel
    assert made.why.startswith(why)
