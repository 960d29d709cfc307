"""A run that puts labels on texts: by a network, or by a baseline that counts words."""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard import durable
from regard.analysis.cost import count_parameters, flops_per_example
from regard.analysis.record import record
from regard.data.batches import pad
from regard.data.class_files import is_classes
from regard.data.encoder_tokenizer import EncoderTokenizer
from regard.data.files import Example, read_examples
from regard.data.labels import parse_labels, rename
from regard.data.titles import listed
from regard.errors import RegardError
from regard.memory import peak_mb
from regard.models.tuned import Tuned
from regard.runs.build import prepare, tokenizer_kind
from regard.runs.evaluation import Evaluation, Judging, Prediction, predictions
from regard.runs.fitting import Fitting
from regard.runs.metrics_log import MetricsLog
from regard.runs.run import Looked, Run, looked
from regard.tasks.classification import NO_TREES, Classification, truncate
from regard.tasks.metrics import METRICS, log_loss
from regard.tasks.settings import ClassificationSettings
from regard.training.convergence import ONE_LABEL
from regard.training.loop import Progress
from regard.training.settings import TrainingSettings

if TYPE_CHECKING:
    from regard.models.baselines import Baseline, Weighed


class ClassifierRun(Run):
    """A run whose answers are labels."""

    def evaluate(
        self,
        data: Path | None = None,
        *,
        text: str | None = None,
        label: str | None = None,
        labels: str = "",
    ) -> Evaluation:
        """How right the run is: on its test split, as answered at its end, or on a labelled file.

        `text` and `label` name the file's columns where they have no usual name, `labels` renames
        its labels ("neg:0,pos:1"); without them those of the training hold. Errors: the run is not
        complete; a bad row or an unknown label, by file:line.
        """
        self.must_be_complete()
        if data is None:
            return Evaluation.parse(
                self.folder.read(self.folder.predictions),
                self.labels,
                str(self.folder.predictions),
                **self._judging,
            )
        settings = self._data_settings
        if not is_classes(data):
            text, label = text or settings.text, label or settings.label
        examples = read_examples(data, text=text or None, label=label or None)
        names = parse_labels(labels or settings.labels)
        examples = rename(examples, names, must_occur=bool(labels))
        said = self.probabilities(examples)
        return Evaluation.judge(self.labels, examples, said, **self._judging)

    @overload
    def predict(self, texts: str | Example) -> Prediction: ...
    @overload
    def predict(
        self, texts: list[str] | list[Example] | list[str | Example]
    ) -> list[Prediction]: ...
    def predict(
        self, texts: str | Example | list[str] | list[Example] | list[str | Example]
    ) -> Prediction | list[Prediction]:
        """The label of a text, or of each of many. The data of the training are not needed.

        A run that reads trees takes parsed sentences, as `regard.data.files.read_examples` reads
        them from a .conllu file. Errors: it is given texts without trees.
        """
        if isinstance(texts, str | Example):
            return self.predict([texts])[0]
        return predictions(self.labels, self.probabilities(texts))

    def probabilities(self, texts: Sequence[str | Example]) -> NDArray[np.floating]:
        """(texts, labels), the labels in the order of `labels`."""
        self.must_be_complete()
        if self.config.entry.kind == "baseline":
            return self.baseline.probabilities([plain(text) for text in texts])
        with self.computing():
            said: NDArray[np.floating] = self.task.predict(self.network, list(texts))
        return said

    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at in a text; nothing of a model without such layers.

        Errors: a baseline, which has no layers; a text without words.
        """
        self.must_be_complete()
        if self.config.entry.kind == "baseline":
            raise RegardError(f"{self.config.model} counts words; it has no attention to look at")
        if self.reads_trees:
            raise RegardError(NO_TREES.format("this model"))
        tokens = self.tokens(text)
        if not tokens:
            raise RegardError("there is no word to look at in this text")
        padded, lengths = pad(self.task.encode([text]))
        with self.computing(), record(self.network) as recording:
            self.network(padded, lengths)
            found = looked(recording, tokens)
        framed = tokens
        if isinstance(self.network, Tuned):
            own = self.task.tokenizer
            named = own if isinstance(own, EncoderTokenizer) else self.network
            framed = named.framed(tokens)
        return [
            each._replace(
                tokens=framed if each.weights.shape[-1] == len(framed) else ["[CLS]", *tokens]
            )
            for each in found
        ]

    def weigh(self, text: str, label: str) -> "Weighed":
        """What each word of a text adds to the score of a label, of a run that counts words.

        Errors: a network; a label that the run does not know.
        """
        if self.config.entry.kind != "baseline":
            raise RegardError(f"{self.config.model} weighs no single words: look at its attention")
        if label not in self.labels:
            raise RegardError(f"no label is {label!r:.80}; there are: {listed(self.labels)}")
        return self.baseline.weigh(text, self.labels.index(label))

    @property
    def validates(self) -> str:
        """The name of the metric that validation measures."""
        return METRICS[self._data_settings.metric]

    @property
    def convergence(self) -> str:
        """As `Run.convergence`; a network that says one label to every test text never learned."""
        said = self.evaluate()
        one = len(np.unique(said.probabilities.argmax(1))) == 1 < len(np.unique(said.truth))
        return ONE_LABEL if one and self.config.entry.kind == "network" else super().convergence

    @property
    def reads_trees(self) -> bool:
        """Whether it reads parsed sentences alone: its positions are places in their trees."""
        return self.config.reads_trees

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the run tells apart."""
        found = tuple(self._environment["data"].get("labels", ()))
        if not found:
            raise RegardError(f"{self.folder.environment_path} names no labels; train the run anew")
        return found

    def size(self, texts: Sequence[str]) -> tuple[int, int | None]:
        """Of a network, its parameters and operations; of a baseline the numbers it keeps."""
        if self.config.entry.kind == "baseline":
            return sum(array.size for array in self.baseline.arrays.values()), None
        sample = texts[:: max(1, len(texts) // 1000)]
        length = max(1, round(median(len(ids) for ids in self.task.encode(sample))))
        parameters = count_parameters(self.network)
        # torch's counter cannot follow a parameter that is itself an input, as a learned query is
        return parameters, flops_per_example(self.network.requires_grad_(False), length)

    def about(self) -> dict[str, Any]:
        """The labels."""
        return {"labels": list(self.labels)}

    def answer_test(self, task: Classification, model: nn.Module) -> bytes:
        """What the network says to the test split, judged."""
        said = task.predict(model, "test")
        return Evaluation.judge(task.labels, task.test.examples, said).rows()

    @cached_property
    def task(self) -> Classification:
        """The task with the run's own tokenizer and labels; data are read only if asked for."""
        tokenizer = self.folder.read_tokenizer(tokenizer_kind(self.config))
        return cast(Classification, prepare(self.config, tokenizer, self.labels))

    def _training(
        self, task: Classification, model: nn.Module, settings: TrainingSettings, end: bool
    ) -> Iterator[Progress]:
        if self.config.entry.kind == "frozen" and isinstance(model, Tuned):
            return Fitting(model, task, settings, self._precision).run()
        return super()._training(task, model, settings, end)

    def _work(self, task: Classification, end: bool) -> Iterator[Progress]:
        if self.config.entry.kind == "baseline":
            self._begin(task)
            yield self._fit(task)
        else:
            yield from super()._work(task, end)

    def _validated(self, task: Classification) -> Iterator[Progress]:
        if self.config.entry.kind == "baseline":
            self._begin(task)
            yield self._learned(task)[1]
        else:
            yield from super()._validated(task)

    @cached_property
    def baseline(self) -> "Baseline":
        """The fitted baseline."""
        from regard.models import baselines  # scikit-learn, half a second that networks need not

        self.must_be_complete()
        durable.read_folder(self.folder.baseline)
        return baselines.load(self.folder.baseline)

    @property
    def _judging(self) -> Judging:
        """What an evaluation is told beside the answers."""
        counts = self._environment["data"].get("counts", ())
        return {"metric": self._data_settings.metric, "trained": counts}

    @property
    def _data_settings(self) -> ClassificationSettings:
        return cast(ClassificationSettings, self.config.reads)

    def _learned(self, task: Classification) -> tuple["Baseline", Progress]:
        """Fit the baseline to the train split and judge it on the validation split."""
        baseline: "Baseline" = self.config.entry.build(
            self.config.network, vocabulary=0, labels=len(task.labels)
        )
        texts = [example.text for example in task.train.examples]
        begun = time.monotonic()  # as a network's: reading, tokens and judging are not training
        baseline.fit(texts, task.answers("train"), task.weights)
        seconds = max(time.monotonic() - begun, 1e-9)
        known = log_loss(baseline.probabilities(texts), task.answers("train"))
        held = baseline.probabilities([example.text for example in task.validation.examples])
        answers = task.answers("validation")
        tokens = int(task.train.lengths.sum())
        validation = task.score(held, answers)
        progress = Progress(
            step=1,
            steps=1,
            epoch=1.0,
            loss=known,
            learning_rate=0.0,
            tokens=tokens,
            tokens_per_second=tokens / seconds,
            seconds=seconds,
            seconds_left=0.0,
            validation=validation,
            validation_loss=log_loss(held, answers),
            best=validation,
            peak_mb=peak_mb(),
        )
        MetricsLog(self.folder.metrics).add(progress)
        return baseline, progress

    def _fit(self, task: Classification) -> Progress:
        """Fit the baseline, then write it and its answers on the test split."""
        folder = self.folder
        baseline, progress = self._learned(task)
        with TemporaryDirectory() as aside:
            baseline.save(Path(aside))
            files = {path.name: path.read_bytes() for path in Path(aside).iterdir()}
        durable.remove_folder(folder.baseline)  # of a process killed after this
        durable.write_folder(folder.baseline, files)
        said = baseline.probabilities([example.text for example in task.test.examples])
        judged = Evaluation.judge(task.labels, task.test.examples, said)
        durable.write_bytes(folder.predictions, judged.rows())
        return progress

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text the run does not read; a baseline counts them all."""
        if self.config.entry.kind == "baseline":
            return [0 for _ in texts]
        most = self._data_settings.length
        return [max(0, len(ids) - most) for ids in self.task.tokenizer.encode(texts)]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model sees, as its writer would recognise them."""
        pieces, settings = self.task.tokenizer.split(text), self._data_settings
        kept = truncate(range(len(pieces)), settings.length, settings.truncate)
        return [pieces[place] for place in kept]


def plain(text: str | Example) -> str:
    """A text alone."""
    return text.text if isinstance(text, Example) else text
