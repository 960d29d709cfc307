"""Notebook representations: each object is an HTML page inside a sandboxed frame.

User input is escaped; the page's script cannot reach anything outside the frame.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from regard.analysis.layer_attention import LayerAttention, at_most, looked
from regard.analysis.record import record
from regard.attention import Attended, Mask
from regard.attention.positions.sines import Sinusoidal
from regard.core.atomic_io import write_bytes
from regard.core.errors import RegardError
from regard.lab.reports.findings import Figure, Table
from regard.lab.reports.maps import heat_map, mask_map
from regard.lab.reports.markup import Html, tag
from regard.lab.reports.packed import pack_below, with_rollout
from regard.lab.reports.page import page
from regard.lab.reports.run import examples, run_page, sandboxed, stored
from regard.lab.reports.run import look as packed_look
from regard.lab.runs import Run, load
from regard.lab.studies.result import Comparison
from regard.lab.tasks.classification.evaluation import Prediction
from regard.lab.tasks.evaluation import Evaluation
from regard.nn.layers.device import device_of, evaluation_mode

PLACES = 24  # positions of a mask that are drawn
MASKS = 4  # batch rows of a mask that are drawn
ROWS = 12  # batch rows of weights that can be selected
CROSS = re.compile("cross|enc_?dec|encoder_attn|memory|multihead_attn", re.IGNORECASE)
WAVES = 96  # sinusoidal positions that are drawn
ROOM = 2_000_000  # bytes of weights in one notebook cell
MOST = 20_000_000  # maximum weights of a batch that are computed for a view


class AttentionView:
    """The attention of a run on a text: an explorer of its heads in a notebook, else a line."""

    def __init__(self, name: str, look: dict[str, Any]) -> None:
        self.name, self.look = name, look

    def __repr__(self) -> str:
        heads = sum(layer["heads"] for layer in self.look["layers"])
        return f"<AttentionView {self.name}: {heads} heads on {self.look['text']!r:.60}>"

    def page(self) -> str:
        """Return the view as an HTML page."""
        return page(self.name, [tag("div", id="looks")], stored=stored("Text", [self.look]))

    def save(self, path: Path | str) -> Path:
        """Write the view as one HTML file that works offline, and return its path."""
        write_bytes(Path(path), self.page().encode(errors="replace"))
        return Path(path)

    def _repr_html_(self) -> str:
        return sandboxed(self.page(), 900)


def look(
    run: Run | Path | str | nn.Module,
    text: Any,
    *,
    tokenizer: Any = None,
    tokens: Sequence[str] = (),
    asking: Sequence[str] = (),
) -> AttentionView:
    """Return the attention of every head of a run on a text, to show in a notebook or to `save`.

    ``run`` may be a PyTorch model of any package, which `regard.analysis.record.record` observes;
    ``text`` then is a tensor, tuple or dict of its forward's arguments, or a text for a model of
    Hugging Face and its ``tokenizer``. The view has the first row of the batch; ``tokens`` names
    its positions (default: 0, 1, …), ``asking`` those of a decoder.

    >>> layer, x = nn.MultiheadAttention(6, 2), torch.ones(3, 1, 6)
    >>> look(layer, (x, x, x), tokens=["not", "bad", "at all"])
    <AttentionView MultiheadAttention: 2 heads on 'not bad at all'>
    >>> look("runs/none", "a text")
    Traceback (most recent call last):
    regard.core.errors.RegardError: ...
    """
    if isinstance(run, nn.Module):
        return AttentionView(type(run).__name__, _observed(run, text, tokenizer, tokens, asking))
    loaded = run if isinstance(run, Run) else load(run)
    return AttentionView(loaded.folder.path.name, packed_look(loaded, text, ROOM))


def _observed(
    model: nn.Module, inputs: Any, tokenizer: Any, tokens: Sequence[str], asking: Sequence[str]
) -> dict[str, Any]:
    """Return the attention of a model of any package on a text, or on arguments of its forward."""
    if isinstance(inputs, str):
        if tokenizer is None:
            raise RegardError(
                "a text needs tokenizer=, that of the model; or give forward's tensors"
            )
        inputs = tokenizer(inputs, return_tensors="pt").to(device_of(model))
        name = tokenizer.convert_ids_to_tokens
        config: Any = getattr(model, "config", None)
        if getattr(config, "is_encoder_decoder", False):
            start = config.decoder_start_token_id
            inputs["decoder_input_ids"] = torch.full_like(inputs["input_ids"][:, :1], start)
            asking = asking or name([start])
        tokens = tokens or name(inputs["input_ids"][0].tolist())
    words = inputs if isinstance(inputs, Mapping) else {}
    values = () if words else inputs if isinstance(inputs, tuple | list) else (inputs,)
    with torch.no_grad(), evaluation_mode(model):
        if any(map(is_lazy, model.parameters())):
            model(*values, **words)  # makes its parameters
    with torch.no_grad(), evaluation_mode(model), record(model) as recording, at_most(MOST):
        model(*values, **words)
        layers = looked(recording, ())
    if not layers:
        raise RegardError(f"no attention was observed in {type(model).__name__}")
    sizes = {size for layer in layers for size in layer.weights.shape[1:]}
    if wrong := [names for names in (tokens, asking) if names and len(names) not in sizes]:
        raise RegardError(f"{len(wrong[0])} names for {', '.join(map(str, sorted(sizes)))} tokens")
    layers = [_named(layer, tokens, asking) for layer in layers]
    return {"text": " ".join(tokens or layers[0].tokens), **pack_below(with_rollout(layers), ROOM)}


def _named(layer: LayerAttention, tokens: Sequence[str], asking: Sequence[str]) -> LayerAttention:
    """Name keys and queries by what fits: a decoder's self-attention has the queries' names."""
    queries, keys = layer.weights.shape[1:]
    across = queries != keys or (asking and CROSS.search(layer.layer))
    sides = [tokens, asking] if across or "decoder" not in layer.layer else [asking, tokens]
    columns, rows = (
        next((list(x) for x in order if len(x) == size), [str(i) for i in range(size)])
        for order, size in ((sides, keys), (sides[::-1], queries))
    )
    return layer._replace(tokens=columns, asking=rows if across else None)


def html(thing: object) -> str:
    """Return the HTML that a notebook shows for an object. Raises: a type without a view.

    >>> print(html(Mask(lambda rows, columns: columns[..., None, :] <= rows[..., :, None]))[:7])
    <iframe
    """
    things = thing if isinstance(thing, list) else [thing]
    layers = [one for one in things if isinstance(one, LayerAttention)]
    if layers and len(layers) == len(things):
        return _layers(layers)
    for kind, draw in DRAWN.items():
        if isinstance(thing, kind):
            return draw(thing)
    types = ", ".join(kind.__name__ for kind in DRAWN)
    raise RegardError(f"{type(thing).__name__} has no HTML view; pass one of {types}")


def _framed(title: str, parts: Sequence[Html], height: int) -> str:
    return sandboxed(page(title, parts), height)


def _message(title: str, text: str) -> str:
    return _framed(title, [tag("p", f"{text}.")], 60)


def _attended(attended: Attended) -> str:
    """Show every head of the first rows of a batch, or a message if there are none or too many."""
    size, shape = attended.shape.numel(), " × ".join(map(str, attended.shape))
    if not size:
        return _message("Attended", f"Weights of shape {shape}: empty")
    if size > MOST:
        instead = "use summary() for the strongest of each query"
        return _message("Attended", f"Weights of shape {shape}: too many to show; {instead}")
    try:
        weights = attended.weights.detach().float().cpu()
    except RegardError as error:
        return _message("Attended", f"Weights of shape {shape} cannot be shown: {error}")
    batch = weights.reshape(-1, attended.heads or 1, *weights.shape[-2:])
    shown = max(1, min(len(batch), ROWS, ROOM // (2 * batch[0].numel())))
    looks = [_row(batch, i, ROOM // shown) for i in range(shown)]
    body = [tag("div", id="looks")]
    if shown < len(batch):
        body.insert(0, tag("p", f"{_few_rows(shown, len(batch))}."))
    return sandboxed(page("Attended", body, stored=stored("Row of the batch", looks)), 900)


def _few_rows(shown: int, rows: int) -> str:
    return f"{'Row 1' if shown == 1 else f'Rows 1 to {shown}'} of {rows:,} rows in the batch"


def _row(batch: Tensor, number: int, room: int) -> dict[str, Any]:
    queries, keys = batch.shape[-2:]
    names = [str(i) for i in range(keys)]
    rows = None if queries == keys else [str(i) for i in range(queries)]
    packed = pack_below([LayerAttention("attention", names, batch[number].numpy(), rows)], room)
    which = f"row {number + 1} of {len(batch)}: " if len(batch) > 1 else ""
    return {"text": f"{which}{queries} queries, {keys} keys", **packed}


def _layers(layers: Sequence[LayerAttention]) -> str:
    """Show the attention of layers on a text."""
    text = " ".join(layers[0].tokens)
    looks = [{"text": text, **pack_below(layers, ROOM)}]
    return sandboxed(page(text, [tag("div", id="looks")], stored=stored("Text", looks)), 900)


def _mask(mask: Mask) -> str:
    try:
        allowed = _allowed(mask)
    except RegardError as error:
        return _message("Mask", f"The mask cannot be drawn: {error}")
    rows, size, _ = allowed.shape
    which = "the first" if size == PLACES else "all"
    caption = f"Keys that each query may attend to, {which} {size} positions"
    if rows > MASKS:
        caption += f". {_few_rows(MASKS, rows)}"
    tables = allowed[:MASKS].cpu().numpy()
    charts = [
        mask_map(f"Row {i} of {rows}", table, width=360)
        if rows > 1
        else mask_map(repr(mask), table)
        for i, table in enumerate(tables, 1)
    ]
    figures = tag("div", *(tag("figure", chart) for chart in charts), class_="maps")
    named = [tag("p", tag("code", repr(mask)))] if rows > 1 else []
    return _framed("Mask", [*named, tag("p", f"{caption}."), figures], 640)


def _allowed(mask: Mask) -> Tensor:
    """Evaluate a mask at the first positions, (batch rows, queries, keys).

    A mask of fixed size is evaluated at that size. Raises: the mask fits no square of at most
    `PLACES` positions; its batch is empty.
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
            raise RegardError("the mask has an empty batch")
        return allowed.expand(*allowed.shape[:-2], size, size).reshape(-1, size, size)
    raise refusals[0]


