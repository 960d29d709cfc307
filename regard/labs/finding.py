"""What every lab of the mathematics ends with: claims, tables, a report, the next command."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from regard.durable import write_json
from regard.errors import RegardError
from regard.labs import LABS, LabRequest, Say
from regard.reports.findings import Section, write_findings
from regard.settings import Settings, build, split

S = TypeVar("S", bound=Settings)
FILE = "results.json"
#: What a lab may be asked for by a flag, and the flag.
FLAGS = {"data": "--data", "seeds": "--seeds", "budget": "--budget", "workers": "--workers"}


@dataclass(frozen=True)
class Finding:
    """What a lab found. `answer` is its result in a sentence or two, numbers included.

    `arms` and `verdicts` are as `regard compare --json` has them, for a lab that compares.
    """

    answer: str
    sections: Sequence[Section]
    claims: Sequence[Mapping[str, Any]]
    follows: str
    metric: str = ""
    arms: Sequence[Mapping[str, Any]] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()


def claim(says: str, value: float, holds: bool) -> dict[str, Any]:
    """One thing to look for: a sentence that says the number, the number, whether it holds."""
    return {"says": says, "value": float(value), "holds": bool(holds)}


def settings_for(request: LabRequest, cls: type[S]) -> S:
    """A lab's settings: its own under the user's ``key=value`` and flags.

    Errors: a flag that this lab has no setting for, a setting that does not exist or does not fit.
    """
    (values,) = split(request.overrides, cls)
    for key, flag in FLAGS.items():
        given = getattr(request, key)
        if not given:
            continue
        if key not in cls.model_fields:
            known = ", ".join(sorted(cls.model_fields))
            raise RegardError(f"this lab has no use for {flag}; it takes: {known}")
        if key in values:
            raise RegardError(f"{key} is set twice, by {flag} and by {key}={values[key]}")
        values[key] = given
    return build(cls, values)


def place(name: str, request: LabRequest) -> Path:
    """The folder that a lab writes into: the one asked for, or one by the lab's name and data."""
    stem = f"-{Path(request.data).stem}" if request.data else ""
    return request.out or Path("runs") / f"lab-{name}{stem}"


def command(name: str, request: LabRequest) -> str:
    """The command line that does the same again."""
    parts = ["regard", "lab", name]
    for key, flag in FLAGS.items():
        given = getattr(request, key)
        parts += [flag, str(given)] if given else []
    parts += ["--out", str(request.out)] if request.out else []
    return shlex.join([*parts, *request.overrides])


def conclude(name: str, request: LabRequest, finding: Finding, say: Say) -> dict[str, Any]:
    """Say what was found, write it down, and return what ``--json`` prints."""
    from regard.runs.environment import machine

    out = place(name, request)
    tables = [table for section in finding.sections for table in section.tables]
    record: dict[str, Any] = {
        "task": name,
        "metric": finding.metric,
        "arms": list(finding.arms),
        "verdicts": list(finding.verdicts),
        "claims": list(finding.claims),
        "question": LABS[name].question,
        "answer": finding.answer,
        "tables": [table.json() for table in tables],
        "command": command(name, request),
        "data": request.data or "built-in data",
        "machine": machine(),
    }
    out.mkdir(parents=True, exist_ok=True)
    record["report"] = str(write_findings(record, finding.sections, out))
    write_json(out / FILE, record)
    for table in tables:
        say(f"\n{table.title}\n{table.text()}")
    if finding.claims:
        say("\nWhat to look for:")
    for found in finding.claims:
        say(f"  {'✓' if found['holds'] else '✗'} {found['says']}")
    say(f"\n{finding.answer}")
    say(f"\nreport: {record['report']}")
    say(f"next:   {finding.follows}")
    return record
