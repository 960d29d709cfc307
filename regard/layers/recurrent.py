"""A text read from both ends."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.layers.embedding import inside


class Bidirectional(nn.Module):
    """States of two LSTMs or GRUs, one from each end, side by side. Graves & Schmidhuber 2005.

    The backward one starts at the text's last word, not at the padding: it reads the text turned
    around. That is what packed sequences do, which on a CPU take six times as long.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        layers: int = 1,
        dropout: float = 0.0,
        *,
        kind: type[nn.LSTM] | type[nn.GRU] = nn.LSTM,
    ) -> None:
        super().__init__()
        widths = [width] + [2 * hidden] * (layers - 1)
        self.forwards = nn.ModuleList(kind(w, hidden, batch_first=True) for w in widths)
        self.backwards = nn.ModuleList(kind(w, hidden, batch_first=True) for w in widths)
        self.width = 2 * hidden
        self.dropout = dropout

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time states"]:
        """Both directions' states at each word; zeros on padding. Dropout between layers."""
        text = inside(lengths, x.shape[1])[..., None]
        for layer, (forwards, backwards) in enumerate(
            zip(self.forwards, self.backwards, strict=True)
        ):
            if layer:
                x = drop(x, self.dropout, self.training)
            turned = turn(backwards(turn(x, lengths))[0], lengths)
            x = torch.cat([forwards(x)[0], turned], 2) * text
        return x


def turn(
    x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch time width"]:
    """Each text from its last vector to its first; what follows it stays where it is.

    >>> turn(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([2])).flatten().tolist()
    [2.0, 1.0, 3.0]
    """
    place = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
    place = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return x.gather(1, place[..., None].expand(-1, -1, x.shape[2]))
