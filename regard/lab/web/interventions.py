"""Requests that change a model while it answers, or attribute its answer to tokens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from torch import nn

from regard.analysis.interventions import (
    Head,
    blocks,
    heads_of,
    keep_states,
    layers_with_heads,
    must_be_in,
    patched,
    without_heads,
)
from regard.core.errors import RegardError
from regard.lab.data.examples import as_json
from regard.lab.reports.attended import plain_name
from regard.lab.web.answers import Answers
from regard.lab.web.requests import AttributionRequest, PatchRequest, RunRequest, WithoutRequest
from regard.lab.web.served_model import ServedRun

if TYPE_CHECKING:
    from regard.lab.web.api import Api

LISTED = 4096  # layers or blocks in one answer


def parts(answers: Answers, name: str) -> dict[str, Any]:
    """Return the heads of each layer and the blocks of a run, with readable names.

    Raises: a run without a network.
    """
    network = _network(answers, name)
    layers = [
        {"layer": layer, "name": _heads_name(layer), "heads": heads_of(mechanism)}
        for layer, mechanism in layers_with_heads(network).items()
    ]
    stack = [{"block": block, "name": plain_name(block)} for block in blocks(network)]
    return {"run": name, "heads": layers[:LISTED], "blocks": stack[:LISTED]}


def _heads_name(layer: str) -> str:
    """Return a readable name for the attention of a layer.

    >>> _heads_name("blocks.0.attention.work"), _heads_name("decoder.1.memory_attention.work")
    ('layer 1 attention', 'decoder 2 attention to the source')
    """
    name = plain_name(layer)
    side = name.removesuffix(", source")
    return f"{side} attention" + (" to the source" if side != name else "")


def without(answers: Answers, name: str, text: str, heads: list[Head]) -> dict[str, Any]:
    """Return the answers to a text before and after heads are switched off."""
    network = _network(answers, name)
    before = _answer(answers, name, text)
    after = _answer(answers, name, text, lambda: without_heads(network, heads))
    return {"run": name, **as_json(text), "before": before, "after": after}


def patch(answers: Answers, name: str, query: PatchRequest) -> dict[str, Any]:
    """Return the answers to both texts, and to the first with states of the other.

    Raises: no such block or head; positions that are not in both texts; a text without tokens.
    """
    network, place = _network(answers, name), query.place
    must_be_in(network, place)
    before = _answer(answers, name, query.input)
    with keep_states(network) as states:
        other = _answer(answers, name, query.other_input)
    if place not in states:
        raise RegardError("the other text has no tokens to take states from; type one with words")
    chosen = {place: states[place]}
    after = _answer(answers, name, query.input, lambda: patched(network, chosen, query.positions))
    return {"run": name, "before": before, "other": other, "after": after}


def _answer(
    answers: Answers,
    name: str,
    text: str,
    changed: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Return a model's answer to a text, with its likeliest next words if it generates text.

    ``changed`` returns the context in which the model is changed, for one pass.
    """
    model = answers.registry.model(name)
    model = model.by_torch() if isinstance(model, ServedRun) else model
    answers.check_length(model.count(text))
    with changed():
        answer = model.predict([text])[0]
    ahead = getattr(model, "next_words", None)
    if ahead is None:
        return answer
    with changed():
        words = [{"token": x.token, "probability": x.probability} for x in ahead(text)]
    return {**answer, "next": words} if words else answer


def attribute(answers: Answers, name: str, query: AttributionRequest) -> dict[str, Any]:
    """Return the attributions of a text's tokens. Raises: a model that has none."""
    model = answers.registry.model(name)
    answers.check_length(model.count(query.input))
    own = getattr(model, "attribute", None)
    if own is None:
        raise RegardError(f"{name} has no method attribute, so its answers cannot be attributed")
    return {"run": name, **as_json(query.input), **own(query.input, query.choice)}


def _network(answers: Answers, name: str) -> nn.Module:
    network = getattr(answers.registry.model(name), "network", None)
    if not isinstance(network, nn.Module):
        raise RegardError(f"{name} has no network that can be changed")
    return network


def add_interventions(app: FastAPI, api: "Api") -> None:
    """Add the routes of this module."""
    from regard.lab.web.api import answered

    @app.post("/parts", summary="Heads of each layer, and blocks, that can be changed")
    async def list_parts(query: RunRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        return answered(await api.call(request, parts, api.answers, name))

    @app.post("/without", summary="Answer with and without some heads")
    async def ablate(query: WithoutRequest, request: Request) -> Any:
        name, heads = api.registry.check(query.run), [Head(x.layer, x.head) for x in query.heads]
        result = await api.call(request, without, api.answers, name, query.input, heads)
        return answered(result)

    @app.post("/patch", summary="Answer with states of a block or head of another text")
    async def patch_states(query: PatchRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        return answered(await api.call(request, patch, api.answers, name, query))

    @app.post("/attribute", summary="Integrated gradients and attention × gradient of tokens")
    async def attribute_text(query: AttributionRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        return answered(await api.call(request, attribute, api.answers, name, query))
