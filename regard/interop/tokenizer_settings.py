"""The settings of a tokenizer besides its vocabulary: ``tokenizer_config.json``, added tokens.

Source: ``tokenization_utils_base.py``, ``tokenization_utils_tokenizers.py`` and the tokenizers of
BERT, GPT-2 and RoBERTa of transformers 5.23.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.interop.config_keys import must_be_allowed, warn_of

SETTINGS, NAMED, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
CONFIG = "config.json"
WIDE = 10**40  # transformers writes int(1e30) for an unlimited length
#: Keys of special tokens, in the order in which new ones are numbered.
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA = ("extra_special_tokens", "additional_special_tokens")
#: The special tokens of a class of tokenizers, which it adds to every vocabulary.
BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
CLASSES: Mapping[str, Mapping[str, str]] = {
    "BertTokenizer": BERT,
    "DistilBertTokenizer": BERT,
    "RobertaTokenizer": ROBERTA,
    "GPT2Tokenizer": GPT2,
}
#: The default class of a model type.
IMPLIED = {
    "bert": "BertTokenizer",
    "distilbert": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "camembert": "CamembertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "t5": "T5Tokenizer",
    "mt5": "T5Tokenizer",
}
#: Classes of Unigram models, and the symbols that they add around a text.
AROUND: Mapping[str, Mapping[str, str]] = {
    "T5Tokenizer": {"eos_token": "</s>"},
    "MT5Tokenizer": {"eos_token": "</s>"},
    "CamembertTokenizer": {"bos_token": "<s>", "eos_token": "</s>"},
    "XLMRobertaTokenizer": {"bos_token": "<s>", "eos_token": "</s>"},
}
#: Classes that use ``tokenizer.json`` unchanged.
PLAIN = ("PreTrainedTokenizer", "TokenizersBackend", "")
#: Keys with values that regard supports.
ALLOWED: Mapping[str, Sequence[Any]] = {
    "auto_map": (None,),  # code of its own
    "fast_tokenizer_files": (None,),
}
#: Keys that change no token: truncation, padding, offsets, decoding, other programs.
HARMLESS = frozenset(
    """
    tokenizer_class model_max_length max_length max_len padding_side truncation_side padding
    truncation truncation_strategy stride pad_to_multiple_of pad_token_type_id model_input_names
    clean_up_tokenization_spaces chat_template name_or_path special_tokens_map_file tokenizer_file
    vocab_file merges_file full_tokenizer_file is_local local_files_only use_fast from_slow
    backend processor_class errors trim_offsets do_basic_tokenize never_split
    wordpieces_prefix legacy sp_model_kwargs extra_ids init_inputs return_token_type_ids
    added_tokens_decoder transformers_version device_map slow_tokenizer_class verbose
    add_dummy_prefix_space spaces_between_special_tokens use_default_system_prompt _commit_hash
    sentence_transformers files_loaded model_specific_special_tokens
    do_lower_case strip_accents tokenize_chinese_chars add_prefix_space add_bos_token add_eos_token
    split_special_tokens
    """.split()
)


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings of a tokenizer besides its vocabulary.

    ``name``: the class of transformers' tokenizer, without "Fast"; that of the model type if
    ``implied``. ``values``: the keys. ``added``: tokens by their number, in the form of
    ``added_tokens_decoder``. ``source``: the file, for errors.
    """

    folder: Path
    name: str
    implied: bool
    values: Mapping[str, Any]
    added: Mapping[int, Mapping[str, Any]]

    @property
    def source(self) -> Path:
        """Return the file of the keys."""
        return self.folder / SETTINGS

    def flag(self, key: str, default: bool | None) -> bool | None:
        """Return true, false or null. Raises: another value."""
        value = self.values.get(key, default)
        if value is not None and type(value) is not bool:
            raise RegardError(
                f"{self.source}: {key}={value!r:.60} is not true or false; correct it"
            )
        return value

    def role(self, key: str) -> str | None:
        """Return the content of a special token, by default that of the class."""
        value = self.values.get(key, CLASSES.get(self.name, {}).get(key))
        return None if value is None else str(token_of(value)["content"])

    def of_class(self, name: str) -> "TokenizerSettings":
        """Return these settings with the special tokens that a class adds to every vocabulary.

        Without a name nothing is added, since ``tokenizer.json`` has all its tokens.
        """
        if not name:
            return self
        return replace(self, name=name, values={**CLASSES[name], **self.values})


