"""``regard bench attention``: attend beside its peers, on this machine, in one run.

Each row of the table is an aim of regard: a case, a peer, and what is to be reached. Both sides
get the same tensors; where they compute one thing their answers and gradients are compared first.
Times are medians of calls that take turns; memory is measured in fresh processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks import cold, memory
from benchmarks.attention_cases import table
from benchmarks.case import Case
from regard.analysis import timing
from regard.analysis.growth import exponent
from regard.errors import RegardError
from regard.settings import Settings, build, split

COLD_ROUNDS = 3


class AttentionSettings(Settings):
    """Which rows, by words that their names hold, and how long to measure them.

    ``seconds`` is what a pair of sides may take beside the first calls; ``rounds`` sets the number
    of turns instead. ``memory=0`` measures none; ``prompt=1`` measures it where freed memory goes
    back to the system at once (see `regard.analysis.memory`).
    """

    case: str = ""
    against: str = ""
    rounds: int = 0
    seconds: float = 6.0
    memory: bool = True
    prompt: bool = False


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Measure the rows of the table, one after the other.

    ``quick`` takes small sizes, few rounds and no memory: aims are then not judged.
    """
    how = build(AttentionSettings, split(settings, AttentionSettings)[0])
    chosen = [
        case
        for case in table(quick=quick)
        if how.case.lower() in case.name.lower() and how.against.lower() in case.against.lower()
    ]
    if not chosen:
        asked = " and ".join(f"{k}={v}" for k, v in how if k in ("case", "against") and v)
        raise RegardError(
            f"no case has {asked}; there are: {'; '.join(case.name for case in table())}"
        )
    return (measured(case, how, quick) for case in chosen)


def find(name: str, against: str = "", *, quick: bool = False) -> Case:
    """A case by its name, and by its peer where it has several."""
    for case in table(quick=quick):
        if case.name == name and against in ("", case.against):
            return case
    raise RegardError(f"no case is called {name!r} against {against or 'anything'}")


def measured(case: Case, how: AttentionSettings, quick: bool) -> dict[str, Any]:
    """A row of results; figures that are not measured are None."""
    row: dict[str, Any] = {
        "name": case.name,
        "against": f"{case.against} (not installed)" if case.skipped else case.against,
        "ours_s": None,
        "theirs_s": None,
        "time_ratio": None,
        "ours_mb": None,
        "theirs_mb": None,
        "aim": case.aim.says,
        "reached": None,
    }
    if case.skipped:
        return row
    probing = case.probed and how.memory and not quick
    if case.sizes:
        row |= growth(case, how, probing)
    else:
        row |= times(case, how, quick) if case.timed else {}
        if probing:
            row |= memories(case, how)
    if row["theirs_s"] is not None:
        row["time_ratio"] = row["theirs_s"] / row["ours_s"]
    return row if quick else row | {"reached": case.aim.reached(row)}


def times(case: Case, how: AttentionSettings, quick: bool) -> dict[str, Any]:
    """Seconds of both sides, in turns, once their answers are the same."""
    if case.cold:
        rounds = 1 if quick else how.rounds or COLD_ROUNDS
        ours_s, theirs_s = cold.measured(case.n, rounds)
        return {"ours_s": ours_s, "theirs_s": theirs_s}
    torch.manual_seed(0)
    problem = case.make(case.n)
    ours = case.work_of(problem, "ours")
    if problem.theirs is None:
        return {"ours_s": timing.alone(ours, how.rounds or timing.FEWEST)}
    theirs = case.work_of(problem, "theirs")
    if case.same:
        case.check(ours(), theirs())
    rounds = how.rounds or (2 if quick else 0)
    ours_s, theirs_s = timing.in_turns(ours, theirs, rounds, budget=how.seconds)
    return {"ours_s": ours_s, "theirs_s": theirs_s}


def memories(case: Case, how: AttentionSettings) -> dict[str, Any]:
    """Megabytes of both sides, each in a fresh process."""
    found: dict[str, Any] = {}
    for side in ("ours", "theirs") if case.against else ("ours",):
        used = memory.fresh(case.name, case.against, side, prompt=how.prompt)
        found |= {f"{side}_mb": used.extra_mb, f"{side}_total_mb": used.total_mb}
    return found


def growth(case: Case, how: AttentionSettings, probing: bool) -> dict[str, Any]:
    """How time and memory grow: the exponents over the case's sizes, and the largest's figures.

    Memory is here the peak above the process before the inputs were made.
    """
    seconds = [timing.alone(case.work("ours", n), how.rounds or timing.FEWEST) for n in case.sizes]
    found: dict[str, Any] = {
        "ours_s": seconds[-1],
        "sizes": list(case.sizes),
        "seconds": seconds,
        "time_exponent": exponent(case.sizes, seconds),
        "memory_exponent": None,
    }
    if probing:
        used = [
            memory.fresh(case.name, case.against, "ours", n=n, prompt=how.prompt)
            for n in case.sizes
        ]
        total = [each.total_mb for each in used]
        found |= {
            "ours_mb": used[-1].extra_mb,
            "ours_total_mb": total[-1],
            "megabytes": total,
            "memory_exponent": exponent(case.sizes, [max(x, 0.1) for x in total]),
        }
    return found
