"""The HTML representation of objects in notebooks, drawn by `regard.html`."""


def shown(thing: object) -> str:
    """Return the HTML of an object; a class enables it with ``_repr_html_ = shown``."""
    import regard

    return regard.html(thing)
