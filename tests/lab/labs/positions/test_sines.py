"""What is said of the sine positions: the rotation, the products."""

import pytest

from regard.lab.labs.positions.sines import sines, turned


def test_the_rotation_misses_by_rounding_alone() -> None:
    for width, shift in ((6, 5), (7, -8), (65, 64), (1, 3)):
        found = turned(width, shift, 8192)
        assert found.most <= 1e-12
        assert len(found.by_place) == 8193 - abs(shift)
        assert (found.alone > 1e-4) == (width % 2 == 1)
    assert turned(7, 1, 8192).most > 0


@pytest.mark.deep
def test_what_is_said_of_the_sines() -> None:
    found = sines(64, [6, 7], [1, -2], 200)
    assert [holds for _, holds in found.claims.values()] == [True, True]
    assert found.claims["rotation"][0] <= 1e-12
    _, rows = found.tables["rotations"]
    assert [row[:2] for row in rows] == [["6", 1], ["6", -2], ["7", 1], ["7", -2]]
    _, holds = sines(7, [7], [1], 100).claims["products"]
    assert not holds, "a sine alone is no function of distance"
