"""``regard bench``: this machine, side by side with what is installed."""

import importlib
import os
import platform
from typing import Annotated, Any

import typer

from regard.benchmarks import BENCHMARKS
from regard.cli.console import emit_json, out, say
from regard.errors import look_up


def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark; none lists them.")] = "",
    settings: Annotated[
        list[str] | None, typer.Argument(help="key=value, for the benchmarks that train.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds: a first look.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure speed beside peers, interleaved in one run; ratios above 1 are in our favour."""
    if not name:
        if json:
            emit_json({key: row.says for key, row in BENCHMARKS.items()})
            return
        for key, row in BENCHMARKS.items():
            say(f"{key:<14} {row.says}")
        say("\nrun one: regard bench attention")
        return
    module = importlib.import_module(look_up(BENCHMARKS, name, "benchmark").module)
    cases: list[dict[str, Any]] = module.cases(quick=quick, settings=settings or [])
    result = {"machine": machine(), "cases": cases}
    if json:
        emit_json(result)
        return
    show(result)


def machine() -> str:
    """This machine in a line: processor, cores, vector instructions, torch."""
    import torch

    names = [platform.machine()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            names = [
                line.split(":", 1)[1].strip() for line in info if "model name" in line
            ] or names
    except OSError:  # not Linux
        pass
    return (
        f"{names[0]}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
    )


def show(result: dict[str, Any]) -> None:
    """Print the cases as a table."""
    from rich.table import Table

    table = Table("case", "against", box=None, pad_edge=False)
    for heading in ("ours", "theirs", "theirs / ours", "ours MB", "theirs MB"):
        table.add_column(heading, justify="right")
    for case in result["cases"]:
        table.add_row(
            case["name"],
            case["against"],
            seconds(case["ours_s"]),
            seconds(case["theirs_s"]),
            f"{case['time_ratio']:.2f}",
            *("" if case[key] is None else f"{case[key]:,.0f}" for key in ("ours_mb", "theirs_mb")),
        )
    say(result["machine"])
    out.print(table)


def seconds(value: float) -> str:
    """A time in the unit that reads best.

    >>> seconds(0.0123), seconds(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
