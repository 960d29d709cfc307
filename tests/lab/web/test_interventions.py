"""Interventions over the API: the answers are those of the library."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.analysis.interventions import (
    Head,
    keep_states,
    layers_with_heads,
    patched,
    without_heads,
)
from tests.lab.web.conftest import Ask

TEXT = "not a bad film"


def test_heads_off_over_the_api_are_off(client: Ask, folder: Path) -> None:
    run = regard.load(folder / "labels")
    parts = client("POST", "/parts", {"run": "labels"}).json()
    layer = parts["heads"][0]["layer"]
    assert [x["name"] for x in parts["heads"]] == ["layer 1 attention", "layer 2 attention"]
    assert [x["name"] for x in parts["blocks"]] == ["layer 1", "layer 2"]
    heads = [
        {"layer": x["layer"], "head": head + 1}
        for x in parts["heads"]
        for head in range(x["heads"])
    ]
    got = client("POST", "/without", {"run": "labels", "text": TEXT, "heads": heads}).json()
    assert got["before"] == run.predict(TEXT).json()
    with without_heads(run.network, [Head(x["layer"], x["head"]) for x in heads]):
        assert got["after"] == run.predict(TEXT).json()
    assert got["after"] != got["before"] == run.predict(TEXT).json()
    bad = {"run": "labels", "text": TEXT, "heads": [{"layer": layer, "head": 9}]}
    refused = client("POST", "/without", bad)
    assert (refused.status_code, "heads 1 to 2" in refused.json()["error"]) == (400, True)


@pytest.mark.parametrize("run", ["labels", "writes", "goes"])
def test_patching_over_the_api(client: Ask, run: str) -> None:
    parts = client("POST", "/parts", {"run": run}).json()
    if not parts["blocks"]:  # a recurrent network
        for place in ({"block": "x"}, {"head": {"layer": "x", "head": 1}}):
            refused = client("POST", "/patch", {"run": run, "text": "A", "other": "B", **place})
            said = refused.json()["error"]
            assert (refused.status_code, "such as transformer" in said) == (400, True), said
        return
    block, layer = parts["blocks"][0]["block"], parts["heads"][0]["layer"]
    asked = {"run": run, "text": "a good film", "other": "a good film"}
    for place in ({"block": block}, {"head": {"layer": layer, "head": 2}}):
        got = client("POST", "/patch", {**asked, **place}).json()
        assert got["before"] == got["after"]
    got = client("POST", "/patch", {**asked, "block": block, "other": "a grey plot"}).json()
    if run == "labels":
        assert got["after"]["probabilities"] == pytest.approx(got["other"]["probabilities"])
    else:
        assert "written" in got["after"]
    far = client("POST", "/patch", {**asked, "block": block, "positions": [19]})
    assert (far.status_code, "not in both" in far.json()["error"]) == (400, True)
    for place in ({}, {"block": block, "head": {"layer": layer, "head": 1}}):
        refused = client("POST", "/patch", {**asked, **place})
        assert refused.json()["error"].startswith("give either block or head")
    for place, message in (
        ({"block": "blocks.9"}, "no block 'blocks.9' to patch: choose one of blocks.0"),
        ({"block": "x"}, "choose one of blocks.0, blocks.1"),
        ({"head": {"layer": layer, "head": 3}}, "has heads 1 to 2"),
    ):
        refused = client("POST", "/patch", {**asked, **place})
        assert (refused.status_code, message in refused.json()["error"]) == (400, True)


def test_a_head_patched_over_the_api_is_the_librarys(client: Ask, folder: Path) -> None:
    run, other = regard.load(folder / "labels"), "the bad plot"
    head = Head(next(iter(layers_with_heads(run.network))), 2)
    place = {"head": {"layer": head.layer, "head": head.head}}
    got = client(
        "POST", "/patch", {"run": "labels", "text": "a good film", "other": other, **place}
    )
    with keep_states(run.network) as states:
        run.predict(other)
    with patched(run.network, {head: states[head]}):
        assert got.json()["after"] == run.predict("a good film").json()
    assert got.json()["after"] != got.json()["before"]


def test_what_comes_next_before_and_after(client: Ask, folder: Path) -> None:
    run, text = regard.load(folder / "goes"), "Maria was"
    head = Head(next(iter(layers_with_heads(run.network))), 1)
    asked = {"run": "goes", "text": text, "heads": [{"layer": head.layer, "head": head.head}]}
    got = client("POST", "/without", asked).json()
    assert got["before"]["next"] == shown(run, text)
    with without_heads(run.network, [head]):
        assert got["after"]["next"] == shown(run, text)
    assert got["after"]["next"] != got["before"]["next"]
    assert len(got["after"]["next"]) == 5
    words = {"run": "labels", "text": text, "other": "a", "block": "blocks.0", "positions": [0]}
    assert "next" not in client("POST", "/patch", words).json()["before"]


def shown(run: Any, text: str) -> list[dict[str, Any]]:
    with run.computing():
        words = run.task.next_words(run.network, text)
    return [{"token": word.token, "probability": word.probability} for word in words]


def test_attribution_over_the_api(client: Ask) -> None:
    for run in ("labels", "goes", "writes", "hugging"):
        text = TEXT if run == "labels" else "ABCD" if run == "writes" else "Maria"
        got = client("POST", "/attribute", {"run": run, "text": text}).json()
        assert len(got["tokens"]) == len(got["attention_gradients"]) == sum(got["sizes"])
        assert sum(got["integrated_gradients"]) == pytest.approx(
            got["output"] - got["baseline"], abs=2e-2
        )
        assert got["says"].endswith(".")
        last = len(got["choices"]) - 1
        other = client("POST", "/attribute", {"run": run, "text": text, "choice": last}).json()
        assert (other["choice"], other["choices"]) == (last, got["choices"])
        assert last
        assert other["output"] != got["output"]
        far = client("POST", "/attribute", {"run": run, "text": text, "choice": last + 1})
        assert far.json()["error"] == f"choice {last + 1}: this answer has choices 0 to {last}"
    refused = client("POST", "/attribute", {"run": "counts", "text": "Maria"})
    assert (refused.status_code, "baseline" in refused.json()["error"]) == (400, True)


def test_every_task_over_the_api(client_of_every: Ask) -> None:
    for run, text, other, choices in (
        ("tags", "Ada saw Paris", "Bob saw Ghent", "tag of word 1, Ada"),
        ("translates", "ABCD", "EFGH", "output word 1"),
        ("masks", "Ada was [MASK]", "Bob was [MASK]", "[MASK] 1"),
        ("recurrent", "a good film", "a bad film", "logit of"),
    ):
        got = client_of_every("POST", "/attribute", {"run": run, "text": text}).json()
        assert got["choices"][0].startswith(choices), got
        assert (got["attention_gradients"] is None) == (run == "recurrent")
        parts = client_of_every("POST", "/parts", {"run": run}).json()
        if run == "recurrent":
            assert (parts["heads"], parts["blocks"]) == ([], [])
            continue
        for place in (
            {"block": parts["blocks"][-1]["block"]},
            {"head": {"layer": parts["heads"][-1]["layer"], "head": 1}},
        ):
            asked = {"run": run, "text": text, "other": other, "positions": [0], **place}
            assert client_of_every("POST", "/patch", asked).status_code == 200, (run, place)
    names = [
        x["name"] for x in client_of_every("POST", "/parts", {"run": "translates"}).json()["heads"]
    ]
    assert names[-2:] == ["decoder 2 attention", "decoder 2 attention to the source"]
    refused = client_of_every("POST", "/attribute", {"run": "masks", "text": "Ada was"})
    assert "replace a word by [MASK]" in refused.json()["error"]


def test_long_texts_are_refused(client: Ask) -> None:
    long = "good " * 40
    for path, more in (
        ("/attribute", {}),
        ("/patch", {"other": "a", "block": "blocks.0"}),
        ("/without", {"heads": [{"layer": "blocks.0.attention", "head": 1}]}),
    ):
        assert client("POST", path, {"run": "labels", "text": long, **more}).status_code == 422
