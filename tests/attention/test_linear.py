"""The linear path in chunks against its recurrence, and the recurrence against its formula."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.attention.kernels.linear import Inputs, by_chunks, by_steps
from regard.attention.mechanisms.recurrent import Rows, passed, weights_of


def drawn(n: int, *, decay: str, delta: bool, seed: int = 0, dtype: str = "float64") -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=getattr(torch, dtype))

    q, k, v = normal(2, 3, n, 4), normal(2, 3, n, 4), normal(2, 3, n, 5)
    if delta:
        k = k / k.norm(dim=-1, keepdim=True)
    columns = {"none": 0, "row": 1, "column": 4}[decay]
    log_decay = torch.nn.functional.logsigmoid(3 * normal(2, 3, n, columns)) if columns else None
    rate = normal(2, 3, n, 1).sigmoid() if delta else None
    return Inputs(q, k, v, log_decay, rate)


KINDS = [(decay, delta) for decay in ("none", "row", "column") for delta in (False, True)]
over_kinds = pytest.mark.parametrize(("decay", "delta"), KINDS)


@over_kinds
def test_the_recurrence_is_its_formula(decay: str, delta: bool) -> None:
    """Each output is Σ_j q_iᵀ (Π_{t=j+1..i} A_t (I − r_t k_t k_tᵀ)) k_j r_j v_j."""
    inputs = drawn(6, decay=decay, delta=delta)
    q, k, v = (x[1, 2] for x in inputs[:3])
    log_decay, rate = (None if x is None else x[1, 2] for x in inputs[3:])
    expected = torch.zeros(6, 5, dtype=torch.float64)
    for i in range(6):
        for j in range(i + 1):
            carried = k[j].clone() * (1.0 if rate is None else rate[j])
            for t in range(j + 1, i + 1):
                if log_decay is not None:
                    carried = log_decay[t].exp() * carried
                if rate is not None:
                    carried = carried - rate[t] * k[t] * (k[t] @ carried)
            expected[i] += (q[i] @ carried) * v[j]
    torch.testing.assert_close(by_steps(inputs)[0][1, 2], expected, rtol=1e-12, atol=1e-12)


@over_kinds
@pytest.mark.parametrize("n", [1, 7, 64, 131, 1100])
def test_chunks_are_the_recurrence(decay: str, delta: bool, n: int) -> None:
    inputs = drawn(n, decay=decay, delta=delta)
    state = torch.ones(2, 3, 4, 5, dtype=torch.float64)
    expected = by_steps(inputs, state)
    for chunk in (None, 1, 5):
        torch.testing.assert_close(
            by_chunks(inputs, state, chunk=chunk), expected, rtol=1e-9, atol=1e-9
        )


@over_kinds
def test_gradients_of_chunks_are_those_of_the_recurrence(decay: str, delta: bool) -> None:
    inputs = drawn(37, decay=decay, delta=delta)
    upstream = torch.randn(2, 3, 37, 5, generator=torch.Generator().manual_seed(1)).double()

    def gradients(compute: Callable[[Inputs], tuple[Tensor, Tensor]]) -> list[Tensor]:
        leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
        output, state = compute(Inputs(*leaves))
        ((output * upstream).sum() + state.square().sum()).backward()
        return [leaf.grad for leaf in leaves if leaf is not None and leaf.grad is not None]

    ours, exact = gradients(by_chunks), gradients(by_steps)
    assert len(ours) == len(exact) == 3 + (decay != "none") + delta
    torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-9)


@over_kinds
def test_a_state_continues_the_pass(decay: str, delta: bool) -> None:
    inputs = drawn(50, decay=decay, delta=delta)
    whole, last = by_chunks(inputs)
    parts, state = [], None
    for start, stop in ((0, 20), (20, 21), (21, 21), (21, 50)):
        part = Inputs(*(None if x is None else x[..., start:stop, :] for x in inputs))
        output, state = by_chunks(part, state)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, -2), whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-9)


@over_kinds
def test_the_weights_give_the_outputs(decay: str, delta: bool) -> None:
    inputs = drawn(20, decay=decay, delta=delta)
    rows = Rows(inputs, inputs.queries, inputs.keys)
    weights = weights_of(passed, rows, "causal")
    torch.testing.assert_close(weights @ inputs.values, by_steps(inputs)[0], rtol=1e-9, atol=1e-9)
    assert not weights.triu(1).any()


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("decay", ["row", "column"])
def test_a_strong_decay_stays_finite_in_float32(decay: str, delta: bool) -> None:
    inputs = drawn(2000, decay=decay, delta=delta, dtype="float32")
    assert inputs.log_decay is not None
    strong = (100 * inputs.log_decay).requires_grad_()
    output, _ = by_chunks(inputs._replace(log_decay=strong))
    (gradient,) = torch.autograd.grad(output.sum(), strong)
    assert bool(gradient.isfinite().all())
    torch.testing.assert_close(output, by_steps(inputs._replace(log_decay=strong))[0])
