"""Compare regard with transformers for values of every key in the files of a model's folder.

    python -m benchmarks.config_keys --out config-keys.json

For each value a tiny model with random weights is made and saved by transformers; then the key is
written to the file and both read the folder. Logits are compared for keys of ``config.json``,
written tokens for keys of generation, token ids for keys of tokenizers. A value that transformers
itself refuses counts as refused by both, whatever regard does.
"""

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.config_values import (
    CONFIGS,
    GENERATION,
    MODELS,
    SETTINGS,
    TOKENIZERS,
    UNSET,
    copied_settings,
    write_tokenizer,
)
from benchmarks.translation_peers import quiet_transformers
from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.settings import build as build_settings
from regard.interop import huggingface, marian
from regard.interop.pretrained import Pretrained
from regard.interop.tokenizer_files import read_tokenizer
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer

CLOSE = 1e-5  # of the largest logit, or of 1
TEXTS = (
    "A good film: it's the BEST!",
    " déjà-vu 東京 <mask> [MASK] </s>",
    "<new> <extra> [CLS] good<new>film\n  two  spaces <|endoftext|>",
    "",
)


@dataclass(frozen=True)
class Row:
    """A value of a key, its outcome, and the reason or the difference."""

    family: str
    file: str
    key: str
    value: str
    outcome: str  # one of OUTCOMES
    says: str = ""


#: What becomes of a value, in the order of the table's columns.
OUTCOMES = ("equal", "refused", "transformers fails", "differs")


class TheirError(Exception):
    """transformers does not read the folder."""


def judged(
    row: tuple[str, str, str, object], theirs: Callable[[], Any], ours: Callable[[], Any]
) -> Row:
    """Return the outcome of one value; each side returns the results to compare."""
    family, file, key, value = row
    shown = "missing" if value is UNSET else json.dumps(value, ensure_ascii=False)
    given = (family, file, key, shown)
    try:
        expected = theirs()
    except TheirError as error:
        return Row(*given, "transformers fails", str(error))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = ours()
    except RegardError as error:
        return Row(*given, "refused", str(error))
    said = next((str(x.message) for x in caught if "does not know" in str(x.message)), "")
    if not isinstance(expected, Tensor):
        same = found == expected
        return Row(*given, "equal" if same else "differs", said if same else f"{found}|{expected}")
    gap = FAR if found.shape != expected.shape else float((found - expected).abs().max())
    gap /= max(1.0, float(expected.abs().max()))
    return Row(*given, "equal" if gap <= CLOSE else "differs", said or f"{gap:.1e}")


FAR = 1e9


