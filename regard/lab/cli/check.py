"""``regard check``: test a score, mask, normaliser or layer, then measure its speed."""

import json as _json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.core.atomic_io import write_bytes
from regard.core.errors import RegardError
from regard.core.names import is_part
from regard.core.plugins import one_line
from regard.core.settings import key_value
from regard.lab.cli.console import Json, bar, begin, emit_json, out, say

if TYPE_CHECKING:
    from torch import Tensor

    from regard.conformance import (
        Layer,
        MaskSubject,
        NormalizerSubject,
        ScoreSubject,
        Subject,
        Verdict,
    )

N, LEAST, HEADS, WIDTH = 1024, 128, 4, 32  # N, LEAST: maximum and minimum words that are timed
BUDGET = 6.0  # seconds of timing
PASS = 1.0  # maximum seconds of a pass; if it takes longer, fewer words are timed
MARKS = {"holds": "[green]✓[/]", "fails": "[red]✗[/]", "does not apply": "[dim]–[/]"}


def check(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="Score, mask, normaliser or module in your own file or an installed package "
            "(timm.layers:Attention), a name such as scaled-dot, a run folder, or TASK:MODEL "
            "(default: list the names).",
        ),
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings of TASK:MODEL, or how a module is called: queries=q, causal=true, "
            "MASK='hidden (b, m)'.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Check the laws only, no timing.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write each failure of a module as a bug report (Markdown)."),
    ] = None,
    json: Json = False,
) -> None:
    """Check a score, mask, normaliser, or a layer of any package.

    Tests every law, then measures time and memory. A ✗ shows the measured value and what the law
    requires. The file is executed like an import. Exit code 1 if a law fails.

    regard check examples/my_score.py:Laplacian

    For a run folder or TASK:MODEL the laws are those of whole networks: padding, batches, order,
    future tokens, empty texts, gradients, saved state.

    regard check runs/classification-transformer

    regard check classification:transformer score=examples/my_score.py:Laplacian
    """
    if what:
        begin(f"checking {what}")
    from regard import conformance
    from regard.conformance.run import named
    from regard.lab.runs.checking import network_of
    from regard.lab.tasks import TASKS

    if not what:
        emit_json(list(named())) if json else say("\n".join(named()))
        return
    # With --json, output of the user's code goes to stderr.
    with redirect_stdout(sys.stderr) if json else nullcontext():
        corrections = dict(map(key_value, settings or [])) if ":" in what else {}
        module = is_part(what) or what.partition(":")[0] not in TASKS
        own = corrections if module else {}
        subject = (None if own else network_of(what, settings or [])) or conformance.find(what, own)
        if isinstance(subject, conformance.Adopted) and not json:
            say(f"{subject}\n")
        verdicts = judged(subject, json)
    if not json:
        show(subject, verdicts)
    if report:
        write_report(report, what, subject, verdicts)
    speed: Speed | str = "skipped"
    if not quick:
        with redirect_stdout(sys.stderr) if json else nullcontext():
            runs = verdicts[0].outcome == "holds"
            speed = measured(what, subject) if runs else "the code does not run"
    if json:
        emit_json(as_json(what, subject, verdicts, speed))
    else:
        say(f"\n{says(subject.name, speed)}")
    if any(verdict.outcome == "fails" for verdict in verdicts):
        raise typer.Exit(1)


def write_report(path: Path, what: str, subject: "Subject", verdicts: "list[Verdict]") -> None:
    """Write the failures of a module as a bug report. Raises: another subject."""
    from regard.conformance import LAWS, Adopted
    from regard.conformance.bug_report import bug_report

    if not isinstance(subject, Adopted):
        raise RegardError(f"--report {path}: a report is of a module from elsewhere, not of {what}")
    write_bytes(path, bug_report(subject, LAWS["layer"], verdicts, what).encode())
    say(f"\nreport: {path}", quiet=True)


def judged(subject: "Subject", quiet: bool) -> "list[Verdict]":
    """Return the verdicts of all laws, with a progress bar that names the current law."""
    from regard import conformance

    names = list(conformance.LAWS[conformance.kind_of(subject)])
    verdicts: list[Verdict] = []
    with bar("laws", shown=not quiet) as show_progress:
        show_progress(0, len(names), names[0])
        for verdict in conformance.verdicts(subject):
            verdicts.append(verdict)
            done = len(verdicts)
            show_progress(done, len(names), names[min(done, len(names) - 1)])
    return verdicts


