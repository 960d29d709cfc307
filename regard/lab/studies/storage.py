"""Optuna's storage of the searches of a comparison: a journal of JSON lines in its folder.

Several processes and machines may append to it. Nothing in it is executed or unpickled.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.atomic_io import locked
from regard.core.errors import RegardError

if TYPE_CHECKING:
    from optuna import Study as Trials
    from optuna.storages import JournalStorage

JOURNAL = "search.journal"


class Lock:
    """A lock for Optuna's journal, which the system frees when its process dies.

    With Optuna's own locks, 5 of 6 searches that were killed while six processes wrote results
    waited 30 seconds when they were resumed.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.held = file, ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock."""
        self.held.enter_context(locked(self.file, wait=True))
        return True

    def release(self) -> None:
        """Free the lock."""
        self.held.close()


def open_search(out: Path, arm: str) -> "Trials | None":
    """Return Optuna's study of the arm whose folder is `arm`; None if no search has begun.

    Raises: a damaged journal.
    """
    if not (out / JOURNAL).exists():
        return None
    import optuna

    storage = _storage(out / JOURNAL)
    if arm not in [one.study_name for one in storage.get_all_studies()]:
        return None
    return optuna.load_study(study_name=arm, storage=storage)


def begin_search(out: Path, arm: str) -> "Trials":
    """Return Optuna's study of the arm whose folder is `arm`, a new one for a new search."""
    import optuna

    out.mkdir(parents=True, exist_ok=True)
    storage = _storage(out / JOURNAL, mend=True)
    return optuna.create_study(
        storage=storage, study_name=arm, direction="maximize", load_if_exists=True
    )


def _storage(path: Path, *, mend: bool = False) -> "JournalStorage":
    """Open a journal; with `mend`, without a last line that a crash of the machine cut off.

    Optuna cannot read what follows such a line.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = path.with_name(f"{path.name}.lock")
    if mend and path.exists():
        with locked(file, wait=True), path.open("r+b") as journal:
            journal.truncate(journal.read().rfind(b"\n") + 1)
    lock: Any = Lock(file)  # Optuna does not export the class of locks
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))
    except Exception as error:  # whatever Optuna raises for lines that are not its own
        raise RegardError(
            f"{path} is not the journal of a search ({type(error).__name__}: {error}); give "
            "another --out"
        ) from None
