"""Eager attention of transformers: its masks, and whether regard gives the same.

A model asks for its masks by the name of its attention. What this hands out has eager's shape and
numbers, so that a model that reads or changes its mask does what it does with eager; the numbers
are made only then.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from regard.errors import RegardError

ROWS = 8  # queries of one text that are compared
CLOSE = 5e-3  # of the largest number that eager gives


class EagerMask(Tensor):
    """Eager's mask (batch, 1, queries, keys): 0, and the lowest number where nothing may be seen.

    Its numbers are made from ``table()`` (True: may be seen) when something reads them. ``causal``
    says that it hides what comes later and nothing else. Once a part of it is handed out that may
    be written to, ``changed`` says that only the numbers count.
    """

    table: Callable[[], Tensor]
    causal: bool
    changed: bool

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls,
        table: Callable[[], Tensor],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device | str,
        causal: bool,
    ) -> "EagerMask":
        made: EagerMask = Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=torch.device(device)
        )
        made.table, made.causal, made.changed = table, causal, False
        return made

    def numbers(self) -> Tensor:
        """The mask as a tensor of its own, the same at every call."""
        if not hasattr(self, "_numbers"):
            zero = torch.zeros((), dtype=self.dtype, device=self.device)
            self._numbers = torch.where(self.table(), zero, torch.finfo(self.dtype).min)
        return self._numbers

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, given: tuple[Any, ...] = (), named: Any = None
    ) -> Any:
        shares = any(x.alias_info is not None for x in function._schema.returns)

        def read(x: Any) -> Any:
            if not isinstance(x, EagerMask):
                return x
            x.changed |= shares
            return x.numbers()

        return function(*tree_map(read, given), **tree_map(read, named or {}))


def eager_masks(
    *,
    allow_is_causal_skip: bool = True,
    dtype: torch.dtype = torch.float32,
    **given: Any,
) -> Tensor | None:
    """Return what ``eager_mask`` of transformers returns; arguments as there.

    None is a mask that hides nothing, as there. sdpa's own masks also leave out those that a
    module's ``is_causal`` stands for, which decoders of some families do not set.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    # A window or a chunk, with its size, is skipped only if it holds all keys.
    skip = allow_is_causal_skip and (
        given.get("local_size") is not None
        or given.get("mask_function", causal_mask_function) is causal_mask_function
    )
    seen: Tensor | None = sdpa_mask(allow_is_causal_skip=skip, **given)
    if seen is None and not skip:
        return None

    def table() -> Tensor:
        whole = sdpa_mask(allow_is_causal_skip=False, **given) if seen is None else seen
        assert whole is not None
        return whole

    shape = given["batch_size"], 1, given["q_length"], given["kv_length"]
    size = shape if seen is None else tuple(seen.shape)
    return EagerMask(table, size, dtype, given.get("device", "cpu"), causal=seen is None)


@torch.no_grad()
def refuse_difference(
    module: nn.Module,
    ours: Callable[..., tuple[Tensor, Tensor | None]],
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    named: dict[str, Any],
) -> None:
    """Refuse a call that regard reads otherwise than the eager attention of the module's family.

    Both get the last few queries of the first text, in float32, so scaled that their scores differ;
    ``ours`` is called as eager is, ``named`` are the keywords that both get. A family without an
    eager attention function is let through.
    """
    eager = eager_of(module)
    if eager is None or queries.device.type == "meta" or torch.compiler.is_compiling():
        return
    rows = last_rows(mask, queries.shape[-2], keys.shape[-2])
    asked = [x[:1].float() for x in (queries[..., -ROWS:, :], keys, values)]
    scale = named.get("scaling") or queries.shape[-1] ** -0.5
    sizes = asked[0].norm(dim=-1).mean() * asked[1].norm(dim=-1).mean() * abs(scale)
    asked[0] = asked[0] * (queries.shape[-1] ** 0.5 / sizes).clamp(1, 1e4)
    given = {key: last(x) for key, x in {**named, "position_bias": bias}.items() if x is not None}
    with torch.autocast(queries.device.type, enabled=False):
        try:
            theirs = eager(module, *asked, rows, dropout=0.0, **given)[0]
        except Exception as error:
            raise RegardError(
                f"{type(module).__name__}'s eager attention does not take what regard's was given "
                f"({error}), so that they cannot be compared: take eager"
            ) from None
        found = ours(*asked, rows, **given)[0]
    if theirs.shape == found.shape:
        gap = float((theirs - found).abs().max()) if found.numel() else 0.0
        if gap <= CLOSE * max(float(theirs.abs().max()) if gap else 0.0, 1e-6):
            return
    raise RegardError(
        f"{type(module).__name__} attends otherwise in its own eager attention than by softmax of "
        "scaled products and its mask, so that regard would change its numbers: take eager"
    )


