"""Things that show themselves in a notebook: a sandboxed frame, and text elsewhere."""

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.attention import (
    Attended,
    KeyValueCache,
    Mask,
    MultiHeadAttention,
    attend,
    causal,
    lengths,
)
from regard.attention.masks import dense, documents, lengths_per_query
from regard.attention.positions.sines import Sinusoidal
from regard.attention.scores import ScaledDot
from regard.core.errors import RegardError
from regard.lab.reports.markup import escape, shorten
from regard.lab.reports.page import static
from regard.lab.runs import Run
from regard.lab.studies.arms import Arm
from regard.lab.studies.result import ArmResult, Comparison
from regard.lab.tasks.classification.evaluation import Prediction
from tests.lab.reports.hostile import HOSTILE
from tests.lab.web.conftest import until


def framed(shown: str) -> str:
    """The page inside a frame that may run scripts and reach nothing."""
    heard = f"<script>{static('frame.js')}</script>"
    assert shown.endswith(heard)
    frame = shown.removesuffix(heard)
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)"[^>]*></iframe>', frame)
    assert found, shown[:200]
    assert "allow-same-origin" not in found[2]
    return html.unescape(found[1])


def looks(shown: str) -> list[dict[str, Any]]:
    """What a frame stores for the explorer."""
    stored = re.search(r'<script type="application/json" id="stored">(.*?)</script>', framed(shown))
    assert stored
    found: list[dict[str, Any]] = json.loads(stored[1])["looks"]
    return found


def everything() -> Mask:
    """A mask that hides nothing."""
    return Mask(lambda rows, columns: (rows[..., :, None] >= 0) & (columns[..., None, :] >= 0))


def attended(heads: int | None = 3) -> Attended:
    x = torch.randn(2, 3, 5, 4)
    return attend(x, x, x, ScaledDot(), causal(), heads=heads)


def test_attended_shows_its_own_weights() -> None:
    seen = attended()
    assert repr(seen) == "Attended(output (2, 3, 5, 4), weights (2, 3, 5, 5), 3 heads)"
    shown = looks(seen._repr_html_())
    assert [look["text"] for look in shown] == [
        f"row {i} of 2: 5 queries, 5 keys" for i in (1, 2)
    ]  # fmt: skip
    (layer,) = shown[0]["layers"]
    assert (layer["heads"], layer["rows"], layer["columns"]) == (3, 5, 5)
    data = zlib.decompress(base64.b64decode(layer["packed"][2]))
    scales = np.frombuffer(data, "<f4", 5)
    steps = np.frombuffer(data, np.uint8, offset=20).reshape(5, 5)
    wanted = seen.weights[0, 2].numpy()
    np.testing.assert_allclose(scales[:, None] * steps / 255, wanted, atol=1 / 500)


def test_an_axis_of_the_batch_is_no_head() -> None:
    seen = attended(heads=None)
    assert repr(seen) == "Attended(output (2, 3, 5, 4), weights (2, 3, 5, 5))"
    shown = looks(seen._repr_html_())
    assert [look["text"][:12] for look in shown] == [f"row {i} of 6: "[:12] for i in range(1, 7)]
    assert [layer["heads"] for look in shown for layer in look["layers"]] == [1] * 6


def test_of_a_long_batch_the_first_rows_are_shown() -> None:
    x = torch.randn(30, 4, 2)
    inside = attend(x, x, x, ScaledDot())._repr_html_()
    assert "<p>Rows 1 to 12 of 30 rows in the batch.</p>" in framed(inside)
    assert len(looks(inside)) == 12


@pytest.mark.parametrize("mask", [causal(), ~causal(), causal() & lengths(4), everything()])
def test_a_mask_is_drawn_in_two_colours_that_a_key_names(mask: Mask) -> None:
    inside = framed(mask._repr_html_())
    assert "Keys that each query may attend to" in inside
    assert f"<title>{html.escape(repr(mask))}</title>" in inside
    path = re.search(r'<path d="([^"]*)" class="heat"/>', inside)
    drawn = re.findall(r"M(\d+) (\d+)h(\d+)v1", path[1]) if path else []
    places = torch.arange(24)
    allowed = mask.allows(places, places).expand(24, 24)
    assert sum(int(wide) for _, _, wide in drawn) == int(allowed.sum())
    assert all(allowed[int(y), int(x) : int(x) + int(wide)].all() for x, y, wide in drawn)
    assert [words for words in ("allowed", "masked") if f">{words}<" in inside] == [
        "allowed", "masked",
    ]  # fmt: skip
    assert "fill-opacity" not in inside.partition("<svg")[2].partition("</svg>")[0]


