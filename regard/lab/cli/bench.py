"""``regard bench``: compare regard with other installed packages on this machine."""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

import regard
from regard.core.errors import RegardError, look_up
from regard.lab.cli.console import Json, emit_json, say


def bench(
    name: Annotated[str, typer.Argument(help="Name of the benchmark (default: list all).")] = "",
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            help="key=value, such as case=additive or against=KeOps, or sizes to train."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small and short run.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Write NAME.json and NAME.svg to this folder.")
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Measure this machine's constants for kernel selection."),
    ] = False,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda (default: cpu).")] = "",
    json: Json = False,
) -> None:
    """Measure speed against other packages, or numerical accuracy.

    A ratio above 1 means that regard is faster. All but --calibrate needs a checkout of regard.
    """
    if device not in ("", "cpu", "cuda"):
        raise RegardError(f"--device must be cpu or cuda, not {device!r}")
    if calibrate:
        constants(name, quick=quick, json=json, device=device or "cpu")
        return
    table = from_checkout("benchmarks").BENCHMARKS
    if not name:
        if json:
            emit_json({key: row.says for key, row in table.items()})
            return
        for key, row in table.items():
            say(f"{key:<14} {row.says}")
        say("\nRun one: regard bench attention")
        return
    row = look_up(table, name, "benchmark")
    module, results = importlib.import_module(row.module), from_checkout("benchmarks.results")
    cases: list[dict[str, Any]] = []
    result = {"machine": results.machine(), "cases": cases}
    given = [*(settings or []), *([f"device={device}"] if device else [])]
    for case in module.cases(quick=quick, settings=given):
        cases.append(case)
        say(f"{len(cases)}. {case['name']}: {results.brief(case)}", quiet=True)
        if folder is not None:  # write before later steps, which may fail
            results.write(folder, name, result, figure=row.kind == "speed")
    if json:
        emit_json(result)
    else:
        results.SHOW[row.kind](result)
    wrong = row.kind == "parity" and not all(case["reached"] for case in cases)
    if wrong or any(case.get("failures") for case in cases):
        raise typer.Exit(1)


def from_checkout(module: str) -> Any:
    """Import a module of the folder `benchmarks` of a checkout. Raises: there is no checkout."""
    checkout = Path(regard.__file__).parents[1]
    if not (checkout / "benchmarks").is_dir() or not (checkout / "pyproject.toml").is_file():
        raise RegardError(
            "regard bench needs a checkout of regard, which this installation lacks "
            f"({Path(regard.__file__).parent}): pip install -c constraints.txt -e '.[bench]' in one"
        )
    return importlib.import_module(module)


def constants(name: str, *, quick: bool, json: bool, device: str) -> None:
    """Measure and print the constants by which an attention kernel is chosen."""
    if name != "attention":
        raise RegardError(f"--calibrate belongs to `regard bench attention`, not to {name!r}")
    from regard.analysis.calibration import calibrate
    from regard.attention.kernels import choose
    from regard.training.precision import choose_device

    choose_device(device)  # raises an error if it is missing
    measured, path = calibrate(quick=quick, device=device), choose.constants_file()
    if json:
        emit_json({"file": str(path), "constants": measured})
        return
    for key, value in measured.items():
        say(f"{key:<20} {value:,}")
    say(f"written to {path}; delete it to use regard's default constants")
