"""The generation settings of a Hugging Face model: its start and end tokens and other keys.

Source: ``generation/configuration_utils.py`` of transformers 5.23.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.interop.config_keys import must_be_allowed, warn_of

FILE, CONFIG = "generation_config.json", "config.json"
#: The keys that regard applies.
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
#: Keys that change the logits or the end of a text, and the values that change nothing.
ALLOWED: Mapping[str, Sequence[Any]] = {
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "stop_strings": (None,),
    "max_time": (None,),
    "min_p": (None,),
    "top_h": (None,),
    "typical_p": (None, 1.0, 1),
    "epsilon_cutoff": (None, 0.0, 0),
    "eta_cutoff": (None, 0.0, 0),
    "repetition_penalty": (None, 1.0, 1),
    "encoder_repetition_penalty": (None, 1.0, 1),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None,),
    "force_words_ids": (None,),
    "constraints": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "forced_decoder_ids": (None,),
    "exponential_decay_length_penalty": (None,),
    "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []),
    "sequence_bias": (None, {}),
    "token_healing": (None, False),
    "guidance_scale": (None, 1.0, 1),
    "watermarking_config": (None,),
    "penalty_alpha": (None,),
    "dola_layers": (None,),
    "use_mtp": (None, False),
}
#: Keys of the search, which regard's own arguments decide, of outputs and of speed.
HARMLESS = frozenset(
    """
    max_length max_new_tokens early_stopping do_sample num_beams temperature top_k
    top_p length_penalty num_return_sequences num_beam_groups diversity_penalty renormalize_logits
    remove_invalid_values use_cache cache_implementation cache_config max_cache_len low_memory
    output_attentions output_hidden_states output_scores output_logits return_dict_in_generate
    is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
    prompt_lookup_num_tokens max_matching_ngram_size assistant_early_exit assistant_lookbehind
    target_lookbehind assistant_ensemble_weight speculation_type compile_config disable_compile
    continuous_batching_config prefill_chunk_size transformers_version _from_model_config
    _commit_hash chat_format trust_remote_code
    """.split()
)
KNOWN = frozenset(TOKENS) | ALLOWED.keys() | HARMLESS


def read_generation(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of ``generation_config.json``, or those of the config if there is none.

    ``source`` is the file that they come from. Warn about unknown keys.
    """
    path = folder / FILE
    if not path.exists():
        known = {key: x for key, x in config.items() if key in TOKENS or key in ALLOWED}
        return {**known, "source": str(folder / CONFIG)}
    content = read_json(path)
    warn_of(content.keys() - KNOWN, path)
    return {**content, "source": str(path)}


def must_be_honoured(generation: Mapping[str, Any]) -> None:
    """Raise an error for unsupported keys that would change the generated text."""
    must_be_allowed(generation, ALLOWED, generation["source"])


def ends_of(generation: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokens that end a text: none, one or several. Raises: not token ids."""
    value = generation.get("eos_token_id")
    several = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(token_id(generation, "eos_token_id", token) for token in several)


def begin_of(generation: Mapping[str, Any], *names: str) -> int:
    """Return the token that a text begins with, by the first of these keys that is set.

    An id beyond the vocabulary is accepted. Raises: none of the keys is set; not a token id.
    """
    for name in names:
        if generation.get(name) is not None:
            return token_id(generation, name, generation[name])
    raise RegardError(
        f"{generation['source']} has no {' and no '.join(names)}, which a text begins with; set it"
    )


def token_id(generation: Mapping[str, Any], name: str, token: object) -> int:
    """Return a token id. Raises: not a token id."""
    if type(token) is not int or token < 0:
        raise RegardError(f"{generation['source']}: {name} must be a token id, not {token!r:.40}")
    return token
