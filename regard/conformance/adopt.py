"""`adopt`: call an attention layer or model from anywhere in one way, so that the laws apply to it.

The roles of arguments are guessed by their names (`ROLES`), and what a mask means by calling the
module: a form of mask fits if the words that it hides have no effect on others and the rest has.
"""

import contextlib
import copy
import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from regard.attention import Mask, MultiHeadAttention, dense
from regard.conformance.adapters import (
    HEADS,
    STEPS,
    WIDTH,
    Layer,
    Regard,
    of_class,
    precision,
    with_dropout,
)
from regard.conformance.law import LONG, InapplicableError
from regard.conformance.subjects import nudge
from regard.core.errors import RegardError, look_up
from regard.core.plugins import one_line

#: Names of arguments by role, the preferred first.
ROLES: Final[dict[str, tuple[str, ...]]] = {
    "queries": (
        "inputs_embeds", "query", "queries", "q", "x", "hidden_states", "src", "tgt", "target",
        "input", "inputs", "sequence", "input_ids", "idx", "ids", "tokens", "decoder_input",
    ),
    "keys": ("key", "keys", "k"),
    "values": ("value", "values", "v"),
    "memory": (
        "memory", "context", "encoder_hidden_states", "encoder_outputs", "encoder_output",
        "key_value_states", "kv",
    ),
    "positions": ("position_ids", "positions", "pos", "cache_position"),
    "cache": ("past_key_values", "past_key_value", "layer_past", "cache", "past"),
    "causal": ("is_causal", "use_causal_mask", "causal"),
    "weights": (
        "need_weights", "output_attentions", "return_attention_scores", "return_attention",
        "return_weights", "return_attn", "return_attn_weights", "return_intermediates",
    ),
}  # fmt: skip
#: What constructors call a setting of `Layer.variant`, or a size that any network needs.
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "width": (
        "width", "embed_dim", "d_model", "dim", "hidden_size", "num_hiddens", "n_embd",
        "embedding_dim", "hidden_dim", "dim_model", "emb_dim", "embed_size", "model_dim",
    ),
    "heads": (
        "heads", "num_heads", "nhead", "n_heads", "n_head", "h", "num_attention_heads", "nheads",
    ),
    "head_width": ("dim_head", "head_dim", "key_dim", "attn_dim_head", "d_k", "head_size"),
    "dropout": (
        "dropout", "attn_dropout", "attn_drop", "dropout_p", "attention_dropout", "drop", "p",
        "dropout_rate", "attention_probs_dropout_prob", "attn_pdrop",
    ),
    "key_value_heads": ("key_value_heads", "num_kv_heads", "num_key_value_heads", "n_kv_heads",
                        "kv_heads", "num_heads_kv"),
    "feedforward": ("dim_feedforward", "intermediate_size", "ffn_dim", "d_ff", "mlp_dim",
                    "ff_dim", "hidden_features"),
    "layers": ("num_layers", "depth", "n_layers", "n_layer", "num_hidden_layers"),
    "length": ("length", "max_len", "max_seq_len", "block_size", "context_length", "seq_len",
               "max_position_embeddings", "max_length"),
    "vocabulary": ("vocab_size", "num_tokens", "vocab", "vocabulary", "n_vocab"),
}  # fmt: skip
SIZES: Final = {
    "width": WIDTH, "heads": HEADS, "head_width": WIDTH // HEADS, "feedforward": 16, "layers": 2,
    "length": 2 * max(LONG), "vocabulary": 20, "dropout": 0.0,
}  # fmt: skip
KEYS, PAIRS = "keys", "pairs"
MAY_LOOK, HIDDEN, ADDITIVE, ONES, LENGTHS = "may look", "hidden", "additive", "ones", "lengths"
REGARD: Final = "a Mask of regard"
BATCH, N = 2, 5  # of the probing calls


