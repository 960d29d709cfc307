"""Layers with any signature: what is guessed, what the laws find, and how a guess is corrected."""

import pytest
import torch
from torch import nn

from regard.attention import causal
from regard.conformance import LAWS, adopt, conform
from regard.conformance.conventions import ADDITIVE, HIDDEN, LENGTHS, MAY_LOOK, Form
from regard.conformance.probe import Probe
from regard.core.errors import RegardError
from tests.conformance import planted_elsewhere, strangers
from tests.conformance.bugs import failures

GUESSES = {
    strangers.Book: "forward(queries=x, keys=x, values=x, valid_lens=lengths (b)); batch first; "
    "width 12, 3 heads; float64",
    strangers.Annotated: "forward(query=x, key=x, value=x, mask=may look (b, n, m)); batch first; "
    "width 12, 3 heads; float64",
    strangers.Small: "forward(x=x); batch first; causal; width 12, 3 heads; float64",
    strangers.Letters: "forward(idx=x); x is words before the embedding; batch first; causal; "
    "width 12, 3 heads; float64",
    strangers.Einops: "forward(x=x, context=memory, mask=may look (b, m)); batch first; width 12, "
    "3 heads; float64",
    strangers.TimeFirst: "forward(query=x, key=x, value=x, key_padding_mask=hidden (b, m), "
    "attn_mask=additive (n, m)); time first; width 12, 3 heads; float64",
    strangers.Additive: "forward(hidden_states=x, encoder_outputs=memory, "
    "attention_mask=additive (b, n, m)); batch first; width 12, 1 head; float64",
}
#: Laws that each breaks, all confirmed by hand: a large number in place of −∞ hides too little,
#: −∞ alone makes a row of nothing NaN, and scores of −10⁹ are equal weights where nothing is seen.
#: What an additive mask does to such a row is the caller's choice of numbers.
BROKEN = {
    strangers.Book: {"large words", "sees nothing"},
    strangers.Annotated: {"large words", "sees nothing"},
    strangers.Small: set(),
    strangers.Letters: set(),
    strangers.Einops: {"sees nothing"},
    strangers.TimeFirst: {"empty text", "sees nothing", "weights of nothing"},
    strangers.Additive: set(),
}


@pytest.mark.parametrize("kind", strangers.STRANGERS)
def test_a_class_is_called_as_its_signature_says(kind):
    assert str(adopt(kind)) == f"{kind.__name__}: {GUESSES[kind]}"
    verdicts = conform(kind, long=False)
    assert {v.law for v in verdicts if v.outcome == "fails"} == BROKEN[kind]
    assert sum(v.outcome == "holds" for v in verdicts) >= 14, verdicts


def test_an_instance_is_copied_with_what_it_kept():
    layer = strangers.Book(8, 2, 0.5)
    x = torch.randn(2, 3, 8, requires_grad=True)
    layer(x, x, x, None).sum().backward()
    before = {name: p.clone() for name, p in layer.named_parameters()}
    adopted = adopt(layer)
    assert (adopted.width, adopted.heads) == (8, 2)
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())
    assert layer.dropout.p == 0.5
    assert adopted.build().dropout.p == 0.0


@pytest.mark.filterwarnings("ignore")
def test_torchs_stack_of_layers_is_time_first_and_its_decoder_reads_a_memory():
    block = nn.TransformerEncoderLayer(12, 3, 16)
    stack = adopt(nn.TransformerEncoder(block, 2))
    assert "called as in torch: forward(src=x, mask=hidden (n, m), src_key_padding_mask=hidden "\
           "(b, m)); time first" in str(stack)  # fmt: skip
    assert failures(stack, long=False).keys() <= {"empty text", "sees nothing"}
    decoder = adopt(nn.TransformerDecoderLayer(12, 3, 16, batch_first=True))
    assert decoder.modes == (False, True)
    assert "memory=memory" in str(decoder)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Form(MAY_LOOK, "b m"), [[True, True, False], [True, True, True]]),
        (Form(HIDDEN, "b m"), [[False, False, True], [False, False, False]]),
        (Form(LENGTHS, "b"), [2, 3]),
        (Form(ADDITIVE, "b 1 1 m"), [[[[0, 0, -torch.inf]]], [[[0, 0, 0]]]]),
    ],
)
def test_forms_of_a_mask(form, expected):
    valid = torch.tensor([2, 3])
    allowed = (torch.arange(3) < valid[:, None])[:, None].expand(2, 4, 3)
    assert form.write(allowed, 2, torch.float32).tolist() == expected


