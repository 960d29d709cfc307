"""Runs that begin with a pretrained encoder: trained or frozen, whole, resumed, compared."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.lab.small_runs import finished, stop_after

pytest.importorskip("transformers")

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs.config import Config, tuning_rate
from regard.lab.studies.compare import compare
from regard.lab.studies.processes import Local
from tests.interop import encoders
from tests.lab.cli.conftest import call
from tests.lab.studies.declare import declared

BRIEF = ["threads=1", "precision=fp32"]
TUNING = [*BRIEF, "epochs=6", "learning_rate=0.003", "batch_tokens=300"]


def train(folder, model, *settings):
    return finished(runs.open_or_start(folder, "classification", model, settings))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return f"data={encoders.labelled(tmp_path_factory.mktemp('data') / 'texts.jsonl')}"


@pytest.fixture(scope="module", params=encoders.KINDS)
def weights(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / request.param
    encoders.save(request.param, folder, wide=True)
    return folder


def test_both_learn_and_need_the_folder_no_more(data, weights, tmp_path):
    """A linear map of a random encoder's mean states tells which word stood in a text."""
    source = shutil.copytree(weights, tmp_path / "source")
    given = [data, f"weights={source}"]
    tuned = train(tmp_path / "tuned", "bert", *given, *TUNING)
    frozen = train(tmp_path / "frozen", "frozen", *given, *BRIEF)
    facts = tuned.folder.environment()["weights"]
    assert (facts["source"], facts["new"], len(facts["sha256"])) == (str(source), [], 64)
    shutil.rmtree(source)
    for folder in (tuned.folder.path, frozen.folder.path):
        run = runs.load(folder)
        assert run.evaluate().value > 0.9, folder
        assert [said.label for said in run.predict(["a good film", "the awful plot"])] == [
            "good", "bad"]  # fmt: skip
        layers = run.attention("a good film")
        first, last = ("<s>", "</s>") if "roberta" in weights.name else ("[CLS]", "[SEP]")
        assert len(layers) == run.config.network.layers
        assert (layers[0].tokens[0], layers[0].tokens[1], layers[0].tokens[-1]) == (
            first,
            "a",
            last,
        )
        np.testing.assert_allclose(layers[0].weights.sum(-1), 1, atol=1e-5)
    stored = {n: x for n, x in load_file(frozen.folder.weights).items() if n.startswith("body.")}
    trained = load_file(tuned.folder.weights)
    original = load_file(weights / "model.safetensors")
    word = next(x for name, x in original.items() if name.endswith("word_embeddings.weight"))
    assert torch.equal(stored["body.embedding.weight"], word[: len(run.task.tokenizer)])
    assert all(not torch.equal(x, trained[name]) for name, x in stored.items() if "blocks" in name)
    parameters, flops = frozen.size(["a good film"])
    assert flops is not None
    assert parameters == sum(x.numel() for x in load_file(frozen.folder.weights).values())


def test_what_is_said_of_a_text_is_what_the_encoder_and_scikit_learn_say(data, weights, tmp_path):
    """The stored layer over transformers' states gives the run's answers."""
    run = train(tmp_path / "run", "frozen", data, f"weights={weights}", *BRIEF)
    theirs = encoders.CLASSES[weights.name][0].from_pretrained(weights).eval()
    texts = ["a good film", "it is"]
    tokens = run.task.tokenizer
    kept = load_file(run.folder.weights)
    for text, answer in zip(texts, run.predict(texts), strict=True):
        said = np.array(list(answer.probabilities.values()))
        ids = [
            tokens.special_tokens.classify,
            *tokens.encode([text])[0],
            tokens.special_tokens.separator,
        ]
        with torch.no_grad():
            mean = theirs(torch.tensor([ids])).last_hidden_state.mean(1)
        logits = mean @ kept["to_labels.weight"].T + kept["to_labels.bias"]
        np.testing.assert_allclose(said, logits.softmax(-1)[0], atol=1e-4)


def test_every_seed_of_a_frozen_encoder_is_the_same_run(data, weights, tmp_path):
    one, two = (
        train(tmp_path / str(seed), "frozen", data, f"weights={weights}", *BRIEF, f"seed={seed}")
        for seed in (0, 5)
    )
    for path in ("model.safetensors", "predictions.jsonl"):
        assert (one.folder.path / path).read_bytes() == (two.folder.path / path).read_bytes()


