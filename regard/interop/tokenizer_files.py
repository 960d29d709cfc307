"""Read and write the tokenizer files of Hugging Face's folders by `tokenizers`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from regard.core.errors import RegardError
from regard.core.reading import read_bytes, read_json
from regard.interop.tokenizer_settings import (
    AROUND,
    BERT,
    CLASSES,
    PLAIN,
    ROBERTA,
    SETTINGS,
    TokenizerSettings,
    add_tokens,
    read_settings,
)

FILE_LIMIT = 200_000_000  # bytes of a tokenizer.json
JSON, TABLE, MERGES, LIST = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
#: Classes of tokenizers that regard builds from vocab.json and merges.txt, and from vocab.txt.
PAIRS = ("GPT2Tokenizer", "RobertaTokenizer")
PIECES = ("BertTokenizer", "DistilBertTokenizer")


class OwnTokenizer(Protocol):
    """A tokenizer that regard trained: its kind, its tokens by id, its ``tokenizer.json``."""

    kind: str
    vocabulary: list[str]

    def __len__(self) -> int:
        """Return the number of tokens."""

    def to_bytes(self) -> bytes:
        """Return the content of ``tokenizer.json``."""


@contextmanager
def panics(what: str) -> Iterator[None]:
    """Convert panics inside Rust, which `except Exception` does not catch, into RegardErrors."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RegardError):
        raise
    except BaseException as error:
        raise RegardError(f"{what}: {' '.join(str(error).split())[:200]}") from error


def read_tokenizer(folder: Path) -> Any:
    """Return the ``tokenizers.Tokenizer`` of a folder, or None if it has none.

    It reads ``tokenizer.json``, or ``vocab.json`` with ``merges.txt`` (GPT-2, RoBERTa), or
    ``vocab.txt`` (BERT), with the settings and added tokens of the other files, as in transformers.
    Texts are neither truncated nor padded. Raises: damaged files; only a ``spiece.model``; an
    unsupported key.
    """
    import tokenizers

    with panics(f"{folder}: the tokenizer is damaged"):
        settings, kind = read_settings(folder), ""
        if (folder / JSON).exists():
            kind = whole_class(settings)
            inner = tokenizers.Tokenizer.from_str(text_of(folder / JSON))
        elif (folder / TABLE).exists() and (folder / MERGES).exists():
            inner, kind = byte_pairs(folder), _class_of(settings, f"{TABLE} and {MERGES}", *PAIRS)
        elif (folder / LIST).exists():
            inner, kind = word_pieces(folder, settings), _class_of(settings, LIST, *PIECES)
        else:
            must_be_readable(folder)
            return None
        settings = settings.of_class(kind)
        inner.no_truncation()
        inner.no_padding()
        add_tokens(inner, settings)
        configure(inner, settings)
        if kind == "GPT2Tokenizer" and not (folder / JSON).exists():
            add_around(inner, settings)
        return inner


def must_be_readable(folder: Path) -> None:
    """Refuse a folder whose tokenizer has a format that regard does not read."""
    if models := sorted(path.name for path in folder.glob("*.model")):
        raise RegardError(
            f"{folder}: regard does not read the tokenizer format of {models[0]}; create {JSON} "
            "by AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
        )


def whole_class(settings: TokenizerSettings) -> str:
    """Return the tokenizer class that a folder names, or "" to use ``tokenizer.json`` unchanged.

    Raises: an unknown class, which may override the file.
    """
    if settings.implied or settings.name in (*PLAIN, *AROUND):
        return ""
    if settings.name in CLASSES:
        return settings.name
    raise RegardError(
        f"{settings.source}: tokenizer_class={settings.name!r} is not supported; set it to "
        f"PreTrainedTokenizerFast to use {JSON} as it is"
    )


def _class_of(settings: TokenizerSettings, files: str, *known: str) -> str:
    """Return one of the known classes, by default the first."""
    if settings.name in known:
        return settings.name
    if settings.name in PLAIN:
        return known[0]
    raise RegardError(
        f"{settings.source}: tokenizer_class={settings.name!r} is not supported with {files}, "
        f"which regard reads as {' or '.join(known)}; create {JSON} by "
        "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
    )


class Switch(NamedTuple):
    """A key of a tokenizer class, the attribute that it sets in a part, and its default."""

    key: str
    where: str
    part: str
    attribute: str
    default: bool | None


#: The keys of BERT's tokenizers and of byte pair tokenizers.
OF_PIECES = (
    Switch("do_lower_case", "normalizer", "BertNormalizer", "lowercase", True),
    Switch("strip_accents", "normalizer", "BertNormalizer", "strip_accents", None),
    Switch("tokenize_chinese_chars", "normalizer", "BertNormalizer", "handle_chinese_chars", True),
)
OF_PAIRS = (Switch("add_prefix_space", "pre_tokenizer", "ByteLevel", "add_prefix_space", False),)


