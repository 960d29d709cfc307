"""The keys of a model's ``config.json``: each is applied, refused, or known to be harmless.

Sources: the configuration and modelling files of transformers 5.23.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.core.errors import RegardError

ELSEWHERE = 'the model runs in transformers with attn_implementation="regard"'


class UnknownKeyWarning(UserWarning):
    """A warning about unknown keys in a file of a model's folder."""


@dataclass(frozen=True)
class Keys:
    """The keys of a model type that change what the model computes.

    ``defaults``: the keys that regard applies, with transformers' defaults. ``allowed``: keys with
    some supported values. ``names``: other names of keys, as in transformers' ``attribute_map``.
    ``harmless``: keys that change nothing in this model type.
    """

    defaults: Mapping[str, Any]
    allowed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()


#: Keys of every model type with some supported values; the default is null.
ALLOWED: Mapping[str, Sequence[Any]] = {
    "quantization_config": (None,),
    "auto_map": (None,),  # code of its own
    "pruned_heads": (None, {}),
    "per_layer_config": (None, {}),
    "position_embedding_type": (None, "absolute"),
    "rope_scaling": (None,),
    "rope_parameters": (None,),
    "rope_theta": (None,),
    "sliding_window": (None,),
    "num_key_value_heads": (None,),
    "tie_encoder_decoder": (None, False),
    "adapters": (None, {}),
}
#: Keys that do not change regard's results: outputs, training, other heads, other programs.
HARMLESS = frozenset(
    """
    model_type architectures transformers_version torch_dtype dtype _name_or_path name_or_path
    _commit_hash use_cache output_past output_hidden_states output_attentions return_dict
    use_return_dict torchscript use_bfloat16 chunk_size_feed_forward gradient_checkpointing
    initializer_range initializer_factor init_std id2label label2id num_labels problem_type
    classifier_dropout classif_dropout finetuning_task task_specific_params tokenizer_class prefix
    cross_attention_hidden_size tie_last_hidden_states xla_device tf_legacy_loss
    _attn_implementation attn_implementation _attn_implementation_autoset _flash_attn_2_enabled
    _experts_implementation sentence_transformers transformers.js_config language model_name
    extra_files directionality pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type
    bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id mask_token_id
    decoder_start_token_id
    """.split()
)


def honoured(
    config: Mapping[str, Any], keys: Keys, source: object, harmless: Collection[str] = ()
) -> dict[str, Any]:
    """Return a config with all keys of its model type, under one name each, with defaults.

    Warn about unknown keys that are not ``harmless``. Raises: an unsupported value; a value of
    another type; a key and its other name with different values.
    """
    result = {key: value for key, value in config.items() if key not in keys.names}
    for other in keys.names.keys() & config.keys():
        name, value = keys.names[other], config[other]
        if result.setdefault(name, value) != value:
            raise RegardError(
                f"{source}: {other}={value!r:.60} and {name}={result[name]!r:.60} are the same key "
                "with two values; remove one"
            )
    must_be_allowed(result, {**ALLOWED, **keys.allowed}, source)
    for key, default in keys.defaults.items():
        value = result.setdefault(key, default)
        if default is not None and not of_type(value, type(default)):
            raise RegardError(
                f"{source}: {key}={value!r:.60} is not {KINDS[type(default)]}; correct the config"
            )
    known = {*ALLOWED, *keys.allowed, *keys.defaults, *HARMLESS, *keys.harmless, *harmless}
    warn_of(result.keys() - known, source)
    return result


#: The names of types in errors.
KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a name",
}


def of_type(value: object, kind: type) -> bool:
    """Return whether a value is of this type; a whole number is a float too.

    >>> of_type(1, float), of_type(True, int), of_type("1", int)
    (True, False, False)
    """
    return type(value) is kind or (kind is float and type(value) is int)


def must_be_allowed(
    config: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]], source: object
) -> None:
    """Raise an error for a key with an unsupported value."""
    for key, values in allowed.items():
        value = config.get(key)
        if key in config and not any(type(x) is type(value) and x == value for x in values):
            supported = " or ".join(map(repr, values))
            raise RegardError(
                f"{source}: {key}={value!r:.60} is not supported; regard supports {supported}, "
                f"and {ELSEWHERE}"
            )


def warn_of(keys: set[str], source: object) -> None:
    """Warn about unknown keys."""
    if keys:
        warnings.warn(
            f"{source}: regard does not know {', '.join(sorted(keys))}, so it ignores "
            f"{'them' if len(keys) > 1 else 'it'}",
            UnknownKeyWarning,
            stacklevel=4,
        )
