"""A GRU reads, a GRU writes, and attention may look back: from a state that forgets to Luong.

Every form is one class by its settings: who asks (the state before a word is written, or after),
with which score, and what the words are read out of.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, KeyValueCache, Mask, make_score
from regard.attention import lengths as up_to
from regard.layers.dropout import drop
from regard.layers.embedding import WordEmbedding, inside
from regard.layers.recurrent import Bidirectional
from regard.models.settings import Seq2SeqSettings


class Seq2Seq(nn.Module):
    """Encoder and decoder of one GRU layer each, with attention of any score, or without.

    The encoder's last state (``bidirectional``: s_0 = tanh(W ←h_1), Bahdanau et al. 2015, A.2.2;
    then the other direction serves attention alone) starts the decoder, which reads the word before
    and writes the next. Beside that

    * ``asks="nobody"``: the state is all it knows. Sutskever et al. 2014.
    * ``asks="before"``: c_t = attend(s_{t−1}), s_t = GRU([y_{t−1}, c_t], s_{t−1}). Bahdanau et al.
      2015, equations 5 and 6 and A.2.2; with a bilinear score the form of the seed's lab 6.
    * ``asks="after"``: h_t = GRU(y_{t−1}, h_{t−1}), c_t = attend(h_t). Luong et al. 2015, part 3.

    ``readout``: logits of the "state" alone; "maxout" of state, word before and context (Bahdanau
    et al. 2015, A.2.2, with s_t, by which p(y_t) is conditioned there, where t̃_t has s_{t−1});
    "joined", of h̃_t = tanh(W_c [c_t; h_t]) (Luong et al. 2015, equation 5).

    >>> settings = Seq2SeqSettings(width=6, hidden=8, asks="before", score="additive")
    >>> model = Seq2Seq(settings, 11, 12)
    >>> source, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
    >>> model.to_logits(model(source, lengths, torch.tensor([[0, 9], [0, 3]]))).shape
    torch.Size([2, 2, 12])
    """

    def __init__(
        self, settings: Seq2SeqSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        self.asks, self.readout, self.dropout = settings.asks, settings.readout, settings.dropout
        width, hidden = settings.width, settings.hidden

        def words(count: int) -> WordEmbedding:
            return WordEmbedding(count, width, spread=settings.spread, dropout=settings.dropout)

        self.source = words(source_vocabulary)
        self.target = self.source if settings.tie else words(target_vocabulary)
        self.encoder = Encoder(width, hidden, bidirectional=settings.bidirectional)
        context = hidden if settings.asks != "nobody" else 0
        if context:
            reach = 2 * settings.length + 1  # what is written may be twice what is read
            score = make_score(settings.score, "none", hidden, hidden, length=reach)
            self.attention = Attention(score, settings.normalize, settings.attention_dropout)
        self.decoder = nn.GRU(
            width + (context if settings.asks == "before" else 0), hidden, batch_first=True
        )
        if self.readout == "maxout":
            self.join = nn.Linear(hidden + width + context, 2 * hidden)
        elif self.readout == "joined":
            self.join = nn.Linear(hidden + context, hidden)
        self.to_logits = nn.Linear(hidden, target_vocabulary)

    def forward(
        self,
        source: Int[Tensor, "batch read"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch written"],
        target_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "*batch_written hidden"]:
        """What each word is read out of (`to_logits`), given the true words before it.

        ``target`` begins with the start symbol (0) and ends before the last word. Given its
        lengths, the states of the real words alone, one text behind the other: (words, hidden).
        """
        states = self.start(source, source_lengths).read(target, None)
        if target_lengths is None:
            return states
        return states[inside(target_lengths, target.shape[1])]

    def logit_parts(
        self, states: Float[Tensor, "*batch hidden"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """States, matrix (words, hidden) and bias with logits = states @ matrixᵀ + bias."""
        return states, self.to_logits.weight, self.to_logits.bias

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the source; what then writes, step by step, shares its memory among beams."""
        memory, state = self.encoder(self.source(source, source_lengths), source_lengths)
        return Writing(self, memory, source_lengths, state[:, None])


