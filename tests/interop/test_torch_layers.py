"""torch's layer and masks, and the same numbers from regard's."""

import inspect

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.analysis.record import record
from regard.core.errors import RegardError
from regard.interop.torch_layers import MultiheadAttention, from_torch, mask_from_torch


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kdim", "vdim"), [(None, None), (6, 10), (8, 10)])
@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_give_the_same(bias, kdim, vdim, batch_first):
    theirs, _ = both(dropout=0.5, bias=bias, kdim=kdim, vdim=vdim, batch_first=batch_first)
    ours = from_torch(theirs.eval())
    assert not ours.training
    assert ours.attention.dropout == 0.5
    x = torch.randn(3, 5, 8), torch.randn(3, 7, kdim or 8), torch.randn(3, 7, vdim or 8)
    padding = torch.arange(7) >= torch.tensor([7, 4, 1])[:, None]
    future = torch.ones(5, 7).triu(3).bool()

    def shaped(part):
        return part if batch_first else part.transpose(0, 1)

    given = [shaped(part) for part in x]
    for as_added in (False, True):
        masks = [
            torch.zeros(m.shape).masked_fill(m, -torch.inf) if as_added else m
            for m in (padding, future)
        ]
        wanted = theirs(*given, key_padding_mask=masks[0], attn_mask=masks[1])[0]
        mine = shaped(ours(*x[:2], mask_from_torch(*masks), values=x[2]))
        assert_close(mine, wanted, atol=2e-6, rtol=1e-5)
    assert_close(shaped(ours(*x[:2], values=x[2])), theirs(*given)[0])


def test_weights_are_copies_in_the_dtype_of_the_layer():
    theirs = nn.MultiheadAttention(8, 2, dtype=torch.float64)
    ours = from_torch(theirs)
    assert torch.equal(ours.project.weight, theirs.in_proj_weight)
    before = ours.project.weight.clone()
    with torch.no_grad():
        theirs.in_proj_weight.zero_()
    assert torch.equal(ours.project.weight, before)
    assert ours.training


def test_no_mask_is_none_and_what_is_no_mask_is_refused():
    assert mask_from_torch() is None
    for added, says in (
        (nn.MultiheadAttention(8, 2, add_bias_kv=True), "add_bias_kv"),
        (nn.MultiheadAttention(8, 2, add_zero_attn=True), "add_zero_attn"),
    ):
        with pytest.raises(RegardError, match=says):
            from_torch(added)
    for heads in (None, 3):
        with pytest.raises(RegardError, match=rf"not \(4, 3, 3\) with heads={heads}"):
            mask_from_torch(attn_mask=torch.zeros(4, 3, 3), heads=heads)
    with pytest.raises(RegardError, match="attn_mask has numbers other than 0 and -inf"):
        mask_from_torch(attn_mask=torch.ones(3, 3))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kdim", [None, 6])
def test_what_is_frozen_stays_so(kdim: int | None, bias: bool) -> None:
    theirs = nn.MultiheadAttention(8, 2, kdim=kdim, vdim=kdim, bias=bias)
    theirs.out_proj.weight.requires_grad_(False)
    if theirs.in_proj_bias is not None:
        theirs.in_proj_bias.requires_grad_(False)
    ours = from_torch(theirs)
    frozen = {name for name, x in ours.named_parameters() if not x.requires_grad}
    projected = {n for n, _ in ours.named_parameters() if n.startswith("project") and "bias" in n}
    assert frozen == {"output.weight", *projected}
    assert bool(projected) == bias


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_a_mask_of_each_head(padded: bool, added: bool) -> None:
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, hide = torch.randn(3, 5, 8), torch.rand(6, 5, 5) < 0.4
    hide[:, :, 0] = False  # torch answers NaN to who sees nothing
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    given = torch.zeros(6, 5, 5).masked_fill(hide, -torch.inf) if added else hide
    padding = padding if padded else None
    wanted = theirs(x, x, x, key_padding_mask=padding, attn_mask=hide)[0]
    found = from_torch(theirs)(x, mask=mask_from_torch(padding, given, heads=2))
    assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def both(**given: object) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    theirs = nn.MultiheadAttention(8, 2, **given)  # type: ignore[arg-type]
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    return theirs, MultiheadAttention.like(theirs)


