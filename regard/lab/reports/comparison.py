"""The report of a comparison: one HTML file in its folder, with the answer at the top."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.atomic_io import write_bytes
from regard.lab.reports import aligned, attended, mistakes, search, written
from regard.lab.reports.answer import answer, percent
from regard.lab.reports.drawing import Chart
from regard.lab.reports.evidence import Arm, arms_of, read_json
from regard.lab.reports.figures import Point, Row, Series, interval_chart, line_chart, scatter
from regard.lab.reports.findings import Figure, Section, claims_list, machine, section_html
from regard.lab.reports.looks import place as looks_place
from regard.lab.reports.looks import stored_looks
from regard.lab.reports.markup import Html, join, shorten, tag
from regard.lab.reports.page import FRAME, LIMIT, page
from regard.lab.reports.scales import duration, number
from regard.lab.reports.training import training_table
from regard.lab.studies.result import claimed
from regard.lab.studies.statistics import verdict_heading
from regard.lab.tasks import unit_of
from regard.lab.tasks.classification.metrics import METRICS
from regard.lab.tasks.pretraining.evaluation import BY_TOKENS
from regard.lab.tasks.units import Unit

BY_LOSS = (BY_TOKENS, METRICS["log-loss"])


@dataclass(frozen=True)
class Story:
    """The content of a report: the comparison, its folder and arms, and a lab's additions."""

    comparison: Mapping[str, Any]
    folder: Path
    arms: Sequence[Arm]
    sections: Sequence[Section] = ()
    answer: Sequence[str] = ()

    @property
    def metric(self) -> str:
        """Return the metric by which the arms are compared."""
        return str(self.comparison.get("metric", "accuracy"))

    @property
    def unit(self) -> Unit:
        """Return the unit of the metric."""
        return unit_of(self.metric)

    @property
    def reference(self) -> str:
        """Return the name of the arm that the others are compared with, "" without one."""
        return str(self.comparison.get("reference") or "")

    @property
    def heading(self) -> str:
        """Return the metric and its unit, as a column heading or axis label."""
        return self.unit.heading(self.metric)

    @property
    def trivial(self) -> dict[str, float]:
        """Return the metric of each rule that predicts without reading a text."""
        rules = self.comparison.get("trivial")
        return {str(k): float(v) for k, v in rules.items()} if isinstance(rules, Mapping) else {}

    @property
    def writes(self) -> bool:
        """Return whether the arms generate texts."""
        return any(arm.writes for arm in self.arms)

    @property
    def scored(self) -> list[Arm]:
        """Return the arms that have a result."""
        return [arm for arm in self.arms if math.isfinite(arm.mean)]


def write_report(
    comparison: Mapping[str, Any],
    folder: Path,
    sections: Sequence[Section] = (),
    sentences: Sequence[str] = (),
) -> Path:
    """Write ``report.html`` into the folder of a comparison and return its path.

    `comparison` has the keys of ``regard compare --json`` and optionally question, reference,
    command, data, notes, fingerprint and word_order. Learning curves, answers and attention come
    from the run folders; missing ones are left out. A lab adds `sections` and replaces the
    answer by its `sentences`. The file has at most 5 MB.

    Raises: the disk is full.
    """
    story = Story(comparison, folder, arms_of(comparison, folder), sections, sentences)
    drawn: list[list[Html]] = [section(story) for section in SECTIONS]
    place = SECTIONS.index(_attention)
    write = partial(page, question(comparison), lang=comparison.get("lang", "en"))
    text = write([*chain(*drawn)])
    looks = stored_looks(story.scored, LIMIT - FRAME - len(text.encode()))
    if looks:
        blocks = (*drawn[: place + 1], looks_place(), *drawn[place + 1 :])
        text = write([*chain(*blocks)], stored=looks)
    if len(text.encode()) > LIMIT:  # the attention of the texts takes most of the room
        note = tag("p", "Attention omitted: over 5 MB.", class_="note")
        text = write([*chain(*drawn[:place], *drawn[place + 1 :]), note])
    path = folder / "report.html"
    write_bytes(path, text.encode("utf-8", errors="replace"))
    return path


