"""torch's layer and masks, and the same numbers from regard's."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import RegardError
from regard.interop.torch_layers import from_torch, mask_from_torch


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kdim", "vdim"), [(None, None), (6, 10), (8, 10)])
@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_give_the_same(bias, kdim, vdim, batch_first):
    theirs = nn.MultiheadAttention(
        8, 2, dropout=0.5, bias=bias, kdim=kdim, vdim=vdim, batch_first=batch_first
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = from_torch(theirs)
    assert not ours.training
    assert ours.attention.dropout == 0.5
    x = torch.randn(3, 5, 8), torch.randn(3, 7, kdim or 8), torch.randn(3, 7, vdim or 8)
    padding = torch.arange(7) >= torch.tensor([7, 4, 1])[:, None]
    future = torch.ones(5, 7).triu(3).bool()
    given = x if batch_first else [part.transpose(0, 1) for part in x]
    for as_added in (False, True):
        masks = [
            torch.zeros(m.shape).masked_fill(m, -torch.inf) if as_added else m
            for m in (padding, future)
        ]
        wanted = theirs(*given, key_padding_mask=masks[0], attn_mask=masks[1])[0]
        wanted = wanted if batch_first else wanted.transpose(0, 1)
        assert_close(ours(*x, mask=mask_from_torch(*masks)), wanted, atol=2e-6, rtol=1e-5)
    assert_close(
        ours(*x), (theirs(*given)[0] if batch_first else theirs(*given)[0].transpose(0, 1))
    )


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
    with pytest.raises(RegardError, match="attn_mask holds numbers other than 0 and -inf"):
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
