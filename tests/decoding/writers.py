"""Small models that write, their weights far from where training begins."""

import torch
from torch import nn

from regard.attention import POSITIONS
from regard.nn.models.seq2seq import Seq2Seq
from regard.nn.models.settings import Seq2SeqSettings, TransformerSettings
from regard.nn.models.transformer import Transformer

WORDS, END = 11, 10
FORMS = {
    "nobody": {"attend_step": "none"},
    "one way": {"attend_step": "none", "bidirectional": False},
    "bahdanau": {"attend_step": "previous", "score": "additive", "readout": "maxout"},
    "lab 6": {"attend_step": "previous", "score": "general", "bidirectional": False},
    "by position": {"attend_step": "previous", "score": "synthesizer-random"},
    "by position, after": {"attend_step": "current", "score": "synthesizer-factorised-random"},
    "luong dot": {"attend_step": "current", "score": "dot", "readout": "joined"},
    "luong general": {"attend_step": "current", "score": "general", "readout": "joined"},
}
SCHEMES = [f"{position}, {norm}" for position in POSITIONS for norm in ("pre", "post")]
#: Of the transformer, by what stands beside its defaults.
VARIED: dict[str, dict[str, object]] = {
    "grouped": {"key_value_heads": 1},
    "additive": {"score": "additive"},
    "gaussian": {"score": "gaussian"},
    "window": {"pattern": "window-2+global-1"},
    "bigbird": {"pattern": "bigbird-2", "position": "t5-bias"},
    "linformer": {"compress": "linformer-3"},
    "moba": {"attention": "moba-2-2", "position": "rotary"},
    "dsa": {"attention": "dsa-2", "position": "rotary"},
}
WRITERS = [*FORMS, *SCHEMES, *VARIED]


def make(name: str, seed: int = 0) -> nn.Module:
    """A writer in float64, in evaluation mode."""
    torch.manual_seed(seed)
    if name in FORMS:
        settings = Seq2SeqSettings(width=6, hidden=8, dropout=0.3, **FORMS[name])
        model: nn.Module = Seq2Seq(settings, 9, WORDS)
    else:
        position, _, norm = name.partition(", ")
        given = {"position": position, "norm": norm} if norm else VARIED[name]
        settings = TransformerSettings(
            width=8, heads=2, layers=2, decoder_layers=1, feedforward=12, tie=False, length=40,
            **given,
        )  # fmt: skip
        model = Transformer(settings, 9, WORDS)
    model = model.double().eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=0.7)
    return model


def sources(seed: int = 0, lengths: tuple[int, ...] = (5, 2, 7, 1, 4)):
    """Source tokens (batch, time) with padding, and their lengths."""
    torch.manual_seed(seed)
    tokens = torch.randint(2, 9, (len(lengths), max(lengths)))
    sizes = torch.tensor(lengths)
    return tokens.masked_fill(torch.arange(max(lengths)) >= sizes[:, None], 0), sizes
