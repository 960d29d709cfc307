"""What a notebook asks of a thing: its picture, as `regard.html` draws it."""


def shown(thing: object) -> str:
    """The picture of a thing; a class whose things have one says ``_repr_html_ = shown``."""
    import regard

    return regard.html(thing)
