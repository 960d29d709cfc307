"""The output of ``regard bench``: the cases as a table, as JSON and as a figure."""

import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.figure import ratios
from regard.core.atomic_io import write_json
from regard.lab.cli.console import out, say
from regard.lab.runs.environment import processor

PAPER = 220  # columns of a table in a file or a pipe


def machine() -> str:
    """Describe this machine in a line: processor, cores, vector instructions, torch."""
    import torch

    return (
        f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
    )


def write(folder: Path, name: str, result: dict[str, Any], *, figure: bool) -> None:
    """Write the result into a folder: as JSON, and times as a figure."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", result)
    if figure:
        ratios(f"regard bench {name}", result["cases"]).save(folder / f"{name}.svg")


def brief(case: dict[str, Any]) -> str:
    """Describe one case in a few words, for the progress.

    >>> brief({"against": "KeOps", "time_ratio": 2.0}), brief({"cells": 9, "exact": 8})
    ('2.00 × KeOps', '8 of 9 exact')
    """
    if "cells" in case:
        return f"{case['exact']} of {case['cells']} exact"
    if "difference" in case:
        return f"{difference_of(case['difference'])} apart"
    ratio = case["time_ratio"]
    if ratio and case.get("floor_s"):
        return f"{1 / ratio:.2f} × the time of {case['against']}"
    return (case["against"] or "done") if ratio is None else f"{ratio:.2f} × {case['against']}"


def show(result: dict[str, Any]) -> None:
    """Print the cases as a table, with their aims."""
    from rich.table import Table

    cases = result["cases"]
    if any(case.get("floor_s") for case in cases):
        show_multiples(result)
        return
    aims, grow = (any(case.get(key) for case in cases) for key in ("aim", "time_exponent"))
    table = Table("case", "against", box=None, pad_edge=False)
    for heading in ("ours", "theirs", "theirs / ours", "ours MB", "theirs MB"):
        table.add_column(heading, justify="right")
    if grow:
        table.add_column("exponents", justify="right")
    for heading in ("aim", "reached") if aims else ():
        table.add_column(heading)
    for case in cases:
        ratio = case["time_ratio"]
        cells = [
            escape(case["name"]),
            escape(case["against"]),
            seconds(case["ours_s"]),
            seconds(case["theirs_s"]),
            "" if ratio is None else f"{ratio:.2f}",
            *(whole(case[key]) for key in ("ours_mb", "theirs_mb")),
        ]
        cells += [exponents(case)] if grow else []
        cells += [case.get("aim", ""), yes_or_no(case.get("reached"))] if aims else []
        table.add_row(*cells)
    say(result["machine"])
    page().print(table)
    for case in cases:
        if case.get("says"):
            say(f"{case['name']}: {case['says']}")
    judged = [case["reached"] for case in cases if case.get("reached") is not None]
    if judged:
        say(f"{sum(judged)} of {len(judged)} aims reached")


def show_multiples(result: dict[str, Any]) -> None:
    """Print each part's time, memory and floor as multiples of its peer's, a column a length."""
    from rich.table import Table

    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for case in result["cases"]:
        name, _, length = case["name"].rpartition(", ")
        parts.setdefault(name, {})[length] = case
    lengths = list(dict.fromkeys(length for row in parts.values() for length in row))
    table = Table("time (memory; floor)", "times of", box=None, pad_edge=False)
    for length in lengths:
        table.add_column(length, justify="right")
    for name, row in parts.items():
        peer = next(iter(row.values()))["against"]
        table.add_row(name, peer, *(multiple(row.get(length)) for length in lengths))
    say(result["machine"])
    page().print(table)


def multiple(case: dict[str, Any] | None) -> str:
    """Return the multiples of one case as text.

    >>> multiple({"ours_s": 3.0, "theirs_s": 2.0, "floor_s": 1.0, "ours_mb": 9, "theirs_mb": 6})
    '1.50 (1.50; 0.50)'
    """
    if case is None or not case.get("theirs_s"):
        return "–" if case is None else case.get("says", "–")
    theirs_mb, ours_mb = case["theirs_mb"], case["ours_mb"]
    space = f"{ours_mb / theirs_mb:.2f}" if theirs_mb and ours_mb is not None else "–"
    time, floor = case["ours_s"] / case["theirs_s"], case["floor_s"] / case["theirs_s"]
    return f"{time:.2f} ({space}; {floor:.2f})"


def show_cells(result: dict[str, Any]) -> None:
    """Print the number of exact cells, the others, and the refusals with their reasons."""
    from rich.table import Table

    table, cases = Table("score × normaliser", box=None, pad_edge=False), result["cases"]
    for heading in ("cells", "exact", "refused", "MB at n = 1k … 8k", "exponent", "reached"):
        table.add_column(heading, justify="right")
    for case in cases:
        exponent = case["memory_exponent"]
        table.add_row(
            case["name"],
            f"{case['cells']}",
            f"{case['exact']}",
            f"{sum(case['refused'].values())}",
            " ".join(whole(x) for x in case["megabytes"]),
            "" if exponent is None else f"{exponent:.2f}",
            yes_or_no(case["reached"]),
        )
    say(result["machine"])
    page().print(table)
    for case in cases:
        for failure in case["failures"]:
            say(f"differs by {failure['difference']}: {failure['cell']}")
    reasons: dict[str, int] = {}
    for case in cases:
        for reason, count in case["refused"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in reasons.items():
        say(f"refused {count}: {reason}")
    exact, cells = (sum(case[key] for case in cases) for key in ("exact", "cells"))
    say(f"{exact:,} of {cells:,} cells exact, {sum(reasons.values()):,} refused")


def show_parity(result: dict[str, Any]) -> None:
    """Print the differences and their bounds."""
    from rich.table import Table

    table, cases = Table("case", "against", box=None, pad_edge=False), result["cases"]
    for heading in ("difference", "at most", "reached"):
        table.add_column(heading, justify="right")
    for case in cases:
        numbers = difference_of(case["difference"]), difference_of(case["aim"])
        table.add_row(case["name"], case["against"], *numbers, yes_or_no(case["reached"]))
    say(result["machine"])
    page().print(table)
    say(f"{sum(case['reached'] for case in cases)} of {len(cases)} aims reached")


def difference_of(difference: float | None) -> str:
    """Return a difference as text; None is "∞".

    >>> difference_of(3.14159e-7), difference_of(0.0), difference_of(None)
    ('3.1e-07', '0', '∞')
    """
    return "∞" if difference is None else f"{difference:.2g}"


def page() -> Console:
    """Return the console of tables: the terminal, or a page on which no row is folded."""
    return out if out.is_terminal else Console(highlight=False, soft_wrap=True, width=PAPER)


def yes_or_no(reached: bool | None) -> str:
    """Return whether an aim is reached as text; "" if unknown."""
    return "" if reached is None else "yes" if reached else "NO"


def exponents(case: dict[str, Any]) -> str:
    """Return the exponents of time and memory in n as text."""
    pair = [(key, case.get(f"{key}_exponent")) for key in ("time", "memory")]
    return ", ".join(f"{key} {value:.2f}" for key, value in pair if value is not None)


def whole(value: float | None) -> str:
    """Return megabytes without a fraction; "" if not measured."""
    return "" if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Return a time in a readable unit; "" if not measured.

    >>> seconds(0.0123), seconds(2.5), seconds(None)
    ('12.3 ms', '2.50 s', '')
    """
    if value is None:
        return ""
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


#: The display of each kind of benchmark's results.
SHOW = {"speed": show, "cells": show_cells, "parity": show_parity}
