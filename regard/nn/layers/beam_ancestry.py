"""Ancestry of beam search rows: which cached keys each row of a step may attend to."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention import Mask, dense


class BeamAncestry:
    """Tracks which cached keys each row of a step may attend to: those of its ancestors.

    A cache keeps the keys of a text once, and the rows of a step (its beams) are queries of that
    text, so a row that continues another copies nothing. ``seen`` marks the real keys among those
    cached before the first step, if prompts have different lengths.
    """

    def __init__(self, seen: Bool[Tensor, "batch time"] | None = None) -> None:
        #: (batch, rows, all rows of all steps); None while every row sees all cached keys.
        self.ancestors: Bool[Tensor, "batch rows past"] | None = None
        self.length = 0 if seen is None else seen.shape[1]
        if seen is not None and not bool(seen.all()):
            self.ancestors = seen[:, None]

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None
    ) -> Mask | None:
        """Add a step of these rows and return its mask, or None if every row sees all keys.

        ``parents`` are the rows of the previous step that the rows continue. By default row r
        continues row r, or all rows continue the only one.
        """
        batch, rows = tokens.shape
        before, length = self.ancestors, self.length
        self.length += rows
        if rows == 1 and before is None:
            return None
        if before is None:
            before = torch.ones(batch, 1, length, dtype=torch.bool, device=tokens.device)
        if parents is None:
            every = torch.arange(rows, device=tokens.device).clamp(max=before.shape[1] - 1)
            parents = every.expand(batch, rows)
        inherited = before.gather(1, parents[..., None].expand(-1, -1, before.shape[2]))
        own = torch.eye(rows, dtype=torch.bool, device=tokens.device).expand(batch, rows, rows)
        self.ancestors = torch.cat([inherited, own], -1)
        mask = dense(self.ancestors)
        mask.parents = parents
        return mask

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Drop all texts but these."""
        if self.ancestors is not None:
            self.ancestors = self.ancestors[rows]
