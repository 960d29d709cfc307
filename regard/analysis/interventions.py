"""Interventions in a forward pass: switch heads off, or patch states of another text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.attention import Mechanism
from regard.core.errors import RegardError


class Head(NamedTuple):
    """A head, counted from 1, of a layer by its name in the model or in `LayerAttention`."""

    layer: str
    head: int


Place = str | Head  # a block by its name, or a head


def layers_with_heads(model: nn.Module) -> dict[str, Mechanism]:
    """Return the mechanisms of a model that have heads, by name.

    >>> from regard.attention import MultiHeadAttention
    >>> list(layers_with_heads(nn.Sequential(MultiHeadAttention(4, 2))))
    ['0']
    """
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, Mechanism) and isinstance(getattr(layer, "heads", None), int)
    }


def heads_of(layer: Mechanism) -> int:
    """Return the number of heads of a layer that has heads."""
    return cast(int, layer.heads)


@contextmanager
def without_heads(model: nn.Module, heads: Sequence[Head]) -> Iterator[None]:
    """Set, in this context, the output of these heads to zero before the output projection.

    This equals a model whose output projections have zeros in the columns of these heads (Michel
    et al. 2019). In a layer without an output projection, the head's columns of its output are
    zero. Raises: a layer without heads; no such layer or head.

    >>> from regard.attention import MultiHeadAttention
    >>> model = MultiHeadAttention(4, 2)
    >>> with without_heads(model, [Head("", 1), Head("", 2)]):
    ...     model(torch.ones(1, 3, 4)).abs().sum().item()
    0.0
    """
    with ExitStack() as stack:
        for layer, off in _by_layer(model, heads).items():
            for head in off:
                zeroed = _replace_head(layer, head, torch.zeros_like)
                stack.callback(_at_heads(layer, zeroed).remove)
        yield


def _by_layer(model: nn.Module, heads: Iterable[Head]) -> dict[Mechanism, list[int]]:
    known = layers_with_heads(model)
    if not known:
        raise RegardError(
            "this model has no attention by heads, so no head can be switched off or patched; "
            "choose a model of self-attention, such as transformer, gpt or bert"
        )
    chosen: dict[Mechanism, list[int]] = {}
    for name, head in heads:
        # `LayerAttention` has the name of the `Attention` inside the mechanism.
        layer = known.get(name) or known.get(name.rpartition(".")[0])
        if layer is None:
            raise RegardError(f"layer {name!r} has no heads; choose one of {', '.join(known)}")
        if not 1 <= head <= heads_of(layer):
            raise RegardError(f"head {head}: {name} has heads 1 to {heads_of(layer)}")
        chosen.setdefault(layer, []).append(head)
    return chosen


def _at_heads(layer: Mechanism, change: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Change the outputs of a layer's heads, side by side, before the output projection."""
    projection = getattr(layer, "output", None)
    if not isinstance(projection, nn.Module):
        return layer.register_forward_hook(lambda _, inputs, output: change(output))

    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        changed = change(inputs[0])
        return None if changed is None else (changed, *inputs[1:])

    return projection.register_forward_pre_hook(before)


def _columns(layer: Mechanism, head: int, x: Tensor) -> slice:
    """Return the columns of a head among those of all heads of its layer."""
    width = x.shape[-1] // heads_of(layer)
    return slice((head - 1) * width, head * width)


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks of a model's stacks, in order; their outputs are the residual stream."""
    return {
        name: block
        for stack, modules in model.named_modules()
        if isinstance(modules, nn.ModuleList)
        for name, block in ((f"{stack}.{i}", each) for i, each in enumerate(modules))
        if layers_with_heads(block)
    }


