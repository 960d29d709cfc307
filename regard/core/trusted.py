"""Trust in Python files that a run's settings name.

A run folder may come from a stranger, and its ``config.toml`` may name ``FILE.py:Name`` as a
score, a data set or another part. Such a file runs only if the user named it in this process (as a
setting, by ``--trust FILE.py`` or by `trust`), or trained with it on this machine before. Trust is
bound to a file's path and content: an edited or copied file must be trusted again.

A model ``command:TEXT`` runs only if its text was given in this process or the process that
launched it. Opening such a run executes nothing.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from regard.core.atomic_io import configuration
from regard.core.errors import RegardError
from regard.core.names import COMMAND, files_of

VARIABLE = "REGARD_TRUSTED"  # fingerprints; child processes inherit them


def trust(file: Path | str) -> None:
    """Let runs that name this Python file be opened in this process.

    Opening such a run executes the file. Raises: an unreadable file.

    >>> trust("nowhere.py")
    Traceback (most recent call last):
    regard.core.errors.RegardError: nowhere.py cannot be read: No such file or directory
    """
    _add(fingerprint(Path(file)))


def trust_named(values: Iterable[object]) -> None:
    """Trust the Python files that a user's own settings name; missing files fail later."""
    for path in files_of(values).values():
        with suppress(RegardError):
            trust(path)


def trust_command(model: str) -> None:
    """Let this process and its workers run a model that is a command; other models are ignored."""
    if model.startswith(COMMAND):
        _add(hashlib.sha256(model.encode()).hexdigest())


def must_be_given(command: str, where: Path) -> None:
    """Raise an error for a command, read from ``where``, that was not given in this process."""
    if hashlib.sha256(command.encode()).hexdigest() not in _of_process():
        raise RegardError(
            f"{where} names the program {command!r}, which you have not given. Training would "
            "execute it. Read it; if you trust it, give it by --arms, --model or regard.Arm"
        )


def remember(settings: Mapping[str, object]) -> None:
    """Trust the files that settings name, in this and later processes of this user.

    If the configuration folder cannot be written, later processes need ``--trust``.
    """
    for path in files_of(settings.values()).values():
        with suppress(OSError, RuntimeError, RegardError):
            folder().mkdir(parents=True, exist_ok=True)
            (folder() / fingerprint(path)).write_text(f"{path.resolve()}\n", encoding="utf-8")


def must_be_trusted(settings: Mapping[str, object], where: Path) -> None:
    """Raise an error for settings read from ``where`` that name an untrusted Python file.

    Missing files are ignored here; loading them raises an error.
    """
    for path in files_of(settings.values()).values():
        if not path.exists():
            continue
        known = fingerprint(path)
        if known not in _of_process() and not _remembered(known):
            raise RegardError(
                f"{where} names {path}, a Python file that you have not trained with on this "
                "machine in this place and with this content. Using it would execute the file. "
                f"Read the file; if you trust it, add --trust {path} (in Python: "
                f"regard.trust({str(path)!r}))"
            )


def fingerprint(path: Path) -> str:
    """Return the sha256 of a file's absolute path and content. Raises: an unreadable file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RegardError(f"{path} cannot be read: {error.strerror}") from None
    return hashlib.sha256(path.resolve().as_posix().encode() + b"\0" + content).hexdigest()


def folder() -> Path:
    """Return the folder that records trusted files."""
    return configuration() / "trusted"


def _remembered(known: str) -> bool:
    with suppress(OSError, RuntimeError):  # a user without a home folder
        return (folder() / known).is_file()
    return False


def _of_process() -> set[str]:
    return set(os.environ.get(VARIABLE, "").split())


def _add(known: str) -> None:
    os.environ[VARIABLE] = " ".join(sorted({*_of_process(), known}))
