"""Encoders of Hugging Face behind ``weights=``: the same states and gradients; what is refused."""

import json
import shutil

import pytest
import safetensors.torch
import torch
from torch.testing import assert_close

pytest.importorskip("transformers")

from tokenizers import Tokenizer, models

from regard.core.errors import RegardError
from regard.interop.huggingface import load
from regard.lab.runs.encoder import Encoder
from regard.lab.tasks.models import MODELS
from regard.nn.layers.embedding import inside
from tests.interop import encoders


def network(folder, **given):
    """A classifier of three labels with the weights of a folder, in training's fashion."""
    encoder = Encoder(str(folder))
    settings = encoder.settings({"dropout": 0, "attention_dropout": 0, **given})
    made = MODELS["bert"].build(settings, vocabulary=len(encoder.tokenizer), labels=3)
    made.special_tokens = encoder.tokenizer.special_tokens
    return made, encoder, encoder.put(made)


TEXTS = ["the film was good", "a", "it is awful awful plots !"]


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", encoders.KINDS)
def test_states_are_those_of_transformers(kind, seed, heads, tmp_path):
    """Real texts, padded, by our frame and theirs: every state and their mean."""
    theirs = encoders.save(kind, tmp_path, seed, heads=heads)
    ours, encoder, facts = network(tmp_path)
    assert facts["new"] == []
    fast = encoders.transformers.PreTrainedTokenizerFast(
        tokenizer_object=encoder.tokenizer.inner, pad_token=encoder.tokenizer.vocabulary[0]
    )
    asked = fast(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    body = getattr(theirs, theirs.base_model_prefix, theirs)
    with torch.no_grad():
        expected = body(**asked).last_hidden_state
    real = asked["attention_mask"].bool()
    lengths = real.sum(1)
    with torch.no_grad():
        states = ours.eval().body(asked["input_ids"], lengths)
    assert_close(states[real], expected[real], atol=1e-5, rtol=0)
    ids = encoder.tokenizer.encode(TEXTS)
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
    with torch.no_grad():
        mean = ours.vector(tokens, lengths - 2)
    whole = (expected * inside(lengths, expected.shape[1])[..., None]).sum(1) / lengths[:, None]
    assert_close(mean, whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", encoders.KINDS)
def test_gradients_are_those_of_transformers(kind, tmp_path):
    theirs = encoders.save(kind, tmp_path)
    ours, encoder, _ = network(tmp_path)
    ids = [
        encoder.tokenizer.special_tokens.classify,
        7,
        9,
        8,
        7,
        encoder.tokenizer.special_tokens.separator,
    ]
    tokens = torch.tensor([ids])
    toward = torch.randn(
        1, 6, theirs.config.hidden_size, generator=torch.Generator().manual_seed(1)
    )
    (theirs(tokens).last_hidden_state * toward).sum().backward()
    (ours.body(tokens) * toward).sum().backward()
    table = theirs.get_input_embeddings().weight.grad[: len(encoder.tokenizer)]
    assert_close(ours.body.embedding.weight.grad, table, atol=1e-4, rtol=1e-4)
    named = dict(theirs.named_parameters())
    last = [name for name in named if name.endswith(("lin2.weight", "output.dense.weight"))][-1]
    ours_last = ours.body.blocks[-1].feedforward.work.narrow.weight.grad
    assert_close(ours_last, named[last].grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_hidden_words_are_told_as_transformers_tells_them(kind, tmp_path):
    theirs = encoders.save(kind, tmp_path, heads=True)
    loaded = load(tmp_path)
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        said = loaded.model.to_logits(loaded.model(tokens))
        assert_close(said, theirs(tokens).logits, atol=1e-5, rtol=1e-5)


def test_the_longest_text_uses_every_position(tmp_path):
    """RoBERTa's first word has position 2 there, and 0 here: none is left over, none is missing."""
    theirs = encoders.save("roberta", tmp_path)
    ours, _, _ = network(tmp_path)
    assert ours.body.positions.table.shape[0] == encoders.MOST
    tokens = torch.randint(4, 9, (1, encoders.MOST))
    with torch.no_grad():
        expected = theirs(tokens).last_hidden_state
        assert_close(ours.body(tokens), expected, atol=1e-5, rtol=0)
    with pytest.raises(RegardError, match=f"positions end at length={encoders.MOST}"):
        ours.body(torch.randint(4, 9, (1, encoders.MOST + 1)))


def test_settings_that_the_weights_leave_open(tmp_path):
    encoders.save("bert", tmp_path)
    encoder = Encoder(str(tmp_path))
    settings = encoder.settings({"dropout": "0.3", "normalize": "entmax15", "length": "5"})
    assert (settings.dropout, settings.normalize) == (0.3, "entmax15")
    assert settings.length == encoders.MOST, "a shorter reading leaves the table as it is"
    assert encoder.settings({"width": str(settings.width)}).width == settings.width
    for given, says in [
        ({"width": "8192"}, rf"has width={settings.width}: leave width=8192 out"),
        ({"position": "rotary"}, "has position=learned: leave position=rotary out"),
        ({"norm": "pre"}, "has norm=post"),
        ({"width": "wide"}, "width='wide'"),
    ]:
        with pytest.raises(RegardError, match=says):
            encoder.settings(given)


def broken(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        config.pop(key) if value is None else config.update({key: value})
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"model_type": "gpt2"},
            "type 'gpt2'; use one of bert, roberta, xlm-roberta, camembert, d",
        ),
        ({"model_type": "electra"}, "type 'electra'"),
        ({"model_type": None}, "type None"),
        ({"hidden_size": None}, "embedding.weight has the shape|does not fit"),
        ({"hidden_size": 10**9}, "does not fit its weights: width=1000000000 is over 1,000,000"),
        ({"hidden_size": 10**6}, "it describes [0-9,]{15,} numbers, the file has"),
        ({"num_hidden_layers": 10**12}, "does not fit its weights: layers="),
        ({"vocab_size": 10**15}, "does not fit its weights: vocab_size="),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"vocab_size": 9}, "tokenizer has 25 tokens, but the model only 9 words"),
        ({"intermediate_size": 3}, "does not fit its config"),
        ({"max_position_embeddings": 39}, "positions.table has the shape"),
        ({"num_hidden_layers": 1}, "which its config does not describe"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
        ({"hidden_act": "mish"}, "'mish'"),
    ],
)
def test_configs_that_are_refused(changes, says, tmp_path):
    encoders.save("bert", tmp_path, 1)
    broken(tmp_path, **changes)
    with pytest.raises(RegardError, match=says):
        network(tmp_path)


