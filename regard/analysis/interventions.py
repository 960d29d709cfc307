"""Interventions in a forward pass: switch heads off, or take states of another text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Mechanism
from regard.errors import RegardError


class Head(NamedTuple):
    """A head, counted from 1, of a layer by its name in the model or in `LayerAttention`."""

    layer: str
    head: int


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


@contextmanager
def without_heads(model: nn.Module, heads: Sequence[Head]) -> Iterator[None]:
    """Set, in this context, the output of these heads to zero before the output projection.

    This equals a model whose output projections have zeros in the columns of these heads (Michel
    et al. 2019). In a layer without an output projection, the head's columns of its output are
    zero. Errors: a layer without heads; no such layer or head.

    >>> from regard.attention import MultiHeadAttention
    >>> model = MultiHeadAttention(4, 2)
    >>> with without_heads(model, [Head("", 1), Head("", 2)]):
    ...     model(torch.ones(1, 3, 4)).abs().sum().item()
    0.0
    """
    with ExitStack() as stack:
        for layer, off in _by_layer(model, heads).items():
            projection = getattr(layer, "output", None)
            count: int = layer.heads  # type: ignore[assignment]
            if isinstance(projection, nn.Module):
                before = projection.register_forward_pre_hook(_zero_input(count, off))
                stack.callback(before.remove)
            else:
                after = layer.register_forward_hook(_zero_output(count, off))
                stack.callback(after.remove)
        yield


def _by_layer(model: nn.Module, heads: Sequence[Head]) -> dict[Mechanism, list[int]]:
    known = layers_with_heads(model)
    if not known:
        raise RegardError("this model has no attention by heads, so none can be switched off")
    chosen: dict[Mechanism, list[int]] = {}
    for name, head in heads:
        # `LayerAttention` names the `Attention` inside of the mechanism.
        layer = known.get(name) or known.get(name.rpartition(".")[0])
        if layer is None:
            raise RegardError(
                f"layer {name!r} has no heads to switch off; choose one of {', '.join(known)}"
            )
        if not 1 <= head <= layer.heads:  # type: ignore[operator]
            raise RegardError(f"head {head}: {name} has heads 1 to {layer.heads}")
        chosen.setdefault(layer, []).append(head)
    return chosen


def _zeroed(x: Tensor, count: int, off: Sequence[int]) -> Tensor:
    columns = torch.zeros(count, dtype=torch.bool, device=x.device)
    columns[[head - 1 for head in off]] = True
    return x.masked_fill(columns.repeat_interleave(x.shape[-1] // count), 0)


def _zero_input(count: int, off: Sequence[int]) -> Any:
    return lambda layer, inputs: (_zeroed(inputs[0], count, off), *inputs[1:])


def _zero_output(count: int, off: Sequence[int]) -> Any:
    return lambda layer, inputs, output: _zeroed(output, count, off)


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
def keep_states(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Keep, in this context, the output (\\*batch, n, width) of each block's first call."""
    states: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, inputs: Any, output: Tensor) -> None:
            states.setdefault(name, output.detach().clone())

        return hook

    with ExitStack() as stack:
        for name, block in blocks(model).items():
            stack.callback(block.register_forward_hook(keep(name)).remove)
        yield states


@contextmanager
def patched(
    model: nn.Module, states: Mapping[str, Tensor], positions: Sequence[int] | None = None
) -> Iterator[None]:
    """Replace, in this context, the outputs of blocks by ``states``, as `keep_states` keeps them.

    Activation patching (Vig et al. 2020; Meng et al. 2022): only at these ``positions``, by default
    at all, and only in the first call of each block, so that a model that writes token by token
    reads the patched prompt and then goes on by itself.

    Errors: no such block; states of another length; positions outside of the text.
    """
    known = blocks(model)
    with ExitStack() as stack:
        for name, state in states.items():
            if name not in known:
                raise RegardError(
                    f"no block {name!r} to patch; this model has {', '.join(known) or 'none'}"
                )
            hook = known[name].register_forward_hook(_replace(name, state, positions))
            stack.callback(hook.remove)
        yield


def _replace(name: str, state: Tensor, positions: Sequence[int] | None) -> Any:
    called = False

    def hook(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
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

    return hook
