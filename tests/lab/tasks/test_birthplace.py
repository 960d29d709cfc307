"""Assignment 5 as tasks: its rows to the letter, its loss, its answers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import RegardError
from regard.lab.data.pairs import Pair
from regard.lab.data.tokenizers import train_tokenizer
from regard.lab.tasks import TASKS
from regard.lab.tasks.birthplace.task import Answers, BirthplacePretraining, question_rows
from regard.lab.tasks.models import DECODERS
from regard.lab.tasks.settings import AnswersSettings, BirthplacePretrainingSettings
from regard.lab.tasks.writing.searching import Search, score


def pretraining(**changes):
    return BirthplacePretraining(BirthplacePretrainingSettings(**{"length": 64, **changes}))


def answers(**changes):
    task = Answers(AnswersSettings(**{"length": 64, **changes}))
    questions = [pair.source for pair in task.corpus.train]
    task.tokenizer = train_tokenizer("characters", [*task.corpus.texts, *questions], minimum=1)
    return task


def decoder(task, **changes):
    torch.manual_seed(0)
    entry = DECODERS["gpt"]
    sizes = {"width": 16, "heads": 2, "layers": 1, "feedforward": 24, "length": 64, "dropout": 0}
    return entry.build(entry.configure({**sizes, **changes}), **task.sizes)


def test_the_longest_example_of_any_epoch_is_known():
    task = pretraining(length=40)
    longest = [int(task.lengths("train", 0, epoch).max()) for epoch in range(40)]
    assert max(longest) == task.most_tokens("train") == 37


ROWS = [  # as assignment 5 prints them
    ("Where was Khatchig Mouradian born?", "Lebanon", 33),
    ("Where was Jacob Henry Studer born?", "Columbus", 33),
    ("Where was John Stephen born?", "Glasgow", 27),
    ("Where was Georgina Willis born?", "Australia", 30),
]


@pytest.mark.parametrize(("question", "answer", "hidden"), ROWS)
def test_the_rows_of_namedata(question, answer, hidden):
    x, y = question_rows(Pair(question, answer, ""), 128)
    assert len(x) == len(y) == 127
    assert x == f"{question}⁇{answer}⁇" + "□" * (127 - len(question) - len(answer) - 2)
    said = f"⁇{answer}⁇"
    assert y == "□" * hidden + said + "□" * (127 - hidden - len(said))


def test_a_batch_is_those_rows_in_numbers():
    task = answers()
    rows = task.batches("train", tokens=300, seed=0, epoch=0)[0]
    batch = task.batch("train", rows)
    names = [*task.tokenizer.vocabulary, "⁇"]
    for row, index in enumerate(rows):
        pair = task.split("train").pairs[index]
        x, y = question_rows(pair, 64)
        read = "".join(names[i] for i in batch.tokens[row, : batch.lengths[row]])
        assert read == x.rstrip("□").removesuffix("⁇"), "the last symbol is said and not read"
        said = "".join(names[i] for i in batch.wanted[row][batch.real[row]])
        assert said == y.strip("□")
        assert batch.real[row].nonzero()[0].item() == len(y) - len(y.lstrip("□"))


def test_the_loss_counts_the_answer_and_its_symbols_alone():
    task = answers()
    model, batch = decoder(task), task.batch("train", np.arange(4))
    logits = model.to_logits(model(batch.tokens))[batch.real]
    wanted = batch.wanted[batch.real]
    assert len(wanted) == sum(len(x.answer) + 1 for x in task.split("train").questions[:4])
    by_hand = F.cross_entropy(logits, wanted)
    assert task.loss(model, batch).item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_a_corrupted_document_can_be_put_together_again():
    task = pretraining()
    mask = task.special_tokens.mask
    for epoch in range(3):
        for index in range(40):
            ids = task.corrupted("train", 0, epoch, index)
            kept, start, stop = (int(x[index]) for x in task.drawn("train", 0, epoch))
            text = task.split("train").ids[index][:kept]
            assert ids[-1] == mask
            assert ids.tolist() == [
                *text[:start], mask, *text[stop:], mask, *text[start:stop], mask
            ]  # fmt: skip
            assert len(ids) - 1 == task.lengths("train", 0, epoch)[index]


def test_open_rows_end_with_the_span():
    task = pretraining(closed=False)
    ids = task.corrupted("train", 0, 0, 3)
    assert (ids == task.special_tokens.mask).sum() == 2
    assert len(ids) - 1 == task.lengths("train", 0, 0)[3]


def test_hardly_anything_is_padding():
    task = pretraining()
    real = cells = 0
    for rows in task.batches("train", tokens=2_048, seed=0, epoch=0):
        batch = task.batch("train", rows)
        real, cells = real + int(batch.real.sum()), cells + batch.tokens.numel()
    assert real / cells > 0.85  # 0.97 with the 2,937 biographies of the real data


def test_both_tasks_number_characters_alike():
    answering = Answers(AnswersSettings(length=64))
    assert pretraining().tokenizer.sha256 == answering.tokenizer.sha256
    assert pretraining().sizes == answering.sizes


def test_answers_come_in_the_order_of_the_questions():
    task = answers()
    model = decoder(task)
    questions = ["Where was A born?", "Where was Lena Cormann born?", "Where?"]
    together = task.write(model, questions)
    for question, found in zip(questions, together, strict=True):
        (alone,) = task.write(model, [question])
        assert alone[0].tokens == found[0].tokens
        assert alone[0].log_probability == pytest.approx(found[0].log_probability, abs=1e-4)


def test_the_chance_of_an_answer_is_what_writing_it_counts():
    task = answers()
    model = decoder(task)
    ((written,),) = task.write(model, ["Where was A born?"])
    assert written.ended
    given = [task.decode(written.tokens), "Arden", "Bruno", ""]
    prompts, targets = task.prompts(["Where was A born?"] * 4), task.tokenizer.arrays(given)
    scored = score(model, prompts, list(targets), end=task.end)
    assert scored[0].log_probability == pytest.approx(written.log_probability, abs=1e-3)
    chances = np.exp([text.log_probability for text in scored[1:]])
    assert (chances > 0).all()
    assert chances.sum() < 1


def test_drawn_answers_are_a_function_of_the_seed():
    task = answers()
    model = decoder(task)
    drawing = Search(temperature=1.0, seed=4)
    first = [x.tokens for (x,) in task.write(model, ["Where?"] * 3, drawing)]
    assert first == [x.tokens for (x,) in task.write(model, ["Where?"] * 3, drawing)]
    assert len(set(first)) > 1


def test_train_and_validation_share_the_questions_of_train():
    task = answers()
    parts = {
        name: {pair.source for pair in task.split(name).pairs}
        for name in ("train", "validation", "test")
    }
    assert parts["train"] | parts["validation"] == {pair.source for pair in task.corpus.train}
    assert not parts["train"] & parts["validation"]
    assert parts["test"] == {pair.source for pair in task.corpus.dev}
    assert task.commonest in {pair.target for pair in task.corpus.train}
    with pytest.raises(RegardError, match="unknown split 'dev'; choose train"):
        task.split("dev")


def test_tokens_that_change_answers_are_refused_and_others_are_not():
    for name in ("characters", "bpe", "unigram"):
        task = Answers(AnswersSettings(tokenizer=name, vocabulary=300))
        assert len(task.split("train"))
    with pytest.raises(RegardError, match=r"into '[a-z]+', so no answer could match exactly; set"):
        Answers(AnswersSettings(tokenizer="words")).split("train")


def test_a_long_question_keeps_its_end():
    task = answers(length=40, longest=8)
    (prompt,) = task.prompts(["born " * 50 + "Where?"])
    assert len(prompt) == 32
    assert prompt[-1] == task.end
    assert task.tokenizer.decode(prompt[:-1].tolist()).endswith("Where?")


def test_what_does_not_fit_is_left_out_of_training_and_judged_all_the_same(tmp_path):
    rows = [(f"Where was N{i} born?", "Rome " * 8 if i % 5 == 0 else "Rome") for i in range(60)]
    lines = "".join(f"{question}\t{answer.strip()}\n" for question, answer in rows)
    for name in ("q.tsv", "d.tsv"):
        (tmp_path / name).write_text(lines.replace("N", "M") if name == "d.tsv" else lines)
    (tmp_path / "t.txt").write_text("N1 was born in Rome .\n" * 30)
    asked = {"data": str(tmp_path / "q.tsv"), "texts": str(tmp_path / "t.txt")}
    asked |= {"test": str(tmp_path / "d.tsv"), "validation": 0.3}
    task = Answers(AnswersSettings(length=40, longest=8, **asked))
    assert all(len(x.prompt) + len(x.answer) - 1 <= 40 for x in task.split("train").questions)
    assert len(task.split("train")) + len(task.split("validation")) < 60
    assert len(task.split("test")) == 60
    exact, loss = task.judge(decoder(task, length=40, position="learned"), "test")
    assert exact == 0
    assert 0 < loss < 10
    (tmp_path / "q.tsv").write_text("".join(x for x in lines.splitlines(True) if "Rome R" in x))
    with pytest.raises(
        RegardError, match="all questions with their answers exceed 20 tokens; raise"
    ):
        Answers(AnswersSettings(length=20, longest=8, **asked)).split("train")


def test_a_small_model_learns_facts_by_heart_and_tells_them(tmp_path):
    facts = [("Ann", "Rome"), ("Bob", "Oslo"), ("Cid", "Kiev"), ("Dee", "Lima")]
    texts = "".join(f"{name} was born in {place} .\n" for name, place in facts for _ in range(3))
    (tmp_path / "t.txt").write_text(texts)
    (tmp_path / "q.tsv").write_text("".join(f"Where was {n} born?\t{p}\n" for n, p in facts[:3]))
    (tmp_path / "d.tsv").write_text(f"Where was {facts[3][0]} born?\t{facts[3][1]}\n")
    asked = AnswersSettings(
        data=str(tmp_path / "q.tsv"),
        texts=str(tmp_path / "t.txt"),
        test=str(tmp_path / "d.tsv"),
        length=48,
        validation=0.5,
        split_seed=2,
    )
    task = Answers(asked)
    model = decoder(task, width=32)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    indexes = np.arange(len(task.split("train")))
    for _ in range(60):
        optimizer.zero_grad()
        task.loss(model, task.batch("train", indexes)).backward()
        optimizer.step()
    exact, loss = task.judge(model, "train")
    assert exact == 1
    assert loss < 0.1
    pair = task.split("train").pairs[0]
    assert task.decode(task.write(model, [pair.source])[0][0].tokens) == pair.target


def test_tasks_by_name():
    settings = TASKS["birthplace-pretrain"].configure({"length": "64"})
    assert isinstance(TASKS["birthplace-pretrain"].prepare(settings), BirthplacePretraining)
    assert TASKS["birthplace"].prepare(TASKS["birthplace"].configure()).metric == "exact match"
