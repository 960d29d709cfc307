"""Convert between Hugging Face's T5 and `regard.nn.models.t5`: config and tensor names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import RegardError
from regard.core.settings import build as build_settings
from regard.interop import activations
from regard.interop.config_keys import Keys
from regard.interop.names import Row, linear, stacks
from regard.interop.refusals import must_be
from regard.nn.layers.feedforward import GATED
from regard.nn.models.settings import T5Settings

HEAD, WORDS = "lm_head.weight", "shared.weight"
#: An unused bias in early files: cross-attention has no distances.
UNUSED = "EncDecAttention.relative_attention_bias.weight"


#: The keys of T5's config, with transformers' defaults.
KEYS = Keys(
    {
        "vocab_size": 32128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_decoder_layers": None,
        "num_heads": 8,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu",
        "dense_act_fn": None,
        "is_gated_act": None,
        "tie_word_embeddings": None,
        "scale_decoder_outputs": None,
    },
    {
        "is_encoder_decoder": [True],
        "feed_forward_proj": [gate + name for gate in ("", GATED) for name in activations.REGARD],
        "dense_act_fn": [*activations.REGARD],
        "is_gated_act": [False, True],
        "tie_word_embeddings": [None, False, True],
        "scale_decoder_outputs": [False, True],
    },
    {
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "head_dim": "d_kv",
    },
    frozenset(["is_decoder", "n_positions"]),  # not read
)
#: The keys of mT5's config.
MT5_KEYS = replace(
    KEYS,
    defaults={
        **KEYS.defaults,
        "vocab_size": 250112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
    },
)


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> T5Settings:
    """Return the settings of a config that has all `KEYS`.

    The config determines whether states are divided by √width; if not, the output has its own
    matrix.
    """
    layers = config["num_layers"]
    settings = {
        "width": config["d_model"],
        "layers": layers,
        "decoder_layers": layers if (own := config["num_decoder_layers"]) is None else own,
        "heads": config["num_heads"],
        "head_width": config["d_kv"],
        "feedforward": config["d_ff"],
        "activation": activation(config),
        "score": "dot",
        "buckets": config["relative_attention_num_buckets"],
        "farthest": config["relative_attention_max_distance"],
        "dropout": config["dropout_rate"],
        "attention_dropout": config["dropout_rate"],
        "tie": tied(config, tensors),
        "epsilon": config["layer_norm_epsilon"],
    }
    return build_settings(T5Settings, settings)


def activation(config: Mapping[str, Any]) -> str:
    """Return regard's name of the activation.

    ``dense_act_fn`` and ``is_gated_act`` take precedence over ``feed_forward_proj``, whose
    "gated-gelu" means the approximation by tanh.
    """
    projected = config["feed_forward_proj"]
    name, gated = config.get("dense_act_fn"), config.get("is_gated_act")
    if name is None:
        name = "gelu_new" if projected == "gated-gelu" else projected.removeprefix(GATED)
    gated = projected.startswith(GATED) if gated is None else gated
    return (GATED if gated else "") + activations.REGARD[name]


def scaled(config: Mapping[str, Any]) -> bool:
    """Return whether states are divided by √width before the output: never in mT5.

    In configs without ``scale_decoder_outputs``, ``tie_word_embeddings`` decides.
    """
    if config.get("model_type") == "mt5":
        return False
    divides = config.get("scale_decoder_outputs")
    return bool(config.get("tie_word_embeddings") is not False if divides is None else divides)


def tied(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    """Return whether input and output share their vectors, with states divided by √width."""
    words = tensors.get(WORDS)
    output = tensors.get(HEAD, words)
    same = output is words or (
        words is not None and output is not None and torch.equal(words, output)
    )
    return scaled(config) and same


def config_of(settings: T5Settings, vocabulary: int) -> dict[str, Any]:
    """Return the config of settings. Raises: a setting that T5 does not support."""
    must_be(
        settings,
        "T5",
        {
            "position": ["t5-bias"],  # which excludes compress
            "score": ["dot", "scaled-dot"],
            "residual": ["sum"],
        },
    )
    name = settings.activation
    if name == "gated-gelu":
        raise RegardError(
            "T5 does not support activation=gated-gelu; train with activation=gated-gelu-tanh, "
            "which T5 calls gated-gelu"
        )
    if name == "gated-gelu-tanh":
        projected = "gated-gelu"
    else:
        gate = GATED if name.startswith(GATED) else ""
        projected = gate + activations.exported(name.removeprefix(GATED), "T5")
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": vocabulary,
        "d_model": settings.width,
        "d_kv": settings.each_head,
        "d_ff": settings.feedforward,
        "num_layers": settings.layers,
        "num_decoder_layers": settings.decoder_layers or settings.layers,
        "num_heads": settings.heads,
        "relative_attention_num_buckets": settings.buckets,
        "relative_attention_max_distance": settings.farthest,
        "dropout_rate": settings.dropout,
        "layer_norm_epsilon": settings.epsilon,
        "feed_forward_proj": projected,
        "tie_word_embeddings": settings.tie,
        "scale_decoder_outputs": settings.tie,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    }


def rows(settings: T5Settings) -> list[Row]:
    """Return the table of tensor names; T5's query weights include the scale of scores."""
    table = [Row("embedding.weight", (WORDS,))]
    gated = settings.activation.startswith(GATED)
    scale = settings.each_head**-0.5 if settings.score == "scaled-dot" else 1.0
    for stack, count in stacks(settings):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        name = f"{stack}.0.attention.work.attention.score.bias"
        table.append(Row(name, (bias,), turned=True))
        table.append(Row(f"{stack}_norm.weight", (f"{stack}.final_layer_norm.weight",)))
        for i in range(count):
            prefix, stored = f"{stack}.{i}", f"{stack}.block.{i}.layer"
            table += block(prefix, stored, gated, stack == "decoder", scale)
    if not settings.tie:
        table.append(Row("output.weight", (HEAD,)))
    return table


