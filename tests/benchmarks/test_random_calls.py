"""Random calls agree with the plain loop, and a call that does not is told."""

import math

import pytest
import torch

from benchmarks import plain_loop, random_calls
from benchmarks.random_calls import WRAPPED, draw, judge, run
from regard.attention import NORMALIZERS, SCORES
from regard.attention.scores import ScaledDot


def test_random_calls_agree_with_the_plain_loop():
    found = run(range(80), seed=5)
    assert found["wrong"] == {}
    assert found["agree"] + sum(found["refused"].values()) == 80
    assert found["agree"] > 70


def test_calls_are_drawn_by_their_number_alone_and_of_every_part():
    torch.manual_seed(1)
    one, two = draw(3), draw(3)
    assert one.says == two.says
    assert all(torch.equal(a, b) for a, b in zip(one.inputs, two.inputs, strict=True))
    names = [draw(number).names for number in range(400)]
    assert {name for name, _, _ in names} == set(SCORES)
    assert {position for _, position, _ in names} == set(WRAPPED)
    assert {normalize for _, _, normalize in names} == set(NORMALIZERS)


def _plain(call):
    asked = call.names[0] == "scaled-dot" and call.names[2] == "softmax" and call.mask is None
    large = call.inputs[0].dtype == torch.float64 and min(call.inputs[0].shape[-2:]) > 1
    return asked and large and call.inputs[1].shape[-2] > 1


def test_a_wrong_score_is_told(monkeypatch):
    number = next(i for i in range(999) if _plain(draw(i)))
    assert judge(draw(number)) == ""
    monkeypatch.setattr(ScaledDot, "scale", lambda self, width: 1.001 * width**-0.5)
    assert "off" in judge(draw(number))


def test_a_crash_is_counted_as_wrong(monkeypatch):
    def broken(call):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(random_calls, "judge", broken)
    found = run(range(2))
    assert found["agree"] == 0
    assert all("crashes: ZeroDivisionError" in says for says in found["wrong"].values())


def test_the_plain_loop_is_the_formula():
    weights = plain_loop.softmax(torch.tensor([0.0, math.log(3)], dtype=torch.float64))
    assert weights.tolist() == pytest.approx([0.25, 0.75])
    assert plain_loop.sparsemax(torch.tensor([1.0, 0.5, -1.0])).tolist() == [0.75, 0.25, 0.0]
    half = plain_loop.power_of_rest(torch.tensor([1.0, 1.0, -3.0]), torch.tensor(1.5))
    assert half.tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)
    assert [plain_loop.slope(head, 4) for head in range(4)] == [0.25, 0.0625, 1 / 64, 1 / 256]
    assert [plain_loop.bucket(d) for d in (-200, -9, -1, 0, 1, 9, 200)] == [15, 8, 1, 0, 17, 24, 31]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("normalize", ["softmax", "entmax", "sum"])
def test_calls_without_queries_or_keys(shape, normalize):
    from regard.attention import attend, causal

    n, m = shape
    q, k = torch.randn(2, n, 4, requires_grad=True), torch.randn(2, m, 4, requires_grad=True)
    score = "scaled-dot"
    found = attend(q, k, k, score, causal(), normalize=normalize)
    assert found.output.shape == (2, n, 4)
    assert found.weights.shape == (2, n, m)
    assert found.summary().mass.tolist() == [[0.0] * m] * 2
    found.output.sum().backward()
    assert k.grad is None or not k.grad.any()
