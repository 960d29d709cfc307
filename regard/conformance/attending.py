"""Laws of attention with a score: kernels, masks, batches, heads and dtypes."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention import KeyValueCache, Mask, Score, attend, causal, lengths, window
from regard.conformance.law import (
    CLOSE,
    EXACT,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    compare_slopes,
    finite,
    gradients,
    near,
    same,
    slopes_of,
    worst,
    zero,
)
from regard.conformance.subjects import (
    JUNK,
    KERNELS,
    VALUE_WIDTH,
    Inputs,
    ScoreSubject,
    using_kernel,
)
from regard.core.plugins import one_line


def output(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(5, 7)
    gaps = []
    for kernel in (None, *KERNELS):
        attended = subject.attend(inputs, score, kernel=kernel)
        product = attended.weights @ inputs[2]
        gaps.append(
            near("weights @ values differs from the output", product, attended.output, EXACT)
        )
    return worst(gaps, EXACT)


def weights(subject: ScoreSubject) -> Measurement:
    weights = subject.attend(subject.inputs(5, 7), subject.score(), causal()).weights
    if bool((weights < 0).any()):
        raise BrokenError(f"a weight is {weights.min().item():.2g}", least=weights.min().item())
    total = weights.sum(-1)
    gap = near("the sum of a row differs from 1", total, torch.ones_like(total), EXACT)
    return worst([gap], EXACT)


def hidden(subject: ScoreSubject) -> Measurement:
    inputs, mask = subject.inputs(5, 7), causal() & Mask(lambda r, c: (c != 3)[..., None, :])
    allowed = mask.allows(torch.arange(2, 7), torch.arange(7))
    weights = subject.attend(inputs, subject.score(), mask).weights
    zero("the weight of a hidden key", weights[..., ~allowed])
    return Measurement("weight exactly 0")


def padding(subject: ScoreSubject) -> Measurement:
    score, inputs, sizes = subject.score(), subject.inputs(5, 7), (7, 3, 1)
    rows, upstream = torch.arange(5), torch.randn(3, subject.heads(), 5, VALUE_WIDTH).double()
    references = [alone(subject, score, inputs, i, k, upstream) for i, k in enumerate(sizes)]
    gaps = []
    for junk in JUNK:
        longer = padded(inputs, sizes, junk)
        for kernel in KERNELS:
            whole = subject.attend(
                longer, score, lengths(sizes), kernel=kernel, query_positions=rows
            ).output
            tensors = [*longer, *score.parameters()]
            slopes = slopes_of(whole, tensors, upstream)
            what = f"{JUNK[junk]} in padding changed"
            for i, (size, (plain, of_text)) in enumerate(zip(sizes, references, strict=True)):
                gaps.append(near(f"{what} the output", whole[i : i + 1], plain, EXACT))
                for actual, expected, n in zip(slopes[:3], of_text, (5, size, size), strict=False):
                    part = actual[i : i + 1, :, :n]
                    gaps.append(near(f"{what} a gradient", part, expected, CLOSE))
                    zero(f"{JUNK[junk]} in padding has a gradient", actual[i, :, n:])
            for place, actual in enumerate(slopes[3:], 3):
                total = torch.stack([of_text[place] for _, of_text in references]).sum(0)
                gaps.append(near(f"{what} a parameter's gradient", actual, total, CLOSE))
    return worst(gaps, CLOSE)


def padded(inputs: Inputs, sizes: Sequence[int], junk: float) -> Inputs:
    """Add two keys, and fill keys and values after each text's size with junk."""
    queries, *others = (x.detach() for x in inputs)
    longer = [torch.cat([x, torch.zeros_like(x[:, :, :2])], -2) for x in others]
    for x, value in zip(longer, (junk, -junk), strict=True):
        for i, size in enumerate(sizes):
            x[i, :, size:] = value
    leaves = [x.requires_grad_() for x in (queries.clone(), *longer)]
    return leaves[0], leaves[1], leaves[2]


