"""Scores, masks and normalisers that are wrong, each in one way."""

import warnings

import torch
from torch import nn

from regard.attention import Mask, MultiHeadAttention, Normalizer, Score
from regard.attention.mask import Blocks, Reach
from regard.attention.normalizers import Softmax
from regard.attention.score import InnerProduct


class Dot(Score):
    """q·k: nothing is wrong with it."""

    def compare(self, queries, keys, positions):
        return queries @ keys.mT


class Normed(Dot):
    """Divides each column of the keys by its size over all keys."""

    def prepare_keys(self, keys, positions):
        return keys / keys.square().mean(-2, keepdim=True).sqrt()


class AcrossColumns(Dot):
    """Subtracts the mean of the row of scores, which softmax alone would forgive."""

    def compare(self, queries, keys, positions):
        scores = queries @ keys.mT
        return scores - scores.mean(-1, keepdim=True)


class AcrossRows(Dot):
    """Divides by the largest score of the column."""

    def compare(self, queries, keys, positions):
        scores = queries @ keys.mT
        return scores / (1 + scores.abs().amax(-2, keepdim=True))


class Peeks(Dot):
    """A key is mixed with the one after it."""

    def prepare_keys(self, keys, positions):
        return keys + keys.roll(-1, -2)


class CountsPadding(Dot):
    """Divides by how many keys there are, padding included."""

    def prepare_keys(self, keys, positions):
        return keys / keys.shape[-2] ** 0.5


class OddPlaces(Dot):
    """Says that it reads distances, and subtracts a tenth from keys at odd positions."""

    relative = True

    def compare(self, queries, keys, positions):
        return queries @ keys.mT - 0.1 * (positions[1] % 2)


class Random(Dot):
    """Adds noise."""

    def compare(self, queries, keys, positions):
        scores = queries @ keys.mT
        return scores + torch.randn_like(scores)


class Counts(Dot):
    """Grows with each call."""

    calls = 0

    def compare(self, queries, keys, positions):
        self.calls += 1
        return queries @ keys.mT * self.calls


class ForgetsHeads(Dot):
    """Does not hand its heads on."""

    def __init__(self, query_width=None, key_width=None, *, heads=None, length=None):
        super().__init__(query_width, key_width)


class MixesHeads(Dot):
    """Compares with the mean of all heads' keys."""

    def prepare_keys(self, keys, positions):
        return keys.mean(-3, keepdim=True).expand_as(keys)


class FirstPlaces(Dot):
    """Distance, by the positions of the first text for all."""

    def compare(self, queries, keys, positions):
        rows, columns = (x.reshape(-1, x.shape[-1])[0] for x in positions)
        return queries @ keys.mT - (rows[:, None] - columns).abs()


class CountsHeads(Dot):
    """Divides by what stands at axis −3."""

    def compare(self, queries, keys, positions):
        return queries @ keys.mT / queries.shape[-3]


