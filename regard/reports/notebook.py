"""How things show themselves in a notebook: a page of their own inside a sandboxed frame.

What was typed is text in it; its script reaches nothing outside the frame.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.analysis.layer_attention import LayerAttention
from regard.atomic_io import write_bytes
from regard.attention import Attended, Mask
from regard.attention.sines import Sinusoidal
from regard.errors import RegardError
from regard.reports.findings import Table
from regard.reports.maps import heat_map, mask_map
from regard.reports.markup import Html, tag
from regard.reports.packed import pack_below
from regard.reports.page import page
from regard.reports.run import look as packed_look
from regard.reports.run import run_page, sandboxed, stored
from regard.runs import Run, load
from regard.studies.result import Comparison
from regard.tasks.classification.evaluation import Prediction
from regard.tasks.evaluation import Evaluation

PLACES = 24  # positions of a mask that are drawn
MASKS = 4  # of the rows of a batch, those of a mask that are drawn
ROWS = 12  # and of weights, those that can be chosen
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

    >>> print(html(Mask(lambda rows, columns: columns[..., None, :] <= rows[..., :, None]))[:7])
    <iframe
    """
    several = thing if isinstance(thing, list) else [thing]
    layers = [one for one in several if isinstance(one, LayerAttention)]
    if layers and len(layers) == len(several):
        return _layers(layers)
    for kind, draw in DRAWN.items():
        if isinstance(thing, kind):
            return draw(thing)
    raise RegardError(f"a {type(thing).__name__} has no picture; a run, Attended or Mask has")


def _framed(title: str, parts: Sequence[Html], height: int) -> str:
    return sandboxed(page(title, parts), height)


def _said(title: str, words: str) -> str:
    return _framed(title, [tag("p", f"{words}.")], 60)


