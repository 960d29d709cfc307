"""Tagged sentences: spans as conlleval reads them, files of columns, and what is wrong in one."""

from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data import entities
from regard.lab.data.check import check
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.tagged import Span, load_tagged, mark_spans, read_tagged, spans, words_of
from tests.lab.data.small_files import refusal, write

CONLL = (
    "-DOCSTART- -X- O\n\nEU\tNNP\tB-org\nrejects\tVBZ\tO\n\n#go\tNN\tO\nNew York\tNNP\tB-place\n"
)
CONLLU = (
    "# newdoc id = a\n1\tShe\tshe\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n"
    "2\tsleeps\tsleep\tVERB\tVBZ\t_\t0\troot\t_\t_\n"
)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-a I-a O B-a", [(0, 2, "a"), (3, 4, "a")]),
        ("B-a B-a", [(0, 1, "a"), (1, 2, "a")]),
        ("I-a I-b I-b", [(0, 1, "a"), (1, 3, "b")]),  # IOB1
        ("O I-a E-a S-b B-a", [(1, 3, "a"), (3, 4, "b"), (4, 5, "a")]),  # IOBES
        ("U-a B-b L-b I-b", [(0, 1, "a"), (1, 3, "b"), (3, 4, "b")]),  # BILOU
        ("_ B-a-b I-a-b", [(1, 3, "a-b")]),
    ],
)
def test_spans_end_where_conlleval_ends_them(tags: str, expected: list[Span]) -> None:
    assert spans(tags.split()) == expected


def test_tags_that_mark_nothing() -> None:
    assert not mark_spans(["O", "O"])
    assert not mark_spans(["B-", "O"])
    assert not mark_spans(["NOUN", "B-a"])
    assert words_of("I'm at https://a.b/c?d=1, @you #tag 3.5 e-mails…") == [
        "I", "'m", "at", "https://a.b/c?d=1,", "@you", "#tag", "3.5", "e-mails", "…",
    ]  # fmt: skip


def test_columns_are_read_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", CONLL)
    first, second = read_tagged(path).examples
    assert (first.text, first.label, first.source) == ("EU rejects", "B-org O", "a.conll:3")
    assert (second.words, second.label) == (["#go", "New\u00a0York"], "O B-place")
    assert read_tagged(path, Columns(label="2")).examples[0].label == "NNP VBZ"
    assert second.source == "a.conll:6"
    path.write_text("# a comment\n\nGood O\nnight\tO\n")
    assert read_tagged(path).examples[0].words == ["Good", "night"]


NER = "John {0} B-PER\nruns {0} O\n\nMary {0} B-PER\n"


@pytest.mark.parametrize(
    ("text", "words", "tags"),
    [
        # comments with as many columns as words
        ("# newdoc\nJohn B-PER\n\n# newpar\nruns O\n", "John/runs", "B-PER/O"),
        ("# newdoc\nJohn\tB-PER\n\n# O\nruns\tO\n# end\n", "John/runs", "B-PER/O"),
        ("# id = 1\n" + NER.format("_ _"), "John runs/Mary", "B-PER O/B-PER"),
        ("# speaker = O\n" + NER.format("_ X"), "John runs/Mary", "B-PER O/B-PER"),
        ("# text O\n" + NER.format("N"), "John runs/Mary", "B-PER O/B-PER"),
        ("#\thttp://x [2009]\n" + NER.format("1 2"), "John runs/Mary", "B-PER O/B-PER"),
        ("# id a\tdomain=en\n" + NER.format("_ _"), "John runs/Mary", "B-PER O/B-PER"),
        ("#begin document\nJohn NN\n# note\nruns VB\n#end document\n", "John runs", "NN VB"),
        ("John B-PER\n# newpar\nruns O\n", "John runs", "B-PER O"),
        # words with #
        ("# O\n1 O\nfan B-PER\n", "# 1 fan", "O O B-PER"),
        ("#\tO\n1\tB-PER\n", "# 1", "O B-PER"),
        ("#fail O\nin B-PER\n\nso O\n#win B-EVENT\n", "#fail in/so #win", "O B-PER/O B-EVENT"),
        ("#a O\n#b B-X\n", "#a #b", "O B-X"),
        ("worth VB O\n# # B-NP\n2 CD B-NP\n", "worth # 2", "O B-NP B-NP"),
        ("worth VB\n# #\n2 CD\n\n# #\n3 CD\n", "worth # 2/# 3", "VB # CD/# CD"),
        # ends of sentences
        ("-DOCSTART- -X- O\nJohn NN B-PER\n-DOCSTART- -X- O\nruns VB O\n", "John/runs", "B-PER/O"),
        ("-DOCSTART-\tO\n\nJohn\tB-PER\n \t \nruns\tO\n\n\n# O\n", "John/runs", "B-PER/O"),
        # only tabs and spaces divide
        ("10\u00a0000 O\n\u3000 B-X\na\u2009b O\n", "10\u00a0000 \u3000 a\u2009b", "O B-X O"),
        (
            "10\u00a0000\tO\n\u00a0\tB-X\nNew York\tO\n",
            "10\u00a0000 \u00a0 New\u00a0York",
            "O B-X O",
        ),
        ("a\x1fb  O\n \x85c   B-X \n", "a\x1fb \x85c", "O B-X"),
    ],
)
def test_comments_are_told_from_words(tmp_path: Path, text: str, words: str, tags: str) -> None:
    path = write(tmp_path / "a.conll", text.encode())
    found = read_tagged(path)
    assert "/".join(x.text for x in found.examples) == words
    assert "/".join(x.label for x in found.examples) == tags
    assert all(len(x.words) == len(x.label.split(" ")) for x in found.examples)


