"""The plan is a pure function of the call."""

from contextlib import nullcontext

import pytest
import torch
from torch.testing import assert_close

from regard.attention import SCORES, attend, causal, explain, make_score, window
from regard.attention.kernels.choose import (
    SHIPPED,
    Constants,
    Properties,
    asked,
    constants_file,
    load_constants,
    plan,
    use,
    using,
)
from regard.core.errors import RegardError
from tests.attention.parts import MASKS, inputs, score_of


def planned(**call):
    usual = {"inner_product": True, "normalize": "softmax", "shape": (8, 300, 300)}
    return plan(Properties(**{**usual, **call}))


def kernel(**call):
    return planned(**call).kernel


def test_plans():
    assert kernel() == "fused"
    assert kernel(inner_product=False) == "tiled"
    assert kernel(inner_product=False, shape=(8, 4, 9)) == "exact"
    assert kernel(normalize="sparsemax") == "tiled"
    assert kernel(finite=False) == "tiled"
    assert kernel(dropout=0.1) == "tiled"
    assert kernel(dropout=0.1, shape=(8, 4, 9)) == "exact"
    assert kernel(dtype=torch.bfloat16) == "plain"
    assert kernel(dtype=torch.bfloat16, device="cuda") == "fused"
    assert kernel(dtype=torch.bfloat16, shape=(8, 513, 513)) == "fused"
    assert kernel(shape=(8, 5, 0)) == kernel(shape=(8, 0, 5)) == "exact"
    assert kernel(mask="pairs") == "fused"
    assert kernel(mask="pairs", shape=(8, 2048, 2048)) == "fused"
    assert kernel(mask="pairs", shape=(8, 9000, 9000), device="cuda") == "tiled"
    assert kernel(mask="causal", shape=(8, 2048, 2048)) == "fused"
    assert kernel(normalize="sink") == "fused"
    on_gpu = {"shape": (8, 2048, 2048), "device": "cuda"}
    assert kernel(normalize="sink", **on_gpu) == "fused"
    assert kernel(normalize="sink", **on_gpu, dtype=torch.float64) == "tiled"
    assert kernel(normalize="sink", **on_gpu, dropout=0.1) == "tiled"
    assert kernel(normalize="sink", shape=(8, 4, 9)) == "exact"
    bias = {"inner_product": False, "linear": True}
    assert kernel(**bias) == kernel(**bias, mask="causal", normalize="softmax-plus-one") == "fused"
    assert kernel(**bias, dtype=torch.bfloat16) == kernel(**bias, asked="tiled") == "tiled"


def test_strips_of_torchs_kernel():
    def strips(**call):
        return planned(**call).by_strips

    assert not strips()
    assert not strips(mask="causal")
    assert not strips(mask="pairs", shape=(8, 256, 256))
    assert strips(mask="pairs")
    assert strips(normalize="sink")
    assert not strips(normalize="sink", asked="tiled")
    bias = {"inner_product": False, "linear": True}
    assert strips(normalize="sink", shape=(8, 2048, 2048), device="cuda")
    assert not strips(**bias, shape=(8, 4096, 4096), device="cuda")  # the bias as one table
    assert strips(**bias, shape=(16, 4096, 4096), device="cuda")
    memory = [planned(shape=(8, n, n), mask="pairs").megabytes for n in (2048, 16_384)]
    assert memory[0] == memory[1] < 32


def test_what_is_asked_for_is_done_where_it_can_be():
    assert kernel(asked="exact", dropout=0.1) == "exact"
    assert kernel(asked="plain") == "plain"
    assert kernel(asked="tiled") == "tiled"
    assert kernel(asked="fused", dropout=0.1, shape=(2, 3, 3)) == "tiled"
    assert kernel(asked="fused", finite=False) == "tiled"


def test_memory_does_not_grow_with_the_table():
    sizes = [planned(inner_product=False, shape=(8, n, n)).megabytes for n in (512, 1024, 16384)]
    assert sizes[0] == sizes[1] < 32
    assert sizes[1] < sizes[2] < 16 * sizes[1]  # as few rows as a strip may have
    assert planned(shape=(8, 2048, 2048), asked="exact").megabytes > 300


