"""The pictures and tables of the scores lab."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.labs.scores.report import MADE_FOR, Study, label, mean, of_task, shorter
from regard.labs.scores.tasks import Trained
from regard.reports.answer import percent
from regard.reports.figures import Point, Row, Series, interval_chart, line_chart, scatter
from regard.reports.findings import Cell, Figure, Section, Table
from regard.reports.maps import heat_map
from regard.reports.markup import Html
from regard.studies.statistics import arm_interval, format_p

#: Arms whose learning is drawn, as many of them as were run.
DRAWN = (
    ("scaled-dot", "softmax"), ("gaussian", "softmax"), ("additive", "softmax"),
    ("synthesizer-random", "softmax"), ("scaled-dot", "sparsemax"), ("scaled-dot", "sigmoid"),
)  # fmt: skip
INTERVALS = (
    "What to see: which bars stand clear of the dashed line, the mean of the reference. Marks: "
    "mean over seeds with its 95 % interval; dots: single seeds. Circles: scores with softmax or "
    "what they are made for; diamonds: normalisers (×) with scaled-dot; square: the reference. "
    "syn = synthesizer, fact = factorised, rand = random, temp = temperature."
)
GRID = "What to see: rows or columns that are pale as a whole, and single cells that are not."
COSTS = (
    "What to see: whether what takes longer is better. Time of training one seed at one learning "
    "rate: its share of the stack of networks that an arm is trained as. The table has all arms."
)
CURVES = (
    "What to see: which learn late, and which not at all. Validation examples, mean over seeds at "
    "the learning rate chosen."
)


def sections(studies: Sequence[Study], settings: Mapping[str, Any]) -> list[Section]:
    """Return the overview, then a section a task, then how it was done."""
    return [_overview(studies), *(_section(study) for study in studies), _method(studies, settings)]


def _overview(studies: Sequence[Study]) -> Section:
    pairs = list(dict.fromkeys((a.arm.score, a.arm.normalizer) for s in studies for a in s.arms))
    rows: list[list[Cell]] = [
        [f"{score} × {name}", *(_standing(study, score, name) for study in studies)]
        for score, name in pairs
    ]
    table = Table(
        "Which matter where: right in %, points against scaled-dot × softmax",
        ["arm", *(study.task.name for study in studies)],
        rows,
        note="* evidence of a difference at 5 % after Holm over the arms of the task.",
    )
    says = [f"{study.task.name.capitalize()}: {study.task.asks}" for study in studies]
    return Section("Which matter where", says, tables=[table])


def _standing(study: Study, score: str, name: str) -> str:
    arm = study.found(score, name)
    if arm is None:
        return "–"
    known = study.verdict(arm.arm)
    if known is None:
        return percent(mean(arm))
    points = f"{'+' if known.mean >= 0 else ''}{percent(known.mean)}"
    return f"{percent(mean(arm))} ({points}{'*' if known.significant else ''})"


def _section(study: Study) -> Section:
    return Section(
        study.task.name.capitalize(),
        [sentence(study.task.asks), of_task(study)],
        [
            Figure(forest(study), INTERVALS),
            *([Figure(grid(study), GRID)] if crossed(study) else []),
            Figure(costs(study), COSTS),
            Figure(curves(study), CURVES),
        ],
        [_table(study), *_losses(study)],
    )  # fmt: skip


def once(study: Study) -> list[Trained]:
    """Return the arms that differ from the reference in one part, best first."""
    few = [
        arm
        for arm in study.arms
        if arm.arm.score == "scaled-dot"
        or arm.arm.normalizer == MADE_FOR.get(arm.arm.score, "softmax")
    ]
    return sorted(few, key=mean, reverse=True)


def forest(study: Study) -> Html:
    """Return every arm's interval, the best on top."""
    rows = []
    for arm in once(study):
        middle, low, high = (100 * x for x in arm_interval(arm.right))
        seeds = (100 * arm.right.mean(1)).tolist()
        rows.append(Row(label(arm.arm), middle, low, high, _family(study, arm), seeds))
    return interval_chart(
        f"{study.task.name}: examples without a mistake, 95 % intervals", rows,
        x_label="right, %", reference=label(study.reference.arm),
    )  # fmt: skip


def _family(study: Study, arm: Trained) -> str:
    if arm is study.reference:
        return "baseline"
    return "network" if arm.arm.score == "scaled-dot" else "attention"


def sentence(words: str) -> str:
    """Return the text with a capital letter first."""
    return words[:1].upper() + words[1:]


def crossed(study: Study) -> bool:
    """Return whether most scores were run with most normalisers."""
    scores, names = (
        len({getattr(a.arm, key) for a in study.arms}) for key in ("score", "normalizer")
    )
    return scores > 1 and names > 1 and 2 * len(study.arms) > scores * names


