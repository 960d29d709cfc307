"""Eager attention of transformers: its masks, and a check that regard gives the same result.

The name of a model's attention selects its masks. `EagerMask` has the shape and numbers of eager's
masks, so that a model may read or change its mask; only then the numbers are computed.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from regard.core.errors import RegardError
from regard.nn.layers.device import evaluation_mode

ROWS = 8  # queries of one text that are compared
CLOSE = 5e-3  # allowed difference, relative to the largest number of eager


#: Model types that read a mask as booleans, True for visible, which inverts eager's masks.
BOOLEAN = ("nemotron_asr_streaming", "nemotron_asr_streaming_encoder")


class EagerMask(Tensor):
    """Eager's mask (batch, 1, queries, keys): 0, and its dtype's lowest number for hidden pairs.

    The numbers are computed from ``table()`` (True: visible) when something reads them. ``causal``:
    the mask hides later keys and nothing else. ``changed``: a view that may be written to exists,
    so that only the numbers count.
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
        mask: EagerMask = Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=torch.device(device)
        )
        mask.table, mask.causal, mask.changed = table, causal, False
        return mask

    def numbers(self) -> Tensor:
        """Return the mask as a plain tensor, the same at every call."""
        if not hasattr(self, "_numbers"):
            zero = torch.zeros((), dtype=self.dtype, device=self.device)
            self._numbers = torch.where(self.table(), zero, torch.finfo(self.dtype).min)
        return self._numbers

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: Any = None
    ) -> Any:
        shares = any(x.alias_info is not None for x in function._schema.returns)

        def read(x: Any) -> Any:
            if not isinstance(x, EagerMask):
                return x
            x.changed |= shares
            return x.numbers()

        return function(*tree_map(read, arguments), **tree_map(read, keywords or {}))


