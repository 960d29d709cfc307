"""Share a network among the processes of a training: DDP, FSDP2, or a single process.

DistributedDataParallel (Li et al. 2020) keeps all weights in every process and averages gradients
in buckets during the backward pass. ``fully_shard`` (FSDP2; Zhao et al. 2023) keeps in each
process a share of the rows of weights, gradients and optimizer state, and gathers the weights of
each Transformer block while it computes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.nn.layers.device import to_device
from regard.training.blocks import Shapes, blocks_of, compile_blocks, recompute, restore
from regard.training.learnable import Learnable
from regard.training.precision import Precision
from regard.training.ranks import Ranks
from regard.training.settings import TrainingSettings
from regard.training.sharded import is_sharded, whole

Share = tuple[Any, Tensor]  # a part of a batch, and its share in each mean of the loss


class Objective(nn.Module):
    """The loss of a part of a batch, as the module that DDP and FSDP2 wrap: Σ shareᵢ · meanᵢ."""

    def __init__(self, model: nn.Module, task: Learnable[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Any, shares: Tensor) -> Tensor:
        """Return the part's contribution to the loss of the whole batch."""
        means = self.task.loss(self.model, batch).reshape(-1)
        shares = shares.to(means)
        return (means * shares).where(shares > 0, 0).sum()  # a mean over nothing is NaN


class Course:
    """Records which parts of a network sharded by FSDP2 a step computes, and which parameters.

    Computing a part gathers its weights, which is a collective operation. So all processes must
    compute the same parts in the same order, for any examples. The processes agree on each part of
    the first pass; in later passes each process compares its parts with these before it gathers.

    ``used``: the names of the parameters with a gradient in this process since the last step; FSDP2
    sets the others to zero. Raises: other parts, or another order.
    """

    def __init__(self, objective: nn.Module, blocks: Sequence[nn.Module], ranks: Ranks) -> None:
        self.ranks, self.used = ranks, set[str]()
        self.order: list[int] = []
        self.place, self.known = 0, False
        names = {module: name for name, module in objective.named_modules()}
        tied: dict[int, str] = {}  # the name of a parameter that has several
        self.names = {
            name: tied.setdefault(id(p), name)
            for name, p in objective.named_parameters(remove_duplicate=False)
        }
        for number, part in enumerate([objective, *blocks]):
            enter = partial(self._enter, number, names[part])
            part.register_forward_pre_hook(enter, prepend=True)  # before FSDP2 gathers
            part.register_forward_pre_hook(partial(self._watch, names[part]))  # and after it
        objective.register_forward_hook(lambda *_: self._enter(-1, ""))

    def _enter(self, number: int, name: str, *_: Any) -> None:
        """Compare a part with that of the other processes, or with that of the first pass."""
        if not number:
            self.place = 0
        if self.known:
            equal = self.place < len(self.order) and self.order[self.place] == number
        else:
            sums, squares = self.ranks.total(number, number**2)
            equal = sums == self.ranks.world * number and squares == sums * number
            self.order.append(number)
        self.place, self.known = self.place + 1, self.known or number < 0
        if not equal:
            raise RegardError(
                "strategy=fsdp2 needs the same blocks in the same order in every batch, but this "
                f"network chooses by its input{f' whether to compute {name}' if name else ''}; use "
                "strategy=ddp"
            )

    def _watch(self, name: str, part: nn.Module, _: Any) -> None:
        """Record which of a part's parameters are used, which are unsharded while it computes."""
        for inner, parameter in part.named_parameters(name, remove_duplicate=False):
            if not (self.known or is_sharded(parameter)) and parameter.requires_grad:
                parameter.register_hook(partial(self._note, self.names[inner]))

    def _note(self, name: str, _: Tensor) -> None:
        self.used.add(name)


