"""The training loop: plain PyTorch, a generator that yields its progress.

Everything random is a pure function of the seed and the step: the order of the data of (seed,
epoch, rank), dropout of (seed, step, rank). So a checkpoint holds no generator's state, and a
training that was killed at any moment goes on to the very bits it would have reached.
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

from regard.errors import RegardError, UntrainableError
from regard.layers.device import to_device
from regard.memory import peak_mb, trim
from regard.reading import checked
from regard.tasks.task import Learnable
from regard.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    Tensors,
    load_weights,
    must_fit,
    weights,
)
from regard.training.clock import FewUpdates, follow_the_clock
from regard.training.optimizer import OPTIMIZERS
from regard.training.precision import Precision, choose_device, choose_precision
from regard.training.ranks import ranks
from regard.training.schedules import factor
from regard.training.settings import (
    BETWEEN,
    LEAST_BETWEEN,
    LEAST_STEPS,
    MOST_TOKENS,
    TrainingSettings,
)

__all__ = ["Progress", "Training", "TrainingSettings", "train"]

NOTHING = "there is nothing to end with: no checkpoint was written yet"
TRIM = 20.0  # seconds between two trims of the heap
SMOOTH = 0.98  # of the running mean of the loss: about the last 50 steps
GAINS = (1e-4, 1e-3)  # in metric and in loss: less is no gain to patience


@dataclass(frozen=True)
class Progress:
    """Where a training stands after a step.

    `steps` is all steps foreseen; `epoch` counts passes, 0.5 in the middle of the first; `loss` is
    a running mean over some 50 steps; `tokens` are those read so far, padding not counted;
    `seconds` are those of the whole training, earlier processes included, `seconds_left` those to
    come, at the pace of this process; `validation` is the task's metric where this step was
    followed by a validation; `ended` says after the last step what ended the training: the
    "budget", or "patience", before it; `note` is a word on a resume, `few_updates` one on a budget
    into which few updates fit; `batch_tokens` is the batch that minutes chose, 0 where none did.
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


Count = Annotated[int, Field(ge=0)]


@dataclass
class State:
    """The plain numbers of a training; with the tensors, all that a checkpoint holds."""

    step: Count = 0
    epoch: Count = 0
    position: Count = 0  # batches done of this epoch's plan
    plan: Annotated[int, Field(ge=1)] = 1  # batches in it
    tokens: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    loss: float = 0.0  # running mean, still to be divided by 1 − SMOOTH^step
    best: float | None = None
    best_loss: float = math.inf
    best_step: int = 0
    least_loss: float = math.inf  # of those by which patience counts
    worse: int = 0  # validations since one had a new best metric or loss
    batch_tokens: int = 0  # of a batch that was chosen by the clock


def train(
    model: nn.Module,
    task: Learnable[Any],
    settings: TrainingSettings,
    checkpoints: Checkpoints | None = None,
    *,
    precision: Precision | None = None,
    end: bool = False,
) -> Iterator[Progress]:
    """Train a model on a task's train split, and leave it with its best weights.

    Best is judged on the validation split; the test split is never touched. With `checkpoints` the
    training goes on from the newest that can be read, to weights that are bit-identical to those
    of a training that was never stopped (same machine kind and threads; a budget in minutes
    excepted, where the learning rate follows the clock, and GPUs). The model is moved to the
    settings' device and stays there. `end` takes no further step: the weights of the newest
    checkpoint are judged once more, and they or the best before them are the model's.

    Errors: no space for a checkpoint; a loss that is not finite; a GPU that is not there; `end`
    of what never began.
    """
    precision = precision or choose_precision(settings.precision, settings.device)
    with using_threads(settings.threads):
        yield from Training(model, task, settings, precision).run(checkpoints, end)


