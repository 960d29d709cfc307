"""The training benchmark compares like with like, and says what it measured."""

import numpy as np
import pytest
import torch

from benchmarks import multiples, text_training
from regard.core.errors import RegardError

SMALL = ["data=reviews", "examples=400", "width=8", "layers=1", "heads=2", "feedforward=8"]


def test_speed_and_accuracy_of_both_on_built_in_reviews() -> None:
    speed, epoch = text_training.cases(
        settings=[*SMALL, "rounds=2", "round_tokens=500", "batch_tokens=512", "epoch=1"]
    )
    assert speed["time_ratio"] > 0
    assert speed["ours_tokens_per_s"] == pytest.approx(1000 / speed["ours_s"])
    assert "1 layers, width 8, 2 heads" in speed["name"]
    assert 0.3 < epoch["ours_accuracy"] <= 1
    assert 0.3 < epoch["theirs_accuracy"] <= 1
    assert f"accuracy {epoch['ours_accuracy']:.1%} and" in epoch["says"]


def test_the_peer_reads_every_text_once_and_pads_nothing_away() -> None:
    class Data:
        ids = [np.arange(1, 2 + i % 5, dtype=np.int32) for i in range(70)]  # noqa: RUF012
        labels = np.arange(70) % 2

        def __len__(self) -> int:
            return 70

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(2))

        def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            assert tokens.shape == (len(lengths), lengths.max())
            return self.bias.expand(len(tokens), 2)

    steps = list(text_training.train_tutorial(Model(), Data(), seed=0))
    assert len(steps) == 3
    assert sum(steps) == sum(map(len, Data.ids))


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(RegardError, match="no setting is called 'widht'"):
        text_training.cases(settings=["widht=3"])


def test_a_turn_without_work_is_refused() -> None:
    with pytest.raises(RegardError, match="a turn had 8 tokens, not 9: the training ended"):
        text_training.turn(iter([5, 3]), 9)
    assert text_training.turn(iter([5, 4]), 9) > 0
    multiples.must_be_possible(1e6, 1.0)
    with pytest.raises(RegardError, match="the benchmark did not do its work"):
        multiples.must_be_possible(1e18, 1.0)
