"""Read Hugging Face's RoBERTa as a BERT. Liu et al. 2019.

Two things differ from BERT's layout: the heads have other names, and the position table begins
with unused rows (up to the padding token's number).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.interop import bert
from regard.interop.config_keys import Keys
from regard.nn.models.settings import BERTSettings

#: The keys of the config: BERT's, and the padding, after which positions begin. RoBERTa's head
#: always has GELU, regard's the activation of the blocks.
KEYS = Keys(
    {**bert.KEYS.defaults, "vocab_size": 50265, "pad_token_id": 1},
    {**bert.KEYS.allowed, "hidden_act": ["gelu", "gelu_python"]},
)
POSITIONS = "bert.embeddings.position_embeddings.weight"
#: Prefixes of RoBERTa's names and of BERT's.
NAMES = {
    "roberta.": "bert.",
    "lm_head.dense.": "cls.predictions.transform.dense.",
    "lm_head.layer_norm.": "cls.predictions.transform.LayerNorm.",
    "lm_head.bias": "cls.predictions.bias",
}


def unused(config: Mapping[str, Any]) -> int:
    """Return the number of unused rows at the beginning of the position table."""
    return int(config["pad_token_id"]) + 1


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> BERTSettings:
    """Return the settings of a config that has all `KEYS`."""
    length = int(config["max_position_embeddings"]) - unused(config)
    return bert.settings_of({**config, "max_position_embeddings": length}, tensors)


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return their tensors under BERT's names, without the unused positions."""
    tidied = bert.tidy(config, bert.renamed(tensors, NAMES))
    if POSITIONS in tidied:
        tidied[POSITIONS] = tidied[POSITIONS][unused(config) :]
    return tidied
