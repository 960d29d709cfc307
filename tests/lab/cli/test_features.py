"""Further columns, from the file to every arm, command and the server."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import regard as package
from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.examples import Input, from_json, texts_of
from regard.lab.data.features import Feature, Features, matrix, notes
from regard.lab.data.files import collect, read_examples, read_inputs
from regard.lab.data.sources import load_corpus
from regard.lab.runs import Run, load
from regard.lab.web.api import create_app
from regard.lab.web.registry import Registry
from regard.lab.web.requests import DisagreementsRequest

from .conftest import Command

LIKE = {"price": "9", "country": "FR"}
ROWS = [
    (f"{word} number {place}", price, country, "dear" if (price or 3) > 5 else "cheap", price or 3)
    for place in range(6)
    for word in ("table", "chair", "lamp")
    for price, country in ((2, "DE"), (9, "FR"), (8, "IT"), (1, ""), (None, "DE"))
]
SMALL = {"width": 8, "heads": 2, "layers": 1, "feedforward": 8, "learning_rate": 0.1, "epochs": 6}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts that tell nothing, and a price that decides."""
    path = tmp_path_factory.mktemp("features") / "things.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "price", "country", "label", "worth"), *ROWS])
    return path


def trained_on(data: Path, model: str, folder: Path, task: str = "classification", **more) -> Run:
    given = {"features": "price,country", "group": "text", **more}
    return package.train(task, model=model, data=data, out=folder, progress=False, **given)


@pytest.fixture(scope="module")
def counts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_on(data, "tfidf", tmp_path_factory.mktemp("runs") / "counts")


@pytest.fixture(scope="module")
def reads(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_on(data, "transformer", tmp_path_factory.mktemp("runs") / "reads", **SMALL)


def test_numbers_are_standardised_and_values_counted() -> None:
    column = Feature.fit("price", ["1", "3", "", "8"])
    assert (column.median, column.mean, column.missing) == (3.0, 3.75, True)
    numbers = [column.encode(value)["price"] for value in ("1", "3", "3", "8")]
    assert np.mean(numbers) == pytest.approx(0)
    assert np.std(numbers) == pytest.approx(1)
    assert column.encode("") == {"price": column.encode("3")["price"], "price is missing": 1.0}
    with pytest.raises(RegardError, match="column price: 'ten' is not a number"):
        column.encode("ten")
    whole = Feature.fit("price", ["2", "2"])
    assert whole.encode("") == {"price": 0.0}  # one value, none missing
    country = Feature.fit("country", ["DE", "FR", "DE", "FR", "IT"])
    assert country.values == ("DE", "FR")
    other = {"country = DE": 0.0, "country = FR": 0.0, "country is another": 1.0}
    assert country.encode("IT") == country.encode("never") == other


def test_markers_of_missing_numbers_are_those_of_regression() -> None:
    column = Feature.fit("price", ["1", "-", "3", "N/a", "?"])
    assert (column.median, column.missing) == (2.0, True)
    assert column.encode("-") == column.encode("NONE") == column.encode("")


def test_numbers_in_another_notation_are_refused() -> None:
    with pytest.raises(RegardError, match="column price: '1,75' is not a number; write it with a"):
        Feature.fit("price", ["1,75", "3,5", "2"])


def test_a_column_of_numbers_with_a_word_is_noted() -> None:
    rows = [Input("a", None, {"price": value, "size": "S"}) for value in ("1", "2", "", "cheap")]
    (note,) = notes(["price", "size"], rows)
    assert note.startswith("column price: 1 of 3 values are not numbers, such as 'cheap'")


def test_true_is_true_in_every_notation() -> None:
    column = Feature.fit("new", ["true", "true", "false", "false"])
    assert column.encode("True") == column.encode("TRUE") == column.encode("true")
    assert column.encode("True") != column.encode("False")


def test_columns_need_their_names() -> None:
    features = Features.fit(["price"], [Input("a", None, {"price": 1}), Input("b", None, LIKE)])
    assert matrix([features.encode(Input("a", None, {"price": 1}))]).tolist() == [[-1.0]]
    assert features.width == 1
    with pytest.raises(RegardError, match="reads further columns, 'price'; give them"):
        features.encode("a")
    with pytest.raises(RegardError, match="does not read the column 'x'; columns: 'price'"):
        features.encode(Input("a", None, {"x": 1}))
    with pytest.raises(RegardError, match="does not read the column 'price', and none"):
        Features().encode(Input("a", None, {"price": 1}))


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ("weight", "unknown column 'weight'"),
        ("price,price", "must name columns, each once"),
        ("price,", "must name columns, each once"),
    ],
)
def test_wrong_columns_are_named(data: Path, features: str, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        read_examples(data, Columns(features=features))


def test_values_of_json_are_strings(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "a", "label": 1, "price": 2.5, "new": True}, {"text": "b", "label": 1}]
    rows[1] |= {"price": None, "new": "ü"}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    first, second = read_examples(path, Columns(features="price,new"))
    assert first.text.columns == {"price": "2.5", "new": "true"}
    assert second.text.columns == {"price": "", "new": "ü"}
    path.write_text('{"text": "a", "label": 1, "price": [1]}\n')
    with pytest.raises(
        RegardError, match=r"rows.jsonl:1: a further column must be a string or a n"
    ):
        read_examples(path, Columns(features="price"))


