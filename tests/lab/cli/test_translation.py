"""Texts that become texts, as a stranger types it: bad input, Chinese, searches, pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.lab.studies.launch import Outcome
from tests.lab.small_runs import trained_run

from .conftest import Command, Feed

TINY = [
    "tokenizer=characters", "vocabulary=90", "minimum=1", "width=8", "hidden=8", "steps=2",
    "judged=5", "batch_tokens=400", "length=40", "beam=2", "threads=1", "precision=fp32",
]  # fmt: skip
WORDS = "ein hund katze läuft schläft auf der grünen bank wiese heute wieder".split()


def text(number: int) -> str:
    return (
        " ".join(WORDS[(number * k + number // 7) % len(WORDS)] for k in (1, 3, 5)) + f" {number}"
    )


def write(folder: Path, count: int = 120) -> tuple[Path, Path]:
    source, target = folder / "pairs.de", folder / "pairs.en"
    source.write_text("".join(f"{text(i)}\n" for i in range(count)), encoding="utf-8")
    target.write_text("".join(f"{text(i)[::-1]}\n" for i in range(count)), encoding="utf-8")
    return source, target


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two files side by side; nobody may change it."""

    folder = tmp_path_factory.mktemp("translation")
    source, target = write(folder)
    asked = [f"data={source},{target}", *TINY]
    trained_run(folder / "run", "translation", "lab-6", asked)
    return folder / "run"


def training(folder: Path) -> list[object]:
    """The words of a command that trains on two files of a folder."""
    data = f"{folder / 'pairs.de'},{folder / 'pairs.en'}"
    return ["train", "translation", "-m", "gru", "--data", data, "--out", folder / "r", *TINY]


def test_unequal_files_are_named_at_the_first_line_without_a_partner(
    regard: Command, tmp_path: Path
) -> None:
    _, target = write(tmp_path)
    with target.open("a", encoding="utf-8") as file:
        file.write("one more\n")
    told = regard.refused(*training(tmp_path))
    assert "pairs.en:121: line without a counterpart: pairs.de has 120 lines" in told
    assert not (tmp_path / "r" / "env.json").exists()


def test_what_was_split_off_is_called_a_test(regard: Command, trained: Path) -> None:
    data = trained.parent / "pairs.de", trained.parent / "pairs.en"
    asked = ["-m", "lab-6", "--data", f"{data[0]},{data[1]}", "--out", trained, *TINY]
    said = regard("train", "translation", *asked)
    assert said.status == 0
    assert "\ntest BLEU" in said.out
    assert "that it has read" not in said.out
    assert json.loads(regard("evaluate", trained, "--json").out)["data"] == "test split"


def test_many_empty_lines_are_an_error_and_few_a_note(regard: Command, tmp_path: Path) -> None:
    source, _ = write(tmp_path, 300)
    rows = source.read_text(encoding="utf-8").splitlines()
    source.write_text("\n".join(["", "", "", "", *rows[4:]]) + "\n", encoding="utf-8")
    told = regard.refused(*training(tmp_path))
    assert "pairs.de:1: the source is empty; 4 of 300 pairs are incomplete, more than 1%" in told
    source.write_text("\n".join(["", *rows[1:]]) + "\n", encoding="utf-8")
    assert regard(*training(tmp_path)).status == 0
    notes = json.loads((tmp_path / "r" / "env.json").read_text())["data"]["notes"]
    assert "1 pair skipped, with an empty side, first pairs.de:1" in notes


def test_a_line_of_ten_thousand_words_is_left_out_and_told(regard: Command, tmp_path: Path) -> None:
    source, _ = write(tmp_path)
    rows = source.read_text(encoding="utf-8").splitlines()
    rows[6] = "hund " * 10_000
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    said = regard(*training(tmp_path))
    assert said.status == 0
    note = "1 pair skipped, longer than 2,000 characters, first pairs.de:7"
    assert note in json.loads((tmp_path / "r" / "env.json").read_text())["data"]["notes"]
    assert f"data: {note}" in said.out


def test_mixed_encodings_are_named_by_line(regard: Command, tmp_path: Path) -> None:
    source, _ = write(tmp_path)
    rows = source.read_bytes().splitlines()
    rows[11] = "die grüne Bank".encode("latin-1")
    source.write_bytes(b"\n".join(rows) + b"\n")
    told = regard.refused(*training(tmp_path))
    assert "pairs.de:12: not UTF-8 (byte 0xfc at 7); save the file as UTF-8" in told
    source.write_text("\n".join(text(i) for i in range(120)), encoding="utf-16")
    assert "pairs.de:1: UTF-16, not UTF-8" in regard.refused(*training(tmp_path))