def alone(
    subject: ScoreSubject, score: Score, inputs: Inputs, i: int, size: int, upstream: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the output and the gradients of one text without padding."""
    queries, keys, values = (x[i : i + 1].detach() for x in inputs)
    leaves = [x.clone().requires_grad_() for x in (queries, keys[:, :, :size], values[:, :, :size])]
    rows, columns = torch.arange(5), torch.arange(size)
    output = subject.attend(
        (leaves[0], leaves[1], leaves[2]), score, query_positions=rows, key_positions=columns
    ).output
    return output, slopes_of(output, [*leaves, *score.parameters()], upstream[i : i + 1])


def empty_rows(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(5, 7)
    for kernel in (None, *KERNELS):
        attended = subject.attend(inputs, score, lengths([7, 0, 2]), kernel=kernel)
        zero("the output of a query without visible keys", attended.output[1])
        zero("the weights of a query without visible keys", attended.weights[1])
        slopes = gradients(attended.output, [*inputs, *score.parameters()])
        finite("gradients of the texts with a query without visible keys", *slopes)
        zero("gradients of a query without visible keys", *(x[1] for x in slopes[:3]))
    return Measurement("zero outputs and gradients")


def future(subject: ScoreSubject) -> Measurement:
    score = subject.score(dtype=torch.float32)
    for n in (9, 17):
        inputs = subject.inputs(n, n, dtype=torch.float32)
        cut = n // 2
        changed = [x.detach().clone() for x in inputs]
        for x in changed:
            x[..., cut:, :] = 50 * torch.randn_like(x[..., cut:, :])
        for kernel in (None, *KERNELS):
            before, after = (
                subject.attend((q, k, v), score, causal(), kernel=kernel).output[..., :cut, :]
                for q, k, v in (inputs, changed)
            )
            same("later tokens changed an earlier output", after, before)
    return Measurement("identical bits")


def cache(subject: ScoreSubject) -> Measurement:
    gaps = []
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, EXACT)):
        score, inputs = subject.score(dtype=dtype), subject.inputs(11, 11, dtype=dtype)
        mask, cache = causal() & lengths([11, 8, 5]), KeyValueCache()
        with torch.no_grad():
            full = subject.attend(inputs, score, mask).output
            steps = [
                subject.attend((q, k, v), score, mask, cache=cache).output
                for q, k, v in zip(*(x.split([4, 1, 1, 2, 3], -2) for x in inputs), strict=True)
            ]
        what = f"steps with a cache differ from a single pass in {name_of(dtype)}"
        gaps.append(near(what, torch.cat(steps, -2), full, most))
    return worst(gaps, 1e-5)


def slope(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(3, 4, batch=(2,))
    mask = causal() & lengths([4, 1])

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return subject.attend((q, k, v), score, mask, kernel="exact").output

    sides = dict(zip(("queries", "keys", "values"), inputs, strict=True))
    measured = compare_slopes(f, sides, score)
    # Projections without a bias, or with its first value, map a row of zeros to zeros.
    zeros = [torch.zeros_like(x).requires_grad_() for x in inputs[:2]]
    output = subject.attend((zeros[0], zeros[1], inputs[2]), score, causal()).output
    slopes = gradients(output, [*zeros, inputs[2], *score.parameters()])
    finite("a gradient of queries and keys that are zero", *slopes)
    return measured


def kernels(subject: ScoreSubject) -> Measurement:
    score, gaps, sizes = subject.score(), list[float](), lengths([7, 3, 0])
    calls: list[tuple[int, Mask | None, dict[str, Any]]] = [
        (5, None, {}),
        (7, causal() & sizes, {}),
        (7, window(1), {"normalize": "softmax-plus-one"}),
        (5, sizes, {"dropout": 0.5}),
    ]
    for n, mask, options in calls:
        gaps += kernels_apart(subject, score, subject.inputs(n, 7), mask, **options)
    return worst(gaps, CLOSE)


def kernels_apart(
    subject: ScoreSubject,
    score: Score,
    inputs: Inputs,
    mask: Mask | None,
    size: str = "",
    **options: Any,
) -> list[float]:
    """Return how much output and gradients of each kernel differ from those of the exact one."""
    others = ["tiled", *(("plain", "fused") if score.acceleration.inner_product else ())]
    tensors, results = [*inputs, *score.parameters()], []
    for kernel in ("exact", *others):
        torch.manual_seed(1)  # for dropout
        output = subject.attend(inputs, score, mask, kernel=kernel, **options).output
        results.append([output, *gradients(output, tensors)])
    return [
        near(f"{kernel} changed {'a gradient' if i else 'the output'}{size}", x, exact, CLOSE)
        for kernel, actual in zip(others, results[1:], strict=True)
        for i, (x, exact) in enumerate(zip(actual, results[0], strict=True))
    ]


def batches(subject: ScoreSubject) -> Measurement:
    score, gaps = subject.score(), []
    queries, _, _ = subject.inputs(5, 7, batch=(3, 1))
    _, keys, values = subject.inputs(5, 7, batch=(1, 4))
    output = subject.attend((queries, keys, values), score).output
    for i in range(3):
        for j in range(4):
            single = subject.attend((queries[i], keys[0, j : j + 1], values[0, j : j + 1]), score)
            what = "a text in a batch differs from the text alone"
            gaps.append(near(what, output[i, j : j + 1], single.output, EXACT))
    return worst(gaps, EXACT)


def batch_axis(subject: ScoreSubject) -> Measurement:
    heads = subject.heads(3)
    score, gaps = subject.score(heads), []
    inputs = subject.inputs(5, 5, batch=(heads,), heads=heads)
    sizes = [5 - i % 5 for i in range(heads)]
    for kernel in (None, *KERNELS):
        whole = subject.attend(inputs, score, lengths(sizes) & causal(), kernel=kernel).output
        for i, size in enumerate(sizes):
            q, k, v = (x[i : i + 1] for x in inputs)
            mask = lengths(size) & causal()
            single = subject.attend((q, k, v), score, mask, kernel=kernel).output
            what = "with as many texts as heads, the mask of a text affected another text"
            gaps.append(near(what, whole[i : i + 1], single, EXACT))
    return worst(gaps, EXACT)


def positions_by_text(subject: ScoreSubject) -> Measurement:
    gaps = []
    for heads in {subject.heads(2), subject.heads(3)}:  # as many texts as heads, too
        gaps += _positions_by_text(subject, subject.score(heads), subject.inputs(5, 7, heads=heads))
    return worst(gaps, EXACT)


def _positions_by_text(subject: ScoreSubject, score: Score, inputs: Inputs) -> list[float]:
    gaps = []
    rows = torch.tensor([[2, 3, 4, 5, 6], [11, 12, 13, 14, 15], [40, 3, 17, 8, 30]])
    columns = torch.tensor([[*range(7)], [*range(9, 16)], [5, 50, 2, 33, 12, 0, 21]])
    for kernel in (None, *KERNELS):
        positions: dict[str, Any] = {"query_positions": rows, "key_positions": columns}
        whole = subject.attend(inputs, score, causal(), kernel=kernel, **positions).output
        for i in range(3):
            q, k, v = (x[i : i + 1] for x in inputs)
            positions = {"query_positions": rows[i], "key_positions": columns[i]}
            single = subject.attend((q, k, v), score, causal(), kernel=kernel, **positions).output
            what = "with different positions for each text, a text differs from the text alone"
            gaps.append(near(what, whole[i : i + 1], single, EXACT))
    return gaps


def headless(subject: ScoreSubject) -> Measurement:
    try:
        score = subject.score(None)
    except Exception as error:  # whatever a user's code raises
        raise InapplicableError(f"it cannot be built with heads=None: {one_line(error)}") from None
    if score.heads is not None:
        raise InapplicableError(f"it is built for {score.heads} heads")
    gaps = []
    q, k, v = subject.inputs(5, 7, heads=1)
    for kernel in (None, *KERNELS):
        with using_kernel(kernel):
            attended = attend(q[:, 0], k[:, 0], v[:, 0], score, causal() & lengths([7, 3, 0]))
        one_head = subject.attend((q, k, v), score, causal() & lengths([7, 3, 0]), kernel=kernel)
        what = "without a head axis the result differs from one head"
        gaps.append(near(what, attended.output, one_head.output[:, 0], EXACT))
        gaps.append(near(what, attended.weights, one_head.weights[:, 0], EXACT))
    return worst(gaps, EXACT)


def grouped(subject: ScoreSubject) -> Measurement:
    heads = subject.heads(4)
    groups = [g for g in range(1, heads) if heads % g == 0]
    if not groups:
        raise InapplicableError("it is built for one head")
    score, gaps = subject.score(heads), []
    for group in groups:
        queries, keys, values = subject.inputs(5, 7, heads=heads, groups=group)
        whole = [x.repeat_interleave(heads // group, 1) for x in (keys, values)]
        for kernel in KERNELS:
            try:
                actual = subject.attend((queries, keys, values), score, causal(), kernel=kernel)
            except Exception as error:  # whatever a user's code raises
                raise BrokenError(
                    f"keys of {group} heads for {heads} heads raised {one_line(error)}: for "
                    "parameters of each head, write repeat_kv(keys, self.heads) in prepare_keys, "
                    "from regard.attention.prepared"
                ) from None
            expected = subject.attend((queries, whole[0], whole[1]), score, causal(), kernel=kernel)
            what = f"{heads} heads that share {group} key heads differ from repeated keys"
            gaps.append(near(what, actual.output, expected.output, EXACT))
            gaps.append(near(what, actual.weights, expected.weights, EXACT))
    return worst(gaps, EXACT)


def reduced_precision(dtype: torch.dtype, most: float) -> Law[ScoreSubject]:
    """Return the law that results in a dtype are close to float64, with finite gradients."""
    name = name_of(dtype)

    def check(subject: ScoreSubject) -> Measurement:
        score = subject.score(dtype=dtype)
        reference, gaps = copy.deepcopy(score).double(), []
        inputs = subject.inputs(9, 11, dtype=dtype)
        q, k, v = (x.detach().double() for x in inputs)
        exact = subject.attend((q, k, v), reference, causal(), kernel="exact").output
        for kernel in (None, *KERNELS):
            output = subject.attend(inputs, score, causal(), kernel=kernel).output
            gaps.append(near(f"{name} differs from float64", output, exact, most))
            finite(f"gradients in {name}", *gradients(output, [*inputs, *score.parameters()]))
        return worst(gaps, most)

    return Law(f"{name} gives results close to float64 (at most {most:g})", check)


def dropout(subject: ScoreSubject) -> Measurement:
    score, repeats = subject.score(dtype=torch.float32), 600
    inputs = [x.detach() for x in subject.inputs(2, 5, batch=(1,), dtype=torch.float32)]
    q, k, v = (x.expand(repeats, *x.shape[1:]) for x in inputs)
    with torch.no_grad():
        plain = subject.attend((inputs[0], inputs[1], inputs[2]), score)
        dropped = subject.attend((q, k, v), score, dropout=0.25)
        weights = dropped.weights[:1]
    near("dropout changed .weights", weights, plain.weights, 1e-5)
    error = dropped.output.std(0) / repeats**0.5
    if not float(error.min()) > 0:
        raise BrokenError("dropout=0.25 has no effect")
    off = ((dropped.output.mean(0) - plain.output[0]).abs() / error).max().item()
    if not off < 5:
        raise BrokenError(
            f"dropout changed the mean by {off:.1f} standard errors (at most 5)", off=off
        )
    return Measurement(f"the mean changed by {off:.1f} standard errors", {"standard_errors": off})


def twice(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(5, 7)
    for kernel in (None, *KERNELS):
        first = subject.attend(inputs, score, kernel=kernel).output
        subject.attend(subject.inputs(3, 9, batch=(2,)), score, kernel=kernel)
        again = subject.attend(inputs, score, kernel=kernel).output
        same("repeating the call changed the result", again, first)
    return Measurement("identical bits")


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype without "torch."."""
    return str(dtype).removeprefix("torch.")
