"""Strips beside the exact path: forward, backward, at every size and with every part."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention import (
    NORMALIZERS,
    SCORES,
    Attention,
    Normalizer,
    Score,
    attend,
    bigbird,
    causal,
    documents,
    lengths,
    make_score,
    use,
    window,
)
from regard.attention.arguments import Arguments
from regard.attention.computation import Computation
from regard.attention.kernels.choose import Constants, Properties, plan, using
from regard.attention.kernels.strips import Sizes, strips_of
from regard.core.errors import RegardError
from tests.attention.parts import HEADS, MASKS, WIDTH, gradients, inputs, score_of

LENGTHS = [1, 2, 3, 7, 63, 65, 127, 129]
#: Strips of a few numbers, so that small inputs have many.
SMALL = Constants(strip_numbers=256, strip_rows=1)
pytestmark = pytest.mark.usefixtures("for_long_texts")
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


def both(given, score, mask=None, **settings):
    """Output and gradients by the exact path and by strips."""
    of = (*given, *score.parameters())
    if isinstance(settings.get("normalize"), Normalizer):
        of = (*of, *settings["normalize"].parameters())
    found = []
    for kernel in ("exact", "tiled"):
        torch.manual_seed(7)
        with use(kernel), using(SMALL):
            output = attend(*given, score, mask, **settings).output
        found.append([output, *gradients(output, *of)])
    return zip(*found, strict=True)


def agree(pairs, tolerance):
    for exact, ours in pairs:
        assert_close(ours, exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("score", ["scaled-dot", "additive", "gaussian"])
@pytest.mark.parametrize("position", ["none", "t5-bias", "relative-keys"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_lengths_of_every_kind(score, position, dtype):
    made = score_of(score, position, dtype)
    for n, m in zip(LENGTHS, reversed(LENGTHS), strict=True):
        given = inputs(n, m, dtype)
        agree(both(given, made, lengths([m, m // 2, 1])), 5 * TOLERANCE[dtype])


@pytest.mark.parametrize("n", [1025])
def test_a_length_beyond_a_block(n):
    made = score_of("scaled-dot", "t5-bias")
    given = [x[:1, :, :, :].detach().requires_grad_() for x in inputs(n, n)]
    agree(both(given, made, window(9) & causal()), 1e-10)


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("mask", MASKS)
def test_every_normaliser_and_mask(normalize, mask):
    made, normalizer = score_of("scaled-dot", "alibi"), NORMALIZERS[normalize](HEADS).double()
    for parameter in normalizer.parameters():
        parameter.data += 0.3
    pairs = both(inputs(9, 13), made, MASKS[mask](9, 13), normalize=normalizer, dropout=0.2)
    agree(pairs, 1e-9)


@pytest.mark.parametrize("mask", [window(3, 2), bigbird(70, block=16, near=0, random=1), causal()])
def test_blocks_that_nothing_sees_are_left_out(mask):
    given, made = inputs(70, 70), score_of("additive", "t5-bias")
    agree(both(given, made, mask), 1e-11)
    with using(SMALL):
        call = Computation.of(Arguments(*given, made, mask)).call
    computed = 0
    for strip in strips_of(call.context, Sizes(10**6, 8, 4)):
        assert strip.batch == ()
        rows = strip.tile.rows.stop - strip.tile.rows.start
        columns = strip.tile.columns
        count = len(columns) if isinstance(columns, torch.Tensor) else columns.stop - columns.start
        computed += rows * count
    assert 0 < computed < 0.75 * 70 * 70


def test_a_strip_is_no_larger_than_it_may_be():
    given = inputs(70, 50)
    call = Computation.of(Arguments(*given, score_of("dot", "alibi"))).call
    seen = torch.zeros(3, 70, dtype=torch.int)
    for strip in strips_of(call.context, Sizes(512)):
        seen[(*strip.batch, ..., strip.tile.rows)] += 1
        assert strip.batch[1:] == ()
        here = seen[(*strip.batch, ..., strip.tile.rows)]
        assert here.numel() * HEADS * 50 <= 512
    assert (seen == 1).all()


def test_a_strip_has_rows_enough_for_what_each_key_costs():
    shape, additive = (1, 8, 16_384, 16_384), {"hidden": 64, "additive": True}
    call = {"inner_product": False, "normalize": "softmax", "shape": shape}
    plain, long = plan(Properties(**call)), plan(Properties(**call, **additive))
    assert plain.kernel == long.kernel == "tiled"
    assert plain.sizes.least == long.sizes.least == 128
    assert 100 < long.megabytes < 1_000
    given = inputs(70, 50)
    call = Computation.of(Arguments(*given, score_of("additive"))).call
    rows = [s.tile.rows for s in strips_of(call.context, Sizes(512, least=32))]
    assert {x.stop - x.start for x in rows} == {32, 6}


def test_heads_of_plain_products_are_cut_apart():
    x = torch.randn(3, 8, 300, WIDTH, dtype=torch.float64, requires_grad=True)
    made = make_score("dot", heads=8)
    call = Computation.of(Arguments(x, x, x, made)).call
    seen = torch.zeros(3, 8, 300, dtype=torch.int)
    for strip in strips_of(call.context, Sizes(100_000), same_heads=True):
        here = seen[(*strip.batch, strip.tile.rows)]
        here += 1
        assert here.shape in ((1, 2, 166), (1, 2, 134))
    assert (seen == 1).all()
    y = x.detach()[..., :60, :].requires_grad_()
    for mask in (None, window(20), lengths([60, 3, 0])):
        # Compiling takes longer than all of it.
        with using(Constants(compile_hidden=0, strip_numbers=10_000, strip_rows=1)):
            agree(both((y, y, y), made, mask, normalize="sparsemax", dropout=0.2), 1e-11)


def test_batches_broadcast():
    made = make_score("additive", "none", WIDTH, WIDTH).double()
    queries = torch.randn(4, 1, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(3, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    for shape in ((7, 5), (2, 4, 1, 7, 5), (3, 7, 5)):
        values = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        agree(both((queries, keys, values), made), 1e-11)


@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_keys(groups):
    agree(both(inputs(9, 13, groups=groups), score_of("additive", "alibi"), causal()), 1e-11)


def test_bfloat16_is_near():
    made = score_of("additive", "alibi", torch.bfloat16)
    given = inputs(9, 13, torch.bfloat16)
    for exact, ours in both(given, made, causal()):
        assert ours.dtype == torch.bfloat16
        assert_close(ours, exact, atol=0.1, rtol=0.1)


def test_autocast_reaches_the_backward():
    made, given = score_of("scaled-dot", "alibi", torch.float32), inputs(40, 40, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        pairs = list(both(given, made, causal()))
    for exact, ours in pairs:
        assert_close(ours, exact, atol=0.05, rtol=0.05)


def test_nan_reaches_only_who_may_see_it():
    made, given = score_of("additive", dtype=torch.float32), inputs(9, 9, torch.float32)
    for x, place in zip(given, (2, 5, 6), strict=True):
        x.data[0, 1, place, 1] = torch.nan
    pairs = list(both(given, made, causal()))
    for exact, ours in pairs[:1]:
        assert_close(ours, exact, equal_nan=True, atol=1e-5, rtol=1e-5)
        assert ours[0, 1, 2].isnan().all()
        assert ours[0, 1, :2].isfinite().all()
        assert ours[0, 1, 5:].isnan().any(-1).all()
        assert ours[1:].isfinite().all()
    for exact, ours in pairs[1:]:
        assert ours.isfinite().all()
        assert_close(ours, exact, atol=1e-4, rtol=1e-4)


def test_second_derivatives_are_refused_by_name():
    given, made = inputs(5, 7), score_of("additive")
    with use("tiled"):
        output = attend(*given, made).output
    with pytest.raises(RegardError, match="differentiable once"):
        torch.autograd.grad(output.sum(), given, create_graph=True)


class Steep(Score):
    """A user's score with a parameter, many numbers a pair, and a tuple of prepared parts."""

    name = "steep"

    def __init__(self, query_width=None, key_width=None, *, heads=None, length=None):
        super().__init__(query_width, key_width, heads=heads, length=length)
        self.width = nn.Parameter(torch.full((query_width,), 0.7))

    def prepare_keys(self, keys, positions):
        return keys, keys.square().sum(-1, keepdim=True)

    def compare(self, queries, keys, positions):
        far = (queries[..., :, None, :] - keys[0][..., None, :, :]).abs()
        return -(self.width * far).sum(-1) - 0.01 * keys[1].mT