def as_json(
    what: str, subject: "Subject", verdicts: "list[Verdict]", speed: "Speed | str"
) -> dict[str, Any]:
    """Return the results as one JSON object; ``speed`` is null if it was not measured."""
    from regard.conformance import kind_of

    return {
        "what": what,
        "kind": kind_of(subject),
        "failures": sum(verdict.outcome == "fails" for verdict in verdicts),
        "laws": [verdict.json() for verdict in verdicts],
        "speed": None if isinstance(speed, str) else {**speed._asdict(), "time_ratio": speed.ratio},
    }


def show(subject: "Subject", verdicts: "list[Verdict]") -> None:
    """Print a row for each law and how many hold."""
    from rich.markup import escape
    from rich.table import Table

    from regard.conformance import LAWS, kind_of

    laws = LAWS[kind_of(subject)]
    table = Table(box=None, pad_edge=False, show_header=False)
    reasons: dict[str, list[str]] = {}
    for verdict in verdicts:
        words = escape(verdict.message)
        if verdict.outcome == "does not apply":
            reasons.setdefault(words, []).append(verdict.law)
            continue
        description = escape(laws[verdict.law].description)
        if verdict.outcome == "holds":
            words = description if words == description else f"{description} [dim]({words})[/]"
        table.add_row(MARKS[verdict.outcome], verdict.law, words)
    for words, names in reasons.items():
        table.add_row(MARKS["does not apply"], "", f"{words}: [dim]{', '.join(names)}[/]")
    out.print(table)
    hold, fail, rest = (sum(v.outcome == outcome for v in verdicts) for outcome in MARKS)
    left = "not checked" if verdicts[0].outcome == "fails" else "do not apply"
    holding = f"{hold} law holds" if hold == 1 else f"{hold} laws hold"
    say(f"\n{subject.name}: {holding}, {fail} fail, {rest} {left}")


class Speed(NamedTuple):
    """Time (median seconds) and extra memory (MB) of forward and backward, ours and a peer's.

    ``words``: the number of words, `N`, or fewer for a slow subject.
    """

    against: str
    ours_s: float
    theirs_s: float
    ours_mb: float
    theirs_mb: float
    words: int = N

    @property
    def ratio(self) -> float:
        """Return theirs / ours, as in `regard bench`."""
        return self.theirs_s / self.ours_s


def says(name: str, speed: "Speed | str") -> str:
    """Describe the speed in words."""
    if isinstance(speed, str):
        return f"speed and memory: {speed}"
    return (
        f"speed and memory against {speed.against}, forward + backward, n = {speed.words}, "
        f"{HEADS} heads, width {WIDTH}\n"
        f"{name}: {speed.ours_s * 1e3:.1f} ms, {speed.ours_mb:,.0f} MB in addition to the inputs; "
        f"{speed.against}: {speed.theirs_s * 1e3:.1f} ms, {speed.theirs_mb:,.0f} MB\n"
        f"{1 / speed.ratio:.2f} times the time"
    )


def measured(what: str, subject: "Subject") -> "Speed | str":
    """Return the speed of a subject, or the reason why it was not measured."""
    from regard.analysis.timing import in_turns

    try:
        words = affordable(subject)
        ours, theirs = (work(subject, side, words)() for side in ("ours", "theirs"))
        ours_s, theirs_s = in_turns(ours, theirs, budget=BUDGET)
        ours_mb, theirs_mb = (fresh(what, side, words) for side in ("ours", "theirs"))
    except RegardError as error:
        return str(error)
    except Exception as error:  # whatever a user's code raises
        return f"not measured: {one_line(error)}"
    return Speed(peer_of(subject), ours_s, theirs_s, ours_mb, theirs_mb, words)


