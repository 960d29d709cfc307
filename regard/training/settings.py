"""The settings of a training."""

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from regard.errors import RegardError, look_up
from regard.ranges import LogUniform, Range
from regard.settings import Settings
from regard.training.schedules import SCHEDULES

BUDGETS = ("epochs", "steps", "tokens", "minutes")
DEFAULT_EPOCHS = 5.0
MOST_EPOCHS = 40.0  # where patience ends a training that no budget does,
MOST_STEPS = 3_000  # or so many steps, of data so small that these are more
MOST_TOKENS = 8192
LEAST_STEPS = 50
BETWEEN = 500  # most steps between two validations that patience counts,
LEAST_BETWEEN = 25  # and least: of few steps nothing is learned, above all while the rate rises
Asked = Literal["auto", "fp32", "bf16"]
Device = Literal["cpu", "cuda"]
Optimizer = Literal["adamw", "muon"]


class Budget(NamedTuple):
    """How long to train: an amount of epochs, steps, tokens or minutes."""

    unit: str
    amount: float


class TrainingSettings(Settings):
    """How a model is trained. Of epochs, steps, tokens and minutes one at most is given.

    A budget in minutes lets the learning rate follow the clock, and a GPU adds in no fixed order,
    so two such runs differ in their bits; else the same settings make the same weights.
    """

    search: ClassVar[Mapping[str, Range]] = {
        "learning_rate": LogUniform(1e-4, 1e-2),
        "weight_decay": LogUniform(1e-3, 1e-1),
    }

    init: str = Field("", description="begin from the weights and the tokens of this run")
    seed: int = Field(
        0, ge=0, lt=2**63, description="decides first weights, order of data, dropout"
    )
    epochs: float = Field(
        0.0,
        ge=0,
        description=f"budget: passes over the data; if no budget is given {DEFAULT_EPOCHS:g}, or "
        f"with patience at most {MOST_EPOCHS:g}, or {MOST_STEPS:,} steps if these are more",
    )
    steps: int = Field(0, ge=0, description="budget: updates of the weights")
    tokens: int = Field(0, ge=0, description="budget: tokens read, padding not counted")
    minutes: float = Field(0.0, ge=0, description="budget: time, validation included")
    optimizer: Optimizer = Field(
        "adamw",
        description="muon takes fewer steps where a stack of attention layers has much to learn, "
        "as in pretraining; the same rates serve",
    )
    learning_rate: float = Field(1e-3, gt=0, description="the optimizer's, at its highest")
    warmup: float = Field(
        0.05,
        ge=0,
        description="share of the budget in which the rate rises; above 1: steps, at most a tenth "
        "of the budget",
    )
    schedule: str = Field("linear", description=f"how the rate falls: {', '.join(SCHEDULES)}")
    weight_decay: float = Field(
        0.01, ge=0, description="of matrices; embeddings, norms and biases have none"
    )
    clip: float = Field(1.0, ge=0, description="largest norm of a gradient; 0 leaves it")
    average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="judge and keep a running mean of the weights, so much of it old at each "
        "step, such as 0.999; 0: the weights themselves",
    )
    batch_size: int = Field(
        0, ge=0, description="most examples of a batch; 0: as many as batch_tokens holds"
    )
    batch_tokens: int = Field(
        0,
        ge=0,
        description=f"tokens of a batch, padding counted; 0: {MOST_TOKENS:,}, or fewer where the "
        f"data are so small that an epoch would not have {LEAST_STEPS} steps, or a budget in "
        "minutes so short that few would fit",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        description="steps between validations; 0: twice an epoch; with patience once an epoch, "
        f"but at least {LEAST_BETWEEN} and at most {BETWEEN} apart",
    )
    patience: int = Field(
        0,
        ge=0,
        description="stop after so many validations in which neither metric nor loss came to a "
        "new best; 0: never",
    )
    precision: Asked = Field(
        "auto", description="of products; auto: bf16 where the hardware has it"
    )
    device: Device = Field(
        "cpu", description="where it trains; on a GPU no training is the same twice to the bit"
    )
    threads: int = Field(0, ge=0, description="of this training; 0: as torch has them")
    save_every: int = Field(0, ge=0, description="steps between checkpoints; 0: by time alone")
    save_seconds: float = Field(30.0, gt=0, description="most seconds between checkpoints")

    @model_validator(mode="after")
    def one_budget(self) -> Self:
        given = [unit for unit in BUDGETS if getattr(self, unit)]
        if len(given) > 1:
            raise RegardError(f"one budget at a time, not {' and '.join(given)}; leave one out")
        look_up(SCHEDULES, self.schedule, "schedule")
        return self

    @property
    def budget(self) -> Budget:
        """The one budget.

        >>> TrainingSettings(steps=500).budget
        Budget(unit='steps', amount=500.0)
        """
        for unit in BUDGETS:
            if amount := getattr(self, unit):
                return Budget(unit, float(amount))
        return Budget("epochs", MOST_EPOCHS if self.patience else DEFAULT_EPOCHS)

    def budget_of(self, steps: int) -> Budget:
        """Return the budget for data whose epoch has so many steps.

        >>> TrainingSettings(patience=5).budget_of(300), TrainingSettings(patience=5).budget_of(6)
        (Budget(unit='epochs', amount=40.0), Budget(unit='epochs', amount=500.0))
        """
        if self.patience and not any(getattr(self, unit) for unit in BUDGETS):
            return Budget("epochs", max(MOST_EPOCHS, MOST_STEPS / max(steps, 1)))
        return self.budget
