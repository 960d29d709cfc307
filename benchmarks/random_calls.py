"""Random calls of `attend` compared with a plain loop in float64 without common code.

    python -m benchmarks.random_calls --calls 20000 --out calls.json

Each call draws its score, positions, mask, normaliser, shapes, heads and numbers; keys that no
query may see sometimes contain NaN or infinity. It is computed by every path (``exact``, ``plain``,
``fused``, ``tiled``, and the one that regard chooses), in strips of a random size. Output, weights,
summary and all gradients must agree with `benchmarks.plain_loop`. ``--show NUMBER`` describes
one call.
"""

import argparse
import math
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from benchmarks import plain_loop
from benchmarks.parity import apart
from regard.attention import (
    NORMALIZERS,
    POSITIONS,
    SCORES,
    Attended,
    Mask,
    Score,
    attend,
    blocks,
    causal,
    dense,
    documents,
    global_tokens,
    lengths,
    lengths_per_query,
    make_score,
    others,
    prefix,
    use,
    window,
)
from regard.attention.kernels import choose
from regard.core import atomic_io
from regard.core.errors import RegardError

KERNELS = ("", *get_args(choose.Kernel))
WRAPPED = ("none", "rotary", "alibi", "t5-bias", "relative-keys")
#: Without jumps: what float32 rounds does not change which keys count.
SMOOTH = ("softmax", "softmax-plus-one", "sink", "sigmoid")
TOLERANCE = {torch.float64: 1e-7, torch.float32: 3e-3}
LENGTH = 64  # that synthesizers are made for
Sees = Callable[[tuple[int, ...], int, int], bool]


@dataclass
class Drawn:
    """One call: its arguments, and its mask in plain Python."""

    says: str
    inputs: list[Tensor]
    score: Score
    normalizer: Any
    mask: Mask | None
    sees: Sees
    where: tuple[Tensor, Tensor] | None
    heads: int
    batch: tuple[int, ...]
    strip: int
    names: tuple[str, str, str]
    places: tuple[Tensor, Tensor] = field(default_factory=lambda: (torch.empty(0),) * 2)


