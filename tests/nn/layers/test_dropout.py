import pytest
import torch
from torch.testing import assert_close

from regard.nn.layers.dropout import drop


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_share_scale_and_mean(share: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 503, dtype=dtype)
    dropped = drop(x, share, training=True)
    assert dropped.dtype == dtype
    assert (dropped == 0).to(dtype).mean().item() == pytest.approx(share, abs=0.004)
    assert_close(dropped[dropped != 0].unique(), torch.tensor([1 / (1 - share)], dtype=dtype),
                 atol=0, rtol=2e-4)  # fmt: skip
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)


def test_each_of_the_four_entries_of_a_draw_has_the_same_share() -> None:
    torch.manual_seed(1)
    lost = (drop(torch.ones(40_000, 4), 0.3, training=True) == 0).float()
    assert_close(lost.mean(0), torch.full((4,), 0.3), atol=0.01, rtol=0)
    assert_close(torch.corrcoef(lost.T), torch.eye(4), atol=0.02, rtol=0)


@pytest.mark.parametrize("size", [(), (1,), (2, 3), (7,), (0, 3)])
def test_any_number_of_entries(size: tuple[int, ...]) -> None:
    assert drop(torch.ones(size), 0.5, training=True).shape == size


def test_gradient_goes_where_the_value_went() -> None:
    torch.manual_seed(2)
    x = torch.randn(5, 7, requires_grad=True)
    dropped = drop(x, 0.4, training=True)
    dropped.sum().backward()
    assert_close(x.grad * x, dropped)


def test_no_dropout_is_the_same_tensor() -> None:
    x = torch.randn(5, 7)
    assert drop(x, 0.4, training=False) is x
    assert drop(x, 0.0, training=True) is x


def test_a_graph_has_no_break_and_the_same_share() -> None:
    torch.manual_seed(3)
    dropping = torch.compile(
        lambda x: drop(x, 0.25, training=True), backend="eager", fullgraph=True
    )
    dropped = dropping(torch.ones(200, 200))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert dropped.max().item() == pytest.approx(1 / 0.75)