class OwnHeadsOnly(Dot):
    """Has a weight a head, and does not spread keys that heads share."""

    def __init__(self, query_width=None, key_width=None, *, heads=None, length=None):
        super().__init__(query_width, key_width, heads=heads, length=length)
        self.weight = nn.Parameter(torch.ones(heads, 1, 1))

    def prepare_keys(self, keys, positions):
        if keys.shape[-3] != self.heads:
            keys = keys.repeat(1, self.heads // keys.shape[-3], 1, 1)
        return keys * self.weight


class MixesBatch(Dot):
    """Subtracts the mean text."""

    def prepare_queries(self, queries, positions):
        return queries - queries.mean(0, keepdim=True)


class Captures(Dot):
    """Learns a weight that is no parameter."""

    def __init__(self, *widths, **how):
        super().__init__(*widths, **how)
        self.weight = torch.ones(6, dtype=torch.float64, requires_grad=True)

    def compare(self, queries, keys, positions):
        return queries * self.weight.to(queries.dtype) @ keys.mT


class CapturesBefore(Captures):
    """The same in prepare_queries, which the tiled kernel cannot see."""

    def prepare_queries(self, queries, positions):
        return queries * self.weight.to(queries.dtype)

    def compare(self, queries, keys, positions):
        return queries @ keys.mT


class Forgets(Dot):
    """Keeps a random number where no state_dict finds it."""

    def __init__(self, *widths, **how):
        super().__init__(*widths, **how)
        self.scale_by = float(torch.rand(()))

    def compare(self, queries, keys, positions):
        return queries @ keys.mT * self.scale_by


class Detached(Dot):
    """Lets no gradient through to the queries."""

    def compare(self, queries, keys, positions):
        return queries.detach() @ keys.mT


class Rounded(Dot):
    """Compares in bfloat16."""

    def compare(self, queries, keys, positions):
        return (queries.bfloat16() @ keys.bfloat16().mT).to(queries.dtype)


class InPlace(Dot):
    """Scales the caller's queries."""

    def prepare_queries(self, queries, positions):
        with torch.no_grad():
            return queries.mul_(0.5)


class ByPlace(Dot):
    """Counts columns and does not read their positions."""

    def compare(self, queries, keys, positions):
        return queries @ keys.mT - 0.1 * torch.arange(keys.shape[-2])


class Absolute(Dot):
    """Grows with the key's position, and says that only distances matter."""

    relative = True

    def compare(self, queries, keys, positions):
        far = positions[1][..., None, :] * positions[0][..., :, None]
        return queries @ keys.mT + 0.01 * far


class NoProduct(InnerProduct):
    """Calls itself an inner product."""

    def compare(self, queries, keys, positions):
        return -torch.cdist(queries, keys, p=1)


class Drops(Dot):
    """Has dropout of its own."""

    def __init__(self, *widths, **how):
        super().__init__(*widths, **how)
        self.dropout = nn.Dropout(0.5)

    def prepare_queries(self, queries, positions):
        return self.dropout(queries)


class Warns(Dot):
    """Warns."""

    def compare(self, queries, keys, positions):
        warnings.warn("beware", stacklevel=1)
        return queries @ keys.mT


class SingleOnly(Dot):
    """Knows no bfloat16."""

    def compare(self, queries, keys, positions):
        return -torch.cdist(queries, keys)


class Distance(Dot):
    """Has an infinite slope where the query is the key."""

    def compare(self, queries, keys, positions):
        return -(queries[..., :, None, :] - keys[..., None, :, :]).square().sum(-1).sqrt()


class ForEachHead(Dot):
    """Multiplies the keys by a parameter of each head, so that no heads can share them."""

    def __init__(self, query_width, key_width, *, heads=None, length=None):
        super().__init__(query_width, key_width, heads=heads, length=length)
        self.weight = nn.Parameter(torch.ones((heads, 1, 1) if heads else ()))

    def prepare_keys(self, keys, positions):
        return keys @ (self.weight * torch.eye(keys.shape[-1], dtype=keys.dtype))


class Raises(Dot):
    """Has a bug."""

    def compare(self, queries, keys, positions):
        raise ValueError("no idea\nof this")


class Transposed(Dot):
    """Gives columns × rows."""

    def compare(self, queries, keys, positions):
        return keys @ queries.mT


#: The law that finds each, and words that it says.
SCORES = {
    Normed: ("padding", "changed the output by"),
    AcrossColumns: ("tiles", "differs from the whole by"),
    AcrossRows: ("tiles", "differs from the whole by"),
    Peeks: ("future", "later tokens changed an earlier output by"),
    CountsPadding: ("padding", "changed the output by"),
    Random: ("twice", "repeating the call changed the result by"),
    Counts: ("twice", "repeating the call changed the result by"),
    ForgetsHeads: ("heads", "built with heads=3, the score has heads=None"),
    MixesHeads: ("heads", "the inputs of a head changed the output of another by"),
    FirstPlaces: ("positions by text", "a text differs from the text alone by"),
    CountsHeads: ("no heads", "the result differs from one head by"),
    OwnHeadsOnly: ("grouped keys", "heads that share 2 key heads differ from repeated keys"),
    MixesBatch: ("batches", "a text in a batch differs from the text alone"),
    Captures: ("captured", "shape (6,) requires a gradient but is not an nn.Parameter"),
    CapturesBefore: ("captured", "shape (6,) requires a gradient but is not an nn.Parameter"),
    Forgets: ("state", "loading the state_dict of a score gave another output"),
    Detached: ("gradients", "the gradient of queries is"),
    Distance: ("gradients", "queries and keys that are zero: got NaN"),
    ForEachHead: ("grouped keys", "write repeat_kv(keys, self.heads) in prepare_keys"),
    Rounded: ("gradients", "the gradient of queries is"),
    InPlace: ("untouched", "changed its inputs or the score's state in place"),
    ByPlace: ("order", "changed the output by"),
    Absolute: ("positions", "adding 20 to all positions changed the output by"),
    OddPlaces: ("positions", "adding 17 to all positions changed the output by"),
    NoProduct: ("declared", "inner_product is declared"),
    Drops: ("train and eval", "training mode changed the output by"),
    Warns: ("quiet", "UserWarning: beware"),
    SingleOnly: ("bfloat16", "raised NotImplementedError"),
    Raises: ("made", "raised ValueError: no idea"),
    Transposed: ("made", "not (3, 2, 5, 7)"),
}


class PlainSoftmax(Normalizer):
    """NaN where nothing may be seen; and shift invariance is not declared."""

    def forward(self, scores):
        return scores.softmax(-1)


class NotExponential(Normalizer):
    """Declares that its weights are exp(s − c)."""

    exponential = True

    def forward(self, scores):
        return scores.sigmoid()


class AllRows(Softmax):
    """Over all rows at once."""

    def forward(self, scores):
        whole = super().forward(scores)
        return whole / (1 + whole.amax((-2, -1), keepdim=True))


class FullLength(Softmax):
    """Divides by how many keys there are, hidden or not."""

    def forward(self, scores):
        return super().forward(scores) / scores.shape[-1]

    def weights(self, scores, statistics):
        return self(scores)


class WrongQuickly(Softmax):
    """A quick way to other weights."""

    def weights(self, scores, statistics):
        return 0.5 * super().weights(scores, statistics)


class WrongByHand(Softmax):
    """A gradient that forgets the mean."""

    def gradient(self, given):
        return (given.weights * given.upstream,)


class Positive(Softmax):
    """Some weight for hidden keys."""

    def forward(self, scores):
        return super().forward(scores) + 0.01


NORMALIZERS = {
    PlainSoftmax: ("empty rows", "got NaN"),
    NotExponential: ("shift", "exponential is declared, but log w − s is not the same"),
    AllRows: ("rows", "a row in a batch differs from the row alone"),
    FullLength: ("absent", "three additional hidden keys changed the weights by"),
    WrongQuickly: ("quick way", "weights() differs from forward() by"),
    WrongByHand: ("by hand", "gradient() differs from autograd by"),
    Positive: ("hidden keys", "the weight of a score of −inf: got 0.01, not 0"),
}


def everywhere(rows: Blocks, columns: Blocks) -> Reach:
    """A reach that promises too much."""
    whole = torch.ones(len(rows.low), len(columns.low), dtype=torch.bool)
    return Reach(whole, whole)


def past(rows, columns):
    return columns[..., None, :] <= rows[..., :, None]


MASKS = {
    "numbers": (lambda: Mask(lambda r, c: past(r, c).float()), "answers", "not torch.float32"),
    "by place": (
        lambda: Mask(lambda r, c: torch.ones(len(r), len(c)).tril().bool()),
        "tiles",
        "answers differ from those of the whole mask",
    ),
    "reach": (lambda: Mask(past, reach=everywhere), "reach", "reach allows all of block"),
    "nowhere": (
        lambda: Mask(past, reach=lambda r, c: Reach(*(~x for x in everywhere(r, c)))),
        "reach",
        "reach skips block",
    ),
    "kind": (lambda: Mask(past, kind="keys"), "kind", "queries have different keys"),
    "one row": (
        lambda: Mask(lambda r, c: c[None, :] <= r[:, None]),
        "positions",
        "positions (3, 9) and (3, 11)",
    ),
}


class Means(MultiHeadAttention):
    """Adds the mean of the text, padding and future included."""

    def __init__(self):
        super().__init__(12, 3)

    def forward(self, x, mask=None):
        return super().forward(x, mask=mask) + x.mean(1, keepdim=True)


class Unmasked(nn.Module):
    """Does not pass its mask on."""

    width, heads = 12, 3

    def __init__(self):
        super().__init__()
        self.inner = MultiHeadAttention(12, 3)

    def forward(self, x, mask=None):
        return self.inner(x)
