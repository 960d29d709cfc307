"""Default folders of runs and reports, which avoid occupied ones."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.core.errors import OccupiedError

LONGEST = 48  # characters of the settings in a folder's name
TIMED = "-[0-9]*-[0-9]*"  # the suffix that `time.strftime(TIME)` appends
TIME = "-%Y%m%d-%H%M%S"


def default_folder(
    base: Path,
    pairs: Sequence[str],
    check: Callable[[Path], object],
    now: Callable[[str], str] = time.strftime,
) -> Path:
    """Return the folder of a command without ``--out``: `base`, or another one next to it.

    `check` raises an `OccupiedError` for a folder with other contents. A folder that passes is
    reused, so that the same command resumes. Otherwise the folder is `base`; if that is occupied,
    the name gets the settings in `pairs`, and if that is occupied too, the time. Other errors of
    `check` are raised.

    >>> from tempfile import mkdtemp
    >>> base = Path(mkdtemp()) / "classification-rnn"
    >>> default_folder(base, ["seed=1"], lambda path: None).name
    'classification-rnn'
    >>> base.mkdir()
    >>> def occupied(path: Path) -> None:
    ...     if path.exists():
    ...         raise OccupiedError(f"{path} contains another run")
    >>> default_folder(base, ["seed=1"], occupied).name
    'classification-rnn-seed-1'
    """
    check(base.with_name(f".{base.name}"))  # wrong settings are the first error
    named = base.with_name("-".join(filter(None, (base.name, words(pairs)))))
    timed = sorted(base.parent.glob(f"{named.name}{TIMED}"), reverse=True)
    for path in dict.fromkeys([base, named, *timed]):
        if path.exists() and _fits(path, check):
            return path
    return next(
        (path for path in (base, named) if not path.exists()),
        named.with_name(f"{named.name}{now(TIME)}"),
    )


def words(pairs: Sequence[str]) -> str:
    """Format settings as a part of a folder name.

    >>> words(["seed=1", "data=my files/reviews.csv.gz"])
    'seed-1-data-reviews.csv.gz'
    """
    parts = (f"{key}-{Path(value).name}" for key, _, value in (p.partition("=") for p in pairs))
    return re.sub(r"[^\w.]+", "-", "-".join(parts))[:LONGEST].strip("-.")


def _fits(path: Path, check: Callable[[Path], object]) -> bool:
    try:
        check(path)
    except OccupiedError:
        return False
    return True
