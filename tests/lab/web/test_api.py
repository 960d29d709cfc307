"""What the API answers, and what it refuses by which limit."""

import base64
import json
import shutil
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import regard
from regard.analysis.layer_attention import LayerAttention
from regard.analysis.record import record
from regard.attention import Attended
from regard.attention.kernels.summary import Summary
from regard.core.errors import RegardError
from regard.lab.tasks import texts as labelled_texts
from regard.lab.tasks.pretraining import task as pretraining
from regard.lab.tasks.writing import streaming
from regard.lab.tasks.writing.streaming import Drawing, Piece, Reread
from regard.lab.web import pretrained
from regard.lab.web.metrics import Metrics
from regard.lab.web.registry import Registry, find
from regard.lab.web.served_model import ServedRun, opened
from tests.lab.web.conftest import Ask, in_this_process

TEXT = "not a good film at all"


def test_runs_are_listed_without_loading_a_model(client: Ask) -> None:
    found = {run["name"]: run for run in client("GET", "/runs").json()["runs"]}
    assert set(found) == {"labels", "counts", "writes", "goes", "hugging"}
    ways = {name: row["writes"] for name, row in found.items()}
    assert ways == {"labels": "", "counts": "", "writes": "another", "goes": "on", "hugging": "on"}
    assert found["labels"]["answers_in_texts"] is False
    assert found["labels"]["attends"] is True
    assert found["labels"]["attributes"] is False
    assert (found["labels"]["layers"], found["labels"]["heads"]) == (2, 2)
    assert found["counts"]["attends"] is False
    assert found["writes"]["answers_in_texts"] is True
    assert "regard_models_loaded 0.0\n" in client("GET", "/metrics").text


@pytest.mark.parametrize("data", [None, [], "reviews"])
def test_an_environment_without_its_data_hides_no_other_run(
    folder: Path, tmp_path: Path, data: Any
) -> None:
    shutil.copytree(folder / "labels", tmp_path / "odd")
    path = tmp_path / "odd" / "env.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": data}))
    registry = Registry({"odd": tmp_path / "odd", "labels": folder / "labels"})
    with in_this_process(registry) as client:
        odd, labels = client.get("/runs").json()["runs"]
    assert odd["name"] == "odd"
    assert f"{path}: data" in odd["error"]
    assert labels["labels"] == ["negative", "positive"]


class Own:
    """A subject that is no run, as somebody's program serves it."""

    residual, temperature = 0.5, 0.0

    def __init__(self, name: str, answers_in_texts: bool) -> None:
        self.name, self.answers_in_texts = name, answers_in_texts

    def count(self, text: str) -> int:
        return len(text.split())

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        return [{"label": "fine", "probabilities": {"fine": 1.0}} for _ in texts]

    def unknown(self, text: str) -> list[str]:
        return []

    def attention(self, text: str) -> list[LayerAttention]:
        return []

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        raise RegardError("it writes nothing")

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        raise RegardError("it wrote nothing")