def quietly(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call of transformers whose errors are one line each."""

    def run() -> Any:
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return call()
        except Exception as error:
            raise TheirError((str(error).strip().splitlines() or [repr(error)])[0][:120]) from None

    return run


def model_of(kind: str, **changes: Any) -> Any:
    """Return a random model of transformers, with weights away from their initial values."""
    import transformers

    config_class, model_class, base = MODELS[kind]
    config = getattr(transformers, config_class)(**{**base, **changes})
    torch.manual_seed(4)
    model = getattr(transformers, model_class)._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=0.3)
    return model.eval()


def write_key(path: Path, key: str, value: object) -> None:
    """Write a value to a JSON file, or remove the key if the value is UNSET."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content.pop(key, None)
    if value is not UNSET:
        content[key] = value
    path.write_text(json.dumps(content))


def inputs(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens (3, 9), lengths and the decoder's input."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([9, 4, 7])
    tokens = torch.randint(3, 17, (3, 9), generator=generator)
    pad = 1 if kind == "roberta" else 0
    tokens = torch.where(torch.arange(9) < lengths[:, None], tokens, pad)
    return tokens, lengths, torch.randint(1, 17, (3, 5), generator=generator)


def their_logits(kind: str, folder: Path) -> Tensor:
    """Return the logits of the words without padding, in float32."""
    import transformers

    model = getattr(transformers, MODELS[kind][1]).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )
    tokens, lengths, target = inputs(kind)
    real = torch.arange(9) < lengths[:, None]
    asked = {"input_ids": tokens, "attention_mask": real.long()}
    if kind in ("t5", "mt5", "marian"):
        logits: Tensor = model.eval()(**asked, decoder_input_ids=target).logits
        return logits.flatten()
    said = model.eval()(**asked)
    logits = said.prediction_logits if kind == "bert" else said.logits
    return logits[real].flatten()


def our_logits(kind: str, folder: Path) -> Tensor:
    """Return the same by regard. Raises: those of `load`."""
    model: Any = huggingface.load(folder).model
    tokens, lengths, target = inputs(kind)
    real = torch.arange(9) < lengths[:, None]
    with torch.no_grad():
        if kind in ("t5", "mt5"):
            return torch.as_tensor(model.to_logits(model(tokens, lengths, target))).flatten()
        return torch.as_tensor(model.to_logits(model(tokens, lengths)))[real].flatten()


def of_configs(kinds: Sequence[str]) -> Iterator[Row]:
    """Test every key of ``config.json``, in a model that is made with it if possible."""
    for kind in kinds:
        for key, values in CONFIGS[kind].items():
            for value in values:
                with tempfile.TemporaryDirectory() as place:
                    yield configured(kind, key, value, Path(place))


def configured(kind: str, key: str, value: object, folder: Path) -> Row:
    """Compare the logits of both for one value of a key of the config."""

    def theirs() -> Tensor:
        made_with(kind, key, value, folder)
        return their_logits(kind, folder)

    row = (kind, "config.json", key, value)
    return judged(row, quietly(theirs), lambda: our_logits(kind, folder))


def made_with(kind: str, key: str, value: object, folder: Path) -> None:
    """Save a model that is made with a value, or an earlier one if that is impossible."""
    try:
        model = model_of(kind, **({} if value is UNSET else {key: value}))
    except Exception:
        model = model_of(kind)
    model.save_pretrained(folder)
    write_key(folder / "config.json", key, value)


def of_generation(kinds: Sequence[str]) -> Iterator[Row]:
    """Test the keys of generation, in ``generation_config.json`` and in the config without it."""
    for kind in kinds:
        if kind not in ("gpt2", "t5"):
            continue
        with tempfile.TemporaryDirectory() as place:
            base = Path(place)
            model_of(kind, eos_token_id=2).save_pretrained(base)
            for file in ("generation_config.json", "config.json"):
                for key, values in GENERATION.items():
                    for value in values:
                        yield generated(kind, base, file, key, value)


def generated(kind: str, base: Path, file: str, key: str, value: object) -> Row:
    """Compare the generated texts for one value of a key of generation."""
    import shutil

    import transformers

    prompts = [[5, 0, 3], [4, 9]] if kind == "gpt2" else [[5, 9, 7, 1], [4, 11, 1]]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(base, Path(place) / "model"))
        if file == "config.json":
            (folder / "generation_config.json").unlink()
        if kind == "t5":
            write_key(folder / file, "decoder_start_token_id", 0)
        write_key(folder / file, key, value)

        def theirs() -> list[list[int]]:
            model = getattr(transformers, MODELS[kind][1]).from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
            ends = model.generation_config.eos_token_id
            found = []
            for prompt in prompts:
                tokens = torch.tensor([prompt])
                said = model.generate(
                    tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8,
                    do_sample=False, num_beams=1, pad_token_id=0,
                )  # fmt: skip
                said = (said if isinstance(said, Tensor) else said.sequences)[0].tolist()
                said = said[len(prompt) :] if kind == "gpt2" else said[1:]
                stops = ends if isinstance(ends, list) else [ends]
                end = next((i for i, token in enumerate(said) if token in stops), len(said))
                found.append(said[:end])
            return found

        def ours() -> list[list[int]]:
            return Pretrained(huggingface.load(folder)).go_on(prompts, most=8)

        return judged((kind, file, key, value), quietly(theirs), ours)


def of_tokenizers(kinds: Sequence[str]) -> Iterator[Row]:
    """Test the keys of tokenizers, with a list of words and with ``tokenizer.json``."""
    for kind, form in TOKENIZERS:
        if kind not in kinds:
            continue
        for file, key, values in copied_settings(kind, form):
            for value in values:
                yield tokenized(kind, form, file, key, value)


def tokenized(kind: str, form: str, file: str, key: str, value: object) -> Row:
    """Compare the ids of some texts and of a pair for one value of a key of a tokenizer."""
    import transformers

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tokenizer(kind, form, folder)
        write_key(folder / file, key, value)

        def theirs() -> list[list[int]]:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            return [tokenizer(text).input_ids for text in TEXTS] + [
                tokenizer(TEXTS[0], TEXTS[2]).input_ids
            ]

        def ours() -> list[list[int]]:
            tokenizer = read_tokenizer(folder)
            return [tokenizer.encode(text).ids for text in TEXTS] + [
                tokenizer.encode(TEXTS[0], TEXTS[2]).ids
            ]

        return judged((kind, f"{file} ({form})", key, value), quietly(theirs), ours)


