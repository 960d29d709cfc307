"""Convert between Hugging Face's GPT-2 and `regard.nn.models.gpt`: config and tensor names."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.core.settings import build as build_settings
from regard.interop import activations
from regard.interop.config_keys import Keys
from regard.interop.names import Row, linear
from regard.interop.refusals import must_be
from regard.nn.models.settings import GPTSettings

PREFIX = "transformer."


#: The keys of the config, with transformers' defaults.
KEYS = Keys(
    {
        "vocab_size": 50257,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "n_positions": 1024,
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
    {"activation_function": [*activations.REGARD], "add_cross_attention": [False]},
    {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    },
    # embd_pdrop: a dropout, for which regard has resid_pdrop. reorder_and_upcast_attn: regard
    # always computes in float32. n_ctx: an old name of n_positions that is not read.
    frozenset(
        "embd_pdrop reorder_and_upcast_attn n_ctx summary_type summary_use_proj is_decoder "
        "summary_activation summary_proj_to_labels summary_first_dropout is_encoder_decoder".split()
    ),
)


def settings_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> GPTSettings:
    """Return the settings of a config that has all `KEYS`."""
    width = int(config["n_embd"])
    settings = {
        "width": width,
        "layers": config["n_layer"],
        "heads": config["n_head"],
        "feedforward": 4 * width if config["n_inner"] is None else config["n_inner"],
        "activation": activations.REGARD[config["activation_function"]],
        "score": "scaled-dot" if config["scale_attn_weights"] else "dot",
        "dropout": config["resid_pdrop"],
        "attention_dropout": config["attn_pdrop"],
        "length": config["n_positions"],
        "tie": config["tie_word_embeddings"],
        "epsilon": config["layer_norm_epsilon"],
    }
    return build_settings(GPTSettings, settings)


def config_of(settings: GPTSettings, vocabulary: int) -> dict[str, Any]:
    """Return the config of settings. Raises: a setting that GPT-2 does not support."""
    must_be(
        settings,
        "GPT-2",
        {
            "position": ["learned"],
            "score": ["scaled-dot", "dot"],
            "residual": ["sum"],
        },
    )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocabulary,
        "n_embd": settings.width,
        "n_layer": settings.layers,
        "n_head": settings.heads,
        "n_inner": settings.feedforward,
        "n_positions": settings.length,
        "activation_function": activations.exported(settings.activation, "GPT-2"),
        "scale_attn_weights": settings.score == "scaled-dot",
        "resid_pdrop": settings.dropout,
        "embd_pdrop": settings.dropout,
        "attn_pdrop": settings.attention_dropout,
        "layer_norm_epsilon": settings.epsilon,
        "tie_word_embeddings": settings.tie,
    }


def rows(settings: GPTSettings) -> list[Row]:
    """Return the table of tensor names. GPT-2's Conv1D matrices are transposed: (in, out).

    The output is optional, since a file without the head lacks it.
    """
    table = [
        Row("embedding.weight", (f"{PREFIX}wte.weight",)),
        Row("positions.table", (f"{PREFIX}wpe.weight",)),
        *linear("norm", f"{PREFIX}ln_f"),
    ]
    for i in range(settings.layers):
        prefix, stored = f"blocks.{i}", f"{PREFIX}h.{i}"
        table += linear(f"{prefix}.attention.norm", f"{stored}.ln_1")
        table += linear(f"{prefix}.attention.work.project", f"{stored}.attn.c_attn", turned=True)
        table += linear(f"{prefix}.attention.work.output", f"{stored}.attn.c_proj", turned=True)
        table += linear(f"{prefix}.feedforward.norm", f"{stored}.ln_2")
        table += linear(f"{prefix}.feedforward.work.widen", f"{stored}.mlp.c_fc", turned=True)
        table += linear(f"{prefix}.feedforward.work.narrow", f"{stored}.mlp.c_proj", turned=True)
    if not settings.tie:
        table.append(Row("output.weight", ("lm_head.weight",), optional=True))
    return table


def tidy(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's tensors under the names of the model with its head.

    With ``scale_attn_by_inverse_layer_idx``, the queries are divided by the layer's number.
    """
    whole = any(name.startswith(PREFIX) for name in tensors)
    tidied = {name if whole or name == "lm_head.weight" else PREFIX + name: x
              for name, x in tensors.items()}  # fmt: skip
    if config["scale_attn_by_inverse_layer_idx"]:
        width = int(config["n_embd"])
        for i in range(int(config["n_layer"])):
            for part in ("weight", "bias"):
                name = f"{PREFIX}h.{i}.attn.c_attn.{part}"
                tidied[name] = tidied[name].clone()
                tidied[name][..., :width] /= i + 1
    return tidied
