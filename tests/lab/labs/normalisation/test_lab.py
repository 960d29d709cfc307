"""The lab of normalisation: norms against their formula, a small run."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.normalisation.ablation import accuracy, data
from regard.lab.labs.normalisation.norms import BatchNorm, Labeller, LayerNorm
from regard.lab.labs.normalisation.reasons import lengths_differ, mixed, residuals
from tests.lab.labs.conftest import quiet

SMALL = ["steps=1", "seeds=2", "small=2", "large=4", "width=8", "depth=4"]


def test_norms_are_their_formulas() -> None:
    x = 3 + 2 * torch.randn(2, 3, 4)
    real = torch.tensor([[True, True, True], [True, False, False]])
    layer = (x - x.mean(-1, keepdim=True)) / x.var(-1, unbiased=False, keepdim=True).sqrt()
    assert_close(LayerNorm(4)(x, real), layer, atol=1e-4, rtol=1e-4)
    words = x[real]
    batch = (words - words.mean(0)) / words.var(0, unbiased=False).sqrt()
    assert_close(BatchNorm(4)(x, real)[real], batch, atol=1e-4, rtol=1e-4)
    assert torch.equal(BatchNorm(4)(x, real)[~real], x[~real])
    everything = (x - x.mean((0, 1))) / x.var((0, 1), unbiased=False).sqrt()
    assert_close(BatchNorm(4, padding=True)(x, real), everything, atol=1e-4, rtol=1e-4)


def test_three_reasons_hold() -> None:
    for part in (lengths_differ(16, 0), residuals(16, 12, 0), mixed(16, 0)):
        assert [key for key, (_, holds) in part.claims.items() if not holds] == []
    _, rows = lengths_differ(16, 0).tables["moves-table"]
    assert [row[0] for row in rows] == ["2", "4", "8", "16", "32", "64"]
    assert all(float(row[1]) < 1e-3 < float(row[2]) for row in rows)  # per cent


@pytest.mark.deep
def test_the_lab(tmp_path: Path) -> None:
    said: list[str] = []
    request = LabRequest(out=tmp_path, overrides=SMALL)
    record = open_lab("normalisation").run(request, said.append, quiet)
    rows = record["tables"][-1]["rows"]
    arms = ["layer norm", *(f"batch norm, tested by {read}" for read in
                            ("running means", "the batch", "one by one")), "no norm"]  # fmt: skip
    assert [(row[0], row[1]) for row in rows] == [(arm, b) for b in ("2", "4") for arm in arms]
    assert sum(one["says"].startswith("4: in batches of") for one in record["claims"]) == 2
    assert any("report: " in line for line in said)


def test_a_test_without_running_means_reads_the_batch() -> None:
    training, test = data(40, 0)
    torch.manual_seed(0)
    model = Labeller(training.vocabulary, training.ids.shape[1], 8, 1, 2, "layer norm")
    assert accuracy(model, test, "running means") == accuracy(model, test, "the batch")
    assert not model.training or model.train(False)
