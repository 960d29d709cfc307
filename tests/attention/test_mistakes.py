"""Wrong tensors given to `attend`, layers and blocks: one line with both sizes, not torch's."""

import pytest
import torch
from torch import nn

import regard
from regard.attention import MECHANISMS, SCORES, make_score
from regard.core.errors import RegardError
from regard.core.names import is_part
from regard.nn.layers.blocks import Plain, Residual
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.pooling import AttentionPool, QueryFromMeanPool
from regard.nn.layers.recurrent import Bidirectional
from regard.nn.layers.sublayers import EncoderBlock, Sublayer

X, WRONG, LENGTHS = torch.randn(2, 5, 8), torch.randn(2, 5, 6), torch.tensor([5, 3])
WIDTHS = "have width 6, but this layer takes width 8"


@pytest.mark.parametrize("name", [name for name in MECHANISMS if not is_part(name)])
def test_a_mechanism_names_both_widths(name: str) -> None:
    layer = MECHANISMS[name](8, 2, length=8)
    with pytest.raises(RegardError, match=f"queries {WIDTHS}"):
        layer(WRONG)
    with pytest.raises(RegardError, match=f"keys {WIDTHS}|memory|keys of its own"):
        layer(X, WRONG)
    with pytest.raises(RegardError, match="embed ids first"):
        layer(torch.ones(2, 5, 8, dtype=torch.long))
    with pytest.raises(RegardError, match=r"must be \(\*batch, rows, width\), not \(8,\)"):
        layer(X[0, 0])


def test_layers_and_blocks_name_both_widths() -> None:
    attention = regard.MultiHeadAttention(8, 2)
    score = make_score("dot", query_width=8, key_width=8)
    for layer, more in (
        (FeedForward(8, 9), ()),
        (Sublayer(8, FeedForward(8, 9), 0.0, "pre"), ()),
        (Sublayer(8, FeedForward(8, 9), 0.0, "post"), ()),
        (EncoderBlock(8, attention, FeedForward(8, 9), 0.0, "post"), (None,)),
        (Plain(8, attention), (None,)),
        (Residual(8, attention), (None,)),
        (QueryFromMeanPool(8, score), (LENGTHS,)),
        (AttentionPool(8, score), (LENGTHS,)),
        (Bidirectional(8, 3), (LENGTHS,)),
    ):
        assert isinstance(layer, nn.Module)
        layer.eval()
        layer(X, *more)
        with pytest.raises(RegardError, match=r"width.* 6.*8|width.* 8 and (8, not 8 and )?6"):
            layer(WRONG, *more)


def test_attend_names_what_is_wrong_with_its_tensors() -> None:
    learned = make_score("additive", query_width=8, key_width=8)
    for arguments, message in (
        ((X, WRONG, X, "dot"), "same width, not 8 and 6"),
        ((X, WRONG, X, learned), "widths 8 and 8, not 8 and 6"),
        ((X.double(), X, X, "dot"), "one dtype, not torch.float64, torch.float32, torch.float32"),
        ((X.long(), X.long(), X.long(), "dot"), "floating-point numbers, not torch.int64"),
        ((X, X, X.bool(), "dot"), "floating-point numbers, not torch.bool"),
    ):
        with pytest.raises(RegardError, match=message):
            regard.attend(*arguments)
    with pytest.raises(RegardError, match="score must be a Score, as in Attention"):
        regard.Attention("dot")  # type: ignore[arg-type]


def test_what_a_notebook_shows_is_readable() -> None:
    assert {"attend", "load", "train", "__version__"} < set(dir(regard))
    assert all(name in regard.__all__ or name.startswith("__") for name in dir(regard))
    lines = repr(SCORES).splitlines()
    assert len(lines) == len(SCORES) + 1
    assert lines[1].split() == ["dot", "score(q,", "k)", "=", "q·k.", *lines[1].split()[5:]]
    plan = regard.explain(X, X, X, "dot")
    assert repr(plan) == str(plan)
    assert repr(plan).startswith("exact: ") or "torch's kernel" in repr(plan)


def replica(module):
    """What nn.DataParallel computes with on each GPU: tensors in place of parameters."""
    made = module._replicate_for_data_parallel()
    made._former_parameters = {}
    for name, part in module._modules.items():
        made._modules[name] = part if part is None else replica(part)
    for name, x in module._parameters.items():
        if x is not None:
            made._former_parameters[name] = x * 1
            setattr(made, name, made._former_parameters[name])
    return made


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"position": "t5-bias"}, "RelativeBias"), ({"normalize": "entmax"}, "Entmax")],
)
def test_copies_of_data_parallel_are_told_what_to_use(settings, name):
    layer, x = regard.MultiHeadAttention(24, 2, **settings), torch.randn(2, 140, 24)
    with (
        regard.use("tiled"),
        pytest.raises(RegardError, match=f"a copy of {name} by nn.DataParallel has"),
    ):
        replica(layer)(x)
