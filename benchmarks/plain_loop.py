"""The formula by loops over batch, head, query and key in float64, without code of regard.

Parameters are read from regard's modules by their names; everything else follows
the papers' equations, pair by pair.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor

Sees = Callable[[tuple[int, ...], int, int], bool]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Callable[[Tensor, Tensor, int, int, int], Tensor],
    normalize: Callable[[Tensor, int], Tensor],
    sees: Sees,
    where: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Return output and weights of q (\\*batch, heads, n, d), k and v (\\*batch, heads, m, …).

    ``score(query, key, head, i, j)`` compares a pair at positions i and j;
    ``sees(batch, row, column)`` is True if the query at a row may see the key at a column.
    ``where``: positions (\\*batch, n) and (\\*batch, m).
    """
    *batch, heads, n, _ = q.shape
    m = k.shape[-2]
    outputs: list[Tensor] = []
    tables: list[Tensor] = []
    for place in product(*map(range, batch)):
        for head in range(heads):
            rows_out, rows = [], []
            for i in range(n):
                seen = [j for j in range(m) if sees(place, i, j)]
                row = q.new_zeros(m)
                total = q.new_zeros(v.shape[-1])
                if seen:
                    at = int(where[0][place][i])
                    scores = [
                        score(q[*place, head, i], k[*place, head, j], head, at,
                              int(where[1][place][j]))
                        for j in seen
                    ]  # fmt: skip
                    found = normalize(torch.stack(scores), head)
                    row = row.scatter(0, torch.tensor(seen), found)
                    for weight, j in zip(found, seen, strict=True):
                        total = total + weight * v[*place, head, j]
                rows.append(row)
                rows_out.append(total)
            outputs.append(torch.stack(rows_out) if n else q.new_zeros(0, v.shape[-1]))
            tables.append(torch.stack(rows) if n else q.new_zeros(0, m))
    output = torch.stack(outputs).reshape(*batch, heads, n, v.shape[-1])
    return output, torch.stack(tables).reshape(*batch, heads, n, m)


def own(parameter: Tensor, head: int, axes: int) -> Tensor:
    """Return a head's part of a parameter with an axis of heads before ``axes`` others."""
    return parameter[head] if parameter.ndim > axes else parameter


