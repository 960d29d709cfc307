"""Masks and calls beside transformers' eager attention, a family for each cause."""

import copy
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    eager_mask,
    sliding_window_causal_mask_function,
)
from transformers.models.gpt2 import modeling_gpt2

from benchmarks import family_models
from regard.core.errors import RegardError
from regard.interop.attention_interface import register, replace
from regard.interop.eager import EagerMask, eager_masks

SIZE = {"batch_size": 2, "q_length": 5, "kv_length": 5}
MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "one query": {"q_length": 1, "q_offset": 4},
    "room in a static cache": {"kv_length": 9},
    "a window": {"mask_function": sliding_window_causal_mask_function(2), "local_size": 2},
    "padding": {"attention_mask": torch.tensor([[1] * 5, [0, 0, 1, 1, 1]]).bool()},
    "all may be seen": {
        "mask_function": lambda b, h, q, k: k >= 0,
        "allow_is_causal_skip": False,
        "allow_is_bidirectional_skip": True,
    },
}


@pytest.fixture(autouse=True)
def registered() -> None:
    register()


@pytest.fixture
def gpt2() -> Any:
    torch.manual_seed(0)
    return family_models.make("gpt2")


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_are_eagers(kind, dtype):
    given = {**SIZE, "mask_function": causal_mask_function, **MASKS[kind], "dtype": dtype}
    theirs, ours = eager_mask(**given), eager_masks(**given)
    if theirs is None:
        assert ours is None
        return
    assert isinstance(ours, EagerMask)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert torch.equal(ours + 0, theirs)
    assert torch.equal(ours[:, :, -1:], theirs[:, :, -1:])


def test_a_causal_mask_has_no_numbers_until_they_are_read():
    mask = eager_masks(**SIZE, mask_function=causal_mask_function)
    assert mask.causal
    assert not mask.changed
    assert not hasattr(mask, "_numbers")
    assert mask.ndim == 4
    assert float(mask.sum()) < -1e38
    assert hasattr(mask, "_numbers")


def test_what_a_model_writes_into_its_mask_counts():
    mask = eager_masks(**SIZE, mask_function=causal_mask_function)
    mask[:, :, 0, 3] = 0
    assert mask.changed
    assert float((mask + 0)[0, 0, 0, 3]) == 0
    assert not eager_masks(**SIZE, mask_function=and_masks(causal_mask_function)).changed


@pytest.mark.parametrize(
    "family",
    ["nllb-moe", "bigbird_pegasus",  # decoders that say is_causal=False
     "gpt_oss", "granite_swa",  # sinks
     "deepseek_v32", "axk2",  # they choose keys
     "minimax_m3_vl_text",  # chooses blocks of keys
     "inkling2_text",  # a sink for each query
     "metaclip_2"],  # reads a word that may see nothing
)  # fmt: skip
def test_families_that_were_changed_in_silence(family):
    model = family_models.make(family)
    for side in ("left", "right"):
        asked = family_models.question(model, side)
        real = asked["attention_mask"].bool()
        answers = []
        for name in ("eager", "regard"):
            model.set_attn_implementation(name)
            model.zero_grad()
            said = family_models.answer(model, asked)
            said = {k: x[real] if x.shape[:2] == real.shape else x for k, x in said.items()}
            torch.stack([x.sin().mean() for x in said.values()]).sum().backward()
            answers.append((said, [x.grad for x in model.parameters() if x.grad is not None]))
        (one, gradients), (two, ours) = answers
        for key, x in one.items():
            assert torch.allclose(two[key], x, atol=1e-5, rtol=1e-5), (side, key)
        assert sum(bool(x.abs().max() > 1e-6) for x in ours) > 3
        for x, other in zip(gradients, ours, strict=True):
            if family == "metaclip_2" and side == "left":  # no gradient by a score that is lost
                continue
            assert torch.allclose(x, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["nllb-moe", "pegasus_x"])
def test_no_decoder_sees_the_future(family):
    model = family_models.make(family)
    model.set_attn_implementation("regard")
    asked = family_models.question(model)
    asked = {key: x[:, :6] for key, x in asked.items()}
    other = {**asked, "decoder_input_ids": asked["decoder_input_ids"].clone()}
    other["decoder_input_ids"][:, -1] += 1
    with torch.no_grad():
        one, two = model(**asked).logits, model(**other).logits
    assert (one - two)[:, :-1].abs().max() < 1e-5
    assert (one - two)[:, -1].abs().max() > 1e-3


