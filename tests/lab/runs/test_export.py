"""Runs of every kind, exported by the command, and loaded by the programs that they are for."""

import json
from functools import partial

import pytest
import torch

from tests.lab.small_runs import finished, trained_run

pytest.importorskip("transformers")

from regard.lab import runs
from regard.lab.cli.main import main
from regard.training.batches import pad
from tests.interop.tiny import transformers

SMALL = ["width=16", "heads=2", "layers=1", "feedforward=16", "steps=6", "threads=1", "seed=3",
         "precision=fp32"]  # fmt: skip
TEXTS = ["length=24", "examples=60", "batch_tokens=240", "data=pydoc"]
RUNS = {
    "gpt": ("language-modeling", "gpt", [*TEXTS, "tokenizer=bpe", "vocabulary=300"]),
    "bert": ("masked-modeling", "bert", TEXTS),
    "t5": ("span-corruption", "t5", [*TEXTS, "tokenizer=unigram", "vocabulary=400"]),
    "pre": ("reverse", "transformer", ["letters=2", "examples=300", "judged=5"]),
    "post": ("reverse", "transformer", ["letters=2", "examples=300", "judged=5", "norm=post"]),
    "gru": ("reverse", "lab-6", ["letters=2", "examples=300", "judged=5"]),
    "born": ("birthplace-pretrain", "gpt", ["length=64", "examples=60", "batch_tokens=240"]),
    "rotary": ("language-modeling", "gpt", [*TEXTS, "position=rotary"]),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A complete run by its name, trained once."""
    folder, done = tmp_path_factory.mktemp("runs"), {}

    def run(name):
        if name not in done:
            task, model, more = RUNS[name]
            small = [*SMALL[4:], "width=16", "hidden=16"] if name == "gru" else SMALL
            done[name] = runs.open_or_start(folder / name, task, model, [*small, *more])
            finished(done[name])
        return done[name]

    return run


@pytest.fixture
def command(capsys, monkeypatch):
    """The command line in this process: its exit code, stdout and stderr."""

    def call(*words):
        monkeypatch.setattr("sys.argv", ["regard", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return call


def exported(command, run, to, folder, *more):
    status, out, err = command("export", run.folder.path, "--to", to, "--out", folder, *more)
    assert (status, err) == (0, "")
    assert "load it with " in out
    assert "AutoModel.from" not in out, "that would leave out what makes words of states"
    return folder


def test_a_baseline_has_nothing_to_export(command, tmp_path):
    trained_run(tmp_path / "run", "classification", "tfidf", ["examples=120"])
    for to in ("huggingface", "ctranslate2"):
        status, out, err = command(
            "export", tmp_path / "run", "--to", to, "--out", tmp_path / "out"
        )
        assert (status, out) == (2, "")
        assert "tfidf is a baseline without a network" in err


def ids_of(run, texts):
    return pad([run.task.tokenizer.encode([text])[0] for text in texts])


@pytest.mark.parametrize("name", ["gpt", "bert", "t5"])
def test_pretrained_models_say_the_same_there(name, made, command, tmp_path):
    run = made(name)
    folder = exported(command, run, "huggingface", tmp_path / name)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    kinds = {"gpt": transformers.AutoModelForCausalLM, "t5": transformers.AutoModelForSeq2SeqLM,
             "bert": transformers.AutoModelForPreTraining}  # fmt: skip
    there, text = kinds[name].from_pretrained(folder).eval(), "Return it."
    own = [i for i in words(text).input_ids if i < len(run.task.tokenizer)]
    assert own == run.task.tokenizer.encode([text])[0]
    tokens, model = torch.tensor([words(text).input_ids]), run.network
    with torch.no_grad():
        if name == "gpt":
            gap = there(tokens).logits - model.to_logits(model(tokens))
        elif name == "bert":
            special = run.task.special_tokens
            assert tokens[0, 0] == special.classify
            assert tokens[0, -1] == special.separator
            assert words.mask_token_id == special.mask
            gap = there(tokens).prediction_logits - model.to_logits(model(tokens))
        else:
            assert words.convert_tokens_to_ids("<extra_id_1>") == run.task.special_tokens.sentinel(
                1
            )
            given, lengths = torch.tensor([[0, 5, 9]]), torch.tensor([tokens.shape[1]])
            said = there(input_ids=tokens, decoder_input_ids=given).logits
            gap = said - model.to_logits(model(tokens, lengths, given))
    assert gap.abs().max() < 1e-5
    if name != "bert":
        assert there.config.eos_token_id == words.eos_token_id == run.task.end
    if name == "gpt":
        assert there.config.bos_token_id == run.task.end, "where a text begins in training"
    card = (folder / "README.md").read_text()
    assert f"# {name} on {run.config.task}" in card
    assert "| data | pydoc |" in card
    assert "data\\_dir" not in card


@pytest.mark.parametrize(("name", "to"), [("pre", "huggingface"), ("post", "marian")])
def test_translators_write_the_same_there(name, to, made, command, tmp_path):
    run = made(name)
    folder = exported(command, run, to, tmp_path / name)
    there = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["ABC", "QQZ"]
    asked = words(texts, return_tensors="pt")
    source, lengths = ids_of(run, texts)
    assert torch.equal(asked.input_ids, source - 1)
    count = len(run.task.tokenizer) + 1
    target = torch.randint(1, count, (2, 4))
    target[:, 0] = 0
    with torch.no_grad():
        said = there(**asked, decoder_input_ids=(target - 1) % count).logits.roll(1, -1)
        gap = said - run.network.to_logits(run.network(source, lengths, target))
    assert gap.abs().max() < 1e-4


@pytest.mark.parametrize("name", ["pre", "post"])
def test_ctranslate2_writes_the_same(name, made, command, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    run = made(name)
    folder = exported(command, run, "ctranslate2", tmp_path / name)
    there = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    texts = ["ABC", "QQZ", "M"]
    pieces = [[names[i] for i in ids] for ids in run.task.tokenizer.encode(texts)]
    given = ["CBA", "Q", "MMM"]
    said = run.task.tokenizer.encode(given)
    scored = there.score_batch(pieces, [[names[i] for i in ids] for ids in said])
    for here, score in zip(run.score(list(zip(texts, given, strict=True))), scored, strict=True):
        assert sum(score.log_probs) == pytest.approx(here.log_probability, abs=1e-4)
    eight = exported(command, run, "ctranslate2", tmp_path / "8", "--quantization", "int8")
    assert (eight / "model.bin").stat().st_size < (folder / "model.bin").stat().st_size


def test_a_text_ends_there_by_the_symbol_that_ends_it_here(made, command, tmp_path):
    run = made("born")
    folder = exported(command, run, "huggingface", tmp_path / "born")
    words = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.eos_token_id == run.task.end == words.convert_tokens_to_ids("[MASK]")
    assert words.eos_token == "[MASK]"
    assert config.bos_token_id is None


def test_no_card_tells_where_files_lie(command, tmp_path):
    texts, few = tmp_path / "private" / "t.txt", tmp_path / "private" / "few.csv"
    texts.parent.mkdir()
    texts.write_text("".join(f"the film {i} was good\n" for i in range(80)))
    few.write_text("text,label\n" + "".join(f"film {i},{i % 2}\n" for i in range(40)))
    given = [*SMALL, "length=24", f"data={texts}", f"without={few}", "validation=0.0"]
    run = runs.open_or_start(tmp_path / "run", "masked-modeling", "bert",
                             [*given, "next_sentence=false"])  # fmt: skip
    finished(run)
    card = (exported(command, run, "huggingface", tmp_path / "x") / "README.md").read_text()
    assert "private" not in card
    assert "| without | few.csv |" in card
    assert "| next\\_sentence | False |" in card
    assert "| validation | 0 |" in card or "| validation | 0.0 |" in card


def test_what_is_told(made, command, tmp_path):
    run, call = made("gpt"), partial(command, "export", made("gpt").folder.path, "--out")
    status, out, _ = call(tmp_path / "x", "--to", "huggingface", "--json")
    told = json.loads(out)
    assert (status, told["to"]) == (0, "huggingface")
    assert told["bytes"] == sum(x.stat().st_size for x in (tmp_path / "x").iterdir())
    for words, says in (
        ((tmp_path / "x", "--to", "huggingface"), "x already exists; give another folder"),
        (
            (tmp_path / "y", "--to", "marian"),
            "is not a Transformer that writes one text for another; Marian's",
        ),
        ((tmp_path / "y", "--to", "ctranslate2"), "is not a Transformer that writes"),
        (
            (tmp_path / "y", "--to", "huggingface", "--quantization", "int8"),
            "huggingface supports only float32; ctranslate2 supports more",
        ),
    ):
        status, out, err = call(*words)
        assert (status, out) == (2, "")
        assert says in " ".join(err.split())
        assert not (tmp_path / "y").exists()
    for name, to, says in (
        ("rotary", "huggingface", "GPT-2 does not support position=rotary"),
        ("gru", "huggingface", "Hugging Face has no format for"),
        ("gru", "marian", "is not a Transformer that writes"),
        ("pre", "marian", "Marian does not support norm=pre; train with norm=post"),
    ):
        words = ("export", made(name).folder.path, "--to", to, "--out", tmp_path / "y")
        status, out, err = command(*words)
        assert (status, out) == (2, "")
        assert says in " ".join(err.split())
    assert run.complete
