"""Compare the predictions of other programs, given as files instead of runs.

Statistics, table and report are those of trained runs, without time, memory and parameters.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.core import atomic_io
from regard.core.errors import OccupiedError, RegardError, look_up
from regard.core.reading import read_json
from regard.lab.data.lines import path_of
from regard.lab.data.predictions import PredictedRow, align, read_predictions
from regard.lab.data.sources import in_order
from regard.lab.studies.arms import Arm
from regard.lab.studies.compare import result_of
from regard.lab.studies.job import RunScore, clusters_of, identity, score_path, scores_of
from regard.lab.studies.result import FILE, Comparison
from regard.lab.studies.study import Study
from regard.lab.tasks.classification import metrics
from regard.lab.tasks.classification.metrics import METRICS
from regard.lab.tasks.writing import metrics as sequence_metrics

TASK = "predictions"
OUT = "runs/compare-predictions"
CHOICES = {key: name for key, name in METRICS.items() if key != "average-precision"}
CHOICES["bleu"] = "BLEU"
NAMED = re.compile(r"(?P<arm>.+?)(?:\.|[._-]seed[._-]?)(?P<seed>\d{1,9})", re.IGNORECASE)
FOLDER = re.compile(r"seed[._-]?(?P<seed>\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True)
class PredictionFile:
    """A file with the predictions of an arm for one seed; the seed is None if it is not named."""

    arm: str
    seed: int | None
    path: Path


def named(file: str | Path) -> PredictionFile:
    """Return the arm and the seed of a file of predictions.

    ``NAME=FILE`` names the arm. Otherwise the arm is the file's name without its ending, or the
    folder's name if the file is called predictions. The seed is the N of ``ARM.N``, ``ARM-seed-N``
    (also with _ or .) or of a folder ``seed-N``.

    Raises: an empty name or file.

    >>> named("bert.3.jsonl")
    PredictionFile(arm='bert', seed=3, path=PosixPath('bert.3.jsonl'))
    >>> named("runs/x/cnn/seed-0/predictions.jsonl").arm, named("mine=out/v2.csv").arm
    ('cnn', 'mine')
    """
    text = str(file)
    name, equals, path_text = text.partition("=")
    own = bool(equals) and not ({"/", "\\"} & set(name)) and not path_of(text).exists()
    if own and not (name.strip() and path_text):
        raise RegardError(f"{text!r}: give a file of predictions as FILE or NAME=FILE")
    path = path_of(path_text if own else text)
    stem = path.name.removesuffix(".gz").removesuffix(".GZ")
    stem = stem.rpartition(".")[0] or stem
    parts = [part for part in path.absolute().parent.parts if part not in ("/", "\\")]
    match = NAMED.fullmatch(stem)
    seed = int(match["seed"]) if match else None
    arm = match["arm"] if match else stem
    if match is None and parts and (folder := FOLDER.fullmatch(parts[-1])):
        seed = int(folder["seed"])
        parts = parts[:-1]
    if arm == "predictions" and parts:
        arm = parts[-1]
    return PredictionFile(name.strip() if own else arm, seed, path)


def by_arm(files: Sequence[str | Path]) -> dict[str, dict[int, Path]]:
    """Return the files of each arm by seed; files without a seed are numbered in their order.

    Raises: fewer than two arms; a seed twice; an arm with files with and without a seed.
    """
    parsed = [named(one) for one in files]
    paths: dict[str, dict[int, Path]] = {}
    for file in parsed:
        seeds = paths.setdefault(file.arm, {})
        seed = len(seeds) if file.seed is None else file.seed
        if len({one.seed is None for one in parsed if one.arm == file.arm}) > 1:
            raise RegardError(
                f"{file.arm}: some file names have a seed and some do not; name them "
                f"{file.arm}.0.jsonl, {file.arm}.1.jsonl, …"
            )
        if seed in seeds:
            raise RegardError(
                f"{seeds[seed]} and {file.path} are both seed {seed} of {file.arm}; name their "
                "arms apart by NAME=FILE"
            )
        seeds[seed] = file.path
    if len(paths) < 2:
        raise RegardError(
            f"a comparison needs at least two arms, not {', '.join(paths) or 'none'}; name them by "
            "NAME=FILE, a file for each seed"
        )
    return paths


def compare_predictions(
    files: Sequence[str | Path],
    *,
    metric: str = "accuracy",
    reference: str | None = None,
    delta: float | None = None,
    out: Path | str = OUT,
) -> Comparison:
    """Compare files of predictions of the same test examples, one for each arm and seed.

    `regard.lab.data.predictions.read_predictions` reads the rows; `named` tells arm and seed from a
    file's name. `metric` is accuracy, macro-f1, balanced-accuracy, log-loss (which needs
    probabilities) or bleu (for texts). All arms are compared with the `reference` (default: the
    first arm), on the seeds that both have; an arm without seeds is given once for each.
    With `delta`, in the metric's unit, arms are different, equivalent within it, or undecided.
    ``comparison.json`` and the predictions, as ``ARM/seed-N``, are written to `out`.

    Raises: as the readers; arms without a common seed; other runs in `out`.

    >>> from tempfile import TemporaryDirectory
    >>> rows = ['{"label": "a", "predicted": "a"}', '{"label": "b", "predicted": "%s"}']
    >>> with TemporaryDirectory() as folder:
    ...     for arm, label in (("good", "b"), ("bad", "a")):
    ...         text = "\\n".join(rows * 20) % ((label,) * 20)
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
    command += ["--delta", f"{delta:g}"] if delta is not None else []
    study = Study(
        task=TASK,
        arms=tuple(Arm(name, "") for name in names),
        seeds=max(len(seeds) for seeds in paths.values()),
        reference=reference or names[0],
        delta=delta,
        out=Path(out),
    )
    scores = _score_all(paths, metric, Path(out))
    first = next(iter(scores[names[0]].values()))
    last = max(max(seeds) for seeds in paths.values())
    note = "the majority class is the most frequent label of the test: training is not known"
    about = {  # without seeds: folders are numbered like the files
        "command": [*command, "--out", str(out)],
        "notes": [note] if first.trivial else [],
        "fingerprint": first.asked,
        "question": f"Whose predictions are better: {', '.join(names)}?",
    }
    comparison = result_of(study, scores, [], about, dict.fromkeys(study.pairs(), last + 1))
    comparison.save()
    return comparison


