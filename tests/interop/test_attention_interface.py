"""Models of transformers with regard's attention: eager's numbers, other scores, weights."""

import copy
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from regard.analysis.record import record, table
from regard.attention import Attended
from regard.attention.kernels.choose import use
from regard.conformance import conform
from regard.core.errors import RegardError
from regard.interop.attention_interface import attended, make_layer, register, replace
from tests.interop import tiny

SMALL = {"vocab_size": 31, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2,
         "intermediate_size": 16}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
SIDES = {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
         "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
         "decoder_start_token_id": 3}  # fmt: skip
MODELS = {
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 15, "n_head": 3, "n_layer": 2}),
    "BertForMaskedLM": ("BertConfig", SIZES),
    "T5ForConditionalGeneration": ("T5Config", {
        "d_model": 15, "d_kv": 5, "num_heads": 3, "num_layers": 2, "d_ff": 16,
        "decoder_start_token_id": 0}),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED),
    "MistralForCausalLM": ("MistralConfig", {**GROUPED, "sliding_window": 4}),
    "Qwen3ForCausalLM": ("Qwen3Config", {**GROUPED, "head_dim": 6}),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", {
        **GROUPED, "head_dim": 6, "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"]}),
    "Gemma2ForCausalLM": ("Gemma2Config", {
        **GROUPED, "head_dim": 6, "sliding_window": 4, "attn_logit_softcapping": 0.5}),
    "GptOssForCausalLM": ("GptOssConfig", {
        **GROUPED, "head_dim": 6, "sliding_window": 4, "num_local_experts": 4}),
    "Llama4ForCausalLM": ("Llama4TextConfig", {
        **GROUPED, "head_dim": 6, "attention_chunk_size": 4, "intermediate_size_mlp": 16,
        "num_local_experts": 2, "no_rope_layers": [1, 0]}),
    "Olmo2ForCausalLM": ("Olmo2Config", GROUPED),
    "Qwen2ForCausalLM": ("Qwen2Config", GROUPED),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", SIZES),
    "RobertaForMaskedLM": ("RobertaConfig", SIZES),
    "DistilBertForMaskedLM": ("DistilBertConfig", {
        "dim": 15, "n_heads": 3, "n_layers": 2, "hidden_dim": 16}),
    "MarianMTModel": ("MarianConfig", SIDES),
    "BartForConditionalGeneration": ("BartConfig", {**SIDES, "forced_eos_token_id": None}),
}  # fmt: skip
#: What a feature of a family is without it: (setting, value), the weights being the same.
FEATURES: dict[str, tuple[str, Any]] = {
    "Gemma2ForCausalLM": ("attn_logit_softcapping", None),
    "GptOssForCausalLM": ("sinks", -1e4),
    "MistralForCausalLM": ("sliding_window", None),
    "Gemma3ForCausalLM": ("layer_types", ["full_attention"] * 2),
    "Llama4ForCausalLM": ("attention_chunk_size", 64),
}
WRITERS = [name for name in MODELS if "Masked" not in name]


def make(name: str, **more: Any) -> Any:
    """A tiny model by eager attention, its weights some way off where they begin."""
    torch.manual_seed(0)
    config, given = MODELS[name]
    settings = {**SMALL, **given, **more}
    model = getattr(transformers, name)(getattr(transformers, config)(**settings)).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=0.2)
    return model


def with_regard(model: Any, name: str = "regard") -> Any:
    other = copy.deepcopy(model)
    other.set_attn_implementation(name)
    return other


