"""How the processes of a training share a network: DDP, FSDP2, or one process alone.

DistributedDataParallel (Li et al. 2020) keeps all weights in every process and averages gradients
in buckets while the backward pass goes on. ``fully_shard`` (FSDP2; Zhao et al. 2023) keeps in each
process a share of the rows of weights, gradients and optimizer state, and gathers the weights of
each Transformer block while it computes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.layers.device import to_device
from regard.ranks import Ranks
from regard.tasks.task import Learnable
from regard.training.blocks import Shapes, blocks_of, compile_blocks, recompute, restore
from regard.training.precision import Precision
from regard.training.sharded import whole

Share = tuple[Any, Tensor]  # a part of a batch, and its share in each mean of the loss


class Objective(nn.Module):
    """The loss of a part of a batch, as the module that DDP and FSDP2 wrap: Σ shareᵢ · meanᵢ."""

    def __init__(self, model: nn.Module, task: Learnable[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Any, shares: Tensor) -> Tensor:
        """Return the part's contribution to the loss of the whole batch."""
        means = self.task.means(self.model, batch)
        return (means * shares.to(means)).sum()


class Parallel:
    """A network as this process trains it.

    `model` is the network that is trained: the given one, or with FSDP2 a sharded copy; then the
    given one is whole in every process and used for validation.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Learnable[Any],
        ranks: Ranks,
        precision: Precision,
        *,
        strategy: str = "ddp",
        activation_checkpointing: bool = False,
        compiled: bool = False,
        accumulate: int = 1,
    ) -> None:
        self.ranks, self.precision = ranks, precision
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.sharded = strategy == "fsdp2" and ranks.world > 1
        self.model = deepcopy(model) if self.sharded else model
        self.blocks = blocks_of(self.model)
        self.graphs, self.shapes = False, Shapes()
        if compiled:
            once = ranks.world == accumulate == 1 and not activation_checkpointing
            self.graphs = compile_blocks(self.blocks, self.device.type, self.shapes, once=once)
        if activation_checkpointing:
            for block in self.blocks:
                recompute(block)
        self.objective: nn.Module = Objective(self.model, task)
        self.wrapped: nn.Module | None = self.objective if ranks.world == 1 else None
        if self.sharded:
            self.wrapped = self._shard()

    def backward(self, parts: Sequence[Share]) -> Tensor:
        """Compute the gradient of the loss over all parts of all processes; return our share.

        Only the last part exchanges gradients.
        """
        value = torch.zeros((), device=self.device)
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with nullcontext() if self.ranks.world == 1 else self.ranks.meeting():
            wrapped = self.wrapped or self._ddp(parts[0])
            for place, (batch, shares) in enumerate(parts):
                with self._exchanging(wrapped, place == len(parts) - 1):
                    # DDP and FSDP2 return the mean over the processes, not the sum.
                    value = value + self._backward(wrapped, batch, shares * self.ranks.world)
            self._average_scalars()
        return value / self.ranks.world

    def close(self) -> None:
        """Undo what was done to the blocks of the given network."""
        for block in self.blocks:
            restore(block)

    def _backward(self, objective: nn.Module, batch: Any, shares: Tensor) -> Tensor:
        with self.precision.autocast(self.device.type):
            loss: Tensor = objective(to_device(self.model, batch), shares.to(self.device))
        loss.backward()
        return loss.detach()

    @contextmanager
    def _exchanging(self, wrapped: nn.Module, last: bool) -> Iterator[None]:
        """Exchange gradients in the last backward pass of a step only."""
        if self.sharded:
            cast(Any, wrapped).set_requires_gradient_sync(last)
        without = None if last or self.sharded else getattr(wrapped, "no_sync", None)
        with nullcontext() if without is None else without():
            yield

    def _ddp(self, part: Share) -> nn.Module:
        """Wrap the objective, after a look at which parameters a batch leaves without gradient.

        The search for unused parameters costs time in every step, so that it is left out where the
        first batch uses all.
        """
        gpus = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):
            self._backward(self.objective, *part)
        learned = [p for p in self.model.parameters() if p.requires_grad]
        (unused,) = self.ranks.total(float(sum(p.grad is None for p in learned)))
        for p in learned:
            p.grad = None
        self.wrapped = nn.parallel.DistributedDataParallel(
            self.objective,
            forward_sync_buffers=False,
            find_unused_parameters=unused > 0,
            gradient_as_bucket_view=True,
        )
        return self.wrapped

    def _shard(self) -> nn.Module:
        """Shard the blocks, then the rest."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(self.device.type, (self.ranks.world,))
        low = torch.bfloat16 if self.precision.name == "bf16" else None
        sums = torch.float32 if low else None
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=sums)
        scalars = {p for p in self.model.parameters() if not p.ndim}  # which have no rows
        for block in self.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, ignored_params=scalars)
        rest = MixedPrecisionPolicy(
            param_dtype=low, reduce_dtype=sums, cast_forward_inputs=False
        )  # the true answers of a regression stay exact
        fully_shard(self.objective, mesh=mesh, mp_policy=rest, ignored_params=scalars)
        return self.objective

    def _average_scalars(self) -> None:
        """Average the gradients of the parameters that FSDP2 leaves whole, those without axes."""
        scalars = [p for p in self.model.parameters() if not p.ndim and p.requires_grad]
        if not self.sharded or not scalars:
            return
        used = [float(p.grad is not None) for p in scalars]
        sums = self.ranks.total(*used, *(0.0 if p.grad is None else p.grad.item() for p in scalars))
        for p, users, value in zip(scalars, sums, sums[len(scalars) :], strict=False):
            if users:
                p.grad = torch.full_like(p, value / self.ranks.world)


def clip(model: nn.Module, most: float) -> Tensor:
    """Scale all gradients so that their common norm is at most ``most``; return the norm before."""
    return whole(nn.utils.clip_grad_norm_(model.parameters(), most))
