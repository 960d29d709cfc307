"""Load and save GPT-2, BERT, RoBERTa, DistilBERT and T5 in Hugging Face's layout.

loaded = load("openai-community/gpt2")           # or a folder
save(loaded.model, loaded.settings, "mine", tokenizer=loaded.tokenizer)
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.interop import bert, distilbert, folder, generation, gpt2, roberta, t5
from regard.interop.card import Card
from regard.interop.config_keys import Keys, honoured
from regard.interop.names import Row, give, take
from regard.interop.tokenizer_files import read_tokenizer, tokenizer_files
from regard.nn.models.bert import BERT
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import BERTSettings, GPTSettings, T5Settings
from regard.nn.models.t5 import T5
from regard.training.checkpoints import must_describe, weights


@dataclass(frozen=True)
class Layout:
    """The storage layout of a kind of model: keys, settings, config, tensor names and builder."""

    kind: str
    keys: Keys
    settings: type[Settings]
    settings_of: Callable[[Mapping[str, Any], Mapping[str, Tensor]], Any]
    config_of: Callable[[Any, int], dict[str, Any]]
    rows: Callable[[Any], list[Row]]
    tidy: Callable[[Mapping[str, Any], Mapping[str, Tensor]], dict[str, Tensor]]
    build: Callable[[Any, int], nn.Module]


def _layout(
    kind: str, settings: type[Settings], build: Callable[[Any, int], nn.Module], module: Any
) -> Layout:
    parts = (module.settings_of, module.config_of, module.rows, module.tidy)
    return Layout(kind, module.KEYS, settings, *parts, build)


def _like_bert(module: Any) -> Layout:
    """Return the layout of a model that is read as a BERT under other names."""
    return replace(_BERT, keys=module.KEYS, settings_of=module.settings_of, tidy=module.tidy)


_BERT = _layout("bert", BERTSettings, BERT, bert)
_ROBERTA = _like_bert(roberta)
_T5 = _layout("t5", T5Settings, T5, t5)
#: The layout of each model type.
#: The matrices that compute logits, in GPT-2 and in the kinds of BERT. T5 compares its own.
OUTPUTS = frozenset({"lm_head.weight", "lm_head.decoder.weight", "cls.predictions.decoder.weight",
                     "vocab_projector.weight"})  # fmt: skip
LAYOUTS: dict[str, Layout] = {
    "gpt2": _layout("gpt", GPTSettings, GPT, gpt2),
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _like_bert(distilbert),
    "t5": _T5,
    "mt5": replace(_T5, keys=t5.MT5_KEYS),
}


@dataclass(frozen=True)
class Loaded:
    """A model loaded from Hugging Face's layout, in evaluation mode.

    ``kind``: gpt, bert or t5. ``config``: with the defaults of its model type. ``generation``: the
    generation settings, from ``generation_config.json`` if there is one, else from the config.
    ``tokenizer``: a ``tokenizers.Tokenizer``, if the folder has one. ``drawn``: the names of head
    weights that the file lacks and that are initialised at random.
    """

    kind: str
    model: nn.Module
    settings: Settings
    config: dict[str, Any]
    generation: dict[str, Any]
    tokenizer: Any
    drawn: tuple[str, ...]


def load(source: Path | str, *, revision: str | None = None) -> Loaded:
    """Load GPT-2, BERT (RoBERTa, DistilBERT) or T5 (1.0, 1.1, mT5) from a folder or the hub.

    Reads ``config.json``, safetensors and the tokenizer's files; pickles are refused. The same
    tokens give the same logits and attentions, up to the rounding of float32.

    Raises: `RegardError`: a model of another kind; a key of its config or of its tokenizer's with
    a value that regard does not support; missing tensors or other shapes; those of
    `regard.interop.folder.read`.
    """
    stored = folder.read(source, revision=revision)
    config = complete(stored.config, stored.folder)
    layout, settings, vocabulary = described(stored.folder, config, stored.tensors)
    with whole_config(stored.folder):
        tidied = layout.tidy(config, stored.tensors)
    model = layout.build(settings, vocabulary)
    tensors = take(layout.rows(settings), tidied, str(stored.folder))
    if layout.kind == "bert" or getattr(settings, "tie", False):
        must_be_tied(stored.tensors, tensors["embedding.weight"], stored.folder)
    drawn = put(model, tensors, str(stored.folder))
    return Loaded(
        kind=layout.kind,
        model=model.eval(),
        settings=settings,
        config=config,
        generation=generation.read_generation(stored.folder, stored.config),
        tokenizer=read_tokenizer(stored.folder),
        drawn=drawn,
    )


def must_be_tied(tensors: Mapping[str, Tensor], words: Tensor, source: Path) -> None:
    """Raise an error if an output matrix is stored that differs from the word vectors."""
    for name in OUTPUTS & tensors.keys():
        if not torch.equal(tensors[name], words):
            raise RegardError(
                f"{source}: {name} differs from the word vectors, but the config ties both; for "
                "GPT-2 set tie_word_embeddings to false there, others have no output of their own"
            )


def complete(config: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """Return a config with all keys of its model type.

    Raises: an unsupported model type; as `config_keys.honoured`.
    """
    keys = layout_of(config, str(source)).keys
    return honoured(config, keys, source / folder.CONFIG, generation.KNOWN)


def described(
    source: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[Layout, Any, int]:
    """Return the layout, the settings and the vocabulary size of a `complete` config.

    Raises: a setting that regard does not have; larger sizes than those of the folder's
    safetensors.
    """
    layout = layout_of(config, str(source))
    with whole_config(source):
        settings = layout.settings_of(config, tensors)
        vocabulary = int(config["vocab_size"])
        if vocabulary < 1:
            raise ValueError(f"vocab_size is {vocabulary}")
    sizes = {**settings.model_dump(), "vocab_size": vocabulary}
    build = partial(layout.build, settings, vocabulary)
    must_describe(sizes, build, folder.stored_shapes(source), source / folder.CONFIG)
    return layout, settings, vocabulary


@contextmanager
def whole_config(source: Path) -> Iterator[None]:
    """Convert errors about missing keys and wrong types of a config into a one-line error."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise RegardError(f"{source / folder.CONFIG} is incomplete: {error!r}") from None


