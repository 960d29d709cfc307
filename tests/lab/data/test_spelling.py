"""Texts and labels that look the same are the same, in every reader and in every vocabulary."""

import json
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from regard.lab.data.check import check
from regard.lab.data.conllu import train_on_words, word_ids
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.files import read
from regard.lab.data.pair_files import read_pairs
from regard.lab.data.parallel import load_pairs
from regard.lab.data.predictions import read_predictions
from regard.lab.data.sources import load_corpus
from regard.lab.data.spelling import label_of, likeness
from regard.lab.data.tagged import load_tagged
from regard.lab.data.text_rows import text_rows
from regard.lab.data.tokenizers import train_tokenizer
from regard.lab.tasks.baseline_settings import NoSettings, TfidfSettings
from regard.lab.tasks.baselines import Tfidf
from regard.lab.tasks.tagging.baselines import MostFrequentTag
from tests.lab.data.small_files import write

WORD = "café"
#: Zero-width space and joiner, soft hyphen, word joiner, bidi marks, byte-order mark, selector.
SIGNS = "\u200b\u200d\u00ad\u2060\u200f\u202a\u202c\u2066\ufeff\ufe0f\u034f\U000e0101"
SAME = [normalize("NFD", WORD), *(f"{sign}ca{sign}fé{sign}" for sign in SIGNS)]


def test_one_key_one_token_and_one_label_for_what_looks_the_same() -> None:
    texts = [f"un {word} noir" for word in (WORD, *SAME)]
    assert {likeness(text) for text in texts} == {"un café noir"}
    assert likeness("ＣＡＦＥ\u0301\u3000noir") == "café noir"
    tokenizer = train_tokenizer("words", [f"un {WORD}"], minimum=1)
    assert tokenizer.encode(texts) == [tokenizer.encode([texts[0]])[0]] * len(texts)
    assert train_tokenizer("words", SAME, minimum=1).vocabulary[2:] == [WORD]
    assert word_ids(train_on_words([[SAME[0]]], minimum=1), [WORD, *SAME]) == [2] * (len(SAME) + 1)
    linear = Tfidf(TfidfSettings(minimum=1), 2).fit([WORD, "thé"] * 2, np.array([1, 0] * 2))
    assert np.ptp(linear.probabilities(texts)[:, 1]) < 1e-6
    tagger = MostFrequentTag(NoSettings(), 2)
    tagger.fit([[WORD, "thé"]], [np.array([1, 0])])
    assert [x.argmax() for x in tagger.log_probabilities([[word] for word in SAME])] == [1] * 13
    assert {label_of(f" {word}\u00a0") for word in (WORD, *SAME)} == {WORD}
    assert label_of("ｐｏｓ１") == "pos1"
    assert label_of("体育，娱乐") == "体育，娱乐"
    assert likeness("strasse") == likeness("STRAẞE") != likeness("strase")


@pytest.mark.parametrize(
    "label", ["👩\u200d🚀", "❤\ufe0f", "می\u200cخواهم", "🏴\U000e0067\U000e007f"]
)
def test_signs_that_shape_a_letter_or_an_emoji_stay_in_labels(label: str) -> None:
    assert label_of(label) == label
    assert likeness(label) != label


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "txt"])
def test_copies_do_not_leak_and_labels_are_two_in_every_format(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"r.{ending}"
    rows = [
        (f"{spelt} numéro {i}", label)
        for i in range(40)
        for spelt, label in [(WORD, "très bon"), *((same, "très\u00a0bo\u200bn") for same in SAME)]
    ]
    rows += [(f"thé numéro {i}", normalize("NFD", "ｍａｌé")) for i in range(200)]
    if ending == "jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    else:
        sign = "," if ending == "csv" else "\t"
        lines = [sign.join(row) for row in [("text", "label"), *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = load_corpus(DataSource(path, columns=Columns(labels="malé:mauvais")))
    assert corpus.labels == ("mauvais", "très bon")
    train, test = ({likeness(x.text) for x in part} for part in (corpus.train, corpus.test))
    assert len(train) + len(test) == 240
    assert not train & test
    assert {x.group for x in read(path, Columns(group="label")).examples} == {
        "malé",
        "très bon",
    } or (ending == "txt")


def test_copies_between_files_are_dropped_from_pairs_and_tagged_words(tmp_path: Path) -> None:
    pairs, test = tmp_path / "a.tsv", tmp_path / "b.tsv"
    pairs.write_text("".join(f"{SAME[0]} {i}\tcoffee {i}\n" for i in range(60)), encoding="utf-8")
    test.write_text(f"{WORD} 1\tcoffee\n{WORD}\u200b 2\tcoffee\n", encoding="utf-8")
    corpus = load_pairs(DataSource(pairs, splits=Splits(test=str(test))))
    assert any(note.startswith("2 pairs of") for note in corpus.notes)
    words, more = tmp_path / "a.conll", tmp_path / "b.conll"
    words.write_text("".join(f"{same}\tX\nnoir\tO\u200b\n\n" for same in SAME), encoding="utf-8")
    more.write_text("autre\tX\n\n" * 3 + f"{WORD}\tX\nnoir\tO\n\n", encoding="utf-8")
    tagged = load_tagged(DataSource(more, splits=Splits(test=str(words))))
    assert [x.text for x in tagged.train] == ["autre"] * 3
    assert {x.label for x in tagged.test} == {"X O"}


def test_check_tells_invisible_signs_and_decomposed_texts(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.csv", f"text,label\n{WORD},a\n{SAME[0]},b\nte\u200ba,b\nok 👩\u200d🚀,a\n"
    )
    found = check(path)
    assert "invisible characters in 1 text, first r.csv:4: U+200B" in found.problems
    assert "rows: 1 row with a duplicate text" in found.problems
    assert found.remarks[0].startswith("1 text not in Unicode's composed form (NFC), first r.csv:3")


def test_a_header_in_the_middle_of_joined_files_is_no_row(tmp_path: Path) -> None:
    half = "\ufefftext,label\ngood,pos\nbad,neg\n"
    for name, content in {"r.csv": half, "r.tsv": half.replace(",", "\t"),
                          "r.txt": half.replace(",", "\t")}.items():  # fmt: skip
        path = write(tmp_path / name, content * 3)
        rows = read(path)
        assert [x.label for x in rows.examples] == ["pos", "neg"] * 3
        assert f"{name}:4: the header again, as in joined files; 2 rows skipped" in rows.remarks
    path = write(tmp_path / "r.csv", half + "Text, label \nok,pos\n")
    assert [x.text for x in read(path).examples] == ["good", "bad", "ok"]
    assert [*text_rows(path)] == ["good", "bad", "ok"]
    assert len([*text_rows(path, empty=True)]) == 4  # predictions keep to the rows
    pairs = write(tmp_path / "pairs.csv", "source,target\nun,one\n" * 2)
    assert [x.source for x in read_pairs(str(pairs))] == ["un", "un"]
    told = write(tmp_path / "told.csv", "label,predicted\na,b\n" * 2)
    assert len(read_predictions(told)) == 2
