"""A run: a task, a model and a folder, to train, evaluate and predict with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.analysis.attribution import Attributed
from regard.analysis.cost import count_parameters
from regard.analysis.layer_attention import LayerAttention
from regard.attention.kernels.choose import Constants, using
from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.plugins import changed
from regard.core.shown import plotted, shown
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import Example
from regard.lab.runs.build import build_network, prepare, tokenizer_kind
from regard.lab.runs.config import Config
from regard.lab.runs.convergence import CONVERGED, MEANINGS, ONE_LABEL, TRIVIAL, outcome
from regard.lab.runs.folder import Folder
from regard.lab.runs.learning import Learner, kernels_of, precision_of
from regard.lab.runs.metrics_log import MetricsLog
from regard.lab.tasks import unit_of
from regard.lab.tasks.task import with_unknown
from regard.training.checkpoints import load_weights, must_describe
from regard.training.loop import NOTHING, Progress
from regard.training.precision import Precision
from regard.training.ranks import ranks

ENDED = "the training was ended by --end after {:.0%} of its budget"
WORSE = "validation {0} was {1} with the encoder frozen and {2} after fine-tuning; {3}"
READ = "evaluated on its training texts, since validation=0 holds out none"
TIMED = "its budget of {:g} minutes gave {:,} steps on this machine; repeat it elsewhere with {}"


class Run:
    """A run in its folder: a task, a model and settings, to train, evaluate and predict with.

    `start` and `open_or_start` create a run, `load` opens one. Data, tokenizer and weights are read
    when they are first needed.

    Args:
        folder: The folder of the run.
        config: The task, the model and the settings.

    Raises:
        RegardError: A method that needs the trained model is called before the run is complete;
            the model does not support the call, such as the attention of a baseline.

    Example:
        >>> from tempfile import mkdtemp
        >>> from regard.lab.runs import start
        >>> run = start(Path(mkdtemp()) / "run", "classification", "nb-svm", ["data=reviews"])
        >>> for progress in run.train():
        ...     pass
        >>> run.predict("a good film").label
        'positive'
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = Folder(folder), config

    def __repr__(self) -> str:
        state = "complete" if self.complete else "not complete"
        data = getattr(self.config.data, "data", self.config.task)
        what = self.config.task if data == self.config.task else f"{self.config.task} ({data})"
        return f"<Run {self.folder.path}: {self.config.model} on {what}, {state}>"

    _repr_html_ = shown
    plot = plotted

    @property
    def complete(self) -> bool:
        """Return whether it is trained and has predicted the test split."""
        return self.folder.complete

    def train(self, *, end: bool = False, corpus: Any = None) -> Iterator[Progress]:
        """Train to the end of the budget, resuming where an earlier process stopped.

        At the end the test split is predicted once, and the run is complete. A completed run yields
        nothing. `end` completes the run now with the best weights of its newest checkpoint, which
        `ended` records. A `corpus` in memory replaces the data of the settings.

        Raises: another process trains here; changed data; no disk space (nothing is lost: run it
        again); `end` without a checkpoint.
        """
        if self.complete:
            self.folder.tidy()  # in case a process was killed just before this
            return
        if end and not self.folder.checkpoints.steps():
            raise RegardError(NOTHING)
        if ranks().world > 1 and self.config.entry.fitted:
            raise RegardError(
                f"{self.config.model} cannot be trained by several processes; start only one"
            )
        with ranks().guarded():
            if ranks().first:
                with self.folder.locked():
                    if self.complete and ranks().world == 1:
                        return  # another process had the lock, and completed the run
                    atomic_io.remove_leftovers(self.folder.path)
                    with self.folder.discarded_if_not_begun():
                        yield from Learner(self.folder, self.config, corpus).work(end)
                    self.folder.seal()
            else:
                yield from Learner(self.folder, self.config, corpus).work_with_others(end)
            ranks().wait()
        self.__dict__.pop("_environment", None)

    def try_out(self) -> Iterator[Progress]:
        """Train and validate like `train`, without reading the test split.

        For a search over settings: the run stays incomplete; `metrics` has its validation scores.
        It resumes where an earlier process stopped. Raises: as `train`.
        """
        with self.folder.locked():
            atomic_io.remove_leftovers(self.folder.path)
            with self.folder.discarded_if_not_begun():
                yield from Learner(self.folder, self.config).validate()
        self.__dict__.pop("_environment", None)

    @property
    def ended(self) -> float | None:
        """Return the share of the budget after which --end completed the run, else None."""
        share = self._environment.get("ended")
        return None if share is None else float(share)

    @property
    def notes(self) -> list[str]:
        """Return remarks on the results, as sentences."""
        notes = [] if self.ended is None else [ENDED.format(self.ended)]
        if self.ended is None and self.complete and (how := self.convergence) != CONVERGED:
            notes.append(f"{how}: {MEANINGS[how]}")
        head = self._environment.get("head", {})
        if head and head["frozen"] > head["tuned"]:
            unit = unit_of(self.task.metric)
            scores = (f"{unit.write(head[key])}{unit.sign}" for key in ("frozen", "tuned"))
            then = "the frozen one is kept" if head["kept"] else "compare with the model frozen"
            notes.append(WORSE.format(self.task.metric, *scores, then))
        if self.repeat:
            steps = self.metrics()[-1]["steps"]
            notes.append(TIMED.format(self.config.training.minutes, steps, self.repeat))
        return notes if self.held_out else [*notes, READ]

    @property
    def repeat(self) -> str | None:
        """Return the budget of a run with a budget in minutes, as steps; None for other runs.

        The batch size is included if it was chosen for the time: ``steps=900 batch_tokens=512``.
        Unlike minutes, steps do not depend on the machine and its load. If ``patience`` or --end
        stopped the training early, these are the planned steps.
        """
        training, rows = self.config.training, self.metrics()
        if training.budget.unit != "minutes" or self.config.entry.baseline or not rows:
            return None
        batch = rows[-1].get("batch_tokens")
        return f"steps={rows[-1]['steps']}{f' batch_tokens={batch}' if batch else ''}"

    def evaluate(
        self, data: Path | None = None, *, text: str = "", label: str = "", labels: str = ""
    ) -> Any:
        """Return the `Evaluation` of the run's test predictions, or of the model on a file.

        ``text`` and ``label`` name the columns of the file, ``labels`` renames its labels
        ("neg:0,pos:1"); they default to those of the training. Raises: the run is not complete; a
        bad row, with its file:line; a missing column or unknown labels.
        """
        self.must_be_complete()
        if data is None:
            return self._tested
        with self.computing():
            return self.task.evaluate(self.model, data, Columns(text, label, labels=labels))

    @cached_property
    def _tested(self) -> Any:
        """Load the test predictions made at the end of the training."""
        path = self.folder.predictions
        return self.task.restore(self.folder.read(path), str(path))

    def predict(self, texts: Any) -> Any:
        """Return the prediction for a text, or for each of a list; needs no training data.

        A prediction's ``unknown`` are the words of its text that the model does not know.

        A run with tree positions needs parsed sentences, as `regard.lab.data.files.read_examples`
        reads them from a .conllu file. Raises: texts without trees.
        """
        if isinstance(texts, str | Example):
            return self.predict([texts])[0]
        self.must_be_complete()
        inputs = list(texts)
        with self.computing():
            answers = self.task.predict(self.model, inputs)
        return [*map(with_unknown, answers, self.unknown(inputs))]

    def best(self, texts: Sequence[str], search: Any) -> list[list[Any]]:
        """Return the best outputs for each text, best first, with the given search settings.

        Raises: a run that does not generate texts.
        """
        with self.computing():
            outputs: list[list[Any]] = self.task.best(self.model, texts, search)
        pairs = zip(outputs, self.unknown(texts), strict=True)
        return [[with_unknown(one, words) for one in several] for several, words in pairs]

    def unknown(self, texts: Sequence[Any]) -> list[tuple[str, ...]]:
        """Return the words of each text that the model does not know, each once."""
        words: list[tuple[str, ...]] = self.task.unknown(self.model, texts)
        return words

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """Return the likelihood of each target given its source.

        Raises: a run that does not write one text for another; a pair that cannot be scored.
        """
        with self.computing():
            scores: list[Any] = self.task.score(self.model, pairs)
        return scores

    def attention(self, text: str) -> list[LayerAttention]:
        """Return the attention of each layer for a text; empty for a model without attention.

        Raises: a baseline, which has no layers; a text without words.
        """
        with self.computing():
            layers: list[LayerAttention] = self.task.attention(self.network, text)
        return layers

    def at_work(self, text: str) -> tuple[list[LayerAttention], int | None]:
        """Return the attention of every layer while the run answers a text.

        The output is generated by the search used for evaluation. The number is the length of the
        prompt in tokens, if prompt and output form one text; else None.
        """
        with self.computing():
            layers: tuple[list[LayerAttention], int | None] = self.task.at_work(self.network, text)
        return layers

    def attribute(self, text: str, choice: int | None = None) -> Attributed:
        """Return integrated gradients and attention × gradient of a text's tokens.

        They explain one number behind the answer, by default the decisive one; the result's
        ``choices`` names all, and ``choice`` selects another by its index. Raises: a baseline; a
        text without tokens; no such number.
        """
        with self.computing():
            result: Attributed = self.task.attribute(self.network, text, choice)
        return result

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text that the model reads, in readable form.

        Raises: the run is not complete; a baseline, which does its own tokenization.
        """
        self.must_be_complete()
        if self.config.entry.baseline:
            raise RegardError(
                f"{self.config.model} is a baseline without a tokenizer; its tokens cannot be shown"
            )
        return list(self.task.tokens(text))

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """Return the number of ignored tokens of each text; 0 for a baseline."""
        if self.config.entry.baseline:
            return [0 for _ in texts]
        return list(self.task.left_out(texts))

    @property
    def validates(self) -> str:
        """Return the name of the validation metric of `Progress`.

        For "likelihood" and "log loss", `Progress` has exp(−loss).
        """
        return str(self.config.unread_task.validates)

    @property
    def held_out(self) -> bool:
        """Return whether the run is evaluated on texts that it was not trained on."""
        return bool(self.config.unread_task.held_out)

    def size(self, texts: Sequence[str]) -> tuple[int | None, int | None]:
        """Return parameters, and operations of a forward pass for the text of median length.

        For a baseline, return the number of stored values and None; without a kept model, neither.
        """
        if not self.config.entry.kept:
            return None, None
        if self.config.entry.baseline:
            return sum(array.size for array in self.baseline.arrays.values()), None
        return count_parameters(self.network), self.task.operations(self.network, texts)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of ``metrics.jsonl``: `Progress` of some of the steps."""
        return MetricsLog(self.folder.metrics).rows()

    @property
    def convergence(self) -> str:
        """Return how the training ended: an outcome of `regard.lab.runs.convergence`.

        A fitted model, such as a baseline, is "converged". A network that predicts the same for
        every test example never learned; nor did one whose validation stopped improving at the
        score of a guess that ignores the input (`Evaluation.learned`).
        """
        if self.config.entry.fitted:
            return CONVERGED
        evaluation = self.evaluate()
        if evaluation.is_constant:
            return ONE_LABEL
        how = outcome(self.metrics(), self.config.training.patience)
        return TRIVIAL if how == CONVERGED and not evaluation.learned else how

    @cached_property
    def task(self) -> Any:
        """Return the task with the run's tokenizer; data are read only when needed."""
        tokenizer = None  # a baseline does its own tokenization
        if not self.config.entry.baseline:
            tokenizer = self.folder.read_tokenizer(tokenizer_kind(self.config))
        facts = self._environment.get("data")
        if facts is not None:
            facts = {**facts, **self._environment.get("decision", {})}
        return prepare(self.config, tokenizer, facts)

    @property
    def model(self) -> Any:
        """Return the trained network or the fitted baseline."""
        return self.baseline if self.config.entry.baseline else self.network

    @cached_property
    def baseline(self) -> Any:
        """Return the fitted baseline. Raises: the model is a network."""
        self.must_be_complete()
        if not self.config.entry.kept:
            raise RegardError(
                f"{self.folder.path} keeps the test predictions of {self.config.model} and no model"
            )
        atomic_io.read_folder(self.folder.baseline)
        load = self.config.entry.load
        if load is None:
            raise RegardError(f"{self.config.model} is a network, not a baseline; use .network")
        return load(self.folder.baseline)

    @cached_property
    def network(self) -> nn.Module:
        """Return the network with its best weights in evaluation mode. Raises: a baseline."""
        self.must_be_complete()
        if self.config.entry.baseline:
            raise RegardError(
                f"{self.config.model} is a baseline without a network, layers or attention"
            )
        self._same_parts()
        width = self._environment.get("vectors", {}).get("width")
        build = partial(build_network, self.config, **self.task.sizes, width=width)
        stored = self.folder.read_weights()
        shapes = {name: tensor.shape for name, tensor in stored.items()}
        settings = {**self.config.network.model_dump(), "model": self.config.model}
        must_describe(settings, build, shapes, self.folder.path)
        model = build()
        load_weights(model, stored)
        for name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise RegardError(f"{self.folder.weights}: {name} has values that are not finite")
        return model.eval()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Use the precision and kernels of the training, and all processes, within the context.

        Raises: the run is not complete.
        """
        self.must_be_complete()
        with (
            torch.no_grad(),
            self._precision.autocast(),
            using(self._kernels),
            ranks().guarded(),
            ranks().sharing(),
        ):
            yield

    @cached_property
    def _environment(self) -> dict[str, Any]:
        return self.folder.environment()

    @cached_property
    def _precision(self) -> Precision:
        return precision_of(self.folder)

    @cached_property
    def _kernels(self) -> Constants:
        return kernels_of(self.folder)

    def _same_parts(self) -> None:
        """Raise an error if a user's Python file has changed since the training."""
        known = self._environment.get("parts", {})
        for spec in changed(self.config.named, known):
            raise RegardError(
                f"{spec} has changed since {self.folder.path} was trained with it; restore it, or "
                "train again with another --out"
            )

    def must_be_complete(self) -> None:
        """Raise an error if the run is not complete."""
        if not self.complete:
            raise RegardError(
                f"the run in {self.folder.path} is not complete; run its command again to resume, "
                "or complete it as it is with `regard train … --end`"
            )
