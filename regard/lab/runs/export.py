"""Export a run in the format of Hugging Face, sentence-transformers, Marian, CTranslate2, ONNX."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn

from regard.core.errors import RegardError, look_up
from regard.interop.card import USES, Card
from regard.interop.ctranslate2 import save_ctranslate2
from regard.interop.huggingface import layout_for, save
from regard.interop.marian import save_translator
from regard.interop.tokenizer_files import framed, with_ends
from regard.lab.data.tokenizers import Tokenizer
from regard.lab.runs.onnx_folder import save_onnx
from regard.lab.runs.run import Run
from regard.lab.runs.sentence_folder import save_sentences
from regard.nn.layers import special_tokens
from regard.nn.models.classifiers import BERTClassifier
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer

END = "</s>"


class Exported(NamedTuple):
    """The folder that was written and the call that loads it."""

    folder: Path
    load: str


def export(run: Run, to: str, folder: Path | str, *, quantization: str = "float32") -> Exported:
    """Write a completed run as a folder for another program; nothing is overwritten.

    ``to``: a name in `TARGETS`. "huggingface" exports GPT, BERT and T5 in their own formats, and a
    Transformer as Marian (norm=post) or Pegasus (norm=pre); "onnx" exports every network;
    "sentence-transformers" an encoder with a layer for labels. ``quantization``: for CTranslate2,
    and int8 for ONNX. The model card has the training data and the metrics on the test split, which
    a network in int8 that labels texts answers again.

    Raises: `RegardError`: a run that is not complete; a model or setting that the format does not
    support.
    """
    write = look_up(TARGETS, to, "target")
    numbers = {"ctranslate2": "", "onnx": "float32 or int8"}.get(to, "float32")
    if numbers and quantization not in numbers.split(" or "):
        raise RegardError(
            f"quantization={quantization}: {to} supports only {numbers}; ctranslate2 supports more"
        )
    if run.config.entry.baseline and (to, run.config.model) != (
        "sentence-transformers",
        "sentence",
    ):
        raise RegardError(
            f"{run.config.model} is a baseline without a network; only networks can be exported"
        )
    return write(run, Path(folder), quantization)


def card_of(run: Run) -> Card:
    """Return the model card of a run: data, metrics on the test split and training."""
    config = run.config
    trained = {"task": config.task, **config.data.model_dump(mode="json")}
    trained |= {key: _names(trained[key]) for key in FILES if trained.get(key)}
    settings = {key: value for key, value in trained.items() if not _unset(value) and key != HOME}
    training = config.training.model_dump(mode="json")
    metrics = {key: shown(value) for key, value in run.evaluate().json().items()}
    notes = (
        f"Trained by {training['optimizer']} with seed {training['seed']}, learning rate "
        f"{training['learning_rate']}.",
        *(f"{note.capitalize()}." for note in run.notes),
    )
    return Card(f"{config.model} on {config.task}", settings, metrics, notes)


#: Paths are private: the card shows file names only.
HOME, FILES = "data_dir", ("data", "test", "target", "texts", "without")


def _unset(value: object) -> bool:
    """Return whether a setting is unset: an empty text, or 0."""
    return value == "" or (type(value) is int and value == 0)


def shown(value: object) -> object:
    """Format a number with six significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else value


