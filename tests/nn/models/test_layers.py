"""Settings of single layers: position=rotary/none, pattern=window-2*2/none."""

import pytest
import torch

from regard.analysis.record import record
from regard.attention import LayerMasks, input_positions
from regard.core.errors import RegardError
from regard.lab.runs.config import Config
from tests.nn.models.tiny import make

TOKENS, SIZES = torch.randint(1, 9, (2, 7), generator=torch.Generator().manual_seed(0)), [7, 5]
SMALL = {"width": 8, "heads": 2, "layers": 3, "length": 9}


def maps_of(model: torch.nn.Module) -> list[torch.Tensor]:
    with torch.no_grad(), record(model) as recording:
        model.eval()(TOKENS, torch.tensor(SIZES))
    return [attended.weights for _, attended in recording.layers][:3]


def test_each_layer_has_its_pattern() -> None:
    first, second, third = maps_of(make("transformer", **SMALL, pattern="window-1*2/none"))
    near = (torch.arange(7)[:, None] - torch.arange(7)).abs() <= 1
    assert not first[0][:, ~near].any()
    assert not second[0][:, ~near].any()
    assert (third[0] > 0).all()
    assert [mask is None for mask in LayerMasks("none/window-2").of(None, 3)] == [
        True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["transformer", "gpt", "bert", "t5"])
def test_each_layer_has_its_position(name: str) -> None:
    model = make(name, **SMALL, position="rotary/none")
    kinds = [
        type(module.score).__name__
        for key, module in model.named_modules()
        if hasattr(module, "score") and hasattr(module, "normalize") and "decoder" not in key
    ]
    assert kinds[:3] == ["Rotary", kinds[1], "Rotary"]
    assert kinds[1] != "Rotary"


def test_positions_of_the_input_are_of_all_layers() -> None:
    with pytest.raises(RegardError, match="learned positions are added to the input"):
        input_positions("learned/none", 8, length=9)
    assert input_positions("rotary/none", 8) is None


def test_compress_looks_at_every_layer() -> None:
    with pytest.raises(RegardError, match="no distance for position=none/alibi"):
        Config.make("classification", "transformer", ["position=none/alibi", "compress=linformer"])


def test_a_writer_reads_with_a_cache_as_without() -> None:
    from regard.nn.models.gpt import GPT
    from regard.nn.models.settings import GPTSettings

    torch.manual_seed(0)
    settings = GPTSettings(**SMALL, feedforward=8, position="rotary/none", pattern="window-2/none")
    model = GPT(settings, 11).eval()
    tokens = torch.randint(1, 11, (2, 6))
    whole = model.to_logits(model(tokens))
    writing = model.start(tokens[:, :3], torch.tensor([3, 3]))
    steps = [writing.step(tokens[:, 2:3])]
    steps += [
        writing.step(tokens[:, i : i + 1], torch.zeros(2, 1, dtype=torch.long)) for i in (3, 4)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole[:, 2:5], atol=1e-5, rtol=1e-5)
