"""Arms from elsewhere in comparisons: by name in workers, in this process, and by a command."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from torch import nn

from regard import Arm, RegardError
from regard.core import trusted
from regard.core.names import COMMAND
from regard.lab.cli.calls import compare
from regard.lab.studies.arms import parse_arms
from regard.lab.studies.here import Here
from regard.lab.studies.job import RunTask, train_and_score
from regard.lab.studies.launch import Event, Job, Launcher, Notify, Outcome, Work
from regard.lab.studies.spec import JobSpec
from tests.lab.cli.conftest import Command, regard  # noqa: F401 - a fixture
from tests.lab.studies.declare import declared

#: A stranger's own script: the built-in arm ``tfidf`` in scikit-learn's words.
MINE = r"""
import csv
import sys
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

train, test, out, seed = sys.argv[1:]
rows, others = (list(csv.DictReader(open(x, newline="", encoding="utf-8"))) for x in (train, test))
model = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2, token_pattern=r"\w+|[^\w\s]"),
    LogisticRegression(C=30, max_iter=1000),
)
model.fit([row["text"] for row in rows], [row["label"] for row in rows])
with open(out, "w", newline="") as file:
    answers = model.predict([row["text"] for row in others])
    csv.writer(file).writerows([["predicted"], *([x] for x in answers)])
"""
PIPELINE = """
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
def pipeline():
    return make_pipeline(CountVectorizer(), MultinomialNB())
"""


class Mean(nn.Module):
    """A network as anybody writes one."""

    def __init__(self, vocab_size: int, num_classes: int, dim: int = 8) -> None:
        super().__init__()
        self.vectors, self.out = nn.Embedding(vocab_size, dim), nn.Linear(dim, num_classes)

    def forward(self, ids: torch.Tensor, valid_lens: torch.Tensor) -> Any:
        return self.out(self.vectors(ids).sum(1) / valid_lens[:, None])


@pytest.fixture(autouse=True)
def no_memory_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)


def test_a_command_like_tfidf_is_as_good_as_tfidf(
    regard: Command,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    Path("own.py").write_text(PIPELINE)
    command = f"command:{sys.executable} mine.py {{train}} {{test}} {{out}} {{seed}}"
    arms = f"tfidf,own.py:pipeline,{command}"
    words = ["compare", "classification", "--arms", arms, "examples=300", "--json", "--out", "out"]
    said = regard(*words, "--seeds", "2", "--workers", "2")
    assert said.status == 0, said.err
    tfidf, pipeline, mine = json.loads(said.out)["arms"]
    assert (tfidf["seeds"], pipeline["seeds"], mine["seeds"]) == (1, 1, 2)
    assert tfidf["mean"] == mine["mean"] != pipeline["mean"]
    assert (mine["parameters"], mine["trained"]) == (None, True)
    assert mine["seconds"] > 0.3
    assert 50 < mine["peak_mb"] < tfidf["peak_mb"]
    other, verdict = json.loads(said.out)["verdicts"]
    assert (verdict["b"], verdict["difference"], verdict["p"]) == ("tfidf", 0.0, 1.0)
    assert other["difference"] == pytest.approx(pipeline["mean"] - tfidf["mean"])
    assert "own.py:pipeline" in Path("out/report.html").read_text()
    Path("mine.py").write_text("raise SystemExit('edited')")  # complete runs are not run again
    assert json.loads(regard(*words, "--seeds", "2").out)["arms"][2]["mean"] == mine["mean"]
    more = regard(*words, "--seeds", "3", "--workers", "1")
    assert more.status == 2  # one arm fails, the others have results
    assert "seed 2: " in more.err
    assert "ended with exit code 1: edited" in more.err
    assert len(json.loads(more.out)["arms"]) == 3


def test_commas_and_signs_belong_to_a_command_until_a_semicolon() -> None:
    text = "mean,cnn:widths=2,3, command:a --n=1,2 x:y {test},{out} ;transformer,heads=2;"
    text += "command:b {test} {out}"
    assert [arm.name for arm in parse_arms(text)] == [
        "mean",
        "cnn:widths=2,3",
        "command:a --n=1,2 x:y {test},{out}",
        "transformer:heads=2",
        "command:b {test} {out}",
    ]
    for arms, says in (
        ("mean,command:python x.py {test}", r"\{out\} is missing; write command:PROGRAM"),
        ("mean,command:sh -c 'a; b' {test} {out}", "No closing quotation; a semicolon ends an arm"),
        ("mean,command:a {tset} {out}", r"\{tset\} is unknown; a command has \{train\}"),
    ):
        with pytest.raises(RegardError, match=says):
            parse_arms(arms)


def test_a_command_is_a_job_of_a_shell(tmp_path: Path) -> None:
    study = declared("classification", "mean,command:a 'b c' {test} {out} {seed}", seeds=2)
    job = study.jobs()[-1]
    assert job.task.model == "command:a 'b c' {test} {out} {seed}"
    line = JobSpec.of(train_and_score, job).command()
    assert "--model 'command:a '\"'\"'b c'\"'\"' {test} {out} {seed}'" in line
    study.check()
    assert study.trials == {arm.name: 0 for arm in study.arms}


def test_a_dry_run_and_a_search_leave_a_command_out(
    regard: Command,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arms = "command:a {test} {out};tfidf"
    dry = regard("compare", "classification", "--arms", arms, "examples=100", "--dry-run")
    assert dry.status == 0, dry.err
    assert "command:a {test} {out}: not run, so its time is unknown" in dry.out
    study = declared("classification", arms)
    assert [arm.deterministic for arm in study.arms] == [True, True]
    refused = regard("train", "classification", "--model", "command:a {test} {out}", "--dry-run")
    assert refused.status == 2
    assert "is not run by --dry-run" in refused.err


def test_objects_of_this_process_run_here_and_named_ones_in_workers(tmp_path: Path) -> None:
    """`Mean` stands at the top of a module of a package, so no worker can read it by its file."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    nb = make_pipeline(CountVectorizer(), MultinomialNB())
    arms = [
        "nb-svm",
        Arm(nb, "mine"),
        Arm(Mean, dim=4),
        Arm(lambda vocabulary, labels: Mean(vocabulary, labels, 6), "small"),
    ]
    found = compare(
        "classification", arms, seeds=2, out=tmp_path, workers=1, progress=False,
        examples=200, steps=4, threads=1,
    )  # fmt: skip
    assert not found.failures
    _, mine, mean, small = found.arms
    assert (mine.seeds, mean.seeds, small.seeds) == (1, 2, 2)
    words = (mean.parameters - 2) // 4 - 2  # (words + labels) · width + labels
    assert small.parameters == (words + 2) * 6 + 2
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    arms += [Arm(lambda vocabulary, labels: Mean(vocabulary, labels, 5), "new")]
    none = compare(
        "classification", arms, seeds=2, out=tmp_path, progress=False, launch="none",
        examples=200, steps=4, threads=1,
    )  # fmt: skip
    assert [failure.arm for failure in none.failures] == ["new", "new"]
    again = compare(
        "classification", [*arms[:3], Arm(nb.set_params(multinomialnb__alpha=9), "other")],
        seeds=2, out=tmp_path, workers=1, progress=False, examples=200, steps=4, threads=1,
    )  # fmt: skip
    assert again.arms[3].mean != again.arms[1].mean


