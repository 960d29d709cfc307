"""``regard doctor``: what this machine has, and the remedy for each thing that is missing."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from regard.cli.console import Json, emit_json, out, say


class Finding(NamedTuple):
    """One thing looked at: `well` is True, False (needs `remedy`) or None (good to know)."""

    what: str
    well: bool | None
    found: str
    remedy: str = ""


def doctor(
    json: Json = False,
) -> None:
    """Look at this machine: what is missing, and the remedy for each."""
    findings = []
    for finding in (*quick_findings(), *torch_findings()):
        findings.append(finding)
        if not json:
            _show(finding)
    ill = [f for f in findings if f.well is False]
    if json:
        emit_json({"well": not ill, "findings": [f._asdict() for f in findings]})
    else:
        say()
        say("all is well" if not ill else f"{len(ill)} to mend, see above")
    if ill:
        raise typer.Exit(1)


def _show(finding: Finding) -> None:
    sign, style = {True: ("ok  ", "green"), False: ("MEND", "bold red"), None: ("info", "cyan")}[
        finding.well
    ]
    out.print(sign, style=style, end=" ")
    out.print(f"{finding.what:<11} {finding.found}", markup=False)
    if finding.remedy and finding.well is not True:
        out.print(f"     {'':<11} -> {finding.remedy}", markup=False)


def quick_findings() -> Iterator[Finding]:
    """What can be told without loading torch."""
    version = platform.python_version()
    yield Finding("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")
    yield Finding("system", None, f"{platform.system()} {platform.machine()}, {cores()} cores")
    yield from memory_finding()
    for name in ("torch", "numpy", "scikit-learn", "tokenizers", "safetensors"):
        yield package_finding(name)
    yield folder_finding("temporary", Path(tempfile.gettempdir()))
    yield data_finding()
    compiler = shutil.which("g++") or shutil.which("clang++")
    yield Finding(
        "compiler",
        None,
        compiler or "none",
        "" if compiler else "torch.compile wants a C++ compiler (Debian: apt-get install g++)",
    )


def cores() -> int:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_finding() -> Iterator[Finding]:
    """The memory that is free, where the system tells."""
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * page / 2**30
        total = os.sysconf("SC_PHYS_PAGES") * page / 2**30
        remedy = "close other programs, or make batches smaller: batch_tokens=2048"
        yield Finding("memory", free >= 1, f"{free:.1f} of {total:.1f} GiB free", remedy)


def package_finding(name: str) -> Finding:
    """Whether a package is installed, without importing it."""
    from importlib import metadata

    remedy = "pip install -c constraints.txt ."
    try:
        return Finding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", remedy)


def folder_finding(what: str, folder: Path) -> Finding:
    """Whether a folder takes files and has room for a checkpoint or two."""
    free = shutil.disk_usage(folder).free / 2**30
    well = os.access(folder, os.W_OK) and free >= 1
    return Finding(what, well, f"{folder}, {free:.0f} GiB free", "make room, or set TMPDIR")


def data_finding() -> Finding:
    """Where real data is looked for."""
    named = os.environ.get("REGARD_DATA", "")
    if not named:
        return Finding(
            "data", None, "built in only", "real sets: regard data list; REGARD_DATA=FOLDER"
        )
    well = Path(named).is_dir()
    return Finding("data", well, named, "REGARD_DATA names no folder: correct or unset it")


def torch_findings() -> Iterator[Finding]:
    """What torch says of the processor; loading it takes a second or two."""
    try:
        import torch
    except Exception as error:  # a broken install raises anything
        yield Finding("torch", False, f"does not load: {error}", "pip install -c constraints.txt .")
        return
    from regard.training.precision import choose_precision

    yield Finding("vectors", None, torch.backends.cpu.get_cpu_capability())
    precision, why = choose_precision("auto")
    yield Finding("precision", None, f"{precision}: {why}")
    known = "none: training on CPU"
    if torch.cuda.is_available():
        known = f"{torch.cuda.get_device_name()}: `regard train … device=cuda` trains on it"
    yield Finding("cuda", None, known)
