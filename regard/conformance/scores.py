"""Laws of scores and their three methods; the laws of attention are in ``attending``."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from regard.attention import Score, causal
from regard.attention.prepared import Prepared
from regard.conformance import attending
from regard.conformance.law import (
    CLOSE,
    EXACT,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    finite,
    gradients,
    near,
    no_warnings,
    same,
    worst,
)
from regard.conformance.long_scores import LONG_SCORE_LAWS
from regard.conformance.subjects import KERNELS, ScoreSubject


def runs(subject: ScoreSubject) -> Measurement:
    score, (queries, keys, _) = subject.score(), subject.inputs(5, 7)
    scores = scores_of(score, queries, keys)
    if not isinstance(scores, Tensor):
        raise BrokenError(f"compare gave a {type(scores).__name__}, not a tensor")
    expected = (3, subject.heads(), 5, 7)
    if scores.shape[-2:] != (5, 7) or torch.broadcast_shapes(scores.shape, expected) != expected:
        raise BrokenError(
            f"compare gave {tuple(scores.shape)} for queries {tuple(queries.shape)} and keys "
            f"{tuple(keys.shape)}, not {expected}"
        )
    finite("the scores of finite inputs", scores)
    for size in ((1, 1), (1, 9), (33, 65)):
        finite(
            f"the output for {size[0]} × {size[1]}",
            subject.attend(subject.inputs(*size), score).output,
        )
    return Measurement("finite scores from 1 × 1 to 33 × 65")


def order(subject: ScoreSubject) -> Measurement:
    score, (queries, keys, values) = subject.score(), subject.inputs(5, 7)
    permutation, positions = torch.tensor([3, 0, 6, 2, 5, 1, 4]), torch.arange(7)
    plain = subject.attend((queries, keys, values), score, key_positions=positions)
    moved = subject.attend(
        (queries, keys[..., permutation, :], values[..., permutation, :]),
        score,
        key_positions=positions[permutation],
    )
    what = "another order of keys, values and positions changed"
    gaps = [near(f"{what} the output", moved.output, plain.output, EXACT)]
    gaps.append(near(f"{what} the weights", moved.weights, plain.weights[..., permutation], EXACT))
    return worst(gaps, EXACT)


def positions(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(5, 7)
    plain = subject.attend(inputs, score).output
    changed = torch.tensor([40, 3, 17, 8, 30]), torch.tensor([5, 50, 2, 33, 12, 0, 21])
    scrambled = subject.attend(
        inputs, score, query_positions=changed[0], key_positions=changed[1]
    ).output
    if torch.equal(plain, scrambled):
        return Measurement("the score does not use positions")
    if not getattr(score, "relative", False):
        raise InapplicableError("the score uses positions and does not declare relative = True")
    gaps = []
    for more in (20, 17):  # without a common divisor: no pattern repeats in both
        rows, columns = torch.arange(2, 7) + more, torch.arange(7) + more
        moved = subject.attend(inputs, score, query_positions=rows, key_positions=columns).output
        gaps.append(near(f"adding {more} to all positions changed the output", moved, plain, CLOSE))
    return worst(gaps, CLOSE)


def tiles(subject: ScoreSubject) -> Measurement:
    score, (queries, keys, _) = subject.score(), subject.inputs(9, 11)
    gaps = []
    with torch.no_grad():
        q, k, (rows, columns) = prepared(score, queries, keys)
        whole = score.compare(q, k, (rows, columns))
        fast = partial(score.acceleration.fast_compare, score)
        near("fast_compare differs from compare", fast(q, k, (rows, columns)), whole, CLOSE)
        for row_slice, column_slice in cuts(9, 11):
            size = f"{len(rows[row_slice])} × {len(columns[column_slice])}"
            positions = rows[row_slice], columns[column_slice]
            expected = whole[..., row_slice, :][..., column_slice]
            tile_queries, tile_keys = part_of(q, row_slice), part_of(k, column_slice)
            for compare in (score.compare, fast):
                tile = compare(tile_queries, tile_keys, positions)
                what = f"compare on a tile of {size} differs from the whole"
                gaps.append(near(what, tile, expected, EXACT))
            tile_queries = score.prepare_queries(queries[..., row_slice, :], positions[0])
            tile_keys = score.prepare_keys(keys[..., column_slice, :], positions[1])
            again = score.compare(tile_queries, tile_keys, positions)
            what = f"a tile of {size} that is prepared separately differs from the whole"
            gaps.append(near(what, again, expected, EXACT))
    return worst(gaps, EXACT)


def cuts(n: int, m: int) -> Iterator[tuple[slice, slice | Tensor]]:
    """Yield rows and columns of some tiles; columns may be an index tensor."""
    yield slice(0, 1), slice(0, 1)
    yield slice(n - 1, n), slice(0, m)
    yield slice(2, n - 2), slice(3, m - 1)
    yield slice(0, n), slice(m - 1, m)
    yield slice(1, 5), torch.tensor([0, 2, 3, m - 1])


def part_of(prepared: Prepared, index: slice | Tensor) -> Prepared:
    """Return some rows of prepared queries or keys."""
    if isinstance(prepared, Tensor):
        return prepared[..., index, :]
    return tuple(x[..., index, :] for x in prepared)


def heads_apart(subject: ScoreSubject) -> Measurement:
    heads = subject.heads(3)
    score, inputs = subject.score(heads), subject.inputs(5, 7, heads=heads)
    if score.heads not in (None, heads) or (score.heads is None and subject.fixed_heads is None):
        raise BrokenError(
            f"built with heads={heads}, the score has heads={score.heads}; pass heads to Score()"
        )
    if heads == 1:
        raise InapplicableError("the score is built for one head")
    if getattr(score, "mixes_heads", False):
        raise InapplicableError("the score declares mixes_heads = True")
    plain = subject.attend(inputs, score).output
    for head in range(heads):
        changed = [x.detach().clone() for x in inputs]
        for x in changed:
            x[:, head] += torch.randn_like(x[:, head])
        output = subject.attend((changed[0], changed[1], changed[2]), score).output
        rest = [i for i in range(heads) if i != head]
        near(
            "the inputs of a head changed the output of another",
            output[:, rest],
            plain[:, rest],
            EXACT,
        )
    return Measurement(f"{heads} independent heads")


def train_and_eval(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(5, 7)
    train = subject.attend(inputs, score.train()).output
    same("training mode changed the output", train, subject.attend(inputs, score.eval()).output)
    return Measurement("identical bits")


def state(subject: ScoreSubject) -> Measurement:
    one, two, inputs = subject.score(), subject.score(), subject.inputs(5, 7)
    two.load_state_dict(one.state_dict())
    what = "loading the state_dict of a score gave another output"
    same(what, subject.attend(inputs, two).output, subject.attend(inputs, one).output)
    return Measurement("identical bits")


def captured(subject: ScoreSubject) -> Measurement:
    score, inputs = subject.score(), subject.inputs(5, 7)
    known = {id(x) for x in (*inputs, *score.parameters())}
    for leaf in leaves(scores_of(score, inputs[0], inputs[1])):
        if id(leaf) not in known:
            raise BrokenError(
                f"a tensor of shape {tuple(leaf.shape)} requires a gradient but is not an "
                "nn.Parameter of the score, so optimizers and state_dict() would miss it"
            )
    subject.attend(inputs, score, kernel="tiled")  # rejects tensors captured by compare
    return Measurement("only queries, keys and registered parameters get gradients")


def leaves(x: Tensor) -> Iterator[Tensor]:
    """Yield the leaf tensors that would get a gradient from x."""
    pending, seen = [x.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        pending += [after for after, _ in node.next_functions]


def untouched(subject: ScoreSubject) -> Measurement:
    score = subject.score()
    inputs = [x.detach() for x in subject.inputs(5, 7)]
    before = [x.clone() for x in (*inputs, *score.parameters(), *score.buffers())]
    with torch.no_grad():
        subject.attend((inputs[0], inputs[1], inputs[2]), score)
    after = (*inputs, *score.parameters(), *score.buffers())
    for x, was in zip(after, before, strict=True):
        same("the call changed its inputs or the score's state in place", x, was)
    return Measurement("inputs, parameters and buffers are unchanged")


def declared(subject: ScoreSubject) -> Measurement:
    score, (queries, keys, _) = subject.score(), subject.inputs(5, 7)
    declared = score.acceleration
    if not (declared.inner_product or declared.translation_invariant):
        raise InapplicableError(
            "the score declares neither inner_product nor translation_invariant"
        )
    scores, gaps = scores_of(score, queries, keys), []
    if declared.inner_product:
        q, k, _ = prepared(score, queries, keys)
        if not (isinstance(q, Tensor) and isinstance(k, Tensor)):
            raise BrokenError("a score with inner_product must prepare one tensor, not a tuple")
        what = "inner_product is declared, but compare differs from scale · q'·k'"
        product = declared.scale(score, q.shape[-1]) * q @ k.mT
        gaps.append(near(what, scores, product, EXACT))
    if declared.translation_invariant:
        shift = torch.randn(queries.shape[-1], dtype=torch.float64)
        what = "translation_invariant is declared, but q + c and k + c changed a score"
        gaps.append(near(what, scores_of(score, queries + shift, keys + shift), scores, CLOSE))
    return worst(gaps, CLOSE)


def quiet(subject: ScoreSubject) -> Measurement:
    with no_warnings():
        for kernel in (None, *KERNELS):
            score, inputs = subject.score(), subject.inputs(5, 7)
            gradients(subject.attend(inputs, score, causal(), kernel=kernel).output, inputs)
    return Measurement("no warnings")


def prepared(
    score: Score, queries: Tensor, keys: Tensor
) -> tuple[Prepared, Prepared, tuple[Tensor, Tensor]]:
    """Return prepared queries and keys and their positions; queries have the last ones of keys."""
    m = keys.shape[-2]
    rows, columns = torch.arange(m - queries.shape[-2], m), torch.arange(m)
    return score.prepare_queries(queries, rows), score.prepare_keys(keys, columns), (rows, columns)


def scores_of(score: Score, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the scores, computed by the three methods alone."""
    return score.compare(*prepared(score, queries, keys))