def last(x: Any) -> Any:
    """The last few queries of the first text, of what is given for each query."""
    if not isinstance(x, Tensor):
        return x
    return x[:1, ..., -ROWS:, :].float() if x.dim() == 4 else x.float()


def last_rows(mask: Tensor | None, queries: int, keys: int) -> Tensor | None:
    """A mask's rows of the last few queries of the first text, as eager has them."""
    if mask is None:
        return None
    if isinstance(mask, EagerMask) and not mask.changed:
        if mask.causal:
            first = max(queries - ROWS, 0) if queries > 1 else keys - 1
            places = torch.arange(first, max(queries, first + 1), device=mask.device)
            seen = torch.arange(keys, device=mask.device) <= places.unsqueeze(-1)
            seen = seen.expand(1, 1, -1, -1)
        else:
            seen = mask.table()[:1, :, -ROWS:]
    elif mask.dtype == torch.bool:
        seen = mask[:1, :, -ROWS:]
    else:
        given = mask.numbers() if isinstance(mask, EagerMask) else mask
        given = given[:1, :, -ROWS:]
        lowest = (given < torch.finfo(given.dtype).min / 2) & given.isfinite()
        return given.float().masked_fill(lowest, LOWEST)
    return torch.zeros((), device=seen.device).where(seen, LOWEST)


LOWEST = torch.finfo(torch.float32).min


def refuse_changed(model: Any, name: str, place: str, asked: dict[str, Any]) -> None:
    """Refuse a model that does not answer with the attention ``name`` what it answers with eager.

    ``place`` is where that attention keeps its layers, which are taken out again.
    """
    before, modes = model.config._attn_implementation, [(x, x.training) for x in model.modules()]
    answers = []
    try:
        model.eval()
        for each in ("eager", name):
            model.set_attn_implementation(each)
            with torch.no_grad(), torch.random.fork_rng():
                torch.manual_seed(0)
                answers.append(numbers(model(**asked)))
    finally:
        model.set_attn_implementation(before)
        for module, training in modes:
            module.training = training
        reached = [x._modules.pop(place) for x, _ in modes if place in x._modules]
    kind = type(model).__name__
    if not reached:
        raise RegardError(
            f"{kind} attends in a way of its own and not by transformers' attention interface, so "
            "that regard has no part in it: take a model that does"
        )
    for one, two in zip(*answers, strict=True):
        most = max(float(one.abs().max()), 1e-6) if one.numel() else 0.0
        gap = float((one - two).abs().max()) / most if one.numel() else 0.0
        if not gap <= torch.finfo(one.dtype).eps ** 0.5:
            raise RegardError(
                f"{kind} answers with regard's attention what differs from its eager attention by "
                f"{gap:.2g} of the largest number: take eager"
            )


def numbers(answer: Any) -> list[Tensor]:
    """The tensors of numbers in what a model answers, caches and attentions left out."""
    return [x for x in answer.to_tuple() if isinstance(x, Tensor) and x.is_floating_point()]


def tiny_example(model: Any) -> dict[str, Tensor]:
    """Six words, or noise for a picture: what a model of transformers can be asked by its config.

    Errors: a model of something else.
    """
    takes, config = inspect.signature(model.forward).parameters, model.config
    if model.main_input_name == "pixel_values" and isinstance(
        getattr(config, "image_size", None), int
    ):
        size = config.image_size
        return {"pixel_values": torch.ones(1, config.num_channels, size, size).to(model.device)}
    if model.main_input_name != "input_ids" or "pixel_values" in takes:
        raise RegardError(
            f"{type(model).__name__} takes more than words, so that regard cannot ask it by "
            "itself: adopt(model, example={...}), with what its forward takes"
        )
    words = (
        torch.arange(1, 7, device=model.device) % model.config.get_text_config().vocab_size
    ).unsqueeze(0)
    return {key: words for key in ("input_ids", "decoder_input_ids") if key in takes}


def eager_of(module: nn.Module) -> Callable[..., Any] | None:
    """The eager attention function that a module's class names in its code; None if it has none."""
    for function in functions(type(module)):
        for name in function.__code__.co_names:
            found = function.__globals__.get(name)
            if re.search("eager.*attention", name) and inspect.isfunction(found):
                return found
    return None


def functions(kind: type) -> Iterator[Any]:
    """The functions of a class and of its bases, what decorators hide uncovered."""
    for each in kind.__mro__:
        for value in vars(each).values():
            if inspect.isfunction(value):
                yield inspect.unwrap(value)
