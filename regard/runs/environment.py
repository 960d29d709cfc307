"""What a run stood on: versions, processor, threads, precision. Written once, into ``env.json``."""

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from regard.attention.kernels.choose import constants
from regard.attention.kernels.compiled import can_compile
from regard.training.precision import choose_device, choose_precision
from regard.training.settings import TrainingSettings

PACKAGES = ("regard", "torch", "numpy", "tokenizers", "safetensors", "scikit-learn", "pydantic")


def environment(training: TrainingSettings) -> dict[str, Any]:
    """This machine and these versions, and what was decided on them for a training."""
    device = choose_device(training.device)
    precision = choose_precision(training.precision, device.type)
    gpu = {"gpu": torch.cuda.get_device_name()} if device.type == "cuda" else {}
    return {
        **machine(),
        **gpu,
        "threads": training.threads or torch.get_num_threads(),
        "seed": training.seed,
        "precision": {"name": precision.name, "reason": precision.reason},
        "kernels": kernels(),
    }


def machine() -> dict[str, Any]:
    """This machine and these versions."""
    return {
        "versions": {"python": platform.python_version(), **{n: installed(n) for n in PACKAGES}},
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def kernels() -> dict[str, int]:
    """What the choice of an attention kernel depends on here, beside the call."""
    found = asdict(constants())
    return found if can_compile() else {**found, "compile_hidden": 0}


def installed(package: str) -> str:
    """The version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
