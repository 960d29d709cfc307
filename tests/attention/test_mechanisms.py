"""What every mechanism does for a model, and mechanisms of a user's own."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.analysis.record import record
from regard.attention import MECHANISMS, KeyValueCache, Packing, causal, lengths, named_mechanism
from regard.attention.arguments import must_be_tensors
from regard.attention.mechanisms.forgetting import ForgettingAttention
from regard.attention.mechanisms.recurrent import StateAttention
from regard.core.errors import RegardError
from regard.core.trusted import trust

OWN = """
from regard.attention import Mechanism, MultiHeadAttention

class Own(MultiHeadAttention):
    name = "own"

class NoMechanism:
    pass
"""


@pytest.fixture(params=MECHANISMS)
def mechanism(request):
    kind = named_mechanism(request.param)
    products = issubclass(kind, StateAttention | ForgettingAttention)
    position = "rotary" if products else "t5-bias"
    made = kind(12, 3, position=position).double().eval()
    assert made.name == request.param
    return made


def table(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_it_looks_at_itself_or_at_a_memory(mechanism):
    x, memory = table(2, 5, 12), table(2, 7, 12)
    assert_close(mechanism(x), mechanism(x, x))
    found = mechanism(x, memory, lengths([7, 3]))
    assert found.shape == x.shape
    assert_close(found[1], mechanism(x[1], memory[1, :3], positions=(torch.arange(2, 7), None)))
    assert not torch.allclose(found[1], mechanism(x[1], memory[1]))


@pytest.mark.parametrize("name", MECHANISMS)
def test_without_biases_and_output_projection(name):
    """Blocks of classifiers have no output projection, T5 has no biases."""
    made = named_mechanism(name)(12, 3, bias=False, output_projection=False).double()
    assert made.output is None
    assert not [
        key for key, _ in made.named_parameters() if key.startswith("project") and "bias" in key
    ]
    assert made(table(2, 5, 12)).shape == (2, 5, 12)
    assert named_mechanism(name)(12, 3, bias=False).output.bias is None


@pytest.mark.parametrize("name", MECHANISMS)
def test_shapes_on_the_meta_device(name):
    output = named_mechanism(name)(24, 2).to("meta")(torch.empty(2, 9, 24, device="meta"))
    assert (output.is_meta, output.shape) == (True, (2, 9, 24))


def test_positions_are_of_the_queries_and_of_the_keys(mechanism):
    x, at = table(2, 5, 12), torch.tensor([9, 0, 3, 40, 4])
    found = mechanism(x, positions=at)
    assert_close(found, mechanism(x, positions=(at, at)))
    assert_close(found, mechanism(x, x, positions=(at, at)))
    apart = mechanism(x, x, positions=at)  # the memory's are 0, 1, 2, ...
    assert_close(apart, mechanism(x, x, positions=(at, torch.arange(5))))
    assert not torch.allclose(found, apart)
    assert not torch.allclose(found, mechanism(x))


def test_step_by_step_with_a_cache(mechanism):
    x, cache = table(2, 5, 12), KeyValueCache()
    steps = [mechanism(part, mask=causal(), cache=cache) for part in x.split(2, 1)]
    assert_close(torch.cat(steps, 1), mechanism(x, mask=causal()))


def test_padding_on_the_left_changes_nothing_at_once_and_step_by_step(mechanism):
    x = table(2, 5, 12)
    wide = torch.cat([table(2, 2, 12), x], 1)
    wide[1, 2:4] = torch.inf  # two words of padding in the first text, four in the second
    at = torch.stack([torch.arange(7) - 2, torch.arange(7) - 4])
    mask = causal() & lengths([5, 3])
    found = mechanism(wide, mask=mask, positions=at)
    assert_close(found[0, 2:], mechanism(x[:1], mask=causal())[0])
    assert_close(found[1, 4:], mechanism(wide[1:, 4:], mask=causal())[0])
    cache, clean = KeyValueCache(), wide.masked_fill(wide.isinf(), 3.0)
    steps = [
        mechanism(clean[:, i : i + 1], mask=mask, positions=at[:, i : i + 1], cache=cache)
        for i in range(7)
    ]
    assert_close(torch.cat(steps, 1)[0, 2:], found[0, 2:])
    assert_close(torch.cat(steps, 1)[1, 4:], found[1, 4:])


def test_rows_without_padding(mechanism):
    x, memory, sizes, others = table(2, 5, 12), table(2, 7, 12), [5, 2], [3, 7]
    rows, read = Packing(torch.tensor(sizes), 5), Packing(torch.tensor(others), 7)
    found = mechanism(rows.pack(x), mask=lengths(sizes), packing=rows)
    assert_close(found, rows.pack(mechanism(x, mask=lengths(sizes))))
    found = mechanism(rows.pack(x), read.pack(memory), lengths(others), packing=(rows, read))
    assert_close(found, rows.pack(mechanism(x, memory, lengths(others))))


def test_each_map_is_recorded(mechanism):
    x = table(2, 5, 12)
    with record(mechanism) as recording:
        mechanism(x, mask=causal())
    assert recording.layers
    for _, attended in recording.layers:
        assert attended.weights.shape[-2:] == (5, 5)
        assert attended.weights.triu(1).abs().max() == 0


def test_names(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    trust(tmp_path / "own.py")
    assert named_mechanism(f"{tmp_path}/own.py:Own")(8, 2).name == "own"
    with pytest.raises(RegardError, match="NoMechanism"):
        named_mechanism(f"{tmp_path}/own.py:NoMechanism")
    with pytest.raises(RegardError, match="did you mean multi-head"):
        named_mechanism("multihead")
    with pytest.raises(RegardError, match="memory must be a tensor, not a list"):
        must_be_tensors(memory=[1.0])
