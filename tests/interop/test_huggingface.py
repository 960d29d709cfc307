"""GPT-2, BERT and T5 from Hugging Face's folders and back: the same logits and attentions."""

import json
import os
import re
import shutil

import pytest
import safetensors.torch
import torch

pytest.importorskip("transformers")

import transformers

from regard.attention.positions.biases import t5_bucket
from regard.core.errors import RegardError
from regard.interop.card import Card
from regard.interop.huggingface import LAYOUTS, load, put, save
from regard.interop.names import give, take
from regard.lab import runs
from regard.nn.models.bert import BERT
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import BERTSettings, GPTSettings, T5Settings
from regard.nn.models.t5 import T5
from regard.training.checkpoints import weights
from tests.interop.tiny import CLASSES, furthest, random_config, random_model

CONFIGS = int(os.environ.get("REGARD_PARITY_CONFIGS", "10"))  # of each kind
#: What stands twice in a model's state, and once in its file.
TIED = {
    "gpt2": lambda config: {"lm_head.weight"} if config["tie_word_embeddings"] else set(),
    "bert": lambda config: {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
    "t5": lambda config: {"lm_head.weight", "encoder.embed_tokens.weight",
                          "decoder.embed_tokens.weight"},
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("seed", range(CONFIGS))
def test_the_same_numbers_in_both_directions(kind, seed):
    """A random config, its weights turned into ours and back into another model of theirs."""
    theirs = random_model(kind, seed)
    config, layout = theirs.config.to_dict(), LAYOUTS[kind]
    state = {name: x for name, x in theirs.state_dict().items() if name not in TIED[kind](config)}
    settings = layout.settings_of(config, state)
    ours = layout.build(settings, config["vocab_size"]).eval()
    rows = layout.rows(settings)
    assert not put(ours, take(rows, layout.tidy(config, state), "theirs"), "theirs")
    assert max(furthest(kind, theirs, ours, seed)) < 1e-5
    written = layout.config_of(settings, config["vocab_size"])
    again = CLASSES[kind](type(theirs.config)(**written, attn_implementation="eager")).eval()
    left = again.load_state_dict(give(rows, weights(ours)), strict=False)
    assert not left.unexpected_keys
    assert max(furthest(kind, again, ours, seed)) < 1e-5


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("seed", range(3))
def test_there_and_back_by_folders(kind, seed, tmp_path):
    """Loaded from what transformers saved, and saved so that transformers loads it again."""
    theirs = random_model(kind, seed)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    assert not loaded.drawn
    assert max(furthest(kind, theirs, loaded.model, seed)) < 1e-5
    save(loaded.model, loaded.settings, tmp_path / "ours")
    again = CLASSES[kind].from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    assert max(furthest(kind, again, loaded.model, seed)) < 1e-5


@pytest.mark.parametrize(
    ("model", "settings", "architecture"),
    [
        (GPT, GPTSettings(width=12, layers=2, heads=3, feedforward=8, length=9), "gpt2"),
        (BERT, BERTSettings(width=12, layers=2, heads=3, feedforward=8, length=15), "bert"),
        (T5, T5Settings(width=12, layers=2, heads=3, feedforward=8), "t5"),
        (T5, T5Settings(width=12, heads=3, layers=1, decoder_layers=2, tie=True), "t5"),
    ],
)
def test_models_made_here_go_there(model, settings, architecture, tmp_path):
    made = model(settings, 17).eval()
    with torch.no_grad():
        for x in made.parameters():
            x.add_(torch.randn_like(x), alpha=0.2)
    save(made, settings, tmp_path / "there", card=Card("Mine", {"texts": "a|b"}))
    there = CLASSES[architecture].from_pretrained(tmp_path / "there", attn_implementation="eager")
    if architecture == "gpt2":
        tokens = torch.randint(1, 17, (2, 9))
        with torch.no_grad():
            gap = (made.to_logits(made(tokens)) - there.eval()(tokens).logits).abs().max()
        assert gap < 1e-5
    else:
        assert max(furthest(architecture, there.eval(), made, 1)) < 1e-5
    card = (tmp_path / "there" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "| texts | a\\|b |" in card
    assert {x.name for x in (tmp_path / "there").iterdir()} == {
        "README.md", "config.json", "model.safetensors", "MANIFEST.json"}  # fmt: skip


def test_a_body_alone_has_its_heads_drawn(tmp_path):
    bert = transformers.BertModel(random_config("bert", 1))
    bert.save_pretrained(tmp_path / "bert")
    loaded = load(tmp_path / "bert")
    assert set(loaded.drawn) == {"head.weight", "head.bias", "head_norm.weight", "head_norm.bias",
                                 "head_bias", "follows.weight", "follows.bias"}  # fmt: skip
    gpt = transformers.GPT2Model(random_config("gpt2", 5))
    assert not gpt.config.tie_word_embeddings
    gpt.save_pretrained(tmp_path / "gpt")
    tokens, loaded = torch.randint(0, 10, (2, 5)), load(tmp_path / "gpt")
    assert loaded.drawn == ("output.weight",)
    with torch.no_grad():
        expected = gpt.eval()(tokens).last_hidden_state
        assert torch.allclose(loaded.model(tokens), expected, atol=1e-6)


def test_old_names_of_norms_half_precision_and_shards(tmp_path):
    """As files on the hub are: gamma and beta, float16, several files with an index."""
    theirs = random_model("bert", 3)
    theirs.half().save_pretrained(tmp_path / "bert", max_shard_size="3KB")
    folder = tmp_path / "bert"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    for shard in set(index["weight_map"].values()):
        tensors = safetensors.torch.load_file(folder / shard)
        old = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): x
            for name, x in tensors.items()
        }
        safetensors.torch.save_file(old, folder / shard)
    loaded = load(folder)
    assert loaded.model.head.weight.dtype == torch.float32
    assert max(furthest("bert", theirs.float(), loaded.model, 3)) < 1e-5


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (32, 256), (8, 16), (20, 77), (4, 9)])
@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_those_of_transformers(buckets, farthest, both):
    """For every distance up to 4,096; they compute the logarithm in float32."""
    from transformers.models.t5.modeling_t5 import T5Attention

    apart = torch.arange(-4096, 4097)
    theirs = T5Attention._relative_position_bucket(apart, both, buckets, farthest)
    assert torch.equal(t5_bucket(apart, buckets, farthest, both), theirs)


