"""The laws of scores: of the three methods by themselves here; ``attending`` holds the others."""

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
    Measured,
    finite,
    gradients,
    near,
    same,
    silence,
    worst,
)
from regard.conformance.subjects import KERNELS, ScoreSubject


def made(subject: ScoreSubject) -> Measured:
    score, (queries, keys, _) = subject.score(), subject.inputs(5, 7)
    scores = compared(score, queries, keys)
    if not isinstance(scores, Tensor):
        raise BrokenError(f"compare gave a {type(scores).__name__}, not a tensor")
    wanted = (3, subject.heads(), 5, 7)
    if scores.shape[-2:] != (5, 7) or torch.broadcast_shapes(scores.shape, wanted) != wanted:
        raise BrokenError(
            f"compare gave {tuple(scores.shape)} for queries {tuple(queries.shape)} and keys "
            f"{tuple(keys.shape)}: one number a pair is {wanted}"
        )
    finite("finite queries and keys", scores)
    for of in ((1, 1), (1, 9), (33, 65)):
        finite(f"{of[0]} × {of[1]}", subject.look(subject.inputs(*of), score).output)
    return Measured("finite scores from 1 × 1 to 33 × 65")


def order(subject: ScoreSubject) -> Measured:
    score, (queries, keys, values) = subject.score(), subject.inputs(5, 7)
    turned, at = torch.tensor([3, 0, 6, 2, 5, 1, 4]), torch.arange(7)
    plain = subject.look((queries, keys, values), score, key_positions=at)
    moved = subject.look(
        (queries, keys[..., turned, :], values[..., turned, :]), score, key_positions=at[turned]
    )
    what = "keys in another order, with their values and positions, changed"
    gaps = [near(f"{what} the output", moved.output, plain.output, EXACT)]
    gaps.append(near(f"{what} the weights", moved.weights, plain.weights[..., turned], EXACT))
    return worst(gaps, EXACT)