def question(model: Any) -> dict[str, torch.Tensor]:
    """Texts padded on the left, on the right, and not at all."""
    torch.manual_seed(1)
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, :4] = 0
    mask[2, 6:] = 0
    asked = {"input_ids": torch.randint(4, 30, (3, 9)) * mask, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        asked["decoder_input_ids"] = torch.randint(4, 30, (3, 5))
    return asked


@pytest.fixture(autouse=True)
def registered() -> None:
    register()


@pytest.mark.parametrize("name", MODELS)
def test_eager_numbers_with_padding(name):
    model = make(name)
    asked = question(model)
    with torch.no_grad():
        theirs = model(**asked, output_attentions=True)
        ours = with_regard(model)(**asked, output_attentions=True)
    writes = model.config.is_encoder_decoder
    real = torch.ones(3, 5).bool() if writes else asked["attention_mask"].bool()
    assert (theirs.logits - ours.logits)[real].abs().max() < 1e-5
    kinds = ["encoder_attentions", "decoder_attentions", "cross_attentions"]
    for kind in kinds if writes else ["attentions"]:
        tables = list(zip(theirs[kind], ours[kind], strict=True))
        assert len(tables) == 2
        for one, two in tables:
            assert tiny.gap(two, one, asked["attention_mask"].bool()) < 1e-5


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
@pytest.mark.parametrize(
    "name", ["T5ForConditionalGeneration", "LlamaForCausalLM", "Gemma2ForCausalLM"]
)
def test_by_every_kernel(name, kernel):
    model = make(name)
    asked = question(model)
    with torch.no_grad(), use(kernel):
        gap = model(**asked).logits - with_regard(model)(**asked).logits
    real = slice(None) if model.config.is_encoder_decoder else asked["attention_mask"].bool()
    assert gap[real].abs().max() < 1e-5


@pytest.mark.parametrize(
    ("name", "cache"),
    [*((name, "dynamic") for name in WRITERS),
     *((name, "static") for name in ("GPT2LMHeadModel", "LlamaForCausalLM", *FEATURES))],
)  # fmt: skip
def test_what_is_generated(name, cache):
    """With a cache that grows and one of a fixed size: the same words, from the same logits.

    The static cache of a layer with a window or a chunk is a ring of that size.
    """
    model = make(name)
    asked = {k: v for k, v in question(model).items() if not k.startswith("decoder")}
    if not model.config.is_encoder_decoder:  # a decoder alone is padded on the left
        asked = {"input_ids": asked["input_ids"][:2], "attention_mask": asked["attention_mask"][:2]}
    how = {"max_new_tokens": 6, "do_sample": False, "output_scores": True,
           "return_dict_in_generate": True, "min_new_tokens": 6,
           "cache_implementation": cache, "disable_compile": True}  # fmt: skip
    theirs, ours = model.generate(**asked, **how), with_regard(model).generate(**asked, **how)
    assert torch.equal(theirs.sequences, ours.sequences)
    for one, two in zip(theirs.scores, ours.scores, strict=True):
        kept = one.isfinite()
        assert (one - two)[kept].abs().max() < 1e-5


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_counts_and_regard_computes_it(name):
    """Soft caps, sinks, windows, layer patterns and chunks: eager's numbers, with and without."""
    setting, without = FEATURES[name]
    given = {} if setting == "sinks" else {setting: without}
    answers = []
    for model in (make(name), make(name, **given)):
        if setting == "sinks" and answers:
            for layer in model.model.layers:
                layer.self_attn.sinks.data.fill_(without)
        asked = {key: x[:1] for key, x in question(model).items()}
        with torch.no_grad():
            answers.append(with_regard(model)(**asked).logits)
            assert (answers[-1] - model(**asked).logits).abs().max() < 1e-5
    assert (answers[0] - answers[1]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "name", ["T5ForConditionalGeneration", "GPT2LMHeadModel", "LlamaForCausalLM", *FEATURES]
)
def test_the_same_gradients(name):
    model = make(name)
    asked, other = question(model), with_regard(model)
    for each in (model, other):
        each(**asked).logits[0].square().mean().backward()
    there = {key: x.grad for key, x in model.named_parameters() if x.grad is not None}
    ours = {key: x.grad for key, x in other.named_parameters() if x.grad is not None}
    assert ours.keys() == there.keys()
    assert sum(bool(x.abs().max() > 1e-6) for x in ours.values()) > 10
    for key, x in ours.items():
        assert torch.allclose(x, there[key], atol=1e-5, rtol=1e-4), key


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
def test_a_sink_for_each_query(kernel):
    """As in Inkling 2: one more score in the softmax of each row, without a value."""
    torch.manual_seed(0)
    sizes = [(2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 5), (2, 3, 4, 1)]
    q, k, v, sinks = (torch.randn(size, requires_grad=True) for size in sizes)
    mask, bias = torch.rand(2, 1, 4, 6) > 0.3, torch.randn(2, 3, 4, 6)
    layer = make_layer("scaled-dot", "softmax", 5, 3)
    upstream = torch.randn(2, 4, 3, 5)
    for added in (None, bias):
        scores = 0.7 * q @ k.mT + (0 if added is None else added)
        rows = torch.cat([scores.masked_fill(~mask, -torch.inf), sinks], -1).softmax(-1)
        expected = (rows[..., :-1] @ v).transpose(1, 2)
        with use(kernel):
            found, weights = attended(
                layer, q, k, v, mask, scaling=0.7, position_bias=added, sinks=sinks, weights=True
            )
        assert torch.allclose(found, expected, atol=1e-6)
        assert torch.allclose(weights, rows[..., :-1], atol=1e-6)
        there = torch.autograd.grad(expected, (q, k, v, sinks), upstream)
        ours = torch.autograd.grad(found, (q, k, v, sinks), upstream)
        for x, other in zip(ours, there, strict=True):
            assert torch.allclose(x, other, atol=1e-5)


def test_another_normaliser_by_name():
    register("regard-entmax15", normalize="entmax15")
    model = make("LlamaForCausalLM")
    other = with_regard(model, "regard-entmax15")
    weights = other(**question(model), output_attentions=True).attentions[0]
    past = torch.ones(9, 9).tril().bool()
    assert (weights[0, :, past] == 0).float().mean() > 0.1, "sparse"
    assert torch.allclose(weights[0].sum(-1), torch.ones(4, 9))


def test_names_do_not_take_each_others_layers():
    register()
    register("regard-entmax15", normalize="entmax15")
    model = make("LlamaForCausalLM")
    asked = question(model)

    def said(name):
        model.set_attn_implementation(name)
        return model(**asked).logits

    softmax, sparse = said("regard"), said("regard-entmax15")
    assert (softmax - sparse).abs().max() > 1e-3
    assert torch.equal(said("regard"), softmax)
    replace(model, score="additive")
    own = model(**asked).logits
    assert (own - softmax).abs().max() > 1e-3
    assert torch.equal(said("regard-entmax15"), sparse)
    assert torch.equal(said("regard"), own), "what was adopted stays"
    register("regard-entmax15", normalize="sparsemax")
    assert (said("regard-entmax15") - sparse).abs().max() > 1e-4


def test_a_score_that_is_trained():
    model = make("GPT2LMHeadModel")
    before = set(dict(model.named_parameters()))
    names = replace(model, score="additive", normalize="sink")
    new = {name: x for name, x in model.named_parameters() if name not in before}
    assert names == ["transformer.h.0.attn", "transformer.h.1.attn"]
    assert len(new) == 2 * 5
    model.train()(**question(model)).logits.sum().backward()
    assert all(x.grad.abs().max() > 0 for x in new.values())


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "T5ForConditionalGeneration"])
def test_weights_are_recorded(name):
    model = make(name)
    asked, other = question(model), copy.deepcopy(model)
    places = replace(other)
    with torch.no_grad(), record(other) as recording:
        other(**asked)
        seen = {key.removesuffix(".regard"): table(x) for key, x in recording.layers}
        said = model(**asked, output_attentions=True)
    assert set(seen) == set(places)
    first = said.attentions if name.startswith("GPT2") else said.encoder_attentions
    assert tiny.gap(seen[places[0]], first[0], asked["attention_mask"].bool()) < 1e-5