def affordable(subject: "Subject") -> int:
    """Return `N`, or a number of words whose pass takes at most about `PASS` seconds.

    The time of a pass is quadratic in the words.
    """
    from regard.analysis.timing import seconds

    words = min(LEAST, N)
    call = work(subject, "ours", words)()
    call()
    once = seconds(call)
    while words < N and 4 * once <= PASS:
        words *= 2
        once = seconds(work(subject, "ours", words)())
    return words


def peer_of(subject: "Subject") -> str:
    """Return the name of the peer that a subject is compared with."""
    from regard.conformance import Layer, MaskSubject, NormalizerSubject

    if isinstance(subject, Layer):
        return "regard.MultiHeadAttention"
    if isinstance(subject, MaskSubject):
        return "no mask"
    return "softmax" if isinstance(subject, NormalizerSubject) else "scaled-dot"


def work(subject: "Subject", side: str, words: int) -> Callable[[], Callable[[], object]]:
    """Return a function that builds the inputs and returns the call to time.

    Raises: a subject that cannot be timed.
    """
    from regard.conformance import LAYERS, Layer, NetworkSubject

    if isinstance(subject, NetworkSubject):
        raise RegardError("regard compare and regard bench measure networks")
    if not isinstance(subject, Layer):
        return partial(of_part, subject, side == "ours", words)
    if subject.name in LAYERS:
        raise RegardError("use regard bench attention for the layers of packages")
    return partial(of_layer, subject, side == "ours", words)


def of_layer(layer: "Layer", ours: bool, words: int) -> Callable[[], object]:
    """Return a call of the layer on one text, or of regard's layer of the same width."""
    import torch

    from regard.attention import MultiHeadAttention

    x = torch.randn(1, words, layer.width, requires_grad=True)
    heads = layer.heads if layer.width % layer.heads == 0 else 1
    module = layer.build() if ours else MultiHeadAttention(layer.width, heads)
    forward = partial(layer.call, module, x) if ours else partial(module, x)
    return both(forward, [x, *module.parameters()])


def of_part(
    subject: "ScoreSubject | MaskSubject | NormalizerSubject", ours: bool, words: int
) -> Callable[[], object]:
    """Return an attention call on one text, with scaled-dot and softmax except for the subject."""
    import torch

    from regard.attention import NORMALIZERS, SCORES, attend
    from regard.conformance import MaskSubject, ScoreSubject

    heads = getattr(subject, "fixed_heads", None) or HEADS
    widths, score, mask = (WIDTH, WIDTH), SCORES["scaled-dot"](), None
    normalizer = NORMALIZERS["softmax"]()
    if isinstance(subject, ScoreSubject):
        widths = subject.widths if subject.fixed_heads else widths
        score = subject.build(widths, heads, words) if ours else score
    elif isinstance(subject, MaskSubject):
        mask = subject.mask if ours else None
    else:
        normalizer = subject.build(heads) if ours else normalizer
    if not ours:
        widths = (widths[0], widths[0])
    q, k, v = (
        torch.randn(1, heads, words, width, requires_grad=True) for width in (*widths, WIDTH)
    )
    return both(
        lambda: attend(q, k, v, score, mask, normalize=normalizer, heads=heads).output,
        [q, k, v, *score.parameters(), *normalizer.parameters()],
    )


def both(forward: "Callable[[], Tensor]", of: "list[Tensor]") -> Callable[[], object]:
    """Return a call that computes the output and its gradients."""
    import torch

    def run() -> object:
        output = forward()
        return torch.autograd.grad(output, of, torch.ones_like(output), allow_unused=True)

    return run


def fresh(what: str, side: str, words: int) -> float:
    """Measure the extra memory of one call in MB, in a separate process."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "regard.lab.cli.check", what, side, str(words)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RegardError(f"cannot measure the memory: {last}")
    return float(_json.loads(done.stdout.splitlines()[-1])["extra_mb"])


def probe_one(what: str, side: str, words: str) -> None:
    """Print the memory of one call as JSON, for `fresh`."""
    from regard.analysis.memory import probe
    from regard.conformance import find

    make = work(find(what), side, int(words))
    make()()  # warm up: load and compile what the call needs
    sys.stdout.write(_json.dumps(probe(make)._asdict()) + "\n")


if __name__ == "__main__":
    probe_one(*sys.argv[1:4])
