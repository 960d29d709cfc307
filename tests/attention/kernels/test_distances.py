"""Functions of the distance in C++ beside torch's operations, forward and backward."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention import attend, causal, make_score, use
from regard.attention.kernels.choose import Constants, using
from regard.attention.kernels.compiled import can_compile
from regard.attention.kernels.distances import CHUNK, clipped, diagonals, hidden, picked, weigh
from regard.core.errors import RegardError

pytestmark = pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
ALWAYS, NEVER = (Constants(native_hidden=x) for x in (1, 0))
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def network(dtype):
    """A hidden layer with units that never begin: without slope, or with a zero of either sign."""
    layers = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 3)).to(dtype)
    first = layers[0]
    with torch.no_grad():
        first.weight[:4, 0] = torch.tensor([0.0, 0.0, -0.0, 0.0])
        first.bias[:4] = torch.tensor([0.5, -0.5, 0.5, 0.0])
        first.bias[4] = 0
    return layers


@DTYPES
@pytest.mark.parametrize("shape", [(1,), (5, 7), (2, 3, CHUNK // 5)], ids=str)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_hidden_layer_in_linear_pieces(dtype, shape, ordered):
    layers, x = network(dtype), 2 * torch.rand(shape, dtype=dtype) - 0.5
    x = (x.sort(-1).values if ordered else x).requires_grad_()
    of = [x, layers[0].weight, layers[0].bias, layers[2].weight, layers[2].bias]
    with using(ALWAYS):
        ours = hidden(*of)
    theirs = layers(x[..., None]).movedim(-1, 0)
    tolerance = TOLERANCE[dtype]
    assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    upstream = torch.randn_like(ours)
    for one, two in zip(
        torch.autograd.grad(ours, of, upstream),
        torch.autograd.grad(theirs, of, upstream),
        strict=True,
    ):
        assert_close(one, two, atol=tolerance * max(1, float(two.abs().max())), rtol=tolerance)


def test_a_unit_is_off_at_its_bound():
    one, two = torch.tensor([[1.0], [-1.0]], requires_grad=True), torch.ones(1, 2)
    zero = torch.zeros(2, requires_grad=True)
    x = torch.zeros(3, requires_grad=True)
    with using(ALWAYS):
        y = hidden(x, one, zero, two, torch.zeros(1))
    assert all((g == 0).all() for g in torch.autograd.grad(y.sum(), (x, one, zero)))


def test_a_hidden_layer_under_autocast():
    layers, x = network(torch.float32), torch.rand(4, 5, requires_grad=True)
    of = x, layers[0].weight, layers[0].bias, layers[2].weight, layers[2].bias
    found = []
    for low in (True, False):
        with using(ALWAYS), torch.autocast("cpu", torch.bfloat16, enabled=low):
            y = hidden(*of)
        found.append([y, *torch.autograd.grad(y.sum(), of)])
    for ours, theirs in zip(*found, strict=True):
        assert ours.equal(theirs)


def test_a_weight_that_is_not_a_number_makes_all_results_unknown():
    layers, x = network(torch.float32), torch.rand(4, 5)
    with torch.no_grad(), using(ALWAYS):
        layers[0].weight[7] = torch.nan
        found = hidden(x, layers[0].weight, layers[0].bias, layers[2].weight, layers[2].bias)
    assert found.isnan().all()


def test_the_second_derivative_in_pieces_is_refused():
    layers, x = network(torch.float64), torch.rand(4, dtype=torch.float64, requires_grad=True)
    weights = layers[0].weight, layers[0].bias, layers[2].weight, layers[2].bias
    with using(ALWAYS), pytest.raises(RegardError, match=r"fire in C\+\+ is differentiable once"):
        torch.autograd.grad(hidden(x, *weights).sum(), x, create_graph=True)


@DTYPES
@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize("how", [ALWAYS, NEVER])
@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 5), (130, 70)])
def test_sums_of_diagonals(dtype, n, m, how, rising):
    x = torch.randn(2, 3, n, m, dtype=dtype)
    values = torch.randn(2, 3, n + m - 1, dtype=dtype, requires_grad=True)
    table = torch.arange(m) - torch.arange(n)[:, None] + n - 1
    table = table.flip(0) if rising else table
    with using(how):
        rows = diagonals(values, n, rising)
        (found,) = torch.autograd.grad(rows, values, x)
    assert rows.equal(values[..., table])
    summed = torch.zeros_like(values).index_add(-1, table.flatten(), x.flatten(-2))
    assert_close(found, summed.detach())


def test_diagonals_under_vmap():
    values = torch.randn(2, 9)
    for rising in (False, True):
        found = torch.func.vmap(lambda x, rising=rising: diagonals(x, 4, rising))(values)
        assert found.equal(diagonals(values, 4, rising))


def test_sums_of_diagonals_have_a_second_derivative():
    values = torch.randn(6, dtype=torch.float64, requires_grad=True)
    with using(ALWAYS):
        assert torch.autograd.gradgradcheck(lambda x: diagonals(x, 3).square(), values)


@DTYPES
@pytest.mark.parametrize("side", [-2, -1])
@pytest.mark.parametrize(("n", "m", "first"), [(1, 1, 0), (9, 7, -3), (7, 30, 4), (5, 6, 90),
                                               (5, 6, -90)])  # fmt: skip
def test_products_of_clipped_distances(dtype, side, n, m, first):
    positions = torch.arange(n) + 100, torch.arange(m) + 100 + first
    products = torch.randn(2, 3, n if side == -2 else m, 9, dtype=dtype, requires_grad=True)
    apart = positions[1] - positions[0][:, None]
    expected = picked(products, apart, side)
    with using(ALWAYS):
        found = clipped(products, positions, side)
    assert found.grad_fn.name() != expected.grad_fn.name()
    assert found.equal(expected)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(x, products, upstream)[0] for x in (found, expected))
    assert_close(ours, theirs)


def test_positions_that_are_not_in_steps_are_looked_up():
    products, apart = torch.randn(4, 5), torch.tensor([[0, 2], [-1, 1], [-2, 0], [-9, -7]])
    positions = torch.tensor([0, 1, 2, 9]), torch.tensor([0, 2])
    with using(ALWAYS):
        found = clipped(products, positions, -2)
    assert found.equal(products.gather(-1, apart.clamp(-2, 2) + 2))


@DTYPES
@pytest.mark.parametrize("table", [(3, 5, 9), (2, 1, 5, 9), (1, 9)], ids=str)
def test_weights_and_gradients_of_scores(dtype, table):
    products, slopes = torch.randn(2, 2, 3, 5, 9, dtype=dtype)
    bias, mean = torch.randn(table, dtype=dtype), torch.randn(2, 3, 5, 1, dtype=dtype)
    bias[..., 4] = -torch.inf
    logs = (products + bias).logsumexp(-1)
    found = []
    for constants in (ALWAYS, NEVER):
        of = products.clone(), slopes.clone()
        with using(constants):
            weigh(bias, logs, mean, *of)
        found.append(of)
    weights = (products + bias).softmax(-1)
    tolerance = TOLERANCE[dtype]
    for ours in found:
        assert_close(ours[0], weights, atol=tolerance, rtol=tolerance)
        assert_close(ours[1], (slopes - mean) * weights, atol=tolerance, rtol=tolerance)
    assert (found[0][0][..., 4] == 0).all()


@pytest.mark.parametrize("position", ["fire", "t5-bias", "kerple", "relative-keys"])
def test_attention_beside_the_exact_kernel(position):
    torch.manual_seed(3)
    score = make_score("scaled-dot", position, 8, 8, heads=2)
    sides = [torch.randn(2, 2, 150, 8, requires_grad=True) for _ in range(3)]
    of, found = [*sides, *score.parameters()], []
    for kernel in ("fused", "exact"):
        with use(kernel), using(Constants(native_hidden=1, exact_pairs=1)):
            output = attend(*sides, score, mask=causal()).output
            found.append([output, *torch.autograd.grad(output.square().sum(), of)])
    assert_close(*found, atol=2e-4, rtol=1e-3)