@dataclass(frozen=True)
class _Read:
    """A file's rows in the order of the first file's, and its folder in the result."""

    rows: Sequence[PredictedRow]
    nats: NDArray[np.float64] | None  # −ln p of each true label; None without probabilities
    folder: Path


def _score_all(
    paths: Mapping[str, Mapping[int, Path]], metric: str, out: Path
) -> dict[str, dict[int, RunScore]]:
    """Read, align and score all files, and copy them to `out` in the layout of runs."""
    _check_out(paths, out)
    first: list[PredictedRow] = []
    origin, read = "", dict[tuple[str, int], _Read]()
    for arm, seeds in paths.items():
        for seed, path in seeds.items():
            rows = read_predictions(path)
            rows = align(rows, first, str(path), origin) if first else rows
            first, origin = first or rows, origin or str(path)
            first = [a if a.group else replace(a, group=b.group)
                     for a, b in zip(first, rows, strict=True)]  # fmt: skip
            folder = out / Arm(arm, "").folder / f"seed-{seed}"
            read[arm, seed] = _Read(rows, _nats(rows, metric, path), folder)
    if len(first) < 2:
        raise RegardError(f"{origin} has only one prediction; a comparison needs at least two")
    labels = in_order({x for file in read.values() for row in file.rows
                       for x in (row.label, row.predicted)})  # fmt: skip
    unnamed = {key: _score(file, first, labels, metric) for key, file in read.items()}
    for arm in paths:
        _remove_earlier(out / Arm(arm, "").folder)
    scores: dict[str, dict[int, RunScore]] = {arm: {} for arm in paths}
    for (arm, seed), file in read.items():
        atomic_io.write_folder(file.folder, {"predictions.jsonl": _kept(file.rows)})
        scores[arm][seed] = replace(unnamed[arm, seed], run=identity(file.folder))
        atomic_io.write_json(score_path(file.folder), asdict(scores[arm][seed]))
    return scores


def _score(
    file: _Read, first: Sequence[PredictedRow], labels: Sequence[str], metric: str
) -> RunScore:
    wanted, answers = [row.label for row in file.rows], [row.predicted for row in file.rows]
    digest = sha256("\n".join(repr((*row.keys, row.label)) for row in first).encode()).hexdigest()
    right = np.array([a == b for a, b in zip(wanted, answers, strict=True)])
    score = RunScore(
        trained="",
        metric=CHOICES[metric],
        examples=len(wanted),
        right=np.packbits(right).tobytes().hex(),
        asked=digest,
        run="",
        clusters=clusters_of([row.group for row in first]),
    )
    if metric == "bleu":
        language = sequence_metrics.language_for("", wanted)
        corpus = sequence_metrics.judge("bleu", answers, wanted, language=language)
        return replace(
            score,
            measure="bleu",
            signature=corpus.signature,
            statistics=corpus.statistics.astype("<i4").tobytes().hex(),
            scores=scores_of(corpus.pseudo_values() / 100, right),
            also={"exact match": float(right.mean())},
        )
    if not set(answers) & set(wanted):
        raise RegardError(
            f"{file.rows[0].where}: no prediction is one of the labels: {answers[0]!r:.40} is not "
            f"among {', '.join(sorted(set(wanted))[:8])}; for texts give --metric bleu"
        )
    numbers = {label: number for number, label in enumerate(labels)}
    truth, predicted = (np.array([numbers[x] for x in side]) for side in (wanted, answers))
    scores = metrics.label_scores(predicted, truth, len(labels))
    if file.nats is not None:
        scores["log loss"] = float(file.nats.mean())
    return replace(
        score,
        also={name: value for name, value in scores.items() if name != score.metric},
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
    """Return the rows in the format of a run's ``predictions.jsonl``, which reports read."""
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
    """Raise an error if `out` holds a comparison of runs, or the files themselves."""
    was = out / FILE
    try:
        task = read_json(was).get("task")
    except RegardError:
        task = TASK if not was.exists() else ""
    if task != TASK:
        raise OccupiedError(f"{out} holds another comparison; give another --out")
    for path in (path for seeds in paths.values() for path in seeds.values()):
        if path.resolve().is_relative_to(out.resolve()):
            raise RegardError(f"{path} lies in {out}, which is written anew; give another --out")


def _remove_earlier(home: Path) -> None:
    """Remove an arm's predictions that an earlier call wrote."""
    for place in home.glob("seed-*"):
        if (place / "config.toml").exists():
            raise RegardError(f"{place} holds a run; give another --out")
        if place.is_dir():
            atomic_io.remove_folder(place)
        else:
            place.unlink()