def question(comparison: Mapping[str, Any]) -> str:
    """Return the question of the comparison, or a default one."""
    names = [str(row["name"]) for row in comparison.get("arms", [])]
    default = f"Which of {', '.join(names)} is best at {comparison.get('task', 'this task')}?"
    return shorten(str(comparison.get("question") or default), 300)


def _top(story: Story) -> list[Html]:
    comparison = story.comparison
    data = comparison.get("data")
    over = f"regard · {comparison.get('task', 'comparison')}" + (f" on {data}" if data else "")
    sentences = story.answer or answer(comparison, story.arms)
    first, *rest = (sentence.replace(" %", "\u00a0%") for sentence in sentences)
    parts = [
        tag("p", over, class_="over"),
        tag("h1", question(comparison)),
        tag("p", first, " ", join(rest[:1]), class_="answer"),
        *(tag("p", sentence) for sentence in rest[1:]),
    ]
    parts += [
        tag(
            "p",
            f"Failed: {e.get('arm')}, {e.get('what', 'seed')} {e.get('seed')}: {e.get('says')}",
            class_="fails",
        )
        for e in comparison.get("errors", [])
    ]
    return [*parts, *claims_list(comparison.get("claims", []))]


class Cost(NamedTuple):
    """A column of costs: the key in an arm's row, the heading and the number format."""

    key: str
    title: str
    write: Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "–"


COSTS = (
    Cost("seconds", "time", duration),
    Cost("peak_mb", "peak MB", _whole),
    Cost("parameters", "parameters", number),
    Cost("flops", "MFLOP", lambda flops: number(flops / 1e6)),
)


def _table(story: Story) -> list[Html]:
    comparison = story.comparison
    best, unit = max(story.scored, key=lambda arm: arm.rank, default=None), story.unit
    reference = story.reference
    also = list(dict.fromkeys(name for arm in story.scored for name in _also(arm)))
    others = {arm.name: [_also(arm).get(name, math.nan) for name in also] for arm in story.arms}
    heads = ["arm", story.heading, "95 % interval"]
    over = "better than" if unit.lower else "against"
    heads += [f"{over} {shorten(reference, 24)}, {unit.points}"] if reference else []
    heads += ["p (Holm)"] if reference else []
    heads += [heading for heading in [_verdict_heading(story)] if heading and reference]
    heads += [unit_of(name).heading(name) for name in also]
    costs = [cost for cost in COSTS if any(math.isfinite(a.number(cost.key)) for a in story.arms)]
    trained = any(arm.training for arm in story.arms)
    heads += ["seeds", *(["training"] if trained else []), *(cost.title for cost in costs)]
    rows = []
    for arm in story.arms:
        cells = [
            tag("td", shorten(arm.name, 40), title=arm.name),
            _cell(unit.write(arm.mean), arm.mean),
            _cell(f"{unit.write(arm.low)} to {unit.write(arm.high)}", arm.low),
            *(_against(story, arm.name, reference) if reference else ()),
            *(
                _cell(unit_of(name).write(value), value)
                for name, value in zip(also, others[arm.name], strict=True)
            ),
            _cell(number(arm.number("seeds")), arm.number("seeds")),
            *(_training(arm) if trained else ()),
            *(_cell(cost.write(arm.number(cost.key)), arm.number(cost.key)) for cost in costs),
        ]
        rows.append(tag("tr", *cells, class_="best" if arm is best else None))
    for name, value in story.trivial.items():
        cells = [tag("td", name), _cell(unit.write(value), value)]
        cells += [tag("td", "–", data_value="") for _ in heads[2:]]
        rows.append(tag("tr", *cells, class_="soft"))
    top = tag("tr", *(tag("th", head) for head in heads))
    table = tag("table", tag("thead", top), tag("tbody", *rows), class_="sortable")
    return [
        tag("h2", "Results"),
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="results"),
        *(tag("p", GUESSES[name], class_="note") for name in story.trivial if name in GUESSES),
        _forest(story),
        *_verdicts(comparison),
    ]


def _training(arm: Arm) -> list[Html]:
    """Return the cell that says how the arm's trainings ended, marked if not all converged."""
    return [tag("td", arm.training or "–", class_=None if arm.trained else "wrong")]


