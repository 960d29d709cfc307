"""Layers from elsewhere are held to what their configuration says they are."""

import warnings

import pytest
import torch
from torch import nn

from regard.analysis.record import record
from regard.conformance import LAWS, conform, subject_of
from regard.core.errors import RegardError

transformers = pytest.importorskip("transformers")
NAN = {"padding NaN", "padding infinity"}  # no package promises these
SMALL = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 70,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def built(kind, **settings):
    config = getattr(transformers, kind.config_class.__name__)(**{**SMALL, **settings})
    return kind(config)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "settings", "is_causal", "dtype"),
    [
        ("ModernBertModel", {"cls_token_id": 1, "sep_token_id": 2}, False, torch.float32),
        ("DistilBertModel", {}, False, torch.float64),
        ("RobertaForMaskedLM", {}, False, torch.float64),
        ("BertModel", {"is_decoder": True}, True, torch.float64),
        ("LlamaForCausalLM", {"num_key_value_heads": 1}, True, torch.float32),
    ],
)
def test_models_of_transformers(name, settings, is_causal, dtype):
    layer = subject_of(built(getattr(transformers, name), **settings))
    assert layer.modes == (is_causal,)
    assert layer.dtype == dtype
    assert {v.law for v in conform(layer, long=False) if v.outcome == "fails"} <= NAN


@pytest.mark.filterwarnings("ignore")
def test_eager_models_are_asked_for_weights_by_a_name_that_their_signature_lacks():
    eager, sdpa = (
        LAWS["layer"]["weights before dropout"].judge(
            "", subject_of(built(transformers.BertModel, attn_implementation=kind))
        )
        for kind in ("eager", "sdpa")
    )
    assert eager.outcome == "fails"
    assert "the sum of a row of weights differs from 1" in eager.message
    assert sdpa.message == "the layer does not return weights"


def test_an_encoder_and_decoder_is_named_by_one_of_them():
    model = transformers.T5Model(
        transformers.T5Config(vocab_size=30, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    )
    with pytest.raises(RegardError, match=r"name one of them: model\.get_encoder\(\)"):
        subject_of(model)


class Quick(nn.Module):
    """Softmax in float32, and dropout of its own."""

    def __init__(self):
        super().__init__()
        self.width, self.heads = 8, 1
        self.project, self.dropout = nn.Linear(8, 24), nn.Dropout(0.1)

    def forward(self, x, mask=None):
        n = x.shape[1]
        q, k, v = self.project(x).chunk(3, -1)
        scores = q @ k.mT
        if mask is not None:
            hidden = ~mask.allows(torch.arange(n), torch.arange(n))
            scores = scores.masked_fill(hidden, -1e30)
        return self.dropout(scores.softmax(-1, dtype=torch.float32).to(v.dtype)) @ v


def test_an_instance_has_its_own_dropout_and_the_limits_of_float32():
    layer = subject_of(Quick())
    assert layer.dtype == torch.float32
    failures = {v.law: v.message for v in conform(layer) if v.outcome == "fails"}
    assert not failures.keys() - {*NAN, "sees nothing"}, failures


def test_a_recording_of_nothing_warns():
    from regard.interop.attention_interface import register

    register()
    model = built(transformers.BertModel, attn_implementation="regard").eval()
    words = torch.arange(5)[None]
    with pytest.warns(UserWarning, match=r"nothing was recorded of BertModel.*replace\(model\)"):  # noqa: SIM117
        with torch.no_grad(), record(model) as recording:
            model(words)
    assert recording.layers == []
    with warnings.catch_warnings(), torch.no_grad(), record(model) as recording:
        warnings.simplefilter("error")
        model(words)
    assert len(recording.layers) == 1
    peer = nn.MultiheadAttention(4, 2, batch_first=True)
    with warnings.catch_warnings(), record(peer) as recording:  # observed
        warnings.simplefilter("error")
        peer(*[torch.zeros(1, 2, 4)] * 3)
    ((name, attended),) = recording.layers
    assert (name, attended.weights.tolist()) == ("model", [[[[0.5, 0.5]] * 2] * 2])
    hidden = type("HiddenAttention", (nn.Linear,), {})(2, 2)
    with pytest.warns(UserWarning, match="HiddenAttention calls a kernel outside torch"):  # noqa: SIM117
        with record(hidden):
            hidden(torch.zeros(1, 2))
    with warnings.catch_warnings(), record(nn.Linear(2, 2)) as recording:  # no attention at all
        warnings.simplefilter("error")
        nn.Linear(2, 2)(torch.zeros(1, 2))
    assert recording.layers == []