def test_answers_stay_in_line_with_empty_long_and_unknown_texts(
    regard: Command, trained: Path, feed: Feed
) -> None:
    long = "hund " * 2_500
    feed(f"ein hund\n\n{long}\n漢字 ☃\n   \nkatze\n".encode())
    said = regard("predict", trained)
    assert said.status == 0
    lines = said.out.splitlines()
    assert len(lines) == 6
    assert (lines[1], lines[4]) == ("", "")
    assert lines[0] == regard("predict", trained, "ein hund").out.strip("\n")
    told = "stdin:3: text is too long; its last 12,459 tokens are ignored; split it into sentences"
    assert [line for line in said.err.splitlines() if "too long" in line] == [told]


def test_a_bad_line_is_named_and_what_came_before_is_answered(
    regard: Command, trained: Path, feed: Feed
) -> None:
    feed(b"ein hund\nkatze\nb\xfcse\nhund\n")
    said = regard("predict", trained)
    assert (said.status, said.out.count("\n")) == (2, 2)
    assert said.err.startswith("error: stdin:3: not UTF-8 (byte 0x")


def test_the_best_of_each_text_are_numbered(regard: Command, trained: Path) -> None:
    said = regard("predict", trained, "--best", 3, "ein hund", "", "katze")
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    chances = [float(row[1]) for row in rows[:3]]
    assert all(len(row) == 3 for row in rows)
    assert max(chances) < 0
    found = json.loads(regard("predict", trained, "--best", 3, "ein hund", "--json").out)
    ranked = found["predictions"][0]["best"]
    assert [round(one["log_probability"], 4) for one in ranked] == chances


