"""Runs that are pretrained, runs that begin from them, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.pairs import Pair
from regard.lab.runs.build import begin_from, prepare
from regard.lab.runs.config import Config
from regard.lab.studies.job import _score
from regard.lab.tasks import TASKS
from regard.lab.tasks.birthplace.evaluation import COMMONEST, answer_evaluation
from regard.lab.tasks.writing.evaluation import Text
from regard.lab.tasks.writing.searching import Search
from tests.lab.small_runs import finished

SMALL = ["width=16", "heads=2", "layers=1", "feedforward=24", "length=40", "threads=1", "dropout=0"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A GPT that has read a little of the invented people's biographies."""
    place = tmp_path_factory.mktemp("runs") / "pretrained"
    given = [*SMALL, "steps=8", "batch_tokens=600", "learning_rate=0.003"]
    return finished(runs.open_or_start(place, "birthplace-pretrain", "gpt", given))


def test_a_pretrained_run_judges_and_goes_on(pretrained, tmp_path):
    judged = pretrained.evaluate()
    assert judged.low < judged.value < judged.high
    assert not pretrained.held_out, "birthplaces are judged by what was read"
    assert len(repr(judged)) < 500
    assert judged.value == pytest.approx(np.exp(-judged.other_metrics["loss"]))
    assert judged.n == sum(judged.sizes) > 5_000
    assert judged.json()["bits"] == pytest.approx(judged.other_metrics["loss"] / np.log(2))
    groups = _score(pretrained, 0.0).groups
    assert len(groups) == judged.n
    assert len(set(groups)) == len(judged.examples), (
        "tokens of a chunk are one group in comparisons"
    )
    again = pretrained.task.restore(judged.rows(), "x")
    assert again.value == pytest.approx(judged.value, abs=1e-6)
    assert np.array_equal(again.correct, judged.correct)
    said = pretrained.predict(["Ada", "Bela was"])
    assert said[1].text == pretrained.predict("Bela was").text
    (tmp_path / "a.txt").write_text("Ada Balby was born in Arden .\n")
    assert pretrained.evaluate(tmp_path / "a.txt").n < 40
    with pytest.raises(RegardError, match="this task evaluates texts without labels"):
        pretrained.evaluate(tmp_path / "a.txt", label="verdict")
    looked = pretrained.attention("Ada Balby")
    assert looked[0].tokens == list("Ada Balby")
    assert looked[0].weights.shape == (2, 9, 9)
    assert pretrained.tokens("A[MASK]a") == ["A", "[MASK]", "a", "[MASK]"]


def test_how_a_text_goes_on_is_searched_for_or_drawn(pretrained):
    texts = ["Ada", "Bela was"]
    greedy = pretrained.predict(texts)
    assert [[text] for text in greedy] == pretrained.best(texts, 1)
    assert [len(text.text) for text in greedy] == [40 - 3, 40 - 8], "as much as they leave of 40"
    shorts = pretrained.best(texts, Search(longest=3))
    assert [text.text for (text,) in shorts] == [text.text[:3] for text in greedy]
    threes = pretrained.best(texts, Search(beam=3, best=3, longest=3))
    for several, (one,) in zip(threes, shorts, strict=True):
        assert len({text.text for text in several}) == 3
        assert max(text.log_probability for text in several) >= one.log_probability - 1e-4
    drawing = Search(temperature=2.0, seed=3)
    drawn = pretrained.best(texts, drawing)
    assert drawn == pretrained.best(texts, drawing)
    assert drawn != pretrained.best(texts, Search(temperature=2.0, seed=4))
    assert pretrained.best(texts, Search(longest=9_999)) == pretrained.best(texts, 1)
    assert [text.text for text in pretrained.best([""], 3)[0]] == [""]
    assert pretrained.left_out(["a" * 20, "a" * 26]) == [0, 6]
    assert pretrained.task.keeps == "tail"