def test_a_row_without_a_text_keeps_its_columns(tmp_path: Path) -> None:
    table, objects = tmp_path / "rows.csv", tmp_path / "rows.jsonl"
    table.write_text("text,price\n,90\nred,10\n")
    objects.write_text('{"text": null, "price": 90}\n{"price": 10}\n')
    for path, texts in ((table, ["", "red"]), (objects, ["", ""])):
        rows = list(read_inputs(path, Columns("text", features="price")))
        assert [texts_of(row)[0] for row in rows] == texts
        assert [row.columns for row in rows] == [{"price": "90"}, {"price": "10"}]


def test_columns_that_are_not_read_are_named(data: Path) -> None:
    (remark,) = collect(data).remarks
    assert remark.startswith("columns that are not read: 'price', 'country', 'worth'; features=")
    assert "'price'" not in collect(data, Columns(features="price")).remarks[0]
    corpus = load_corpus(DataSource(data, columns=Columns(group="text", features="price")))
    assert corpus.fingerprint != load_corpus(DataSource(data)).fingerprint


@pytest.mark.parametrize("model", ["tfidf", "nb-svm", "transformer", "bert"])
def test_the_column_decides_for_every_arm(
    data: Path, tmp_path: Path, counts: Run, reads: Run, model: str
) -> None:
    run = {"tfidf": counts, "transformer": reads}.get(model)
    if run is None:
        more = {} if model == "nb-svm" else SMALL
        run = trained_on(data, model, tmp_path / "run", **more)
    assert run.evaluate().value == 1.0
    answers = load(run.folder.path).predict(
        [Input("lamp number 1", None, LIKE), Input("lamp number 1", None, {"price": 1})]
    )
    assert [answer.label for answer in answers] == ["dear", "cheap"]


@pytest.mark.parametrize("model", ["ridge", "transformer"])
def test_numbers_follow_the_column(data: Path, tmp_path: Path, model: str) -> None:
    more = {} if model == "ridge" else SMALL
    run = trained_on(data, model, tmp_path / "run", "regression", label="worth", **more)
    assert run.evaluate().value > 0.9


def test_without_features_the_texts_tell_nothing(data: Path, tmp_path: Path) -> None:
    run = trained_on(data, "tfidf", tmp_path / "run", features="")
    assert run.evaluate().value < 0.8
    with pytest.raises(RegardError, match="does not read the column 'price'"):
        run.predict(Input("sofa", None, LIKE))


def test_the_score_is_the_sum_of_words_and_columns(counts: Run) -> None:
    answer = counts.predict(Input("table", None, LIKE))
    weighed = counts.task.weigh(counts.model, Input("table", None, LIKE), answer)
    assert weighed.terms["[price]"] > 1 > abs(weighed.terms["[country = DE]"])
    (text,) = counts.task.inputs([Input("table", None, LIKE)])
    assert weighed.score == pytest.approx(abs(counts.model.scores([text])[0, 0]), rel=1e-5)


def test_attribution_has_the_columns_in_its_output(reads: Run) -> None:
    text = Input("table number 1", None, LIKE)
    found = reads.attribute(text).json()
    outputs = reads.task.outputs(reads.network, [text])[0]
    assert found["output"] == pytest.approx(float(outputs.max()), abs=1e-4)
    with pytest.raises(RegardError, match="features= cannot be exported"):
        reads.task.exported()


