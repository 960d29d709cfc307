"""Export a trained Transformer for CTranslate2.

The weights are written unchanged into CTranslate2's own specification: pre- or post-norm, any
position table, the same vocabulary. This needs CTranslate2, but not transformers.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import sinusoidal
from regard.core.errors import RegardError, importing
from regard.interop.folder import CONFIG, as_json, must_be_new, write_files
from regard.interop.refusals import must_be
from regard.interop.tokenizer_files import OwnTokenizer
from regard.nn.layers.feedforward import GATED, FeedForward
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock, Sublayer
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer

#: CTranslate2's names of the activations in `regard.nn.layers.feedforward.ACTIVATIONS`.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
#: The epsilon of torch's layer norm.
EPSILON = 1e-5
#: The logit of the padding, so that it is never generated.
NEVER = -1e9
#: Positions that CTranslate2 supports: a table added to the embeddings.
POSITIONS = ("sinusoidal", "learned", "none")


def save_ctranslate2(
    model: Transformer,
    settings: TransformerSettings,
    folder: Path | str,
    tokenizer: OwnTokenizer | Sequence[str],
    *,
    quantization: str = "float32",
) -> list[str]:
    """Write a folder for ``ctranslate2.Translator``; return the tokens by id, the end last.

    ``tokenizer`` (or a list) has the tokens of all ids but the last, which is the end.
    ``quantization``: float32, or int8, int16, bfloat16, … as CTranslate2 names them. Translate the
    tokens of a text without an end: ``translator.translate_batch([tokenizer.tokens(ids)])``.

    With a length penalty of 0 both beam searches give the same translations, up to rounding. The
    padding symbol starts a translation and is never generated.

    Raises: `RegardError` for settings that CTranslate2 does not support; a folder that exists.
    """
    spec = specification(model, settings)
    tokens = names(tokenizer)
    if len(tokens) != model.target.weight.shape[0]:
        raise RegardError(
            f"the model has {model.target.weight.shape[0]} words, but the tokenizer with the end "
            f"has {len(tokens)}; use the tokenizer that the model was trained with"
        )
    must_be_new(place := Path(folder))
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token, spec.config.eos_token = tokens[1], tokens[-1]
    spec.config.bos_token = spec.config.decoder_start_token = tokens[0]
    spec.config.layer_norm_epsilon = EPSILON
    spec.validate()
    spec.optimize(quantization=quantization)
    with tempfile.TemporaryDirectory() as aside:
        spec.save(aside)
        files = {path.name: path.read_bytes() for path in Path(aside).iterdir()}
    if not isinstance(tokenizer, Sequence):
        files["tokenizer.json"] = tokenizer.to_bytes()
    files[CONFIG] = as_json(json.loads(files[CONFIG]))
    write_files(place, files)
    return tokens


def names(tokenizer: OwnTokenizer | Sequence[str]) -> list[str]:
    """Return a name for every token, then a unique one for the end.

    >>> names(["[PAD]", "[UNK]", "a", "</s>"])
    ['[PAD]', '[UNK]', 'a', '</s>', '<</s>>']
    """
    words = list(tokenizer if isinstance(tokenizer, Sequence) else tokenizer.vocabulary)
    end = "</s>"
    while end in words:
        end = f"<{end}>"
    return [*words, end]


def specification(model: Transformer, settings: TransformerSettings) -> Any:
    """Return CTranslate2's specification with the model's weights, without its vocabulary."""
    must_be(
        settings,
        "CTranslate2",
        {
            "score": ["scaled-dot"],
            "residual": ["sum"],
            "compress": ["none"],
            "position": POSITIONS,
            "activation": [*ACTIVATIONS, *(GATED + name for name in ACTIVATIONS)],
        },
    )
    with importing("CTranslate2 is not installed", "export"):
        from ctranslate2.specs import common_spec, transformer_spec
    base = settings.activation.removeprefix(GATED)
    spec = transformer_spec.TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)),
        settings.heads,
        pre_norm=settings.norm == "pre",
        activation=common_spec.Activation[ACTIVATIONS[base]],
        ffn_glu=base != settings.activation,
    )
    for side, words, blocks, norm in (
        (spec.encoder, model.source, model.encoder, model.encoder_norm),
        (spec.decoder, model.target, model.decoder, model.decoder_norm),
    ):
        table = side.embeddings[0] if side is spec.encoder else side.embeddings
        table.weight = plain(words.weight)
        side.scale_embeddings = model.scale
        side.position_encodings.encodings = positions(model, settings)
        if settings.norm == "pre":
            put_norm(side.layer_norm, norm)
        for layer, block in zip(side.layer, blocks, strict=True):
            put_block(layer, cast(EncoderBlock | DecoderBlock, block))
    output = model.target if model.output is None else model.output
    bias = torch.zeros(len(output.weight)) if model.output is None else model.output.bias.clone()
    bias = plain(bias)
    bias[0] = NEVER
    spec.decoder.projection.weight, spec.decoder.projection.bias = plain(output.weight), bias
    return spec


def positions(model: Transformer, settings: TransformerSettings) -> Tensor:
    """Return the position table added to the embeddings, as long as the longest translation."""
    if settings.position == "learned":
        return plain(model.positions.table)  # type: ignore[union-attr, arg-type]
    count = 4 * settings.length
    if settings.position == "none":
        return torch.zeros(count, settings.width)
    return sinusoidal(torch.arange(count), settings.width)


def put_block(layer: Any, block: EncoderBlock | DecoderBlock) -> None:
    """Copy the weights of a block."""
    attention = block.attention
    put_norm(layer.self_attention.layer_norm, attention.norm)
    put_linear(layer.self_attention.linear[0], attention.work.project)  # type: ignore[arg-type]
    put_linear(layer.self_attention.linear[1], attention.work.output)  # type: ignore[arg-type]
    if isinstance(block, DecoderBlock):
        put_memory(layer.attention, block.memory_attention)
    inner = block.feedforward.work
    assert isinstance(inner, FeedForward)
    put_norm(layer.ffn.layer_norm, block.feedforward.norm)
    put_linear(layer.ffn.linear_0, inner.widen)
    put_linear(layer.ffn.linear_1, inner.narrow)
    if inner.gate is not None:
        put_linear(layer.ffn.linear_0_noact, inner.gate)


def put_memory(target: Any, source: Sublayer) -> None:
    """Copy the cross-attention: one matrix for queries, one for keys and values."""
    work: Any = source.work
    queries, weight, bias = work.sizes[0], work.project.weight, work.project.bias
    put_norm(target.layer_norm, source.norm)
    target.linear[0].weight, target.linear[0].bias = plain(weight[:queries]), plain(bias[:queries])
    target.linear[1].weight, target.linear[1].bias = plain(weight[queries:]), plain(bias[queries:])
    put_linear(target.linear[2], work.output)


def put_linear(target: Any, source: nn.Linear) -> None:
    """Copy a linear layer."""
    target.weight, target.bias = plain(source.weight), plain(source.bias)


def put_norm(target: Any, source: nn.Module) -> None:
    """Copy a layer norm."""
    target.gamma, target.beta = plain(source.weight), plain(source.bias)  # type: ignore[arg-type]


def plain(x: Tensor) -> Tensor:
    """Return a copy of a tensor in float32 on the CPU."""
    return x.detach().float().cpu().clone().contiguous()
