"""Every network by torch.export and torch.compile as one graph, for other batches and lengths."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.lab.tasks.models import DECODERS, ENCODERS, MODELS, WRITERS, ModelEntry

#: Torch's own, as it loads what its graphs need.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
SMALL = {"width": 16, "heads": 2, "layers": 1, "feedforward": 16, "hidden": 8, "filters": 4,
         "length": 32}  # fmt: skip
TABLES = {"text": MODELS, "writer": WRITERS, "decoder": DECODERS, "encoder": ENCODERS}
NETWORKS = [
    (kind, name)
    for kind, table in TABLES.items()
    for name, entry in table.items()
    if not entry.deterministic
]
#: torch unrolls a recurrent layer, so that its length is the example's.
UNROLLED = {"rnn", *(name for name in WRITERS if name not in ("transformer", "t5"))}
QUICK = {("text", "mean"), ("decoder", "gpt")}


def networks(*, unrolled: bool) -> list[object]:
    """The networks, those beyond `QUICK` marked as slow."""
    chosen = [pair for pair in NETWORKS if unrolled or pair[1] not in UNROLLED]
    return [x if x in QUICK else pytest.param(*x, marks=pytest.mark.slow) for x in chosen]


class Logits(nn.Module):
    """A network from its inputs to its logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *given: Tensor) -> Tensor:
        states: Tensor = self.network(*given)
        return self.network.to_logits(states) if hasattr(self.network, "to_logits") else states


def made(kind: str, name: str) -> Logits:
    torch.manual_seed(0)
    entry: ModelEntry = TABLES[kind][name]
    layers = {"layers"} if entry.defaults.get("layers") == 0 else set()
    fields = entry.settings.model_fields
    given = {key: x for key, x in SMALL.items() if key in fields and key not in layers}
    network = entry.build(entry.configure(given), vocabulary=50, labels=3)
    return Logits(network).eval()


def inputs(kind: str, *sizes: tuple[int, int, int]) -> Iterator[tuple[Tensor, ...]]:
    """Tokens with padding, lengths, and for a writer what it has written."""
    draw = torch.Generator().manual_seed(1)
    for batch, read, wrote in sizes:
        tokens = torch.randint(1, 50, (batch, read), generator=draw)
        lengths = torch.randint(1, read + 1, (batch,), generator=draw)
        lengths[0] = read
        tokens = tokens * (torch.arange(read) < lengths[:, None])
        target = torch.randint(1, 50, (batch, wrote), generator=draw)
        yield (tokens, lengths, target) if kind == "writer" else (tokens, lengths)


@pytest.mark.parametrize(("kind", "name"), networks(unrolled=False))
def test_an_exported_network_takes_other_batches_and_lengths(kind: str, name: str) -> None:
    model, dynamic = made(kind, name), torch.export.Dim.DYNAMIC
    (example,) = inputs(kind, (3, 7, 5))
    axes = tuple(dict.fromkeys(range(x.ndim), dynamic) for x in example)
    with torch.no_grad():
        program = torch.export.export(model, example, dynamic_shapes=(axes,)).module()
        for given in inputs(kind, (3, 7, 5), (2, 11, 3), (5, 4, 9)):
            assert_close(program(*given), model(*given), atol=1e-5, rtol=1e-4)


@pytest.fixture
def recurrent() -> Iterator[None]:
    """Let torch compile recurrent layers, which it refuses by default."""
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.mark.parametrize(("kind", "name"), networks(unrolled=True))
def test_a_compiled_network_is_one_graph(kind: str, name: str, recurrent: None) -> None:
    torch._dynamo.reset()
    model, graphs = made(kind, name), []

    def backend(module: torch.fx.GraphModule, _: object) -> object:
        graphs.append(module)
        return module.forward

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    sizes = [(3, 7, 5), (2, 7, 5)] if name in UNROLLED else [(3, 7, 5), (2, 11, 3), (5, 4, 9)]
    for given in inputs(kind, *sizes):
        wanted = model(*given).square().sum()
        found = compiled(*given).square().sum()
        assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        slopes = torch.autograd.grad(wanted, [*model.parameters()], allow_unused=True)
        theirs = torch.autograd.grad(found, [*model.parameters()], allow_unused=True)
        for ours, there in zip(slopes, theirs, strict=True):
            assert (ours is None) == (there is None)
            if ours is not None:
                assert_close(there, ours, atol=1e-4, rtol=1e-3)
    assert len(graphs) == 1