def intervals(story: Story) -> Chart:
    """Draw every arm with its interval."""
    times = story.unit.times
    rows = [
        Row(a.name, times * a.mean, times * a.low, times * a.high, a.family,
            [times * v for v in a.by_seed] if len(a.by_seed) > 1 else [], a.trained)
        for a in story.scored
    ]  # fmt: skip
    title = f"{story.metric[:1].upper()}{story.metric[1:]}, 95 % intervals"
    lines = {name: times * value for name, value in story.trivial.items()}
    return interval_chart(title, rows, x_label=story.heading, reference=story.reference,
                          lines=lines, digits=story.unit.digits)  # fmt: skip


def _forest(story: Story) -> Html:
    """Draw every arm with its interval, and explain the chart."""
    trained = any(arm.models.get(arm.model) for arm in story.arms)
    how = f"{LEGEND} {HOW_TO_READ}" if trained else HOW_TO_READ
    return Figure(intervals(story), how if story.scored else "No arm has a result.").html()


LEGEND = (
    "Blue circles: models with attention; green diamonds: other networks; orange "
    "squares: baselines without a network. A hollow mark means that training did not converge. "
    "Time: training of one seed, excluding the run that init= continues. MFLOP: one forward pass "
    "over a text of median length."
)
HOW_TO_READ = (
    "Small dots are single seeds. Verdicts test the paired differences of seeds, including the "
    "variance of the test examples (or of their groups), with Holm's correction over all "
    "comparisons. Arms with overlapping intervals can still differ significantly. A single seed "
    "compares two models, not two methods. A pair of which one arm was not trained to the end is "
    "compared at these steps, without a claim about the methods."
)


#: Rules that predict without reading a text.
GUESSES = {
    "majority class": "Majority class: every text gets the most frequent training label (for log "
    "loss: the label shares of the training set).",
    "chance": "Chance: every label is equally likely.",
    "training mean": "Training mean: every text gets the mean of the training values.",
}


IN_STEPS = (
    "A budget in minutes gives a different number of steps on another machine. The same comparison "
    "with the steps taken here (mean over the seeds of an arm):"
)


def _verdicts(comparison: Mapping[str, Any]) -> list[Html]:
    items = [tag("li", str(verdict["says"])) for verdict in comparison.get("verdicts", [])]
    if not items:
        return []
    return [tag("details", tag("summary", "All verdicts in words"), tag("ul", *items))]


def _cell(text: str, value: float) -> Html:
    return tag("td", text, data_value=f"{value:.6g}" if math.isfinite(value) else "")


def _against(story: Story, name: str, reference: str) -> list[Html]:
    """Return the cells with an arm's gain over the reference, its interval and p."""
    for verdict in story.comparison.get("verdicts", []):
        if (verdict.get("a"), verdict.get("b")) == (name, reference):
            gain, low, high = (float(verdict[key]) for key in ("difference", "low", "high"))
            p, write = float(verdict["p"]), story.unit.write
            look = ("right" if gain > 0 else "wrong") if claimed(verdict) else "soft"
            text = f"{write(gain, '+')} ({write(low)} to {write(high)})"
            cells = [tag("span", text, class_=look), f"{p:.3f}" if p >= 0.001 else "< 0.001"]
            row = [
                tag("td", cell, data_value=f"{value:.6g}")
                for cell, value in zip(cells, (gain, p), strict=True)
            ]
            word = f"{verdict.get('verdict')}, {verdict.get('seeds')} seeds"
            return [*row, tag("td", word)] if _verdict_heading(story) else row
    empty = [tag("td", "–") for heading in ("p", _verdict_heading(story)) if heading]
    return [tag("td", "reference" if name == reference else "–", data_value=""), *empty]


def _verdict_heading(story: Story) -> str:
    """Return the heading of the verdicts with their δ; "" if none was declared."""
    deltas = (verdict.get("delta") for verdict in story.comparison.get("verdicts", []))
    delta = next(deltas, None)
    return "" if delta is None else verdict_heading(float(delta), story.unit.points)


