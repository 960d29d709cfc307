"""Models in Hugging Face's layout as subjects: what is shown is what transformers computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.errors import RegardError
from regard.web.shelf import find
from regard.web.subject import Drawing

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[PAD]", "[UNK]", "[MASK]", "[EOS]", "a", "good", "film", "bad", "not", "the", "plot"]


def saved(folder: Path, kind: str) -> Any:
    """A tiny model of random weights, saved with a tokenizer of words."""
    torch.manual_seed(0)
    same = {"vocab_size": len(WORDS), "eos_token_id": 3, "attn_implementation": "eager"}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            n_embd=8, n_head=2, n_layer=2, n_positions=64, bos_token_id=3, **same
        )
        model = transformers.GPT2LMHeadModel(config)
    elif kind == "bert":
        config = transformers.BertConfig(
            hidden_size=8, num_attention_heads=2, num_hidden_layers=2, intermediate_size=12,
            max_position_embeddings=32, **same,
        )  # fmt: skip
        model = transformers.BertForPreTraining(config)
    else:
        config = transformers.T5Config(
            d_model=8, d_kv=4, d_ff=12, num_heads=2, num_layers=2, decoder_start_token_id=0, **same
        )
        model = transformers.T5ForConditionalGeneration(config)
    model.eval().save_pretrained(folder)
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.save(str(folder / "tokenizer.json"))
    return model


TEXT = "the plot a good film"
IDS = torch.tensor([[9, 10, 4, 5, 6]])


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5"])
def test_attention_is_that_of_transformers(tmp_path: Path, kind: str) -> None:
    theirs = saved(tmp_path / kind, kind)
    shelf = find([tmp_path / kind])
    assert shelf.listed()[0]["model"] == kind
    subject = shelf.subject(kind)
    assert subject.count(TEXT) == 5
    seen = subject.attention(TEXT)
    with torch.no_grad():
        if kind == "t5":
            found = theirs.encoder(IDS, output_attentions=True).attentions
        else:
            found = theirs(IDS, output_attentions=True).attentions
    for ours, wanted in zip(seen[: len(found)], found, strict=True):
        assert ours.tokens == TEXT.split()
        np.testing.assert_allclose(ours.weights, wanted[0].numpy(), atol=1e-5)
    if kind == "t5":
        crossed = [layer for layer in seen if layer.asking is not None]
        assert len(crossed) == 2
        assert crossed[0].asking[-1] == "[END]"


def test_gpt_goes_on_as_it_is_told_piece_by_piece(tmp_path: Path) -> None:
    saved(tmp_path / "gpt", "gpt2")
    subject = find([tmp_path / "gpt"]).subject("gpt")
    pieces = list(subject.write(TEXT, Drawing(12)))
    said = subject.predict([TEXT])[0]["written"]
    assert said.startswith(pieces[-1].text)
    assert len(pieces) == 12
    assert [piece.token for piece in pieces] == pieces[-1].text.split()


def test_bert_fills_in_what_is_missing(tmp_path: Path) -> None:
    theirs = saved(tmp_path / "bert", "bert")
    subject = find([tmp_path / "bert"]).subject("bert")
    with torch.no_grad():
        logits = theirs(torch.tensor([[4, 2, 6]])).prediction_logits[0, 1]
    said = subject.predict(["a [MASK] film"])[0]
    assert said["written"].split() == ["a", WORDS[int(logits.argmax())], "film"]
    assert said["log_probability"] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-4)
    with pytest.raises(RegardError, match=r"put \[MASK\] into the text"):
        subject.predict(["a film"])


def test_a_model_of_another_kind_is_listed_with_its_error(tmp_path: Path) -> None:
    saved(tmp_path / "gpt", "gpt2")
    config = tmp_path / "gpt" / "config.json"
    config.write_text(config.read_text().replace('"gpt2"', '"llama"'))
    (row,) = find([tmp_path / "gpt"]).listed()
    assert "'llama'" in row["error"]
