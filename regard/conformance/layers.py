"""The laws of layers and models: regard's, the user's, the peers'."""

import copy

import torch
from torch import Tensor, nn

from regard.conformance.adapters import Layer
from regard.conformance.law import (
    CLOSE,
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
from regard.conformance.subjects import JUNK, nudge

N = 9  # tokens of the longest text
SIZES = (9, 4, 1)


def built(
    layer: Layer, *, dropout: float = 0.0, dtype: torch.dtype | None = None, train: bool = False
) -> nn.Module:
    """A module of this dtype, or the layer's finest; its parameters away from where they begin."""
    module = layer.build(dropout).to(dtype or layer.dtype).train(train)
    nudge(module)
    return module


def tokens(layer: Layer, batch: int = 3, n: int = N, dtype: torch.dtype | None = None) -> Tensor:
    """Random inputs (batch, n, width) that take a gradient."""
    return torch.randn(batch, n, layer.width, dtype=dtype or layer.dtype).requires_grad_()


def close(layer: Layer) -> float:
    """How near two ways to the same numbers come."""
    return CLOSE if layer.dtype == torch.float64 else 2e-5


def sizes_of(layer: Layer) -> tuple[Tensor, int]:
    """As many texts as heads, where a mask on the wrong axis passes; their lengths."""
    batch = max(layer.heads, 2)
    return torch.tensor([SIZES[i % 3] for i in range(batch)]), batch


def made(layer: Layer) -> Measured:
    module = built(layer)
    for n in (1, 2, 17):
        x = tokens(layer, 2, n)
        for past in layer.modes:
            found = layer.call(module, x, future=not past)
            if found.shape[:2] != (2, n):
                raise BrokenError(f"(2, {n}, {layer.width}) became {tuple(found.shape)}")
            finite("finite inputs", found)
    return Measured("finite outputs at 1, 2 and 17 tokens")


def padding(junk: float, name: str) -> Law[Layer]:
    """The law of one kind of junk in the padding."""

    def check(layer: Layer) -> Measured:
        module, (valid, batch) = built(layer), sizes_of(layer)
        x, gaps = tokens(layer, batch).detach(), []
        for i, size in enumerate(valid):
            x[i, size:] = junk
        x.requires_grad_()
        whole = layer.call(module, x, valid, future=not layer.modes[0])
        alone = []
        for i, size in enumerate(valid):
            one = x.detach()[i : i + 1, :size].requires_grad_()
            plain = layer.call(module, one, future=not layer.modes[0])
            alone.append((one, plain))
            what = f"{name} in padding changed the output of a token"
            gaps.append(near(what, whole[i : i + 1, :size], plain, close(layer)))
        seen = torch.cat([whole[i, :size].flatten() for i, size in enumerate(valid)])
        plain = torch.cat([output.flatten() for _, output in alone])
        parameters = list(module.parameters())
        ours = gradients(seen, [x, *parameters])
        theirs = gradients(plain, [*(one for one, _ in alone), *parameters])
        for i, size in enumerate(valid):
            zero(f"{name} in padding has a gradient", ours[0][i, size:])
            what = f"{name} in padding changed the gradient of a token"
            gaps.append(near(what, ours[0][i : i + 1, :size], theirs[i], close(layer)))
        what = f"{name} in padding changed a parameter's gradient"
        for mine, other in zip(ours[1:], theirs[batch:], strict=True):
            gaps.append(near(what, mine, other, close(layer)))
        return worst(gaps, close(layer))

    return Law(f"{name} in padding changes nothing, nor a gradient", check)


def empty_text(layer: Layer) -> Measured:
    module, x = built(layer), tokens(layer)
    valid = torch.tensor([N, 0, 4])
    found = layer.call(module, x, valid, future=not layer.modes[0])
    finite("beside a text of no tokens", found[[0, 2]])
    finite("the output of a text of no tokens", found[1])
    made = gradients(found[[0, 2]], [x, *module.parameters()])
    finite("gradients beside a text of no tokens", *made)
    return Measured("finite outputs and gradients")


def sees_nothing(layer: Layer) -> Measured:
    module, x, memory = built(layer), tokens(layer), tokens(layer, n=5)
    valid = torch.tensor([5, 0, 2])
    try:
        before = layer.across(module, x, memory, valid)
    except InapplicableError:
        return sees_nothing_of_itself(layer, module, x)
    finite("the output of a query that may see nothing", before[1])
    other = memory.detach().clone()
    other[1] = torch.randn_like(other[1])
    after = layer.across(module, x, other, valid)
    near("hidden keys changed the output of a query that may see nothing", after[1], before[1], 0.0)
    slope = gradients(before, [memory])[0][1]
    finite("the gradient of keys hidden from all queries", slope)
    zero("the gradient of keys hidden from all queries", slope)
    return Measured("what is hidden has no say")


def sees_nothing_of_itself(layer: Layer, module: nn.Module, x: Tensor) -> Measured:
    """The law where queries and keys are one text: each place of it hears no other."""
    valid, past = torch.tensor([N, 0, 4]), layer.modes[0]
    before = layer.call(module, x, valid, future=not past)
    other = x.detach().clone()
    other[1, 0] = torch.randn_like(other[1, 0])
    after = layer.call(module, other, valid, future=not past)
    what = "in a text of no tokens, hidden places changed the output of others"
    near(what, after[1, 1:], before[1, 1:], 0.0)
    return Measured("what is hidden has no say")


def weights_of_nothing(layer: Layer) -> Measured:
    module, x = built(layer), tokens(layer)
    output, found = layer.weights(module, x, torch.tensor([N, 0, 4]))
    finite("beside a text of no tokens, with the weights asked for", output[[0, 2]])
    made = gradients(output[[0, 2]], [x, *module.parameters()])
    finite("gradients of other texts, with the weights asked for", *made)
    finite("the weights of a text of no tokens", found[1])
    zero("the weight of a key in a text of no tokens", found[1])
    return Measured("weights of 0")


def weights(layer: Layer) -> Measured:
    module, (valid, batch) = built(layer), sizes_of(layer)
    _, found = layer.weights(module, tokens(layer, batch), valid)
    if bool((found < 0).any()):
        raise BrokenError(f"a weight is {found.min().item():.2g}", least=found.min().item())
    gaps = []
    for i, size in enumerate(valid):
        zero("the weight of a hidden key", found[i, ..., size:])
        sums = found[i, ..., : int(size), :].sum(-1)
        gaps.append(near("the sum of a row is off 1", sums, torch.ones_like(sums), close(layer)))
    return worst(gaps, close(layer))


def asked_for(layer: Layer) -> Measured:
    module, (valid, batch) = built(layer), sizes_of(layer)
    x = tokens(layer, batch)
    output, _ = layer.weights(module, x, valid)
    plain = layer.call(module, x, valid, future=not layer.modes[0])
    gaps = [
        near("asking for the weights changed the output", output[i, :n], plain[i, :n], close(layer))
        for i, n in enumerate(valid)
    ]
    return worst(gaps, close(layer))


def before_dropout(layer: Layer) -> Measured:
    module, x = built(layer, dropout=0.5, train=True), tokens(layer)
    _, found = layer.weights(module, x, torch.tensor([N, N, N]))
    sums = found.sum(-1)
    what = "in training, with a dropout of 0.5, the sum of a row of the weights given is off 1"
    return worst([near(what, sums, torch.ones_like(sums), close(layer))], close(layer))


def future(layer: Layer) -> Measured:
    if True not in layer.modes:
        raise InapplicableError("it has no causal mask")
    for n in (9, 33):
        module = built(layer, dtype=torch.float32)
        x, now = tokens(layer, n=n, dtype=torch.float32), n // 2
        later = x.detach().clone()
        later[:, now:] = 50 * torch.randn_like(later[:, now:])
        before, after = (layer.call(module, y, future=False)[:, :now] for y in (x, later))
        same("what comes later changed an output before it", after, before)
    return Measured("the same bits")


def cache(layer: Layer) -> Measured:
    gaps = []
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        if dtype == torch.float64 != layer.dtype:
            continue
        module, x = built(layer, dtype=dtype), tokens(layer, dtype=dtype)
        with torch.no_grad():
            steps, full = layer.steps(module, x), layer.call(module, x, future=False)
        what = f"step by step differs from all at once in {str(dtype).removeprefix('torch.')}"
        gaps.append(near(what, steps, full, most))
    return worst(gaps, 1e-5)


def order(layer: Layer) -> Measured:
    if layer.positions or False not in layer.modes:
        raise InapplicableError("it knows where a token stands")
    module, x = built(layer), tokens(layer)
    turned = torch.randperm(N)
    found, plain = layer.call(module, x[:, turned]), layer.call(module, x)
    what = "tokens in another order got other outputs"
    return worst([near(what, found, plain[:, turned], close(layer))], close(layer))


def batches(layer: Layer) -> Measured:
    module, (valid, batch) = built(layer), sizes_of(layer)
    x, gaps = tokens(layer, batch), []
    for past in layer.modes:
        whole = layer.call(module, x, valid, future=not past)
        for i, size in enumerate(valid):
            alone = layer.call(module, x[i : i + 1], valid[i : i + 1], future=not past)
            what = "a text among others differs from the text alone"
            gaps.append(near(what, whole[i, :size], alone[0, :size], close(layer)))
    return worst(gaps, close(layer))


def slope(layer: Layer) -> Measured:
    if layer.dtype != torch.float64:
        raise InapplicableError("it does not compute in float64 throughout")
    module, x = built(layer), tokens(layer, 2, 4)
    valid, names = torch.tensor([4, 2]), [name for name, _ in module.named_parameters()]
    called = _Called(layer, module, valid)

    def f(*given: Tensor) -> Tensor:
        named = {f"module.{n}": x for n, x in zip(names, given[1:], strict=True)}
        found: Tensor = torch.func.functional_call(called, named, (given[0],))
        return torch.cat([found[0].flatten(), found[1, :2].flatten()])

    named = zip(names, (p.detach().requires_grad_() for p in module.parameters()), strict=True)
    return slopes(f, {"the input": x, **dict(named)})


class _Called(nn.Module):
    """A layer's call as a module, for `functional_call`."""

    def __init__(self, layer: Layer, module: nn.Module, valid: Tensor) -> None:
        super().__init__()
        self.layer, self.module, self.valid = layer, module, valid

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.call(self.module, x, self.valid, future=not self.layer.modes[0])


def inference(layer: Layer) -> Measured:
    module, (valid, batch) = built(layer), sizes_of(layer)
    x, gaps = tokens(layer, batch), []
    for past in layer.modes:
        plain = layer.call(module, x, valid, future=not past).detach()
        with torch.inference_mode():
            found = layer.call(module, x.detach(), valid, future=not past)
        if found.shape != plain.shape:
            raise BrokenError(
                f"without gradients the output is {tuple(found.shape)}, with them "
                f"{tuple(plain.shape)}"
            )
        what = "without gradients the output differs"
        gaps += [near(what, found[i, :n], plain[i, :n], close(layer)) for i, n in enumerate(valid)]
    return worst(gaps, close(layer))


def coarser(dtype: torch.dtype, most: float) -> Law[Layer]:
    """The law of a dtype: near float64, gradients finite."""
    name = str(dtype).removeprefix("torch.")

    def check(layer: Layer) -> Measured:
        module, (valid, batch) = built(layer, dtype=dtype), sizes_of(layer)
        finer, x, gaps = copy.deepcopy(module).double(), tokens(layer, batch, dtype=dtype), []
        for past in layer.modes:
            found = layer.call(module, x, valid, future=not past)
            if found.dtype != dtype:
                raise BrokenError(f"{name} came in and {str(found.dtype)[6:]} came out")
            exact = layer.call(finer, x.detach().double(), valid, future=not past)
            for i, n in enumerate(valid):
                gaps.append(near(f"{name} is off float64", found[i, :n], exact[i, :n], most))
            finite(f"gradients in {name}", *gradients(found, [x, *module.parameters()]))
        return worst(gaps, most)

    return Law(f"in {name} it runs and is near float64 (at most {most:g})", check)


def dropout(layer: Layer) -> Measured:
    if not layer.one_attention:
        raise InapplicableError("more than a mean of values follows the weights")
    repeats, x = 800, tokens(layer, 1, 4, torch.float32).detach()
    module = built(layer, dropout=0.25, dtype=torch.float32, train=True)
    with torch.no_grad():
        found = layer.call(module, x.expand(repeats, -1, -1))
        plain = layer.call(module.eval(), x)
    spread = found.std(0) / repeats**0.5
    if not float(spread.min()) > 0:
        raise BrokenError("a dropout of 0.25 drops nothing")
    off = ((found.mean(0) - plain[0]).abs() / spread).max().item()
    if not off < 5:
        raise BrokenError(
            f"dropout moved the mean by {off:.1f} standard errors (at most 5)", off=off
        )
    return Measured(f"the mean moved by {off:.1f} standard errors", {"standard_errors": off})


def train_and_eval(layer: Layer) -> Measured:
    module, (valid, batch) = built(layer), sizes_of(layer)
    x = tokens(layer, batch)
    found = [
        layer.call(module.train(training), x, valid, future=not layer.modes[0])
        for training in (True, False)
    ]
    gaps = [
        near("training mode changed the output", found[0][i, :n], found[1][i, :n], close(layer))
        for i, n in enumerate(valid)
    ]
    return worst(gaps, close(layer))


def state(layer: Layer) -> Measured:
    one, two, x = built(layer), built(layer), tokens(layer)
    two.load_state_dict(one.state_dict())
    found = [layer.call(module, x, future=not layer.modes[0]) for module in (one, two)]
    same("one loaded from the state of another differs from it", found[1], found[0])
    return Measured("the same bits")


def twice(layer: Layer) -> Measured:
    module, x = built(layer), tokens(layer)
    first = layer.call(module, x, future=not layer.modes[0])
    layer.call(module, tokens(layer, 2, 5), future=not layer.modes[0])
    same("the same call again differed", layer.call(module, x, future=not layer.modes[0]), first)
    return Measured("the same bits")


def untouched(layer: Layer) -> Measured:
    module, x = built(layer), tokens(layer).detach()
    before = [y.clone() for y in (x, *module.parameters(), *module.buffers())]
    with torch.no_grad():
        layer.call(module, x, torch.tensor(SIZES), future=not layer.modes[0])
    for y, was in zip((x, *module.parameters(), *module.buffers()), before, strict=True):
        same("the call changed its input or its own state in place", y, was)
    return Measured("input, parameters and buffers keep their bits")


def quiet(layer: Layer) -> Measured:
    with silence():
        module, x = built(layer), tokens(layer)
        for past in layer.modes:
            found = layer.call(module, x, torch.tensor(SIZES), future=not past)
            gradients(found, [x])
    return Measured("no warning")


LAYER_LAWS: dict[str, Law[Layer]] = {
    "made": Law("it takes 1, 2 and 17 tokens and gives finite outputs", made),
    **{f"padding {name}": padding(junk, name) for junk, name in JUNK.items()},
    "empty text": Law("a text of no tokens gives finite outputs and harms no other", empty_text),
    "sees nothing": Law("keys that are all hidden have no say and no gradient", sees_nothing),
    "weights": Law("weights are ≥ 0, sum to 1, and are exactly 0 for hidden keys", weights),
    "weights of nothing": Law(
        "a text of no tokens has weights of 0, and harms no gradient of others", weights_of_nothing
    ),
    "weights asked": Law("asking for the weights changes no output", asked_for),
    "weights before dropout": Law("in training, the weights given sum to 1", before_dropout),
    "future": Law("under a causal mask nothing later changes a bit before it", future),
    "cache": Law("step by step with a cache is all at once", cache),
    "order": Law("without positions, tokens in another order get the same outputs", order),
    "batches": Law("a text among others, as many as heads, is the text alone", batches),
    "gradients": Law("gradients are slopes, in float64: to input and parameters", slope),
    "inference": Law("without gradients it gives the same", inference),
    "float32": coarser(torch.float32, 1e-4),
    "bfloat16": coarser(torch.bfloat16, 0.15),
    "dropout": Law("dropout keeps the mean", dropout),
    "train and eval": Law("without dropout, training mode changes nothing", train_and_eval),
    "state": Law("state_dict makes the round trip", state),
    "twice": Law("the same call twice gives the same bits", twice),
    "untouched": Law("a call changes neither its input nor the module", untouched),
    "quiet": Law("no warnings", quiet),
}