def _also(arm: Arm) -> dict[str, float]:
    """Return an arm's further metrics by name."""
    metrics = arm.row.get("also")
    return {str(k): float(v) for k, v in metrics.items()} if isinstance(metrics, Mapping) else {}


def _sections(story: Story) -> list[Html]:
    """Return the sections that a lab adds."""
    return [part for section in story.sections for part in section_html(section)]


def _formulas(story: Story) -> list[Html]:
    rows = []
    if not any(arm.models.get(arm.model) for arm in story.arms):
        return []
    for arm in story.arms:
        own = ", ".join(f"{key}={value}" for key, value in arm.own_settings.items())
        extra = [tag("span", f" with {own}", class_="soft")] if own else []
        rows += [
            tag("dt", shorten(arm.name, 40)),
            tag("dd", tag("span", arm.formula or "–", class_="math"), *extra),
        ]
    formula = "f(q) = Σᵢ softmax(score(q, kᵢ)) vᵢ"
    intro = tag("p", "All attention is ", tag("span", formula, class_="math"),
                " over the tokens of the text, without padding.")  # fmt: skip
    return [tag("h2", "Compared models"), intro, tag("dl", *rows, class_="formulas")]


def _word_order(story: Story) -> list[Html]:
    order = story.comparison.get("word_order")
    if not isinstance(order, Mapping):
        return []
    shares = order.get("arms", {})
    head = tag("tr", tag("th", "arm"), tag("th", "both right"), tag("th", "same answer to both"))
    rows = [
        tag("tr", tag("td", shorten(name, 40)), _cell(f"{percent(s['both'])} %", float(s["both"])),
            _cell(f"{percent(s['same'])} %", float(s["same"])))
        for name, s in shares.items()
    ]  # fmt: skip
    pairs = [_pair(pair) for pair in order.get("shown", [])]
    intro = (
        f"{order.get('pairs')} pairs of sentences; both sentences of a pair have the same words "
        "and opposite labels. A model that ignores word order gives the same answer to both and is "
        "right about exactly one, so it can never be right about both."
    )
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="sortable")
    return [
        tag("h2", "Dependence on word order"), tag("p", intro),
        tag("div", table, class_="scroll"), *pairs,
    ]  # fmt: skip


def _pair(pair: Mapping[str, Any]) -> Html:
    first, second = pair["texts"]
    truths = pair["truths"]
    heads = tag(
        "tr", tag("th", "arm"), tag("th", first, class_="words"), tag("th", second, class_="words")
    )
    truth = tag("tr", tag("td", "true label"), *(tag("td", t, class_="words") for t in truths))
    rows = [
        tag("tr", tag("td", shorten(name, 40)), *(
            tag("td", f"{'✓' if word == t else '✗'} {word}",
                class_="words " + ("right" if word == t else "wrong"))
            for word, t in zip(answers, truths, strict=True)
        ))
        for name, answers in pair["said"].items()
    ]  # fmt: skip
    table = tag("table", tag("thead", heads), tag("tbody", truth, *rows))
    return Figure(table).html()


def validated(story: Story) -> tuple[dict[str, list[Series]], str]:
    """Return the validation curves of each trained arm, a line for each seed, and their label."""
    # For a loss the column "validation" has exp(−loss), which is hard to read.
    by_loss = story.metric in BY_LOSS
    gain = story.unit.lower and not by_loss  # the gain over a constant prediction, as a share
    key, times = ("validation_loss", 1.0) if by_loss else ("validation", story.unit.times)
    times = 100.0 if gain else times
    curves = {
        arm.name: seeds
        for arm in story.arms
        if arm.family != "baseline"
        and (seeds := [c.times(times) for f in arm.folders if (c := arm.curve(f, key)).x])
    }
    metric = f"gain in {story.metric}, %" if gain else story.heading
    return curves, f"validation, {'loss in nats' if by_loss else metric}"


def learning(story: Story) -> Chart | None:
    """Draw the validation curves of all seeds of all arms over common axes; None without any."""
    curves, label = validated(story)
    lines = [
        replace(one, look=look, name="" if i else name)
        for look, (name, seeds) in enumerate(curves.items())
        for i, one in enumerate(seeds)
    ]
    return line_chart("Learning curves", lines, x_label="epochs", y_label=label) if lines else None


