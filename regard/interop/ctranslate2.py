"""A trained Transformer as a folder that CTranslate2 translates with.

The weights go into CTranslate2's own specification as they are: pre- or post-norm, any table of
positions, no change of the vocabulary. CTranslate2 is needed to write the folder, not transformers.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard import atomic_io
from regard.attention import sinusoidal
from regard.data.tokenizers import Tokenizer
from regard.errors import RegardError
from regard.interop.refusals import must_be, same_heads
from regard.layers.feedforward import GATED, FeedForward
from regard.layers.sublayers import DecoderBlock, EncoderBlock, Sublayer
from regard.models.settings import TransformerSettings
from regard.models.transformer import Transformer

#: CTranslate2's names of what `regard.layers.feedforward.ACTIVATIONS` names.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}
#: What torch's layer norm adds to a variance.
EPSILON = 1e-5
#: The logit of the padding, which is never written.
NEVER = -1e9
#: Positions that are a table, and so are what CTranslate2 adds to the words.
POSITIONS = ("sinusoidal", "learned", "none")


def save_ctranslate2(
    model: Transformer,
    settings: TransformerSettings,
    folder: Path | str,
    tokenizer: Tokenizer | Sequence[str],
    *,
    quantization: str = "float32",
) -> list[str]:
    """Write a folder for ``ctranslate2.Translator``; returns the tokens by number, the end last.

    ``tokenizer``, or its tokens, names the numbers of all words but the last, which is the end.
    ``quantization``: float32, or int8, int16, bfloat16, … as CTranslate2 names them. Translate the
    pieces of a text without an end: ``translator.translate_batch([tokenizer.tokens(ids)])``.

    With a length penalty of 0 the beams of both are one search. What is written is what regard
    writes to rounding: the padding cannot be written, and the text begins with it.

    Errors: `RegardError` for settings that CTranslate2 has no place for, by name; a folder that is
    there already.
    """
    spec = specification(model, settings)
    tokens = names(tokenizer)
    if len(tokens) != model.target.weight.shape[0]:
        raise RegardError(
            f"the model has {model.target.weight.shape[0]} words, but the tokenizer with the end "
            f"has {len(tokens)}; use the tokenizer that the model was trained with"
        )
    place = Path(folder)
    if place.exists():
        raise RegardError(f"{place} already exists; give another folder")
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
    if isinstance(tokenizer, Tokenizer):
        files["tokenizer.json"] = tokenizer.to_bytes()
    files["config.json"] = as_json(files["config.json"])
    place.parent.mkdir(parents=True, exist_ok=True)
    atomic_io.write_folder(place, files)
    return tokens


def names(tokenizer: Tokenizer | Sequence[str]) -> list[str]:
    """A name for every number, and one for the end that no other has.

    >>> names(["[PAD]", "[UNK]", "a", "</s>"])
    ['[PAD]', '[UNK]', 'a', '</s>', '<</s>>']
    """
    words = list(tokenizer.vocabulary if isinstance(tokenizer, Tokenizer) else tokenizer)
    end = "</s>"
    while end in words:
        end = f"<{end}>"
    return [*words, end]


def specification(model: Transformer, settings: TransformerSettings) -> Any:
    """CTranslate2's specification with the model's weights, its vocabulary not yet in it."""
    must_be(
        settings,
        "CTranslate2",
        {
            "score": ["scaled-dot"],
            "attention": ["multi-head"],
            "normalize": ["softmax"],
            "pattern": ["none"],
            "compress": ["none"],
            "position": POSITIONS,
            "activation": [*ACTIVATIONS, *(GATED + name for name in ACTIVATIONS)],
        },
    )
    same_heads(settings, "CTranslate2")
    try:
        from ctranslate2.specs import common_spec, transformer_spec
    except ImportError as error:
        raise RegardError(
            f"CTranslate2 is not installed ({error}): pip install -c constraints.txt '.[export]'"
        ) from None
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
    """What is added to the words: a row for each position of the longest text that is written."""
    if settings.position == "learned":
        return plain(model.positions.table)  # type: ignore[union-attr, arg-type]
    count = 4 * settings.length
    if settings.position == "none":
        return torch.zeros(count, settings.width)
    return sinusoidal(torch.arange(count), settings.width)


def put_block(layer: Any, block: EncoderBlock | DecoderBlock) -> None:
    """One block's weights."""
    own = block.attention
    put_norm(layer.self_attention.layer_norm, own.norm)
    put_linear(layer.self_attention.linear[0], own.work.project)  # type: ignore[arg-type]
    put_linear(layer.self_attention.linear[1], own.work.output)  # type: ignore[arg-type]
    if isinstance(block, DecoderBlock):
        put_memory(layer.attention, block.memory_attention)
    inner = block.feedforward.work
    assert isinstance(inner, FeedForward)
    put_norm(layer.ffn.layer_norm, block.feedforward.norm)
    put_linear(layer.ffn.linear_0, inner.widen)
    put_linear(layer.ffn.linear_1, inner.narrow)
    if inner.gate is not None:
        put_linear(layer.ffn.linear_0_noact, inner.gate)


def put_memory(there: Any, here: Sublayer) -> None:
    """The attention to the memory: queries apart, keys and values as one."""
    work: Any = here.work
    queries, weight, bias = work.sizes[0], work.project.weight, work.project.bias
    put_norm(there.layer_norm, here.norm)
    there.linear[0].weight, there.linear[0].bias = plain(weight[:queries]), plain(bias[:queries])
    there.linear[1].weight, there.linear[1].bias = plain(weight[queries:]), plain(bias[queries:])
    put_linear(there.linear[2], work.output)


def put_linear(there: Any, here: nn.Linear) -> None:
    """A linear map."""
    there.weight, there.bias = plain(here.weight), plain(here.bias)


def put_norm(there: Any, here: nn.Module) -> None:
    """A layer norm."""
    there.gamma, there.beta = plain(here.weight), plain(here.bias)  # type: ignore[arg-type]


def plain(x: Tensor) -> Tensor:
    """The numbers alone, in float32, on the CPU, a copy."""
    return x.detach().float().cpu().clone().contiguous()


def as_json(data: bytes) -> bytes:
    """JSON with nothing in it that is only CTranslate2's own absent values."""
    return (json.dumps(json.loads(data), indent=2, ensure_ascii=False) + "\n").encode()