@contextmanager
def keep_states(model: nn.Module) -> Iterator[dict[Place, Tensor]]:
    """Keep, in this context, the first output (*batch, n, width) of each block and each head.

    A head's output is taken before the output projection. A model that generates token by token
    reads its prompt in the first call of a block; a translator's decoder reads the start symbol.
    """
    states: dict[Place, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, inputs: Any, output: Tensor) -> None:
            states.setdefault(name, output.detach().clone())

        return hook

    def keep_heads(name: str, layer: Mechanism) -> Callable[[Tensor], None]:
        def look(x: Tensor) -> None:
            for head in range(1, heads_of(layer) + 1):
                own = x[..., _columns(layer, head, x)]
                states.setdefault(Head(name, head), own.detach().clone())

        return look

    with ExitStack() as stack:
        for name, block in blocks(model).items():
            stack.callback(block.register_forward_hook(keep(name)).remove)
        for name, layer in layers_with_heads(model).items():
            stack.callback(_at_heads(layer, keep_heads(name, layer)).remove)
        yield states


@contextmanager
def patched(
    model: nn.Module, states: Mapping[Place, Tensor], positions: Sequence[int] | None = None
) -> Iterator[None]:
    """Replace, in this context, outputs of blocks and heads by ``states``, as `keep_states` does.

    Activation patching (Vig et al. 2020; Meng et al. 2022), at these ``positions`` (default: all),
    and only in the first call of each block: a model that generates token by token reads the
    patched prompt and then continues unpatched.

    Raises: an unknown block or head; states of another length; positions outside the text.
    """
    known = blocks(model)
    with ExitStack() as stack:
        for place, state in states.items():
            must_be_in(model, place)
            if isinstance(place, Head):
                ((layer, (head,)),) = _by_layer(model, [place]).items()
                change = _replace_head(layer, head, _replace(_named(place), state, positions))
                stack.callback(_at_heads(layer, change).remove)
            else:
                replace = _replace(_named(place), state, positions)
                hook = known[place].register_forward_hook(_of_output(replace))
                stack.callback(hook.remove)
        yield


def must_be_in(model: nn.Module, place: Place) -> None:
    """Raise an error if the model has no such block or head."""
    if isinstance(place, Head):
        _by_layer(model, [place])
    elif place not in (known := blocks(model)):
        fix = (
            f"choose one of {', '.join(known)}"
            if known
            else "this model has no stack of attention blocks; choose one that has, such as "
            "transformer, gpt or bert"
        )
        raise RegardError(f"no block {place!r} to patch: {fix}")


def _named(place: Place) -> str:
    return f"head {place.head} of {place.layer}" if isinstance(place, Head) else place


def _of_output(replace: Callable[[Tensor], Tensor | None]) -> Any:
    return lambda layer, inputs, output: replace(output)


def _replace_head(
    layer: Mechanism, head: int, replace: Callable[[Tensor], Tensor | None]
) -> Callable[[Tensor], Tensor | None]:
    def change(x: Tensor) -> Tensor | None:
        columns = _columns(layer, head, x)
        own = replace(x[..., columns])
        if own is None:
            return None
        changed = x.clone()
        changed[..., columns] = own
        return changed

    return change


def _replace(
    name: str, state: Tensor, positions: Sequence[int] | None
) -> Callable[[Tensor], Tensor | None]:
    """Return a function that replaces only the first output it gets."""
    called = False

    def replace(output: Tensor) -> Tensor | None:
        nonlocal called
        if called:
            return None
        called = True
        if positions is None:
            if state.shape != output.shape:
                raise RegardError(
                    f"{name} has {output.shape[-2]} positions for this text and "
                    f"{state.shape[-2]} for the other; give positions that both have"
                )
            return state.to(output)
        length = min(state.shape[-2], output.shape[-2])
        if outside := [each for each in positions if not 0 <= each < length]:
            raise RegardError(
                f"position {outside[0]} is not in both texts; they share 0 to {length - 1}"
            )
        index = torch.tensor(positions, dtype=torch.long, device=output.device)
        return output.index_copy(-2, index, state.to(output).index_select(-2, index))

    return replace
