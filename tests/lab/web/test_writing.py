"""What is shown of a text while it is written is what the model looked at as it wrote it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.analysis.record import record, table
from regard.core.errors import RegardError
from regard.lab.reports.run import look
from regard.lab.tasks.writing.searching import Search
from regard.lab.tasks.writing.streaming import Drawing
from regard.lab.web.served_model import ServedRun
from tests.lab.small_runs import trained_run
from tests.lab.web.conftest import Ask, turned

TEXTS = ["data=biographies", "length=48", "examples=120", "tokenizer=characters"]
GPT = ["width=16", "heads=2", "layers=2", "feedforward=24", "dropout=0"]
QUICK = ["steps=3", "batch_tokens=400", "threads=1", "precision=fp32"]
MADE: dict[str, tuple[str, str, list[str]]] = {
    "goes-on": ("language-modeling", "gpt", [*TEXTS, *GPT]),
    "spans": ("span-corruption", "t5", [*TEXTS, *GPT]),
    "questions": ("birthplace", "gpt", ["data=biographies", "length=64", *GPT]),
    "turns": ("reverse", "transformer", GPT),
    "looks-back": ("reverse", "lab-6", ["width=8"]),
}
ASKED = {
    "goes-on": "Khatchig was born",
    "spans": "Maria was <extra_id_0> in Rome",
    "questions": "Where was Khatchig born?",
    "turns": "ABCD",
    "looks-back": "ABCD",
}


Subjects = dict[str, ServedRun]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    home = tmp_path_factory.mktemp("writers")
    strings = turned(home)
    for name, (task, model, settings) in MADE.items():
        settings = [strings, *settings] if task == "reverse" else settings
        trained_run(home / name, task, model, [*settings, *QUICK])
    return {name: ServedRun(name, regard.load(home / name)) for name in MADE}


def written(subject: ServedRun, text: str, most: int = 9) -> list[Any]:
    return list(subject.write(text, Drawing(most, temperature=1.3, seed=5)))


@pytest.mark.parametrize("name", MADE)
def test_what_was_written_is_read_again_token_by_token(subjects: Subjects, name: str) -> None:
    subject, text = subjects[name], ASKED[name]
    pieces = written(subject, text)
    assert len(pieces) == 9 or pieces[-1].end
    again = subject.reread(text, [piece.id for piece in pieces])
    for was, now in zip(pieces, again.pieces, strict=True):
        assert (was.token, was.text, was.id, was.end) == (now.token, now.text, now.id, now.end)
        assert now.probability == pytest.approx(was.probability, rel=1e-4)
    for seen in again.layers:
        size = (len(seen.asking or seen.tokens), len(seen.tokens))
        assert seen.weights.shape[1:] == size
        np.testing.assert_allclose(seen.weights.sum(-1), 1, atol=1e-5)


def test_they_are_the_weights_it_wrote_with(subjects: Subjects) -> None:
    subject, text = subjects["goes-on"], ASKED["goes-on"]
    with record(subject.run.network) as recording:  # a call for the prompt, then one for each token
        pieces = written(subject, text)
    again = subject.reread(text, [piece.id for piece in pieces])
    read = len(subject.run.tokens(text))
    assert again.read == read
    for seen in again.layers:
        calls = [table(kept)[0].numpy() for name, kept in recording.layers if name == seen.layer]
        assert len(calls) == len(pieces)
        np.testing.assert_allclose(seen.weights[:, :read, :read], calls[0], atol=1e-6)
        for step, call in enumerate(calls[1:]):
            row = read + step
            np.testing.assert_allclose(seen.weights[:, row, : row + 1], call[:, 0], atol=1e-6)
            assert (seen.weights[:, row, row + 1 :] == 0).all()


def test_of_a_text_gone_on_with_they_are_those_of_the_whole_text(subjects: Subjects) -> None:
    subject, text = subjects["goes-on"], ASKED["goes-on"]
    tries = (list(subject.write(text, Drawing(9, 1.3, seed=seed))) for seed in range(99))
    pieces = next(found for found in tries if all(len(piece.token) == 1 for piece in found))
    again = subject.reread(text, [piece.id for piece in pieces])
    whole = subject.run.attention(text + pieces[-1].text)
    assert [seen.tokens for seen in again.layers] == [seen.tokens for seen in whole]
    for seen, wanted in zip(again.layers, whole, strict=True):
        assert seen.layer == wanted.layer
        np.testing.assert_allclose(seen.weights, wanted.weights, atol=1e-6)


@pytest.mark.parametrize("name", ["questions", "turns", "looks-back"])
def test_of_its_own_answer_they_are_those_of_the_run(subjects: Subjects, name: str) -> None:
    subject, text = subjects[name], ASKED[name]
    task, network = subject.run.task, subject.run.network
    ((said,),) = task.write(network, [text])
    tokens, end = said.tokens, [task.end] if name != "questions" and said.ended else []
    again = {seen.layer: seen for seen in subject.reread(text, [*tokens, *end]).layers}
    wanted = subject.run.attention(text)
    assert wanted
    for seen in wanted:
        found = again[seen.layer]
        assert (found.tokens, found.asking) == (seen.tokens, seen.asking)
        np.testing.assert_allclose(found.weights, seen.weights, atol=1e-6)


def test_a_translator_shows_both_texts_and_what_joins_them(subjects: Subjects) -> None:
    layers = {seen.layer: seen for seen in subjects["turns"].attention("ABCD")}
    inside = [seen for seen in layers.values() if seen.asking is None]
    assert {tuple(seen.tokens[:1]) for seen in inside} == {("A",), ("[BEGIN]",)}
    assert len(layers) == 6
    for seen in inside:
        if seen.tokens[0] == "[BEGIN]":
            assert (np.triu(seen.weights[0], 1) == 0).all()


@pytest.mark.parametrize("name", ["goes-on", "questions"])
def test_a_report_holds_what_a_decoder_looked_at_while_it_went_on(
    subjects: Subjects, name: str
) -> None:
    subject, text = subjects[name], ASKED[name]
    task, network = subject.run.task, subject.run.network
    with subject.run.computing():
        ((best,),) = task.write(network, [text])  # the run's own: drawn by a seed, or greedily
    again = subject.reread(text, [*best.tokens, *([task.end] if best.ended else [])])
    found = look(subject.run, text)
    assert found["read"] == again.read == len(subject.run.tokens(text))
    assert found["axes"][0] == again.layers[0].tokens
    assert len(found["axes"][0]) == found["read"] + len(best.tokens)
    assert found["answer"]["written"] == task.decode(best.tokens)


def test_a_report_of_a_translator_holds_both_texts_and_what_joins_them(subjects: Subjects) -> None:
    subject = subjects["turns"]
    kinds = [layer["kind"] for layer in look(subject.run, "ABCD")["layers"]]
    assert sorted(kinds) == sorted(["self"] * 4 + ["cross"] * 2 + ["rollout"] * 2)
    assert "read" not in look(subject.run, "ABCD")


def test_of_filled_spans_they_are_those_of_what_it_writes(subjects: Subjects) -> None:
    subject, text = subjects["spans"], ASKED["spans"]
    said = subject.predict([text])[0]["written"]
    across = [seen for seen in subject.attention(text) if seen.asking is not None]
    assert len(across) == 2
    assert "".join(token for token in across[0].asking or [] if token != "[END]") == said


def test_what_it_never_wrote_is_refused(subjects: Subjects) -> None:
    size = subjects["goes-on"].run.task.sizes["vocabulary"]
    for numbers in ([0], [size], [-1]):
        with pytest.raises(RegardError, match=r"the model cannot write token -?\d+ at position 1"):
            subjects["goes-on"].reread("Maria", numbers)
    end = subjects["goes-on"].run.task.end
    with pytest.raises(RegardError, match="at position 1"):
        subjects["goes-on"].reread("Maria", [end, 5])
    with pytest.raises(RegardError, match=r"at most \d+ tokens for this text, not 99"):
        subjects["turns"].reread("AB", [5] * 99)
    with pytest.raises(RegardError, match="the text has no tokens"):
        subjects["spans"].reread("", [5])
    assert subjects["goes-on"].reread("", [5]).read == 1, "a text from its beginning"
    with pytest.raises(RegardError, match="written has no tokens; leave it out"):
        subjects["turns"].reread("AB", [])


def test_past_its_context_it_writes_by_a_window_and_shows_the_last(subjects: Subjects) -> None:
    subject, text = subjects["goes-on"], ASKED["goes-on"]
    context = subject.run.task.context
    with record(subject.run.network) as recording:
        found = (list(subject.write(text, Drawing(70, 1.3, seed=s))) for s in range(99))
        pieces = next(pieces for pieces in found if len(pieces) == 70 and not pieces[-1].end)
    read = len(subject.run.tokens(text))
    assert read + 70 > context
    again = subject.reread(text, [piece.id for piece in pieces])
    assert [piece.text for piece in again.pieces] == [piece.text for piece in pieces]
    chances = [piece.probability for piece in again.pieces]
    assert chances == pytest.approx([piece.probability for piece in pieces], rel=1e-4)
    window = len(again.layers[0].tokens)
    assert context // 2 <= window <= context
    assert again.read == read - (read + 70 - window)
    names = subject.run.task.names([piece.id for piece in pieces])
    assert again.layers[0].tokens[again.read if again.read > 0 else 0 :] == names[-window:]
    for seen in again.layers:  # the last call is of the last token that was read: the one before
        last = [table(kept)[0].numpy() for name, kept in recording.layers if name == seen.layer][-1]
        size = last.shape[-1]
        np.testing.assert_allclose(seen.weights[:, size - 1, :size], last[:, -1], atol=1e-6)


def test_past_its_context_it_writes_what_the_run_writes(subjects: Subjects) -> None:
    subject, text = subjects["goes-on"], ASKED["goes-on"]
    pieces = list(subject.write(text, Drawing(70)))
    ((said,),) = subject.run.best([text], Search(longest=70))
    assert pieces[-1].text == said.text
    assert len(pieces) > subject.run.task.context - len(subject.run.tokens(text))


def test_without_a_temperature_it_is_drawn_by_the_runs_own(client: Ask) -> None:
    body = {"run": "goes", "text": "Maria was", "new_tokens": 12}
    drawn, told, likeliest = (
        client("POST", "/generate", {**body, **more}).text
        for more in ({}, {"temperature": 0.8}, {"temperature": 0})
    )
    assert drawn == told != likeliest
    rows = {row["name"]: row for row in client("GET", "/runs").json()["runs"]}
    kept = {name: row["temperature"] for name, row in rows.items()}
    assert kept == {"labels": 0, "counts": 0, "writes": 0, "goes": 0.8, "hugging": 0.8}
    ours = {"run": "writes", "text": "ABCD"}
    assert (
        client("POST", "/generate", ours).text
        == client("POST", "/generate", {**ours, "temperature": 0}).text
    )
    schema = client("GET", "/openapi.json").json()["components"]["schemas"]["WritingRequest"]
    assert "0.8 for a language model" in schema["properties"]["temperature"]["description"]
    assert "its last half is read again" in schema["properties"]["new_tokens"]["description"]


def test_the_page_asks_for_what_it_was_told(client: Ask, folder: Path) -> None:
    text = "Maria was"
    lines = client("POST", "/generate", {"run": "goes", "text": text, "new_tokens": 8}).text
    pieces = [json.loads(line) for line in lines.splitlines()][:-1]
    numbers = [piece["id"] for piece in pieces]
    look = client("POST", "/look", {"run": "goes", "text": text, "written": numbers}).json()
    assert look["read"] == len(text)
    assert look["answer"]["written"] == pieces[-1]["text"]
    for was, now in zip(pieces, look["answer"]["pieces"], strict=True):
        assert now["probability"] == pytest.approx(was.pop("probability"), rel=1e-4)
        assert was.items() <= now.items()
    whole = regard.load(folder / "goes").attention(text + pieces[-1]["text"])
    body = {"run": "goes", "text": text, "written": numbers}
    asked = client("POST", "/attention", {**body, "layer": 2, "head": 1}).json()["layers"][0]
    np.testing.assert_allclose(asked["weights"][0], whole[1].weights[0], atol=1e-6)
    packed = client("POST", "/matrix", {**body, "layer": 2, "head": 1}).content
    rows = len(whole[1].tokens)
    assert len(packed) == 4 * rows + rows * rows


@pytest.mark.parametrize(
    ("run", "numbers", "status", "says"),
    [
        ("goes", [5] * 300, 422, "new_tokens: at most 256 here, not 300"),
        ("goes", [10**9], 400, "the model cannot write token"),
        ("goes", [-1], 422, "written.0: "),
        ("goes", ["a"], 422, "written.0: "),
        ("goes", [5] * 18, 422, "tokens: at most 20 here, not 23"),
        ("labels", [5], 400, "does not generate text; use"),
        ("writes", [], 400, "written has no tokens; leave it out"),
    ],
)
def test_what_was_not_written_is_refused_in_a_line(
    client: Ask, run: str, numbers: list[Any], status: int, says: str
) -> None:
    answer = client("POST", "/look", {"run": run, "text": "ABCDE", "written": numbers})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert says in answer.json()["error"]