def _curves(story: Story) -> list[Html]:
    """Draw a small chart for each arm: its seeds, and the other arms' first seeds in grey."""
    curves, label = validated(story)
    if not curves:
        return []
    firsts = [replace(seeds[0], faint=True) for seeds in curves.values()]
    every = [one for seeds in curves.values() for one in seeds]
    charts = [
        line_chart(name, [*firsts, *(replace(one, look=i) for i, one in enumerate(seeds))],
                   x_label="epochs", y_label=label, width=320, height=230, same_scale=every)
        for name, seeds in curves.items()
    ]  # fmt: skip
    how = (
        "Each coloured line is a seed; grey lines are the first seeds of the other arms. All "
        "panels share one scale. Validation texts are held out of the training set; the test set "
        "is read once, after training."
    )
    how += " Validation decodes some of its texts greedily." if story.writes else ""
    grid = tag("div", *(tag("figure", chart) for chart in charts), class_="grid")
    return [tag("h2", "Learning curves"), tag("p", how, class_="note"), grid]


def _search(story: Story) -> list[Html]:
    """Return the section on the hyperparameter search, if there was one."""
    tuning = story.comparison.get("tuning")
    return search.section(tuning) if isinstance(tuning, Mapping) else []


def cost(story: Story) -> Chart | None:
    """Draw the score of each arm over its training time; None if no time is known."""
    times = story.unit.times
    points = [
        Point(a.name, a.number("seconds"), times * a.mean, times * a.low, times * a.high, a.family,
              a.trained)
        for a in story.scored
    ]  # fmt: skip
    if not any(p.x > 0 for p in points):
        return None
    return scatter(
        f"Cost against {story.metric}", points, x_label="training time of one seed (log scale)",
        y_label=story.heading, seconds=True, digits=story.unit.digits,
    )  # fmt: skip


def _cost(story: Story) -> list[Html]:
    chart = cost(story)
    if chart is None:
        return []
    better = "lower" if story.unit.lower else "higher"
    how = f"Further left is cheaper, {better} is better. Bars are 95 % intervals."
    return [tag("h2", "Cost"), Figure(chart, how).html()]


def _attention(story: Story) -> list[Html]:
    aligned_words = aligned.section(story.arms) if story.writes else []
    return aligned_words or attended.section(story.arms)  # a model may write on from its question


def _mistakes(story: Story) -> list[Html]:
    return written.section(story.scored) if story.writes else mistakes.section(story.scored)


def _data(story: Story) -> list[Html]:
    comparison = story.comparison
    examples = max((arm.right.shape[-1] for arm in story.arms), default=0)
    unit = "tokens" if story.metric == BY_TOKENS else "texts"
    notes = [f"{examples:,} test {unit}, the same for every arm and seed"] if examples else []
    notes += [str(note) for note in comparison.get("notes", [])]
    if comparison.get("signature"):
        notes.append(f"BLEU computed by sacreBLEU, {comparison['signature']}")
    if comparison.get("fingerprint"):
        notes.append(f"data fingerprint: {comparison['fingerprint']}")
    trained = training_table([(arm.name, arm.folders) for arm in story.arms])
    parts = [tag("h2", "Data")] if notes or trained else []
    parts += [tag("ul", *(tag("li", note) for note in notes))] if notes else []
    parts += [trained.html()] if trained else []
    command = comparison.get("command")
    if command:
        line = command if isinstance(command, str) else shlex.join(map(str, command))
        parts += [tag("h2", "Reproduce"), tag("pre", line)]
    if repeat := comparison.get("repeat"):
        parts += [tag("p", IN_STEPS), tag("pre", shlex.join(map(str, repeat)))]
    folders = [folder for arm in story.arms for folder in arm.folders]
    environments = (read_json(folder / "env.json") for folder in folders)
    return parts + machine(next(filter(None, environments), {}))


SECTIONS: tuple[Callable[[Story], list[Html]], ...] = (
    _top, _table, _sections, _word_order, _formulas, _curves, _search, _cost, _attention,
    _mistakes, _data,
)  # fmt: skip
