"""The masks: causal, lengths, prefix, window, global tokens, blocks, documents and dense."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.mask import WHOLE, Blocks, Kind, Mask, Reach, Tile, anywhere, extremes, remedy
from regard.attention.tracing import on_cpu
from regard.core.errors import RegardError


def causal() -> Mask:
    """Allow j ≤ i: each position sees itself and the past.

    >>> causal().allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return Mask(
        lambda rows, columns: columns[..., None, :] <= rows[..., :, None],
        kind="causal",
        reach=lambda rows, columns: Reach(
            columns.low <= rows.high[:, None], columns.high <= rows.low[:, None]
        ),
        made=(causal, ()),
    )


def lengths(valid: Int[Tensor, "*batch"] | Tensor | Sequence[int] | int) -> Mask:
    """Allow j < valid: keys at positions 0 … valid − 1; the rest is padding.

    ``valid`` is (*batch,), and the mask (*batch, 1, m). Raise a RegardError for lengths that
    are not integers and, on a CPU, for a length below 0, or above the number of keys in a call
    without cache and key positions.

    >>> lengths([1, 3]).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[[1, 0, 0]], [[1, 1, 1]]]
    """
    return _first(valid, lengths)


def prefix(size: Int[Tensor, "*batch"] | Sequence[int] | int) -> Mask:
    """Allow j < size: all queries see the first ``size`` keys, or all keys if there are fewer.

    ``size`` is (*batch,). ``causal() | prefix(k)`` is the mask of a prefix language model. Raise
    a RegardError for sizes that are not integers and, on a CPU, for a size below 0.

    >>> (causal() | prefix(2)).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    return _first(size, prefix)


def _first(size: object, function: Callable[..., Mask]) -> Mask:
    valid = _counts(size)

    def fits(keys: int) -> None:
        if on_cpu(valid) and valid.numel() and int(valid.max()) > keys:
            row = f" of row {int(valid.argmax())}" if valid.numel() > 1 else ""
            raise RegardError(
                f"the length{row} is {int(valid.max())}, but there are only {keys} keys"
            )

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        limit = valid.to(columns.device, non_blocking=True)[..., None, None]
        columns = columns[..., None, :]
        return (columns >= 0) & (columns < limit)

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        if not valid.numel():
            return _nowhere(rows, columns)
        if not on_cpu(valid):  # reading it would wait for the GPU
            return anywhere(rows, columns)
        may = (columns.high >= 0) & (columns.low < valid.max())
        must = (columns.low >= 0) & (columns.high < valid.min())
        return Reach(*(x.expand(len(rows.low), -1) for x in (may, must)))

    made = (function, (valid,))
    return Mask(
        allows, kind="keys", reach=reach, made=made, fits=fits if function is lengths else None
    )


def lengths_per_query(valid: Int[Tensor, "*batch queries"] | Sequence[Sequence[int]]) -> Mask:
    """Allow j < valid[i]: the i-th query of the call sees the keys at positions 0 … valid[i] − 1.

    ``valid`` is (*batch, n). Raise a RegardError for lengths that are not integers, for another
    number of queries and, on a CPU, for a length below 0.

    >>> lengths_per_query([[1, 3]]).allows(torch.arange(2), torch.arange(3)).int().tolist()
    [[[1, 0, 0], [1, 1, 1]]]
    """
    valid = _counts(valid)

    def answer(rows: Tensor, columns: Tensor, tile: Tile = WHOLE) -> Tensor:
        _fits("lengths_per_query", valid, rows, "queries")
        columns = columns[..., None, tile.columns]
        return (columns >= 0) & (columns < valid.to(columns.device)[..., tile.rows, None])

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        _fits("lengths_per_query", valid, rows.positions, "queries")
        if not valid.numel():
            return _nowhere(rows, columns)
        least, most = (x[:, None] for x in extremes(valid, rows.size))
        return Reach(
            (columns.high >= 0) & (columns.low < most), (columns.low >= 0) & (columns.high < least)
        )

    return Mask(answer, by_index=True, reach=reach, made=(lengths_per_query, (valid,)))


def others() -> Mask:
    """Allow j ≠ i: every position except the query's own, as in leave-one-out.

    >>> others().allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        apart = (columns.low > rows.high[:, None]) | (columns.high < rows.low[:, None])
        same = columns.low.eq(columns.high) & rows.low.eq(rows.high)[:, None]
        return Reach(~(same & columns.low.eq(rows.low[:, None])), apart)

    return Mask(
        lambda rows, columns: columns[..., None, :] != rows[..., :, None],
        reach=reach,
        made=(others, ()),
    )