def test_a_run_begins_from_the_weights_the_tokens_and_the_settings_of_another(pretrained, tmp_path):
    given = [f"init={pretrained.folder.path}", "steps=1", "threads=1", "learning_rate=1e-9"]
    run = finished(runs.open_or_start(tmp_path / "fine", "birthplace", "gpt", given))
    assert run.config.network == pretrained.config.network
    assert run.config.data.length == 40
    assert run.task.tokenizer.sha256 == pretrained.task.tokenizer.sha256
    theirs = pretrained.network.state_dict()
    for name, value in run.network.state_dict().items():
        assert torch.allclose(value, theirs[name], atol=1e-6), name
    begun = run.folder.environment()["init"]
    assert begun["taken"] == sum(value.numel() for value in theirs.values())
    assert begun["left"] == begun["new"] == []
    assert len(begun["sha256"]) == 64
    judged = run.evaluate()
    assert judged.n == 60
    assert judged.trivial[COMMONEST] == pytest.approx(4 / 60)
    with pytest.raises(RegardError, match="a file of questions has no column names"):
        run.evaluate(tmp_path / "questions.tsv", label="place")
    assert finished(runs.load(tmp_path / "fine")).complete


def test_data_of_the_run_that_an_answering_one_begins_from(pretrained):
    config = Config.make("birthplace", "gpt", [f"init={pretrained.folder.path}", "width=32"])
    assert config.data.data == "biographies"
    assert config.network.width == 32
    assert config.network.layers == 1


def test_a_table_is_judged_by_the_column_that_the_run_learned_from(tmp_path):
    rows = ["id,prose", *(f"{i},the film number {i} was good and long" for i in range(80))]
    (tmp_path / "mine.csv").write_text("\n".join(rows) + "\n")
    tiny = ["width=8", "heads=2", "layers=1", "steps=1", "threads=1", "text=prose"]
    own = [f"data={tmp_path / 'mine.csv'}", *tiny]
    run = finished(runs.open_or_start(tmp_path / "run", "language-modeling", "gpt", own))
    assert run.evaluate(tmp_path / "mine.csv").line()
    (tmp_path / "plain.txt").write_text("the film was long\n")
    assert run.evaluate(tmp_path / "plain.txt").line()


def test_what_does_not_fit_is_refused_in_one_line(pretrained, tmp_path):
    init = f"init={pretrained.folder.path}"
    run = runs.open_or_start(tmp_path / "wide", "birthplace", "gpt", [init, "width=32", "steps=1"])
    with pytest.raises(
        RegardError,
        match=r"embedding.*has the shape \(\d+, 16\) there and \(\d+, 32\) here; use the",
    ):
        finished(run)
    with pytest.raises(RegardError, match="its own tokenizer with tokenizer=characters; leave"):
        Config.make("birthplace", "gpt", [init, "tokenizer=bpe"])
    assert Config.make("birthplace", "gpt", [init, "tokenizer=characters"]).data.length == 40
    with pytest.raises(RegardError, match="tfidf is a baseline and cannot start from a run"):
        Config.make("classification", "tfidf", [init])
    with pytest.raises(RegardError, match="does not exist"):
        runs.open_or_start(tmp_path / "none", "birthplace", "gpt", [f"init={tmp_path / 'no'}"])
    begun = runs.open_or_start(tmp_path / "begun", "birthplace-pretrain", "gpt", SMALL)
    again = [f"init={begun.folder.path}", "steps=1"]
    run = runs.open_or_start(tmp_path / "early", "birthplace", "gpt", again)
    with pytest.raises(RegardError, match="no completed run to start from"):
        finished(run)


