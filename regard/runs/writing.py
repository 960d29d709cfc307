"""A run that writes texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast, overload

import numpy as np
import torch
from torch import nn

from regard.analysis.alignment import source_weights
from regard.analysis.cost import count_parameters
from regard.data.pairs import Pair
from regard.data.parallel import read_pairs
from regard.data.tokenizers import Tokenizer
from regard.errors import RegardError
from regard.runs.run import Looked, Run
from regard.runs.translations import Scored, Text, Translations
from regard.tasks.searching import Search
from regard.tasks.sequence_metrics import Aligned, alignment_error
from regard.tasks.sequences import Sequences
from regard.tasks.settings import SequencesSettings


class WriterRun(Run):
    """A run whose answers are texts."""

    def evaluate(
        self, data: Path | None = None, *, text: str | None = None, label: str | None = None
    ) -> Translations:
        """How good what the run writes is: on its test split, as written at its end, or on a file.

        `text` and `label` name the file's columns of sources and targets. Errors: the run is not
        complete; a bad row, by file:line.
        """
        self.must_be_complete()
        if data is None:
            written = self.folder.read(self.folder.predictions)
            return Translations.parse(
                written,
                self.task.metric,
                str(self.folder.predictions),
                language=self._data_settings.target_name,
            )
        settings = self._data_settings
        pairs = read_pairs(
            data,
            source_name=text or settings.source_name,
            target_name=label or settings.target_name,
        )
        said = self.predict([pair.source for pair in pairs])
        return Translations.judge(
            self.task.metric, pairs, said, language=label or settings.target_name
        )

    @overload
    def predict(self, texts: str) -> Text: ...
    @overload
    def predict(self, texts: list[str]) -> list[Text]: ...
    def predict(self, texts: str | list[str]) -> Text | list[Text]:
        """What the run writes for a text, or for each of many."""
        if isinstance(texts, str):
            return self.predict([texts])[0]
        return [found[0] for found in self.best(texts, 1)]

    @property
    def search(self) -> Search:
        """A beam, as in its settings."""
        found: Search = self.task.search
        return found

    def _written(self, texts: Sequence[str], search: Search) -> list[list[Text]]:
        """A text without tokens gets an empty one."""
        return _texts(self.task, self.network, texts, search)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        """How likely the run thinks each target, given its source.

        Errors: a source without tokens.
        """
        self.must_be_complete()
        task = self.task
        sources, targets = ([pair[side].strip() for pair in pairs] for side in (0, 1))
        for number, ids in enumerate(task.encode(sources), 1):
            if not len(ids):
                raise RegardError(f"pair {number}: the source is empty, so nothing can be scored")
        with self.computing():
            found = task.score(self.network, sources, targets)
        return [Scored(text.log_probability, len(text.tokens) + 1) for text in found]

    def attention(self, text: str) -> list[Looked]:
        """What each attention to the source looks at while the text's best answer is written.

        Rows are the tokens written, the end among them; columns those of the source.
        """
        self.must_be_complete()
        task, network = cast(Sequences, self.task), self.network
        source = task.encode([text.strip()])
        if not len(source[0]):
            raise RegardError("there is no token to look at in this text")
        with self.computing():
            (written,), *_ = task.write(network, [text.strip()])
            batch = task.tensors(source, [np.array(written.tokens, np.int64)])
            layers = source_weights(network, batch.source, batch.source_lengths, batch.given)
        asking = [*task.tokenizer.tokens(written.tokens), *(["[END]"] if written.ended else [])]
        reads = task.tokenizer.tokens(source[0].tolist())
        weights = {name: seen[0].numpy()[:, : len(asking)] for name, seen in layers.items()}
        return [Looked(name, reads, seen, asking) for name, seen in weights.items()]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model reads."""
        names: list[str] = self.task.tokenizer.tokens(self.task.encode([text])[0].tolist())
        return names

    def size(self, texts: Sequence[str]) -> tuple[int, int | None]:
        """Parameters; how many operations a text takes depends on what is written."""
        return count_parameters(self.network), None

    def answer_test(self, task: Sequences, model: nn.Module) -> bytes:
        """What the network writes for the test split, judged, and where it looked if that is known.

        The alignment is that of the wanted texts: the network reads them, and its weights are
        compared with the truth.
        """
        pairs, settings = task.split("test").pairs, self._data_settings
        sources = [pair.source for pair in pairs]
        said = [found[0] for found in _texts(task, model, sources, task.search)]
        aligned = align(task, model, pairs)
        return Translations.judge(
            task.metric, pairs, said, language=settings.target_name, aligned=aligned
        ).rows()

    def restore_task(self, tokenizer: Tokenizer) -> Sequences:
        """The task with the run's own tokenizer."""
        return Sequences(self._data_settings, tokenizer)

    @property
    def _data_settings(self) -> SequencesSettings:
        return cast(SequencesSettings, self.config.data)


def _texts(
    task: Sequences, model: nn.Module, texts: Sequence[str], search: Search
) -> list[list[Text]]:
    """Best texts of each; those without tokens are answered without being asked.

    Spaces around a text are no part of it, as in training.
    """
    texts = [text.strip() for text in texts]
    asked = [i for i, ids in enumerate(task.encode(texts)) if len(ids)]
    found = [[Text("", 0.0, True)] for _ in texts]
    written = task.write(model, [texts[i] for i in asked], search=search)
    for place, several in zip(asked, written, strict=True):
        found[place] = [Text(task.decode(x), x.log_probability, x.ended) for x in several]
    return found


def align(
    task: Sequences, model: nn.Module, pairs: Sequence[Pair], rows: int = 64
) -> list[Aligned | None]:
    """How far each pair's target, read by the model, looks at its true sources.

    The weights are the mean over all heads of all layers that look at the source. None where a
    pair knows no alignment, or is not cut into its characters. Nothing at all where no pair does,
    or the model does not look.
    """
    found: list[Aligned | None] = [None] * len(pairs)
    truths = [pair.alignment() for pair in pairs]
    source, target = (task.encode([getattr(pair, side) for pair in pairs])
                      for side in ("source", "target"))  # fmt: skip
    asked = [
        i
        for i, truth in enumerate(truths)
        if truth is not None and truth.any() and truth.shape == (len(target[i]), len(source[i]))
    ]
    for start in range(0, len(asked), rows):
        chosen = asked[start : start + rows]
        batch = task.tensors([source[i] for i in chosen], [target[i] for i in chosen])
        layers = source_weights(model, batch.source, batch.source_lengths, batch.given)
        if not layers:
            return []
        mean = torch.stack([seen.mean(1) for seen in layers.values()]).mean(0).numpy()
        for i, weights in zip(chosen, mean, strict=True):
            truth = truths[i]
            assert truth is not None
            found[i] = alignment_error([weights[: truth.shape[0], : truth.shape[1]]], [truth])
    return found if asked else []
