"""A few keys of each file of a model's folder beside transformers; the benchmark tries them all."""

import json

import pytest

pytest.importorskip("transformers")

from benchmarks import config_keys, config_values
from regard.interop import t5

FEW = {
    "gpt2": {"scale_attn_by_inverse_layer_idx": [True], "add_cross_attention": [True]},
    "bert": {"hidden_act": ["gelu_fast", "quick_gelu"], "rope_scaling": [{"factor": 2.0}]},
    "roberta": {"pad_token_id": [2], "layer_norm_eps": [1e-2, "1e-5"]},
    "distilbert": {"layer_norm_eps": [1e-2], "auto_map": [{"AutoModel": "own.Own"}]},
    "t5": {"dense_act_fn": ["relu"], "scale_decoder_outputs": [False], "d_kv": [3]},
    "mt5": {"tie_word_embeddings": [True], "feed_forward_proj": ["gated-silu", "relu-gelu"]},
}
REFUSED = {"add_cross_attention: true", 'hidden_act: "quick_gelu"', "rope_scaling", "auto_map"}


def test_each_value_is_equal_or_refused(monkeypatch):
    monkeypatch.setattr(config_keys, "CONFIGS", FEW)
    rows = list(config_keys.of_configs([*FEW]))
    assert len(rows) == sum(len(values) for keys in FEW.values() for values in keys.values())
    assert [row for row in rows if row.outcome == "differs"] == []
    refused = {f"{row.key}: {row.value}" for row in rows if row.outcome == "refused"}
    assert all(any(x.startswith(y) for x in refused) for y in REFUSED), refused
    assert all(row.key in row.says for row in rows if row.outcome == "refused")
    (odd,) = (row for row in rows if row.family == "distilbert" and row.key == "layer_norm_eps")
    assert (odd.outcome, "regard does not know layer_norm_eps" in odd.says) == ("equal", True)


def test_a_difference_is_seen(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(t5, "scaled", lambda config: True)
    few = {"mt5": {"tie_word_embeddings": [True]}}
    monkeypatch.setattr(config_keys, "CONFIGS", few)
    out = tmp_path / "rows.json"
    asked = ["--out", str(out), "--only", "mt5", "--parts", "configs"]
    assert config_keys.main(asked) == 1
    (row,) = json.loads(out.read_text())["rows"]
    assert row["outcome"] == "differs"
    assert "| mt5 | 0 | 0 | 0 | 1 |" in capsys.readouterr().out


def test_keys_of_tokenizers_and_of_generation(tmp_path):
    for kind, form in config_values.TOKENIZERS[:4]:
        row = config_keys.tokenized(kind, form, "tokenizer_config.json", "pad_token", "<new>")
        assert (row.outcome, row.says) == ("equal", ""), row
    config_keys.model_of("t5", eos_token_id=2).save_pretrained(tmp_path)
    for key, value, outcome in (
        ("eos_token_id", [3, 5, 7], "equal"),
        ("decoder_start_token_id", 5, "equal"),
        ("forced_bos_token_id", 3, "refused"),
    ):
        row = config_keys.generated("t5", tmp_path, "generation_config.json", key, value)
        assert row.outcome == outcome, row
