"""Laws of normalisers."""

import contextlib

import torch
from torch import Tensor

from regard.attention import SCORES, Normalizer, causal, lengths
from regard.attention.normalizer import Backward
from regard.conformance.law import (
    CLOSE,
    EXACT,
    LONG,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    compare_slopes,
    finite,
    gradients,
    near,
    no_warnings,
    same,
    slopes_of,
    worst,
    zero,
)
from regard.conformance.subjects import KERNELS, NormalizerSubject, ScoreSubject


def runs(subject: NormalizerSubject) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores()
    weights = normalizer(scores)
    if not isinstance(weights, Tensor) or weights.shape != scores.shape:
        result = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise BrokenError(f"scores {tuple(scores.shape)} gave {result}, not weights of that shape")
    for size in ((1, 1), (1, 130), (9, 1)):
        finite(f"{size[0]} × {size[1]} scores", normalizer(subject.scores(*size, empty=False)))
    finite("scores of ±1e4", normalizer(5e3 * subject.scores(empty=False).clamp(-2, 2)))
    return Measurement("finite weights from 1 × 1 to 1 × 130")


def weights(subject: NormalizerSubject) -> Measurement:
    normalizer = subject.normalizer()
    weights = normalizer(subject.scores())
    if bool((weights < 0).any()) and not normalizer.signed:
        least = weights.min().item()
        raise BrokenError(f"a weight is {least:.2g}; declare signed = True if that is meant",
                          least=least)  # fmt: skip
    sums = weights.sum(-1)
    low, high = sums[sums != 0].min().item(), sums.max().item()
    return Measurement(f"rows sum to {low:.3g} … {high:.3g}", {"least": low, "most": high})


def hidden(subject: NormalizerSubject, keys: int = 7) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores(5, keys).requires_grad_()
    weights, masked = normalizer(scores), scores == -torch.inf
    zero("the weight of a score of −inf", weights[masked])
    (slope,) = gradients(weights, [scores])
    finite("the gradient of the scores", slope)
    zero("the gradient of a score of −inf", slope[masked])
    return Measurement("weight and gradient exactly 0")


def empty_rows(subject: NormalizerSubject) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores().requires_grad_()
    weights = normalizer(scores)
    zero("the weights of a row of −inf", weights[1, :, 2])
    finite("gradients with a row of −inf", *gradients(weights, [scores, *normalizer.parameters()]))
    return Measurement("zero weights and finite gradients")


def absent(subject: NormalizerSubject, keys: int = 7) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores(5, keys)
    more = torch.cat([scores, torch.full_like(scores[..., :3], -torch.inf)], -1)
    what = "three additional hidden keys changed the weights"
    return worst([near(what, normalizer(more)[..., :keys], normalizer(scores), EXACT)], EXACT)


def rows_apart(subject: NormalizerSubject, keys: int = 7) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores(5, keys)
    whole = normalizer(scores)
    gaps = [
        near("a row in a batch differs from the row alone", normalizer(part), alone, EXACT)
        for axis in (-2, 0)
        for part, alone in zip(scores.split(1, axis), whole.split(1, axis), strict=True)
    ]
    return worst(gaps, EXACT)


def order(subject: NormalizerSubject, keys: int = 7) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores(5, keys)
    if normalizer.ordered:
        raise InapplicableError("the weights depend on the order of the keys")
    permutation = torch.randperm(keys)
    what = "another order of the keys changed the weights"
    gap = near(
        what, normalizer(scores[..., permutation]), normalizer(scores)[..., permutation], EXACT
    )
    return worst([gap], EXACT)


def statistics_path(subject: NormalizerSubject) -> Measurement:
    normalizer, gaps = subject.normalizer(), []
    for size in ((5, 7), (4, 130)):
        scores = subject.scores(*size)
        before = scores.clone()
        statistics = normalizer.statistics(scores)
        direct = normalizer.weights(scores, statistics)
        same("statistics or weights changed the scores in place", scores, before)
        for x in statistics:
            if x.shape[-1:] not in ((), (1,)):
                raise BrokenError(f"a statistic has shape {tuple(x.shape)}, not (…, rows, 1)")
        gaps.append(near("weights() differs from forward()", direct, normalizer(scores), CLOSE))
    return worst(gaps, CLOSE)


def gradient_method(subject: NormalizerSubject, keys: int = 7) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores(5, keys).requires_grad_()
    parameters = tuple(normalizer.parameters())
    weights, upstream = normalizer(scores), torch.randn(scores.shape, dtype=scores.dtype)
    tensors = [scores, *parameters]
    slopes = slopes_of(weights, tensors, upstream)
    with torch.no_grad():
        statistics = normalizer.statistics(scores)
        computed = normalizer.gradient(
            Backward(weights.detach(), upstream, scores.detach(), statistics, parameters)
        )
    if len(computed) != len(tensors):
        raise BrokenError(
            f"gradient() gave {len(computed)} tensors, not {len(tensors)}: scores and parameters"
        )
    gaps = [
        near("gradient() differs from autograd", mine, autograd, CLOSE)
        for mine, autograd in zip(computed, slopes, strict=True)
    ]
    return worst(gaps, CLOSE)


