"""The figures and tables of the lab ``complexity``."""

import math
from collections.abc import Mapping, Sequence

from regard.analysis.timing import Interval
from regard.lab.labs.complexity.fits import Crossing, Fit, briefly, rounded
from regard.lab.labs.complexity.layers import LAYERS
from regard.lab.labs.complexity.measures import CHAINS, PATHS, Measured
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell
from regard.lab.reports.markup import Html

LOOKS = {name: look for look, name in enumerate((*LAYERS, "dilated cnn"))}
#: Sequential operations and path lengths: from the table; for Linformer and windows, derived.
TABLE = {
    "cnn": ("O(1)", "O(n/k)"),
    "dilated cnn": ("O(1)", "O(log n to the base k)"),
    "rnn": ("O(n)", "O(n)"),
    "self-attention": ("O(1)", "O(1)"),
    "linformer": ("O(1)", "O(1)"),
    "window": ("O(1)", "O(n/w)"),
}


def described(
    measured: Measured, fits: Mapping[str, Fit], crossings: Sequence[Crossing]
) -> Findings:
    """Return the figures and tables, and the values that the page shows."""
    return Findings.joined(
        [pays(measured, crossings), operations(measured, fits), costs(measured), waits(measured)]
    )


def pays(measured: Measured, crossings: Sequence[Crossing]) -> Findings:
    """Return the lengths from which each layer is the cheaper one."""
    settings, how, lengths = measured.settings, measured.last, measured.settings.lengths
    layers = measured.counted.layers
    many = layers["self-attention"][-1] / layers["rnn"][-1]
    long = measured.ratios(how, "self-attention", "rnn")[-1].median
    rows: list[list[Cell]] = [
        [
            c.ours,
            briefly(c.operations, lengths),
            *(briefly(at, lengths, (a, b)) for at, a, b in c.times.values()),
        ]
        for c in crossings
    ]
    columns = ["layer", "by operations", *(f"by time, {how}" for how in settings.passes)]
    return Findings(
        {},
        {
            "d": settings.d, "batch": settings.batch, "kernel": settings.kernel,
            "heads": settings.heads, "rank": settings.rank, "window": settings.window,
            "projections": settings.projections, "how": how, "lengths": lengths,
            "crossings": {c.ours: c.says(how, lengths) for c in crossings},
            "faster": {
                name: rounded(1 / measured.ratios(how, name, "self-attention")[-1].median)
                for name in LAYERS if name != "self-attention"
            },
            "times_operations": rounded(many), "times_time": rounded(long),
        },
        {"ratios": ratios(measured)},
        {"crossings": (columns, rows)},
    )  # fmt: skip


def ratios(measured: Measured) -> Html:
    """Return each layer's time divided by that of self-attention."""
    lengths, how = measured.settings.lengths, measured.last
    series = [Series("", lengths, [1.0] * len(lengths), faint=True)]
    for name in LAYERS:
        if name == "self-attention":
            continue
        middle, low, high = zip(*measured.ratios(how, name, "self-attention"), strict=True)
        series.append(Series(name, lengths, middle, look=LOOKS[name], low=low, high=high))
    return line_chart(
        f"Time beside self-attention, {how}",
        series,
        x_label="length n",
        y_label="time / time of self-attention",
        log_x=True,
        log_y=True,
    )


def operations(measured: Measured, fits: Mapping[str, Fit]) -> Findings:
    """Return the table of exponents, counted and published."""
    settings, counted = measured.settings, measured.counted
    over_n = _chart(
        f"Operations over length (d = {settings.d})",
        {_named(fits[name], 0): (name, counted.over_n[name]) for name in LAYERS},
        settings.lengths,
        "length n",
        "multiply-adds",
    )
    over_d = _chart(
        f"Operations over width (n = {settings.middle:,})",
        {_named(fits[name], 1): (name, counted.over_d[name]) for name in LAYERS},
        settings.widths,
        "width d",
        "multiply-adds",
    )
    over_k = _chart(
        f"Operations over kernel (n = {settings.middle:,})",
        {_named(fits["cnn"], 2): ("cnn", counted.over_k)},
        settings.kernels,
        "kernel k",
        "multiply-adds",
    )
    columns = ["layer", "by the table", "counted", f"at n = {settings.lengths[-1]:,}"]
    rows: list[list[Cell]] = [
        [name, fits[name].order, fits[name].says, counted.over_n[name][-1]] for name in LAYERS
    ]
    return Findings(
        {},
        {"fits": fits, "most_off": max(fitted.off for fitted in fits.values())},
        {"over-n": over_n, "over-d": over_d, "over-k": over_k},
        {"operations": (columns, rows)},
    )


