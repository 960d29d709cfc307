"""GRU encoder-decoders: without attention, of Bahdanau et al. 2015 and of Luong et al. 2015.

All are one class; its settings choose when the decoder attends, with which score, and the input of
the output layer.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, KeyValueCache, Mask, make_score
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import PAD, WordEmbedding, inside, padding
from regard.nn.layers.recurrent import Bidirectional
from regard.nn.layers.vocabulary import WordLogits
from regard.nn.models.settings import Seq2SeqSettings


class Seq2Seq(nn.Module):
    """An encoder and a decoder of one GRU layer each, with or without attention.

    The decoder starts with the encoder's last state, or with ``bidirectional`` with s_0 = tanh(W
    ←h_1) (Bahdanau et al. 2015, A.2.2). Each step reads the previous word and predicts the next.
    ``attend_step`` chooses its attention:

    * "none": no attention. Sutskever et al. 2014.
    * "previous": c_t = attend(s_{t−1}), s_t = GRU([y_{t−1}, c_t], s_{t−1}). Bahdanau et al. 2015,
      equations 5 and 6 and A.2.2; with a bilinear score the model of the course's lab 6.
    * "current": h_t = GRU(y_{t−1}, h_{t−1}), c_t = attend(h_t). Luong et al. 2015, section 3.

    ``readout`` chooses the input of the output layer:

    * "state": the decoder's state.
    * "maxout": maxout of state, previous word and context. Bahdanau et al. 2015, A.2.2, with s_t,
      on which p(y_t) is conditioned there, in place of s_{t−1} in t̃_t.
    * "joined": h̃_t = tanh(W_c [c_t; h_t]). Luong et al. 2015, equation 5.

    Args:
        settings: ``start`` chooses the vector of the start symbol: "zeros", or "learned", as in the
            course's lab 6; for ``attend_step`` and ``readout`` see above.
        source_vocabulary: The number of words of the source.
        target_vocabulary: The number of words of the target.

    Shape:
        source: (batch, read)
        source_lengths: (batch,)
        target: (batch, written): the start symbol (0), then all words but the last.
        target_lengths: (batch,)
        output: (batch, written, hidden), or (words, hidden) with ``target_lengths``

    Returns:
        The states from which `to_logits` predicts each word, given the words before it.

    Raises:
        RegardError: The settings do not fit together, or name an unknown score.

    Source:
        Sutskever et al. 2014; Bahdanau et al. 2015, equations 5 and 6 and A.2.2; Luong et al. 2015,
        section 3 and equation 5.

    Example:
        >>> settings = Seq2SeqSettings(width=6, hidden=8, attend_step="previous", score="additive")
        >>> model = Seq2Seq(settings, 11, 12)
        >>> source, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
        >>> model.to_logits(model(source, lengths, torch.tensor([[0, 9], [0, 3]]))).shape
        torch.Size([2, 2, 12])
    """

    def __init__(
        self, settings: Seq2SeqSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        self.attend_step, self.readout = settings.attend_step, settings.readout
        self.dropout = settings.dropout
        width, hidden = settings.width, settings.hidden

        def words(count: int) -> WordEmbedding:
            return WordEmbedding(count, width, init_std=settings.init_std, dropout=settings.dropout)

        self.source = words(source_vocabulary)
        self.target = self.source if settings.tie else words(target_vocabulary)
        self.encoder = Encoder(width, hidden, bidirectional=settings.bidirectional)
        context = hidden if settings.attend_step != "none" else 0
        if context:
            reach = 2 * settings.length + 1  # the target may be twice as long as the source
            score = make_score(settings.score, "none", hidden, hidden, length=reach)
            self.attention = Attention(score, settings.normalize, settings.attention_dropout)
        self.decoder = nn.GRU(
            width + (context if settings.attend_step == "previous" else 0), hidden, batch_first=True
        )
        if self.readout == "maxout":
            self.join = nn.Linear(hidden + width + context, 2 * hidden)
        elif self.readout == "joined":
            self.join = nn.Linear(hidden + context, hidden)
        self.to_logits = nn.Linear(hidden, target_vocabulary)
        learned = settings.start == "learned"
        self.begin = nn.Parameter(torch.randn(width) * settings.init_std) if learned else None

    def forward(
        self,
        source: Int[Tensor, "batch read"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch written"],
        target_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "*batch_written hidden"]:
        """Return states from which `to_logits` predicts each word, given the words before it.

        ``target`` begins with the start symbol (0) and ends before the last word. With
        ``target_lengths`` the states of padding are left out and the texts joined: (words, hidden).
        """
        states = self.start(source, source_lengths).read(target, None)
        if target_lengths is None:
            return states
        return states[inside(target_lengths, target.shape[1])]

    def logit_parts(
        self, states: Float[Tensor, "*batch hidden"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, hidden) and bias: logits = states @ matrixᵀ + bias."""
        return states, self.to_logits.weight, self.to_logits.bias

    def encode(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch read hidden"]:
        """Return the memory, the encoder's states, which are zeros for padding."""
        memory: Tensor = self.encoder(self.source(source, source_lengths), source_lengths)[0]
        return memory

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the source, and return a decoder that generates step by step."""
        memory, state = self.encoder(self.source(source, source_lengths), source_lengths)
        return Writing(self, memory, source_lengths, state[:, None])


class Encoder(nn.Module):
    """A GRU that returns states (batch, time, hidden) and the decoder's initial state."""

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
        """Return the states, which are zeros for padding, and the decoder's initial state."""
        if self.both is not None:
            memory: Tensor = self.both(x, lengths)
            backward = memory[:, 0, memory.shape[2] // 2 :]
            return memory, torch.tanh(self.to_state(backward))
        memory = self.one(x)[0] * inside(lengths, x.shape[1])[..., None]
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, memory.shape[2])
        return memory, memory.gather(1, last)[:, 0]


class Writing:
    """A batch of texts being generated; each step reads the words chosen last.

    The rows of a step are the beams of a text and share its memory.
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
        self.logits = WordLogits(model)
        self.prepared = KeyValueCache(fixed=True)

    @property
    def mask(self) -> Mask | None:
        """Return the mask of the source's words."""
        return padding(self.lengths, self.memory.shape[1])

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return the logits of the next words.

        ``parents``: for each row, the row of the previous step that it continues.
        """
        model, (batch, rows) = self.model, tokens.shape
        state = self.state
        if parents is not None:
            state = state.gather(1, parents[..., None].expand(-1, -1, state.shape[2]))
        words = self._embed(tokens)
        context = None
        positions = torch.full((rows,), self.steps, device=tokens.device)
        self.steps += 1
        if model.attend_step == "previous":
            context = self._attend(state, positions)
            inputs = torch.cat([words, context], -1)
        else:
            inputs = words
        flat = inputs.reshape(batch * rows, 1, -1)
        state = model.decoder(flat, state.reshape(1, batch * rows, -1))[0].view(batch, rows, -1)
        self.state = state
        if model.attend_step == "current":
            context = self._attend(state, positions)
        logits: Tensor = self.logits(self._readout(state, words, context))
        return logits

    def read(self, tokens: Int[Tensor, "batch time"], parents: None) -> Tensor:
        """Read known words, all at once if possible, and return the output layer's input."""
        model, words, context = self.model, self._embed(tokens), None
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        if model.attend_step == "previous":
            states, contexts, state = [], [], self.state
            for word, time in zip(words.split(1, 1), positions.split(1), strict=True):
                contexts.append(self._attend(state, time))
                inputs = torch.cat([word, contexts[-1]], -1)
                state = model.decoder(inputs, state.transpose(0, 1).contiguous())[0]
                states.append(state)
            output, context = torch.cat(states, 1), torch.cat(contexts, 1)
        else:
            output = model.decoder(words, self.state.transpose(0, 1).contiguous())[0]
            if model.attend_step == "current":
                context = self._attend(output, positions)
        return self._readout(output, words, context)

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Drop all texts but these."""
        self.memory, self.state = self.memory[rows], self.state[rows]
        self.lengths = self.lengths[rows]
        self.prepared.keep(rows)

    def _embed(self, tokens: Tensor) -> Tensor:
        lengths = torch.full((tokens.shape[0],), tokens.shape[1], device=tokens.device)
        model = self.model
        words: Tensor = model.target(tokens, lengths)
        if model.begin is not None:  # its symbol is the padding's, whose vector is zero
            begin = drop(model.begin.expand_as(words), model.dropout, model.training)
            words = torch.where(tokens[..., None] == PAD, begin, words)
        return words

    def _attend(
        self, queries: Float[Tensor, "batch rows hidden"], positions: Int[Tensor, " rows"]
    ) -> Tensor:
        memory = self.memory[:, : 0 if len(self.prepared) else None]
        attended = self.model.attention(
            queries, memory, memory, self.mask, query_positions=positions, cache=self.prepared
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
