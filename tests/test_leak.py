"""Networks that look at what they are to foretell are refused before they are trained."""

from pathlib import Path

import pytest

from regard import runs
from regard.attention import SCORES, attend
from regard.errors import RegardError
from regard.models.settings import TransformerSettings
from regard.models.transformer import Transformer
from regard.runs.leak import must_not_look_ahead

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
    [("language-modeling", "gpt"), ("reverse", "transformer"), ("span-corruption", "t5")],
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
def test_patterns_and_a_compressed_encoder_look_at_nothing_to_come(
    tmp_path: Path, task: str, model: str, setting: str
) -> None:
    run = runs.start(tmp_path / "run", task, model, [*TINY, setting, "position=rotary"])
    assert next(run.train()).step == 1


def test_a_decoder_that_looks_ahead_is_found() -> None:
    network = Transformer(TransformerSettings(width=8, heads=2, layers=1, feedforward=8), 9, 9)
    must_not_look_ahead(network, "another", 9)
    network.decoder[0].attention.work.attention.forward = ahead
    with pytest.raises(RegardError, match="the network looks ahead"):
        must_not_look_ahead(network, "another", 9)


def ahead(queries, keys, values, mask, **rest):
    """What a layer without its mask answers, as one whose keys were compressed would."""
    return attend(queries, keys, values, SCORES["scaled-dot"]())
