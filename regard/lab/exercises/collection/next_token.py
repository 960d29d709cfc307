"""One step of a GRU decoder with attention, and a whole decoding (document 001)."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from regard.lab.exercises.part import Arguments, Part


class Model(nn.Module):
    """The layers of document 001, with small sizes."""

    def __init__(self, words: int, embedding: int, hidden: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(words)
            self.embedding_layer = nn.Embedding(words, embedding)
            self.attention_W = nn.Linear(hidden, hidden, bias=False)
            self.decoder = nn.GRU(embedding + hidden, hidden, batch_first=True)
            self.linear = nn.Linear(hidden, words)
            self.states = 2 * torch.randn(3, 4, hidden)
            self.first = torch.randn(1, 3, hidden)

    def get_context_vector(self, encoder_out: Tensor, hidden_state: Tensor) -> Tensor:
        """Return the context vector of the exercise before: (batch, 1, hidden)."""
        scores = self.attention_W(encoder_out) @ hidden_state.permute(1, 2, 0)
        return (torch.softmax(scores, 1) * encoder_out).sum(1, keepdim=True)


def get_next_token(
    model: nn.Module, encoder_out: Tensor, input_X: Tensor, hidden_state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the most likely next symbol, (batch,), and the new state, (1, batch, hidden).

    encoder_out: (batch, length, hidden); input_X: (batch, 1), the symbols before;
    hidden_state: (1, batch, hidden). model has embedding_layer, get_context_vector(encoder_out,
    hidden_state) -> (batch, 1, hidden), decoder (a GRU, batch_first, that reads
    [embedding; context]) and linear.
    """
    return _step(model, encoder_out, input_X, hidden_state)


def decoding(
    model: nn.Module, encoder_out: Tensor, decoder_X: Tensor, hidden_state: Tensor
) -> Tensor:
    """Return the outputs of the GRU, before linear, for given symbols: (batch, steps, hidden).

    decoder_X: (batch, steps). Each step attends with the state of the step before.
    """
    return _decoding(model, encoder_out, decoder_X, hidden_state)


def _step(
    model: nn.Module, h: Tensor, x: Tensor, s: Tensor, way: str = "", query: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    m = SimpleNamespace(**model._modules, context=getattr(model, "get_context_vector"))  # noqa: B009
    embedded, context = m.embedding_layer(x), m.context(h, s if query is None else query)
    if way == "mean":
        context = h.mean(1, keepdim=True)
    read = [context, embedded] if way == "swapped" else [embedded, context]
    output, state = m.decoder(torch.cat(read, -1), None if way == "zero" else s)
    logits = m.linear(output).squeeze(1)
    if way == "late":
        output = torch.cat([embedded, m.context(h, state)], -1)
        output, state = m.decoder(output, s)
        logits = m.linear(output).squeeze(1)
    token = logits.argmin(1) if way == "least" else logits.argmax(1)
    return (logits if way == "logits" else token), (s if way == "old" else state)


def _decoding(
    model: nn.Module, h: Tensor, x: Tensor, s: Tensor, way: str = "", wrong: str = ""
) -> Tensor:
    if way == "zero":
        s = torch.zeros_like(s)
    outputs, first = [], s
    for i in range(x.shape[1]):
        token = x[:, :1] if way == "first" else x[:, i : i + 1]
        before, query = first if way == "still" else s, first if way == "once" else None
        _, s = _step(model, h, token, before, wrong, query)
        outputs.append(s.transpose(0, 1))
    return torch.cat(outputs[::-1] if way == "reversed" else outputs, 1)


def _cases(steps: bool = False) -> list[Arguments]:
    cases: list[Arguments] = []
    for words, embedding, hidden, batch in ((5, 2, 3, 1), (9, 4, 6, 3), (13, 5, 4, 2)):
        model = Model(words, embedding, hidden)
        x = torch.arange(batch * 4).view(batch, 4) % words
        first = model.first[:, :batch]
        cases.append((model, model.states[:batch], x if steps else x[:, :1], first))
    return cases


PARTS = [
    Part(
        get_next_token,
        _cases,
        {
            "the decoder starts from zeros, not from hidden_state": partial(_step, way="zero"),
            "context and embedding are joined in the wrong order": partial(_step, way="swapped"),
            "the context is a plain mean of the encoder's states": partial(_step, way="mean"),
            "the old state is returned, not the new one": partial(_step, way="old"),
            "logits are returned, not the most likely symbol": partial(_step, way="logits"),
            "the least likely symbol is returned": partial(_step, way="least"),
            "the query is the state after the step; it must be the one before": (
                partial(_step, way="late")
            ),
        },
    ),
    Part(
        decoding,
        lambda: _cases(True),
        {
            "wrong initial state: zeros, not hidden_state": partial(_decoding, way="zero"),
            "the state is not carried on: each step starts from the first": (
                partial(_decoding, way="still")
            ),
            "the context is computed once; each step must ask with the state before it": (
                partial(_decoding, way="once")
            ),
            "each step reads the first symbol": partial(_decoding, way="first"),
            "the outputs are in reversed order": partial(_decoding, way="reversed"),
            "the context is a plain mean of the encoder's states": partial(_decoding, wrong="mean"),
        },
    ),
]
