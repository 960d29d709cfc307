"""What is said of the sine positions: the rotation, the products."""

from regard.lab.labs.positions.sines import sines, turned


def test_the_rotation_misses_by_rounding_alone() -> None:
    for width, shift in ((6, 5), (7, -8), (65, 64), (1, 3)):
        found = turned(width, shift, 8192)
        assert found.most <= 1e-12
        assert len(found.by_place) == 8193 - abs(shift)
        assert (found.alone > 1e-4) == (width % 2 == 1)
    assert turned(7, 1, 8192).most > 0


def test_what_is_said_of_the_sines() -> None:
    parts = sines(64, [6, 7], [1, -2], 200)
    sections, claims = [part.section for part in parts], parts[0].claims
    assert [found["holds"] for found in claims] == [True, True]
    assert claims[0]["value"] <= 1e-12
    rows = sections[1].tables[0].rows
    assert [row[:2] for row in rows] == [["6", 1], ["6", -2], ["7", 1], ["7", -2]]
    assert not sines(7, [7], [1], 100)[0].claims[1]["holds"], (
        "a sine alone is no function of distance"
    )