def test_a_mask_of_a_batch_is_drawn_row_by_row() -> None:
    inside = framed(lengths(range(1, 7))._repr_html_())
    assert re.findall(r">(Row \d of 6)</text>", inside) == [f"Row {i} of 6" for i in range(1, 5)]
    assert "Rows 1 to 4 of 6 rows in the batch." in inside


FIVE = dense(torch.eye(5, dtype=torch.bool))
OWN_SIZE = [
    (FIVE, 5),
    (FIVE & causal(), 5),
    (documents(torch.tensor([0, 0, 1])) | lengths(1), 3),
    (~lengths_per_query([[1, 2, 3, 4], [1, 1, 1, 1]]), 4),
]


@pytest.mark.parametrize(("mask", "size"), OWN_SIZE)
def test_masks_by_place_are_drawn_at_their_own_size(mask: Mask, size: int) -> None:
    assert f"Keys that each query may attend to, all {size} positions" in framed(mask._repr_html_())


UNDRAWN = [
    (dense(torch.ones(5, 7, dtype=torch.bool)), "a dense mask of 5 × 7 does not fit"),
    (
        documents(torch.zeros(30, dtype=torch.long)) & causal(),
        "mask &#39;documents&#39; is for 30 queries",
    ),
    (FIVE | documents(torch.tensor([0, 0, 1])), "a dense mask of 5 × 5 does not fit"),
    (lengths(torch.zeros(0, dtype=torch.long)), "the mask has an empty batch"),
]


@pytest.mark.parametrize(("mask", "why"), UNDRAWN)
def test_a_mask_that_fits_no_square_says_why(mask: Mask, why: str) -> None:
    assert f"<p>The mask cannot be drawn: {why}" in framed(mask._repr_html_())


@pytest.mark.parametrize(
    ("batch", "queries", "keys"), [((0, 3), 5, 5), ((2, 3), 0, 7), ((2, 3), 5, 0), ((), 0, 0)]
)
def test_attended_with_nothing_in_it_says_so(
    batch: tuple[int, ...], queries: int, keys: int
) -> None:
    x, y = torch.randn(*batch, queries, 4), torch.randn(*batch, keys, 4)
    shape = " × ".join(map(str, (*batch, queries, keys)))
    inside = framed(attend(x, y, y, ScaledDot())._repr_html_())
    assert f"<p>Weights of shape {shape}: empty.</p>" in inside


def test_a_large_attended_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 8, 256, 4)
    seen = attend(x, x, x, ScaledDot(), causal())
    monkeypatch.setattr(seen, "_weigh", lambda: pytest.fail("all weights were computed"))
    inside = framed(seen._repr_html_())
    assert "<p>Weights of shape 40 × 8 × 256 × 256: too many to show; use summary()" in inside


def test_attended_whose_inputs_have_changed_says_so() -> None:
    x = torch.randn(2, 3, 5, 4)
    seen = attend(x, x, x, ScaledDot(), causal())
    x.add_(1)
    assert "cannot be shown: inputs or parameters have changed" in framed(seen._repr_html_())


def test_positions_draw_themselves() -> None:
    assert "Sinusoidal positions of width 8" in framed(Sinusoidal(8)._repr_html_())


def test_a_run_shows_itself(trained: Path) -> None:
    run = regard.load(trained)
    assert isinstance(run, Run)
    inside = framed(run._repr_html_())
    assert "transformer on classification" in inside
    assert run.evaluate().line() in inside


