"""One run: a task, a model, a folder. Train it, judge it, ask it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import durable
from regard.analysis.cost import count_parameters
from regard.analysis.layer_attention import LayerAttention
from regard.attention.kernels.choose import Constants, using
from regard.data.examples import Example
from regard.errors import RegardError
from regard.parts import changed
from regard.runs.build import build_network, prepare, tokenizer_kind
from regard.runs.config import Config
from regard.runs.folder import Folder
from regard.runs.learning import Learner, kernels_of, precision_of
from regard.runs.metrics_log import MetricsLog
from regard.shown import shown
from regard.tasks import TASKS
from regard.tasks.task import Columns, Task
from regard.training.checkpoints import load_weights, must_describe
from regard.training.convergence import CONVERGED, MEANINGS, ONE_LABEL, outcome
from regard.training.loop import NOTHING, Progress
from regard.training.precision import Precision
from regard.training.ranks import ranks

ENDED = "the training was ended by hand after {:.0%} of its budget"
READ = "judged by texts that it has read: validation=0 holds none out"
TIMED = "its budget of {:g} minutes was {:,} steps on this machine: {} repeats it elsewhere"


class Run:
    """A run in its folder. Made by `start`, `open_or_start` and `load`."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = Folder(folder), config

    def __repr__(self) -> str:
        state = "complete" if self.complete else "not complete"
        data = getattr(self.config.data, "data", self.config.task)
        what = self.config.task if data == self.config.task else f"{self.config.task} ({data})"
        return f"<Run {self.folder.path}: {self.config.model} on {what}, {state}>"

    _repr_html_ = shown

    @property
    def complete(self) -> bool:
        """Whether it has trained and answered the test split."""
        return self.folder.complete

    def train(self, *, end: bool = False) -> Iterator[Progress]:
        """Train to the end of the budget, from where an earlier process stopped.

        At the end the test split is answered, once, and the folder sealed. A complete run yields
        nothing. With `end` the end is here: the best weights of the newest checkpoint are the
        run's, which says so (`ended`). Errors: another process trains here; the data have changed
        since the run began; no space left (nothing is lost: run it again); nothing to end with.
        """
        if self.complete:
            self.folder.tidy()  # after a process that was killed just before it did
            return
        if end and not self.folder.checkpoints.steps():
            raise RegardError(NOTHING)
        if ranks().world > 1 and self.config.entry.deterministic:
            raise RegardError(f"{self.config.model} is fitted, not trained: start one process")
        if ranks().first:
            with self.folder.locked():
                durable.remove_leftovers(self.folder.path)
                yield from Learner(self.folder, self.config).work(end)
                self.folder.seal()
        else:
            yield from Learner(self.folder, self.config).work_beside(end)
        self.__dict__.pop("_environment", None)
        ranks().wait()

    def try_out(self) -> Iterator[Progress]:
        """Train and validate as `train` does, and leave the test split unread.

        For a search over settings: nothing is answered and the run stays incomplete; `metrics`
        has its validation scores. It goes on where an earlier process stopped. Errors: as `train`.
        """
        with self.folder.locked():
            durable.remove_leftovers(self.folder.path)
            yield from Learner(self.folder, self.config).validate()
        self.__dict__.pop("_environment", None)

    @property
    def ended(self) -> float | None:
        """The share of its budget after which it was ended by hand, if it was."""
        share = self._environment.get("ended")
        return None if share is None else float(share)

    @property
    def notes(self) -> list[str]:
        """What is to be known of its figures, as sentences."""
        found = [] if self.ended is None else [ENDED.format(self.ended)]
        if self.ended is None and self.complete and (how := self.convergence) != CONVERGED:
            found.append(f"{how}: {MEANINGS[how]}")
        if self.repeat:
            steps = self.metrics()[-1]["steps"]
            found.append(TIMED.format(self.config.training.minutes, steps, self.repeat))
        return found if self.held_out else [*found, READ]

    @property
    def repeat(self) -> str | None:
        """The budget in steps of a run whose budget was minutes, as settings; None of others.

        With the batch, ``steps=900 batch_tokens=512``, where that was chosen by the time as well.
        What a minute holds depends on the machine and on what else it does; steps do not. Of a
        training that stopped early, by ``patience`` or by hand, these are the steps foreseen.
        """
        training, rows = self.config.training, self.metrics()
        if training.budget.unit != "minutes" or self.config.entry.baseline or not rows:
            return None
        batch = rows[-1].get("batch_tokens")
        return f"steps={rows[-1]['steps']}{f' batch_tokens={batch}' if batch else ''}"

    def evaluate(
        self, data: Path | None = None, *, text: str = "", label: str = "", labels: str = ""
    ) -> Any:
        """How good the run is: on its test split, as answered at its end, or on a file.

        ``text`` and ``label`` name the file's columns where they have no usual name, ``labels``
        renames its labels ("neg:0,pos:1"); without them those of the training hold. Returns an
        `Evaluation`. Errors: the run is not complete; a bad row, by file:line; a column or labels
        that such a file does not have.
        """
        self.must_be_complete()
        if data is None:
            return self._tested
        with self.computing():
            return self.task.evaluate(self.model, data, Columns(text, label, labels))

    @cached_property
    def _tested(self) -> Any:
        """The answers to the test split, as they were given at the end."""
        path = self.folder.predictions
        return self.task.restore(self.folder.read(path), str(path))

    def predict(self, texts: Any) -> Any:
        """The run's answer to a text, or to each of a list, without the data of the training.

        A run that reads trees takes parsed sentences, as `regard.data.files.read_examples` reads
        them from a .conllu file. Errors: it is given texts without trees.
        """
        if isinstance(texts, str | Example):
            return self.predict([texts])[0]
        self.must_be_complete()
        with self.computing():
            return self.task.predict(self.model, list(texts))

    def best(self, texts: Sequence[str], search: Any) -> list[list[Any]]:
        """The best texts for each, best first: so many by the run's own search, or by another.

        Errors: a run that writes no texts.
        """
        with self.computing():
            found: list[list[Any]] = self.task.best(self.model, texts, search)
        return found

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """How likely the run thinks each target, given its source.

        Errors: a run that does not write one text for another; a pair that cannot be scored.
        """
        with self.computing():
            found: list[Any] = self.task.score(self.model, pairs)
        return found

    def attention(self, text: str) -> list[LayerAttention]:
        """What each attention layer looks at in a text; nothing of a model without such layers.

        Errors: a baseline, which has no layers; a text without words.
        """
        with self.computing():
            found: list[LayerAttention] = self.task.attention(self.network, text)
        return found

    def at_work(self, text: str) -> tuple[list[LayerAttention], int | None]:
        """What every layer looks at while the run answers a text.

        It is written by the search that the run is judged by. The number says how many tokens were
        read before any was written, where both stand in one text; else None.
        """
        with self.computing():
            found: tuple[list[LayerAttention], int | None] = self.task.at_work(self.network, text)
        return found

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model sees, as its writer would recognise them.

        Errors: the run is not complete; a baseline, which cuts texts in its own way.
        """
        self.must_be_complete()
        if self.config.entry.baseline:
            raise RegardError(f"{self.config.model} counts words and has no tokens of the run's")
        return list(self.task.tokens(text))

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text the run does not read; a baseline counts them all."""
        if self.config.entry.baseline:
            return [0 for _ in texts]
        return list(self.task.left_out(texts))

    @property
    def validates(self) -> str:
        """The name of the metric that validation measures; `Progress` has it as a share.

        Of "likelihood" and "log loss" that share is exp(−loss).
        """
        return str(self._unread.validates)

    @property
    def held_out(self) -> bool:
        """Whether the run has not read what it is judged by."""
        return bool(self._unread.held_out)

    def size(self, texts: Sequence[str]) -> tuple[int, int | None]:
        """Parameters, and operations of a forward pass for the text of median length.

        Of a baseline the numbers that it keeps. No operations where they are not counted.
        """
        if self.config.entry.baseline:
            return sum(array.size for array in self.baseline.arrays.values()), None
        return count_parameters(self.network), self.task.operations(self.network, texts)

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of ``metrics.jsonl``: fields of `Progress`, some steps left out."""
        return MetricsLog(self.folder.metrics).rows()

    @property
    def convergence(self) -> str:
        """How the training had ended: a word of `regard.training.convergence`.

        What is fitted and not trained, as a baseline is, is "converged". A network that says one
        thing to every test example never learned.
        """
        if self.config.entry.deterministic:
            return CONVERGED
        if self.evaluate().says_one_thing:
            return ONE_LABEL
        return outcome(self.metrics(), self.config.training.patience)

    @property
    def _unread(self) -> Task[Any]:
        """The task before anything is read."""
        task: Task[Any] = TASKS[self.config.task].prepare(self.config.reads)
        return task

    @cached_property
    def task(self) -> Any:
        """The task with the run's own tokenizer; the data are read only if asked for."""
        tokenizer = None  # a baseline has none of the run's: it counts words in its own way
        if not self.config.entry.baseline:
            tokenizer = self.folder.read_tokenizer(tokenizer_kind(self.config))
        return prepare(self.config, tokenizer, self._environment.get("data"))

    @property
    def model(self) -> Any:
        """What answers: the trained network, or the fitted baseline."""
        return self.baseline if self.config.entry.baseline else self.network

    @cached_property
    def baseline(self) -> Any:
        """The fitted baseline."""
        self.must_be_complete()
        durable.read_folder(self.folder.baseline)
        load = self.config.entry.load
        if load is None:
            raise RegardError(f"{self.config.model} is a network: ask .network")
        return load(self.folder.baseline)

    @cached_property
    def network(self) -> nn.Module:
        """The trained network, best weights, in evaluation mode. Errors: a baseline has none."""
        self.must_be_complete()
        if self.config.entry.baseline:
            raise RegardError(
                f"{self.config.model} is no network: it has no layers and no attention to look at"
            )
        self._same_parts()
        width = self._environment.get("vectors", {}).get("width")
        build = partial(build_network, self.config, **self.task.sizes, width=width)
        stored = self.folder.read_weights()
        shapes = {name: tensor.shape for name, tensor in stored.items()}
        must_describe(self.config.network.model_dump(), build, shapes, self.folder.path)
        model = build()
        load_weights(model, stored)
        for name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise RegardError(f"{self.folder.weights}: {name} has numbers that are not finite")
        return model.eval()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Inside, the network computes as it did in training: its precision, its kernels.

        Errors: the run is not complete.
        """
        self.must_be_complete()
        with torch.no_grad(), self._precision.autocast(), using(self._kernels):
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
        """Errors: a file of one's own that the run was trained with has changed since."""
        known = self._environment.get("parts", {})
        for spec in changed(self.config.named, known):
            raise RegardError(
                f"{spec} has changed since {self.folder.path} was trained with it; put it back, "
                "or train anew in another --out"
            )

    def must_be_complete(self) -> None:
        """Errors: a run that is not, which answers nothing."""
        if not self.complete:
            raise RegardError(
                f"the run in {self.folder.path} is not complete; the command that began it goes on "
                "from where it was, and `regard train … --end` ends it there"
            )
