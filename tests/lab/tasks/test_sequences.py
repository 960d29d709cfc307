"""Pairs as a task: what a batch means, what its loss counts, what is written."""

import math

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.decoding import Written
from regard.lab.tasks import TASKS
from regard.lab.tasks.models import WRITERS
from regard.lab.tasks.settings import SequencesSettings
from regard.lab.tasks.writing.searching import Search
from regard.lab.tasks.writing.task import Sequences

SMALL = SequencesSettings(letters=4, examples=60, judged=7)


@pytest.fixture
def task() -> Sequences:
    return Sequences(SMALL)


def network(task: Sequences, name: str = "lab-6") -> torch.nn.Module:
    torch.manual_seed(0)
    entry = WRITERS[name]
    settings = entry.configure({"width": 8, "hidden": 10, "dropout": 0})
    return entry.build(settings, **task.sizes)


@pytest.mark.parametrize("teaching", [40, 275])
def test_what_is_learned_and_judged_is_from_all_parts_of_a_sorted_file(
    tmp_path, monkeypatch, teaching
):
    rows = [f"{'abcdefghij'[i // 60] * 9} {i}\t{i}" for i in range(600)]
    (tmp_path / "sorted.tsv").write_text("\n".join(rows) + "\n")
    # 40 of the 540 that are not held out, and of 540 = 1.96 · 275 the last as well
    monkeypatch.setattr("regard.lab.tasks.writing.task.TEACHING", teaching)
    asked = SequencesSettings(data=str(tmp_path / "sorted.tsv"), minimum=1, judged=4)
    task = Sequences(asked)
    assert set("abcdefghij") <= set(task.tokenizer.vocabulary)
    asked_for = []
    monkeypatch.setattr(
        "regard.lab.tasks.writing.task.write",
        lambda _, sources, *__, **___: (
            asked_for.extend(sources) or [[Written((), 0.0, 0.0, True)] for _ in sources]
        ),
    )
    task.judge(network(task), "validation")
    first = [task.decode(ids[:1].tolist()) for ids in asked_for]
    assert len(first) == 4
    assert first[0] == "a"
    assert first[-1] in "hij"


