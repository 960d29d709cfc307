"""``regard show``: the attention weights of a model for one text, in the terminal."""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import Browse, Json, RunFolder, browse, emit_json, opened, out, say
from regard.lab.cli.predict import FeatureValues, inputs_of

if TYPE_CHECKING:
    from regard.analysis.interventions import Head
    from regard.analysis.layer_attention import LayerAttention
    from regard.lab.reports.markup import Html
    from regard.lab.runs import Run
    from regard.lab.tasks.baselines import Weighed

TOP = 6
FAINT = 0.1  # share of the largest weight below which a word is not coloured
HUE = (255, 176, 0)  # amber, visible with every kind of colour vision
BLUE = (80, 150, 255)  # positive weights, where amber is negative


def show(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Input text.")],
    second: Annotated[
        str | None, typer.Option(help="Second text, for a run that reads two.", show_default=False)
    ] = None,
    feature: FeatureValues = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="Show only this attention layer, from 1.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=1, help="Show this head, from 1 (default: mean of all heads).")
    ] = None,
    without: Annotated[
        str,
        typer.Option(
            "--without-heads",
            help="Switch these heads off, each as LAYER.HEAD from 1, such as 1.1,2.3.",
            metavar="HEADS",
        ),
    ] = "",
    by_attention: Annotated[
        bool,
        typer.Option(
            "--attention",
            help="Show the attention of a classifying encoder (bert, frozen), not its attribution.",
        ),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--out", help="Also draw to this .html or .svg file.", metavar="FILE"),
    ] = None,
    open_page: Browse = False,
    json: Json = False,
) -> None:
    """Show which words of a text a model attends to.

    Brighter words have more weight. Attention pooling gives each word one weight. In
    self-attention each word attends to all words: the colour shows the mean weight that a word
    receives, and the strongest pairs are listed. The weights of one attending word sum to 1;
    uniform attention gives each word 1 / words.

    Bag-of-words models (tfidf, nb-svm) show how much each word adds to, or subtracts from, the
    score of the predicted label. So do encoders that label texts (bert, frozen), by integrated
    gradients, since attention in their deep layers goes from [CLS] to [CLS]; --attention, --layer,
    --head or --without-heads show their attention.

    Sequence-to-sequence models show their alignment: one row per generated word with its weights
    on the source words. Language models show the attention over the whole text. --out writes all
    layers and heads to one page (.html), or the mean of the chosen ones to one picture (.svg).

    --without-heads 2.1 shows the answer and the attention with head 1 of layer 2 switched off; the
    numbers are those of --layer and --head.

    regard show runs/classification-transformer 'not a bad film at all' --layer 3

    regard show runs/translation-transformer 'Ein Hund.' --out map.html

    regard show runs/classification-transformer 'not a bad film' --without-heads 1.1,2.3
    """

    from regard.analysis.interventions import without_heads
    from regard.lab.data.examples import as_json as input_json

    if picture is not None and picture.suffix.lower() not in (".html", ".svg"):
        raise RegardError(f"--out {picture}: the name must end in .html (page) or .svg (picture)")
    if open_page and picture is None:
        raise RegardError("--open: there is no drawing to open; add --out FILE.html")
    loaded = opened(run, "show")
    (text,) = inputs_of(loaded, [text], None if second is None else [second], feature)
    chooses = by_attention or layer is not None or head is not None or bool(without)
    baseline = loaded.config.entry.baseline
    if baseline and chooses:
        raise RegardError(
            f"{loaded.config.model} has no layers; leave --layer, --head, --attention and "
            "--without-heads out"
        )
    if baseline or (attributes(loaded) and not chooses):
        show_words(loaded, text, picture, json)
        if open_page and picture is not None:
            browse(picture)
        return
    off = heads_off(loaded, text, without) if without else []
    whole = loaded.predict(text) if off else None
    with without_heads(loaded.network, off) if off else nullcontext():
        answer, layers = loaded.predict(text), looks(loaded, text)
    chosen = [
        (number, narrowed(attention, head))
        for number, attention in enumerate(layers, 1)
        if layer in (None, number)
    ]
    if layer is not None and layers and not chosen:
        raise RegardError(f"--layer {layer} does not exist; choose 1 to {len(layers)}")
    phrase = described(answer)
    if picture is not None:
        write_picture(picture, text, phrase, [attention for _, attention in chosen])
    if open_page and picture is not None:
        browse(picture)
    if json:
        emit_json(
            {
                "run": str(run),
                **input_json(text),
                **answer.json(),
                **({} if whole is None else {"without_heads": without, "before": whole.json()}),
                "layers": [attention.json(number) for number, attention in chosen],
            }
        )
        return
    if whole is not None:
        say(f"prediction of {loaded.config.model} with all heads: {whole.phrase()}")
    but = f" without heads {without}" if off else ""
    say(f"prediction of {loaded.config.model}{but}: {phrase}")
    if not layers:
        say(f"{loaded.config.model} has no attention, hence no weights to show")
    for number, attention in chosen:
        say()
        draw(number, attention, head)
    if picture is not None:
        say(f"\ndrawing: {picture}")


