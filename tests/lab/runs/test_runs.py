import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs.build import prepare
from regard.lab.runs.config import Config
from regard.lab.runs.folder import Folder
from regard.lab.tasks import TASKS, shared
from regard.lab.tasks.classification.task import Classification
from regard.lab.tasks.models import MODELS
from regard.training.loop import Progress, Training
from tests.lab.small_runs import finished, stop_after

BRIEF = ["examples=120", "width=8", "batch_tokens=300", "threads=1", "precision=fp32"]
TINY = [*BRIEF, "epochs=2"]
SMALL = ["heads=2", "layers=1", "feedforward=12", *TINY]


def finish(run: runs.Run) -> list[int]:
    return [progress.step for progress in run.train()]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of a tiny transformer."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    finish(runs.start(folder, "classification", "transformer", SMALL))
    return folder


def test_the_folder_holds_what_was_promised(whole: Path) -> None:
    names = {
        "config.toml", "env.json", "metrics.jsonl", "model.safetensors", "tokenizer.json",
        "predictions.jsonl",
    }  # fmt: skip
    assert {path.name for path in whole.iterdir()} == {*names, "MANIFEST.json"}
    manifest = json.loads((whole / "MANIFEST.json").read_text())
    assert {name: sha256(whole / name) for name in names} == {
        name: entry["sha256"] for name, entry in manifest.items()
    }
    environment = json.loads((whole / "env.json").read_text())
    assert environment["seed"] == 0
    assert environment["threads"] == 1
    assert environment["precision"] == {"name": "fp32", "reason": "requested"}
    assert environment["versions"]["torch"] == torch.__version__.partition("+")[0] or (
        environment["versions"]["torch"] == torch.__version__
    )
    assert environment["data"]["labels"] == ["negative", "positive"]
    config = Config.read(whole)
    assert (config.task, config.model, config.training.epochs) == (
        "classification",
        "transformer",
        2,
    )
    assert config == Config.make("classification", "transformer", SMALL)


def test_metrics_tell_the_way(whole: Path) -> None:
    rows = runs.load(whole).metrics()
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert rows[-1]["step"] == rows[-1]["steps"]
    assert rows[-1]["validation"] is not None
    assert rows[-1]["best"] == max(row["validation"] or 0 for row in rows)


def test_same_command_says_complete_and_changes_nothing(whole: Path) -> None:
    before = {path.name: (sha256(path), path.stat().st_mtime_ns) for path in whole.iterdir()}
    run = runs.open_or_start(whole, "classification", "transformer", SMALL)
    assert run.complete
    assert finish(run) == []
    after = {path.name: (sha256(path), path.stat().st_mtime_ns) for path in whole.iterdir()}
    assert before == after


def test_same_command_elsewhere_makes_the_same_bits(whole: Path, tmp_path: Path) -> None:
    finish(runs.start(tmp_path / "again", "classification", "transformer", SMALL))
    for name in ("model.safetensors", "predictions.jsonl", "config.toml", "tokenizer.json"):
        assert sha256(tmp_path / "again" / name) == sha256(whole / name), name


def test_another_seed_makes_others(whole: Path, tmp_path: Path) -> None:
    finish(runs.start(tmp_path / "seed", "classification", "transformer", [*SMALL, "seed=1"]))
    assert sha256(tmp_path / "seed" / "model.safetensors") != sha256(whole / "model.safetensors")


def test_other_settings_are_refused_by_name(whole: Path) -> None:
    other = [item for item in SMALL if not item.startswith("epochs")] + ["epochs=7", "score=dot"]
    with pytest.raises(RegardError) as told:
        runs.open_or_start(whole, "classification", "transformer", other)
    line = str(told.value)
    assert "epochs is 2.0 there and 7.0 here" in line
    assert "score is 'scaled-dot' there and 'dot' here" in line
    assert "width" not in line
    with pytest.raises(RegardError, match="model is 'transformer' there and 'mean' here"):
        runs.open_or_start(whole, "classification", "mean")


