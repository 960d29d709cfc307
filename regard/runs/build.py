"""Names and settings become a network."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.data.encoder_tokenizer import EncoderTokenizer
from regard.data.tokenizers import Tokenizer
from regard.errors import RegardError
from regard.interop.encoder import Encoder
from regard.layers.marks import Marks
from regard.models.tuned import Tuned, TunedBERT
from regard.runs.config import Config
from regard.runs.folder import Folder, TokenizerKind
from regard.runs.leak import must_not_look_ahead
from regard.runs.room import shape_of
from regard.tasks import TASKS
from regard.training.loop import seeded
from regard.training.optimizer import OPTIMIZERS
from regard.trusted import must_be_trusted

if TYPE_CHECKING:
    from regard.data.vectors import Vectors


BODY = "body."  # what a network calls the one that it wraps
HEAD = "to_labels."  # and what puts labels on what that makes of a text


def pretrained(config: Config, vocabulary: Sequence[str]) -> "Vectors | None":
    """The pretrained word vectors that the model's settings name, for the words of a vocabulary."""
    name = str(getattr(config.network, "vectors", ""))
    if not name:
        return None
    from regard.data.vectors import load_vectors

    place = str(getattr(config.data, "data_dir", ""))
    return load_vectors(name, vocabulary, data_dir=Path(place) if place else None)


def complete(folder: Path) -> Folder:
    """The folder of a run that another begins from. Errors: it is not complete."""
    found = Folder(folder)
    if not found.complete:
        raise RegardError(
            f"init={folder}: there is no complete run to begin from; train it to its end first, or "
            "end it by --end"
        )
    return found


def prepare(config: Config, *own: Any) -> Any:
    """The task, its data still unread: with what a run has of its ``own``, first its tokenizer,
    or with the tokens of what it begins from, a run or pretrained weights."""
    task = TASKS[config.task].prepare(config.reads)
    if not own and (init := config.training.init):
        own = (complete(Path(init)).read_tokenizer(tokenizer_kind(config)),)
    elif not own and (name := weights_of(config)):
        own = (Encoder(name).tokenizer,)
    return type(task)(config.reads, *own) if own else task


def weights_of(config: Config) -> str:
    """Return what ``weights=`` says of a model that begins with pretrained ones, else ""."""
    return str(getattr(config.network, "weights", ""))


def tokenizer_kind(config: Config) -> TokenizerKind:
    """Return how a run's ``tokenizer.json`` is read: as regard's own, or as it came."""
    return EncoderTokenizer if weights_of(config) else Tokenizer


def begin(config: Config, task: Any) -> tuple[nn.Module, dict[str, Any]]:
    """The network of a training at its first step, and in facts what it begins with.

    Errors: those of `build_network`, `begin_from` and `Encoder.put`; more memory than is free; an
    optimizer that finds nothing to do in it; a network that looks at what it is to foretell.
    """
    must_be_buildable(config)
    vectors = pretrained(config, task.tokenizer.vocabulary)
    needed = shape_of(config, lambda: build_network(config, **task.sizes, vectors=vectors))
    if needed is not None:
        needed.check()
    network = build_network(config, **task.sizes, vectors=vectors)
    OPTIMIZERS[config.training.optimizer].suits(network)
    longest = getattr(config.network, "length", None)
    must_not_look_ahead(network, TASKS[config.task].writes, task.sizes["vocabulary"], longest)
    taken: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    if init := config.training.init:
        taken = begin_from(network, Path(init), config.model, task)
    elif (name := weights_of(config)) and isinstance(network, TunedBERT):
        stored = Encoder(name).put(network)
        if stored["new"] and config.entry.frozen:
            raise RegardError(
                f"{config.model} trains no encoder, and weights={name} has no {stored['new'][0]}: "
                f"leave the settings that ask for it out, or train a bert"
            )
    return network, {"vectors": facts(vectors), "init": taken, "weights": stored}


