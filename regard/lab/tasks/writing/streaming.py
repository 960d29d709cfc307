"""Generate texts token by token, and recompute the attention weights of generated texts."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.alignment import of_source
from regard.analysis.layer_attention import LayerAttention, heads, looked, must_be_few
from regard.analysis.record import Recording, record, table
from regard.core.errors import RegardError
from regard.decoding import Limits as Lengths
from regard.decoding import Sliding, Writer
from regard.decoding.sampling import nucleus, pick
from regard.decoding.shifted import Shifted
from regard.decoding.stepwise import BEGIN, begun, without
from regard.training.batches import pad

END, FIRST = "[END]", "[BEGIN]"
LONGEST = 10_000  # maximum tokens, above the limit of any task


class Piece(NamedTuple):
    """A written token with its probability and id, and the text so far.

    ``end`` marks the end symbol. ``id`` is None for a text that is written in one step.
    """

    token: str
    probability: float
    text: str
    id: int | None = None
    end: bool = False


class NextWord(NamedTuple):
    """A candidate for the next word: its token, probability and id."""

    token: str
    probability: float
    id: int


class Drawing(NamedTuple):
    """Settings of token choice: greedy at temperature 0, else sampling as in `decoding.sample`.

    ``most``: maximum number of tokens.
    """

    most: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class WriteRequest(NamedTuple):
    """The input of a generating model, and the decoding of its tokens.

    ``ends``: the tokens that end a text. ``begin``: the token that a written text begins with.
    ``behind``: True if a decoder continues the input in one text, False if it writes another text.
    The writer's ids are ``shift`` above the model's own. Beyond ``context`` tokens (0: no limit) it
    generates with a sliding window, `regard.decoding.Sliding`.
    """

    source: NDArray[np.integer]
    ends: tuple[int, ...]
    vocabulary: int
    lengths: Lengths
    names: Callable[[Sequence[int]], list[str]]
    text: Callable[[Sequence[int]], str]
    behind: bool = False
    shift: int = 0
    context: int = 0
    begin: int = BEGIN

    def writer(self, model: Writer) -> Writer:
        """Return the writer for this text: the model, with a window if there is a context."""
        return Sliding(model, self.context) if self.context else model

    def window(self, kept: int) -> int:
        """Return the number of tokens in the window after ``kept`` written tokens."""
        size, most = len(self.source), self.context or math.inf
        for _ in range(kept):
            size = size + 1 if size < most else int(most) // 2
        return size

    def piece(self, written: Sequence[int], chance: float) -> Piece:
        """Return the last written token with the text so far."""
        ended = written[-1] in self.ends
        text = self.text(written[:-1] if ended else written)
        return Piece(self.named(written)[-1], chance, text, written[-1], ended)

    def named(self, written: Sequence[int]) -> list[str]:
        """Return the tokens of a text, which may end with the end symbol, in readable form."""
        ended = bool(written) and written[-1] in self.ends
        return [*self.names(written[:-1]), END] if ended else self.names(written)


class Reread(NamedTuple):
    """A written text token by token, with the attention weights of the model that wrote it.

    ``read``: number of prompt tokens if the text continues the prompt, else None. ``layers`` are
    those of the window of the last token. If the text exceeds the context, ``read`` is reduced by
    the tokens before the window, and may be negative.
    """

    pieces: list[Piece]
    layers: list[LayerAttention]
    read: int | None


def answered(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return a text that was written token by token in the form of `Text.json`.

    >>> answered([Piece("a", 0.5, "a", 7), Piece("[END]", 1.0, "a", 3, True)])["written"]
    'a'
    """
    return {
        "written": pieces[-1].text if pieces else "",
        "log_probability": sum(math.log(max(piece.probability, 1e-300)) for piece in pieces),
        "ended": not pieces or pieces[-1].end,
    }