def eager_masks(
    *,
    allow_is_causal_skip: bool = True,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Tensor | None:
    """Return the mask of transformers' ``eager_mask``, from the same arguments.

    None hides nothing. sdpa's masks would not do: they omit masks implied by a module's
    ``is_causal``, which some decoders do not set. Models of `BOOLEAN`, which return NaN with eager
    attention, get sdpa's masks.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    if getattr(options.get("config"), "model_type", None) in BOOLEAN:
        whole: Tensor | None = sdpa_mask(allow_is_causal_skip=False, **options)
        return whole

    # The mask of a window or chunk is skipped only if it contains all keys.
    skip = allow_is_causal_skip and (
        options.get("local_size") is not None
        or options.get("mask_function", causal_mask_function) is causal_mask_function
    )
    visible: Tensor | None = sdpa_mask(allow_is_causal_skip=skip, **options)
    if visible is None and not skip:
        return None

    def table() -> Tensor:
        whole = sdpa_mask(allow_is_causal_skip=False, **options) if visible is None else visible
        assert whole is not None
        return whole

    shape = options["batch_size"], 1, options["q_length"], options["kv_length"]
    size = shape if visible is None else tuple(visible.shape)
    return EagerMask(table, size, dtype, options.get("device", "cpu"), causal=visible is None)


@torch.no_grad()
def refuse_difference(
    module: nn.Module,
    function: Callable[..., tuple[Tensor, Tensor | None]],
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    keywords: dict[str, Any],
) -> None:
    """Raise an error if regard's result differs from the module's own eager attention.

    Both get the last few queries of the first text, in float32, scaled so that their scores differ.
    ``function``, regard's, has the signature of eager attention; ``keywords`` go to both. A module
    whose class has no eager attention function is not checked.
    """
    eager = eager_of(module)
    if eager is None or queries.device.type == "meta" or torch.compiler.is_compiling():
        return
    rows = last_rows(mask, queries.shape[-2], keys.shape[-2])
    inputs = [x[:1].float() for x in (queries[..., -ROWS:, :], keys, values)]
    scale = keywords.get("scaling") or queries.shape[-1] ** -0.5
    sizes = inputs[0].norm(dim=-1).mean() * inputs[1].norm(dim=-1).mean() * abs(scale)
    inputs[0] = inputs[0] * (queries.shape[-1] ** 0.5 / sizes).clamp(1, 1e4)
    shared = {
        key: last(x) for key, x in {**keywords, "position_bias": bias}.items() if x is not None
    }
    with torch.autocast(queries.device.type, enabled=False):
        try:
            expected = eager(module, *inputs, rows, dropout=0.0, **shared)[0]
        except Exception as error:
            raise RegardError(
                f"cannot compare {type(module).__name__} with regard: its eager attention raised "
                f"an error ({error}); use attn_implementation='eager'"
            ) from None
        output = function(*inputs, rows, **shared)[0]
    if expected.shape == output.shape:
        gap = float((expected - output).abs().max()) if output.numel() else 0.0
        if gap <= CLOSE * max(float(expected.abs().max()) if gap else 0.0, 1e-6):
            return
    raise RegardError(
        f"{type(module).__name__} computes attention in its own way, not by softmax of scaled "
        "products and its mask, so that regard would change its results; use "
        "attn_implementation='eager'"
    )


def last(x: Any) -> Any:
    """Return the last few queries of the first text if ``x`` has a row for each query."""
    if not isinstance(x, Tensor):
        return x
    return x[:1, ..., -ROWS:, :].float() if x.dim() == 4 else x.float()


def last_rows(mask: Tensor | None, queries: int, keys: int) -> Tensor | None:
    """Return the mask rows of the last few queries of the first text, with eager's numbers."""
    if mask is None:
        return None
    if isinstance(mask, EagerMask) and not mask.changed:
        if mask.causal:
            first = max(queries - ROWS, 0) if queries > 1 else keys - 1
            places = torch.arange(first, max(queries, first + 1), device=mask.device)
            visible = torch.arange(keys, device=mask.device) <= places.unsqueeze(-1)
            visible = visible.expand(1, 1, -1, -1)
        else:
            visible = mask.table()[:1, :, -ROWS:]
    elif mask.dtype == torch.bool:
        visible = mask[:1, :, -ROWS:]
    else:
        scores = mask.numbers() if isinstance(mask, EagerMask) else mask
        scores = scores[:1, :, -ROWS:]
        lowest = (scores < torch.finfo(scores.dtype).min / 2) & scores.isfinite()
        return scores.float().masked_fill(lowest, LOWEST)
    return torch.zeros((), device=visible.device).where(visible, LOWEST)


LOWEST = torch.finfo(torch.float32).min


def refuse_changed(model: Any, name: str, place: str, example: dict[str, Any]) -> None:
    """Raise an error if a model's outputs with the attention ``name`` differ from eager outputs.

    ``place`` is the attribute in which that attention stores its layers; they are removed again.
    """
    before, modules, answers = model.config._attn_implementation, [*model.modules()], []
    try:
        for implementation in ("eager", name):
            model.set_attn_implementation(implementation)
            with evaluation_mode(model), torch.no_grad(), torch.random.fork_rng():
                torch.manual_seed(0)
                answers.append(numbers(model(**example)))
    finally:
        model.set_attn_implementation(before)
        reached = [x._modules.pop(place) for x in modules if place in x._modules]
    kind = type(model).__name__
    if not reached:
        raise RegardError(
            f"{kind} does not use transformers' attention interface, so that regard cannot replace "
            "its attention; use a model that does"
        )
    for eager, changed in zip(*answers, strict=True):
        most = max(float(eager.abs().max()), 1e-6) if eager.numel() else 0.0
        gap = float((eager - changed).abs().max()) / most if eager.numel() else 0.0
        if not gap <= torch.finfo(eager.dtype).eps ** 0.5:
            raise RegardError(
                f"{kind}'s outputs with regard's attention differ from those with eager attention "
                f"by {gap:.2g} of the largest number; use attn_implementation='eager'"
            )


def numbers(answer: Any) -> list[Tensor]:
    """Return the float tensors of a model's output, without caches and attentions."""
    return [x for x in answer.to_tuple() if isinstance(x, Tensor) and x.is_floating_point()]


def tiny_example(model: Any) -> dict[str, Tensor]:
    """Return example inputs for a transformers model: six tokens, or an image of ones.

    Raises: a model that takes other inputs.
    """
    takes, config = inspect.signature(model.forward).parameters, model.config
    if model.main_input_name == "pixel_values" and isinstance(
        getattr(config, "image_size", None), int
    ):
        size = config.image_size
        return {"pixel_values": torch.ones(1, config.num_channels, size, size).to(model.device)}
    if model.main_input_name != "input_ids" or "pixel_values" in takes:
        raise RegardError(
            f"{type(model).__name__} takes other inputs than tokens or images; give them: "
            "replace(model, example={...}) with the arguments of its forward"
        )
    words = (
        torch.arange(1, 7, device=model.device) % model.config.get_text_config().vocab_size
    ).unsqueeze(0)
    return {key: words for key in ("input_ids", "decoder_input_ids") if key in takes}


def eager_of(module: nn.Module) -> Callable[..., Any] | None:
    """Return the eager attention function that the code of a module's class names, or None."""
    for function in functions(type(module)):
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if re.search("eager.*attention", name) and inspect.isfunction(value):
                return value
    return None


def functions(kind: type) -> Iterator[Any]:
    """Yield the functions of a class and of its bases, without their decorators."""
    for base in kind.__mro__:
        for value in vars(base).values():
            if inspect.isfunction(value):
                yield inspect.unwrap(value)
