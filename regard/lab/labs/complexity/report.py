"""The report of the lab ``complexity``: figures and tables of what was counted and measured."""

import math
from collections.abc import Mapping, Sequence

from regard.analysis.timing import Interval
from regard.lab.labs.complexity.fits import Crossing, Fit, briefly, rounded
from regard.lab.labs.complexity.layers import LAYERS
from regard.lab.labs.complexity.measures import CHAINS, PATHS, Measured
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell, Figure, Section, Table
from regard.lab.reports.markup import Html

LOOKS = {name: look for look, name in enumerate((*LAYERS, "dilated cnn"))}
#: Sequential operations and path lengths by the table; Linformer's and the window's by reasoning.
TABLE = {
    "cnn": ("O(1)", "O(n/k)"),
    "dilated cnn": ("O(1)", "O(log n to the base k)"),
    "rnn": ("O(n)", "O(n)"),
    "self-attention": ("O(1)", "O(1)"),
    "linformer": ("O(1)", "O(1)"),
    "window": ("O(1)", "O(n/w)"),
}


def sections(
    measured: Measured, fits: Mapping[str, Fit], crossings: Sequence[Crossing]
) -> list[Section]:
    """Return the report."""
    return [
        pays(measured, crossings),
        operations(measured, fits),
        costs(measured),
        waits(measured),
    ]


def pays(measured: Measured, crossings: Sequence[Crossing]) -> Section:
    """Return the section on the lengths from which each layer pays."""
    settings, how, lengths = measured.settings, measured.last, measured.settings.lengths
    layers = measured.counted.layers
    many = layers["self-attention"][-1] / layers["rnn"][-1]
    long = measured.ratios(how, "self-attention", "rnn")[-1].median
    figure = Figure(
        ratios(measured),
        "What to see here: above the line at 1 a layer is slower than self-attention at the same "
        "length, below it is faster. Where a curve falls through it, the layer begins to pay. "
        "Bars: intervals of the ratio, which is taken round by round.",
    )
    rows: list[list[Cell]] = [
        [
            c.ours,
            briefly(c.operations, lengths),
            *(briefly(at, lengths, (a, b)) for at, a, b in c.times.values()),
        ]
        for c in crossings
    ]
    table = Table(
        "From which length n on does it cost less than self-attention?",
        ["layer", "by operations", *(f"by time, {how}" for how in settings.passes)],
        rows,
        note="Between two measured lengths the ratio is taken as a power of n. In brackets: the "
        "earliest and the latest length that the intervals of the ratio allow. "
        f"≤ {lengths[0]:,}: at every length measured; > {lengths[-1]:,}: at none.",
    )
    says = [
        f"Layers that take n vectors of width d = {settings.d} and give as many, batch "
        f"{settings.batch}, float32: a convolution over {settings.kernel} places, an RNN (tanh), "
        f"self-attention with {settings.heads} head{'s' * (settings.heads > 1)}, Linformer (keys "
        f"and values mixed down to {settings.rank} rows; Wang et al. 2020, equation 7), a window "
        f"of {settings.window} positions to each side. "
        + (
            "The three attentions have their four projections, as in a model."
            if settings.projections
            else "The three attentions are without projections."
        ),
        f"Compared by {how}. Operations and time tell different stories: at n = {lengths[-1]:,} "
        f"self-attention does {rounded(many)} times the operations of the rnn in {rounded(long)} "
        "times its time. The rnn does its few one after the other.",
    ]
    return Section("From which length does what pay here?", says, [figure], [table])


def ratios(measured: Measured) -> Html:
    """Return each layer's time over that of self-attention."""
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


def operations(measured: Measured, fits: Mapping[str, Fit]) -> Section:
    """Return the table of the seed, fitted."""
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
    window = fits["window"].lengths
    alike = (
        " Where the window's line runs along self-attention's, regard hands the mask to torch's "
        "kernel, which computes every pair and throws away what is hidden."
    )
    where = (
        f"The window's is fitted from n = {window[0]:,} on, many windows long, where blocks out of "
        "its sight are left out." + alike
        if len(window) > 1
        else "For the window's these lengths are too short: it needs two of 16 windows or more at "
        "which blocks out of sight are left out." + alike
    )
    says = [
        "Counted while the layers ran: every matrix product, convolution and fused attention, a "
        "multiplication with its addition as one. Attention is counted without its projections, "
        "as the table has it, one head. Exponents are slopes of lines through the logarithms. "
        + where,
        "The table is that of Vaswani et al. 2017 (table 1), which the seed's second note quotes; "
        "for Linformer (r rows) and a window (w positions) it has no row, and n·r and n·w stand in "
        "the place of n².",
    ]
    table = Table(
        "Operations by the table, and counted",
        ["layer", "by the table", "counted", f"at n = {settings.lengths[-1]:,}"],
        [[name, fits[name].order, fits[name].says, counted.over_n[name][-1]] for name in LAYERS],
        note="n: length, d: width, k: places of the kernel, r: rows of Linformer, w: positions of "
        "the window. Multiplications with their additions.",
    )
    see = "What to see here: on logarithmic axes a power is a straight line, and its slope is the "
    return Section(
        "Operations: the table, fitted",
        says,
        [
            Figure(over_n, see + "exponent. Only self-attention keeps the slope 2 to the end."),
            Figure(
                over_d,
                see + "exponent: 2 for what mixes the columns by a matrix at each position, 1 for "
                "attention, which is why attention is cheap for wide vectors and short texts.",
            ),
            Figure(over_k, see + "exponent: twice the kernel, twice the operations."),
        ],
        [table],
    )