def masks(kind: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    wide = {"dtype": torch.float64}
    padding = torch.arange(7) >= torch.tensor([7, 4, 2])[:, None]
    future = torch.ones(5, 7).triu(3).bool()
    bias = torch.randn(3 * 2, 5, 7, **wide)
    return {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "future": {"attn_mask": future},
        "bools": {"key_padding_mask": padding, "attn_mask": future},
        "heads": {"attn_mask": torch.rand(6, 5, 7).gt(0.7) & (torch.arange(7) > 0)},
        "floats": {
            "key_padding_mask": torch.zeros(3, 7, **wide).masked_fill(padding, -torch.inf),
            "attn_mask": torch.zeros(5, 7, **wide).masked_fill(future, -torch.inf),
        },
        "biases": {
            "key_padding_mask": torch.randn(3, 7, **wide).masked_fill(padding, -torch.inf),
            "attn_mask": bias,
        },
        "bias": {"attn_mask": bias[0].masked_fill(future, -torch.inf)},
    }[kind]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("average", [True, False, None])
@pytest.mark.parametrize(
    "kind", ["none", "padding", "future", "bools", "heads", "floats", "biases", "bias"]
)
def test_the_drop_in_gives_what_torch_gives(kind: str, average: bool | None, batch_first: bool):
    """Output, weights and all gradients; ``average`` None: no weights are asked for."""
    torch.manual_seed(0)
    wide = torch.float64
    theirs, ours = both(batch_first=batch_first, kdim=6, vdim=10, dtype=wide)
    x = [torch.randn(3, *shape, dtype=wide) for shape in ((5, 8), (7, 6), (7, 10))]
    given = {"need_weights": average is not None, "average_attn_weights": bool(average)}
    answers = []
    for layer in (theirs, ours):
        inputs = [part.clone().requires_grad_() for part in x]
        shaped = inputs if batch_first else [part.transpose(0, 1) for part in inputs]
        output, weights = layer(*shaped, **masks(kind), **given)
        (output.square().sum() + (0 if weights is None else weights.square().sum())).backward()
        grads = {name: p.grad for name, p in layer.named_parameters()}
        answers.append((output, weights, [part.grad for part in inputs], grads))
    (output, weights, inputs, grads), found = answers
    assert_close(found[0], output)
    assert (found[1] is None) == (weights is None) == (average is None)
    if weights is not None:
        assert weights.shape == ((3, 5, 7) if average else (3, 2, 5, 7))
        assert_close(found[1], weights)
    assert_close(found[2], inputs)
    assert_close(found[3], grads)


def test_the_signatures_are_torchs() -> None:
    ours, theirs = (
        [(p.name, p.default, p.kind) for p in inspect.signature(call).parameters.values()]
        for call in (MultiheadAttention.forward, nn.MultiheadAttention.forward)
    )
    assert ours == theirs
    made, known = (
        {p.name: p.default for p in inspect.signature(call).parameters.values()}
        for call in (MultiheadAttention.__init__, nn.MultiheadAttention.__init__)
    )
    assert list(made)[: len(known)] == list(known)
    assert {name: made[name] for name in known} == known


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_unbatched_and_state_both_ways(bias: bool) -> None:
    theirs, ours = both(bias=bias, batch_first=True)
    x, padding = torch.randn(5, 8), torch.arange(5) > 3
    wanted, weights = theirs(x, x, x, key_padding_mask=padding)
    found, here = ours(x, x, x, key_padding_mask=padding)
    assert_close(found, wanted)
    assert_close(here, weights)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    fresh = MultiheadAttention(8, 2, bias=bias, batch_first=True)
    fresh.load_state_dict(theirs.state_dict())
    assert_close(fresh(x, x, x)[0], theirs(x, x, x)[0])
    theirs.load_state_dict(fresh.state_dict())
    torch.manual_seed(3)
    drawn = nn.MultiheadAttention(8, 2).in_proj_weight
    torch.manual_seed(3)
    assert torch.equal(MultiheadAttention(8, 2).in_proj_weight, drawn)


@pytest.mark.parametrize("norm_first", [True, False])
def test_encoder_and_decoder_of_torch_keep_their_numbers(norm_first: bool) -> None:
    torch.manual_seed(0)
    given = {"dim_feedforward": 16, "batch_first": True, "norm_first": norm_first}
    encoder, decoder = (
        nn.TransformerEncoderLayer(8, 2, **given),
        nn.TransformerDecoderLayer(8, 2, **given),
    )
    encoder.eval(), decoder.eval()
    x, y = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    future = nn.Transformer.generate_square_subsequent_mask(4)

    def answers() -> tuple[torch.Tensor, torch.Tensor]:
        memory = encoder(x, src_key_padding_mask=padding)
        return memory[~padding], decoder(
            y, memory, future, memory_key_padding_mask=padding, tgt_is_causal=True
        )

    wanted = answers()
    state = {**encoder.state_dict()}
    encoder.self_attn = MultiheadAttention.like(encoder.self_attn)
    decoder.self_attn = MultiheadAttention.like(decoder.self_attn)
    decoder.multihead_attn = MultiheadAttention.like(decoder.multihead_attn)
    encoder.load_state_dict(state)
    assert_close(answers(), wanted, atol=1e-5, rtol=1e-4)
    with torch.no_grad(), record(decoder) as recording:
        answers()
    assert [name for name, _ in recording.layers] == [
        "self_attn.attention",
        "multihead_attn.attention",
    ]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("later", [False, True])
def test_the_fused_path_of_torch_does_not_go_round_it(later: bool) -> None:
    """``later``: the layers are replaced in an encoder that has chosen nested tensors already."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    plain = nn.TransformerEncoder(layer, 2).eval()
    if later:
        ours = nn.TransformerEncoder(layer, 2)
        for part in ours.layers:
            part.self_attn = MultiheadAttention.like(part.self_attn)
    else:
        layer.self_attn = MultiheadAttention.like(layer.self_attn)
        ours = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    ours.eval()
    x, padding = torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([5, 3, 2])[:, None]
    with torch.no_grad():
        wanted = plain(x, src_key_padding_mask=padding)
        found = ours(x, src_key_padding_mask=padding)
        assert_close(found[~padding], wanted[~padding], atol=1e-5, rtol=1e-4)
        for part in ours.layers:
            part.self_attn = MultiheadAttention.like(part.self_attn, normalize="sparsemax").eval()
        other = ours(x, src_key_padding_mask=padding)
    assert not torch.allclose(other[~padding], wanted[~padding], atol=1e-3)


@pytest.mark.parametrize("score", ["additive", "general", "cosine"])
def test_a_score_with_parameters_is_trained_and_saved_with_the_layer(score: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64)
    layer.self_attn = MultiheadAttention.like(layer.self_attn, score=score, normalize="entmax15")
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    encoder(torch.randn(2, 5, 8, dtype=torch.float64)).sum().backward()
    own = [name for name in encoder.state_dict() if ".attention.score." in name]
    assert bool(own) == (score != "cosine")
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.dtype == torch.float64


def test_dropout_and_mode_follow_torch() -> None:
    ours = MultiheadAttention(8, 2, dropout=0.9, batch_first=True)
    x = torch.randn(2, 5, 8)
    assert not torch.allclose(ours(x, x, x)[0], ours(x, x, x)[0])
    assert_close(ours.eval()(x, x, x)[0], ours(x, x, x)[0])
    ours.train().dropout = 0.0
    assert_close(ours(x, x, x)[0], ours(x, x, x)[0])


def test_what_nobody_may_see_is_zero_and_never_spreads() -> None:
    ours = MultiheadAttention(8, 2, bias=False, batch_first=True)
    x = torch.randn(2, 3, 8)
    x[1, 2] = torch.nan
    padding = torch.tensor([[True] * 3, [False, False, True]])
    output, _ = ours(x[:, :2], x, x, key_padding_mask=padding)
    assert torch.equal(output[0], torch.zeros(2, 8))
    assert output[1].isfinite().all()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"add_bias_kv": True}, "add_bias_kv=True is not supported, since it adds a key"),
        ({"add_zero_attn": True}, "add_zero_attn=True is not supported, since it adds a key"),
        ({"num_heads": 3}, "embed_dim=8 is not divisible by num_heads=3"),
        ({"score": "aditive"}, "did you mean additive"),
        ({"normalize": "softmx"}, "did you mean softmax"),
    ],
)
def test_a_layer_that_cannot_be_made(made: dict[str, object], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        MultiheadAttention(**{"embed_dim": 8, "num_heads": 2, **made})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"is_causal": True}, "give attn_mask="),
        ({"key_padding_mask": torch.zeros(3, 5).bool()}, r"\(2, 5\), not \(3, 5\)"),
        ({"attn_mask": torch.zeros(3, 5, 5)}, r"\(5, 5\) or \(4, 5, 5\), not \(3, 5, 5\)"),
        ({"attn_mask": torch.zeros(5, 5).int()}, "bool or float, not torch.int32"),
    ],
)
def test_masks_that_do_not_fit(given: dict[str, object], says: str) -> None:
    x = torch.randn(2, 5, 8)
    with pytest.raises(RegardError, match=says):
        MultiheadAttention(8, 2, batch_first=True)(x, x, x, **given)
    nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)])
    with pytest.raises(RegardError, match="nested tensors are only supported"):
        MultiheadAttention(8, 2, batch_first=True)(nested, x, x)
