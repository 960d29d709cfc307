"""Where the runs of a comparison are trained: the options ``--launch`` and ``--jobs``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import say

if TYPE_CHECKING:
    from regard.lab.studies.launch import Launcher

Launch = Annotated[
    str,
    typer.Option(
        metavar="LAUNCHER",
        help="Where runs are trained: local processes; dask:tcp://HOST:8786, the workers of a Dask "
        "cluster (also on Slurm, PBS or Kubernetes), or dask for local ones; none trains nothing "
        "and reports the finished runs.",
        show_default="local",
    ),
]
Jobs = Annotated[
    bool,
    typer.Option(
        "--jobs",
        help="Print the runs that are not finished as one command per line, for any scheduler; "
        "--launch none reports the finished ones.",
    ),
]


def launcher_of(launch: str, jobs: bool, workers: int | None) -> "Launcher":
    """Return the launcher of the options.

    Raises: both options; an unknown launcher or option; a missing package.
    """
    from regard.lab.studies.launchers import Listing, parse_launcher

    if jobs and launch:
        raise RegardError("--jobs and --launch exclude each other; give only one of them")
    if jobs:
        return Listing()
    return parse_launcher(launch or "local", workers)


@contextmanager
def listing(jobs: bool, what: str) -> Iterator[None]:
    """Print the jobs that can run now, with --jobs, and how to go on; then exit."""
    from regard.lab.studies.launchers import Pending

    try:
        yield
    except Pending as pending:
        typer.echo("\n".join(pending.lines))
        say(
            f"{len(pending.lines)} jobs can run now, in this folder, in any order; "
            "the same command prints those that are missing later (the trials of a search come "
            f"before the runs), and with --launch none instead of --jobs it reports the finished "
            f"{what}",
            quiet=True,
        )
        raise typer.Exit from None
    if jobs:
        say("no job is missing", quiet=True)
