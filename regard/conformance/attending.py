"""The laws of what attention makes of a score: by any kernel, mask, batch, head and dtype."""

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
    Measured,
    filled,
    finite,
    gradients,
    near,
    same,
    slopes,
    worst,
    zero,
)
from regard.conformance.subjects import JUNK, KERNELS, VALUE_WIDTH, Given, ScoreSubject, by
from regard.plugins import one_line


def output(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(5, 7)
    gaps = []
    for kernel in (None, *KERNELS):
        found = subject.look(given, score, kernel=kernel)
        gaps.append(
            near(
                "weights @ values is off the output", found.weights @ given[2], found.output, EXACT
            )
        )
    return worst(gaps, EXACT)


def weights(subject: ScoreSubject) -> Measured:
    found = subject.look(subject.inputs(5, 7), subject.score(), causal()).weights
    if bool((found < 0).any()):
        raise BrokenError(f"a weight is {found.min().item():.2g}", least=found.min().item())
    total = found.sum(-1)
    gap = near("the sum of a row is off 1", total, torch.ones_like(total), EXACT)
    return worst([gap], EXACT)


def hidden(subject: ScoreSubject) -> Measured:
    given, mask = subject.inputs(5, 7), causal() & Mask(lambda r, c: (c != 3)[..., None, :])
    allowed = mask.allows(torch.arange(2, 7), torch.arange(7))
    found = subject.look(given, subject.score(), mask).weights
    zero("the weight of a hidden key", found[..., ~allowed])
    return Measured("weight exactly 0")


def padding(subject: ScoreSubject) -> Measured:
    score, given, sizes = subject.score(), subject.inputs(5, 7), (7, 3, 1)
    rows, upstream = torch.arange(5), torch.randn(3, subject.heads(), 5, VALUE_WIDTH).double()
    alone, gaps = [alone_of(subject, score, given, i, k, upstream) for i, k in enumerate(sizes)], []
    for junk in JUNK:
        longer = padded(given, sizes, junk)
        for kernel in KERNELS:
            whole = subject.look(
                longer, score, lengths(sizes), kernel=kernel, query_positions=rows
            ).output
            of = [*longer, *score.parameters()]
            found = torch.autograd.grad(whole, of, upstream, allow_unused=True)
            what = f"{JUNK[junk]} in padding changed"
            for i, (size, (plain, theirs)) in enumerate(zip(sizes, alone, strict=True)):
                gaps.append(near(f"{what} the output", whole[i : i + 1], plain, EXACT))
                pairs = zip(filled(found, of)[:3], theirs, (5, size, size), strict=False)
                for ours, their, n in pairs:
                    part = ours[i : i + 1, :, :n]
                    gaps.append(near(f"{what} a gradient", part, their, CLOSE))
                    zero(f"{JUNK[junk]} in padding has a gradient", ours[i, :, n:])
            for at, ours in enumerate(filled(found, of)[3:], 3):
                total = torch.stack([theirs[at] for _, theirs in alone]).sum(0)
                gaps.append(near(f"{what} a parameter's gradient", ours, total, CLOSE))
    return worst(gaps, CLOSE)


def padded(given: Given, sizes: Sequence[int], junk: float) -> Given:
    """The keys and values of each text from its size on, and two keys more, are junk."""
    queries, *rest = (x.detach() for x in given)
    longer = [torch.cat([x, torch.zeros_like(x[:, :, :2])], -2) for x in rest]
    for x, value in zip(longer, (junk, -junk), strict=True):
        for i, size in enumerate(sizes):
            x[i, :, size:] = value
    ready = [x.requires_grad_() for x in (queries.clone(), *longer)]
    return ready[0], ready[1], ready[2]


def alone_of(
    subject: ScoreSubject, score: Score, given: Given, i: int, size: int, upstream: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients of one text that was never padded."""
    queries, keys, values = (x[i : i + 1].detach() for x in given)
    one = [x.clone().requires_grad_() for x in (queries, keys[:, :, :size], values[:, :, :size])]
    rows, columns = torch.arange(5), torch.arange(size)
    made = subject.look(
        (one[0], one[1], one[2]), score, query_positions=rows, key_positions=columns
    ).output
    of = [*one, *score.parameters()]
    return made, filled(torch.autograd.grad(made, of, upstream[i : i + 1], allow_unused=True), of)


def empty_rows(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(5, 7)
    for kernel in (None, *KERNELS):
        found = subject.look(given, score, lengths([7, 0, 2]), kernel=kernel)
        zero("the output of a query that may see nothing", found.output[1])
        zero("the weights of a query that may see nothing", found.weights[1])
        made = gradients(found.output, [*given, *score.parameters()])
        finite("gradients beside a query that may see nothing", *made)
        zero("gradients of a query that may see nothing", *(x[1] for x in made[:3]))
    return Measured("zeros, and zero gradients")


def future(subject: ScoreSubject) -> Measured:
    score = subject.score(dtype=torch.float32)
    for n in (9, 17):
        given = subject.inputs(n, n, dtype=torch.float32)
        now = n // 2
        later = [x.detach().clone() for x in given]
        for x in later:
            x[..., now:, :] = 50 * torch.randn_like(x[..., now:, :])
        for kernel in (None, *KERNELS):
            before, after = (
                subject.look((q, k, v), score, causal(), kernel=kernel).output[..., :now, :]
                for q, k, v in (given, later)
            )
            same("what comes later changed an output before it", after, before)
    return Measured("the same bits")


def cache(subject: ScoreSubject) -> Measured:
    gaps = []
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, EXACT)):
        score, given = subject.score(dtype=dtype), subject.inputs(11, 11, dtype=dtype)
        mask, past = causal() & lengths([11, 8, 5]), KeyValueCache()
        with torch.no_grad():
            full = subject.look(given, score, mask).output
            steps = [
                subject.look((q, k, v), score, mask, cache=past).output
                for q, k, v in zip(*(x.split([4, 1, 1, 2, 3], -2) for x in given), strict=True)
            ]
        what = f"step by step differs from all at once in {name_of(dtype)}"
        gaps.append(near(what, torch.cat(steps, -2), full, most))
    return worst(gaps, 1e-5)


def slope(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(3, 4, batch=(2,))
    names = [name for name, _ in score.named_parameters()]
    layer = _Looked(subject, score)

    def f(*tensors: Tensor) -> Tensor:
        named = {f"score.{n}": x for n, x in zip(names, tensors[3:], strict=True)}
        made: Tensor = torch.func.functional_call(layer, named, tensors[:3])
        return made

    named = zip(names, (x.detach().requires_grad_() for x in score.parameters()), strict=True)
    sides = zip(("queries", "keys", "values"), given, strict=True)
    return slopes(f, {**dict(sides), **dict(named)})


class _Looked(torch.nn.Module):
    """The output as a module of its score, for `functional_call`."""

    def __init__(self, subject: ScoreSubject, score: Score) -> None:
        super().__init__()
        self.subject, self.score = subject, score

    def forward(self, *given: Tensor) -> Tensor:
        mask = causal() & lengths([4, 1])
        q, k, v = given
        return self.subject.look((q, k, v), self.score, mask, kernel="exact").output


def kernels(subject: ScoreSubject) -> Measured:
    score, gaps = subject.score(), []
    others = ["tiled", *(("plain", "fused") if score.acceleration.inner_product else ())]
    sizes = lengths([7, 3, 0])
    calls: list[tuple[int, Mask | None, dict[str, Any]]] = [
        (5, None, {}),
        (7, causal() & sizes, {}),
        (7, window(1), {"normalize": "softmax-plus-one"}),
        (5, sizes, {"dropout": 0.5}),
    ]
    for n, mask, how in calls:
        given = subject.inputs(n, 7)
        of, found = [*given, *score.parameters()], []
        for kernel in ("exact", *others):
            torch.manual_seed(1)  # of dropout
            made = subject.look(given, score, mask, kernel=kernel, **how).output
            found.append([made, *gradients(made, of)])
        for kernel, ours in zip(others, found[1:], strict=True):
            for i, (x, exact) in enumerate(zip(ours, found[0], strict=True)):
                what = f"{kernel} changed {'a gradient' if i else 'the output'}"
                gaps.append(near(what, x, exact, CLOSE))
    return worst(gaps, CLOSE)


def batches(subject: ScoreSubject) -> Measured:
    score, gaps = subject.score(), []
    queries, _, _ = subject.inputs(5, 7, batch=(3, 1))
    _, keys, values = subject.inputs(5, 7, batch=(1, 4))
    found = subject.look((queries, keys, values), score).output
    for i in range(3):
        for j in range(4):
            alone = subject.look((queries[i], keys[0, j : j + 1], values[0, j : j + 1]), score)
            what = "a text among others differs from the text alone"
            gaps.append(near(what, found[i, j : j + 1], alone.output, EXACT))
    return worst(gaps, EXACT)


def batch_axis(subject: ScoreSubject) -> Measured:
    heads = subject.heads(3)
    score, gaps = subject.score(heads), []
    given = subject.inputs(5, 5, batch=(heads,), heads=heads)
    sizes = [5 - i % 5 for i in range(heads)]
    for kernel in (None, *KERNELS):
        whole = subject.look(given, score, lengths(sizes) & causal(), kernel=kernel).output
        for i, size in enumerate(sizes):
            q, k, v = (x[i : i + 1] for x in given)
            alone = subject.look((q, k, v), score, lengths(size) & causal(), kernel=kernel).output
            what = "with as many texts as heads, a text's mask reached another"
            gaps.append(near(what, whole[i : i + 1], alone, EXACT))
    return worst(gaps, EXACT)


def by_text(subject: ScoreSubject) -> Measured:
    gaps = []
    for heads in {subject.heads(2), subject.heads(3)}:  # as many texts as heads, too
        gaps += _by_text(subject, subject.score(heads), subject.inputs(5, 7, heads=heads))
    return worst(gaps, EXACT)


def _by_text(subject: ScoreSubject, score: Score, given: Given) -> list[float]:
    gaps = []
    rows = torch.tensor([[2, 3, 4, 5, 6], [11, 12, 13, 14, 15], [40, 3, 17, 8, 30]])
    columns = torch.tensor([[*range(7)], [*range(9, 16)], [5, 50, 2, 33, 12, 0, 21]])
    for kernel in (None, *KERNELS):
        at: dict[str, Any] = {"query_positions": rows, "key_positions": columns}
        whole = subject.look(given, score, causal(), kernel=kernel, **at).output
        for i in range(3):
            q, k, v = (x[i : i + 1] for x in given)
            at = {"query_positions": rows[i], "key_positions": columns[i]}
            alone = subject.look((q, k, v), score, causal(), kernel=kernel, **at).output
            what = "with positions of its own for each text, a text differs from itself alone"
            gaps.append(near(what, whole[i : i + 1], alone, EXACT))
    return gaps


def headless(subject: ScoreSubject) -> Measured:
    try:
        score = subject.score(None)
    except Exception as error:  # whatever a user's code raises
        raise InapplicableError(f"it cannot be made with heads=None: {one_line(error)}") from None
    if score.heads is not None:
        raise InapplicableError(f"it was made for {score.heads} heads")
    gaps = []
    q, k, v = subject.inputs(5, 7, heads=1)
    for kernel in (None, *KERNELS):
        with by(kernel):
            found = attend(q[:, 0], k[:, 0], v[:, 0], score, causal() & lengths([7, 3, 0]))
        one = subject.look((q, k, v), score, causal() & lengths([7, 3, 0]), kernel=kernel)
        what = "without an axis of heads it differs from itself with one head"
        gaps.append(near(what, found.output, one.output[:, 0], EXACT))
        gaps.append(near(what, found.weights, one.weights[:, 0], EXACT))
    return worst(gaps, EXACT)


def grouped(subject: ScoreSubject) -> Measured:
    heads = subject.heads(4)
    groups = [g for g in range(1, heads) if heads % g == 0]
    if not groups:
        raise InapplicableError("it was made for one head")
    score, gaps = subject.score(heads), []
    for group in groups:
        queries, keys, values = subject.inputs(5, 7, heads=heads, groups=group)
        whole = [x.repeat_interleave(heads // group, 1) for x in (keys, values)]
        for kernel in KERNELS:
            ours = subject.look((queries, keys, values), score, causal(), kernel=kernel)
            theirs = subject.look((queries, whole[0], whole[1]), score, causal(), kernel=kernel)
            what = f"{heads} heads that share {group} of keys differ from keys repeated"
            gaps.append(near(what, ours.output, theirs.output, EXACT))
            gaps.append(near(what, ours.weights, theirs.weights, EXACT))
    return worst(gaps, EXACT)


def coarser(dtype: torch.dtype, most: float) -> Law[ScoreSubject]:
    """The law of a dtype: near float64, gradients finite."""
    name = name_of(dtype)

    def check(subject: ScoreSubject) -> Measured:
        score = subject.score(dtype=dtype)
        finer, given, gaps = copy.deepcopy(score).double(), subject.inputs(9, 11, dtype=dtype), []
        q, k, v = (x.detach().double() for x in given)
        exact = subject.look((q, k, v), finer, causal(), kernel="exact").output
        for kernel in (None, *KERNELS):
            found = subject.look(given, score, causal(), kernel=kernel).output
            gaps.append(near(f"{name} is off float64", found, exact, most))
            finite(f"gradients in {name}", *gradients(found, [*given, *score.parameters()]))
        return worst(gaps, most)

    return Law(f"in {name} it runs and is near float64 (at most {most:g})", check)


def dropout(subject: ScoreSubject) -> Measured:
    score, repeats = subject.score(dtype=torch.float32), 600
    given = [x.detach() for x in subject.inputs(2, 5, batch=(1,), dtype=torch.float32)]
    q, k, v = (x.expand(repeats, *x.shape[1:]) for x in given)
    with torch.no_grad():
        plain = subject.look((given[0], given[1], given[2]), score)
        dropped = subject.look((q, k, v), score, dropout=0.25)
        weights = dropped.weights[:1]
    near("dropout changed .weights", weights, plain.weights, 1e-5)
    spread = dropped.output.std(0) / repeats**0.5
    if not float(spread.min()) > 0:
        raise BrokenError("a dropout of 0.25 drops nothing")
    off = ((dropped.output.mean(0) - plain.output[0]).abs() / spread).max().item()
    if not off < 5:
        raise BrokenError(
            f"dropout moved the mean by {off:.1f} standard errors (at most 5)", off=off
        )
    return Measured(f"the mean moved by {off:.1f} standard errors", {"standard_errors": off})


def twice(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(5, 7)
    for kernel in (None, *KERNELS):
        first = subject.look(given, score, kernel=kernel).output
        subject.look(subject.inputs(3, 9, batch=(2,)), score, kernel=kernel)
        again = subject.look(given, score, kernel=kernel).output
        same("the same call again differed", again, first)
    return Measured("the same bits")


def name_of(dtype: torch.dtype) -> str:
    """float32, and not torch.float32."""
    return str(dtype).removeprefix("torch.")
