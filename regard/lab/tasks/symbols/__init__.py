"""Puzzles on symbols, which distinguish attention mechanisms: settings and models."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from regard.core.settings import Settings
from regard.core.tables import load
from regard.lab.tasks.models import ModelEntry
from regard.lab.tasks.settings import SplitSeed
from regard.lab.tasks.tagging import TAGGERS

if TYPE_CHECKING:
    from regard.lab.data.symbols import Puzzle

METRICS = {"accuracy": "accuracy", "exact": "exact match"}
Alphabet = Annotated[int, Field(ge=2, description="number of different symbols")]


class SymbolSettings(Settings):
    """Settings of every puzzle: lengths, numbers of examples, metric."""

    #: The class of the puzzle in `regard.lab.data.symbols`, whose fields are settings.
    puzzle_class: ClassVar[str]
    # Settings of other tasks on words, fixed here.
    text: ClassVar[str] = ""
    label: ClassVar[str] = ""
    truncate: ClassVar[str] = "head"
    duplicates: ClassVar[str] = "keep"

    data: str = Field("", description="the puzzle, which has the name of the task")
    train_length: int = Field(64, ge=2, description="length of training and validation examples")
    test_length: int = Field(
        0, ge=0, description="length of test examples; 0: as long as in training"
    )
    shortest: int = Field(
        0,
        ge=0,
        description="length of the shortest training example; lengths up to train_length are then "
        "equally frequent; 0: all have train_length",
    )
    examples: int = Field(20_000, ge=1, description="training examples")
    held_out: int = Field(1_000, ge=2, description="validation examples, and test examples")
    metric: Literal["accuracy", "exact"] = Field(
        "accuracy",
        description="selects the best checkpoint on validation and compares runs on test: share of "
        "correct answers, or of examples whose answers are all correct",
    )
    length: int = Field(512, ge=1, description="maximum symbols of an example that models read")
    split_seed: SplitSeed = 0

    def puzzle(self) -> "Puzzle":
        """Return the puzzle with the sizes of the settings."""
        cls = load(f"regard.lab.data.symbols:{self.puzzle_class}", "puzzle")
        sizes = {field.name: getattr(self, field.name) for field in fields(cls)}
        puzzle: Puzzle = cls(**sizes)
        return puzzle


class RecallSettings(SymbolSettings):
    """Settings of multi-query associative recall; with ``symbols=8192``, those of Zoology."""

    puzzle_class: ClassVar[str] = "Recall"
    symbols: Alphabet = 512
    pairs: int = Field(4, ge=1, description="key-value pairs of an example")


class InductionSettings(SymbolSettings):
    """Settings of induction."""

    puzzle_class: ClassVar[str] = "Induction"
    train_length: int = Field(48, ge=3, description="length of training and validation examples")
    symbols: Alphabet = 64


class SelectiveCopyingSettings(SymbolSettings):
    """Settings of selective copying."""

    puzzle_class: ClassVar[str] = "SelectiveCopying"
    symbols: Alphabet = 16
    copied: int = Field(8, ge=1, description="symbols to copy")


class SortingSettings(SymbolSettings):
    """Settings of sorting."""

    puzzle_class: ClassVar[str] = "Sorting"
    train_length: int = Field(16, ge=1, description="most symbols of a training example")
    shortest: int = Field(
        2, ge=0, description="fewest symbols of a training example; 0: all have train_length"
    )
    metric: Literal["accuracy", "exact"] = Field(
        "exact", description="share of correct symbols, or of results without a mistake"
    )
    symbols: Alphabet = 32


class ReversingSettings(SortingSettings):
    """Settings of reversing."""

    puzzle_class: ClassVar[str] = "Reversing"


class MaxRetrievalSettings(SymbolSettings):
    """Settings of max retrieval."""

    puzzle_class: ClassVar[str] = "MaxRetrieval"
    train_length: int = Field(16, ge=1, description="most items of a training example")
    shortest: int = Field(
        5, ge=0, description="fewest items of a training example; 0: all have train_length"
    )
    levels: int = Field(64, ge=2, description="different priorities")
    classes: int = Field(10, ge=2, description="classes of items")


class IndirectIndexingSettings(SymbolSettings):
    """Settings of indirect indexing."""

    puzzle_class: ClassVar[str] = "IndirectIndexing"
    train_length: int = Field(32, ge=2, description="symbols of a training example")
    symbols: Alphabet = 64
    reach: int = Field(15, ge=1, description="largest shift")


class ModularAdditionSettings(SymbolSettings):
    """Settings of modular addition, whose examples are all pairs of numbers."""

    puzzle_class: ClassVar[str] = "ModularAddition"
    train_length: ClassVar[int] = 3  # type: ignore[misc]
    test_length: ClassVar[int] = 3  # type: ignore[misc]
    shortest: ClassVar[int] = 0  # type: ignore[misc]
    examples: ClassVar[int] = 0  # type: ignore[misc]
    held_out: ClassVar[int] = 0  # type: ignore[misc]
    modulus: int = Field(113, ge=2, le=1_000, description="numbers are below it")
    share: float = Field(0.3, gt=0, lt=1, description="share of the pairs for training")


class TrackingSettings(SymbolSettings):
    """Settings of puzzles with an answer at each position."""

    train_length: int = Field(32, ge=1, description="most symbols of a training example")
    shortest: int = Field(
        2, ge=0, description="fewest symbols of a training example; 0: all have train_length"
    )


class CountingSettings(TrackingSettings):
    """Settings of counting."""

    puzzle_class: ClassVar[str] = "Counting"
    modulus: int = Field(2, ge=2, le=1_000, description="numbers are below it; 2: parity")


class PermutationsSettings(TrackingSettings):
    """Settings of permutations."""

    puzzle_class: ClassVar[str] = "Permutations"
    points: int = Field(3, ge=2, le=5, description="things that are permuted: 3 is S₃, 5 is S₅")


class StackSettings(TrackingSettings):
    """Settings of the stack."""

    puzzle_class: ClassVar[str] = "Stack"
    symbols: Alphabet = 16


SMALL: Mapping[str, Any] = {"width": 64, "layers": 2, "feedforward": 256, "dropout": 0.0}


def _reader(name: str, **defaults: Any) -> ModelEntry:
    entry = TAGGERS[name]
    return replace(entry, defaults={**entry.defaults, **defaults})


_ENTRIES = [
    _reader("gpt", **SMALL, heads=2, position="rotary", length=512),
    _reader("transformer", **SMALL, heads=2, word_dropout=0.0, init_std=0.5, length=512),
    _reader("rnn", width=64, hidden=64, dropout=0.0, word_dropout=0.0),
    _reader("cnn", width=64, dropout=0.0),
    _reader("most-frequent-tag"),
]
#: Models of puzzles whose examples do not contain the answers, and of all puzzles.
READERS = {entry.name: entry for entry in _ENTRIES}
LEFT_TO_RIGHT = {name: READERS[name] for name in ("gpt", "most-frequent-tag")}

#: Name, description, settings and models of each puzzle.
PUZZLES: dict[str, tuple[str, type[SymbolSettings], Mapping[str, ModelEntry]]] = {
    "mqar": ("recall the values of several keys", RecallSettings, READERS),
    "induction": ("continue a repetition", InductionSettings, LEFT_TO_RIGHT),
    "selective-copying": (
        "copy the symbols among noise in order",
        SelectiveCopyingSettings,
        READERS,
    ),
    "sorting": ("write symbols in order", SortingSettings, LEFT_TO_RIGHT),
    "reversing": ("write symbols from the last to the first", ReversingSettings, LEFT_TO_RIGHT),
    "max-retrieval": ("name the class of the highest item", MaxRetrievalSettings, READERS),
    "indirect-indexing": (
        "name the symbol at a given distance from another",
        IndirectIndexingSettings,
        READERS,
    ),
    "counting": ("add numbers modulo another at each step", CountingSettings, READERS),
    "permutations": ("multiply permutations at each step", PermutationsSettings, READERS),
    "stack": ("name the symbol that each pop removes", StackSettings, READERS),
    "modular-addition": ("add two numbers modulo a third", ModularAdditionSettings, READERS),
}
