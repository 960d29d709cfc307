"""``regard serve``: the explorer in the browser, and the JSON API behind it."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import say
from regard.errors import RegardError


def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|KEY=VALUE",
            help="Folders of runs, of comparisons, or above them; without any, runs. And limits, "
            "as queue=16 deadline=5; a key that does not exist lists those that do.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8042,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A further host name to answer to, as a browser writes it."),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Explore models in the browser: their answers and attention.

    Everything stays on this machine: it listens at 127.0.0.1, and the page asks nothing outside.

    regard serve runs/classification-transformer

    regard serve --port 8080 queue=16
    """
    words = runs or []
    pairs = [word for word in words if "=" in word and not Path(word).exists()]
    folders = [Path(word) for word in words if word not in pairs]
    from regard.settings import build, split
    from regard.web.limits import Limits

    limits = build(Limits, split(pairs, Limits)[0])
    missing = next((folder for folder in folders if not folder.is_dir()), None)
    if missing is not None:
        raise RegardError(f"{missing} is no folder; give the folder of a run, or one above it")
    from regard.web.server import address, bound, serve
    from regard.web.shelf import find

    shelf = find(folders, limits.keep)
    listening = bound(host, port)
    url = address(listening)

    def ready() -> None:
        several = f"{len(shelf.runs)} run{'s' if len(shelf.runs) != 1 else ''}"
        say(f"{several} to look at: {url}  (Ctrl-C ends)")
        if host not in ("127.0.0.1", "::1", "localhost"):
            say("anyone who reaches this address can ask these models", quiet=True)
        if browse:
            import webbrowser

            webbrowser.open(url)

    serve(shelf, limits, listening, allow or [], ready)