def begin_from(network: nn.Module, folder: Path, model: str, task: Any) -> dict[str, Any]:
    """Put the weights of another run into a network where the names agree; what was done, in facts.

    A network that wraps another (``body``, as those that put labels on texts) takes the other's;
    what puts labels on texts is taken for the same labels alone. Of a task with other symbols
    behind the same tokens (sentinels) the rows of the tokens are taken, and of the symbol that
    ends a text. Errors: no complete run; one of another ``model``; nothing that agrees; a weight of
    another shape, with both shapes.
    """
    labels = getattr(task, "labels", ())
    donor = complete(folder)
    if (kind := Config.read(folder).model) != model:
        raise RegardError(f"init={folder} is a {kind}; a {model} begins from a {model}")
    tensors = donor.read_weights()
    if list(labels) != donor.environment().get("data", {}).get("labels", []):
        tensors = {n: x for n, x in tensors.items() if not n.startswith(HEAD)}
    here = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    prefix = max(("", BODY), key=lambda p: sum(p + name in here for name in tensors))
    # In the network's own order: which weight a refusal names does not depend on the file's.
    prefixed = {prefix + name: name for name in tensors}
    taken = {prefixed[name]: name for name in here if name in prefixed}
    if not taken:
        raise RegardError(f"init={folder}: no weight of that run has a place in this model")
    for there, name in taken.items():
        was, now = tuple(tensors[there].shape), tuple(here[name].shape)
        if was != now and was[1:] == now[1:] and now[0] == task.sizes["vocabulary"]:
            take_words(here[name], tensors[there], len(task.tokenizer), task)
            continue
        if was != now:
            raise RegardError(
                f"init={folder}: {there} is {was} there and {now} here; give the settings of that "
                "run, or none"
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
    """Copy the rows of the tokens that two tables share, and of what ends a text in each."""
    end = tokens if len(there) == tokens + 1 else Marks.behind(tokens).separator
    with torch.no_grad():
        here[:tokens].copy_(there[:tokens])
        if hasattr(task, "end"):
            here[task.end].copy_(there[end])


def facts(vectors: "Vectors | None") -> dict[str, int]:
    """What a run remembers of the pretrained vectors that it began with."""
    if vectors is None:
        return {}
    return {"width": vectors.width, "found": vectors.found, "asked": vectors.asked}


def small(config: Config) -> Callable[[], nn.Module]:
    """Return what builds the network for eight words: its parts have their names and sizes."""
    given = config.network.model_dump()
    # The width of pretrained vectors is known when they are read: any that heads divide.
    width = 4 * given.get("heads", 1) if given.get("vectors") else given["width"]
    return partial(build_network, config, vocabulary=8, labels=2, width=width)


def must_be_buildable(config: Config) -> None:
    """Errors, before any data are read: a part that is misspelt; more memory than is free."""
    if not config.entry.baseline and (needed := shape_of(config, small(config))) is not None:
        needed.check()


def build_once(config: Config) -> None:
    """Build the network for eight words, so that a misspelt part is named before any training."""
    must_be_buildable(config)
    if not config.entry.baseline:
        OPTIMIZERS[config.training.optimizer].suits(small(config)())


def build_network(
    config: Config,
    vocabulary: int,
    labels: int,
    *,
    marks: Marks | None = None,
    vectors: "Vectors | None" = None,
    width: int | None = None,
) -> nn.Module:
    """A network with its first weights, which the seed decides.

    `marks`: the symbols about a text, where the tokenizer has its own. `width`: of pretrained
    vectors that were used in training and are not needed any more. Errors: a Python file that is
    not trusted, or no longer is what it was when the settings were read.
    """
    settings = config.network
    must_be_trusted(config.named, Path("the run"))
    if width is not None:
        settings = settings.model_copy(update={"vectors": "", "width": width})
    with seeded(config.training.seed):
        network: nn.Module = config.entry.build(
            settings, vocabulary=vocabulary, labels=labels, vectors=vectors
        )
    if marks is not None and isinstance(network, Tuned):
        network.marks = marks
    return network
