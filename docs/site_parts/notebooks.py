"""Output of notebook cells: the parts of a stream are joined as they came.

A command of the shell writes in parts of 100 characters. myst-nb's own merging of streams ends
each part with a new line, in the middle of words.
"""

from collections.abc import Iterable
from typing import Any


def joined(outputs: Iterable[Any]) -> list[Any]:
    """Return the outputs with all parts of a stream in the place of its first.

    >>> parts = [{"output_type": "stream", "name": "stdout", "text": t} for t in ("wo", "rd")]
    >>> joined(parts)
    [{'output_type': 'stream', 'name': 'stdout', 'text': 'word'}]
    """
    merged: list[Any] = []
    streams: dict[str, Any] = {}
    for output in outputs:
        if output["output_type"] != "stream":
            merged.append(output)
        elif output["name"] in streams:
            streams[output["name"]]["text"] += output["text"]
        else:
            streams[output["name"]] = output
            merged.append(output)
    return merged
