"""``regard embed``: a vector for each text, in order, of every model that has states."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.lab import runs
from regard.lab.runs.embedding import embed
from regard.training.batches import pad
from tests.lab.small_runs import trained_run

from .conftest import Command

STACK = ["width=8", "heads=2", "layers=1"]
FEW = ["validation=0", "examples=40"]
TEXTS = ["a good film", "", "not a bad film at all", "a good film"]


def run_of(folder: Path, task: str, model: str, *pairs: str) -> "runs.Run":
    return trained_run(folder, task, model, ["steps=2", "threads=1", "precision=fp32", *pairs])


def test_the_vector_is_what_the_last_layer_reads(
    regard: Command, trained: Path, tmp_path: Path
) -> None:
    file, out = tmp_path / "texts.csv", tmp_path / "x.npy"
    file.write_text("text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    said = regard("embed", trained, file, "--out", out)
    assert (said.status, said.err) == (0, "")
    assert said.out == f"{out}: 4 embeddings of width 8, float32\n"
    vectors = np.load(out, allow_pickle=False)
    assert (vectors.shape, vectors.dtype) == ((4, 8), np.float32)
    run = runs.load(trained)
    logits = torch.from_numpy(vectors) @ run.network.to_labels.weight.T
    chances = (logits + run.network.to_labels.bias).softmax(-1)
    for row, answer in zip(chances.tolist(), run.predict(TEXTS), strict=True):
        assert list(answer.probabilities.values()) == pytest.approx(row, abs=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[3], rtol=1e-6)
    assert abs(vectors[0] - vectors[2]).max() > 1e-3


def test_parquet_has_the_texts_and_reads_them(
    regard: Command, trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lines, out, again = tmp_path / "texts.txt", tmp_path / "x.parquet", tmp_path / "y.npy"
    lines.write_text("".join(f"{text}\n" for text in TEXTS))
    assert regard("embed", trained, lines, "--out", out, "--json").status == 0
    table = parquet.read_table(out)
    assert table["text"].to_pylist() == TEXTS
    assert regard("embed", trained, out, "--out", again).status == 0
    expected = np.array(table["embedding"].to_pylist(), np.float32)
    np.testing.assert_allclose(np.load(again), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "model", "pairs"),
    [
        ("language-modeling", "gpt", [*STACK, *FEW]),
        ("masked-modeling", "bert", [*STACK, *FEW]),
        ("span-corruption", "t5", [*STACK, *FEW]),
        ("reverse", "transformer", ["width=8", "heads=2", "layers=1", "examples=99", "judged=9"]),
        ("reverse", "bahdanau", ["width=8", "hidden=8", "examples=99", "judged=9"]),
        ("tagging", "rnn", ["width=8", "hidden=4", "examples=100"]),
        ("classification", "cnn", ["width=8", "filters=4", "examples=100"]),
    ],
)
def test_every_model_with_states_embeds(
    tmp_path: Path, task: str, model: str, pairs: list[str]
) -> None:
    run = run_of(tmp_path / "run", task, model, *pairs)
    texts = ["abc def", "a b c d e f g h i j", "abc def"]
    vectors = embed(run, texts)
    assert vectors.shape[0] == 3
    assert np.isfinite(vectors).all()
    # padding in the batch changes nothing
    np.testing.assert_allclose(embed(run, texts[:1])[0], vectors[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(vectors[2], vectors[0], rtol=1e-4, atol=1e-5)
    assert abs(vectors[1] - vectors[0]).max() > 1e-5


def test_the_mean_is_over_the_tokens_of_the_text(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "language-modeling", "gpt", *STACK, *FEW)
    (vector,) = embed(run, ["import"])
    tokens, lengths = pad([run.task.whole("import")])
    with torch.no_grad():
        states = run.network(tokens, lengths)[0, : int(lengths[0])]
    np.testing.assert_allclose(vector, states.mean(0).numpy(), rtol=1e-4, atol=1e-5)


def test_mistakes(regard: Command, trained: Path, tmp_path: Path) -> None:
    file, empty = tmp_path / "texts.txt", tmp_path / "empty.txt"
    file.write_text("a\n")
    empty.write_text("")
    baseline = run_of(tmp_path / "tfidf", "classification", "tfidf", "examples=100")
    for words, hint in (
        ((trained, file, "--out", tmp_path / "x.txt"), "ends in .npy or .parquet"),
        ((trained, tmp_path / "none", "--out", tmp_path / "x.npy"), "No such file"),
        ((trained, empty, "--out", tmp_path / "x.npy"), "contains no texts"),
        ((trained, file, "--text", "a", "--out", tmp_path / "x.npy"), "--text names a table"),
        ((baseline.folder.path, file, "--out", tmp_path / "x.npy"), "is a baseline without states"),
        ((tmp_path, file, "--out", tmp_path / "x.npy"), "is not a run but contains 1"),
        ((trained, file, "--out", tmp_path / "no" / "x.npy"), "cannot write"),
    ):
        assert hint in regard.refused("embed", *words)
    assert list(tmp_path.glob("*.npy")) == []
    said = regard("embed", trained, file, "--out", tmp_path / "x.npy", "--json")
    assert json.loads(said.out) == {
        "run": str(trained), "out": str(tmp_path / "x.npy"), "texts": 1, "width": 8
    }  # fmt: skip
