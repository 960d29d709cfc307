"""The laws of whole networks: what a text's answer may depend on, and what it may not."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.conformance.law import (
    CLOSE,
    BrokenError,
    InapplicableError,
    Law,
    Measured,
    finite,
    near,
    same,
    worst,
)

SIZES = (7, 4, 1)  # tokens of the texts that are read side by side
GIVEN = 5  # tokens of the text that is written beside each


@dataclass(frozen=True)
class NetworkSubject:
    """A network with a vocabulary, made anew for each law.

    ``form`` says how it is called: "reads" as ``network(tokens, lengths)``, with an answer for each
    text or for each token; "on" as ``network(tokens)``, a state for each token that may know those
    before it; "another" as ``network(source, lengths, tokens)``, the same for the text that is
    written beside a source. ``longest``: tokens that it can read, where that is limited.
    """

    name: str
    make: Callable[[], nn.Module]
    form: Literal["reads", "on", "another"]
    vocabulary: int
    longest: int | None = None

    @property
    def sizes(self) -> list[int]:
        """Tokens of the texts that laws are checked on."""
        return [min(size, self.longest or size) for size in SIZES]

    def build(self) -> nn.Module:
        """Return the network in float64, in evaluation mode. Errors: it reads trees."""
        network = deepcopy(self.make()).double().eval()
        if getattr(network, "reads_trees", False):
            raise InapplicableError("it reads the tree of each text")
        return network

    def texts(self) -> tuple[Tensor, Tensor]:
        """Return token ids (3, time) with junk behind each text, and the texts' lengths."""
        lengths = torch.tensor(self.sizes)
        return torch.randint(2, self.vocabulary, (len(lengths), int(lengths.max()))), lengths

    def call(self, network: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs for some texts; of a source with a text of its own beside it."""
        with torch.no_grad():
            if self.form == "on":
                return _tensor(network(tokens))
            if self.form == "reads":
                return _tensor(network(tokens, lengths))
            given = (tokens[:, :1] + torch.arange(GIVEN)) % self.vocabulary
            return _tensor(network(tokens, lengths, given))

    def kept(self, output: Tensor, size: int) -> Tensor:
        """Return what of one text's output belongs to its tokens."""
        each = output.ndim > 1 and self.form != "another"
        return output[:size] if each else output


def _tensor(output: object) -> Tensor:
    if not isinstance(output, Tensor):
        raise BrokenError(f"the output is a {type(output).__name__}, not a tensor")
    return output


def computes(subject: NetworkSubject) -> Measured:
    network, (tokens, lengths) = subject.build(), subject.texts()
    output = subject.call(network, tokens, lengths)
    if len(output) != len(tokens):
        raise BrokenError(f"the output has {len(output)} rows for {len(tokens)} texts")
    for row, size in zip(output, lengths, strict=True):
        finite("an output", subject.kept(row, int(size)))
    return Measured(f"{len(tokens)} texts to {tuple(output.shape)}")


def padding(subject: NetworkSubject) -> Measured:
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
            ours, theirs = (subject.kept(x[row], int(size)) for x in (after, before))
            gaps.append(near("padding changed an output", ours, theirs, CLOSE))
    return worst(gaps, CLOSE)


def batches(subject: NetworkSubject) -> Measured:
    network, (tokens, lengths) = subject.build(), subject.texts()
    together, gaps = subject.call(network, tokens, lengths), []
    for row, size in enumerate(int(n) for n in lengths):
        alone = subject.call(network, tokens[row : row + 1, :size], lengths[row : row + 1])[0]
        ours, theirs = subject.kept(together[row], size), subject.kept(alone, size)
        gaps.append(near("a text among others differs from the text alone", ours, theirs, CLOSE))
    return worst(gaps, CLOSE)


def order(subject: NetworkSubject) -> Measured:
    network, (tokens, lengths) = subject.build(), subject.texts()
    turned = torch.tensor([2, 0, 1])
    plain = subject.call(network, tokens, lengths)
    found = subject.call(network, tokens[turned], lengths[turned])
    gaps = [
        near(
            "texts in another order got other outputs",
            subject.kept(found[place], int(lengths[row])),
            subject.kept(plain[row], int(lengths[row])),
            CLOSE,
        )
        for place, row in enumerate(turned.tolist())
    ]
    return worst(gaps, CLOSE)


def future(subject: NetworkSubject) -> Measured:
    if subject.form == "reads":
        raise InapplicableError("it may see the whole text")
    network, (tokens, lengths) = subject.build(), subject.texts()
    gaps = []
    with torch.no_grad():
        source = (tokens, lengths) if subject.form == "another" else ()
        before = _tensor(network(*source, tokens))
        for now in range(1, tokens.shape[1]):
            later = tokens.clone()
            later[:, now:] = (later[:, now:] + 1) % subject.vocabulary
            after = _tensor(network(*source, later))[:, :now]
            what = f"the output of token {now} changed with the tokens behind it"
            gaps.append(near(what, after, before[:, :now], CLOSE))
    return worst(gaps, CLOSE)


def empty(subject: NetworkSubject) -> Measured:
    if subject.form == "on":
        raise InapplicableError("it is given one token at least")
    network, (tokens, lengths) = subject.build(), subject.texts()
    none = lengths.clone()
    none[1] = 0
    output = subject.call(network, tokens, none)
    if output.ndim == 2 or subject.form == "another":
        finite("the output for a text without tokens", output[1])
    for row in (0, 2):
        finite("the output for a text beside one without tokens", output[row, : int(none[row])])
    return Measured("finite")


def gradients(subject: NetworkSubject) -> Measured:
    network, (tokens, lengths) = subject.build().train(), subject.texts()
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise InapplicableError("it has no parameters that are trained")
    source = (tokens, lengths) if subject.form == "another" else ()
    given = (tokens, lengths) if subject.form == "reads" else (*source, tokens)
    output = _tensor(network(*given))
    sizes = lengths.tolist()
    total = sum(
        (subject.kept(row, size).sum() for row, size in zip(output, sizes, strict=True)),
        torch.zeros((), dtype=output.dtype),
    )
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    reached = [g for g in found if g is not None]
    finite("a gradient", *reached)
    return Measured(f"{len(reached)} of {len(parameters)} parameters are reached")


def evaluation(subject: NetworkSubject) -> Measured:
    network, (tokens, lengths) = subject.build(), subject.texts()
    first = subject.call(network, tokens, lengths)
    network.train()
    subject.call(network, tokens, lengths)
    second = subject.call(network.eval(), tokens, lengths)
    same("the same texts got other outputs after a call in training mode", second, first)
    return Measured("the same bits")


def state(subject: NetworkSubject) -> Measured:
    network, (tokens, lengths) = subject.build(), subject.texts()
    other = subject.build()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    other.load_state_dict(network.state_dict())
    first, second = (subject.call(each, tokens, lengths) for each in (network, other))
    same("with the same state another network of the kind got other outputs", second, first)
    return Measured("the same bits")


NETWORK_LAWS: dict[str, Law[NetworkSubject]] = {
    "computes": Law("texts get finite outputs, a row each", computes),
    "padding": Law("what stands behind a text, and how much, changes nothing", padding),
    "batches": Law("a text's output does not depend on the texts beside it", batches),
    "order": Law("texts in another order get the same outputs", order),
    "future": Law("no output depends on tokens that come later", future),
    "empty text": Law("a text without tokens gives no NaN, and none to others", empty),
    "gradients": Law("gradients are finite", gradients),
    "evaluation": Law("a call in training mode leaves nothing behind", evaluation),
    "state": Law("the saved state is all that there is", state),
}
