"""The training loop: plain PyTorch in a generator that yields its progress.

All randomness is a pure function of the seed and the step: the batches of (seed, epoch), dropout of
(seed, step, rank). So a checkpoint needs no generator state, and a training that was killed at any
moment resumes to bit-identical weights. Several processes divide each batch among them by examples,
and weigh their losses so that gradients and losses are those of one process (see
`regard.training.parallel`); without dropout they differ by rounding only.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from regard.attention.kernels.native import flushing
from regard.core.errors import RegardError, UntrainableError
from regard.core.memory import peak_mb, trim
from regard.core.reading import checked
from regard.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    Tensors,
    filled,
    load_weights,
    must_fit,
    weights,
)
from regard.training.clock import FewUpdates, follow_the_clock
from regard.training.learnable import Learnable
from regard.training.optimizer import OPTIMIZERS
from regard.training.parallel import Parallel, Share, clip
from regard.training.precision import Precision, choose_device, choose_precision
from regard.training.ranks import ranks
from regard.training.schedules import factor
from regard.training.settings import (
    BETWEEN,
    FEW_BETWEEN,
    LEAST_BETWEEN,
    LEAST_STEPS,
    MOST_TOKENS,
    TrainingSettings,
)
from regard.training.sharded import local
from regard.training.stopping import StoppedError, asked_to_stop, deferred

__all__ = ["Progress", "Training", "TrainingSettings", "train"]

NOTHING = "--end has nothing to complete: there is no checkpoint yet; train first, without --end"
TRIM = 20.0  # seconds between two trims of the heap
SAVE_SECONDS = 30.0  # between two checkpoints of a small network
SAVE_RATE = 2e6  # bytes of checkpoints a second, at most, of a large one
SMOOTH = 0.98  # decay of the running mean of the loss: about the last 50 steps
TYPICAL = 3.0  # validations of a training divided by patience: docs/results/labs.md
GAINS = (1e-4, 1e-3)  # smallest gains in metric and in loss that patience counts


@dataclass(frozen=True)
class Progress:
    """The state of a training after a step.

    * `steps`: the total unless patience ends the training earlier; `typical_steps`: where patience
      typically ends it (0: the same);
    * `epoch`: passes over the data, 0.5 in the middle of the first;
    * `loss`: a running mean over some 50 steps; `tokens`: tokens read so far, without padding;
    * `seconds`: the time of the whole training, including earlier processes; `seconds_left`: the
      remaining time at the pace of this process;
    * `validation`: the task's metric, if this step was followed by a validation;
    * `ended`: after the last step, the reason for the end, "budget" or "patience";
    * `note`: a message about a resume; `few_updates`: a warning about a budget that is too short;
    * `batch_tokens`: the batch size chosen for a budget in minutes, else 0.
    """

    step: int
    steps: int
    epoch: float
    loss: float
    learning_rate: float
    tokens: int
    tokens_per_second: float
    seconds: float
    seconds_left: float
    validation: float | None
    validation_loss: float | None
    best: float | None
    peak_mb: float
    ended: str = ""
    note: str = ""
    few_updates: str = ""
    batch_tokens: int = 0
    typical_steps: int = 0

    @property
    def expected(self) -> int:
        """Return the step at which the training typically ends."""
        return self.typical_steps or self.steps

    @property
    def left(self) -> tuple[float, float]:
        """Return the remaining seconds: typically, and at most."""
        share = max(self.expected - self.step, 0) / max(self.steps - self.step, 1)
        return self.seconds_left * share, self.seconds_left


Count = Annotated[int, Field(ge=0)]


@dataclass
class State:
    """The plain numbers of a training; a checkpoint holds these and the tensors."""

    step: Count = 0
    epoch: Count = 0
    position: Count = 0  # batches done of this epoch's plan
    plan: Annotated[int, Field(ge=1)] = 1  # batches in it
    tokens: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    loss: float = 0.0  # running mean before division by 1 − SMOOTH^step
    best: float | None = None
    best_loss: float = math.inf
    best_step: int = 0
    least_loss: float = math.inf  # the least validation loss, as patience counts it
    worse: int = 0  # validations since the last new best metric or loss
    batch_tokens: int = 0  # nonzero if chosen for a budget in minutes


def train(
    model: nn.Module,
    task: Learnable[Any],
    settings: TrainingSettings,
    checkpoints: Checkpoints | None = None,
    *,
    precision: Precision | None = None,
    end: bool = False,
) -> Iterator[Progress]:
    """Train a model on a task's train split and leave it with its best weights.

    The best weights are chosen on the validation split; the test split is never used. A resumed
    training reaches weights that are bit-identical to those of an uninterrupted one, on the same
    kind of machine and number of threads, except on a GPU and with a budget in minutes, where the
    learning rate depends on the clock. The model is moved to the settings' device and stays there.

    Args:
        model: The network.
        task: The batches, the loss and the validation score.
        settings: The optimizer, the budget, and what else the loop needs to know.
        checkpoints: Where to save the training; it resumes from the newest readable checkpoint.
        precision: The precision, by default that of the settings.
        end: Whether to stop here: make no further step, validate the newest checkpoint and keep the
            best weights so far.

    Returns:
        An iterator that trains while it is read, and yields the progress after each step.

    Raises:
        UntrainableError: The loss or a gradient is not finite.
        StoppedError: SIGTERM or SIGUSR1 stopped the training, after a checkpoint was saved.
        RegardError: The train split is empty; there is no space for a checkpoint, no GPU, or with
            ``end`` no checkpoint.

    Example:
        >>> from types import SimpleNamespace
        >>> class Doubled(Learnable):
        ...     metric, x = "R2", torch.linspace(-1, 1, 8)[:, None]
        ...     def lengths(self, split, seed, epoch):
        ...         return np.ones(8, dtype=int)
        ...     def batch(self, split, indexes):
        ...         return SimpleNamespace(x=self.x[indexes], lengths=torch.ones(len(indexes)))
        ...     def loss(self, model, batch):
        ...         return (model(batch.x) - 2 * batch.x).square().mean()
        ...     def judge(self, model, split, *, tokens=0):
        ...         loss = self.loss(model, self.batch(split, np.arange(8))).item()
        ...         return 1 - loss, loss
        >>> model = nn.Linear(1, 1)
        >>> settings = TrainingSettings(steps=300, learning_rate=0.05, device="cpu", threads=1)
        >>> *_, last = train(model, Doubled(), settings)
        >>> last.ended, f"{model.weight.item():.1f}"
        ('budget', '2.0')
    """
    precision = precision or choose_precision(settings.precision, settings.device)
    with using_threads(settings.threads):
        yield from Training(model, task, settings, precision).run(checkpoints, end)


class Training:
    """A model, its optimizer and the progress of their training."""

    def __init__(
        self,
        model: nn.Module,
        task: Learnable[Any],
        settings: TrainingSettings,
        precision: Precision,
    ) -> None:
        self.model, self.task, self.settings, self.precision = model, task, settings, precision
        self.device = choose_device(settings.device)
        model.to(self.device)
        self.ranks = ranks()
        self.parallel = Parallel(model, task, self.ranks, precision, settings)
        self.trained = self.parallel.model
        self.optimizer = OPTIMIZERS[settings.optimizer](self.trained, settings.weight_decay)
        self.state = State()
        self.best: Tensors = {}
        self.mean: Tensors = weights(self.trained) if settings.average else {}
        self.batch_tokens = settings.batch_tokens or fitting_batch(task, settings.batch_size)
        size = sum(x.numel() * x.element_size() for x in self.trained.parameters())
        # A checkpoint has the weights, the best ones and the two means of Adam.
        self.save_seconds = settings.save_seconds or max(SAVE_SECONDS, 4 * size / SAVE_RATE)
        self.begun = time.monotonic()
        self.earlier = (0.0, 0.0)  # seconds and share of the budget before this process
        self.few = FewUpdates()
        self.save_time = False  # whether the first process's clock says to save after this step
        self.signal = ""  # the received stop signal; agreed on in `stopping`
        self.stopping = False

    def run(self, checkpoints: Checkpoints | None = None, end: bool = False) -> Iterator[Progress]:
        """Resume, train, validate and save; finally load the best weights into the model.

        After a stop signal it saves a checkpoint and raises `StoppedError`.
        """
        try:
            with self.ranks.guarded(), deferred():
                yield from self._run(checkpoints, end)
        except GeneratorExit:
            if checkpoints:
                checkpoints.finish()
            raise
        finally:
            self.parallel.close()

    def _run(self, checkpoints: Checkpoints | None, end: bool) -> Iterator[Progress]:
        self.ranks.wait()
        note = self.resume(checkpoints) if checkpoints else ""
        earlier, tokens_before = self.state.seconds, self.state.tokens
        self.earlier = earlier, self.done()
        self.begun = saved = trimmed = time.monotonic()
        if not end and not self.state.step:
            follow_the_clock(self)
        if end:
            yield self.judged_once_more(tokens_before, note)
        while not (end or self.finished()):
            plan = self.plan()
            for indexes in plan[self.state.position :]:
                rate = self.update(indexes)
                self.agree(earlier, saved)
                measured: tuple[float | None, float | None] = (None, None)
                if self.validation_due():
                    measured = self.validate()
                    self.agree(earlier, saved)
                yield self.progress(rate, measured, tokens_before, note, self.few.says(self))
                note = ""
                if checkpoints and self.save_due():
                    checkpoints.begin(self.checkpoint())
                    saved = time.monotonic()
                elif checkpoints and checkpoints.failed():
                    checkpoints.finish()
                if self.stopping and not self.finished():
                    self.stop(checkpoints)
                if time.monotonic() - trimmed >= TRIM:
                    trim()
                    trimmed = time.monotonic()
                if self.finished():
                    break
            else:
                self.state.epoch, self.state.position = self.state.epoch + 1, 0
        if checkpoints:
            checkpoints.finish()
        load_weights(self.model, self.best)
        self.model.eval()

    def agree(self, earlier: float, saved: float) -> None:
        """Agree with the other processes on the time, and on whether to save and to stop.

        The first process's clock counts, so that budgets and learning rates agree in all.
        """
        first, now = float(self.ranks.first), time.monotonic()
        time_to_save = now - saved >= self.save_seconds
        self.signal = self.signal or asked_to_stop()
        self.state.seconds, save, stop = self.ranks.total(
            first * (earlier + now - self.begun), first * time_to_save, float(bool(self.signal))
        )
        self.save_time, self.stopping = bool(save), bool(stop)

    def stop(self, checkpoints: Checkpoints | None) -> None:
        """Save a checkpoint of this step, unless there is one, and raise `StoppedError`."""
        if checkpoints:
            if not self.save_due():
                checkpoints.begin(self.checkpoint())
            checkpoints.finish()
            self.ranks.wait()  # until the first process has completed it
        raise StoppedError(
            f"stopped by {self.signal or 'a signal to another rank'} after step "
            f"{self.state.step:,}{'; a checkpoint is saved' if checkpoints else ''}; "
            "run the same command again to resume"
        )

    def judged_once_more(self, tokens_before: int, note: str) -> Progress:
        """Validate once more and return the final progress; patience ignores this validation."""
        if not self.state.step:
            raise RegardError(note or NOTHING)
        worse = self.state.worse
        measured = self.validate()
        self.state.worse = min(worse, self.state.worse)
        return self.progress(0.0, measured, tokens_before, note)

    def plan(self) -> Sequence[NDArray[np.integer]]:
        """Return the batches of the current epoch, a pure function of (seed, epoch)."""
        plan = self.task.batches(
            "train",
            tokens=self.batch_tokens,
            examples=self.settings.batch_size,
            seed=self.settings.seed,
            epoch=self.state.epoch,
            shuffle=True,
        )
        if not len(plan):
            raise RegardError("there is nothing to train on: the train split is empty")
        self.state.plan = len(plan)
        return plan

    def parts(self, indexes: NDArray[np.integer]) -> tuple[list[Share], int]:
        """Return this process's parts of a batch with their shares, and the tokens of the batch.

        Process r of w takes every w-th example from the r-th on, in ``accumulate`` parts. The
        number of parts depends on the whole batch alone, since each one is a collective of FSDP2:
        a process with fewer examples adds the batch's first example with a share of 0.
        """
        rank, world = self.ranks.rank, self.ranks.world
        mine = indexes[rank::world]
        count = min(self.settings.accumulate, -(-len(indexes) // world))
        pieces = [mine[part::count] for part in range(count)]
        own = [float(len(piece) > 0) for piece in pieces]
        batches = [self.task.batch("train", x if len(x) else indexes[:1]) for x in pieces]
        counts = [[o * x for x in self.task.items(b)] for o, b in zip(own, batches, strict=True)]
        tokens = sum(o * int(b.lengths.sum()) for o, b in zip(own, batches, strict=True))
        sums = [sum(column) for column in zip(*counts, strict=True)]
        *totals, tokens = self.ranks.total(*sums, tokens)
        whole = torch.tensor(totals, dtype=torch.float64).clamp(min=1e-300)
        shares = [torch.tensor(each, dtype=torch.float64) / whole for each in counts]
        return list(zip(batches, shares, strict=True)), int(tokens)

    def update(self, indexes: NDArray[np.integer]) -> float:
        """Make one optimizer step on a batch and return its learning rate."""
        state, settings = self.state, self.settings
        parts, tokens = self.parts(indexes)
        rate = settings.learning_rate * factor(
            settings.schedule, self.done(), settings.warmup, state.step
        )
        self.trained.train()
        self.optimizer.zero()
        weight, seed = next(self.trained.parameters()), settings.seed
        with seeded(step_seed(seed, state.step, self.ranks.rank), self.device), flushing(weight):
            share = self.parallel.backward(parts)
        norm = clip(self.trained, settings.clip or math.inf)
        (value,) = self.ranks.total(share.item())
        if not math.isfinite(value + norm.item()):
            raise UntrainableError(
                f"the loss or its gradient is not finite at step {state.step + 1}; "
                f"try a learning_rate below {settings.learning_rate:g} or a longer warmup"
            )
        with self.precision.autocast(self.device.type), flushing(weight):
            self.optimizer.step(rate)
        state.step += 1
        self.follow()
        state.position += 1
        state.tokens += tokens
        state.loss = SMOOTH * state.loss + (1 - SMOOTH) * value
        return rate

    def done(self) -> float:
        """Return the used share of the budget: 0 at first, 1 at the end."""
        unit, amount = self.settings.budget_of(self.state.plan)
        used = {
            "epochs": self.state.epoch + self.state.position / self.state.plan,
            "steps": self.state.step,
            "tokens": self.state.tokens,
            "minutes": self.state.seconds / 60,
        }
        return min(used[unit] / amount, 1.0)

    def seconds_left(self) -> float:
        """Return the remaining seconds at this process's pace, or before its first step overall."""
        seconds, share = self.earlier if self.done() > self.earlier[1] else (0.0, 0.0)
        return (self.state.seconds - seconds) * (1 - self.done()) / (self.done() - share)

    def finished(self) -> bool:
        """Return whether the budget or patience is used up."""
        return bool(self.ended())

    def ended(self) -> str:
        """Return what ends the training after this step: "budget", "patience", or "" (nothing)."""
        patience = self.settings.patience
        if self.done() >= 1:
            return "budget"
        return "patience" if patience and self.state.worse >= patience else ""

    def validation_due(self) -> bool:
        """Return whether to validate after this step; always after the last one."""
        state, every = self.state, self.settings.evaluate_every
        parts, epochs = validations(self.settings, state.plan)
        places = {part * state.plan // parts for part in range(1, parts + 1)}
        regular = state.position in places and (state.epoch + 1) % epochs == 0
        if every:
            regular = state.step % every == 0
        return regular or self.done() >= 1

    def validate(self) -> tuple[float, float]:
        """Return validation metric and loss; keep the weights if they are the best."""
        state, metric, loss = self.state, 0.0, 0.0
        with self.judged_weights(), self.precision.autocast(self.device.type):
            with self.ranks.sharing():
                metric, loss = self.task.judge(self.model, "validation", tokens=MOST_TOKENS)
            metric, loss = self.ranks.broadcast(metric, loss)
            if not (math.isfinite(metric) and math.isfinite(loss)):
                raise UntrainableError(
                    f"the validation loss is {loss} at step {state.step}; try a smaller "
                    "learning_rate="
                )
            gain = state.best is None or metric > state.best + GAINS[0]
            lower = loss < state.least_loss - GAINS[1]
            solved = (state.best or 0) >= self.task.perfect  # only confidence can still grow
            state.worse = 0 if gain or (lower and not solved) else state.worse + 1
            if lower:  # only after a sufficient gain, so that many small gains add up
                state.least_loss = loss
            if state.best is None or (metric, -loss) > (state.best, -state.best_loss):
                state.best, state.best_loss = metric, loss
                state.best_step = state.step
                self.best = weights(self.trained)
                self.best |= {name: x.clone() for name, x in self.mean.items()}
        return metric, loss

    @torch.no_grad()
    def follow(self) -> None:
        """Update the running mean of the weights, if there is one.

        θ̄ ← a·θ̄ + (1 − a)·θ, a = min(average, (1 + t)/(10 + t)): at first the mean is short, to
        forget the random initial weights. Polyak & Juditsky 1992; Tarvainen & Valpola 2017.
        """
        if not self.mean:
            return
        step = self.state.step
        now: Tensors = dict(self.trained.named_parameters())
        for name, buffer in self.trained.named_buffers():  # statistics, as of a BatchNorm
            if name in self.mean:
                self.mean[name].copy_(buffer)
        share = 1 - min(self.settings.average, (1 + step) / (10 + step))
        names = [name for name in self.mean if name in now]
        old, new = [local(self.mean[name]) for name in names], [local(now[name]) for name in names]
        torch._foreach_lerp_(old, new, share)

    @contextmanager
    def judged_weights(self) -> Iterator[None]:
        """Load the running mean of the weights, if there is one, within the context.

        With FSDP2 the given, unsharded model gets the mean or the weights of the sharded one.
        """
        if self.parallel.sharded:
            load_weights(self.model, self.mean or weights(self.trained))
        if self.parallel.sharded or not self.mean:
            yield
            return
        trained = weights(self.model)
        load_weights(self.model, self.mean)
        try:
            yield
        finally:
            load_weights(self.model, trained)

    def save_due(self) -> bool:
        """Return whether to save after this step; this does not affect results."""
        every = self.settings.save_every
        return self.finished() or bool(every and self.state.step % every == 0) or self.save_time

    def checkpoint(self) -> Checkpoint:
        """Return everything needed to resume this training; of a finished one, the best weights."""
        tensors = {"best": self.best}
        if not self.finished():
            tensors |= {"model": weights(self.trained), "optimizer": self.optimizer.state()}
            tensors |= {"mean": self.mean} if self.mean else {}
        state = asdict(self.state)
        if not self.best:
            del state["best_loss"], state["least_loss"]  # infinite, which JSON does not support
        return Checkpoint(self.state.step, tensors, state)

    def resume(self, checkpoints: Checkpoints) -> str:
        """Resume from the newest readable checkpoint; return a message about it."""
        checkpoint, message = checkpoints.latest()
        if checkpoint is None:
            return f"{message} Training restarts from the beginning." if message else ""
        here, there = weights(self.trained), checkpoint.tensors
        source = checkpoints.folder / f"step-{checkpoint.step}"
        self.state = state = checked(State, checkpoint.state, source)
        ended = self.finished()
        for group, due in (("model", not ended), ("best", state.best is not None),
                           ("mean", bool(self.mean) and not ended)):  # fmt: skip
            must_fit(here if due else {}, there.get(group, {}), f"{source}: {group} does not match")
        load_weights(self.trained, there["best" if ended else "model"])
        if not ended:
            self.optimizer.load(there.get("optimizer", {}))
        self.batch_tokens = state.batch_tokens or self.batch_tokens
        if state.best is not None:
            self.best = filled(here, there["best"])
        if self.mean:
            self.mean = filled(weights(self.trained), there["best" if ended else "mean"])
        return f"{message} Resumed from step {checkpoint.step}.".strip()

    def progress(
        self,
        rate: float,
        measured: tuple[float | None, float | None],
        tokens_before: int,
        note: str,
        few_updates: str = "",
    ) -> Progress:
        """Return the progress after a step."""
        state, here = self.state, time.monotonic() - self.begun
        steps, every = state.step / self.done(), steps_between(self.settings, state.plan)
        typical = expected_steps(self.settings, every, steps, state.step, state.worse)
        return Progress(
            step=state.step,
            steps=round(steps),
            epoch=state.epoch + state.position / state.plan,
            loss=state.loss / (1 - SMOOTH**state.step),
            learning_rate=rate,
            tokens=state.tokens,
            tokens_per_second=(state.tokens - tokens_before) / max(here, 1e-9),
            seconds=state.seconds,
            seconds_left=0.0 if self.finished() else self.seconds_left(),
            validation=measured[0],
            validation_loss=measured[1],
            best=state.best,
            peak_mb=peak_mb(),
            ended=self.ended(),
            note=note,
            few_updates=few_updates,
            batch_tokens=state.batch_tokens,
            typical_steps=round(typical),
        )


def validations(settings: TrainingSettings, steps: int) -> tuple[int, int]:
    """Return (m, k): m validations in every k-th epoch, for epochs of this many steps.

    Not used if evaluate_every= is given.

    >>> validations(TrainingSettings(), 1200), validations(TrainingSettings(patience=5), 1200)
    ((2, 1), (3, 1))
    >>> validations(TrainingSettings(patience=5), 6)
    (1, 17)
    >>> validations(TrainingSettings(epochs=4, least_steps=200), 2)
    (1, 13)
    """
    few = steps < LEAST_BETWEEN
    if not settings.patience:
        return (1, math.ceil(LEAST_BETWEEN / steps)) if few and settings.least_steps else (2, 1)
    return math.ceil(steps / BETWEEN), math.ceil(FEW_BETWEEN / steps) if few else 1


def steps_between(settings: TrainingSettings, steps: int) -> float:
    """Return the steps from one validation to the next, for epochs of this many steps."""
    parts, epochs = validations(settings, steps)
    return settings.evaluate_every or max(steps * epochs / parts, 1)


def expected_steps(
    settings: TrainingSettings,
    every: float,
    most: float,
    step: int = 0,
    worse: int = 0,
    typical: float = TYPICAL,
) -> float:
    """Return after how many steps a training typically ends, `most` at the latest.

    Training typically ends after `typical` × patience validations, a median of earlier trainings.
    At `step`, after `worse` validations without a gain, it takes at least patience − `worse` more.

    >>> expected_steps(TrainingSettings(patience=5), 100, 9000)
    1500.0
    >>> expected_steps(TrainingSettings(patience=5), 100, 9000, step=2000, worse=3)
    2200.0
    >>> expected_steps(TrainingSettings(patience=5), 100, 900), expected_steps(
    ...     TrainingSettings(), 100, 900
    ... )
    (900, 900)
    """
    if not settings.patience:
        return most
    usual = typical * settings.patience * every
    return min(max(usual, float(step + max(settings.patience - worse, 0) * every)), most)


def fitting_batch(task: Learnable[Any], examples: int = 0) -> int:
    """Return the tokens per batch for enough steps per epoch; independent of the seed."""
    plan = task.batches(
        "train", tokens=MOST_TOKENS, examples=examples, seed=0, epoch=0, shuffle=False
    )
    if len(plan) >= LEAST_STEPS or not len(plan):
        return MOST_TOKENS
    return max(MOST_TOKENS * len(plan) // LEAST_STEPS, task.most_tokens("train"))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch within the context, also on a GPU if one is given, and restore its state after.

    This does not use `torch.manual_seed`, which without CUDA keeps a stack trace of every call.
    """
    gpus = [torch.cuda.current_device()] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed(seed)
        yield


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Use this many threads within the context; 0 changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return a seed for the dropout of one step, unrelated to other steps, seeds and processes."""
    place = [seed, step, rank] if rank else [seed, step]
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