def test_texts_in_other_signs_are_refused(pretrained, tmp_path):
    (tmp_path / "greek.txt").write_text("καλημέρα κόσμε, τι κάνεις\n" * 30)
    with pytest.raises(RegardError, match=r"8[0-9]% of the tokens of these texts are unknown"):
        pretrained.evaluate(tmp_path / "greek.txt")
    lines = [f"{'καλό ΟΧΙ'.split()[i % 2]} έργο {i},{i % 2}" for i in range(60)]
    (tmp_path / "greek.csv").write_text("\n".join(["text,label", *lines]))
    given = [f"data={tmp_path / 'greek.csv'}", f"init={pretrained.folder.path}", "steps=1"]
    with pytest.raises(RegardError, match="of the tokens of these texts are unknown"):
        finished(runs.open_or_start(tmp_path / "run", "classification", "gpt", given))
    lines = [f"ja a{i} b{i} c{i}\tyes d{i} e{i} f{i}" for i in range(60)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget", *lines]))
    given = [f"data={tmp_path / 'pairs.tsv'}", "tokenizer=words", "steps=1"]
    for _ in range(2):  # what was refused is not kept
        with pytest.raises(RegardError, match="use minimum=1 or tokenizer=characters"):
            finished(runs.open_or_start(tmp_path / "pairs", "translation", "gru", given))


def test_texts_held_out_may_have_other_words(tmp_path):
    texts = [f"a film about nothing in particular {i % 3}" for i in range(40)]
    strange = [f"strange{i} word{i}" for i in range(20)]
    (tmp_path / "a.txt").write_text("\n".join([*texts, *strange]))
    task = prepare(Config.make("language-modeling", "gpt", [f"data={tmp_path / 'a.txt'}",
                               "tokenizer=words", "validation=0.3"]))  # fmt: skip
    task.corpus = replace(task.corpus, train=texts, validation=strange, test=strange)
    assert [len(task.split(name)) for name in ("train", "validation", "test")] == [40, 20, 20]


def test_a_model_without_any_of_the_weights_is_refused(pretrained):
    with pytest.raises(RegardError, match="no weight of that run matches this model"):
        begin_from(torch.nn.Linear(3, 2), pretrained.folder.path, "gpt", pretrained.task)
    with pytest.raises(RegardError, match="pretrained is a gpt; a bert can only start from a bert"):
        begin_from(pretrained.network, pretrained.folder.path, "bert", pretrained.task)


REVIEWS = ["data=reviews", "examples=300", "tokenizer=words"]


@pytest.mark.parametrize(
    ("task", "model"),
    [("masked-modeling", "bert"), ("language-modeling", "gpt"), ("span-corruption", "t5")],
)
def test_a_classifier_begins_from_each_kind(tmp_path, task, model):
    before = [*REVIEWS, *SMALL, "steps=6", "batch_tokens=400"]
    first = finished(runs.open_or_start(tmp_path / "first", task, model, before))
    goes_on_or_fills_in(first)
    given = [*REVIEWS, f"init={tmp_path / 'first'}", "steps=2", "batch_tokens=400"]
    assert runs.model_after(tmp_path / "first", "classification") == model
    run = finished(runs.open_or_start(tmp_path / "second", "classification", model, given))
    assert run.config.network.width == 16
    assert len(run.task.tokenizer) == len(first.task.tokenizer)
    begun = run.folder.environment()["init"]
    assert begun["taken"] > 0
    assert {name.split(".")[0] for name in begun["new"]} == {"to_labels"}
    assert run.evaluate().n > 30
    assert run.predict("A charming film").label in ("negative", "positive")
    seen = {layer.layer.partition(".0.")[0] for layer in first.attention("A charming film")}
    assert seen == ({"encoder", "decoder"} if model == "t5" else {"blocks"})
    looked = run.attention("A charming film")
    assert "charming" in looked[0].tokens
    assert looked[0].weights.shape[-1] == len(looked[0].tokens)


def goes_on_or_fills_in(run):
    """Each kind of pretrained run is asked for more than one text, and for too long a one."""
    texts = ["A charming <extra_id_0> film [MASK] .", ""]
    assert len(run.predict(texts)) == 2
    if run.config.task == "masked-modeling":
        with pytest.raises(RegardError, match="this run gives one answer per text"):
            run.best(texts, 2)
    else:
        first, second = run.best(texts, 2)
        assert len({text.text for text in first}) == 2
        ((alone, *_),) = run.best(texts[:1], 2)
        assert (alone.text, alone.ended) == (first[0].text, first[0].ended)
        # Two batch sizes: products are summed in another order, and round differently.
        assert alone.log_probability == pytest.approx(first[0].log_probability, rel=1e-4)
        from_nothing = 2 if run.config.task == "language-modeling" else 1
        assert len(second) == from_nothing
    room = {"masked-modeling": 38, "language-modeling": 20, "span-corruption": 40}
    long = " ".join(["film"] * 50)
    assert run.left_out(["film", long]) == [0, 50 - room[run.config.task]]


def test_what_labels_is_taken_for_the_same_labels_alone(tmp_path):
    def few(name, *labels):
        rows = [
            f"film {i} is {labels[i % len(labels)]},{labels[i % len(labels)]}" for i in range(60)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
        return [f"data={tmp_path / name}.csv", *SMALL, "steps=2", "batch_tokens=200"]

    first = few("first", "good", "bad")
    finished(runs.open_or_start(tmp_path / "a", "classification", "gpt", first))
    for name, labels, new in (("b", ("good", "bad"), set()), ("c", ("sad", "mad"), {"to_labels"}),
                              ("d", ("x", "y", "z"), {"to_labels"})):  # fmt: skip
        given = [*few(name, *labels), f"init={tmp_path / 'a'}"]
        run = finished(runs.open_or_start(tmp_path / name, "classification", "gpt", given))
        begun = run.folder.environment()["init"]["new"]
        assert {entry.partition(".")[0] for entry in begun} == new


def test_answers_and_what_they_are_worth(tmp_path):
    pairs = [Pair("a", "Rome", "x:1"), Pair("b", "Oslo", "x:2"), Pair("c", "Rome", "x:3")]
    written = [Text("Rome", -0.1, True), Text("Rome", -1.0, True), Text("Kiev", -2.0, True)]
    examples = [pair.example for pair in pairs]
    judged = answer_evaluation(examples, written, "Rome")
    assert judged.value == pytest.approx(1 / 3)
    assert judged.json()["baseline"] == pytest.approx(2 / 3)
    assert judged.correct.tolist() == [True, False, False]
    assert [text.confidence for text in judged.answers] == pytest.approx(
        np.exp([-0.1, -1, -2]).tolist()
    )
    entry = TASKS["birthplace"]
    task = entry.prepare(entry.configure({}), None, {"commonest": "Rome"})
    assert task.plain(judged) == b"Rome\nRome\nKiev\n"
    again = task.restore(judged.rows(), "x")
    assert (again.json(), again.answers) == (judged.json(), judged.answers)
    assert "always answering 'Rome': 66.7%" in judged.line()
    bare = answer_evaluation([Pair("a", "", "x:1").example], written[:1], "Rome")
    assert bare.value is None
    assert bare.line() == "1 questions without reference answers, so there is no score"
    assert json.dumps(bare.json())
    with pytest.raises(RegardError, match="x:2: this question has no answer, but others do"):
        answer_evaluation([examples[0], Pair("b", "", "x:2").example], written[:2], "Rome")


def test_a_pretraining_that_was_stopped_goes_on_to_the_same_bits(pretrained, tmp_path):
    given = [*SMALL, "steps=8", "batch_tokens=600", "learning_rate=0.003", "save_every=3"]
    run = runs.open_or_start(tmp_path / "stopped", "birthplace-pretrain", "gpt", given)
    for progress in run.train():
        if progress.step == 5:
            break
    finished(runs.load(tmp_path / "stopped"))
    theirs = pretrained.network.state_dict()
    for name, value in runs.load(tmp_path / "stopped").network.state_dict().items():
        assert torch.equal(value, theirs[name]), name


@pytest.mark.parametrize("model", ["t5", "transformer"])
@pytest.mark.deep
def test_what_was_pretrained_with_sentinels_goes_on_to_write(tmp_path, model):
    given = ["width=8", "heads=2", "layers=1", "feedforward=8", "steps=1", "threads=1"]
    before = finished(runs.open_or_start(tmp_path / "before", "span-corruption", model,
                                       [*given, "data=biographies", "length=16"]))  # fmt: skip
    more = [f"init={tmp_path / 'before'}", "steps=1", "threads=1", "examples=50", "letters=4"]
    run = finished(runs.open_or_start(tmp_path / "back", "reverse", model,
                                    [*more, "learning_rate=1e-9"]))  # fmt: skip
    theirs, ours = before.network.state_dict(), run.network.state_dict()
    tokens = len(run.task.tokenizer)
    tables = [name for name, x in ours.items() if len(x) == tokens + 1]
    assert tables
    for name, value in ours.items():
        wanted = theirs[name]
        if name in tables:
            assert len(wanted) == tokens + 103
            wanted = torch.cat([wanted[:tokens], wanted[tokens + 1 : tokens + 2]])  # [SEP] ends
        assert torch.allclose(value, wanted, atol=1e-6), name
    assert run.folder.environment()["init"]["new"] == []
    assert isinstance(run.predict("ab").text, str)


def test_a_budget_in_minutes_is_repeated_with_the_batch_that_it_chose(tmp_path):
    given = ["data=pydoc", "width=8", "heads=2", "layers=1", "feedforward=8", "threads=1"]
    run = runs.start(
        tmp_path / "a", "language-modeling", "gpt", [*given, "precision=fp32", "minutes=0.01"]
    )
    finished(run)
    last = run.metrics()[-1]
    assert last["batch_tokens"] == 256
    assert run.repeat == f"steps={last['steps']} batch_tokens=256"
    assert run.notes[-1].endswith(f"; repeat it elsewhere with {run.repeat}")
    again = Config.make("language-modeling", "gpt", [*given, *run.repeat.split()]).training
    assert (again.budget.unit, again.batch_tokens) == ("steps", 256)
