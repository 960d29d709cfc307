"""Gated and differential attention against their formulas."""

import pytest
import torch

from regard.analysis.record import record
from regard.attention import Linformer, MultiHeadAttention, causal, lengths, named_mechanism
from regard.attention.scores import Dot
from regard.core.errors import RegardError
from tests.attention.parts import drawn


def test_an_open_gate_is_multi_head_attention() -> None:
    torch.manual_seed(0)
    layer = named_mechanism("gated")(8, 2, position="rotary").double()
    plain = MultiHeadAttention(8, 2, position="rotary").double()
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "gate" not in k})
    x = drawn(2, 5, 8)
    seen: list[torch.Tensor] = []
    plain.output.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    plain(x, mask=causal())
    gates = torch.sigmoid(x @ layer.gate.weight.T + layer.gate.bias)
    expected = plain.output(gates * seen[0])
    torch.testing.assert_close(layer(x, mask=causal()), expected)
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(100.0)
    torch.testing.assert_close(layer(x, mask=causal()), plain(x, mask=causal()))


def test_differential_attention_is_its_formula() -> None:
    torch.manual_seed(0)
    layer = named_mechanism("differential")(12, 3).double()
    with torch.no_grad():
        layer.gain.copy_(torch.linspace(0.5, 2, 4))
    x, valid = drawn(2, 5, 12), torch.tensor([5, 3])
    found = layer(x, mask=lengths(valid))
    q, k, v = layer.project(x).unflatten(-1, (9, 4)).transpose(1, 2).split(3, 1)
    hidden = torch.arange(5) >= valid[:, None]
    maps = [
        (a @ b.mT / 2**0.5).masked_fill(hidden[:, None, None], -torch.inf).softmax(-1)
        for a, b in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    ]
    a, b, c, d = layer.vectors
    amount = (a @ b).exp() - (c @ d).exp() + 0.8
    heads = (maps[0] - amount * maps[1]) @ v
    heads = 0.2 * layer.gain * heads / (heads.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = layer.output(heads.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(found, expected)


def test_recordings_show_both_maps() -> None:
    layer = named_mechanism("differential")(8, 2)
    with torch.no_grad(), record(layer) as recording:
        layer(torch.zeros(1, 5, 8))
    assert [attended.weights.shape for _, attended in recording.layers] == [(1, 4, 5, 5)]


def test_differential_attention_compresses_by_name() -> None:
    layer = named_mechanism("differential")(12, 3, compress="linformer-4", length=9)
    given = named_mechanism("differential")(12, 3, compress=Linformer(4, 9))
    given.load_state_dict(layer.state_dict())
    x = drawn(2, 5, 12).float()
    torch.testing.assert_close(layer(x), given(x))
    assert layer.attention(*torch.zeros(3, 6, 5, 2)).weights.shape == (6, 5, 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"head_width": 3}, "head_width=3 is odd"), ({"score": Dot()}, "by name or class, not built")],
)
def test_what_differential_attention_cannot_halve(settings: dict[str, object], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        named_mechanism("differential")(8, 2, **settings)
