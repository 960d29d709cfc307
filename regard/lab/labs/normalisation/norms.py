"""LayerNorm and BatchNorm of the words of texts, and a small Transformer with either."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import MultiHeadAttention, lengths

#: A norm of (texts, words, width); the second argument is True for words, False for padding.
Norm = Callable[[Tensor, Tensor], Tensor]


class LayerNorm(nn.Module):
    """(x − mean) / deviation over the numbers of one word. Ba et al. 2016."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words"]
    ) -> Float[Tensor, "texts words width"]:
        """Normalise each word by itself; padding does not matter."""
        normed: Tensor = self.norm(x)
        return normed


class BatchNorm(nn.Module):
    """(x − mean) / deviation of each number over all words of the batch. Ioffe & Szegedy 2015.

    With ``padding`` the statistics include padding, as a plain ``nn.BatchNorm1d`` over a padded
    batch does. In evaluation it takes running means of the statistics of training.
    """

    def __init__(self, width: int, *, padding: bool = False) -> None:
        super().__init__()
        self.norm, self.padding = nn.BatchNorm1d(width), padding

    def forward(
        self, x: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words"]
    ) -> Float[Tensor, "texts words width"]:
        """Normalise all words together. Raises: ValueError of torch for a batch of one word."""
        counted = torch.ones_like(real) if self.padding else real
        normed = x.clone()
        normed[counted] = self.norm(x[counted])
        return normed


class NoNorm(nn.Module):
    """Leave the words as they are."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(
        self, x: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words"]
    ) -> Float[Tensor, "texts words width"]:
        """Return x."""
        return x


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer norm": LayerNorm,
    "batch norm": BatchNorm,
    "no norm": NoNorm,
}


class Block(nn.Module):
    """x + f(norm x) with attention f, then the same with a feed-forward layer."""

    def __init__(self, width: int, make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.before, self.between = make(width), make(width)
        self.attention = MultiHeadAttention(width, 2)
        self.inner = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(
        self, x: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words"]
    ) -> Float[Tensor, "texts words width"]:
        """Return the next states; padding is not attended to."""
        x = x + self.attention(self.before(x, real), mask=lengths(real.sum(1)))
        step: Tensor = x + self.inner(self.between(x, real))
        return step


class Labeller(nn.Module):
    """Word and position vectors → blocks → norm → mean of the words → labels."""

    def __init__(
        self, vocabulary: int, longest: int, width: int, layers: int, labels: int, norm: str
    ) -> None:
        super().__init__()
        make = NORMS[norm]
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, make) for _ in range(layers))
        self.last, self.labels = make(width), nn.Linear(width, labels)

    def forward(self, ids: Int[Tensor, "texts words"]) -> Float[Tensor, "texts labels"]:
        """Return the scores of the labels; id 0 is padding."""
        real = ids > 0
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, real)
        x = self.last(x, real) * real[..., None]
        logits: Tensor = self.labels(x.sum(1) / real.sum(1, keepdim=True))
        return logits
