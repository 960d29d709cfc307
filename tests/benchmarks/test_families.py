"""The families of transformers, a few by their cause: what becomes of each is told."""

import json

import pytest

pytest.importorskip("transformers")

from benchmarks import attention_modules, families
from regard.core.errors import RegardError
from regard.interop import attention_interface


def judged(family, monkeypatch):
    own = attention_interface.refuse_difference
    monkeypatch.setattr(attention_interface, "refuse_difference", own)  # so that it is put back
    return families.judge(family)


def test_a_family_that_agrees(monkeypatch):
    verdict = judged("gpt2", monkeypatch)
    assert (verdict.outcome, verdict.model) == ("agrees", "GPT2LMHeadModel")
    for gap in (verdict.forward, verdict.gradients, verdict.written):
        assert 0 <= gap < 1e-5
    assert verdict.same_words
    assert verdict.modules == ["GPT2Attention"]


def test_a_family_whose_eager_attention_answers_no_number(monkeypatch):
    verdict = judged("nemotron_asr_streaming_encoder", monkeypatch)
    assert (verdict.outcome, verdict.reason) == ("agrees", "compared with sdpa: eager returns NaN")
    assert verdict.forward < 1e-5


def test_a_difference_is_seen(monkeypatch):
    own = attention_interface.attended

    def another(layer, *given, **named):
        return own(layer, *given, **{**named, "scaling": 0.3})

    monkeypatch.setattr(attention_interface, "refuse_difference", lambda *given: None)
    monkeypatch.setattr(attention_interface, "attended", another)
    verdict = families.judge("gpt2")
    assert verdict.outcome == "differs"
    assert verdict.reason.startswith("forward, gradients, written")
    assert verdict.forward > 1e-3


@pytest.mark.parametrize(
    ("family", "outcome", "reason"),
    [("bloom", "own attention", ""),
     ("decision_transformer", "not built", "needs states, which this benchmark does not")],
)  # fmt: skip
def test_others_by_their_reason(family, outcome, reason, monkeypatch):
    verdict = judged(family, monkeypatch)
    assert verdict.outcome == outcome
    assert reason in verdict.reason


def test_a_refusal_is_told(monkeypatch):
    def refuse(keywords):
        raise RegardError("it caps")

    monkeypatch.setattr(attention_interface, "refuse", refuse)
    verdict = judged("gpt2", monkeypatch)
    assert (verdict.outcome, verdict.reason) == ("refused", "it caps")


def test_the_command_goes_on_from_its_file(tmp_path, capsys, monkeypatch):
    rows = [families.Verdict("bert", "agrees", "BertModel", forward=1e-7,
                             modules=["BertSelfAttention"]),
            families.Verdict("gemma2", "refused", "Gemma2Model", "it caps")]  # fmt: skip

    def alone(family, seconds):
        assert seconds == 5
        return rows.pop(0)

    monkeypatch.setattr(families, "alone", alone)
    modules = {"BertSelfAttention": "", "GPT2Attention": ""}
    monkeypatch.setattr(attention_modules, "attention_modules", lambda: modules)
    words = ["--out", str(tmp_path / "out.json"), "--seconds", "5", "--only", "bert", "gemma2"]
    assert families.main(words) == families.main(words) == 0
    said = capsys.readouterr().out
    assert "* 1 agree with eager." in said
    assert "| bert | BertModel | 1.0e-07 |  |  |  |" in said
    assert "### Refused\n\n* gemma2: `it caps`" in said
    assert "2 classes call the attention interface: 1 ran in these families" in said
    assert "of 1 others regard computes" in said
    assert said.endswith("\n\nGPT2Attention\n")
    kept = json.loads((tmp_path / "out.json").read_text())
    assert [x["outcome"] for x in kept["families"]] == ["agrees", "refused"]
    with pytest.raises(RegardError, match="no family is called 'brt'; did you mean bert"):
        families.main(["--out", str(tmp_path / "x.json"), "--only", "brt"])


def test_a_family_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(families, "answer", lambda family, to: __import__("time").sleep(60))
    verdict = families.alone("gpt2", 0.2)
    assert (verdict.outcome, verdict.reason) == ("not built", "not finished after 0.2 seconds")
    assert verdict.seconds < 30


def test_a_class_is_compared_with_its_own_eager_function(monkeypatch):
    gpt2 = pytest.importorskip("transformers.models.gpt2.modeling_gpt2")
    sinks = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss").GptOssAttention
    assert attention_modules.reason(gpt2.GPT2Attention, sinks=False) == ""
    assert attention_modules.reason(sinks, sinks=True) == ""
    assert "in its own way" in attention_modules.reason(sinks, sinks=False)
    own = gpt2.eager_attention_forward

    def doubled(module, query, key, value, *given, **named):
        return own(module, query, key, 2 * value, *given, **named)

    monkeypatch.setattr(gpt2, "eager_attention_forward", doubled)
    assert "in its own way" in attention_modules.reason(gpt2.GPT2Attention, sinks=False)
