"""The task of mapping a text to another: reversed strings, ISO dates, translations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.alignment import source_weights
from regard.analysis.layer_attention import LayerAttention
from regard.attention.packing import places_of
from regard.core.errors import RegardError
from regard.decoding import Limits
from regard.lab.data.data_source import NAMED, Columns, DataSource
from regard.lab.data.examples import Example
from regard.lab.data.pair_files import read_pairs
from regard.lab.data.pairs import Pair, PairCorpus, StreamedPairs
from regard.lab.data.parallel import load_pairs
from regard.lab.data.strings import FIRST, Reversals
from regard.lab.data.tokenizers import Tokenizer, must_be_known
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.settings import SequencesSettings
from regard.lab.tasks.task import must_be_split, no_labels
from regard.lab.tasks.text_baselines import TextBaseline
from regard.lab.tasks.writing.alignment import align
from regard.lab.tasks.writing.encoded import Encoded, PairBatch, paired
from regard.lab.tasks.writing.evaluation import Scored, Text, text_evaluation
from regard.lab.tasks.writing.metrics import bleu, exact_match, language_for
from regard.lab.tasks.writing.searching import Search, Writes, score, write
from regard.nn.layers.cross_entropy import word_loss
from regard.nn.layers.device import evaluation_mode
from regard.training.learnable import Split

METRICS = {"exact": "exact match", "bleu": "BLEU"}
TOO_LONG = "all pairs have more than {} tokens on one side; raise length="
TEACHING = 50_000  # approximate maximum number of pairs for training the tokenizer
LOOKED_AT = 10_000  # pairs checked for unknown tokens


class Sequences(Writes[PairBatch]):
    """A task on text pairs with one tokenizer for both sides; the end symbol has the next id.

    Data are read on first use of a split. With a saved tokenizer, texts can be written without the
    training data.
    """

    settings: SequencesSettings
    metrics = METRICS

    @cached_property
    def corpus(self) -> PairCorpus:
        """Load the pairs in three splits."""
        settings = self.settings
        locales = [name.strip() for name in settings.locales.split(",") if name.strip()]
        return load_pairs(settings.source, letters=settings.letters, locales=locales)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Train the tokenizer on both sides of the training pairs, evenly sampled if many."""
        train = self.corpus.train
        stride = max(1, -(-len(train) // TEACHING))
        pairs = islice(train, 0, None, stride)
        texts = (text for pair in pairs for text in (pair.source, pair.target))
        return self.trained_tokenizer(texts)

    @property
    def end(self) -> int:
        """Return the id of the symbol that ends a text."""
        return len(self.tokenizer)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes for which a network is built."""
        return {"vocabulary": self.end + 1, "labels": 0}

    @cached_property
    def splits(self) -> dict[str, Encoded]:
        """Return the cache of encoded splits."""
        return {}

    def split(self, name: str) -> Encoded:
        """Return a split by name. Raises: most tokens of train are unknown."""
        must_be_split(name)
        if name not in self.splits:
            pairs: Sequence[Pair] | StreamedPairs = getattr(self.corpus, name)
            encoded = self._encoded(pairs, cut=name == "train")
            if name == "train":
                some = (islice(side, LOOKED_AT) for side in (encoded.source, encoded.target))
                must_be_known(chain.from_iterable(some))
            self.splits[name] = encoded
        return self.splits[name]

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.integer]]:
        """Return at most `length` token ids of each text, without surrounding whitespace."""
        return [ids[: self.room] for ids in self.tokenizer.arrays(map(str.strip, texts))]

    def whole(self, text: str) -> NDArray[np.integer]:
        """Return all tokens of a text, before truncation."""
        return next(self.tokenizer.arrays([text.strip()]))

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.integer]:
        """Return the tokens of each pair, both sides and the end symbol, equal in every epoch."""
        return self.split(split).lengths

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> PairBatch:
        """Return the pairs at these indexes as tensors."""
        encoded = self.split(split)
        sources, targets = ([x[i] for i in indexes] for x in (encoded.source, encoded.target))
        return self.tensors(sources, targets)

    def tensors(
        self, sources: Sequence[NDArray[np.integer]], targets: Sequence[NDArray[np.integer]]
    ) -> PairBatch:
        """Batch the token ids of both sides."""
        return paired(sources, targets, self.end)

    def loss(self, model: nn.Module, batch: PairBatch) -> Float[Tensor, ""]:
        """Compute the mean cross entropy of the targets and their ends, in nats.

        With label smoothing, a fraction ``smoothing`` of the target probability is uniform over the
        vocabulary. Szegedy et al. 2016, section 7.
        """
        return self._loss(model, batch, self.settings.smoothing)

    def _loss(self, model: nn.Module, batch: PairBatch, smoothing: float) -> Tensor:
        # States of real tokens only: padding costs nothing.
        wanted = batch.wanted.flatten()[places_of(batch.real)]
        states = model(batch.source, batch.source_lengths, batch.decoder_input, batch.real.sum(1))
        return word_loss(model, states, wanted, smoothing)

    def items(self, batch: PairBatch) -> Sequence[float]:
        """Return the number of tokens of the targets, over which the loss is a mean."""
        return [int(batch.real.sum())]

    @torch.no_grad()
    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric of greedy texts for `judged` of the pairs, and the loss of all pairs.

        The loss is per token, without smoothing. A baseline has no probabilities; its loss is the
        fraction of texts without an exact match.
        """
        encoded = self.split(split)
        chosen = spread(len(encoded), self.settings.judged)
        wanted = [encoded.pairs[i].target for i in chosen]
        if not isinstance(model, nn.Module):
            answers = self.predict(model, [encoded.pairs[i].source for i in chosen])
            texts = [answer.text for answer in answers]
            return self._measure(texts, wanted), 1 - exact_match(texts, wanted)
        loss = self.mean_loss(model, split, tokens, partial(self._loss, smoothing=0.0))
        sources = [encoded.source[i] for i in chosen]
        written = write(model, sources, Search(), end=self.end, limits=self.limits)
        texts = [self.decode(best.tokens) for (best,) in written]
        return self._measure(texts, wanted), loss

    def decodes(self, split: Split) -> int:
        """Return the number of texts of a split that `judge` generates: at most ``judged``."""
        return min(self.settings.judged, self.texts(split))

    def fit(self, baseline: TextBaseline, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the train split, or to its pairs at the indexes ``chosen``."""
        pairs = self.split("train").pairs
        picked = range(len(pairs)) if chosen is None else chosen
        baseline.fit((pairs[i].source.strip(), pairs[i].target) for i in picked)

    def _measure(self, predicted: Sequence[str], references: Sequence[str]) -> float:
        """Return the metric as a fraction, with BLEU's tokenizer of the target language."""
        if self.settings.metric == "exact":
            return exact_match(predicted, references)
        language = language_for(self.settings.target_name, references)
        return bleu(predicted, references, language=language) / 100

    @property
    def search(self) -> Search:
        """Return the default search, from the settings."""
        return Search(beam=self.settings.beam, penalty=self.settings.penalty)

    @property
    def limits(self) -> Limits:
        """Return the limits of a written text: twice the source plus ten, at most 2 · `length`."""
        return Limits(longest=2 * self.settings.length)

    def prompts(self, texts: Sequence[str]) -> list[NDArray[np.integer]]:
        """Return the tokens that the encoder reads of each text."""
        return self.encode(texts)

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the readable token of each id."""
        return self.tokenizer.tokens(ids)

    def answer(self, model: Any) -> Evaluation:
        """Return the evaluation of the model on the test split.

        For pairs with a known alignment, it includes the network's attention weights while it reads
        the reference.
        """
        pairs = self.split("test").pairs
        texts = self.predict(model, [pair.source for pair in pairs])
        if isinstance(model, nn.Module) and (aligned := align(self, model, pairs)):
            both = zip(texts, aligned, strict=True)
            texts = [replace(text, aligned=counts) for text, counts in both]
        return self.evaluation([pair.example for pair in pairs], texts)

    def evaluation(self, examples: Sequence[Example], answers: Sequence[Text]) -> Evaluation:
        """Evaluate written texts."""
        language = self.settings.target_name
        return text_evaluation(self.metric, examples, answers, language=language)

    def read_row(self, row: Mapping[str, Any]) -> Text:
        """Return the text of a row."""
        return Text.of_row(row)

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation on a file of pairs. Raises: a bad row, by file:line."""
        no_labels(columns)
        language = columns.label or self.settings.target_name
        source = columns.text or self.settings.source_name
        pairs = read_pairs(DataSource(data, columns=Columns(source, language)))
        predicted = self.predict(model, [pair.source for pair in pairs])
        examples = [pair.example for pair in pairs]
        return text_evaluation(self.metric, examples, predicted, language=language)

    def attention(self, model: Any, text: str) -> list[LayerAttention]:
        """Return the attention weights to the source while the model writes its best text.

        Rows are the written tokens with the end, columns those of the source. A baseline has none.
        """
        if not isinstance(model, nn.Module):
            return []
        source = self.encode([text])
        if not len(source[0]):
            raise RegardError("this text has no tokens, so there are no attention weights to show")
        ((best,),) = self.write(model, [text])
        batch = self.tensors(source, [np.array(best.tokens, np.int64)])
        with torch.no_grad(), evaluation_mode(model):
            layers = source_weights(model, batch.source, batch.source_lengths, batch.decoder_input)
        asking = [*self.names(best.tokens), *(["[END]"] if best.ended else [])]
        reads = self.names(source[0].tolist())
        weights = {name: seen[0].numpy()[:, : len(asking)] for name, seen in layers.items()}
        return [LayerAttention(name, reads, seen, asking) for name, seen in weights.items()]

    def tokens(self, text: str) -> list[str]:
        """Return the tokens that the model reads, in readable form."""
        return self.names(self.encode([text])[0].tolist())

    def score(self, model: Any, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        """Compute the probability of each target, its end included, given its source.

        Raises: a pair that is `unscorable`; a baseline.
        """
        if not isinstance(model, nn.Module):
            raise RegardError(f"--score needs a network; {model.name} has no probabilities")
        for number, why in enumerate(self.unscorable(pairs), 1):
            if why:
                raise RegardError(f"pair {number}: {why}")
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        wanted = list(self.tokenizer.arrays(map(str.strip, targets)))
        scores = score(model, self.encode(sources), wanted, end=self.end)
        return [Scored(text.log_probability, len(text.tokens) + 1) for text in scores]

    def unscorable(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return for each pair why it cannot be scored; "" if it can."""
        reasons = []
        for source, target in pairs:
            size, most = len(self.whole(target)), self.limits.longest
            long = f"the target has {size:,} tokens; the maximum is {most:,}"
            empty = "the source has no tokens"
            reasons.append(empty if not len(self.whole(source)) else long if size > most else "")
        return reasons

    def _encoded(self, pairs: Sequence[Pair] | StreamedPairs, *, cut: bool) -> Encoded:
        most = self.settings.length
        if isinstance(pairs, StreamedPairs):
            encoded = Encoded.stored(pairs, self.tokenizer, most)
            if not len(encoded):
                raise RegardError(TOO_LONG.format(most))
            return encoded
        letters = self.settings.tokenizer == "characters"
        if isinstance(pairs, Reversals) and letters and pairs.letters.shape[1] <= most:
            known = self.tokenizer.encode([chr(FIRST + i) for i in range(26)])
            rows = np.array(known, np.int32)[:, 0][pairs.letters]
            return Encoded.in_memory(list(rows), list(rows[:, ::-1]), pairs)
        source = list(self.tokenizer.arrays(pair.source for pair in pairs))
        target = list(self.tokenizer.arrays(pair.target for pair in pairs))
        if cut:
            kept = [
                i
                for i, (a, b) in enumerate(zip(source, target, strict=True))
                if len(a) <= most and len(b) <= most
            ]
            if not kept:
                raise RegardError(TOO_LONG.format(most))
            if len(kept) < len(pairs):
                source, target = [source[i] for i in kept], [target[i] for i in kept]
                pairs = [pairs[i] for i in kept]
        # Evaluation uses the full texts; the loss skips tokens beyond the limit of generated texts.
        return Encoded.in_memory(
            [ids[:most] for ids in source], [x[: 2 * most] for x in target], pairs
        )


def spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spaced indexes below ``count``; files may be sorted by length.

    >>> spread(3, 5), spread(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    return [int(place) for place in np.linspace(0, count - 1, min(most, count))]
