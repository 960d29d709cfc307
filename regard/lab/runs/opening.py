"""Open or create a run by its folder."""

import math
from collections.abc import Sequence
from pathlib import Path

from regard.core import atomic_io
from regard.core.errors import OccupiedError, RegardError
from regard.core.reading import read_json
from regard.lab.runs.build import prepare
from regard.lab.runs.config import CONFIG, Config
from regard.lab.runs.folder import Folder
from regard.lab.runs.run import Run
from regard.training.ranks import ranks


def start(
    folder: Path | str,
    task: str = "classification",
    model: str = "transformer",
    overrides: Sequence[str] = (),
) -> Run:
    """Create a run in a new folder. Raises: the folder has a run already."""
    path = Path(folder)
    if (path / CONFIG).exists():
        raise RegardError(f"{path} already contains a run; use open_or_start to resume it")
    return open_or_start(path, task, model, overrides)


def open_or_start(
    folder: Path | str,
    task: str = "classification",
    model: str = "transformer",
    overrides: Sequence[str] = (),
) -> Run:
    """Return the run in a folder if its settings match, or create one in a new folder.

    `overrides` are ``key=value`` settings of task, model and training. Raises: a folder with other
    files; a run with other settings, each named.
    """
    return go_on(folder, Config.make(task, model, overrides))


def go_on(folder: Path | str, config: Config) -> Run:
    """Return the new or existing run of a config in its folder. Raises: as `open_or_start`."""
    run = Run(Path(folder), config)
    place, path = run.folder, run.folder.path
    if place.holds_something_else():
        must_match(path, config)
    if ranks().first and not place.begun:  # new, or failed before training
        place.create()
        with place.locked():
            if not place.begun and not _same(config, path):
                atomic_io.write_bytes(path / CONFIG, config.toml())
    ranks().wait()  # for the first process, the only one that writes
    must_match(path, config)
    return run


def must_match(path: Path, config: Config) -> None:
    """Raise an `OccupiedError` if a folder holds a run of another config, or other files.

    If the data of `config` cannot be read, raise that error instead.
    """
    if Folder(path).holds_something_else():
        problem = f"{path} contains files that are not a run; give another --out"
    elif not (path / CONFIG).exists():
        return
    else:
        try:
            differences = config.differences(Config.read(path))
        except RegardError as error:
            raise OccupiedError(str(error)) from None
        if not differences:
            return
        problem = (
            f"{path} contains another run: {', '.join(differences)}; give another --out, "
            "or the same settings to resume"
        )
    prepare(config).facts()
    raise OccupiedError(problem)


def below(folder: Path | str) -> list[Path]:
    """Return the completed runs at most three folders deep, the best arms of a comparison first.

    Empty for a folder that is a run itself or cannot be read.
    """
    home = Path(folder)
    if (home / CONFIG).exists():
        return []
    places = (f"{stars}/{CONFIG}" for stars in ("*", "*/*", "*/*/*"))
    runs = [path.parent for place in places for path in sorted(home.glob(place))]
    ranks_of = _ranks(home)
    complete = [run for run in runs if Folder(run).complete]
    return sorted(complete, key=lambda run: ranks_of.get(run.parent, math.inf))


def _ranks(home: Path) -> dict[Path, float]:
    """Return the rank of each arm's folder in a comparison; empty if there is none."""
    try:
        comparison = read_json(home / "comparison.json")
        sign = 1 if comparison["metric"] == "log loss" else -1
        return {home / str(row["folder"]): sign * float(row["mean"]) for row in comparison["arms"]}
    except (RegardError, ValueError, KeyError, TypeError):
        return {}


def _same(config: Config, path: Path) -> bool:
    return (path / CONFIG).exists() and (path / CONFIG).read_bytes() == config.toml()


def load(folder: Path | str) -> Run:
    """Load the run in a folder.

    Args:
        folder: The folder of the run, which contains ``config.toml``.

    Returns:
        The run. Its data, tokenizer and weights are read when they are first needed.

    Raises:
        RegardError: The folder does not exist or contains no run.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = Path(mkdtemp()) / "run"
        >>> _ = start(folder, "classification", "nb-svm", ["data=reviews"])
        >>> load(folder)
        <Run ...run: nb-svm on classification (reviews), not complete>
    """
    path = Path(folder)
    if path.is_file():
        raise RegardError(f"{path} is a file; give the folder of a run, which has a {CONFIG}")
    return Run(path, Config.read(path))
