"""The errors of mechanisms, beside a loop over tokens or the formula with all pairs.

    python -m benchmarks.states

The largest difference over the largest number of the loop, in float64: outputs, all gradients,
steps with a cache, packed rows; in float32 outputs of 2,000 tokens with a strong decay. Mechanisms
without a state are compared with the exact kernel, and attention over depth in a GPT with the loop
of its tests. `regard bench attention case=mechanism` measures their time and memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import starmap
from unittest.mock import patch

import torch
from torch import Tensor

from regard.attention import KeyValueCache, Packing, causal, lengths, named_mechanism, use
from regard.attention.kernels.choose import Constants, using
from regard.attention.kernels.linear import by_steps
from regard.attention.mechanism import Mechanism
from regard.nn.models.gpt import GPT
from tests.nn.test_depth import by_words, gradients, moved, step_by_step

NAMES = (
    "gla", "delta", "delta-reach-2", "delta-products-3", "delta-reach-2-products-3", "deltanet",
    "kda", "delta+exclusive+gate-heads", "kda+value-residual", "multi-head+exclusive",
    "multi-head+gate", "multi-head+value-residual", "dsa-8",
)  # fmt: skip
SIZES = (1, 63, 64, 65, 129)


@contextmanager
def looping() -> Iterator[None]:
    """Compute every recurrence by a loop over tokens, and attention by its formula."""
    with patch("regard.attention.mechanisms.recurrent.by_chunks", by_steps), use("exact"):
        yield


def made(name: str, width: int, heads: int) -> Mechanism:
    """Return a layer with random parameters."""
    torch.manual_seed(0)
    layer = named_mechanism(name)(width, heads)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def gap(ours: Tensor, exact: Tensor) -> float:
    """Return the largest difference over the largest number, or over 1e-6 if that is larger."""
    ours, exact = ours.detach(), exact.detach()
    return float((ours - exact).abs().max() / exact.abs().max().clamp(min=1e-6))


def passed(layer: Mechanism, x: Tensor) -> list[Tensor]:
    """Return the output and the gradients of all parameters and of the input."""
    x = x.clone().requires_grad_()
    output = layer(x, mask=causal())
    loss = (output * torch.arange(output.numel()).view_as(output).cos()).sum()
    wanted = [x, *layer.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [output.detach(), *(g for g in found if g is not None)]


def errors() -> None:
    """Print the errors of each mechanism."""
    print("| mechanism | outputs | gradients | cache | packed | 2,000 tokens, float32 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in NAMES:
        layer = made(name, 12, 3).double()
        found: list[list[float]] = []
        for n in SIZES:
            x = torch.randn(2, n, 12, dtype=torch.float64)
            ours = passed(layer, x)
            with looping():
                exact = passed(layer, x)
            gaps = [gap(one, other) for one, other in zip(ours, exact, strict=True)]
            cache = KeyValueCache()
            with torch.no_grad():
                steps = [layer(part, mask=causal(), cache=cache) for part in x.split(1, 1)]
                packing = Packing(torch.tensor([n, max(1, n // 2)]), n)
                mask = causal() & lengths(torch.tensor([n, max(1, n // 2)]))
                rows = layer(packing.pack(x), mask=mask, packing=packing)
            found.append([gaps[0], max(gaps[1:]), gap(torch.cat(steps, 1), exact[0]),
                          gap(rows, packing.pack(exact[0]))])  # fmt: skip
        long, strong = torch.randn(1, 2000, 12), layer.float()
        for part, rates in strong.named_parameters():
            if part == "log_speed":
                torch.nn.init.constant_(rates, 3.0)  # e³ · softplus of the step: to 0 at once
        with torch.no_grad():
            single = strong(long, mask=causal())
            with looping():
                whole = strong.double()(long.double(), mask=causal())
        cells = [max(row[i] for row in found) for i in range(4)] + [gap(single.double(), whole)]
        print(f"| {name} | {' | '.join(f'{cell:.0e}' for cell in cells)} |", flush=True)


def depth() -> None:
    """Print the errors of attention over depth in a GPT of three layers."""
    model, found = moved("gpt"), []
    assert isinstance(model, GPT)
    for n in SIZES:
        tokens = torch.randint(0, 11, (1, n))
        ours, exact = model(tokens), by_words(model, tokens)
        pairs = zip(
            gradients(ours, *model.parameters()), gradients(exact, *model.parameters()), strict=True
        )
        steps = step_by_step(model, tokens)
        found.append([gap(ours, exact), max(starmap(gap, pairs)), gap(steps, exact)])
    cells = (f"{max(column):.0e}" for column in zip(*found, strict=True))
    print(f"| depth-attention | {' | '.join(cells)} | – | – |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with using(Constants(native_hidden=1)):
        errors()
    depth()
