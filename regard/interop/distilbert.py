"""Read Hugging Face's DistilBERT as a BERT without token types. Sanh et al. 2019."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.interop import activations, bert
from regard.interop.config_keys import Keys
from regard.nn.models.settings import BERTSettings

EPSILON = 1e-12  # of every norm
#: Keys of DistilBERT's config and of BERT's.
OF_BERT = {
    "vocab_size": "vocab_size",
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_position_embeddings": "max_position_embeddings",
}
#: The keys of the config, with transformers' defaults. The file has the position table, sinusoidal
#: or not.
KEYS = Keys(
    {**{name: bert.KEYS.defaults[key] for name, key in OF_BERT.items()}, "n_layers": 6},
    {"activation": [*activations.REGARD], "tie_word_embeddings": [True]},
    {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
    frozenset(
        "sinusoidal_pos_embds qa_dropout seq_classif_dropout is_decoder is_encoder_decoder "
        "add_cross_attention".split()
    ),
)
#: Parts of DistilBERT's names and of BERT's.
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
    """Return the settings of a config that has all `KEYS`."""
    of_bert = {name: config[key] for key, name in OF_BERT.items()}
    return bert.settings_of({**of_bert, "type_vocab_size": 0, "layer_norm_eps": EPSILON}, tensors)


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return DistilBERT's tensors under BERT's names."""
    return bert.tidy(config, bert.renamed(tensors, NAMES))
