"""Runs as folders of sentence-transformers: the same logits, with literal special tokens."""

import json

import numpy as np
import pytest

from tests.lab.small_runs import trained_run

pytest.importorskip("sentence_transformers")

import sentence_transformers

from regard.core.errors import RegardError
from regard.interop import sentences
from regard.lab.runs.export import export
from tests.interop import encoders

TEXTS = [
    "the good plot", "", "awful [SEP] scene [CLS] was [MASK] it", "<s> good </s> film <mask>",
    "a great film was it " * 9, *(f"the plot {'was poor ' * (i % 5)}" for i in range(9)),
]  # fmt: skip


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train a run on labelled texts with a tiny encoder of some kind."""
    monkeypatch.setattr("regard.lab.data.embeddings.cache", lambda: tmp_path / "cache")

    def train(model, kind="", *settings, task="classification", data=None):
        if kind and not (tmp_path / kind).exists():
            encoders.save(kind, tmp_path / kind, wide=True)
        data = data or encoders.labelled(tmp_path / "texts.jsonl", 60)
        weights = [f"weights={tmp_path / kind}"] if kind else []
        return trained_run(tmp_path / "run", task, model, [*weights, f"data={data}", *settings])

    return train


def must_agree(run, folder, texts=TEXTS):
    """The folder has the run's logits or numbers, in their program and in regard."""
    export(run, "sentence-transformers", folder)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    if run.config.task == "regression":
        expected = np.array([[answer.value] for answer in run.predict(texts)])
    else:
        expected = run.task.probabilities(run.model, texts)
        theirs = np.exp(theirs - theirs.max(1, keepdims=True))
        theirs /= theirs.sum(1, keepdims=True)
    assert np.ptp(expected, axis=0).min() > 1e-3, "else any answer would agree"
    assert np.abs(theirs - expected).max() <= 1e-5
    return folder


@pytest.mark.parametrize("kind", encoders.KINDS)
def test_an_encoder_with_its_layer(kind, trained, tmp_path):
    run = trained("frozen", kind)
    folder = must_agree(run, tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["label2id"] == {"bad": 0, "good": 1}
    assert "# frozen on classification" in (folder / "README.md").read_text()
    again = sentences.load(folder).encode(["the good plot"])
    assert np.abs(again - run.task.outputs(run.network, ["the good plot"])).max() <= 1e-5


def test_a_network_of_our_own_and_the_head_of_long_texts(trained, tmp_path):
    small = ["width=16", "heads=2", "layers=1", "feedforward=16", "length=12", "truncate=head"]
    run = trained("bert", "", *small, "steps=30", "learning_rate=0.01")
    must_agree(run, tmp_path / "out", [text for text in TEXTS if "[" not in text and text])


def test_numbers(trained, tmp_path):
    rows = [{"text": f"{'good ' * (i % 4)}film {i}", "label": i % 4 + 0.5} for i in range(60)]
    (tmp_path / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = trained("frozen", "bert", task="regression", data=tmp_path / "numbers.jsonl")
    must_agree(run, tmp_path / "out")


@pytest.mark.parametrize("prompt", ["", "the film "])
def test_a_sentence_encoder_goes_with_its_head(prompt, trained, tmp_path):
    run = trained("sentence", "bert", *([f"prompt={prompt}"] if prompt else []), "long=cut")
    must_agree(run, tmp_path / "out")
    with pytest.raises(RegardError, match="out already exists; give another folder"):
        export(run, "sentence-transformers", tmp_path / "out")


def test_what_is_refused(trained, tmp_path):
    run = trained("frozen", "bert", "truncate=ends")
    with pytest.raises(RegardError, match="keeps the head or the tail of long texts"):
        export(run, "sentence-transformers", tmp_path / "out")
    with pytest.raises(RegardError, match=r"frozen the mean of all states; export with --to sent"):
        export(run, "huggingface", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_models_are_refused(trained, tmp_path):
    run = trained("mean", "", "width=8", "steps=2")
    with pytest.raises(RegardError, match="mean on classification is not an encoder with a layer"):
        export(run, "sentence-transformers", tmp_path / "out")


def test_two_texts_are_refused(trained, tmp_path):
    pairs = tmp_path / "pairs.csv"
    rows = [
        f"is it {word} {number},it is {word},{number % 2}"
        for number, word in enumerate("abcd" * 10)
    ]
    pairs.write_text("\n".join(["asked,said,label", *rows, ""]))
    run = trained("sentence", "bert", "text=asked,said", data=pairs)
    with pytest.raises(RegardError, match="encodes one text; this run reads two"):
        export(run, "sentence-transformers", tmp_path / "out")
