"""The report of a run: predictions and attention on a few texts, in one HTML file."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.analysis.layer_attention import LayerAttention
from regard.core.atomic_io import write_bytes
from regard.core.errors import RegardError
from regard.core.names import COMMAND, short
from regard.lab.reports.findings import Table, machine
from regard.lab.reports.markup import Html, join, tag
from regard.lab.reports.mistakes import confusion_drawn
from regard.lab.reports.packed import pack_below, with_rollout
from regard.lab.reports.page import FRAME, LIMIT, page, static
from regard.lab.reports.training import training_table
from regard.lab.runs import Run
from regard.lab.runs.convergence import MEANINGS
from regard.lab.tasks.classification.evaluation import by_label
from regard.lab.tasks.evaluation import Evaluation

FOLDED = 24  # labels up to which their table is shown expanded
TEXTS = 4  # test texts shown if no texts are given


def write_run_report(run: Run, texts: Sequence[str] = (), out: Path | None = None) -> Path:
    """Write ``report.html`` into the folder of a run, or to `out`, and return its path.

    It shows the texts, or some of the test split, with the weights of every head, as many as fit
    into 5 MB. The file works offline.

    Raises: the run is not complete; the texts do not fit; the disk is full.
    """
    chosen = list(texts) or (examples(run) if run.config.entry.kept else [])
    share = (LIMIT - FRAME) // max(len(chosen), 1)
    looks = [look(run, text, share) for text in chosen]
    path = out or run.folder.path / "report.html"
    write_bytes(path, run_page(run, looks).encode("utf-8", errors="replace"))
    return path


def run_page(run: Run, looks: Sequence[dict[str, Any]]) -> str:
    """Return the report as HTML."""
    config = run.config
    title = f"{short(config.model)} on {short(config.task)}"
    evaluation, how = run.evaluate(), run.convergence
    trained = training_table([(config.model, [run.folder.path])])
    parts = [
        tag("p", f"regard · {short(config.task)}", class_="over"),
        tag("h1", title),
        tag("p", f"{'Test' if run.held_out else 'Train'} {evaluation.line()}.", class_="answer"),
        tag("p", ended(run, how)),
        *(
            tag("p", f"{note[:1].upper()}{note[1:]}.")
            for note in run.notes
            if not note.startswith(how)
        ),
        *labels(evaluation),
        tag("p", f"The model: {config.entry.describe(config.network)}."),
        *([trained.html()] if trained else ()),
        *(attention_place() if looks else ()),
        tag("h2", "Reproduce"),
        tag("pre", shlex.join(["regard", "serve", place(run.folder.path)])),
        tag("p", "Train it again; append settings to change them:"),
        tag("pre", train_again(run)),
        *machine(run.folder.environment()),
    ]
    return page(title, parts, stored=stored("Text", looks) if looks else None)


def ended(run: Run, how: str) -> str:
    """Return how the training ended, as a sentence. ``how``: its `Run.convergence`."""
    rows = run.metrics()
    if run.config.entry.fitted or not rows:
        return "It was fitted, not trained in steps."
    share = "" if run.ended is None else ", by --end"
    return f"The training ended after {rows[-1]['step']:,} steps{share}: {how} ({MEANINGS[how]})."


def attention_place() -> list[Html]:
    """Return the element in which the page draws the stored texts."""
    return [
        tag("h2", "Attention"),
        tag("div", id="looks"),
        tag("noscript", tag("p", "These views require JavaScript, which this file contains.")),
    ]


def labels(evaluation: Evaluation) -> list[Html]:
    """Return the scores and the confusion of the labels, for a run that predicts labels."""
    summary = evaluation.summary
    if "by_class" not in summary:
        return []
    heads, *rows = by_label(summary)
    note = f"{evaluation.n:,} test texts."
    table = Table("Scores by label", heads, rows, note).html()
    if len(rows) > FOLDED:
        table = tag("details", tag("summary", f"All {len(rows):,} labels"), table)
    if "confusion" not in summary:
        return [table]
    return [
        table,
        *confusion_drawn("Confusion", summary["labels"], summary["confusion"], note),
    ]


def train_again(run: Run) -> str:
    """Return the command that trains a run with the same settings."""
    folder = place(run.folder.path)
    words = ["regard", "train", run.config.task, "--config", folder, "--out", f"{folder}-again"]
    words += ["--model", run.config.model] if run.config.model.startswith(COMMAND) else []
    return shlex.join([*words, *(run.repeat or "").split()])


def place(folder: Path) -> str:
    """Return a folder relative to the working directory if it lies inside, else absolute."""
    path, here = folder.resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def look(run: Run, text: str, limit: int = LIMIT - FRAME) -> dict[str, Any]:
    """Return a text, its prediction and the attention, packed into at most `limit` bytes.

    A text of the test split has its true label, too.
    """
    labels = {one.text: one.label for one in run.evaluate().examples}
    truth = {"label": label} if (label := labels.get(text, "")) else {}
    layers: list[LayerAttention] = []
    read = None
    if not run.config.entry.baseline and run.tokens(text):
        layers, read = run.at_work(text)
    plain = getattr(run.config.network, "block", "") == "plain"  # blocks without residuals
    packed = pack_below(with_rollout(layers, 0.0 if plain else 0.5), limit)
    tokens = {} if read is None else {"read": read}
    answer, (left,) = run.predict(text).json(), run.left_out([text])
    answer |= {"left_out": left} if left else {}
    return {"text": text, "answer": answer, **tokens, **packed, **truth}


def stored(title: str, looks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the views as `page` stores them, with a title for the menu that selects one."""
    return {"title": title, "looks": list(looks)}


def examples(run: Run) -> list[str]:
    """Return a few short prompts from texts of the test split; none if the run reads trees.

    Raises: the test split has no text.
    """
    if run.config.reads_trees:
        return []
    texts = [run.task.prompt(example.text) for example in run.evaluate().examples]
    short = sorted((text for text in texts if text.strip()), key=len)
    if not short:
        raise RegardError(f"{run.folder.path}: the test split has no text to show; give texts")
    middle = short[: max(TEXTS, len(short) // 4)]
    return list(dict.fromkeys(middle[:: max(1, len(middle) // TEXTS)][-TEXTS:]))


def sandboxed(html: str, height: int = 620) -> Html:
    """Return a page inside a sandboxed frame, as a notebook shows it.

    ``height`` in pixels applies until the page reports its own height to `frame.js` outside the
    frame; without JavaScript it stays.
    """
    frame = tag(
        "iframe",
        "",  # gives it a closing tag
        srcdoc=html,
        sandbox="allow-scripts allow-downloads",
        width="100%",
        height=height,
        frameborder=0,
        title="regard",
        class_="regard",
    )
    return join([frame, tag("script", Html(static("frame.js")))])