def costs(measured: Measured) -> Findings:
    """Return times and memory."""
    settings, passes = measured.settings, [*reversed(measured.settings.passes)]
    times = {how: {name: measured.times(how, name) for name in LAYERS} for how in passes}
    slopes = {
        how: {name: measured.grows([one.median for one in found]) for name, found in layers.items()}
        for how, layers in times.items()
    }
    work = measured.counted.over_d["rnn"]
    steps = measured.times_over_width("rnn")
    slower = steps[-1].median / steps[0].median
    over_d = line_chart(
        f"Time over width, {measured.last} (n = {settings.middle:,})",
        [_timed(name, settings.widths, measured.times_over_width(name)) for name in LAYERS],
        x_label="width d",
        y_label="milliseconds",
        log_x=True,
        log_y=True,
    )
    figures = {f"times-{i}": _times(measured, how) for i, how in enumerate(passes)}
    tables = {
        f"milliseconds-{i}": _by_length(
            measured,
            {name: [_interval(time) for time in found] for name, found in times[how].items()},
            {name: f"{slope:.2f}" for name, slope in slopes[how].items()},
        )
        for i, how in enumerate(passes)
    }
    if settings.memory:
        figures["memory"] = _chart(
            f"Memory beside the inputs, {measured.last}",
            {name: (name, measured.memory[name]) for name in LAYERS},
            settings.lengths,
            "length n",
            "megabytes",
        )
        grows = {name: measured.memory_grows(name) for name in LAYERS}
        tables["megabytes"] = _by_length(measured, measured.memory, grows)
    return Findings(
        {},
        {
            "start": settings.lengths[measured.longest][0], "slopes": slopes,
            "widths": settings.widths, "width_work": rounded(work[-1] / work[0]),
            "width_time": rounded(slower), "rounds": measured.rounds,
            "memory_grows": measured.memory_grows("self-attention") if settings.memory else None,
        },
        {**figures, "times-over-d": over_d},
        tables,
    )  # fmt: skip


def _by_length(
    measured: Measured, cells: Mapping[str, Sequence[Cell]], exponents: Mapping[str, Cell]
) -> tuple[list[str], list[list[Cell]]]:
    """Return a row for each length and one of the exponents, a column for each layer."""
    rows: list[list[Cell]] = [
        [f"n = {n:,}", *(cells[name][i] for name in LAYERS)]
        for i, n in enumerate(measured.settings.lengths)
    ]
    rows.append(["exponent", *(exponents[name] for name in LAYERS)])
    return ["length", *LAYERS], rows


def waits(measured: Measured) -> Findings:
    """Return sequential steps and path lengths."""
    waiting = measured.waiting
    depth = _chart(
        "Operations that must wait for each other",
        {name: (name, waiting.chains[name]) for name in LAYERS},
        CHAINS,
        "length n",
        "longest chain",
    )
    path = _chart(
        "Between the two ends of a sequence",
        {name: (name, waiting.paths[name]) for name in waiting.paths},
        PATHS,
        "length n",
        "layers or steps",
    )
    columns = [
        "layer", "sequential by the table", f"chain at n = {CHAINS[0]}, {CHAINS[-1]}",
        "path by the table", f"path at n = {PATHS[0]}, {PATHS[-1]}",
    ]  # fmt: skip
    return Findings(
        {},
        {"chains": waiting.chains, "paths": waiting.paths, "chain_lengths": CHAINS,
         "path_lengths": PATHS},
        {"chains": depth, "paths": path},
        {"waiting": (columns, [_row(measured, name) for name in waiting.paths])},
    )  # fmt: skip


def _row(measured: Measured, name: str) -> list[Cell]:
    path, chain = measured.waiting.paths[name], measured.waiting.chains.get(name)
    sequential, far = TABLE[name]
    steps = "–" if chain is None else f"{chain[0]}, {chain[-1]}"
    return [name, sequential, steps, far, f"{path[0]:g}, {path[-1]:g}"]


def _chart(
    title: str,
    named: Mapping[str, tuple[str, Sequence[float]]],
    sizes: Sequence[int],
    x_label: str,
    y_label: str,
) -> Html:
    series = [Series(says, sizes, values, look=LOOKS[key]) for says, (key, values) in named.items()]
    return line_chart(title, series, x_label=x_label, y_label=y_label, log_x=True, log_y=True)


def _times(measured: Measured, how: str) -> Html:
    lengths = measured.settings.lengths
    return line_chart(
        f"Time over length, {how} (d = {measured.settings.d})",
        [_timed(name, lengths, measured.times(how, name)) for name in LAYERS],
        x_label="length n",
        y_label="milliseconds",
        log_x=True,
        log_y=True,
    )


def _timed(name: str, sizes: Sequence[int], times: Sequence[Interval]) -> Series:
    middle, low, high = ([1e3 * x for x in side] for side in zip(*times, strict=True))
    return Series(name, sizes, middle, look=LOOKS[name], low=low, high=high)


def _interval(time: Interval) -> str:
    return f"{_three(time.median)} [{_three(time.low)}, {_three(time.high)}]"


def _three(seconds: float) -> str:
    """Return milliseconds with three significant figures."""
    value = seconds * 1e3
    places = min(3, max(0, 2 - math.floor(math.log10(max(value, 1e-9)))))
    return f"{value:,.{places}f}"


def _named(fit: Fit, place: int) -> str:
    """Return a layer with its exponent in n (0), d (1) or k (2), where there is one."""
    power = fit.counted[place]
    return fit.name if power is None or power != power else f"{fit.name} {'ndk'[place]}^{power:.2f}"