def test_folders_that_are_refused(tmp_path):
    whole = tmp_path / "whole"
    encoders.save("roberta", whole)
    with pytest.raises(RegardError, match="is not a folder; give a model's folder or its name"):
        network(tmp_path / "none")
    for missing, says in [
        ("model.safetensors", "does not contain model.safetensors"),
        ("tokenizer.json", "has no tokenizer .*save_pretrained"),
        ("config.json", "config.json cannot be read"),
    ]:
        folder = shutil.copytree(whole, tmp_path / f"without-{missing}")
        (folder / missing).unlink()
        with pytest.raises(RegardError, match=says):
            network(folder)
    bare = shutil.copytree(whole, tmp_path / "bare")
    Tokenizer(models.WordLevel({"a": 0}, "a")).save(str(bare / "tokenizer.json"))
    with pytest.raises(RegardError, match=r"bare has no symbols .* save the model's own"):
        network(bare)
    pickled = shutil.copytree(whole, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(RegardError, match="is a pickle, which can run any code"):
        network(pickled)
    short = shutil.copytree(whole, tmp_path / "short")
    data = (short / "model.safetensors").read_bytes()
    (short / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(RegardError, match=r"model.safetensors cannot be read"):
        network(short)
    other = shutil.copytree(whole, tmp_path / "other")
    tensors = safetensors.torch.load_file(other / "model.safetensors")
    tensors["embeddings.LayerNorm.weight"] = torch.zeros(3)
    safetensors.torch.save_file(tensors, other / "model.safetensors")
    with pytest.raises(RegardError, match=r"embedding_norm.weight has the shape \(3,\)"):
        network(other)
