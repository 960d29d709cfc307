"""One job of a comparison, in a worker process: train a run, judge it, count what it cost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Shaped
from numpy.typing import DTypeLike, NDArray

from regard.atomic_io import MANIFEST, write_json
from regard.errors import RegardError
from regard.reading import checked, read_json
from regard.studies.launch import Report
from regard.tasks import unit_of
from regard.tasks.units import Unit
from regard.tasks.writing.metrics import Judgement, restored
from regard.training.convergence import CONVERGED

if TYPE_CHECKING:
    from regard.runs import Run
    from regard.tasks.evaluation import Evaluation
    from regard.training.loop import Progress


@dataclass(frozen=True)
class RunTask:
    """Which run: its folder, task, model, and settings as ``key=value``."""

    folder: str
    task: str
    model: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """What a run is worth and what it cost; kept as ``seed-N.json`` beside the run's folder.

    `right`: for each test example whether it was answered rightly, as bits in hexadecimal digits.
    `asked` identifies the test examples, `run` the complete run. `seconds` are those of training,
    `peak_mb` the most memory the process held in it, `flops` those of one forward pass over the
    test text of median length (none of a model that is no network); None where it is not known.

    `trained` says how the training ended (`regard.training.convergence`).

    Arrays are little-endian in hexadecimal digits. `scores` (float64) are what each test example
    adds to the metric, the larger the better, where that is not right or wrong. Of texts judged as
    a corpus (BLEU), `measure` and `signature` say how, `statistics` are each text's numbers
    (int32). `clusters` (int32) numbers the group of each test example where the data have groups,
    an example without one being its own.

    `also` is what else is told of the run, by name; `trivial` what its metric would be without
    reading a text.

    `steps` is the length of the training; `timed` tells that it came of a budget in minutes, so
    that another machine takes other steps, and `batch_tokens` is its batch where the time chose it.
    """

    metric: str
    examples: int
    right: str
    asked: str
    run: str
    seconds: float | None = None
    peak_mb: float | None = None
    parameters: int | None = None
    flops: int | None = None
    measure: str = ""
    signature: str = ""
    statistics: str = ""
    also: Mapping[str, float] = field(default_factory=dict)
    trained: str = CONVERGED
    steps: int | None = None
    timed: bool = False
    scores: str = ""
    clusters: str = ""
    trivial: Mapping[str, float] = field(default_factory=dict)
    batch_tokens: int = 0

    @cached_property
    def groups(self) -> NDArray[np.int64] | None:
        """The number of each test example's group; None where the data have no groups."""
        return _numbers(self.clusters, "<i4").astype(np.int64) if self.clusters else None

    @cached_property
    def judgement(self) -> Judgement | None:
        """The corpus score of texts; none where right and wrong decide."""
        if not self.measure:
            return None
        numbers = np.frombuffer(bytes.fromhex(self.statistics), "<i4").reshape(self.examples, -1)
        return restored(self.measure, numbers.astype(np.int64), self.signature)

    @property
    def unit(self) -> Unit:
        """What the metric's numbers are, and which of two is better."""
        return unit_of(self.metric)

    @cached_property
    def value(self) -> float:
        """The metric: a share, or nats of log loss."""
        if self.judgement is not None:
            return self.judgement.value / 100
        mean = float(self.per_example.mean())
        return -mean if self.unit.lower else mean

    @cached_property
    def per_example(self) -> Shaped[np.ndarray, " examples"]:
        """A number for each test example, the larger the better, whose mean is `value`, or minus
        it where the smaller is the better (`Evaluation.per_example`)."""
        if self.scores:
            return _numbers(self.scores, "<f8").astype(np.float64)
        return self.correct()

    def correct(self) -> Bool[np.ndarray, " examples"]:
        """Right and wrong, example by example.

        >>> judged = Judged("accuracy", 3, "a0", "", "", 1.0, 1.0, 1, None)
        >>> judged.correct().tolist()
        [True, False, True]
        """
        packed = np.frombuffer(bytes.fromhex(self.right), np.uint8)
        return np.unpackbits(packed, count=self.examples).astype(bool)


def _numbers(digits: str, kind: DTypeLike) -> NDArray[Any]:
    return np.frombuffer(bytes.fromhex(digits), kind)


def judged_path(folder: Path) -> Path:
    """Where the result of a run is kept."""
    return folder.with_name(f"{folder.name}.json")


