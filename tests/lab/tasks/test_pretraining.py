"""Pretraining as tasks: what a batch means, what its loss counts, that nothing else changes it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import RegardError
from regard.lab.tasks import TASKS, shared
from regard.lab.tasks.pretraining.language_modeling import LanguageModeling
from regard.lab.tasks.pretraining.masked_modeling import MaskedModeling
from regard.lab.tasks.pretraining.span_corruption import SpanCorruption
from regard.lab.tasks.settings import (
    MaskedModelingSettings,
    PretrainingSettings,
    SpanCorruptionSettings,
)
from regard.lab.tasks.writing.searching import Search
from regard.nn.layers import special_tokens
from tests.lab.small_runs import finished

BIOGRAPHIES = {"data": "biographies", "validation": 0.1, "length": 20}
SIZES = {"width": 16, "heads": 2, "layers": 1, "feedforward": 24, "dropout": 0}


def language(**changes):
    return LanguageModeling(PretrainingSettings(**{**BIOGRAPHIES, **changes}))


def masking(**changes):
    return MaskedModeling(MaskedModelingSettings(**{**BIOGRAPHIES, **changes}))


def spanning(**changes):
    return SpanCorruption(SpanCorruptionSettings(**{**BIOGRAPHIES, **changes}))


MAKE = {"language-modeling": language, "masked-modeling": masking, "span-corruption": spanning}


def network(name, task, **changes):
    torch.manual_seed(0)
    kind = TASKS[name]
    entry = kind.models[kind.model]
    settings = entry.configure({**SIZES, "length": 64, **changes})
    return entry.build(settings, **task.sizes)


@pytest.mark.parametrize("name", MAKE)
def test_an_example_depends_on_seed_epoch_and_index_alone(name):
    task, again = MAKE[name](), MAKE[name]()
    plan = task.batches("train", tokens=300, seed=1, epoch=2)
    other = again.batches("train", tokens=300, seed=1, epoch=2)
    assert len(plan) > 3
    assert all(np.array_equal(a, b) for a, b in zip(plan, other, strict=True))
    again.batch("train", plan[3])  # another order of calls
    rows = plan[1]
    first, second = task.batch("train", rows), again.batch("train", rows)
    for field in first.__dataclass_fields__:
        assert torch.equal(getattr(first, field), getattr(second, field))
    alone = task.batch("train", rows[2:3])
    size = int(alone.lengths[0])
    assert int(first.lengths[2]) == size


@pytest.mark.parametrize("name", MAKE)
def test_every_example_stands_in_one_batch_of_an_epoch(name):
    task = MAKE[name]()
    for epoch in (0, 1):
        rows = np.concatenate(task.batches("train", tokens=300, seed=3, epoch=epoch))
        assert rows[:, :2].tolist() == [[3, epoch]] * len(rows)
        count = len(task.lengths("train", 3, epoch))
        assert sorted(rows[:, 2].tolist()) == list(range(count))


@pytest.mark.parametrize("name", MAKE)
def test_loss_is_the_mean_over_what_is_asked_and_the_judgement_its_likelihood(name):
    task = MAKE[name](**({"next_sentence": False} if name == "masked-modeling" else {}))
    model = network(name, task)
    rows = task.batches("train", tokens=300, seed=0, epoch=0)[0]
    batch = task.batch("train", rows)
    if name == "span-corruption":
        states = model(batch.source, batch.source_lengths, batch.decoder_input)
    else:
        states = model(batch.tokens, batch.lengths)
    chances = model.to_logits(states).log_softmax(-1)
    nats = -chances.gather(-1, batch.wanted[..., None])[..., 0]
    assert task.loss(model, batch).item() == pytest.approx(nats[batch.real].mean().item(), rel=1e-5)
    metric, loss = task.judge(model.train(), "validation", tokens=400)
    assert model.training
    assert metric == pytest.approx(np.exp(-loss))
    again = task.judge(model, "validation", tokens=10_000)
    assert again == pytest.approx((metric, loss), rel=1e-5), "batches change nothing"
    pieces = list(task.judged(model, "validation"))
    counts = sum(len(piece.nats) for piece in pieces)
    assert sum(float(p.nats.sum()) for p in pieces) / counts == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("name", MAKE)
def test_a_model_learns_in_a_few_steps(name):
    task = MAKE[name]()
    model = network(name, task, width=32)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    before = task.judge(model, "validation")[1]
    for epoch in range(2):
        for rows in task.batches("train", tokens=1_000, seed=0, epoch=epoch):
            optimizer.zero_grad()
            task.loss(model, task.batch("train", rows)).sum().backward()
            optimizer.step()
    assert task.judge(model, "validation")[1] < before - 0.7


def test_the_stream_is_every_document_with_a_separator_behind():
    task = language()
    stream = task.stream("validation").tolist()
    end = task.special_tokens.separator
    texts = "".join("\n" if i == end else task.decode([i]) for i in stream).split("\n")
    assert texts == [*task.corpus.validation, ""]


def test_rows_have_no_padding_and_say_the_token_behind():
    task = language()
    rows = task.batches("train", tokens=200, seed=0, epoch=1)[0]
    batch = task.batch("train", rows)
    assert batch.tokens.shape == (10, 20)
    assert batch.real.all()
    assert torch.equal(batch.tokens[:, 1:], batch.wanted[:, :-1])
    stream = task.stream("train").tolist()
    first = [*batch.tokens[0].tolist(), int(batch.wanted[0, -1])]
    assert any(stream[i : i + 21] == first for i in range(len(stream)))


def test_pieces_move_from_epoch_to_epoch_in_training_alone():
    task = language()

    def starts(split):
        rows = [np.array([[0, epoch, 0]]) for epoch in range(6)]
        return {tuple(task.batch(split, row).tokens[0].tolist()) for row in rows}

    assert len(starts("train")) > 3
    assert len(starts("validation")) == 1


def test_of_what_is_judged_no_token_is_left_out():
    task = language(length=19)
    assert task.lengths("validation", 0, 0).sum() == len(task.stream("validation")) - 1
    sizes = {int(n) for rows in task.batches("validation", tokens=99, seed=0, epoch=0)
             for n in task.batch("validation", rows).lengths}  # fmt: skip
    assert 0 < min(sizes) < max(sizes) == 19
    torch.manual_seed(0)
    found = list(task.judged(network("language-modeling", task), "validation"))
    assert sum(len(piece.nats) for piece in found) == len(task.stream("validation")) - 1


def test_a_stream_shorter_than_a_piece(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("abc\n")
    task = LanguageModeling(PretrainingSettings(data=str(path), validation=0, minimum=1))
    batch = task.batch("train", task.batches("train", tokens=99, seed=0, epoch=0)[0])
    assert batch.tokens.shape == (1, 3)
    assert int(batch.wanted[0, -1]) == task.special_tokens.separator


def test_padding_is_not_counted_where_there_is_some():
    from regard.lab.tasks.pretraining.language_modeling import NextTokens

    task = language()
    model = network("language-modeling", task)
    whole = task.batch("train", task.batches("train", tokens=60, seed=0, epoch=0)[0])
    lengths = torch.tensor([20, 11, 5])
    batch = NextTokens(whole.tokens, whole.wanted, lengths)
    changed = NextTokens(whole.tokens.clone(), whole.wanted, lengths)
    changed.tokens[1, 11:], changed.tokens[2, 5:] = 7, 9
    assert task.loss(model, batch).item() == pytest.approx(task.loss(model, changed).item())
    parts = [
        task.loss(
            model, NextTokens(batch.tokens[i : i + 1, :n], batch.wanted[i : i + 1, :n], n[None])
        )
        * n
        for i, n in enumerate(lengths)
    ]
    assert task.loss(model, batch).item() == pytest.approx(sum(parts).item() / 36, rel=1e-5)


def test_two_pieces_are_framed_and_typed():
    task, mark = masking(), masking().special_tokens
    followed = 0
    for index in range(60):
        found = task.example("train", 0, 0, index)
        separators = np.flatnonzero(found.wanted == mark.separator)
        assert found.wanted[0] == mark.classify
        assert separators[-1] == len(found.wanted) - 1
        assert len(separators) == 2
        assert found.types.tolist() == [0] * (separators[0] + 1) + [1] * (
            len(found.wanted) - separators[0] - 1
        )
        assert not found.selected[found.wanted >= len(task.tokenizer)].any()
        whole = np.concatenate(
            [found.wanted[1 : separators[0]], found.wanted[separators[0] + 1 : -1]]
        )
        document, start, stop = task.pieces("train")[index]
        same = np.array_equal(whole, task.split("train").ids[document][start:stop])
        assert same == (not found.elsewhere)
        followed += same
    assert 18 < followed < 42, "about half"


def test_how_a_piece_begins_does_not_tell_whether_it_follows():
    task = masking(length=16)
    documents = task.split("train").ids
    begins = {tuple(ids[:2].tolist()) for ids in documents}
    elsewhere = []
    for index in range(len(task.lengths("train", 0, 0))):
        found = task.example("train", 0, 0, index)
        if found.elsewhere:
            start = int(found.types.argmax())
            elsewhere.append(tuple(found.wanted[start : start + 2].tolist()) in begins)
    assert len(elsewhere) > 100
    assert np.mean(elsewhere) < 0.5


def test_the_loss_of_two_pieces_adds_what_follows():
    task = masking()
    model = network("masked-modeling", task)
    batch = task.batch("train", task.batches("train", tokens=400, seed=0, epoch=0)[0])
    states = model(batch.tokens, batch.lengths, batch.types)
    words = F.cross_entropy(model.to_logits(states[batch.selected]), batch.wanted[batch.selected])
    follows = F.cross_entropy(model.next_sentence(states), batch.elsewhere)
    found = task.loss(model, batch).tolist()
    assert found == pytest.approx([words.item(), follows.item()], rel=1e-5)


def test_next_sentences_are_judged_piece_by_piece():
    task = masking()
    model = network("masked-modeling", task)
    said = []
    for rows in task.batches("validation", tokens=10**6, seed=0, epoch=0, shuffle=False):
        batch = task.batch("validation", rows)
        follows = model.next_sentence(model(batch.tokens, batch.lengths, batch.types))
        said += (follows.argmax(-1) == batch.elsewhere).tolist()
    share, count = task.judge_next_sentence(model.train(), "validation", tokens=400)
    assert model.training
    assert (count, share) == (len(said), pytest.approx(np.mean(said)))
    with torch.no_grad():
        model.follows.weight.zero_()
        model.follows.bias.copy_(torch.tensor([-1.0, 1.0]))
    elsewhere = [task.example("validation", 0, 0, i).elsewhere for i in range(count)]
    share, _ = task.judge_next_sentence(model, "validation")
    assert share == pytest.approx(np.mean(elsewhere)), "who always says elsewhere"
    with pytest.raises(RegardError, match="next_sentence=false"):
        masking(next_sentence=False).judge_next_sentence(model, "validation")


def test_hidden_words_differ_from_epoch_to_epoch():
    task = masking()
    asked = [task.example("train", 0, epoch, 5).selected.tolist() for epoch in range(8)]
    assert len(set(map(tuple, asked))) > 4


@pytest.mark.parametrize("objective", ["spans", "prefix"])
def test_a_decoder_is_given_what_it_says_one_word_late(objective):
    task = spanning(objective=objective)
    batch = task.batch("train", task.batches("train", tokens=400, seed=0, epoch=0)[0])
    assert batch.decoder_input[:, 0].eq(0).all()
    for given, wanted, real in zip(batch.decoder_input, batch.wanted, batch.real, strict=True):
        size = int(real.sum())
        assert given[1:size].tolist() == wanted[: size - 1].tolist()
        assert int(wanted[size - 1]) == task.special_tokens.separator
    assert int(batch.source_lengths.min()) >= 1


def test_names_and_numbers_of_symbols():
    task = spanning()
    base = len(task.tokenizer)
    assert task.sizes["vocabulary"] == base + special_tokens.COUNT + special_tokens.SENTINELS
    assert task.names([base, base + 1, base + 2, base + 3]) == [
        *special_tokens.NAMES,
        "<extra_id_0>",
    ]
    assert task.read("a<extra_id_7>").tolist()[-1] == task.special_tokens.sentinel(7)


@pytest.mark.parametrize("tokenizer", ["words", "bpe", "characters"])
def test_what_t5_writes_is_decoded_whole_between_its_sentinels(tokenizer):
    task = spanning(tokenizer=tokenizer)
    ids = task.whole("was born<extra_id_0>was born").tolist()
    assert task.decode(ids) == "was born<extra_id_0>was born"


def test_how_texts_go_on():
    task = language()
    model = network("language-modeling", task).eval()
    (first,), (second,) = task.write(model, ["Ada", "Bela was"])
    alone = task.write(model, ["Bela was"], replace(task.search, behind=1))  # its place decides
    assert alone[0][0].tokens == second.tokens
    greedy, other = (task.write(model, ["Ada"], search)[0][0] for search in (Search(), None))
    assert greedy.tokens != other.tokens == first.tokens
    assert first.log_probability < 0
    assert [ids.tolist() for ids in task.prompts(["", "A"])] == [[task.end], [task.read("A")[0]]]
    assert task.write(model, [""])[0][0].log_probability < 0, "the model was asked"
    task = spanning()
    (nothing,) = task.write(network("span-corruption", task).eval(), [""])[0]
    assert nothing.tokens == ()


def test_hidden_words_are_filled_in():
    task = masking()
    model = network("masked-modeling", task).eval()
    (filled,) = task.fill(model, ["A[MASK]a was b[MASK]rn"])
    assert len(filled.text) == len("A?a was b?rn")
    assert filled.text[:1] + filled.text[2:9] == "Aa was b"
    assert filled.log_probability < 0
    assert task.fill(model, ["plain"]) == [("plain", 0.0, True)]
    strange = "Zürich ☃ [MASK] " + "a" * 50 + "[MASK]"
    (kept,) = task.fill(model, [strange])
    head, tail = strange.split("[MASK]")[:2]
    assert kept.text.startswith(head)
    assert kept.text.endswith(tail + "[MASK]"), "what is not read stays as it is"
    assert len(kept.text) == len(strange) - len("[MASK]") + 1
    assert not kept.all


def test_what_is_printed_of_a_row():
    x, y = language().shown("train", (0, 0, 0))
    assert (len(x), x[1:20]) == (20, y[:19])
    read, asked = masking().shown("train", (0, 0, 0))
    assert read.startswith("[CLS] ")
    assert 1 <= len(asked.split(" ")) <= 6
    x, y = spanning().shown("train", (0, 0, 0))
    assert "<extra_id_0>" in x
    assert y.startswith("<extra_id_0>")


def test_splits_and_texts_of_others():
    with pytest.raises(RegardError, match="unknown split 'dev'; choose train"):
        language().split("dev")
    task = language().with_texts(["Ada was born .", ""])
    assert len(task.split("test")) == 1
    with pytest.raises(RegardError, match="there are no texts to evaluate"):
        language().with_texts([""])


@pytest.fixture
def on_disk(tmp_path):
    """Settings of language modelling on two files whose tokens stay on the disk."""
    for name, first in (("a.txt", 0), ("b.txt", 300)):
        lines = (f"{i} is a number that is {'odd' if i % 2 else 'even'}" for i in range(300))
        (tmp_path / name).write_text("".join(f"{first + i}: {x}\n" for i, x in enumerate(lines)))
    return {"data": f"{tmp_path}/*.txt", "data_dir": str(tmp_path / "mine"), "length": 20}


def test_chunks_on_the_disk_are_those_of_the_stream(on_disk):
    task = language(**on_disk)
    stream = task.stream("train")
    whole = stream[:]
    plan = task.batches("train", tokens=100, seed=3, epoch=1)
    first, _ = task._cut("train", 3, 1)
    seen = []
    for rows in plan:
        batch = task.batch("train", rows)
        assert batch.tokens.shape[1] == 20
        for (_, _, index), tokens, wanted in zip(
            rows.tolist(), batch.tokens, batch.wanted, strict=True
        ):
            start = first + 20 * index
            assert tokens.tolist() == whole[start : start + 20].tolist()
            assert wanted.tolist() == whole[start + 1 : start + 21].tolist()
            seen.append(index)
    assert sorted(seen) == list(range((len(whole) - 1 - first) // 20)), "each chunk once"
    assert seen != sorted(seen)
    assert len(plan[0]) == 5, "100 tokens in rows of 20"
    other = task.batches("train", tokens=100, seed=3, epoch=2)
    assert other[0][:, 2].tolist() != plan[0][:, 2].tolist(), "another order in another epoch"
    few = task.batches("train", tokens=100, seed=3, epoch=1, examples=2)
    assert {len(rows) for rows in few} <= {1, 2}


def test_an_epoch_on_the_disk_has_each_chunk_once(on_disk):
    task = language(**on_disk)
    plan = task.batches("train", tokens=100, seed=0, epoch=0)
    indexes = [row[2] for rows in plan for row in rows.tolist()]
    assert sorted(indexes) == list(range(len(task.lengths("train", 0, 0))))


def test_the_held_out_chunks_on_the_disk_cover_every_token(on_disk, tmp_path):
    task = language(**on_disk)
    torch.manual_seed(0)
    model = network("language-modeling", task)
    likelihoods = task.answer(model)
    assert likelihoods.n == len(task.stream("test")) - 1
    assert "".join(example.text for example in likelihoods.examples).startswith(
        task.decode(task.stream("test")[:20].tolist())
    )
    assert task.evaluate(model, tmp_path / "a.txt").value > 0


@pytest.mark.parametrize("name", ["masked-modeling", "span-corruption"])
def test_other_tasks_read_the_same_files_into_memory(on_disk, name):
    task = MAKE[name](**on_disk)
    assert len(task.corpus.train) + len(task.corpus.validation) + len(task.corpus.test) == 600
    assert len(task.batches("train", tokens=300, seed=0, epoch=0)) > 3


def test_other_tasks_say_what_reads_more(on_disk, monkeypatch):
    from regard.lab.data import texts

    monkeypatch.setattr(texts, "FILE_LIMIT", 1_000)
    with pytest.raises(RegardError, match="keeps its texts in memory, at most 1,000: name fewer"):
        masking(**on_disk).corpus  # noqa: B018


def test_settings_of_texts_in_memory_are_refused_on_the_disk(on_disk):
    with pytest.raises(RegardError, match="examples=5 chooses among texts in memory"):
        language(**on_disk, examples=5).corpus  # noqa: B018
    with pytest.raises(RegardError, match="validation=0 evaluates on all training texts"):
        language(**on_disk, validation=0).corpus  # noqa: B018


def test_a_training_on_the_disk_resumes_to_the_same_weights(on_disk, tmp_path):
    from regard.lab import runs

    settings = [
        *(f"{key}={value}" for key, value in {**on_disk, **SIZES, "dropout": 0.1}.items()),
        *("steps=12", "batch_tokens=200", "save_every=3", "threads=1", "precision=fp32"),
    ]

    def weights(place, stop):
        for progress in runs.open_or_start(place, "language-modeling", "gpt", settings).train():
            if progress.step == stop:
                break
        return place / "model.safetensors"

    whole = weights(tmp_path / "whole", 0).read_bytes()
    assert not weights(tmp_path / "stopped", 7).exists()
    assert weights(tmp_path / "stopped", 0).read_bytes() == whole


def test_a_run_does_not_go_on_with_other_texts(on_disk, tmp_path):
    from regard.lab import runs

    settings = [
        *(f"{key}={value}" for key, value in {**on_disk, **SIZES}.items()),
        *("steps=4", "batch_tokens=200", "save_every=1", "threads=1"),
    ]
    for _ in runs.open_or_start(tmp_path / "run", "language-modeling", "gpt", settings).train():
        break
    with open(tmp_path / "a.txt", "a") as file:
        file.write("one more\n" * 30)
    shared.cache_clear()  # as another process has nothing in memory
    with pytest.raises(RegardError, match="changed since the training began"):
        finished(runs.open_or_start(tmp_path / "run", "language-modeling", "gpt", settings))
