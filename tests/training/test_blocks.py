"""Blocks that are compiled, or recomputed, train as plain ones."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.attention import Packing, causal, lengths
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs.build import begin, prepare
from regard.lab.runs.config import Config
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings
from regard.training import blocks
from regard.training.blocks import blocks_of, compile_blocks, recompute, restore
from regard.training.checkpoints import weights
from regard.training.clock import follow_the_clock
from regard.training.loop import Training
from regard.training.precision import choose_precision
from tests.attention.parts import shifted
from tests.training.test_device import KINDS

#: Torch's own, as it looks at what it traces.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
compiler = torch.compile


@pytest.fixture
def traced(monkeypatch):
    """Trace graphs, and run what was traced by torch itself."""
    made = []

    def stand_in(function, **asked):
        made.append(asked)
        kept = {key: asked[key] for key in ("dynamic", "recompile_limit")}
        return compiler(function, backend="eager", **kept)

    monkeypatch.setattr(torch, "compile", stand_in)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return made


def small() -> GPT:
    torch.manual_seed(3)
    sizes = {"width": 8, "heads": 2, "layers": 2, "feedforward": 12, "length": 9}
    return shifted(GPT(GPTSettings(dropout=0.0, **sizes), 11)).train()


def trained(model: GPT, *shapes: tuple[int, int]) -> list[Tensor]:
    """Return states and gradients of batches."""
    found = []
    for place, shape in enumerate(shapes):
        torch.manual_seed(place)
        model.zero_grad()
        states = model(torch.randint(11, shape))
        states.square().sum().backward()
        found += [states.detach(), *(p.grad.clone() for p in model.parameters())]
    return found


SIZES = ["width=8", "heads=2", "layers=1", "feedforward=12", "length=16", "examples=200"]
SHAPES = [(3, 9), (3, 9), (2, 7), (4, 5), (3, 9)]


def test_states_and_gradients_are_those_of_plain_blocks(traced):
    model = small()
    plain = trained(model, *SHAPES)
    compile_blocks(blocks_of(model), "cpu", {}, once=True)
    assert_close(trained(model, *SHAPES), plain)
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 2  # of the first shape, and of all others
    assert not counters["graph_break"]


@pytest.mark.deep
def test_rows_without_padding_share_one_graph(traced):
    block = blocks_of(small())[0]

    def states() -> list[Tensor]:
        torch.manual_seed(0)
        found = []
        for sizes in ([3, 1], [4, 4, 2], [5, 2]):
            packing = Packing(torch.tensor(sizes), max(sizes))
            visible = causal() & lengths(torch.tensor(sizes))
            found.append(block(torch.randn(len(packing), 8), visible, packing=packing))
        return found

    plain = states()
    compile_blocks([block], "cpu", {}, once=True)
    assert_close(states(), plain)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


SLOW = ["next", "masked", "spans", "answers", "writer"]


@pytest.mark.parametrize("kind", ["gpt", *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW)])
def test_a_network_trains_to_the_same_weights(kind, traced, tmp_path):
    task, model, given = KINDS[kind]
    found = []
    for how in ("compile=0", "compile=1"):
        run = runs.open_or_start(tmp_path / how, task, model, [*given, how])
        told = list(run.train())
        found.append((weights(run.network), told[-1].loss, told[-1].validation_loss))
        assert not any("forward" in vars(block) for block in blocks_of(run.network))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    (plain, *losses), (compiled, *its_losses) = found
    assert its_losses == pytest.approx(losses, rel=1e-4)
    assert_close(compiled, plain, atol=1e-4, rtol=1e-3)


def test_a_small_batch_that_is_timed_does_not_count_as_the_first(traced):
    run = Config.make("language-modeling", "gpt", ["minutes=3", "compile=1", *SIZES])
    task = prepare(run)
    training = Training(begin(run, task)[0], task, run.training, choose_precision("fp32", "cpu"))
    follow_the_clock(training)
    assert not training.parallel.shapes
    training.update(training.plan()[0])
    ((inputs, *_),) = training.parallel.shapes.values()
    assert inputs[:2] == (training.batch_tokens // 16, 16)


def test_blocks_without_gradients_are_plain(traced):
    model = small()
    compile_blocks(blocks_of(model), "cpu", {}, once=True)
    with torch.no_grad():
        model(torch.zeros(1, 3, dtype=torch.long))
    model.eval()(torch.zeros(1, 3, dtype=torch.long))
    assert "unique_graphs" not in torch._dynamo.utils.counters["stats"]


def test_a_gpu_records_what_a_step_computes_once(traced, monkeypatch):
    monkeypatch.setattr(blocks, "can_compile", lambda device: True)
    graphs = {"triton.cudagraphs": True}
    for device, once, options in (
        ("cuda", True, graphs),
        ("cuda", False, None),
        ("cpu", True, None),
    ):
        traced.clear()
        assert compile_blocks(blocks_of(small())[:1], device, {}, once=once) is (
            options is not None
        )
        assert [(x["dynamic"], x.get("options")) for x in traced] == [
            (False, options),
            (True, None),
        ]


def test_what_is_done_to_blocks_can_be_undone(traced):
    model = small()
    plain = trained(model, *SHAPES[:1])
    compile_blocks(blocks_of(model), "cpu", {}, once=True)
    for block in blocks_of(model):
        recompute(block)
    assert_close(trained(model, *SHAPES[:1]), plain)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for block in blocks_of(model):
        restore(block)
    assert_close(trained(model, *SHAPES[:1]), plain, atol=0, rtol=0)


def test_errors(monkeypatch, tmp_path):
    with pytest.raises(RegardError, match="compiles Transformer blocks, and this network has none"):
        compile_blocks([], "cpu", {}, once=True)
    monkeypatch.setattr(blocks, "can_compile", lambda device: False)
    for device, needed in (("cpu", r"needs a C\+\+ compiler"), ("cuda", "needs Triton")):
        with pytest.raises(RegardError, match=needed):
            compile_blocks(blocks_of(small()), device, {}, once=True)
    run = runs.open_or_start(tmp_path / "r", "classification", "mean", ["compile=1", "steps=1"])
    with pytest.raises(RegardError, match="compile=true"):
        next(run.train())


@pytest.mark.slow  # a minute of compiling
def test_the_compiler_of_torch_trains_to_the_same_weights(tmp_path):
    task, model, given = KINDS["writer"]
    found = []
    for how in ("compile=0", "compile=1"):
        run = runs.open_or_start(tmp_path / how, task, model, [*given, how])
        list(run.train())
        found.append(weights(run.network))
    assert_close(*found, atol=1e-4, rtol=1e-3)