def read_settings(folder: Path) -> TokenizerSettings:
    """Return the settings of a folder's tokenizer, and warn about unknown keys.

    Raises: damaged files; a key with a value that regard does not support.
    """
    values: dict[str, Any] = {}
    if (folder / SETTINGS).exists():
        values = read_json(folder / SETTINGS, widest=WIDE)
    must_be_allowed(values, ALLOWED, folder / SETTINGS)
    odd = {key for key in values if not key.endswith("_token")} - {*ALLOWED, *EXTRA, *HARMLESS}
    warn_of(odd, folder / SETTINGS)
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    own = values.get("tokenizer_class") or config.get("tokenizer_class")
    name = str(own or IMPLIED.get(str(config.get("model_type")), "")).removesuffix("Fast")
    if "added_tokens_decoder" in values:
        table = values["added_tokens_decoder"]
        added = {int(number): token_of(token) for number, token in table.items()}
    else:
        if (folder / NAMED).exists():
            named = read_json(folder / NAMED)
            must_be_read(named, name, folder / NAMED)
            values |= named
        added = older(folder, values)
    for key, symbol in AROUND.get(name, {}).items():
        if key in values and (content := token_of(values[key])["content"]) != symbol:
            raise RegardError(
                f"{folder}: {key}={content!r} is not supported for a {name}; regard supports "
                f"{symbol!r}"
            )
    return TokenizerSettings(folder, name, not own, values, added)


def must_be_read(named: Mapping[str, Any], name: str, source: Path) -> None:
    """Refuse tokens that T5's tokenizer does not read from ``special_tokens_map.json``."""
    several = named.get("additional_special_tokens") or []
    for token in several if name in ("T5Tokenizer", "MT5Tokenizer") else []:
        if not (text := token_of(token)["content"]).startswith("<extra_id_"):
            raise RegardError(
                f"{source}: additional_special_tokens has {text!r}, which {name} of transformers "
                f"does not read there; move it to {SETTINGS}"
            )


def older(folder: Path, values: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the tokens of ``added_tokens.json``; tokens with a role are special."""
    if not (folder / ADDED).exists():
        return {}
    special = {token_of(token)["content"] for token in with_roles(values)}
    table = read_json(folder / ADDED)
    return {
        number: {"content": text, "special": text in special, "normalized": text not in special}
        for text, number in table.items()
    }


def with_roles(values: Mapping[str, Any]) -> list[Any]:
    """Return the special tokens of some keys, in the order in which new ones are numbered."""
    others = [key for key in values if key.endswith("_token") and key not in ROLES]
    tokens = [values.get(key) for key in (*ROLES, *others)]
    for key in EXTRA:
        several = values.get(key) or []
        tokens += several.values() if isinstance(several, dict) else several
    return [token for token in tokens if isinstance(token, str | dict)]


def token_of(value: Any) -> dict[str, Any]:
    """Return a token in the form of ``added_tokens_decoder``.

    >>> token_of("<mask>")
    {'content': '<mask>', 'special': True}
    """
    if isinstance(value, str):
        return {"content": value, "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise RegardError(f"a special token must be a text or a table with content, not {value!r}")
    flags = ("content", "lstrip", "rstrip", "single_word", "normalized", "special")
    return {key: value[key] for key in flags if key in value}


def add_tokens(inner: Any, settings: TokenizerSettings) -> None:
    """Add the tokens that a tokenizer does not have yet: added ones, then those with a role.

    Raises: a token whose id differs from its file.
    """
    from tokenizers import AddedToken

    for number, token in sorted(settings.added.items()):
        inner.add_tokens([AddedToken(**token)])
        if (known_id := inner.token_to_id(token["content"])) != number:
            raise RegardError(
                f"{settings.folder}: the added token {token['content']!r} has the number {number}, "
                f"but the vocabulary gives it {known_id}; save the tokenizer anew by transformers"
            )
    known = {token.content for token in inner.get_added_tokens_decoder().values()}
    for value in with_roles(settings.values):
        token = {**token_of(value), "special": True}
        if token["content"] not in known:
            inner.add_special_tokens([AddedToken(**token)])
