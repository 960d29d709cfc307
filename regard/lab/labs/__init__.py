"""Labs: experiments that answer a question about attention and check claims about the result.

The table is cheap to import: a lab's module is imported when the lab is opened.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regard.core.errors import look_up
from regard.core.settings import described
from regard.core.tables import Table, load
from regard.core.trusted import trust_named

if TYPE_CHECKING:
    from regard.lab.labs.lab import Lab
    from regard.lab.studies.launch import Launcher

Say = Callable[[str], None]


class Show(Protocol):
    """A progress callback; `left`: the remaining seconds, typically and at most, if known."""

    def __call__(
        self, done: float, total: float, says: str, left: tuple[float, float] | None = None
    ) -> None: ...


@dataclass(frozen=True)
class LabRequest:
    """The options of a lab run; the lab chooses a default for each that is empty.

    `overrides`: ``key=value`` pairs; `launcher`: where the runs of comparisons are trained;
    `least`: the first number of seeds of a range, see `regard.lab.studies.study.Study`.
    """

    data: str = described("", "Named data set or file; default: built-in data.")
    seeds: int = described(
        0,
        "Number of seeds; 3..30 adds seeds until each comparison is decided.",
        type=str,
        metavar="N or N..M",
        show_default=False,
    )
    budget: str = described("", "Budget of each run: 10m, 500 steps, 3 epochs.")
    out: Path | None = described(None, "Folder of runs and report.")
    workers: int | None = described(None, "Number of parallel runs, one thread each.", min=1)
    overrides: Sequence[str] = ()
    launcher: "Launcher | None" = None
    delta: float | None = described(
        None,
        "Difference that does not matter, for the verdict 'equivalent'.",
        type=float,
        show_default="1 point, if seeds are added",
    )
    least: int = 0


@dataclass(frozen=True)
class Questioned:
    """A row of the table of labs: a lab or its location, and its question in one line."""

    question: str


@dataclass(frozen=True)
class LabEntry(Questioned):
    """A row of the table: the lab as ``module:NAME``, imported when it is opened."""

    lab: str


LABS: Table[Questioned] = Table(
    {
        "sentiment": LabEntry(
            "What does each step of attention add to a mean of word vectors? "
            "Does word order matter?",
            "regard.lab.labs.sentiment.lab:LAB",
        ),
        "kernel-regression": LabEntry(
            "Which kernel width predicts best, and can attention learn it?",
            "regard.lab.labs.kernel_regression.lab:LAB",
        ),
        "positions": LabEntry(
            "What do positional encodings encode: place, distance, beyond the trained length?",
            "regard.lab.labs.positions.lab:LAB",
        ),
        "softmax-gradient": LabEntry(
            "Why is q·k divided by √d, and which scores need it?",
            "regard.lab.labs.softmax_gradient.lab:LAB",
        ),
        "normalisation": LabEntry(
            "Why LayerNorm and not BatchNorm in a Transformer? Four reasons, each measured.",
            "regard.lab.labs.normalisation.lab:LAB",
        ),
        "exploration": LabEntry(
            "When does one head copy a value or average two, and what do two heads add?",
            "regard.lab.labs.exploration.lab:LAB",
        ),
        "scores": LabEntry(
            "Which scores and normalisers matter for which task? Recall, sorting, film reviews.",
            "regard.lab.labs.scores.lab:LAB",
        ),
        "complexity": LabEntry(
            "From which length is which layer faster: convolution, RNN, full or efficient "
            "attention?",
            "regard.lab.labs.complexity.lab:LAB",
        ),
        "birthplace": LabEntry(
            "What does a model learn in pretraining, and does it know when it does not know?",
            "regard.lab.labs.birthplace.lab:LAB",
        ),
        "pretraining": LabEntry(
            "How much do three kinds of pretraining on the same text help a task with few labels?",
            "regard.lab.labs.pretraining:LAB",
        ),
        "reverse": LabEntry(
            "What does attention remember that a single state forgets? Reversing strings.",
            "regard.lab.labs.reverse:LAB",
        ),
        "replications": LabEntry(
            "Which published findings about attention hold in small models, over several seeds?",
            "regard.lab.labs.replications.lab:LAB",
        ),
        "mechanisms": LabEntry(
            "Which mechanism of attention is better at what, and at what cost?",
            "regard.lab.labs.mechanisms:LAB",
        ),
        "translation": LabEntry(
            "What does attention add to translation, and where does it look? Dates or sentences.",
            "regard.lab.labs.translation.lab:LAB",
        ),
    },
    "regard.labs",
    Questioned,
    "lab",
    example="ComparisonLab(question=…, task=…, arms=…)",
)


def open_lab(name: str, lang: str = "en") -> "Lab":
    """Return a lab of the table or the object ``FILE.py:NAME``; the file is executed.

    `lang` is the language of its report.
    Raises: an unknown name, with similar names; an object that is not a lab; an unknown language.
    """
    trust_named([name])
    entry = look_up(LABS, name, "lab")  # before torch is loaded
    lab: Any = load(entry.lab, "lab") if isinstance(entry, LabEntry) else entry
    opened: Lab = replace(lab, name=name, question=entry.question)
    return opened.in_language(lang)