def break_config(**changes):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def add_tensors(folder, tensors):
    file = folder / "model.safetensors"
    safetensors.torch.save_file(safetensors.torch.load_file(file) | tensors, file)


def another_output(name):
    """An output matrix that is not the table of words, though the config ties both."""

    def change(folder):
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        words = next(x for key, x in tensors.items() if re.search("wte|word_embeddings", key))
        add_tensors(folder, {name: words + 1})
        break_config(tie_word_embeddings=True)(folder)

    return change


def pickle_instead(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def test_what_early_files_hold_and_nobody_reads_is_left_out(tmp_path):
    there = random_model("t5", 0)
    there.save_pretrained(tmp_path)
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    add_tensors(tmp_path, {unused: torch.zeros(32, 2)})
    assert load(tmp_path).kind == "t5"
    with pytest.raises(RegardError, match=r"contains no run but a model in Hugging Face format"):
        runs.load(tmp_path)


def test_buffers_of_old_files_of_gpt2_are_left_out(tmp_path):
    there = random_model("gpt2", 0)
    there.save_pretrained(tmp_path)
    buffers = {
        f"transformer.h.0.attn.{name}": x
        for name, x in (("bias", torch.ones(1, 1, 8, 8)), ("masked_bias", torch.tensor(-1e4)))
    }
    add_tensors(tmp_path, buffers)
    assert max(furthest("gpt2", there, load(tmp_path).model, 0)) < 1e-5


def index_of(files):
    def change(folder):
        (folder / "model.safetensors").unlink()
        index = {"weight_map": files}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def fewer_layers(folder):
    """A layer more in the file than in the config."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    more = {
        re.sub(r"layer\.0\.", "layer.07.", name): x.clone()
        for name, x in tensors.items()
        if ".layer.0." in name
    }
    add_tensors(folder, more)


def cut(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def not_json(folder):
    (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("kind", "broken", "says"),
    [
        ("gpt2", pickle_instead, "pytorch_model.bin is a pickle, which can run any code"),
        ("gpt2", index_of({"a": "../b"}), "lists '../b', which is not a file in the folder"),
        ("gpt2", cut, "model.safetensors is not a valid safetensors file"),
        ("gpt2", not_json, "config.json is not valid JSON"),
        (
            "gpt2",
            lambda folder: (folder / "model.safetensors").unlink(),
            "does not contain model.safete",
        ),
        (
            "gpt2",
            break_config(model_type="llama"),
            "type 'llama'; regard reads gpt2, bert, roberta, xlm-roberta, camembert, dist",
        ),
        (
            "gpt2",
            break_config(activation_function="tanh"),
            "activation_function='tanh' is not supp",
        ),
        (
            "gpt2",
            break_config(add_cross_attention=True),
            "add_cross_attention=True is not",
        ),
        ("gpt2", break_config(n_embd="x"), "n_embd='x' is not a whole number"),
        ("t5", break_config(feed_forward_proj=3), "feed_forward_proj=3 is not supp"),
        ("gpt2", break_config(n_layer=9), "has no tensor transformer.h.1.ln_1.weight"),
        ("gpt2", break_config(vocab_size=3), "embedding.weight has the shape"),
        ("gpt2", break_config(vocab_size=-1), "is incomplete: .*vocab_size is -1"),
        ("gpt2", break_config(n_layer=0), r"n_layer|layers=0|holds transformer.h.0"),
        ("gpt2", break_config(n_layer=9, scale_attn_by_inverse_layer_idx=True), "is incomplete"),
        ("bert", fewer_layers, "contains bert.encoder.layer.07.*its config does not"),
        ("gpt2", index_of(["a"]), "weight_map is not a table of files"),
        (
            "bert",
            break_config(position_embedding_type="relative_key"),
            "config.json: position_embedding_type='relative_key' is not supported; regard",
        ),
        (
            "bert",
            break_config(tie_word_embeddings=False),
            "tie_word_embeddings=False is not",
        ),
        ("bert", break_config(is_decoder=True), "is_decoder=True is not supported"),
        ("gpt2", another_output("lm_head.weight"), "lm_head.weight differs from the word vectors"),
        (
            "bert",
            another_output("cls.predictions.decoder.weight"),
            "cls.predictions.decoder.weight differs from the word vectors",
        ),
        ("t5", break_config(num_heads=-1), "num_heads|heads=-1"),
        ("t5", break_config(feed_forward_proj="tanh"), "feed_forward_proj='tanh' is not supported"),
    ],
)
def test_what_cannot_be_read_says_why(kind, broken, says, tmp_path):
    seed = next(i for i in range(99) if kind != "gpt2" or random_config(kind, i).n_layer == 1)
    random_model(kind, seed).save_pretrained(tmp_path / "x")
    broken(tmp_path / "x")
    with pytest.raises(RegardError, match=says):
        load(tmp_path / "x")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            GPTSettings(position="rotary"),
            "GPT-2 does not support position=rotary; train with posit",
        ),
        (GPTSettings(score="additive"), "score=additive; train with score=scaled-dot or dot"),
        (GPTSettings(normalize="sparsemax"), "normalize=sparsemax"),
        (GPTSettings(pattern="window-4"), "pattern=window-4"),
        (GPTSettings(key_value_heads=2), "key_value_heads=2; train with key_value_heads=0"),
        (GPTSettings(activation="gated-silu"), "activation=gated-silu; train with activation=gelu"),
        (GPTSettings(residual="depth-attention"), "GPT-2 does not support residual="),
        (T5Settings(residual="depth-attention"), "T5 does not support residual="),
        (BERTSettings(norm="pre"), "BERT does not support norm=pre"),
        (BERTSettings(types=0), "types=0"),
        (BERTSettings(compress="linformer"), "compress=linformer; train with compress=none"),
        (T5Settings(pattern="window-4"), "T5 does not support pattern=window-4"),
        (T5Settings(position="alibi"), "T5 does not support position=alibi"),
        (T5Settings(activation="gated-gelu"), "train with activation=gated-gelu-tanh"),
    ],
)
def test_what_cannot_be_written_names_the_setting(settings, says, tmp_path):
    kinds = {GPTSettings: GPT, BERTSettings: BERT, T5Settings: T5}
    small = settings.model_copy(update={"width": 8, "heads": 4, "feedforward": 8, "layers": 1})
    with pytest.raises(RegardError, match=says):
        save(kinds[type(settings)](small, 9), small, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_where_it_is_not(tmp_path):
    with pytest.raises(RegardError, match="is not a folder; give a model's folder or its name"):
        load(tmp_path / "nowhere")
    with pytest.raises(RegardError, match="is not a folder; give"):
        load("../a/b")


def test_nothing_is_overwritten(tmp_path):
    settings = GPTSettings(width=8, heads=2, layers=1, feedforward=8)
    save(GPT(settings, 9), settings, tmp_path / "x")
    before = (tmp_path / "x" / "model.safetensors").read_bytes()
    with pytest.raises(RegardError, match="already exists"):
        save(GPT(settings, 9), settings, tmp_path / "x")
    assert (tmp_path / "x" / "model.safetensors").read_bytes() == before
    shutil.rmtree(tmp_path / "x")
