"""The folder of a run: one writer at a time, and hashes of everything once it is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard import durable
from regard.data.encoder_tokenizer import EncoderTokenizer
from regard.data.tokenizers import Tokenizer
from regard.errors import RegardError
from regard.reading import checked, parse_tensors, read_json
from regard.runs.config import CONFIG
from regard.runs.environment import Stood
from regard.training.checkpoints import Checkpoints, Tensors

LOCK = ".lock"
TokenizerKind = type[Tokenizer] | type[EncoderTokenizer]


class Folder:
    """Where the parts of a run lie.

    ``config.toml`` settings, ``env.json`` what it stood on, ``metrics.jsonl`` its progress,
    ``checkpoints/`` while it trains, ``tokenizer.json``, ``model.safetensors`` (of a baseline
    ``model/``), ``predictions.jsonl`` of the test split, and last ``MANIFEST.json``, the hashes of
    all these: a run is complete when it is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment_path = path / "env.json"
        self.metrics = path / "metrics.jsonl"
        self.tokenizer_path = path / "tokenizer.json"
        self.weights = path / "model.safetensors"
        self.baseline = path / "model"
        self.predictions = path / "predictions.jsonl"
        self.manifest = path / durable.MANIFEST
        self.checkpoints = Checkpoints(path / "checkpoints")

    @property
    def complete(self) -> bool:
        """Whether the run has trained, answered the test split and said so."""
        return self.manifest.exists()

    @property
    def begun(self) -> bool:
        """Whether training began: its settings and data held, and must not change any more."""
        return self.environment_path.exists()

    def environment(self) -> dict[str, Any]:
        """``env.json``; empty before the training began. Errors: it is not as `Stood` says."""
        if not self.begun:
            return {}
        found = read_json(self.environment_path)
        checked(Stood, found, self.environment_path)
        return found

    def seal(self) -> None:
        """Hash all files of the run: from now on it is complete. Checkpoints are not needed."""
        files = {
            path.relative_to(self.path).as_posix(): durable.entry(path.read_bytes())
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
            and not path.name.startswith(".")
            and self.checkpoints.folder not in path.parents
        }
        durable.write_json(self.manifest, files)
        self.tidy()

    def tidy(self) -> None:
        """Remove what a complete run needs no more: checkpoints, four times its size each."""
        durable.remove_folder(self.checkpoints.folder)
        durable.remove_leftovers(self.path)
        (self.path / LOCK).unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """A file of a complete run, compared with its hash. Errors: missing or changed."""
        name = path.relative_to(self.path).as_posix()
        try:
            data = path.read_bytes()
            written = read_json(self.manifest)[name]
        except (OSError, KeyError) as error:
            raise RegardError(f"{path} cannot be read: {error!r}") from None
        if durable.entry(data) != written:
            raise RegardError(f"{path} has changed since the run was completed; train it anew")
        return data

    def read_weights(self) -> Tensors:
        """The final weights, hash compared. Errors: they are damaged."""
        return parse_tensors(self.read(self.weights), self.weights)

    def read_tokenizer(self, kind: TokenizerKind) -> Tokenizer | EncoderTokenizer:
        """The tokenizer, of this kind, hash compared once the run is complete."""
        if self.complete:
            self.read(self.tokenizer_path)
        return kind.load(self.tokenizer_path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that writes here; the system frees the lock of one that is killed.

        Errors: another process is at it, by its number.
        """
        try:
            import fcntl
        except ImportError:  # Windows: not guarded there
            yield
            return
        with durable.told(self.path / LOCK, 0):
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(handle, 20, 0).decode(errors="replace").strip() or "another"
                raise RegardError(
                    f"process {owner} is at work in {self.path}; wait for it or give another --out"
                ) from None
            with durable.told(self.path / LOCK, 20):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)

    def holds_something_else(self) -> bool:
        """Whether files lie here that no run has put here."""
        if not self.path.exists() or (self.path / CONFIG).exists():
            return False
        if not self.path.is_dir():
            return True
        own = {LOCK, *(path.name for path in self.path.glob(f".{CONFIG}.*{durable.PARTIAL}"))}
        return any(path.name not in own for path in self.path.iterdir())
