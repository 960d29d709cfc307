"""Texts token by token, and what the model looked at while it wrote them."""

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
from regard.data.batches import pad
from regard.decoding import Limits as Lengths
from regard.decoding import Sliding, Writer
from regard.decoding.sampling import nucleus, pick
from regard.decoding.shifted import Shifted
from regard.decoding.stepwise import BEGIN, begun, without
from regard.errors import RegardError

END, FIRST = "[END]", "[BEGIN]"
LONGEST = 10_000  # tokens: as many as a model writes


class Piece(NamedTuple):
    """A token that was written, its probability and its number, and the text as it now stands.

    The last token of a text that ends by itself is its ``end``. Without a number: a text that is
    written all at once.
    """

    token: str
    probability: float
    text: str
    id: int | None = None
    end: bool = False


class Drawing(NamedTuple):
    """How tokens are chosen: at temperature 0 the likeliest, else drawn as `decoding.sample` does.

    ``most``: tokens at most.
    """

    most: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class WriteRequest(NamedTuple):
    """What a model is given to write from, and how its tokens are read.

    ``behind``: what is written stands behind what is read, in one text (a decoder alone); else it
    is another text. The writer takes and tells numbers ``shift`` above the model's own. Past a
    ``context`` of so many tokens (0: never) it writes by a window, `regard.decoding.Sliding`.
    """

    source: NDArray[np.integer]
    end: int
    vocabulary: int
    lengths: Lengths
    names: Callable[[Sequence[int]], list[str]]
    text: Callable[[Sequence[int]], str]
    behind: bool = False
    shift: int = 0
    context: int = 0

    def writer(self, model: Writer) -> Writer:
        """The model, as it writes this text."""
        return cast(Writer, Sliding(model, self.context)) if self.context else model

    def window(self, kept: int) -> int:
        """How many of the last tokens are read behind so many that were written."""
        size, most = len(self.source), self.context or math.inf
        for _ in range(kept):
            size = size + 1 if size < most else int(most) // 2
        return size

    def piece(self, written: Sequence[int], chance: float) -> Piece:
        """The last of the tokens written, and the text as it stands with it."""
        ended = written[-1] == self.end
        text = self.text(written[:-1] if ended else written)
        return Piece(self.named(written[-1]), chance, text, written[-1], ended)

    def named(self, token: int) -> str:
        """A written token as it can be read."""
        return END if token == self.end else self.names([token])[0]


class Reread(NamedTuple):
    """A text that was written, token by token, and what the model looked at as it wrote them.

    ``read``: how many tokens of the one text were read before any was written; None where what is
    written is another text. ``layers`` are those of the window in which the last token was
    written: of a text longer than the context, ``read`` is less by the tokens before it, and may
    be negative.
    """

    pieces: list[Piece]
    layers: list[LayerAttention]
    read: int | None


