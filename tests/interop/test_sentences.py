"""Encoders of texts: pools and stages by their formulas, folders read, bad folders refused."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from regard.core.errors import RegardError
from regard.interop import huggingface, sentences
from regard.nn.models.bert import BERT
from regard.nn.models.settings import BERTSettings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "fine", "dull", "film", "query", ":"]
TEXTS = ["a fine film", "dull", "", "a film a film a film a film a film", "fine [SEP] unheard"]
WIDTH = 8


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(WORDS[:4])
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny BERT in Hugging Face's layout, without ``modules.json``."""
    torch.manual_seed(0)
    settings = BERTSettings(width=WIDTH, heads=2, layers=2, feedforward=16, length=12)
    folder = tmp_path_factory.mktemp("encoder") / "model"
    return huggingface.save(BERT(settings, len(WORDS)), settings, folder, tokenizer=tokenizer())


@pytest.fixture
def folder(encoder, tmp_path):
    """The same as a folder of sentence-transformers: `write` adds its modules."""
    for path in encoder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def write(folder, *modules, **files):
    """Add modules, each a type with its config and perhaps tensors, and files of JSON."""
    rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, config, *tensors) in enumerate(modules, 1):
        path = folder / f"{i}_{kind}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        for each in tensors:
            safetensors.torch.save_file(each, path / "model.safetensors")
        kind = f"sentence_transformers.models.{kind}"
        rows.append({"idx": i, "name": str(i), "path": path.name, "type": kind})
    for name, value in {"modules": rows, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def states(loaded, text, prompt=""):
    """The states of one text alone, symbols included: the oracle of pools."""
    (row,) = loaded.reading.tokens([prompt + text])
    with torch.no_grad():
        return loaded.body(torch.tensor([row]))[0].double().numpy()


POOLED = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0),
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / len(x) ** 0.5,
    "lasttoken": lambda x: x[-1],
}


@pytest.mark.parametrize("mode", POOLED)
def test_a_pool_is_its_formula(folder, mode):
    loaded = sentences.load(write(folder, ("Pooling", {"pooling_mode": mode})))
    expected = [POOLED[mode](states(loaded, text)) for text in TEXTS]
    assert np.allclose(loaded.encode(TEXTS), expected, atol=1e-5)
    assert np.allclose(loaded.encode(TEXTS, tokens=1), expected, atol=1e-5)


def test_old_keys_and_several_pools(folder):
    keys = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    loaded = sentences.load(write(folder, ("Pooling", keys)))
    x = states(loaded, TEXTS[0])
    assert np.allclose(loaded.encode(TEXTS[:1])[0], [*x[0], *x.mean(0)], atol=1e-5)


@pytest.mark.parametrize(("included", "skipped"), [(True, 0), (False, 3)])
def test_a_prompt_is_read_and_pooled_or_not(folder, included, skipped):
    config = {"pooling_mode": "weightedmean", "include_prompt": included}
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write(folder, ("Pooling", config), config_sentence_transformers=prompts)
    loaded = sentences.load(folder)
    x = states(loaded, TEXTS[0], "query: ")
    weights = np.arange(1.0, len(x) + 1)[skipped:]
    expected = (weights[:, None] * x[skipped:]).sum(0) / weights.sum()
    assert np.allclose(loaded.encode(TEXTS[:1])[0], expected, atol=1e-5)
    assert not np.allclose(loaded.encode(TEXTS[:1], prompt="")[0], expected, atol=1e-3)


def test_other_settings_of_the_encoder_are_another_fingerprint(folder):
    first = sentences.load(folder).fingerprint
    assert sentences.load(folder).fingerprint == first
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.01}))
    assert sentences.load(folder).fingerprint != first


def test_stages_in_their_order(folder):
    torch.manual_seed(1)
    tensors = {"linear.weight": torch.randn(3, WIDTH), "linear.bias": torch.randn(3)}
    norm = {"norm.weight": torch.rand(3), "norm.bias": torch.randn(3)}
    loaded = sentences.load(
        write(
            folder,
            ("Pooling", {"pooling_mode": "mean"}),
            ("Dense", {"activation_function": "torch.nn.modules.activation.Tanh"}, tensors),
            ("Dropout", {"dropout": 0.5}),
            ("LayerNorm", {"dimension": 3}, norm),
            ("Normalize", {}),
        )
    )
    x = states(loaded, TEXTS[0]).mean(0)
    x = np.tanh(tensors["linear.weight"].double().numpy() @ x + tensors["linear.bias"].numpy())
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    x = x * norm["norm.weight"].numpy() + norm["norm.bias"].numpy()
    assert np.allclose(loaded.encode(TEXTS[:1])[0], x / np.linalg.norm(x), atol=1e-5)


def test_texts_are_cut_and_lowered_as_the_config_says(folder):
    said = {"max_seq_length": 5, "do_lower_case": True}
    loaded = sentences.load(write(folder, ("Pooling", {}), sentence_bert_config=said))
    assert loaded.reading.tokens(["a FINE film a film"]) == [[2, 4, 5, 7, 3]]
    assert sentences.load(folder).reading.length == 5


