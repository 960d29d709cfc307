"""``regard bench parity``: differences of regard from formulas in plain loops and from torch.

Small and seeded, so that the same command gives the same numbers on the same machine. A difference
is the largest of output and gradients, each in parts of the largest number of its tensor, or of 1.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks import plain_loop
from regard.attention import (
    POSITIONS,
    SCORES,
    attend,
    causal,
    lengths,
    lengths_per_query,
)
from regard.core.errors import RegardError
from regard.core.settings import build
from regard.interop.torch_layers import from_torch
from regard.lab.data.synthetic import reviews
from regard.lab.data.tokenizers import WHOLE, train_tokenizer
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings

#: Scores that are compared with the loop.
FORMULAS = ("dot", "scaled-dot", "general", "additive", "gaussian", "cosine")
BATCH, QUERIES, KEYS, WIDTH = 2, 5, 7, 3
TEXTS = 10_000
WORDS, LONGEST = 31, 24


def of_score(name: str) -> float:
    """Compare a score with its formula in float64, output and gradients; one query sees nothing."""
    torch.manual_seed(0)
    score = SCORES[name](WIDTH, WIDTH).double()
    with torch.no_grad():
        for x in score.parameters():
            x.add_(torch.randn_like(x), alpha=0.5)
    shapes = (QUERIES, WIDTH), (KEYS, WIDTH), (KEYS, 4)
    q, k, v = (torch.randn(BATCH, *x, dtype=torch.float64, requires_grad=True) for x in shapes)
    seen = torch.tensor([[7, 3, 0, 1, 5], [2, 7, 4, 6, 1]])
    ours = attend(q, k, v, score, lengths_per_query(seen)).output
    parameters: dict[str, Tensor] = {**dict(score.named_parameters())}
    theirs, _ = plain_loop.attention(
        q[:, None],
        k[:, None],
        v[:, None],
        lambda query, key, head, i, j: plain_loop.PAIRS[name](parameters, query, key, head),
        lambda scores, head: plain_loop.softmax(scores),
        lambda place, i, j: j < int(seen[place][i]),
        (torch.arange(QUERIES).expand(BATCH, -1), torch.arange(KEYS).expand(BATCH, -1)),
    )
    theirs = theirs[:, 0]
    return furthest(ours, theirs, [q, k, v, *score.parameters()], torch.randn_like(ours))


def of_synthesizer() -> float:
    """softmax(ReLU(XA + b₁)B + b₂)(XV) under a causal mask. Tay et al. 2021, section 3.1."""
    torch.manual_seed(0)
    score: Any = SCORES["synthesizer"](WIDTH, WIDTH, length=KEYS).double()
    with torch.no_grad():
        for x in score.parameters():
            x.add_(torch.randn_like(x), alpha=0.5)
    given = torch.randn(BATCH, KEYS, WIDTH, dtype=torch.float64, requires_grad=True)
    values = torch.randn(BATCH, KEYS, 4, dtype=torch.float64, requires_grad=True)
    a, b1, b, b2 = score.query_weight, score.query_bias, score.weight, score.bias
    table = torch.relu(given @ a + b1) @ b.T + b2.T
    hidden = torch.ones(KEYS, KEYS).triu(1).bool()
    theirs = table.masked_fill(hidden, -math.inf).softmax(-1) @ values
    ours = attend(given, given, values, score, causal()).output
    return furthest(ours, theirs, [given, values, a, b1, b, b2], torch.randn_like(theirs))


def furthest(
    ours: Tensor,
    theirs: Tensor,
    of: Sequence[Tensor],
    upstream: Tensor,
    parameters: tuple[Sequence[Tensor], Sequence[Tensor]] = ((), ()),
) -> float:
    """Return the largest difference of two outputs and of their gradients.

    ``of`` are the common inputs; ``parameters`` those of each side.
    """
    pairs = zip(
        torch.autograd.grad(ours, [*of, *parameters[0]], upstream),
        torch.autograd.grad(theirs, [*of, *parameters[1]], upstream),
        strict=True,
    )
    return max(apart(ours, theirs), *(apart(a, b) for a, b in pairs))


@torch.no_grad()
def apart(a: Tensor, b: Tensor) -> float:
    """Return the largest difference relative to the largest number or 1.

    It is infinity for NaN and for other shapes.
    """
    if a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    difference = float((a - b).abs().max() / b.abs().max().clamp(min=1))
    return math.inf if math.isnan(difference) else difference


def of_torch(kind: str, dtype: torch.dtype) -> float:
    """Compare MultiHeadAttention with torch's at the same weights: output, all gradients."""
    torch.manual_seed(0)
    width, heads, n, itself = 32, 4, 9, kind in ("self", "causal")
    m = n if itself else 13
    theirs = nn.MultiheadAttention(width, heads, batch_first=True, dtype=dtype)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = from_torch(theirs)
    output = cast(nn.Linear, ours.output)
    x = torch.randn(3, n, width, dtype=dtype, requires_grad=True)
    y = x if itself else torch.randn(3, m, width, dtype=dtype, requires_grad=True)
    sizes = torch.tensor([m, 5, 1])
    padding = torch.arange(m) >= sizes[:, None] if kind == "padded" else None
    future = torch.ones(n, m).triu(1).bool() if kind == "causal" else None
    mask = {"padded": lengths(sizes), "causal": causal()}.get(kind)
    mine = ours(x, y, mask=mask)
    other = theirs(x, y, y, key_padding_mask=padding, attn_mask=future, need_weights=False)[0]
    inputs = [x] if itself else [x, y]
    parameters = (
        [ours.project.weight, ours.project.bias, output.weight, output.bias],
        [theirs.in_proj_weight, theirs.in_proj_bias, theirs.out_proj.weight, theirs.out_proj.bias],
    )
    return furthest(mine, other, inputs, torch.randn_like(mine), parameters)