def _attended(attended: Attended) -> str:
    """Every head, of the first rows of a batch; words where that is nothing, or too much."""
    size, shape = attended.shape.numel(), " × ".join(map(str, attended.shape))
    if not size:
        return _said("Attended", f"Weights of {shape}: there are none")
    if size > MOST:
        instead = "summary() tells the strongest of each query"
        return _said("Attended", f"Weights of {shape}: too many to compute for a look; {instead}")
    try:
        weights = attended.weights.detach().float().cpu()
    except RegardError as error:
        return _said("Attended", f"Weights of {shape}, not shown: {error}")
    batch = weights.reshape(-1, attended.heads or 1, *weights.shape[-2:])
    shown = max(1, min(len(batch), ROWS, ROOM // (2 * batch[0].numel())))
    looks = [_row(batch, i, ROOM // shown) for i in range(shown)]
    body = [tag("div", id="looks")]
    if shown < len(batch):
        body.insert(0, tag("p", f"{_few_rows(shown, len(batch))}."))
    return sandboxed(page("Attended", body, stored=stored("Row of the batch", looks)), 900)


def _few_rows(shown: int, rows: int) -> str:
    return f"{'Row 1' if shown == 1 else f'Rows 1 to {shown}'} of the {rows:,} of the batch"


def _row(batch: Tensor, number: int, room: int) -> dict[str, Any]:
    queries, keys = batch.shape[-2:]
    names = [str(i) for i in range(keys)]
    asking = None if queries == keys else [str(i) for i in range(queries)]
    packed = pack_below([LayerAttention("attention", names, batch[number].numpy(), asking)], room)
    which = f"row {number + 1} of {len(batch)}: " if len(batch) > 1 else ""
    return {"text": f"{which}{queries} queries, {keys} keys", **packed}


def _layers(layers: Sequence[LayerAttention]) -> str:
    """What layers did with a text."""
    text = " ".join(layers[0].tokens)
    looks = [{"text": text, **pack_below(layers, ROOM)}]
    return sandboxed(page(text, [tag("div", id="looks")], stored=stored("Text", looks)), 900)


def _mask(mask: Mask) -> str:
    try:
        allowed = _allowed(mask)
    except RegardError as error:
        return _said("Mask", f"Not drawn: {error}")
    rows, size, _ = allowed.shape
    which = "the first" if size == PLACES else "all"
    says = f"Who may look at whom, {which} {size} positions"
    if rows > MASKS:
        says += f". {_few_rows(MASKS, rows)}"
    tables = allowed[:MASKS].cpu().numpy()
    charts = [
        mask_map(f"Row {i} of {rows}", table, width=360)
        if rows > 1
        else mask_map(repr(mask), table)
        for i, table in enumerate(tables, 1)
    ]
    figures = tag("div", *(tag("figure", chart) for chart in charts), class_="maps")
    named = [tag("p", tag("code", repr(mask)))] if rows > 1 else []
    return _framed("Mask", [*named, tag("p", f"{says}."), figures], 640)


def _allowed(mask: Mask) -> Tensor:
    """What a mask says of the first positions, (rows of its batch, queries, keys).

    A mask that fits its own size alone is asked at that. Errors: it fits no square of that size or
    less; it is of a batch without rows.
    """
    refusals = []
    for size in range(PLACES, 0, -1):
        places = torch.arange(size)
        try:
            allowed = mask.allows(places, places)
        except RegardError as error:
            refusals.append(error)
            continue
        if not allowed.numel():
            raise RegardError("a mask of a batch without rows")
        return allowed.expand(*allowed.shape[:-2], size, size).reshape(-1, size, size)
    raise refusals[0]


def _positions(positions: Sinusoidal) -> str:
    table = positions(torch.zeros(1, WAVES, positions.width)).detach()[0].numpy()
    title = f"Sine positions of width {positions.width}"
    chart = heat_map(title, table, x_label="column", y_label="position", diverging=True)
    return _framed("Positions", [tag("figure", tag("div", chart, class_="scroll"))], 560)


def _run(run: Run) -> str:
    if not run.complete:
        return _said("Run", f"{run.config.model} on {run.config.task}: not complete")
    return sandboxed(run_page(run, [packed_look(run, text, ROOM) for text in _few(run)]), 900)


def _few(run: Run) -> list[str]:
    from regard.reports.run import examples, needs_trees

    return [] if needs_trees(run) else examples(run)[:2]


def _comparison(comparison: Comparison) -> str:
    path = comparison.folder / "report.html"
    if path.is_file():
        return sandboxed(path.read_text(encoding="utf-8"), 900)
    unit = comparison.unit
    columns = ("arm", unit.heading(comparison.metric), "low", "high")
    rows = [
        [row.arm.name, *(unit.write(value) for value in (row.mean, row.low, row.high))]
        for row in comparison.arms
    ]
    table = Table(f"Comparison on {comparison.task}", columns, rows)
    return _framed(comparison.task, [table.html()], 120 + 32 * len(rows))


def _prediction(prediction: Prediction) -> str:
    rows = [[label, f"{share:.1%}"] for label, share in prediction.top()]
    says = tag("p", prediction.told(), class_="answer")
    table = Table("Every label", ("label", "probability"), rows).html()
    return _framed("Prediction", [says, table], 160 + 32 * len(rows))


def _judged(judged: Evaluation) -> str:
    told = Table("How good it is", ("metric", "value"), judged.words())
    titles = ("Each label", "What it said, and the truth")
    more = [
        Table(title, heads, rows)
        for title, (heads, *rows) in zip(titles, judged.tables(), strict=False)
    ]
    parts = [tag("p", judged.line(), class_="answer"), *(table.html() for table in (told, *more))]
    return _framed("Evaluation", parts, 900)


#: What shows itself, and how.
DRAWN: dict[type, Callable[[Any], str]] = {
    Attended: _attended,
    Mask: _mask,
    Sinusoidal: _positions,
    Run: _run,
    Comparison: _comparison,
    Prediction: _prediction,
    Evaluation: _judged,
}