def dot(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """q·k."""
    return (q * k).sum()


def scaled_dot(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """q·k / √d. Vaswani et al. 2017, equation 1."""
    return (q * k).sum() / math.sqrt(len(q))


def length(x: Tensor) -> Tensor:
    """‖x‖, at least 1e-8."""
    return (x * x).sum().clamp(min=1e-16).sqrt()


def cosine(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """q·k / (‖q‖ ‖k‖)."""
    return (q * k).sum() / (length(q) * length(k))


def cosine_temperature(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """exp(t) q·k / (‖q‖ ‖k‖)."""
    return own(p["temperature"], head, 0).sum().exp() * cosine(p, q, k, head)


def apart(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """(w ‖q − k‖)²."""
    w = own(p["inverse_width"], head, 0).sum()
    return ((w * (q - k)) ** 2).sum()


def gaussian(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """−w² ‖q − k‖² / 2. Nadaraya 1964; Watson 1964."""
    return -apart(p, q, k, head) / 2


def epanechnikov(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """¾ max(1 − u², 0)."""
    return 0.75 * (1 - apart(p, q, k, head)).clamp(min=0)


def boxcar(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """½ where u ≤ 1."""
    u = apart(p, q, k, head)
    return 0 * u + (0.5 if float(u.detach()) <= 1 else 0.0)


def general(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """qᵀ W k. Luong et al. 2015, equation 8."""
    w = own(p["weight"], head, 2)
    return (q[:, None] * w * k[None, :]).sum()


def additive(p: dict[str, Tensor], q: Tensor, k: Tensor, head: int) -> Tensor:
    """w·tanh(W_q q + W_k k + b). Bahdanau et al. 2015, A.1.2."""
    a, b = own(p["query_weight"], head, 2), own(p["key_weight"], head, 2)
    bias, w = own(p["bias"], head, 2)[0], own(p["weight"], head, 2)[:, 0]
    return (w * torch.tanh((q[:, None] * a).sum(0) + (k[:, None] * b).sum(0) + bias)).sum()


PAIRS = {
    "dot": dot,
    "scaled-dot": scaled_dot,
    "cosine": cosine,
    "cosine-temperature": cosine_temperature,
    "gaussian": gaussian,
    "epanechnikov": epanechnikov,
    "boxcar": boxcar,
    "general": general,
    "additive": additive,
}


def dense_synthesizer(p: dict[str, Tensor], q: Tensor, i: int, j: int, head: int) -> Tensor:
    """ReLU(q A + b₁)·B_j + b₂_j."""
    a, b = own(p["query_weight"], head, 2), own(p["query_bias"], head, 2)[0]
    hidden = ((q[:, None] * a).sum(0) + b).clamp(min=0)
    return (hidden * own(p["weight"], head, 2)[j]).sum() + own(p["bias"], head, 2)[j, 0]


def random_synthesizer(p: dict[str, Tensor], q: Tensor, i: int, j: int, head: int) -> Tensor:
    """R[i, j]."""
    return own(p["table"], head, 2)[i, j]


def factorised_random(p: dict[str, Tensor], q: Tensor, i: int, j: int, head: int) -> Tensor:
    """R₁[i]·R₂[j]."""
    return (own(p["rows"], head, 2)[i] * own(p["columns"], head, 2)[j]).sum()


def factorised(p: dict[str, Tensor], q: Tensor, i: int, j: int, head: int) -> Tensor:
    """f_A(q)[j mod a] f_B(q)[j div a]."""
    a, b = own(p["a_weight"], head, 2), own(p["b_weight"], head, 2)
    first = (q[:, None] * a).sum(0) + own(p["a_bias"], head, 2)[0]
    second = (q[:, None] * b).sum(0) + own(p["b_bias"], head, 2)[0]
    return first[j % a.shape[1]] * second[j // a.shape[1]]


PLACES = {
    "synthesizer": dense_synthesizer,
    "synthesizer-random": random_synthesizer,
    "synthesizer-factorised-random": factorised_random,
    "synthesizer-factorised": factorised,
}


def turned(x: Tensor, at: int) -> Tensor:
    """Rotate columns h and h + half by at / 10000^(h / half). Su et al. 2021."""
    half = len(x) // 2
    found = [x[c] for c in range(len(x))]
    for h in range(half):
        angle = at / 10000 ** (h / half)
        found[h] = x[h] * math.cos(angle) - x[h + half] * math.sin(angle)
        found[h + half] = x[h + half] * math.cos(angle) + x[h] * math.sin(angle)
    return torch.stack(found) if found else x


def slope(head: int, heads: int) -> float:
    """Return ALiBi's slope of a head. Press et al. 2022, section 3, and their code."""
    power = 1
    while power * 2 <= heads:
        power *= 2
    if head < power:
        return 2 ** (-8 * (head + 1) / power)
    return 2 ** (-8 * (2 * (head - power) + 1) / (2 * power))


def bucket(apart: int, buckets: int = 32, farthest: int = 128) -> int:
    """Return T5's bucket of a distance, both directions. Raffel et al. 2020, section 2.1."""
    half = buckets // 2
    first, near = (half if apart > 0 else 0), abs(apart)
    exact = half // 2
    if near < exact:
        return first + near
    share = math.log(near / exact) / math.log(farthest / exact)
    return first + min(half - 1, exact + int(share * (half - exact)))


def softmax(scores: Tensor) -> Tensor:
    """exp(s) / Σ exp(s)."""
    e = (scores - scores.detach().max()).exp()
    return e / e.sum()


def with_nothing(scores: Tensor, sink: Tensor) -> Tensor:
    """exp(s) / (exp(sink) + Σ exp(s))."""
    top = torch.maximum(scores.detach().max(), sink.detach())
    e = (scores - top).exp()
    return e / (e.sum() + (sink - top).exp())


def kernel_sum(scores: Tensor) -> Tensor:
    """max(s, 0) / Σ max(s, 0)."""
    positive = scores.clamp(min=0)
    return positive / positive.sum() if float(positive.detach().sum()) > 0 else 0 * scores


def sparsemax(scores: Tensor) -> Tensor:
    """max(s − τ, 0) over the support of size k: τ = (Σ support − 1) / k. Martins & Astudillo."""
    ranked = sorted(scores.detach().tolist(), reverse=True)
    size = max(k for k in range(1, len(ranked) + 1)
               if 1 + k * ranked[k - 1] > sum(ranked[:k]))  # fmt: skip
    inside = scores.detach() >= ranked[size - 1]
    tau = (scores[inside].sum() - 1) / int(inside.sum())
    return torch.where(inside, scores - tau, 0 * scores)


def power_of_rest(scores: Tensor, alpha: Tensor) -> Tensor:
    """α-entmax by bisection, its gradient by the implicit function. Peters et al. 2019, eq. 10."""
    less = alpha - 1
    with torch.no_grad():
        x = less * scores
        low, high = float(x.max()) - 1, float(x.max())
        for _ in range(200):
            middle = (low + high) / 2
            total = ((x - middle).clamp(min=0) ** (1 / less)).sum()
            low, high = (middle, high) if total >= 1 else (low, middle)
    tau = scores.new_tensor((low + high) / 2)
    inside = (less * scores).detach() > tau
    above = torch.where(inside, less * scores - tau, torch.ones_like(scores))
    # One Newton step from the solution has the derivative of the solution.
    total = torch.where(inside, above ** (1 / less), 0 * scores).sum()
    slope_ = torch.where(inside, above ** (1 / less - 1) / less, 0 * scores).sum()
    tau = tau + (total - 1) / slope_.detach()
    above = torch.where(inside, less * scores - tau, torch.ones_like(scores))
    return torch.where(inside, above ** (1 / less), 0 * scores)


def top_k(scores: Tensor, k: int = 16) -> Tensor:
    """Softmax over the k largest."""
    least = sorted(scores.detach().tolist(), reverse=True)[: min(k, len(scores))][-1]
    kept = scores.detach() >= least
    e = torch.where(kept, (scores - scores.detach().max()).exp(), 0 * scores)
    return e / e.sum()


def broken_stick(scores: Tensor) -> Tensor:
    """Stick-breaking: σ(s_j) of the rest that later keys leave."""
    left, shares = scores.new_ones(()), []
    for score in reversed(scores.unbind()):
        share = score.sigmoid()  # 1 / (1 + exp(−s)) has a gradient of NaN below −709
        shares.append(left * share)
        left = left * (1 - share)
    return torch.stack(shares[::-1])


def normalizer(name: str, p: dict[str, Tensor]) -> Callable[[Tensor, int], Tensor]:
    """Return a function of the visible scores of a row that gives weights."""

    def weights(scores: Tensor, head: int) -> Tensor:
        zero = scores.new_zeros(())
        if name == "softmax":
            return softmax(scores)
        if name == "softmax-plus-one":
            return with_nothing(scores, zero)
        if name == "sink":
            return with_nothing(scores, own(p["sink"], head, 0).sum())
        if name == "sigmoid":
            return (scores - math.log(len(scores))).sigmoid()
        if name == "sum":
            return kernel_sum(scores)
        if name == "sparsemax":
            return sparsemax(scores)
        if name == "entmax15":
            return power_of_rest(scores, zero + 1.5)
        if name == "entmax":
            a = own(p["steepness"], head, 0).sum()
            return power_of_rest(scores, 1 + 1 / (1 + (-a).exp()))
        if name == "scalable-softmax":
            return softmax(own(p["slope"], head, 0).sum() * math.log(len(scores)) * scores)
        if name == "adaptive-entmax":
            a, c = (own(p[key], head, 0).sum() for key in ("amount", "exponent"))
            logs = math.log(max(len(scores), 2))
            factor = 1 + (1 + a.exp()).log() * logs ** (3 * torch.tanh(c))
            return power_of_rest(factor * scores, zero + 1.5)
        if name == "stick-breaking":
            return broken_stick(scores)
        return top_k(scores)

    return weights


def entropy(weights: Sequence[float]) -> float:
    """−Σ w log w, in nats."""
    return -sum(w * math.log(w) for w in weights if w > 0)
