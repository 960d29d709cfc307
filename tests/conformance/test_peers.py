"""Layers of other packages: what they keep and what they break, as measured."""

import importlib.util

import pytest
from torch import nn

from regard.conformance import LAYERS, conform, find

INSTALLED = [name for name in LAYERS if importlib.util.find_spec(name.split(".")[0].split(":")[0])]
FOUND = {
    "torch.nn.MultiheadAttention": {
        "weights of nothing",
        "weights before dropout",
    },
    "regard.MultiHeadAttention": set(),
}


def failures(thing):
    return {v.law for v in conform(thing) if v.outcome == "fails"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", INSTALLED)
def test_by_name(name):
    found = failures(find(name))
    assert "made" not in found
    assert not found & {"padding 1e3", "future", "cache", "gradients", "batches", "state", "twice"}
    if name in FOUND:
        assert found == FOUND[name]


def test_a_module_of_torch_is_known_by_its_class():
    assert failures(nn.MultiheadAttention(8, 2)) == FOUND["torch.nn.MultiheadAttention"]


def test_a_peer_that_is_not_here_says_how_to_get_it():
    from regard.conformance.peers import peer
    from regard.core.errors import RegardError

    with pytest.raises(RegardError, match="pip install no-such-package"):
        peer("no_such_package")
