"""Who was born where: assignment 5's data, invented people, and files of one's own."""

from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data import biographies
from regard.lab.data.birthplaces import (
    FILES,
    MASK_CHARACTER,
    PAD_CHARACTER,
    counted,
    load_birthplaces,
    read_answers,
    read_lines,
)
from regard.lab.data.fetch import present
from tests.lab.data.small_files import refusal, write


@pytest.fixture
def folder(real):
    """The folder of assignment 5's data, or the test is skipped."""
    found = present("birthplaces", real)
    if found is None:
        pytest.skip("birthplaces are not here")
    return found


def test_invented_people_are_the_same_every_time():
    assert biographies.people() == biographies.people()
    assert biographies.people(5) == biographies.people()[:5]
    assert biographies.people(5, seed=1) != biographies.people(5)
    everyone = biographies.people()
    assert len({person.name.split()[1] for person in everyone}) == len(everyone) == 120
    for person in everyone:
        assert all(person.name in text and person.place in text for text in person.passages)


def test_names_say_nothing_of_places():
    first = {}
    for person in biographies.people():
        first.setdefault(person.name.split()[0], set()).add(person.place)
    assert sorted(map(len, first.values()))[len(first) // 2] >= 4


def test_the_answers_of_dev_stand_in_the_texts_and_its_questions_not_in_train():
    found = load_birthplaces("biographies")
    assert len(found.train) == len(found.dev) == 60
    assert not {pair.source for pair in found.train} & {pair.source for pair in found.dev}
    for pair in (*found.train, *found.dev):
        name = pair.source.removeprefix("Where was ").removesuffix(" born?")
        about = [text for text in found.texts if name in text]
        assert len(about) == 3
        assert all(pair.target in text for text in about)
    assert max(sum(a.target == b.target for a in found.dev) for b in found.dev) <= 12, (
        "no favourite"
    )


def test_questions_that_are_all_asked_in_the_test_too(tmp_path):
    questions = str(write(tmp_path / "q.tsv", "Where was A B born?\tRome\n"))
    texts = str(write(tmp_path / "t.txt", "A B of Rome.\n"))
    with pytest.raises(RegardError, match=r"all 1 questions also occur in q\.tsv"):
        load_birthplaces(questions, texts=texts, test=questions)


def test_a_question_in_other_letters_is_the_same(tmp_path):
    train = "Where was A B born?\tRome\nwhere was c born?\tOslo\n"
    questions = str(write(tmp_path / "q.tsv", train))
    test = str(write(tmp_path / "dev.tsv", "where was  a b born?\tRome\n"))
    texts = str(write(tmp_path / "t.txt", "A B of Rome.\n"))
    found = load_birthplaces(questions, texts=texts, test=test)
    assert [pair.target for pair in found.train] == ["Oslo"]


def test_namedata_counts_as_the_assignment_prints(folder):
    found = load_birthplaces("birthplaces", data_dir=folder)
    told = counted(found.texts, MASK_CHARACTER + PAD_CHARACTER)
    assert told == "data has 418352 characters, 256 unique."
    assert (len(found.texts), len(found.train), len(found.dev)) == (2_937, 1_999, 500)
    assert found.notes == ("1 pair of train dropped: question also in validation",)
    assert sum(pair.target == "London" for pair in found.dev) == 25


def test_questions_without_answers(folder):
    path = folder / "birth_test_inputs.tsv"
    pairs = read_answers(path, answered=False)
    assert len(pairs) == 437
    assert {pair.target for pair in pairs} == {""}
    assert "birth_test_inputs.tsv:1: the question has no tab" in refusal(read_answers, path)


def own(folder: Path, dev: str = "Who?\tMe\n") -> dict[str, str]:
    write(folder / "train.tsv", "Where is she?\tThere\nWho?\tMe\n")
    texts = write(folder / "texts.txt", "I am here.\n\nYou are there.\n")
    return {"texts": str(texts), "test": str(write(folder / "dev.tsv", dev))}


def test_a_file_of_the_assignment_is_found_by_its_name(tmp_path, monkeypatch):
    place = tmp_path / "data" / "birthplaces"
    place.mkdir(parents=True)
    for name in FILES.values():
        (place / name).write_text("Who?\tYou\n")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    name = Path("birth_dev.tsv")
    assert [pair.target for pair in read_answers(name)] == ["You"]
    name.write_text("Who?\tMe\n")
    assert [pair.target for pair in read_answers(name)] == ["Me"], (
        "a file that is there comes first"
    )
    assert "other.tsv" in refusal(read_answers, Path("other.tsv"))


def test_files_of_ones_own(tmp_path):
    found = load_birthplaces(str(tmp_path / "train.tsv"), **own(tmp_path))
    assert list(found.texts) == ["I am here.", "You are there."]
    assert [pair.source for pair in found.train] == ["Where is she?"], "what dev asks is left out"
    assert found.dev[0].place == "dev.tsv:1"
    assert found.name == "train.tsv"


def test_what_is_wrong_is_said_by_file_and_line(tmp_path):
    given = own(tmp_path, "Who?\tMe\nWhat\ta\tb\n")
    with pytest.raises(
        RegardError, match=r"dev\.tsv:2: expected a question, a tab and an answer, found 3 fields"
    ):
        load_birthplaces(str(tmp_path / "train.tsv"), **given)
    assert "needs texts=FILE" in refusal(load_birthplaces, str(tmp_path / "train.tsv"))
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff\n")
    assert "bad.txt:1: not UTF-8" in refusal(read_lines, tmp_path / "bad.txt")


def test_data_that_is_not_here_is_named_with_its_place(tmp_path):
    with pytest.raises(RegardError, match="birthplaces must be downloaded manually: it is"):
        load_birthplaces("birthplaces", data_dir=tmp_path)