def test_where_and_when_may_differ(whole: Path) -> None:
    free = [*SMALL, "data_dir=/elsewhere", "save_every=3", "save_seconds=5"]
    assert runs.open_or_start(whole, "classification", "transformer", free).complete


def test_folders_of_something_else_are_left_alone(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RegardError, match="contains files that are not a run"):
        runs.open_or_start(tmp_path, "classification", "mean")
    with pytest.raises(RegardError, match="contains files that are not a run"):
        runs.open_or_start(tmp_path / "thesis.tex", "classification", "mean")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RegardError, match="contains no run"):
        runs.load(tmp_path)
    with pytest.raises(RegardError, match="does not exist"):
        runs.load(tmp_path / "nowhere")
    with pytest.raises(RegardError, match="already contains a run"):
        runs.start(whole, "classification", "mean")


def test_a_config_edited_badly_is_one_line(tmp_path: Path) -> None:
    for text in ("task = ", "task = 'classification'", "task = 3\nmodel = 4"):
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(RegardError, match=r"config\.toml is not the config of a run"):
            runs.load(tmp_path)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("stop", [1, 3, 6])
def test_resume_ends_in_the_same_bits(whole: Path, tmp_path: Path, stop: int) -> None:
    settings = [*SMALL, "save_every=2"]
    run = runs.open_or_start(tmp_path / "run", "classification", "transformer", settings)
    stop_after(run, stop)
    assert not run.complete
    with pytest.raises(RegardError, match="is not complete"):
        run.predict("a film")
    resumed = runs.open_or_start(tmp_path / "run", "classification", "transformer", settings)
    told = list(resumed.train())
    assert told[0].step == (stop - 1) // 2 * 2 + 1
    for name in ("model.safetensors", "predictions.jsonl", "tokenizer.json"):
        assert sha256(tmp_path / "run" / name) == sha256(whole / name), name
    timed = {"tokens_per_second", "seconds", "seconds_left", "peak_mb"}
    ours, theirs = (
        [{key: value for key, value in row.items() if key not in timed} for row in run.metrics()]
        for run in (resumed, runs.load(whole))
    )
    assert ours == theirs


def test_a_stopped_training_can_be_ended_where_it_is(whole: Path, tmp_path: Path) -> None:
    from regard.training.checkpoints import Checkpoints

    settings = [*SMALL, "save_every=2", "evaluate_every=1000", "average=0"]
    run = runs.start(tmp_path / "run", "classification", "transformer", settings)
    with pytest.raises(RegardError, match="nothing to complete"):
        list(run.train(end=True))
    assert [path.name for path in (tmp_path / "run").glob("[!.]*")] == ["config.toml"]
    stop_after(run, 5)
    trained = Checkpoints(tmp_path / "run" / "checkpoints").load(4).tensors["model"]
    (told,) = run.train(end=True)
    assert (told.step, told.validation is None) == (4, False)
    assert run.complete
    assert run.ended == pytest.approx(4 / told.steps)
    assert runs.load(whole).ended is None
    found = dict(run.network.named_parameters())
    assert all(torch.equal(found[name], trained[name]) for name in found)
    assert run.predict("a film").label in ("negative", "positive")
    assert list(run.train()) == []
    last = run.metrics()[-1]
    assert (last["step"], last["validation"]) == (4, told.validation)
    assert run.notes == [
        f"the training was ended by --end after {4 / told.steps:.0%} of its budget"
    ]
    counts = runs.start(tmp_path / "counts", "classification", "tfidf", ["examples=120"])
    with pytest.raises(RegardError, match="nothing to complete"):
        list(counts.train(end=True))


