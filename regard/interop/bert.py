"""Convert between Hugging Face's BERT and `regard.nn.models.bert`: config and tensor names."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.core.errors import RegardError
from regard.core.settings import build as build_settings
from regard.interop import activations
from regard.interop.config_keys import Keys
from regard.interop.names import Row, linear
from regard.interop.refusals import must_be
from regard.nn.models.settings import BERTSettings

PREFIX = "bert."
HEADS = ("cls.",)
#: TensorFlow's names of a norm's vectors, which some files on the hub still have.
OLD = {".gamma": ".weight", ".beta": ".bias"}


#: The keys of the config, with transformers' defaults.
KEYS = Keys(
    {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    },
    {
        "hidden_act": [*activations.REGARD],
        "is_decoder": [False],
        "add_cross_attention": [False],
        "is_encoder_decoder": [False],
        "tie_word_embeddings": [True],
    },
)


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> BERTSettings:
    """Return the settings of a config that has all `KEYS`."""
    settings = {
        "width": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "feedforward": config["intermediate_size"],
        "activation": activations.REGARD[config["hidden_act"]],
        "dropout": config["hidden_dropout_prob"],
        "attention_dropout": config["attention_probs_dropout_prob"],
        "length": config["max_position_embeddings"],
        "types": config["type_vocab_size"],
        "epsilon": config["layer_norm_eps"],
    }
    return build_settings(BERTSettings, settings)


def config_of(settings: BERTSettings, vocabulary: int) -> dict[str, Any]:
    """Return the config of settings. Raises: a setting that BERT does not support."""
    must_be(
        settings,
        "BERT",
        {
            "norm": ["post"],
            "position": ["learned"],
            "score": ["scaled-dot"],
            "compress": ["none"],
        },
    )
    if not settings.types:
        raise RegardError("BERT does not support types=0; train with types=1 or more")
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.feedforward,
        "hidden_act": activations.exported(settings.activation, "BERT"),
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.attention_dropout,
        "max_position_embeddings": settings.length,
        "type_vocab_size": settings.types,
        "layer_norm_eps": settings.epsilon,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }


def rows(settings: BERTSettings) -> list[Row]:
    """Return the table of tensor names. Heads are optional, since files may lack them."""
    tables = f"{PREFIX}embeddings"
    table = [
        Row("embedding.weight", (f"{tables}.word_embeddings.weight",)),
        Row("positions.table", (f"{tables}.position_embeddings.weight",)),
        *linear("embedding_norm", f"{tables}.LayerNorm"),
    ]
    if settings.types:
        table.append(Row("types.weight", (f"{tables}.token_type_embeddings.weight",)))
    for i in range(settings.layers):
        prefix, stored = f"blocks.{i}", f"{PREFIX}encoder.layer.{i}"
        inner = [f"{stored}.attention.self.{part}" for part in ("query", "key", "value")]
        table += linear(f"{prefix}.attention.work.project", *inner)
        table += linear(f"{prefix}.attention.work.output", f"{stored}.attention.output.dense")
        table += linear(f"{prefix}.attention.norm", f"{stored}.attention.output.LayerNorm")
        table += linear(f"{prefix}.feedforward.work.widen", f"{stored}.intermediate.dense")
        table += linear(f"{prefix}.feedforward.work.narrow", f"{stored}.output.dense")
        table += linear(f"{prefix}.feedforward.norm", f"{stored}.output.LayerNorm")
    heads = [
        *linear("head", "cls.predictions.transform.dense"),
        *linear("head_norm", "cls.predictions.transform.LayerNorm"),
        Row("head_bias", ("cls.predictions.bias",)),
        *linear("pool", f"{PREFIX}pooler.dense"),
        *linear("follows", "cls.seq_relationship"),
    ]
    return table + [Row(row.name, row.stored, optional=True) for row in heads]


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's tensors under the names of the model with heads."""
    whole = any(name.startswith(PREFIX) for name in tensors)
    tidied = {}
    for name, x in tensors.items():
        for old, new in OLD.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        tidied[name if whole or name.startswith(HEADS) else PREFIX + name] = x
    return tidied


def renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return tensors with these parts of their names replaced, one after the other.

    >>> import torch
    >>> list(renamed({"roberta.pooler.bias": torch.zeros(1)}, {"roberta.": "bert."}))
    ['bert.pooler.bias']
    """
    result = {}
    for name, x in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        result[name] = x
    return result