def read_judged(folder: Path) -> Judged | None:
    """The result of a complete run, if it was kept and the run is still the same."""
    path = judged_path(folder)
    try:
        judged = checked(Judged, read_json(path), path)
        same = judged.run == identity(folder) and len(judged.per_example) == judged.examples
    except (OSError, ValueError, TypeError, LookupError, RegardError):
        return None
    return judged if same else None


def train_and_judge(asked: RunTask, report: Report) -> str:
    """Train the run to its end, or go on with it; keep its result beside its folder, and say it.

    One thread: many jobs go side by side. Memory freed is kept by the process, and handed back
    between jobs, so that the peak of each is its own.
    """
    import torch

    from regard import runs
    from regard.memory import forget_peak, keep_freed_memory, peak_mb

    torch.set_num_threads(1)
    keep_freed_memory()
    forget_peak()
    folder = Path(asked.folder)
    run = runs.open_or_start(folder, asked.task, asked.model, asked.overrides)
    if run.ended is not None:
        raise RegardError(f"{folder}: {run.notes[0]}; remove it, or give another --out")
    peak = 0.0
    for progress in run.train():
        peak = peak_mb()
        done = 0.98 * share(progress)  # its end leaves a little for the test
        report(done, _says(progress, run.validates), progress.few_updates)
    judged = _judge(run, peak)
    write_json(judged_path(folder), asdict(judged))
    return f"{judged.metric} {judged.unit.write(judged.value)}{judged.unit.sign}"


def _judge(run: "Run", peak: float) -> Judged:
    evaluation, rows = run.evaluate(), run.metrics()
    parameters, flops = run.size([example.text for example in evaluation.examples])
    corpus = evaluation.corpus
    return Judged(
        metric=evaluation.compared,
        examples=evaluation.n,
        right=np.packbits(evaluation.correct).tobytes().hex(),
        asked=_examples_asked(evaluation),
        run=identity(run.folder.path),
        seconds=float(rows[-1]["seconds"]) if rows else 0.0,
        peak_mb=peak or max((float(row["peak_mb"]) for row in rows), default=0.0),
        parameters=parameters,
        flops=flops,
        measure=corpus.measure if corpus else "",
        signature=corpus.signature if corpus else "",
        statistics=corpus.statistics.astype("<i4").tobytes().hex() if corpus else "",
        also=evaluation.also,
        trained=run.convergence,
        clusters=clusters_of([example.group for example in evaluation.examples]),
        trivial=dict(evaluation.trivial),
        scores=scores_of(evaluation.per_example, evaluation.correct),
        steps=int(rows[-1]["steps"]) if rows and not run.config.entry.deterministic else None,
        timed=run.repeat is not None,
        batch_tokens=int(rows[-1].get("batch_tokens", 0)) if rows else 0,
    )


def scores_of(per_example: NDArray[np.floating], right: NDArray[np.bool_]) -> str:
    """The field `Judged.scores`: "" where they are right and wrong.

    >>> scores_of(np.array([1.0, 0.0]), np.array([True, False]))
    ''
    """
    if np.array_equal(per_example, right):
        return ""
    return np.asarray(per_example, "<f8").tobytes().hex()


def clusters_of(groups: Sequence[str]) -> str:
    """The field `Judged.clusters` from the group of each example, "" for none.

    >>> numbers = np.frombuffer(bytes.fromhex(clusters_of(["a", "", "a", ""])), "<i4")
    >>> numbers.tolist(), clusters_of(["", ""])
    ([0, 1, 0, 2], '')
    """
    if not any(groups):
        return ""
    known: dict[str | int, int] = {}
    units = (group or place for place, group in enumerate(groups))
    found = [known.setdefault(unit, len(known)) for unit in units]
    return np.array(found, "<i4").tobytes().hex()


def _examples_asked(evaluation: "Evaluation") -> str:
    digest = sha256()
    for example in evaluation.examples:
        digest.update(f"{example.source}\t{example.label}\t".encode())
        digest.update(sha256(example.text.encode(errors="replace")).digest())
    return digest.hexdigest()


def identity(folder: Path) -> str:
    """What tells a complete run from another in the same folder."""
    return sha256((folder / MANIFEST).read_bytes()).hexdigest()


def share(progress: "Progress") -> float:
    """How much of a training is done."""
    return progress.step / progress.steps if progress.seconds_left else 1.0


def _says(progress: "Progress", metric: str) -> str:
    from regard.tasks.evaluation import validated

    best = "" if progress.best is None else f", {validated(metric, progress.best)}"
    then = "" if progress.seconds_left else ", answering the test split"
    return f"step {progress.step} of {progress.steps}, loss {progress.loss:.3f}{best}{then}"