def test_a_comment_that_could_be_a_word_is_noted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.conll", "# newdoc\n# a longer comment\nJohn B-PER\n\n# newpar\nruns O\n"
    )
    says = (
        "lines with # read as comments, though they have 2 columns as words do: 2, first a.conll:1"
    )
    assert read_tagged(path).notes == [f"{says}: '# newdoc'"]
    assert check(path).remarks == read_tagged(path).notes


def test_numbers_of_words_are_not_read_as_words(tmp_path: Path) -> None:
    for name, text in (
        ("a.conll", CONLLU),
        ("b.conll", "1\tJohn\tB-PER\n2\truns\tO\n\n1\tMary\tB-PER\n"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(RegardError, match=f"{name}:.: the first column numbers the words; set"):
            read_tagged(tmp_path / name)
    found = read_tagged(tmp_path / "b.conll", Columns("2")).examples
    assert [x.text for x in found] == ["John runs", "Mary"]


def test_conllu_gives_any_of_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", CONLLU)
    (found,) = read_tagged(path, Columns(group="newdoc id")).examples
    assert (found.label, found.group, found.parents) == ("PRON VERB", "a", (1, -1))
    assert read_tagged(path, Columns(label="deprel")).examples[0].label == "nsubj root"


@pytest.mark.parametrize(
    ("name", "text", "given", "error"),
    [
        ("a.conll", "a O\nb X O\n", {}, "a.conll:2: 3 columns, but the rows before have 2"),
        (
            "a.conll",
            "word\n",
            {},
            "a.conll:1: only one column; regard train tagging needs one word",
        ),
        ("a.conll", "a O\n", {"label": "3"}, "a.conll:1: '3' is not one of the 2 columns"),
        ("a.conll", "a O\n", {"group": "doc"}, "group=doc needs the comments of a .conllu file"),
        ("a.conll", "a\tB x\n", {}, "a.conll:1: the tag 'B x' contains a space"),
        ("a.conll", "a\t\n", {}, "a.conll:1: empty word or tag"),
        ("a.conll", "\n\n", {}, "contains no tagged sentences"),
        ("a.csv", "a,O\n", {}, "regard train tagging needs one word and tag per line"),
        ("a.conllu", CONLLU, {"label": "pos"}, "no column of CoNLL-U is called 'pos'"),
        (
            "a.conllu",
            CONLLU,
            {"text": "2"},
            "text=2: a .conllu file has its words in the FORM column",
        ),
        ("a.conllu", CONLLU, {"group": "x"}, "no comment '# x = …'"),
        ("a.conllu", "1\ta\n", {}, "a.conllu:1: 2 tab-separated fields"),
    ],
)
def test_bad_files_are_told_by_line(
    tmp_path: Path, name: str, text: str, given: dict[str, str], error: str
) -> None:
    (tmp_path / name).write_text(text)
    assert error in refusal(read_tagged, tmp_path / name, Columns(**given))


def test_bytes_that_are_no_utf8_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_bytes(b"a O\n\xe9 O\n")
    assert "a.conll:2: not UTF-8" in refusal(read_tagged, tmp_path / "a.conll")


def test_a_corpus_is_split_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    blocks = [f"w{i} B-a\nx O\n" for i in range(50)]
    path.write_text("\n".join(blocks))
    corpus = load_tagged(str(path))
    assert len(corpus.train) + len(corpus.test) == 50
    assert "split off as the test part, by a hash of the sentence" in corpus.notes[0]
    held = write(tmp_path / "b.conll", blocks[0])
    corpus = load_tagged(DataSource(path, splits=Splits(test=str(held))))
    assert (len(corpus.train), len(corpus.test)) == (49, 1)
    assert (
        len(load_tagged(DataSource(path, splits=Splits(test=str(held), duplicates="keep"))).train)
        == 50
    )
    path.write_text("a O\nb O\n")
    assert "all 2 words have the tag O" in refusal(load_tagged, str(path))
    assert "reviews has no tags; it is for classification" in refusal(load_tagged, "reviews")
    assert "did you mean entities" in refusal(load_tagged, "entitis")
    with pytest.raises(RegardError, match="entities has all its parts"):
        load_tagged(DataSource("entities", splits=Splits(test=str(held))))


def test_the_built_in_names_are_ambiguous() -> None:
    made = entities.sentences(500, 3)
    assert made == entities.sentences(500, 3)
    kinds: dict[str, set[str]] = {name: set() for name in entities.BOTH}
    for example in made:
        tags = example.label.split(" ")
        assert len(tags) == len(example.words)
        for word, tag in zip(example.words, tags, strict=True):
            kinds.get(word, set()).add(tag)
    assert all({"B-person", "B-place", "B-org"} <= found for found in kinds.values())


def test_tags_are_looked_through(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a B-x\nb O\n\na O\nb O\n")
    found = check(path)
    assert found.parts[0].labels == {"B-x": 1, "O": 3}
    assert [pair.labels for pair in found.conflicts] == [("B-x O", "O O")]
    (tmp_path / "a.txt").write_text(path.read_text())
    assert check(tmp_path / "a.txt", tags=True).parts[0].rows == 2
    with pytest.raises(RegardError, match="--labels does not rename tags"):
        check(DataSource(path, columns=Columns(labels="a:b")))
    assert check("entities").parts[1].rows == 600
