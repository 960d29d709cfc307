"""Read Hugging Face's DistilBERT as a BERT without token types. Sanh et al. 2019."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.interop import bert
from regard.interop.bert import build, config_of, rows
from regard.models.settings import BERTSettings

__all__ = ["build", "config_of", "rows", "settings_of", "tidy"]

#: Keys of their config and those of BERT's.
KEYS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
#: Parts of names, theirs and BERT's.
NAMES = {
    "distilbert.": "bert.",
    "transformer.layer.": "encoder.layer.",
    ".attention.q_lin.": ".attention.self.query.",
    ".attention.k_lin.": ".attention.self.key.",
    ".attention.v_lin.": ".attention.self.value.",
    ".attention.out_lin.": ".attention.output.dense.",
    ".sa_layer_norm.": ".attention.output.LayerNorm.",
    ".ffn.lin1.": ".intermediate.dense.",
    ".ffn.lin2.": ".output.dense.",
    ".output_layer_norm.": ".output.LayerNorm.",
    "vocab_transform.": "cls.predictions.transform.dense.",
    "vocab_layer_norm.": "cls.predictions.transform.LayerNorm.",
    "vocab_projector.bias": "cls.predictions.bias",
}


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> BERTSettings:
    """Return the settings of a config. Errors: a feature that regard's BERT does not have."""
    renamed = {KEYS.get(key, key): value for key, value in config.items()}
    return bert.settings_of({**renamed, "type_vocab_size": 0}, tensors)


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return their tensors under BERT's names."""
    return bert.tidy(config, bert.renamed(tensors, NAMES))
