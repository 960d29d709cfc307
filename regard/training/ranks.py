"""Data-parallel training with several processes, started by torchrun (RANK and WORLD_SIZE).

Each process takes its share of an epoch's batches. Gradients are averaged, so that all processes
have the same weights after every step. Only the first one validates, writes files and prints.
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

PATIENCE = timedelta(days=1)  # the others wait while the first one validates


@dataclass(frozen=True)
class Ranks:
    """The rank of this process among `world`. With one process, methods return their arguments."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Return whether this is the process that validates, writes files and prints."""
        return self.rank == 0

    def average(self, model: nn.Module) -> None:
        """Replace the gradients by their mean over all processes."""
        if self.world == 1:
            return
        held = [p for p in model.parameters() if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in held]
        flat = torch.cat([grad.reshape(-1) for grad in gradients])
        distributed.all_reduce(flat)
        flat /= self.world
        for p, mean in zip(held, flat.split([p.numel() for p in held]), strict=True):
            if (
                p.grad is not None or mean.any()
            ):  # a parameter that no process used keeps no gradient
                p.grad = mean.view_as(p)

    def total(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all processes."""
        if self.world == 1:
            return list(numbers)
        sums = self._tensor(numbers)
        distributed.all_reduce(sums)
        return sums.tolist()

    def least(self, number: int) -> int:
        """Return the minimum of a number over all processes."""
        if self.world == 1:
            return number
        least = self._tensor([number])
        distributed.all_reduce(least, distributed.ReduceOp.MIN)
        return int(least.item())

    def broadcast(self, *numbers: float) -> list[float]:
        """Return the first process's numbers in every process."""
        if self.world == 1:
            return list(numbers)
        values = self._tensor(numbers)
        distributed.broadcast(values, 0)
        return values.tolist()

    def wait(self) -> None:
        """Wait until all processes have arrived here."""
        self.total(0.0)

    def _tensor(self, numbers: "tuple[float, ...] | list[int]") -> Tensor:
        nccl = distributed.get_backend() == "nccl"
        return torch.tensor(numbers, dtype=torch.float64, device="cuda" if nccl else "cpu")


@cache
def ranks() -> Ranks:
    """Return this process's rank, from RANK and WORLD_SIZE; one process without them.

    The processes meet at MASTER_ADDR, which torchrun sets, by default to this machine's address.
    Errors: an invalid rank or world size.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    rank = os.environ.get("RANK", "0")
    if not (world.isdecimal() and rank.isdecimal() and int(rank) < max(int(world), 1)):
        raise RegardError(
            f"RANK={rank} and WORLD_SIZE={world} are invalid; RANK must be below WORLD_SIZE"
        )
    if int(world) <= 1:
        return Ranks()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not distributed.is_initialized():
        distributed.init_process_group(timeout=PATIENCE)
        atexit.register(_leave)
    return Ranks(int(rank), int(world))


def _leave() -> None:
    """Stop the threads of the group: one that is alive at exit would abort the process."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
