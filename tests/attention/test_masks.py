"""Masks by hand: who sees whom."""

import pytest
import torch

from regard.attention import (
    SCORES,
    KeyValueCache,
    Mask,
    MultiHeadAttention,
    attend,
    bigbird,
    blocks,
    causal,
    dense,
    documents,
    global_tokens,
    lengths,
    lengths_per_query,
    named_mechanism,
    others,
    prefix,
    use,
    window,
)
from regard.attention.mask import Blocks, Tile
from regard.core.errors import RegardError

TWO, THREE, FOUR = torch.arange(2), torch.arange(3), torch.arange(4)


def table(mask, rows=THREE, columns=THREE):
    return mask.allows(rows, columns).expand(*rows.shape[:-1], -1, -1).int().tolist()


def test_built_in_masks():
    assert table(causal()) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert table(others()) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert lengths(2).allows(THREE, THREE).int().tolist() == [[1, 1, 0]]
    assert lengths([0, 3]).allows(THREE, THREE).int().tolist() == [[[0, 0, 0]], [[1, 1, 1]]]
    per_query = lengths_per_query([[3, 0], [1, 2]]).allows(TWO, THREE).int().tolist()
    assert per_query == [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 1, 0]]]
    assert table(dense(torch.tensor([[True, False, True]]))) == [[1, 0, 1]]


def test_the_algebra():
    assert table(causal() | prefix(2)) == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert table(causal() & others()) == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert table(~causal()) == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert (~lengths(1)).allows(THREE, THREE).int().tolist() == [[0, 1, 1]]
    assert (~lengths(1) & lengths(2)).kind == "keys"
    assert (~lengths(1) & causal()).kind == "pairs"


def test_rows_are_the_last_of_the_columns_by_default():
    x = torch.zeros(2, 4, 3)
    weights = attend(x[:, :2], x, x, SCORES["dot"](), causal()).weights
    assert (weights[0] > 0).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_positions_of_a_batch():
    rows = torch.tensor([[0, 1], [2, 3]])
    assert causal().allows(rows, FOUR).int().tolist() == [
        [[1, 0, 0, 0], [1, 1, 0, 0]],
        [[1, 1, 1, 0], [1, 1, 1, 1]],
    ]


def test_padding_on_the_left_by_negative_positions():
    positions = torch.tensor([[0, 1, 2, 3], [-2, -1, 0, 1]])
    x = torch.randn(2, 4, 3)
    x[1, :2] = torch.nan
    mask = causal() & lengths([4, 2])
    score = SCORES["dot"]()
    left = attend(x, x, x, score, mask, query_positions=positions, key_positions=positions)
    alone = attend(x[1:, 2:], x[1:, 2:], x[1:, 2:], score, causal())
    torch.testing.assert_close(left.output[1:, 2:], alone.output)


def test_a_mask_on_keys_hides_a_key():
    x = torch.randn(2, 3, 4)
    mask = Mask(lambda rows, columns: columns[None, :] != 1)
    weights = attend(x, x, x, SCORES["dot"](), mask).weights
    assert (weights[..., 1] == 0).all()
    assert (weights[..., 0] > 0).all()


def test_over_heads_puts_the_axis_once():
    mask = lengths([1, 3])
    assert mask.allows(THREE, THREE).shape == (2, 1, 3)
    assert mask.over_heads().over_heads().allows(THREE, THREE).shape == (2, 1, 1, 3)
    assert (causal() & mask.over_heads()).allows(THREE, THREE).shape == (2, 1, 3, 3)
    assert (mask.over_heads() | mask).allows(THREE, THREE).shape == (2, 1, 1, 3)


@pytest.mark.parametrize("call", ["attend", "layer"])
def test_tensors_are_refused_with_the_remedy(call):
    def given(mask):
        x = torch.zeros(2, 3, 4)
        if call == "layer":
            return MultiHeadAttention(4, 2)(x, mask=mask)
        return attend(x, x, x, SCORES["dot"](), mask)

    with pytest.raises(RegardError, match=r"dense\(tensor == 0\) for a 0 / −inf mask"):
        given(torch.zeros(3, 3))
    with pytest.raises(RegardError, match=r"dense\(tensor\), where True = may look"):
        given(torch.ones(3, 3, dtype=torch.bool))