class Encoder(nn.Module):
    """States of the source (batch, time, hidden), and the state that the decoder begins with."""

    def __init__(self, width: int, hidden: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.both: Bidirectional | None = None
        if bidirectional:
            self.both = Bidirectional(width, hidden // 2, kind=nn.GRU)
            self.to_state = nn.Linear(hidden // 2, hidden)
        else:
            self.one = nn.GRU(width, hidden, batch_first=True)

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        """States are zeros on padding; of a source without words all are."""
        if self.both is not None:
            memory: Tensor = self.both(x, lengths)
            backward = memory[:, 0, memory.shape[2] // 2 :]
            return memory, torch.tanh(self.to_state(backward))
        memory = self.one(x)[0] * inside(lengths, x.shape[1])[..., None]
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, memory.shape[2])
        return memory, memory.gather(1, last)[:, 0]


class Writing:
    """A batch of texts being written: each step reads the words chosen last.

    ``parents`` says for each row of a step which row of the step before it goes on from, so a beam
    is nothing but rows, and nothing of the past is copied.
    """

    def __init__(
        self,
        model: Seq2Seq,
        memory: Tensor,
        lengths: Tensor,
        state: Float[Tensor, "batch 1 hidden"],
    ) -> None:
        self.model, self.memory, self.state = model, memory, state
        self.lengths, self.steps = lengths, 0
        self.prepared = KeyValueCache(fixed=True)

    @property
    def mask(self) -> Mask:
        """What may be looked at: the words of the source."""
        return up_to(self.lengths)

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Logits of the words after these."""
        model, (batch, rows) = self.model, tokens.shape
        state = self.state
        if parents is not None:
            state = state.gather(1, parents[..., None].expand(-1, -1, state.shape[2]))
        words = self._embed(tokens)
        context = None
        positions = torch.full((rows,), self.steps, device=tokens.device)
        self.steps += 1
        if model.asks == "before":
            context = self._look(state, positions)
            words_in = torch.cat([words, context], -1)
        else:
            words_in = words
        flat = words_in.reshape(batch * rows, 1, -1)
        state = model.decoder(flat, state.reshape(1, batch * rows, -1))[0].view(batch, rows, -1)
        self.state = state
        if model.asks == "after":
            context = self._look(state, positions)
        logits: Tensor = model.to_logits(self._readout(state, words, context))
        return logits

    def read(self, tokens: Int[Tensor, "batch time"], parents: None) -> Tensor:
        """Read words that are known, all at once where the form allows it; what to read out of."""
        model, words, context = self.model, self._embed(tokens), None
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        if model.asks == "before":
            states, contexts, state = [], [], self.state
            for word, time in zip(words.split(1, 1), positions.split(1), strict=True):
                contexts.append(self._look(state, time))
                whole = torch.cat([word, contexts[-1]], -1)
                state = model.decoder(whole, state.transpose(0, 1).contiguous())[0]
                states.append(state)
            found, context = torch.cat(states, 1), torch.cat(contexts, 1)
        else:
            found = model.decoder(words, self.state.transpose(0, 1).contiguous())[0]
            if model.asks == "after":
                context = self._look(found, positions)
        return self._readout(found, words, context)

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on with these texts alone."""
        self.memory, self.state = self.memory[rows], self.state[rows]
        self.lengths = self.lengths[rows]
        self.prepared.keep(rows)

    def _embed(self, tokens: Tensor) -> Tensor:
        every = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        words: Tensor = self.model.target(tokens, every)
        return words

    def _look(
        self, asking: Float[Tensor, "batch rows hidden"], positions: Int[Tensor, " rows"]
    ) -> Tensor:
        memory = self.memory[:, : 0 if len(self.prepared) else None]
        attended = self.model.attention(
            asking, memory, memory, self.mask, query_positions=positions, cache=self.prepared
        )
        output: Tensor = attended.output
        return output

    def _readout(self, state: Tensor, words: Tensor, context: Tensor | None) -> Tensor:
        model = self.model
        if model.readout == "state":
            return drop(state, model.dropout, model.training)
        parts = [state] + ([words] if model.readout == "maxout" else [])
        joined = model.join(torch.cat(parts + ([] if context is None else [context]), -1))
        if model.readout == "joined":
            joined = torch.tanh(joined)
        else:
            joined = joined.unflatten(-1, (-1, 2)).amax(-1)
        return drop(joined, model.dropout, model.training)