def test_forms_of_pairs():
    allowed = torch.ones(2, 3, 3, dtype=torch.bool).tril()
    assert Form(HIDDEN, "n m").write(allowed, 2, torch.float32).equal(~allowed[0])
    joined = Form(MAY_LOOK, "bh n m").write(allowed, 2, torch.float32)
    assert joined.shape == (4, 3, 3)
    low = Form(ADDITIVE, "b 1 n m", lowest=True).write(allowed, 2, torch.float32)
    assert low.min() == torch.finfo(torch.float32).min


class Odd(nn.Module):
    """Takes its words under names that nobody knows, and a mask that hides by ones."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, wo, was, *, blind=None):
        return self.inner(wo, was, was, key_padding_mask=blind)[0]


def test_a_guess_is_corrected_by_names_or_a_call():
    with pytest.raises(RegardError, match=r"forward\(wo, was, blind=None\), and was has no known"):
        adopt(Odd())
    named = adopt(Odd(), queries="wo", memory="was", masks={"blind": "hidden (b, m)"})
    assert "wo=x, was=memory, blind=hidden (b, m)" in str(named)

    def call(module, x, memory, allowed):
        blind = None if allowed is None else ~allowed[:, 0]
        return module(x, x if memory is None else memory, blind=blind)

    by_hand = adopt(Odd(), call=call, causal=False)
    x, valid = torch.randn(2, 5, 8).double(), torch.tensor([3, 5])
    outputs = [one.call(one.build().double().eval(), x, valid) for one in (by_hand,)]
    assert outputs[0].shape == (2, 5, 8)
    failed = failures(by_hand, long=False)
    assert not failed.keys() & {"padding 1e3", "made", "batches", "gradients"}, failed


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"queries": "nowhere"}, "queries='nowhere': Einops has no such argument; it takes x, con"),
        ({"masks": {"mask": "seen (b, m)"}}, r"masks=\{'mask': 'seen \(b, m\)'\}: write a meaning"),
        ({"masks": {"mask": "hidden"}}, "write a meaning and a shape"),
        ({"call": "numpy"}, "no convention is called 'numpy'"),
        ({"width": 7}, r"Einops could not be called with words \(batch, n, width\)"),
    ],
)
def test_a_wrong_correction_is_told(given, says):
    with pytest.raises(RegardError, match=says):
        adopt(strangers.Einops(12) if "width" not in given else NoWords(), **given)


class NoWords(nn.Module):
    """Returns one vector of a text."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)

    def forward(self, x):
        return self.inner(x).mean(1)


NoWords.__name__ = "Einops"


def test_what_takes_no_words_is_told():
    with pytest.raises(RegardError, match=r"inputs \(2, 5, 12\) gave \(2, 12\)"):
        adopt(NoWords())
    with pytest.raises(RegardError, match=r"cannot be built as .*name an instance instead"):
        adopt(nn.TransformerEncoder)


class Inverted(strangers.Einops):
    """Hides what may be seen."""

    def forward(self, x, context=None, mask=None):
        return super().forward(x, context, None if mask is None else ~mask)


def test_a_mask_is_known_by_its_effect():
    assert "mask=hidden (b, m)" in str(adopt(Inverted(12)))


class Unmasked(strangers.Einops):
    """Takes a mask and does not read it."""

    def forward(self, x, context=None, mask=None):
        return super().forward(x, context)


def test_a_mask_without_an_effect_breaks_laws():
    assert "padding 1e3" in failures(Unmasked(12), long=False)


def test_a_mask_of_pairs_reaches_the_module():
    layer = adopt(strangers.Annotated)
    module = layer.build().eval()
    x = torch.randn(1, 4, 12)
    ones = torch.ones(4, 4, dtype=torch.bool).tril()
    expected = module(x, x, x, mask=ones[None])
    assert torch.equal(layer.pairs(module, x, causal()), expected)
    assert torch.equal(layer.call(module, x, future=False), expected)


@pytest.mark.parametrize("bug", planted_elsewhere.PLANTED, ids=lambda kind: kind.__name__)
def test_planted_bugs_with_other_signatures(bug):
    law = planted_elsewhere.PLANTED[bug]
    verdict = LAWS["layer"][law].judge(law, adopt(bug))
    assert verdict.outcome == "fails", verdict


@pytest.mark.parametrize("kind", planted_elsewhere.RIGHT, ids=lambda kind: kind.__name__)
def test_right_modules_with_other_signatures(kind):
    assert failures(kind) == {}


