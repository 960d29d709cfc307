"""Requests that change a model while it answers, or attribute its answer to tokens."""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from torch import nn

from regard.analysis.interventions import (
    Head,
    blocks,
    keep_states,
    layers_with_heads,
    patched,
    without_heads,
)
from regard.errors import RegardError
from regard.reports.attended import plain_name
from regard.web.answers import Answers
from regard.web.queue import Job
from regard.web.requests import PatchRequest, RunRequest, TextRequest, WithoutRequest

if TYPE_CHECKING:
    from regard.web.api import Api

LISTED = 4096  # heads or blocks in one answer


def parts(answers: Answers, name: str) -> dict[str, Any]:
    """Return the heads of each layer and the blocks of a run, and the names that pictures have.

    Errors: a run without a network.
    """
    network = _network(answers, name)
    heads = {layer: int(m.heads) for layer, m in layers_with_heads(network).items()}  # type: ignore[arg-type]
    shown, stacked = dict([*heads.items()][:LISTED]), [*blocks(network)]
    names = {path: plain_name(path) for path in (*shown, *stacked)}
    return {"run": name, "heads": shown, "blocks": stacked, "names": names}


def without(answers: Answers, name: str, text: str, heads: list[Head]) -> dict[str, Any]:
    """Return the answers to a text before and after heads are switched off."""
    model, network = answers.registry.model(name), _network(answers, name)
    answers.check_length(model.count(text))
    before = model.predict([text])[0]
    with without_heads(network, heads):
        return {"run": name, "text": text, "before": before, "after": model.predict([text])[0]}


def patch(answers: Answers, name: str, query: PatchRequest) -> dict[str, Any]:
    """Return the answers to both texts, and to the first with a block's states of the other."""
    model, network = answers.registry.model(name), _network(answers, name)
    for text in (query.text, query.other):
        answers.check_length(model.count(text))
    with keep_states(network) as states:
        other = model.predict([query.other])[0]
    before = model.predict([query.text])[0]
    chosen = {query.block: states[query.block]} if query.block in states else {query.block: None}
    with patched(network, chosen, query.positions):  # type: ignore[arg-type]
        after = model.predict([query.text])[0]
    return {"run": name, "before": before, "other": other, "after": after}


def attribute(answers: Answers, name: str, text: str) -> dict[str, Any]:
    """Return the attributions of a text's tokens. Errors: a run that has none."""
    model = answers.registry.model(name)
    answers.check_length(model.count(text))
    own = getattr(model, "attribute", None)
    if own is None:
        raise RegardError(f"{name} was not trained by regard, so its answer is not attributed")
    return {"run": name, "text": text, **own(text)}


def _network(answers: Answers, name: str) -> nn.Module:
    network = getattr(answers.registry.model(name), "network", None)
    if not isinstance(network, nn.Module):
        raise RegardError(f"{name} shows no network, so nothing in it can be changed")
    return network


def add_interventions(app: FastAPI, api: "Api") -> None:
    """Add the routes of this module."""
    from regard.web.api import answered

    async def asked(request: Request, work: Any) -> Any:
        return answered(await api.ask(request, Job(None, lambda _: [work()])))

    @app.post("/parts", summary="Heads of each layer, and blocks, that can be changed")
    async def list_parts(query: RunRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        return await asked(request, lambda: parts(api.answers, name))

    @app.post("/without", summary="Answer with and without some heads")
    async def ablate(query: WithoutRequest, request: Request) -> Any:
        name, heads = api.registry.check(query.run), [Head(x.layer, x.head) for x in query.heads]
        return await asked(request, lambda: without(api.answers, name, query.text, heads))

    @app.post("/patch", summary="Answer with a block's states taken from another text")
    async def patch_states(query: PatchRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        return await asked(request, lambda: patch(api.answers, name, query))

    @app.post("/attribute", summary="Integrated gradients and attention × gradient of tokens")
    async def attribute_text(query: TextRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        return await asked(request, lambda: attribute(api.answers, name, query.text))