def test_a_fine_tuning_begins_with_a_fitted_layer(data, bert, tmp_path):
    given = [data, f"weights={bert}", *BRIEF, "steps=1", "learning_rate=1e-12"]
    run = train(tmp_path / "tuned", "bert", *given)
    assert run.task.judge(run.network, "train")[0] > 0.9
    assert run.evaluate().value > 0.9


def test_a_frozen_encoder_predicts_numbers(bert, tmp_path):
    path = encoders.labelled(tmp_path / "texts.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    numbers = {label: number for number, label in enumerate(sorted({x["label"] for x in rows}))}
    lines = (json.dumps({**x, "label": 10 + 5 * numbers[x["label"]]}) for x in rows)
    path.write_text("\n".join(lines))
    given = [f"data={path}", f"weights={bert}", *BRIEF]
    run = finished(runs.open_or_start(tmp_path / "run", "regression", "frozen", given))
    assert run.evaluate().value > 0.5


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(data, weights, tmp_path):
    given = ("bert", data, f"weights={weights}", *TUNING[:2], "steps=12", "batch_tokens=200")
    whole = train(tmp_path / "whole", *given)
    stopped = runs.open_or_start(tmp_path / "stopped", "classification", "bert", [*given[1:]])
    stopped.config.training.__dict__["save_every"] = 4
    stop_after(stopped, 6)
    again = train(tmp_path / "stopped", *given)
    assert again.folder.weights.read_bytes() == whole.folder.weights.read_bytes()


def test_weights_that_have_changed_are_noticed(data, weights, tmp_path):
    source = shutil.copytree(weights, tmp_path / "source")
    given = [data, f"weights={source}", *BRIEF, "steps=4", "save_every=1"]
    stop_after(runs.open_or_start(tmp_path / "run", "classification", "bert", given), 2)
    tensors = load_file(source / "model.safetensors")
    name = next(name for name in tensors if name.endswith("LayerNorm.bias"))
    save_file({**tensors, name: tensors[name] + 1}, source / "model.safetensors")
    with pytest.raises(RegardError, match=r"the weights of .* changed since"):
        train(tmp_path / "run", "bert", *given)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "bert"
    encoders.save("bert", folder, wide=True)
    return folder


def test_arms_beside_others_in_one_comparison(data, bert, tmp_path):
    arms = f"tfidf;bert:weights={bert},learning_rate=0.01,batch_tokens=200;frozen:weights={bert}"
    given = [data, "epochs=2", "precision=fp32"]
    found = compare(
        declared("classification", arms, seeds=2, out=tmp_path / "out", overrides=given), Local(1)
    )
    assert not found.failures
    tfidf, tuned, frozen = found.arms
    assert [arm.seeds for arm in found.arms] == [1, 2, 1]
    assert tuned.parameters == frozen.parameters > tfidf.parameters
    assert frozen.mean > 0.9
    assert frozen.seconds > 0
    shutil.copytree(bert, tmp_path / "kept")
    more = {"out": tmp_path / "out", "overrides": given}
    try:
        tensors = load_file(bert / "model.safetensors")
        save_file({n: x * 1.5 for n, x in tensors.items()}, bert / "model.safetensors")
        with pytest.raises(RegardError, match=r"the weights changed since .* was trained"):
            compare(declared("classification", arms, seeds=3, **more), Local(1))
    finally:
        shutil.copy(tmp_path / "kept" / "model.safetensors", bert)


def test_the_frozen_encoder_is_kept_where_it_is_clearly_better(data, bert, tmp_path, monkeypatch):
    given = [data, f"weights={bert}", *BRIEF]
    frozen = train(tmp_path / "frozen", "frozen", *given)
    for least, kept in ((1e9, False), (-1e9, True)):
        monkeypatch.setattr("regard.lab.runs.learning.CLEAR", least)
        run = train(tmp_path / str(kept), "bert", *given, "steps=3", "learning_rate=0.01")
        head = run.folder.environment()["head"]
        assert head == {"frozen": frozen.metrics()[-1]["validation"],
                        "tuned": run.metrics()[-1]["best"], "kept": kept}  # fmt: skip
        ours, theirs = load_file(run.folder.weights), load_file(frozen.folder.weights)
        assert all(torch.equal(x, theirs[name]) for name, x in ours.items()) == kept
        run.__dict__["_environment"] = {"head": {**head, "frozen": 0.9, "tuned": 0.8}}
        then = "the frozen one is kept" if kept else "compare with the model frozen"
        assert run.notes[-1] == (
            "validation accuracy was 90.0 % with the encoder frozen and 80.0 % after fine-tuning; "
            f"{then}"
        )


def test_settings_that_come_with_the_weights(bert):
    made = Config.make("classification", "bert", [f"weights={bert}"])
    kept = json.loads((bert / "config.json").read_text())
    assert (made.network.width, made.network.length) == (kept["hidden_size"], encoders.MOST)
    assert made.data.tokenizer == "pretrained"
    assert made.reads.length == encoders.MOST - 2
    training = made.training
    rate = tuning_rate(made.network.width, made.network.layers)
    assert (training.learning_rate, training.epochs, training.warmup) == (rate, 4, 0.1)
    assert training.least_steps == 200
    assert (
        Config.make("classification", "bert", [f"weights={bert}", "epochs=2"]).training.least_steps
        == 0
    )
    own = ["learning_rate=1e-4", "steps=7", "length=9", "dropout=0.3"]
    other = Config.make("classification", "bert", [f"weights={bert}", *own])
    assert (other.training.learning_rate, other.training.budget) == (1e-4, ("steps", 7))
    assert (other.reads.length, other.network.dropout) == (7, 0.3)
    plain = Config.make("classification", "bert", [])
    assert (plain.training.learning_rate, plain.data.tokenizer) == (1e-3, "words")


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        ("bert", ["weights={w}", "tokenizer=bpe"], "its own tokenizer; leave tokenizer=bpe out"),
        ("bert", ["weights={w}", "vocabulary=99"], "its own tokenizer; leave vocabulary=99 out"),
        ("bert", ["weights={w}", "width=99"], "leave width=99 out"),
        ("bert", ["weights={w}", "init=x"], "x does not exist|exclude each other"),
        ("bert", ["weights={w}/config.json"], "is not a folder"),
        ("bert", ["weights={w}", "length=2"], "too short for the special tokens"),
        ("frozen", [], "give weights=FOLDER"),
        ("gpt", ["weights={w}"], "no setting is called 'weights'"),
    ],
)
def test_what_is_refused_before_anything_is_trained(model, given, says, bert):
    with pytest.raises(RegardError, match=says):
        _ = Config.make("classification", model, [pair.format(w=bert) for pair in given]).reads


