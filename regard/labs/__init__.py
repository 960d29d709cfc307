"""Labs: a question, its arms, its figures and what to look for. A file or a folder a lab.

The table is cheap to read: a lab's module is imported when it is run.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
    """A lab by name: its question in one line, and the module that answers it.

    ``takes``: of a lab whose module has no ``rehearse``, how long it was seen to take with its
    defaults, and what makes it longer.
    """

    name: str
    question: str
    module: str
    takes: str = ""

    def run(self, order: Order, say: Say, show: Show) -> dict[str, Any]:
        """Do the lab: words for people go to `say`, progress to `show` (done, total, says).

        Returns the object that ``--json`` prints.
        """
        result: dict[str, Any] = self._module().run(order, say, show)
        return result

    def rehearse(self, order: Order, say: Say) -> dict[str, Any]:
        """Load the data, make one step of each arm and forecast time and memory.

        A lab that cannot measure a part of itself says what its defaults took elsewhere, and that
        it forecasts nothing.
        """
        module = self._module()
        if hasattr(module, "rehearse"):
            result: dict[str, Any] = module.rehearse(order, say)
            return result
        told = f"regard lab {self.name} measures nothing beforehand and forecasts no time."
        if self.takes:
            told += f" With its defaults it took {self.takes}"
            own = order.data or order.seeds or order.budget or order.overrides
            told += ". What is set here changes that." if own else "."
        say(told)
        return {"task": self.name, "forecast": [], "seconds": None, "says": told}

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
        "15 s on two cores; with a table of 100,000 rows of your own, a minute",
    ),
    Lab(
        "positions",
        "What does a position tell: the place, the neighbours, beyond the trained length?",
        "regard.labs.positions.lab",
        "44 s on two cores, with three seeds",
    ),
    Lab(
        "softmax-gradient",
        "Why is q·k divided by √d, and which scores need it?",
        "regard.labs.softmax_gradient.lab",
        "18 s on one core",
    ),
    Lab(
        "exploration",
        "When does one head copy a value or average two, and what do two heads add?",
        "regard.labs.exploration.lab",
        "5 s on one core",
    ),
    Lab(
        "scores",
        "Which score and which normaliser matter, and where? Recall, sorting, film reviews.",
        "regard.labs.scores.lab",
        "50 s on two cores; with pairs=all, 16 minutes on one",
    ),
    Lab(
        "complexity",
        "From which length does which layer pay: convolution, recurrence, attention, its cures?",
        "regard.labs.complexity.lab",
        "45 s on two cores, 20 s of them its --budget; with lengths to 16,384, 90 s",
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
