"""`adopt`: call an attention layer or model from anywhere in one way, so that the laws apply to it.

The roles of arguments are guessed by their names (`ROLES`), and what a mask means by calling the
module: a form of mask fits if the words that it hides have no effect on others and the rest has.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from regard.conformance.adapters import (
    WIDTH,
    Layer,
    Regard,
    precision,
    with_dropout,
)
from regard.conformance.adopted import (
    Adopted,
    Call,
    copied,
    is_keras,
    merged,
    parameters_of,
)
from regard.conformance.conventions import (
    BOTH,
    CONVENTIONS,
    HOMES,
    KEYS,
    PAIRS,
    REGARD,
    SIZES,
    parsed,
)
from regard.conformance.law import LONG
from regard.conformance.probe import BATCH, N, Probe, is_mask
from regard.conformance.subjects import nudge
from regard.core.errors import RegardError, look_up
from regard.core.plugins import one_line
from regard.core.spellings import ROLES, SETTINGS


def adopt(
    thing: nn.Module | Callable[..., nn.Module],
    call: str | Call = "",
    *,
    name: str = "",
    width: int = 0,
    heads: int = 0,
    queries: str = "",
    keys: str = "",
    values: str = "",
    memory: str = "",
    masks: Mapping[str, str] | None = None,
    batch_first: bool | None = None,
    causal: bool | None = None,
) -> Adopted:
    """Return a layer or model from anywhere as the laws call it. It is not changed.

    ``thing`` is a module, a class, or a function that makes one. How it is called is guessed from
    its signature and a few calls; ``print`` the result to see what was guessed. Corrections:

    * ``queries``, ``keys``, ``values``, ``memory``: the names of these arguments;
    * ``masks``: the meaning and shape of masks, ``{"mask": "hidden (b, m)"}``: "may look", "hidden"
      (True hides), "additive" (0 and −∞), "ones" (1 and 0) or "lengths (b)", with b texts, h heads,
      n queries and m keys;
    * ``call``: a convention (`CONVENTIONS`), or for any other module a function ``call(module, x,
      memory, allowed)`` that returns its output (b, n, …) for queries x (b, n, width), keys from
      ``memory`` (None: x) and allowed pairs (b, n, m) or None.

    A module whose first argument are numbers of words is given vectors in place of their embedding.

    Raises: arguments without a role; no call succeeds.

    >>> print(adopt(nn.MultiheadAttention))  # doctest: +NORMALIZE_WHITESPACE
    MultiheadAttention, called as in torch: forward(query=x, key=x, value=x,
    key_padding_mask=hidden (b, m), attn_mask=hidden (n, m)); batch first; width 12, 3 heads;
    float64
    """
    make = Maker(thing)
    module = make()
    adopted = Adopted(make, make.named, name or make.name)
    adopted.source = make.source
    if callable(call):
        adopted.function = call
    else:
        home = type(module).__module__.partition(".")[0]
        adopted.convention = call or HOMES.get(home, home if home in CONVENTIONS else "")
        if call:
            look_up(CONVENTIONS, call, "convention")
        asked = {"queries": queries, "keys": keys, "values": values, "memory": memory}
        find_roles(adopted, module, {role: word for role, word in asked.items() if word})
    adopted.casts = not is_keras(module)
    adopted.heads = heads or size_of(module, "heads") or 1
    settle(adopted, module, width, batch_first)
    if isinstance(thing, nn.Module):
        must_be_independent(adopted, thing, module)
    leaves = {type(part) for part in module.modules() if not [*part.children()]}
    adopted.one_attention = not adopted.embeds and all(
        issubclass(kind, nn.Linear | nn.Dropout | nn.Identity) or kind is type(module)
        for kind in leaves
    )
    nudge(module)
    probe = Probe(adopted, module)
    adopted.modes = (probe.is_causal() if causal is None else causal,)
    given = {key: parsed(key, text) for key, text in (masks or {}).items()}
    if adopted.function:
        adopted.hides = {KEYS, PAIRS, BOTH}
        adopted.hides = {what for what in (KEYS, PAIRS) if probe.hides(what)}
        adopted.hides |= {BOTH} if PAIRS in adopted.hides else set()
    else:
        probe.find_forms(given)
        if "causal" in adopted.roles and not probe.has_flag():
            adopted.roles.pop("causal")
    if adopted.modes == (False,) and (PAIRS in adopted.can or "causal" in adopted.roles):
        adopted.modes = (False, True)
    probe.find_memory()
    adopted.longest = probe.longest(size_of(module, "length") or max(LONG))
    adopted.positions = probe.uses_positions()
    adopted.dtype = precision(adopted.build, adopted.call, adopted.width)
    return adopted


def must_be_independent(adopted: Adopted, original: nn.Module, module: nn.Module) -> None:
    """Raise an error if a copy calls modules of the original, which a function in it holds."""
    used: list[bool] = []
    with ExitStack() as stack, torch.no_grad():
        for part in original.modules():
            stack.enter_context(part.register_forward_pre_hook(lambda *_: used.append(True)))
        adopted.run(module, torch.zeros(1, 2, adopted.width), None, None)
    if used:
        raise RegardError(
            f"a copy of {adopted.name} calls modules of the original, which a function in it "
            "holds; name a class, or a function without arguments that builds it"
        )


class Maker:
    """Makes the module, from an instance, or by a class or function with settings of known names.

    ``named`` are the names of settings by role, ``source`` is the Python that makes it.
    """

    def __init__(self, thing: nn.Module | Callable[..., nn.Module]) -> None:
        self.thing = thing
        self.name = type(thing).__name__ if isinstance(thing, nn.Module) else str(
            getattr(thing, "__name__", "module")
        )  # fmt: skip
        self.source = ""  # an instance, by the name of its variable
        self.parameters: Mapping[str, inspect.Parameter] = {}
        if isinstance(thing, type):
            self.parameters = merged(thing, "__init__")
        elif not isinstance(thing, nn.Module):
            self.parameters = inspect.signature(thing).parameters
        known = {role: [word for word in words if word in self.parameters]
                 for role, words in SETTINGS.items()}  # fmt: skip
        self.named = {role: words[0] for role, words in known.items() if words}

    def __call__(self, **settings: Any) -> nn.Module:
        """Return a module; without a dropout among the settings, all of its dropout is 0."""
        dropout = settings.get("dropout", 0.0)
        if isinstance(self.thing, nn.Module):
            return with_dropout(copied(self.thing), dropout)
        sizes = {**SIZES, **settings}
        if {"width", "heads"} & settings.keys():
            sizes["head_width"] = sizes["width"] // sizes["heads"]
        left = {"key_value_heads", "length"} - settings.keys()
        given = {word: sizes[role] for role, word in self.named.items() if role in sizes
                 and not (role in left and has_default(self.parameters[word]))}  # fmt: skip
        if "batch_first" in self.parameters:
            given["batch_first"] = True
        written = ", ".join(f"{key}={value!r}" for key, value in given.items())
        try:
            module = self.thing(**given)
        except Exception as error:
            if settings.keys() - {"dropout"}:
                raise
            arguments = ", ".join(map(str, self.parameters.values()))
            raise RegardError(
                f"{self.name}({arguments}) cannot be built as {self.name}({written}): "
                f"{one_line(error)}; name an instance instead: mine = {self.name}(…)"
            ) from error
        if not isinstance(module, nn.Module):
            raise RegardError(f"{self.name} made {type(module).__name__}, not an nn.Module")
        self.source = f"{self.name}({written})"
        if self.name == "<lambda>":
            self.name, self.source = type(module).__name__, ""
        return module if dropout else with_dropout(module, 0.0)


def has_default(parameter: inspect.Parameter) -> bool:
    """Return whether an argument may be left out."""
    return parameter.default is not inspect.Parameter.empty


def size_of(module: nn.Module, role: str) -> int:
    """Return the width, heads or longest text that a module or its configuration names; or 0."""
    config = getattr(module, "config", None)
    for place in (config, *module.modules()):
        for word in SETTINGS[role]:
            if isinstance(value := getattr(place, word, None), int) and value > 0:
                return value
    return 0


def find_roles(adopted: Adopted, module: nn.Module, asked: Mapping[str, str]) -> None:
    """Find which argument has which role. Raises: a required one has none."""
    parameters = parameters_of(module)
    for role, word in asked.items():
        if word not in parameters:
            raise RegardError(f"{role}={word!r}: {adopted.name} has no such argument; it takes "
                              f"{', '.join(parameters)}")  # fmt: skip
        adopted.roles[role] = word
    for role, words in ROLES.items():
        free = [word for word in words if word in parameters and word not in adopted.roles.values()]
        if free and role not in adopted.roles:
            adopted.roles[role] = free[0]
    needed = [word for word, p in parameters.items() if not has_default(p)]
    if "queries" not in adopted.roles:
        free = [word for word in (*needed, *parameters) if word not in adopted.roles.values()]
        if not free:
            raise RegardError(f"{adopted.name} takes no input: forward({', '.join(parameters)})")
        adopted.roles["queries"] = free[0]
    for word in needed:
        if word in adopted.roles.values():
            adopted.needs_memory |= word == adopted.roles.get("memory")
            continue
        if not is_mask(word):
            own = ", ".join(map(str, parameters.values()))
            raise RegardError(
                f"{adopted.name} is called as forward({own}), and {word} has no known role; say "
                f"which: keys={word}, values={word} or memory={word} on the command line, or "
                f"adopt(module, keys={word!r}); or give call=, call(module, x, memory, allowed)"
            )
        adopted.fixed[word] = None
    if "decoder_input_ids" in parameters:
        raise RegardError(f"{adopted.name} is an encoder and a decoder; name one of them: "
                          "model.get_encoder()")  # fmt: skip
    if "use_cache" in parameters:
        adopted.fixed["use_cache"] = False
    every = inspect.signature(module.forward).parameters.values()
    if hasattr(module, "get_input_embeddings") and any(p.kind is p.VAR_KEYWORD for p in every):
        adopted.roles.setdefault("weights", "output_attentions")  # a model of transformers


def settle(adopted: Adopted, module: nn.Module, width: int, batch_first: bool | None) -> None:
    """Find the width, whether words are numbers, the order of axes and the output, by calling."""
    embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    own = [width or size_of(module, "width"), *(
        part.in_features if isinstance(part, nn.Linear) else part.normalized_shape[-1]
        for part in module.modules() if isinstance(part, nn.Linear | nn.LayerNorm)
    ), *(part.embedding_dim for part in embeddings), WIDTH]  # fmt: skip
    declared: Any = next((part.batch_first for part in module.modules()
                     if isinstance(getattr(part, "batch_first", None), bool)), None)  # fmt: skip
    if batch_first is None:
        batch_first = declared
    adopted.batch_first = batch_first is not False
    axes, first = (BATCH, N) if adopted.batch_first else (N, BATCH), None
    for size in dict.fromkeys(size for size in own if size):
        for embeds in [False, True] if embeddings else [False]:
            adopted.embeds, x = embeds, torch.randn(BATCH, N, size)
            try:
                with torch.no_grad():
                    tensors = adopted.tensors(adopted.run(module.eval(), x, None, None))
            except Exception as error:  # whatever a user's code raises
                first = first or error
                continue
            found = [i for i, y in enumerate(tensors) if y.ndim > 2 and y.shape[:2] == axes]
            plain = [i for i in found if tensors[i].shape[-2:] != (N, N)]
            if not found:
                shapes = ", ".join(str(tuple(y.shape)) for y in tensors)
                first = first or RegardError(f"inputs {tuple(x.shape)} gave {shapes or 'none'}")
                continue
            adopted.width, adopted.place = size, (plain or found)[0]
            if batch_first is None:
                adopted.batch_first = not mixes_first_axis(adopted, module, x)
            return
    raise RegardError(
        f"{adopted.name} could not be called with words (batch, n, width)"
        f"{f': {one_line(first)}' if first else ''}; give width=, or call=, a function "
        "call(module, x, memory, allowed)"
    )


def mixes_first_axis(adopted: Adopted, module: nn.Module, x: Tensor) -> bool:
    """Return whether an output depends on other rows of the first axis and not of the second."""
    with torch.no_grad():
        plain = adopted.output(adopted.run(module, x, None, None), x)
        mixed = []
        for axis in (0, 1):
            changed = x.clone()
            changed.select(axis, 0).normal_()
            other = adopted.output(adopted.run(module, changed, None, None), x)
            rest = slice(1, None)
            at = (rest, slice(None)) if axis == 0 else (slice(None), rest)
            mixed.append(not torch.equal(other[at], plain[at]))
    return mixed == [True, False]


def corrections(given: Mapping[str, str]) -> dict[str, Any]:
    """Return corrections of a command line as arguments of `adopt`; other names are masks.

    >>> corrections({"width": "8", "causal": "false", "blind": "hidden (b, m)"})
    {'width': 8, 'causal': False, 'masks': {'blind': 'hidden (b, m)'}}
    """
    found: dict[str, Any] = {}
    for key, text in given.items():
        if key in ("width", "heads") and text.isdigit():
            found[key] = int(text)
        elif key in ("batch_first", "causal") and text.lower() in ("true", "false"):
            found[key] = text.lower() == "true"
        elif key in ("call", "queries", "keys", "values", "memory"):
            found[key] = text
        else:
            found.setdefault("masks", {})[key] = text
    return found


def layer_of(thing: Any, name: str = "", given: Mapping[str, str] | None = None) -> Layer:
    """Return the adapter of a module or of a class: regard's own, or an `Adopted` layer.

    Raises: as `adopt`.
    """
    adopted = adopt(thing, name=name, **corrections(given or {}))
    if REGARD not in {form.meaning for form in adopted.forms.values()}:
        return adopted
    own = Regard(lambda **settings: adopted.build(settings.get("dropout", 0.0)), adopted.name)
    own.width = adopted.width
    return own