def costs(measured: Measured) -> Section:
    """Return the section on times and memory."""
    settings = measured.settings
    fewest, most = measured.rounds
    start = settings.lengths[measured.longest][0]
    figures = [
        Figure(
            _times(measured, how),
            "What to see here: short sequences cost what it takes to call a layer at all, so that "
            "the powers of the table show only to the right: from "
            f"n = {start:,} on the slopes are {_slopes(measured, how)}. Bars: intervals.",
        )
        for how in reversed(settings.passes)
    ]
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
    figures.append(
        Figure(
            over_d,
            f"What to see here: from d = {settings.widths[0]} to {settings.widths[-1]} operations "
            f"of the rnn grow {rounded(work[-1] / work[0])}-fold, its time {rounded(slower)}-fold: "
            "at small widths a step costs what it takes to call it.",
        )
    )
    tables = [
        _by_length(
            f"Milliseconds, {how}",
            measured,
            {name: [_interval(time) for time in times] for name, times in found.items()},
            {
                name: f"{measured.grows([time.median for time in times]):.2f}"
                for name, times in found.items()
            },
            f"Median and an interval that holds it with 95 %, of {fewest} to {most} rounds through "
            f"all layers and lengths in turns. Last row: the exponent in n from {start:,} on.",
        )
        for how in reversed(settings.passes)
        for found in [{name: measured.times(how, name) for name in LAYERS}]
    ]
    if settings.memory:
        figures.append(
            Figure(
                _chart(
                    f"Memory beside the inputs, {measured.last}",
                    {name: (name, measured.memory[name]) for name in LAYERS},
                    settings.lengths,
                    "length n",
                    "megabytes",
                ),
                "What to see here: self-attention has n² weights, and torch's fused kernel never "
                f"holds them: from n = {start:,} on memory grows as "
                f"n^{measured.memory_grows('self-attention'):.2f}.",
            )
        )
        tables.append(
            _by_length(
                f"Megabytes at the peak beside inputs and weights, {measured.last}",
                measured,
                measured.memory,
                {name: measured.memory_grows(name) for name in LAYERS},
                "In a process of its own, the median of three calls; below some megabytes what is "
                "measured is mostly the C library's own pages. "
                f"Last row: the exponent in n from {start:,} on.",
            )
        )
    says = [
        "Every layer at every length is called in turns, so that whatever else the machine does "
        "strikes all alike; a fit of the exponent is over the longest lengths."
    ]
    return Section("Time and memory, measured", says, figures, tables)


def _by_length(
    title: str,
    measured: Measured,
    cells: Mapping[str, Sequence[Cell]],
    exponents: Mapping[str, Cell],
    note: str,
) -> Table:
    """Return a row for each length and one of the exponents, a column for each layer."""
    rows: list[list[Cell]] = [
        [f"n = {n:,}", *(cells[name][i] for name in LAYERS)]
        for i, n in enumerate(measured.settings.lengths)
    ]
    rows.append(["exponent", *(exponents[name] for name in LAYERS)])
    return Table(title, ["length", *LAYERS], rows, note)


def waits(measured: Measured) -> Section:
    """Return the section on sequential steps and path lengths."""
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
    says = [
        "The longest chain of operations, none of which can begin before the one before it is "
        "done, is read off the graph that autograd keeps of a small layer: what a machine with any "
        "number of processors would still have to do one after the other. An operation of torch "
        "counts as one (a matrix product too, though its sums have a depth of log d).",
        "The path is how many layers lie on top of each other (in the rnn: how many steps a "
        "gradient must pass) until the gradient of the last output at the first input is no longer "
        "0. A dilated convolution looks k times as far at each layer (van den Oord et al. 2016).",
    ]
    table = Table(
        "One after the other, by the table and measured",
        [
            "layer",
            "sequential by the table",
            f"chain at n = {CHAINS[0]}, {CHAINS[-1]}",
            "path by the table",
            f"path at n = {PATHS[0]}, {PATHS[-1]}",
        ],
        [_row(measured, name) for name in waiting.paths],
        note="Chain: operations of torch that must wait for each other. Path: layers (of the rnn: "
        "steps) until the last output depends on the first input.",
    )
    return Section(
        "What must wait, and how far a signal travels",
        says,
        [
            Figure(depth, "What to see here: the rnn's chain grows with n, all others are flat: "
                   "their positions can be computed at the same time."),
            Figure(path, "What to see here: attention and Linformer join any two positions in one "
                   "layer; a window and a convolution need layers in proportion to n, a dilated "
                   "convolution its logarithm."),
        ],
        [table],
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


def _slopes(measured: Measured, how: str) -> str:
    medians = {name: [x.median for x in measured.times(how, name)] for name in LAYERS}
    return ", ".join(f"{name} {measured.grows(times):.2f}" for name, times in medians.items())


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
