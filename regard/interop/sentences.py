"""Encode texts as vectors, as sentence-transformers, model2vec and wordllama do.

encoder = load("sentence-transformers/all-MiniLM-L6-v2")      # or a folder
vectors = encoder.encode(["A fine film.", "A dull one."])     # (2, 384)
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.reading import parse_json, parse_tensors, read_bytes, read_json
from regard.interop import folder, huggingface
from regard.interop.names import take
from regard.interop.tokenizer_files import JSON, panics, read_tokenizer, text_of
from regard.nn.layers.device import device_of
from regard.nn.layers.pooling import FirstPool, LastPool, MaxPool, MeanPool
from regard.nn.models.bert import BERT
from regard.training.batches import TOKENS, pad, sorted_batches

MODULES, SENTENCE, PROMPTS = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
LARGEST_WIDTH = 65_536
#: Keys of a pooling layer that choose a mode, from before ``pooling_mode``; in order of the vector.
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
#: The activations of a dense layer, by their class in torch.
ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Identity)
}


class WeightedMeanPool(nn.Module):
    """Σ i·xᵢ / Σ i: later tokens weigh more. Muennighoff 2022, "SGPT", equation 2."""

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"], first: int = 1
    ) -> Float[Tensor, "batch width"]:
        """Return the weighted mean of each text's vectors; the weights begin at ``first``."""
        weights = torch.arange(first, first + x.shape[1], device=x.device, dtype=x.dtype)
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        share = weights * inside
        return torch.einsum("bt,btw->bw", share / share.sum(1, keepdim=True).clamp(min=1e-9), x)


class RootMeanPool(MeanPool):
    """Σ xᵢ / √n."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the sum of each text's vectors over the root of their number."""
        mean: Tensor = super().forward(x, lengths)
        return mean * lengths.to(x.dtype).sqrt()[:, None]


POOLS: Mapping[str, type[nn.Module]] = {
    "cls": FirstPool,
    "max": MaxPool,
    "mean": MeanPool,
    "mean_sqrt_len_tokens": RootMeanPool,
    "weightedmean": WeightedMeanPool,
    "lasttoken": LastPool,
}


class Pool(nn.Module):
    """One or several pools side by side; without ``prompt`` the prompt's states are left out."""

    def __init__(self, modes: Sequence[str] = ("mean",), *, prompt: bool = True) -> None:
        super().__init__()
        self.modes, self.prompt = tuple(modes), prompt
        self.pools = nn.ModuleList(POOLS[mode]() for mode in modes)

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"], before: int = 0
    ) -> Float[Tensor, "batch pooled"]:
        """Return one vector for each text; ``before``: the number of its prompt's tokens."""
        skip = 0 if self.prompt else before
        x, lengths = x[:, skip:], (lengths - skip).clamp(min=0)
        return torch.cat(
            [
                pool(x, lengths, skip + 1)
                if isinstance(pool, WeightedMeanPool)
                else pool(x, lengths)
                for pool in self.pools
            ],
            dim=-1,
        )


class Normalized(nn.Module):
    """x / ‖x‖."""

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Return vectors of length 1; zeros stay zeros."""
        return F.normalize(x, dim=-1)


class Dense(nn.Module):
    """activation(W x + b), plus x (or a projection of it) if it is residual."""

    def __init__(self, width: int, out: int, bias: bool, activation: nn.Module, residual: bool):
        super().__init__()
        self.linear = nn.Linear(width, out, bias=bias)
        self.activation = activation
        self.adds = residual
        self.residual = nn.Linear(width, out, bias=False) if residual and width != out else None

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed vectors."""
        result: Tensor = self.activation(self.linear(x))
        if self.adds:
            result = result + (x if self.residual is None else self.residual(x))
        return result


class StaticTable(nn.Module):
    """One fixed vector for each token."""

    def __init__(self, table: Float[Tensor, "words width"]) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(table)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """Return the vector of each token."""
        vectors: Tensor = self.embedding(tokens)
        return vectors


