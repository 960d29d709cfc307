"""What a loaded model goes on with is what transformers' own generate writes, token 0 included."""

import pytest
import torch

pytest.importorskip("transformers")

from regard.errors import RegardError
from regard.interop.huggingface import load
from regard.interop.pretrained import Pretrained, special
from tests.interop.tiny import random_model


def loaded(kind, seed, folder, change=lambda model: None):
    model = random_model(kind, seed)
    with torch.no_grad():
        change(model)
    model.save_pretrained(folder)
    return model, load(folder)


def likes_zero(model):
    """Token 0 is what it says most of the time."""
    model.lm_head.weight[0] = model.lm_head.weight[3] * 4


@pytest.mark.parametrize("seed", [1, 2, 4, 6])
def test_gpt_goes_on_as_generate_does(seed, tmp_path):
    theirs, mine = loaded("gpt2", seed, tmp_path / "gpt", likes_zero)
    prompts = [[5, 0, 3], [4], [0, 0]]
    found = Pretrained(mine).go_on(prompts, most=9)
    for prompt, said in zip(prompts, found, strict=True):
        made = theirs.generate(torch.tensor([prompt]), max_new_tokens=9, do_sample=False,
                               pad_token_id=2)  # fmt: skip
        whole = made[0, len(prompt) :].tolist()
        assert said == (whole[: whole.index(2)] if 2 in whole else whole)


def test_token_zero_is_a_word(tmp_path):
    _, mine = loaded("gpt2", 1, tmp_path / "gpt", likes_zero)
    writer = Pretrained(mine)
    drawn = writer.go_on([[5, 3]] * 40, most=6, temperature=3.0, seed=1)
    assert any(0 in said for said in drawn)
    assert drawn == writer.go_on([[5, 3]] * 40, most=6, temperature=3.0, seed=1)
    assert writer.go_on([[]], most=4) == writer.go_on([[1]], most=4), "its first token begins it"


def test_t5_writes_as_generate_does(tmp_path):
    theirs, mine = loaded("t5", 3, tmp_path / "t5")
    theirs.generation_config.update(pad_token_id=0, decoder_start_token_id=0, eos_token_id=1,
                                    bad_words_ids=[[0]])  # fmt: skip
    source = [5, 4, 9, 2]
    made = theirs.generate(torch.tensor([source]), max_new_tokens=7, do_sample=False)
    whole = made[0, 1:].tolist()
    assert Pretrained(mine).go_on([source], most=7) == [
        whole[: whole.index(1)] if 1 in whole else whole
    ]


def test_a_gpt_writes_past_its_positions_from_their_last_half(tmp_path):
    theirs, mine = loaded("gpt2", 1, tmp_path / "gpt")
    mine.config["eos_token_id"] = None  # the last word: hardly ever the likeliest
    most = theirs.config.n_positions
    text = [3 + i % 7 for i in range(most - 2)]
    (said,) = Pretrained(mine).go_on([text], most=6)
    assert len(said) == 6
    whole = text + said
    for place in range(3, 6):  # two tokens and one more fit, then the last half is read anew
        begin = len(text) + 3 - most // 2
        with torch.no_grad():
            logits = theirs(torch.tensor([whole[begin : len(text) + place]])).logits[0, -1]
        assert int(logits.argmax()) == said[place]
    writer = Pretrained(mine)
    assert writer.go_on([[9, *text, 4, 5]], most=5) == writer.go_on([[*text, 4, 5]], most=5)


def test_a_t5_writes_as_much_as_is_asked_for(tmp_path):
    _, mine = loaded("t5", 1, tmp_path / "t5")
    mine.config["eos_token_id"] = None  # the last word: hardly ever the likeliest
    (said,) = Pretrained(mine).go_on([[5, 6]], most=300)
    assert len(said) == 300


def test_errors_and_special_tokens(tmp_path):
    _, gpt = loaded("gpt2", 1, tmp_path / "gpt")
    for token in (-3, gpt.config["vocab_size"]):
        with pytest.raises(RegardError, match="token id must be between 0 and"):
            Pretrained(gpt).go_on([[1], [2, token]])
    _, bert = loaded("bert", 1, tmp_path / "bert")
    with pytest.raises(RegardError, match="does not generate texts"):
        Pretrained(bert)
    assert special({"eos_token_id": [7, 8], "vocab_size": 9}, "eos_token_id") == 7
    assert special({"eos_token_id": None, "vocab_size": 9}, "eos_token_id") == 8
