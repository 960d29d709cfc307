"""Small networks trained side by side in one process, and real studies of one method with itself.

    python -m benchmarks.side_by_side speed
    python -m benchmarks.side_by_side studies --studies 100 --json FILE

`speed` compares a step of one network with a step of several as one batch of networks
(`torch.func.vmap` over their stacked parameters), interleaved, on one thread. `studies` trains a
decoder twice with other seeds as two arms of a study, adds seeds as `regard compare --seeds 3..30`
does, and counts how often the equal arms are called different.
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from regard.analysis.timing import in_turns
from regard.core.atomic_io import write_json
from regard.lab.data.symbols import UNASKED, Recall
from regard.lab.runs.build import build_network
from regard.lab.runs.config import Config
from regard.lab.studies.statistics import compare_runs
from regard.lab.studies.stopping import decide, looks

MECHANISMS = ("multi-head", "linear", "delta", "kda", "forgetting")
SHAPES = ((64, 24), (16, 24), (8, 16))  # examples of a batch, and symbols of an example
SYMBOLS, PAIRS, LENGTH, BATCH = 16, 2, 12, 16
TOGETHER = 20  # networks at once
TESTED = 200
MARGIN = 0.03  # the difference that does not matter: about a standard deviation of a seed
Stacked = Mapping[str, Tensor]


def network(attention: str, seed: int, width: int = 32, symbols: int = SYMBOLS) -> nn.Module:
    """Return a decoder for MQAR with two layers."""
    pairs = [
        f"width={width}", "heads=2", "layers=2", f"feedforward={4 * width}", f"symbols={symbols}",
        "position=rotary", "dropout=0", f"attention={attention}",
    ]  # fmt: skip
    torch.manual_seed(seed)
    return build_network(
        Config.make("mqar", "gpt", pairs), vocabulary=symbols, labels=symbols // 2
    ).train()


class Together:
    """Networks of one size as one batch, with one optimizer."""

    def __init__(self, networks: Sequence[nn.Module], rate: float = 3e-3) -> None:
        self.base = copy.deepcopy(networks[0]).to("meta")
        parameters, self.buffers = stack_module_state(list(networks))
        self.parameters = {name: one.detach().requires_grad_() for name, one in parameters.items()}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), rate, fused=True)

    def answers(self, symbols: Int[Tensor, "networks batch time"]) -> Tensor:
        """Return the scores of the answers at each position, of each network."""
        lengths = torch.full((symbols.shape[1],), symbols.shape[2])

        def one(parameters: Stacked, buffers: Stacked, symbols: Tensor) -> Tensor:
            state = {**parameters, **buffers}
            found: Tensor = functional_call(self.base, state, (symbols, lengths))
            return found

        return vmap(one)(self.parameters, self.buffers, symbols)

    def step(self, symbols: Tensor, targets: Tensor) -> None:
        """Make one step of every network on its own batch."""
        scores = self.answers(symbols)
        loss = nn.functional.cross_entropy(
            scores.flatten(0, 2), targets.flatten(), ignore_index=UNASKED, reduction="sum"
        )
        self.optimizer.zero_grad()
        (loss / max(1, int((targets[0] != UNASKED).sum()))).backward()
        self.optimizer.step()


def speed(turns: int = 7) -> None:
    """Print the time of a step of one network alone and beside others."""
    print("| mechanism | batch | one alone, ms | side by side, ms each | ratio |")
    print("|---|--:|--:|--:|--:|")
    for attention in MECHANISMS:
        for batch, length in SHAPES:
            networks = [network(attention, seed, symbols=64) for seed in range(8)]
            together = Together(networks)
            symbols = torch.randint(0, 64, (8, batch, length))
            targets = torch.randint(0, 32, (8, batch, length))
            one, all_s = in_turns(
                plain(networks[0], symbols[0], targets[0]),
                partial(together.step, symbols, targets),
                turns,
            )
            each = all_s / len(networks)
            print(f"| {attention} | {batch} × {length} | {1e3 * one:.1f} | {1e3 * each:.1f} "
                  f"| {one / each:.2f} |", flush=True)  # fmt: skip


def plain(module: nn.Module, symbols: Tensor, targets: Tensor) -> Callable[[], None]:
    """Return a step of one network as it is trained alone."""
    optimizer = torch.optim.AdamW(module.parameters(), 3e-3, fused=True)
    lengths = torch.full(symbols.shape[:1], symbols.shape[1])

    def step() -> None:
        optimizer.zero_grad()
        scores = module(symbols, lengths)
        nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()

    return step


def trained(seeds: Sequence[int], tests: Sequence[int], steps: int) -> list[Bool[np.ndarray, " n"]]:
    """Train a network for each seed, and return which answers of its test are right."""
    puzzle = Recall(SYMBOLS, PAIRS)
    right: list[Bool[np.ndarray, " n"]] = []
    for first in range(0, len(seeds), TOGETHER):
        some = seeds[first : first + TOGETHER]
        networks = Together([network("multi-head", seed, width=16) for seed in some])
        drawn = [puzzle.draw(np.random.default_rng([1, seed]), steps * BATCH, LENGTH)
                 for seed in some]  # fmt: skip
        symbols = torch.from_numpy(np.stack([one.symbols for one in drawn])).long()
        targets = torch.from_numpy(np.stack([one.targets for one in drawn])).long()
        for step in range(steps):
            part = slice(step * BATCH, (step + 1) * BATCH)
            networks.step(symbols[:, part], targets[:, part])
        held = [puzzle.draw(np.random.default_rng([2, test]), TESTED, LENGTH)
                for test in tests[first : first + TOGETHER]]  # fmt: skip
        with torch.no_grad():
            asked = torch.from_numpy(np.stack([one.symbols for one in held])).long()
            found = networks.answers(asked).argmax(-1).numpy()
        for answers, one in zip(found, held, strict=True):
            where = one.targets != UNASKED
            right.append((answers == one.targets)[where])
    return right


def studies(count: int, steps: int) -> dict[str, object]:
    """Compare one method with itself in studies that add seeds; return how they ended."""
    declared = looks(3, 30)
    scores: list[tuple[list[np.ndarray], list[np.ndarray]]] = [([], []) for _ in range(count)]
    ends: dict[int, tuple[str, int]] = {}
    begun = time.perf_counter()
    for before, look in zip((0, *declared), declared, strict=False):
        open_studies = [study for study in range(count) if study not in ends]
        wanted = [(study, arm, seed) for study in open_studies for arm in (0, 1)
                  for seed in range(before, look)]  # fmt: skip
        found = trained([1000 * (2 * study + arm) + seed for study, arm, seed in wanted],
                        [study for study, _, _ in wanted], steps)  # fmt: skip
        for (study, arm, _), right in zip(wanted, found, strict=True):
            scores[study][arm].append(right.astype(float))
        for study in open_studies:
            first, second = (np.stack(arm) for arm in scores[study])
            (one,) = decide([compare_runs(first, second, ("a", "b"))], MARGIN, [(look, declared)])
            if one.verdict != "undecided" or look == declared[-1]:
                ends[study] = (str(one.verdict), look)
        print(f"{look} seeds: {len(ends)} of {count} ended, {time.perf_counter() - begun:.0f} s",
              flush=True)  # fmt: skip
    verdicts = [verdict for verdict, _ in ends.values()]
    spread = [float(np.std([right.mean() for right in arm], ddof=1))
              for study in scores for arm in study]  # fmt: skip
    return {
        "studies": count,
        **{name: verdicts.count(name) for name in ("different", "equivalent", "undecided")},
        "seeds": statistics.mean(look for _, look in ends.values()),
        "accuracy": statistics.mean(float(r.mean()) for study in scores for a in study for r in a),
        "spread": statistics.mean(spread),
        "trainings": sum(len(arm) for study in scores for arm in study),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table or the result of the studies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["speed", "studies"])
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.what == "speed":
        speed()
        return 0
    found = studies(options.studies, options.steps)
    print(found)
    if options.json:
        write_json(options.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