def cut_off_at_the_end(training: Iterator[Progress]) -> None:
    """Train, and fail where the files of the run are sealed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Folder, "seal", Mock(side_effect=OSError("cut")))
        with pytest.raises(OSError, match="cut"):
            list(training)


def test_what_was_trained_to_its_end_was_not_ended_early(tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run", "classification", "transformer", [*SMALL, "save_every=1"])
    cut_off_at_the_end(run.train())
    (told,) = run.train(end=True)
    assert told.step == told.steps
    assert (run.complete, run.ended) == (True, None)


def test_an_optimizer_that_does_not_suit_leaves_the_folder_free(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with pytest.raises(RegardError, match="use optimizer=adamw"):
        finish(runs.open_or_start(place, "classification", "mean", [*TINY, "optimizer=muon"]))
    assert finish(runs.open_or_start(place, "classification", "mean", [*TINY, "optimizer=adamw"]))


def test_muon_trains_a_run_and_its_checkpoints_go_on(whole: Path, tmp_path: Path) -> None:
    settings = [*SMALL, "optimizer=muon", "save_every=2"]
    first = runs.start(tmp_path / "whole", "classification", "transformer", settings)
    finish(first)
    run = runs.start(tmp_path / "cut", "classification", "transformer", settings)
    stop_after(run, 4)
    finish(run)
    weights = [tmp_path / name / "model.safetensors" for name in ("whole", "cut")]
    assert sha256(weights[0]) == sha256(weights[1]) != sha256(whole / "model.safetensors")


def test_an_end_that_was_cut_off_leaves_no_word_behind(tmp_path: Path) -> None:
    settings = [*SMALL, "save_every=2"]
    run = runs.start(tmp_path / "run", "classification", "transformer", settings)
    stop_after(run, 3)
    cut_off_at_the_end(run.train(end=True))
    again = runs.load(tmp_path / "run")
    assert finish(again)[-1] > 3
    assert again.ended is None


def test_a_line_cut_off_by_a_kill_is_dropped(tmp_path: Path) -> None:
    settings = [*SMALL, "save_every=2"]
    stop_after(runs.start(tmp_path / "run", "classification", "transformer", settings), 4)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99')
    run = runs.load(tmp_path / "run")
    finish(run)
    steps = [row["step"] for row in run.metrics()]
    assert steps == sorted(set(steps))
    assert 99 not in steps
    assert steps[-1] == run.metrics()[-1]["steps"]


def test_two_processes_cannot_train_one_run(tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run", "classification", "transformer", SMALL)
    training = run.train()
    next(training)
    with pytest.raises(RegardError, match=r"process \d+ is writing to"):
        next(runs.load(tmp_path / "run").train())
    training.close()
    assert finish(runs.load(tmp_path / "run"))[0] == 1


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run", "classification", "transformer", SMALL)
    code = (
        "import sys; from regard.lab import runs; training = runs.load(sys.argv[1]).train()\n"
        "next(training); print('begun', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        with pytest.raises(RegardError, match=f"process {process.pid} is writing to"):
            next(run.train())
        process.kill()
    assert finish(run)[-1] > 0
    assert run.complete


def test_a_full_disk_loses_nothing(whole: Path, small_disk: Path) -> None:
    settings = [*SMALL, "save_every=2"]
    run = runs.start(small_disk / "run", "classification", "transformer", settings)
    training, ballast = run.train(), small_disk / "ballast"
    for _ in islice(training, 3):
        pass
    while run.folder.checkpoints.steps() != [2]:  # written beside the training
        time.sleep(0.01)
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(1 << 20))
    with pytest.raises(RegardError, match=r"step-4: No space left on device; it needs 0\.\d MB"):
        list(training)
    assert run.folder.checkpoints.steps() == [2]
    assert run.folder.checkpoints.load(2).step == 2
    ballast.unlink()
    told = list(
        runs.open_or_start(small_disk / "run", "classification", "transformer", settings).train()
    )
    assert told[0].step == 3
    assert sha256(small_disk / "run" / "model.safetensors") == sha256(whole / "model.safetensors")


def test_changed_data_are_noticed(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    rows = [f"good number {n} of all,up" for n in range(40)] + [
        f"bad number {n} of all,down" for n in range(40)
    ]
    data.write_text("\n".join(["text,label", *rows]))
    settings = [*SMALL, f"data={data}", "save_every=1"]
    run = runs.start(tmp_path / "run", "classification", "transformer", settings)
    stop_after(run, 2)
    data.write_text("\n".join(["text,label", *rows, "good after all,up"]))

    shared.cache_clear()  # as another process would
    with pytest.raises(RegardError, match=r"the data of .* changed since"):
        finish(runs.load(tmp_path / "run"))


def chances(run: runs.Run, texts: list[str]) -> np.ndarray:
    """(texts, labels) probabilities, the labels in the run's order."""
    return np.array([list(said.probabilities.values()) for said in run.predict(texts)])


