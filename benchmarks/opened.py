"""Every kind of file that regard reads: how a valid one is made, and how it is used."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.opened_data import DATA, WORDS, Target, each, sentences
from regard.lab import runs
from regard.lab.data.tokenizers import TOKENIZERS, Tokenizer, train_tokenizer

TEXT = "a good film, a bad plot"
#: Small networks, trained for six steps.
TINY = ("width=8", "threads=1", "steps=6", "precision=fp32")
STACK = (*TINY, "heads=2", "layers=1", "feedforward=12", "dropout=0")


def answers(folder: Path) -> None:
    """Write predictions of three arms and seeds."""
    chance = random.Random(0)
    for arm in ("one", "two"):
        for seed in range(2):
            rows = []
            for i, text in enumerate(sentences(12)):
                share = chance.random()
                rows.append({"text": text, "label": "ab"[i % 2], "predicted": "ab"[share > 0.5],
                             "probabilities": {"a": 1 - share, "b": share}})  # fmt: skip
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{arm}.{seed}.jsonl").write_text(lines)


def compare_answers(folder: Path) -> None:
    """Compare the predictions."""
    from regard.lab.studies.predictions import compare_predictions

    compare_predictions(sorted(folder.glob("*.jsonl")), metric="macro-f1", out=folder / "out")


def tokenizers(folder: Path) -> None:
    """Write a tokenizer of each kind."""
    for kind in TOKENIZERS:
        train_tokenizer(kind, sentences(200), vocabulary=300).save(folder / f"{kind}.json")


def cut(folder: Path) -> None:
    """Load each tokenizer and tokenise a text."""

    def one(path: Path) -> None:
        found = Tokenizer.load(path)
        (ids,) = found.encode([TEXT])
        found.decode(ids)
        found.split(TEXT)

    each(*(lambda path=path: one(path) for path in sorted(folder.glob("*.json"))))


@cache
def own() -> Tokenizer:
    """Return a tokenizer of a few words."""
    return train_tokenizer("words", sentences(200), vocabulary=40)


def theirs(kind: str) -> Callable[[Path], None]:
    """Return a function that writes a small model in Hugging Face's layout."""

    def make(folder: Path) -> None:
        from regard.core.settings import build
        from regard.interop import huggingface
        from regard.interop.tokenizer_files import with_ends
        from regard.nn.models.settings import BERTSettings, GPTSettings, T5Settings

        settings_of: dict[str, Any] = {"gpt": GPTSettings, "bert": BERTSettings, "t5": T5Settings}
        sizes = {"width": 8, "layers": 2, "heads": 2, "feedforward": 12, "length": 16}
        settings = build(settings_of[kind], sizes)
        torch.manual_seed(0)
        words = len(own()) + 3
        module = {"gpt": "gpt2"}.get(kind, kind)
        model = huggingface.LAYOUTS[module].build(settings, words)
        inner = with_ends(own(), ["[MASK]", "[SEP]", "[CLS]"])
        roles = {"mask_token": "[MASK]", "sep_token": "[SEP]", "cls_token": "[CLS]"}
        place = folder / "model"
        huggingface.save(model, settings, place, tokenizer=inner, roles=roles,
                         config={"eos_token_id": words - 2})  # fmt: skip
        (place / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                                    *WORDS]))  # fmt: skip

    return make


def look_at_theirs(folder: Path) -> None:
    """Load, run and list the model."""
    from regard.interop.tokenizer_files import word_pieces
    from regard.interop.tokenizer_settings import read_settings
    from regard.lab.data.encoder_tokenizer import EncoderTokenizer
    from regard.lab.web.registry import find
    from regard.lab.web.served_model import opened

    place = folder / "model"
    each(
        lambda: find([folder]).listed(),
        lambda: opened("it", place).predict([f"{TEXT} [MASK]"]),
        lambda: opened("it", place).attention(f"{TEXT} [MASK]"),
        lambda: EncoderTokenizer(word_pieces(place, read_settings(place)), "it").encode([TEXT]),
    )


def begin_from_theirs(folder: Path) -> None:
    """Initialise a classifier from the model."""
    from regard.lab.runs.encoder import Encoder
    from regard.nn.models.classifiers import BERTClassifier

    encoder = Encoder(str(folder / "model"))
    encoder.put(BERTClassifier(encoder.settings({}), len(encoder.tokenizer), 2))


def run(task: str, model: str, *settings: str) -> Callable[[Path], None]:
    """Return a function that trains a small run."""

    def make(folder: Path) -> None:
        overrides = [*settings]
        if task == "classification":
            rows = [f"{('neg', 'pos')[i % 2]},{text}\n" for i, text in enumerate(sentences(80))]
            (folder / "a.csv").write_text("label,text\n" + "".join(rows))
            overrides.append(f"data={folder / 'a.csv'}")
        for _ in runs.start(folder / "run", task, model, overrides).train():
            pass

    return make