def test_a_look_is_seen_and_saved(trained: Path, tmp_path: Path) -> None:
    seen = regard.look(trained, "not a bad film")
    assert repr(seen).startswith("<AttentionView run: ")
    assert "not a bad film" in framed(seen._repr_html_())
    assert seen.save(tmp_path / "look.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_look_at_any_module(tmp_path: Path) -> None:
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
    module.train()
    seen = regard.look(module, (x, x, x), tokens=["not", "a", "bad", "film"])
    assert repr(seen) == "<AttentionView MultiheadAttention: 2 heads on 'not a bad film'>"
    assert seen.look["axes"] == [["not", "a", "bad", "film"]]
    ((heads, _),) = [(layer["packed"], 0) for layer in seen.look["layers"]]
    data = zlib.decompress(base64.b64decode(heads[1]))
    scales = np.frombuffer(data[:16], "<f4")
    shown = np.frombuffer(data[16:], np.uint8).reshape(4, 4) / 255 * scales[:, None]
    expected = module(x, x, x, average_attn_weights=False)[1][0, 1].detach().numpy()
    np.testing.assert_allclose(shown, expected, atol=1 / 500)
    assert module.training
    assert seen.save(tmp_path / "look.html").read_text("utf-8").startswith("<!doctype html>")
    named = regard.look(module, {"query": x, "key": x, "value": x})
    assert named.look["axes"] == [["0", "1", "2", "3"]]


def test_a_look_at_an_encoder_and_decoder() -> None:
    module = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    texts = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    seen = regard.look(module, texts, tokens=["a", "b", "c"], asking=["x", "y", "z"])
    kinds = [
        (layer["path"], layer["kind"], layer["keys"], layer["queries"])
        for layer in seen.look["layers"]
    ]
    assert seen.look["axes"] == [["a", "b", "c"], ["x", "y", "z"]]
    assert kinds == [
        ("encoder.layers.0.self_attn", "self", 0, 0),
        ("decoder.layers.0.self_attn", "self", 1, 1),
        ("decoder.layers.0.multihead_attn", "cross", 0, 1),
    ]


def test_a_look_at_a_module_with_bad_input() -> None:
    with pytest.raises(RegardError, match=r"a text needs tokenizer="):
        regard.look(nn.Linear(2, 2), "a text")
    with pytest.raises(RegardError, match="no attention was observed in Linear"):
        regard.look(nn.Linear(2, 2), torch.zeros(1, 2))
    q = torch.zeros(1, 1, 5000, 1)
    module = type(
        "Long", (nn.Module,), {"forward": lambda self, x: F.scaled_dot_product_attention(x, x, x)}
    )()
    with pytest.raises(
        RegardError, match="at most 20,000,000 attention weights here, not 25,000,000"
    ):
        regard.look(module, q)


def test_what_a_run_gives_says_what_it_is(trained: Path) -> None:
    run = regard.load(trained)
    assert repr(run) == f"<Run {trained}: transformer on classification (reviews), complete>"
    said = run.predict("not a bad film")
    first, second = said.top()
    assert repr(said) == (
        f"<Prediction {first[0]!r} {first[1]:.1%}, {second[0]!r} {second[1]:.1%}; unknown: bad>"
    )
    assert f">{first[1]:.1%}</td>" in framed(said._repr_html_())
    judged = run.evaluate()
    assert repr(judged) == f"<Evaluation {judged.line()}>"
    inside = framed(judged._repr_html_())
    assert all(f">{html.escape(' '.join(says.split()))}<" in re.sub(r" +", " ", inside)
               for _, says in judged.words())  # fmt: skip
    layers = run.attention("not a bad film")
    assert repr(layers[0]) == (
        "<LayerAttention blocks.0.attention.work.attention: 2 heads, 4 × 4 weights>"
    )
    assert repr(layers[-1]) == "<LayerAttention pool.attention: 1 head, 1 × 4 weights>"
    assert len(looks(regard.html(layers))[0]["layers"]) == len(layers)
    assert len(looks(layers[1]._repr_html_())[0]["layers"]) == 1


def test_a_prediction_of_many_labels_tells_the_likeliest() -> None:
    said = Prediction("b", {"a": 0.2, "b": 0.4, "c": 0.1, "d": 0.05, "e": 0.15, "f": 0.1})
    assert repr(said) == "<Prediction 'b' 40.0%, 'a' 20.0%, 'e' 15.0%, 'c' 10.0%, 2 more>"


def test_parts_say_their_sizes() -> None:
    x = torch.randn(2, 5, 8)
    assert (
        repr(attend(x, x, x).summary(3)) == "<Summary: top 3 of 5 keys for 5 queries, batch (2,)>"
    )
    assert repr(KeyValueCache()) == "<KeyValueCache of 0 keys>"
    said = repr(MultiHeadAttention(8, 4, key_value_heads=2, score="general"))
    assert "width=8, heads=4, key_value_heads=2" in said
    assert "(score): General(query_width=2, key_width=2, heads=4)" in said


def test_a_comparison_says_its_table(tmp_path: Path) -> None:
    row = ArmResult(Arm("mean", "mean"), 3, 0.25, 0.2, 0.3, 1.0, 100.0, 12, None)
    compared = Comparison("classification", "log loss", (row,), "mean", (), folder=tmp_path)
    head, *table = repr(compared).splitlines()
    assert head == "<Comparison on classification, 1 arm>"
    assert table[1].startswith("mean  0.250 (0.200 to 0.300)")
    inside = framed(compared._repr_html_())
    assert ">log loss, nats<" in inside
    assert ">0.250<" in inside


def fits(page: Any, place: Any, frame: Any) -> None:
    """Until a frame, in sight, is as high as its page."""
    place.scroll_into_view_if_needed()
    high = "document.documentElement.offsetHeight"
    until(page, lambda: 0 <= place.bounding_box()["height"] - frame.evaluate(high) <= 4)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900])
