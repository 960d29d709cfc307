"""Build a network from names and settings."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.trusted import must_be_trusted
from regard.interop.sentences import load_static
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.data.tokenizers import Tokenizer
from regard.lab.runs.config import PRETRAINED, Config, table_of, weights_of
from regard.lab.runs.encoder import Encoder
from regard.lab.runs.folder import Folder, TokenizerKind
from regard.lab.runs.room import shape_of
from regard.nn.layers.special_tokens import SpecialTokens
from regard.nn.models.classifiers import BERTClassifier, Classifier
from regard.training.interface import must_suit
from regard.training.loop import seeded
from regard.training.optimizer import OPTIMIZERS

if TYPE_CHECKING:
    from regard.lab.data.vectors import Vectors


BODY = "body."  # the name prefix of a wrapped network
HEAD = "to_labels."  # and of the layer that predicts labels


def pretrained(config: Config, vocabulary: Sequence[str]) -> "Vectors | None":
    """Load the pretrained word vectors named by the settings, for the words of a vocabulary."""
    name = str(getattr(config.network, "vectors", ""))
    if not name:
        return None
    from regard.lab.data.vectors import load_vectors

    place = str(getattr(config.data, "data_dir", ""))
    return load_vectors(name, vocabulary, data_dir=Path(place) if place else None)


def complete(folder: Path) -> Folder:
    """Return the folder of a run to start from. Raises: it is not complete."""
    donor = Folder(folder)
    if not donor.complete:
        raise RegardError(
            f"init={folder}: there is no completed run to start from; train it to its end first, "
            "or complete it by --end"
        )
    return donor


def prepare(config: Config, *own: Any) -> Any:
    """Build the task without reading its data.

    ``own``: the tokenizer and facts of a run. By default, use the tokenizer of the run or of the
    pretrained weights or table of vectors that it starts from.
    """
    task = config.unread_task
    if not own and (init := config.training.init):
        own = (complete(Path(init)).read_tokenizer(tokenizer_kind(config)),)
    elif not own and (name := weights_of(config.network)):
        own = (Encoder(name).tokenizer,)
    elif not own and (name := table_of(config.network)):
        own = (EncoderTokenizer(load_static(name).reading.tokenizer, name),)
    return type(task)(config.reads, *own) if own else task


def tokenizer_kind(config: Config) -> TokenizerKind:
    """Return the class that reads a run's ``tokenizer.json``."""
    own = getattr(config.data, "tokenizer", "") == PRETRAINED
    return EncoderTokenizer if own else Tokenizer


