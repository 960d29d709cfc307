"""``regard show``: what a model looks at in one text, in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import Json, RunFolder, emit_json, opened, out, say
from regard.cli.predict import as_utf8
from regard.errors import RegardError

if TYPE_CHECKING:
    from numpy import floating
    from numpy.typing import NDArray

    from regard.analysis.layer_attention import LayerAttention
    from regard.reports.markup import Html
    from regard.runs import Run

TOP = 6
FAINT = 0.1  # of the largest weight: below it a word keeps the terminal's own colours
HUE = (255, 176, 0)  # amber, told apart from the ground by every kind of colour sight
BLUE = (80, 150, 255)  # of what adds to a score, where amber takes from it


def show(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text.")],
    layer: Annotated[
        int | None, typer.Option(min=1, help="Only this attention layer, counted from 1.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=1, help="Only this head, counted from 1; else their mean.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--out", help="Also draw it into this .html or .svg file.", metavar="FILE"),
    ] = None,
    json: Json = False,
) -> None:
    """Show which words a model looks at in a text.

    The brighter a word, the more weight it gets. A pool gives each word one weight. In
    self-attention each word looks at all others: the colour is then what a word receives on
    average, and the strongest pairs are listed. Weights of a layer add up to 1 for each word that
    looks; an even share is 1 / words.

    A model that counts words (tfidf, nb-svm) shows what each word adds to the score of the label
    that it says, or takes from it.

    A model that writes shows its alignment: a row for each word written, with the words of the
    text that it looked at; one that goes on with a text, what it looked at in all of it. --out
    draws every layer and head into one page (.html), or the mean of those chosen into one picture
    (.svg).

    regard show runs/classification-transformer 'not a bad film at all' --layer 3

    regard show runs/translation-transformer 'Ein Hund.' --out map.html
    """

    if picture is not None and picture.suffix.lower() not in (".html", ".svg"):
        raise RegardError(f"--out {picture}: a page ends in .html, a picture in .svg")
    text, loaded = as_utf8(text), opened(run, "show")
    if loaded.config.entry.baseline:
        if layer is not None or head is not None:
            raise RegardError(f"{loaded.config.model} has no layers: leave --layer and --head out")
        show_words(loaded, text, picture, json)
        return
    answer = loaded.predict(text)
    layers = looks(loaded, text)
    chosen = [
        (number, narrowed(looked, head))
        for number, looked in enumerate(layers, 1)
        if layer in (None, number)
    ]
    if layer is not None and layers and not chosen:
        raise RegardError(f"--layer {layer}: this model has attention layers 1 to {len(layers)}")
    said = answer.told()
    if picture is not None:
        write_picture(picture, text, said, [looked for _, looked in chosen])
    if json:
        emit_json(
            {
                "run": str(run),
                "text": text,
                **answer.json(),
                "layers": [as_json(number, looked) for number, looked in chosen],
            }
        )
        return
    say(f"{loaded.config.model} says: {said}")
    if not layers:
        say(f"{loaded.config.model} has no attention: there are no weights to look at")
    for number, looked in chosen:
        say()
        draw(number, looked, head)
    if picture is not None:
        say(f"\ndrawn: {picture}")


def show_words(run: "Run", text: str, picture: Path | None, json: bool) -> None:
    """Show what the words of a text add to its answer. Errors: a text without words."""
    from regard.reports import weighed

    answer = run.predict(text)
    found = run.task.weigh(run.model, text, answer)
    if not found.words:
        raise RegardError("there is no word to look at in this text")
    if picture is not None:
        charts = weighed.section(found)
        write_charts(picture, text, answer.told(), weighed.chart(found), charts)
    if json:
        words = zip(found.words, found.weights.tolist(), strict=True)
        emit_json(
            {
                "run": str(run.folder.path),
                "text": text,
                **answer.json(),
                "layers": [],
                "words": [{"word": word, "weight": weight} for word, weight in words],
                "terms": [{"term": term, "weight": weight} for term, weight in found.terms.items()],
                "bias": found.bias,
                "score": found.score,
            }
        )
        return
    say(f"{run.config.model} says: {answer.told()}")
    say(f"\nwhat each word, with its share of pairs, adds to {found.of}:")
    out.print(coloured(found.words, found.weights.tolist(), signed=True))
    ranked = sorted(found.terms.items(), key=lambda term: -abs(term[1]))
    for says, sign in (("for", 1), ("against", -1)):
        some = [f"{term} {weight:+.3f}" for term, weight in ranked if sign * weight > 0][:TOP]
        say(f"{says}: {', '.join(some) or 'nothing'}")
    unknown = "" if found.terms else ": no word of this text was counted in training"
    say(f"bias {found.bias:+.3f}, score {found.score:+.3f}{unknown}")
    if picture is not None:
        say(f"\ndrawn: {picture}")


def write_picture(path: Path, text: str, said: str, layers: "list[LayerAttention]") -> None:
    """Draw the layers into a page, or their mean into a picture. Errors: nothing to draw."""
    from regard.reports.aligned import maps
    from regard.reports.markup import shorten, tag

    if not layers:
        raise RegardError(f"--out {path}: this model has no attention, so nothing can be drawn")
    figures = [tag("figure", tag("div", chart, class_="scroll"))
               for chart in maps(layers, "weights")]  # fmt: skip
    mean = maps(layers, shorten(text, 60))[0]
    write_charts(path, text, said, mean, [tag("div", *figures, class_="maps")])


def write_charts(path: Path, text: str, said: str, chart: "Html", parts: "Sequence[Html]") -> None:
    """Write one chart as a picture, or a page of text, answer and all parts."""
    from regard.durable import write_bytes
    from regard.reports.aligned import drawing
    from regard.reports.markup import shorten, tag
    from regard.reports.page import page

    if path.suffix.lower() == ".svg":
        whole = drawing(chart)
    else:
        words = [tag("p", "read: ", tag("b", text)), tag("p", "answer: ", tag("b", said))]
        whole = page(shorten(text, 80), [*words, *parts])
    write_bytes(path, whole.encode("utf-8", errors="replace"))


def looks(run: "Run", text: str) -> "list[LayerAttention]":
    """The layers of a model at work; of one that writes another text those that look at the source.

    Of `mean` the attention that it is: each word the same weight.
    """
    if run.config.model != "mean":
        layers, _ = run.at_work(text)
        return [looked for looked in layers if looked.asking is not None] or layers
    import numpy as np

    from regard.analysis.layer_attention import LayerAttention

    tokens = run.tokens(text)
    if not tokens:
        raise RegardError("there is no token to look at in this text")
    even = np.full((1, 1, len(tokens)), 1 / max(len(tokens), 1), dtype=np.float32)
    return [LayerAttention("mean of the words", tokens, even)]


def narrowed(looked: "LayerAttention", head: int | None) -> "LayerAttention":
    """One head of a layer, or all. Errors: a head that the layer does not have."""
    if head is None:
        return looked
    heads = len(looked.weights)
    if head > heads:
        raise RegardError(f"--head {head}: {looked.layer} has heads 1 to {heads}")
    return looked._replace(weights=looked.weights[head - 1 : head])


def as_json(number: int, looked: "LayerAttention") -> dict[str, Any]:
    """A layer as plain values."""
    asking = {} if looked.asking is None else {"asking": looked.asking}
    return {
        "layer": number,
        "name": looked.layer,
        "tokens": looked.tokens,
        **asking,
        "received": received(looked).tolist(),
        "weights": looked.weights.tolist(),
    }


def received(looked: "LayerAttention") -> "NDArray[floating[Any]]":
    """(tokens,): the weight that each token gets, mean over heads and over those that look."""
    mean: NDArray[floating[Any]] = looked.weights.mean((0, 1))
    return mean


def draw(number: int, looked: "LayerAttention", head: int | None) -> None:
    """Print a layer: the text in colours, the top words in numbers, the strongest pairs."""
    from regard.reports.attended import plain_name

    heads, rows = looked.weights.shape[:2]
    whose = f"head {head}" if head else ("1 head" if heads == 1 else f"mean of {heads} heads")
    names = dict.fromkeys((f"layer {number}", plain_name(looked.layer), whose))
    say(f"{', '.join(names)}, an even share is {1 / len(looked.tokens):.3f}")
    if looked.asking is not None:
        align(looked.asking, looked.tokens, looked.weights.mean(0).tolist())
        return
    shares = received(looked)
    out.print(coloured(looked.tokens, shares.tolist()))
    order = (-shares).argsort(kind="stable")[:TOP]
    say("most: " + ", ".join(f"{looked.tokens[i]} {shares[i]:.3f}" for i in order))
    if rows == 1:
        return
    mean = looked.weights.mean(0)
    if looked.tokens[0] == "[CLS]":
        best = (-mean[0]).argsort(kind="stable")[:TOP]
        say("[CLS] looks at: " + ", ".join(f"{looked.tokens[i]} {mean[0, i]:.3f}" for i in best))
    strongest = (-mean.ravel()).argsort(kind="stable")[:TOP]
    pairs = (divmod(int(place), mean.shape[1]) for place in strongest)
    say(
        "strongest: "
        + ", ".join(
            f"{looked.tokens[row]} → {looked.tokens[column]} {mean[row, column]:.3f}"
            for row, column in pairs
        )
    )


def align(asking: list[str], tokens: list[str], weights: list[list[float]]) -> None:
    """Print an alignment: a row for each word written, what it looked at in colours and by name."""
    wide = max(len(word) for word in asking)
    for word, row in zip(asking, weights, strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        line = coloured(tokens, row)
        line.append(f" {tokens[best]} {row[best]:.2f}")
        out.print(f"{word:>{wide}}  ", end="", markup=False)
        out.print(line)


def coloured(tokens: list[str], shares: list[float], *, signed: bool = False) -> Any:
    """Words on a ground that is the brighter the larger their share; black ink where it is bright.

    Of weights that are `signed` those above 0 are blue and those below amber.

    Without colour the words stand alone, and the numbers below them tell the same.
    """
    from rich.style import Style
    from rich.text import Text

    most = max(map(abs, shares), default=0.0) or 1.0
    line = Text()
    for token, share in zip(tokens, shares, strict=True):
        strength = abs(share) / most
        if strength < FAINT:
            line.append(f"{token} ")
            continue
        hue = BLUE if signed and share > 0 else HUE
        red, green, blue = (round(part * strength) for part in hue)
        ink = "black" if strength > 0.5 else "white"
        line.append(f"{token} ", Style(color=ink, bgcolor=f"rgb({red},{green},{blue})"))
    return line
