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
    """A row of the table of labs: a `Lab`, or the question of one that opens when it is named."""

    question: str


#: The labs with their questions: lab NAME is `LAB` in the file NAME.py or NAME/lab.py.
QUESTIONS = {
    "sentiment": (
        "What does each step of attention add to a mean of word vectors? Does word order matter?"
    ),
    "kernel-regression": "Which kernel width predicts best, and can attention learn it?",
    "positions": "What do positional encodings encode: place, distance, beyond the trained length?",
    "softmax-gradient": "Why is q·k divided by √d, and which scores need it?",
    "normalisation": (
        "Why LayerNorm and not BatchNorm in a Transformer? Four reasons, each measured."
    ),
    "exploration": "When does one head copy a value or average two, and what do two heads add?",
    "scores": "Which scores and normalisers matter for which task? Recall, sorting, film reviews.",
    "complexity": (
        "From which length is which layer faster: convolution, RNN, full or efficient attention?"
    ),
    "birthplace": "What does a model learn in pretraining, and does it know when it does not know?",
    "pretraining": (
        "How much do three kinds of pretraining on the same text help a task with few labels?"
    ),
    "reverse": "What does attention remember that a single state forgets? Reversing strings.",
    "replications": (
        "Which published findings about attention hold in small models, over several seeds?"
    ),
    "mechanisms": "Which mechanism of attention is better at what, and at what cost?",
    "translation": (
        "What does attention add to translation, and where does it look? Dates or sentences."
    ),
}
LABS: Table[Questioned] = Table(
    {name: Questioned(question) for name, question in QUESTIONS.items()},
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
    lab: Any = load(_location(name), "lab") if name in QUESTIONS else entry
    opened: Lab = replace(lab, name=name, question=entry.question)
    return opened.in_language(lang)


def _location(name: str) -> str:
    """Return a lab of regard as ``module:LAB``."""
    module = name.replace("-", "_")
    file = Path(__file__).with_name(f"{module}.py")
    return f"{__name__}.{module}{'' if file.is_file() else '.lab'}:LAB"
