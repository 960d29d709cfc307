"""Networks that look at what they are to foretell are refused before they are trained."""

from pathlib import Path

import pytest

from regard import runs
from regard.errors import RegardError

PEEK = """
from regard.attention import Score

class Peek(Score):
    \"\"\"q · k, times a sum over all keys: what comes later is in every product.\"\"\"

    SHARE = 1.0

    def prepare_keys(self, keys, positions):
        return keys * (1 + self.SHARE * keys.sum(-2, keepdim=True))

    def compare(self, queries, keys, where):
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