@dataclass(frozen=True)
class Form:
    """How a mask is written: its meaning, and its shape in letters, as "b 1 1 m".

    b: texts, h: heads, n: queries, m: keys; "bh n m" joins texts and heads. ``lowest``: additive
    masks hide by the lowest number, not by −∞.
    """

    meaning: str
    shape: str
    lowest: bool = False

    @property
    def what(self) -> str:
        """Return what it can hide: keys of each text, pairs of all texts, or pairs of each text."""
        return KEYS if "n" not in self.shape else PAIRS if "b" not in self.shape else "both"

    def __str__(self) -> str:
        return f"{self.meaning} ({self.shape.replace(' ', ', ')})"

    def write(self, allowed: Tensor, heads: int, dtype: torch.dtype) -> Tensor | Mask:
        """Return the mask of allowed pairs (b, n, m)."""
        if self.meaning == REGARD:
            return dense(allowed)
        if self.meaning == LENGTHS:
            return allowed.any(1).sum(-1)
        letters, (b, n, m) = self.shape.split(), allowed.shape
        table = allowed[:, None]
        if "h" in letters or "bh" in letters:
            table = table.expand(-1, heads, -1, -1)
        if "n" not in letters:
            table = table.any(2, keepdim=True)
        if "b" not in letters and "bh" not in letters:
            table = table[:1]
        sizes = {"b": b, "h": heads, "n": n, "m": m, "1": 1, "bh": b * heads}
        table = table.reshape([sizes[letter] for letter in letters])
        if self.meaning == HIDDEN:
            return ~table
        if self.meaning == ONES:
            return table.long()
        if self.meaning == ADDITIVE:
            least = torch.finfo(dtype).min if self.lowest else -math.inf
            return torch.zeros(table.shape, dtype=dtype).masked_fill(~table, least)
        return table


#: The masks of packages, by argument.
CONVENTIONS: Final[dict[str, dict[str, Form]]] = {
    "torch": {
        **dict.fromkeys(
            ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask",
             "memory_key_padding_mask"), Form(HIDDEN, "b m"),
        ),
        **dict.fromkeys(("attn_mask", "src_mask", "tgt_mask", "mask", "memory_mask"),
                        Form(HIDDEN, "n m")),
    },
    "d2l": dict.fromkeys(("valid_lens", "enc_valid_lens"), Form(LENGTHS, "b")),
    "keras": {"attention_mask": Form(MAY_LOOK, "b n m")},
    "huggingface": {"attention_mask": Form(ONES, "b m"),
                    "encoder_attention_mask": Form(ONES, "b m")},
    "x-transformers": {"mask": Form(MAY_LOOK, "b m"), "attn_mask": Form(MAY_LOOK, "n m"),
                       "context_mask": Form(MAY_LOOK, "b m")},
    "timm": {"attn_mask": Form(MAY_LOOK, "b 1 n m")},
    "fla": {"attention_mask": Form(ONES, "b m")},
    "flash-attn": {"key_padding_mask": Form(MAY_LOOK, "b m")},
}  # fmt: skip
HOMES: Final = {"transformers": "huggingface", "x_transformers": "x-transformers",
                "flash_attn": "flash-attn"}  # fmt: skip
MEANINGS = (MAY_LOOK, HIDDEN, ADDITIVE, ONES)
SHAPES = ("b 1 n m", "b n m", "n m", "bh n m", "b h n m", "b m", "b 1 1 m", "b 1 m")
Call = Callable[[nn.Module, Tensor, Tensor | None, Tensor | None], Any]


