"""The list of built versions: each has a folder of its own beside the others."""

import json
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>regard</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html"></head>
<body><a href="{newest}/index.html">regard {newest}</a></body></html>
"""


def versions_in(folder: Path) -> list[str]:
    """Return the names of the version folders in a folder, newest first."""
    names = []
    for path in folder.iterdir():
        try:
            names.append((Version(path.name), path.name))
        except InvalidVersion:
            continue
    return [name for _, name in sorted(names, reverse=True)]


def write(app: Any, exception: Exception | None) -> None:
    """Write ``versions.js`` and the page that leads to the newest (``build-finished``)."""
    folder = Path(app.outdir)
    if exception or app.builder.name != "html" or folder.name != app.config.release:
        return
    names = versions_in(folder.parent)
    (folder.parent / "versions.js").write_text(f"regardVersions = {json.dumps(names)};\n")
    (folder.parent / "index.html").write_text(PAGE.format(newest=names[0]))