def test_a_subject_of_ones_own_is_listed_by_what_it_does(folder: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    def open_(name: str, path: Path) -> Own:
        asked.append(name)
        if name == "broken":
            raise RegardError("its weights are gone")
        return Own(name, answers_in_texts=name != "mine")

    names = ("mine", "theirs", "broken")
    registry = Registry(
        {**dict.fromkeys(names, tmp_path), "labels": folder / "labels"}, {}, 1, open_
    )
    with in_this_process(registry) as client:
        mine, theirs, broken, labels = client.get("/runs").json()["runs"]
        client.get("/runs")
        said = client.post("/predict", json={"run": "mine", "text": "a"}).json()
    assert (mine["answers_in_texts"], mine["writes"]) == (False, "")
    assert (theirs["answers_in_texts"], theirs["writes"]) == (True, "another")
    assert set(mine) == set(labels), "a page reads them alike"
    assert broken == {"name": "broken", "error": "its weights are gone"}
    assert labels["task"] == "classification"
    assert said["label"] == "fine"
    assert asked == ["mine", "theirs", "broken", "broken", "mine"], "each is loaded for it once"


@pytest.mark.parametrize("name", ["labels", "counts"])
def test_predict_says_what_the_run_says(client: Ask, folder: Path, name: str) -> None:
    run = regard.load(folder / name)
    one = client("POST", "/predict", {"run": name, "text": TEXT}).json()
    said = run.predict(TEXT).json()
    chances = one.pop("probabilities")
    same = {key: value for key, value in said.items() if key != "probabilities"}
    assert one == {"run": name, "text": TEXT, **same}
    # The server may have other threads than this process, and they round differently.
    assert chances == pytest.approx(said["probabilities"], rel=1e-4)
    texts = [TEXT, "", "fine"]
    several = client("POST", "/predict", {"run": name, "texts": texts}).json()["predictions"]
    assert [row["text"] for row in several] == texts
    for row, said in zip(several, run.predict(texts), strict=True):
        assert row["probabilities"] == pytest.approx(said.json()["probabilities"], abs=1e-6)


def test_what_is_not_read_of_a_text_is_counted(folder: Path) -> None:
    subject = ServedRun("goes", regard.load(folder / "goes"))
    rows = subject.predict(["a", "a" * 40])
    assert [row.get("left_out") for row in rows] == [None, 8]


def test_unknown_words_are_named(client: Ask) -> None:
    found = client("POST", "/predict", {"run": "labels", "text": "zzz Qqq"}).json()
    assert found["unknown"] == ["zzz", "qqq"]
    look = client("POST", "/look", {"run": "labels", "text": "zzz"}).json()
    assert look["answer"]["unknown"] == ["zzz"]


def test_attention_is_that_of_the_run(client: Ask, folder: Path) -> None:
    layers = client("POST", "/attention", {"run": "labels", "text": TEXT}).json()["layers"]
    wanted = regard.load(folder / "labels").attention(TEXT)
    assert [layer["name"] for layer in layers] == [seen.layer for seen in wanted]
    for layer, seen in zip(layers, wanted, strict=True):
        assert layer["tokens"] == seen.tokens
        np.testing.assert_allclose(layer["weights"], seen.weights, atol=1e-7)
    one = client("POST", "/attention", {"run": "labels", "text": TEXT, "layer": 2, "head": 2})
    np.testing.assert_allclose(one.json()["layers"][0]["weights"], wanted[1].weights[1:], atol=1e-7)
    assert client("POST", "/attention", {"run": "counts", "text": TEXT}).json()["layers"] == []


def test_a_look_and_a_matrix_are_the_weights_to_a_byte(client: Ask, folder: Path) -> None:
    look = client("POST", "/look", {"run": "labels", "text": TEXT}).json()
    wanted = regard.load(folder / "labels").attention(TEXT)
    assert [layer["kind"] for layer in look["layers"]] == ["self", "self", "pool", "rollout"]
    packed = zlib.decompress(base64.b64decode(look["layers"][1]["packed"][1]))
    body = {"run": "labels", "text": TEXT, "layer": 2, "head": 2}
    assert client("POST", "/matrix", body).content == packed
    rows, columns = wanted[1].weights[1].shape
    scales = np.frombuffer(packed, "<f4", rows)
    steps = np.frombuffer(packed, np.uint8, offset=4 * rows).reshape(rows, columns)
    weights = scales[:, None] * steps / 255
    assert np.abs(weights - wanted[1].weights[1]).max() <= scales.max() / 510 + 1e-7


def test_translate_and_generate_write_what_the_run_writes(client: Ask, folder: Path) -> None:
    run = regard.load(folder / "writes")
    said = client("POST", "/translate", {"run": "writes", "text": "ABCD"}).json()
    assert said["written"] == run.predict("ABCD").text
    best = client("POST", "/translate", {"run": "writes", "text": "ABCD", "best": 3}).json()["best"]
    assert [text["written"] for text in best] == [t.text for t in run.best(["ABCD"], 3)[0]]
    answer = client("POST", "/generate", {"run": "writes", "text": "ABCD"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[-1] == {"done": True}
    assert lines[-2]["text"] == said["written"]
    assert not any(line["end"] for line in lines[:-2])
    assert all(0 < line["probability"] <= 1 for line in lines[:-1])
    drawn = [
        client("POST", "/generate", {"run": "writes", "text": "AB", "temperature": 3, "seed": s})
        for s in (1, 1, 2)
    ]
    assert drawn[0].text == drawn[1].text != drawn[2].text


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/predict", {"run": "labels", "texts": ["a"] * 4}, 422, "texts: at most 3 here, not 4"),
        ("/predict", {"run": "labels", "text": "a " * 30}, 422, "tokens: at most 20 here, not 30"),
        ("/look", {"run": "labels", "text": "a " * 30}, 422, "tokens: at most 20 here, not 30"),
        ("/predict", {"run": "labels", "text": "a" * 3_000}, 413, "body: at most 2,000 here"),
        ("/generate", {"run": "writes", "text": "A", "new_tokens": 257}, 422, "new_tokens: at"),
        ("/generate", {"run": "labels", "text": "A"}, 400, "does not generate text; use"),
        ("/translate", {"run": "labels", "text": "A"}, 400, "does not generate text; use"),
        ("/translate", {"run": "writes", "text": "A", "best": 11}, 422, "best: at most 10"),
        ("/attention", {"run": "labels", "text": "a " * 12}, 422, "numbers: at most 500 here"),
        ("/attention", {"run": "labels", "text": "a", "layer": 4}, 400, "attention layers 1 to 3"),
        ("/attention", {"run": "labels", "text": "a", "head": 3}, 400, "has heads 1 to 2"),
        ("/matrix", {"run": "labels", "text": "a", "layer": 9}, 400, "layer 9"),
        ("/predict", {"run": "label", "text": "a"}, 400, "did you mean labels?"),
        ("/predict", {"run": "labels"}, 422, "give either text or texts"),
        ("/predict", {"run": "labels", "text": "a", "txt": 1}, 422, "txt: "),
        ("/predict", {"run": "labels", "text": 7}, 422, "text: "),
        ("/predict", [], 422, "body: "),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line(
    client: Ask, path: str, body: object, status: int, says: str
) -> None:
    answer = client("POST", path, body)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert says in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"run": 1e999}', b"[" * 900, b"1" * 1900])
def test_bytes_that_are_no_request(client: Ask, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = client("POST", "/predict", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/x-www-form-urlencoded"}])
def test_a_body_that_does_not_say_it_is_json(client: Ask, headers: dict[str, str]) -> None:
    answer = client("POST", "/predict", content=b'{"run": "labels", "text": "a"}', headers=headers)
    assert (answer.status_code, answer.json()) == (
        422, {"error": "body: not read as JSON; send the header content-type: application/json"}
    )  # fmt: skip


def test_a_body_without_a_length_is_counted_as_it_comes(client: Ask) -> None:
    pieces = (b" " * 700 for _ in range(4))
    headers = {"content-type": "application/json"}
    answer = client("POST", "/predict", content=pieces, headers=headers)
    assert answer.status_code == 413
    assert "body: at most 2,000 here" in answer.json()["error"]


def made(_: object) -> None:
    raise AssertionError("weights were made")


@pytest.mark.parametrize("long", [1_000_000, 3])
@pytest.mark.parametrize("name", ["labels", "goes", "hugging", "writes"])
def test_weights_over_their_limit_are_never_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, long: int
) -> None:
    for module in (labelled_texts, streaming, pretraining, pretrained):  # long: summed up
        monkeypatch.setattr(module, "record", partial(record, long=long))
    text = "ABCD" if name == "writes" else TEXT
    subject = opened(name, folder / name)
    bodies: list[dict[str, Any]] = [{"run": name, "text": text}]
    sizes = [sum(seen.weights.size for seen in subject.attention(text))]
    if name != "labels":
        written = [piece.id for piece in subject.write(text, Drawing(5)) if piece.id is not None]
        bodies.append({**bodies[0], "written": written})
        sizes.append(sum(seen.weights.size for seen in subject.reread(text, written).layers))
    for body, size in zip(bodies, sizes, strict=True):
        with in_this_process(find([folder]), weights=size) as client:
            assert client.post("/look", json=body).status_code == 200
        with (
            monkeypatch.context() as never,
            in_this_process(find([folder]), weights=size - 1) as client,
        ):
            never.setattr(Attended, "weights", property(made))
            never.setattr(Summary, "dense", made)
            for path in ("/look", "/attention"):
                answer = client.post(path, json=body)
                assert answer.status_code == 422
                assert answer.json()["error"].startswith(
                    f"weights: at most {size - 1:,} here, not {size:,}; "
                )


def test_half_surrogates_are_question_marks(client: Ask) -> None:
    body = b'{"run": "labels", "text": "\\ud800 film"}'
    answer = client("POST", "/predict", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["text"]) == (200, "? film")


def test_disagreements_count_the_test_split(client: Ask, folder: Path) -> None:
    found = client("GET", "/disagreements", params={"a": "labels", "b": "counts"}).json()
    ours, theirs = (regard.load(folder / name).evaluate() for name in ("labels", "counts"))
    assert sum(found["right"].values()) == ours.n
    assert found["right"]["a"] == int((ours.correct & ~theirs.correct).sum())
    assert found["found"] == int((ours.correct != theirs.correct).sum()) > 20
    assert len(found["shown"]) == 20
    assert all(row["a"] != row["b"] for row in found["shown"])
    refused = client("GET", "/disagreements", params={"a": "labels", "b": "writes"})
    assert (refused.status_code, "different test texts" in refused.json()["error"]) == (400, True)


def test_disagreements_come_in_pages_and_by_what_is_asked(client: Ask) -> None:
    def page(**more: Any) -> Any:
        both = {"a": "labels", "b": "counts"}
        return client("GET", "/disagreements", params={**both, **more}).json()

    def rows(**more: Any) -> list[dict[str, str]]:
        found = page(limit=200, **more)["found"]
        pages = [page(limit=200, offset=offset, **more) for offset in range(0, found, 200)]
        kept = [row for one in pages for row in one["shown"]]
        assert len(kept) == found
        return kept

    whole = rows()
    assert len(whole) > 200
    assert page(offset=7, limit=5)["shown"] == whole[7:12]
    assert page(offset=10_000)["shown"] == []
    for key, value in (("right", "b"), ("truth", "negative")):
        wanted = [row for row in whole if row[key] == value]
        assert 0 < len(wanted) < len(whole)
        assert rows(**{key: value}) == wanted
    word = whole[0]["text"].split()[-2]
    wanted = [row for row in whole if word.casefold() in row["text"].casefold()]
    assert 0 < len(wanted) < len(whole)
    assert rows(contains=word.upper()) == wanted
    assert page(contains="no such words")["found"] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("right", "c"), ("limit", 0), ("limit", 201), ("offset", -1), ("contains", "x" * 1001),
     ("page", 1)],
)  # fmt: skip
def test_pages_of_disagreements_that_there_are_not(client: Ask, field: str, value: Any) -> None:
    answer = client("GET", "/disagreements", params={"a": "labels", "b": "counts", field: value})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(f"{field}: ")


def test_examples_are_what_a_run_can_be_asked(client: Ask, folder: Path) -> None:
    found = client("GET", "/examples", params={"run": "goes"}).json()["texts"]
    pieces = [one.text for one in regard.load(folder / "goes").evaluate().examples if one.text]
    assert 0 < len(found) <= 4
    assert all(any(text in piece for piece in pieces) for text in found)
    assert all(len(text) < 30 for text in found)
    assert client("GET", "/examples", params={"run": "hugging"}).json()["texts"] == []
    labelled = client("GET", "/examples", params={"run": "labels"}).json()
    run = regard.load(folder / "labels")
    truth = {example.text: example.label for example in run.evaluate().examples}
    assert len(labelled["texts"]) == 4
    assert labelled["labels"] == {text: truth[text] for text in labelled["texts"]}
    assert labelled["test"] == f"test {run.evaluate().line()}"
    assert labelled["ended"].startswith(f"{run.convergence}: ")


def test_examples_of_long_texts_are_their_beginnings(tmp_path: Path) -> None:
    texts = [f"{i} " + "word " * 100 for i in range(9)]
    rows = [json.dumps({"text": text, "label": "a"}) for text in texts]
    (tmp_path / "predictions.jsonl").write_text("\n".join(rows))
    found = list(Registry({"long": tmp_path}).examples("long"))
    assert found == [text[:276] for text in texts[:4]]
    assert {len(text.split()) for text in found} == {56}
    (tmp_path / "predictions.jsonl").write_text("\n".join([*rows, '{"text": "short"}']))
    assert list(Registry({"long": tmp_path}).examples("long")) == ["short"]


def test_metrics_count_every_request(client: Ask) -> None:
    client("POST", "/predict", {"run": "labels", "text": "a"})
    client("POST", "/predict", {"run": "labels"})
    client("GET", "/nowhere")
    answer = client("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    value = {(s.name, *sorted(s.labels.values())): s.value for f in families for s in f.samples}
    assert value["regard_requests_total", "/predict", "200"] == 1
    assert value["regard_requests_total", "/predict", "422"] == 1
    assert value["regard_requests_total", "404", "other"] == 1
    assert value["regard_request_seconds_count", "/predict"] == 2
    assert value["regard_request_seconds_bucket", "+Inf", "/predict"] == 2
    assert value["regard_queue_length",] == 0
    assert value["regard_answered_total",] == 1
    kinds = {family.name: family.type for family in families}
    assert kinds["regard_requests"] == kinds["regard_answered"] == "counter"
    assert kinds["regard_request_seconds"] == "histogram"
    assert kinds["regard_peak_memory_bytes"] == "gauge"
    own = [s.name for f in families for s in f.samples if not s.name.startswith("regard_")]
    assert own == []  # nothing of the process or of Python beside them
    assert "_created" not in answer.text


def test_two_servers_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.add("/predict", 200, 0.02)
    assert b'regard_requests_total{path="/predict",status="200"} 1.0\n' in one.text()
    assert b"/predict" not in other.text()


def test_the_schema_is_there_and_its_pages_are_not(client: Ask) -> None:
    schema = client("GET", "/openapi.json").json()
    assert set(schema["paths"]) == {
        "/runs", "/comparison", "/disagreements", "/metrics", "/health", "/predict", "/translate",
        "/generate", "/attention", "/look", "/matrix", "/examples", "/parts", "/without", "/patch",
        "/attribute",
    }  # fmt: skip
    assert client("GET", "/docs").status_code == client("GET", "/redoc").status_code == 404
