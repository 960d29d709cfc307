"""Training settings."""

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from regard.core.errors import RegardError, look_up
from regard.core.ranges import LogUniform, Range
from regard.core.settings import Settings
from regard.training.schedules import SCHEDULES

BUDGETS = ("epochs", "steps", "tokens", "minutes")
DEFAULT_EPOCHS = 5.0
MOST_EPOCHS = 40.0  # upper bound with patience and without a budget,
MOST_STEPS = 3_000  # or this many steps, if these are more
MOST_TOKENS = 8192
LEAST_STEPS = 50
BETWEEN = 500  # maximum steps between two validations that patience counts
LEAST_BETWEEN = 25  # minimum steps; too little is learned in fewer, above all during the warmup
#: Minimum steps if an epoch has fewer than `LEAST_BETWEEN`: few texts validate, and their first
#: best values are chance (docs/results/few-labels.md).
FEW_BETWEEN = 100
Asked = Literal["auto", "fp32", "bf16"]
Device = Literal["cpu", "cuda"]
Optimizer = Literal["adamw", "muon"]
Strategy = Literal["ddp", "fsdp2"]


class Budget(NamedTuple):
    """A budget of training: an amount of epochs, steps, tokens or minutes."""

    unit: str
    amount: float


class TrainingSettings(Settings):
    """The settings of a training; at most one of epochs, steps, tokens and minutes is given.

    The same settings produce bit-identical weights, except with a budget in minutes, where the
    learning rate depends on the clock, and on a GPU, which adds in no fixed order.
    """

    search: ClassVar[Mapping[str, Range]] = {
        "learning_rate": LogUniform(1e-4, 1e-2),
        "weight_decay": LogUniform(1e-3, 1e-1),
    }

    init: str = Field("", description="run to start from: its weights and tokenizer are used")
    seed: int = Field(
        0, ge=0, lt=2**63, description="random seed of initial weights, data order and dropout"
    )
    epochs: float = Field(
        0.0,
        ge=0,
        description=f"budget: passes over the data; without any budget {DEFAULT_EPOCHS:g}, or with "
        f"patience at most {MOST_EPOCHS:g} epochs or {MOST_STEPS:,} steps, whichever is more",
    )
    steps: int = Field(0, ge=0, description="budget: weight updates")
    least_steps: int = Field(
        0, ge=0, description="minimum weight updates of a budget in epochs, for few examples"
    )
    tokens: int = Field(0, ge=0, description="budget: tokens read, without padding")
    minutes: float = Field(0.0, ge=0, description="budget: minutes, including validation")
    optimizer: Optimizer = Field(
        "adamw",
        description="adamw, or muon, which needs fewer steps to pretrain a stack of attention "
        "layers, with the same learning rates",
    )
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate")
    warmup: float = Field(
        0.05,
        ge=0,
        description="warmup, as a share of the budget; from 1 on: in steps, at most a tenth of the "
        "budget",
    )
    schedule: str = Field("linear", description=f"learning rate schedule: {', '.join(SCHEDULES)}")
    weight_decay: float = Field(
        0.01, ge=0, description="weight decay of matrices; embeddings, norms and biases have none"
    )
    clip: float = Field(1.0, ge=0, description="maximum gradient norm; 0 = no clipping")
    average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of a running mean of the weights, such as 0.999, which is validated and "
        "saved instead of the weights; 0 = no mean",
    )
    batch_size: int = Field(
        0, ge=0, description="maximum examples per batch; 0 = limited by batch_tokens only"
    )
    batch_tokens: int = Field(
        0,
        ge=0,
        description=f"tokens per batch, including padding; 0 = {MOST_TOKENS:,}, or fewer if an "
        f"epoch would have less than {LEAST_STEPS} steps or if few steps fit into a budget in "
        "minutes",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        description="steps between validations; 0 = twice per epoch, or with patience once per "
        f"epoch, {LEAST_BETWEEN} to {BETWEEN} steps apart ({FEW_BETWEEN} for short epochs)",
    )
    patience: int = Field(
        0,
        ge=0,
        description="early stopping: number of validations without a new best metric or loss; "
        "0 = never stop early",
    )
    precision: Asked = Field(
        "auto", description="precision of matrix products; auto = bf16 if the hardware supports it"
    )
    device: Device = Field(
        "cpu", description="cpu or cuda (a GPU, where results are not bit-identical)"
    )
    threads: int = Field(0, ge=0, description="CPU threads; 0 = the default of torch")
    strategy: Strategy = Field(
        "ddp",
        description="how several processes (torchrun, srun) share the network: ddp = whole in each "
        "one, fsdp2 = weights, gradients and optimizer state divided among them",
    )
    accumulate: int = Field(
        1,
        ge=1,
        description="parts into which each process divides its share of a batch, one after "
        "another, to need less memory",
    )
    activation_checkpointing: bool = Field(
        False,
        description="compute the activations of each Transformer block again in the backward pass "
        "instead of storing them: less memory, more time",
    )
    compile: bool = Field(
        False,
        description="compile the Transformer blocks by torch.compile, and on a GPU record them as "
        "CUDA graphs: for small networks on a GPU; a minute of compiling, and other draws of "
        "dropout",
    )
    save_every: int = Field(0, ge=0, description="steps between checkpoints; 0 = by time only")
    save_seconds: float = Field(
        0.0,
        ge=0,
        description="seconds between checkpoints; 0 = 30, or more for a large network: its "
        "checkpoints are at most 2 MB a second",
    )
    track: str = Field(
        "none",
        description="also send metrics to a tracker: tensorboard, FILE.py:Name or one that an "
        "installed package adds, such as mlflow or wandb",
    )

    @model_validator(mode="after")
    def one_budget(self) -> Self:
        budgets = [unit for unit in BUDGETS if getattr(self, unit)]
        if len(budgets) > 1:
            raise RegardError(
                f"only one budget is allowed, not {' and '.join(budgets)}; leave one out"
            )
        look_up(SCHEDULES, self.schedule, "schedule")
        return self

    @property
    def budget(self) -> Budget:
        """Return the budget.

        >>> TrainingSettings(steps=500).budget
        Budget(unit='steps', amount=500.0)
        """
        for unit in BUDGETS:
            if amount := getattr(self, unit):
                return Budget(unit, float(amount))
        return Budget("epochs", MOST_EPOCHS if self.patience else DEFAULT_EPOCHS)

    def budget_of(self, steps: int) -> Budget:
        """Return the budget for data with this many steps per epoch.

        >>> TrainingSettings(patience=5).budget_of(300), TrainingSettings(patience=5).budget_of(6)
        (Budget(unit='epochs', amount=40.0), Budget(unit='epochs', amount=500.0))
        >>> TrainingSettings(epochs=4, least_steps=300).budget_of(6)
        Budget(unit='epochs', amount=50.0)
        """
        if self.epochs and self.least_steps:
            return Budget("epochs", max(self.epochs, self.least_steps / max(steps, 1)))
        if self.patience and not any(getattr(self, unit) for unit in BUDGETS):
            return Budget("epochs", max(MOST_EPOCHS, MOST_STEPS / max(steps, 1)))
        return self.budget
