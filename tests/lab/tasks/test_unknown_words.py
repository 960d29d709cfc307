"""Every task says which words of a text its model does not know."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from torch import nn

from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.data.examples import Example
from regard.lab.data.tokenizers import train_tokenizer
from regard.lab.tasks.baseline_settings import NaiveBayesSVMSettings, NeighbourSettings, NoSettings
from regard.lab.tasks.baselines import NaiveBayesSVM
from regard.lab.tasks.tagging.baselines import MostFrequentTag
from regard.lab.tasks.text_baselines import NearestNeighbour
from tests.lab.small_runs import prepared

KNOWN = ["un très bon film , très bon !", "a b c d e f g"]
NETWORK = nn.Linear(1, 1)


def unknown(task: str, model: Any, texts: Sequence[Any], kind: str = "words") -> list[Any]:
    """Return what a trained model of a task says of texts, without training one."""
    size = {"bpe": 400, "unigram": 400}.get(kind, 100)
    tokenizer = train_tokenizer(kind, KNOWN * 3, vocabulary=size, minimum=1)
    facts = {"labels": ["O", "X"], "counts": [1, 1]}
    return list(prepared(task, tokenizer, facts).unknown(model, texts))


@pytest.mark.parametrize(
    "task", ["classification", "regression", "translation", "language-modeling", "span-corruption"]
)
def test_words_of_every_task_of_texts(task: str) -> None:
    texts = ["Un ZZZ film zzz", "très bon !", "", "e\u0301 tre\u0300s"]
    assert unknown(task, NETWORK, texts) == [("zzz",), (), (), ("é",)]
    assert unknown(task, NETWORK, ["bon 字 字 ß"], "characters") == [("字", "ß")]
    for kind in ("bpe", "unigram"):
        assert unknown(task, NETWORK, ["bon 字 è ß bon", "bad"], kind) == [("字", "ß"), ()]


def test_symbols_of_the_task_are_no_unknown_words() -> None:
    assert unknown("masked-modeling", NETWORK, ["un [MASK] zzz"]) == [("zzz",)]
    assert unknown("span-corruption", NETWORK, ["un <extra_id_0> zzz"]) == [("zzz",)]


def test_words_of_sentences_and_of_parsed_ones() -> None:
    assert unknown("tagging", NETWORK, ["Un zzz , zzz"]) == [("zzz",)]
    assert unknown("tagging", NETWORK, ["un 字"], "bpe") == [("字",)]
    parsed = Example("un e-mail", "", "", "", (1, -1))
    assert unknown("classification", NETWORK, [parsed]) == [("e-mail",)]


def test_words_of_baselines() -> None:
    linear = NaiveBayesSVM(NaiveBayesSVMSettings(minimum=1), 2).fit(KNOWN, np.array([0, 1]))
    assert unknown("classification", linear, ["un ZZZ film", "a b"]) == [("zzz",), ()]
    tagger = MostFrequentTag(NoSettings(), 2)
    tagger.fit([["un", "film"]], [np.array([1, 0])])
    assert unknown("tagging", tagger, ["un Zzz film"]) == [("Zzz",)]
    memory = NearestNeighbour(NeighbourSettings())
    memory.fit([("a", "b")])
    assert unknown("translation", memory, ["zzz"]) == [()]


def test_words_that_a_pretrained_tokenizer_does_not_know() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "bon", "film"]
    inner = Tokenizer(models.WordPiece({x: i for i, x in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(words[:4])
    pretrained = EncoderTokenizer(inner, "here")
    assert pretrained.unknown_in("bon Zzz film Zzz 字") == ("Zzz", "字")
