"""Things that show themselves in a notebook: a sandboxed frame, and text elsewhere."""

import base64
import html
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.attention import Attended, Mask, attend, causal, lengths
from regard.attention.masks import dense, documents, lengths_per_query
from regard.attention.scores import ScaledDot
from regard.attention.sines import Sinusoidal
from regard.errors import RegardError
from regard.reports.markup import escape
from regard.runs import Run
from regard.studies.arms import Arm
from regard.studies.result import ArmResult, Comparison
from tests.reports.hostile import HOSTILE


def framed(shown: str) -> str:
    """The page inside a frame that may run scripts and reach nothing."""
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)"[^>]*></iframe>', shown)
    assert found, shown[:200]
    assert "allow-same-origin" not in found[2]
    return html.unescape(found[1])


def attended() -> Attended:
    x = torch.randn(2, 3, 5, 4)
    return attend(x, x, x, ScaledDot(), causal())


def test_attended_shows_its_own_weights() -> None:
    seen = attended()
    inside = framed(seen._repr_html_())
    stored = re.search(r'<script type="application/json" id="stored">(.*?)</script>', inside)
    assert stored
    (layer,) = json.loads(stored[1])["looks"][0]["layers"]
    assert (layer["heads"], layer["rows"], layer["columns"]) == (3, 5, 5)
    data = zlib.decompress(base64.b64decode(layer["packed"][2]))
    scales = np.frombuffer(data, "<f4", 5)
    steps = np.frombuffer(data, np.uint8, offset=20).reshape(5, 5)
    wanted = seen.weights[0, 2].numpy()
    np.testing.assert_allclose(scales[:, None] * steps / 255, wanted, atol=1 / 500)


@pytest.mark.parametrize("mask", [causal(), lengths([3, 5]), causal() & lengths(4)])
def test_masks_draw_themselves(mask: Mask) -> None:
    inside = framed(mask._repr_html_())
    assert "Who may look at whom" in inside
    assert 'class="heat"' in inside


FIVE = dense(torch.eye(5, dtype=torch.bool))
OWN_SIZE = [
    (FIVE, 5),
    (FIVE & causal(), 5),
    (documents(torch.tensor([0, 0, 1])) | lengths(1), 3),
    (~lengths_per_query([[1, 2, 3, 4], [1, 1, 1, 1]]), 4),
]


@pytest.mark.parametrize(("mask", "size"), OWN_SIZE)
def test_masks_by_place_are_drawn_at_their_own_size(mask: Mask, size: int) -> None:
    assert f"Who may look at whom, all {size} positions" in framed(mask._repr_html_())


UNDRAWN = [
    (dense(torch.ones(5, 7, dtype=torch.bool)), "a dense mask of 5 × 7 does not fit"),
    (documents(torch.zeros(30, dtype=torch.long)) & causal(), "documents tells of 30 queries"),
    (FIVE | documents(torch.tensor([0, 0, 1])), "a dense mask of 5 × 5 does not fit"),
    (lengths(torch.zeros(0, dtype=torch.long)), "a mask of a batch without rows"),
]


@pytest.mark.parametrize(("mask", "why"), UNDRAWN)
def test_a_mask_that_fits_no_square_says_why(mask: Mask, why: str) -> None:
    assert f"<p>Not drawn: {why}" in framed(mask._repr_html_())


@pytest.mark.parametrize(
    ("batch", "queries", "keys"), [((0, 3), 5, 5), ((2, 3), 0, 7), ((2, 3), 5, 0), ((), 0, 0)]
)
def test_attended_with_nothing_in_it_says_so(
    batch: tuple[int, ...], queries: int, keys: int
) -> None:
    x, y = torch.randn(*batch, queries, 4), torch.randn(*batch, keys, 4)
    shape = " × ".join(map(str, (*batch, queries, keys if queries else 0)))
    inside = framed(attend(x, y, y, ScaledDot())._repr_html_())
    assert f"<p>Weights of {shape}: there are none.</p>" in inside


def test_a_large_attended_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 8, 256, 4)
    seen = attend(x, x, x, ScaledDot(), causal())
    monkeypatch.setattr(seen, "_weigh", lambda: pytest.fail("all weights were computed"))
    inside = framed(seen._repr_html_())
    assert "<p>Weights of 40 × 8 × 256 × 256: too many to compute for a look; summary()" in inside


def test_attended_whose_inputs_have_changed_says_so() -> None:
    x = torch.randn(2, 3, 5, 4)
    seen = attend(x, x, x, ScaledDot(), causal())
    x.add_(1)
    assert "not shown: inputs or parameters have changed" in framed(seen._repr_html_())


def test_positions_draw_themselves() -> None:
    assert "Sine positions of width 8" in framed(Sinusoidal(8)._repr_html_())


def test_a_run_shows_itself(trained: Path) -> None:
    run = regard.load(trained)
    assert isinstance(run, Run)
    inside = framed(run._repr_html_())
    assert "transformer on sentiment" in inside
    assert run.evaluate().line() in inside


def test_a_look_is_seen_and_saved(trained: Path, tmp_path: Path) -> None:
    seen = regard.look(trained, "not a bad film")
    assert repr(seen).startswith("<Seen run: ")
    assert "not a bad film" in framed(seen._repr_html_())
    assert seen.save(tmp_path / "look.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_comparison_shows_its_table_whatever_its_arms_are_called(tmp_path: Path) -> None:
    rows = tuple(
        ArmResult(Arm(name, "mean"), 3, 0.8, 0.7, 0.9, 1.0, 100.0, 12, None) for name in HOSTILE
    )
    compared = Comparison(HOSTILE[3], HOSTILE[6], rows, HOSTILE[0], (), folder=tmp_path)
    inside = framed(compared._repr_html_())
    body = inside.split("<tbody>")[1].split("</tbody>")[0]
    cells = re.findall(
        r"<tr><td>(.*?)</td><td>80.0</td><td>70.0</td><td>90.0</td></tr>", body, re.S
    )
    assert [html.unescape(cell) for cell in cells] == [html.unescape(escape(t)) for t in HOSTILE]
    assert not re.search(r"<(img|iframe|svg|input|base|form|object)", inside.split("<script>")[0])
    (tmp_path / "report.html").write_text("<!doctype html><p>the report itself</p>")
    assert "the report itself" in framed(compared._repr_html_())


def test_what_has_no_picture_says_so() -> None:
    with pytest.raises(RegardError, match="a list has no picture"):
        regard.html([])
