"""Checkpoints of a training: safetensors, hashed, written atomically in a background thread."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import prod
from pathlib import Path
from threading import Thread
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.names import is_elsewhere, is_part
from regard.core.reading import open_tensors, parse_json, read_bytes
from regard.nn.layers.device import without_numbers
from regard.training.ranks import ranks
from regard.training.sharded import is_sharded, local, put, rows

Tensors = dict[str, Tensor]
LARGEST = (
    1_000_000  # upper bound of a setting that no weight depends on, such as the length of a text
)
SLACK = 10_000_000  # parameters that a network may have in addition to the file's, such as heads
STEP = re.compile(r"step-(\d+)")
PART = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")
STATE = "state.json"
MOST_STATE = 1 << 20  # bytes


@dataclass(frozen=True)
class Checkpoint:
    """The state needed to resume a training: groups of tensors and plain numbers."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


class Checkpoints:
    """The folder of a run's checkpoints, ``step-N/`` each; the last `keep` are kept.

    For each group of tensors, process r of w writes its rows to ``GROUP-r-of-w.safetensors`` (see
    `regard.training.sharded.rows`), so that a training can resume with another number of processes.
    When all files are on the disk, the first process adds ``state.json`` and all hashes, and
    renames the folder. This happens in a thread, during the next steps. A run holds its lock while
    it trains, so that no other run writes here.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self._writing: Future[None] | None = None

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; once it is on the disk, delete the oldest ones.

        Raises: no space, with the size needed; the earlier checkpoints stay intact.
        """
        self.begin(checkpoint)
        self.finish()

    def begin(self, checkpoint: Checkpoint) -> None:
        """Wait for the previous checkpoint, then copy the state and start to write it.

        Raises: an error of writing the previous checkpoint.
        """
        self.finish()
        rank, world = ranks().rank, ranks().world
        copies = {
            f"{group}-{rank + 1}-of-{world}.safetensors": {
                name: (local(x) if is_sharded(x) else rows(x, rank, world))
                .detach()
                .to("cpu", copy=True, memory_format=torch.contiguous_format)
                for name, x in tensors.items()
            }
            for group, tensors in checkpoint.tensors.items()
        }
        path = self.folder / f"step-{checkpoint.step}"
        aside = atomic_io.partial_path(path, int(ranks().broadcast(os.getpid())[0]))
        state = json.dumps(dict(checkpoint.state), allow_nan=False).encode()
        future: Future[None] = Future()
        self._writing = future

        def work() -> None:
            try:
                self._write(path, aside, copies, state)
            except BaseException as error:
                shutil.rmtree(aside, ignore_errors=True)
                future.set_exception(error)
            else:
                future.set_result(None)

        Thread(target=work, name="checkpoint", daemon=True).start()

    def finish(self) -> None:
        """Wait until the checkpoint is written. Raises: as `save`."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def failed(self) -> bool:
        """Return whether writing ended with an error, which `finish` raises."""
        writing = self._writing
        return writing is not None and writing.done() and writing.exception() is not None

    def _write(self, path: Path, aside: Path, parts: dict[str, Tensors], state: bytes) -> None:
        """Write the files of this process; the first one completes the folder."""
        size = sum(x.nbytes for tensors in parts.values() for x in tensors.values())
        manifest: dict[str, Any] = {}
        with atomic_io.one_line_errors(path, size + len(state)):
            for name in list(parts):
                data = safetensors.torch.save(parts.pop(name))
                manifest |= atomic_io.write_part(aside, {name: data})
            if ranks().first:
                manifest |= atomic_io.write_part(aside, {STATE: state})
            manifests = ranks().collect(f"{aside.name}", json.dumps(manifest))
            if not ranks().first:
                return
            for text in manifests:
                manifest |= json.loads(text)
            atomic_io.complete_folder(aside, path, manifest)
        for step in self.steps()[: -self.keep]:
            atomic_io.remove_folder(self.folder / f"step-{step}")

    def steps(self) -> list[int]:
        """Return the steps with a complete checkpoint, in order."""
        matches = (STEP.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in matches if match)

    def load(self, step: int) -> Checkpoint:
        """Load a checkpoint and verify the hash of each file. Raises: a damaged file."""
        atomic_io.check_folder(self.folder / f"step-{step}")
        return self.read(step)

    def read(self, step: int) -> Checkpoint:
        """Read a checkpoint whose hashes another process has verified.

        Tensors stay in the file until they are used. Raises: a damaged file; a missing part.
        """
        place = self.folder / f"step-{step}"
        groups: dict[str, dict[int, Tensors]] = {}
        counts = set()
        for path in place.glob("*.safetensors"):
            if (match := PART.fullmatch(path.name)) is None:
                raise RegardError(f"{path} is not a part of a checkpoint; remove it")
            groups.setdefault(match[1], {})[int(match[2])] = open_tensors(path)
            counts.add(int(match[3]))
        if any(counts != {len(parts)} for parts in groups.values()):
            raise RegardError(f"{place} is damaged: parts of the checkpoint are missing")
        tensors = {
            group: Joined([parts[number] for number in sorted(parts)])
            for group, parts in groups.items()
        }
        return Checkpoint(step, tensors, parse_json(read_bytes(place / STATE, MOST_STATE), place))

    def latest(self) -> tuple[Checkpoint | None, str]:
        """Return the newest readable checkpoint, and a message about damaged ones.

        The first process looks, the others follow. Leftovers of killed processes are removed; a
        damaged checkpoint is renamed to ``step-N.damaged``, to make room for its replacement.
        """
        if not ranks().first:
            (step,) = ranks().broadcast(0)
            return (self.read(int(step)) if step else None), ""
        checkpoint, messages = None, []
        atomic_io.remove_leftovers(self.folder)
        for step in reversed(self.steps()):
            try:
                checkpoint = self.load(step)
                break
            except RegardError as error:
                path = self.folder / f"step-{step}"
                aside = path.with_name(f"{path.name}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                messages.append(f"{error}; renamed to {aside.name}.")
        ranks().broadcast(checkpoint.step if checkpoint else 0)
        return checkpoint, " ".join(messages)


class Joined(Mapping[str, Tensor]):
    """The tensors of a group, each joined from its parts on access."""

    def __init__(self, parts: Sequence[Tensors]) -> None:
        self.parts = parts

    def __getitem__(self, name: str) -> Tensor:
        pieces = [part[name] for part in self.parts if name in part]
        if not pieces:
            raise KeyError(name)
        if len(pieces) == 1 or not pieces[0].ndim:
            return pieces[0]
        return torch.cat(pieces)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for part in self.parts for name in part))

    def __len__(self) -> int:
        return len(list(iter(self)))


def weights(model: nn.Module) -> Tensors:
    """Return copies of a model's parameters and saved buffers by name, tied ones once."""
    return {name: x.detach().clone().contiguous() for name, x in saved(model).items()}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `weights` into a model. Raises: a name or shape that does not match."""
    here = saved(model)
    must_fit(here, tensors, "these weights belong to another model")
    filled(here, tensors)


def saved(model: nn.Module) -> Tensors:
    """Return a model's parameters and saved buffers by name, tied ones once."""
    names = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: x for name, x in named.items() if name in names}


def filled(tensors: Tensors, values: Mapping[str, Tensor]) -> Tensors:
    """Copy values into tensors of the same names, and return these."""
    for name, tensor in tensors.items():
        put(tensor, values[name])
    return tensors


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

    ``build`` builds the network, here on the meta device, after each setting is checked against a
    bound. ``shapes`` has the shapes of the file's tensors; only their total size is checked. A
    network with the user's own (trusted) code is not built, since its constructor may need real
    tensors.
    """
    stored = sum(map(prod, shapes.values()))
    for name, value in settings.items():
        most = len(shapes) if name in ("layers", "decoder_layers") else max(stored, LARGEST)
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            raise RegardError(f"{source} does not fit its weights: {name}={value} is over {most:,}")
    named = [value for value in settings.values() if isinstance(value, str)]
    if any(is_part(value) or is_elsewhere(value) for value in named):
        return
    with without_numbers():
        network = build()
    described = sum(x.numel() for x in network.state_dict().values())
    if described > 2 * stored + SLACK:
        raise RegardError(
            f"{source} does not fit its weights: it describes {described:,} numbers, the file has "
            f"{stored:,}"
        )
