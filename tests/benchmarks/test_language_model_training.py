"""The benchmark of language models compares like with like, and says what it measured."""

import itertools

import numpy as np
import pytest
import torch

from benchmarks import language_model_peers as peers
from benchmarks import language_model_training as bench
from benchmarks import nanogpt
from regard.core.errors import RegardError

QUICK = ["rounds=1", "seconds=0.01", "batch=600"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(peers, "SIZES", peers.Sizes(16, 2, 1, 24))
    monkeypatch.setattr(bench, "ROWS", 4)


@pytest.mark.parametrize("case", ["pretrain", "finetune"])
def test_against_minigpt(case):
    (row,) = bench.cases(settings=[*QUICK, f"case={case}", "data=biographies"])
    assert row["time_ratio"] == pytest.approx(row["theirs_s"] / row["ours_s"])
    assert row["reached"] == (row["time_ratio"] >= bench.AIMS[case])


@pytest.mark.parametrize("case", ["gpt", "bert", "t5"])
def test_against_hugging_face(case):
    pytest.importorskip("transformers")
    rows = list(bench.cases(settings=[*QUICK, f"case={case}", "data=biographies"]))
    assert [row["against"] for row in rows] == ["transformers, fp32", "transformers, bf16"]


def test_the_padded_decoder_sees_no_future():
    torch.manual_seed(0)
    model = peers.Padded(11).eval()
    tokens = torch.randint(1, 11, (2, 9))
    changed = tokens.clone()
    changed[:, 5:] = 3
    assert torch.equal(model(tokens)[:, :5], model(changed)[:, :5])


@pytest.mark.parametrize("case", ["gpt", "bert", "t5"])
def test_both_sides_are_asked_the_same(case):
    pytest.importorskip("transformers")
    _, task = bench.prepared(case, bench.BenchSettings(data="biographies"))
    batch = task.batch("train", task.batches("train", tokens=900, seed=0, epoch=0)[0])
    given = peers.asked(case, batch)
    labels = given["labels"]
    if case == "gpt":  # shifted inside: the last token behind a row is asked of us alone
        assert torch.equal(labels[:, 1:], batch.wanted[:, :-1])
    else:
        assert torch.equal(labels[batch.real], batch.wanted[batch.real])
        assert (labels[~batch.real] == -100).all()
    model = peers.hugging_face(case, task.sizes["vocabulary"]).eval()
    loss = model(**given).loss.item()
    assert np.isfinite(loss)
    assert loss > 2


def test_unknown_settings_are_refused():
    with pytest.raises(
        RegardError, match="case=gtp is none of pretrain, finetune, gpt, bert, t5, c"
    ):
        bench.cases(settings=["case=gtp"])


def test_against_nanogpt_in_equal_seconds(monkeypatch):
    ticks = (
        itertools.count()
    )  # a clock of its own: beside other programs the true one proves little
    monkeypatch.setattr(nanogpt.time, "perf_counter", lambda: next(ticks) / 4)
    monkeypatch.setattr(nanogpt, "SLICES", 4)
    settings = ["case=characters", "data=biographies", "steps=4"]
    (row,) = bench.cases(settings=settings)
    assert row["ours_s"] == row["theirs_s"] == 1.0
    assert row["reached"] == (row["our_loss"] < row["their_loss"])
    assert max(row["our_loss"], row["their_loss"]) < 4.5  # both learn: ln 87 characters = 4.47


def test_nanogpt_as_its_author_counts_it():
    model = nanogpt.NanoGPT(65)
    assert sum(p.numel() for p in model.parameters()) == 804_096  # 0.80M as its log says
    assert nanogpt.rate_at(0, 2_000) == pytest.approx(1e-3 / 101)
    assert nanogpt.rate_at(100, 2_000) == pytest.approx(1e-3)
    assert nanogpt.rate_at(2_000, 2_000) == pytest.approx(1e-4)


def test_nanogpt_sees_no_future():
    model = nanogpt.NanoGPT(11).eval()
    tokens = torch.randint(1, 11, (2, 9), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5:] = 3
    assert torch.equal(model(tokens)[:, :5], model(changed)[:, :5])