def configure(inner: Any, settings: TokenizerSettings) -> None:
    """Apply the keys of BERT's, RoBERTa's and GPT-2's tokenizers to a tokenizer.

    Symbols without a key are unchanged. Raises: a key, or its default, that contradicts the
    tokenizer.
    """
    inner.encode_special_tokens = bool(settings.flag("split_special_tokens", False))
    kind = CLASSES.get(settings.name)
    for switch in () if kind is None else OF_PIECES if kind is BERT else OF_PAIRS:
        turn(inner, settings, switch)
    given = {*settings.values}
    if kind is BERT and "unk_token" in given:
        inner.model.unk_token = settings.role("unk_token")
    if kind in (BERT, ROBERTA) and {"cls_token", "sep_token"} & given:
        first, last = settings.role("cls_token"), settings.role("sep_token")
        if first is None or last is None:
            raise RegardError(
                f"{settings.folder}: {settings.name} needs a cls_token and a sep_token, not null"
            )
        framed(inner, first, last, twice=kind is ROBERTA)


def turn(inner: Any, settings: TokenizerSettings, switch: Switch) -> None:
    """Set one attribute of a tokenizer's part. Raises: no such part; another default."""
    key, part = switch.key, _part(getattr(inner, switch.where), switch.part)
    advice = f"set tokenizer_class to PreTrainedTokenizerFast to use {JSON} as it is"
    if part is None:
        if key in settings.values or not settings.implied:
            shown = f"{key}={settings.flag(key, switch.default)}"
            raise RegardError(
                f"{settings.source}: {shown} does not fit {JSON}, which has no {switch.part}; "
                f"{advice}"
            )
    elif key in settings.values:
        setattr(part, switch.attribute, settings.flag(key, None))
    elif (value := getattr(part, switch.attribute)) != switch.default:
        raise RegardError(
            f"{settings.folder / JSON} has {switch.attribute}={value}, but {settings.name} of "
            f"transformers takes {key}={switch.default} unless {settings.source.name} names "
            f"another; write {key} there, or {advice}"
        )


def _part(whole: Any, kind: str) -> Any:
    """Return the part of a normaliser or a pre-tokenizer that is of this kind, or None."""
    parts = whole if type(whole).__name__ == "Sequence" else [whole]
    return next((part for part in parts if type(part).__name__ == kind), None)


def add_around(inner: Any, settings: TokenizerSettings) -> None:
    """Add GPT-2's start and end tokens if add_bos_token and add_eos_token are set."""
    from tokenizers import processors

    before = ["bos_token"] if settings.flag("add_bos_token", False) else []
    after = ["eos_token"] if settings.flag("add_eos_token", False) else []
    names = [[settings.role(key) for key in keys] for keys in (before, after)]
    every = {str(name) for side in names for name in side}
    inner.post_processor = processors.TemplateProcessing(
        single=[*names[0], "$A", *names[1]],
        pair=[*names[0], "$A", *names[1], *names[0], "$B:1", *names[1]],
        special_tokens=[(name, inner.token_to_id(name)) for name in sorted(every)],
    )


def text_of(path: Path) -> str:
    """Return the text of a UTF-8 file. Raises: too large; not UTF-8."""
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


def word_pieces(folder: Path, settings: TokenizerSettings) -> Any:
    """Return BERT's tokenizer: the longest pieces first. Devlin et al. 2019, section 3."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    ids = {word: number for number, word in enumerate(lines_of(folder / LIST))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=settings.role("unk_token") or "[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def tokenizer_files(
    inner: Any, *, length: int, roles: Mapping[str, Any] | None = None
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


def with_ends(tokenizer: OwnTokenizer, names: Sequence[str]) -> Any:
    """Return regard's tokenizer with additional tokens, as in a run: the end, the mask, ….

    Raises: one of them is already in the vocabulary.
    """
    if clash := sorted(set(names) & set(tokenizer.vocabulary)):
        raise RegardError(f"{clash[0]!r} is already in the vocabulary")
    return extended(json.loads(tokenizer.to_bytes()), tokenizer.kind, names)


def extended(content: dict[str, Any], kind: str, names: Sequence[str]) -> Any:
    """Return the tokenizer of a ``tokenizer.json`` of regard's with additional tokens.

    Characters are joined without spaces when decoding; words keep the default, with spaces.
    """
    import tokenizers

    if kind == "characters":
        content["decoder"] = {"type": "Fuse"}
    result = tokenizers.Tokenizer.from_str(json.dumps(content))
    result.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in names])
    return result


def framed(inner: Any, first: str, last: str, *, twice: bool = False) -> Any:
    """Make a tokenizer add a symbol before the first text, and one after each text.

    Devlin et al. 2019, figure 2: [CLS] one [SEP] two [SEP]. ``twice``: RoBERTa's, with two between
    texts, and one type for both.
    """
    from tokenizers import processors

    second = f"{last} $B {last}" if twice else f"$B:1 {last}:1"
    inner.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {second}",
        special_tokens=[(name, inner.token_to_id(name)) for name in {first, last}],
    )
    return inner
