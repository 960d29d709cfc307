"""Laws of scores in texts of 65, 130 and 300 words, like ``long_texts`` for layers."""

import torch
from torch import Tensor

from regard.attention import KeyValueCache, Score, causal, lengths
from regard.conformance.attending import kernels_apart
from regard.conformance.law import (
    CLOSE,
    LONG,
    Law,
    Measurement,
    compare_slopes,
    cut_texts,
    near,
    worst,
)
from regard.conformance.long_texts import CUTS, STEPS, TABLES, one_shift
from regard.conformance.subjects import KERNELS, Inputs, ScoreSubject

N = max(LONG)
ROWS = 20  # queries for many keys
PARAMETERS = 2 * N  # the length of a score with parameters for each position


def score_of(subject: ScoreSubject) -> Score:
    """Return a score for long texts."""
    return subject.score(length=PARAMETERS)


def words(subject: ScoreSubject, n: int, m: int, batch: int = 1) -> Inputs:
    """Return random queries, keys and values without gradients."""
    q, k, v = (x.detach() for x in subject.inputs(n, m, batch=(batch,)))
    return q, k, v


def order(subject: ScoreSubject) -> Measurement:
    score, gaps = score_of(subject), []
    for m in LONG:
        (q, k, v), places = words(subject, ROWS, m), torch.arange(m)
        permutation = torch.randperm(m)
        moved = (q, k[..., permutation, :], v[..., permutation, :])
        for kernel in (None, *KERNELS):
            plain = subject.attend((q, k, v), score, kernel=kernel, key_positions=places).output
            actual = subject.attend(moved, score, kernel=kernel, key_positions=permutation).output
            what = f"another order of {m} keys, values and positions changed the output"
            gaps.append(near(what, actual, plain, CLOSE))
    return worst(gaps, CLOSE)


def prefixes(subject: ScoreSubject) -> Measurement:
    score, (q, k, v), gaps = score_of(subject), words(subject, N, N), []
    plain = subject.attend((q, k, v), score, causal()).output
    changed = subject.attend(
        (cut_texts(q, CUTS), cut_texts(k, CUTS), cut_texts(v, CUTS)), score, causal()
    ).output
    for cut, output in zip(CUTS, changed, strict=True):
        what = f"words from the {cut + 1}th on changed the output of an earlier word"
        gaps.append(near(what, output[:, :cut], plain[0, :, :cut], CLOSE))
    for cut in (33, 64, 65, 129, 257):
        alone = subject.attend(
            (q[..., :cut, :], k[..., :cut, :], v[..., :cut, :]), score, causal()
        ).output
        what = f"the first {cut} words have other outputs in a text of {N}"
        gaps.append(near(what, plain[..., :cut, :], alone, CLOSE))
    return worst(gaps, CLOSE)


def padding(subject: ScoreSubject) -> Measurement:
    score, gaps, rows = score_of(subject), [], torch.arange(ROWS)
    for n, sizes in TABLES:
        queries, *sides = words(subject, ROWS, n, len(sizes))
        real = (torch.arange(n) < torch.tensor(sizes)[:, None])[:, None, :, None]
        keys, values = (torch.where(real, x, 1e3).requires_grad_() for x in sides)
        inputs = (queries, keys, values)
        whole = subject.attend(inputs, score, lengths(sizes), query_positions=rows).output
        upstream = torch.randn_like(whole)
        slopes = torch.autograd.grad(whole, values, upstream)[0]
        for i, size in enumerate(sizes):
            q, k, v = (x[i : i + 1].detach() for x in inputs)
            k, v = k[:, :, :size], v[:, :, :size].clone().requires_grad_()
            alone = subject.attend(
                (q, k, v), score, query_positions=rows, key_positions=torch.arange(size)
            ).output
            (expected,) = torch.autograd.grad(alone, v, upstream[i : i + 1])
            what = f"padding of a text of {size} words to {n} changed"
            gaps.append(near(f"{what} the output", whole[i : i + 1], alone, CLOSE))
            actual = slopes[i : i + 1, :, :size]
            gaps.append(near(f"{what} the gradient of values", actual, expected, CLOSE))
    return worst(gaps, CLOSE)


def cache(subject: ScoreSubject) -> Measurement:
    score, inputs, cache, outputs = score_of(subject), words(subject, N, N), KeyValueCache(), []
    full = subject.attend(inputs, score, causal()).output
    for q, k, v in zip(*(x.split(list(STEPS), -2) for x in inputs), strict=True):
        outputs.append(subject.attend((q, k, v), score, causal(), cache=cache).output.detach())
    what = f"steps with a cache of up to {N} keys differ from a single pass"
    return worst([near(what, torch.cat(outputs, -2), full, CLOSE)], CLOSE)


def shifts(subject: ScoreSubject) -> Measurement:
    """Check that, if only distances matter for small positions, so it is for large ones."""
    score, inputs = score_of(subject), words(subject, 5, 7)

    def moved(by: int) -> Tensor:
        rows, columns = torch.arange(2, 7) + by, torch.arange(7) + by
        return subject.attend(inputs, score, query_positions=rows, key_positions=columns).output

    return one_shift(moved)


def slope(subject: ScoreSubject) -> Measurement:
    score, gaps = score_of(subject), 0.0
    for n, m in ((65, 65), (ROWS, N)):
        sides = dict(zip(("queries", "keys", "values"), subject.inputs(n, m, batch=(1,)),
                         strict=True))  # fmt: skip

        def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return subject.attend((q, k, v), score).output

        gaps = max(gaps, compare_slopes(f, sides).numbers["difference"])
    return worst([gaps], 1e-5)


def kernels(subject: ScoreSubject) -> Measurement:
    score, inputs = score_of(subject), subject.inputs(70, N, batch=(1,))
    return worst(kernels_apart(subject, score, inputs, causal(), f" of 70 × {N}"), CLOSE)


LONG_SCORE_LAWS: dict[str, Law[ScoreSubject]] = {
    "long order": Law("the order of up to 300 keys does not change the output", order, long=True),
    "long prefixes": Law(
        "with a causal mask, later words do not change any of 300 words", prefixes, long=True
    ),
    "long padding": Law("padding changes nothing in texts of up to 300 words", padding, long=True),
    "long cache": Law("300 words in steps with a cache equal a single pass", cache, long=True),
    "long positions": Law("large positions act like small ones", shifts, long=True),
    "long gradients": Law(
        "gradients of 65 and 300 words match finite differences", slope, long=True
    ),
    "long kernels": Law("all kernels equal the exact kernel at 70 × 300", kernels, long=True),
}
