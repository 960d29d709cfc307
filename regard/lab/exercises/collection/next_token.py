"""One step of a GRU decoder with attention, and a whole decoding (document 001)."""

from typing import Any

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
    m: Any = model
    embedding = m.embedding_layer(input_X)
    context = m.get_context_vector(encoder_out, hidden_state)
    output, new = m.decoder(torch.cat([embedding, context], -1), hidden_state)
    return m.linear(output).squeeze(1).argmax(1), new


def decoding(
    model: nn.Module, encoder_out: Tensor, decoder_X: Tensor, hidden_state: Tensor
) -> Tensor:
    """Return the outputs of the GRU, before linear, for given symbols: (batch, steps, hidden).

    decoder_X: (batch, steps). Each step attends with the state of the step before.
    """
    m: Any = model
    outputs: list[Tensor] = []
    for x in decoder_X.split(1, 1):
        context = m.get_context_vector(encoder_out, hidden_state)
        read = torch.cat([m.embedding_layer(x), context], -1)
        output, hidden_state = m.decoder(read, hidden_state)
        outputs.append(output)
    return torch.cat(outputs, 1)


def _cases(steps: int) -> list[Arguments]:
    cases: list[Arguments] = []
    for words, embedding, hidden, batch in ((5, 2, 3, 1), (9, 4, 6, 3), (13, 5, 4, 2)):
        model = Model(words, embedding, hidden)
        x = torch.arange(batch * 4).view(batch, 4) % words
        cases.append((model, model.states[:batch], x[:, :steps], model.first[:, :batch]))
    return cases


PARTS = [
    Part(get_next_token, lambda: _cases(1), {
        "the decoder starts from zeros, not from hidden_state": ("-1), hidden_state)", "-1))"),
        "context and embedding have the wrong order":
            ("embedding, context]", "context, embedding]"),
        "the context is a plain mean of the encoder's states":
            ("m.get_context_vector(encoder_out, hidden_state)", "encoder_out.mean(1, True)"),
        "the old state is returned, not the new one": ("(1), new", "(1), hidden_state"),
        "logits are returned, not the most likely symbol": (".argmax(1)", ""),
        "the least likely symbol is returned": ("argmax", "argmin"),
        "the query is the state after the step; it must be the one before":
            ("vector(encoder_out, hidden_state)",
             "vector(encoder_out, get_next_token(model, encoder_out, input_X, hidden_state)[1])"),
    }),
    Part(decoding, lambda: _cases(4), {
        "wrong initial state: zeros, not hidden_state":
            ("m:", "hidden_state = 0 * hidden_state; m:"),
        "the state is not carried on: each step starts from the first":
            ("output, hidden_state =", "output, _ ="),
        "the context is computed once; each step must ask with the state before it":
            ("context = m", "context = context if outputs else m"),
        "each step reads the first symbol": ("layer(x)", "layer(decoder_X[:, :1])"),
        "the outputs are in reversed order": ("cat(outputs", "cat(outputs[::-1]"),
        "the context is a plain mean of the encoder's states":
            ("m.get_context_vector(encoder_out, hidden_state)", "encoder_out.mean(1, True)"),
    }),
]  # fmt: skip
