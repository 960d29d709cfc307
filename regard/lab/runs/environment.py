"""The environment of a run: versions, processor, threads, precision; stored in ``env.json``."""

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.attention.kernels.choose import constants
from regard.attention.kernels.compiled import can_compile
from regard.training.precision import choose_device, choose_precision
from regard.training.settings import TrainingSettings

PACKAGES = ("regard", "torch", "numpy", "tokenizers", "safetensors", "scikit-learn", "pydantic")


class Environment(BaseModel):
    """The schema of ``env.json``; other fields are ignored."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    class Precision(BaseModel):
        """The precision of the computation."""

        model_config = ConfigDict(extra="forbid")
        name: Literal["fp32", "bf16"]
        reason: str

    class Data(BaseModel):
        """The task's description of its data."""

        model_config = ConfigDict(extra="allow")
        name: str
        fingerprint: str
        notes: list[str] = []
        labels: list[str] = []
        counts: list[Annotated[int, Field(ge=0)]] = []
        commonest: str = ""

        @model_validator(mode="after")
        def _fit_together(self) -> "Environment.Data":
            if len({*self.labels}) < len(self.labels) or len(self.labels) != len(self.counts):
                raise ValueError("labels must be unique, with one count each")
            return self

    class InitialWeights(BaseModel):
        """The initial pretrained weights."""

        model_config = ConfigDict(extra="allow")
        source: str = ""
        sha256: str = ""

    versions: dict[str, str | None] = {}

    class Decision(BaseModel):
        """The thresholds chosen on the validation split after training."""

        model_config = ConfigDict(extra="allow")
        threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
        thresholds: list[Annotated[float, Field(ge=0, le=1)]] = []

    decision: Decision = Decision()

    class TrainingData(BaseModel):
        """The size of the training data, if it is not counted by labels."""

        model_config = ConfigDict(extra="allow")
        examples: int = Field(0, ge=0)
        tokens: int = Field(0, ge=0)

    trained_on: TrainingData | None = None
    threads: int = Field(ge=1, le=4096)
    precision: Precision
    data: Data
    vectors: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = {}
    kernels: dict[str, Annotated[int, Field(ge=0)]] = {}
    parts: dict[str, str] = {}
    parameters: int = Field(0, ge=0)
    processes: int = Field(1, ge=1)
    ended: float | None = Field(None, ge=0, le=1)
    weights: InitialWeights = InitialWeights()
    init: dict[str, Any] = {}


def environment(training: TrainingSettings) -> dict[str, Any]:
    """Return the machine, versions, precision and kernels of a training."""
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
    """Return a description of this machine and the installed versions."""
    return {
        "versions": {"python": platform.python_version(), **{n: installed(n) for n in PACKAGES}},
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def kernels() -> dict[str, int]:
    """Return the machine constants by which an attention kernel is chosen."""
    measured = asdict(constants())
    return measured if can_compile() else {**measured, "compile_hidden": 0}


def installed(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """Return the processor's name as reported by the system."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
