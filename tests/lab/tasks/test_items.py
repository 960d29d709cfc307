"""The loss of a batch is the mean of its parts' losses, weighted by their items, for every task."""

import numpy as np
import pytest
import torch

from regard.lab.runs.build import begin, prepare
from regard.lab.runs.config import Config
from regard.lab.tasks import TASKS

SMALL = {
    "classification": ["class_weights=balanced", "examples=60"],
    "masked-modeling": ["next_sentence=true", "examples=60"],
    "reverse": ["examples=60"],
    "induction": ["examples=60"],
    "birthplace": [],
    "regression": ["examples=60"],
    "multilabel": ["examples=60"],
    "tagging": ["examples=60"],
}


@pytest.mark.parametrize("name", SMALL)
def test_parts_of_a_batch_have_its_loss(name: str) -> None:
    config = Config.make(name, TASKS[name].model, SMALL[name])
    task = prepare(config)
    model = begin(config, task)[0].eval()
    plan = task.batches("train", tokens=600, seed=0, epoch=0)
    indexes = max(plan[:20], key=len)
    assert len(indexes) > 2
    with torch.no_grad():
        whole = task.loss(model, task.batch("train", indexes)).sum().item()
        parts = [task.batch("train", indexes[part::3]) for part in range(3)]
        means = np.array([task.loss(model, part).reshape(-1).double().numpy() for part in parts])
    items = np.array([task.items(part) for part in parts])
    assert (means * items / items.sum(0)).sum() == pytest.approx(whole, rel=1e-5)
    assert (means * items).sum() != pytest.approx(whole, rel=1e-2)
