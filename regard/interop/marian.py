"""Export a trained Transformer to the layouts of Hugging Face's translators.

Marian is post-norm; Pegasus is the same with pre-norm and a norm after each stack. Both store sines
in the first half of a position's vector and cosines in the second, while regard alternates them. So
the columns of all vectors between layers are permuted, which changes no result.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import RegardError
from regard.interop import activations, folder
from regard.interop.card import Card
from regard.interop.names import Row, give, linear, stacks
from regard.interop.refusals import must_be
from regard.interop.tokenizer_files import OwnTokenizer, extended, tokenizer_files
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer
from regard.training.checkpoints import weights

END, PAD = "</s>", "<pad>"
BIAS = "final_logits_bias"


def save_translator(
    model: Transformer,
    settings: TransformerSettings,
    place: Path | str,
    *,
    tokenizer: OwnTokenizer | None = None,
    card: Card | None = None,
    layout: str = "",
) -> Path:
    """Write a Transformer as a folder that ``AutoModelForSeq2SeqLM.from_pretrained`` reads.

    ``layout``: "marian" (norm=post), "pegasus" (norm=pre), or "" for the one that fits. As in
    Marian, token ids are one less than in regard, and the padding, which starts a translation, is
    the last (`to_marian` and `from_marian` convert ids); the same ids give the same logits.
    ``generate`` never generates the padding and, like regard, does not append the end to a source.

    Raises: `RegardError`: a setting that the layout does not support; a folder that exists.
    """
    chosen = layout or {"post": "marian", "pre": "pegasus"}[settings.norm]
    if chosen not in ("marian", "pegasus"):
        raise RegardError(f"layout must be marian or pegasus, not {chosen!r}")
    vocabulary = int(model.target.weight.shape[0])
    config = config_of(settings, vocabulary, chosen)
    tensors = give(rows(settings), arranged(model, settings))
    tensors[BIAS] = torch.zeros(1, vocabulary)
    if model.output is not None:
        tensors[BIAS] = model.output.bias.detach()[None].roll(-1, 1)
    files = {
        "README.md": (card or Card()).text(config["architectures"][0], settings).encode(),
        "generation_config.json": folder.as_json(generation_of(settings, vocabulary)),
    }
    if tokenizer is not None:
        if len(tokenizer) + 1 != vocabulary:
            raise RegardError(
                f"the model has {vocabulary} words, but the tokenizer with the end has "
                f"{len(tokenizer) + 1}; use the tokenizer that the model was trained with"
            )
        roles = {"eos_token": END, "pad_token": PAD, "unk_token": tokenizer.vocabulary[1]}
        files |= tokenizer_files(renumbered(tokenizer), length=settings.length, roles=roles)
    return folder.write(place, config, tensors, files)


def to_marian(ids: Tensor, vocabulary: int) -> Tensor:
    """Convert regard's token ids to Marian's: one less, the padding last.

    >>> to_marian(torch.tensor([0, 1, 6]), 7).tolist()
    [6, 0, 5]
    """
    return (ids - 1) % vocabulary


def from_marian(ids: Tensor, vocabulary: int) -> Tensor:
    """Convert Marian's token ids to regard's.

    >>> from_marian(torch.tensor([6, 0, 5]), 7).tolist()
    [0, 1, 6]
    """
    return (ids + 1) % vocabulary


def config_of(settings: TransformerSettings, vocabulary: int, layout: str) -> dict[str, Any]:
    """Return the config of settings. Raises: a setting that the layout does not support."""
    program, post = layout.capitalize(), layout == "marian"
    allowed: dict[str, Sequence[object]] = {
        "norm": ["post" if post else "pre"],
        "position": ["sinusoidal"],
        "score": ["scaled-dot"],
        "residual": ["sum"],
        "compress": ["none"],
    }
    if not post:
        allowed["tie"] = [True]
    must_be(settings, program, allowed)
    # CTranslate2's converter needs these for every model of the BART family.
    norms = {} if post else {"normalize_before": True, "normalize_embedding": False}
    sides = {}
    for side, layers in stacks(settings):
        sides[f"{side}_layers"] = layers
        sides[f"{side}_ffn_dim"] = settings.feedforward
        sides[f"{side}_attention_heads"] = settings.heads
    return {
        "architectures": ["MarianMTModel" if post else "PegasusForConditionalGeneration"],
        "model_type": layout,
        "is_encoder_decoder": True,
        "vocab_size": vocabulary,
        "d_model": settings.width,
        **sides,
        **norms,
        "activation_function": activations.exported(settings.activation, program),
        "dropout": settings.dropout,
        "attention_dropout": settings.attention_dropout,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "max_position_embeddings": 4 * settings.length,
        "share_encoder_decoder_embeddings": settings.tie,
        "tie_word_embeddings": settings.tie,
        "dtype": "float32",
        **specials(vocabulary),
    }


def specials(vocabulary: int) -> dict[str, Any]:
    """Return the ids of the padding, which begins a text, and of the end."""
    pad, end = vocabulary - 1, vocabulary - 2
    return {
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": end,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }


def generation_of(settings: TransformerSettings, vocabulary: int) -> dict[str, Any]:
    """Return the settings of ``generate``: a beam of 5, and never the padding."""
    return {
        **specials(vocabulary),
        "bad_words_ids": [[vocabulary - 1]],
        "renormalize_logits": True,
        "num_beams": 5,
        "early_stopping": False,
        "max_length": 2 * settings.length,
    }


def rows(settings: TransformerSettings) -> list[Row]:
    """Return the table of tensor names, for the weights of `arranged`."""
    table: list[Row] = []
    if settings.tie:
        table.append(Row("source.weight", ("model.shared.weight",)))
    else:
        table.append(Row("source.weight", ("model.encoder.embed_tokens.weight",)))
        table.append(Row("target.weight", ("model.decoder.embed_tokens.weight",)))
        table.append(Row("output.weight", ("lm_head.weight",)))
    for stack, count in stacks(settings):
        if settings.norm == "pre":
            table += linear(f"{stack}_norm", f"model.{stack}.layer_norm")
        for i in range(count):
            prefix, stored = f"{stack}.{i}", f"model.{stack}.layers.{i}"
            table += attention(f"{prefix}.attention", f"{stored}.self_attn")
            if stack == "decoder":
                table += attention(f"{prefix}.memory_attention", f"{stored}.encoder_attn")
            table += linear(f"{prefix}.feedforward.work.widen", f"{stored}.fc1")
            table += linear(f"{prefix}.feedforward.work.narrow", f"{stored}.fc2")
            table += linear(f"{prefix}.feedforward.norm", f"{stored}.final_layer_norm")
    return table


def attention(prefix: str, stored: str) -> list[Row]:
    """Return the rows of an attention layer and its norm."""
    inner = [f"{stored}.{part}_proj" for part in "qkv"]
    return [
        *linear(f"{prefix}.work.project", *inner),
        *linear(f"{prefix}.work.output", f"{stored}.out_proj"),
        *linear(f"{prefix}.norm", f"{stored}_layer_norm"),
    ]


def arranged(model: Transformer, settings: TransformerSettings) -> dict[str, Tensor]:
    """Return the weights with columns and words in the layout's order."""
    order = torch.cat([torch.arange(0, settings.width, 2), torch.arange(1, settings.width, 2)])
    result = {}
    for name, x in weights(model).items():
        part = name.rsplit(".", 1)[0]
        if part in ("source", "target", "output"):
            x = x.roll(-1, 0)
            if x.ndim > 1:
                x = x[:, order]
        elif part.endswith((".output", ".narrow")) or part.rsplit(".", 1)[-1].endswith("norm"):
            x = x[order]  # writes to the vectors between layers
        elif x.ndim > 1:
            x = x[:, order]  # reads them
        result[name] = x
    return result


def renumbered(tokenizer: OwnTokenizer) -> Any:
    """Return regard's tokenizer with the end and the padding at the end of the vocabulary.

    Raises: the vocabulary contains one of those two as a word.
    """
    for name in (END, PAD):
        if name in tokenizer.vocabulary:
            raise RegardError(
                f"the vocabulary contains {name!r}, which the layout reserves; train with a "
                "tokenizer without it"
            )
    content = json.loads(tokenizer.to_bytes())
    inner, pad = content["model"], tokenizer.vocabulary[0]
    if inner["type"] == "Unigram":
        inner["vocab"], inner["unk_id"] = inner["vocab"][1:], inner["unk_id"] - 1
    else:
        inner["vocab"] = {word: i - 1 for word, i in inner["vocab"].items() if word != pad}
    return extended(content, tokenizer.kind, (END, PAD))