def write(
    model: Writer,
    request: WriteRequest,
    drawing: Drawing,
    computing: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> Iterator[Piece]:
    """Yield a text token by token, with each step inside the context ``computing``."""
    with computing():  # not around a yield, where it would be active in the caller
        tokens, sizes = pad([request.source + request.shift])
        writing = request.writer(model).start(tokens, sizes)
        places = torch.Generator().manual_seed(drawing.seed)
        last, written = begun(1), list[int]()
    for _ in range(int(request.lengths.of(sizes)[0])):
        with computing():
            logs = without(writing.step(last)[:, 0], request.ends, False)
            last = _choose(logs, drawing, places)
            chance = math.exp(float(logs[0, int(last)]))
        written.append(int(last) - request.shift)
        piece = request.piece(written, chance)
        yield piece
        if piece.end:
            return


@torch.no_grad()
def next_words(model: nn.Module, request: WriteRequest, count: int = 5) -> list[NextWord]:
    """Return the likeliest first words that the model writes, and their probabilities.

    Empty for a text without tokens.
    """
    if not len(request.source):
        return []
    tokens, sizes = pad([request.source + request.shift])
    writing = request.writer(_shifted(model, request)).start(tokens, sizes)
    logs = without(writing.step(begun(1))[0, 0], request.ends, False)
    best = logs.topk(min(count, request.vocabulary))
    pairs = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
    return [
        NextWord(request.named([i - request.shift])[0], chance, i - request.shift)
        for i, chance in pairs
        if chance > 0
    ]


def _shifted(model: nn.Module, request: WriteRequest) -> Writer:
    writer = cast(Writer, model)
    return Shifted(writer, request.begin) if request.shift else writer


def _choose(chances: Tensor, drawing: Drawing, places: torch.Generator) -> Tensor:
    if drawing.temperature == 0:
        return chances.argmax(-1, keepdim=True)
    shares, words = nucleus(chances, drawing.temperature, drawing.top_k, drawing.top_p)
    place = torch.rand(1, 1, generator=places, dtype=shares.dtype)
    return words.gather(1, pick(shares, place))


def reread(model: nn.Module, request: WriteRequest, written: Sequence[int]) -> Reread:
    """Recompute attention weights and token probabilities of a written text in one pass.

    A causal model sees the same tokens at each position as when it wrote there, so the weights
    equal those of writing up to float32 rounding. For a text that exceeds the context, the pass
    covers the last window, and the probabilities are recomputed step by step.

    Raises: ids that are not tokens of the model; more tokens than the limit for this text; more
    weights than `analysis.layer_attention.at_most` allows.
    """
    written = list(written)
    _check(request, written)
    source = torch.from_numpy(request.source.astype(np.int64))[None]
    content = written[:-1] if written and written[-1] in request.ends else written
    size = request.window(len(content))
    if request.behind and size < source.shape[1] + len(content):
        return _reread_window(model, request, written, content, size)
    with torch.no_grad(), record(model) as recording:
        if request.behind:
            tokens = torch.tensor([[*source[0].tolist(), *content]])
            states = model(tokens)[:, source.shape[1] - 1 :][:, : len(written)]
            layers = looked(recording, request.names(tokens[0].tolist()))
        else:
            decoder_input = torch.tensor([[request.begin, *written[:-1]]])
            states = model(source, torch.tensor([source.shape[1]]), decoder_input)[
                :, : len(written)
            ]
            layers = _both(recording, request, written)
        logits = F.pad(cast(Any, model).to_logits(states[0]), (request.shift, 0))
        logs = without(logits, request.ends, False)
    chances = logs.gather(1, torch.tensor(written, dtype=torch.long)[:, None] + request.shift).exp()
    pieces = _pieces(request, written, chances[:, 0].tolist())
    return Reread(pieces, layers, source.shape[1] if request.behind else None)


def _reread_window(
    model: nn.Module, request: WriteRequest, written: Sequence[int], kept: Sequence[int], size: int
) -> Reread:
    """Recompute a text that exceeds the context, with weights of its last ``size`` tokens."""
    whole = [*request.source.tolist(), *kept]
    with torch.no_grad():
        source, sizes = pad([request.source + request.shift])
        writing = request.writer(_shifted(model, request)).start(source, sizes)
        tokens, chances = begun(1), list[float]()
        for token in written:
            logs = without(writing.step(tokens)[0, 0], request.ends, False)
            tokens = torch.tensor([[token + request.shift]])
            chances.append(math.exp(float(logs[token + request.shift])))
        with record(model) as recording:
            model(torch.tensor([whole[-size:]]))
    pieces = _pieces(request, written, chances)
    layers = looked(recording, request.names(whole[-size:]))
    return Reread(pieces, layers, len(request.source) - (len(whole) - size))


def _pieces(request: WriteRequest, written: Sequence[int], chances: Sequence[float]) -> list[Piece]:
    return [request.piece(written[:count], chance) for count, chance in enumerate(chances, 1)]


def _check(request: WriteRequest, written: Sequence[int]) -> None:
    if not len(request.source):
        raise RegardError("the text has no tokens; give a text with at least one")
    if not written and not request.behind:
        raise RegardError("written has no tokens; leave it out")
    least = 0 if request.shift else BEGIN + 1
    for place, token in enumerate(written, 1):
        early = token in request.ends and place < len(written)
        if early or not least <= token < request.vocabulary:
            raise RegardError(
                f"written: the model cannot write token {token} at position {place}; give the ids "
                "that /generate returns"
            )
    most, count = int(request.lengths.of([len(request.source)])[0]), len(written)
    if count - (count > 0 and written[-1] in request.ends) > most:
        raise RegardError(f"written may have at most {most} tokens for this text, not {count}")


def _both(
    recording: Recording, request: WriteRequest, written: Sequence[int]
) -> list[LayerAttention]:
    """Return the self-attention of encoder and decoder, and the cross-attention."""
    must_be_few(recording)
    reads = request.names(request.source.tolist())
    names = request.named(written)
    across, layers = of_source(recording, 1), dict[str, LayerAttention]()
    for name, seen in recording.layers:
        if name in layers:  # a recurrent model is recorded once for each token
            continue
        if name in across:
            layers[name] = LayerAttention(name, reads, across[name][0].numpy(), names)
        else:
            own = [FIRST, *names[:-1]] if name.startswith("decoder") else reads
            layers[name] = LayerAttention(name, own, heads(table(seen)))
    return list(layers.values())
