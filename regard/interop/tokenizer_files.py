"""Tokenizers as Hugging Face's folders hold them, read and written by `tokenizers`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.tokenizers import FILE_LIMIT, Tokenizer, panics
from regard.errors import RegardError
from regard.reading import read_bytes, read_json

JSON, TABLE, MERGES, LIST = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
SETTINGS = "tokenizer_config.json"
WIDE = 10**40  # transformers writes int(1e30) for a length that has no bound


def read_tokenizer(folder: Path) -> Any:
    """The ``tokenizers.Tokenizer`` of a folder, or None where it holds none.

    ``tokenizer.json``; or GPT-2's ``vocab.json`` with ``merges.txt``; or BERT's ``vocab.txt``.
    Errors: damaged files, a ``spiece.model`` alone.
    """
    import tokenizers

    with panics(f"{folder} holds no sound tokenizer"):
        if (folder / JSON).exists():
            return tokenizers.Tokenizer.from_str(text_of(folder / JSON))
        if (folder / TABLE).exists() and (folder / MERGES).exists():
            return byte_pairs(folder)
        if (folder / LIST).exists():
            return word_pieces(folder)
    if models := sorted(path.name for path in folder.glob("*.model")):
        raise RegardError(
            f"{folder} has its tokenizer as {models[0]}, which regard does not read; "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers writes "
            f"a {JSON} beside it"
        )
    return None


def text_of(path: Path) -> str:
    """A UTF-8 file of reasonable size."""
    try:
        return read_bytes(path, FILE_LIMIT).decode()
    except UnicodeDecodeError:
        raise RegardError(f"{path} is not UTF-8") from None


def lines_of(path: Path) -> list[str]:
    """The lines of a file: they end in \\n alone, for other signs that end lines are words too."""
    return [line.rstrip("\r") for line in text_of(path).removesuffix("\n").split("\n")]


def byte_pairs(folder: Path) -> Any:
    """GPT-2's: byte pairs, merged in the order of the file's lines. Radford et al. 2019, 2.2."""
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
    made = Tokenizer(models.BPE(vocabulary, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def word_pieces(folder: Path) -> Any:
    """BERT's: the longest pieces from the left, a line each. Devlin et al. 2019, section 3."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = lines_of(folder / LIST)
    ids = {word: number for number, word in enumerate(words)}
    settings: dict[str, Any] = {}
    if (folder / SETTINGS).exists():
        settings = read_json(folder / SETTINGS, widest=WIDE)
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106
    lower = bool(settings.get("do_lower_case", True))
    made.normalizer = normalizers.BertNormalizer(
        lowercase=lower,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = [word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if word in ids]
    made.add_special_tokens(special)
    return framed(made, "[CLS]", "[SEP]", ids) if {"[CLS]", "[SEP]"} <= ids.keys() else made


def tokenizer_files(
    inner: Any, *, length: int, roles: dict[str, str] | None = None
) -> dict[str, bytes]:
    """``tokenizer.json`` and what tells transformers how to read it.

    ``roles``: which token is the "pad_token", the "eos_token", ….
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
    """regard's tokenizer with tokens after its last, as a run numbers them: the end, the mask, ….

    They are added tokens and stand in no text: where the vocabulary has one already, it is a word.
    """
    import tokenizers

    if clash := sorted(set(names) & set(tokenizer.vocabulary)):
        raise RegardError(f"{clash[0]!r} is already in the vocabulary")
    content = json.loads(tokenizer.to_bytes())
    made = tokenizers.Tokenizer.from_str(json.dumps(with_decoder(content, tokenizer.kind)))
    made.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in names])
    return made


def with_decoder(content: dict[str, Any], kind: str) -> dict[str, Any]:
    """Characters go side by side again; words have spaces between them, as without a decoder."""
    if kind == "characters":
        content["decoder"] = {"type": "Fuse"}
    return content


def framed(inner: Any, first: str, last: str, ids: dict[str, int]) -> Any:
    """The same tokenizer, which puts one symbol before a text and one behind it, and between two.

    Devlin et al. 2019, figure 2: [CLS] one [SEP] two [SEP].
    """
    from tokenizers import processors

    inner.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, ids[first]), (last, ids[last])],
    )
    return inner