def test_length_beam_and_drawing_are_obeyed(regard: Command, trained: Path) -> None:
    short = regard("predict", trained, "--longest", 3, "--beam", 1, "ein hund läuft").out
    assert len(short.rstrip("\n")) <= 3
    drawn = [
        regard("predict", trained, "--temperature", 2, "--seed", seed, "ein hund läuft").out
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_long_file_is_not_drawn_alike_chunk_by_chunk(
    regard: Command, trained: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.lab.cli.predict.CHUNK", 4)
    feed(b"ein hund\n" * 8)
    found = regard("predict", trained, "--temperature", 2).out.splitlines()
    assert len(found) == 8
    assert found[:4] != found[4:]


def test_a_given_pair_is_scored(regard: Command, trained: Path, feed: Feed) -> None:
    from regard.lab import runs

    run = runs.load(trained)
    written = run.predict("ein hund")
    said = regard("predict", trained, "--score", f"ein hund\t{written.text}", "ein hund\tzzz")
    first, second = (line.split("\t") for line in said.out.splitlines())
    with torch.no_grad():
        source, (target,) = run.task.encode(["ein hund"]), run.task.encode([written.text])
        batch = run.task.tensors(source, [target])
        logits = run.network.to_logits(
            run.network(batch.source, batch.source_lengths, batch.decoder_input)
        )
    logits[..., 0] = -torch.inf  # padding is never written
    wanted = logits.log_softmax(-1)[0].gather(1, batch.wanted[0][:, None]).sum().item()
    assert float(first[0]) == pytest.approx(wanted, abs=1e-3)
    assert int(second[1]) == 4
    assert float(second[2]) > 1
    feed(b"ein hund\ta\nkatze\tb\nno tab\n")
    said = regard("predict", trained, "--score")
    assert (said.status, said.out.count("\n")) == (2, 2), "what stands before it is answered"
    assert "stdin:3: no tab found" in said.err
    feed(b"ein hund\ta\nkatze\t" + b"x" * 2_000 + b"\nkatze\tb\n")
    said = regard("predict", trained, "--score")
    assert (said.status, said.out.count("\n")) == (2, 1)
    assert "stdin:2: the target has 2,000 tokens; the maximum is" in said.err


def test_mistakes_of_asking(regard: Command, trained: Path) -> None:
    for words, hint in (
        (["--score", "no tab"], "text:1: no tab found; --score needs SOURCE<tab>TARGET"),
        (["--score", "\tno source"], "text:1: the source has no token"),
        (["--score", "--best", 2, "a\tb"], "--score generates no text; leave --best out"),
        (["--top-k", 2, "a"], "top_k, top_p and seed need sampling"),
        (["--temperature", 1, "--beam", 3, "a"], "--beam and --temperature exclude each other"),
        (["--temperature", 1, "--top-p", 2, "a"], "top_p must be above 0"),
        (["--temperature", 1, "--top-p", 0, "a"], "top_p must be above 0 and at most 1, not 0"),
        (["--temperature", "inf", "a"], "temperature must be at least 0 and finite, not inf"),
        (["--penalty", "nan", "a"], "penalty must be at least 0 and finite, not nan"),
        (["--penalty", "-1", "a"], "penalty must be at least 0 and finite, not -1"),
        (["--penalty", "1e9", "a"], "penalty must be at most 50, not 1e+09"),
    ):
        assert hint in regard.refused("predict", trained, *words)


def test_other_runs_take_no_options_of_writing(regard: Command, tmp_path: Path) -> None:
    regard("train", "classification", "-m", "mean", "--out", tmp_path / "r", "examples=60",
           "steps=1", "width=4", "threads=1")  # fmt: skip
    told = regard.refused("predict", tmp_path / "r", "--beam", 2, "fine")
    assert "--beam needs a run that generates texts" in told


def test_an_alignment_is_drawn(regard: Command, trained: Path, tmp_path: Path) -> None:
    said = regard("show", trained, "ein <b>hund", "--out", tmp_path / "a.html")
    assert said.status == 0
    assert f"drawing: {tmp_path / 'a.html'}" in said.out
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "ein &lt;b&gt;hund" in page
    assert "<b>hund" not in page
    assert regard("show", trained, "ein hund", "--out", tmp_path / "a.svg").status == 0
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
    wrong = regard.refused("show", trained, "ein hund", "--out", tmp_path / "a.png")
    assert "the name must end in .html (page) or .svg (picture)" in wrong


CHINESE = [
    "我们明天去北京。",
    "他今天在家看书。",
    "猫在绿色的长椅上睡觉。",
    "你喜欢喝茶吗？",
    "雨又下了一整天。",
]


@pytest.mark.parametrize("tokenizer", ["characters", "bpe", "unigram"])
def test_chinese_without_spaces(regard: Command, tmp_path: Path, tokenizer: str) -> None:
    rows = [f"{text(i)}\t{CHINESE[i % 5]}{CHINESE[(i // 5) % 5]}" for i in range(120)]
    data = tmp_path / "pairs.tsv"
    data.write_text("\n".join(rows) + "\n", encoding="utf-8")
    tiny = [pair for pair in TINY if pair.partition("=")[0] not in ("tokenizer", "vocabulary")]
    said = regard("train", "translation", "-m", "lab-6", "--data", data, "--out", tmp_path / "r",
                  *tiny, f"tokenizer={tokenizer}", "vocabulary=420")  # fmt: skip
    assert said.status == 0, said.err
    from regard.lab import runs

    tokenizer_of_run = runs.load(tmp_path / "r").task.tokenizer
    for line in CHINESE:
        (ids,) = tokenizer_of_run.encode([line])
        assert tokenizer_of_run.decode(ids) == line
    assert "tok:zh" in regard("evaluate", tmp_path / "r").out
    assert regard("predict", tmp_path / "r", "ein hund", "", "katze").out.count("\n") == 3
    assert regard("show", tmp_path / "r", "ein hund").status == 0


def at_once(jobs: Any, work: Any, launcher: Any, on_event: Any) -> list[Outcome]:
    """Do the jobs of a comparison in this process."""
    return [Outcome(job, work(job.task, lambda *said: None), "", 1.0) for job in jobs]


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.deep
def test_translators_are_compared_by_bleu(
    regard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int
) -> None:
    monkeypatch.setattr("regard.lab.studies.compare.launch", at_once)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    source, target = write(tmp_path, 400)
    words = ["compare", "translation", "--arms", "gru,lab-6", "--data", f"{source},{target}",
             "--seeds", seeds, "--out", tmp_path / "c", *TINY]  # fmt: skip
    found = json.loads(regard(*words, "--json").out)
    assert found["metric"] == "BLEU"
    record = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert "tok:13a" in record["signature"]
    assert set(record["arms"][0]["also"]) == {"chrF", "exact match"}
    from regard.lab import runs

    for row in found["arms"]:
        values = [
            runs.load(tmp_path / "c" / row["name"] / f"seed-{seed}").evaluate().value
            for seed in range(seeds)
        ]
        assert row["mean"] == pytest.approx(sum(values) / seeds)
        assert row["low"] <= row["mean"] <= row["high"]
    (verdict,) = found["verdicts"]
    assert verdict["difference"] == pytest.approx(
        found["arms"][1]["mean"] - found["arms"][0]["mean"]
    )
    told = regard(*words).out
    for word in ("BLEU (95 %)", "seconds", "peak MB", "parameters", "chrF", "exact match %"):
        assert word in told
    assert ("two models, not two methods" in told) == (seeds == 1)
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    assert "BLEU computed by sacreBLEU, nrefs:1" in page
    assert "Alignment of output and source" in page