def test_a_frame_is_as_high_as_what_it_shows(browser: Any, tmp_path: Path, width: int) -> None:
    mask = lengths(range(1, 4))
    cells = [attended()._repr_html_(), mask._repr_html_(), Sinusoidal(8)._repr_html_()]
    path = tmp_path / "cells.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{''.join(cells)}", encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 600})
    page.goto(path.as_uri())
    for i, frame in enumerate(page.main_frame.child_frames):
        fits(page, page.locator("iframe").nth(i), frame)
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown, first = page.main_frame.child_frames[0], page.locator("iframe").first
    before = first.bounding_box()["height"]
    shown.locator(".figures > figure").first.evaluate("node => node.remove()")
    fits(page, first, shown)
    assert first.bounding_box()["height"] < before - 100
    page.close()


def test_a_comparison_shows_its_table_whatever_its_arms_are_called(tmp_path: Path) -> None:
    rows = tuple(
        ArmResult(Arm(name, "mean"), 3, 0.8, 0.7, 0.9, 1.0, 100.0, 12, None) for name in HOSTILE
    )
    compared = Comparison(HOSTILE[3], HOSTILE[6], rows, HOSTILE[0], (), folder=tmp_path)
    inside = framed(compared._repr_html_())
    body = inside.split("<tbody>")[1].split("</tbody>")[0]
    cells = re.findall(r"<tr><td[^>]*>(.*?)</td>(?:<td[^>]*>[789]0.0</td>){3}</tr>", body, re.S)
    assert [html.unescape(cell) for cell in cells] == [
        html.unescape(escape(shorten(t, 120))) for t in HOSTILE
    ]
    assert not re.search(r"<(img|iframe|svg|input|base|form|object)", inside.split("<script>")[0])
    (tmp_path / "report.html").write_text("<!doctype html><p>the report itself</p>")
    assert "the report itself" in framed(compared._repr_html_())


def test_what_has_no_picture_says_so() -> None:
    with pytest.raises(RegardError, match="list has no HTML view"):
        regard.html([])


class Lazy(nn.Module):
    """Attention whose projections are made by the first call, as in d2l.ai."""

    def __init__(self) -> None:
        super().__init__()
        self.ask, self.key = nn.LazyLinear(4), nn.LazyLinear(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.ask(x) @ self.key(x).mT).softmax(-1) @ x


def test_a_lazy_module_is_looked_at_and_names_must_fit() -> None:
    seen = regard.look(Lazy(), torch.randn(1, 3, 6), tokens=["a", "b", "c"])
    assert seen.look["text"] == "a b c"
    with pytest.raises(RegardError, match="2 names for 3 tokens"):
        regard.look(Lazy(), torch.randn(1, 3, 6), tokens=["a", "b"])
