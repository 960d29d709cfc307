"""Laws of whole networks: which inputs the output for a text may depend on."""

import contextlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.conformance.law import (
    CLOSE,
    LONG,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    finite,
    near,
    same,
    worst,
)
from regard.training.interface import Interface, texts

SIZES = (7, 4, 1)  # tokens of the texts in a batch
TARGET = 5  # tokens of each target of an encoder-decoder


@dataclass(frozen=True)
class NetworkSubject:
    """A network with a vocabulary, built anew for each law.

    ``interface``: how the network's task calls it and what it must return. ``longest``: the maximum
    number of tokens, if limited; ``wanted``: the lengths of the texts in a batch otherwise.
    ``labels``: the number of labels of the task, if it has some.
    """

    name: str
    make: Callable[[], nn.Module]
    interface: Interface
    vocabulary: int
    longest: int | None = None
    labels: int = 0
    wanted: tuple[int, ...] = SIZES

    @property
    def sizes(self) -> list[int]:
        """Return the lengths of the texts in a batch."""
        return [min(size, self.longest or size) for size in self.wanted]

    def build(self) -> nn.Module:
        """Return the network in float64 and evaluation mode. Raises: it requires trees."""
        network = deepcopy(self.make()).double().eval()
        if getattr(network, "reads_trees", False):
            raise InapplicableError("the network requires the tree of each text")
        return network

    def texts(self) -> tuple[Tensor, Tensor]:
        """Return token ids (3, time) with junk after each text, and the lengths of the texts."""
        lengths = torch.tensor(self.sizes)
        return torch.randint(2, self.vocabulary, (len(lengths), int(lengths.max()))), lengths

    def call(self, network: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs for the texts, which are the sources of an encoder-decoder."""
        with torch.no_grad():
            if self.interface.form != "another":
                return _tensor(self.interface.call(network, tokens, lengths))
            target = (tokens[:, :1] + torch.arange(TARGET)) % self.vocabulary
            return _tensor(network(tokens, lengths, target))

    def valid(self, output: Tensor, size: int) -> Tensor:
        """Return the output of one text without its padding."""
        by_token = output.ndim > 1 and self.interface.form != "another"
        return output[:size] if by_token else output


def _tensor(output: object) -> Tensor:
    if not isinstance(output, Tensor):
        raise BrokenError(f"the output is a {type(output).__name__}, not a tensor")
    return output


def computes(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build(), subject.texts()
    output = subject.call(network, tokens, lengths)
    if len(output) != len(tokens):
        raise BrokenError(f"the output has {len(output)} rows for {len(tokens)} texts")
    for row, size in zip(output, lengths, strict=True):
        finite("an output", subject.valid(row, int(size)))
    return Measurement(f"{len(tokens)} texts to {tuple(output.shape)}")


def outputs(subject: NetworkSubject) -> Measurement:
    interface = subject.interface
    if not interface.outputs:
        raise InapplicableError("the number of outputs is not known")
    network, (tokens, lengths) = subject.build(), subject.texts()
    sizes = {"vocabulary": subject.vocabulary, "labels": subject.labels}
    with torch.no_grad():
        output = interface.call(network, tokens, lengths)
        if fault := interface.fault(network, output, tokens, sizes):
            raise BrokenError(fault)
    return Measurement(f"{sizes[interface.outputs]} for each {interface.each}")


def padding(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build(), subject.texts()
    room = tokens.shape[1] + 3
    if subject.longest and room > subject.longest:
        tokens, room = tokens[:, : subject.longest], subject.longest
    gaps = []
    before = subject.call(network, tokens, lengths)
    for junk in (0, subject.vocabulary - 1):
        wide = torch.full((len(tokens), room), junk)
        for row, size in enumerate(lengths):
            wide[row, :size] = tokens[row, :size]
        after = subject.call(network, wide, lengths)
        for row, size in enumerate(lengths):
            actual, expected = (subject.valid(x[row], int(size)) for x in (after, before))
            gaps.append(near("padding changed an output", actual, expected, CLOSE))
    return worst(gaps, CLOSE)


def batches(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build(), subject.texts()
    together, gaps = subject.call(network, tokens, lengths), []
    for row, size in enumerate(int(n) for n in lengths):
        alone = subject.call(network, tokens[row : row + 1, :size], lengths[row : row + 1])[0]
        actual, expected = subject.valid(together[row], size), subject.valid(alone, size)
        gaps.append(near("a text in a batch differs from the text alone", actual, expected, CLOSE))
    return worst(gaps, CLOSE)


def order(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build(), subject.texts()
    permutation = torch.tensor([2, 0, 1])
    plain = subject.call(network, tokens, lengths)
    permuted = subject.call(network, tokens[permutation], lengths[permutation])
    gaps = [
        near(
            "another order of the texts changed their outputs",
            subject.valid(permuted[place], int(lengths[row])),
            subject.valid(plain[row], int(lengths[row])),
            CLOSE,
        )
        for place, row in enumerate(permutation.tolist())
    ]
    return worst(gaps, CLOSE)


def future(subject: NetworkSubject) -> Measurement:
    if not subject.interface.left_to_right:
        raise InapplicableError("the network reads whole texts")
    network, (tokens, lengths) = subject.build(), subject.texts()
    gaps = []
    with torch.no_grad():
        form = subject.interface.form
        source = (tokens, lengths) if form == "another" else ()
        sizes = (torch.full_like(lengths, tokens.shape[1]),) if form == "reads" else ()
        before = _tensor(network(*source, tokens, *sizes))
        for cut in range(1, tokens.shape[1], 1 + tokens.shape[1] // 16):
            changed = tokens.clone()
            changed[:, cut:] = (changed[:, cut:] + 1) % subject.vocabulary
            after = _tensor(network(*source, changed, *sizes))[:, :cut]
            what = f"later tokens changed the output of token {cut}"
            gaps.append(near(what, after, before[:, :cut], CLOSE))
        for text in texts(subject.vocabulary, subject.longest):
            if fault := subject.interface.looks_ahead(network, text, subject.vocabulary):
                raise BrokenError(fault)
    return worst(gaps, CLOSE)


def empty(subject: NetworkSubject) -> Measurement:
    if subject.interface.form == "on":
        raise InapplicableError("the network requires at least one token")
    network, (tokens, lengths) = subject.build(), subject.texts()
    lengths = lengths.clone()
    lengths[1] = 0
    output = subject.call(network, tokens, lengths)
    if output.ndim == 2 or subject.interface.form == "another":
        finite("the output for an empty text", output[1])
    for row in (0, 2):
        finite("the output of a text next to an empty text", output[row, : int(lengths[row])])
    return Measurement("finite outputs")


def gradients(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build().train(), subject.texts()
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise InapplicableError("the network has no trainable parameters")
    output = _tensor(subject.interface.call(network, tokens, lengths))
    sizes = lengths.tolist()
    total = sum(
        (subject.valid(row, size).sum() for row, size in zip(output, sizes, strict=True)),
        torch.zeros((), dtype=output.dtype),
    )
    slopes = torch.autograd.grad(total, parameters, allow_unused=True)
    used = [g for g in slopes if g is not None]
    finite("a gradient", *used)
    return Measurement(f"{len(used)} of {len(parameters)} parameters have gradients")


def evaluation(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build(), subject.texts()
    first = subject.call(network, tokens, lengths)
    network.train()
    subject.call(network, tokens, lengths)
    second = subject.call(network.eval(), tokens, lengths)
    same("a call in training mode changed later outputs", second, first)
    return Measurement("identical bits")


def state(subject: NetworkSubject) -> Measurement:
    network, (tokens, lengths) = subject.build(), subject.texts()
    other = subject.build()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    other.load_state_dict(network.state_dict())
    first, second = (subject.call(each, tokens, lengths) for each in (network, other))
    same("loading the state_dict of a network gave other outputs", second, first)
    return Measurement("identical bits")


def long_texts(subject: NetworkSubject) -> Measurement:
    longest = min(LONG[1], subject.longest or LONG[1])
    if longest <= SIZES[0]:
        raise InapplicableError(f"the network takes texts of {longest} tokens")
    long = replace(subject, wanted=(longest, longest // 2 + 1, 20))
    numbers = []
    for check in (padding, batches, future):
        with contextlib.suppress(InapplicableError):
            numbers.append(check(long).numbers["difference"])
    return worst(numbers, CLOSE)


NETWORK_LAWS: dict[str, Law[NetworkSubject]] = {
    "computes": Law("outputs are finite, one row for each text", computes),
    "outputs": Law("there are as many outputs as the task needs", outputs),
    "padding": Law("padding does not change the output", padding),
    "batches": Law("the output of a text does not depend on other texts", batches),
    "order": Law("the order of texts does not change their outputs", order),
    "future": Law("no output depends on later tokens", future),
    "empty text": Law("an empty text gives finite outputs and does not affect others", empty),
    "gradients": Law("gradients are finite", gradients),
    "evaluation": Law("a call in training mode does not change later outputs", evaluation),
    "state": Law("state_dict contains the whole state", state),
    "long texts": Law(
        "padding, other texts and later tokens change nothing at 130 tokens", long_texts, long=True
    ),
}