def look_at_run(folder: Path) -> None:
    """Use a run in every way that needs no data."""
    from regard.lab.reports.run import write_run_report
    from regard.lab.web.registry import find

    place = folder / "run"

    def at(name: str) -> Callable[[], object]:
        def call() -> object:
            found = getattr(runs.load(place), name)
            return found() if callable(found) else found

        return call

    def listed() -> None:
        shelf = find([folder])
        shelf.listed()
        for name in shelf.runs:
            shelf.examples(name)

    each(
        listed,
        *map(at, ("metrics", "notes", "convergence", "ended", "repeat", "evaluate")),
        lambda: runs.load(place).task.about(),
        lambda: runs.load(place).predict([TEXT]),
        lambda: runs.load(place).config.model == "tfidf" or runs.load(place).attention(TEXT),
        lambda: runs.load(place).size([TEXT]),
        lambda: write_run_report(runs.load(place), [TEXT], folder / "report.html"),
    )


@cache
def learning() -> Any:
    """Return a resumable training: a small network on a few texts."""
    from regard.lab.runs.build import begin, prepare
    from regard.training.loop import Training
    from regard.training.precision import choose_precision

    config = runs.Config.make(
        "classification", "transformer", [*STACK, "examples=60", "average=0.9"]
    )
    task = prepare(config)
    model, _ = begin(config, task)
    return Training(model, task, config.training, choose_precision("fp32"))


def checkpoint(folder: Path) -> None:
    """Write two checkpoints; the newer one will be damaged."""
    from regard.training.checkpoints import Checkpoints

    training, kept = learning(), Checkpoints(folder / "checkpoints")
    for step in (2, 4):
        training.state.step, training.state.epoch, training.best = step, 0, training.mean
        training.state.best, training.state.best_loss, training.state.least_loss = 0.5, 0.7, 0.7
        kept.save(training.checkpoint())


def resume(folder: Path) -> None:
    """Resume from the newest readable checkpoint."""
    from regard.training.checkpoints import Checkpoints

    training = learning()
    training.resume(Checkpoints(folder / "checkpoints"))
    with suppress(ZeroDivisionError):
        training.done()


def comparison(folder: Path) -> None:
    """Write a comparison of three arms, with its runs."""
    from regard.lab.studies.arms import parse_arms
    from regard.lab.studies.compare import compare
    from regard.lab.studies.processes import Local
    from regard.lab.studies.study import Study

    rows = [f"{('neg', 'pos')[i % 2]},{text}\n" for i, text in enumerate(sentences(120))]
    (folder / "a.csv").write_text("label,text\n" + "".join(rows))
    arms = parse_arms("mean,transformer:layers=1,heads=2,feedforward=8;tfidf")
    settings = (f"data={folder / 'a.csv'}", *TINY)
    compare(
        Study("classification", arms, seeds=2, overrides=settings, out=folder / "study"), Local(1)
    )


def look_at_comparison(folder: Path) -> None:
    """Show the comparison, and rewrite its report."""
    from regard.lab.reports.comparison import write_report
    from regard.lab.studies.job import read_score
    from regard.lab.web.registry import find

    def report() -> None:
        shelf = find([folder])
        for name, place in shelf.comparisons.items():
            write_report(shelf.comparison(name), place)

    def judged() -> None:
        for path in (folder / "study").rglob("seed-?"):
            if (found := read_score(path)) is not None:
                assert asdict(found)
                _ = found.value, found.per_example, found.groups

    each(lambda: find([folder]).listed(), report, judged)


RUN = ("run/*", "run/model/*")
TARGETS = (
    *DATA,
    Target("predictions", answers, ("*",), (compare_answers,)),
    Target("tokenizers", tokenizers, ("*",), (cut,)),
    Target("gpt2", theirs("gpt"), ("model/*",), (look_at_theirs,)),
    Target("bert", theirs("bert"), ("model/*",), (look_at_theirs, begin_from_theirs)),
    Target("t5", theirs("t5"), ("model/*",), (look_at_theirs,)),
    Target("run-transformer", run("classification", "transformer", *STACK), RUN, (look_at_run,)),
    Target("run-tfidf", run("classification", "tfidf"), RUN, (look_at_run,)),
    Target("run-gpt", run("language-modeling", "gpt", *STACK, "examples=40", "length=32"), RUN,
           (look_at_run,)),
    Target("run-dates", run("dates", "bahdanau", *TINY, "hidden=8"), RUN, (look_at_run,)),
    Target("checkpoint", checkpoint, ("checkpoints/step-4/*",), (resume,)),
    Target("comparison", comparison, ("study/*.json", "study/*/*.json", "study/*/*/*"),
           (look_at_comparison,)),
)  # fmt: skip