def test_a_score_of_the_users_own():
    made = Steep(WIDTH, WIDTH, heads=HEADS).double()
    agree(both(inputs(33, 41), made, window(20) | lengths(3)), 1e-11)
    assert torch.autograd.gradcheck(
        lambda *given: attend(*given, made, causal()).output,
        [x[:1].detach().requires_grad_() for x in inputs(3, 4)],
    )


class Held(Score):
    """Uses a tensor that is no parameter of its own."""

    def compare(self, queries, keys, positions):
        return self.factor * queries @ keys.mT


def test_a_captured_tensor_is_refused():
    made, given = Held(WIDTH, WIDTH, heads=HEADS), inputs(5, 7, torch.float32)
    made.factor = torch.ones((), requires_grad=True) * 2
    with use("tiled"), pytest.raises(RegardError, match="make it an"):
        attend(*given, made)
    with use("tiled"), torch.no_grad():
        attend(*given, made)


class Tempered(Normalizer):
    """A user's normaliser: one method."""

    name = "tempered"

    def forward(self, scores):
        return torch.softmax(scores.clamp(min=-1e9) / 3, -1) * (scores > -torch.inf)


def test_a_normaliser_of_the_users_own():
    agree(both(inputs(9, 13), score_of("dot", "alibi"), causal(), normalize=Tempered()), 1e-11)


