"""The benchmark of language models compares like with like, and says what it measured."""

import numpy as np
import pytest
import torch

from regard.benchmarks import language_model_training as bench
from regard.errors import RegardError

QUICK = ["rounds=1", "seconds=0.01", "batch=600"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench, "SIZES", bench.Sizes(16, 2, 1, 24))
    monkeypatch.setattr(bench, "ROWS", 4)


@pytest.mark.parametrize("case", ["pretrain", "finetune"])
def test_beside_minigpt(case):
    (row,) = bench.cases(settings=[*QUICK, f"case={case}", "data=biographies"])
    assert row["time_ratio"] == pytest.approx(row["theirs_s"] / row["ours_s"])
    assert row["reached"] == (row["time_ratio"] >= bench.AIMS[case])


@pytest.mark.parametrize("case", ["gpt", "bert", "t5"])
def test_beside_hugging_face(case):
    pytest.importorskip("transformers")
    rows = list(bench.cases(settings=[*QUICK, f"case={case}", "data=biographies"]))
    assert [row["against"] for row in rows] == ["transformers, fp32", "transformers, bf16"]


def test_the_padded_decoder_sees_no_future():
    torch.manual_seed(0)
    model = bench.Padded(11).eval()
    tokens = torch.randint(1, 11, (2, 9))
    changed = tokens.clone()
    changed[:, 5:] = 3
    assert torch.equal(model(tokens)[:, :5], model(changed)[:, :5])


@pytest.mark.parametrize("case", ["gpt", "bert", "t5"])
def test_both_sides_are_asked_the_same(case):
    pytest.importorskip("transformers")
    _, task = bench.prepared(case, bench.BenchSettings(data="biographies"))
    batch = task.batch("train", task.batches("train", tokens=900, seed=0, epoch=0)[0])
    given = bench.asked(case, batch)
    labels = given["labels"]
    if case == "gpt":  # shifted inside: the last token behind a row is asked of us alone
        assert torch.equal(labels[:, 1:], batch.wanted[:, :-1])
    else:
        assert torch.equal(labels[batch.real], batch.wanted[batch.real])
        assert (labels[~batch.real] == -100).all()
    model = bench.hugging_face(case, task.sizes["vocabulary"]).eval()
    loss = model(**given).loss.item()
    assert np.isfinite(loss)
    assert loss > 2


def test_unknown_settings_are_refused():
    with pytest.raises(RegardError, match="case=gtp is none of pretrain, finetune, gpt, bert, t5"):
        bench.cases(settings=["case=gtp"])