def test_a_frozen_encoder_takes_no_part_that_would_have_to_be_learned(data, bert, tmp_path):
    given = [data, f"weights={bert}", *BRIEF, "score=additive"]
    with pytest.raises(RegardError, match=r"frozen trains no encoder, .* has no blocks"):
        train(tmp_path / "run", "frozen", *given)
    run = train(tmp_path / "tuned", "bert", *given, "steps=2")
    assert run.folder.environment()["weights"]["new"]


def test_a_run_goes_on_from_one_that_began_with_weights(data, bert, tmp_path):
    first = train(tmp_path / "first", "bert", data, f"weights={bert}", *BRIEF, "steps=2")
    then = train(tmp_path / "then", "bert", data, f"init={tmp_path / 'first'}", *BRIEF, "steps=1")
    assert then.config.network == first.config.network
    assert then.folder.environment()["init"]["new"] == []
    with pytest.raises(RegardError, match="exclude each other; give only one"):
        train(tmp_path / "x", "bert", data, f"init={tmp_path / 'first'}", f"weights={bert}")


@pytest.mark.parametrize("model", ["bert", "frozen"])
def test_the_commands(model, data, bert, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)
    command = ["train", "classification", "--model", model, data, f"weights={bert}", *BRIEF]
    out = str(tmp_path / "run")
    assert call(*command, "--dry-run", "--json") == 0
    forecast = json.loads(capsys.readouterr().out)
    assert (forecast["model"], forecast["train"] > 100) == (model, True)
    assert not (tmp_path / "run").exists()
    assert call(*command, "--out", out, *(["epochs=1"] if model == "bert" else [])) == 0
    assert f"started from {bert}: " in capsys.readouterr().out
    assert call(*command, "--out", out, *(["epochs=1"] if model == "bert" else [])) == 0
    assert "is already complete" in capsys.readouterr().out
    assert call("show", out, "a good film") == 0
    assert "[CLS] a good film [SEP]" in capsys.readouterr().out
    assert call("evaluate", out) == 0
    assert call("report", out, "--out", str(tmp_path / "report.html")) == 0
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert call("train", "classification", "--model", "bert", "--settings") == 0
    assert "weights=" in capsys.readouterr().out
    assert call(*command[:4], "--pretrain-on", "x.txt", f"weights={bert}") == 2
