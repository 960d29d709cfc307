# ruff: noqa: N803, RET505 - tensors have capitals as in Triton's own; it reads both branches
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The kernels around the functions that `emit` writes: a block of rows by blocks of columns.

Softmax is online (Milakov and Gimelshein 2018): a row keeps its maximum and its sum, and the
backward pass gets the weights again from their logarithm. Sparsemax and entmax-1.5 look for the
threshold of each row by Newton's method, a pass over its scores a step; a last pass gathers the
values. The gradient of a score is u (⟨g, v⟩ − δ) for all three: u is the weight, the support, or
the root of the weight, and δ = ⟨g, Σ u v / Σ u⟩.

T are the tensors that scores and mask read, K sizes and strides; z is a place in the batch.
"""

import triton
import triton.language as tl

SOFTMAX, SPARSEMAX, ENTMAX15 = range(3)
NEWTON = 60  # steps at most, as in `regard.attention.normalizers.sparse`


@triton.jit
def tile(
    T, K, z, rows, columns, n, m, SCORES: tl.constexpr, ALLOWED: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, DOT: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """Return a tile of scores, −inf where there is no pair or the mask hides it."""
    r, c = tl.minimum(rows, n - 1)[:, None], tl.minimum(columns, m - 1)[None, :]
    scores = SCORES(T, K, z, r, c, n, m, BR, BC, DOT, IP)
    allowed = (rows < n)[:, None] & (columns < m)[None, :]
    if ALLOWED is not None:
        allowed = allowed & ALLOWED(T, K, z, r, c, n, m, BR, BC, DOT, IP)
    return tl.where(allowed, scores, -float("inf"))


@triton.jit
def blocks_of(REACH, i, count, MASKED: tl.constexpr):
    """Return the first block that a block may see, and the one after the last."""
    if MASKED:
        return tl.load(REACH + 2 * i), tl.load(REACH + 2 * i + 1)
    else:
        return 0, count


@triton.jit
def visible(STATES, i, j, columns, MASKED: tl.constexpr):
    """Return whether some pair of a block may be allowed."""
    if MASKED:
        return tl.load(STATES + i * columns + j) != 0
    else:
        return True


@triton.jit
def weights_of(scores, a, b, KIND: tl.constexpr):
    """Return the weights of a tile and u, from its rows' statistics."""
    if KIND == 0:
        weights = tl.where(scores > -float("inf"), tl.exp(scores - a), 0.0)
        weights = tl.where(scores != scores, scores, weights)
        return weights, weights
    else:
        above = scores - a - b if KIND == 1 else 0.5 * scores - a - b
        above = tl.where(above < 0.0, 0.0, above)
        if KIND == 1:
            return above, tl.where(above > 0.0, 1.0, 0.0)
        else:
            return above * above, above


