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
    AcrossColumns: ("tiles", "compare is off by"),
    AcrossRows: ("tiles", "compare is off by"),
    Peeks: ("future", "changed an output before it by"),
    CountsPadding: ("padding", "changed the output by"),
    Random: ("twice", "the same call again differed by"),
    Counts: ("twice", "the same call again differed by"),
    ForgetsHeads: ("heads", "made with heads=3 it says heads=None"),
    MixesHeads: ("heads", "one head's inputs changed another's output by"),
    FirstPlaces: ("positions by text", "a text differs from itself alone by"),
    CountsHeads: ("no heads", "differs from itself with one head by"),
    OwnHeadsOnly: ("grouped keys", "heads that share 2 of keys differ from keys repeated"),
    MixesBatch: ("batches", "a text among others differs from the text alone"),
    Captures: ("captured", "shape (6,) needs a gradient and is no nn.Parameter"),
    CapturesBefore: ("captured", "shape (6,) needs a gradient and is no nn.Parameter"),
    Forgets: ("state", "loaded from the state of another differs"),
    Detached: ("gradients", "to queries the gradient is"),
    Rounded: ("gradients", "to queries the gradient is"),
    InPlace: ("untouched", "changed its inputs or its own state in place"),
    ByPlace: ("order", "changed the output by"),
    Absolute: ("positions", "20 added to all positions changed the output by"),
    NoProduct: ("declared", "inner_product is declared"),
    Drops: ("train and eval", "training mode changed the output by"),
    Warns: ("quiet", "UserWarning: beware"),
    SingleOnly: ("bfloat16", "raised NotImplementedError"),
    Raises: ("made", "raised ValueError: no idea"),
    Transposed: ("made", "one number a pair is (3, 2, 5, 7)"),
}


class PlainSoftmax(Normalizer):
    """NaN where nothing may be seen; and shift invariance is not declared."""

    def forward(self, scores):
        return scores.softmax(-1)


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

    def gradient(self, weights, upstream, scores, statistics, parameters):
        return (weights * upstream,)


class Positive(Softmax):
    """Some weight for hidden keys."""

    def forward(self, scores):
        return super().forward(scores) + 0.01


NORMALIZERS = {
    PlainSoftmax: ("empty rows", "NaN came out"),
    AllRows: ("rows", "a row among others differs from the row alone"),
    FullLength: ("absent", "three hidden keys more changed the weights by"),
    WrongQuickly: ("quick way", "weights by statistics are off forward by"),
    WrongByHand: ("by hand", "gradient() is off autograd by"),
    Positive: ("hidden keys", "the weight of a score of −inf: 0.01 came out, not 0"),
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
        "answers are not those of the whole",
    ),
    "reach": (lambda: Mask(past, reach=everywhere), "reach", "all is seen in block"),
    "nowhere": (
        lambda: Mask(past, reach=lambda r, c: Reach(*(~x for x in everywhere(r, c)))),
        "reach",
        "nothing is seen in block",
    ),
    "kind": (lambda: Mask(past, kind="keys"), "kind", "queries see different keys"),
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