def test_symbols_in_a_text_are_symbols(encoder):
    """As in sentence-transformers: whoever writes [SEP] gets it."""
    loaded = sentences.load(encoder)
    assert loaded.reading.tokens(["fine [SEP] a", "\ud800"]) == [[2, 5, 3, 4, 3], [2, 1, 3]]
    assert loaded.reading.length == 12


def static(folder, config, tensors, **files):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tokenizer().to_str())
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    return folder


TABLE = torch.arange(20.0).view(10, 2) ** 2


def test_static_vectors_of_model2vec(tmp_path):
    loaded = sentences.load_static(static(tmp_path, {"normalize": True}, {"embeddings": TABLE}))
    vectors = loaded.encode(["fine unheard film", "", "unheard"])
    mean = (TABLE[5] + TABLE[7]).numpy()  # the unknown word is left out
    assert np.allclose(vectors, [mean / np.linalg.norm(mean), [0, 0], [0, 0]], atol=1e-6)


def test_a_quantized_vocabulary_and_a_longest_length(tmp_path):
    tensors = {
        "embeddings": TABLE[:3].half(),
        "mapping": torch.tensor([0, 1, 2] * 3 + [0]),
        "weights": torch.linspace(0.5, 2, 10),
    }
    loaded = sentences.load_static(static(tmp_path, {"max_length": 2}, tensors))
    a, fine = (TABLE[i % 3] * tensors["weights"][i] for i in (4, 5))
    assert np.allclose(loaded.encode(["a fine film"])[0], (a + fine) / 2, atol=1e-5)


def test_wordllama_takes_its_widest_vectors(tmp_path):
    for name in ("weights", "tokenizers"):
        (tmp_path / name).mkdir()
    for width in (1, 2):
        path = tmp_path / "weights" / f"l2_supercat_{width}.safetensors"
        safetensors.torch.save_file({"embedding.weight": TABLE[:, :width].clone()}, path)
    path = tmp_path / "tokenizers" / "l2_supercat_tokenizer_config.json"
    path.write_text(tokenizer().to_str())
    loaded = sentences.load_static(tmp_path)
    assert np.allclose(loaded.encode(["a unheard"])[0], (TABLE[4] + TABLE[1]) / 2)


def test_static_embedding_of_sentence_transformers(tmp_path):
    static(tmp_path / "0_StaticEmbedding", {}, {"embedding.weight": TABLE})
    kinds = {"0_StaticEmbedding": "StaticEmbedding", "1_Normalize": "Normalize"}
    rows = [
        {"path": path, "type": f"sentence_transformers.models.{x}"} for path, x in kinds.items()
    ]
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    for read in (sentences.load, sentences.load_static):
        vector = (TABLE[5] + TABLE[1]).numpy()
        assert np.allclose(
            read(tmp_path).encode(["fine unheard"])[0], vector / np.linalg.norm(vector), atol=1e-6
        )


BROKEN = {  # by files beside a pooling, or by modules
    "outside of its folder": {"modules": [{"type": "a.Transformer", "path": "../x"}]},
    "not a list of modules": {"modules": {"type": 3}},
    "default_prompt_name='q' is not in prompts": {
        "config_sentence_transformers": {"default_prompt_name": "q"}
    },
    "the longest length is 1": {"sentence_bert_config": {"max_seq_length": 1}},
    "one pooling, right after": [("Normalize", {})],
    "the pooling 'median' is not one of": [("Pooling", {"pooling_mode": "median"})],
    "'LSTM' is not supported": [("Pooling", {}), ("LSTM", {})],
    "activation_function='os.system' is not supported": [
        ("Pooling", {}), ("Dense", {"activation_function": "os.system"})
    ],
    "has no tensor linear.weight": [("Pooling", {}), ("Dense", {}, {"other": torch.ones(1)})],
    "module_input_name='token_embeddings'": [
        ("Pooling", {}), ("Normalize", {"module_input_name": "token_embeddings"})
    ],
}  # fmt: skip


@pytest.mark.parametrize("says", BROKEN)
def test_broken_folders_are_refused_in_one_line(folder, says):
    broken = BROKEN[says]
    if isinstance(broken, dict):
        write(folder, ("Pooling", {}), **broken)
    else:
        write(folder, *broken)
    with pytest.raises(RegardError, match=says.replace("(", r"\(")) as error:
        sentences.load(folder)
    assert "\n" not in str(error.value)


def test_what_is_not_static_is_refused(encoder, tmp_path):
    with pytest.raises(RegardError, match="no static vectors"):
        sentences.load_static(encoder)
    with pytest.raises(RegardError, match="only 3 words"):
        sentences.load_static(static(tmp_path, {}, {"embeddings": TABLE[:3].clone()}))
    mapping = static(tmp_path / "2", {}, {"embeddings": TABLE, "mapping": torch.tensor([10])})
    with pytest.raises(RegardError, match="mapping does not fit"):
        sentences.load_static(mapping)
    with pytest.raises(RegardError, match="no texts"):
        sentences.load(encoder).encode([])