class Parallel:
    """A network as this process trains it.

    `model` is the trained network: the given one, or with FSDP2 a sharded copy. The given one then
    stays unsharded in every process and is used for validation.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Learnable[Any],
        ranks: Ranks,
        precision: Precision,
        settings: TrainingSettings,
    ) -> None:
        self.ranks, self.precision = ranks, precision
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.sharded = settings.strategy == "fsdp2" and ranks.world > 1
        self.model = deepcopy(model) if self.sharded else model
        self.blocks = blocks_of(self.model)
        self.graphs, self.shapes = False, Shapes()
        recomputed = settings.activation_checkpointing
        if settings.compile:
            once = ranks.world == settings.accumulate == 1 and not recomputed
            self.graphs = compile_blocks(self.blocks, self.device.type, self.shapes, once=once)
        if recomputed:
            for block in self.blocks:
                recompute(block)
        self.objective: nn.Module = Objective(self.model, task)
        self.wrapped: nn.Module | None = self.objective if ranks.world == 1 else None
        if self.sharded:
            self.wrapped = self._shard()

    def backward(self, parts: Sequence[Share]) -> Tensor:
        """Compute the gradient of the loss over all processes; return this process's share of it.

        Only the last part exchanges gradients, except those of FSDP2 in bf16.
        """
        value = torch.zeros((), device=self.device)
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with self.ranks.meeting():
            wrapped = self.wrapped or self._ddp()
            for place, (batch, shares) in enumerate(parts):
                with self._exchanging(wrapped, place == len(parts) - 1):
                    # DDP and FSDP2 return the mean over the processes, not the sum.
                    value = value + self._backward(wrapped, batch, shares * self.ranks.world)
            if self.sharded:
                self._finish()
        return value / self.ranks.world

    def close(self) -> None:
        """Restore the blocks of the given network."""
        for block in self.blocks:
            restore(block)

    def _backward(self, objective: nn.Module, batch: Any, shares: Tensor) -> Tensor:
        with self.precision.autocast(self.device.type):
            loss: Tensor = objective(to_device(self.model, batch), shares.to(self.device))
        loss.backward()
        return loss.detach()

    @contextmanager
    def _exchanging(self, wrapped: nn.Module, last: bool) -> Iterator[None]:
        """Exchange gradients in the last backward pass of a step only.

        FSDP2 sums bf16 gradients in float32. It cannot exchange these together with gradients of
        parameters that only one pass uses, so in bf16 it exchanges gradients in every pass.
        """
        if self.sharded:
            cast(Any, wrapped).set_requires_gradient_sync(last or self.precision.name == "bf16")
        without = None if last or self.sharded else getattr(wrapped, "no_sync", None)
        with nullcontext() if without is None else without():
            yield

    def _ddp(self) -> nn.Module:
        """Wrap the objective, whose batches may use different parameters in each process."""
        self.wrapped = nn.parallel.DistributedDataParallel(
            self.objective,
            forward_sync_buffers=False,
            find_unused_parameters=True,
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
        rest = replace(policy, cast_forward_inputs=False)  # regression targets stay exact
        fully_shard(self.objective, mesh=mesh, mp_policy=rest, ignored_params=scalars)
        cast(Any, self.objective).set_reduce_scatter_unused_params(True)
        self.course = Course(self.objective, self.blocks, self.ranks)
        return self.objective

    def _finish(self) -> None:
        """Finish the gradients of FSDP2, identically in all processes.

        A parameter that no process used gets no gradient instead of zeros, as with one process.
        Scalars, which are not sharded, are averaged here.
        """
        learned = {n: p for n, p in self.objective.named_parameters() if p.requires_grad}
        scalars = [p for p in learned.values() if not p.ndim]
        used = self.course.used
        users = [n in used if p.ndim else p.grad is not None for n, p in learned.items()]
        values = [0.0 if p.grad is None else p.grad.item() for p in scalars]
        sums = self.ranks.total(*map(float, users), *values)
        for p, value in zip(scalars, sums[len(learned) :], strict=True):
            p.grad = torch.full_like(p, value / self.ranks.world)
        for p, count in zip(learned.values(), sums, strict=False):
            p.grad = p.grad if count else None
        used.clear()


def clip(model: nn.Module, most: float) -> Tensor:
    """Scale all gradients so that their common norm is at most ``most``; return the norm before."""
    return whole(nn.utils.clip_grad_norm_(model.parameters(), most))
