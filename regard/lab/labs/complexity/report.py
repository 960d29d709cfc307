"""The figures and tables of the lab ``complexity``."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from regard.analysis.timing import Interval
from regard.lab.labs.complexity.fits import Crossing, Fit, briefly
from regard.lab.labs.complexity.layers import LAYERS
from regard.lab.labs.complexity.measures import CHAINS, PATHS, Measured
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell
from regard.lab.reports.markup import Html
from regard.lab.reports.scales import rounded

logs = partial(line_chart, log_x=True, log_y=True)
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
            "crossings": {c.ours: c.times[how] for c in crossings}, "infinite": math.inf,
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
        if name != "self-attention":
            times = measured.ratios(how, name, "self-attention")
            series.append(Series.ranged(name, lengths, times, LOOKS[name]))
    title, label = f"Time beside self-attention, {how}", "time / time of self-attention"
    return logs(title, series, x_label="length n", y_label=label)


def operations(measured: Measured, fits: Mapping[str, Fit]) -> Findings:
    """Return the table of exponents, counted and published."""
    settings, counted = measured.settings, measured.counted
    fixed = f"n = {settings.middle:,}"
    sizes: list[tuple[str, str, Sequence[int], Mapping[str, Sequence[float]]]] = [
        ("length n", f"d = {settings.d}", settings.lengths, counted.over_n),
        ("width d", fixed, settings.widths, counted.over_d),
        ("kernel k", fixed, settings.kernels, {"cnn": counted.over_k}),
    ]
    figures = {
        f"over-{label[-1]}": _chart(
            f"Operations over {label[:-2]} ({other})",
            {_named(fits[name], place): (name, counts) for name, counts in layers.items()},
            over, label, "multiply-adds",
        )
        for place, (label, other, over, layers) in enumerate(sizes)
    }  # fmt: skip
    columns = ["layer", "by the table", "counted", f"at n = {settings.lengths[-1]:,}"]
    rows: list[list[Cell]] = [
        [name, fits[name].order, fits[name].says, counted.over_n[name][-1]] for name in LAYERS
    ]
    return Findings(
        {},
        {"fits": fits, "most_off": max(fitted.off for fitted in fits.values())},
        figures,
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
    figures = {
        f"times-{i}": _timed(
            f"Time over length, {how} (d = {settings.d})", settings.lengths, times[how], "length n"
        )
        for i, how in enumerate(passes)
    }
    figures["times-over-d"] = _timed(
        f"Time over width, {measured.last} (n = {settings.middle:,})", settings.widths,
        {name: measured.times_over_width(name) for name in LAYERS}, "width d",
    )  # fmt: skip
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
        figures,
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
    return logs(title, series, x_label=x_label, y_label=y_label)


def _timed(
    title: str, sizes: Sequence[int], layers: Mapping[str, Sequence[Interval]], label: str
) -> Html:
    series = [
        Series.ranged(name, sizes, times, LOOKS[name], times=1e3) for name, times in layers.items()
    ]
    return logs(title, series, x_label=label, y_label="milliseconds")


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
