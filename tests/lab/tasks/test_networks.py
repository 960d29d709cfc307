"""Networks that look ahead, or have other outputs than the task, are refused before training."""

from pathlib import Path

import pytest

from regard.attention import SCORES, attend
from regard.conformance import conform
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs.checking import network_of
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer
from regard.training.interface import Interface, must_suit

PEEK = """
from regard.attention import Score

class Peek(Score):
    \"\"\"q · k, times a sum over all keys: what comes later is in every product.\"\"\"

    SHARE = 1.0

    def prepare_keys(self, keys, positions):
        return keys * (1 + self.SHARE * keys.sum(-2, keepdim=True))

    def compare(self, queries, keys, positions):
        return queries @ keys.transpose(-1, -2)


class Honest(Peek):
    SHARE = 0.0
"""
TINY = ["width=8", "heads=2", "layers=1", "steps=1"]


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("language-modeling", "gpt"),
        pytest.param("reverse", "transformer", marks=pytest.mark.deep),
        ("span-corruption", "t5"),
    ],
)
def test_a_score_that_sees_later_words_is_refused_before_training(
    tmp_path: Path, task: str, model: str
) -> None:
    (tmp_path / "mine.py").write_text(PEEK)

    def begun(name: str) -> runs.Run:
        own = [*TINY, f"score={tmp_path}/mine.py:{name}"]
        return runs.start(tmp_path / name, task, model, own)

    with pytest.raises(RegardError, match=r"word \d of a text changes with word 4"):
        next(begun("Peek").train())
    assert next(begun("Honest").train()).step == 1


@pytest.mark.parametrize(
    ("task", "model", "setting"),
    [
        ("reverse", "transformer", "pattern=window-2"),
        ("reverse", "transformer", "compress=linformer-2"),
        ("reverse", "t5", "pattern=bigbird-4"),
        ("span-corruption", "t5", "compress=linformer-2"),
    ],
)
@pytest.mark.deep
def test_patterns_and_a_compressed_encoder_look_at_nothing_to_come(
    tmp_path: Path, task: str, model: str, setting: str
) -> None:
    run = runs.start(tmp_path / "run", task, model, [*TINY, setting, "position=rotary"])
    assert next(run.train()).step == 1


def test_a_decoder_that_looks_ahead_is_found() -> None:
    network = Transformer(TransformerSettings(width=8, heads=2, layers=1, feedforward=8), 9, 9)
    another, sizes = Interface("another", "token", "vocabulary", True), {"vocabulary": 9}
    must_suit(network, another, sizes)
    network.decoder[0].attention.work.attention.forward = ahead
    with pytest.raises(RegardError, match="the network looks ahead"):
        must_suit(network, another, sizes)


def ahead(queries, keys, values, mask, **rest):
    """What a layer without its mask answers, as one whose keys were compressed would."""
    return attend(queries, keys, values, SCORES["scaled-dot"]())


#: A tagger that sees all words, one that sees the earlier ones until a text is long, and networks
#: with one output too many or without a row for each word.
MODELS = """
import torch
from torch import nn
from regard.lab.tasks.models import ModelEntry
from regard.core.settings import Settings

class Width(Settings):
    width: int = 8

class Tagger(nn.Module):
    more, wide, rows = 0, False, True

    def __init__(self, settings, vocabulary, labels, vectors):
        super().__init__()
        self.words = nn.Embedding(vocabulary, settings.width)
        self.to_labels = nn.Linear(settings.width, labels + self.more)

    def forward(self, tokens, lengths=None):
        x = self.words(tokens)
        count = torch.arange(1, x.shape[1] + 1)[:, None]
        x = x + (x.mean(1, keepdim=True) if self.looks(x) else x.cumsum(1) / count)
        return self.to_labels(x if self.rows else x.mean(1))

    def looks(self, x):
        return False

class Ahead(Tagger):
    def looks(self, x):
        return True

class Later(Tagger):
    def looks(self, x):
        return x.shape[1] > 40

class More(Tagger):
    more = 1

class Rowless(Tagger):
    rows = False

class Both(Rowless, More):
    pass

class Writer(Tagger):
    def __init__(self, settings, vocabulary, labels, vectors):
        super().__init__(settings, vocabulary + 1, settings.width, vectors)

    def forward(self, tokens):
        return super().forward(tokens)

    def logit_parts(self, states):
        return states, self.words.weight, None

honest, ahead, later, more, rowless, both, writer = (
    ModelEntry(kind.__name__, "", Width, kind)
    for kind in (Tagger, Ahead, Later, More, Rowless, Both, Writer)
)
"""


@pytest.mark.parametrize(
    ("task", "model", "reason"),
    [
        ("sorting", "ahead", "output for word 1 of a text changes with word 4"),
        ("induction", "later", r"output for word \d+ of a text changes with word 41 and later"),
        ("sorting", "rowless", r"has the shape \(1, 32\), but the task needs \(1, 4, 32\)"),
        ("mqar", "more", r"shape \(1, 4, 257\), but the task needs \(1, 4, 256\): 256 numbers for"),
        (
            "classification",
            "both",
            r"\(1, 3\), but the task needs \(1, 2\): 2 numbers for each text",
        ),
        ("classification", "honest", r"\(1, 4, 2\), but the task needs \(1, 2\)"),
        ("regression", "both", r"\(1, 2\), but the task needs \(1, 1\): 1 number for .*labels=1"),
        ("tagging", "more", "; build it for labels="),
        ("language-modeling", "writer", "; build it for vocabulary="),
    ],
)
def test_a_network_of_a_user_is_refused_before_training_and_by_check(
    tmp_path: Path, task: str, model: str, reason: str
) -> None:
    (tmp_path / "mine.py").write_text(MODELS)
    data = {"regression": "examples=60", "classification": "examples=60"}
    own = ["steps=1", "threads=1", *([data[task]] if task in data else [])]
    run = runs.start(tmp_path / "run", task, f"{tmp_path}/mine.py:{model}", own)
    with pytest.raises(RegardError, match=reason):
        next(run.train())
    subject = network_of(f"{task}:{tmp_path}/mine.py:{model}")
    assert subject is not None
    fails = [x.law for x in conform(subject) if x.outcome == "fails"]
    assert ("future" if "changes" in reason else "outputs") in fails


def test_a_puzzle_without_its_answers_may_be_read_from_both_sides(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODELS)
    for task, model in (("sorting", "honest"), ("mqar", "ahead")):
        spec = f"{tmp_path}/mine.py:{model}"
        own = ["steps=1", "threads=1", "examples=40", "held_out=4"]
        assert next(runs.start(tmp_path / task, task, spec, own).train()).step == 1
