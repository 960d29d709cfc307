"""One job of a comparison, in a worker process: train a run, judge it, count what it cost."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Shaped

from regard.durable import MANIFEST, write_json
from regard.errors import RegardError
from regard.studies.launch import Report
from regard.studies.result import per_cent
from regard.tasks.sequence_metrics import Judgement, restored

if TYPE_CHECKING:
    from regard.runs import Evaluation, Run
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
    test text of median length (none of a model that is no network).

    Of texts judged as a corpus (BLEU), `measure` and `signature` say how, `statistics` are each
    text's numbers (int32 in hexadecimal digits); `also` is what else is told of the run, by name.
    """

    metric: str
    examples: int
    right: str
    asked: str
    run: str
    seconds: float
    peak_mb: float
    parameters: int
    flops: int | None
    measure: str = ""
    signature: str = ""
    statistics: str = ""
    also: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def judgement(self) -> Judgement | None:
        """The corpus score of texts; none where right and wrong decide."""
        if not self.measure:
            return None
        numbers = np.frombuffer(bytes.fromhex(self.statistics), "<i4").reshape(self.examples, -1)
        return restored(self.measure, numbers.astype(np.int64), self.signature)

    @property
    def value(self) -> float:
        """The metric, as a share."""
        if self.judgement is None:
            return float(self.correct().mean())
        return self.judgement.value / 100

    @cached_property
    def scores(self) -> Shaped[np.ndarray, " examples"]:
        """A number for each test example, whose mean is `value`: right or wrong, or the
        jackknife's pseudo-values of a corpus score."""
        if self.judgement is None:
            return self.correct()
        return self.judgement.pseudo_values() / 100

    def correct(self) -> Bool[np.ndarray, " examples"]:
        """Right and wrong, example by example.

        >>> judged = Judged("accuracy", 3, "a0", "", "", 1.0, 1.0, 1, None)
        >>> judged.correct().tolist()
        [True, False, True]
        """
        packed = np.frombuffer(bytes.fromhex(self.right), np.uint8)
        return np.unpackbits(packed, count=self.examples).astype(bool)


def judged_path(folder: Path) -> Path:
    """Where the result of a run is kept."""
    return folder.with_name(f"{folder.name}.json")


def read_judged(folder: Path) -> Judged | None:
    """The result of a complete run, if it was kept and the run is still the same."""
    try:
        judged = Judged(**json.loads(judged_path(folder).read_text(encoding="utf-8")))
        same = judged.run == _identity(folder) and len(judged.correct()) == judged.examples
    except (OSError, ValueError, TypeError):
        return None
    return judged if same else None


def train_and_judge(asked: RunTask, report: Report) -> str:
    """Train the run to its end, or go on with it; keep its result beside its folder, and say it.

    One thread: many jobs go side by side. Memory freed is kept by the process, and handed back
    between jobs, so that the peak of each is its own.
    """
    import torch

    from regard import runs
    from regard.training.memory import forget_peak, keep_freed_memory, peak_mb

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
        report(_share(progress), _says(progress))
    judged = _judge(run, peak)
    write_json(judged_path(folder), asdict(judged))
    return f"{judged.metric} {100 * judged.value:.1f}{per_cent(judged.metric)}"


def _judge(run: "Run", peak: float) -> Judged:
    evaluation, rows = run.evaluate(), run.metrics()
    parameters, flops = run.size([example.text for example in evaluation.examples])
    corpus = evaluation.corpus
    return Judged(
        metric=evaluation.compared,
        examples=evaluation.n,
        right=np.packbits(evaluation.correct).tobytes().hex(),
        asked=_examples_asked(evaluation),
        run=_identity(run.folder.path),
        seconds=float(rows[-1]["seconds"]) if rows else 0.0,
        peak_mb=peak or max((float(row["peak_mb"]) for row in rows), default=0.0),
        parameters=parameters,
        flops=flops,
        measure=corpus.measure if corpus else "",
        signature=corpus.signature if corpus else "",
        statistics=corpus.statistics.astype("<i4").tobytes().hex() if corpus else "",
        also=evaluation.also,
    )


def _examples_asked(evaluation: "Evaluation") -> str:
    digest = sha256()
    for example in evaluation.examples:
        digest.update(f"{example.source}\t{example.label}\t".encode())
        digest.update(sha256(example.text.encode(errors="replace")).digest())
    return digest.hexdigest()


def _identity(folder: Path) -> str:
    return sha256((folder / MANIFEST).read_bytes()).hexdigest()


def _share(progress: "Progress") -> float:
    """How much of the training is done; its end leaves a little for the test."""
    whole = progress.seconds + progress.seconds_left
    return 0.98 * progress.seconds / whole if whole > 0 else 0.98


def _says(progress: "Progress") -> str:
    best = "" if progress.best is None else f", validation {100 * progress.best:.1f} %"
    then = "" if progress.seconds_left else ", answering the test split"
    return f"step {progress.step} of {progress.steps}, loss {progress.loss:.3f}{best}{then}"