def heads_off(run: "Run", text: str, without: str) -> "list[Head]":
    """Return the heads of ``LAYER.HEAD,…``, counted as the attention of a text is shown.

    Raises: another form; no such layer or head; a layer without heads.
    """
    from regard.analysis.interventions import Head

    layers = looks(run, text)
    heads = []
    for word in without.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\.(\d{1,6})\s*", word, re.ASCII)
        if not match:
            raise RegardError(
                f"--without-heads {word.strip()!r:.40} is not LAYER.HEAD; write 1.2,2.1 for head 2 "
                "of layer 1 and head 1 of layer 2"
            )
        layer, head = map(int, match.groups())
        if not 1 <= layer <= len(layers):
            there = f"choose 1 to {len(layers)}" if layers else "this model has no attention"
            raise RegardError(f"--without-heads {word.strip()}: no layer {layer}; {there}")
        heads.append(Head(layers[layer - 1].layer, head))
    return heads


def attributes(run: "Run") -> bool:
    """Return whether a run is an encoder that labels texts, shown by attribution."""
    from regard.nn.models.classifiers import BERTClassifier

    return isinstance(run.network, BERTClassifier) and run.network.pool is not None


def show_words(run: "Run", text: str, picture: Path | None, json: bool) -> None:
    """Show the contribution of each word to the prediction. Raises: a text without words."""
    from regard.lab.data.examples import as_json as input_json
    from regard.lab.reports import weighed

    answer = run.predict(text)
    if run.config.entry.baseline:
        terms = run.task.weigh(run.model, text, answer)
    else:
        terms = attributed_words(run, text)
    if not terms.words:
        raise RegardError("this text contains no words; give one with words")
    if picture is not None:
        charts = weighed.section(terms)
        write_charts(picture, text, described(answer), weighed.chart(terms), charts)
    if json:
        words = zip(terms.words, terms.weights.tolist(), strict=True)
        emit_json(
            {
                "run": str(run.folder.path),
                **input_json(text),
                **answer.json(),
                "layers": [],
                "words": [{"word": word, "weight": weight} for word, weight in words],
                "terms": [{"term": term, "weight": weight} for term, weight in terms.terms.items()],
                "bias": terms.bias,
                "score": terms.score,
            }
        )
        return
    say(f"prediction of {run.config.model}: {described(answer)}")
    shares = ", with its share of word pairs," if run.config.entry.weighs else ""
    say(f"\ncontribution of each word{shares} to {terms.of}:")
    out.print(coloured(terms.words, terms.weights.tolist(), signed=True))
    ranked = sorted(terms.terms.items(), key=lambda term: -abs(term[1]))
    for says, sign in (("for", 1), ("against", -1)):
        some = [f"{term} {weight:+.3f}" for term, weight in ranked if sign * weight > 0][:TOP]
        say(f"{says}: {', '.join(some) or 'nothing'}")
    unknown = "" if terms.terms else ": no word of this text occurred in training"
    say(f"bias {terms.bias:+.3f}, score {terms.score:+.3f}{unknown}")
    if picture is not None:
        say(f"\ndrawing: {picture}")


def attributed_words(run: "Run", text: str) -> "Weighed":
    """Return the integrated gradients of a text's tokens; the bias is the score without words."""
    from regard.analysis.attribution import apart
    from regard.lab.tasks.baselines import Weighed

    result = run.attribute(text)
    weights = result.gradients.values
    terms = dict(zip(apart(result.tokens), weights.tolist(), strict=True))
    return Weighed(
        result.tokens, weights, terms, result.gradients.baseline, result.choices[result.choice]
    )


def described(answer: Any) -> str:
    """Return an answer as a phrase, with the words of the text that the model does not know."""
    from regard.lab.tasks.task import unknown_phrase

    words = getattr(answer, "unknown", ())
    return "; ".join([answer.phrase(), *([unknown_phrase(words)] if words else [])])


