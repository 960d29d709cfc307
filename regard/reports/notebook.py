"""How things show themselves in a notebook: a page of their own inside a sandboxed frame.

What was typed is text in it; its script reaches nothing outside the frame.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention import Attended, Mask
from regard.attention.sines import Sinusoidal
from regard.durable import write_bytes
from regard.errors import RegardError
from regard.reports.maps import heat_map
from regard.reports.markup import Html, tag
from regard.reports.packed import pack_below
from regard.reports.page import page
from regard.reports.run import look as packed_look
from regard.reports.run import run_page, sandboxed, stored
from regard.runs import Looked, Run, load
from regard.studies.result import Comparison

PLACES = 24  # positions of a mask that are drawn
WAVES = 96  # positions of sines that are drawn
ROOM = 2_000_000  # bytes of weights in one cell of a notebook
MOST = 20_000_000  # weights of a batch that are computed to show its first row


class Seen:
    """What a run did with a text: in a notebook the explorer of its heads, in words elsewhere."""

    def __init__(self, name: str, look: dict[str, Any]) -> None:
        self.name, self.look = name, look

    def __repr__(self) -> str:
        heads = sum(layer["heads"] for layer in self.look["layers"])
        return f"<Seen {self.name}: {heads} heads on {self.look['text']!r:.60}>"

    def page(self) -> str:
        """The view as a whole HTML page."""
        return page(self.name, [tag("div", id="looks")], stored=stored("Text", [self.look]))

    def save(self, path: Path | str) -> Path:
        """Write the view as one HTML file that opens offline."""
        write_bytes(Path(path), self.page().encode(errors="replace"))
        return Path(path)

    def _repr_html_(self) -> str:
        return sandboxed(self.page(), 900)


def look(run: Run | Path | str, text: str) -> Seen:
    """What every head of a run looks at in a text, to see in a notebook or to `save`.

    >>> look("runs/none", "a text")
    Traceback (most recent call last):
    regard.errors.RegardError: ...
    """
    asked = run if isinstance(run, Run) else load(run)
    return Seen(asked.folder.path.name, packed_look(asked, text, ROOM))


def html(thing: object) -> str:
    """A thing of regard's as a notebook shows it. Errors: nothing that regard can show.

    >>> html(Mask(lambda rows, columns: columns[..., None, :] <= rows[..., :, None]))[:7]
    '<iframe'
    """
    if isinstance(thing, Attended):
        return _attended(thing)
    if isinstance(thing, Mask):
        return _mask(thing)
    if isinstance(thing, Sinusoidal):
        return _framed("Positions", _positions(thing))
    if isinstance(thing, Run):
        return _run(thing)
    if isinstance(thing, Comparison):
        return _comparison(thing)
    raise RegardError(f"a {type(thing).__name__} has no picture; a run, Attended or Mask has")


def _framed(title: str, chart: Html, height: int = 560) -> str:
    return sandboxed(page(title, [tag("figure", chart)]), height)


def _said(title: str, words: str) -> str:
    return sandboxed(page(title, [tag("p", f"{words}.")]), 120)


def _attended(attended: Attended) -> str:
    """All heads of the first batch row; words where there is nothing to show, or too much."""
    *batch, queries, _ = attended.output.shape
    size = math.prod(batch) * attended.pairs
    shape = " × ".join(map(str, (*batch, queries, attended.pairs // max(queries, 1))))
    if not size:
        return _said("Attended", f"Weights of {shape}: there are none")
    if size > MOST:
        instead = "summary() tells the strongest of each query"
        return _said("Attended", f"Weights of {shape}: too many to compute for a look; {instead}")
    try:
        seen = _row(attended)
    except RegardError as error:
        return _said("Attended", f"Weights of {shape}, not shown: {error}")
    body = [tag("div", id="looks")]
    return sandboxed(page("Attended", body, stored=stored("Row", [seen])), 900)


def _row(attended: Attended) -> dict[str, Any]:
    weights = attended.weights.detach().float().cpu()
    while weights.dim() > 3:
        weights = weights[0]
    table = weights.reshape(-1, *weights.shape[-2:]).numpy()
    queries, keys = table.shape[-2:]
    names = [str(i) for i in range(keys)]
    asking = None if queries == keys else [str(i) for i in range(queries)]
    packed = pack_below([Looked("attention", names, table, asking)], ROOM)
    return {"text": f"{queries} queries, {keys} keys", **packed}


def _mask(mask: Mask) -> str:
    try:
        allowed = _allowed(mask)
    except RegardError as error:
        return _said("Mask", f"Not drawn: {error}")
    size = len(allowed)
    which = "the first" if size == PLACES else "all"
    title = f"Who may look at whom, {which} {size} positions"
    table = allowed.float().cpu().numpy()
    return _framed(
        "Mask", heat_map(title, table, x_label="is looked at", y_label="looks", width=520)
    )


def _allowed(mask: Mask) -> Tensor:
    """What a mask says of the first positions; if it fits its own size alone, at that.

    Errors: it fits no square of that size or less; it is of a batch without rows.
    """
    refusals = []
    for size in range(PLACES, 0, -1):
        places = torch.arange(size)
        try:
            allowed = mask.allows(places, places)
        except RegardError as error:
            refusals.append(error)
            continue
        while allowed.dim() > 2:
            if not len(allowed):
                raise RegardError("a mask of a batch without rows")
            allowed = allowed[0]
        return allowed.expand(size, size)
    raise refusals[0]


def _positions(positions: Sinusoidal) -> Html:
    table = positions(torch.zeros(1, WAVES, positions.width)).detach()[0].numpy()
    title = f"Sine positions of width {positions.width}"
    return heat_map(title, table, x_label="column", y_label="position", diverging=True)


def _run(run: Run) -> str:
    if not run.complete:
        said = tag("p", f"{run.config.model} on {run.config.task}: not complete")
        return sandboxed(page("Run", [said]), 120)
    return sandboxed(run_page(run, [packed_look(run, text, ROOM) for text in _few(run)]), 900)


def _few(run: Run) -> list[str]:
    from regard.reports.run import examples

    return examples(run)[:2]


def _comparison(comparison: Comparison) -> str:
    path = comparison.folder / "report.html"
    if path.is_file():
        return sandboxed(path.read_text(encoding="utf-8"), 900)
    rows = [
        tag("tr", tag("td", row.arm.name), *(tag("td", f"{100 * value:.1f}") for value in
                                             (row.mean, row.low, row.high)))
        for row in comparison.arms
    ]  # fmt: skip
    heads = ("arm", comparison.metric, "low", "high")
    top = tag("tr", *(tag("th", head) for head in heads))
    table = tag("table", tag("thead", top), tag("tbody", *rows), class_="sortable")
    return sandboxed(
        page(comparison.task, [tag("div", table, class_="scroll")]), 60 + 32 * len(rows)
    )
