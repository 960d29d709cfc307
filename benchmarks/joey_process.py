"""JoeyNMT's side of the benchmark `translation`: a line of JSON in, a line of JSON out.

Run by the python of JoeyNMT's own environment, so it imports nothing of regard. The first line
holds sizes and pairs of ids; then {"step": true} trains on a batch and {"write": …} translates.
Words keep regard's numbers (0 padding, 1 unknown), the start symbol and the end come last.
"""

import json
import random
import sys
from types import SimpleNamespace
from typing import Any

BATCH_TOKENS = 4096  # its configurations' batch_size with batch_type: token


def main() -> None:
    """Answer each line of input."""
    import torch

    first = json.loads(sys.stdin.readline())
    model, symbols = build(first)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    batches = by_tokens(first["pairs"], symbols)
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if "step" in asked:
            batch, tokens = next(batches)
            step(model, optimizer, batch)
            answer({"tokens": tokens})
        else:
            write(model, batch_of([(ids, None) for ids in asked["write"]], symbols), asked)
            answer({"written": len(asked["write"])})


def answer(found: dict[str, Any]) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def build(asked: dict[str, Any]) -> tuple[Any, SimpleNamespace]:
    """Return JoeyNMT's Transformer as in its configurations, with all embeddings tied."""
    from joeynmt.model import build_model  # type: ignore[import-not-found]
    from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]

    words = asked["words"]
    numbers = {"pad": 0, "unk": 1, "bos": words, "eos": words + 1}
    symbols = SimpleNamespace(
        **{f"{name}_id": number for name, number in numbers.items()},
        **{f"{name}_token": f"w{number}" for name, number in numbers.items()},
        sep_id=None,
        sep_token=None,
        lang_tags=[],
    )

    class Words(Vocabulary):  # type: ignore[misc]  # not its special symbols first
        def add_tokens(self, tokens: Any) -> None:
            super().add_tokens([f"w{i}" for i in range(words + 2)])

    vocabulary = Words([], symbols)
    shared = {
        "type": "transformer",
        "num_heads": asked["heads"],
        "embeddings": {"embedding_dim": asked["width"], "scale": True, "dropout": asked["dropout"]},
        "hidden_size": asked["width"],
        "ff_size": asked["feedforward"],
        "dropout": asked["dropout"],
        "layer_norm": "pre",
    }
    model = build_model(
        {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**shared, "num_layers": asked["layers"]},
            "decoder": {**shared, "num_layers": asked["decoder_layers"]},
        },
        vocabulary,
        vocabulary,
    )
    model.loss_function = ("crossentropy", 0.1)
    return model, symbols


def by_tokens(pairs: list[Any], symbols: SimpleNamespace) -> Any:
    """Yield random batches as its `TokenBatchSampler`: the longest × the count is limited."""
    shuffled = random.Random(0)
    while True:
        shuffled.shuffle(pairs)
        batch: list[Any] = []
        longest = 0
        for source, target in pairs:
            batch.append((source, target))
            longest = max(longest, len(source) + 1, len(target) + 1)
            if longest * len(batch) >= BATCH_TOKENS:
                tokens = sum(len(a) + len(b) + 1 for a, b in batch)
                yield batch_of(batch, symbols), tokens
                batch, longest = [], 0


def batch_of(pairs: list[Any], symbols: SimpleNamespace) -> Any:
    """Return its batch: sources end with </s>, targets are between <s> and </s>."""
    import torch
    from joeynmt.batch import Batch  # type: ignore[import-not-found]

    def padded(rows: list[list[int]]) -> Any:
        longest = max(map(len, rows))
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    sources = [[*source, symbols.eos_id] for source, _ in pairs]
    trained = pairs[0][1] is not None
    targets = [[symbols.bos_id, *target, symbols.eos_id] for _, target in pairs] if trained else []
    return Batch(
        src=padded(sources),
        src_length=torch.tensor([len(row) for row in sources]),
        src_prompt_mask=None,
        trg=padded(targets) if trained else None,
        trg_prompt_mask=None,
        indices=torch.arange(len(pairs)),
        device=torch.device("cpu"),
        pad_index=symbols.pad_id,
        eos_index=symbols.eos_id,
        is_train=trained,
    )


def step(model: Any, optimizer: Any, batch: Any) -> None:
    """Make a step like its trainer: loss by tokens, gradients clipped at 1."""
    import torch

    model.train()
    batch.sort_by_src_length()
    total, *_ = model(return_type="loss", **vars(batch))
    loss = batch.normalize(total, normalization="tokens")
    loss.backward()
    loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.zero_grad()


def write(model: Any, batch: Any, asked: dict[str, Any]) -> None:
    """Return its beam of 5; no text ends before its last token."""
    from joeynmt.search import search  # type: ignore[import-not-found]

    model.eval()
    search(
        model=model,
        batch=batch,
        max_output_length=asked["forced"],
        beam_size=5,
        beam_alpha=0,
        min_output_length=asked["forced"],
    )


if __name__ == "__main__":
    main()
