"""Runs as ONNX folders: the same logits, and a README that runs without torch."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lab.small_runs import trained_run

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from regard.analysis.interventions import Head, layers_with_heads
from regard.core.errors import RegardError
from regard.interop.onnx_graphs import OnnxNetwork
from regard.lab import runs
from regard.lab.runs.export import export
from regard.lab.runs.onnx_folder import through_onnx
from regard.lab.web.answers import Answers
from regard.lab.web.interventions import without
from regard.lab.web.limits import Limits
from regard.lab.web.registry import Registry

SMALL = ["width=16", "heads=2", "layers=1", "feedforward=16", "steps=6", "threads=1", "seed=3",
         "precision=fp32", "learning_rate=0.05"]  # fmt: skip
TEXTS = ["length=24", "examples=60", "batch_tokens=240", "data=pydoc"]
PAIRS = ["letters=2", "examples=300", "judged=5"]
#: Task, model, settings, and what the README's script prints.
RUNS = {
    "mean": ("classification", "mean", ["width=16", *SMALL[4:], "examples=200"]),
    "rnn": ("classification", "rnn", ["width=16", "hidden=8", *SMALL[4:], "examples=200"]),
    "transformer": ("classification", "transformer", [*SMALL, "examples=200", "truncate=ends",
                                                      "length=20"]),
    "ratings": ("regression", "cnn", ["width=16", "filters=4", *SMALL[4:], "examples=200"]),
    "several": ("multilabel", "mean", ["width=16", *SMALL[4:], "examples=200"]),
    "tags": ("tagging", "transformer", [*SMALL, "examples=100"]),
    "pieces": ("tagging", "transformer", [*SMALL, "examples=100", "tokenizer=bpe", "truncate=tail",
                                          "length=6"]),
    "gpt": ("language-modeling", "gpt", [*SMALL, *TEXTS]),
    "bert": ("masked-modeling", "bert", [*SMALL, *TEXTS]),
    "writer": ("reverse", "transformer", [*SMALL, *PAIRS]),
    "t5": ("reverse", "t5", [*SMALL, *PAIRS]),
    "bahdanau": ("reverse", "bahdanau", ["width=16", "hidden=16", *SMALL[4:], *PAIRS]),
}  # fmt: skip
#: What a script may not import.
WITHOUT = "import sys; sys.modules['torch'] = sys.modules['regard'] = None\n"


def trained(folder: Path, name: str) -> runs.Run:
    task, model, settings = RUNS[name]
    return trained_run(folder / name, task, model, settings)


def said(folder: Path, call: str) -> object:
    """What the README's script returns for a call, in a process without torch and regard."""
    (script,) = re.findall(
        r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.M | re.S
    )
    code = WITHOUT + script.replace("\nprint(", "\n# print(") + f"\nprint(json.dumps({call}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(run: runs.Run, folder: Path) -> None:
    """The README's script answers what the run answers."""
    name = run.config.task
    texts = ["a good film", "not as bad as I had feared, and rather long for what it has to tell"]
    if name in ("classification", "multilabel"):
        for there, here in zip(said(folder, f"predict({texts})"), run.predict(texts), strict=True):
            assert there == pytest.approx(dict(here.probabilities), abs=1e-4)
    elif name == "regression":
        numbers = [answer.value for answer in run.predict(texts)]
        assert said(folder, f"predict({texts})") == pytest.approx(numbers, abs=1e-4)
    elif name == "tagging":
        words = "a good film not as bad as I had feared".split()
        tags, own = said(folder, f"predict({words})"), run.predict(" ".join(words)).tags
        assert [tag for tag in tags if tag] == [t for t, tag in zip(own, tags, strict=True) if tag]
        assert tags[-1]
        assert sum(tag is not None for tag in tags) >= 3
    elif name == "masked-modeling":
        ids = run.task.read("Return it.")
        ids[2] = run.task.special_tokens.mask
        (best,) = run.task._best(run.network, ids, np.array([2]))[1].tolist()
        there = said(folder, "predict(read('Return it.'), 1)")
        assert (there[0], len(there)) == (best, 5)
    elif name == "reverse":
        for text in ("AB", "QZ", "M"):
            there = said(folder, f"write({text!r}, 4)")
            assert there == run.predict(text).text[: len(there)] != ""
    else:
        import torch

        ids = [int(i) for i in run.task.read("Return ")]
        with torch.no_grad():
            logits = run.network.to_logits(run.network(torch.tensor([ids])))[0, -1]
        logits[0] = -torch.inf
        first = run.task.tokenizer.decode([int(logits.argmax())])
        assert said(folder, "write('Return ', 1)") == first
        assert said(folder, "write('Return ', 99)").startswith(first)  # to the end of its context


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n not in ("mean",) else n for n in RUNS]
)
def test_the_readme_of_an_onnx_folder_answers_as_the_run(name: str, tmp_path: Path) -> None:
    run = trained(tmp_path, name)
    folder = export(run, "onnx", tmp_path / "onnx").folder
    assert {"README.md", "config.json", "tokenizer.json"} < {x.name for x in folder.iterdir()}
    check(run, folder)
    with pytest.raises(RegardError, match="onnx already exists; give another folder"):
        export(run, "onnx", tmp_path / "onnx")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n != "mean" else n
             for n in ("mean", "transformer", "ratings", "tags")]
)  # fmt: skip
def test_predictions_by_onnxruntime_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    run = trained(tmp_path, name)
    texts = ["a good film", "", "not as bad as I had feared", "bad", "[CLS] good [SEP]"]
    must_agree(run, texts[:1] if name == "tags" else texts)
    before = {path: path.stat().st_mtime_ns for path in run.folder.path.rglob("*.onnx")}
    assert len(before) == 1
    registry = Registry({"mine": run.folder.path})
    registry.prepare_onnx()
    model: Any = registry.model("mine")
    assert isinstance(model.answering.network, OnnxNetwork)
    assert not isinstance(model.run.network, OnnxNetwork), "attention needs the network"
    assert model.predict(texts[:1])
    if name == "transformer":  # heads are switched off in the network
        answers = Answers(registry, Limits())
        head = Head(next(iter(layers_with_heads(model.run.network))), 1)
        off = without(answers, "mine", texts[0], [head])
        assert off["before"] != off["after"]
    assert before == {path: path.stat().st_mtime_ns for path in run.folder.path.rglob("*.onnx")}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "frozen", "sentence"])
