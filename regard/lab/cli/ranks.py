"""``regard ranks``: compare the same arms over several data sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.lab.cli import completion
from regard.lab.cli.console import Json, emit_json, print_table, say

if TYPE_CHECKING:
    from regard.lab.studies.ranks import Ranks


def ranks(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders of comparisons with the same arms, each on another data set; at least "
            "five.",
            autocompletion=completion.runs,
        ),
    ],
    delta: Annotated[
        float | None,
        typer.Option(
            help="Difference that does not matter, in the metric's unit.",
            show_default="1 point, 1 BLEU, 0.01 nats, 0.01 of R²",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare the same arms over several data sets.

    The best arm of a data set has rank 1. Friedman's test says whether any mean ranks differ,
    Nemenyi's critical difference by how much two must. Each pair has the p of Wilcoxon's
    signed-rank test, and the probabilities that the first is better, that the difference is within
    --delta, and that the second is better.

    regard ranks runs/reviews runs/films runs/news runs/mail runs/my --delta 1
    """
    from regard.lab.studies.ranks import read_ranks

    ranks = read_ranks(folders, delta)
    if json:
        emit_json(ranks.json())
    else:
        show_ranks(ranks)


def show_ranks(ranks: "Ranks") -> None:
    """Print the arms, Friedman's test, the pairs and the notes."""
    from regard.lab.studies.statistics import format_p, written_margin
    from regard.lab.tasks import unit_of

    unit = unit_of(ranks.metric)
    say(f"{len(ranks.data)} data sets: {', '.join(ranks.data)}")
    say()
    heads = ["arm", "mean rank", f"mean {unit.heading(ranks.metric)}"]
    print_table(
        heads,
        [[arm.name, f"{arm.mean_rank:.2f}", unit.write(arm.mean)] for arm in ranks.arms],
        right=heads[1:],
    )
    say()
    if ranks.sentence:
        say(ranks.sentence)
        say()
    heads = ["A − B", f"difference{f', {unit.points}' if unit.points else ''}", "p (Holm)"]
    heads += ["P(A better)", f"P(within {written_margin(ranks.delta / unit.times, unit.points)})"]
    heads += ["P(B better)"]
    rows = [
        [
            f"{pair.a} − {pair.b}",
            unit.write(pair.difference, "+"),
            format_p(pair.p).removeprefix("p ").removeprefix("= "),
            *(f"{100 * share:.1f} %" for share in (pair.a_better, pair.equivalent, pair.b_better)),
        ]
        for pair in ranks.pairs
    ]
    print_table(heads, rows, right=heads[1:])
    for note in ranks.notes:
        say(f"not trained to the end: {note}")