def draw(number: int, seed: int = 0) -> Drawn:
    """Draw a call by its number."""
    chance = random.Random(f"{seed} {number}")
    torch.manual_seed(chance.getrandbits(40))
    name, position = chance.choice(list(SCORES)), chance.choice(WRAPPED)
    normalize = chance.choice(list(NORMALIZERS))
    smooth = normalize in SMOOTH and name not in ("boxcar", "epanechnikov")
    dtype = torch.float32 if smooth and chance.random() < 0.3 else torch.float64
    heads = chance.choice((0, 0, 1, 2, 3, 4))
    shared = chance.choice([d for d in range(1, heads + 1) if heads % d == 0]) if heads else 1
    batch = chance.choice(((), (1,), (2,), (3,), (2, 2), (2, 1)))
    n, m = chance.choice((0, 1, 2, 3, 5, 8, 11)), chance.choice((0, 1, 2, 3, 4, 7, 9, 13))
    width = chance.choice((1, 2, 3, 4, 5, 8))
    other = chance.choice((1, 2, 3, 6)) if name in ("general", "additive") else width
    if position == "rotary" and name in ("general", "additive"):
        other = width
    made = make_score(name, position, width, other, heads=heads or None, length=LENGTH)
    normalizer = NORMALIZERS[normalize](heads or None)
    with torch.no_grad():
        for parameter in (*made.parameters(), *normalizer.parameters()):
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    size = chance.choice((0.3, 1.0, 1.0, 4.0))
    of_heads = ((heads,), (heads // shared,)) if heads else ((), ())
    ours = batch if chance.random() < 0.8 else (1,) * len(batch)
    shapes = (
        (*batch, *of_heads[0], n, width),
        (*ours, *of_heads[1], m, other),
        (*ours, *of_heads[1], m, chance.choice((1, 2, 5))),
    )
    inputs = [(torch.randn(shape, dtype=torch.float64) * size).to(dtype) for shape in shapes]
    where = _positions(chance, batch, n, m, name)
    places = where or (torch.arange(m - n, m), torch.arange(m))
    places = tuple(x.expand(*batch, x.shape[-1]) for x in places)  # type: ignore[assignment]
    mask, sees, said = _mask(chance, batch, n, m, places, 2)
    if mask is not None and chance.random() < 0.3:
        _spoil(chance, inputs, ours, batch, sees, n, m)
    says = (
        f"{name} × {position} × {normalize} × {said}, {dtype}, batch {batch}, "
        f"heads {heads} over {shared}, {n} × {m}, width {width}"
    )
    strip, names = chance.choice((1, 7, 40, 1 << 20)), (name, position, normalize)
    parts = made.to(dtype), normalizer.to(dtype)
    return Drawn(says, inputs, *parts, mask, sees, where, heads, batch, strip, names, places)


def _positions(
    chance: random.Random, batch: tuple[int, ...], n: int, m: int, name: str
) -> tuple[Tensor, Tensor] | None:
    if chance.random() < 0.6 and not (name in plain_loop.PLACES and n > m):
        return None
    low, high = (0, LENGTH) if name in plain_loop.PLACES else (-40, 300)
    shape = batch if chance.random() < 0.5 else ()
    return torch.randint(low, high, (*shape, n)), torch.randint(low, high, (*shape, m))


def _mask(
    chance: random.Random, batch: tuple[int, ...], n: int, m: int,
    places: tuple[Tensor, Tensor], deep: int,
) -> tuple[Mask | None, Sees, str]:  # fmt: skip
    """Return a mask, its predicate, and its description."""
    if deep == 2 and chance.random() < 0.2:
        return None, lambda b, i, j: True, "no mask"
    if deep and chance.random() < 0.4:
        one, sees_one, says_one = _mask(chance, batch, n, m, places, deep - 1)
        if chance.random() < 0.25 and one is not None:
            return ~one, lambda b, i, j: not sees_one(b, i, j), f"~({says_one})"
        two, sees_two, says_two = _mask(chance, batch, n, m, places, deep - 1)
        if one is None or two is None:
            return one or two, sees_two if one is None else sees_one, says_one + says_two
        if chance.random() < 0.5:
            return (
                one & two,
                lambda b, i, j: sees_one(b, i, j) and sees_two(b, i, j),
                (f"({says_one} & {says_two})"),
            )
        return (
            one | two,
            lambda b, i, j: sees_one(b, i, j) or sees_two(b, i, j),
            (f"({says_one} | {says_two})"),
        )
    return _leaf(chance, batch, n, m, places)


def _leaf(
    chance: random.Random, batch: tuple[int, ...], n: int, m: int, places: tuple[Tensor, Tensor]
) -> tuple[Mask, Sees, str]:
    rows, columns = places
    size, step = chance.randrange(4), chance.choice((1, 1, 2, 3))

    def at(b: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
        return int(rows[b][i]), int(columns[b][j])

    def distance(b: tuple[int, ...], i: int, j: int) -> int:
        r, c = at(b, i, j)
        return c - r

    ends = torch.randint(0, m + 1, batch)
    each = torch.randint(0, m + 1, (*batch, n))
    ids = torch.randint(0, 3, (*batch, n)), torch.randint(0, 3, (*batch, m))
    table = torch.rand(*batch, n, m) < chance.random()
    coarse = torch.rand(3, 4) < 0.5

    def in_blocks(b: tuple[int, ...], i: int, j: int) -> bool:
        r, c = at(b, i, j)
        return r >= 0 <= c and r // 4 < 3 and c // 4 < 4 and bool(coarse[r // 4, c // 4])

    leaves: list[tuple[Mask, Sees, str]] = [
        (causal(), lambda b, i, j: distance(b, i, j) <= 0, "causal"),
        (prefix(ends), lambda b, i, j: 0 <= at(b, i, j)[1] < int(ends[b]), "prefix"),
        (lengths_per_query(each), lambda b, i, j: 0 <= at(b, i, j)[1] < int(each[b][i]),
         "lengths_per_query"),
        (others(), lambda b, i, j: distance(b, i, j) != 0, "others"),
        (window(size, step),
         lambda b, i, j: abs(distance(b, i, j)) <= size * step and distance(b, i, j) % step == 0,
         f"window({size}, {step})"),
        (global_tokens(size), lambda b, i, j: min(at(b, i, j)) < size, f"global_tokens({size})"),
        (documents(*ids), lambda b, i, j: int(ids[0][b][i]) == int(ids[1][b][j]), "documents"),
        (dense(table), lambda b, i, j: bool(table[b][i, j]), "dense"),
        (blocks(coarse, 4), in_blocks, "blocks"),
        (lengths(ends), lambda b, i, j: 0 <= at(b, i, j)[1] < int(ends[b]), "lengths"),
    ]  # fmt: skip
    return chance.choice(leaves)


def _spoil(
    chance: random.Random, inputs: Sequence[Tensor], ours: tuple[int, ...],
    batch: tuple[int, ...], sees: Sees, n: int, m: int,
) -> None:  # fmt: skip
    """Put NaN or infinity into keys that no query may see."""
    seen = {
        (tuple(min(x, size - 1) for x, size in zip(b, ours, strict=True)), j)
        for b in product(*map(range, batch)) for i in range(n) for j in range(m) if sees(b, i, j)
    }  # fmt: skip
    for b, j in product(product(*map(range, ours)), range(m)):
        if (b, j) not in seen:
            for x in inputs[1:]:
                x[b][..., j, :] = chance.choice((math.nan, math.inf, 1e30, 0.0))


def expected(call: Drawn, upstream: Tensor) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """Return output, weights and gradients of the plain loop."""
    leaves = [x.double().nan_to_num(0, 0, 0).requires_grad_() for x in call.inputs]
    q, k, v = leaves
    heads = call.heads or 1
    if not call.heads:
        q, k, v = (x.unsqueeze(-3) for x in (q, k, v))
    k, v = (
        x.repeat_interleave(heads // x.shape[-3], -3).expand(*call.batch, heads, *x.shape[-2:])
        for x in (k, v)
    )
    score = {n: p.detach().double().requires_grad_() for n, p in call.score.named_parameters()}
    weigh = {n: p.detach().double().requires_grad_() for n, p in call.normalizer.named_parameters()}
    output, weights = plain_loop.attention(
        q, k, v, _compare(call, score, heads), plain_loop.normalizer(call.names[2], weigh),
        call.sees, call.places,
    )  # fmt: skip
    if not call.heads:
        output, weights = output.squeeze(-3), weights.squeeze(-3)
    wanted = [*leaves, *score.values(), *weigh.values()]
    if not output.requires_grad:
        return output, weights, [None] * len(wanted)
    found = torch.autograd.grad(output, wanted, upstream.double(), allow_unused=True)
    return output.detach(), weights.detach(), list(found)


def _compare(
    call: Drawn, p: dict[str, Tensor], heads: int
) -> Callable[[Tensor, Tensor, int, int, int], Tensor]:
    name, position, _ = call.names
    inner = {n.removeprefix("inner."): x for n, x in p.items()
             if position == "none" or n.startswith("inner.")}  # fmt: skip

    def compare(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        if position == "rotary":
            q, k = plain_loop.turned(q, i), plain_loop.turned(k, j)
        if name in plain_loop.PLACES:
            found = plain_loop.PLACES[name](inner, q, i, j, head)
        else:
            found = plain_loop.PAIRS[name](inner, q, k, head)
        if position == "alibi":
            found = found - plain_loop.slope(head, heads) * abs(i - j)
        if position == "t5-bias":
            found = found + p["bias"][head, plain_loop.bucket(j - i)]
        if position == "relative-keys":
            plain = ("dot", "cosine", "cosine-temperature", "gaussian", "general", "synthesizer",
                     "synthesizer-factorised-random")  # fmt: skip
            scale = 1.0 if name in plain else len(q) ** -0.5
            found = found + scale * (q * p["distance_keys"][max(-16, min(16, j - i)) + 16]).sum()
        return found

    return compare


def judge(call: Drawn) -> str:
    """Compute a call by every path; return "" if all agree, else the first difference."""
    upstream = torch.randn(1, dtype=torch.float64)
    wanted: tuple[Tensor, Tensor, list[Tensor | None]] | None = None
    for kernel in KERNELS:
        leaves = [x.clone().requires_grad_() for x in call.inputs]
        with choose.using(replace(choose.SHIPPED, strip_numbers=call.strip)):
            found = _attended(call, leaves, kernel)
            if wanted is None:
                upstream = torch.randn(found.output.shape, dtype=torch.float64)
                wanted = expected(call, upstream)
            parameters = [*call.score.parameters(), *call.normalizer.parameters()]
            gradients: Sequence[Tensor | None] = [None] * len([*leaves, *parameters])
            if found.output.requires_grad:
                gradients = torch.autograd.grad(
                    found.output, [*leaves, *parameters], upstream.to(found.output.dtype),
                    allow_unused=True, retain_graph=True,
                )  # fmt: skip
            pairs = [("output", found.output, wanted[0]), ("weights", found.weights, wanted[1])]
            names = ["queries", "keys", "values", *(n for n, _ in call.score.named_parameters()),
                     *(n for n, _ in call.normalizer.named_parameters())]  # fmt: skip
            pairs += [
                (f"gradient of {name}",
                 torch.zeros_like(leaf) if ours is None else ours,
                 torch.zeros_like(leaf) if theirs is None else theirs)
                for name, leaf, ours, theirs in zip(
                    names, [*leaves, *parameters], gradients, wanted[2], strict=True
                )
            ]  # fmt: skip
            pairs += _summed(found, wanted[1])
        for what, ours, theirs in pairs:
            if (off := apart(ours, theirs)) > TOLERANCE[call.inputs[0].dtype]:
                return f"{kernel or 'chosen'}: {what} is {off:.1e} off"
    return ""


def _attended(call: Drawn, leaves: Sequence[Tensor], kernel: str) -> Attended:
    queries, keys, values = leaves
    rows, columns = call.where or (None, None)

    def ask() -> Attended:
        return attend(
            queries, keys, values, call.score, call.mask, normalize=call.normalizer,
            query_positions=rows, key_positions=columns,
        )  # fmt: skip

    if not kernel:
        return ask()
    with use(kernel), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ask()


def _summed(found: Attended, weights: Tensor) -> list[tuple[str, Tensor, Tensor]]:
    summary = found.summary(top=3)
    rows = weights.flatten(0, -2).tolist()
    entropies = [plain_loop.entropy(row) for row in rows]
    entropy = torch.tensor(entropies, dtype=torch.float64).reshape(weights.shape[:-1])
    top = weights.sort(-1, descending=True).values[..., :3]
    return [
        ("mass", summary.mass, weights.sum(-2)),
        ("entropy", summary.entropy, entropy),
        ("top weights", summary.weights, top),
    ]


def run(numbers: Sequence[int], seed: int = 0) -> dict[str, Any]:
    """Test calls by their numbers: count those that agree, the refusals, and the wrong ones."""
    refused: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    begun = time.monotonic()
    for number in numbers:
        call = draw(number, seed)
        try:
            says = judge(call)
        except RegardError as error:
            refused[str(error).split(":")[0][:100]] += 1
            continue
        except Exception as error:  # a crash is what is looked for
            says = f"crashes: {type(error).__name__}: {str(error)[:100]}"
        if says:
            wrong[number] = f"{call.says}: {says}"
            print(f"{number}: {wrong[number]}", file=sys.stderr, flush=True)
    return {
        "calls": len(numbers),
        "kernels": [kernel or "chosen" for kernel in KERNELS],
        "agree": len(numbers) - len(wrong) - sum(refused.values()),
        "refused": dict(refused),
        "wrong": {str(number): says for number, says in wrong.items()},
        "seconds": time.monotonic() - begun,
    }


def main() -> None:
    """Test many calls, and print the wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, help="number of one call")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    assert set(WRAPPED) <= set(POSITIONS)
    numbers = range(asked.first, asked.first + asked.calls)
    if asked.show is not None:
        print(draw(asked.show, asked.seed).says)
        numbers = range(asked.show, asked.show + 1)
    found = run(numbers, asked.seed)
    print(f"{found['calls']:,} calls by {len(KERNELS)} paths: {found['agree']:,} agree, "
          f"{sum(found['refused'].values()):,} refused, {len(found['wrong'])} wrong; "
          f"{found['seconds']:.0f} s")  # fmt: skip
    for says, often in found["refused"].items():
        print(f"  refused {often} ×: {says}")
    if asked.out:
        atomic_io.write_json(asked.out, found)
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