def test_errors():
    x = torch.zeros(2, 3, 4)
    with pytest.raises(RegardError, match=r"True = may look, not torch.float32"):
        attend(x, x, x, SCORES["dot"](), Mask(lambda r, c: torch.zeros(3, 3)))
    with pytest.raises(RegardError, match="does not broadcast to the scores"):
        attend(x, x, x, SCORES["dot"](), lengths([1, 2, 3]))
    with pytest.raises(RegardError, match="2 × 2 does not fit 3 queries and 3 keys"):
        attend(x, x, x, SCORES["dot"](), dense(torch.ones(2, 2, dtype=torch.bool)))
    with pytest.raises(RegardError, match="is for 2 queries, but the call has 3"):
        attend(x, x, x, SCORES["dot"](), lengths_per_query([[1, 2], [1, 2]]))
    with pytest.raises(RegardError, match=r"must be integers, not torch.float32"):
        lengths(torch.tensor([1.0, 2.0]))
    with pytest.raises(RegardError, match="combines only with masks, not with Tensor"):
        causal() & torch.ones(3, 3, dtype=torch.bool)
    with pytest.raises(RegardError, match=r"not a tensor of torch.float32"):
        dense(torch.ones(3, 3))


def test_windows_and_global_tokens():
    assert table(window(1), FOUR, FOUR) == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert table(window(1, 2), FOUR, FOUR) == [
        [1, 0, 1, 0],
        [0, 1, 0, 1],
        [1, 0, 1, 0],
        [0, 1, 0, 1],
    ]
    assert table(window(0) | global_tokens(1)) == [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    assert table(window(1) & causal(), TWO, TWO) == [[1, 0], [1, 1]]


def test_blocks_and_documents():
    allowed = torch.tensor([[True, False], [True, True]])
    places = torch.arange(-1, 5)
    assert table(blocks(allowed, 2), places, places) == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    ids = torch.tensor([[0, 0, 1], [2, 3, 3]])
    assert documents(ids).allows(THREE, THREE).int().tolist() == [
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]],
        [[1, 0, 0], [0, 1, 1], [0, 1, 1]],
    ]
    assert table(documents(torch.tensor([1, 0, 0]), torch.tensor([0, 1, 2]))) == [
        [0, 1, 0],
        [1, 0, 0],
        [1, 0, 0],
    ]


def test_bigbird():
    places = torch.arange(640)
    mask = bigbird(640, block=64, near=1, first=1, random=2, seed=3)
    seen = mask.allows(places, places).view(10, 64, 10, 64)
    by_block = seen[:, 0, :, 0]
    assert (seen == by_block[:, None, :, None]).all()
    assert by_block[0].all()
    assert by_block[:, 0].all()
    assert all(by_block[i, j] for i in range(10) for j in range(max(i - 1, 0), min(i + 2, 10)))
    # The first block, three neighbours, two at random: none drawn twice, none near or first.
    assert by_block[2:9].sum(-1).tolist() == [6] * 7
    again = bigbird(640, seed=3).allows(places, places)
    assert torch.equal(again, mask.allows(places, places))
    assert not torch.equal(again, bigbird(640, seed=4).allows(places, places))