def test_evaluation_is_of_the_test_split(whole: Path) -> None:
    judged = runs.load(whole).evaluate()
    assert judged.n == 1_000
    assert judged.value == judged.correct.mean()
    assert judged.low < judged.value < judged.high
    assert np.sum(judged.summary["confusion"]) == 1_000
    assert np.trace(judged.summary["confusion"]) == judged.correct.sum()
    rows = [json.loads(line) for line in (whole / "predictions.jsonl").read_text().splitlines()]
    assert rows[3]["label"] == judged.examples[3].label
    assert rows[3]["source"] == judged.examples[3].source
    assert rows[3]["probabilities"]["positive"] == pytest.approx(judged.answers[3, 1])
    again = chances(runs.load(whole), [row["text"] for row in rows])
    np.testing.assert_allclose(again, judged.answers, atol=1e-6)


def test_evaluation_of_another_file(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text("text,label\na good film,positive\na bad film,negative\nfine,positive\n")
    run = runs.load(whole)
    judged = run.evaluate(file)
    assert judged.n == 3
    said = [answer.label for answer in run.predict(["a good film", "a bad film", "fine"])]
    assert judged.correct.tolist() == [
        said[0] == "positive", said[1] == "negative", said[2] == "positive",
    ]  # fmt: skip
    file.write_text("text,label\na good film,positive\nodd,neutral\n")
    with pytest.raises(RegardError, match=r"more\.csv:3: unknown label 'neutral'; the model"):
        run.evaluate(file)


def test_a_run_answers_without_its_data(whole: Path, tmp_path: Path, monkeypatch) -> None:
    copy = shutil.copytree(whole, tmp_path / "copy")

    def unreachable(*_: object, **__: object) -> None:
        raise AssertionError("the data were read")

    monkeypatch.setattr("regard.lab.tasks.texts.load_corpus", unreachable)
    run = runs.load(copy)
    one = run.predict("a good film")
    assert one.label in ("negative", "positive")
    assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-6)
    assert one.label == max(one.probabilities, key=one.probabilities.__getitem__)
    many = run.predict(["a good film", "", "utterly unknown wörds ☃"])
    assert many[0].probabilities == pytest.approx(one.probabilities, abs=1e-6)
    assert len(many) == 3
    assert run.predict([]) == []