def window(size: int, step: int = 1) -> Mask:
    """Allow |i − j| ≤ size: keys on both sides; add ``& causal()`` for the past alone.

    With a ``step`` the window is dilated: |i − j| ≤ size · step, with i − j divisible by step.
    Beltagy et al. 2020, figure 2. Raise a RegardError for a size below 0 or a step below 1.

    >>> window(1).allows(torch.arange(4), torch.arange(4)).int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    if size < 0 or step < 1:
        raise RegardError(
            f"window needs a size of at least 0 and a step of at least 1, not {size} and {step}"
        )
    distance = size * step

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        apart = columns[..., None, :] - rows[..., :, None]
        near = apart.abs() <= distance
        return near if step == 1 else near & (apart % step == 0)

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        low, high = rows.low[:, None], rows.high[:, None]
        may = (columns.low <= high + distance) & (columns.high >= low - distance)
        must = (columns.high <= low + distance) & (columns.low >= high - distance)
        return Reach(may, must & (step == 1))

    return Mask(allows, reach=reach, made=(window, (size, step)))


def global_tokens(size: int) -> Mask:
    """Allow i < size or j < size: the first ``size`` positions see all and are seen by all.

    Usually combined, as in ``window(64) | global_tokens(4)``. Beltagy et al. 2020, section 3.1;
    Zaheer et al. 2020 (BigBird-ITC). Raise a RegardError for a size below 0.

    >>> global_tokens(1).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    """
    if size < 0:
        raise RegardError(f"global_tokens: size must be at least 0, not {size}")

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        low, high = rows.low[:, None], rows.high[:, None]
        return Reach((columns.low < size) | (low < size), (columns.high < size) | (high < size))

    return Mask(
        lambda rows, columns: (columns[..., None, :] < size) | (rows[..., :, None] < size),
        reach=reach,
        made=(global_tokens, (size,)),
    )


def blocks(allowed: Bool[Tensor, "rows columns"] | Tensor, size: int) -> Mask:
    """Allow allowed[⌊i / size⌋, ⌊j / size⌋]: a table over blocks of ``size`` positions.

    Positions beyond the table see nothing and are not seen. Raise a RegardError unless ``allowed``
    is a bool tensor (query blocks, key blocks) and ``size`` at least 1.

    >>> blocks(torch.tensor([[True, False], [True, True]]), 2).allows(
    ...     torch.arange(4), torch.arange(4)).int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    """
    if allowed.dtype != torch.bool or allowed.ndim != 2 or size < 1:
        raise RegardError(
            "blocks needs a bool table (query blocks, key blocks) and a size of at least 1, "
            f"not {allowed.dtype} of shape {tuple(allowed.shape)} and size {size}"
        )
    table = torch.nn.functional.pad(allowed, (0, 1, 0, 1))  # the last row and column: beyond
    edges = torch.tensor(allowed.shape, device="cpu")
    # A summed-area table: the sum over any rectangle is a combination of four entries.
    corner = torch.nn.functional.pad(allowed.long(), (1, 0, 1, 0)).cumsum(0).cumsum(1).cpu()

    def place(positions: Tensor, axis: int) -> Tensor:
        block = positions.div(size, rounding_mode="floor")
        return block.where((block >= 0) & (block < edges[axis]), edges[axis].to(block.device))

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        return table.to(columns.device)[
            place(rows, 0)[..., :, None], place(columns, 1)[..., None, :]
        ]

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        spans, whole = [], []
        for side, axis in ((rows, 0), (columns, 1)):
            low = side.low.div(size, rounding_mode="floor")
            high = side.high.div(size, rounding_mode="floor") + 1
            whole.append((low >= 0) & (high <= edges[axis]))
            spans.append((low.clamp(0, int(edges[axis])), high.clamp(0, int(edges[axis]))))
        (top, bottom), (left, right) = spans
        top, bottom = top[:, None], bottom[:, None]
        count = (
            corner[bottom, right] - corner[top, right] - corner[bottom, left] + corner[top, left]
        )
        full = (bottom - top) * (right - left)
        return Reach(count > 0, (count == full) & whole[0][:, None] & whole[1])

    grain = size * -(-16 // size)
    return Mask(allows, reach=reach, grain=grain, made=(blocks, (allowed.clone(), size)))


def bigbird(
    length: int, *, block: int = 64, near: int = 1, first: int = 1, random: int = 2, seed: int = 0
) -> Mask:
    """Allow neighbouring, global and random blocks: `blocks` of ``block`` positions, O(n) pairs.

    Each block sees ``near`` neighbours on each side, the ``first`` blocks and ``random`` others,
    which depend on ``seed`` alone; the first blocks see all. Zaheer et al. 2020, BigBird-ITC,
    section 2. The mask covers positions below ``length``. Raise a RegardError for a length or block
    below 1, or a count below 0.

    >>> mask = bigbird(4, block=1, near=0, random=0)
    >>> mask.allows(torch.arange(4), torch.arange(4)).int().tolist()
    [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    """
    if length < 1 or block < 1 or min(near, first, random) < 0:
        raise RegardError(
            f"bigbird: length={length} and block={block} must be at least 1, and near={near}, "
            f"first={first} and random={random} at least 0"
        )
    number = -(-length // block)
    at = torch.arange(number, device="cpu")
    allowed = (at[:, None] - at).abs() <= near
    allowed[:, :first] = allowed[:first] = True
    draw = torch.Generator("cpu").manual_seed(seed)
    for row in range(number):
        left = torch.nonzero(~allowed[row]).flatten()
        order = torch.randperm(len(left), generator=draw, device="cpu")
        allowed[row, left[order[:random]]] = True
    return blocks(allowed, block)


def documents(
    queries: Int[Tensor, "*batch queries"] | Tensor,
    keys: Int[Tensor, "*batch keys"] | Tensor | None = None,
) -> Mask:
    """Allow queries[i] = keys[j]: in packed texts, a query sees the keys of its own document.

    ``queries`` (*batch, n) and ``keys`` (*batch, m), by default the same, are document numbers
    by index in the call. Raise a RegardError for numbers that are not integers, or for another
    number of queries or keys.

    >>> documents(torch.tensor([0, 0, 1])).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    ids = _integers(queries), _integers(queries if keys is None else keys)

    def answer(rows: Tensor, columns: Tensor, tile: Tile = WHOLE) -> Tensor:
        _fits("documents", ids[0], rows, "queries")
        _fits("documents", ids[1], columns, "keys")
        of_queries, of_keys = (x.to(columns.device, non_blocking=True) for x in ids)
        return of_queries[..., tile.rows, None] == of_keys[..., None, tile.columns]

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        _fits("documents", ids[0], rows.positions, "queries")
        _fits("documents", ids[1], columns.positions, "keys")
        if not (ids[0].numel() and ids[1].numel()):
            return _nowhere(rows, columns)
        if not (on_cpu(ids[0]) and on_cpu(ids[1])):
            return anywhere(rows, columns)
        low, high = (x[:, None] for x in extremes(ids[0], rows.size))
        left, right = extremes(ids[1], columns.size)
        return Reach(
            (left <= high) & (right >= low), (low == high) & (left == right) & (low == left)
        )

    return Mask(answer, by_index=True, reach=reach, made=(documents, ids))


def dense(allowed: Bool[Tensor, "*batch queries keys"] | Tensor, over_heads: bool = False) -> Mask:
    """Allow allowed[…, i, j]: a mask from a bool tensor (*batch, n, m), by index in the call.

    True = may look. With ``over_heads`` axis −3 is the heads: (*batch, heads, n, m). Raise a
    RegardError for another dtype, for too few axes, or for other numbers of queries and keys.

    >>> from regard.attention import attend
    >>> x = torch.eye(2)
    >>> attend(x, x, x, "dot", dense(torch.eye(2, dtype=torch.bool))).weights.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if allowed.dtype != torch.bool:
        raise RegardError(remedy(allowed))
    if allowed.ndim < 2:
        raise RegardError(
            f"a dense mask must be (*batch, queries, keys), not {tuple(allowed.shape)}; add [None] "
            "to use one row of keys for all queries"
        )
    if over_heads and allowed.ndim < 3:
        raise RegardError(
            "a dense mask over heads must be (*batch, heads, queries, keys), not "
            f"{tuple(allowed.shape)}"
        )
    allowed = allowed.clone()  # later changes by the caller must not change the mask

    def answer(rows: Tensor, columns: Tensor, tile: Tile = WHOLE) -> Tensor:
        size = (rows.shape[-1], columns.shape[-1])
        if any(have not in (1, want) for have, want in zip(allowed.shape[-2:], size, strict=True)):
            raise RegardError(
                f"a dense mask of {allowed.shape[-2]} × {allowed.shape[-1]} does not fit "
                f"{size[0]} queries and {size[1]} keys"
            )
        answers = allowed if allowed.shape[-2] == 1 else allowed[..., tile.rows, :]
        return answers if allowed.shape[-1] == 1 else answers[..., tile.columns]

    kind: Kind = "keys" if allowed.shape[-2] == 1 else "pairs"
    made = (dense, (allowed, True) if over_heads else (allowed,))
    return Mask(answer, by_index=True, kind=kind, over_heads=over_heads, made=made)


def _nowhere(rows: Blocks, columns: Blocks) -> Reach:
    none = torch.zeros(len(rows.low), len(columns.low), dtype=torch.bool, device="cpu")
    return Reach(none, none)


def _fits(name: str, numbers: Tensor, positions: Tensor, side: str) -> None:
    if numbers.shape[-1] != positions.shape[-1]:
        raise RegardError(
            f"mask {name!r} is for {numbers.shape[-1]} {side}, but the call has "
            f"{positions.shape[-1]}"
        )


def _integers(valid: object) -> Tensor:
    numbers = torch.as_tensor(valid).clone()  # later changes by the caller must not change the mask
    if isinstance(valid, Sequence) and not numbers.numel():  # an empty batch
        numbers = numbers.long()
    if numbers.dtype.is_floating_point or numbers.dtype == torch.bool:
        raise RegardError(f"lengths must be integers, not {numbers.dtype}")
    return numbers


def _counts(valid: object) -> Tensor:
    numbers = _integers(valid)
    if on_cpu(numbers) and numbers.numel() and int(numbers.min()) < 0:
        raise RegardError(f"lengths must be at least 0, not {int(numbers.min())}")
    return numbers
