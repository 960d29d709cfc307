"""Compare the predictions of other programs: files take the place of runs.

The statistics, the table and the report are those of trained runs; what a file does not tell (time,
memory, parameters) is left out.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard import atomic_io
from regard.data.files import path_of
from regard.data.predictions import PredictedRow, align, read_predictions
from regard.data.sources import in_order
from regard.errors import RegardError, look_up
from regard.reading import read_json
from regard.studies.arms import Arm
from regard.studies.compare import Study
from regard.studies.job import RunScore, clusters_of, identity, score_path, scores_of
from regard.studies.result import FILE, Comparison
from regard.tasks.classification import metrics
from regard.tasks.classification.metrics import METRICS
from regard.tasks.writing import metrics as sequence_metrics

TASK = "predictions"
OUT = "runs/compare-predictions"
CHOICES = {**METRICS, "bleu": "BLEU"}
NAMED = re.compile(r"(?P<arm>.+?)(?:\.|[._-]seed[._-]?)(?P<seed>\d{1,9})", re.IGNORECASE)
FOLDER = re.compile(r"seed[._-]?(?P<seed>\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True)
class PredictionFile:
    """One file: the predictions of an arm with one seed, which is None where nothing tells it."""

    arm: str
    seed: int | None
    path: Path


def named(given: str | Path) -> PredictionFile:
    """Whose predictions a file holds.

    ``NAME=FILE`` names the arm; otherwise a file called predictions is named by its folder, and
    another by itself without its ending. A seed is the N of ``ARM.N``, ``ARM-seed-N`` (or _ or .),
    or of a folder ``seed-N``.

    >>> named("bert.3.jsonl")
    PredictionFile(arm='bert', seed=3, path=PosixPath('bert.3.jsonl'))
    >>> named("runs/x/cnn/seed-0/predictions.jsonl").arm, named("mine=out/v2.csv").arm
    ('cnn', 'mine')
    """
    text = str(given)
    name, equals, file = text.partition("=")
    own = bool(equals) and not ({"/", "\\"} & set(name)) and not path_of(text).exists()
    if own and not (name.strip() and file):
        raise RegardError(f"{text!r}: give a file of predictions as FILE or NAME=FILE")
    path = path_of(file if own else text)
    stem = path.name.removesuffix(".gz").removesuffix(".GZ")
    stem = stem.rpartition(".")[0] or stem
    parts = [part for part in path.absolute().parent.parts if part not in ("/", "\\")]
    found = NAMED.fullmatch(stem)
    seed = int(found["seed"]) if found else None
    arm = found["arm"] if found else stem
    if found is None and parts and (folder := FOLDER.fullmatch(parts[-1])):
        seed = int(folder["seed"])
        parts = parts[:-1]
    if arm == "predictions" and parts:
        arm = parts[-1]
    return PredictionFile(name.strip() if own else arm, seed, path)


def by_arm(given: Sequence[str | Path]) -> dict[str, dict[int, Path]]:
    """The files of each arm by seed. Files that tell no seed are numbered in their order.

    Errors: fewer than two arms; a seed twice; of one arm files with and without a seed.
    """
    files = [named(one) for one in given]
    found: dict[str, dict[int, Path]] = {}
    for file in files:
        mine = found.setdefault(file.arm, {})
        seed = len(mine) if file.seed is None else file.seed
        if len({one.seed is None for one in files if one.arm == file.arm}) > 1:
            raise RegardError(
                f"{file.arm}: some file names have a seed and some do not; name them "
                f"{file.arm}.0.jsonl, {file.arm}.1.jsonl, …"
            )
        if seed in mine:
            raise RegardError(
                f"{mine[seed]} and {file.path} are both seed {seed} of {file.arm}; name their arms "
                "apart by NAME=FILE"
            )
        mine[seed] = file.path
    if len(found) < 2:
        raise RegardError(
            f"a comparison needs at least two arms, not {', '.join(found) or 'none'}; name them by "
            "NAME=FILE, a file for each seed"
        )
    return found


def compare_predictions(
    files: Sequence[str | Path],
    *,
    metric: str = "accuracy",
    reference: str | None = None,
    out: Path | str = OUT,
) -> Comparison:
    """Compare files of predictions of the same test examples, one for each arm and seed.

    Rows are those of `regard.data.predictions.read_predictions`; `named` says how files are told
    apart. `metric` is accuracy, macro-f1, balanced-accuracy, log-loss (which needs probabilities)
    or bleu (of texts). All arms are compared with the `reference` (the first arm), by the seeds
    that both have; an arm without seeds is given once for each. Writes ``comparison.json`` and the
    predictions, as ``ARM/seed-N``, into `out`.

    Errors: those of the readers; arms without a common seed; other runs in `out`.

    >>> from tempfile import TemporaryDirectory
    >>> rows = ['{"label": "a", "predicted": "a"}', '{"label": "b", "predicted": "%s"}']
    >>> with TemporaryDirectory() as folder:
    ...     for arm, said in (("good", "b"), ("bad", "a")):
    ...         text = "\\n".join(rows * 20) % ((said,) * 20)
    ...         _ = (Path(folder) / f"{arm}.0.jsonl").write_text(text)
    ...     files = sorted(Path(folder).glob("*.jsonl"), reverse=True)
    ...     found = compare_predictions(files, out=f"{folder}/out")
    >>> [(row.arm.name, row.mean) for row in found.arms]
    [('good', 1.0), ('bad', 0.5)]
    """
    look_up(CHOICES, metric, "metric")
    paths = by_arm(files)
    names = list(paths)
    if reference is not None and reference not in names:
        raise RegardError(
            f"unknown reference {reference!r}; choose one of the arms: {', '.join(names)}"
        )
    for arm, seeds in paths.items():
        if not seeds.keys() & paths[reference or names[0]].keys():
            raise RegardError(
                f"{arm} and {reference or names[0]} have no seed in common: "
                f"{', '.join(map(str, seeds))} and "
                f"{', '.join(map(str, paths[reference or names[0]]))}"
            )
    command = ["regard", "compare", "--predictions", *map(str, files), "--metric", metric]
    command += ["--reference", reference] if reference else []
    study = PredictionStudy(
        task=TASK,
        arms=tuple(Arm(name, "") for name in names),
        seeds=max(len(seeds) for seeds in paths.values()),
        reference=reference or names[0],
        out=Path(out),
        overrides=(),
        files=_judge(paths, metric, Path(out)),
        told=(*command, "--out", str(out)),
    )
    comparison = study.result([])
    # The folders are numbered as the files are, so that the number of seeds tells nothing of them.
    about = {key: value for key, value in comparison.about.items() if key != "seeds"}
    question = f"Whose predictions are better: {', '.join(names)}?"
    comparison = replace(comparison, about={**about, "question": question})
    comparison.save()
    return comparison


@dataclass(frozen=True)
class PredictionStudy(Study):
    """A study whose runs are files that are there."""

    files: Mapping[str, Mapping[int, RunScore]] = field(default_factory=dict)
    told: Sequence[str] = ()

    def command(self) -> list[str]:
        """The command line that makes this comparison."""
        return list(self.told)

    def _judged(self, arm: Arm) -> dict[int, RunScore]:
        return dict(self.files[arm.name])

    def _data(self, done: Mapping[str, Mapping[int, RunScore]]) -> dict[str, Any]:
        first = next(iter(next(iter(done.values())).values()))
        note = "the majority class is the most frequent label of the test: training is not known"
        return {"notes": [note] if first.trivial else [], "fingerprint": first.asked}


@dataclass(frozen=True)
class _Read:
    """A file's rows in the order of the first file's, and its place among the results."""

    rows: Sequence[PredictedRow]
    nats: NDArray[np.float64] | None  # −ln p of each true label, where all rows have probabilities
    folder: Path


def _judge(
    paths: Mapping[str, Mapping[int, Path]], metric: str, out: Path
) -> dict[str, dict[int, RunScore]]:
    """Read, align and judge all files, and keep them in `out` as a comparison keeps its runs."""
    _check_out(paths, out)
    first: list[PredictedRow] = []
    origin, read = "", dict[tuple[str, int], _Read]()
    for arm, seeds in paths.items():
        for seed, path in seeds.items():
            rows = read_predictions(path)
            rows = align(rows, first, str(path), origin) if first else rows
            first, origin = first or rows, origin or str(path)
            folder = out / Arm(arm, "").folder / f"seed-{seed}"
            read[arm, seed] = _Read(rows, _nats(rows, metric, path), folder)
    if len(first) < 2:
        raise RegardError(f"{origin} has only one prediction; a comparison needs at least two")
    labels = in_order({x for file in read.values() for row in file.rows
                       for x in (row.label, row.predicted)})  # fmt: skip
    judged = {key: _judged(file, first, labels, metric) for key, file in read.items()}
    for arm in paths:
        _remove_earlier(out / Arm(arm, "").folder)
    found: dict[str, dict[int, RunScore]] = {arm: {} for arm in paths}
    for (arm, seed), file in read.items():
        atomic_io.write_folder(file.folder, {"predictions.jsonl": _kept(file.rows)})
        found[arm][seed] = replace(judged[arm, seed], run=identity(file.folder))
        atomic_io.write_json(score_path(file.folder), asdict(found[arm][seed]))
    return found


def _judged(
    file: _Read, first: Sequence[PredictedRow], labels: Sequence[str], metric: str
) -> RunScore:
    wanted, said = [row.label for row in file.rows], [row.predicted for row in file.rows]
    asked = sha256("\n".join(repr((*row.keys, row.label)) for row in first).encode()).hexdigest()
    right = np.array([a == b for a, b in zip(wanted, said, strict=True)])
    found = RunScore(
        trained="",
        metric=CHOICES[metric],
        examples=len(wanted),
        right=np.packbits(right).tobytes().hex(),
        asked=asked,
        run="",
        clusters=clusters_of([row.group for row in first]),
    )
    if metric == "bleu":
        language = sequence_metrics.language_for("", wanted)
        corpus = sequence_metrics.judge("bleu", said, wanted, language=language)
        return replace(
            found,
            measure="bleu",
            signature=corpus.signature,
            statistics=corpus.statistics.astype("<i4").tobytes().hex(),
            scores=scores_of(corpus.pseudo_values() / 100, right),
            also={"exact match": float(right.mean())},
        )
    if not set(said) & set(wanted):
        raise RegardError(
            f"{file.rows[0].where}: no prediction is one of the labels: {said[0]!r:.40} is not "
            f"among {', '.join(sorted(set(wanted))[:8])}; for texts give --metric bleu"
        )
    numbers = {label: number for number, label in enumerate(labels)}
    truth, predicted = (np.array([numbers[x] for x in side]) for side in (wanted, said))
    scores = metrics.label_scores(predicted, truth, len(labels))
    if file.nats is not None:
        scores["log loss"] = float(file.nats.mean())
    return replace(
        found,
        also={name: value for name, value in scores.items() if name != found.metric},
        trivial=metrics.trivial(metric, np.bincount(truth, minlength=len(labels)).tolist(), truth),
        scores=scores_of(
            metrics.per_example(metric, predicted, truth, len(labels), file.nats), right
        ),
    )


def _nats(rows: Sequence[PredictedRow], metric: str, path: Path) -> NDArray[np.float64] | None:
    lacking = next((row.where for row in rows if not row.probabilities), "")
    if lacking and metric == "log-loss":
        raise RegardError(f"{lacking}: lacks 'probabilities', which log-loss needs ({path})")
    if lacking:
        return None
    chances = np.array([row.probabilities[row.label] for row in rows])
    return metrics.losses(chances[:, None], np.zeros(len(rows), np.int64))


def _kept(rows: Sequence[PredictedRow]) -> bytes:
    """What the report reads of a file, as a run keeps it."""
    lines = (
        json.dumps(
            {
                "source": row.keys[1] or row.keys[0] or row.where,
                "text": row.keys[2],
                "label": row.label,
                "predicted": row.predicted,
                **({"confidence": row.probabilities[row.predicted]} if row.probabilities else {}),
                **({"group": row.group} if row.group else {}),
            },
            ensure_ascii=False,
        )
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _check_out(paths: Mapping[str, Mapping[int, Path]], out: Path) -> None:
    """Errors: `out` holds a comparison of runs, or the files themselves."""
    was = out / FILE
    try:
        task = read_json(was).get("task")
    except RegardError:
        task = TASK if not was.exists() else ""
    if task != TASK:
        raise RegardError(f"{out} holds another comparison; give another --out")
    for path in (path for seeds in paths.values() for path in seeds.values()):
        if path.resolve().is_relative_to(out.resolve()):
            raise RegardError(f"{path} lies in {out}, which is written anew; give another --out")


def _remove_earlier(home: Path) -> None:
    """Remove the predictions that an earlier call kept of an arm."""
    for place in home.glob("seed-*"):
        if (place / "config.toml").exists():
            raise RegardError(f"{place} holds a run; give another --out")
        if place.is_dir():
            atomic_io.remove_folder(place)
        else:
            place.unlink()
