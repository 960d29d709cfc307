"""The report of a run: what it says to a few texts and where it looks, in one HTML file."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.analysis.layer_attention import LayerAttention
from regard.atomic_io import write_bytes
from regard.errors import RegardError
from regard.reports.findings import Table, machine
from regard.reports.markup import Html, join, tag
from regard.reports.mistakes import confusion_drawn
from regard.reports.packed import pack_below, with_rollout
from regard.reports.page import FRAME, LIMIT, page, static
from regard.reports.training import training_table
from regard.runs import Run
from regard.tasks import TASKS
from regard.tasks.classification.evaluation import LabelEvaluation
from regard.tasks.pretraining.evaluation import beginning

FOLDED = 24  # labels; the table of more is folded away
TEXTS = 4  # of the test split, where none are given


def write_run_report(run: Run, texts: Sequence[str] = (), out: Path | None = None) -> Path:
    """Write ``report.html`` of a run and name it: in its folder, or where ``out`` says.

    The texts, or some of the test split's, stand in it with every head's weights, as many as fit
    into 5 MB. It opens anywhere, offline.

    Errors: the run is not complete; more texts than fit; no room on the disk.
    """
    chosen = list(texts) or ([] if needs_trees(run) else examples(run))
    share = (LIMIT - FRAME) // max(len(chosen), 1)
    looks = [look(run, text, share) for text in chosen]
    path = out or run.folder.path / "report.html"
    write_bytes(path, run_page(run, looks).encode("utf-8", errors="replace"))
    return path


def needs_trees(run: Run) -> bool:
    """Whether the run reads parsed sentences alone, so that a text cannot be shown to it."""
    return run.config.reads_trees


def run_page(run: Run, looks: Sequence[dict[str, Any]]) -> str:
    """The report as HTML."""
    config = run.config
    judged = run.evaluate()
    trained = training_table([(config.model, [run.folder.path])])
    parts = [
        tag("p", f"regard · {config.task}", class_="over"),
        tag("h1", f"{config.model} on {config.task}"),
        tag("p", config.entry.describe(config.network), class_="lead"),
        tag("p", judged.line(), class_="answer"),
        *(tag("p", f"{note.capitalize()}.") for note in run.notes),
        *labels(judged),
        *([trained.html()] if trained else ()),
        *(what_it_looks_at() if looks else ()),
        tag("h2", "To see it again"),
        tag("pre", shlex.join(["regard", "serve", place(run.folder.path)])),
        tag("p", "And to train it once more, or with one setting changed:"),
        tag("pre", once_more(run)),
        *machine(run.folder.environment()),
    ]
    return page(
        f"{config.model} on {config.task}", parts, stored=stored("Text", looks) if looks else None
    )


def what_it_looks_at() -> list[Html]:
    """Where the page draws the stored texts."""
    return [
        tag("h2", "What it looks at"),
        tag("div", id="looks"),
        tag("noscript", tag("p", "The views below draw with JavaScript, all of it in this file.")),
    ]


def labels(judged: Any) -> list[Html]:
    """How each label fared and what it was taken for, of a run that labels texts."""
    if not isinstance(judged, LabelEvaluation):
        return []
    heads, *rows = judged.by_label()
    note = f"Of {judged.n:,} test texts."
    table = Table("Each label", heads, rows, note).html()
    if len(rows) > FOLDED:
        table = tag("details", tag("summary", f"Each of {len(rows):,} labels"), table)
    return [
        table,
        *confusion_drawn("Confusion", judged.labels, judged.confusion, note),
    ]


def once_more(run: Run) -> str:
    """The command that trains a run like this one."""
    here = place(run.folder.path)
    words = ["regard", "train", run.config.task, "--config", here, "--out", f"{here}-again"]
    return shlex.join([*words, *(run.repeat or "").split()])


def place(folder: Path) -> str:
    """A folder as a command names it: from here if it lies below, else whole."""
    whole, here = folder.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def look(run: Run, text: str, limit: int = LIMIT - FRAME) -> dict[str, Any]:
    """A text, the run's answer and its attention at work, packed into at most `limit` bytes."""
    layers: list[LayerAttention] = []
    read = None
    if not run.config.entry.baseline and run.tokens(text):
        layers, read = run.at_work(text)
    plain = getattr(run.config.network, "block", "") == "plain"  # nothing passes beside
    packed = pack_below(with_rollout(layers, 0.0 if plain else 0.5), limit)
    told = {} if read is None else {"read": read}
    return {"text": text, "answer": run.predict(text).json(), **told, **packed}


def stored(title: str, looks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What `page` stores: the looks, under a title for the choice between them."""
    return {"title": title, "looks": list(looks)}


def examples(run: Run) -> list[str]:
    """A few short texts of the test split, of long pieces their beginnings. Errors: it has none."""
    texts = [example.text for example in run.evaluate().examples]
    task = TASKS[run.config.task]
    if task.by_token:  # pieces of texts
        texts = [beginning(text, task.hidden) for text in texts]
    short = sorted((text for text in texts if text.strip()), key=len)
    if not short:
        raise RegardError(f"{run.folder.path} answered no text; give some")
    middle = short[: max(TEXTS, len(short) // 4)]
    return list(dict.fromkeys(middle[:: max(1, len(middle) // TEXTS)][-TEXTS:]))


def sandboxed(html: str, height: int = 620) -> Html:
    """A page inside another, as a notebook shows it: its script runs, and reaches nothing else.

    ``height`` in pixels holds until the page has said how high it is, which `frame.js` beside the
    frame hears; where no script runs it stays.
    """
    frame = tag(
        "iframe",
        "",  # so that it is closed
        srcdoc=html,
        sandbox="allow-scripts allow-downloads",
        width="100%",
        height=height,
        frameborder=0,
        title="regard",
        class_="regard",
    )
    return join([frame, tag("script", Html(static("frame.js")))])
