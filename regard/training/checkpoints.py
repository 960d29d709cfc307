"""Checkpoints of a training: whole or not there, hashed, tensors in safetensors."""

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

from regard import durable
from regard.errors import RegardError
from regard.parts import is_part
from regard.reading import parse_json, parse_tensors

Tensors = dict[str, Tensor]
LARGEST = 1_000_000  # of a setting that no weight tells of, such as the length of a text
SLACK = 10_000_000  # numbers that a network may have beside those of the file, as heads
STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """What a training needs to go on: groups of tensors and plain numbers."""

    step: int
    tensors: Mapping[str, Tensors]
    state: Mapping[str, Any]


class Checkpoints:
    """The folder of a run's checkpoints, ``step-N/`` each; the last `keep` stay.

    One process writes here at a time: a run holds its lock while it trains.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; once it is on the disk, drop those that are no longer kept.

        Errors: no space: one line with the size needed, and the earlier checkpoints are whole.
        """
        files = {
            f"{group}.safetensors": safetensors.torch.save(dict(tensors))
            for group, tensors in checkpoint.tensors.items()
        }
        files["state.json"] = json.dumps(dict(checkpoint.state), allow_nan=False).encode()
        with durable.told(self.folder, sum(map(len, files.values()))):
            self.folder.mkdir(parents=True, exist_ok=True)
        durable.write_folder(self.folder / f"step-{checkpoint.step}", files)
        for step in self.steps()[: -self.keep]:
            durable.remove_folder(self.folder / f"step-{step}")

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, in order; none is a partial one."""
        found = (STEP.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in found if match)

    def load(self, step: int) -> Checkpoint:
        """One checkpoint, each file compared with its hash. Errors: damage, in one line."""
        files = durable.read_folder(self.folder / f"step-{step}")
        place = self.folder / f"step-{step}"
        tensors = {
            name.removesuffix(".safetensors"): parse_tensors(data, place / name)
            for name, data in files.items()
            if name.endswith(".safetensors")
        }
        return Checkpoint(step, tensors, parse_json(files.get("state.json", b""), place))

    def latest(self) -> tuple[Checkpoint | None, str]:
        """The newest checkpoint that can be read, and a word on those that cannot.

        Leftovers of writers that were killed are removed; a damaged checkpoint is renamed to
        ``step-N.damaged``, out of the way of the one that will take its place.
        """
        durable.remove_leftovers(self.folder)
        says: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), " ".join(says)
            except RegardError as error:
                path = self.folder / f"step-{step}"
                aside = path.with_name(f"{path.name}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                says.append(f"{error}; put aside as {aside.name}.")
        return None, " ".join(says)


def weights(model: nn.Module) -> Tensors:
    """A copy of a model's parameters and saved buffers by name; tied ones stand once."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: named[name].detach().clone().contiguous() for name in named if name in saved}


def load_weights(model: nn.Module, tensors: Tensors) -> None:
    """Put the tensors of `weights` into a model. Errors: a name or shape that does not fit."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    here = {name: value for name, value in named.items() if name in saved}
    must_fit(here, tensors, "these weights are of another model")
    for name, value in here.items():
        with torch.no_grad():
            value.copy_(tensors[name])


def must_fit(here: Mapping[str, Tensor], there: Mapping[str, Tensor], why: str) -> None:
    """Errors, which begin with ``why``: tensors of other names, or of other shapes."""
    if odd := sorted(here.keys() ^ there.keys()):
        raise RegardError(f"{why}: {odd[0]} stands on one side only")
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
    """Refuse settings of a network that is larger than the file of its weights.

    ``build`` makes the network, here without memory, once it is known that no number of the
    settings is larger than the file allows. ``shapes`` are those of the file's tensors. Whether
    each fits is another question. A network with parts of a user's own, whose code is trusted, is
    not made here: what it does in its constructor may need numbers.
    """
    stored = sum(map(prod, shapes.values()))
    for name, value in settings.items():
        most = len(shapes) if name in ("layers", "decoder_layers") else max(stored, LARGEST)
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            raise RegardError(f"{source} does not fit its weights: {name}={value} is over {most:,}")
    if any(isinstance(value, str) and is_part(value) for value in settings.values()):
        return
    with torch.device("meta"):
        network = build()
    told = sum(x.numel() for x in network.state_dict().values())
    if told > 2 * stored + SLACK:
        raise RegardError(
            f"{source} does not fit its weights: it describes {told:,} numbers, and the file holds "
            f"{stored:,}"
        )
