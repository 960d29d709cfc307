"""More evaluations of the trained arms: other search settings, and alignment by head."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from regard.lab.labs.running import load_complete
from regard.lab.reports.evidence import Arm
from regard.lab.reports.findings import Cell, Table
from regard.lab.tasks import unit_of
from regard.lab.tasks.writing.metrics import Aligned, alignment_error

if TYPE_CHECKING:
    from regard.lab.runs import Run

TEXTS = 200  # test texts, decoded by each search
BEAMS = (1, 2, 5, 10)
HEADS_TEXTS = 200  # test texts whose alignment is measured by head
SEARCH = (
    "Mean ln p: mean log-probability of the generated texts; a wider beam finds more probable "
    "texts, which need not be better. Length ratio: characters generated over characters of the "
    "reference."
)


def best_of(found: Sequence[Arm]) -> Arm | None:
    """Return the arm with the highest mean among those whose runs exist."""
    candidates = [arm for arm in found if arm.folders]
    return max(candidates, key=lambda arm: arm.mean, default=None)


def search_table(run: "Run") -> Table:
    """Return a table of score, ln p and time of greedy and beam search on test texts."""
    from regard.lab.tasks.writing.task import spread

    evaluation = run.evaluate()
    examples = [evaluation.examples[i] for i in spread(evaluation.n, TEXTS)]
    wanted = sum(len(example.label) for example in examples)
    rows: list[list[Cell]] = []
    run.predict(examples[0].text)  # loads the network, outside of the measured time
    for size in BEAMS:
        begun = time.perf_counter()
        plan = replace(run.task.search, beam=size)
        candidates = run.best([example.text for example in examples], plan)
        seconds = time.perf_counter() - begun
        first = [texts[0] for texts in candidates]
        rows.append(
            [
                "greedy" if size == 1 else f"beam {size}",
                round(100 * run.task.evaluation(examples, first).value, 1),
                round(float(np.mean([text.log_probability for text in first])), 2),
                round(sum(len(text.text) for text in first) / max(wanted, 1), 3),
                round(1000 * (seconds / len(examples)), 1),
            ]
        )
    value = unit_of(run.task.metric).heading(run.task.metric)
    heads = ["search", value, "mean ln p", "length ratio", "ms per text"]
    return Table("Beam search against greedy decoding", heads, rows, SEARCH)


def head_table(found: Sequence[Arm]) -> tuple[tuple[list[str], list[list[Cell]]], float] | None:
    """Return the alignment error of each head and of all together, if the truth is known.

    The number is the weight that uniform attention puts on the true field.
    """
    from regard.lab.reports.aligned import plain_layer
    from regard.lab.tasks.writing.alignment import weighed

    rows: list[list[Cell]] = []
    for arm in found:
        run = load_complete(arm.folders[0]) if arm.family == "attention" and arm.folders else None
        if run is None:
            continue
        heads: dict[str, list[Aligned]] = {}
        whole: list[Aligned] = []
        with run.computing():
            pairs = run.task.split("test").pairs[:HEADS_TEXTS]
            for _, layers, truth in weighed(run.task, run.network, pairs):
                mean = np.mean([seen.mean(0) for seen in layers.values()], 0)
                whole.append(alignment_error(mean, truth))
                for layer, seen in layers.items():
                    for number, head in enumerate(seen, 1):
                        name = f"{plain_layer(layer)}, head {number}"
                        heads.setdefault(name, []).append(alignment_error(head, truth))
        if not whole:
            return None
        joined = Aligned.joined(whole)
        rows.append(_row(arm.name, "all", joined))
        if len(heads) > 1:
            rows += [_row(arm.name, name, Aligned.joined(one)) for name, one in heads.items()]
        guess = joined.guess
    if not rows:
        return None
    heads_of = ["arm", "head", "alignment error, %", "weight on the true field, %"]
    return (heads_of, rows), guess


def _row(arm: str, head: str, aligned: Aligned) -> list[Cell]:
    return [arm, head, round(100 * aligned.error, 1), round(100 * aligned.mass, 1)]
