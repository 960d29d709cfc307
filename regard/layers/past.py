"""Whose past is whose, while texts are written: what several beginnings of one text share."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention import Mask, dense


class Past:
    """Which keys of a cache each row of a step may look at: its own ancestors.

    A cache keeps the keys of a text once, and the rows of a step (a beam's) are so many queries of
    that text, so that a row that goes on from another copies nothing. ``seen`` says which of the
    keys that are there before the first step are real: those of prompts of different lengths.
    """

    def __init__(self, seen: Bool[Tensor, "batch time"] | None = None) -> None:
        #: (batch, rows, all rows of all steps); None as long as every row sees all that is kept.
        self.ancestors: Bool[Tensor, "batch rows past"] | None = None
        self.length = 0 if seen is None else seen.shape[1]
        if seen is not None and not bool(seen.all()):
            self.ancestors = seen[:, None]

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None
    ) -> Mask | None:
        """Add a step of these rows, each going on from a row of the step before; what they see.

        Without ``parents`` row r goes on from row r, or all from the only one. None: everything.
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
        return dense(self.ancestors)

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on with these texts alone."""
        if self.ancestors is not None:
            self.ancestors = self.ancestors[rows]
