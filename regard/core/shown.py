"""Objects in notebooks: their HTML, drawn by `regard.html`, and their charts, by `regard.plot`."""

from typing import Any


def shown(thing: object) -> str:
    """Return the HTML of an object; a class enables it with ``_repr_html_ = shown``."""
    import regard

    return regard.html(thing)


def plotted(thing: Any, ax: Any = None, kind: str = "") -> Any:
    """Draw an object on matplotlib's Axes and return them; see `regard.plot` for the arguments.

    A class enables it with ``plot = plotted``.
    """
    import regard

    return regard.plot(thing, ax, kind)