def answered(pieces: Sequence[Piece]) -> dict[str, Any]:
    """A text that was written as `Text.json` tells it.

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
    asked: WriteRequest,
    drawing: Drawing,
    computing: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> Iterator[Piece]:
    """A text token by token, each step for itself and inside ``computing``."""
    with computing():  # not around a yield, where it would be the caller's too
        tokens, sizes = pad([asked.source + asked.shift])
        writing = asked.writer(model).start(tokens, sizes)
        places = torch.Generator().manual_seed(drawing.seed)
        last, written = begun(1), list[int]()
    for _ in range(int(asked.lengths.of(sizes)[0])):
        with computing():
            logs = without(writing.step(last)[:, 0], asked.end + asked.shift, False)
            last = _choose(logs, drawing, places)
            chance = math.exp(float(logs[0, int(last)]))
        written.append(int(last) - asked.shift)
        piece = asked.piece(written, chance)
        yield piece
        if piece.end:
            return


def _choose(chances: Tensor, drawing: Drawing, places: torch.Generator) -> Tensor:
    if drawing.temperature == 0:
        return chances.argmax(-1, keepdim=True)
    shares, words = nucleus(chances, drawing.temperature, drawing.top_k, drawing.top_p)
    place = torch.rand(1, 1, generator=places, dtype=shares.dtype)
    return words.gather(1, pick(shares, place))


def reread(model: nn.Module, asked: WriteRequest, written: Sequence[int]) -> Reread:
    """Lead the model once through what it read and wrote: all its weights, and each token's p.

    A causal model sees at each place what it saw when it wrote there, so these are the weights it
    wrote with, to the rounding of float32. Of a text that went past the context it is led through
    the last window, and the tokens' probabilities are found as it wrote them, step by step.

    Errors: numbers that are no tokens of the model; more than it writes for this text; more
    weights than `analysis.layer_attention.at_most` takes.
    """
    written = list(written)
    _check(asked, written)
    source = torch.from_numpy(asked.source.astype(np.int64))[None]
    kept = written[:-1] if written and written[-1] == asked.end else written
    size = asked.window(len(kept))
    if asked.behind and size < source.shape[1] + len(kept):
        return _reread_window(model, asked, written, kept, size)
    with torch.no_grad(), record(model) as recording:
        if asked.behind:
            tokens = torch.tensor([[*source[0].tolist(), *kept]])
            states = model(tokens)[:, source.shape[1] - 1 :][:, : len(written)]
            layers = looked(recording, asked.names(tokens[0].tolist()))
        else:
            given = torch.tensor([[BEGIN, *written[:-1]]])
            states = model(source, torch.tensor([source.shape[1]]), given)[:, : len(written)]
            layers = _both(recording, asked, written)
        logits = F.pad(cast(Any, model).to_logits(states[0]), (asked.shift, 0))
        logs = without(logits, asked.end + asked.shift, False)
    chances = logs.gather(1, torch.tensor(written, dtype=torch.long)[:, None] + asked.shift).exp()
    pieces = _pieces(asked, written, chances[:, 0].tolist())
    return Reread(pieces, layers, source.shape[1] if asked.behind else None)


def _reread_window(
    model: nn.Module, asked: WriteRequest, written: Sequence[int], kept: Sequence[int], size: int
) -> Reread:
    """The last ``size`` tokens of a text that went past the context."""
    whole = [*asked.source.tolist(), *kept]
    writer = cast(Writer, Shifted(cast(Writer, model)) if asked.shift else model)
    with torch.no_grad():
        source, sizes = pad([asked.source + asked.shift])
        writing = asked.writer(writer).start(source, sizes)
        tokens, chances = begun(1), list[float]()
        for token in written:
            logs = without(writing.step(tokens)[0, 0], asked.end + asked.shift, False)
            tokens = torch.tensor([[token + asked.shift]])
            chances.append(math.exp(float(logs[token + asked.shift])))
        with record(model) as recording:
            model(torch.tensor([whole[-size:]]))
    pieces = _pieces(asked, written, chances)
    layers = looked(recording, asked.names(whole[-size:]))
    return Reread(pieces, layers, len(asked.source) - (len(whole) - size))


def _pieces(asked: WriteRequest, written: Sequence[int], chances: Sequence[float]) -> list[Piece]:
    return [asked.piece(written[:count], chance) for count, chance in enumerate(chances, 1)]


def _check(asked: WriteRequest, written: Sequence[int]) -> None:
    if not len(asked.source):
        raise RegardError("there is no token to write behind or for: give a text")
    if not written and not asked.behind:
        raise RegardError("written: there is no token; ask without it")
    least = 0 if asked.shift else BEGIN + 1
    for place, token in enumerate(written, 1):
        early = token == asked.end and place < len(written)
        if early or not least <= token < asked.vocabulary:
            raise RegardError(
                f"written: {token} is no token that this model writes at place {place}; give the "
                "numbers that /generate tells"
            )
    most, count = int(asked.lengths.of([len(asked.source)])[0]), len(written)
    if count - (count > 0 and written[-1] == asked.end) > most:
        raise RegardError(f"written: at most {most} tokens for this text, not {count}")


def _both(
    recording: Recording, asked: WriteRequest, written: Sequence[int]
) -> list[LayerAttention]:
    """Of an encoder and a decoder: each in its own text, and the one in the other's."""
    must_be_few(recording)
    reads = asked.names(asked.source.tolist())
    said = [asked.named(token) for token in written]
    across, found = of_source(recording, 1), dict[str, LayerAttention]()
    for name, seen in recording.layers:
        if name in found:  # a recurrent model asks once for each word
            continue
        if name in across:
            found[name] = LayerAttention(name, reads, across[name][0].numpy(), said)
        else:
            own = [FIRST, *said[:-1]] if name.startswith("decoder") else reads
            found[name] = LayerAttention(name, own, heads(table(seen)))
    return list(found.values())
