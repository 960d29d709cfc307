"""Two texts a row, from the file to every command and the server."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import regard as package
from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import Input, as_json, from_json, texts_of
from regard.lab.data.files import read_examples, read_inputs
from regard.lab.data.sources import DataSource, load_corpus
from regard.lab.runs import Run, load
from regard.lab.web.api import create_app
from regard.lab.web.registry import Registry
from regard.nn.models.classifiers import BERTClassifier, GPTClassifier
from regard.nn.models.settings import EncoderSettings, GPTSettings

from .conftest import Command

WORDS = ["red", "blue", "tall", "wet", "old", "new", "soft", "loud"]
PAIR = Input("is it red", "it is red")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whether the second text repeats the first one's last word."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    rows = [
        (f"{start} it {one}", f"{then} is {two}", "yes" if one == two else "no")
        for start in ("is", "was", "so")
        for then in ("it", "all", "this")
        for place, one in enumerate(WORDS)
        for two in (one, WORDS[(place + 1) % len(WORDS)])
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("premise", "hypothesis", "label"), *rows])
    return path


def trained_on(data: Path, model: str, folder: Path, **settings: object) -> Run:
    return package.train(
        "classification",
        model=model,
        data=data,
        text="premise,hypothesis",
        out=folder,
        progress=False,
        **settings,
    )


@pytest.fixture(scope="module")
def counts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_on(data, "tfidf", tmp_path_factory.mktemp("runs") / "counts", ngrams=1)


@pytest.fixture(scope="module")
def reads(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    small = {"width": 16, "heads": 2, "layers": 1, "feedforward": 16, "epochs": 1}
    return trained_on(data, "bert", tmp_path_factory.mktemp("runs") / "reads", **small)


def test_an_input_is_two_texts_and_one_string() -> None:
    assert texts_of(from_json(json.loads(json.dumps(as_json(PAIR))))) == texts_of(PAIR)
    assert as_json("plain [SEP] text") == {"text": "plain [SEP] text"}
    import copy

    assert texts_of(copy.deepcopy(PAIR)) == ("is it red", "it is red")


def test_rows_of_one_first_text_stay_in_one_part(data: Path) -> None:
    corpus = load_corpus(DataSource(data, columns=Columns("premise,hypothesis")))
    sides = [{texts_of(x.text)[0] for x in part} for part in (corpus.train, corpus.test)]
    assert not sides[0] & sides[1]
    assert any("a hash of the first text" in note for note in corpus.notes)
    examples = read_examples(data, Columns("1,2", "3"))
    assert texts_of(examples[2].text) == ("is it red", "it is blue")  # after the header, as data


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("premise,premise", "text and second text are the same column"),
        ("premise,label", "label and second text are the same column"),
        ("premise,nothing", "unknown column 'nothing'"),
        ("premise,hypothesis,label", "must name one column, or two"),
        ("premise,", "must name one column, or two"),
    ],
)
def test_wrong_columns_are_named(data: Path, text: str, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        read_examples(data, Columns(text))


def test_an_empty_second_text_is_an_empty_row(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("a,b,label\none,,x\ntwo,2,y\n")
    with pytest.raises(RegardError, match=r"few.csv:2: the second text is empty"):
        read_examples(path, Columns("a,b"))
    path.write_text("a,b,label\none,,x\n,2,y\n")
    assert [texts_of(x) for x in read_inputs(path, Columns("a,b"))] == [("one", ""), ("", "2")]


def test_words_in_common_decide_for_counts(counts: Run) -> None:
    assert counts.evaluate().value == 1.0
    answer = counts.predict([Input("is it wet", "this is wet"), Input("is it wet", "this is loud")])
    assert [one.label for one in answer] == ["yes", "no"]
    weighed = counts.task.weigh(counts.model, PAIR, counts.predict(PAIR))
    assert weighed.words == ["is", "it", "red", "[SEP]", "it", "is", "red"]
    assert {"first: red", "second: red", "both: red", "both"} <= weighed.terms.keys()
    assert weighed.weights.sum() + weighed.bias == pytest.approx(weighed.score)
    (scores,) = counts.model.scores([PAIR])
    assert weighed.score == pytest.approx(abs(scores[0]), rel=1e-5)


def test_a_network_reads_both_texts_and_a_separator(reads: Run) -> None:
    task = reads.task
    (ids,) = task.encode([PAIR])
    assert list(ids).count(0) == 1
    assert task.tokens(PAIR) == ["is", "it", "red", "[SEP]", "it", "is", "red"]
    assert reads.attention(PAIR)[0].tokens[0] == "[CLS]"
    assert len(reads.attention(PAIR)[0].tokens) == 9
    assert len(reads.attribute(PAIR).tokens) == 9
    one, other = task.outputs(reads.network, [PAIR, Input("is it red", "it is wet")])
    assert not np.allclose(one, other, atol=1e-6)
    assert task.exported()["between"] == [0]
    again = load(reads.folder.path).evaluate()
    assert texts_of(again.examples[0].text) == texts_of(reads.evaluate().examples[0].text)


def test_long_texts_both_keep_a_part(reads: Run) -> None:
    settings = reads.task.settings.model_copy(update={"length": 7, "truncate": "head"})
    task = type(reads.task)(settings, reads.task.tokenizer, reads.task.known)
    assert task.tokens(Input("is it red " * 9, "so")) == [
        "is",
        "it",
        "red",
        "is",
        "it",
        "[SEP]",
        "so",
    ]
    assert task.tokens(Input("is it " * 9, "so red " * 9)) == "is it is [SEP] so red so".split()
    assert task.left_out([Input("is it red", "so so so so"), PAIR]) == [1, 0]


def test_segments_of_an_encoder() -> None:
    settings = EncoderSettings(width=8, heads=2, layers=1, feedforward=8, length=12)
    model = BERTClassifier(settings, 10, 2).eval()
    seen: list[torch.Tensor] = []
    hook = lambda _, args: seen.extend(args)  # noqa: E731
    model.body.register_forward_pre_hook(hook)
    model(torch.tensor([[4, 5, 0, 6], [7, 8, 0, 0]]), torch.tensor([4, 2]))
    read, _, types = seen
    _, separator, classify = model.special_tokens
    assert read[0].tolist() == [classify, 4, 5, separator, 6, separator]
    assert read[1, :4].tolist() == [classify, 7, 8, separator]
    assert types[0].tolist() == [0, 0, 0, 0, 1, 1]
    assert types[1, :4].tolist() == [0, 0, 0, 0]
    decoder = GPTClassifier(
        GPTSettings(width=8, heads=2, layers=1, feedforward=8, length=12), 10, 2
    )
    decoder.body.register_forward_pre_hook(hook)
    decoder.eval()(torch.tensor([[4, 0, 6]]), torch.tensor([3]))
    assert seen[-1][0].tolist() == [4, separator, 6, classify]


def test_commands_take_both_texts(regard: Command, counts: Run, data: Path, tmp_path: Path) -> None:
    run = counts.folder.path
    said = regard("predict", run, "is it wet", "--second", "this is wet")
    assert said.out.startswith("yes\t")
    assert regard("predict", run, "is it wet\tthis is wet").out == said.out
    lines = tmp_path / "lines.txt"
    lines.write_text("is it wet\tthis is wet\n")
    assert regard("predict", run, "--file", lines).out == said.out
    out = tmp_path / "answers.csv"
    assert regard("predict", run, "--file", data, "--out", out).status == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 144
    assert (rows[1]["text"], rows[1]["second"], rows[1]["label"]) == (
        "is it red",
        "it is blue",
        "no",
    )
    shown = json.loads(regard("show", run, "is it wet", "--second", "it is wet", "--json").out)
    assert (shown["text"], shown["second"]) == ("is it wet", "it is wet")
    assert json.loads(regard("evaluate", run, "--data", data, "--json").out)["value"] == 1.0
    checked = regard("data", "check", data, "--text", "premise,hypothesis")
    assert checked.status == 0


def test_commands_refuse_one_text(regard: Command, counts: Run, trained: Path) -> None:
    alone = regard.refused("predict", counts.folder.path, "is it wet")
    assert "reads two texts, premise and hypothesis; give the second, too" in alone
    many = regard.refused("predict", counts.folder.path, "a", "b", "--second", "c")
    assert "1 --second for 2 texts; give one for each TEXT" in many
    assert "this run reads one text" in regard.refused("predict", trained, "a", "--second", "b")


def test_the_server_answers_pairs(counts: Run, reads: Run) -> None:
    folders = {"counts": counts.folder.path, "reads": reads.folder.path}
    with TestClient(create_app(Registry(folders)), base_url="http://127.0.0.1") as client:

        def ask(path: str, **body: object) -> dict[str, object]:
            return client.post(path, json=body).json()

        named = {run["name"]: run["second"] for run in client.get("/runs").json()["runs"]}
        assert named == {"counts": "hypothesis", "reads": "hypothesis"}
        one = ask("/predict", run="counts", text="is it wet", second="this is wet")
        assert (one["second"], one["label"]) == ("this is wet", "yes")
        both = ask("/predict", run="counts", texts=["is it wet"] * 2, seconds=["so wet", "loud"])
        assert [x["label"] for x in both["predictions"]] == ["yes", "no"]
        for fault in (
            {"text": "a"},
            {"texts": ["a"], "seconds": []},
            {"texts": ["a"], "second": "b"},
            {"text": "a", "seconds": ["b"]},
        ):
            assert "error" in ask("/predict", run="counts", **fault)
        look = ask("/look", run="reads", text="is it red", second="it is red")
        assert json.dumps(look).count('"[SEP]"') == 2
        layers = ask("/attention", run="reads", text="is it", second="red")["layers"]
        assert layers[0]["tokens"] == ["[CLS]", "is", "it", "[SEP]", "red", "[SEP]"]
        assert "error" not in ask("/attribute", run="reads", text="is it", second="red")
        patched = {"other": "is it", "other_second": "wet", "head": {"layer": "", "head": 1}}
        heads = ask("/parts", run="reads")["heads"]
        patched["head"]["layer"] = heads[0]["layer"]
        assert "after" in ask("/patch", run="reads", text="is it", second="red", **patched)
        offered = client.get("/examples", params={"run": "counts"}).json()
        assert all({"text", "second"} == row.keys() for row in offered["inputs"])