def test_compiled_from_a_fixed_amount_of_work():
    call = {"inner_product": False, "additive": True, "hidden": 64}
    assert not planned(**call, shape=(8, 64, 64)).compiled
    assert planned(**call, shape=(8, 256, 256)).compiled
    assert not planned(**{**call, "additive": False}, shape=(8, 1024, 1024)).compiled
    user = {**call, "additive": False, "numbers_per_pair": 64}
    assert not planned(**user, shape=(8, 256, 256)).compiled
    assert planned(**user, shape=(8, 1024, 1024)).compiled


def test_constants_replace_those_shipped():
    with using(Constants(exact_pairs=10**9)):
        assert kernel(inner_product=False) == "exact"
    assert kernel(inner_product=False) == "tiled"
    assert Constants() == SHIPPED


def test_use_asks_inside_its_block_alone():
    assert asked() is None
    with use("plain"):
        assert asked() == "plain"
        with use("exact"):
            assert asked() == "exact"
        assert asked() == "plain"
    assert asked() is None
    with pytest.raises(RegardError, match="'flash'; choose one of"), use("flash"):
        pass


def test_explain_says_why():
    x, long = torch.zeros(2, 5, 4), torch.zeros(2, 300, 4)
    additive = SCORES["additive"](4, 4)
    assert str(explain(x, x, x, additive)).startswith("exact: the score is not an inner product")
    assert explain(long, long, long, additive).kernel == "tiled"
    assert explain(x, x, x, make_score("cosine", "rotary")).kernel == "fused"
    assert explain(long, long, long, make_score("dot", "alibi"), causal()).kernel == "fused"
    assert explain(long, long, long, SCORES["dot"](), normalize="sparsemax").why.startswith(
        "torch's kernels support only softmax, not sparsemax"
    )


def test_the_path_of_a_call_is_the_one_explained(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "regard.attention.computation.tiled", lambda *a: seen.append(a) or torch.zeros(2, 300, 4)
    )
    x = torch.zeros(2, 300, 4)
    for score, mask, expected in (
        (SCORES["additive"](4, 4), None, 1),
        (SCORES["dot"](), window(3), 1),
        (SCORES["boxcar"](), None, 2),
    ):
        assert (explain(x, x, x, score, mask).kernel == "tiled") == (len(seen) < expected)
        attend(x, x, x, score, mask)
        assert len(seen) == expected


def test_constants_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    load_constants.cache_clear()
    try:
        assert load_constants() == SHIPPED
        path = constants_file()
        assert path == tmp_path / "regard" / "kernels.json"
        path.parent.mkdir()
        for wrong in (
            "{",
            '{"exact_pears": 1}',
            '{"exact_pairs": -1}',
            '{"exact_pairs": 0.5}',
            "[]",
        ):
            path.write_text(wrong)
            load_constants.cache_clear()
            with pytest.raises(RegardError, match=r"kernels\.json"):
                load_constants()
        path.write_text('{"exact_pairs": 7}')
        load_constants.cache_clear()
        assert load_constants() == Constants(exact_pairs=7)
        assert kernel(inner_product=False, shape=(1, 2, 3)) == "exact"
        assert kernel(inner_product=False, shape=(2, 2, 3)) == "tiled"
    finally:
        load_constants.cache_clear()


@pytest.mark.parametrize("mask", ["none", "causal", "lengths", "causal & lengths", "dense"])
@pytest.mark.parametrize("position", ["alibi", "kerple", "t5-bias", "relative-keys"])
def test_a_bias_in_the_fused_kernel_computes_the_formula(position, mask):
    """As on a GPU, where the bias of a score is the mask of torch's kernel."""
    given, score = inputs(9, 9), score_of("scaled-dot", position)
    allowed, found = MASKS[mask](9, 9), []
    for kernel in (None, "plain", "exact"):  # plain products take no bias: strips compute it
        with using(Constants(bias_pairs=2**20)), use(kernel) if kernel else nullcontext():
            assert kernel or explain(*given, score, allowed).kernel == "fused"
            output = attend(*given, score, allowed).output
            of = [*given, *score.parameters()]
            parts = torch.autograd.grad(output.cos().sum(), of, allow_unused=True)
            found.append([output, *(x for x in parts if x is not None)])
    for fused, strips, exact in zip(*found, strict=True):
        assert_close(fused, exact, atol=1e-10, rtol=1e-10)
        assert_close(strips, exact, atol=1e-10, rtol=1e-10)