def to_huggingface(run: Run, folder: Path, quantization: str) -> Exported:
    """Export a GPT, BERT, T5 or Transformer."""
    model, settings = run.network, run.config.network
    if isinstance(model, Transformer):
        return translator(run, folder, "")
    if isinstance(model, BERTClassifier):
        raise RegardError(
            f"classifiers of transformers read the state of [CLS], {run.config.model} the mean of "
            "all states; export with --to sentence-transformers, which supports it"
        )
    if not hasattr(model, "embedding") or hasattr(model, "body"):
        raise RegardError(
            f"Hugging Face has no format for {run.config.model} on {run.config.task}; export a "
            "pretrained gpt, bert or t5, or a transformer for translation"
        )
    layout = layout_for(settings)
    tokenizer: Tokenizer = run.task.tokenizer
    words = int(model.embedding.weight.shape[0])  # type: ignore[union-attr, index]
    names = ends(tokenizer, words)
    inner = with_ends(tokenizer, names)
    roles = {"pad_token": tokenizer.vocabulary[0], "unk_token": tokenizer.vocabulary[1]}
    config: dict[str, Any] = {"pad_token_id": 0}
    if layout.kind == "bert":
        roles |= {"mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        inner = framed(inner, "[CLS]", "[SEP]")
    else:
        end = run.task.end
        roles["eos_token"], config["eos_token_id"] = names[end - len(tokenizer)], end
    if layout.kind == "gpt":  # in concatenated texts, each one starts after an end symbol
        config["bos_token_id"] = config["eos_token_id"] if run.task.context else None
    save(model, settings, folder, tokenizer=inner, roles=roles, card=card_of(run), config=config)
    loader, _ = USES[layout.config_of(settings, words)["architectures"][0]]
    return Exported(folder, f"{loader}.from_pretrained({str(folder)!r}) of transformers")


def ends(tokenizer: Tokenizer, vocabulary: int) -> list[str]:
    """Return the names of the symbols that a task adds to the tokenizer's tokens."""
    more = vocabulary - len(tokenizer)
    if more < special_tokens.COUNT:
        return [END][:more]
    return [*special_tokens.NAMES, *(f"<extra_id_{i}>" for i in range(more - special_tokens.COUNT))]


def translator(run: Run, folder: Path, layout: str) -> Exported:
    """Export a Transformer in a format of Hugging Face's translation models."""
    model, settings = transformer(run)
    tokenizer = run.task.tokenizer
    save_translator(model, settings, folder, tokenizer=tokenizer, card=card_of(run), layout=layout)
    what = f"AutoModelForSeq2SeqLM.from_pretrained({str(folder)!r}) of transformers"
    return Exported(folder, what)


def to_ctranslate2(run: Run, folder: Path, quantization: str) -> Exported:
    """Export a Transformer for CTranslate2."""
    model, settings = transformer(run)
    save_ctranslate2(model, settings, folder, run.task.tokenizer, quantization=quantization)
    return Exported(folder, f"ctranslate2.Translator({str(folder)!r})")


def to_onnx(run: Run, folder: Path, quantization: str) -> Exported:
    """Export a network as ONNX graphs."""
    save_onnx(run, folder, card_of, int8=quantization == "int8")
    return Exported(folder, f"onnxruntime, by the script in {folder / 'README.md'}")


def to_sentence_transformers(run: Run, folder: Path, quantization: str) -> Exported:
    """Export an encoder with a layer for labels."""
    save_sentences(run, folder, card_of(run))
    return Exported(folder, f"SentenceTransformer({str(folder)!r}) of sentence_transformers")


def transformer(run: Run) -> tuple[Transformer, TransformerSettings]:
    """Return the Transformer of a run and its settings. Raises: another model."""
    model: nn.Module = run.network
    symbols = run.task.sizes["vocabulary"] - len(run.task.tokenizer)  # those formats have one
    if not isinstance(model, Transformer) or symbols != 1:
        raise RegardError(
            f"{run.config.model} on {run.config.task} is not a Transformer that writes one text "
            "for another; Marian's format and CTranslate2 support no other model"
        )
    return model, cast(TransformerSettings, run.config.network)


#: The export function of each target.
TARGETS: Mapping[str, Callable[[Run, Path, str], Exported]] = {
    "huggingface": to_huggingface,
    "sentence-transformers": to_sentence_transformers,
    "marian": lambda run, folder, _: translator(run, folder, "marian"),  # norm=post
    "ctranslate2": to_ctranslate2,
    "onnx": to_onnx,
}


def _names(files: str) -> str:
    return ",".join(Path(file.strip()).name for file in files.split(","))
