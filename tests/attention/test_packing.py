import torch
from torch.testing import assert_close

from regard.attention import MultiHeadAttention, Packing, causal
from regard.attention import lengths as up_to

SIZES = torch.tensor([3, 0, 5, 1])


def table(width: int, time: int = 6) -> torch.Tensor:
    return torch.randn(4, time, width, dtype=torch.float64, requires_grad=True)


def test_there_and_back():
    x, packing = table(2), Packing(SIZES, 6)
    rows = packing.pack(x)
    assert len(packing) == len(rows) == 9
    assert packing.positions.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0]
    assert torch.equal(rows[3:8], x[2, :5])
    real = torch.arange(6) < SIZES[:, None]
    back = packing.unpack(rows)
    assert torch.equal(back[real], x[real])
    slope = torch.randn_like(back).masked_fill(~real[..., None], 0)
    assert torch.equal(torch.autograd.grad(back, x, slope)[0], slope)
    (of_rows,) = torch.autograd.grad(packing.pack(x), x, torch.ones(9, 2, dtype=x.dtype))
    assert torch.equal(of_rows, real[..., None].expand(-1, -1, 2).double())


def test_no_row_is_real():
    packing = Packing(torch.tensor([0, 0]), 3)
    rows = packing.pack(torch.ones(2, 3, 4))
    assert rows.shape == (0, 4)
    assert torch.equal(packing.unpack(rows), torch.zeros(2, 3, 4))


def test_attention_of_rows_is_attention_of_the_table():
    """To itself and to others, gradients of inputs and of every weight too."""
    layer, x, memory = MultiHeadAttention(6, 2).double(), table(6), table(6, 4)
    sizes = torch.tensor([2, 4, 0, 3])
    packing, others = Packing(SIZES, 6), Packing(sizes, 4)
    of = [x, memory, *layer.parameters()]
    slope = torch.randn(9, 6, dtype=x.dtype)
    for mask, keys, packed, how in (
        (causal(), None, None, None),
        (up_to(SIZES), None, None, None),
        (up_to(sizes), memory, others.pack(memory), others),
    ):
        plain = layer(x, keys, mask=mask)[torch.arange(6) < SIZES[:, None]]
        rows = layer(
            packing.pack(x),
            packed,
            mask=mask,
            packing=(packing, how) if keys is not None else packing,
        )
        assert_close(rows, plain)
        assert_close(
            torch.autograd.grad(rows, of, slope, allow_unused=True),
            torch.autograd.grad(plain, of, slope, allow_unused=True),
        )
