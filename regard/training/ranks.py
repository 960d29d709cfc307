"""Several processes that train one network: torchrun's RANK and WORLD_SIZE, PyTorch's own groups.

Each process takes its share of an epoch's batches; their gradients are averaged, so that all have
the same weights after every step. The first one alone validates, writes and speaks.
"""

import atexit
import os
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from regard.errors import RegardError

PATIENCE = timedelta(days=1)  # while the first one validates, the others wait


@dataclass(frozen=True)
class Ranks:
    """This process's place, `rank` of `world`. Alone, every method gives back what it is given."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that validates, writes and speaks."""
        return self.rank == 0

    def average(self, model: nn.Module) -> None:
        """Put the mean over all processes into the gradients."""
        if self.world == 1:
            return
        held = [p for p in model.parameters() if p.requires_grad]
        given = [torch.zeros_like(p) if p.grad is None else p.grad for p in held]
        flat = torch.cat([grad.reshape(-1) for grad in given])
        distributed.all_reduce(flat)
        flat /= self.world
        for p, mean in zip(held, flat.split([p.numel() for p in held]), strict=True):
            if p.grad is not None or mean.any():  # what nobody used has no gradient
                p.grad = mean.view_as(p)

    def total(self, *numbers: float) -> list[float]:
        """The sum of each number over all processes."""
        if self.world == 1:
            return list(numbers)
        sums = self._tensor(numbers)
        distributed.all_reduce(sums)
        return sums.tolist()

    def least(self, number: int) -> int:
        """The least of a number over all processes."""
        if self.world == 1:
            return number
        least = self._tensor([number])
        distributed.all_reduce(least, distributed.ReduceOp.MIN)
        return int(least.item())

    def told(self, *numbers: float) -> list[float]:
        """The first process's numbers."""
        if self.world == 1:
            return list(numbers)
        told = self._tensor(numbers)
        distributed.broadcast(told, 0)
        return told.tolist()

    def wait(self) -> None:
        """Go on when all processes are here."""
        self.total(0.0)

    def _tensor(self, numbers: "tuple[float, ...] | list[int]") -> Tensor:
        nccl = distributed.get_backend() == "nccl"
        return torch.tensor(numbers, dtype=torch.float64, device="cuda" if nccl else "cpu")


@cache
def ranks() -> Ranks:
    """This process's place, by RANK and WORLD_SIZE; alone without them.

    The processes meet at MASTER_ADDR, which torchrun sets; it takes this machine's own address by
    default. Errors: a place that is none.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    rank = os.environ.get("RANK", "0")
    if not (world.isdecimal() and rank.isdecimal() and int(rank) < max(int(world), 1)):
        raise RegardError(f"RANK={rank} and WORLD_SIZE={world} name no process of a group")
    if int(world) <= 1:
        return Ranks()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not distributed.is_initialized():
        distributed.init_process_group(timeout=PATIENCE)
        atexit.register(_leave)
    return Ranks(int(rank), int(world))


def _leave() -> None:
    """End the group's own threads: one that is alive when Python ends aborts the process."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