def begin(config: Config, task: Any) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network at the first step of a training, and facts about its initial weights.

    Raises: as `build_network`, `begin_from` and `Encoder.put`; too little free memory; an optimizer
    without parameters; a network whose outputs do not fit the task, or that sees the tokens that it
    must predict.
    """
    must_be_buildable(config)
    vectors = pretrained(config, task.tokenizer.vocabulary)
    needed = shape_of(config, lambda: build_network(config, **task.sizes, vectors=vectors))
    if needed is not None:
        needed.check()
    network = build_network(config, **task.sizes, vectors=vectors)
    OPTIMIZERS[config.training.optimizer].suits(network)
    must_suit(network, task.interface, task.sizes, longest_text(config))
    taken: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    if init := config.training.init:
        taken = begin_from(network, Path(init), config.model, task)
    elif (name := weights_of(config.network)) and isinstance(network, BERTClassifier):
        stored = Encoder(name).put(network)
        if stored["new"] and config.entry.frozen:
            raise RegardError(
                f"{config.model} trains no encoder, and weights={name} has no {stored['new'][0]}; "
                f"leave out the settings that need it, or train a bert"
            )
    return network, {"vectors": facts(vectors), "init": taken, "weights": stored}


def longest_text(config: Config) -> int | None:
    """Return the maximum tokens of a text that the network reads, None without a limit."""
    longest: int | None = getattr(config.network, "length", None)
    return None if longest is None else max(longest - config.entry.symbols, 1)


def begin_from(network: nn.Module, folder: Path, model: str, task: Any) -> dict[str, Any]:
    """Copy the weights of another run into a network where names match; return facts about it.

    If the network wraps another one (``body``), the weights are copied into that one; the layer
    that predicts labels is copied only if the labels are equal. If tasks add different symbols
    (sentinels) to the same tokens, the rows of the tokens and of the end symbol are copied. Raises:
    no completed run; a run of another ``model``; no matching name; different shapes.
    """
    donor = complete(folder)
    if (kind := Config.read(folder).model) != model:
        raise RegardError(f"init={folder} is a {kind}; a {model} can only start from a {model}")
    tensors = donor.read_weights()
    if list(task.labels) != donor.environment().get("data", {}).get("labels", []):
        tensors = {n: x for n, x in tensors.items() if not n.startswith(HEAD)}
    here = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    prefix = max(("", BODY), key=lambda p: sum(p + name in here for name in tensors))
    # In the network's order, so that errors do not depend on the order of the file.
    prefixed = {prefix + name: name for name in tensors}
    taken = {prefixed[name]: name for name in here if name in prefixed}
    if not taken:
        raise RegardError(
            f"init={folder}: no weight of that run matches this model; give its settings"
        )
    for there, name in taken.items():
        was, now = tuple(tensors[there].shape), tuple(here[name].shape)
        if was != now and was[1:] == now[1:] and now[0] == task.sizes["vocabulary"]:
            take_words(here[name], tensors[there], len(task.tokenizer), task)
            continue
        if was != now:
            raise RegardError(
                f"init={folder}: {there} has the shape {was} there and {now} here; use the "
                "settings of that run, or give none"
            )
        with torch.no_grad():
            here[name].copy_(tensors[there])
    return {
        "run": str(folder),
        "sha256": hashlib.sha256(donor.manifest.read_bytes()).hexdigest(),
        "taken": sum(tensors[name].numel() for name in taken),
        "left": sorted(tensors.keys() - taken.keys()),
        "new": sorted(here.keys() - set(taken.values())),
    }


def take_words(here: Tensor, there: Tensor, tokens: int, task: Any) -> None:
    """Copy the rows of common tokens and of the end symbol from one embedding to another."""
    end = tokens if len(there) == tokens + 1 else SpecialTokens.after(tokens).separator
    with torch.no_grad():
        here[:tokens].copy_(there[:tokens])
        if task.end is not None:
            here[task.end].copy_(there[end])


def facts(vectors: "Vectors | None") -> dict[str, int]:
    """Return the facts about a run's initial pretrained vectors."""
    if vectors is None:
        return {}
    return {"width": vectors.width, "found": vectors.found, "asked": vectors.asked}


def small(config: Config) -> Callable[[], nn.Module]:
    """Return a function that builds the network for a vocabulary of eight words."""
    settings = config.network.model_dump()
    # The width of pretrained vectors is not known yet: use any that is divisible by heads.
    width = 4 * settings.get("heads", 1) if settings.get("vectors") else settings.get("width")
    return partial(build_network, config, vocabulary=8, labels=2, width=width)


def must_be_buildable(config: Config) -> None:
    """Raise an error for a misspelt part or too little memory, before data are read."""
    if not config.entry.baseline and (needed := shape_of(config, small(config))) is not None:
        needed.check()


def build_once(config: Config) -> None:
    """Build the network for eight words, to report misspelt parts before training."""
    must_be_buildable(config)
    if not config.entry.baseline:
        OPTIMIZERS[config.training.optimizer].suits(small(config)())


def build_network(
    config: Config,
    vocabulary: int,
    labels: int,
    *,
    features: int = 0,
    special_tokens: SpecialTokens | None = None,
    vectors: "Vectors | None" = None,
    width: int | None = None,
) -> nn.Module:
    """Build a network with initial weights from the seed.

    `features`: the number of numbers of further columns. `special_tokens`: those of the tokenizer,
    if it has its own. `width`: width of the pretrained vectors used in training, which are no
    longer needed. Raises: a Python file that is not trusted, or has changed since the settings were
    read.
    """
    settings = config.network
    must_be_trusted(config.parts, Path("the run"))
    if width is not None:
        settings = settings.model_copy(update={"vectors": "", "width": width})
    with seeded(config.training.seed):
        network: nn.Module = config.entry.build(
            settings, vocabulary=vocabulary, labels=labels, vectors=vectors, features=features
        )
    if special_tokens is not None and isinstance(network, Classifier):
        network.special_tokens = special_tokens
    return network