@torch.no_grad()
def of_cache(setting: str, name: str, dtype: torch.dtype) -> float:
    """Compare logits of a GPT with a cache and without; infinity if the words differ."""
    torch.manual_seed(0)
    sizes = {"width": 16, "heads": 4, "layers": 2, "feedforward": 32, "length": LONGEST}
    settings = build(GPTSettings, {**sizes, "position": "none", setting: name})
    model = GPT(settings, WORDS).to(dtype).eval()
    for x in model.parameters():
        x.add_(torch.randn_like(x), alpha=0.3)
    text, word, worst = torch.randint(1, WORDS, (3, 5)), torch.zeros(3, 1).long(), 0.0
    writing = model.start(text, torch.tensor([5, 5, 5]))
    for _ in range(LONGEST - 5):
        cached, whole = writing.step(word)[:, -1], model.to_logits(model(text))[:, -1]
        word = cached.argmax(-1, keepdim=True)
        if not torch.equal(word, whole.argmax(-1, keepdim=True)):
            return math.inf
        worst, text = max(worst, apart(cached, whole)), torch.cat([text, word], 1)
    return worst


def strings(count: int) -> list[str]:
    """Return uniform random texts over all of Unicode, without surrogates."""
    chance = random.Random(1)
    points = [chance.randrange(0x110000 - 0x800) for _ in range(12 * count)]
    text = "".join(chr(point if point < 0xD800 else point + 0x800) for point in points)
    cuts = sorted(chance.randrange(len(text)) for _ in range(count - 1))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def of_tokens(kind: str, texts: Sequence[str]) -> float:
    """Return the number of texts that decoding does not restore."""
    pieces = train_tokenizer(kind, [x.text for x in reviews(200)], vocabulary=400)
    back = (pieces.decode(ids) for ids in pieces.encode(texts))
    return float(sum(a != b for a, b in zip(back, texts, strict=True)))


def row(name: str, against: str, difference: float, aim: float) -> dict[str, Any]:
    """Return a row of the table; None replaces a difference that is not finite, for JSON."""
    return {
        "name": name,
        "against": against,
        "difference": difference if math.isfinite(difference) else None,
        "aim": aim,
        "reached": difference <= aim,
    }


def measured(count: int) -> Iterable[dict[str, Any]]:
    """Yield all rows."""
    double, single = torch.float64, torch.float32
    for name in FORMULAS:
        yield row(f"score {name}, float64", "its formula, a loop", of_score(name), 1e-12)
    yield row("score synthesizer, float64", "its formula", of_synthesizer(), 1e-12)
    for kind in ("self", "cross", "causal", "padded"):
        for dtype, aim in ((single, 1e-6), (double, 1e-12)):
            name = f"MultiHeadAttention, {kind}, {str(dtype).removeprefix('torch.')}"
            yield row(name, "torch.nn.MultiheadAttention", of_torch(kind, dtype), aim)
    # A tree is given with the whole text.
    cached = [("position", name) for name in POSITIONS if not name.startswith("tree")]
    for setting, part in (*cached, ("attention", "forgetting")):
        for dtype, aim in ((single, 1e-5), (double, 1e-12)):
            name = f"cache, {setting} {part}, {str(dtype).removeprefix('torch.')}"
            yield row(name, "the full pass, same words", of_cache(setting, part, dtype), aim)
    texts = strings(count)
    for kind in sorted(WHOLE):
        name = f"{kind}, {count:,} random Unicode texts"
        yield row(name, "the texts; how many do not come back", of_tokens(kind, texts), 0)


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Return a row for each comparison. ``quick`` takes fewer texts. Raises: settings are given."""
    if settings:
        raise RegardError(f"parity has no settings, so not {settings[0]!r}")
    return iter(measured(TEXTS // 100 if quick else TEXTS))
