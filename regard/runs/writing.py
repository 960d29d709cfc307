"""A run that writes one text for another: turned around, made uniform, translated."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Bool, Float
from torch import nn

from regard.analysis.alignment import source_weights
from regard.data.pairs import Pair
from regard.data.parallel import read_pairs
from regard.errors import RegardError
from regard.layers.device import to_device
from regard.runs.run import Looked
from regard.runs.texts import TextRun, written
from regard.runs.translations import Scored, Translations
from regard.tasks.sequence_metrics import Aligned, alignment_error
from regard.tasks.sequences import METRICS, Sequences
from regard.tasks.settings import SequencesSettings

Weights = Float[np.ndarray, "heads target source"]
Truth = Bool[np.ndarray, "target source"]


class WriterRun(TextRun):
    """A run that writes one text for another."""

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

    @property
    def validates(self) -> str:
        """The name of the metric that validation measures."""
        return METRICS[self._data_settings.metric]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        """How likely the run thinks each target, given its source.

        Errors: those of `unscorable`.
        """
        self.must_be_complete()
        task = cast(Sequences, self.task)
        for number, why in enumerate(self.unscorable(pairs), 1):
            if why:
                raise RegardError(f"pair {number}: {why}")
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        with self.computing():
            found = task.score(self.network, sources, targets)
        return [Scored(text.log_probability, len(text.tokens) + 1) for text in found]

    def unscorable(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Of each pair what keeps it from being scored; nothing of those that can be."""
        task, found = cast(Sequences, self.task), []
        for source, target in pairs:
            size, most = len(task.whole(target)), task.limits.longest
            long = f"the target has {size:,} tokens, and the model writes {most:,} at most"
            empty = "the source has no token"
            found.append(empty if not len(task.whole(source)) else long if size > most else "")
        return found

    def attention(self, text: str) -> list[Looked]:
        """What each attention to the source looks at while the text's best answer is written.

        Rows are the tokens written, the end among them; columns those of the source.
        """
        self.must_be_complete()
        task, network = cast(Sequences, self.task), self.network
        source = task.encode([text])
        if not len(source[0]):
            raise RegardError("there is no token to look at in this text")
        with self.computing():
            ((best,),) = task.write(network, [text])
            batch = task.tensors(source, [np.array(best.tokens, np.int64)])
            layers = source_weights(network, batch.source, batch.source_lengths, batch.given)
        asking = [*task.names(best.tokens), *(["[END]"] if best.ended else [])]
        reads = task.names(source[0].tolist())
        weights = {name: seen[0].numpy()[:, : len(asking)] for name, seen in layers.items()}
        return [Looked(name, reads, seen, asking) for name, seen in weights.items()]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model reads."""
        task = cast(Sequences, self.task)
        return task.names(task.encode([text])[0].tolist())

    def answer_test(self, task: Sequences, model: nn.Module) -> bytes:
        """What the network writes for the test split, judged, and where it looked if that is known.

        The alignment is that of the wanted texts: the network reads them, and its weights are
        compared with the truth.
        """
        pairs, settings = task.split("test").pairs, self._data_settings
        sources = [pair.source for pair in pairs]
        said = [best for (best,) in written(task, model, sources)]
        aligned = align(task, model, pairs)
        return Translations.judge(
            task.metric, pairs, said, language=settings.target_name, aligned=aligned
        ).rows()

    @property
    def _data_settings(self) -> SequencesSettings:
        return cast(SequencesSettings, self.config.data)


def align(task: Sequences, model: nn.Module, pairs: Sequence[Pair]) -> list[Aligned | None]:
    """How far each pair's target, read by the model, looks at its true sources.

    The weights are the mean over all heads of all layers that look at the source. None where a
    pair knows no alignment, or is not cut into its characters. Nothing at all where no pair does,
    or the model does not look.
    """
    found = {
        place: alignment_error([np.mean([seen.mean(0) for seen in layers.values()], 0)], [truth])
        for place, layers, truth in weighed(task, model, pairs)
    }
    return [found.get(place) for place in range(len(pairs))] if found else []


def weighed(
    task: Sequences, model: nn.Module, pairs: Sequence[Pair], rows: int = 64
) -> Iterator[tuple[int, dict[str, Weights], Truth]]:
    """Of each pair whose alignment is known: its place, what each layer looks at, and the truth.

    Weights are (heads, target, source), while the model reads the target. Nothing of pairs that
    are not cut into their characters, nor of a model that does not look at its source.
    """
    truths = [pair.alignment() for pair in pairs]
    source, target = (task.encode([getattr(pair, side) for pair in pairs])
                      for side in ("source", "target"))  # fmt: skip
    asked = [
        (i, truth)
        for i, truth in enumerate(truths)
        if truth is not None and truth.any() and truth.shape == (len(target[i]), len(source[i]))
    ]
    for start in range(0, len(asked), rows):
        chosen = asked[start : start + rows]
        batch = task.tensors([source[i] for i, _ in chosen], [target[i] for i, _ in chosen])
        batch = to_device(model, batch)
        layers = source_weights(model, batch.source, batch.source_lengths, batch.given)
        if not layers:
            return
        for row, (i, truth) in enumerate(chosen):
            n, m = truth.shape
            tables = {name: seen[row, :, :n, :m].cpu().numpy() for name, seen in layers.items()}
            yield i, tables, truth
