"""Every part of regard's own keeps every law."""

import json
import subprocess
import sys
from datetime import date

import pytest
import torch

from regard.attention import (
    MECHANISMS,
    NORMALIZERS,
    POSITIONS,
    SCORES,
    MultiHeadAttention,
    Score,
    causal,
    dense,
    make_score,
)
from regard.conformance import LAWS, MaskSubject, ScoreSubject, conform
from regard.conformance.own import masks, own
from regard.conformance.run import find

TODAY = date.today().toordinal()  # turns which subjects are checked in long texts
WRAPPERS = [name for name, kind in POSITIONS.items() if kind and issubclass(kind, Score)]


def broken(thing):
    """What fails, law by law."""
    return {v.law: v.message for v in conform(thing) if v.outcome == "fails"}


@pytest.mark.parametrize("pairs", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_part(pairs):
    # In a process of its own, where no call is checked for shapes: five times as fast.
    quick = [] if pairs else ["--quick", "--seed", str(TODAY)]  # each day other long texts
    words = [sys.executable, "-m", "regard.conformance", "--json", *quick]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)
    assert found["failures"] == []
    assert done.returncode == 0
    assert {kind: row["subjects"] for kind, row in found["kinds"].items()} == {
        "score": sum(isinstance(subject, ScoreSubject) for subject in own(pairs=pairs)),
        "normalizer": len(NORMALIZERS),
        "mask": len(masks()),
        "layer": 1,
    }
    for row, kind in zip(found["kinds"].values(), LAWS, strict=False):
        assert row["holds"] > 0.8 * row["subjects"] * 10, kind


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism(name):
    long = (list(MECHANISMS).index(name) + TODAY) % 4 == 0
    verdicts = {verdict.law: verdict for verdict in conform(find(name), long=long)}
    assert {law: v.message for law, v in verdicts.items() if v.outcome == "fails"} == {}
    for law in ("padding NaN", "sees nothing", "future", "cache"):
        assert verdicts[law].outcome == "holds", law


def test_every_table_is_whole():
    names = {subject.name for subject in own()}
    assert names >= {*SCORES, *NORMALIZERS, *masks()}
    products = [name for name, kind in SCORES.items() if kind.acceleration.inner_product]
    plain = ["dot", "scaled-dot"]
    fits = {"pope": plain, "xpos": plain, "alibi-signed": products}
    pairs = {(score, name) for name in WRAPPERS for score in fits.get(name, SCORES)}
    assert names >= {f"{position} around {score}" for score, position in pairs}


@pytest.mark.parametrize("position", WRAPPERS)
def test_positions_that_say_they_are_relative_are(position):
    def make(query_width, key_width, **how):
        made = make_score("scaled-dot", position, query_width, key_width, **how)
        made.relative = True
        return made

    subject = ScoreSubject.of(make, position)
    verdict = LAWS["score"]["positions"].judge("positions", subject)
    assert verdict.outcome == "holds"
    assert verdict.numbers["difference"] < 1e-10


def test_scores_that_are_made_already():
    for score in (SCORES["general"](6, 4, heads=4), SCORES["additive"](5)):
        assert broken(score) == {}


def test_normalizers_that_are_made_already():
    assert broken(NORMALIZERS["top-k"](k=3)) == {}
    assert broken(NORMALIZERS["sink"](3)) == {}


def test_masks_of_other_sizes():
    assert broken(MaskSubject("of one text", causal(), 7, 7, 1)) == {}
    small = dense(torch.ones(8, 8, dtype=torch.bool))
    assert "does not fit 9 queries" in broken(MaskSubject("too small", small, 9, 9))["answers"]


def test_layers():
    for layer in (
        MultiHeadAttention(12, 4, score="additive", position="t5-bias", key_value_heads=2),
        MultiHeadAttention(8, 2, normalize="sparsemax"),
    ):
        assert broken(layer) == {}