def write_picture(path: Path, text: str, answer: str, layers: "list[LayerAttention]") -> None:
    """Draw the layers as a page, or their mean as a picture. Raises: nothing to draw."""
    from regard.lab.reports.aligned import maps
    from regard.lab.reports.findings import Figure
    from regard.lab.reports.markup import shorten, tag

    if not layers:
        raise RegardError(f"--out {path}: this model has no attention to draw; leave --out out")
    figures = [Figure(chart).html() for chart in maps(layers, "weights")]
    mean = maps(layers, shorten(text, 60))[0]
    write_charts(path, text, answer, mean, [tag("div", *figures, class_="maps")])


def write_charts(
    path: Path, text: str, answer: str, chart: "Html", parts: "Sequence[Html]"
) -> None:
    """Write one chart as a picture, or a page with the text, the answer and all parts."""
    from regard.core.atomic_io import write_bytes
    from regard.lab.reports.aligned import drawing
    from regard.lab.reports.markup import shorten, tag
    from regard.lab.reports.page import page

    if path.suffix.lower() == ".svg":
        whole = drawing(chart)
    else:
        words = [tag("p", "text: ", tag("b", text)), tag("p", "answer: ", tag("b", answer))]
        whole = page(shorten(text, 80), [*words, *parts])
    write_bytes(path, whole.encode("utf-8", errors="replace"))


def looks(run: "Run", text: str) -> "list[LayerAttention]":
    """Return the attention layers for a text; if the model has cross-attention, only that.

    For the model `mean` it is uniform attention: each word has the same weight.
    """
    if run.config.model != "mean":
        layers, _ = run.at_work(text)
        return [attention for attention in layers if attention.asking is not None] or layers
    import numpy as np

    from regard.analysis.layer_attention import LayerAttention

    tokens = run.tokens(text)
    if not tokens:
        raise RegardError("this text contains no tokens; give one with words")
    even = np.full((1, 1, len(tokens)), 1 / max(len(tokens), 1), dtype=np.float32)
    return [LayerAttention("mean of the words", tokens, even)]


def narrowed(attention: "LayerAttention", head: int | None) -> "LayerAttention":
    """Return one head of a layer, or all. Raises: a head that the layer does not have."""
    if head is None:
        return attention
    heads = len(attention.weights)
    if head > heads:
        raise RegardError(f"--head {head} of {attention.layer} does not exist; choose 1 to {heads}")
    return attention._replace(weights=attention.weights[head - 1 : head])


def draw(number: int, attention: "LayerAttention", head: int | None) -> None:
    """Print a layer: the coloured text, its top words and the strongest pairs."""
    from regard.analysis.attribution import apart
    from regard.lab.reports.attended import plain_name

    heads, rows = attention.weights.shape[:2]
    whose = f"head {head}" if head else ("1 head" if heads == 1 else f"mean of {heads} heads")
    names = dict.fromkeys((f"layer {number}", plain_name(attention.layer), whose))
    say(f"{', '.join(names)}, uniform weight {1 / len(attention.tokens):.3f}")
    if attention.asking is not None:
        align(attention.asking, attention.tokens, attention.weights.mean(0).tolist())
        return
    shares = attention.received
    out.print(coloured(attention.tokens, shares.tolist()))
    words = apart(attention.tokens)
    order = (-shares).argsort(kind="stable")[:TOP]
    say("most: " + ", ".join(f"{words[i]} {shares[i]:.3f}" for i in order))
    if rows == 1:
        return
    mean = attention.weights.mean(0)
    if attention.tokens[0] == "[CLS]":
        best = (-mean[0]).argsort(kind="stable")[:TOP]
        say("[CLS] attends to: " + ", ".join(f"{words[i]} {mean[0, i]:.3f}" for i in best))
    strongest = (-mean.ravel()).argsort(kind="stable")[:TOP]
    pairs = (divmod(int(place), mean.shape[1]) for place in strongest)
    say(
        "strongest: "
        + ", ".join(
            f"{words[row]} → {words[column]} {mean[row, column]:.3f}" for row, column in pairs
        )
    )


def align(queries: list[str], tokens: list[str], weights: list[list[float]]) -> None:
    """Print an alignment: per generated word, the coloured source and its top word."""
    wide = max(len(word) for word in queries)
    for word, row in zip(queries, weights, strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        line = coloured(tokens, row)
        line.append(f" {tokens[best]} {row[best]:.2f}")
        out.print(f"{word:>{wide}}  ", end="", markup=False)
        out.print(line)


def coloured(tokens: list[str], shares: list[float], *, signed: bool = False) -> Any:
    """Return words on backgrounds that get brighter with their share; black text if bright.

    If `signed`, positive weights are blue and negative ones amber.
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