class Adopted(Layer):
    """A layer or model from elsewhere; made by `adopt`, which describes the arguments.

    ``roles``: the argument of each role; ``forms``: the form of each mask that is understood.
    """

    one_attention = False
    foreign = True

    def __init__(self, make: Callable[..., nn.Module], named: Mapping[str, str], name: str) -> None:
        self.make, self.named, self.name = make, named, name
        self.roles: dict[str, str] = {}
        self.forms: dict[str, Form] = {}
        self.fixed: dict[str, Any] = {}
        self.function: Call | None = None
        self.batch_first, self.embeds, self.needs_memory, self.place = True, False, False, 0
        self.unread: list[str] = []
        self.convention = ""

    def build(self, dropout: float = 0.0) -> nn.Module:
        return self._settled(self.make(dropout=dropout))

    def variant(self, **settings: Any) -> nn.Module:
        if missing := settings.keys() - self.named.keys():
            raise InapplicableError(f"it takes no {min(missing)}=")
        try:
            return self._settled(self.make(**settings), settings.get("width", 0))
        except Exception as error:  # whatever a user's code raises
            raise InapplicableError(f"it refuses {settings}: {one_line(error)}") from None

    def _settled(self, module: nn.Module, width: int = 0) -> nn.Module:
        """Return a module whose parameters exist, after a first call if it makes them then."""
        lazy = any(map(is_lazy, module.parameters())) or getattr(module, "built", True) is False
        if lazy and self.roles:
            with torch.no_grad():
                self.run(module.eval(), torch.zeros(1, 2, width or self.width), None, None)
        return module.train()

    def must_take_dropout(self) -> None:
        if not self.one_attention or "dropout" not in self.named:
            raise InapplicableError("it is not one attention with a dropout setting")

    def takes(self, name: str) -> bool:
        return name in self.roles and name == "positions" and self.one_attention

    def call(
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
    ) -> Tensor:
        allowed = self._allowed(x, x, valid, future)
        return self.output(self.run(module, x, None, allowed, **more), x)

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        answer = self.run(module, x, None, self._allowed(x, x, valid, True), weights=True)
        n = x.shape[1]
        found = [y for i, y in enumerate(self.tensors(answer)) if i != self.place
                 and y.ndim > 2 and y.shape[0] == len(x) and y.shape[-2:] == (n, n)]  # fmt: skip
        if not found:
            raise InapplicableError("the layer does not return weights")
        return self.output(answer, x), found[0]

    def across(
        self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None, **more: Any
    ) -> Tensor:
        if not self.crosses:
            raise InapplicableError("the layer has no cross-attention")
        allowed = None if valid is None else self._allowed(x, memory, valid, True)
        return self.output(self.run(module, x, memory, allowed, **more), x)

    def pairs(self, module: nn.Module, x: Tensor, mask: Mask) -> Tensor:
        if PAIRS not in self.can or self.modes == (True,) or not self.one_attention:
            raise InapplicableError("it is not one attention with a mask of pairs")
        words = torch.arange(x.shape[1])
        allowed = mask.allows(words, words).expand(len(x), -1, -1)
        return self.output(self.run(module, x, None, allowed), x)

    def steps(
        self,
        module: nn.Module,
        x: Tensor,
        sizes: Sequence[int] = STEPS,
        positions: Tensor | None = None,
    ) -> Tensor:
        cache = self.roles.get("cache")
        if not cache or self.modes != (True,) or self.function or not self.batch_first:
            raise InapplicableError("the layer has no cache")
        whole = "return_hiddens" in self._parameters(module)  # x-transformers: of the full text
        use, past, start, parts = (
            {key: True for key in ("use_cache", "return_hiddens")
             if key in self._parameters(module)}, None, 0, list[Tensor](),
        )  # fmt: skip
        for size in [sizes[0], *[1] * sum(sizes[1:])] if whole else sizes:
            at = slice(start, start := start + size)
            shown = x[:, :start] if whole else x[:, at]
            answer = self.run(module, shown, None, None, given={**use, cache: past})
            past = kept(answer, cache, whole)
            if past is None:
                raise InapplicableError(f"it returned no {cache}")
            parts.append(self.output(answer, shown)[:, -size:])
        return torch.cat(parts, 1)

    @property
    def can(self) -> set[str]:
        """Return what its masks of words can hide: `KEYS`, `PAIRS`."""
        if self.function:
            return {KEYS, PAIRS}
        found = {form.what for name, form in self.forms.items() if not of_memory(name)}
        return {KEYS, PAIRS} if "both" in found else found

    @property
    def crosses(self) -> bool:
        """Return whether it takes keys and values, or a memory, other than the queries."""
        return self.function is None and bool({"keys", "memory"} & self.roles.keys())

    def run(
        self,
        module: nn.Module,
        x: Tensor,
        memory: Tensor | None,
        allowed: Tensor | None,
        *,
        weights: bool = False,
        positions: Tensor | None = None,
        causal: bool = False,
        given: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the module for queries (b, n, width) and allowed pairs (b, n, m)."""
        if self.function:
            return self.function(module, x, memory, allowed)
        read = self._turned(x if memory is None else memory)
        values: dict[str, Any] = dict(self.fixed)
        values[self.roles["queries"]] = self._turned(x)
        for role in ("keys", "values"):
            if role in self.roles:
                values[self.roles[role]] = read
        if "memory" in self.roles and memory is not None:
            values[self.roles["memory"]] = read
        elif self.needs_memory:  # the same few words for all texts
            few = torch.arange(3 * x.shape[-1], dtype=x.dtype).sin().reshape(1, 3, -1)
            values[self.roles["memory"]] = self._turned(few.expand(len(x), -1, -1))
        if "weights" in self.roles:
            values[self.roles["weights"]] = weights
        if positions is not None:
            values[self.roles["positions"]] = positions[None] if positions.ndim < 2 else positions
        if causal:
            values[self.roles["causal"]] = True
        if allowed is not None:
            values |= self._masks(x, allowed, across=memory is not None)
        values |= given or {}
        parameters = self._parameters(module)
        if weights and "average_attn_weights" in parameters:
            values["average_attn_weights"] = False
        with embedded(module, x) if self.embeds else contextlib.nullcontext(x) as first:
            if self.embeds:
                values[self.roles["queries"]] = first
            leading = [values.pop(name) for name, p in parameters.items()
                       if p.kind is p.POSITIONAL_ONLY and name in values]  # fmt: skip
            return module(*leading, **values)

    def _masks(self, x: Tensor, allowed: Tensor, *, across: bool) -> dict[str, Any]:
        """Return the masks of a call that hides pairs."""
        forms = {name: form for name, form in self.forms.items() if of_memory(name) == across}
        if across and not forms:
            forms = {name: form for name, form in self.forms.items() if not of_memory(name)}
        whole = {name: form for name, form in forms.items() if form.what == "both"}
        keys = allowed.any(1, keepdim=True).expand_as(allowed)  # seen by any query
        pairs = (allowed | ~keys).all(0, keepdim=True).expand_as(allowed)
        needs = {KEYS: not bool(keys.all()), PAIRS: not bool(pairs.all())}
        if not any(needs.values()):
            return {}
        if whole:
            name, form = next(iter(whole.items()))
            return {name: form.write(allowed, self.heads, x.dtype)}
        written: dict[str, Any] = {}
        for what, table in ((KEYS, keys), (PAIRS, pairs)):
            if not needs[what]:
                continue
            name = next((name for name, form in forms.items() if form.what == what), "")
            if name:
                written[name] = forms[name].write(table, self.heads, x.dtype)
            elif what == PAIRS and "causal" in self.roles:
                written[self.roles["causal"]] = True
            elif self.modes != (True,) or not bool(keys[:, :, 0].all()):  # else padding is later
                raise InapplicableError(f"it takes no mask of {what}")
        return written

    def _allowed(
        self, x: Tensor, memory: Tensor, valid: Tensor | None, future: bool
    ) -> Tensor | None:
        """Return the allowed pairs (b, n, m); None if nothing is hidden by masks."""
        n, m = x.shape[1], memory.shape[1]
        built_in = self.modes == (True,)
        if valid is None and (future or built_in):
            return None
        allowed = torch.ones(len(x), n, m, dtype=torch.bool)
        if not future and not built_in:
            allowed = allowed.tril()
        if valid is not None:
            allowed = allowed & (torch.arange(m) < valid[:, None])[:, None]
        return allowed

    def output(self, answer: Any, x: Tensor) -> Tensor:
        """Return the output (b, n, …) among what a call returned."""
        found = self.tensors(answer)
        if len(found) <= self.place:
            raise RegardError(f"{self.name} returned {type(answer).__name__} without an output")
        return self._turned(found[self.place])

    def tensors(self, answer: Any) -> list[Tensor]:
        """Return the tensors of numbers in what a call returned, in order."""
        leaves = tree_leaves(answer)
        inside = [y for leaf in leaves if not isinstance(leaf, Tensor) and hasattr(leaf, "__dict__")
                  for y in tree_leaves(list(vars(leaf).values()))]  # fmt: skip
        return [y for y in (*leaves, *inside) if isinstance(y, Tensor) and y.is_floating_point()]

    def _turned(self, x: Tensor) -> Tensor:
        return x if self.batch_first else x.transpose(0, 1)

    def _parameters(self, module: nn.Module) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(called(module)).parameters

    def __str__(self) -> str:
        """Return in one line how it is called."""
        if self.function:
            arguments = "call="
        else:
            who = {"queries": "x", "keys": "x", "values": "x"}
            parts = [f"{self.roles[role]}={value}" for role, value in who.items()
                     if role in self.roles]  # fmt: skip
            parts += [f"{self.roles['memory']}=memory"] if "memory" in self.roles else []
            parts += [f"{name}={form}" for name, form in self.forms.items()]
            arguments = f"forward({', '.join(parts)})"
        says = [
            arguments,
            "x is words before the embedding" if self.embeds else "",
            "batch first" if self.batch_first else "time first",
            "causal" if self.modes == (True,) else "",
            f"width {self.width}, {self.heads} head{'s' if self.heads > 1 else ''}",
            str(self.dtype).removeprefix("torch."),
            f"left out: {', '.join(self.unread)}" if self.unread else "",
        ]
        by = f", called as in {self.convention}" if self.convention else ""
        return f"{self.name}{by}: {'; '.join(part for part in says if part)}"


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
    make, named, known = maker(thing)
    adopted = Adopted(make, named, name or known)
    module = make(dropout=0.0)
    if callable(call):
        adopted.function = call
    else:
        home = type(module).__module__.partition(".")[0]
        adopted.convention = call or HOMES.get(home, home if home in CONVENTIONS else "")
        if call:
            look_up(CONVENTIONS, call, "convention")
        asked = {"queries": queries, "keys": keys, "values": values, "memory": memory}
        find_roles(adopted, module, {role: word for role, word in asked.items() if word})
    adopted.heads = heads or size_of(module, "heads") or 1
    settle(adopted, module, width, batch_first)
    adopted.longest = size_of(module, "length") or None
    parts = {type(part).__name__ for part in module.modules()}
    adopted.one_attention = "keys" in adopted.roles and not any("Norm" in kind for kind in parts)
    nudge(module)
    probe = Probe(adopted, module)
    adopted.modes = (probe.is_causal() if causal is None else causal,)
    given = {key: parsed(key, text) for key, text in (masks or {}).items()}
    if not adopted.function:
        probe.find_forms(given)
        turns = "causal" in adopted.roles and probe.has_flag()
        if not turns:
            adopted.roles.pop("causal", None)
    if adopted.modes == (False,) and (PAIRS in adopted.can or "causal" in adopted.roles):
        adopted.modes = (False, True)
    probe.find_memory()
    adopted.positions = probe.uses_positions()
    adopted.dtype = precision(copied(adopted.build()), adopted.call, adopted.width)
    return adopted


def maker(
    thing: nn.Module | Callable[..., nn.Module],
) -> tuple[Callable[..., nn.Module], dict[str, str], str]:
    """Return a function that makes the module, the names of its settings by role, and its name."""
    if isinstance(thing, nn.Module):
        return (
            lambda dropout=0.0: with_dropout(copied(thing), dropout), {}, type(thing).__name__
        )  # fmt: skip
    parameters = inspect.signature(thing).parameters
    named = {role: word for role, words in SETTINGS.items() for word in words[::-1]
             if word in parameters}  # fmt: skip
    name = getattr(thing, "__name__", "module")

    def make(**settings: Any) -> nn.Module:
        sizes = {**SIZES, **settings}
        if "head_width" in named and {"width", "heads"} & settings.keys():
            sizes["head_width"] = sizes["width"] // sizes["heads"]
        optional = {"head_width", "key_value_heads", "length"} - settings.keys()
        given = {
            word: sizes[role] for role, word in named.items()
            if role in sizes and not (role in optional and has_default(parameters[word])
                                      and role != "head_width")
        }  # fmt: skip
        if "batch_first" in parameters:
            given["batch_first"] = True
        try:
            module = thing(**given)
        except Exception as error:
            if settings.keys() - {"dropout"}:
                raise
            arguments = ", ".join(map(str, parameters.values()))
            raise RegardError(
                f"{name}({arguments}) cannot be built with {given} ({one_line(error)}); name an "
                f"instance instead, or a function: adopt(lambda: {name}(…))"
            ) from error
        if not isinstance(module, nn.Module):
            raise RegardError(f"{name} made {type(module).__name__}, not an nn.Module")
        return module if settings.get("dropout") else with_dropout(module, 0.0)

    return make, named, name


def has_default(parameter: inspect.Parameter) -> bool:
    """Return whether an argument may be left out."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is not inspect.Parameter.empty or parameter.kind in kinds


def called(module: nn.Module) -> Callable[..., Any]:
    """Return the method whose arguments a user gives: ``forward``, or keras' ``call``."""
    keras = any(base.__module__.startswith("keras.") for base in type(module).__mro__)
    method: Callable[..., Any] = getattr(module, "call" if keras else "forward")
    return method


def copied(module: nn.Module) -> nn.Module:
    """Return a copy, also of a module that keeps a result of its last call."""
    kept_results = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, kept_results)


