"""Calls inside of graphs, in a process where no types are checked, which torch.compile cannot do.

`python -m tests.attention.in_a_graph BACKEND CASE …`; "export" stands for torch.export.
"""

import sys
from collections.abc import Callable

import torch
import torch._inductor.config
from torch import Tensor, nn
from torch.testing import assert_close

import regard
from regard.attention import (
    MECHANISMS,
    Mask,
    causal,
    lengths,
    named_mask,
    named_mechanism,
    window,
    within,
)
from regard.attention.positions.trees import parsed
from regard.lab.tasks.models import MODELS

CASES: dict[str, tuple[dict[str, object], Callable[[Tensor], Mask | None]]] = {
    "plain": ({}, lambda sizes: None),
    "causal": ({"dropout": 0.3}, lambda sizes: causal()),
    "rotary": ({"position": "rotary"}, lambda sizes: causal() & lengths(sizes)),
    "dropped": ({"position": "alibi", "dropout": 0.3}, lambda sizes: lengths(sizes)),
    "alibi": ({"position": "alibi"}, lambda sizes: lengths(sizes) & window(2)),
    "t5-bias": (
        {"position": "t5-bias"},
        lambda sizes: within(lengths(sizes), named_mask("window-2+global-1")),
    ),
    "relative-keys": ({"position": "relative-keys"}, lambda sizes: lengths(sizes)),
    "disentangled": ({"position": "disentangled-2"}, lambda sizes: lengths(sizes)),
    "tree-keys": ({"position": "tree-keys"}, lambda sizes: lengths(sizes)),
    "forgetting": ({"attention": "forgetting"}, lambda sizes: causal() & lengths(sizes)),
    "additive": ({"score": "additive"}, lambda sizes: causal()),
    "gaussian": ({"score": "gaussian"}, lambda sizes: lengths(sizes)),
    "top-k": ({"normalize": "top-k-2"}, lambda sizes: lengths(sizes)),
    "entmax": ({"normalize": "entmax"}, lambda sizes: lengths(sizes)),
    "moba": (
        {"attention": "moba-2-2", "position": "rotary"},
        lambda sizes: causal() & lengths(sizes),
    ),
    "dsa": ({"attention": "dsa-3", "position": "rotary"}, lambda sizes: causal() & lengths(sizes)),
}
#: Every other mechanism, which may compute by a state.
CASES |= {
    name: ({"attention": name}, lambda sizes: lengths(sizes))
    for name in MECHANISMS
    if name not in CASES
}
for name in ("latent", "ssd"):  # they have one key for all heads
    CASES[name][0]["key_value_heads"] = None
LONGER = ({1: torch.export.Dim.DYNAMIC}, None, {1: torch.export.Dim.DYNAMIC})
#: Two texts each: of other lengths, one of them empty.
SIZES = [[6, 3], [2, 9], [0, 11]]


class Layer(nn.Module):
    """Grouped heads under a mask."""

    def __init__(self, case: str) -> None:
        super().__init__()
        given, self.mask = CASES[case]
        torch.manual_seed(0)
        settings = dict(given)
        kind = named_mechanism(str(settings.pop("attention", "multi-head")))
        settings.setdefault("key_value_heads", 2)
        self.layer = kind(16, 4, **settings)

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        made: Tensor = self.layer(x, mask=self.mask(sizes))
        return made


def compiled(backend: str, case: str) -> None:
    """One graph for batches of several lengths, forward and backward."""
    layer, of = Layer(case), []
    graph = torch.compile(layer, fullgraph=True, backend=backend)
    for seed, sizes in enumerate(SIZES):
        n = max(sizes)
        x = torch.randn(2, n, 16, requires_grad=True)
        uneven = torch.linspace(-1, 2, x.numel()).view(x.shape)
        of = [x, *layer.parameters()]
        tree = (
            (torch.arange(n) - 1) // (seed + 1) if case == "tree-keys" else torch.arange(-1, n - 1)
        )
        found = []
        with parsed(tree):
            for call, kernel in ((graph, None), (layer, None), (layer, "exact")):
                torch.manual_seed(seed)
                if kernel is None:
                    output = call(x, torch.tensor(sizes))
                else:
                    with regard.use(kernel):
                        output = call(x, torch.tensor(sizes))
                found.append([output, *torch.autograd.grad((output * uneven).sum(), of)])
        for others in found[1:]:
            for ours, theirs in zip(found[0], others, strict=True):
                assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def attended(backend: str) -> None:
    """The call itself, of a score by name, and its weights."""
    q, k = torch.randn(2, 5, 4), torch.randn(2, 7, 4)
    for read in (lambda a: a.output, lambda a: a.weights):
        call = torch.compile(
            lambda q, k, read=read: read(regard.attend(q, k, k)), fullgraph=True, backend=backend
        )
        assert_close(call(q, k), read(regard.attend(q, k, k)))