@triton.jit
def forward(
    T, K, V, OUT, MEAN, A, B, STATES, REACH, n, m, column_blocks, seed, limit, factor,
    SCORES: tl.constexpr, ALLOWED: tl.constexpr, KIND: tl.constexpr, MASKED: tl.constexpr,
    DROPS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr, DOT: tl.constexpr, IP: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Compute a block of outputs, and the statistics of its rows: a, b and, if sparse, MEAN."""
    i, z = tl.program_id(0) % tl.cdiv(n, BR), (tl.program_id(0) // tl.cdiv(n, BR)).to(tl.int64)
    rows = i * BR + tl.arange(0, BR)
    first, last = blocks_of(REACH, i, column_blocks, MASKED)
    e = tl.arange(0, PADDED)
    top = tl.full([BR], -float("inf"), tl.float32)
    total = tl.zeros([BR], tl.float32)
    out = tl.zeros([BR, PADDED], tl.float32)
    a = tl.zeros([BR], tl.float32)
    tau = tl.full([BR], -1.0, tl.float32)
    if KIND != 0:
        for j in range(first, last):
            if visible(STATES, i, j, column_blocks, MASKED):
                columns = j * BC + tl.arange(0, BC)
                s = tile(T, K, z, rows, columns, n, m, SCORES, ALLOWED, BR, BC, DOT, IP)
                top = tl.maximum(top, tl.max(s, 1))
        a = top if KIND == 1 else 0.5 * top
        a = tl.where(top == -float("inf"), 0.0, a)
        left = 1.0
        step = 0
        while (left > 1e-6) & (step < STEPS):
            sums = tl.zeros([BR], tl.float32)
            slope = tl.zeros([BR], tl.float32)
            for j in range(first, last):
                if visible(STATES, i, j, column_blocks, MASKED):
                    columns = j * BC + tl.arange(0, BC)
                    s = tile(T, K, z, rows, columns, n, m, SCORES, ALLOWED, BR, BC, DOT, IP)
                    w, u = weights_of(s, a[:, None], tau[:, None], KIND)
                    sums += tl.sum(w, 1)
                    slope += tl.sum(u, 1) if KIND == 1 else 2.0 * tl.sum(u, 1)
            move = tl.where(slope > 0.0, (sums - 1.0) / tl.where(slope > 0.0, slope, 1.0), 0.0)
            tau += move
            left = tl.max(move)  # from the left: no step passes the threshold
            step += 1
    mean = tl.zeros([BR, PADDED], tl.float32)
    for j in range(first, last):
        if visible(STATES, i, j, column_blocks, MASKED):
            columns = j * BC + tl.arange(0, BC)
            s = tile(T, K, z, rows, columns, n, m, SCORES, ALLOWED, BR, BC, DOT, IP)
            inside = (columns < m)[:, None] & (e < WIDTH)[None, :]
            v = tl.load(V + (z * m + columns[:, None]) * WIDTH + e[None, :], mask=inside, other=0.0)
            if KIND == 0:
                higher = tl.maximum(top, tl.max(s, 1))
                safe = tl.where(higher == -float("inf"), 0.0, higher)
                shrink = tl.exp(top - safe)
                w = tl.exp(s - safe[:, None])
                total = total * shrink + tl.sum(w, 1)
                out = out * shrink[:, None]
                top = higher
                if DROPS:
                    w = w * kept(z, rows, columns, seed, limit, factor)
                out = tl.dot(w.to(DOT), v.to(DOT), out, input_precision=IP)
            else:
                w, u = weights_of(s, a[:, None], tau[:, None], KIND)
                total += tl.sum(u, 1)
                if DROPS:
                    keep = kept(z, rows, columns, seed, limit, factor)
                    w = w * keep
                    u = u * keep
                mean = tl.dot(u.to(DOT), v.to(DOT), mean, input_precision=IP)
                out = tl.dot(w.to(DOT), v.to(DOT), out, input_precision=IP)
    some = tl.where(total == 0.0, 1.0, total)
    place = (z * n + rows[:, None]) * WIDTH + e[None, :]
    inside = (rows < n)[:, None] & (e < WIDTH)[None, :]
    if KIND == 0:
        out = out / some[:, None]
        a = tl.where(total == 0.0, 0.0, top + tl.log(some))
    else:
        tl.store(MEAN + place, mean / some[:, None], mask=inside)
    tl.store(OUT + place, out, mask=inside)
    tl.store(A + z * n + rows, a, mask=rows < n)
    tl.store(B + z * n + rows, tau, mask=rows < n)


@triton.jit
def slopes(
    T, K, V, UP, A, B, DELTA, z, rows, columns, n, m, seed, limit, factor, SCORES: tl.constexpr,
    ALLOWED: tl.constexpr, KIND: tl.constexpr, DROPS: tl.constexpr, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, DOT: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """Return the gradients of a tile of scores, the weights after dropout, and the upstream."""
    e = tl.arange(0, PADDED)
    s = tile(T, K, z, rows, columns, n, m, SCORES, ALLOWED, BR, BC, DOT, IP)
    a = tl.load(A + z * n + rows, mask=rows < n, other=0.0)
    b = tl.load(B + z * n + rows, mask=rows < n, other=0.0)
    delta = tl.load(DELTA + z * n + rows, mask=rows < n, other=0.0)
    inside = (rows < n)[:, None] & (e < WIDTH)[None, :]
    up = tl.load(UP + (z * n + rows[:, None]) * WIDTH + e[None, :], mask=inside, other=0.0)
    inside = (columns < m)[None, :] & (e < WIDTH)[:, None]
    v = tl.load(V + (z * m + columns[None, :]) * WIDTH + e[:, None], mask=inside, other=0.0)
    w, u = weights_of(s, a[:, None], b[:, None], KIND)
    of_weights = tl.dot(up.to(DOT), v.to(DOT), input_precision=IP)
    if DROPS:
        keep = kept(z, rows, columns, seed, limit, factor)
        of_weights = of_weights * keep
        w = w * keep
    g = tl.where(s > -float("inf"), u * (of_weights - delta[:, None]), 0.0)
    g = tl.where(s != s, s, g)
    return g, w, up


@triton.jit
def backward_rows(
    T, K, G, V, UP, A, B, DELTA, STATES, REACH, n, m, column_blocks, seed, limit, factor,
    SCORES: tl.constexpr, ALLOWED: tl.constexpr, SEND: tl.constexpr, KIND: tl.constexpr,
    MASKED: tl.constexpr, DROPS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, DOT: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a block of rows and, by row, of parameters, to the buffers G."""
    i, z = tl.program_id(0) % tl.cdiv(n, BR), (tl.program_id(0) // tl.cdiv(n, BR)).to(tl.int64)
    rows = i * BR + tl.arange(0, BR)
    first, last = blocks_of(REACH, i, column_blocks, MASKED)
    r = tl.minimum(rows, n - 1)[:, None]
    for j in range(first, last):
        if visible(STATES, i, j, column_blocks, MASKED):
            columns = j * BC + tl.arange(0, BC)
            g, _w, _up = slopes(
                T, K, V, UP, A, B, DELTA, z, rows, columns, n, m, seed, limit, factor, SCORES,
                ALLOWED, KIND, DROPS, WIDTH, PADDED, BR, BC, DOT, IP,
            )  # fmt: skip
            c = tl.minimum(columns, m - 1)[None, :]
            r_in, c_in = (rows < n)[:, None], (columns < m)[None, :]
            SEND(g, G, r_in, c_in, T, K, z, r, c, n, m, BR, BC, DOT, IP)


@triton.jit
def backward_columns(
    T, K, G, V, OF_V, UP, A, B, DELTA, STATES, REACH, n, m, row_blocks, column_blocks,
    seed, limit, factor, SCORES: tl.constexpr, ALLOWED: tl.constexpr, SEND: tl.constexpr,
    KIND: tl.constexpr, MASKED: tl.constexpr, DROPS: tl.constexpr, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, DOT: tl.constexpr, IP: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of values, and add those of its keys to the buffers G."""
    j, z = tl.program_id(0) % tl.cdiv(m, BC), (tl.program_id(0) // tl.cdiv(m, BC)).to(tl.int64)
    columns = j * BC + tl.arange(0, BC)
    first, last = blocks_of(REACH, j, row_blocks, MASKED)
    c = tl.minimum(columns, m - 1)[None, :]
    e = tl.arange(0, PADDED)
    of_v = tl.zeros([BC, PADDED], tl.float32)
    for i in range(first, last):
        if visible(STATES, i, j, column_blocks, MASKED):
            rows = i * BR + tl.arange(0, BR)
            g, w, up = slopes(
                T, K, V, UP, A, B, DELTA, z, rows, columns, n, m, seed, limit, factor, SCORES,
                ALLOWED, KIND, DROPS, WIDTH, PADDED, BR, BC, DOT, IP,
            )  # fmt: skip
            of_v = tl.dot(tl.trans(w).to(DOT), up.to(DOT), of_v, input_precision=IP)
            r = tl.minimum(rows, n - 1)[:, None]
            r_in, c_in = (rows < n)[:, None], (columns < m)[None, :]
            SEND(g, G, r_in, c_in, T, K, z, r, c, n, m, BR, BC, DOT, IP)
    inside = (columns < m)[:, None] & (e < WIDTH)[None, :]
    tl.store(OF_V + (z * m + columns[:, None]) * WIDTH + e[None, :], of_v, mask=inside)


@triton.jit
def mixed(x):
    """Return 31 bits of SplitMix64's finaliser, as `regard.attention.kernels.dropout` does."""
    x = x * -7046029254386353131
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return (x ^ ((x >> 31) & ((1 << 33) - 1))) & 2147483647


@triton.jit
def kept(z, rows, columns, seed, limit, factor):
    """Return 0 or 1 / (1 − rate) for a tile: the factors of `dropout.Dropout`."""
    at = rows.to(tl.int64) * 0 + z + seed
    across = mixed(mixed(at) + rows.to(tl.int64)).to(tl.int32)[:, None]
    number = across + mixed(columns.to(tl.int64) + 8589934592 + seed).to(tl.int32)[None, :]
    number = number ^ (number >> 15)
    number = number * -2048144789
    number = number ^ (number >> 15)
    number = number * -1028477387
    return tl.where(number >= limit, factor, 0.0)
