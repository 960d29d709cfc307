"""One job of a comparison in a worker process: train a run, score it and measure its cost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Shaped
from numpy.typing import DTypeLike, NDArray

from regard.core.atomic_io import MANIFEST, write_json
from regard.core.errors import RegardError
from regard.core.reading import checked, read_json
from regard.lab.runs.convergence import CONVERGED
from regard.lab.studies.launch import Report
from regard.lab.tasks import unit_of
from regard.lab.tasks.evaluation import Evaluation, group_numbers, validated
from regard.lab.tasks.units import Unit
from regard.lab.tasks.writing.metrics import Judgement, restored

if TYPE_CHECKING:
    from regard.lab.runs import Run
    from regard.training.loop import Progress


@dataclass(frozen=True)
class RunTask:
    """A run to train: its folder, task, model, and settings as ``key=value``."""

    folder: str
    task: str
    model: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class RunScore:
    """The test score and cost of a run, stored as ``seed-N.json`` beside the run's folder.

    `asked` identifies the test examples, `run` the complete run. `seconds` is the training time,
    `peak_mb` the peak memory of the process in training, `flops` the cost of one forward pass over
    the test text of median length (None without a network). Unknown costs are None.

    `trained` is how the training ended (`regard.lab.runs.convergence`), `steps` its length;
    `timed` means that a budget in minutes determined it, so that the number of steps depends on the
    machine, and `batch_tokens` is the batch size chosen for such a budget.

    Arrays are stored in hexadecimal digits, little-endian. `right` is one bit for each test
    example, 1 if the answer is right. `scores` (float64) is the contribution of each example to
    the metric, the larger the better, if that is not just right or wrong. For corpus metrics
    (BLEU) `measure` and `signature` identify the metric, and `statistics` (int32) has the numbers
    of each text. `clusters` (pairs of int32) has the groups of the test examples, if there are any:
    a number and how many examples in a row belong to it. An example without a group is a group of
    its own.

    `also` has further metrics by name, `trivial` the metric of predictions made without reading
    the texts.
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
        """Return the group of each test example; None if there are no groups.

        Raises: not one for each example.
        """
        if not self.clusters:
            return None
        numbers, sizes = _numbers(self.clusters, "<i4").astype(np.int64).reshape(-1, 2).T
        if sizes.sum() != self.examples:
            raise RegardError(f"groups of {sizes.sum():,} examples do not fit {self.examples:,}")
        return np.repeat(numbers, sizes)

    @cached_property
    def corpus(self) -> Judgement | None:
        """Return the corpus score of generated texts; None for other metrics."""
        if not self.measure:
            return None
        numbers = np.frombuffer(bytes.fromhex(self.statistics), "<i4").reshape(self.examples, -1)
        return restored(self.measure, numbers.astype(np.int64), self.signature)

    @property
    def unit(self) -> Unit:
        """Return the unit of the metric, which also says whether lower is better."""
        return unit_of(self.metric)

    @cached_property
    def value(self) -> float:
        """Return the metric as a share, or in nats for the log loss."""
        if self.corpus is not None:
            return self.corpus.value / 100
        mean = float(self.per_example.mean())
        return -mean if self.unit.lower else mean

    @cached_property
    def per_example(self) -> Shaped[np.ndarray, " examples"]:
        """Return a number for each test example, the larger the better (see
        `Evaluation.per_example`). Their mean is `value`, or its negative if lower is better."""
        if self.scores:
            return _numbers(self.scores, "<f8").astype(np.float64)
        return self.correct()

    def correct(self) -> Bool[np.ndarray, " examples"]:
        """Return which test examples were answered correctly.

        >>> score = RunScore("accuracy", 3, "a0", "", "", 1.0, 1.0, 1, None)
        >>> score.correct().tolist()
        [True, False, True]
        """
        packed = np.frombuffer(bytes.fromhex(self.right), np.uint8)
        return np.unpackbits(packed, count=self.examples).astype(bool)


def _numbers(digits: str, kind: DTypeLike) -> NDArray[Any]:
    return np.frombuffer(bytes.fromhex(digits), kind)


def score_path(folder: Path) -> Path:
    """Return the path of a run's stored score."""
    return folder.with_name(f"{folder.name}.json")


def read_score(folder: Path) -> RunScore | None:
    """Return the stored score of a complete run; None without one or if the run has changed."""
    path = score_path(folder)
    try:
        score = checked(RunScore, read_json(path), path)
        same = score.run == identity(folder) and len(score.per_example) == score.examples
        _ = score.groups  # they fit
    except (OSError, ValueError, TypeError, LookupError, RegardError):
        return None
    return score if same else None