@dataclass(frozen=True)
class Reading:
    """A tokenizer and the limits of a text.

    ``length``: maximum tokens, added symbols included; None: no limit. ``around``: whether the
    tokenizer adds its symbols. ``characters``: maximum characters. ``dropped``: a token to remove.
    """

    tokenizer: Any
    length: int | None = None
    around: bool = True
    characters: int | None = None
    dropped: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's tokens."""
        # A command line can hold unpaired surrogates, which are not valid UTF-8.
        cut = [text[: self.characters].encode(errors="replace").decode() for text in texts]
        if self.length is None:
            self.tokenizer.no_truncation()
        else:
            self.tokenizer.enable_truncation(self.length)
        self.tokenizer.no_padding()
        with panics("cannot tokenize a text"):
            encodings = self.tokenizer.encode_batch_fast(cut, add_special_tokens=self.around)
        return [[i for i in encoding.ids if i != self.dropped] for encoding in encodings]

    def windows(self, texts: Sequence[str], prompt: str) -> list[list[tuple[str, int]]]:
        """Return the parts of each text that fit beside the prompt, with their tokens."""
        if self.length is None:
            return [[(text, 1)] for text in texts]
        around = self.tokenizer.num_special_tokens_to_add(is_pair=False) if self.around else 0
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        plain = [text.encode(errors="replace").decode() for text in texts]
        with panics("cannot tokenize a text"):
            prompted = len(self.tokenizer.encode(prompt, add_special_tokens=False).ids)
            encodings = self.tokenizer.encode_batch(plain, add_special_tokens=False)
        room = max(1, self.length - around - prompted)
        parts = []
        for text, encoding in zip(plain, encodings, strict=True):
            count = len(encoding.ids)
            begins = [encoding.offsets[i][0] for i in range(room, count, room)]
            tokens = [min(room, count - i) for i in range(0, count, room)] or [1]
            spans = zip([0, *begins], [*begins, len(text)], tokens, strict=True)
            parts.append([(text[begin:end], many) for begin, end, many in spans])
        return parts

    def begins(self, prompt: str) -> int:
        """Return the number of tokens of a prompt with the symbol before it."""
        if not prompt:
            return 0
        (whole,) = self.tokens([prompt])
        with panics("cannot tokenize a prompt"):
            marks = self.tokenizer.encode(prompt, add_special_tokens=self.around)
        ends = marks.special_tokens_mask[-1:] == [1]
        return len(whole) - (1 if ends else 0)