def states(backend: str) -> None:
    """Gradients of mechanisms with a state, for one short length."""
    for name in ("linear", "delta", "ssd"):
        torch.manual_seed(0)
        layer, x = MECHANISMS[name](4, 2), torch.randn(1, 3, 4, requires_grad=True)
        found = []
        for call in (torch.compile(layer, backend=backend, dynamic=False), layer):
            loss = call(x).square().sum()
            found.append(torch.autograd.grad(loss, [x, *layer.parameters()]))
        assert_close(*found)


def outside(backend: str) -> None:
    """Masks that are made outside of the graph: other lengths, and no other graph."""
    layer = Layer("rotary").layer
    graph = torch.compile(layer, fullgraph=True, backend=backend)
    torch._dynamo.utils.counters.clear()
    for n in range(4, 16):
        mask = lengths(torch.tensor([n, n - 4]))
        x = torch.randn(2, n, 16)
        assert_close(graph(x, mask=mask), layer(x, mask=mask))
    assert 1 <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2, "any length is one"


def along_trees(backend: str) -> None:
    """A model that is given trees: what `parsed` sets inside of a graph."""
    entry = MODELS["transformer"]
    settings = entry.configure({"width": 8, "heads": 2, "layers": 1, "position": "tree-keys"})
    model = entry.build(settings, vocabulary=20, labels=3).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    if backend == "export":
        graph = torch.export.export(model, trees_of(6), dynamic_shapes=LONGER).module()
    else:
        graph = torch.compile(model, fullgraph=True, backend=backend)
    for n in (6, 9):
        tokens, sizes, parents = trees_of(n)
        found = graph(tokens, sizes, parents)
        assert_close(found, model(tokens, sizes, parents))
        assert (found - model(tokens, sizes)).abs().max() > 1e-4


def trees_of(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two texts of up to n words that hang on the first."""
    parents = torch.zeros(2, n, dtype=torch.long).index_fill(1, torch.tensor([0]), -1)
    return torch.randint(2, 20, (2, n)), torch.tensor([n, n - 2]), parents


def exported(case: str) -> None:
    """A program of any length."""
    batch, time = torch.export.Dim("batch", min=2, max=99), torch.export.Dim("time", min=2, max=99)
    if case in MODELS:
        small = {"width": 8, "layers": 1}
        if case in ("bert", "gpt"):
            small.update(heads=2, feedforward=16)
        entry = MODELS[case]
        model = entry.build(entry.configure(small), vocabulary=20, labels=3).eval()
    else:
        model = Layer(case).eval()

    def given(n: int) -> tuple[Tensor, Tensor]:
        sizes = torch.tensor([n, n // 2, 1, 0][: n // 10 + 3])
        rows = sizes.shape[0]
        return torch.randint(2, 20, (rows, n)) if case in MODELS else torch.randn(
            rows, n, 16
        ), sizes

    program = torch.export.export(
        model, given(6), dynamic_shapes=({0: batch, 1: time}, {0: batch})
    ).module()
    for n in (6, 41):
        x, sizes = given(n)
        assert_close(program(x, sizes), model(x, sizes), atol=1e-5, rtol=1e-4)


#: What is no layer under a mask.
ALONE = {"attended": attended, "outside": outside, "states": states, "trees": along_trees}

if __name__ == "__main__":
    backend, *cases = sys.argv[1:]
    torch._inductor.config.fallback_random = True  # the same numbers with a graph and without
    for case in cases:
        torch._dynamo.reset()
        if case in ALONE:
            ALONE[case](backend)
        elif backend == "export":
            exported(case)
        else:
            compiled(backend, case)
        print(case, flush=True)
