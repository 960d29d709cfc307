"""Weights between what is written and what is read, for models that look in other ways."""

import pytest
import torch

from regard.analysis.alignment import source_weights
from regard.lab.tasks.models import WRITERS

SOURCE, LENGTHS = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]), torch.tensor([4, 2])
GIVEN = torch.tensor([[0, 3, 5], [0, 2, 0]])


@pytest.mark.parametrize(
    ("name", "settings", "layers"),
    [
        ("bahdanau", {"width": 6, "hidden": 8}, [("attention", 1)]),
        ("luong-dot", {"width": 6, "hidden": 8}, [("attention", 1)]),
        (
            "transformer",
            {"width": 8, "heads": 2, "layers": 3, "feedforward": 8},
            [(f"decoder.{layer}.memory_attention", 2) for layer in range(3)],
        ),
        ("gru", {"width": 6, "hidden": 8}, []),
    ],
)
def test_a_row_is_a_word_and_padding_gets_nothing(name, settings, layers):
    model = WRITERS[name].build(WRITERS[name].configure(settings), vocabulary=11, labels=0).eval()
    found = source_weights(model, SOURCE, LENGTHS, GIVEN)
    assert len(found) == len(layers)
    for (name, weights), (begins, heads) in zip(found.items(), layers, strict=True):
        assert name.startswith(begins)
        assert weights.shape[1] == heads
    for weights in found.values():
        assert weights.shape[2:] == (3, 4)
        assert weights.sum(-1) == pytest.approx(1, abs=1e-5)
        assert weights[1, :, :, 2:].abs().max() == 0


def test_rows_asked_one_by_one_are_those_asked_at_once():
    """bahdanau asks word by word; its third row looks as when the third word is the last."""
    entry = WRITERS["bahdanau"]
    model = entry.build(entry.configure({"width": 6, "hidden": 8}), vocabulary=11, labels=0).eval()
    whole = source_weights(model, SOURCE, LENGTHS, GIVEN)["attention"]
    part = source_weights(model, SOURCE, LENGTHS, GIVEN[:, :2])["attention"]
    assert torch.allclose(whole[:, :, :2], part, atol=1e-6)