def positions(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(5, 7)
    plain = subject.look(given, score).output
    at = torch.tensor([40, 3, 17, 8, 30]), torch.tensor([5, 50, 2, 33, 12, 0, 21])
    scrambled = subject.look(given, score, query_positions=at[0], key_positions=at[1]).output
    if torch.equal(plain, scrambled):
        return Measured("it reads no positions")
    if not getattr(score, "relative", False):
        raise InapplicableError("it reads positions, and does not say `relative = True`")
    rows, columns = torch.arange(2, 7) + 20, torch.arange(7) + 20
    moved = subject.look(given, score, query_positions=rows, key_positions=columns).output
    gap = near("20 added to all positions changed the output", moved, plain, CLOSE)
    return worst([gap], CLOSE)


def tiles(subject: ScoreSubject) -> Measured:
    score, (queries, keys, _) = subject.score(), subject.inputs(9, 11)
    rows, columns = torch.arange(2, 11), torch.arange(11)
    gaps = []
    with torch.no_grad():
        ours, theirs = score.prepare_queries(queries, rows), score.prepare_keys(keys, columns)
        whole = score.compare(ours, theirs, (rows, columns))
        fast = partial(score.acceleration.fast_compare, score)
        near("fast_compare is not compare", fast(ours, theirs, (rows, columns)), whole, CLOSE)
        for of, at in cuts(9, 11):
            what = f"a tile of {len(rows[of])} × {len(columns[at])} is not that part of the whole"
            positions = rows[of], columns[at]
            wanted = whole[..., of, :][..., at]
            one, two = taken(ours, of), taken(theirs, at)
            for way in (score.compare, fast):
                gaps.append(
                    near(f"{what}: compare is off", way(one, two, positions), wanted, EXACT)
                )
            one = score.prepare_queries(queries[..., of, :], positions[0])
            two = score.prepare_keys(keys[..., at, :], positions[1])
            again = score.compare(one, two, positions)
            gaps.append(near(f"{what}: prepared apart it is off", again, wanted, EXACT))
    return worst(gaps, EXACT)


def cuts(n: int, m: int) -> Iterator[tuple[slice, slice | Tensor]]:
    """Rows and columns of some tiles; columns may be picked out."""
    yield slice(0, 1), slice(0, 1)
    yield slice(n - 1, n), slice(0, m)
    yield slice(2, n - 2), slice(3, m - 1)
    yield slice(0, n), slice(m - 1, m)
    yield slice(1, 5), torch.tensor([0, 2, 3, m - 1])


def taken(prepared: Prepared, index: slice | Tensor) -> Prepared:
    """Some rows of what a prepare method gave."""
    if isinstance(prepared, Tensor):
        return prepared[..., index, :]
    return tuple(x[..., index, :] for x in prepared)


def heads_apart(subject: ScoreSubject) -> Measured:
    heads = subject.heads(3)
    score, given = subject.score(heads), subject.inputs(5, 7, heads=heads)
    if score.heads not in (None, heads) or (score.heads is None and subject.fixed is None):
        raise BrokenError(f"made with heads={heads} it says heads={score.heads}: hand it to Score")
    if heads == 1:
        raise InapplicableError("it was made for one head")
    plain = subject.look(given, score).output
    for head in range(heads):
        changed = [x.detach().clone() for x in given]
        for x in changed:
            x[:, head] += torch.randn_like(x[:, head])
        found = subject.look((changed[0], changed[1], changed[2]), score).output
        rest = [i for i in range(heads) if i != head]
        near("one head's inputs changed another's output", found[:, rest], plain[:, rest], EXACT)
    return Measured(f"{heads} heads, each by itself")


def train_and_eval(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(5, 7)
    train = subject.look(given, score.train()).output
    same("training mode changed the output", train, subject.look(given, score.eval()).output)
    return Measured("the same bits")


def state(subject: ScoreSubject) -> Measured:
    one, two, given = subject.score(), subject.score(), subject.inputs(5, 7)
    two.load_state_dict(one.state_dict())
    what = "a score loaded from the state of another differs from it"
    same(what, subject.look(given, two).output, subject.look(given, one).output)
    return Measured("the same bits")


def captured(subject: ScoreSubject) -> Measured:
    score, given = subject.score(), subject.inputs(5, 7)
    known = {id(x) for x in (*given, *score.parameters())}
    for leaf in leaves(compared(score, given[0], given[1])):
        if id(leaf) not in known:
            raise BrokenError(
                f"a tensor of shape {tuple(leaf.shape)} needs a gradient and is no nn.Parameter "
                "of the score: no optimizer and no state_dict would find it"
            )
    subject.look(given, score, kernel="tiled")  # which refuses a tensor that compare captured
    return Measured("queries, keys and registered parameters alone get gradients")


def leaves(x: Tensor) -> Iterator[Tensor]:
    """The tensors that a gradient of x would flow into."""
    todo, seen = [x.grad_fn], set()
    while todo:
        step = todo.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        if hasattr(step, "variable"):
            yield step.variable
        todo += [after for after, _ in step.next_functions]


def untouched(subject: ScoreSubject) -> Measured:
    score = subject.score()
    given = [x.detach() for x in subject.inputs(5, 7)]
    before = [x.clone() for x in (*given, *score.parameters(), *score.buffers())]
    with torch.no_grad():
        subject.look((given[0], given[1], given[2]), score)
    after = (*given, *score.parameters(), *score.buffers())
    for x, was in zip(after, before, strict=True):
        same("the call changed its inputs or its own state in place", x, was)
    return Measured("inputs, parameters and buffers keep their bits")


def declared(subject: ScoreSubject) -> Measured:
    score, (queries, keys, _) = subject.score(), subject.inputs(5, 7)
    declares = score.acceleration
    if not (declares.inner_product or declares.translation_invariant):
        raise InapplicableError("it declares neither inner_product nor translation_invariant")
    scores, gaps = compared(score, queries, keys), []
    if declares.inner_product:
        ours, theirs = prepared(score, queries, keys)
        if not (isinstance(ours, Tensor) and isinstance(theirs, Tensor)):
            raise BrokenError("an inner_product prepares one tensor a side, not a tuple")
        what = "inner_product is declared, and compare is off scale · q'·k'"
        product = declares.scale(score, ours.shape[-1]) * ours @ theirs.mT
        gaps.append(near(what, scores, product, EXACT))
    if declares.translation_invariant:
        by = torch.randn(queries.shape[-1], dtype=torch.float64)
        what = "translation_invariant is declared, and q + c, k + c changed a score"
        gaps.append(near(what, compared(score, queries + by, keys + by), scores, CLOSE))
    return worst(gaps, CLOSE)


def quiet(subject: ScoreSubject) -> Measured:
    with silence():
        for kernel in (None, *KERNELS):
            score, given = subject.score(), subject.inputs(5, 7)
            gradients(subject.look(given, score, causal(), kernel=kernel).output, given)
    return Measured("no warning")


def prepared(score: Score, queries: Tensor, keys: Tensor) -> tuple[Prepared, Prepared]:
    """Both sides made ready; queries are the last of the keys."""
    m = keys.shape[-2]
    rows, columns = torch.arange(m - queries.shape[-2], m), torch.arange(m)
    return score.prepare_queries(queries, rows), score.prepare_keys(keys, columns)


def compared(score: Score, queries: Tensor, keys: Tensor) -> Tensor:
    """The scores, by the three methods and nothing else."""
    m = keys.shape[-2]
    positions = torch.arange(m - queries.shape[-2], m), torch.arange(m)
    return score.compare(*prepared(score, queries, keys), positions)


SCORE_LAWS: dict[str, Law[ScoreSubject]] = {
    "made": Law("it is made as scores are, and gives one finite number a pair", made),
    "tiles": Law("compare on any tile of rows × columns is that part of the whole", tiles),
    "output": Law("output = weights @ values", attending.output),
    "weights": Law("weights are ≥ 0, and the rows of softmax sum to 1", attending.weights),
    "hidden keys": Law("a hidden key has weight exactly 0", attending.hidden),
    "padding": Law(
        "1e3, NaN and infinity in padding change nothing, nor a gradient", attending.padding
    ),
    "empty rows": Law(
        "a query that may see nothing gives zeros and zero gradients", attending.empty_rows
    ),
    "future": Law("under a causal mask nothing later changes a bit before it", attending.future),
    "cache": Law("step by step with a cache is all at once", attending.cache),
    "order": Law("keys in another order, with values and positions: the same", order),
    "positions": Law("a number added to all positions changes nothing", positions),
    "gradients": Law("gradients are slopes, in float64: to inputs and parameters", attending.slope),
    "kernels": Law("every kernel is the exact one, forward and backward", attending.kernels),
    "batches": Law(
        "batches broadcast, and a text among others is the text alone", attending.batches
    ),
    "batch axis": Law("as many texts as heads: each mask on its own text", attending.batch_axis),
    "positions by text": Law("each text may have positions of its own", attending.by_text),
    "no heads": Law("without an axis of heads it is one head", attending.headless),
    "heads": Law("made with heads=, heads do not see each other", heads_apart),
    "grouped keys": Law("heads that share keys are keys repeated", attending.grouped),
    "float32": attending.coarser(torch.float32, 1e-4),
    "bfloat16": attending.coarser(torch.bfloat16, 0.1),
    "dropout": Law("dropout keeps the mean; weights are those before it", attending.dropout),
    "train and eval": Law("without dropout, training mode changes nothing", train_and_eval),
    "state": Law("state_dict makes the round trip", state),
    "captured": Law("what needs a gradient is a parameter or comes from prepare", captured),
    "twice": Law("the same call twice gives the same bits", attending.twice),
    "untouched": Law("a call changes neither its inputs nor the score", untouched),
    "declared": Law("inner_product and translation_invariant are true if declared", declared),
    "quiet": Law("no warnings", quiet),
}
