"""The laws of normalisers."""

import torch
from torch import Tensor

from regard.attention import SCORES, Normalizer, causal, lengths
from regard.conformance.law import (
    CLOSE,
    EXACT,
    BrokenError,
    InapplicableError,
    Law,
    Measured,
    finite,
    gradients,
    near,
    same,
    silence,
    slopes,
    worst,
    zero,
)
from regard.conformance.subjects import KERNELS, NormalizerSubject, ScoreSubject


def made(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores()
    found = normalizer(scores)
    if not isinstance(found, Tensor) or found.shape != scores.shape:
        what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise BrokenError(f"scores {tuple(scores.shape)} became {what}, not weights of that shape")
    for size in ((1, 1), (1, 130), (9, 1)):
        finite(f"{size[0]} × {size[1]} scores", normalizer(subject.scores(*size, empty=False)))
    finite("scores of ±1e4", normalizer(5e3 * subject.scores(empty=False).clamp(-2, 2)))
    return Measured("finite weights from 1 × 1 to 1 × 130")


def weights(subject: NormalizerSubject) -> Measured:
    found = subject.normalizer()(subject.scores())
    if bool((found < 0).any()):
        raise BrokenError(f"a weight is {found.min().item():.2g}", least=found.min().item())
    sums = found.sum(-1)
    low, high = sums[sums > 0].min().item(), sums.max().item()
    return Measured(f"rows sum to {low:.3g} … {high:.3g}", {"least": low, "most": high})


def hidden(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores().requires_grad_()
    found, away = normalizer(scores), scores == -torch.inf
    zero("the weight of a score of −inf", found[away])
    (slope,) = gradients(found, [scores])
    finite("the gradient of the scores", slope)
    zero("the gradient of a score of −inf", slope[away])
    return Measured("weight and gradient exactly 0")


def empty_rows(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores().requires_grad_()
    found = normalizer(scores)
    zero("the weights of a row that may see nothing", found[1, :, 2])
    finite("gradients beside such a row", *gradients(found, [scores, *normalizer.parameters()]))
    return Measured("zeros, and finite gradients")


def absent(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores()
    more = torch.cat([scores, torch.full_like(scores[..., :3], -torch.inf)], -1)
    what = "three hidden keys more changed the weights"
    return worst([near(what, normalizer(more)[..., :7], normalizer(scores), EXACT)], EXACT)


def rows_apart(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores()
    whole = normalizer(scores)
    gaps = [
        near("a row among others differs from the row alone", normalizer(part), alone, EXACT)
        for axis in (-2, 0)
        for part, alone in zip(scores.split(1, axis), whole.split(1, axis), strict=True)
    ]
    return worst(gaps, EXACT)


def order(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores()
    if normalizer.ordered:
        raise InapplicableError("its weights depend on the order of the keys")
    turned = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    what = "keys in another order changed the weights"
    gap = near(what, normalizer(scores[..., turned]), normalizer(scores)[..., turned], EXACT)
    return worst([gap], EXACT)


def quick_way(subject: NormalizerSubject) -> Measured:
    normalizer, gaps = subject.normalizer(), []
    for size in ((5, 7), (4, 130)):
        scores = subject.scores(*size)
        before = scores.clone()
        statistics = normalizer.statistics(scores)
        quick = normalizer.weights(scores, statistics)
        same("statistics or weights changed the scores in place", scores, before)
        for x in statistics:
            if x.shape[-1:] not in ((), (1,)):
                raise BrokenError(f"a statistic has shape {tuple(x.shape)}, not (…, rows, 1)")
        gaps.append(near("weights by statistics are off forward", quick, normalizer(scores), CLOSE))
    return worst(gaps, CLOSE)


def by_hand(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores().requires_grad_()
    parameters = tuple(normalizer.parameters())
    made, upstream = normalizer(scores), torch.randn(scores.shape, dtype=scores.dtype)
    of = [scores, *parameters]
    theirs = torch.autograd.grad(made, of, upstream, allow_unused=True)
    with torch.no_grad():
        ours = normalizer.gradient(
            made.detach(), upstream, scores.detach(), normalizer.statistics(scores), parameters
        )
    if len(ours) != len(of):
        raise BrokenError(f"gradient gave {len(ours)} tensors, not {len(of)}: scores, parameters")
    gaps = []
    for x, mine, autograd in zip(of, ours, theirs, strict=True):
        wanted = torch.zeros_like(x) if autograd is None else autograd
        gaps.append(near("gradient() is off autograd", mine, wanted, CLOSE))
    return worst(gaps, CLOSE)


def slope(subject: NormalizerSubject) -> Measured:
    normalizer = subject.normalizer()
    scores = (2 * torch.randn(2, subject.heads, 3, 5, dtype=torch.float64)).requires_grad_()
    names = [name for name, _ in normalizer.named_parameters()]

    def f(*tensors: Tensor) -> Tensor:
        named = dict(zip(names, tensors[1:], strict=True))
        found: Tensor = torch.func.functional_call(normalizer, named, (tensors[0],))
        return found

    named = zip(names, (x.detach().requires_grad_() for x in normalizer.parameters()), strict=True)
    return slopes(f, {"the scores": scores, **dict(named)})


def shift(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores()
    by = torch.randn(3, subject.heads, 5, 1, dtype=torch.float64)
    gap = (normalizer(scores + by) - normalizer(scores)).abs().max().item()
    if normalizer.shift_invariant and gap > CLOSE:
        raise BrokenError(
            f"shift_invariant is declared, and a number added to a row changed a weight by "
            f"{gap:.2g} (at most {CLOSE:.2g})",
            difference=gap,
        )
    if not normalizer.shift_invariant and gap <= CLOSE:
        raise BrokenError("a number added to a row changes nothing: declare shift_invariant = True")
    return Measured(f"{normalizer.shift_invariant}; it changes a weight by {gap:.1g}")


def kernels(subject: NormalizerSubject) -> Measured:
    scores, normalizer, gaps = ScoreSubject.of(SCORES["additive"]), subject.normalizer(), []
    heads, found = subject.heads, []
    score = scores.score(heads)
    given = scores.inputs(7, 7, heads=heads)
    of = [*given, *score.parameters(), *normalizer.parameters()]
    for kernel in KERNELS:
        mask = causal() & lengths([7, 3, 0])
        made = scores.look(given, score, mask, kernel=kernel, normalize=normalizer).output
        found.append([made, *gradients(made, of)])
    for ours, exact in zip(found[1], found[0], strict=True):
        gaps.append(near("tiled is off exact", ours, exact, CLOSE))
    return worst(gaps, CLOSE)


def single(subject: NormalizerSubject) -> Measured:
    scores, most = subject.scores(dtype=torch.float32), 1e-4
    normalizer = subject.normalizer(torch.float32)
    ours = normalizer(scores)
    if ours.dtype != torch.float32:
        raise BrokenError(f"scores of float32 became weights of {ours.dtype}")
    gap = near("float32 is off float64", ours, normalizer.double()(scores.double()), most)
    return worst([gap], most)


def state(subject: NormalizerSubject) -> Measured:
    one, two, scores = subject.normalizer(), subject.normalizer(), subject.scores()
    two.load_state_dict(one.state_dict())
    same("one loaded from the state of another differs from it", two(scores), one(scores))
    return Measured("the same bits")


def twice(subject: NormalizerSubject) -> Measured:
    normalizer, scores = subject.normalizer(), subject.scores()
    before, first = scores.clone(), normalizer(scores)
    same("it changed the scores in place", scores, before)
    normalizer(subject.scores(3, 9))
    same("the same call again differed", normalizer(scores), first)
    same("training mode changed the weights", normalizer.eval()(scores), first)
    return Measured("the same bits, in training mode and out of it")


def quiet(subject: NormalizerSubject) -> Measured:
    with silence():
        normalizer: Normalizer = subject.normalizer()
        scores = subject.scores().requires_grad_()
        gradients(normalizer(scores), [scores])
    return Measured("no warning")


NORMALIZER_LAWS: dict[str, Law[NormalizerSubject]] = {
    "made": Law("made as Name(heads), it gives finite weights of the scores' shape", made),
    "weights": Law("weights are ≥ 0", weights),
    "hidden keys": Law("a score of −inf gets weight 0 and gradient 0", hidden),
    "empty rows": Law("a row of −inf alone gives zeros and finite gradients", empty_rows),
    "absent": Law("hidden keys more change nothing", absent),
    "rows": Law("each row is normalised by itself", rows_apart),
    "order": Law("keys in another order: the same", order),
    "quick way": Law("weights(scores, statistics(scores)) = forward(scores)", quick_way),
    "by hand": Law("gradient() is autograd's of forward", by_hand),
    "gradients": Law("autograd's gradients of forward are the slopes in float64", slope),
    "shift": Law("shift_invariant says what is so", shift),
    "kernels": Law("the tiled kernel is the exact one, forward and backward", kernels),
    "float32": Law("float32 stays float32, near float64", single),
    "state": Law("state_dict makes the round trip", state),
    "twice": Law("the same scores twice give the same bits", twice),
    "quiet": Law("no warnings", quiet),
}