def slope(subject: NormalizerSubject, keys: int = 5) -> Measurement:
    normalizer = subject.normalizer()
    scores = (2 * torch.randn(2, subject.heads, 3, keys, dtype=torch.float64)).requires_grad_()
    return compare_slopes(normalizer, {"the scores": scores}, normalizer)


def shift(subject: NormalizerSubject) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores()
    shift = torch.randn(3, subject.heads, 5, 1, dtype=torch.float64)
    gap = (normalizer(scores + shift) - normalizer(scores)).abs().max().item()
    if normalizer.shift_invariant and gap > CLOSE:
        raise BrokenError(
            f"shift_invariant is declared, but adding a number to a row changed a weight by "
            f"{gap:.2g} (at most {CLOSE:.2g})",
            difference=gap,
        )
    if normalizer.exponential:  # the entropy of a summary is computed from c
        weights = normalizer(scores)
        c = (scores - weights.log()).masked_fill(weights == 0, torch.nan)
        what = "exponential is declared, but log w − s is not the same for all keys of a row: off"
        near(what, c.nan_to_num(0), c.nanmean(-1, True).where(weights > 0, 0), CLOSE)
    if not normalizer.shift_invariant and gap <= CLOSE:
        return Measurement("a shift changes no weight; shift_invariant = True could be declared")
    return Measurement(f"{normalizer.shift_invariant}; a shift changes a weight by {gap:.1g}")


def kernels(subject: NormalizerSubject) -> Measurement:
    additive, normalizer, gaps = ScoreSubject.of(SCORES["additive"]), subject.normalizer(), []
    heads, results = subject.heads, []
    score = additive.score(heads)
    inputs = additive.inputs(7, 7, heads=heads)
    tensors = [*inputs, *score.parameters(), *normalizer.parameters()]
    for kernel in KERNELS:
        mask = causal() & lengths([7, 3, 0])
        output = additive.attend(inputs, score, mask, kernel=kernel, normalize=normalizer).output
        results.append([output, *gradients(output, tensors)])
    for actual, exact in zip(results[1], results[0], strict=True):
        gaps.append(near("the tiled kernel differs from the exact kernel", actual, exact, CLOSE))
    return worst(gaps, CLOSE)


def single(subject: NormalizerSubject) -> Measurement:
    scores, most = subject.scores(dtype=torch.float32), 1e-4
    normalizer = subject.normalizer(torch.float32)
    actual = normalizer(scores)
    if actual.dtype != torch.float32:
        raise BrokenError(f"float32 scores gave {str(actual.dtype)[6:]} weights")
    gap = near("float32 differs from float64", actual, normalizer.double()(scores.double()), most)
    return worst([gap], most)


def state(subject: NormalizerSubject) -> Measurement:
    one, two, scores = subject.normalizer(), subject.normalizer(), subject.scores()
    two.load_state_dict(one.state_dict())
    same("loading the state_dict of a normaliser gave other weights", two(scores), one(scores))
    return Measurement("identical bits")


def twice(subject: NormalizerSubject) -> Measurement:
    normalizer, scores = subject.normalizer(), subject.scores()
    before, first = scores.clone(), normalizer(scores)
    same("the call changed the scores in place", scores, before)
    normalizer(subject.scores(3, 9))
    same("repeating the call changed the result", normalizer(scores), first)
    same("training mode changed the weights", normalizer.eval()(scores), first)
    return Measurement("identical bits, in training and evaluation mode")


def quiet(subject: NormalizerSubject) -> Measurement:
    with no_warnings():
        normalizer: Normalizer = subject.normalizer()
        scores = subject.scores().requires_grad_()
        gradients(normalizer(scores), [scores])
    return Measurement("no warnings")


def long_rows(subject: NormalizerSubject) -> Measurement:
    """Check the laws of rows with many keys."""
    for keys in LONG:
        for check in (hidden, absent, rows_apart, order, gradient_method, slope):
            try:
                with contextlib.suppress(InapplicableError):
                    check(subject, keys)
            except BrokenError as broken:
                raise BrokenError(f"{keys} keys: {broken}", **broken.numbers) from None
    return Measurement("hidden keys, order, rows and gradients hold")


NORMALIZER_LAWS: dict[str, Law[NormalizerSubject]] = {
    "made": Law("Name(heads) gives finite weights of the scores' shape", runs),
    "weights": Law("weights are ≥ 0", weights),
    "hidden keys": Law("a score of −inf gets weight 0 and gradient 0", hidden),
    "empty rows": Law("a row of −inf gives zero weights and finite gradients", empty_rows),
    "absent": Law("additional hidden keys do not change the weights", absent),
    "rows": Law("rows are normalised independently", rows_apart),
    "order": Law("the order of keys does not change their weights", order),
    "quick way": Law("weights(scores, statistics(scores)) = forward(scores)", statistics_path),
    "by hand": Law("gradient() equals autograd of forward()", gradient_method),
    "gradients": Law("gradients of forward match finite differences in float64", slope),
    "shift": Law("shift_invariant and exponential are declared correctly", shift),
    "kernels": Law("the tiled kernel equals the exact kernel, forward and backward", kernels),
    "float32": Law("float32 scores give float32 weights close to float64", single),
    "state": Law("loading a state_dict restores the weights", state),
    "twice": Law("repeating a call gives identical bits", twice),
    "quiet": Law("no warnings", quiet),
    "long rows": Law("the laws hold for rows of 65, 130 and 300 keys", long_rows, long=True),
}
