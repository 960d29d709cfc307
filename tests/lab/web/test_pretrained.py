"""Models in Hugging Face's layout as subjects: what is shown is what transformers computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab.tasks.writing.streaming import Drawing
from regard.lab.web.registry import find
from tests.lab.web.conftest import in_this_process

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["!", "[UNK]", "[MASK]", "[EOS]", "a", "good", "film", "bad", "not", "the", "plot"]


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
    registry = find([tmp_path / kind])
    assert registry.listed()[0]["model"] == kind
    subject = registry.model(kind)
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
        said = list(subject.write(TEXT, Drawing(48)))
        assert crossed[0].asking == [piece.token for piece in said]


def test_gpt_goes_on_as_it_is_told_piece_by_piece(tmp_path: Path) -> None:
    saved(tmp_path / "gpt", "gpt2")
    subject = find([tmp_path / "gpt"]).model("gpt")
    pieces = list(subject.write(TEXT, Drawing(12)))
    said = subject.predict([TEXT])[0]["written"]
    assert said.startswith(pieces[-1].text)
    assert len(pieces) == 12
    assert [piece.token for piece in pieces] == pieces[-1].text.split()


@pytest.mark.parametrize("wanted", ["!", "plot"])
def test_gpt_writes_what_transformers_writes_the_word_of_number_0_too(
    tmp_path: Path, wanted: str
) -> None:
    theirs = saved(tmp_path / "gpt", "gpt2")
    with torch.no_grad():  # what is wanted is a little likelier than it was
        theirs.transformer.wte.weight *= 50
        towards = theirs.transformer.wte.weight[WORDS.index(wanted)]
        theirs.transformer.ln_f.bias[:] = 6 * towards / towards.norm()
    theirs.save_pretrained(tmp_path / "gpt")
    subject = find([tmp_path / "gpt"]).model("gpt")
    pieces = list(subject.write(TEXT, Drawing(12)))
    with torch.no_grad():
        found = theirs.generate(
            IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=12, do_sample=False,
            eos_token_id=3, pad_token_id=1,
        )[0, 5:]  # fmt: skip
        chances = theirs(torch.cat([IDS[0], found])[None]).logits[0, 4:-1].softmax(-1)
    assert [piece.id for piece in pieces] == found.tolist()
    assert WORDS.index(wanted) in found.tolist()
    kept = chances[range(len(found)), found].tolist()
    assert [piece.probability for piece in pieces] == pytest.approx(kept, rel=1e-3)
    assert pieces[-1].text == " ".join(WORDS[i] for i in found.tolist() if i != 3)
    said = subject.predict([TEXT])[0]
    assert said["written"].startswith(pieces[-1].text)


def test_gpt_looked_at_what_transformers_says_while_it_wrote(tmp_path: Path) -> None:
    theirs = saved(tmp_path / "gpt", "gpt2")
    subject = find([tmp_path / "gpt"]).model("gpt")
    numbers = [piece.id for piece in subject.write(TEXT, Drawing(9, temperature=2.0, seed=1))]
    again = subject.reread(TEXT, numbers)
    kept = [i for i in numbers if i != 3]
    with torch.no_grad():
        wanted = theirs(torch.tensor([[*IDS[0].tolist(), *kept]]), output_attentions=True)
    assert again.read == 5
    for seen, weights in zip(again.layers, wanted.attentions, strict=True):
        assert [token.strip() for token in seen.tokens[5:]] == [WORDS[i] for i in kept]
        np.testing.assert_allclose(seen.weights, weights[0].numpy(), atol=1e-5)


def test_t5_looked_at_what_transformers_says_while_it_wrote(tmp_path: Path) -> None:
    theirs = saved(tmp_path / "t5", "t5")
    subject = find([tmp_path / "t5"]).model("t5")
    numbers = [piece.id for piece in subject.write(TEXT, Drawing(6, temperature=2.0, seed=1))]
    layers = subject.reread(TEXT, numbers).layers
    given = torch.tensor([[0, *numbers[:-1]]])
    with torch.no_grad():
        wanted = theirs(input_ids=IDS, decoder_input_ids=given, output_attentions=True)
    parts = {
        "encoder": list(wanted.encoder_attentions),
        "decoder": list(wanted.decoder_attentions),
        "across": list(wanted.cross_attentions),
    }
    for seen in layers:
        part = "across" if seen.asking else seen.layer.partition(".")[0]
        np.testing.assert_allclose(seen.weights, parts[part].pop(0)[0].numpy(), atol=1e-5)
    assert parts == {"encoder": [], "decoder": [], "across": []}


def test_gpt_writes_past_its_positions_and_shows_its_last_window(tmp_path: Path) -> None:
    saved(tmp_path / "gpt", "gpt2")
    subject = find([tmp_path / "gpt"]).model("gpt")
    found = (list(subject.write("a " * 60, Drawing(9, 3.0, seed=s))) for s in range(99))
    pieces = next(pieces for pieces in found if len(pieces) == 9 and not pieces[-1].end)
    again = subject.reread("a " * 60, [piece.id for piece in pieces])
    window = 32 + 4  # 60 and 4 more fill 64 positions, with one more the last 32 are read anew
    assert [len(seen.tokens) for seen in again.layers] == [window] * 2
    assert again.read == window - 9
    chances = [piece.probability for piece in again.pieces]
    assert chances == pytest.approx([piece.probability for piece in pieces], rel=1e-4)
    assert subject.temperature == 0.8
    assert subject.predict(["a " * 67, "a"])[0]["left_out"] == 3
    assert "left_out" not in subject.predict(["a"])[0]
    saved(tmp_path / "bert", "bert")
    filling = find([tmp_path / "bert"]).model("bert")
    with pytest.raises(RegardError, match="fills in all masks at once"):
        filling.reread("a [MASK]", [4])


def test_bert_fills_in_what_is_missing(tmp_path: Path) -> None:
    theirs = saved(tmp_path / "bert", "bert")
    subject = find([tmp_path / "bert"]).model("bert")
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


def test_a_tokenizer_that_panics_is_told_and_the_server_goes_on(tmp_path: Path) -> None:
    """`tokenizers` panics where words of no letters are to be cut."""
    for name in ("broken", "sound"):
        saved(tmp_path / name, "bert")
    path = tmp_path / "broken" / "tokenizer.json"
    cutter = {"type": "FixedLength", "length": 0}
    path.write_text(json.dumps({**json.loads(path.read_text()), "pre_tokenizer": cutter}))
    with in_this_process(find([tmp_path / "broken", tmp_path / "sound"])) as asker:
        broken, sound = (
            asker.post("/predict", json={"run": name, "text": "a [MASK] film the plot"})
            for name in ("broken", "sound")
        )
        assert broken.status_code == 400
        assert "broken: its tokenizer could not encode the text" in broken.json()["error"]
        assert sound.status_code == 200
        assert asker.get("/health").json()["restarts"] == 0


@pytest.mark.parametrize(
    ("kind", "text", "choices"),
    [
        ("gpt2", TEXT, "next word: "),
        ("bert", "the [MASK] a good film", "[MASK] 1: "),
        ("t5", TEXT, "output word 1, "),
    ],
)
def test_answers_are_attributed(tmp_path: Path, kind: str, text: str, choices: str) -> None:
    saved(tmp_path / kind, kind)
    subject = find([tmp_path / kind]).model(kind)
    found = subject.attribute(text)  # type: ignore[attr-defined]
    assert found["choices"][0].startswith(choices)
    assert found["tokens"][:5] == text.split()
    missing = sum(found["integrated_gradients"]) - (found["output"] - found["baseline"])
    assert abs(missing) <= 0.02 * sum(map(abs, found["integrated_gradients"]))
    ahead = subject.next_words(text)  # type: ignore[attr-defined]
    assert bool(ahead) == (kind != "bert")
    if ahead:
        first = next(iter(subject.write(text, Drawing(4))))
        assert (ahead[0].token, ahead[0].id) == (first.token, first.id)
        assert ahead[0].probability == pytest.approx(first.probability, abs=1e-4)
        assert found["output"] == pytest.approx(np.log(first.probability), abs=1e-3)