@pytest.mark.parametrize(
    ("keyword", "says"),
    [("block_indices", r"picks blocks of keys .*\(block_indices\)"),
     ("cu_seq_lens_q", "passes cu_seq_lens_q to its attention"),
     ("invented", "passes invented to its attention")],
)  # fmt: skip
def test_unknown_keywords_are_refused_by_name(gpt2, keyword, says):
    gpt2.set_attn_implementation("regard")
    asked = family_models.question(gpt2)
    with pytest.raises(RegardError, match=f"this model {says}, .*not support; use"):
        gpt2(**asked, **{keyword: torch.ones(2)})
    gpt2(**asked, **{keyword: None})


def test_sinks_and_another_normaliser_do_not_go_together():
    register("regard-entmax15", normalize="entmax15")
    model = family_models.make("gpt_oss")
    model.set_attn_implementation("regard-entmax15")
    with pytest.raises(RegardError, match="sinks, which normalize=entmax15 does not support"):
        model(**family_models.question(model))


@pytest.mark.parametrize("name", ["regard", "regard-entmax15"])
def test_the_first_call_is_compared_with_the_models_own(gpt2, monkeypatch, name):
    """A model of our making: its eager attention divides what it looks at by two."""
    register("regard-entmax15", normalize="entmax15")
    own = modeling_gpt2.eager_attention_forward

    def halved(module, query, key, value, *given, **named):
        return own(module, query, key, value / 2, *given, **named)

    gpt2.set_attn_implementation(name)
    asked = family_models.question(gpt2, "left")
    copy.deepcopy(gpt2)(**asked)
    monkeypatch.setattr(modeling_gpt2, "eager_attention_forward", halved)
    with pytest.raises(RegardError, match="GPT2Attention computes attention in its own way"):
        copy.deepcopy(gpt2)(**asked)

    def fails(*given, **named):
        raise ValueError("no")

    monkeypatch.setattr(modeling_gpt2, "eager_attention_forward", fails)
    with pytest.raises(RegardError, match=r"eager attention raised an error \(no\)"):
        gpt2(**asked)


def test_a_mask_by_which_eager_answers_no_number_is_refused(gpt2):
    gpt2.set_attn_implementation("regard")
    asked = {**family_models.question(gpt2), "attention_mask": torch.full((2, 1, 9, 9), -torch.inf)}
    with pytest.raises(RegardError, match="GPT2Attention computes attention in its own way"):
        gpt2(**asked)
    asked["attention_mask"] = torch.full((2, 1, 9, 9), torch.finfo(torch.float32).min)
    assert gpt2(**asked).logits.isfinite().all()


def test_a_model_that_reads_its_mask_as_true_or_false_gets_such_a_mask():
    """Its code takes eager's numbers the wrong way round, and answers NaN; with sdpa it works."""
    model = family_models.make("nemotron_asr_streaming_encoder")
    answers = {}
    for name in ("eager", "sdpa", "regard"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            answers[name] = model(**family_models.question(model)).last_hidden_state
    assert answers["eager"].isnan().any()
    assert (answers["regard"] - answers["sdpa"]).abs().max() < 1e-5


class OtherwiseByName(transformers.GPT2Model):
    """It answers otherwise where its attention is not eager, outside its attention."""

    def forward(self, input_ids: Any, **named: Any) -> Any:
        found = super().forward(input_ids, **named)
        if self.config._attn_implementation != "eager":
            found.last_hidden_state = found.last_hidden_state * 1.5
        return found


def test_adopt_compares_a_whole_pass(gpt2):
    model = OtherwiseByName(gpt2.config)
    model.set_attn_implementation("eager")
    model.train().h[0].eval()
    before = [name for name, _ in model.named_modules()]
    with pytest.raises(
        RegardError, match=r"OtherwiseByName.s outputs .* differ .* by 0.5 of the largest numb"
    ):
        replace(model)
    assert model.config._attn_implementation == "eager"
    assert [name for name, _ in model.named_modules()] == before
    assert (model.training, model.h[0].training) == (True, False)


def test_adopt_asks_an_example(gpt2):
    hearing = family_models.make("wav2vec2")
    with pytest.raises(RegardError, match=r"takes other inputs .*replace\(model, example="):
        replace(hearing)
    assert len(replace(hearing, example=family_models.question(hearing))) == 2
    assert len(replace(family_models.make("vit"))) == 2
    plain = copy.deepcopy(gpt2)
    for block in plain.transformer.h:
        block.attn.forward = lambda states, **named: (states, None)
    with pytest.raises(RegardError, match="GPT2LMHeadModel does not use transformers' attention"):
        replace(plain)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the method's name
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_model_is_fine_tuned_with_gradient_checkpointing(reentrant):
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).train()
    register()
    model.set_attn_implementation("regard")
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    words = torch.arange(1, 9)[None]
    model(words, labels=words, use_cache=False).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_model_of_few_words_is_adopted():
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=5, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    )
    replace(model)
    assert model(torch.tensor([[1, 2]])).logits.isfinite().all()