def block(prefix: str, stored: str, gated: bool, remembers: bool, scale: float) -> list[Row]:
    """Return the rows of a block: attention, cross-attention in a decoder, feed-forward."""
    table, parts = [], [("attention", "SelfAttention")]
    if remembers:
        parts.append(("memory_attention", "EncDecAttention"))
    for i, (part, name) in enumerate(parts):
        inner = tuple(f"{stored}.{i}.{name}.{letter}.weight" for letter in "qkv")
        table.append(Row(f"{prefix}.{part}.work.project.weight", inner, factors=(scale, 1.0, 1.0)))
        table += linear(f"{prefix}.{part}.work.output", f"{stored}.{i}.{name}.o", bias=False)
        table += linear(f"{prefix}.{part}.norm", f"{stored}.{i}.layer_norm", bias=False)
    last = f"{stored}.{len(parts)}"
    widen = [("widen", "wi_0"), ("gate", "wi_1")] if gated else [("widen", "wi")]
    for name, suffix in [*widen, ("narrow", "wo")]:
        own, other = f"{prefix}.feedforward.work.{name}", f"{last}.DenseReluDense.{suffix}"
        table += linear(own, other, bias=False)
    return table + linear(f"{prefix}.feedforward.norm", f"{last}.layer_norm", bias=False)


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's tensors, with embeddings and output under the names in `rows`.

    An untied output is divided by √width if its states are. `UNUSED` is left out.
    """
    tidied = {name: x for name, x in tensors.items() if not name.endswith(UNUSED)}
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        if WORDS not in tidied and name in tidied:
            tidied[WORDS] = tidied[name]
    if HEAD not in tidied:
        tidied[HEAD] = tidied.get(WORDS, torch.empty(0))
    if scaled(config) and not tied(config, tensors):
        tidied[HEAD] = tidied[HEAD] * int(config["d_model"]) ** -0.5
    return tidied
