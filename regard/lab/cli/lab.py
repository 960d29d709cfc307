"""``regard lab``: list the labs or run one."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.lab.cli.console import Bar, Browse, Json, Left, bar, browse, emit_json, say
from regard.lab.cli.launching import Jobs, Launch, launcher_of, listing
from regard.lab.labs import LABS, LabRequest, Say, open_lab
from regard.lab.studies.budget import parse_seeds

if TYPE_CHECKING:
    from regard.lab.labs.lab import Lab


def _names(incomplete: str) -> list[str]:
    return [name for name in LABS if name.startswith(incomplete)]


def lab(
    name: Annotated[
        str,
        typer.Argument(help="Lab or FILE.py:NAME (default: list all).", autocompletion=_names),
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings of the lab and its arms. An unknown key lists the valid ones.",
        ),
    ] = None,
    *,
    options: Annotated[dict[str, Any], LabRequest],
    x: Annotated[str, typer.Option(help="Columns to predict from: a,b (kernel-regression).")] = "",
    y: Annotated[str, typer.Option(help="Column to predict (kernel-regression).")] = "",
    only: Annotated[
        str, typer.Option(help="Comparisons: a,b (replications, mechanisms).", metavar="NAMES")
    ] = "",
    lang: Annotated[
        str, typer.Option(help="Language of the report: en, zh.", envvar="REGARD_LANG")
    ] = "en",
    launch: Launch = "",
    jobs: Jobs = False,
    open_page: Browse = False,
    as_json: Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Forecast time and memory without training.")
    ] = False,
) -> None:
    """Answer a question by an experiment, in about a minute."""
    if not name:
        _list(as_json)
        return
    follow = Follow()

    def tell(text: str) -> None:
        follow.close()
        say(text, quiet=as_json or jobs)

    chosen = opened(name, lang, tell)
    flags = [f"{key}={value}" for key, value in (("x", x), ("y", y), ("only", only)) if value]
    launcher = launcher_of(launch, jobs, options["workers"]) if launch or jobs else None
    if options["seeds"] in ("0", 0):
        del options["seeds"]  # the lab's own
    else:
        options["least"], options["seeds"] = parse_seeds(options["seeds"])
    request = LabRequest(**options, overrides=[*flags, *(overrides or ())], launcher=launcher)
    try:
        with listing(jobs, "comparison"):
            result = chosen.dry_run(request, tell) if dry_run else chosen.run(request, tell, follow)
    finally:
        follow.close()
    if as_json:
        emit_json(result)
    if open_page and result.get("report"):
        browse(Path(result["report"]))


def opened(name: str, lang: str, tell: Say) -> "Lab":
    """Open a lab and print its question; one of the table's before torch is loaded."""
    if lang == "en" and name in [*LABS]:  # the table itself would ask whether to trust a file
        tell(LABS[name].question)
        return open_lab(name, lang)
    chosen = open_lab(name, lang)
    tell(chosen.question)
    return chosen


class Follow:
    """A progress bar that opens on the first progress and closes before other output."""

    def __init__(self) -> None:
        self.open = ExitStack()
        self.bar: Bar | None = None

    def __call__(self, done: float, total: float, says: str, left: Left | None = None) -> None:
        if self.bar is None:
            self.bar = self.open.enter_context(bar("runs"))
        self.bar(round(done, 2), total, says, left)

    def close(self) -> None:
        """Remove the bar."""
        self.open.close()
        self.bar = None


def _list(as_json: bool) -> None:
    if as_json:
        emit_json(
            {"labs": [{"name": name, "question": lab.question} for name, lab in LABS.items()]}
        )
        return
    wide = max(map(len, LABS))
    for name, lab in LABS.items():
        say(f"{name:<{wide}}  {lab.question}")
    say(f"\nRun one: regard lab {next(iter(LABS))}")
