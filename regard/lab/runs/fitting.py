"""Fit the last layer of a network on a frozen encoder: one pass over the texts, then a solver."""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.core.memory import peak_mb
from regard.lab.tasks.heads import PENALTIES, Head
from regard.lab.tasks.texts import TextTask
from regard.nn.layers.device import evaluation_mode, to_device
from regard.nn.models.classifiers import Classifier
from regard.training.batches import sorted_batches
from regard.training.learnable import Split
from regard.training.loop import Progress, using_threads
from regard.training.precision import Precision, choose_device
from regard.training.settings import TrainingSettings

READ: tuple[Split, Split] = ("train", "validation")


class Fitting:
    """Fits only the last layer of a network.

    The states of train and validation are computed once and kept in memory, 4 · width bytes per
    text. C is chosen by cross-validation of train (`regard.lab.tasks.heads`); after the
    validation score and the task's `decision` the layer is fitted again, to train and validation.
    Deterministic.
    """

    def __init__(
        self,
        network: Classifier,
        task: TextTask,
        settings: TrainingSettings,
        precision: Precision,
    ) -> None:
        self.network, self.task, self.precision = network, task, precision
        self.settings, self.device = settings, choose_device(settings.device)
        network.to(self.device)
        self.lengths = {split: task.split(split).lengths for split in READ}
        self.batches = [(split, indexes) for split in READ for indexes in self._plan(split)]
        self.begun, self.tokens = time.monotonic(), 0
        self.decision: dict[str, Any] = {}

    def run(self) -> Iterator[Progress]:
        """Encode all texts, yielding after each batch, then fit; the last yield has the metric."""
        self.begun = time.monotonic()
        states = {split: self._empty(split) for split in READ}
        with using_threads(self.settings.threads):
            for step, (split, indexes) in enumerate(self.batches, 1):
                states[split][indexes] = self.states(split, indexes)
                # The layer is not fitted yet: the loss is that of uniform probabilities.
                yield self._progress(step, math.log(max(self.task.sizes["labels"], 2)))
            chosen = self._fit(states["train"], self.task.split("train").labels)
            metric, loss = self.task.judge(self.network, "validation")
            self.decision = self.task.decide(self.network)
            self._fit(
                np.concatenate([states[split] for split in READ]),
                np.concatenate([self.task.split(split).labels for split in READ]),
                (chosen.inverse_penalty,),
            )
        self.network.eval()
        yield self._progress(len(self.batches) + 1, chosen.loss, metric, loss)

    def begin(self) -> None:
        """Fit the layer to the train split, as a fine-tuning's initial layer."""
        states = self._empty("train")
        with using_threads(self.settings.threads):
            for indexes in self._plan("train"):
                states[indexes] = self.states("train", indexes)
            self._fit(states, self.task.split("train").labels)

    def _empty(self, split: Split) -> NDArray[np.float32]:
        width = self.network.to_labels.in_features + self.task.sizes.get("features", 0)
        return np.zeros((len(self.lengths[split]), width), np.float32)

    @torch.no_grad()
    def _fit(
        self,
        states: NDArray[np.float32],
        answers: NDArray[Any],
        penalties: Sequence[float] = PENALTIES,
    ) -> Head:
        """Fit the layer and write it into the network."""
        head = self.task.fit_head(states, answers, penalties)
        width = self.network.to_labels.in_features
        self.network.to_labels.weight.copy_(torch.from_numpy(head.weight[:, :width]))
        if head.weight.shape[1] > width:
            columns = cast(nn.Linear, self.network.columns)
            columns.weight.copy_(torch.from_numpy(head.weight[:, width:]))
        self.network.to_labels.bias.copy_(torch.from_numpy(head.bias))
        return head

    @torch.no_grad()
    def states(self, split: Split, indexes: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return one vector for each of these texts of a split, with its further columns."""
        batch = to_device(self.network, self.task.batch(split, indexes))
        with evaluation_mode(self.network), self.precision.autocast(self.device.type):
            vectors = self.network.vector(batch.tokens, batch.lengths).float()
        self.tokens += int(self.lengths[split][indexes].sum())
        more = [] if batch.features is None else [batch.features]
        return np.asarray(torch.cat([vectors, *more], 1).cpu().numpy(), dtype=np.float32)

    def _plan(self, split: Split) -> list[NDArray[np.int64]]:
        """Return the batches of a split, short texts first."""
        return sorted_batches(self.lengths[split], self.device.type)

    def _progress(
        self, step: int, loss: float, metric: float | None = None, held: float | None = None
    ) -> Progress:
        """Return the progress; the fitting is done once there is a metric."""
        seconds = max(time.monotonic() - self.begun, 1e-9)
        whole = sum(int(lengths.sum()) for lengths in self.lengths.values())
        left = seconds * max(whole / max(self.tokens, 1) - 1, 0.01)
        return Progress(
            step=step,
            steps=len(self.batches) + 1,
            epoch=min(self.tokens / max(whole, 1), 1.0),
            loss=loss,
            learning_rate=0.0,
            tokens=self.tokens,
            tokens_per_second=self.tokens / seconds,
            seconds=seconds,
            seconds_left=left if metric is None else 0.0,
            validation=metric,
            validation_loss=held,
            best=metric,
            peak_mb=peak_mb(),
        )
