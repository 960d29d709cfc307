"""A Transformer that has learned to turn words around, with a tokenizer, for each form."""

from functools import lru_cache

import torch
import torch.nn.functional as F

from regard.lab.data.tokenizers import Tokenizer, train_tokenizer
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer

TEXTS = [f"the {a} saw a {b} near the {c}" for a in ("cat", "dog", "hen", "cow")
         for b in ("man", "boy", "girl") for c in ("house", "barn", "river")]  # fmt: skip
FORMS = {
    "pre": {},
    "post": {"norm": "post", "layers": 2},
    "relu, two matrices": {"norm": "post", "activation": "relu", "tie": False},
    "one layer that writes": {
        "activation": "gelu-tanh",
        "layers": 2,
        "decoder_layers": 1,
        "heads": 1,
    },
    "silu": {"norm": "post", "activation": "silu", "width": 18},
}


@lru_cache
def tokenizer(kind: str = "words") -> Tokenizer:
    return train_tokenizer(kind, TEXTS, vocabulary=330)


@lru_cache
def trained(form: str) -> tuple[Transformer, TransformerSettings]:
    """Trained for some steps, so that what it writes ends, and the start symbol's row moves."""
    torch.manual_seed(0)
    given = {"width": 16, "layers": 1, "heads": 2, "feedforward": 24, "dropout": 0.0, "length": 20}
    settings = TransformerSettings(**(given | FORMS[form]))
    words = tokenizer()
    model = Transformer(settings, len(words) + 1, len(words) + 1)
    source = torch.tensor(words.encode(TEXTS))
    end, start = torch.full((len(source), 1), len(words)), torch.zeros(len(source), 1).long()
    target, lengths = source.flip(1), torch.full((len(source),), source.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        logits = model.to_logits(model(source, lengths, torch.cat([start, target], 1)))
        wanted = torch.cat([target, end], 1)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), settings


def questions() -> tuple[torch.Tensor, torch.Tensor]:
    """Sources of different lengths, with padding."""
    ids = tokenizer().encode([*TEXTS[::9], "a dog", "hen near the river"])
    lengths = torch.tensor([len(x) for x in ids])
    tokens = torch.zeros(len(ids), int(lengths.max()), dtype=torch.long)
    for row, x in enumerate(ids):
        tokens[row, : len(x)] = torch.tensor(x)
    return tokens, lengths
