"""Three of the four reasons, measured on vectors: lengths, residuals, roles of words."""

import torch
from torch import Tensor, nn

from regard.analysis.growth import exponent
from regard.lab.labs.lab import Findings
from regard.lab.labs.normalisation.norms import NORMS, BatchNorm, Block, LayerNorm
from regard.lab.reports.figures import Series, line_chart, lines
from regard.lab.reports.findings import Cell

WORDS = 12  # of the watched text
DRAWS = 40  # batches around it
EXACT = 1e-5  # relative difference that is rounding
BATCHES = (2, 4, 8, 16, 32, 64)


def companions(batch: int, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return ``batch`` texts of 4 to 20 words, padded by zeros, and a mask of their words.

    The numbers of a word have mean 1 and deviation 1, so that padding differs from words.
    """
    sizes = torch.randint(4, 21, (batch,), generator=generator)
    real = torch.arange(20) < sizes[:, None]
    drawn = 1 + torch.randn(batch, 20, width, generator=generator)
    return drawn * real[..., None], real


def watched(norm: nn.Module, text: Tensor, others: Tensor, real: Tensor) -> Tensor:
    """Return the normalised words of one text in a batch with others."""
    first = torch.zeros(1, 20, text.shape[-1])
    first[0, :WORDS] = text
    mask = torch.cat([torch.arange(20)[None] < WORDS, real])
    with torch.no_grad():
        output: Tensor = norm(torch.cat([first, others]), mask)[0, :WORDS]
    return output


def change(norm: nn.Module, batch: int, width: int, seed: int) -> float:
    """Return the change of a text's normalised words between batches, relative to their size."""
    generator = torch.Generator().manual_seed(seed)
    text = 1 + torch.randn(WORDS, width, generator=generator)
    seen = torch.stack(
        [watched(norm, text, *companions(batch - 1, width, generator)) for _ in range(DRAWS)]
    )
    return float((seen - seen.mean(0)).norm() / seen.norm())


def lengths_differ(width: int, seed: int) -> Findings:
    """Reason 1: texts differ in length. The same text in other batches, and with padding."""
    norms = {
        "layer norm": LayerNorm(width).train(),
        "batch norm, words alone": BatchNorm(width).train(),
        "batch norm, padding too": BatchNorm(width, padding=True).train(),
    }
    moved = {name: [change(norm, b, width, seed) for b in BATCHES] for name, norm in norms.items()}
    slope = exponent(BATCHES, moved["batch norm, words alone"])
    try:
        BatchNorm(width).train()(torch.ones(1, 1, width), torch.ones(1, 1, dtype=torch.bool))
        refused = False
    except ValueError:  # no variance
        refused = True
    rows: list[list[Cell]] = [
        [str(batch), *(100 * values[i] for values in moved.values())]
        for i, batch in enumerate(BATCHES)
    ]
    chart = line_chart(
        "How far the same text moves in other batches",
        [
            Series(name, list(BATCHES), [100 * v for v in values], look=i)
            for i, (name, values) in enumerate(moved.items())
            if name != "layer norm"
        ],
        x_label="texts in the batch", y_label="change of a word's vector, %",
        log_x=True, log_y=True,
    )  # fmt: skip
    alone, batch = max(moved["layer norm"]), moved["batch norm, words alone"]
    padded = moved["batch norm, padding too"][2]
    return Findings(
        {
            "alone": (alone, alone <= EXACT),
            "slope": (slope, abs(slope + 0.5) <= 0.15),
            "padding": (padded, padded > batch[2]),
        },
        {"batches": BATCHES, "batch_moves": batch, "refused": refused, "watched_words": WORDS,
         "draws": DRAWS},
        {"moves": chart},
        {"moves-table": (["texts", *norms], rows)},
    )  # fmt: skip


def residuals(width: int, layers: int, seed: int) -> Findings:
    """Reason 2: norms help residual networks. Size of states and gradients over the depth."""
    sizes, slopes = {}, {}
    for name, make in NORMS.items():
        torch.manual_seed(seed)
        blocks = [Block(width, make).train() for _ in range(layers)]
        for block in blocks:  # as strong as their input, where a trained block ends
            for part, weight in block.named_parameters():
                if part in ("attention.output.weight", "inner.2.weight"):
                    nn.init.normal_(weight, std=(2 / weight.shape[1]) ** 0.5)
        generator = torch.Generator().manual_seed(seed)
        x, real = companions(16, width, generator)
        x = first = x.requires_grad_()
        states = []
        for block in blocks:
            x = block(x, real)
            states.append(float(x.detach()[real].square().mean()))
        sizes[name] = states
        (gradient,) = torch.autograd.grad(x[real].square().mean().sqrt(), first)
        slopes[name] = float(gradient[real].norm())
    depth = [float(i) for i in range(1, layers + 1)]
    chart = line_chart(
        "The size of the states over the depth, without training",
        lines(depth, sizes),
        x_label="block", y_label="mean square of a state", log_y=True,
    )  # fmt: skip
    half = {name: values[-1] / values[layers // 2 - 1] for name, values in sizes.items()}
    columns = ["norm", "block 1", f"block {layers}", "second half, times",
               "‖gradient of the input‖"]  # fmt: skip
    rows: list[list[Cell]] = [
        [name, values[0], values[-1], half[name], slopes[name]] for name, values in sizes.items()
    ]
    none, layer, batch = half["no norm"], half["layer norm"], half["batch norm"]
    return Findings(
        {
            "growth": (none, none > 10 * max(layer, batch)),
            "either-norm": (batch / layer, 2 / 3 < batch / layer < 1.5),
        },
        {"depth": layers, "growth": half},
        {"states": chart},
        {"states-table": (columns, rows)},
    )


def mixed(width: int, seed: int) -> Findings:
    """Reason 3: words have roles of their own, and BatchNorm mixes them."""
    generator = torch.Generator().manual_seed(seed)
    x, real = companions(8, width, generator)
    shares, later = {}, {}
    for name, norm in {"layer norm": LayerNorm(width), "batch norm": BatchNorm(width)}.items():
        inputs = x.clone().requires_grad_()
        probe = torch.randn(width, generator=torch.Generator().manual_seed(seed))
        (gradient,) = torch.autograd.grad((norm.train()(inputs, real)[0, 0] * probe).sum(), inputs)
        size = gradient.abs().sum(-1)
        own, text = size[0, 0], size[0].sum() - size[0, 0]
        total = size.sum()
        shares[name] = [float(part / total) for part in (own, text, total - own - text)]
        moved = x.clone()
        moved[0, 3:] = (1 + torch.randn(17, width, generator=generator)) * real[0, 3:, None]
        with torch.no_grad():
            before, after = norm(x, real)[0, :3], norm(moved, real)[0, :3]
        later[name] = float((before - after).norm() / before.norm())
    rows: list[list[Cell]] = [
        [name, *(100 * part for part in parts), 100 * later[name]] for name, parts in shares.items()
    ]
    columns = ["norm", "itself, %", "other words of its text, %", "words of other texts, %",
               "moved by later words, %"]  # fmt: skip
    outside, foreign = (sum(shares[name][1:]) for name in ("layer norm", "batch norm"))
    return Findings(
        {
            "own": (outside, outside == 0 and later["layer norm"] <= EXACT),
            "foreign": (foreign, foreign > 0.05 and later["batch norm"] > 0.001),
        },
        {"later": later},
        tables={"shares": (columns, rows)},
    )