class SentenceEncoder(nn.Module):
    """Texts → tokens → states → one vector for each text.

    The ``body`` maps (tokens, lengths) to states, the ``pool`` reduces these to a vector, and each
    of ``stages`` transforms it. Reimers and Gurevych 2019, figure 2.
    """

    def __init__(
        self,
        body: nn.Module,
        reading: Reading,
        pool: Pool | None = None,
        stages: Sequence[nn.Module] = (),
        *,
        sha256: str = "",
        settings: object = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.body, self.reading = body, reading
        self.pool = pool or Pool()
        self.stages = nn.ModuleList(stages)
        self.sha256 = sha256

    @cached_property
    def fingerprint(self) -> str:
        """Return a sha256 over all that a vector depends on.

        That is the weights and settings of the body, the tokenizer, the pool and the stages.
        """
        reading, pool = self.reading, self.pool
        tokenizer = parse_json(reading.tokenizer.to_str(), "the tokenizer")
        for key in ("truncation", "padding"):  # set anew before each use
            tokenizer.pop(key, None)
        limits = (reading.length, reading.around, reading.characters, reading.dropped)
        adds = [getattr(stage, "adds", None) for stage in self.stages]
        described = [self.sha256, limits, reading.prompt, pool.modes, pool.prompt, str(self.stages)]
        described.append(repr(self.settings))
        total = hashlib.sha256(repr([*described, adds, tokenizer]).encode(errors="replace"))
        for name, x in sorted(self.stages.state_dict().items()):
            total.update(name.encode() + x.float().cpu().numpy().tobytes())
        return total.hexdigest()

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return device_of(self)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], before: int = 0
    ) -> Float[Tensor, "batch width"]:
        """Return the vector of each text; ``before``: the number of its prompt's tokens."""
        padded = bool((lengths < tokens.shape[1]).any())
        vectors = self.pool(self.body(tokens, lengths if padded else None), lengths, before)
        for stage in self.stages:
            vectors = stage(vectors)
        result: Tensor = vectors
        return result

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        windows: bool = False,
        tokens: int = TOKENS,
    ) -> Float[np.ndarray, "texts width"]:
        """Return one float32 vector for each text.

        Longer texts are truncated; with ``windows`` they are divided, and get the mean of the
        vectors of their parts, weighted by the numbers of tokens. ``prompt`` is prepended to each
        text; by default the encoder's own, if it has one. ``tokens``: maximum tokens of a batch,
        padding included; batches change a vector only by rounding.

        Raises: `RegardError`: no texts.

        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = Tokenizer(models.WordLevel({"fine": 0, "film": 1, "?": 2}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> table = StaticTable(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        >>> SentenceEncoder(table, Reading(words)).encode(["fine film", "film"]).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
        """
        if not texts:
            raise RegardError("there are no texts to encode; give at least one")
        before = self.reading.prompt if prompt is None else prompt
        if windows:
            parts = self.reading.windows(texts, before)
            pieces = [piece for text in parts for piece, _ in text]
            shares = [many / sum(n for _, n in text) for text in parts for _, many in text]
            weighted = self.encode(pieces, prompt=prompt, tokens=tokens) * np.array(shares)[:, None]
            starts = np.cumsum([0, *(len(text) for text in parts[:-1])])
            return np.asarray(np.add.reduceat(weighted, starts), dtype=np.float32)
        rows = self.reading.tokens([before + text for text in texts] if before else texts)
        begins = 0 if self.pool.prompt else self.reading.begins(before)
        plan = sorted_batches([len(row) for row in rows], self.device.type, tokens=tokens)
        self.eval()
        with torch.inference_mode():
            vectors = [self._vectors([rows[i] for i in batch], begins) for batch in plan]
        return np.concatenate(vectors)[np.argsort(np.concatenate(plan))]

    def _vectors(self, rows: Sequence[Sequence[int]], before: int) -> NDArray[np.float32]:
        tokens, lengths = pad(rows)
        vectors = self(tokens.to(self.device), lengths.to(self.device), before)
        return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)


def load(source: Path | str, *, revision: str | None = None) -> SentenceEncoder:
    """Return the encoder of a folder, or of a name on the hub, as sentence-transformers reads it.

    It reads ``modules.json`` with a BERT, RoBERTa or DistilBERT or a table of vectors, poolings,
    dense layers and normalisation, prompts and the longest length; a model without
    ``modules.json`` gets the mean of its states. The vectors are those of sentence-transformers,
    up to the rounding of float32.

    Raises: `RegardError`: no such folder or name; a module or a model that regard does not have;
    pickles; damaged files; tensors that do not fit.
    """
    place = folder.locate(source, revision)
    if not (place / MODULES).exists():
        return _of_modules(place, [("Transformer", ""), ("Pooling", None)])
    return _of_modules(place, _modules(place))