REACHING = {
    "causal": causal(),
    "lengths": lengths(torch.tensor([[31], [9], [0]])),
    "lengths_per_query": lengths_per_query(torch.arange(39)),
    "others": others(),
    "window": window(5),
    "dilated": window(3, 4),
    "global": global_tokens(6),
    "blocks": blocks(torch.arange(30).view(5, 6) % 4 > 0, 7),
    "bigbird": bigbird(47, block=4, random=1),
    "documents": documents(torch.arange(39) // 6, torch.arange(47) // 7),
    "bare": Mask(lambda rows, columns: columns[..., None, :] % 3 > 0),
    "dense": dense(torch.arange(39 * 47).view(39, 47) % 5 > 0),
}


@pytest.mark.parametrize("name", REACHING)
@pytest.mark.parametrize("size", [1, 4, 64])
def test_what_is_said_of_blocks_is_true_of_their_pairs(name, size):
    rows, columns = torch.arange(3, 42), torch.arange(47)
    one = REACHING[name]
    joined = (one, ~one, one & causal(), one | window(2), one & ~window(2), ~(one | others()))
    for mask in joined:
        reach = mask.reach(Blocks.of(rows, size), Blocks.of(columns, size + 1))
        allowed = mask.allows(rows, columns)
        allowed = allowed.expand(*allowed.shape[:-2], 39, 47).reshape(-1, 39, 47)
        for i, some in enumerate(allowed.split(size, 1)):
            for j, block in enumerate(some.split(size + 1, 2)):
                assert reach.may[i, j] or not block.any()
                assert block.all() or not reach.must[i, j]
    if name not in ("bare", "dense") and size == 1:
        assert not one.reach(Blocks.of(rows, 4), Blocks.of(columns, 4)).may.all() or name in (
            "others",
            "dilated",
            "lengths_per_query",
        )


@pytest.mark.parametrize("name", REACHING)
def test_a_tile_of_answers_is_a_part_of_them(name):
    rows, columns = torch.arange(39), torch.arange(47)
    mask = (REACHING[name] | causal()).over_heads()
    whole = mask.allows(rows, columns)
    for keys in (slice(5, 20), torch.tensor([0, 7, 46])):
        tile = mask.allows(rows, columns, Tile(slice(4, 9), keys))
        expected = whole if whole.shape[-2] == 1 else whole[..., 4:9, :]
        assert torch.equal(tile, expected[..., keys])


def test_what_tells_of_fewer_places_than_there_are_is_refused_by_every_kernel():
    x = torch.randn(1, 600, 4)
    short = torch.full((300,), 600)
    for mask in (documents(short), lengths_per_query(short)):
        for kernel in ("exact", "tiled"):
            with use(kernel), pytest.raises(RegardError, match="is for 300 queries"):
                attend(x, x, x, SCORES["dot"](), mask)


def test_bad_masks():
    for wrong, says in (
        (lambda: window(-1), "window needs a size of at least 0"),
        (lambda: window(2, 0), "a step of at least 1, not 2 and 0"),
        (lambda: global_tokens(-2), "at least 0, not -2"),
        (lambda: blocks(torch.ones(2, 2), 3), "a bool table"),
        (lambda: blocks(torch.ones(2, 2, dtype=torch.bool), 0), "a size of at least 1"),
        (lambda: bigbird(0), "length=0 and block=64 must be at least 1"),
        (lambda: documents(torch.zeros(3)), "must be integers"),
    ):
        with pytest.raises(RegardError, match=says):
            wrong()
    x = torch.zeros(2, 4, 3)
    with pytest.raises(RegardError, match="'documents' is for 3 queries, but the call has 4"):
        attend(x, x, x, SCORES["dot"](), documents(torch.zeros(3, dtype=torch.long)))


@pytest.mark.parametrize("valid", [-1, [3, -2], torch.tensor([[1], [-1]])])
def test_lengths_below_nothing_are_refused(valid):
    with pytest.raises(RegardError, match="at least 0, not -"):
        lengths(valid)


@pytest.mark.parametrize(
    "mask", [lengths([3, 9]), causal() & lengths([3, 9]), ~lengths([3, 9]) | causal()]
)
def test_a_length_beyond_the_keys_is_told_with_its_row(mask):
    x = torch.randn(2, 7, 4)
    with pytest.raises(RegardError, match="length of row 1 is 9, but there are only 7 keys"):
        attend(x, x, x, "dot", mask)
    with pytest.raises(RegardError, match="length of row 1 is 9"):
        MultiHeadAttention(4, 2)(x, mask=mask)


def test_a_cache_may_be_shorter_than_the_texts_and_a_prefix_longer_than_all():
    x = torch.randn(2, 7, 4)
    attend(x, x, x, "dot", causal() & lengths([3, 9]), cache=KeyValueCache())
    assert torch.equal(
        attend(x, x, x, "dot", causal() | prefix(9)).output, attend(x, x, x, "dot").output
    )


@pytest.mark.parametrize("attention", ["multi-head", "moba-16-2", "dsa-9"])
@pytest.mark.parametrize("mask", ["window", "bigbird", "dense", "rotary"])
def test_tensors_of_a_call_do_not_follow_the_default_device(attention, mask):
    """On a GPU the default device may be ``cuda``, while blocks of a mask are on the CPU."""
    thirds = torch.arange(200 * 200).view(200, 200) % 3 > 0
    made = {
        "window": window(9) & causal(),
        "bigbird": bigbird(200, block=16),
        "dense": dense(thirds),
        "rotary": causal(),
    }
    position = "rotary" if mask == "rotary" else "none"
    layer = named_mechanism(attention)(16, 2, position=position).eval()
    x = torch.randn(2, 200, 16)
    with use("tiled"):
        expected = layer(x, mask=made[mask])
        with torch.device("meta"):
            found = layer(x, mask=made[mask])
    assert torch.equal(found, expected)