def train_and_score(job: RunTask, report: Report) -> str:
    """Train or resume the run, store its score beside its folder, and return it as text.

    It uses one thread, because jobs run in parallel. The process keeps freed memory during a job
    and returns it between jobs, so that peaks of jobs are independent.
    """
    import torch

    from regard.core.memory import forget_peak, keep_freed_memory
    from regard.lab import runs

    torch.set_num_threads(1)
    keep_freed_memory()
    forget_peak()
    folder = Path(job.folder)
    run = runs.open_or_start(folder, job.task, job.model, job.overrides)
    if run.ended is not None:
        raise RegardError(f"{folder}: {run.notes[0]}; remove the folder, or give another --out")
    peak = 0.0
    for progress in run.train():
        peak = progress.peak_mb
        done = 0.98 * share(progress)  # the rest is the test
        message = _message(progress, run.validates)
        report(done, message, progress.few_updates, at_most(progress))
    score = _score(run, peak)
    write_json(score_path(folder), asdict(score))
    return f"{score.metric} {score.unit.write(score.value)}{score.unit.sign}"


def _score(run: "Run", peak: float) -> RunScore:
    evaluation, rows = run.evaluate(), run.metrics()
    parameters, flops = run.size([example.text for example in evaluation.examples])
    corpus = evaluation.corpus
    return RunScore(
        metric=evaluation.compared,
        examples=evaluation.n,
        right=np.packbits(evaluation.correct).tobytes().hex(),
        asked=_examples_digest(evaluation),
        run=identity(run.folder.path),
        seconds=float(rows[-1]["seconds"]) if rows else 0.0,
        peak_mb=peak or max((float(row["peak_mb"]) for row in rows), default=0.0),
        parameters=parameters,
        flops=flops,
        measure=corpus.measure if corpus else "",
        signature=corpus.signature if corpus else "",
        statistics=corpus.statistics.astype("<i4").tobytes().hex() if corpus else "",
        also=evaluation.other_metrics,
        trained=run.convergence,
        clusters=clusters_of(evaluation.groups),
        trivial=dict(evaluation.trivial),
        scores=scores_of(evaluation.per_example, evaluation.correct),
        steps=int(rows[-1]["steps"]) if rows and not run.config.entry.fitted else None,
        timed=run.repeat is not None,
        batch_tokens=int(rows[-1].get("batch_tokens", 0)) if rows else 0,
    )


def scores_of(per_example: NDArray[np.floating], right: NDArray[np.bool_]) -> str:
    """Encode the field `RunScore.scores`: "" if the scores are just right and wrong.

    >>> scores_of(np.array([1.0, 0.0]), np.array([True, False]))
    ''
    """
    if np.array_equal(per_example, right):
        return ""
    return np.asarray(per_example, "<f8").tobytes().hex()


def clusters_of(groups: Sequence[str]) -> str:
    """Encode the field `RunScore.clusters` from the group of each example: "" without groups.

    >>> numbers = np.frombuffer(bytes.fromhex(clusters_of(["a", "a", "", "a", ""])), "<i4")
    >>> numbers.reshape(-1, 2).tolist(), clusters_of(["", ""])
    ([[0, 2], [1, 1], [0, 1], [2, 1]], '')
    """
    numbers = group_numbers(groups)
    if numbers is None:
        return ""
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    sizes = np.diff(starts, append=len(numbers))
    return np.stack([numbers[starts], sizes], 1).astype("<i4").tobytes().hex()


def _examples_digest(evaluation: Evaluation) -> str:
    digest = sha256()
    for example in evaluation.examples:
        digest.update(f"{example.source}\t{example.label}\t".encode())
        digest.update(sha256(example.text.encode(errors="replace")).digest())
    return digest.hexdigest()


def identity(folder: Path) -> str:
    """Return a digest that identifies a complete run among others in the same folder."""
    return sha256((folder / MANIFEST).read_bytes()).hexdigest()


def share(progress: "Progress") -> float:
    """Return the share of a training that is done if it ends where it typically does."""
    return min(progress.step / progress.expected, 1.0) if progress.seconds_left else 1.0


def at_most(progress: "Progress") -> float:
    """Return how many times as long as typically a training may take."""
    return progress.steps / (progress.expected if progress.seconds_left else progress.step)


def _message(progress: "Progress", metric: str) -> str:
    best = "" if progress.best is None else f", {validated(metric, progress.best)}"
    then = "" if progress.seconds_left else ", predicting the test split"
    most = "at most " if progress.expected != progress.steps else ""
    return f"step {progress.step} of {most}{progress.steps}, loss {progress.loss:.3f}{best}{then}"
