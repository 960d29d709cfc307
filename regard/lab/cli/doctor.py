"""``regard doctor``: check this machine and suggest a fix for each problem."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import typer

from regard.core.memory import cores
from regard.lab.cli.console import Json, emit_json, out, say

INSTALL = "pip install -c constraints.txt '.[lab]'"


class Finding(NamedTuple):
    """The result of one check: `well` is True, False (needs `remedy`) or None (information)."""

    what: str
    well: bool | None
    found: str
    remedy: str = ""


def doctor(
    json: Json = False,
) -> None:
    """Check this machine and suggest a fix for each problem."""
    findings = []
    for finding in chain(quick_findings(), torch_findings()):
        findings.append(finding)
        if not json:
            _show(finding)
    ill = [f for f in findings if f.well is False]
    if json:
        emit_json({"well": not ill, "findings": [f._asdict() for f in findings]})
    else:
        say()
        say("no problems found" if not ill else f"problems to fix: {len(ill)}, see above")
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
    """Yield the findings that do not need torch."""
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
        "" if compiler else "torch.compile needs a C++ compiler (Debian: apt-get install g++)",
    )


def memory_finding() -> Iterator[Finding]:
    """Yield the free memory, where the system reports it."""
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * page / 2**30
        total = os.sysconf("SC_PHYS_PAGES") * page / 2**30
        remedy = "close other programs, or use smaller batches: batch_tokens=2048"
        yield Finding("memory", free >= 1, f"{free:.1f} of {total:.1f} GiB free", remedy)


def package_finding(name: str) -> Finding:
    """Check whether a package is installed, without importing it."""
    from importlib import metadata

    try:
        return Finding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", INSTALL)


def folder_finding(what: str, folder: Path) -> Finding:
    """Check whether a folder is writable and has space for a checkpoint or two."""
    free = shutil.disk_usage(folder).free / 2**30
    well = os.access(folder, os.W_OK) and free >= 1
    return Finding(what, well, f"{folder}, {free:.0f} GiB free", "free disk space, or set TMPDIR")


def data_finding() -> Finding:
    """Check the folder of real data."""
    named = os.environ.get("REGARD_DATA", "")
    if not named:
        return Finding(
            "data", None, "built in only", "real sets: regard data list; REGARD_DATA=FOLDER"
        )
    well = Path(named).is_dir()
    return Finding("data", well, named, "REGARD_DATA is not a folder; correct or unset it")


def torch_findings() -> Iterator[Finding]:
    """Yield what torch reports about the hardware; importing it takes a second or two."""
    try:
        import torch
    except Exception as error:  # a broken install raises anything
        yield Finding("torch", False, f"cannot be imported: {error}", INSTALL)
        return
    from regard.training.precision import choose_precision

    yield Finding("vectors", None, torch.backends.cpu.get_cpu_capability())
    precision, why = choose_precision("auto")
    yield Finding("precision", None, f"{precision}: {why}")
    yield from gpu_findings()


def gpu_findings() -> Iterator[Finding]:
    """Yield each GPU with its memory and what regard uses there, or why there is none."""
    import torch

    from regard.training.precision import choose_precision

    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"torch is built for CUDA {built}, but finds no driver or device" if built else ""
        yield Finding(
            "gpu",
            None,
            f"no GPU: {why or 'this build of torch has no CUDA'}; training uses the CPU",
            "if there should be one, check that nvidia-smi shows it" if built else "",
        )
        return
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        size = (
            f"{about.total_memory / 2**30:.0f} GiB, compute capability {about.major}.{about.minor}"
        )
        use = "" if index else "; use it by `regard train … device=cuda`"
        yield Finding("gpu", None, f"{about.name}, {size}, CUDA {torch.version.cuda}{use}")
    precision, why = choose_precision("auto", "cuda")
    yield Finding("on the gpu", None, f"{precision}: {why}")
    tiles = find_spec("triton") is not None
    yield Finding(
        "triton",
        None,
        "scores without a kernel of torch run as Triton tiles"
        if tiles
        else "not installed: scores without a kernel of torch run in strips",
        "" if tiles else "pip install -c constraints.txt '.[triton]'",
    )
