"""Taking a value out of a sum."""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.lab.labs.exploration.extraction import (
    ANGLES,
    at_angles,
    extraction,
    mix,
    projector,
    two_bases,
)


def test_the_projector_keeps_one_space_and_loses_the_other() -> None:
    a = torch.tensor([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]], dtype=torch.float64)
    b = torch.tensor([[-4.0, 0.0, 3.0]], dtype=torch.float64)
    matrix = projector(a)
    wanted = torch.tensor([[0.36, 0, 0.48], [0, 1, 0], [0.48, 0, 0.64]], dtype=torch.float64)
    assert_close(matrix, wanted)
    assert_close(matrix @ a.mT, a.mT)
    assert float((matrix @ b.mT).abs().max()) < 1e-15


def test_bases_are_orthogonal_and_of_many_lengths() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = two_bases(generator, 9, 3, 5)
    assert (a.shape, b.shape) == ((3, 9), (5, 9))
    both = torch.cat([a, b])
    inner = both @ both.mT
    lengths = inner.diagonal().sqrt()
    assert 0.1 <= float(lengths.min()) < float(lengths.max()) <= 10
    assert float((inner - inner.diagonal().diag()).abs().max()) < 1e-12
    v = mix(generator, a)
    assert_close(projector(a) @ v, v)


def test_what_an_angle_leaves() -> None:
    leaks, theory, cured = at_angles(torch.Generator().manual_seed(1), 7)
    for degrees, leak, cos in zip(ANGLES, leaks, theory, strict=True):
        assert leak == pytest.approx(math.cos(math.radians(degrees)), abs=1e-12)
        assert cos == pytest.approx(leak, abs=1e-12)
    assert max(cured) < 1e-10


def test_its_claims_hold() -> None:
    part = extraction(16, 40, 0)
    assert [holds for _, holds in part.claims.values()] == [True, True, True]
    assert part.claims["extracted"][0] <= 1e-12
    assert len(part.figures) == 4