def test_nothing_is_computed_for_nobody(monkeypatch):
    model, asked = with_regard(make("BertForMaskedLM")), question(make("BertForMaskedLM"))
    assert model(**asked, output_attentions=True).attentions[0].shape == (3, 4, 9, 9)

    def never(attended):
        raise AssertionError("nobody asked")

    monkeypatch.setattr(Attended, "weights", property(never))
    model(**asked)


def test_a_mask_of_numbers_is_added():
    """A user's own four-axis mask: it hides where it is lowest, and elsewhere it is added."""
    model, asked = make("BertForMaskedLM"), question(make("BertForMaskedLM"))
    mask = torch.randn(3, 1, 9, 9)
    mask[:, :, :, 7:] = torch.finfo(torch.float32).min
    asked["attention_mask"] = mask
    with torch.no_grad():
        gap = model(**asked).logits - with_regard(model)(**asked).logits
    assert gap.abs().max() < 1e-5


def test_laws_hold():
    """Those that a model of transformers breaks are its own; its attention breaks none."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=12, n_head=3, n_layer=1, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0,
    )  # fmt: skip
    model = transformers.GPT2Model(config)
    model.set_attn_implementation("regard")
    verdicts = {x.law: x.outcome for x in conform(model)}
    held = {law for law, outcome in verdicts.items() if outcome == "holds"}
    assert held >= {"made", "future", "cache", "padding 1e3", "gradients", "batches"}


def test_errors(monkeypatch):
    with pytest.raises(RegardError, match=r"parameters in each layer; .*by replace\(model, score="):
        register("regard-additive", score="additive")
    with pytest.raises(RegardError, match="no normalizer is called 'softmx'"):
        register("x", normalize="softmx")
    with pytest.raises(RegardError, match="Linear has no attention that regard can replace"):
        replace(torch.nn.Linear(2, 2))
    model = with_regard(make("GPT2LMHeadModel"))
    with pytest.raises(RegardError, match="computes attention in its own way"):  # eager ignores it
        model(**question(model), softcap=3.0)