def test_parameters_of_a_functional_call_get_the_gradient():
    layer, given = Attention(score_of("additive"), "sink"), inputs(5, 7)
    named = {k: v.detach().clone().double().requires_grad_() for k, v in layer.named_parameters()}
    assert len(named) == 5
    found = []
    for kernel in ("exact", "tiled"):
        with use(kernel):
            output = torch.func.functional_call(layer, named, given).output
        found.append(gradients(output, *named.values()))
    for exact, ours in zip(*found, strict=True):
        assert exact.any()
        assert_close(ours, exact)


def test_documents_packed_into_a_row():
    ids = torch.arange(70) // 11
    given, made = [x[:1].detach().requires_grad_() for x in inputs(70, 70)], score_of("dot")
    agree(both(given, made, documents(ids) & causal()), 1e-11)
    whole = attend(*given, made, documents(ids)).output[..., 11:22, :]
    alone = attend(*(x[..., 11:22, :] for x in given), made).output
    assert_close(whole, alone)


def test_the_same_call_has_the_same_bits():
    given, made = inputs(33, 41, torch.float32), score_of("additive", "t5-bias", torch.float32)
    seen = []
    for _ in range(2):
        torch.manual_seed(3)
        with use("tiled"):
            output = attend(*given, made, dropout=0.3).output
        seen.append([output, *gradients(output, *given)])
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SCORES)
def test_autocast_has_the_same_gradients_by_tiles(name: str, dtype: torch.dtype) -> None:
    """Prepared queries are of another dtype there than keys that nothing was done to."""
    made = SCORES[name](8, 8, length=40)
    found = []
    for kernel in ("exact", "tiled"):
        torch.manual_seed(1)
        given = [(3 * torch.randn(1, 40, 8)).requires_grad_() for _ in range(3)]
        with use(kernel), torch.autocast("cpu", dtype):
            output = attend(*given, made, mask=lengths(30)).output
        loss = output.float().square().sum()
        of = torch.autograd.grad(loss, given, allow_unused=True, materialize_grads=True)
        found.append([output, *of])
    for exact, ours in zip(*found, strict=True):
        assert_close(ours, exact, atol=0.05 * max(1.0, exact.abs().max().item()), rtol=0.05)


def test_additive_scores_of_large_numbers_stay_exact_under_autocast() -> None:
    """e^{2k} leaves half's range; the dtypes of queries, which have a bias, and keys differ."""
    made = SCORES["additive"](8, 8)
    queries, keys, values = 10 * torch.randn(1, 40, 8), 10 * torch.randn(1, 40, 8), torch.eye(40)
    with torch.autocast("cpu", torch.float16):
        with use("exact"):
            wanted = attend(queries, keys, values, made).output
        with use("tiled"):
            found = attend(queries, keys, values, made).output
    assert_close(found, wanted, atol=2e-3, rtol=0)


class Kept(Normalizer):
    """Softmax of w s, by a method that it keeps as an attribute."""

    def __init__(self, heads=None):
        super().__init__(heads)
        self.w = nn.Parameter(torch.tensor(2.0))
        self.scaled = self.times_w

    def times_w(self, scores):
        return scores * self.w

    def forward(self, scores):
        return self.scaled(scores).softmax(-1)


class Captured(Kept):
    """The same, with the parameter in a closure."""

    def __init__(self, heads=None):
        super().__init__(heads)
        w = self.w
        self.scaled = lambda scores: scores * w


def test_a_method_kept_as_an_attribute_has_its_gradient_by_tiles():
    x, made = torch.randn(1, 9, 4), Kept()
    found = []
    for kernel in ("exact", "tiled"):
        with use(kernel):
            output = attend(x, x, x, "dot", normalize=made).output
        found += torch.autograd.grad(output.square().sum(), [made.w])
    assert_close(*found)
    assert found[0] != 0


def test_a_parameter_in_a_closure_is_refused_by_tiles():
    x = torch.randn(1, 9, 4)
    with use("tiled"), pytest.raises(RegardError, match="forward uses a tensor that needs a grad"):
        attend(x, x, x, "dot", normalize=Captured())
