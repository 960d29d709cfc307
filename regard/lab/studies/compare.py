"""Train arms × seeds under one budget on all cores, and test which arm is better."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.core.errors import RegardError
from regard.core.settings import key_of
from regard.lab.studies import scoring
from regard.lab.studies.arms import Arm, spelled
from regard.lab.studies.compatibility import check_compatible, check_paired
from regard.lab.studies.job import RunScore, read_score, train_and_score
from regard.lab.studies.launch import Event, Job, Launcher, Outcome, launch
from regard.lab.studies.result import ArmResult, Comparison, Failure
from regard.lab.studies.statistics import Difference, as_family
from regard.lab.studies.stopping import decide
from regard.lab.studies.study import Study
from regard.lab.studies.tune import tune

FAILED = "failed"  # the end of a run without a result
SHOWN = 3  # undecided comparisons in a line
Stops = dict[tuple[str, str], int]  # the number of seeds after which each pair was last judged
Scores = Mapping[str, Mapping[int, RunScore]]  # by arm and seed


def compare(
    study: Study,
    launcher: Launcher | None = None,
    on_event: Callable[[Event], None] | None = None,
    before: Callable[[Sequence[Job]], None] | None = None,
    more_seeds: Callable[[Comparison], Collection[str]] | None = None,
) -> Comparison:
    """Train every arm of a study with every seed, and compare them on the test split.

    The unit of the statistics is the seed: `regard.lab.studies.statistics`. An arm that is the same
    for every seed (a baseline) runs once. The runs are jobs of the launcher, by default processes
    of this machine (`regard.lab.studies.launchers.parse_launcher`).

    With a range of seeds, every arm begins with the first number of them. An undecided comparison
    gets more, for its two arms, until it is decided or the last number is reached; the event
    "extended" says why. An arm with a failed run gets no more. If other claims than comparisons are
    to be decided, `more_seeds` names the arms that they need, and no others get more. `before` is
    called with the jobs that are about to be launched, to train what they begin from.

    The same call resumes an interrupted comparison and does not repeat complete runs. An arm that
    fails is listed in `Comparison.failures`; the others continue. The result is written to
    ``out/comparison.json``.

    Raises: as `Study.check`; no arm succeeds.
    """
    study.check()
    total = len(study.jobs(study.looks[0])) + sum(study.trials.values())

    def notify(event: Event) -> None:
        if on_event:
            on_event(replace(event, total=total))

    tuned = tune(study, launcher, notify)
    study = replace(study, arms=tuned.arms)
    if study.search:
        study.check_folders()
    complete = [job for job in study.jobs() if read_score(Path(job.task.folder))]
    unfinished = len(complete) < len(study.jobs())
    facts = study.read_data({job.arm for job in complete}) if unfinished else {}
    for job in complete:
        check_compatible(Path(job.task.folder), facts.get(job.arm, {}))
    jobs, outcomes = study.jobs(study.looks[0]), [*tuned.failed]
    claims, stops = [*study.pairs(), *study.rungs()], Stops()
    seeds = {arm.name: study.looks[0] for arm in study.arms}
    fixed = {arm.name for arm in study.arms if arm.deterministic}
    for look, following in zip(study.looks, (*study.looks[1:], 0), strict=True):
        for job in (job for job in jobs if job in complete):
            notify(Event("kept", job.arm, job.seed, 1.0, "already complete"))
        missing = [job for job in jobs if job not in complete]
        if before:
            before(missing)
        outcomes += launch(missing, train_and_score, launcher, notify)
        stops.update(
            {pair: min(seeds[name] for name in {*pair} - fixed or pair) for pair in claims}
        )
        scores = {arm.name: _scores(study, arm, seeds[arm.name]) for arm in study.arms}
        asked = {"seeds": max(seeds.values())}  # an earlier call may have had more
        comparison = result_of(study, scores, outcomes, asked, stops)
        failed = {outcome.job.arm for outcome in outcomes if outcome.error}
        undecided = [
            one for one in (*comparison.verdicts, *comparison.rungs)
            if one.verdict == "undecided" and (one.a, one.b) in claims
            and not {one.a, one.b} & failed and not {one.a, one.b} <= fixed
        ]  # fmt: skip
        claims = [(one.a, one.b) for one in undecided]
        if not following:
            break
        wanted = set().union(*claims) if more_seeds is None else {*more_seeds(comparison)}
        growing = wanted - fixed - failed
        if not growing:
            break
        jobs = [job for job in study.jobs(following)
                if job.arm in growing and job.seed >= seeds[job.arm]]  # fmt: skip
        seeds.update(dict.fromkeys(growing, following))
        total += len(jobs)
        why = _why([] if more_seeds else undecided, following, sorted(growing))
        notify(Event("extended", jobs[0].arm, look, 0.0, why))
    about = {
        "command": study.command(),
        **_repeat(study, scores),
        **({"tuning": tuned.record} if tuned.record else {}),
        **_data(study, scores),
    }
    comparison = replace(comparison, about={**about, **comparison.about})
    comparison.save()
    return comparison


def _why(undecided: Sequence[Difference], following: int, arms: Sequence[str]) -> str:
    """Say why a study goes on, by its first undecided comparisons, or by the arms of claims."""
    parts = [*dict.fromkeys(one.sentence for one in undecided)]  # a pair may be in both families
    parts[SHOWN:] = [f"and {len(parts) - SHOWN} more"] if len(parts) > SHOWN else []
    parts = parts or [f"claims about {', '.join(arms)} are undecided"]
    return f"up to {following} seeds, because {'; '.join(parts)}"


def result_of(
    study: Study,
    scores: Scores,
    outcomes: Sequence[Outcome],
    about: Mapping[str, Any],
    stops: Stops,
) -> Comparison:
    """Compare the scores of the runs; `stops` has the number of seeds of each comparison.

    Raises: no arm has a result.
    """
    failures = tuple(
        Failure(outcome.job.arm, outcome.job.seed, outcome.error, outcome.job.what)
        for outcome in outcomes
        if outcome.error
    )
    done = {name: runs for name, runs in scores.items() if runs}
    if not done:
        raise RegardError(failures[0].says if failures else "no arm has a result")
    first = next(run for runs in done.values() for run in runs.values())
    check_paired(done)
    broken = Counter(one.job.arm for one in outcomes if one.error and not one.missing)
    results = [
        _result(arm, done[arm.name], broken[arm.name]) for arm in study.arms if arm.name in done
    ]
    by_name = {result.arm.name: result for result in results}
    return Comparison(
        task=study.task,
        metric=first.metric,
        arms=tuple(results),
        reference=study.reference,
        verdicts=tuple(_family(study, study.pairs(), done, by_name, stops)),
        rungs=tuple(_family(study, study.rungs(), done, by_name, stops)),
        failures=failures,
        folder=study.out,
        trivial=dict(first.trivial),
        about={**about, **({"signature": first.signature} if first.signature else {})},
    )


def _family(
    study: Study,
    pairs: Sequence[tuple[str, str]],
    done: Scores,
    results: Mapping[str, ArmResult],
    stops: Stops,
) -> list[Difference]:
    """Compare the pairs in which both arms have results, on the seeds that both have."""
    fixed = {arm.name for arm in study.arms if arm.deterministic}
    differences, at = [], []
    for a, b in pairs:
        if a not in done or b not in done:
            continue
        runs = [name for name in (a, b) if name not in fixed]
        stop = stops[a, b]
        shared = set.intersection(set(range(stop)), *(set(done[name]) for name in runs))
        if seeds := sorted(shared):
            scores_a, scores_b = (_paired(done[name], seeds, name in fixed) for name in (a, b))
            pair = [results[name] for name in (a, b)]
            difference = replace(
                scoring.difference(scores_a, scores_b, (a, b)),
                untrained=tuple(arm.arm.name for arm in pair if not arm.trained),
                stuck=tuple(arm.arm.name for arm in pair if arm.stuck),
                steps={arm.arm.name: round(fmean(arm.steps)) for arm in pair if arm.steps},
            )
            differences.append(difference)
            at.append((stop, study.looks if runs else (stop,)))  # a fixed pair is judged once
    if not differences:
        return []
    margin = study.margin(next(iter(next(iter(done.values())).values())).metric)
    return as_family(differences) if margin is None else decide(differences, margin, at)


def _repeat(study: Study, scores: Scores) -> dict[str, Any]:
    """Return ``repeat``, the command with budgets in steps, if some were in minutes.

    All seeds of an arm get the mean of their steps, which differ slightly under minutes.
    """
    names, timed = {}, False
    for arm in study.arms:
        runs = scores[arm.name].values()
        steps = [run.steps for run in runs if run.timed and run.steps]
        batches = Counter(run.batch_tokens for run in runs).most_common(1)
        mean = round(sum(steps) / len(steps)) if steps else 0
        names[arm.name] = spelled(arm, mean, batches[0][0] if batches else 0)
        timed = timed or bool(steps)
    if not timed:
        return {}
    words = ["regard", "compare", study.task, "--arms", ";".join(names.values())]
    words += [*study.seeds_in_words(), "--reference", names[study.reference]]
    shared = [pair for pair in study.settings if key_of(pair) != "minutes"]
    return {"repeat": [*words, *shared, "--out", f"{study.out}-again"]}


def _scores(study: Study, arm: Arm, seeds: int) -> dict[int, RunScore]:
    numbers = study.seeds_of(arm)[:seeds]
    scores = {s: read_score(Path(study.run(arm, s).folder)) for s in numbers}
    return {seed: score for seed, score in scores.items() if score is not None}


def _data(study: Study, scores: Scores) -> dict[str, Any]:
    """Return name, notes and fingerprint of the data, from the first complete run."""
    from regard.lab.runs.folder import Folder

    arm = next((arm for arm in study.arms if scores[arm.name]), None)
    if arm is None:
        return {}
    try:
        data = Folder(Path(study.run(arm, min(scores[arm.name])).folder)).environment()["data"]
    except (KeyError, RegardError):  # env.json is missing or damaged
        return {}
    return {"data": data["name"], "notes": data["notes"], "fingerprint": data["fingerprint"]}


def _paired(runs: Mapping[int, RunScore], seeds: Sequence[int], fixed: bool) -> list[RunScore]:
    """Return a run for each seed; the only run of a deterministic arm (``fixed``) is repeated."""
    return [next(iter(runs.values())) if fixed else runs[seed] for seed in seeds]


def _result(arm: Arm, runs: Mapping[int, RunScore], failures: int = 0) -> ArmResult:
    mean, low, high = scoring.interval([runs[seed] for seed in sorted(runs)])
    costs = list(runs.values())
    seconds = [run.seconds for run in costs if run.seconds is not None]
    peaks = [run.peak_mb for run in costs if run.peak_mb is not None]
    return ArmResult(
        arm=arm,
        seeds=len(runs),
        mean=mean,
        low=low,
        high=high,
        seconds=sum(seconds) / len(seconds) if seconds else None,
        peak_mb=max(peaks, default=None),
        parameters=costs[0].parameters,
        flops=costs[0].flops,
        other_metrics={
            name: sum(run.also[name] for run in costs) / len(costs)
            for name in costs[0].also
            if all(name in run.also for run in costs)
        },
        ended=Counter(run.trained for run in costs if run.trained) + Counter({FAILED: failures}),
        steps=tuple(runs[seed].steps or 0 for seed in sorted(runs) if runs[seed].steps),
    )
