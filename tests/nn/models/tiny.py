"""Small models and tasks that take seconds."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.lab.tasks.models import MODELS

VOCABULARY, LABELS = 17, 3
NETWORKS = [name for name, entry in MODELS.items() if not entry.deterministic]
PRETRAINED = ["gpt", "bert", "t5"]  # their settings have no init_std and no word_dropout
SELF_ATTENTION = ["self-attention", "+residual", "+positions", "+residual+positions", "+cls",
                  "transformer"]  # fmt: skip
BLIND = ["mean", "attention-pool", "query-from-mean", "self-attention", "+residual"]
SMALL = {
    "transformer": {"width": 8, "feedforward": 19},
    "rnn": {"width": 6, "hidden": 5},
    "cnn": {"width": 6, "filters": 5},
}


def make(name: str, labels: int = LABELS, seed: int = 0, **overrides: object) -> nn.Module:
    """A model of width 8 (rnn and cnn: 6) over 17 tokens."""
    entry = MODELS[name]
    torch.manual_seed(seed)
    settings = entry.configure({**SMALL.get(name, {"width": 8}), **overrides})
    model = entry.build(settings, vocabulary=VOCABULARY, labels=labels)
    assert isinstance(model, nn.Module)
    return model


def stir(model: nn.Module) -> nn.Module:
    """The same model some way off its first weights, so that what begins at zero is seen too."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("embedding"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def learn(model: nn.Module, tokens: Tensor, labels: Tensor, steps: int, rate: float) -> float:
    """Train on all of the first half at once; the accuracy on the other half."""
    lengths = torch.full((len(tokens),), tokens.shape[1])
    half = len(tokens) // 2
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:half], lengths[:half]), labels[:half]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        predicted = model(tokens[half:], lengths[half:]).argmax(1)
    return float((predicted == labels[half:]).float().mean())
