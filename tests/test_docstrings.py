"""The objects that a reader meets first are documented in full; their examples run as doctests."""

import inspect
import re
from typing import Any

import pytest

import regard
from regard.decoding import beam, greedy, sample
from regard.lab.runs.run import Run
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock
from regard.nn.models.bert import BERT
from regard.nn.models.gpt import GPT
from regard.nn.models.seq2seq import Seq2Seq
from regard.nn.models.t5 import T5
from regard.nn.models.transformer import Transformer
from regard.training.loop import train

#: Objects that compute a formula of a paper on tensors.
FORMULAS = (
    regard.attend, regard.Attention, regard.MultiHeadAttention, regard.Score, regard.Normalizer,
    regard.Mask, EncoderBlock, DecoderBlock, FeedForward, Transformer, GPT, BERT, T5, Seq2Seq,
    greedy, beam, sample,
)  # fmt: skip
SECTIONS = {
    **dict.fromkeys(FORMULAS, "Args Shape Returns Raises Source Example"),
    train: "Args Returns Raises Example",
    regard.load: "Args Returns Raises Example",
    Run: "Args Raises Example",
}
HEADER = re.compile(r"^([A-Z]\w+):$", re.M)


def sections_of(text: str) -> dict[str, str]:
    """Return the text of each section of a docstring; that before the first is ``""``."""
    before, *parts = HEADER.split(text)
    return {"": before, **dict(zip(parts[::2], parts[1::2], strict=True))}


@pytest.mark.parametrize("documented", SECTIONS, ids=lambda each: each.__qualname__)
def test_each_section_exists_and_each_argument_is_described(documented: Any) -> None:
    sections = sections_of(inspect.getdoc(documented) or "")
    assert [*sections][1:] == SECTIONS[documented].split()
    described = re.findall(r"^    (\w+): \S", sections["Args"], re.M)
    assert described == list(inspect.signature(documented).parameters)
    assert re.search(r"^    (\w+Error): \S", sections["Raises"], re.M)
    assert "    >>> " in sections["Example"]
    if documented in FORMULAS:
        assert " = " in sections[""]
        assert re.search(r" (19|20)\d\d\b", sections["Source"])


def test_there_are_twenty() -> None:
    assert len(SECTIONS) == 20


def test_a_missing_section_is_seen() -> None:
    assert [*sections_of("Do it.\n\nArgs:\n    x: A number.\n\nIt returns.")] == ["", "Args"]