def load_static(source: Path | str, *, revision: str | None = None) -> SentenceEncoder:
    """Return a table of static vectors, read as its own library does: the mean over a text.

    `source` is a folder or a name on the hub of model2vec (unknown tokens are left out, texts are
    cut at its longest length) or of sentence-transformers' StaticEmbedding; ``wordllama``, the
    vectors of that package where it is installed; or a folder with wordllama's ``weights`` and
    ``tokenizers``, of which the widest vectors are taken. The vector of a text without tokens is
    zero.

    Raises: `RegardError`: no such folder or name; not static vectors; a table that is smaller than
    its tokenizer; damaged files.
    """
    if str(source) == "wordllama" and not Path(source).is_dir():
        package = find_spec("wordllama")
        if package is None or not package.origin:
            raise RegardError("the package wordllama is not installed: pip install wordllama")
        return _wordllama(Path(package.origin).parent)
    place = folder.locate(source, revision)
    if (place / "weights").is_dir() and (place / "tokenizers").is_dir():
        return _wordllama(place)
    if (place / folder.CONFIG).exists() and (place / JSON).exists():
        config = read_json(place / folder.CONFIG)
        if config.get("model_type") not in huggingface.LAYOUTS:
            return _model2vec(place, config)
    if (place / MODULES).exists() and _modules(place)[0][0] == "StaticEmbedding":
        return load(place)
    raise RegardError(
        f"{source} has no static vectors; give a folder of model2vec, of sentence-transformers' "
        "StaticEmbedding or of wordllama, or use sentence:weights= for an encoder"
    )


def _of_modules(place: Path, modules: Sequence[tuple[str, str | None]]) -> SentenceEncoder:
    """Return the encoder of a chain of modules, each a type and its folder."""
    (first, where), *others = modules
    prompts = read_json(place / PROMPTS) if (place / PROMPTS).exists() else {}
    texts = prompts.get("prompts") or {}
    if not isinstance(texts, dict) or not all(isinstance(x, str) for x in texts.values()):
        raise RegardError(f"{place / PROMPTS} is damaged: prompts is not a table of texts")
    name = prompts.get("default_prompt_name")
    if name is not None and name not in texts:
        raise RegardError(f"{place / PROMPTS}: default_prompt_name={name!r} is not in prompts")
    asked: dict[str, Any] = {
        "prompts": texts,
        "prompt": "" if name is None else texts[name],
    }
    inside, settings = place / (where or ""), None
    if first == "StaticEmbedding":
        table = _table(inside, folder.read_tensors(inside))
        body: nn.Module = StaticTable(table)
        tokenizer = _tokenizer(inside / JSON, len(table))
        length = (tokenizer.truncation or {}).get("max_length")
        reading = Reading(tokenizer, length, around=False, **asked)
    elif first == "Transformer":
        body, reading, settings = _transformer(inside, asked)
    else:
        raise RegardError(f"{place / MODULES} begins with the unsupported module {first!r}")
    stages: list[nn.Module] = [Pool()] if first == "StaticEmbedding" else []
    for kind, path in others:
        stages += _stage(kind, None if path is None else place / path)
    if (
        not stages
        or not isinstance(stages[0], Pool)
        or any(isinstance(x, Pool) for x in stages[1:])
    ):
        raise RegardError(f"{place / MODULES} must have one pooling, right after the transformer")
    return SentenceEncoder(
        body, reading, stages[0], stages[1:], sha256=folder.digest(inside), settings=settings
    ).eval()


def _modules(place: Path) -> list[tuple[str, str | None]]:
    """Return the modules of ``modules.json``: the last part of each type, and its folder.

    Raises: not a list of modules; a folder outside the model's.
    """
    rows = parse_json(read_bytes(place / MODULES), place / MODULES)
    try:
        modules = [(str(row["type"]).rpartition(".")[2], str(row["path"])) for row in rows]
    except (TypeError, LookupError):
        modules = []
    if not modules:
        raise RegardError(f"{place / MODULES} is damaged: not a list of modules with type and path")
    for _, path in modules:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise RegardError(f"{place / MODULES} names {path!r}, outside of its folder")
    return modules  # type: ignore[return-value]


