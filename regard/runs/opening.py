"""A run by its folder: a new one, one to go on with, one that is complete."""

import math
from collections.abc import Sequence
from pathlib import Path

from regard import durable
from regard.errors import RegardError
from regard.reading import read_json
from regard.runs.config import CONFIG, Config
from regard.runs.folder import Folder
from regard.runs.run import Run
from regard.training.ranks import ranks


def start(
    folder: Path | str,
    task: str = "classification",
    model: str = "transformer",
    overrides: Sequence[str] = (),
) -> Run:
    """A new run in a folder of its own. Errors: there is something already."""
    path = Path(folder)
    if (path / CONFIG).exists():
        raise RegardError(f"{path} holds a run already; open_or_start would go on with it")
    return open_or_start(path, task, model, overrides)


def open_or_start(
    folder: Path | str,
    task: str = "classification",
    model: str = "transformer",
    overrides: Sequence[str] = (),
) -> Run:
    """The run in a folder if its settings are these, or a new one in a new folder.

    `overrides` are ``key=value`` settings of task, model and training. Errors: a folder of
    something else; a run of other settings, each named.
    """
    return go_on(folder, Config.make(task, model, overrides))


def go_on(folder: Path | str, config: Config) -> Run:
    """Return the run of a config in its folder, new or begun. Errors: as `open_or_start`."""
    place = Folder(Path(folder))
    path = place.path
    if place.holds_something_else():
        raise RegardError(f"{path} holds something else than a run; give another --out")
    if (
        ranks().first and not place.begun
    ):  # or one that came to nothing, of a mistake in its settings or data
        with durable.told(path, 0):
            path.mkdir(parents=True, exist_ok=True)
        with place.locked():
            if not place.begun and not _same(config, path):
                durable.write_bytes(path / CONFIG, config.toml())
    ranks().wait()  # for the first process, which alone writes
    if differences := config.differences(Config.read(path)):
        raise RegardError(
            f"{path} holds another run: {', '.join(differences)}; "
            "give another --out, or the same settings to go on"
        )
    return Run(path, config)


def below(folder: Path | str) -> list[Path]:
    """The complete runs in a folder, three folders below at most; a comparison's best arms first.

    Nothing of a folder that is a run itself, or that cannot be read.
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
    """The folder of each arm of a comparison, and its rank; nothing where there is none."""
    try:
        found = read_json(home / "comparison.json")
        sign = 1 if found["metric"] == "log loss" else -1
        return {home / str(row["folder"]): sign * float(row["mean"]) for row in found["arms"]}
    except (RegardError, ValueError, KeyError, TypeError):
        return {}


def _same(config: Config, path: Path) -> bool:
    return (path / CONFIG).exists() and (path / CONFIG).read_bytes() == config.toml()


def load(folder: Path | str) -> Run:
    """The run in a folder, to judge it, ask it, or go on with it.

    Errors: no such folder, no run in it.
    """
    path = Path(folder)
    return Run(path, Config.read(path))