class Nowhere(Launcher):
    """Keeps the jobs that it is given."""

    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        self.given = list(jobs)
        return [Outcome(job, "there") for job in jobs]


def fails(task: RunTask, report: Any) -> str:
    report(0.5, "half")
    if task.folder == "1":
        raise ZeroDivisionError("by nought")
    if task.folder == "3":
        raise RegardError("no")
    return task.folder


def test_the_order_and_the_errors_of_jobs_here() -> None:
    jobs = [
        Job(arm, i, RunTask(str(i), "", "cnn" if arm == "b" else f"python:{arm}", ()))
        for i, arm in enumerate(["a", "x", "b", "c", "c"])
    ]
    events: list[Event] = []
    others = Nowhere()
    outcomes = Here(others).run(jobs, fails, events.append)
    assert [job.arm for job in others.given] == ["b"]
    assert [(one.job.seed, one.value, one.error) for one in outcomes] == [
        (0, "0", ""),
        (1, None, "ZeroDivisionError: by nought"),
        (2, "there", ""),
        (3, None, "no"),
    ]  # the arm's other seed would fail, too
    kinds = [event.kind for event in events if event.seed == 1]
    assert kinds == ["started", "progress", "failed"]


def test_an_arm_of_a_folder_of_hugging_face_is_fine_tuned(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    told = type("Model", (), {"name_or_path": str(tmp_path)})()
    for thing in (tmp_path, str(tmp_path), told):
        arm = Arm(thing, epochs=1)
        assert (arm.model, arm.overrides) == ("bert", (f"weights={tmp_path}", "epochs=1"))
    assert Arm("cnn").model == "cnn"


def test_an_arm_of_python_gives_a_command_its_right_to_run() -> None:
    name = f"{COMMAND}a {{test}} {{out}}"
    with pytest.raises(RegardError, match="which you have not given"):
        trusted.must_be_given(name, Path("run"))
    assert Arm(name).name == name
    trusted.must_be_given(name, Path("run"))


def test_a_script_without_a_package_names_its_classes_for_the_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import regard\n"
        "from torch import nn\n"
        "def build(vocabulary, labels):\n"
        "    return nn.Sequential(nn.EmbeddingBag(vocabulary, 4), nn.Linear(4, labels))\n"
        "if __name__ == '__main__':\n"
        "    print(regard.Arm(build).name, regard.Arm(lambda v, k: None).model[:14])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{script}:build", "python:lambda@"]
