"""Heads on encoders: fitted twice, stored vectors, damaged folders, both kinds of task."""

import json
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch

from regard import train
from regard.core.errors import RegardError
from regard.interop.sentences import Normalized, Pool, Reading, SentenceEncoder, load_static
from regard.lab.data.embeddings import embed
from regard.lab.runs import load
from regard.lab.runs.config import Config
from tests.lab.data.small_files import static_vectors

WORDS = ["[UNK]", "fine", "good", "dull", "bad", "film", "plot"]


@pytest.fixture
def weights(tmp_path):
    """Static vectors in the layout of model2vec; good and bad words differ in one column."""
    table = [[0.0, 0], [1, 0], [1, 0.2], [-1, 0], [-1, 0.2], [0, 1], [0, 0.5]]
    return static_vectors(tmp_path / "vectors", WORDS, np.array(table, np.float32))


@pytest.fixture
def data(tmp_path):
    rows = [
        (f"{word} {noun} {number}", "yes" if word in ("fine", "good") else "no")
        for number in range(8)
        for word in WORDS[1:5]
        for noun in WORDS[5:]
    ]
    path = tmp_path / "data.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.lab.data.embeddings.cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "embeddings.sqlite"


@pytest.fixture
def run(weights, data, tmp_path):
    given = {"model": "static", "weights": str(weights), "data": data}
    return train("classification", out=tmp_path / "run", **given)


def test_a_run_learns_stores_and_opens_again(run, cache):
    assert run.evaluate().value == 1.0
    answers = load(run.folder.path).predict(["a fine film", "unheard"])
    assert answers[0].label == "yes"
    assert cache.exists()
    config = json.loads((run.folder.path / "model" / "baseline.json").read_text())
    assert config["baseline"] == "static"
    assert len(config["sha256"]) == 64


def test_the_head_is_fitted_to_train_and_validation(run):
    task, model = run.task, run.baseline
    before = model.arrays["weights"].copy()
    task.fit_all(model)
    np.testing.assert_allclose(model.arrays["weights"], before, rtol=1e-4)
    task.fit(model)
    assert np.abs(model.arrays["weights"] - before).max() > 1e-3


def test_numbers_are_learned(weights, data, tmp_path):
    text = data.read_text().replace(",yes", ",3").replace(",no", ",1")
    (tmp_path / "numbers.csv").write_text(text)
    run = train(
        "regression",
        model="static",
        weights=str(weights),
        data=tmp_path / "numbers.csv",
        out=tmp_path / "run",
    )
    assert run.evaluate().value > 0.99


def test_changed_weights_and_damaged_heads_are_refused(run, weights):
    tensors = {"embeddings": torch.ones(len(WORDS), 2)}
    safetensors.torch.save_file(tensors, weights / "model.safetensors")
    with pytest.raises(RegardError, match=r"has changed since .* was written"):
        load(run.folder.path).predict(["fine"])
    shutil.rmtree(weights)
    with pytest.raises(RegardError, match="vectors"):
        load(run.folder.path).predict(["fine"])


def test_an_encoder_is_required():
    with pytest.raises(RegardError, match="static needs a pretrained encoder: give weights=FOLDER"):
        Config.make("classification", "static")


def test_vectors_are_computed_once(weights, tmp_path, monkeypatch):
    encoder, path = load_static(weights), tmp_path / "some.sqlite"
    first = embed(encoder, ["fine film", "bad", "fine film"], path=path)
    np.testing.assert_array_equal(first, encoder.encode(["fine film", "bad", "fine film"]))
    read = []
    monkeypatch.setattr(
        SentenceEncoder,
        "encode",
        lambda self, texts, **_: read.append(texts) or np.ones((1, 2), "f4"),
    )
    again = embed(encoder, ["bad", "new", "fine film"], path=path)
    assert read == [["new"]]
    np.testing.assert_array_equal(again, [first[1], [1, 1], first[0]])
    embed(encoder, ["bad"], prompt="query: ", path=path)
    assert read[-1] == ["bad"], "a prompt makes another vector"


def test_encoders_of_the_same_weights_do_not_share_vectors(weights, tmp_path):
    plain, path = load_static(weights), tmp_path / "some.sqlite"
    others = [
        SentenceEncoder(plain.body, plain.reading, pool, stages, sha256=plain.sha256)
        for pool, stages in ((Pool(("max",)), []), (Pool(), [Normalized()]))
    ]
    for encoder in (plain, *others):
        found = embed(encoder, ["good film"], path=path)
        np.testing.assert_allclose(found, encoder.encode(["good film"]))
    before = plain.fingerprint
    assert load_static(weights).fingerprint == before, "reading texts does not change it"


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_a_damaged_cache_is_no_error(weights, tmp_path, content):
    path = tmp_path / "some.sqlite"
    path.write_bytes(content)
    assert embed(load_static(weights), ["fine"], path=path).tolist() == [[1.0, 0.0]]


def test_a_long_text_is_the_mean_of_its_windows(weights):
    encoder = load_static(weights)
    short = SentenceEncoder(encoder.body, Reading(encoder.reading.tokenizer, 2, around=False))
    text = "fine film bad plot good"
    cut, parts = short.encode([text, "bad"]), short.encode([text, "bad"], windows=True)
    np.testing.assert_allclose(cut, encoder.encode(["fine film", "bad"]))
    np.testing.assert_allclose(parts, encoder.encode([text, "bad"]), atol=1e-7)


def test_a_word_adds_its_share_of_the_mean(run):
    """Without normalisation the output is linear, so a share is known exactly."""
    model, text = load(run.folder.path).baseline, "good film fine"
    found = model.weigh(text, 1, "yes")
    assert found.words == ["good", "film", "fine"]
    table = np.array([[1, 0.2], [0, 1], [1, 0]])
    expected = table @ model.arrays["weights"][1] / 3
    assert found.weights == pytest.approx(expected, abs=1e-4)
    assert found.score == pytest.approx(model.scores([text])[0, 1], abs=1e-4)
    assert found.of == "the logit of yes"
    assert list(found.terms) == found.words
    assert model.weigh("unheard", 1).words == []