def of_marian(kinds: Sequence[str]) -> Iterator[Row]:
    """Test the settings of a Transformer that is exported to Marian or Pegasus."""
    if "marian" not in kinds:
        return
    for key, values in SETTINGS.items():
        for value in values:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "out"
                given = {"width": 12, "heads": 2, "layers": 2, "feedforward": 9, key: value}
                yield exported(key, value, given, folder)


def exported(key: str, value: object, given: Mapping[str, Any], folder: Path) -> Row:
    """Compare the logits of an exported Transformer with its own."""
    import transformers

    words, (tokens, lengths, target) = 17, inputs("marian")
    target[:, 0] = 0
    real = torch.arange(9) < lengths[:, None]

    def ours() -> Tensor:
        settings = build_settings(TransformerSettings, dict(given))
        torch.manual_seed(0)
        model = Transformer(settings, words, words).eval()
        marian.save_translator(model, settings, folder)
        with torch.no_grad():
            return torch.as_tensor(model.to_logits(model(tokens, lengths, target)))

    def theirs() -> Tensor:
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        said: Tensor = model(
            input_ids=marian.to_marian(tokens, words),
            attention_mask=real.long(),
            decoder_input_ids=marian.to_marian(target, words),
        ).logits
        return said.roll(1, -1)

    try:
        mine = ours()
    except RegardError as error:
        shown = json.dumps(value)
        return Row("marian", "exported settings", key, shown, "refused", str(error))
    return judged(("marian", "exported settings", key, value), quietly(theirs), lambda: mine)


#: What is judged, by name.
PARTS = {
    "tokenizers": of_tokenizers,
    "generation": of_generation,
    "configs": of_configs,
    "marian": of_marian,
}


def table(rows: Sequence[Row]) -> list[str]:
    """Return the table in Markdown: one line for all keys and models with the same outcomes.

    A star marks a value of an unknown key, of which regard warns.
    """
    cells: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for row in rows:
        cell = cells.setdefault((row.file, row.key, row.family), {name: [] for name in OUTCOMES})
        cell[row.outcome].append(f"`{row.value}`" + ("\\*" if "does not know" in row.says else ""))
    models: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for (file, key, family), cell in cells.items():
        name, _, form = file.partition(" (")
        shown = (", ".join(cell[outcome]).replace("|", "\\|") for outcome in OUTCOMES)
        models.setdefault((name, key, *shown), {}).setdefault(form, []).append(family)
    lines: dict[tuple[str, ...], list[str]] = {}
    for (name, key, *outcomes), forms in models.items():
        of = (", ".join(names) + (form and f" ({form}") for form, names in forms.items())
        lines.setdefault((name, "; ".join(of), *outcomes), []).append(key)
    heads = ("file", "keys", "models", *OUTCOMES)
    return [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {x[0]} | {', '.join(keys)} | {' | '.join(x[1:])} |"
          for x, keys in sorted(lines.items(), key=lambda line: (line[0][0], line[1]))),
    ]  # fmt: skip


def counts(rows: Sequence[Row]) -> list[str]:
    """Return a line for each family: how many values have each outcome."""
    families = dict.fromkeys(row.family for row in rows)
    lines = [f"| model | {' | '.join(OUTCOMES)} |", "|---|" + "--:|" * len(OUTCOMES)]
    for family in families:
        own = [row.outcome for row in rows if row.family == family]
        lines.append(f"| {family} | {' | '.join(str(own.count(name)) for name in OUTCOMES)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1 where a value differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="write the rows there as JSON")
    parser.add_argument("--only", nargs="+", default=[*CONFIGS], help="some of the model types")
    parser.add_argument("--parts", nargs="+", default=[*PARTS], choices=PARTS, help="some of it")
    asked = parser.parse_args(arguments)
    transformers = quiet_transformers()
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    rows: list[Row] = []
    for part in asked.parts:
        for row in PARTS[part](asked.only):
            rows.append(row)
            if row.outcome == "differs":
                sys.stderr.write(f"differs: {row}\n")
        atomic_io.write_json(asked.out, {**versions, "rows": [asdict(row) for row in rows]})
    said = [*counts(rows), "", *table(rows), ""]
    sys.stdout.write("\n".join(said))
    return int(any(row.outcome == "differs" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