def test_commands_take_columns(regard: Command, counts: Run, data: Path, tmp_path: Path) -> None:
    run = counts.folder.path
    said = regard("predict", run, "sofa", "--feature", "price=9", "--feature", "country=FR")
    assert said.out.startswith("dear\t")
    out = tmp_path / "answers.csv"
    assert regard("predict", run, "--file", data, "--out", out).status == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["label"] for row in rows] == [row[3] for row in ROWS]
    assert rows[0]["price"] == "2"
    shown = json.loads(regard("show", run, "lamp", "--feature", "price=9", "--json").out)
    assert shown["columns"] == {"price": "9"}
    out.write_text("text,price,country\nsofa,9,FR\n,9,FR\n,2,DE\n")
    said = regard("predict", run, "--file", out)
    assert [line.partition("\t")[0] for line in said.out.splitlines()] == ["dear", "dear", "cheap"]
    assert "empty texts: 2 of 3; their predictions are meaningless" in said.err
    page = tmp_path / "page.html"
    assert regard("report", run, "sofa", "--feature", "price=9", "--out", page).status == 0
    assert "sofa [price: 9]" in page.read_text()
    assert json.loads(regard("evaluate", run, "--data", data, "--json").out)["value"] == 1.0


def test_commands_refuse_wrong_columns(regard: Command, counts: Run, data: Path) -> None:
    run = counts.folder.path
    for words, says in (
        (["sofa"], "reads further columns, 'price', 'country'; give them, too (--feature"),
        (["sofa", "--feature", "price"], "--feature 'price' is not NAME=VALUE"),
        (["sofa", "--feature", "colour=red"], "does not read the column 'colour'"),
        (["sofa", "--feature", "price=much"], "column price: 'much' is not a number"),
        (["--file", data, "--feature", "price=1"], "--feature belongs to TEXT"),
    ):
        assert says in regard.refused("predict", run, *words)


def test_the_server_takes_columns(counts: Run, reads: Run) -> None:
    folders = {"counts": counts.folder.path, "reads": reads.folder.path}
    with TestClient(create_app(Registry(folders)), base_url="http://127.0.0.1") as client:

        def ask(path: str, **body: object) -> dict[str, object]:
            return client.post(path, json=body).json()

        rows = client.get("/runs").json()["runs"]
        assert [row["features"] for row in rows] == [["price", "country"]] * 2
        one = ask("/predict", run="counts", text="sofa", columns={"price": 9, "country": None})
        assert (one["label"], one["columns"]) == ("dear", {"price": "9", "country": ""})
        both = {"texts": ["lamp number 1"] * 2, "rows": [LIKE, {"price": 1.0}]}
        answers = ask("/predict", run="reads", **both)["predictions"]
        assert [x["label"] for x in answers] == ["dear", "cheap"]
        assert ask("/predict", run="counts", text="sofa", columns={"price": [1]}) == {
            "error": "columns.price: must be a text, a number, true, false or null"
        }
        said = ask("/predict", run="counts", text="sofa", columns={"price": 9, "country": True})
        assert said["columns"]["country"] == "true"
        for fault in ({"colour": "red"}, {"price": "much"}, {}):
            assert "error" in ask("/predict", run="counts", text="sofa", columns=fault)
        dear = ask("/look", run="reads", text="lamp number 1", columns=LIKE)["answer"]
        cheap = ask("/look", run="reads", text="lamp number 1", columns={"price": 1})["answer"]
        assert dear["label"] != cheap["label"]
        offered = client.get("/examples", params={"run": "counts"}).json()["inputs"]
        assert all(row["columns"].keys() == {"price", "country"} for row in offered)


def test_disagreements_are_filtered_by_their_columns() -> None:
    row = {"text": "sofa", "columns": LIKE, "truth": "dear", "a": "dear", "b": "cheap"}
    asked = [DisagreementsRequest(a="x", b="y", contains=words) for words in ("", "FR", "red")]
    assert [each.matches({**row, "right": "a"}) for each in asked] == [True, True, False]


def test_columns_of_a_damaged_file_are_an_error_that_its_readers_know() -> None:
    with pytest.raises(TypeError):
        from_json({"text": "sofa", "columns": [1]})
