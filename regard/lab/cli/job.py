"""``regard job``: run one job of a comparison, as ``regard compare --jobs`` prints it."""

from pathlib import Path
from typing import Annotated

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import bar, say


def job(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Task to learn.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="All settings of the run.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Model to train.")] = "",
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run, OUT/ARM/seed-N.")
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Only validate: a trial of a search (--tune).")
    ] = False,
) -> None:
    """Run one job of a comparison, as compare --jobs prints it.

    It trains one run with one thread and stores its score. A finished job returns at once, an
    interrupted one resumes from its last checkpoint, and only one process may write to a folder.
    """
    from regard.core.trusted import trust_command, trust_named
    from regard.lab.studies.progress import ProgressWriter, progress_path
    from regard.lab.studies.spec import JobSpec

    if not model or folder is None:
        raise RegardError("a job needs --model and --out; regard compare … --jobs prints them")
    pairs = tuple(settings or ())
    trust_named([task, model, *(pair.partition("=")[2] for pair in pairs)])
    trust_command(model)
    spec = JobSpec(str(folder), task, model, pairs, trial)
    if spec.finished():
        say(f"{folder} is already complete")
        return
    path = progress_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write = ProgressWriter(path)
    with bar("job") as show:

        def report(done: float, message: str, warning: str = "", most: float = 1.0) -> None:
            write(done, message, warning, most)
            show(round(done, 3), 1, message)

        says = spec.work(report)
    path.unlink(missing_ok=True)
    say(f"{folder}: {says}")
