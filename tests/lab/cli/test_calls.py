"""The commands as functions of Python: the same run, the same comparison, the same mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.core.errors import RegardError
from regard.lab.data.sources import load_corpus

from .conftest import call

TINY = {
    "examples": 120, "width": 8, "heads": 2, "layers": 1, "feedforward": 12, "steps": 3,
    "batch_tokens": 300, "threads": 1, "precision": "fp32",
}  # fmt: skip


def test_train_makes_the_run_of_the_command(here: Path) -> None:
    run = regard.train("classification", model="transformer", **TINY)
    assert run.complete
    assert run.folder.path == Path("runs/classification-transformer")
    assert 0 <= run.evaluate().value <= 1
    assert len(run.predict(["good", "bad"])) == 2
    status = call(
        *("train", "classification", "--model", "transformer", "--out", "again"),
        *(f"{key}={value}" for key, value in TINY.items()),
    )
    assert status == 0
    there, here = (
        Path(folder, "model.safetensors").read_bytes()
        for folder in ("again", "runs/classification-transformer")
    )
    assert there == here


def test_train_says_its_folder_and_shows_progress_on_request(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = np.int64(2)
    regard.train("classification", model="mean", examples=120, steps=steps, threads=1)
    told = capsys.readouterr()
    assert told.err == "run: runs/classification-mean\n"  # no terminal, no bar
    assert told.out == ""
    regard.train("classification", model="mean", examples=120, steps=steps, threads=1)
    assert capsys.readouterr().err == "run: runs/classification-mean (already complete)\n"
    regard.train(
        "classification", model="mean", out=here / "b", progress=True, examples=120,
        budget="2 steps", threads=1,
    )  # fmt: skip
    told = capsys.readouterr()
    assert "mean on classification: 2 of 2" in told.err
    assert "run: " not in told.err
    slow = {"examples": 120, "batch_tokens": 8192, "patience": 0, "threads": 1}
    regard.train("classification", model="transformer", out="d", budget="1s", **slow)
    assert "updates fit into 0.0166667 minutes, too few" in capsys.readouterr().err
    begun = regard.train("classification", init="b", out="c", examples=120, steps=1, threads=1)
    assert begun.config.model == "mean"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"task": "clasification"}, "did you mean classification"),
        ({"model": "lstm"}, "did you mean rnn"),
        ({"lerning_rate": 1}, "did you mean learning_rate"),
        ({"budget": "3 moons"}, "write 10m"),
        ({"score": object}, "score has the unsupported type type; give a string"),
        ({"data": np.zeros(3)}, "data has the unsupported type ndarray; .* for data a file"),
        ({"data": "none.csv"}, "none.csv"),
        ({"init": "nowhere"}, "nowhere does not exist"),
        ({"steps": 3, "epochs": 2}, "only one budget is allowed"),
        ({"pretrain_budget": "3 steps"}, "--pretrain-budget needs --pretrain-on"),
        ({"pretrain_on": "a.txt", "init": "b"}, "give only one of them"),
        ({"config": "nowhere"}, "nowhere does not exist"),
    ],
)
def test_mistakes_of_a_call(given: dict[str, object], says: str, here: Path) -> None:
    with pytest.raises(RegardError, match=says):
        regard.train(**{"task": "classification", **given})  # type: ignore[arg-type]


def test_pretraining_goes_before_and_settings_come_from_another_run(here: Path) -> None:
    texts = [example.text for example in load_corpus("reviews").train[:200]]
    Path("many.txt").write_text("\n".join(texts) + "\n")
    run = regard.train(
        "classification", pretrain_on="many.txt", pretrain_budget="2 steps", out="a", **TINY
    )
    assert run.config.model == "bert"
    assert run.config.training.init == "a-pretrained"
    before = regard.load("a-pretrained")
    assert before.metrics()[-1]["step"] == 2
    again = regard.train("classification", config="a", out="b", steps=1)
    assert again.config.network == run.config.network
    assert again.metrics()[-1]["step"] == 1


def test_a_folder_with_another_run_is_kept(tmp_path: Path) -> None:
    regard.train("classification", model="tfidf", out=tmp_path / "a", examples=120)
    with pytest.raises(
        RegardError, match="contains another run: examples is 120 there and 130 here"
    ):
        regard.train("classification", model="tfidf", out=tmp_path / "a", examples=130)


def test_compare_makes_the_comparison_of_the_command(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.csv").write_text(
        "text,label\n" + "".join(f"{'good' if i % 2 else 'bad'} {i},{i % 2}\n" for i in range(60))
    )
    found = regard.compare(
        "classification", "tfidf,nb-svm", data=Path("mine.csv"), seeds=1, workers=1
    )
    assert capsys.readouterr().err == "runs: runs/compare-classification-mine\n"
    assert [result.arm.name for result in found.arms] == ["tfidf", "nb-svm"]
    written = json.loads(Path("runs/compare-classification-mine/comparison.json").read_text())
    assert written["report"] == "runs/compare-classification-mine/report.html"
    assert Path(written["report"]).exists()
    with pytest.raises(RegardError, match="did you mean rnn"):
        regard.compare("classification", ["mean", "lstm"])
    with pytest.raises(RegardError, match="data has the unsupported type dict"):
        regard.compare("classification", ["mean", "cnn"], data={})  # type: ignore[arg-type]
    with pytest.raises(RegardError, match="--sampler needs a search"):
        regard.compare("classification", ["mean", "cnn"], sampler="tpe")
    with pytest.raises(RegardError, match="no setting is called 'epoch'; did you mean epochs"):
        regard.compare("classification", ["mean", "cnn"], epoch=3)


def test_a_misspelt_name_loads_no_torch() -> None:
    code = """
import sys, regard
try:
    regard.train("classification", model="trasformer")
except regard.RegardError as error:
    assert "did you mean transformer?" in str(error), error
else:
    raise AssertionError("no mistake was found")
assert "torch" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
