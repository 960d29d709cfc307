"""The log probabilities of generated and filled-in words, for attribution."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.analysis.attribution import Explainable, Forward, Scalar
from regard.core.errors import RegardError
from regard.decoding.stepwise import BEGIN
from regard.lab.tasks.writing.streaming import FIRST, NextWord, WriteRequest, next_words
from regard.nn.layers.device import device_of

NO_TOKENS = "this text has no tokens, so there is nothing to attribute"


def continuations(model: nn.Module, request: WriteRequest, count: int = 5) -> Explainable:
    """Return ln p of the ``count`` likeliest next words of a text, and of the text's words.

    Each word is conditioned on the words before it. Default: the likeliest next word. Raises: a
    text without tokens.
    """
    ids = request.source.tolist()
    if not ids:
        raise RegardError(NO_TOKENS)
    ahead: list[NextWord] = next_words(model, request, count)
    scalars = [
        _continued(model, request, [*ids, word.id], len(ids), f"next word: {_sure(word)}")
        for word in ahead
    ]
    names = request.named(ids)
    for place in range(1, len(ids)):
        name = f"word {place + 1}, {visible(names[place])}, given those before it"
        scalars.append(_continued(model, request, ids[: place + 1], place, name))
    return Explainable(scalars)


def outputs(model: nn.Module, request: WriteRequest, written: Sequence[int]) -> Explainable:
    """Return ln p of each word of a generated text, given the previous ones, and of the full text.

    Default: the first word. Raises: a text without tokens; an empty output.
    """
    ids, written = request.source.tolist(), list(written)
    if not ids:
        raise RegardError(NO_TOKENS)
    if not written:
        raise RegardError("the model wrote nothing for this text, so there is nothing to attribute")

    def scalar(first: int, stop: int, name: str) -> Scalar:
        if request.behind:
            return _continued(model, request, [*ids, *written[:stop]], len(ids) + first, name)
        return _translated(model, request, written[:stop], first, name)

    names = enumerate(request.named(written), 1)
    words = [f"output word {i}, {visible(name)}" for i, name in names]
    scalars = [scalar(i, i + 1, name) for i, name in enumerate(words)]
    if len(written) > 1:
        scalars.append(scalar(0, len(written), "the whole output"))
    return Explainable(scalars)


def filled(
    model: nn.Module,
    ids: Sequence[int],
    names: Sequence[str],
    best: Mapping[int, NextWord],
    *,
    words: int,
    mask: str = "[MASK]",
) -> Explainable:
    """Return ln p of the ``best`` word at the place of each mask, among the first ``words`` ids.

    Default: the first mask. Raises: a text without a mask.
    """
    if not best:
        raise RegardError(
            f"this model fills in {mask}, but the text has none; replace a word by {mask}"
        )
    tokens = torch.tensor([ids], device=device_of(model))

    def forward(place: int, word: int) -> Forward:
        def run(copies: int) -> Tensor:
            states = model(tokens.expand(copies, -1))[:, place]
            logits: Tensor = cast(Any, model).to_logits(states).float()
            return logits[:, :words].log_softmax(-1)[:, word]

        return run

    table = cast(nn.Module, model.embedding)
    return Explainable(
        [
            Scalar(f"{mask} {n}: {_sure(word)}", forward(place, word.id), [table], [names])
            for n, (place, word) in enumerate(best.items(), 1)
        ]
    )


def visible(token: str) -> str:
    """Return a token with visible spaces and line breaks, as the page shows it.

    >>> visible(" a"), visible("\\n")
    ('·a', '⏎')
    """
    inner = token.replace("\n", "⏎")
    left = len(inner) - len(inner.lstrip())
    right = len(inner) - len(inner.rstrip())
    return "·" * left + inner.strip() + "·" * (right if inner.strip() else 0) or "∅"


def _sure(word: NextWord) -> str:
    return f"{visible(word.token)} ({word.probability:.1%})"


def _continued(
    model: nn.Module, request: WriteRequest, ids: Sequence[int], first: int, name: str
) -> Scalar:
    """Return ln p of the tokens of one text from ``first``, each given the previous ones."""
    tokens = torch.tensor([ids], device=device_of(model))
    read = tokens[:, :-1]

    def forward(copies: int) -> Tensor:
        states = model(read.expand(copies, -1))[:, first - 1 :]
        return _log_probability(model, states, tokens[0, first:], request)

    return Scalar(
        name, forward, [cast(nn.Module, model.embedding)], [request.names(read[0].tolist())]
    )


def _translated(
    model: nn.Module, request: WriteRequest, written: Sequence[int], first: int, name: str
) -> Scalar:
    """Return ln p of the generated tokens from ``first``, given the source and previous tokens."""
    device = device_of(model)
    source = torch.tensor([request.source.tolist()], device=device)
    wanted = torch.tensor(written, device=device)
    given = torch.tensor([[request.begin, *written[:-1]]], device=device)

    def forward(copies: int) -> Tensor:
        lengths = torch.full((copies,), source.shape[1], device=device)
        states = model(source.expand(copies, -1), lengths, given.expand(copies, -1))[:, first:]
        return _log_probability(model, states, wanted[first:], request)

    sides = [
        cast(nn.Module, getattr(model, side, None) or model.embedding)
        for side in ("source", "target")
    ]
    names = [FIRST, *request.named(written)[:-1]]
    return Scalar(name, forward, sides, [request.names(source[0].tolist()), names])


def _log_probability(
    model: nn.Module, states: Tensor, wanted: Tensor, request: WriteRequest
) -> Tensor:
    """Return Σ ln p of the wanted tokens (time,) after states (copies, time, width)."""
    to_logits = cast(Callable[[Tensor], Tensor], model.to_logits)
    logits = to_logits(states).float()
    if not request.shift:  # the writer never generates the start symbol
        logits = logits.index_fill(-1, torch.tensor([BEGIN], device=logits.device), -torch.inf)
    chosen = logits.log_softmax(-1).gather(-1, wanted.expand(len(logits), -1)[..., None])
    return chosen[..., 0].sum(-1)
