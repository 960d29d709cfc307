"""The interface that a task needs of a network, and the check of it before every training."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.nn.layers.device import evaluation_mode

WORDS = (4, 80)  # lengths of the test texts; the second half of a text is changed
SLACK = 1e-4  # tolerance, relative to the largest state


@dataclass(frozen=True)
class Interface:
    """The arguments with which a task calls its networks, and the outputs that it needs.

    ``form`` is the signature: "reads" for ``network(tokens, lengths)``; "on" for
    ``network(tokens)``, which continues a text; "another" for ``network(source, lengths, tokens)``.
    The network returns a row of outputs for each text or each token (``each``). ``outputs`` is the
    size of a row: "labels", "vocabulary" (the network then returns logits, or states and has
    ``logit_parts``), or "" if unknown. ``left_to_right``: each token's row may depend only on the
    tokens up to it, since the later ones are predicted.
    """

    form: Literal["reads", "on", "another"] = "reads"
    each: Literal["text", "token"] = "text"
    outputs: Literal["", "labels", "vocabulary"] = ""
    left_to_right: bool = False

    def call(self, network: nn.Module, tokens: Tensor, lengths: Tensor) -> Any:
        """Return the outputs for texts, which are also the sources of an encoder-decoder."""
        if self.form == "on":
            return network(tokens)
        if self.form == "another":
            return network(tokens, lengths, tokens)
        if getattr(network, "reads_trees", False):  # each word's parent is the word before it
            chain = torch.arange(tokens.shape[1], device=tokens.device) - 1
            return network(tokens, lengths, chain.expand_as(tokens))
        return network(tokens, lengths)

    def fault(self, network: nn.Module, outputs: Any, tokens: Tensor, sizes: Any) -> str:
        """Return how the outputs for texts differ from what the task needs, "" if they do not."""
        if not isinstance(outputs, Tensor):
            return f"the network returns a {type(outputs).__name__}, not a tensor"
        count = int(sizes.get(self.outputs, 0))
        rows = tuple(tokens.shape[: 2 if self.each == "token" else 1])
        if not count:
            return ""
        if self.outputs == "labels":
            shape, due = tuple(outputs.shape), (*rows, count)
        else:
            parts = getattr(network, "logit_parts", None)
            words = outputs.shape[-1] if parts is None else len(parts(outputs)[1])
            shape, due = (*outputs.shape[:-1], words), (*rows, count)
        if shape == due:
            return ""
        return (
            f"the network's output for {rows[0]} text{'s' * (rows[0] > 1)} of {tokens.shape[1]} "
            f"tokens has the shape {shape}, but the task needs {due}: {count} "
            f"number{'s' * (count > 1)} for each {self.each}; build it for {self.outputs}={count}"
        )

    def looks_ahead(self, network: nn.Module, text: Tensor, vocabulary: int) -> str:
        """Return which output for the first part of a text changes with the rest, "" if none."""
        words = text.shape[1]
        first = words - 1 if words <= WORDS[0] else words // 2
        changed, lengths = text.clone(), torch.tensor([words])
        chance = torch.Generator().manual_seed(0)  # shifts that change every sum of words
        shifts = torch.randint(1, max(vocabulary, 2), (words - first,), generator=chance)
        changed[:, first:] = (changed[:, first:] + shifts) % vocabulary
        if self.form == "another":
            one, other = (network(text, lengths, x) for x in (text, changed))
        else:
            one, other = (self.call(network, x, lengths) for x in (text, changed))
        apart = (one[0, :first].float() - other[0, :first].float()).abs()
        if not first or apart.max() <= SLACK * max(float(one[0, :first].abs().max()), 1.0):
            return ""
        word, more = int(apart.amax(-1).argmax()) + 1, " and later ones" * (first + 1 < words)
        return f"its output for word {word} of a text changes with word {first + 1}{more}"


def must_suit(
    network: nn.Module, interface: Interface, sizes: Mapping[str, Any], longest: int | None = None
) -> None:
    """Raise an error if a network does not fit a task, or sees the tokens that it must predict.

    A user's network may have another number of outputs, with which some tasks train but cannot be
    evaluated. A user's score prepares all keys, also hidden ones: a mean over them reveals later
    words, and the network would learn to copy. So texts are read twice, the second time with other
    words in the second half; no earlier output may change.

    ``sizes``: "vocabulary" and "labels" of the task. ``longest``: the maximum length that the
    network reads, if any. Raises: a wrong shape; a changed output.
    """
    if not (interface.outputs or interface.left_to_right):
        return
    vocabulary = int(sizes["vocabulary"])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        tokens = next(texts(vocabulary, longest))
        with evaluation_mode(network):
            outputs = interface.call(network, tokens, torch.tensor([tokens.shape[1]]))
            if fault := interface.fault(network, outputs, tokens, sizes):
                raise RegardError(fault)
        if not interface.left_to_right:
            return
        shaken = deepcopy(network).eval()
        for parameter in shaken.parameters():  # parameters initialised with 0 would hide a leak
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for text in texts(vocabulary, longest):
            if fault := interface.looks_ahead(shaken, text, vocabulary):
                raise RegardError(
                    f"the network looks ahead: {fault}, so it would learn to copy. If you use your "
                    "own score, `regard check FILE.py:Name` shows the law that it breaks"
                )


def texts(vocabulary: int, longest: int | None) -> Iterator[Tensor]:
    """Yield test texts (1, words), the shortest first."""
    for words in sorted({min(words, longest or words) for words in WORDS}):
        yield torch.arange(1, words + 1).remainder(vocabulary)[None]