def _transformer(place: Path, asked: Mapping[str, Any]) -> tuple[BERT, Reading, object]:
    """Return an encoder without heads, how its texts become tokens, and its settings."""
    config = huggingface.complete(read_json(place / folder.CONFIG), place)
    layout, settings, words = huggingface.described(place, config, {})
    if layout.kind != "bert":
        raise RegardError(
            f"{place} is a {config['model_type']}; regard encodes texts with BERT, RoBERTa and "
            "DistilBERT"
        )
    body = BERT(settings, words, heads=False)
    names = dict(body.named_parameters())
    tensors = take(
        layout.rows(settings), layout.tidy(config, folder.read_tensors(place)), str(place)
    )
    huggingface.put(body, {name: x for name, x in tensors.items() if name in names}, str(place))
    tokenizer = read_tokenizer(place)
    if tokenizer is None:
        raise RegardError(f"{place} has no tokenizer; save the model's own next to it")
    must_fit(tokenizer, words, place)
    chosen: dict[str, Any] = {}
    for path in sorted(place.glob("sentence_*_config.json")):
        chosen = read_json(path)
    length = chosen.get("max_seq_length")
    if length is None:
        kept = place / "tokenizer_config.json"
        length = read_json(kept).get("model_max_length") if kept.exists() else None
    if length is not None and (not isinstance(length, int | float) or length < 3):
        raise RegardError(f"{place}: the longest length is {length!r}; at least 3 is needed")
    length = int(min(settings.length, settings.length if length is None else length))
    if chosen.get("do_lower_case"):
        _lower(tokenizer)
    return body, Reading(tokenizer, length, **asked), settings


def _lower(tokenizer: Any) -> None:
    """Make a tokenizer read texts in lower case."""
    from tokenizers import normalizers

    others = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])


def _stage(kind: str, place: Path | None) -> list[nn.Module]:
    """Return the layers of a module after the first. Raises: an unsupported one."""
    config: dict[str, Any] = {}
    if place is not None and (place / folder.CONFIG).exists():
        config = read_json(place / folder.CONFIG)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise RegardError(f"{place}: {key}={config[key]!r} is not supported")
    if kind == "Pooling":
        modes = config.get("pooling_mode") or [m for key, m in OLD_MODES.items() if config.get(key)]
        modes = [modes] if isinstance(modes, str) else list(modes) or ["mean"]
        if unknown := [mode for mode in modes if mode not in POOLS]:
            raise RegardError(
                f"{place}: the pooling {unknown[0]!r} is not one of {', '.join(POOLS)}"
            )
        return [Pool(modes, prompt=bool(config.get("include_prompt", True)))]
    if kind == "Normalize":
        return [Normalized()]
    if kind == "Dropout":  # does nothing outside training
        return []
    assert place is not None
    if kind == "LayerNorm":
        tensors = folder.read_tensors(place)
        _must_have(tensors, place, "norm.weight", "norm.bias")
        norm = nn.LayerNorm(len(tensors["norm.weight"]))
        huggingface.put(norm, {k.removeprefix("norm."): x for k, x in tensors.items()}, str(place))
        return [norm]
    if kind == "Dense":
        return [_dense(place, config)]
    raise RegardError(
        f"{place}: the module {kind!r} is not supported; regard reads Transformer, "
        "StaticEmbedding, Pooling, Dense, LayerNorm, Normalize and Dropout"
    )


def _dense(place: Path, config: Mapping[str, Any]) -> Dense:
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if name not in ACTIVATIONS:
        known = ", ".join(kind.__name__ for kind in ACTIVATIONS.values())
        raise RegardError(f"{place}: activation_function={name!r} is not supported; it has {known}")
    tensors = folder.read_tensors(place)
    _must_have(tensors, place, "linear.weight")
    out, width = tensors["linear.weight"].shape
    residual = bool(config.get("use_residual"))
    bias = "linear.bias" in tensors
    layer = Dense(int(width), int(out), bias, ACTIVATIONS[name](), residual)
    left = huggingface.put(layer, {k: x.float() for k, x in tensors.items()}, str(place))
    if left:
        raise RegardError(f"{place} has no tensor {left[0]}")
    return layer


def _must_have(tensors: Mapping[str, Tensor], place: Path, *names: str) -> None:
    for name in names:
        if name not in tensors or not tensors[name].dim():
            raise RegardError(f"{place} has no tensor {name}; it has {', '.join(sorted(tensors))}")