def grid(study: Study) -> Html:
    """Return the heat map of score × normaliser."""
    scores = list(dict.fromkeys(arm.arm.score for arm in study.arms))
    names = list(dict.fromkeys(arm.arm.normalizer for arm in study.arms))
    cells = np.full((len(scores), len(names)), np.nan)
    for arm in study.arms:
        cells[scores.index(arm.arm.score), names.index(arm.arm.normalizer)] = 100 * mean(arm)
    return heat_map(
        f"{study.task.name}: right, %, by score and normaliser", cells,
        rows=[shorter(s) for s in scores], columns=[shorter(n) for n in names],
        x_label="normaliser", y_label="score",
    )  # fmt: skip


def costs(study: Study) -> Html:
    """Return the chart of accuracy against time for scores; normalisers differ little in time."""
    points = []
    for arm in once(study):
        if arm.arm.score == "scaled-dot" and arm is not study.reference:
            continue
        middle, low, high = (100 * x for x in arm_interval(arm.right))
        points.append(
            Point(label(arm.arm), 1000 * arm.seconds, middle, low, high, _family(study, arm))
        )
    return scatter(
        f"{study.task.name}: right against training time", points,
        x_label="training time of one network, ms", y_label="right, %", height=520,
    )  # fmt: skip


def curves(study: Study) -> Html:
    """Return learning over steps, of a few."""
    drawn = [arm for pair in DRAWN if (arm := study.found(*pair)) is not None]
    lines = [
        Series(label(arm.arm), [x for x, _ in arm.curve], [100 * y for _, y in arm.curve], look)
        for look, arm in enumerate(drawn)
    ]
    return line_chart(
        f"{study.task.name}: learning", lines, x_label="steps",
        y_label="validation examples right, %",
    )  # fmt: skip


def _table(study: Study) -> Table:
    single = study.task.reads == "each"
    columns = ["arm", "right % (95 %)", *(["single %"] if single else []), "points (95 %)",
               "p (Holm)", "rate", "s", "MB", "parameters"]  # fmt: skip
    rows: list[list[Cell]] = []
    for arm in sorted(study.arms, key=mean, reverse=True):
        known = study.verdict(arm.arm)
        against: list[Cell] = ["–", "–"]
        if known is not None:
            p = format_p(known.p).removeprefix("p ").removeprefix("= ")
            against = [within(known.mean, known.low, known.high), p]
        part = [percent(float(np.mean(arm.parts)))] if single else []
        rows.append([arm.arm.short, within(*arm_interval(arm.right)), *part, *against,
                     arm.rate, arm.seconds, arm.megabytes, arm.parameters])  # fmt: skip
    note = (
        "s and MB: one network's share of its stack; MB are what a training step keeps for its "
        "backward pass, parameters, gradients and Adam's means."
    )
    return Table(f"{study.task.name}: every arm, the best first", columns, rows, note)


def within(middle: float, low: float, high: float) -> str:
    """Return a share and its interval, in per cent.

    >>> within(0.5, 0.25, 0.751)
    '50.0 (25.0 to 75.1)'
    """
    return f"{percent(middle)} ({percent(low)} to {percent(high)})"


def _losses(study: Study) -> list[Table]:
    if not study.lost:
        return []
    rows = [[arm.short, why] for arm, why in study.lost.items()]
    return [Table(f"{study.task.name}: arms without a result", ["arm", "why"], rows)]


def _method(studies: Sequence[Study], settings: Mapping[str, Any]) -> Section:
    rates = " and ".join(f"{rate:g}" for rate in settings["rates"])
    says = [
        "All arms of a task have one network: symbol + the symbol before it + sinusoidal "
        "positions, one layer of attention with one head between projections, a ReLU layer, both "
        "residual, LayerNorm without parameters. A seed gives the first numbers and the examples "
        "with their order: the same for every arm, and so are the test examples.",
        f"Each seed is trained at each learning rate ({rates}), for all arms the same; an arm's "
        "rate is the one with the best mean on validation examples, and only it answers the test. "
        "Adam; the rate rises over a tenth of the steps and falls by a cosine.",
        "The unit is the seed: paired differences from the reference, t over seeds with the "
        "variance over examples added; p by Holm over the arms of a task.",
        "Steps, widths and the size of the sines were chosen on other examples, so that scaled-dot "
        "× softmax learns recall: what needs more steps than it is behind here, and may not stay "
        "so.",
        "All pairs are legal, and none is left out; gaussian scores are never above 0, so sum "
        "gives their keys no weight: that pair is a network without attention.",
        f"top-k keeps {settings['keep']} keys. Equal budget is equal steps and examples; seconds "
        "are measured beside.",
    ]
    rows: list[list[Cell]] = []
    for study in studies:
        task = study.task
        steps = study.reference.curve[-1][0]
        rows.append([task.name, task.length, task.width, steps, task.batch, steps * task.batch,
                     study.reference.right.shape[1]])  # fmt: skip
    columns = ["task", "longest input", "width", "steps", "batch", "training examples", "test"]
    return Section("How it was done", says, tables=[Table("The budget of an arm", columns, rows)])
