"""The commands as functions of Python: `regard.train` and `regard.compare`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import compare as command
from regard.cli.console import bar, err, say
from regard.cli.train import as_pairs, follow, in_words
from regard.errors import RegardError, look_up

if TYPE_CHECKING:
    from regard.runs import Run
    from regard.studies.arms import Arm
    from regard.studies.result import Comparison

Place = str | os.PathLike[str]


def train(
    task: str,
    *,
    model: str = "",
    data: Place = "",
    budget: str = "",
    init: Place = "",
    out: Place | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> "Run":
    """Train a model on a task as ``regard train`` does, and return its complete run.

    ``settings`` are those that ``regard train TASK --settings`` lists; ``budget`` is "10m",
    "500 steps", "3 epochs" or "2M tokens"; ``init`` is a run to begin from. Without ``out`` the
    folder is ``runs/TASK-MODEL``, and is said. The same call goes on after a stop, and returns a
    complete run as it is; other settings need another ``out``. ``progress`` shows a bar; by default
    where there is a terminal.

    Errors, of names and settings before torch is loaded: no such task, model or setting; a folder
    that holds another run; data that cannot be read.

    >>> train("sentiment", model="trasformer")
    Traceback (most recent call last):
    regard.errors.RegardError: no model is called 'trasformer'; did you mean transformer? ...
    """
    from regard import runs
    from regard.tasks import TASKS

    overrides = [*pairs({"data": data, "init": init}), *pairs(settings), *as_pairs(budget)]
    before = Path(init) if init else None
    model = model or runs.model_after(before, task) or look_up(TASKS, task, "task").model
    config = runs.Config.make(task, model, overrides)
    place = Path(out or Path("runs") / f"{task}-{model}")
    run = runs.go_on(place, config)
    if out is None:
        say(f"run: {place}{' (complete already)' if run.complete else ''}", quiet=True)
    with shown(progress):
        follow(run, f"{model} on {task}")
    return run


def compare(
    task: str,
    arms: "str | Sequence[str | Arm]",
    *,
    data: Place = "",
    seeds: int = 3,
    budget: str = "",
    reference: str = "",
    ladder: bool = False,
    tune: int | None = None,
    out: Place | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> "Comparison":
    """Train every arm with every seed as ``regard compare`` does, and return what came of it.

    ``arms`` are "mean,transformer:heads=2" or a list of such; ``settings`` go to every arm whose
    model has them. Without ``out`` the folder is ``runs/compare-TASK-DATA``, and is said; it holds
    the runs, ``comparison.json`` and ``report.html``. The same call goes on where it was. A script
    calls it below ``if __name__ == "__main__":``, since every worker imports the script.

    Errors: names and settings that do not exist; a folder with other runs; no arm that succeeds.

    >>> compare("sentiment", "mean,lstm")
    Traceback (most recent call last):
    regard.errors.RegardError: no model is called 'lstm'; did you mean rnn? ...
    """
    from regard.studies.compare import compare as run

    place = Path(out or command.usual_folder(task, os.fspath(data), tunes=tune is not None))
    if out is None:
        say(f"runs: {place}", quiet=True)
    with shown(progress), bar("runs") as show:
        found = run(
            task,
            arms,
            seeds=seeds,
            budget=budget or None,
            reference=reference or None,
            out=place,
            overrides=[*pairs({"data": data}), *pairs(settings)],
            search=command.search_of(tune, "random", 0, ()),
            workers=workers,
            ladder=ladder,
            on_event=command.Watch(show),
        )
    return command.with_report(found)


def pairs(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as the ``key=value`` of a command; nothing of what is empty.

    Errors: a value that is neither a word nor a number, nor a list of these.

    >>> pairs({"heads": 2, "tie": True, "widths": [3, 4], "data": ""})
    ['heads=2', 'tie=1', 'widths=3,4']
    """
    return [f"{key}={_word(key, value)}" for key, value in settings.items() if value != ""]


def _word(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_word(key, one) for one in value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a number of numpy's
        value = value.item()
    if not isinstance(value, str | int | float):
        raise RegardError(
            f"{key} is {type(value).__name__} {value!r:.60}: a setting of a run is a word or a "
            "number; a class of yours is named FILE.py:Name, and data are a file"
        )
    return in_words(value)


@contextmanager
def shown(progress: bool | None) -> Iterator[None]:
    """Inside, progress is shown or not; None: where there is a terminal."""
    before = err.quiet
    err.quiet = before or not (err.is_terminal if progress is None else progress)
    try:
        yield
    finally:
        err.quiet = before
