"""``regard bench attention``: attend and its peers on this machine, in one run.

Each row of a table is an aim of regard: a case, a peer, and a bound. ``rows=parts``, the default,
has every score, position, normaliser, mask and mechanism beside torch's kernel (`multiples`);
``rows=peers`` the calls that other packages have too (`attention_cases`). Both sides
get the same tensors; if they compute the same function, outputs and gradients are compared first.
Times are medians of calls that take turns; memory is measured in fresh processes."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from benchmarks import attention_gpu, cold, memory, multiples
from benchmarks.attention_cases import table
from benchmarks.case import Case
from regard.analysis import timing
from regard.analysis.growth import exponent
from regard.analysis.memory import Memory, probe
from regard.core.errors import RegardError
from regard.core.settings import Settings, build, split
from regard.training.precision import choose_device

COLD_ROUNDS = 3
#: The memory of the peer of `rows=parts`, by name, length, device, dtype and way.
_peers: dict[tuple[str, int, str, str, bool], Memory] = {}


class AttentionSettings(Settings):
    """Settings: the rows, selected by words in their names, and how long to measure them.

    ``seconds`` limits the time of a pair of sides after the first calls (by default 2 for parts,
    6 for peers); ``rounds`` sets the number
    of turns instead. ``device=cuda``: times are of the GPU's own events, memory is that allocated
    by torch there, and ``rows=peers`` are others. ``dtype`` is that of ``rows=parts``. ``memory=0``
    measures none; ``prompt=1`` measures it while freed memory is returned to the system at once
    (see `regard.analysis.memory`).
    """

    rows: Literal["parts", "peers"] = "parts"
    case: str = ""
    against: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"
    rounds: int = 0
    seconds: float = 0.0
    memory: bool = True
    prompt: bool = False
    device: Literal["cpu", "cuda"] = "cpu"


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Return the measured rows of the table.

    ``quick`` takes small sizes, few rounds and no memory; aims are then not checked.
    """
    how = build(AttentionSettings, split(settings, AttentionSettings)[0])
    chosen = [
        case
        for case in rows_of(how, quick=quick)
        if how.case.lower() in case.name.lower() and how.against.lower() in case.against.lower()
    ]
    if not chosen:
        asked = " and ".join(f"{k}={v}" for k, v in how if k in ("case", "against") and v)
        names = (case.name.partition(", n = ")[0] for case in rows_of(how))
        raise RegardError(f"no case has {asked}; there are: {'; '.join(dict.fromkeys(names))}")
    choose_device(how.device)  # an error if it is not there
    return (measured(case, how, quick) for case in chosen)


def rows_of(how: AttentionSettings, *, quick: bool = False) -> list[Case]:
    """Return the rows that the settings name."""
    if how.rows == "parts":
        return multiples.table(quick=quick, device=how.device, dtype=how.dtype)
    return attention_gpu.table(quick=quick) if how.device == "cuda" else table(quick=quick)


def find(name: str, against: str = "", *, quick: bool = False) -> Case:
    """Return a case by its name, and by its peer if it has several."""
    for case in (*table(quick=quick), *multiples.table(quick=quick)):
        if case.name == name and against in ("", case.against):
            return case
    raise RegardError(f"no case is called {name!r} against {against or 'anything'}")


def measured(case: Case, how: AttentionSettings, quick: bool) -> dict[str, Any]:
    """Return a row of results; figures that are not measured are None."""
    row: dict[str, Any] = {
        "name": case.name,
        "against": f"{case.against} (not installed)" if case.skipped else case.against,
        "ours_s": None,
        "theirs_s": None,
        "time_ratio": None,
        "ours_mb": None,
        "theirs_mb": None,
        "floor_s": case.floor() if case.floor else None,
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
    """Return the seconds of both sides, in turns, after checking that their answers are equal."""
    if case.cold:
        rounds = 1 if quick else how.rounds or COLD_ROUNDS
        ours_s, theirs_s = cold.measured(case.n, rounds)
        return {"ours_s": ours_s, "theirs_s": theirs_s}
    torch.manual_seed(0)
    with torch.device(how.device):
        problem = case.make(case.n)
        ours = case.work_of(problem, "ours")
    if problem.theirs is None:
        rounds = how.rounds or timing.FEWEST
        return {"ours_s": timing.alone(ours, rounds, device=how.device)}
    with torch.device(how.device):
        theirs = case.work_of(problem, "theirs")
    if case.same:
        case.check(ours(), theirs())
    rounds = how.rounds or (2 if quick else 0)
    budget = how.seconds or (2.0 if how.rows == "parts" else 6.0)
    ours_s, theirs_s = timing.in_turns(ours, theirs, rounds, budget=budget, device=how.device)
    return {"ours_s": ours_s, "theirs_s": theirs_s}


def memories(case: Case, how: AttentionSettings) -> dict[str, Any]:
    """Return the megabytes of both sides, each in a fresh process."""
    found: dict[str, Any] = {}
    for side in ("ours", "theirs") if case.against else ("ours",):
        shared = side == "theirs" and case.floor is not None  # all parts have one peer
        key = case.against, case.n, how.device, how.dtype, how.prompt
        if shared and key in _peers:
            used = _peers[key]
        elif how.device == "cuda":
            used = on_gpu(case, side)
        else:
            used = memory.fresh(case.name, case.against, side, prompt=how.prompt)
        if shared:
            _peers[key] = used
        found |= {f"{side}_mb": used.extra_mb, f"{side}_total_mb": used.total_mb}
    return found


def on_gpu(case: Case, side: str) -> Memory:
    """Return the megabytes of one side on the GPU, in this process."""
    with torch.device("cuda"):
        case.warm_up(side, case.n)
        return probe(lambda: case.work(side), "cuda")


def growth(case: Case, how: AttentionSettings, probing: bool) -> dict[str, Any]:
    """Return the exponents of time and memory over the sizes, and the largest size's figures.

    Memory is the peak above that of the process before the inputs were made.
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