def _positions(positions: Sinusoidal) -> str:
    table = positions(torch.zeros(1, WAVES, positions.width)).detach()[0].numpy()
    title = f"Sinusoidal positions of width {positions.width}"
    chart = heat_map(title, table, x_label="column", y_label="position", diverging=True)
    return _framed("Positions", [Figure(chart).html()], 560)


def _chart(chart: Html) -> str:
    """Show a chart of `reports.figures`."""
    return _framed("Chart", [Figure(chart).html()], 420)


def _run(run: Run) -> str:
    if not run.complete:
        return _message("Run", f"{run.config.model} on {run.config.task}: training is not complete")
    looks = [packed_look(run, text, ROOM) for text in examples(run)[:2]]
    return sandboxed(run_page(run, looks), 900)


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
    answer = tag("p", prediction.phrase(), class_="answer")
    table = Table("All labels", ("label", "probability"), rows).html()
    return _framed("Prediction", [answer, table], 160 + 32 * len(rows))


def _evaluation(evaluation: Evaluation) -> str:
    tables = [Table("Metrics", ("metric", "value"), evaluation.words())]
    titles = ("Scores by label", "Predicted and true labels")
    tables += [
        Table(title, heads, rows)
        for title, (heads, *rows) in zip(titles, evaluation.tables, strict=False)
    ]
    parts = [tag("p", evaluation.line(), class_="answer"), *(table.html() for table in tables)]
    return _framed("Evaluation", parts, 900)


#: The types with a view, and the functions that draw it.
DRAWN: dict[type, Callable[[Any], str]] = {
    Attended: _attended,
    Mask: _mask,
    Sinusoidal: _positions,
    Run: _run,
    Comparison: _comparison,
    Prediction: _prediction,
    Evaluation: _evaluation,
    Html: _chart,
}
