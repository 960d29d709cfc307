"""Labs: a question, its arms, its figures and what to look for. A file or a folder a lab.

The table is cheap to read: a lab's module is imported when it is run.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from regard.errors import RegardError

Say = Callable[[str], None]


class Show(Protocol):
    """Told how far a lab is; `left` the seconds that it will take yet, where that is known."""

    def __call__(self, done: float, total: float, says: str, left: float | None = None) -> None: ...


@dataclass(frozen=True)
class Order:
    """What a lab is asked to do; what is left empty is the lab's own choice.

    `data`: a named data set or a file; `seeds`: runs of each arm; `budget`: as for ``regard
    compare`` ("10m", "500 steps", "3 epochs"); `overrides`: ``key=value`` pairs.
    """

    data: str = ""
    seeds: int = 0
    budget: str = ""
    out: Path | None = None
    workers: int | None = None
    overrides: Sequence[str] = ()


@dataclass(frozen=True)
class Lab:
    """A lab by name: its question in one line, and the module that answers it."""

    name: str
    question: str
    module: str

    def run(self, order: Order, say: Say, show: Show) -> dict[str, Any]:
        """Do the lab: words for people go to `say`, progress to `show` (done, total, says).

        Returns the object that ``--json`` prints.
        """
        result: dict[str, Any] = self._module().run(order, say, show)
        return result

    def rehearse(self, order: Order, say: Say) -> dict[str, Any]:
        """Load the data, make one step of each arm and forecast time and memory."""
        module = self._module()
        if not hasattr(module, "rehearse"):
            raise RegardError(f"there is nothing to rehearse: regard lab {self.name} is short")
        result: dict[str, Any] = module.rehearse(order, say)
        return result

    def _module(self) -> Any:
        return importlib.import_module(self.module)


_ALL = [
    Lab(
        "sentiment",
        "What does each rung of attention add to a mean of word vectors? Does word order count?",
        "regard.labs.sentiment.lab",
    ),
    Lab(
        "kernel-regression",
        "How wide should a kernel look, and can attention learn it?",
        "regard.labs.kernel_regression.lab",
    ),
    Lab(
        "positions",
        "What does a position tell: the place, the neighbours, beyond the trained length?",
        "regard.labs.positions.lab",
    ),
    Lab(
        "softmax-gradient",
        "Why is q·k divided by √d, and which scores need it?",
        "regard.labs.softmax_gradient.lab",
    ),
    Lab(
        "exploration",
        "When does one head copy a value or average two, and what do two heads add?",
        "regard.labs.exploration.lab",
    ),
    Lab(
        "scores",
        "Which score and which normaliser matter, and where? Recall, sorting, film reviews.",
        "regard.labs.scores.lab",
    ),
    Lab(
        "complexity",
        "From which length does which layer pay: convolution, recurrence, attention, its cures?",
        "regard.labs.complexity.lab",
    ),
    Lab(
        "birthplace",
        "What does pretraining put into a model, and does it know when it does not know?",
        "regard.labs.birthplace.lab",
    ),
    Lab(
        "pretraining",
        "Three ways to pretrain on one text: what is each worth to a task with few labels?",
        "regard.labs.pretraining.lab",
    ),
    Lab(
        "reverse",
        "What does attention remember that a single state forgets? Strings, written backwards.",
        "regard.labs.reverse",
    ),
    Lab(
        "translation",
        "What does attention add to a translator, and where does it look? Dates, or sentences.",
        "regard.labs.translation.lab",
    ),
]

LABS: dict[str, Lab] = {lab.name: lab for lab in _ALL}
