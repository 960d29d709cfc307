"""A task and a model that train in milliseconds, with dropout, an embedding and a norm."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.lab.tasks.classification.metrics import correct, log_loss
from regard.training.batches import pad
from regard.training.learnable import Learnable, Split

WORDS = 11


class ToyBatch(NamedTuple):
    tokens: Tensor
    lengths: Tensor
    labels: Tensor


class Toy(Learnable[ToyBatch]):
    """Does the text hold more of the words below 6 than of the others?"""

    metric = "accuracy"
    labels = ("few", "many")

    def __init__(self, train: int = 60, held: int = 30) -> None:
        random = np.random.default_rng(5)
        self.texts = {
            split: [random.integers(1, WORDS, random.integers(1, 8)) for _ in range(count)]
            for split, count in (("train", train), ("validation", held))
        }

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        return np.array([len(text) for text in self.texts[split]])

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> ToyBatch:
        tokens, lengths = pad([self.texts[split][i] for i in indexes])
        return ToyBatch(tokens, lengths, torch.as_tensor(self.answers(split)[indexes]))

    def loss(self, model: nn.Module, batch: ToyBatch) -> Tensor:
        return F.cross_entropy(model(batch.tokens, batch.lengths), batch.labels)

    def predict(
        self, model: nn.Module, what: Split | Sequence[str], *, tokens: int = 0
    ) -> NDArray[np.float32]:
        assert what in self.texts, f"the loop read {what!r}"
        model.eval()
        everything = self.batch("validation", np.arange(len(self.texts["validation"])))
        with torch.no_grad():
            return model(everything.tokens, everything.lengths).softmax(-1).numpy()

    def judge(self, model: nn.Module, split: Split, *, tokens: int = 0) -> tuple[float, float]:
        said, answers = self.predict(model, split), self.answers(split)
        return float(correct(said, answers).mean()), log_loss(said, answers)

    def answers(self, split: Split) -> NDArray[np.integer]:
        return np.array([int((text < 6).sum() * 2 > len(text)) for text in self.texts[split]])


class Bag(nn.Module):
    """Mean of embeddings, norm, dropout, linear."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(WORDS, 5, padding_idx=0)
            self.norm = nn.LayerNorm(5)
            self.dropout = nn.Dropout(0.3)
            self.to_logits = nn.Linear(5, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        mean = self.embedding(tokens).sum(1) / lengths[:, None]
        return self.to_logits(self.dropout(self.norm(mean))) * self.scale
