"""Names and settings become a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from regard.runs.config import Config
from regard.training.loop import seeded

if TYPE_CHECKING:
    from regard.data.vectors import Vectors


def pretrained(config: Config, vocabulary: Sequence[str]) -> "Vectors | None":
    """The pretrained word vectors that the model's settings name, for the words of a vocabulary."""
    name = str(getattr(config.network, "vectors", ""))
    if not name:
        return None
    from regard.data.vectors import load_vectors

    place = str(getattr(config.data, "data_dir", ""))
    return load_vectors(name, vocabulary, data_dir=Path(place) if place else None)


def facts(vectors: "Vectors | None") -> dict[str, int]:
    """What a run remembers of the pretrained vectors that it began with."""
    if vectors is None:
        return {}
    return {"width": vectors.width, "found": vectors.found, "asked": vectors.asked}


def build_once(config: Config) -> None:
    """Build the network for eight words, so that a misspelt part is named before any training."""
    if config.entry.kind == "network":
        given = config.network.model_dump()
        # The width of pretrained vectors is known when they are read: any that heads divide.
        width = 4 * given.get("heads", 1) if given.get("vectors") else given["width"]
        build_network(config, vocabulary=8, labels=2, width=width)


def build_network(
    config: Config,
    vocabulary: int,
    labels: int,
    *,
    vectors: "Vectors | None" = None,
    width: int | None = None,
) -> nn.Module:
    """A network with its first weights, which the seed decides.

    `width`: of pretrained vectors that were used in training and are not needed any more.
    """
    settings = config.network
    if width is not None:
        settings = settings.model_copy(update={"vectors": "", "width": width})
    with seeded(config.training.seed):
        network: nn.Module = config.entry.build(
            settings, vocabulary=vocabulary, labels=labels, vectors=vectors
        )
    return network