def test_encoders_by_onnxruntime(model: str, tmp_path: Path, monkeypatch) -> None:
    encoders = pytest.importorskip("tests.interop.encoders")
    monkeypatch.setattr("regard.lab.data.embeddings.cache", lambda: tmp_path / "cache")
    encoders.save("bert", tmp_path / "encoder", wide=True)
    data = encoders.labelled(tmp_path / "texts.jsonl", 60)
    settings = [f"weights={tmp_path / 'encoder'}", f"data={data}", "seed=1"]
    settings += ["steps=3", "least_steps=0"] if model == "bert" else []
    run = trained_run(tmp_path / model, "classification", model, settings)
    must_agree(run, ["the good plot", "awful [SEP] scene", "", "a great film was it " * 9])
    if model == "frozen":
        folder, texts = export(run, "onnx", tmp_path / "out").folder, ["awful [SEP] scene [CLS]"]
        (there,) = said(folder, f"predict({texts})")
        assert there == pytest.approx(dict(run.predict(texts)[0].probabilities), abs=1e-5)


def must_agree(run: runs.Run, texts: list[str]) -> None:
    """Both answer within 1e-5, and one of them by onnxruntime."""
    here = [answer.json() for answer in run.predict(texts)]
    fast = through_onnx(runs.load(run.folder.path))
    network = fast.baseline.encoder.body if run.config.entry.baseline else fast.network
    assert isinstance(network, OnnxNetwork)
    for one, other in zip(fast.predict(texts), here, strict=True):
        there = one.json()
        assert there.keys() == other.keys()
        for key, value in there.items():
            numbers = isinstance(value, dict | float)
            assert value == (pytest.approx(other[key], abs=1e-5) if numbers else other[key])


def test_int8_rounds_products_and_says_what_it_costs(tmp_path: Path) -> None:
    run = trained(tmp_path, "transformer")
    folder = export(run, "onnx", tmp_path / "onnx", quantization="int8").folder
    data = (folder / "model.onnx").read_bytes()
    assert b"MatMulInteger" in data
    texts = ["a good film", "not as bad as I had feared"]
    pairs = list(zip(said(folder, f"predict({texts})"), run.predict(texts), strict=True))
    assert all(there == pytest.approx(dict(here.probabilities), abs=0.02) for there, here in pairs)
    assert any(there != pytest.approx(dict(here.probabilities), abs=1e-6) for there, here in pairs)

    rounded = through_onnx(run, int8=True).evaluate()
    exact = run.evaluate()
    assert 0 < abs(rounded.answers - exact.answers).max() < 0.02
    assert rounded.answers == pytest.approx(through_onnx(run, int8=True).evaluate().answers)
    loss = rounded.json()["also"]["log loss"]
    assert f"'log loss': {loss}" in (folder / "README.md").read_text("utf-8")
    assert loss != exact.json()["also"]["log loss"]
    assert abs(through_onnx(run).evaluate().answers - exact.answers).max() < 1e-6
    assert len(list((run.folder.path / "onnx").iterdir())) == 2

    registry = Registry({"mine": run.folder.path})
    registry.prepare_onnx(int8=True)
    model: Any = registry.model("mine")
    for there, here in zip(model.answering.predict(texts), pairs, strict=True):
        assert dict(there.probabilities) == pytest.approx(here[0], abs=1e-6)
    with pytest.raises(RegardError, match="quantization=int4: onnx supports only float32 or int8"):
        export(run, "onnx", tmp_path / "four", quantization="int4")
    with pytest.raises(RegardError, match="no layer multiplies each token by weights"):
        through_onnx(trained(tmp_path, "mean"), int8=True)


def test_runs_that_write_are_refused(tmp_path: Path) -> None:
    run = trained(tmp_path, "bahdanau")
    with pytest.raises(
        RegardError, match="--onnx and --int8 run networks that label texts, not bah"
    ):
        through_onnx(run)
    other = trained_run(tmp_path / "tfidf", "classification", "tfidf", ["examples=90"])
    with pytest.raises(RegardError, match="not tfidf on classification; leave them out"):
        through_onnx(other)