def test_how_long_a_text_may_be_is_a_setting(tmp_path):
    rows = [f"{i} {'x' * 30}\t{i}" for i in range(100)] + [f"{i}\t{i}" for i in range(200)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    asked = SequencesSettings(data=str(tmp_path / "pairs.tsv"), longest=20)
    corpus = Sequences(asked).corpus
    assert len(corpus.train) + len(corpus.validation) + len(corpus.test) == 200
    corpus = Sequences(asked.model_copy(update={"longest": 0})).corpus
    assert len(corpus.train) + len(corpus.validation) + len(corpus.test) == 300


def test_a_batch_reads_what_it_is_to_write_one_word_late(task):
    batch = task.batch("train", np.array([3, 5]))
    assert batch.decoder_input[:, 0].tolist() == [0, 0]
    assert torch.equal(batch.decoder_input[:, 1:], batch.wanted[:, :-1])
    assert batch.wanted[:, -1].tolist() == [task.end] * 2
    pair = task.split("train").pairs[3]
    assert task.tokenizer.decode(batch.source[0].tolist()) == pair.source
    assert task.tokenizer.decode(batch.wanted[0, :-1].tolist()) == pair.target == pair.source[::-1]
    assert batch.lengths.tolist() == [9, 9]


def test_strings_encoded_at_once_as_one_by_one(task):
    split = task.split("validation")
    texts = [pair.source for pair in split.pairs]
    for quick, slow in zip(split.source, task.encode(texts), strict=True):
        assert np.array_equal(quick, slow)


def test_the_loss_counts_real_words_alone(task):
    model, batch = network(task), task.batch("train", np.arange(3))
    logits = model.to_logits(model(batch.source, batch.source_lengths, batch.decoder_input))
    by_hand = -logits.log_softmax(-1).gather(-1, batch.wanted[..., None]).mean()
    assert task.loss(model, batch).item() == pytest.approx(by_hand.item(), rel=1e-5)
    batch.real[1, 2:] = False
    assert task.loss(model, batch).item() != pytest.approx(by_hand.item(), rel=1e-5)


def test_smoothing_spreads_a_share_over_all_words(task):
    smooth = Sequences(SMALL.model_copy(update={"smoothing": 0.2}), task.tokenizer)
    model, batch = network(task), task.batch("train", np.arange(3))
    chances = model.to_logits(
        model(batch.source, batch.source_lengths, batch.decoder_input)
    ).log_softmax(-1)
    truth = -chances.gather(-1, batch.wanted[..., None]).mean()
    expected = 0.8 * truth - 0.2 * chances.mean()
    assert smooth.loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert smooth.judge(model, "validation")[1] == pytest.approx(
        task.judge(model, "validation")[1]
    ), "what is judged is not smoothed"


def test_a_judgement_is_metric_and_loss(task):
    model = network(task).train()
    metric, loss = task.judge(model, "validation")
    assert metric == 0
    assert loss == pytest.approx(math.log(task.end + 1), rel=0.2), "untrained: about uniform"
    assert model.training


def test_answers_come_in_the_order_of_the_texts(task):
    model, texts = network(task), ["A", "LONGER", "MID", "B"]
    together = task.write(model, texts)
    for text, found in zip(texts, together, strict=True):
        (alone,) = task.write(model, [text])
        assert alone[0].tokens == found[0].tokens
    three = task.write(model, ["ABC"], Search(best=3))[0]
    assert len(three) == 3
    assert task.write(model, ["", " ABC ", " "])[1] == task.write(model, ["ABC"])[0]
    assert [text.tokens for (text,) in task.write(model, ["", " "])] == [(), ()]


@pytest.mark.parametrize("search", [{}, {"beam": 3}, {"temperature": 1.0}])
def test_a_model_of_no_numbers_is_told(task, search):
    model = network(task)
    with torch.no_grad():
        model.to_logits.bias.fill_(torch.nan)
    with pytest.raises(RegardError, match="probabilities are NaN"):
        task.write(model, ["ABC"], Search(**search))


def test_long_pairs_are_left_out_of_training_alone(tmp_path):
    rows = [f"{'x' * (3 + i % 5)}{i}\t{i}" for i in range(200)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    asked = SequencesSettings(data=str(tmp_path / "pairs.tsv"), length=6, minimum=1)
    task = Sequences(asked)
    assert 0 < len(task.split("train")) < len(task.corpus.train)
    assert max(map(len, task.split("train").source)) <= 6
    assert len(task.split("test")) == len(task.corpus.test)
    short = asked.model_copy(update={"length": 1})
    with pytest.raises(RegardError, match="all pairs have more than 1 tokens on one side"):
        Sequences(short).split("train")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("transformer", {"position": "learned", "heads": 2, "layers": 1, "feedforward": 8}),
        ("transformer", {"score": "synthesizer", "heads": 2, "layers": 1, "feedforward": 8}),
        ("lab-6", {"score": "synthesizer-random"}),
    ],
)
def test_a_model_writes_twice_what_it_reads(task, name, settings):
    short = Sequences(SMALL.model_copy(update={"length": 4}), task.tokenizer)
    entry = WRITERS[name]
    torch.manual_seed(0)
    wanted = entry.configure({"width": 8, "dropout": 0, "length": 4, **settings})
    model = entry.build(wanted, **short.sizes)
    (found,) = short.write(model, ["ABCD"], Search(longest=8))
    assert len(found[0].tokens) <= 8
    source, target = short.encode(["ABCD"])[0], short.whole("ABCDABCD")
    assert short.loss(model, short.tensors([source], [target])).item() > 0


def test_strings_longer_than_the_length_are_cut_or_refused_like_all_texts():
    with pytest.raises(RegardError, match="all pairs have more than 8 tokens on one side"):
        _ = Sequences(SMALL.model_copy(update={"letters": 40, "length": 8})).split("train")


def test_tasks_by_name():
    assert TASKS["translation"].configure().metric == "bleu"
    assert TASKS["reverse"].configure({"letters": "3"}).letters == 3
    assert TASKS["dates"].prepare(SMALL) is TASKS["reverse"].prepare(SMALL)
    with pytest.raises(RegardError, match="unknown split 'dev'; choose train"):
        Sequences(SMALL).split("dev")
