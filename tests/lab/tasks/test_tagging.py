"""A tag for each word: metrics by hand, the task on files, every model, and the baselines."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.entities import sentences
from regard.lab.data.examples import Example
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks.baseline_settings import NoSettings
from regard.lab.tasks.tagging import TAGGERS, TokenRegressionSettings
from regard.lab.tasks.tagging.baselines import MostFrequentTag, TokenRegression
from regard.lab.tasks.tagging.evaluation import (
    COMMONEST,
    Tags,
    f1,
    pseudo_values,
    span_counts,
    tag_evaluation,
    tags_of,
)
from regard.lab.web.registry import find
from regard.lab.web.served_model import opened
from tests.lab.small_runs import prepared, trained_run

TINY = ("examples=300", "epochs=1", "width=8", "threads=1")
ASKED = [
    Example("Ada saw New York", "B-person O B-place I-place", "f:1", "g"),
    Example("Rain fell", "O O", "f:6"),
    Example("Paris slept", "B-person O", "f:9"),
]
SAID = [["B-person", "O", "B-place", "O"], ["B-place", "O"], ["B-person", "O"]]


def test_metrics_by_hand() -> None:
    judged = tag_evaluation("span F1", ASKED, SAID, "O")
    assert span_counts(SAID, [*map(tags_of, ASKED)]).tolist() == [[1, 2, 2], [0, 1, 0], [1, 1, 1]]
    assert judged.value == pytest.approx(4 / 7)  # 2 · 2 / (4 + 3)
    assert judged.other_metrics["precision"] == pytest.approx(2 / 4)
    assert judged.other_metrics["recall"] == pytest.approx(2 / 3)
    assert judged.other_metrics["accuracy"] == pytest.approx(6 / 8)
    assert judged.other_metrics["whole sentences"] == pytest.approx(1 / 3)
    assert judged.trivial == {COMMONEST: 0}
    assert judged.summary["kinds"] == {
        "person": {"right": 2, "said": 2, "true": 2},
        "place": {"right": 0, "said": 2, "true": 1},
    }
    words = tag_evaluation("accuracy", ASKED, SAID, "O")
    assert (words.value, words.trivial[COMMONEST]) == (pytest.approx(6 / 8), pytest.approx(4 / 8))
    assert words.tables[0][1] == ["O", "75.0", "75.0", "75.0", "4"]
    assert tag_evaluation("span F1", ASKED, [["O"] * 4, ["O"] * 2, ["O"] * 2], "O").is_constant


def test_each_sentence_adds_what_the_others_are_without_it() -> None:
    drawn = np.random.default_rng(0)
    true, right = drawn.integers(0, 5, 3000), drawn.integers(0, 3, 3000)
    counts = np.stack([np.minimum(right, true), right, true], 1)
    found = pseudo_values(counts)
    whole = float(f1(*counts.sum(0)))
    assert found.mean() == pytest.approx(whole)
    left = np.array([f1(*np.delete(counts, i, 0).sum(0)) for i in range(60)])
    slow = 2999 * (whole - left)
    np.testing.assert_allclose(found[:60] - found[0], slow - slow[0], atol=0.01)


def test_two_sentences_with_spans_are_no_evidence() -> None:
    true = np.repeat([0, 3], [98, 2])
    none, every = (np.stack([said, said, true], 1) for said in (np.zeros(100, int), true))
    a, b = pseudo_values(every)[None], pseudo_values(none)[None]
    assert (a.mean(), b.mean()) == pytest.approx((1, 0))
    assert 0.05 < compare_runs(a, b).p < 0.5


def test_an_evaluation_is_restored_from_its_rows() -> None:
    judged = tag_evaluation("span F1", ASKED, SAID, "O")
    facts = {"labels": ["B-place", "O"], "counts": [1, 2]}
    task = prepared("tagging", None, facts, metric="span-f1")
    again = task.restore(judged.rows(), "p")
    assert (again.value, again.examples, again.answers) == (
        judged.value, judged.examples, judged.answers,
    )  # fmt: skip
    assert json.loads(json.dumps(judged.json(), allow_nan=False))["kinds"]["place"]["said"] == 2
    assert judged.line().startswith("span F1 57.1% (95 % interval ")
    assert task.plain(judged).decode().splitlines()[2] == "New\tB-place\tB-place"
    one = tag_evaluation("span F1", ASKED[:1], SAID[:1], "O")
    json.dumps(one.json(), allow_nan=False)
    with pytest.raises(RegardError, match=r"p cannot be read: KeyError\('source'\)"):
        task.restore(b'{"text": "a"}\n', "p")
    row = b'{"text": "a b", "label": "O", "source": "s", "said": "O"}\n'
    with pytest.raises(
        RegardError, match="s: 1 predicted and 1 true tags for 2 words; give one for each"
    ):
        task.restore(row, "p")
    with pytest.raises(RegardError, match="there are no sentences to evaluate"):
        tag_evaluation("span F1", [], [], "O")


def test_an_answer_is_told_by_its_spans() -> None:
    found = Tags(("In", "New", "York"), ("O", "B-place", "I-place"))
    assert (found.phrase(), found.line()) == ("New York: place", "In/O New/B-place York/I-place")
    assert found.json()["spans"] == [{"text": "New York", "kind": "place", "first": 1, "last": 3}]
    assert Tags(("Go",), ("VERB",)).phrase() == "Go/VERB"
    assert Tags(("Go",), ("O",)).phrase() == "no spans"


def test_the_most_frequent_tag_by_hand(tmp_path: Path) -> None:
    words = [["a", "b", "a"], ["a", "c"]]
    model = MostFrequentTag(NoSettings(), 2)
    with pytest.raises(RegardError, match="most-frequent-tag is not fitted"):
        model.log_probabilities(words)
    model.fit(words, [np.array([0, 1, 0]), np.array([1, 0])])
    (found,) = model.log_probabilities([["a", "b", "new"]])
    share = np.array([3, 2]) / 5
    expected = np.array([(np.array([2, 1]) + share) / 4, (np.array([0, 1]) + share) / 2, share])
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-6)
    model.save(tmp_path)
    again = MostFrequentTag.load(tmp_path)
    np.testing.assert_array_equal(again.log_probabilities([["a"]])[0], found[:1])


def test_logistic_regression_reads_spelling_and_neighbours() -> None:
    model = TokenRegression(TokenRegressionSettings(neighbours=1, affix=2), 3)
    assert model.extract(["Ann", "7"])[1] == [
        "w=7",
        "l=7",
        "s=0",
        "-1=ann",
        "-1s=Xx",
        "+1=·",
        "+1s=·",
    ]
    rows = sentences(300, 1)
    place = {tag: i for i, tag in enumerate(sorted({t for x in rows for t in x.label.split()}))}
    tags = [np.array([place[t] for t in x.label.split()]) for x in rows]
    model = TokenRegression(TokenRegressionSettings(), len(place) + 1)
    model.fit([x.words for x in rows], tags)
    found = model.log_probabilities([x.words for x in rows])
    right = np.mean(np.concatenate([a.argmax(1) == b for a, b in zip(found, tags, strict=True)]))
    assert right > 0.98
    assert np.exp(found[0]).sum(1) == pytest.approx(1)
    assert max(each[:, -1].max() for each in found) < -10  # a tag that never occurred


@pytest.mark.parametrize("tokenizer", ["words", "bpe", "characters"])
def test_a_words_odds_are_the_mean_over_its_tokens(tokenizer: str) -> None:
    task = prepared("tagging", examples=200, tokenizer=tokenizer, vocabulary=400, length=200)
    batch = task.batch("train", np.array([0, 5]))
    torch.manual_seed(0)

    class Fixed(torch.nn.Module):
        def forward(self, tokens, lengths):
            return drawn[: len(tokens), : tokens.shape[1]]

    drawn = torch.randn(2, 250, len(task.labels))
    rows = []
    for row, index in enumerate((0, 5)):
        example = task.train.examples[index]
        pieces = task.pieces(example.words)
        assert [token for ids in pieces for token in ids] == task.train.ids[index].tolist()
        start = 0
        for ids, tag in zip(pieces, example.label.split(" "), strict=True):
            odds = drawn[row, start : start + len(ids)].mean(0)
            rows.append(-F.log_softmax(odds, -1)[task.labels.index(tag)])
            start += len(ids)
    torch.testing.assert_close(task.loss(Fixed(), batch), torch.stack(rows).mean())


def test_a_tokenizer_of_words_knows_every_word_of_train(tmp_path: Path) -> None:
    """Also those that it would split in a text, such as words with hyphens, and Chinese ones."""
    words = "don't e-mail U.S. 北京 :) #ff".split()
    path = tmp_path / "words.conll"
    path.write_text("\n".join(f"{x}\tW\nn{i}\tN\n" for i, x in enumerate(words * 10)))
    task = prepared("tagging", data=path, tokenizer="words", minimum=1)
    assert task.pieces(words) == [[task.tokenizer.vocabulary.index(x.lower())] for x in words]
    assert min(min(ids) for ids in task.train.ids) > 1, "neither padding nor unknown"


def test_words_that_are_not_read_have_the_commonest_tag() -> None:
    task = prepared("tagging", examples=200, length=3, tokenizer="words")
    model = TAGGERS["rnn"].build(TAGGERS["rnn"].configure({"hidden": 8}), **task.sizes)
    (found,) = task.predict(model, ["She went to see May in the old house"])
    assert found.tags[3:] == ("O",) * 6
    assert len(task.tokens("She went to see May")) == 3
    assert task.left_out(["She went to see May"]) == [2]


def test_metric_follows_the_tags(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("\n".join(f"w{i} NOUN\nx VERB\n" for i in range(40)))
    assert prepared("tagging", data=path).metric == "accuracy"
    assert prepared("tagging").metric == "span F1"
    with pytest.raises(
        RegardError, match="metric=span-f1 needs tags that begin with B- or I-, not NOUN, VERB …"
    ):
        _ = prepared("tagging", data=path, metric="span-f1").metric


@pytest.mark.parametrize("model", ["transformer", "rnn", "cnn", "gpt", "bert", "t5"])
def test_networks_learn_tags_and_come_back(tmp_path: Path, model: str) -> None:
    given = [*TINY, *["layers=1"] * (model not in ("rnn", "cnn"))]
    run = runs.start(tmp_path / "run", "tagging", model, given)
    assert list(run.train())[-1].validation is not None
    loaded = runs.load(tmp_path / "run")
    judged = loaded.evaluate()
    assert judged.n == 600
    again = loaded.predict(list(judged.examples[:40]))
    same = np.mean(
        [answer.tags == said for answer, said in zip(again, judged.answers[:40], strict=True)]
    )
    assert same > 0.9  # another batch size rounds otherwise
    attended = loaded.attention("Ada saw Paris .")
    assert all(layer.weights.shape[-1] == len(layer.tokens) for layer in attended)


def test_a_padded_sentence_is_tagged_as_it_is_alone() -> None:
    task = prepared("tagging", examples=200)
    for name in ("transformer", "rnn", "cnn", "gpt", "bert", "t5"):
        torch.manual_seed(0)
        network = TAGGERS[name].build(TAGGERS[name].configure({"width": 16}), **task.sizes).eval()
        short, long = task.encode(["Ada slept .", "Nobody in Lisbon had heard of Jordan ."])
        tokens = torch.zeros(2, len(long), dtype=torch.long)
        tokens[0, : len(short)], tokens[1] = torch.tensor(short), torch.tensor(long)
        with torch.no_grad():
            both = network(tokens, torch.tensor([len(short), len(long)]))
            alone = network(tokens[:1, : len(short)], torch.tensor([len(short)]))
        torch.testing.assert_close(both[:1, : len(short)], alone, atol=1e-5, rtol=1e-4)


def test_a_file_is_learned_judged_and_asked(tmp_path: Path) -> None:
    data = tmp_path / "a.conll"
    made = sentences(300, 5)
    data.write_text(
        "\n".join(
            "".join(f"{w} {t}\n" for w, t in zip(x.words, x.label.split(" "), strict=True))
            for x in made
        )
    )
    run = runs.start(tmp_path / "lr", "tagging", "logistic-regression", [f"data={data}"])
    (told,) = run.train()
    assert told.validation is not None
    judged = run.evaluate()
    assert judged.value > 0.6
    data.rename(tmp_path / "other.conll")
    loaded = runs.load(tmp_path / "lr")
    assert loaded.evaluate().value == judged.value
    assert loaded.evaluate(tmp_path / "other.conll").n == 300
    assert len(list(loaded.task.read_file(tmp_path / "other.conll"))) == 300
    assert loaded.task.read_file(tmp_path / "notes.txt") is None
    (answer,) = loaded.predict(["Nobody in Lisbon had heard of Jordan ."])
    assert answer.tags[2] == "B-place"
    with pytest.raises(RegardError, match="--labels renames labels"):
        loaded.evaluate(tmp_path / "other.conll", labels="a:b")
    with pytest.raises(RegardError, match="this baseline has no weights of single words"):
        loaded.task.weigh(loaded.model, "Ada", answer)
    (tmp_path / "wrong.conll").write_text("a O\nb\n")
    with pytest.raises(RegardError, match=r"wrong.conll:2: 1 columns"):
        loaded.evaluate(tmp_path / "wrong.conll")


def test_a_server_marks_the_words(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run", "tagging", "rnn", TINY)
    (told,) = find([tmp_path]).listed()
    assert (told["task"], told["writes"]) == ("tagging", "")
    (answer,) = opened("run", tmp_path / "run").predict(["Ada slept ."])
    assert answer == run.predict("Ada slept .").json()
    assert find([tmp_path]).examples("run")


def test_trees_reach_a_tagger(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    block = "1\tShe{i}\tshe\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n"
    block += "2\tsleeps\tsleep\tVERB\tVBZ\t_\t0\troot\t_\t_\n"
    path.write_text("\n".join(block.format(i=i) for i in range(60)))
    given = [
        f"data={path}",
        "position=tree-depth",
        "tokenizer=words",
        "width=8",
        "epochs=1",
        "layers=1",
        "threads=1",
    ]
    run = runs.start(tmp_path / "run", "tagging", "transformer", given)
    assert list(run.train())[-1].validation is not None
    with pytest.raises(RegardError, match="tokenizer=bpe splits words"):
        runs.start(tmp_path / "bpe", "tagging", "transformer", [*given[:2], "tokenizer=bpe"])
    with pytest.raises(
        RegardError, match="needs the parse tree of each text, and these texts have none"
    ):
        run.predict("She sleeps")
