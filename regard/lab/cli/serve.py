"""``regard serve``: the explorer in the browser and its JSON API."""

from pathlib import Path
from typing import Annotated

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import Browse, browse, say
from regard.lab.cli.options import Int8, Onnx


def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|KEY=VALUE",
            help="Folders that contain runs or comparisons (default: runs), and limits such as "
            "queue=16 deadline=5. An unknown key lists the valid ones.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any free port.")] = 8042,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name to accept, as written in the browser."),
    ] = None,
    onnx: Onnx = False,
    int8: Int8 = False,
    open_page: Browse = False,
) -> None:
    """Explore answers and attention of models in the browser.

    Data stays on this machine: the server listens on 127.0.0.1 and the page loads nothing external.

    With --onnx or --int8, attention and attributions of a run still come from its network in torch.

    regard serve runs/classification-transformer

    regard serve --port 8080 queue=16
    """
    words = runs or []
    pairs = [word for word in words if "=" in word and not Path(word).exists()]
    folders = [Path(word) for word in words if word not in pairs]
    from regard.core.settings import build, split
    from regard.lab.web.limits import Limits

    limits = build(Limits, split(pairs, Limits)[0])
    missing = next((folder for folder in folders if not folder.is_dir()), None)
    if missing is not None:
        raise RegardError(f"{missing} is not a folder; give the folder of a run or of several runs")
    from regard.lab.web.registry import find
    from regard.lab.web.server import address, bound, serve

    registry = find(folders, limits.keep)
    if onnx or int8:
        registry.prepare_onnx(int8=int8)
    listening = bound(host, port)
    url = address(listening)

    def ready() -> None:
        runs = f"{len(registry.runs)} run{'s' if len(registry.runs) != 1 else ''}"
        say(f"serving {runs}: {url}  (Ctrl-C to stop)")
        if not registry.runs:
            say("the lessons need no run; for your own, train one: regard train classification")
        if host not in ("127.0.0.1", "::1", "localhost"):
            say("anyone who can reach this address can query these models", quiet=True)
        if open_page:
            browse(url)

    serve(registry, limits, listening, allow or [], ready)
