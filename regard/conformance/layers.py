"""Laws of layers and models."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.conformance.adapters import Layer
from regard.conformance.arguments import ARGUMENT_LAWS
from regard.conformance.law import (
    CLOSE,
    SINGLE,
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
    worst,
    zero,
)
from regard.conformance.long_texts import LONG_LAWS
from regard.conformance.subjects import JUNK, nudge

N = 9  # tokens of the longest text
SIZES = (9, 4, 1)
#: Why packages may give hidden keys equal weights where the query is padding itself.
AVERAGES = (
    "a query of padding that sees nothing averages all keys, a convention: leave it out of the loss"
)


def build(
    layer: Layer, *, dropout: float = 0.0, dtype: torch.dtype | None = None, train: bool = False
) -> nn.Module:
    """Return a module in this dtype, by default the layer's, with changed parameters."""
    module = layer.build(dropout).to(dtype or layer.dtype).train(train)
    nudge(module)
    return module


def tokens(layer: Layer, batch: int = 3, n: int = N, dtype: torch.dtype | None = None) -> Tensor:
    """Return random inputs (batch, n, width) that require gradients."""
    return torch.randn(batch, n, layer.width, dtype=dtype or layer.dtype).requires_grad_()


def texts(layer: Layer, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Return as many texts as heads, so that masks on the wrong axis would broadcast, and sizes."""
    batch = max(layer.heads, 2)
    valid = torch.tensor([SIZES[i % 3] for i in range(batch)])
    return tokens(layer, batch, dtype=dtype), valid


def near_texts(
    what: str, actual: Tensor, expected: Tensor, valid: Tensor, most: float = CLOSE
) -> list[float]:
    """Return the difference of each text without its padding, as `near`."""
    return [near(what, actual[i, :n], expected[i, :n], most) for i, n in enumerate(valid)]


@contextmanager
def excused(applies: bool, reason: str) -> Iterator[None]:
    """Report a failure as a law that does not apply, with this reason, if the excuse applies."""
    try:
        yield
    except BrokenError as broken:
        if not applies:
            raise
        raise InapplicableError(f"{broken}; {reason}") from None


def runs(layer: Layer) -> Measurement:
    module = build(layer)
    for n in (1, 2, 17):
        x = tokens(layer, 2, n)
        for is_causal in layer.modes:
            output = layer.call(module, x, future=not is_causal)
            if output.shape[:2] != (2, n):
                raise BrokenError(
                    f"inputs (2, {n}, {layer.width}) gave outputs {tuple(output.shape)}"
                )
            finite("the output for finite inputs", output)
    return Measurement("finite outputs at 1, 2 and 17 tokens")


def padding(junk: float, name: str) -> Law[Layer]:
    """Return the law that this junk in padding has no effect."""

    def check(layer: Layer) -> Measurement:
        unpromised = layer.foreign and not math.isfinite(junk)
        return excused(unpromised, "few packages promise more")(measure)(layer)

    def measure(layer: Layer) -> Measurement:
        module, (x, valid), gaps = build(layer), texts(layer), []
        with torch.no_grad():
            for i, size in enumerate(valid):
                x[i, size:] = junk
        whole = layer.call(module, x, valid, future=not layer.modes[0])
        alone = []
        for i, size in enumerate(valid):
            one = x.detach()[i : i + 1, :size].requires_grad_()
            plain = layer.call(module, one, future=not layer.modes[0])
            alone.append((one, plain))
            what = f"{name} in padding changed the output of a token"
            gaps.append(near(what, whole[i : i + 1, :size], plain, CLOSE))
        valid_outputs = torch.cat([whole[i, :size].flatten() for i, size in enumerate(valid)])
        plain = torch.cat([output.flatten() for _, output in alone])
        parameters = list(module.parameters())
        actual = gradients(valid_outputs, [x, *parameters])
        expected = gradients(plain, [*(one for one, _ in alone), *parameters])
        for i, size in enumerate(valid):
            zero(f"{name} in padding has a gradient", actual[0][i, size:])
            what = f"{name} in padding changed the gradient of a token"
            gaps.append(near(what, actual[0][i : i + 1, :size], expected[i], CLOSE))
        what = f"{name} in padding changed a parameter's gradient"
        for mine, other in zip(actual[1:], expected[len(valid) :], strict=True):
            gaps.append(near(what, mine, other, CLOSE))
        return worst(gaps, CLOSE)

    return Law(f"{name} in padding changes neither outputs nor gradients", check)


def large_words(layer: Layer) -> Measurement:
    """Check that hidden words stay hidden where all visible scores are far below zero."""
    if layer.dtype != torch.float64:
        raise InapplicableError("the layer does not compute in float64 throughout")
    module, (words, valid), gaps = build(layer), texts(layer), []
    x = words.detach()
    for i, size in enumerate(valid):
        x[i, :size] *= 1e6
    whole = layer.call(module, x, valid, future=not layer.modes[0])
    for i, size in enumerate(valid):
        alone = layer.call(module, x[i : i + 1, :size], future=not layer.modes[0])
        what = "with words of size 1e6 (hide them by -inf, not a number) padding changed an output"
        gaps.append(near(what, whole[i : i + 1, :size], alone, CLOSE))
    return worst(gaps, CLOSE)


def empty_text(layer: Layer) -> Measurement:
    module, x = build(layer), tokens(layer)
    valid = torch.tensor([N, 0, 4])
    output = layer.call(module, x, valid, future=not layer.modes[0])
    finite("the output of texts next to an empty text", output[[0, 2]])
    finite("the output of an empty text", output[1])
    slopes = gradients(output[[0, 2]], [x, *module.parameters()])
    finite("gradients of texts next to an empty text", *slopes)
    return Measurement("finite outputs and gradients")


def sees_nothing(layer: Layer) -> Measurement:
    module, x, memory = build(layer), tokens(layer), tokens(layer, n=5)
    valid = torch.tensor([5, 0, 2])
    try:
        before = layer.across(module, x, memory, valid)
    except InapplicableError:
        return sees_nothing_in_self_attention(layer, module, x)
    finite("the output of a query without visible keys", before[1])
    other = memory.detach().clone()
    other[1] = torch.randn_like(other[1])
    after = layer.across(module, x, other, valid)
    what = "hidden keys changed the output of a query without visible keys"
    near(f"{what} (harmless unless a memory is empty)", after[1], before[1], 0.0)
    slope = gradients(before, [memory])[0][1]
    finite("the gradient of keys hidden from all queries", slope)
    zero("the gradient of keys hidden from all queries", slope)
    return Measurement("hidden keys have no effect")


def sees_nothing_in_self_attention(layer: Layer, module: nn.Module, x: Tensor) -> Measurement:
    """Check the law in self-attention: in an empty text, no position affects another."""
    valid, is_causal = torch.tensor([N, 0, 4]), layer.modes[0]
    before = layer.call(module, x, valid, future=not is_causal)
    other = x.detach().clone()
    other[1, 0] = torch.randn_like(other[1, 0])
    after = layer.call(module, other, valid, future=not is_causal)
    finite("the output of an empty text", before[1], after[1])
    what = "a hidden position of an empty text changed the output of another text"
    near(what, after[[0, 2]], before[[0, 2]], 0.0)
    with excused(layer.foreign, AVERAGES):
        what = "in an empty text, a hidden position changed the output of others"
        near(what, after[1, 1:], before[1, 1:], 0.0)
    return Measurement("hidden keys have no effect")


def weights_of_nothing(layer: Layer) -> Measurement:
    module, x = build(layer), tokens(layer)
    output, weights = layer.weights(module, x, torch.tensor([N, 0, 4]))
    finite("with weights requested, the output of texts next to an empty text", output[[0, 2]])
    slopes = gradients(output[[0, 2]], [x, *module.parameters()])
    finite("with weights requested, the gradients of texts next to an empty text", *slopes)
    finite("the weights of an empty text", weights[1])
    equal = bool((weights[1] - 1 / N).abs().max() < SINGLE)
    with excused(layer.foreign and equal, AVERAGES):
        zero("the weight of a key in an empty text", weights[1])
    return Measurement("weights of 0")


def weights(layer: Layer) -> Measurement:
    module, (x, valid) = build(layer), texts(layer)
    _, weights = layer.weights(module, x, valid)
    if bool((weights < 0).any()):
        raise BrokenError(f"a weight is {weights.min().item():.2g}", least=weights.min().item())
    gaps = []
    for i, size in enumerate(valid):
        rows = weights[i, ..., :size, :] if layer.foreign else weights[i]  # of words, not padding
        zero("the weight of a hidden key", rows[..., size:])
        if layer.modes == (True,):
            zero("the weight of a later token", rows[..., :size, :size].triu(1))
        sums = weights[i, ..., : int(size), :].sum(-1)
        gaps.append(near("the sum of a row differs from 1", sums, torch.ones_like(sums), CLOSE))
    return worst(gaps, CLOSE)


def weights_requested(layer: Layer) -> Measurement:
    module, (x, valid) = build(layer), texts(layer)
    output, _ = layer.weights(module, x, valid)
    plain = layer.call(module, x, valid, future=not layer.modes[0])
    what = "requesting weights changed the output"
    return worst(near_texts(what, output, plain, valid), CLOSE)


def before_dropout(layer: Layer) -> Measurement:
    module, x = build(layer, dropout=0.5, train=True), tokens(layer)
    _, weights = layer.weights(module, x, torch.tensor([N, N, N]))
    sums = weights.sum(-1)
    what = "in training with dropout=0.5, the sum of a row of weights differs from 1"
    return worst([near(what, sums, torch.ones_like(sums), CLOSE)], CLOSE)


def future(layer: Layer) -> Measurement:
    if True not in layer.modes:
        raise InapplicableError("the layer has no causal mask")
    for n in (9, 33):
        module = build(layer, dtype=torch.float32)
        x, cut = tokens(layer, n=n, dtype=torch.float32), n // 2
        changed = x.detach().clone()
        changed[:, cut:] = 50 * torch.randn_like(changed[:, cut:])
        before, after = (layer.call(module, y, future=False)[:, :cut] for y in (x, changed))
        same("later tokens changed an earlier output", after, before)
    return Measurement("identical bits")


def cache(layer: Layer) -> Measurement:
    gaps = []
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        if dtype == torch.float64 != layer.dtype:
            continue
        module, x = build(layer, dtype=dtype), tokens(layer, dtype=dtype)
        with torch.no_grad():
            steps, full = layer.steps(module, x), layer.call(module, x, future=False)
        what = (
            f"steps with a cache differ from a single pass in {str(dtype).removeprefix('torch.')}"
        )
        gaps.append(near(what, steps, full, most))
    return worst(gaps, 1e-5)


def order(layer: Layer) -> Measurement:
    if layer.positions or False not in layer.modes:
        raise InapplicableError("the layer uses positions or has no bidirectional attention")
    module, x = build(layer), tokens(layer)
    permutation = torch.randperm(N)
    permuted, plain = layer.call(module, x[:, permutation]), layer.call(module, x)
    what = "another order of the tokens changed their outputs"
    return worst([near(what, permuted, plain[:, permutation], CLOSE)], CLOSE)


def batches(layer: Layer) -> Measurement:
    module, (x, valid), gaps = build(layer), texts(layer), list[float]()
    for is_causal in layer.modes:
        whole = layer.call(module, x, valid, future=not is_causal)
        for i, size in enumerate(valid):
            alone = layer.call(module, x[i : i + 1], valid[i : i + 1], future=not is_causal)
            what = "a text in a batch differs from the text alone"
            gaps.append(near(what, whole[i, :size], alone[0, :size], CLOSE))
    return worst(gaps, CLOSE)


def slope(layer: Layer) -> Measurement:
    if layer.dtype != torch.float64:
        raise InapplicableError("the layer does not compute in float64 throughout")
    module, x = build(layer), tokens(layer, 2, 4)

    def f(x: Tensor) -> Tensor:
        output = layer.call(module, x, torch.tensor([4, 2]), future=not layer.modes[0])
        return torch.cat([output[0].flatten(), output[1, :2].flatten()])

    return compare_slopes(f, {"the input": x}, module)


def inference(layer: Layer) -> Measurement:
    module, (x, valid), gaps = build(layer), texts(layer), list[float]()
    for is_causal in layer.modes:
        plain = layer.call(module, x, valid, future=not is_causal).detach()
        with torch.inference_mode():
            output = layer.call(module, x.detach(), valid, future=not is_causal)
        if output.shape != plain.shape:
            raise BrokenError(
                f"in inference mode the output has shape {tuple(output.shape)}, otherwise "
                f"{tuple(plain.shape)}"
            )
        what = "inference mode changed the output"
        gaps += near_texts(what, output, plain, valid)
    return worst(gaps, CLOSE)


def _again(layer: Layer, module: nn.Module) -> nn.Module:
    """Return another module in the layer's dtype with the same parameters and buffers."""
    other = layer.build().to(layer.dtype).train(module.training)
    other.load_state_dict(module.state_dict(), strict=False)  # a call may make buffers
    return other


def reduced_precision(dtype: torch.dtype, most: float) -> Law[Layer]:
    """Return the law that results in a dtype are close to float64, with finite gradients."""
    name = str(dtype).removeprefix("torch.")

    def check(layer: Layer) -> Measurement:
        if not layer.casts:
            raise InapplicableError("it has a dtype of its own, which module.to() does not change")
        module, gaps = build(layer, dtype=dtype), list[float]()
        reference, (x, valid) = _again(layer, module), texts(layer, dtype)
        for is_causal in layer.modes:
            output = layer.call(module, x, valid, future=not is_causal)
            if output.dtype != dtype:
                raise BrokenError(f"{name} inputs gave {str(output.dtype)[6:]} outputs")
            exact = layer.call(reference, x.detach().to(layer.dtype), valid, future=not is_causal)
            gaps += near_texts(f"{name} differs from float64", output, exact, valid, most)
            finite(f"gradients in {name}", *gradients(output, [x, *module.parameters()]))
        return worst(gaps, most)

    return Law(f"{name} gives results close to float64 (at most {most:g})", check)


def train_and_eval(layer: Layer) -> Measurement:
    module, (x, valid) = build(layer), texts(layer)
    one, two = (
        layer.call(module.train(training), x, valid, future=not layer.modes[0])
        for training in (True, False)
    )
    return worst(near_texts("training mode changed the output", one, two, valid), CLOSE)


def state(layer: Layer) -> Measurement:
    one, two, x = build(layer), build(layer), tokens(layer)
    two.load_state_dict(one.state_dict())
    outputs = [layer.call(module, x, future=not layer.modes[0]) for module in (one, two)]
    same("loading the state_dict of a module gave another output", outputs[1], outputs[0])
    return Measurement("identical bits")


def twice(layer: Layer) -> Measurement:
    module, x = build(layer), tokens(layer)
    first = layer.call(module, x, future=not layer.modes[0])
    layer.call(module, tokens(layer, 2, 5), future=not layer.modes[0])
    again = layer.call(module, x, future=not layer.modes[0])
    same("repeating the call changed the result", again, first)
    return Measurement("identical bits")


def untouched(layer: Layer) -> Measurement:
    module, x = build(layer), tokens(layer).detach()
    named = {"x": x, **dict(module.named_parameters()), **dict(module.named_buffers())}
    before = {name: y.clone() for name, y in named.items()}
    with torch.no_grad():
        layer.call(module, x, torch.tensor(SIZES), future=not layer.modes[0])
    named |= dict(module.named_buffers())  # also one that was replaced
    for name, was in before.items():
        same("the call changed its input or the module's state in place", named[name], was)
    return Measurement("input, parameters and buffers are unchanged")


def quiet(layer: Layer) -> Measurement:
    with no_warnings():
        module, x = build(layer), tokens(layer)
        for is_causal in layer.modes:
            output = layer.call(module, x, torch.tensor(SIZES), future=not is_causal)
            gradients(output, [x])
    return Measurement("no warnings")


LAYER_LAWS: dict[str, Law[Layer]] = {
    "made": Law("1, 2 and 17 tokens give finite outputs", runs),
    **{f"padding {name}": padding(junk, name) for junk, name in JUNK.items()},
    "large words": Law("padding stays hidden next to words of size 1e6", large_words),
    "empty text": Law("an empty text gives finite outputs and does not affect others", empty_text),
    "sees nothing": Law("keys that are all hidden have no effect and no gradient", sees_nothing),
    "weights": Law("weights are ≥ 0, sum to 1, and are exactly 0 for hidden keys", weights),
    "weights of nothing": Law(
        "an empty text has weights of 0 and leaves other gradients finite", weights_of_nothing
    ),
    "weights asked": Law("requesting weights does not change the output", weights_requested),
    "weights before dropout": Law("in training, returned weights sum to 1", before_dropout),
    "future": Law(
        "with a causal mask, later tokens do not change a bit of earlier outputs", future
    ),
    "cache": Law("steps with a cache equal a single pass", cache),
    "order": Law("without positions, the order of tokens does not change their outputs", order),
    "batches": Law("a text in a batch, of as many texts as heads, equals the text alone", batches),
    "gradients": Law(
        "gradients of input and parameters match finite differences in float64", slope
    ),
    "inference": Law("inference mode does not change the output", inference),
    "float32": reduced_precision(torch.float32, 1e-4),
    "bfloat16": reduced_precision(torch.bfloat16, 0.15),
    **ARGUMENT_LAWS,
    "train and eval": Law(
        "without dropout, training mode does not change the output", train_and_eval
    ),
    "state": Law("loading a state_dict restores the outputs", state),
    "twice": Law("repeating a call gives identical bits", twice),
    "untouched": Law("a call does not change its input or the module", untouched),
    "quiet": Law("no warnings", quiet),
    **LONG_LAWS,
}
