"""Interventions over the API: the answers are those of the library."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import regard
from regard.analysis.interventions import Head, without_heads

TEXT = "not a bad film"


def test_heads_off_over_the_api_are_off(
    client: Callable[..., httpx.Response], folder: Path
) -> None:
    run = regard.load(folder / "labels")
    parts = client("POST", "/parts", {"run": "labels"}).json()
    layer = next(iter(parts["heads"]))
    heads = [{"layer": name, "head": h + 1} for name, n in parts["heads"].items() for h in range(n)]
    got = client("POST", "/without", {"run": "labels", "text": TEXT, "heads": heads}).json()
    assert got["before"] == run.predict(TEXT).json()
    with without_heads(run.network, [Head(x["layer"], x["head"]) for x in heads]):
        assert got["after"] == run.predict(TEXT).json()
    assert got["after"] != got["before"] == run.predict(TEXT).json()
    bad = {"run": "labels", "text": TEXT, "heads": [{"layer": layer, "head": 9}]}
    refused = client("POST", "/without", bad)
    assert (refused.status_code, "heads 1 to 2" in refused.json()["error"]) == (400, True)


@pytest.mark.parametrize("run", ["labels", "writes", "goes"])
def test_patching_over_the_api(client: Callable[..., httpx.Response], run: str) -> None:
    parts = client("POST", "/parts", {"run": run}).json()
    if not parts["blocks"]:  # a recurrent network
        refused = client("POST", "/patch", {"run": run, "text": "A", "other": "B", "block": "x"})
        assert (refused.status_code, "no block" in refused.json()["error"]) == (400, True)
        return
    asked = {"run": run, "text": "a good film", "other": "a good film", "block": parts["blocks"][0]}
    got = client("POST", "/patch", asked).json()
    assert got["before"] == got["after"]
    got = client("POST", "/patch", {**asked, "other": "the bad plot"}).json()
    if run == "labels":
        assert got["after"]["probabilities"] == pytest.approx(got["other"]["probabilities"])
    far = client("POST", "/patch", {**asked, "positions": [19]})
    assert (far.status_code, "not in both" in far.json()["error"]) == (400, True)


def test_attribution_over_the_api(client: Callable[..., httpx.Response]) -> None:
    got = client("POST", "/attribute", {"run": "labels", "text": TEXT}).json()
    assert len(got["tokens"]) == len(got["attention_gradients"]) == 4
    assert sum(got["integrated_gradients"]) == pytest.approx(
        got["output"] - got["baseline"], abs=1e-3
    )
    assert got["says"].endswith(".")
    for run, message in (("goes", "one number"), ("counts", "baseline"), ("hugging", "regard")):
        refused = client("POST", "/attribute", {"run": run, "text": "Maria"})
        assert (refused.status_code, message in refused.json()["error"]) == (400, True), run


def test_long_texts_are_refused(client: Callable[..., httpx.Response]) -> None:
    long = "good " * 40
    for path, more in (
        ("/attribute", {}),
        ("/patch", {"other": "a", "block": "blocks.0"}),
        ("/without", {"heads": [{"layer": "blocks.0.attention", "head": 1}]}),
    ):
        assert client("POST", path, {"run": "labels", "text": long, **more}).status_code == 422
