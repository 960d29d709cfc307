"""Read and write the tokenizer files of Hugging Face's folders by `tokenizers`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.tokenizers import FILE_LIMIT, Tokenizer, panics
from regard.errors import RegardError
from regard.reading import read_bytes, read_json

JSON, TABLE, MERGES, LIST = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
SETTINGS = "tokenizer_config.json"
WIDE = 10**40  # transformers writes int(1e30) for an unlimited length


def read_tokenizer(folder: Path) -> Any:
    """Return the ``tokenizers.Tokenizer`` of a folder, or None if it has none.

    ``tokenizer.json``; or GPT-2's ``vocab.json`` with ``merges.txt``; or BERT's ``vocab.txt``.
    Errors: damaged files; only a ``spiece.model``.
    """
    import tokenizers

    with panics(f"{folder}: the tokenizer is damaged"):
        if (folder / JSON).exists():
            return tokenizers.Tokenizer.from_str(text_of(folder / JSON))
        if (folder / TABLE).exists() and (folder / MERGES).exists():
            return byte_pairs(folder)
        if (folder / LIST).exists():
            return word_pieces(folder)
    if models := sorted(path.name for path in folder.glob("*.model")):
        raise RegardError(
            f"{folder}: regard does not read the tokenizer format of {models[0]}; create {JSON} "
            "by AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
        )
    return None


def text_of(path: Path) -> str:
    """Return the text of a UTF-8 file. Errors: too large; not UTF-8."""
    try:
        return read_bytes(path, FILE_LIMIT).decode()
    except UnicodeDecodeError:
        raise RegardError(f"{path} is not UTF-8") from None


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, split at \\n alone: other line separators can be tokens."""
    return [line.rstrip("\r") for line in text_of(path).removesuffix("\n").split("\n")]


def byte_pairs(folder: Path) -> Any:
    """Return GPT-2's tokenizer: byte pairs, in the file's order. Radford et al. 2019, 2.2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = read_json(folder / TABLE, FILE_LIMIT)
    lines = lines_of(folder / MERGES)
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#version"):
            continue
        first, space, second = line.partition(" ")
        if not space or " " in second:
            raise RegardError(f"{folder / MERGES}:{number}: not a pair of tokens: {line!r:.60}")
        pairs.append((first, second))
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def word_pieces(folder: Path) -> Any:
    """Return BERT's tokenizer: the longest pieces first. Devlin et al. 2019, section 3."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = lines_of(folder / LIST)
    ids = {word: number for number, word in enumerate(words)}
    settings: dict[str, Any] = {}
    if (folder / SETTINGS).exists():
        settings = read_json(folder / SETTINGS, widest=WIDE)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106
    lower = bool(settings.get("do_lower_case", True))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lower,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = [word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if word in ids]
    tokenizer.add_special_tokens(special)
    return (
        framed(tokenizer, "[CLS]", "[SEP]", ids) if {"[CLS]", "[SEP]"} <= ids.keys() else tokenizer
    )


def tokenizer_files(
    inner: Any, *, length: int, roles: dict[str, str] | None = None
) -> dict[str, bytes]:
    """Return the contents of ``tokenizer.json`` and of transformers' settings for it.

    ``roles``: the "pad_token", the "eos_token", ….
    """
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        **(roles or {}),
    }
    return {
        JSON: str(inner.to_str(pretty=True)).encode(),
        SETTINGS: (json.dumps(settings, ensure_ascii=False, indent=2) + "\n").encode(),
    }


def with_ends(tokenizer: Tokenizer, names: Sequence[str]) -> Any:
    """Return regard's tokenizer with more tokens at its end, as in a run: the end, the mask, ….

    Errors: one of them is already in the vocabulary, as a word of texts.
    """
    import tokenizers

    if clash := sorted(set(names) & set(tokenizer.vocabulary)):
        raise RegardError(f"{clash[0]!r} is already in the vocabulary")
    content = json.loads(tokenizer.to_bytes())
    extended = tokenizers.Tokenizer.from_str(json.dumps(with_decoder(content, tokenizer.kind)))
    extended.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in names])
    return extended


def with_decoder(content: dict[str, Any], kind: str) -> dict[str, Any]:
    """Join characters without spaces when decoding; words keep the default, with spaces."""
    if kind == "characters":
        content["decoder"] = {"type": "Fuse"}
    return content


def framed(inner: Any, first: str, last: str, ids: dict[str, int]) -> Any:
    """Make a tokenizer put a symbol before a text, and one after each text.

    Devlin et al. 2019, figure 2: [CLS] one [SEP] two [SEP].
    """
    from tokenizers import processors

    inner.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, ids[first]), (last, ids[last])],
    )
    return inner
