"""T5 as Hugging Face stores it: its config and names beside those of `regard.models.t5`."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.interop import activations
from regard.interop.names import Row, linear
from regard.interop.refusals import must_be, same_heads
from regard.layers.feedforward import GATED
from regard.models.settings import T5Settings
from regard.models.t5 import T5
from regard.settings import build as build_settings

HEAD, WORDS = "lm_head.weight", "shared.weight"
#: "gated-gelu" is T5 1.1's, and means the approximation by tanh.
SPECIAL = {"gated-gelu": "gated-gelu-tanh"}
#: What of early files no model reads: the decoder knows no distances in the other text.
UNUSED = "EncDecAttention.relative_attention_bias.weight"


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> T5Settings:
    """The settings of a config. Errors: what regard's T5 does not have, by name.

    Whether a file's states are divided by √width is what its config says, or used to say by
    ``tie_word_embeddings``; if they are not, the output has a matrix of its own.
    """
    width, layers = int(config["d_model"]), int(config["num_layers"])
    found = {
        "width": width,
        "layers": layers,
        "decoder_layers": config.get("num_decoder_layers") or layers,
        "heads": config["num_heads"],
        "head_width": config["d_kv"],
        "feedforward": config["d_ff"],
        "activation": activation(config.get("feed_forward_proj", "relu")),
        "score": "dot",
        "buckets": config.get("relative_attention_num_buckets", 32),
        "farthest": config.get("relative_attention_max_distance", 128),
        "dropout": config.get("dropout_rate", 0.1),
        "attention_dropout": config.get("dropout_rate", 0.1),
        "tie": tied(config, tensors),
        "epsilon": config.get("layer_norm_epsilon", 1e-6),
    }
    return build_settings(T5Settings, found)


def activation(name: str) -> str:
    """Our name of T5's ``feed_forward_proj``."""
    if name in SPECIAL:
        return SPECIAL[name]
    gate = GATED if name.startswith(GATED) else ""
    return gate + activations.ours(name.removeprefix(GATED), "this T5")


def scaled(config: Mapping[str, Any]) -> bool:
    """Whether states are divided by √width before the output."""
    said = config.get("scale_decoder_outputs")
    return bool(config.get("tie_word_embeddings") is not False if said is None else said)


def tied(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    """Whether words are read and written by the same vectors, divided in between."""
    words = tensors.get(WORDS)
    other = tensors.get(HEAD, words)
    same = other is words or (words is not None and other is not None and torch.equal(words, other))
    return scaled(config) and same


def config_of(settings: T5Settings, vocabulary: int) -> dict[str, Any]:
    """The config of settings. Errors: what T5 has no place for, by the setting to change."""
    must_be(
        settings,
        "T5",
        {
            "position": ["t5-bias"],
            "score": ["dot", "scaled-dot"],
            "attention": ["multi-head"],
            "normalize": ["softmax"],
            "pattern": ["none"],  # compress goes with no position=t5-bias
        },
    )
    same_heads(settings, "T5")
    name = settings.activation
    if name == "gated-gelu":
        raise RegardError(
            "T5 has no place for activation=gated-gelu, by which it means gated-gelu-tanh: train "
            "with that"
        )
    if name in SPECIAL.values():
        projected = "gated-gelu"
    else:
        gate = GATED if name.startswith(GATED) else ""
        projected = gate + activations.theirs(name.removeprefix(GATED), "T5")
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
    """What stands where; T5 has its scores unscaled, so that its queries hold a scale of ours."""
    found = [Row("embedding.weight", (WORDS,))]
    gated = settings.activation.startswith(GATED)
    scale = settings.each_head**-0.5 if settings.score == "scaled-dot" else 1.0
    for stack, count in (
        ("encoder", settings.layers),
        ("decoder", settings.decoder_layers or settings.layers),
    ):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ours = f"{stack}.0.attention.work.attention.score.bias"
        found.append(Row(ours, (bias,), turned=True))
        found.append(Row(f"{stack}_norm.weight", (f"{stack}.final_layer_norm.weight",)))
        for i in range(count):
            ours, theirs = f"{stack}.{i}", f"{stack}.block.{i}.layer"
            found += block(ours, theirs, gated, stack == "decoder", scale)
    if not settings.tie:
        found.append(Row("output.weight", (HEAD,)))
    return found


def block(ours: str, theirs: str, gated: bool, remembers: bool, scale: float) -> list[Row]:
    """One block: attention, in a decoder attention to the memory, feed-forward."""
    found, parts = [], [("attention", "SelfAttention")]
    if remembers:
        parts.append(("memory_attention", "EncDecAttention"))
    for i, (part, name) in enumerate(parts):
        inner = tuple(f"{theirs}.{i}.{name}.{letter}.weight" for letter in "qkv")
        found.append(Row(f"{ours}.{part}.work.project.weight", inner, factors=(scale, 1.0, 1.0)))
        found += linear(f"{ours}.{part}.work.output", f"{theirs}.{i}.{name}.o", bias=False)
        found += linear(f"{ours}.{part}.norm", f"{theirs}.{i}.layer_norm", bias=False)
    last = f"{theirs}.{len(parts)}"
    widen = [("widen", "wi_0"), ("gate", "wi_1")] if gated else [("widen", "wi")]
    for name, there in [*widen, ("narrow", "wo")]:
        one, two = f"{ours}.feedforward.work.{name}", f"{last}.DenseReluDense.{there}"
        found += linear(one, two, bias=False)
    return found + linear(f"{ours}.feedforward.norm", f"{last}.layer_norm", bias=False)


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, the words' vectors and the output's under the names that `rows` knows.

    An output of its own whose states are divided is divided itself. A bias by distance between the
    two texts, which early files hold, was never used.
    """
    found = {name: x for name, x in tensors.items() if not name.endswith(UNUSED)}
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        if WORDS not in found and name in found:
            found[WORDS] = found[name]
    if HEAD not in found:
        found[HEAD] = found.get(WORDS, torch.empty(0))
    if scaled(config) and not tied(config, tensors):
        found[HEAD] = found[HEAD] * int(config["d_model"]) ** -0.5
    return found


def build(settings: T5Settings, vocabulary: int) -> T5:
    """The model, with random weights."""
    return T5(settings, vocabulary)