def is_lazy(parameter: object) -> bool:
    """Return whether a parameter has no shape yet."""
    return isinstance(parameter, nn.parameter.UninitializedParameter)


def of_memory(name: str) -> bool:
    """Return whether a mask is one of keys from a memory."""
    return name.startswith(("memory_", "context_", "encoder_", "cross_", "enc_"))


def kept(answer: Any, name: str, whole: bool) -> Any:
    """Return the cache among what a call returned; None if there is none."""
    if whole:
        return answer[1]
    if (past := getattr(answer, name, None)) is not None:
        return past
    later = answer[1:] if isinstance(answer, tuple) else ()
    return next((one for one in later if isinstance(one, tuple | list)), None)


@contextmanager
def embedded(module: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Give vectors (b, n, width) to a module in place of its first embedding; yield its input."""
    numbers, pending = torch.ones(x.shape[:2], dtype=torch.long), [x]

    def replace(part: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        fits = pending and inputs[0].shape == numbers.shape and output.shape == x.shape
        return pending.pop() if fits else output

    parts = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    hooks = [part.register_forward_hook(replace) for part in parts]
    try:
        yield numbers
    finally:
        for hook in hooks:
            hook.remove()


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
    parameters = inspect.signature(called(module)).parameters
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
                f"{adopted.name} is called as forward({own}), and {word} has no known role; name "
                "it, adopt(module, keys=…), or give call=, a function call(module, x, memory, "
                "allowed)"
            )
        adopted.fixed[word] = None
    if "decoder_input_ids" in parameters:
        raise RegardError(f"{adopted.name} is an encoder and a decoder; name one of them: "
                          "model.get_encoder()")  # fmt: skip
    if "use_cache" in parameters:
        adopted.fixed["use_cache"] = False


def is_mask(name: str) -> bool:
    """Return whether an argument is a mask by its name."""
    return any(part in name.lower() for part in ("mask", "len", "padding"))


def settle(adopted: Adopted, module: nn.Module, width: int, batch_first: bool | None) -> None:
    """Find the width, whether words are numbers, the order of axes and the output, by calling."""
    embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    own = [width or size_of(module, "width"), *(
        part.in_features if isinstance(part, nn.Linear) else part.normalized_shape[-1]
        for part in module.modules() if isinstance(part, nn.Linear | nn.LayerNorm)
    ), *(part.embedding_dim for part in embeddings), WIDTH]  # fmt: skip
    declared = next((part.batch_first for part in module.modules()
                     if isinstance(getattr(part, "batch_first", None), bool)), None)  # fmt: skip
    first = None
    for size in dict.fromkeys(size for size in own if size):
        for embeds in [False, True] if embeddings else [False]:
            adopted.embeds, x = embeds, torch.randn(BATCH, N, size)
            try:
                with torch.no_grad():
                    answer = adopted.run(module.eval(), x, None, None)
            except Exception as error:  # whatever a user's code raises
                first = first or error
                continue
            found = [i for i, y in enumerate(adopted.tensors(answer))
                     if y.ndim > 2 and y.shape[:2] == (BATCH, N)]  # fmt: skip
            plain = [i for i in found if adopted.tensors(answer)[i].shape[-2:] != (N, N)]
            if not found:
                shapes = ", ".join(str(tuple(y.shape)) for y in adopted.tensors(answer))
                first = first or RegardError(f"inputs {tuple(x.shape)} gave {shapes or 'none'}")
                continue
            adopted.width, adopted.place = size, (plain or found)[0]
            if batch_first is None and declared is None:
                batch_first = not mixes_first_axis(adopted, module, x)
            adopted.batch_first = declared if batch_first is None else batch_first  # type: ignore[assignment]
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


def parsed(name: str, text: str) -> Form:
    """Return the form of ``meaning (shape)``. Raises: another meaning or letter."""
    meaning, _, shape = text.partition("(")
    letters = shape.rstrip(") ").replace(",", " ").split()
    known = {"b", "h", "n", "m", "1", "bh"}
    if meaning.strip() not in (*MEANINGS, LENGTHS) or not letters or {*letters} - known:
        raise RegardError(
            f"masks={{{name!r}: {text!r}}}: write a meaning and a shape, as in 'hidden (b, m)'; "
            f"meanings: {', '.join((*MEANINGS, LENGTHS))}; letters: b h n m 1 bh"
        )
    return Form(meaning.strip(), " ".join(letters))


class Probe:
    """Calls a module to find out what its arguments mean."""

    def __init__(self, adopted: Adopted, module: nn.Module) -> None:
        self.adopted, self.module = adopted, module
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.x = torch.randn(BATCH, N, adopted.width)
            self.others = torch.randn(BATCH, N, adopted.width)

    def output(self, x: Tensor, given: Mapping[str, Any] | None = None) -> Tensor | None:
        """Return the output with these arguments; None if the module refuses them."""
        try:
            with torch.no_grad():
                answer = self.adopted.run(self.module, x, None, None, given=given)
                return self.adopted.output(answer, x).float()
        except Exception:  # whatever a user's code raises
            return None

    def changes(self, given: Mapping[str, Any] | None = None) -> Tensor | None:
        """Return how much each word j changes the output i of its text, (b, i, j), or None."""
        plain = self.output(self.x, given)
        if plain is None or plain.shape[:2] != (BATCH, N):
            return None
        columns = []
        for j in range(N):
            changed = self.x.clone()
            changed[:, j] = self.others[:, j]
            other = self.output(changed, given)
            if other is None:
                return None
            gap = (other - plain).nan_to_num(0.0).abs().flatten(2).amax(-1)
            columns.append(gap)
        return torch.stack(columns, -1)

    def is_causal(self) -> bool:
        """Return whether, without masks, no word changes an earlier output."""
        found = self.changes()
        return found is not None and bool((found.triu(1) == 0).all() and (found.tril(-1) > 0).any())

    def has_flag(self) -> bool:
        """Return whether the argument for a causal mask makes the module causal."""
        found = self.changes({self.adopted.roles["causal"]: True})
        return found is not None and bool((found.triu(1) == 0).all())

    def find_memory(self) -> None:
        """Forget the memory, and masks for it, if the module refuses or ignores it."""
        roles, plain = self.adopted.roles, None
        if "memory" not in roles or self.adopted.needs_memory:
            return
        with contextlib.suppress(Exception), torch.no_grad():  # whatever a user's code raises
            answers = [self.adopted.run(self.module, self.x, y, None)
                       for y in (self.x, self.others)]  # fmt: skip
            plain, other = (self.adopted.output(answer, self.x) for answer in answers)
        if plain is None or torch.equal(plain, other):
            roles.pop("memory")
            for name in [name for name in self.adopted.forms if of_memory(name)]:
                self.adopted.forms.pop(name)

    def uses_positions(self) -> bool:
        """Return whether the order of words matters, or words are read by numbers."""
        if self.adopted.modes == (True,):
            return True
        turned = torch.arange(N - 1, -1, -1)
        plain, other = self.output(self.x), self.output(self.x[:, turned])
        if plain is None or other is None:
            return True
        return not torch.allclose(other, plain[:, turned], atol=1e-4 * float(plain.abs().max()))

    def find_forms(self, given: Mapping[str, Form]) -> None:
        """Find the form of each mask of words."""
        adopted = self.adopted
        for name, p in inspect.signature(called(self.module)).parameters.items():
            if name in given:
                adopted.forms[name] = given[name]
                continue
            if not is_mask(name) or name in adopted.roles.values() or p.kind is p.VAR_KEYWORD:
                continue
            stated = CONVENTIONS.get(adopted.convention, {}).get(name)
            if of_memory(name):
                if stated:
                    adopted.forms[name] = stated
                continue
            form = self.form_of(name, stated)
            if form:
                adopted.forms[name] = form
            elif name not in SILENT:
                adopted.unread.append(name)

    def form_of(self, name: str, stated: Form | None) -> Form | None:
        """Return the form that hides exactly the hidden words; None if none has an effect."""
        lowest = self.adopted.convention == "huggingface"
        first = [HIDDEN] if "padding" in name else []
        meanings = [*first, *(meaning for meaning in MEANINGS if meaning not in first)]
        forms = [Form(meaning, shape, lowest and meaning == ADDITIVE)
                 for shape in SHAPES for meaning in meanings]  # fmt: skip
        forms = [Form(LENGTHS, "b"), *forms] if "len" in name else forms
        forms = [Form(REGARD, "b n m"), *forms] if name == "mask" and not stated else forms
        nearest, least, taken = None, 0.2, []
        free = self.changes()
        for form in dict.fromkeys([*([stated] if stated else []), *forms]):
            leak = self.leak(name, form, free)
            if leak is None:
                continue
            taken.append(form)
            if leak < 1e-3:
                return form
            if leak < least:
                nearest, least = form, leak
        own = any(type(part).__module__.startswith("regard.") for part in self.module.modules())
        left = [form for form in taken if form.meaning != REGARD or own or len(taken) == 1]
        found = stated or nearest
        return found or (next(iter(left), None) if name in STANDARD and self.only(name) else None)

    def only(self, name: str) -> bool:
        """Return whether the module has no other mask."""
        parameters = inspect.signature(called(self.module)).parameters
        return [word for word in parameters if is_mask(word)] == [name]

    def leak(self, name: str, form: Form, free: Tensor | None) -> float | None:
        """Return how much hidden words change outputs, over how much others do.

        None if the module refuses the form; ∞ if it has no effect.
        """
        allowed = tables(form)
        mask = form.write(allowed, self.adopted.heads, torch.float32)
        found = self.changes({name: mask})
        if found is None or free is None or found.shape != free.shape:
            return None
        others = ~torch.eye(N, dtype=torch.bool)
        seen, unseen = found[allowed & others], found[~allowed & others]
        known = free > 0
        if not bool((seen > 0).any()) or not bool((known & ~allowed & others).any()):
            return math.inf
        return float(unseen.max() / seen.max())


#: Masks that must have an effect, if a module has no other.
STANDARD = ("mask", "attention_mask", "attn_mask", "key_padding_mask", "valid_lens")
SILENT = ("head_mask", "output_mask", "cross_attn_head_mask", "layer_head_mask", "max_length")


def tables(form: Form) -> Tensor:
    """Return allowed pairs (b, n, m) to try a form with; blocks, since layers join paths."""
    allowed = torch.ones(BATCH, N, N, dtype=torch.bool)
    if form.meaning == LENGTHS:
        allowed[0, :, 3:] = False
    elif form.what == KEYS:
        allowed[0, :, [1, 3]] = False
    else:
        blocks = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
        blocks = blocks[:1].expand(BATCH, N) if form.what == PAIRS else blocks
        allowed = blocks[:, :, None] == blocks[:, None, :]
    return allowed


def layer_of(thing: Any, name: str = "") -> Layer:
    """Return the adapter of a module or of a class: regard's own, or an `Adopted` layer.

    Raises: as `adopt`.
    """
    adopted = adopt(thing, name=name)
    if REGARD not in {form.meaning for form in adopted.forms.values()}:
        return adopted
    own = Regard(lambda **settings: adopted.build(settings.get("dropout", 0.0)), adopted.name)
    own.width = adopted.width
    return own


def peer(name: str) -> Any:
    """Import an optional package. Raises: it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.replace("_", "-")
        raise RegardError(f"{name} is not installed ({error}): pip install {package}") from None


def tiny(kind: str, kernel: str) -> Layer:
    """Return the adapter of a small transformers model with random weights."""
    package = peer("transformers")
    settings = {"vocab_size": 20, "hidden_size": WIDTH, "num_attention_heads": HEADS,
                "num_hidden_layers": 2, "max_position_embeddings": max(LONG),
                "attn_implementation": kernel}  # fmt: skip

    def make(dropout: float = 0.0) -> nn.Module:
        if kind == "BertModel":
            own = {"intermediate_size": 16, "hidden_dropout_prob": 0.0,
                   "attention_probs_dropout_prob": dropout}  # fmt: skip
        else:
            own = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": dropout}
        config = getattr(package, kind.replace("Model", "Config"))(**settings, **own)
        module: nn.Module = getattr(package, kind)(config)
        return module

    return adopt(make, name=f"transformers.{kind}:{kernel}")


def of_x_transformers(kind: str, *, flash: bool = False) -> Layer:
    """Return the adapter of a layer or a stack of layers of x_transformers."""
    package, name = peer("x_transformers"), f"x_transformers.{kind}{':flash' if flash else ''}"
    stack: dict[str, Any] = {"dim": WIDTH, "depth": 2, "heads": HEADS}
    inner = {"dim_head": WIDTH // HEADS, "flash": flash}

    def make(dropout: float = 0.0) -> nn.Module:
        if kind == "Attention":
            module = package.Attention(WIDTH, heads=HEADS, dropout=dropout, **inner)
        else:
            own = {f"attn_{key}": value for key, value in {**inner, "dropout": dropout}.items()}
            module = getattr(package, kind)(**stack, **own)
        return module  # type: ignore[no-any-return]

    return adopt(make, name=name)


#: Functions that build the adapters of layers and models, by name.
LAYERS: dict[str, Callable[[], Layer]] = {
    "regard.MultiHeadAttention": lambda: of_class(MultiHeadAttention, "regard.MultiHeadAttention"),
    "torch.nn.MultiheadAttention": lambda: adopt(
        nn.MultiheadAttention, name="torch.nn.MultiheadAttention"
    ),
    **{f"transformers.{kind}:{kernel}": partial(tiny, kind, kernel)
       for kind in ("BertModel", "GPT2Model") for kernel in ("eager", "sdpa")},
    **{f"x_transformers.{kind}{':flash' if flash else ''}":
       partial(of_x_transformers, kind, flash=flash)
       for kind in ("Attention", "Encoder", "Decoder") for flash in (False, True)},
}  # fmt: skip
