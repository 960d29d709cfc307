"""What a loaded model goes on with is what transformers' own generate writes, token 0 included."""

import json
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from regard.core.errors import RegardError
from regard.interop.huggingface import load
from regard.interop.pretrained import Pretrained
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
    theirs.generation_config.update(pad_token_id=0, decoder_start_token_id=0, eos_token_id=1)
    source = [5, 4, 9, 2]
    made = theirs.generate(torch.tensor([source]), max_new_tokens=7, do_sample=False)
    whole = made[0, 1:].tolist()
    assert Pretrained(mine).go_on([source], most=7) == [
        whole[: whole.index(1)] if 1 in whole else whole
    ]


def test_a_gpt_writes_past_its_positions_from_their_last_half(tmp_path):
    theirs, mine = loaded("gpt2", 1, tmp_path / "gpt")
    mine.generation["eos_token_id"] = None
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
    mine.generation["eos_token_id"] = None
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


def changed(folder, **keys):
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    return load(folder)


def test_a_text_ends_by_any_of_several_ends_or_by_none(tmp_path):
    theirs, mine = loaded("gpt2", 1, tmp_path / "gpt", likes_zero)
    mine.generation["eos_token_id"] = None
    (whole,) = Pretrained(mine).go_on([[5, 3]], most=12)
    assert len(whole) == 12
    first, second = [whole.index(token) for token in dict.fromkeys(whole)][:2]
    for ends in ([whole[second]], [whole[second], whole[first]]):
        stops = min(whole.index(token) for token in ends)
        mine = changed(tmp_path / "gpt", eos_token_id=ends)
        assert Pretrained(mine).go_on([[5, 3]], most=12) == [whole[:stops]]
        theirs.generation_config.eos_token_id = ends
        made = theirs.generate(torch.tensor([[5, 3]]), max_new_tokens=12, do_sample=False,
                               pad_token_id=2)  # fmt: skip
        assert made[0, 2 : 2 + stops + 1].tolist() == whole[: stops + 1]
    (drawn,) = Pretrained(mine).go_on([[5, 3]], most=200, temperature=2.0, seed=3)
    assert not {*drawn} & {*ends}


def test_a_t5_begins_with_its_own_start(tmp_path):
    theirs, _ = loaded("t5", 3, tmp_path / "t5", likes_zero)
    starts = []
    for start in (0, 2, 5):
        mine = changed(tmp_path / "t5", decoder_start_token_id=start, eos_token_id=None)
        made = theirs.generate(torch.tensor([[5, 4, 9]]), max_new_tokens=7, do_sample=False,
                               decoder_start_token_id=start, eos_token_id=None)  # fmt: skip
        starts += Pretrained(mine).go_on([[5, 4, 9]], most=7)
        assert made[0, 1:].tolist() == starts[-1]
    assert starts[0] != starts[1]
    too_large = changed(tmp_path / "t5", decoder_start_token_id=99)
    with pytest.raises(RegardError, match="texts begin with token 99, but the model has"):
        Pretrained(too_large)


def test_keys_by_which_generate_would_write_something_else_are_refused(tmp_path):
    _, gpt = loaded("gpt2", 1, tmp_path / "gpt")
    for key, value in {"repetition_penalty": 1.5, "suppress_tokens": [3]}.items():
        with pytest.raises(RegardError, match=rf"_config.json: {key}=.* is not supported; reg"):
            Pretrained(changed(tmp_path / "gpt", **{key: value}))
        changed(tmp_path / "gpt", **{key: None})
    with pytest.raises(RegardError, match="eos_token_id must be a token id, not '2'"):
        Pretrained(changed(tmp_path / "gpt", eos_token_id="2"))
    silent = changed(tmp_path / "gpt", eos_token_id=2, bos_token_id=None)
    with pytest.raises(RegardError, match="has no bos_token_id, which a text begins with; set it"):
        Pretrained(silent).go_on([[]])
    with pytest.raises(RegardError, match=r"the file has no output.weight, without which"):
        Pretrained(replace(gpt, drawn=("output.weight",)))