class Training:
    """A model, its optimizer and how far they are."""

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
        self.optimizer = OPTIMIZERS[settings.optimizer](model, settings.weight_decay)
        self.state = State()
        self.best: Tensors = {}
        self.mean: Tensors = weights(model) if settings.average else {}
        self.batch_tokens = settings.batch_tokens or fitting_batch(task, settings.batch_size)
        self.begun = time.monotonic()
        self.earlier = (0.0, 0.0)  # seconds and share of the budget before this process
        self.few = FewUpdates()
        self.ranks = ranks()

    def run(self, checkpoints: Checkpoints | None = None, end: bool = False) -> Iterator[Progress]:
        """Resume, train, validate, save; in the end the best weights are in the model."""
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
                self.tell_time(earlier)
                measured = self.validate() if self.validation_due() else (None, None)
                self.tell_time(earlier)
                yield self.progress(rate, measured, tokens_before, note, self.few.says(self))
                note = ""
                if checkpoints and self.ranks.first and self.save_due(saved):
                    checkpoints.save(self.checkpoint())
                    saved = time.monotonic()
                if time.monotonic() - trimmed >= TRIM:
                    trim()
                    trimmed = time.monotonic()
                if self.finished():
                    break
            else:
                self.state.epoch, self.state.position = self.state.epoch + 1, 0
        load_weights(self.model, self.best)
        self.model.eval()

    def tell_time(self, earlier: float) -> None:
        """Take the first process's clock: budgets end and rates fall alike in all."""
        (self.state.seconds,) = self.ranks.told(earlier + time.monotonic() - self.begun)

    def judged_once_more(self, tokens_before: int, note: str) -> Progress:
        """Where a training stands that ends here; patience knows nothing of this validation."""
        if not self.state.step:
            raise RegardError(note or NOTHING)
        worse = self.state.worse
        measured = self.validate()
        self.state.worse = min(worse, self.state.worse)
        return self.progress(0.0, measured, tokens_before, note)

    def plan(self) -> Sequence[NDArray[np.integer]]:
        """The batches of the current epoch: a pure function of (seed, epoch, rank)."""
        plan = self.task.batches(
            "train",
            tokens=self.batch_tokens,
            examples=self.settings.batch_size,
            seed=self.settings.seed,
            epoch=self.state.epoch,
            shuffle=True,
            rank=self.ranks.rank,
            world=self.ranks.world,
        )
        count = self.ranks.least(len(plan))
        if not count:
            raise RegardError("there is nothing to train on: the train split is empty")
        self.state.plan = count
        return plan[:count]

    def update(self, indexes: NDArray[np.integer]) -> float:
        """One step of the optimizer on one batch; answers the learning rate that it took."""
        batch, state, settings = self.task.batch("train", indexes), self.state, self.settings
        rate = settings.learning_rate * factor(
            settings.schedule, self.done(), settings.warmup, state.step
        )
        self.model.train()
        self.optimizer.zero()
        with seeded(step_seed(settings.seed, state.step, self.ranks.rank), self.device):
            with self.precision.autocast(self.device.type):
                loss = self.task.loss(self.model, to_device(self.model, batch))
            loss.backward()
        self.ranks.average(self.model)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip or math.inf)
        value, tokens = self.ranks.total(loss.item(), int(batch.lengths.sum()))
        value /= self.ranks.world
        if not math.isfinite(value + norm.item()):
            raise UntrainableError(
                f"the loss or its gradient is not finite at step {state.step + 1}; "
                f"a learning_rate below {settings.learning_rate:g} or a longer warmup may help"
            )
        with self.precision.autocast(self.device.type):
            self.optimizer.step(rate)
        state.step += 1
        self.follow()
        state.position += 1
        state.tokens += int(tokens)
        state.loss = SMOOTH * state.loss + (1 - SMOOTH) * value
        return rate

    def done(self) -> float:
        """The share of the budget that is used: 0 at first, 1 at the end."""
        unit, amount = self.settings.budget_of(self.state.plan)
        used = {
            "epochs": self.state.epoch + self.state.position / self.state.plan,
            "steps": self.state.step,
            "tokens": self.state.tokens,
            "minutes": self.state.seconds / 60,
        }
        return min(used[unit] / amount, 1.0)

    def seconds_left(self) -> float:
        """The seconds of the rest, at this process's pace; before its first step at all steps'."""
        seconds, share = self.earlier if self.done() > self.earlier[1] else (0.0, 0.0)
        return (self.state.seconds - seconds) * (1 - self.done()) / (self.done() - share)

    def finished(self) -> bool:
        """Whether the budget is used up or patience is lost."""
        return bool(self.ended())

    def ended(self) -> str:
        """What ends the training after this step: the "budget", "patience", or nothing yet."""
        patience = self.settings.patience
        if self.done() >= 1:
            return "budget"
        return "patience" if patience and self.state.worse >= patience else ""

    def validation_due(self) -> bool:
        """Whether this step is one after which to validate; the last always is."""
        state, every = self.state, self.settings.evaluate_every
        parts, epochs = validations(self.settings, state.plan)
        places = {part * state.plan // parts for part in range(1, parts + 1)}
        regular = state.position in places and (state.epoch + 1) % epochs == 0
        if every:
            regular = state.step % every == 0
        return regular or self.done() >= 1

    def validate(self) -> tuple[float, float]:
        """Metric and loss on the validation split; keeps the weights if they are the best yet."""
        state, metric, loss = self.state, 0.0, 0.0
        with self.judged_weights(), self.precision.autocast(self.device.type):
            if self.ranks.first:
                metric, loss = self.task.judge(self.model, "validation", tokens=MOST_TOKENS)
            metric, loss = self.ranks.told(metric, loss)
            if not (math.isfinite(metric) and math.isfinite(loss)):
                raise UntrainableError(
                    f"the loss of the validation is {loss} at step {state.step}; try a smaller "
                    "learning_rate="
                )
            gain = state.best is None or metric > state.best + GAINS[0]
            lower = loss < state.least_loss - GAINS[1]
            state.worse = 0 if gain or lower else state.worse + 1
            if lower:  # not at every smaller loss, so that many small gains count together
                state.least_loss = loss
            if state.best is None or (metric, -loss) > (state.best, -state.best_loss):
                state.best, state.best_loss = metric, loss
                state.best_step = state.step
                self.best = weights(self.model)
        return metric, loss

    @torch.no_grad()
    def follow(self) -> None:
        """Move the running mean of the weights, if there is one, towards the weights.

        θ̄ ← a·θ̄ + (1 − a)·θ, a = min(average, (1 + t)/(10 + t)): at first the mean is short, so
        that the random first weights are soon forgotten. Polyak & Juditsky 1992; Tarvainen &
        Valpola 2017.
        """
        if not self.mean:
            return
        step = self.state.step
        now: Tensors = dict(self.model.named_parameters())
        share = 1 - min(self.settings.average, (1 + step) / (10 + step))
        names = [name for name in self.mean if name in now]
        old, new = [self.mean[name] for name in names], [now[name] for name in names]
        torch._foreach_lerp_(old, new, share)

    @contextmanager
    def judged_weights(self) -> Iterator[None]:
        """Inside, the model has the running mean of its weights, if there is one."""
        if not self.mean:
            yield
            return
        trained = weights(self.model)
        load_weights(self.model, self.mean)
        try:
            yield
        finally:
            load_weights(self.model, trained)

    def save_due(self, saved: float) -> bool:
        """Whether to save after this step. It changes nothing in the results."""
        every = self.settings.save_every
        return (
            self.finished()
            or bool(every and self.state.step % every == 0)
            or time.monotonic() - saved >= self.settings.save_seconds
        )

    def checkpoint(self) -> Checkpoint:
        """All that this training needs to go on."""
        tensors = {
            "model": weights(self.model),
            "optimizer": self.optimizer.state(),
            "best": self.best,
            **({"mean": self.mean} if self.mean else {}),
        }
        state = asdict(self.state)
        if not self.best:
            del state["best_loss"], state["least_loss"]  # infinite, which JSON cannot say
        return Checkpoint(self.state.step, tensors, state)

    def resume(self, checkpoints: Checkpoints) -> str:
        """Go back to the newest readable checkpoint; says which, and what could not be read."""
        found, says = checkpoints.latest()
        if found is None:
            return f"{says} It begins anew." if says else ""
        here, there = weights(self.model), found.tensors
        source = checkpoints.folder / f"step-{found.step}"
        state = checked(State, found.state, source)
        for group, due in (("model", True), ("best", state.best is not None),
                           ("mean", bool(self.mean))):  # fmt: skip
            must_fit(here if due else {}, there.get(group, {}), f"{source}: {group} is of another")
        load_weights(self.model, there["model"])
        self.optimizer.load(there.get("optimizer", {}))
        self.state, self.best = state, there.get("best", {})
        self.batch_tokens = state.batch_tokens or self.batch_tokens
        mean = there.get("mean", {})
        self.mean = {name: value.to(self.device) for name, value in mean.items()}
        return f"{says} Resumed from step {found.step}.".strip()

    def progress(
        self,
        rate: float,
        measured: tuple[float | None, float | None],
        tokens_before: int,
        note: str,
        few_updates: str = "",
    ) -> Progress:
        """What to tell after a step."""
        state, done, here = self.state, self.done(), time.monotonic() - self.begun
        return Progress(
            step=state.step,
            steps=round(state.step / done),
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
        )


def validations(settings: TrainingSettings, steps: int) -> tuple[int, int]:
    """Return how many validations an epoch of so many steps has, and in which epochs: every k-th.

    Unless steps= between them are given.

    >>> validations(TrainingSettings(), 1200), validations(TrainingSettings(patience=5), 1200)
    ((2, 1), (3, 1))
    >>> validations(TrainingSettings(patience=5), 6)
    (1, 5)
    """
    if not settings.patience:
        return 2, 1
    return math.ceil(steps / BETWEEN), math.ceil(LEAST_BETWEEN / steps)


def fitting_batch(task: Learnable[Any], examples: int = 0) -> int:
    """Tokens of a batch such that an epoch has some steps; of the data alone, not of the seed."""
    plan = task.batches(
        "train", tokens=MOST_TOKENS, examples=examples, seed=0, epoch=0, shuffle=False
    )
    if len(plan) >= LEAST_STEPS or not len(plan):
        return MOST_TOKENS
    return max(MOST_TOKENS * len(plan) // LEAST_STEPS, task.most_tokens("train"))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch draws from this seed, on a GPU too if one is named; afterwards the caller's
    random numbers go on.

    Not `torch.manual_seed`: without CUDA it keeps a stack trace for every call, for ever.
    """
    gpus = [torch.cuda.current_device()] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed(seed)
        yield


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Inside, torch computes with so many threads; 0 leaves them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """A seed for the dropout of one step, far from those of other steps, seeds and processes."""
    place = [seed, step, rank] if rank else [seed, step]
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
