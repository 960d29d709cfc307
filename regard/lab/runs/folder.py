"""The folder of a run: one writer at a time, and hashes of all files once it is complete."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.reading import checked, parse_tensors, read_json
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.data.tokenizers import Tokenizer
from regard.lab.runs.config import CONFIG, LOCK
from regard.lab.runs.environment import Environment
from regard.training.checkpoints import Checkpoints, Tensors

TokenizerKind = type[Tokenizer] | type[EncoderTokenizer]


class Folder:
    """The files of a run.

    ``config.toml`` has the settings, ``env.json`` the environment, ``metrics.jsonl`` the progress.
    ``checkpoints/`` exists during training. A trained run has ``tokenizer.json``,
    ``model.safetensors`` (for a baseline ``model/``) and ``predictions.jsonl`` for the test split.
    ``MANIFEST.json``, the hashes of all files, is written last and marks the run as complete.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment_path = path / "env.json"
        self.metrics = path / "metrics.jsonl"
        self.tokenizer_path = path / "tokenizer.json"
        self.weights = path / "model.safetensors"
        self.baseline = path / "model"
        self.predictions = path / "predictions.jsonl"
        self.manifest = path / atomic_io.MANIFEST
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.created: list[Path] = []  # the folders that `create` created, the innermost first

    @property
    def complete(self) -> bool:
        """Return whether the run is trained and its test predictions are written."""
        return self.manifest.exists()

    @property
    def begun(self) -> bool:
        """Return whether training has begun; settings and data must not change any more."""
        return self.environment_path.exists()

    def environment(self) -> dict[str, Any]:
        """Return ``env.json``, empty before training. Raises: a field of another type."""
        if not self.begun:
            return {}
        values = read_json(self.environment_path)
        checked(Environment, values, self.environment_path)
        return values

    def create(self) -> None:
        """Create the folder and its parents. Raises: a system error."""
        above = [self.path, *self.path.parents]
        self.created = self.created or [folder for folder in above if not folder.exists()]
        atomic_io.make_folder(self.path)

    @contextmanager
    def discarded_if_not_begun(self) -> Iterator[None]:
        """If the start of a training fails within the context, remove the settings and the folders.

        Folders with other files stay.
        """
        try:
            yield
        except BaseException:
            if not self.begun:
                atomic_io.remove_leftovers(self.path)
                for name in (CONFIG, LOCK):
                    (self.path / name).unlink(missing_ok=True)
                with suppress(OSError):  # other files are in it
                    for folder in self.created or [self.path]:
                        folder.rmdir()
            raise

    def seal(self) -> None:
        """Hash all files of the run, which completes it, and delete the checkpoints."""
        files = {
            path.relative_to(self.path).as_posix(): atomic_io.entry(path.read_bytes())
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
            and not path.name.startswith(".")
            and self.checkpoints.folder not in path.parents
        }
        atomic_io.write_json(self.manifest, files)
        self.tidy()

    def tidy(self) -> None:
        """Delete the checkpoints of a completed run, each four times the size of its weights."""
        atomic_io.remove_folder(self.checkpoints.folder)
        atomic_io.remove_leftovers(self.path)
        (self.path / LOCK).unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """Read a file of a completed run and verify its hash. Raises: missing or changed."""
        name = path.relative_to(self.path).as_posix()
        try:
            data = path.read_bytes()
            written = read_json(self.manifest)[name]
        except (OSError, KeyError) as error:
            raise RegardError(f"cannot read {path}: {error!r}; train the run again") from None
        if atomic_io.entry(data) != written:
            raise RegardError(f"{path} has changed since the run was completed; train it again")
        return data

    def sha256(self, path: Path) -> str:
        """Return the hash of a file of a completed run, from its manifest."""
        return str(read_json(self.manifest)[path.relative_to(self.path).as_posix()]["sha256"])

    def read_weights(self) -> Tensors:
        """Read the final weights and verify their hash. Raises: they are damaged."""
        return parse_tensors(self.read(self.weights), self.weights)

    def read_tokenizer(self, kind: TokenizerKind) -> Tokenizer | EncoderTokenizer:
        """Read the tokenizer as this class; verify its hash if the run is complete."""
        if self.complete:
            self.read(self.tokenizer_path)
        return kind.load(self.tokenizer_path)

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder for writing; the system releases the lock of a killed process.

        Raises: another process holds the lock, with its process id.
        """
        return atomic_io.locked(self.path / LOCK, wait=False)

    def holds_something_else(self) -> bool:
        """Return whether the folder contains files that do not belong to a run."""
        if not self.path.exists() or (self.path / CONFIG).exists():
            return False
        if not self.path.is_dir():
            return True
        own = {LOCK, *(path.name for path in self.path.glob(f".{CONFIG}.*{atomic_io.PARTIAL}"))}
        return any(path.name not in own for path in self.path.iterdir())
