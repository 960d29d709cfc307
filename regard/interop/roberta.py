"""RoBERTa as Hugging Face stores it, read as a BERT. Liu et al. 2019.

Two things differ from BERT's layout: the heads have other names, and the table of positions begins
with rows that no word of a text has (those up to the number of the padding token).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.interop import bert
from regard.interop.bert import build, config_of, rows
from regard.models.settings import BERTSettings

__all__ = ["build", "config_of", "rows", "settings_of", "tidy"]

POSITIONS = "bert.embeddings.position_embeddings.weight"
#: Beginnings of names, theirs and BERT's.
NAMES = {
    "roberta.": "bert.",
    "lm_head.dense.": "cls.predictions.transform.dense.",
    "lm_head.layer_norm.": "cls.predictions.transform.LayerNorm.",
    "lm_head.bias": "cls.predictions.bias",
}


def unused(config: Mapping[str, Any]) -> int:
    """Return how many rows of the position table stand before that of a text's first word."""
    return int(config.get("pad_token_id", 1)) + 1


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> BERTSettings:
    """Return the settings of a config. Errors: what regard's BERT does not have, by name."""
    length = int(config["max_position_embeddings"]) - unused(config)
    return bert.settings_of({**config, "max_position_embeddings": length}, tensors)


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return their tensors under BERT's names, positions from that of the first word on."""
    found = bert.tidy(config, bert.renamed(tensors, NAMES))
    if POSITIONS in found:
        found[POSITIONS] = found[POSITIONS][unused(config) :]
    return found