def layout_of(config: Mapping[str, Any], source: str) -> Layout:
    """Return the layout that a config names. Raises: an unsupported layout."""
    kind = str(config.get("model_type", ""))
    if kind not in LAYOUTS:
        raise RegardError(
            f"{source} has the unsupported model type {kind!r}; regard reads {', '.join(LAYOUTS)}. "
            'Others run in transformers with attn_implementation="regard"'
        )
    return LAYOUTS[kind]


def put(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> tuple[str, ...]:
    """Copy tensors into a model; return the names of the parameters without a tensor."""
    parameters = dict(model.named_parameters())
    for name, x in tensors.items():
        if parameters[name].shape != x.shape:
            raise RegardError(
                f"{source} does not fit its config: {name} has the shape {tuple(x.shape)}, but the "
                f"config gives {tuple(parameters[name].shape)}"
            )
        parameters[name].data.copy_(x)
    return tuple(name for name in parameters if name not in tensors)


def save(
    model: nn.Module,
    settings: Settings,
    place: Path | str,
    *,
    tokenizer: Any = None,
    roles: Mapping[str, str] | None = None,
    card: Card | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a GPT, BERT or T5 as a folder that ``from_pretrained`` reads.

    ``tokenizer`` is a ``tokenizers.Tokenizer``; ``roles`` names its "pad_token", "eos_token", …;
    ``config`` adds to the config (``eos_token_id``, …); ``card`` adds to the README.

    Raises: `RegardError`: a setting that the layout does not support; a folder that exists.
    """
    layout = layout_for(settings)
    vocabulary = int(model.embedding.weight.shape[0])  # type: ignore[union-attr, index]
    contents = {**layout.config_of(settings, vocabulary), **(config or {}), "dtype": "float32"}
    tensors = give(layout.rows(settings), weights(model))
    files = {"README.md": (card or Card()).text(contents["architectures"][0], settings).encode()}
    if tokenizer is not None:
        longest = int(getattr(settings, "length", 512))
        files |= tokenizer_files(tokenizer, length=longest, roles=dict(roles or {}))
    return folder.write(place, contents, tensors, files)


def layout_for(settings: Settings) -> Layout:
    """Return the layout of a model with these settings. Raises: no layout fits."""
    for layout in LAYOUTS.values():
        if isinstance(settings, layout.settings):
            return layout
    kinds = ", ".join(dict.fromkeys(layout.kind for layout in LAYOUTS.values()))
    raise RegardError(
        f"Hugging Face's layout has no model like this run's; supported are {kinds} and the "
        "transformer for translation; --to onnx exports every network"
    )
