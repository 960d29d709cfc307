"""Are the arm and the intervals of `regard suggest` right? Draws of small data from large data.

Of every file a third (at most 1,500 rows) is kept as a test part. Users with 100, 200 and 500 rows
of the others draw the curves of the arms; the truth is the test error of the arms trained on
draws of 25, 50, … rows and on all of them.

    python -m benchmarks.suggestions subj.tsv trec.tsv:DESC+ENTY --weights FOLDER --out runs/suggest

FILE:A+B keeps the rows of the labels A and B. The same command resumes; what OUT holds is not
measured again.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.atomic_io import write_json
from regard.lab.data.data_source import DataSource
from regard.lab.studies.arms import parse_arm
from regard.lab.studies.learning_curve import LearningCurve
from regard.lab.studies.learning_draws import Rows, draw, held_losses, predictor, stratified
from regard.lab.studies.suggest import kind_of, rows_of

ARMS = ("tfidf", "nb-svm")
USERS = ((100, 2), (200, 3), (500, 1))  # rows and number of users
TESTED = 1_500
SIZES = tuple(25 << k for k in range(8))
NEAR = 0.01  # an arm this far behind the best one is as good


def data(spec: str, most: int) -> Rows:
    """Return different rows of FILE or FILE:LABEL+LABEL in a random order, at most this many."""
    file, _, kept = spec.partition(":")
    rows = rows_of(DataSource(file))[2]
    chosen = np.unique(rows.units, return_index=True)[1]
    if kept:
        numbers = [rows.labels.index(label) for label in kept.split("+")]
        chosen = chosen[np.isin(rows.answers[chosen], numbers)]
    chosen = np.random.default_rng(0).permutation(chosen)[:most]
    return part(rows, chosen)


def part(rows: Rows, chosen: Any) -> Rows:
    """Return some of the rows, with the labels that they have."""
    numbers, answers = np.unique(rows.answers[chosen], return_inverse=True)
    labels = tuple(rows.labels[i] for i in numbers)
    texts = [rows.texts[i] for i in chosen]
    return Rows(texts, answers, labels, np.arange(len(texts)), len(texts))


def measure(spec: str, arms: Sequence[str], most: int) -> dict[str, Any]:
    """Return the true errors of one file, and the curves that its users measure."""
    begun, rows = time.process_time(), data(spec, most)
    parsed = [parse_arm(name) for name in arms]
    predictors = {arm.name: predictor(arm, rows) for arm in parsed}
    tested = min(TESTED, len(rows.texts) // 3)
    test, pool = np.arange(tested), np.arange(tested, len(rows.texts))
    truth: dict[str, dict[int, list[float]]] = {name: {} for name in arms}
    for size in [*(n for n in SIZES if n < 0.85 * len(pool)), len(pool)]:
        for turn in range(8 if size <= 100 else 5 if size <= 400 else 2 if size <= 1600 else 1):
            train = stratified(pool, rows.strata, [7, turn, size])[:size]
            for name, predict in predictors.items():
                found = held_losses(rows, predict, train, test)
                truth[name].setdefault(size, []).append(float(found.mean()))
    users = []
    for count, many in USERS:
        for user in range(many if count <= len(pool) // 2 else 0):
            own = np.random.default_rng([9, user, count]).permutation(pool)[:count]
            mine = part(rows, own)
            if mine.labels != rows.labels:
                continue
            since = time.process_time()
            curves = draw(mine, parsed, predictors, user, lambda *_: None)
            seconds = time.process_time() - since
            true = [float(held_losses(rows, p, own, test).mean()) for p in predictors.values()]
            described = [asdict(curve) for curve in curves]
            users.append({"rows": count, "curves": described, "true": true, "cpu_s": seconds})
        print(f"{spec}: {count} rows, {time.process_time() - begun:.0f} s of processor", flush=True)
    return {"spec": Path(spec).name, "arms": list(arms), "truth": truth, "users": users}


def judged(found: dict[str, Any]) -> Iterator[tuple[int, int, bool, float, float]]:
    """Yield each forecast beside a true error.

    The user's rows, the rows, whether the interval holds the truth, its width, and the forecast's
    error minus the true one.
    """
    for user in found["users"]:
        for place, name in enumerate(found["arms"]):
            curve = LearningCurve(**user["curves"][place])
            sizes = {int(n): errors for n, errors in found["truth"][name].items()}
            for n, errors in [(user["rows"], [user["true"][place]]), *sizes.items()]:
                if n < user["rows"] or (n == user["rows"] and len(errors) > 1):
                    continue
                forecast = curve.forecast(n)
                for error in errors[:2]:
                    holds = forecast.low <= error <= forecast.high
                    width = forecast.high - forecast.low
                    yield user["rows"], n, holds, width, forecast.error - error


def choices(found: dict[str, Any], count: int = 200) -> list[tuple[str, str, float, float]]:
    """Return for each user with this many rows the arm that is named for all rows, the true best
    arm there, and the points between both there, and with the user's own rows.
    """
    full = max(map(int, found["truth"][found["arms"][0]]))
    errors = [float(np.mean(found["truth"][name][str(full)])) for name in found["arms"]]
    rows = []
    for user in found["users"]:
        if user["rows"] != count:
            continue
        curves = [LearningCurve(**curve) for curve in user["curves"]]
        late, now = (
            int(np.argmin([curve.forecast(n).error for curve in curves])) for n in (full, count)
        )
        best = int(np.argmin(errors))
        behind = user["true"][now] - min(user["true"])
        rows.append((found["arms"][late], found["arms"][best], errors[late] - min(errors), behind))
    return rows


def main(arguments: Sequence[str]) -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--weights", action="append", default=[])
    parser.add_argument("--most", type=int, default=6_000, help="rows of a file")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    arms = [*ARMS, *(f"{kind_of(name)}:weights={name}" for name in asked.weights)]
    everything = []
    for spec in asked.files:
        path = asked.out / f"{Path(spec).name}.json"
        if not path.exists():
            write_json(path, measure(spec, arms, asked.most))
        everything.append(json.loads(path.read_text(encoding="utf-8")))
    report(everything)


def report(everything: Sequence[dict[str, Any]]) -> None:
    """Print how often the intervals hold, and which arms are named, for each set and for all."""
    groups: dict[str, list[tuple[bool, float, float]]] = defaultdict(list)
    good = list[bool]()
    for found in everything:
        for rows, n, holds, width, bias in judged(found):
            far = round(np.log2(n / rows))
            kinds = [found["spec"], f"{rows} rows", f"forecast at {2**far} times the rows"]
            for kind in [*kinds, "all", *(["once and twice"] if n <= 2.5 * rows else [])]:
                groups[kind].append((holds, width, bias))
        for named, best, behind, now in choices(found):
            good.append(behind <= NEAR)
            print(
                f"{found['spec']}: for all rows {named.partition(':')[0]}, best "
                f"{best.partition(':')[0]}, {100 * behind:.1f} behind; "
                f"{100 * now:.1f} behind with the user's rows"
            )
    for kind, values in groups.items():
        holds, width, bias = np.mean(values, 0)
        print(
            f"{kind}: {len(values)} forecasts, {holds:.1%} hold, width {100 * width:.1f}, "
            f"bias {100 * bias:+.1f}"
        )
    print(f"named the best arm, or one within {NEAR:.0%}: {sum(good)} of {len(good)}")


if __name__ == "__main__":
    main(sys.argv[1:])