def _table(place: Path, tensors: Mapping[str, Tensor]) -> Float[Tensor, "words width"]:
    """Return one vector for each token id, from sentence-transformers' or model2vec's tensors.

    With a ``mapping``, token i has row mapping[i] of the embeddings, times ``weights[i]``.
    """
    name = "embedding.weight" if "embedding.weight" in tensors else "embeddings"
    _must_have(tensors, place, name)
    table = tensors[name].float()
    if table.dim() != 2 or table.shape[1] > LARGEST_WIDTH:
        raise RegardError(f"{place}: {name} has the shape {tuple(table.shape)}, not (words, width)")
    mapping, weights = tensors.get("mapping"), tensors.get("weights")
    if mapping is not None:
        if mapping.dim() != 1 or mapping.min() < 0 or mapping.max() >= len(table):
            raise RegardError(f"{place}: mapping does not fit the {len(table):,} vectors")
        table = table[mapping.long()]
    if weights is not None:
        if weights.shape != table.shape[:1]:
            raise RegardError(f"{place}: weights does not fit the {len(table):,} vectors")
        table = table * weights.float()[:, None]
    return table.contiguous()


def _tokenizer(path: Path, words: int) -> Any:
    """Return the tokenizer of one file. Raises: damaged; more tokens than vectors."""
    import tokenizers

    with panics(f"{path}: the tokenizer is damaged"):
        tokenizer = tokenizers.Tokenizer.from_str(text_of(path))
    must_fit(tokenizer, words, path)
    return tokenizer


def must_fit(tokenizer: Any, words: int, source: Path) -> None:
    """Refuse a tokenizer with ids beyond the model's words."""
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise RegardError(f"{source}: the tokenizer has no tokens")
    if max(ids) >= words:
        raise RegardError(
            f"{source}: the tokenizer has token {max(ids):,}, but the model only {words:,} words; "
            "they do not match"
        )


def _model2vec(place: Path, config: Mapping[str, Any]) -> SentenceEncoder:
    """Return model2vec's static vectors. Source: StaticModel.encode of model2vec 0.10."""
    table = _table(place, folder.read_tensors(place))
    tokenizer = _tokenizer(place / JSON, len(table))
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    length = config.get("max_length", 512)
    if length is not None and (not isinstance(length, int) or length < 1):
        raise RegardError(
            f"{place / folder.CONFIG}: max_length={length!r} is not a number of tokens"
        )
    unknown = getattr(tokenizer.model, "unk_token", None)
    reading = Reading(
        tokenizer,
        length,
        around=False,
        characters=None if length is None else length * int(median(map(len, vocabulary))),
        dropped=vocabulary.get(unknown) if unknown else _unknown_id(tokenizer),
    )
    stages = [Normalized()] if config.get("normalize") else []
    return SentenceEncoder(StaticTable(table), reading, Pool(), stages, sha256=folder.digest(place))


def _unknown_id(tokenizer: Any) -> int | None:
    """Return the id of a Unigram model's unknown token."""
    model = parse_json(tokenizer.to_str(), "the tokenizer")["model"]
    number = model.get("unk_id")
    return number if isinstance(number, int) else None


def _wordllama(place: Path) -> SentenceEncoder:
    """Return the widest vectors of wordllama's folder. Source: WordLlamaInference of 0.4."""
    widths = {
        int(path.stem.rpartition("_")[2]): path
        for path in (place / "weights").glob("*_*.safetensors")
        if path.stem.rpartition("_")[2].isdecimal()
    }
    if not widths:
        raise RegardError(f"{place / 'weights'} has no NAME_WIDTH.safetensors")
    weights = widths[max(widths)]
    name = weights.stem.rpartition("_")[0]
    table = _table(weights, parse_tensors(read_bytes(weights, folder.LARGEST), weights))
    tokenizer = _tokenizer(place / "tokenizers" / f"{name}_tokenizer_config.json", len(table))
    digest = hashlib.sha256(read_bytes(weights, folder.LARGEST)).hexdigest()
    return SentenceEncoder(
        StaticTable(table), Reading(tokenizer, around=False), sha256=digest
    ).eval()
