"""A complete run as a folder of another program: Hugging Face, Marian's layout, CTranslate2."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn

from regard.data.tokenizers import Tokenizer
from regard.errors import RegardError, look_up
from regard.interop.card import USES, Card
from regard.interop.ctranslate2 import save_ctranslate2
from regard.interop.huggingface import layout_for, save
from regard.interop.marian import save_translator
from regard.interop.tokenizer_files import framed, with_ends
from regard.layers import marks
from regard.models.settings import TransformerSettings
from regard.models.transformer import Transformer
from regard.runs.run import Run
from regard.tasks.pretraining.language_modeling import LanguageModeling
from regard.tasks.writing.searching import Writes
from regard.tasks.writing.task import Sequences

END = "</s>"


class Exported(NamedTuple):
    """The folder that was written, and how it is loaded there."""

    folder: Path
    load: str


def export(run: Run, to: str, folder: Path | str, *, quantization: str = "float32") -> Exported:
    """Write a complete run as a folder that another program loads; nothing is overwritten.

    ``to``: a name of `TARGETS`. "huggingface" takes GPT, BERT and T5 in their own layouts, and a
    Transformer in Marian's (norm=post) or Pegasus' (norm=pre); ``quantization`` is CTranslate2's.
    The card says what the run was trained on and what it reached on its test split.

    Errors: `RegardError`: a run that is not complete; a model or a setting that the program has no
    place for, by its name.
    """
    write = look_up(TARGETS, to, "target")
    if quantization != "float32" and to != "ctranslate2":
        raise RegardError(f"quantization={quantization} is CTranslate2's; {to} takes float32")
    if run.config.entry.baseline:
        raise RegardError(f"{run.config.model} counts words: it has no network to export")
    return write(run, Path(folder), quantization)


def card_of(run: Run) -> Card:
    """What a run's README says: its data, its metric on the test split, its training."""
    config = run.config
    trained = {"task": config.task, **config.data.model_dump(mode="json")}
    trained |= {key: _names(trained[key]) for key in FILES if trained.get(key)}
    kept = {key: value for key, value in trained.items() if not _unset(value) and key != HOME}
    training = config.training.model_dump(mode="json")
    judged = {key: shown(value) for key, value in run.evaluate().json().items()}
    notes = (
        f"Trained by {training['optimizer']} with seed {training['seed']}, learning rate "
        f"{training['learning_rate']}.",
        *(f"{note.capitalize()}." for note in run.notes),
    )
    return Card(f"{config.model} on {config.task}", kept, judged, notes)


#: Where a user keeps data is nobody else's business: files by their names alone.
HOME, FILES = "data_dir", ("data", "test", "target", "texts", "without")


def _unset(value: object) -> bool:
    """Whether a setting says nothing: an empty text, or a count that is the data's own choice."""
    return value == "" or (type(value) is int and value == 0)


def shown(value: object) -> object:
    """A number as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else value


def to_huggingface(run: Run, folder: Path, quantization: str) -> Exported:
    """GPT, BERT, T5 or a Transformer."""
    model, settings = run.network, run.config.network
    if isinstance(model, Transformer):
        return translator(run, folder, "")
    if not hasattr(model, "embedding") or hasattr(model, "body"):
        raise RegardError(
            f"{run.config.model} on {run.config.task} is no model that Hugging Face has a layout "
            "for; gpt, bert and t5 as they are pretrained have one, and the transformer that "
            "translates"
        )
    layout = layout_for(settings)
    tokenizer: Tokenizer = run.task.tokenizer
    words = int(model.embedding.weight.shape[0])  # type: ignore[union-attr, index]
    names = ends(tokenizer, words)
    inner = with_ends(tokenizer, names)
    ids = {name: len(tokenizer) + i for i, name in enumerate(names)}
    roles = {"pad_token": tokenizer.vocabulary[0], "unk_token": tokenizer.vocabulary[1]}
    config: dict[str, Any] = {"pad_token_id": 0}
    if layout.kind == "bert":
        roles |= {"mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        inner = framed(inner, "[CLS]", "[SEP]", ids)
    else:
        end = cast(Writes[Any], run.task).end
        roles["eos_token"], config["eos_token_id"] = names[end - len(tokenizer)], end
    if layout.kind == "gpt":  # where texts stand one behind the other, one begins behind an end
        begins = isinstance(run.task, LanguageModeling)
        config["bos_token_id"] = config["eos_token_id"] if begins else None
    save(model, settings, folder, tokenizer=inner, roles=roles, card=card_of(run), config=config)
    loader, _ = USES[layout.config_of(settings, words)["architectures"][0]]
    return Exported(folder, f"{loader}.from_pretrained({str(folder)!r}) of transformers")


def ends(tokenizer: Tokenizer, vocabulary: int) -> list[str]:
    """Names of the numbers behind a tokenizer's own, as tasks give them out."""
    more = vocabulary - len(tokenizer)
    if more < marks.COUNT:
        return [END][:more]
    return [*marks.NAMES, *(f"<extra_id_{i}>" for i in range(more - marks.COUNT))]


def to_marian(run: Run, folder: Path, quantization: str) -> Exported:
    """A Transformer with norm=post, in Marian's layout."""
    return translator(run, folder, "marian")


def translator(run: Run, folder: Path, layout: str) -> Exported:
    """A Transformer in a layout of Hugging Face's translators."""
    model, settings = transformer(run)
    tokenizer = run.task.tokenizer
    save_translator(model, settings, folder, tokenizer=tokenizer, card=card_of(run), layout=layout)
    what = f"AutoModelForSeq2SeqLM.from_pretrained({str(folder)!r}) of transformers"
    return Exported(folder, what)


def to_ctranslate2(run: Run, folder: Path, quantization: str) -> Exported:
    """A Transformer, by CTranslate2's own specification."""
    model, settings = transformer(run)
    save_ctranslate2(model, settings, folder, run.task.tokenizer, quantization=quantization)
    return Exported(folder, f"ctranslate2.Translator({str(folder)!r})")


def transformer(run: Run) -> tuple[Transformer, TransformerSettings]:
    """The network of a run that translates, and its settings. Errors: it is another model."""
    model: nn.Module = run.network
    if not isinstance(model, Transformer) or not isinstance(run.task, Sequences):
        raise RegardError(
            f"{run.config.model} on {run.config.task} is no Transformer that writes one text for "
            "another: Marian's layout and CTranslate2 hold those alone"
        )
    return model, cast(TransformerSettings, run.config.network)


#: Where a run can go.
TARGETS: Mapping[str, Callable[[Run, Path, str], Exported]] = {
    "huggingface": to_huggingface,
    "marian": to_marian,
    "ctranslate2": to_ctranslate2,
}


def _names(files: str) -> str:
    return ",".join(Path(file.strip()).name for file in files.split(","))