SCORE_LAWS: dict[str, Law[ScoreSubject]] = {
    "made": Law("Name(query_width, key_width, …) gives one finite score for each pair", runs),
    "tiles": Law("compare on a tile of rows × columns equals that part of the whole", tiles),
    "output": Law("output = weights @ values", attending.output),
    "weights": Law("weights are ≥ 0, and rows of softmax sum to 1", attending.weights),
    "hidden keys": Law("a hidden key has weight exactly 0", attending.hidden),
    "padding": Law(
        "1e3, NaN and infinity in padding change neither outputs nor gradients", attending.padding
    ),
    "empty rows": Law(
        "a query without visible keys has zero output and gradients", attending.empty_rows
    ),
    "future": Law(
        "with a causal mask, later tokens do not change a bit of earlier outputs", attending.future
    ),
    "cache": Law("steps with a cache equal a single pass", attending.cache),
    "order": Law("the order of keys, values and positions does not change the output", order),
    "positions": Law("adding a number to all positions does not change the output", positions),
    "gradients": Law(
        "gradients match finite differences in float64, and are finite for rows of zeros",
        attending.slope,
    ),
    "kernels": Law("all kernels equal the exact kernel, forward and backward", attending.kernels),
    "batches": Law(
        "batches broadcast, and a text in a batch equals the text alone", attending.batches
    ),
    "batch axis": Law(
        "with as many texts as heads, each mask applies to its own text", attending.batch_axis
    ),
    "positions by text": Law("each text can have its own positions", attending.positions_by_text),
    "no heads": Law("no head axis equals one head", attending.headless),
    "heads": Law("heads are independent", heads_apart),
    "grouped keys": Law("heads that share keys equal repeated keys", attending.grouped),
    "float32": attending.reduced_precision(torch.float32, 1e-4),
    "bfloat16": attending.reduced_precision(torch.bfloat16, 0.1),
    "dropout": Law(
        "dropout preserves the mean; weights are those before dropout", attending.dropout
    ),
    "train and eval": Law(
        "without dropout, training mode does not change the output", train_and_eval
    ),
    "state": Law("loading a state_dict restores the output", state),
    "captured": Law("tensors with gradients are inputs or registered parameters", captured),
    "twice": Law("repeating a call gives identical bits", attending.twice),
    "untouched": Law("a call does not change its inputs or the score", untouched),
    "declared": Law("inner_product and translation_invariant are declared correctly", declared),
    "quiet": Law("no warnings", quiet),
    **LONG_SCORE_LAWS,
}
