"""Default settings on short texts for which they were not tuned, and published figures.

Every model with its defaults, by ten-fold cross-validation or the official test, several seeds:
sentences of subjectivity (Subj), customer reviews (CR), opinion phrases (MPQA) and questions
(TREC). Published protocols keep texts that fall into train and test; so does this.

    python -m benchmarks.unseen --data FOLDER --out runs/unseen --json unseen.json

The folder contains subj.tsv, cr.tsv, mpqa.tsv, trec-train.tsv and trec-test.tsv, each plain or .gz,
with columns text and label. The same command resumes; --only selects sets.
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.atomic_io import write_bytes, write_json
from regard.core.errors import RegardError, look_up
from regard.lab.data.examples import Example
from regard.lab.data.files import read_examples
from regard.lab.studies.arms import parse_arms
from regard.lab.studies.job import RunScore, read_score, train_and_score
from regard.lab.studies.launch import Event, Job, launch
from regard.lab.studies.processes import Local
from regard.lab.studies.statistics import compare_runs
from regard.lab.studies.study import Study
from regard.lab.tasks.estimates import arm_interval

FOLDS = 10
ARMS = ("tfidf", "nb-svm", "mean", "cnn", "rnn", "transformer")
REFERENCE = "cnn"
NEAR = 0.02  # of the reference: the accepted lag of another network


@dataclass(frozen=True)
class Published:
    """A set of texts: its official test file, if it has one, and published accuracies.

    `cnn`: random vectors (Kim 2014, CNN-rand); `nb_svm`: bigrams (Wang & Manning 2012), NaN where
    the paper has none.
    """

    test: str
    cnn: float
    nb_svm: float


SETS = {
    "subj": Published("", 0.896, 0.932),
    "cr": Published("", 0.798, 0.818),
    "mpqa": Published("", 0.834, 0.863),
    "trec": Published("trec-test", 0.912, float("nan")),
}


@dataclass(frozen=True)
class Row:
    """One arm on one set: accuracy with its interval over all folds, and details.

    `ahead` is the lead over the reference, with the 95 % interval; `published` the figure
    of the literature, NaN without one; `seconds` of training are a mean of the runs.
    """

    data: str
    arm: str
    runs: int
    mean: float
    low: float
    high: float
    ahead: float
    ahead_low: float
    ahead_high: float
    published: float
    seconds: float
    ended: dict[str, int]


def split(name: str, data: Path, out: Path, folds: int) -> list[tuple[Path, Path]]:
    """Write the train and test files of each fold, or of the official split; return their names.

    Folds are a random permutation of the rows, seed 0, cut into equal parts.
    """
    rows = read_examples(find(data, "trec-train" if name == "trec" else name))
    if official := SETS[name].test:
        parts = [(rows, read_examples(find(data, official)))]
    else:
        order = np.random.default_rng(0).permutation(len(rows))
        held = np.array_split(order, folds)
        parts = [
            (
                [rows[i] for other in held if other is not part for i in other],
                [rows[i] for i in part],
            )
            for part in held
        ]
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (train, test) in enumerate(parts):
        files = (out / f"fold-{number}-train.csv", out / f"fold-{number}-test.csv")
        for path, examples in zip(files, (train, test), strict=True):
            write(path, examples)
        found.append(files)
    return found


def find(data: Path, name: str) -> Path:
    """Return the table of this name in a folder. Raises: there is none."""
    for ending in (".tsv", ".tsv.gz", ".csv", ".csv.gz"):
        if (path := data / f"{name}{ending}").is_file():
            return path
    raise RegardError(f"{data} holds no {name}.tsv; give the folder of the sets by --data")


def write(path: Path, examples: Sequence[Example]) -> None:
    """Write a table of texts and labels, unless it exists."""
    if path.exists():
        return
    with path.with_suffix(".part").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        table.writerows([example.text, example.label] for example in examples)
    write_bytes(path, path.with_suffix(".part").read_bytes())
    path.with_suffix(".part").unlink()


def studies(
    name: str, asked: argparse.Namespace, arms: Sequence[str], settings: Sequence[str]
) -> list[Study]:
    """Return a comparison for each fold of a set, as `regard compare` would plan it."""
    place = asked.out / name
    planned = [
        Study(
            "classification",
            parse_arms(arms),
            seeds=asked.seeds,
            out=place / f"fold-{number}",
            overrides=(f"data={train}", f"test={test}", "duplicates=keep", *settings),
        )
        for number, (train, test) in enumerate(split(name, asked.data, place, asked.folds))
    ]
    for study in planned:
        study.check()
    return planned


def jobs_of(name: str, planned: Sequence[Study]) -> list[Job]:
    """Return all runs of a set, each named by its fold."""
    found = []
    for number, study in enumerate(planned):
        for job in study.jobs():
            found.append(replace(job, arm=f"{name}, fold {number}, {job.arm}"))
    return found


def results(name: str, planned: Sequence[Study]) -> list[Row]:
    """Return the rows of a set from the complete folds."""
    tables: dict[str, np.ndarray[Any, np.dtype[np.bool_]]] = {}
    runs: dict[str, list[RunScore]] = {}
    for arm in planned[0].arms:
        seeds = range(1 if arm.deterministic else planned[0].seeds)
        folds = [
            [read_score(study.out / arm.folder / f"seed-{seed}") for seed in seeds]
            for study in planned
        ]
        whole = [[run for run in fold if run] for fold in folds]
        if any(len(fold) < len(seeds) for fold in whole):
            continue
        runs[arm.name] = [run for fold in whole for run in fold]
        right = [np.stack([run.correct() for run in fold]) for fold in whole]
        tables[arm.name] = np.concatenate(right, axis=1)
    rows = []
    for arm_name, table in tables.items():
        mean, low, high = arm_interval(table)
        ahead, ends = float("nan"), (float("nan"), float("nan"))
        if REFERENCE in tables and arm_name != REFERENCE:
            other = tables[REFERENCE]
            own = np.repeat(table, len(other), 0) if len(table) == 1 else table
            found = compare_runs(own, other, (arm_name, REFERENCE))
            ahead, ends = found.mean, (found.low, found.high)
        own_runs = runs[arm_name]
        published = {"cnn": SETS[name].cnn, "nb-svm": SETS[name].nb_svm}
        rows.append(
            Row(
                data=name,
                arm=arm_name,
                runs=len(own_runs),
                mean=mean,
                low=low,
                high=high,
                ahead=ahead,
                ahead_low=ends[0],
                ahead_high=ends[1],
                published=published.get(arm_name, float("nan")),
                seconds=sum(run.seconds or 0.0 for run in own_runs) / len(own_runs),
                ended=dict(Counter(run.trained for run in own_runs)),
            )
        )
    return rows


def promises(rows: Sequence[Row]) -> list[tuple[str, bool]]:
    """Return the promises about the defaults, each with whether these runs keep it."""
    found = []
    for row in rows:
        said = f"{row.data}: {row.arm} {100 * row.mean:.1f}"
        if row.arm == REFERENCE:
            found.append(
                (f"{said}, published {100 * row.published:.1f}", row.mean >= row.published)
            )
        elif row.arm == "nb-svm" and row.published == row.published:
            near = abs(row.mean - row.published) <= 0.01
            found.append((f"{said}, published {100 * row.published:.1f} ± 1", near))
        elif row.arm in ("mean", "rnn", "transformer") and row.ahead == row.ahead:
            behind = f"{said}, {100 * row.ahead:+.1f} from {REFERENCE}, at most 2 behind"
            found.append((behind, row.ahead >= -NEAR))
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table, in per cent and points."""

    def written(value: float, sign: str = "") -> str:
        return "" if value != value else f"{100 * value:{sign}.1f}".replace("-", "−")

    lines = [
        "| data | arm | runs | accuracy % (95 %) | against cnn, points | published | seconds a run "
        "| training |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        against = (
            ""
            if row.ahead != row.ahead
            else (
                f"{written(row.ahead, '+')} ({written(row.ahead_low)} to {written(row.ahead_high)})"
            )
        )
        ended = ", ".join(f"{word} {count}" for word, count in row.ended.items())
        lines.append(
            f"| {row.data} | {row.arm} | {row.runs} | {written(row.mean)} ({written(row.low)} to "
            f"{written(row.high)}) | {against} | {written(row.published)} | {row.seconds:.1f} | "
            f"{ended} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if a promise is broken, 2 if a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the four sets")
    parser.add_argument("--out", type=Path, default=Path("runs/unseen"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--only", nargs="+", default=list(SETS), help="some of the sets")
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("settings", nargs="*", help="key=value for all arms: not the defaults")
    asked = parser.parse_args(arguments)
    planned = {
        name: studies(name, asked, asked.arms, asked.settings)
        for name in asked.only
        if look_up(SETS, name, "set")
    }
    jobs = [job for name, found in planned.items() for job in jobs_of(name, found)]
    missing = [job for job in jobs if read_score(Path(job.task.folder)) is None]
    done = len(jobs) - len(missing)

    def tell(event: Event) -> None:
        nonlocal done
        if event.kind in ("finished", "failed"):
            done += 1
            sys.stdout.write(f"{done} of {len(jobs)}: {event.arm}, seed {event.seed}: ")
            sys.stdout.write(f"{event.message}\n")
            sys.stdout.flush()

    outcomes = launch(missing, train_and_score, Local(asked.workers), tell)
    rows = [row for name, found in planned.items() for row in results(name, found)]
    kept = promises(rows)
    sys.stdout.write(table(rows) + "\n")
    for says, holds in kept:
        sys.stdout.write(f"{'holds' if holds else 'FAILS'}: {says}\n")
    if asked.json:
        claims = [{"says": says, "holds": holds} for says, holds in kept]
        plain = [{k: v for k, v in asdict(row).items() if v == v} for row in rows]
        write_json(asked.json, {"rows": plain, "claims": claims})
    if any(outcome.error for outcome in outcomes):
        return 2
    return 0 if all(holds for _, holds in kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