def test_a_changed_file_is_not_believed(whole: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(whole, tmp_path / "copy")
    victim = copy / "model.safetensors"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(bytes(data))
    with pytest.raises(RegardError, match="has changed since the run was completed"):
        runs.load(copy).predict("a film")
    victim.unlink()
    with pytest.raises(RegardError, match=r"cannot read .*model.safetensors"):
        runs.load(copy).predict("a film")


def test_attention_of_a_text(whole: Path) -> None:
    looked = runs.load(whole).attention("A film that isn't bad")
    assert [layer.tokens for layer in looked] == [["a", "film", "that", "is", "n't", "bad"]] * 2
    assert [layer.weights.shape for layer in looked] == [(2, 6, 6), (1, 1, 6)]
    for layer in looked:
        np.testing.assert_allclose(layer.weights.sum(-1), 1, atol=1e-5)
    with pytest.raises(RegardError, match="this text has no words"):
        runs.load(whole).attention(" ")


@pytest.mark.parametrize("model", ["gpt", "bert", "t5"])
def test_a_text_longer_than_the_network_counts_is_cut(model: str, tmp_path: Path) -> None:
    rows = [f"{'good bad'.split()[i % 2]} {f'film{i} ' * 300},{i % 2}" for i in range(60)]
    (tmp_path / "long.csv").write_text("\n".join(["text,label", *rows]))
    brief = [*SMALL, "position=learned"] if model != "t5" else SMALL
    finish(run := runs.start(tmp_path / "run", "classification", model, [
        f"data={tmp_path / 'long.csv'}", "steps=2", *(x for x in brief if "epochs" not in x)
    ]))  # fmt: skip
    assert run.left_out(["film " * 300]) == [300 - (256 - MODELS[model].symbols)]
    short = Config.make("classification", model, [f"length={MODELS[model].symbols or 1}"])
    if model == "t5":
        assert short.reads == short.data
    else:
        with pytest.raises(RegardError, match=r"too short for the special tokens of .*; take"):
            prepare(short)


NETWORKS = [name for name, entry in MODELS.items() if not entry.deterministic]


@pytest.mark.parametrize(("model", "reads"), [
    ("bert", "[CLS] one two three seven eight nine [SEP]"),
    ("gpt", "one two three four seven eight nine [CLS]"),
])  # fmt: skip
def test_symbols_leave_a_long_text_both_its_ends(model: str, reads: str, tmp_path: Path) -> None:
    cut = ["length=8", "truncate=ends", "position=learned", "minimum=1"]
    finish(run := runs.start(tmp_path / "run", "classification", model, [*SMALL, *cut]))
    text = "one two three four five six seven eight nine"
    assert run.attention(text)[0].tokens == reads.split()
    room = len([word for word in reads.split() if not word.startswith("[")])
    assert run.left_out([text, "one two three four five six"]) == [9 - room, 0]


@pytest.mark.parametrize("model", NETWORKS)
def test_every_network_makes_the_round(model: str, tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run", "classification", model, [*BRIEF, "steps=2"])
    finish(run)
    loaded = runs.load(tmp_path / "run")
    assert loaded.evaluate().n == 1_000
    assert loaded.predict("a film").probabilities.keys() == {"negative", "positive"}
    for layer in loaded.attention("a good film"):
        assert layer.weights.shape[-1] == len(layer.tokens)
        assert len(layer.tokens) == 3 + {"+cls": 1, "gpt": 1, "bert": 2}.get(model, 0)


@pytest.mark.parametrize("model", ["tfidf", "nb-svm"])
def test_baselines_go_the_same_way(model: str, tmp_path: Path) -> None:
    run = runs.open_or_start(tmp_path / "run", "classification", model, ["examples=300"])
    (told,) = run.train()
    assert told.step == told.steps == 1
    assert told.validation == told.best
    loaded = runs.load(tmp_path / "run")
    judged = loaded.evaluate()
    assert judged.n == 1_000
    assert judged.value > 0.55  # words alone tell a little
    again = chances(loaded, [example.text for example in judged.examples])
    np.testing.assert_allclose(again, judged.answers, atol=1e-6)
    assert len(loaded.metrics()) == 1
    assert (
        finish(runs.open_or_start(tmp_path / "run", "classification", model, ["examples=300"]))
        == []
    )
    with pytest.raises(RegardError, match="without a network, layers or attention"):
        loaded.attention("a film")
    (tmp_path / "run" / "model" / "terms.txt").write_text("gone\n")
    with pytest.raises(RegardError, match="damaged"):
        runs.load(tmp_path / "run").predict("a film")


def test_pretrained_vectors_are_not_needed_afterwards(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("the 0.5 0.5 0.5\nit -0.5 0.5 0.25\n")
    settings = ["examples=120", "steps=3", "threads=1", f"vectors={vectors}"]
    run = runs.start(tmp_path / "run", "classification", "attention-pool", settings)
    finish(run)
    environment = json.loads((tmp_path / "run" / "env.json").read_text())
    assert environment["vectors"]["found"] == 2
    assert environment["vectors"]["width"] == 3
    vectors.unlink()
    loaded = runs.load(tmp_path / "run")
    assert loaded.network.embedding.weight.shape[1] == 3
    judged = run.evaluate()
    again = chances(loaded, [example.text for example in judged.examples])
    np.testing.assert_allclose(again, judged.answers, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "unit"), [("transformer", "epochs"), ("mean", "steps"), ("tfidf", "epochs")]
)
def test_forecast_writes_nothing(
    model: str, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = runs.forecast("classification", model, ["examples=200", f"{unit}=4"])
    assert list(tmp_path.iterdir()) == []
    assert told.train + told.validation == 200
    assert told.test == 1_000
    assert told.parameters > 100
    assert told.seconds > 0
    assert told.memory_mb > 50
    if unit == "steps":
        assert told.steps == 4


def test_forecast_of_a_baseline_knows_the_rarest_label(tmp_path: Path) -> None:
    rows = [f"text {i},{'rare' if i in (1, 2, 4, 7, 8, 11) else 'usual'}" for i in range(3000)]
    (tmp_path / "rare.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    told = runs.forecast("classification", "tfidf", [f"data={tmp_path / 'rare.csv'}"])
    assert told.steps == 1
    assert told.seconds > 0


def test_forecast_counts_the_tokens_that_are_read() -> None:
    given = ["width=8", "heads=2", "layers=1", "feedforward=8", "batch_tokens=2000"]
    told = runs.forecast("birthplace-pretrain", "gpt", [*given, "tokens=500000"])
    task = TASKS["birthplace-pretrain"].prepare(TASKS["birthplace-pretrain"].configure({}))
    epoch = int(task.lengths("train", 0, 0).sum())
    batches = len(task.batches("train", tokens=2000, seed=0, epoch=0))
    assert told.steps == round(500_000 / (epoch / batches))


def test_forecast_begins_where_the_training_would(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="none does not exist"):
        runs.forecast("birthplace", "gpt", [f"init={tmp_path / 'none'}", "steps=3"])


class Clock:
    """A clock on which each step of a training takes ten seconds, the first ones a hundred."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, judging: float) -> None:
        self.now, steps, update, judge = 0.0, count(), Training.update, Classification.judge

        def slow(training: Any, indexes: Any) -> float:
            self.now += 100 if next(steps) < 2 else 10
            return update(training, indexes)

        def slow_too(*given: Any, **settings: Any) -> tuple[float, float]:
            self.now += judging
            return judge(*given, **settings)

        monkeypatch.setattr(Training, "update", slow)
        monkeypatch.setattr(Classification, "judge", slow_too)

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("given", "typical", "steps", "most"),
    [
        (["steps=40"], 3, 40, 40),  # of which every tenth is followed by a validation
        (["steps=400"], 3, 150, 400),  # three times five validations
        (["steps=400"], 1.4, 70, 400),
        (["steps=400", "patience=0"], 7, 400, 400),
    ],
)
def test_a_forecast_says_typically_and_at_most(
    given: list[str], typical: float, steps: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the warm-up, with validations and test, until patience or the budget ends it."""
    given = [*given, "examples=200", "evaluate_every=10", "batch_size=0", "validation=0.5"]
    monkeypatch.setattr("regard.lab.runs.forecasting.LONGEST", 1e9)
    clock = Clock(monkeypatch, judging=500.0)
    told = runs.forecast("classification", "mean", given, typical=typical, clock=clock)
    assert (told.steps, told.most_steps) == (steps, most)
    test = 500 * 1_000 / told.validation  # as a validation, by the number of tokens
    for ended, seconds in ((steps, told.seconds), (most, told.most_seconds / 1.5)):
        assert seconds == pytest.approx(10 * ended + 500 * (ended // 10 + 1) + test, rel=0.2)


def test_the_time_left_says_typically_and_at_most(tmp_path: Path) -> None:
    given = ["examples=200", "epochs=40", "evaluate_every=2", "patience=3", "threads=1"]
    told = list(runs.start(tmp_path / "run", "classification", "mean", given).train())
    first, last = told[0], told[-1]
    assert first.typical_steps == 18  # three times the patience
    assert first.left[0] == pytest.approx(first.left[1] * 17 / (first.steps - 1))
    assert all(one.typical_steps > one.step for one in told[:-1])
    assert last.left == (0.0, 0.0)
    assert last.ended == "patience"
    assert first.typical_steps / 3 <= last.step <= first.steps


def test_forecast_of_minutes_is_the_minutes(tmp_path: Path) -> None:
    told = runs.forecast("classification", "mean", ["examples=200", "minutes=2", "patience=0"])
    assert told.seconds == pytest.approx(120, rel=0.1)  # and the test
    assert told.most_seconds == told.seconds
    assert told.steps > 100


@pytest.fixture
def steps_of_two(tmp_path: Path) -> Path:
    settings = [*SMALL, "save_every=2"]
    stop_after(runs.start(tmp_path / "run", "classification", "transformer", settings), 4)
    return tmp_path / "run"


def test_threads_and_precision_are_those_of_the_beginning(steps_of_two: Path) -> None:
    path = steps_of_two / "env.json"
    environment = json.loads(path.read_text())
    environment["threads"] = 2
    environment["precision"] = {"name": "fp32", "reason": "as it was"}
    path.write_text(json.dumps(environment))
    run = runs.load(steps_of_two)
    training = run.train()
    next(training)
    assert torch.get_num_threads() == 2
    training.close()
    assert run._precision.reason == "as it was"


def test_keys_of_task_model_and_training_do_not_meet() -> None:
    config = Config.make("classification", "transformer", [])
    sections = config.sections()
    training = sections["training"].keys()
    assert not training & sections["data"].keys()
    for entry in MODELS.values():
        assert not training & entry.settings.model_fields.keys()
    assert sections["data"].keys() & sections["network"].keys() == {"length"}
    both = Config.make("classification", "transformer", ["length=50"])
    assert both.sections()["data"]["length"] == both.sections()["network"]["length"] == 50


def test_a_run_keeps_the_constants_of_its_kernels(tmp_path, monkeypatch):
    from regard.attention.kernels import choose

    with choose.using(choose.Constants(exact_pairs=123)):
        finished(runs.start(tmp_path / "run", overrides=["steps=2", "examples=60"]))
    kept = json.loads((tmp_path / "run" / "env.json").read_text())["kernels"]
    assert kept["exact_pairs"] == 123
    seen = []
    plan = choose.plan
    monkeypatch.setattr(
        choose, "plan", lambda given: seen.append(choose.constants()) or plan(given)
    )
    runs.load(tmp_path / "run").predict("good")
    assert seen
    assert all(constants.exact_pairs == 123 for constants in seen)
    assert choose.constants().exact_pairs == choose.SHIPPED.exact_pairs


def test_an_evaluation_prints_its_summary_and_not_its_texts(whole: Path) -> None:
    said = repr(runs.load(whole).evaluate())
    assert said.startswith("<Evaluation accuracy ")
    assert len(said) < 700


def test_a_run_opens_by_what_its_environment_must_have(tmp_path):
    """Facts that nobody needs may be missing, as of an earlier version; the rest is requested."""
    finish(runs.start(tmp_path / "run", "classification", "mean", ["width=8", "steps=2"]))
    path = tmp_path / "run" / "env.json"
    told = json.loads(path.read_text())
    needed = {key: told[key] for key in ("threads", "precision", "data")}
    path.write_text(json.dumps(needed))
    assert runs.load(tmp_path / "run").predict("a good film").label
    path.write_text(json.dumps({**needed, "data": {"name": "x", "fingerprint": "y"}}))
    with pytest.raises(RegardError, match="has no labels; train the run again"):
        runs.load(tmp_path / "run").predict("a good film")
    for key in needed:
        path.write_text(json.dumps({k: v for k, v in needed.items() if k != key}))
        with pytest.raises(RegardError, match=f"{key} is missing"):
            runs.load(tmp_path / "run").predict("a good film")


def test_a_baseline_answers_without_its_data(tmp_path: Path) -> None:
    data = tmp_path / "r.csv"
    rows = [f"a {word} film number {n},{label}" for n in range(40)
            for word, label in (("good", "up"), ("bad", "down"))]  # fmt: skip
    data.write_text("\n".join(["text,label", *rows]))
    finish(runs.start(tmp_path / "run", "classification", "tfidf", [f"data={data}", "minimum=1"]))
    data.unlink()
    shared.cache_clear()  # as another process would
    loaded = runs.load(tmp_path / "run")
    assert [said.label for said in loaded.predict(["a good film", "a bad film"])] == ["up", "down"]
    assert loaded.evaluate().value == 1
    assert loaded.left_out(["a " * 9_999]) == [0]
