"""Checkpoints of a training: written atomically, hashed, tensors in safetensors."""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from regard import atomic_io
from regard.errors import RegardError
from regard.layers.device import without_numbers
from regard.plugins import is_part
from regard.reading import parse_json, parse_tensors

Tensors = dict[str, Tensor]
LARGEST = (
    1_000_000  # upper bound of a setting that no weight depends on, such as the length of a text
)
SLACK = 10_000_000  # parameters that a network may have in addition to the file's, such as heads
STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """The state needed to resume a training: groups of tensors and plain numbers."""

    step: int
    tensors: Mapping[str, Tensors]
    state: Mapping[str, Any]


class Checkpoints:
    """The folder of a run's checkpoints, ``step-N/`` each; the last `keep` are kept.

    One process writes here at a time: a run holds its lock while it trains.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; once it is on the disk, delete the oldest ones.

        Errors: no space, with the size needed; the earlier checkpoints stay intact.
        """
        files = {
            f"{group}.safetensors": safetensors.torch.save(dict(tensors))
            for group, tensors in checkpoint.tensors.items()
        }
        files["state.json"] = json.dumps(dict(checkpoint.state), allow_nan=False).encode()
        with atomic_io.told(self.folder, sum(map(len, files.values()))):
            self.folder.mkdir(parents=True, exist_ok=True)
        atomic_io.write_folder(self.folder / f"step-{checkpoint.step}", files)
        for step in self.steps()[: -self.keep]:
            atomic_io.remove_folder(self.folder / f"step-{step}")

    def steps(self) -> list[int]:
        """Return the steps with a complete checkpoint, in order."""
        matches = (STEP.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in matches if match)

    def load(self, step: int) -> Checkpoint:
        """Load a checkpoint and verify the hash of each file. Errors: a damaged file."""
        files = atomic_io.read_folder(self.folder / f"step-{step}")
        place = self.folder / f"step-{step}"
        tensors = {
            name.removesuffix(".safetensors"): parse_tensors(data, place / name)
            for name, data in files.items()
            if name.endswith(".safetensors")
        }
        return Checkpoint(step, tensors, parse_json(files.get("state.json", b""), place))

    def latest(self) -> tuple[Checkpoint | None, str]:
        """Return the newest readable checkpoint, and a message about damaged ones.

        Leftovers of killed processes are removed; a damaged checkpoint is renamed to
        ``step-N.damaged``, to make room for its replacement.
        """
        atomic_io.remove_leftovers(self.folder)
        messages: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), " ".join(messages)
            except RegardError as error:
                path = self.folder / f"step-{step}"
                aside = path.with_name(f"{path.name}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                messages.append(f"{error}; renamed to {aside.name}.")
        return None, " ".join(messages)


def weights(model: nn.Module) -> Tensors:
    """Return copies of a model's parameters and saved buffers by name, tied ones once."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: named[name].detach().clone().contiguous() for name in named if name in saved}


def load_weights(model: nn.Module, tensors: Tensors) -> None:
    """Load the tensors of `weights` into a model. Errors: a name or shape that does not match."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    here = {name: value for name, value in named.items() if name in saved}
    must_fit(here, tensors, "these weights belong to another model")
    for name, value in here.items():
        with torch.no_grad():
            value.copy_(tensors[name])


def must_fit(here: Mapping[str, Tensor], there: Mapping[str, Tensor], why: str) -> None:
    """Raise an error, starting with ``why``, if names or shapes of tensors differ."""
    if odd := sorted(here.keys() ^ there.keys()):
        raise RegardError(f"{why}: only one side has {odd[0]}")
    for name, value in here.items():
        if value.shape != there[name].shape:
            raise RegardError(
                f"{why}: {name} is {tuple(there[name].shape)} there and {tuple(value.shape)} here"
            )


def must_describe(
    settings: Mapping[str, object],
    build: Callable[[], nn.Module],
    shapes: Mapping[str, Sequence[int]],
    source: object,
) -> None:
    """Raise an error if the settings describe a network larger than its weights file.

    ``build`` builds the network, here on the meta device, after each setting is known to be small
    enough. ``shapes`` are those of the file's tensors; whether each one matches is not checked. A
    network with the user's own (trusted) code is not built, since its constructor may need real
    tensors.
    """
    stored = sum(map(prod, shapes.values()))
    for name, value in settings.items():
        most = len(shapes) if name in ("layers", "decoder_layers") else max(stored, LARGEST)
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            raise RegardError(f"{source} does not fit its weights: {name}={value} is over {most:,}")
    if any(isinstance(value, str) and is_part(value) for value in settings.values()):
        return
    with without_numbers():
        network = build()
    described = sum(x.numel() for x in network.state_dict().values())
    if described > 2 * stored + SLACK:
        raise RegardError(
            f"{source} does not fit its weights: it describes {described:,} numbers, the file has "
            f"{stored:,}"
        )