class Short(strangers.Small):
    """Takes at most 64 words."""

    def __init__(self):
        super().__init__()
        self.bias = self.bias[:64, :64]


def test_a_longest_text_is_no_fault():
    layer = adopt(Short())
    assert layer.longest == 64
    assert failures(Short()) == {}
    assert adopt(strangers.Small()).longest is None


class Infinite(strangers.Small):
    """Returns NaN for every text."""

    def forward(self, x):
        return super().forward(x) + torch.full((), -torch.inf).softmax(0)


class Averaging(strangers.Small):
    """Subtracts a mean over all calls, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return super().forward(x - self.mean)


def test_what_is_not_finite_breaks_the_first_law():
    first, *rest = conform(Infinite())
    assert (first.law, first.outcome) == ("made", "fails")
    assert "NaN" in first.message
    assert {verdict.outcome for verdict in rest} == {"does not apply"}


def test_probing_changes_no_state():
    module = Averaging()
    probe = Probe(adopt(Averaging()), module)
    assert probe.output(probe.x).isfinite().all()
    assert module.mean == 0


class Holding(nn.Module):
    """Holds its layer in a function, as well."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12)
        self.apply_layer = lambda x: self.layer(x)

    def forward(self, x):
        return self.apply_layer(x)


def test_a_copy_that_uses_the_original_is_refused():
    with pytest.raises(RegardError, match="a copy of Holding calls modules of the original"):
        adopt(Holding())
    built = adopt(lambda: Holding())
    assert str(built).startswith("Holding: forward(x=x)")
    assert failures(built, long=False) == {}


class ForgetsContext(strangers.Einops):
    """Does not read the mask of a context."""

    def forward(self, x, context=None, mask=None):
        return super().forward(x, context, mask if context is None else None)


def test_padding_of_a_memory_is_padding():
    assert "memory" in failures(ForgetsContext(12), long=False)
    assert "memory" not in failures(strangers.Einops(12), long=False)


class Averages(nn.Module):
    """Hides keys by a large negative number, so that padding in an empty text averages all keys."""

    def __init__(self):
        super().__init__()
        self.width, self.project = 8, nn.Linear(8, 8)

    def weights(self, x, hidden):
        return (self.project(x) @ x.mT).masked_fill(hidden, torch.finfo(x.dtype).min).softmax(-1)

    def forward(self, x, mask=None):
        hidden = torch.zeros(1, 1, 1, dtype=torch.bool) if mask is None else ~mask[:, None]
        weights = self.weights(x, hidden)
        return weights @ x, weights


class ReadsEmptyTexts(Averages):
    """Does not hide the words of an empty text, which are read by others."""

    def weights(self, x, hidden):
        return super().weights(x, hidden & ~hidden.all(-1, keepdim=True))


class AddsEmptyTexts(Averages):
    """Adds the words of empty texts to all texts."""

    def forward(self, x, mask=None):
        output, weights = super().forward(x, mask)
        empty = torch.zeros(len(x)) if mask is None else (~mask).all(-1)
        return output + (empty.to(x) @ x.mean(1)), weights


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (Averages, {}),
        (ReadsEmptyTexts, {"weights of nothing": "the weight of a key in an empty text: got 0."}),
        (AddsEmptyTexts, {"sees nothing": "of an empty text changed the output of another text"}),
    ],
)
def test_a_query_of_padding_may_average_padding_and_nothing_else(kind, broken):
    verdicts = {v.law: v for v in conform(kind(), long=False)}
    for law in ("sees nothing", "weights of nothing"):
        verdict = verdicts[law]
        if law in broken:
            assert (verdict.outcome, broken[law] in verdict.message) == ("fails", True), verdict
        else:
            says = "averages all keys, a convention: leave it out of the loss"
            assert (verdict.outcome, says in verdict.message) == ("does not apply", True), verdict
    if not broken:
        assert not [v for v in verdicts.values() if v.outcome == "fails"]


class ShowsLaterWords(strangers.Small):
    """Is causal, and returns weights that are not."""

    def forward(self, x):
        return super().forward(x), (x @ x.mT).softmax(-1)


def test_weights_of_a_causal_layer_are_causal():
    layer = adopt(ShowsLaterWords())
    assert layer.modes == (True,)
    verdict = LAWS["layer"]["weights"].judge("", layer)
    assert (verdict.outcome, "a later token: got 0." in verdict.message) == ("fails", True), verdict
