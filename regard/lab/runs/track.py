"""Send the metrics of a training to TensorBoard or to a tracker of another package (``track=``).

A tracker gets the rows of ``metrics.jsonl`` as they are written, and changes no result.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.core.errors import RegardError, look_up
from regard.core.tables import Table

if TYPE_CHECKING:
    from regard.lab.runs.config import Config
    from regard.training.loop import Progress

#: Fields of `Progress` that are tracked if they have a number.
TRACKED = (
    "epoch", "loss", "learning_rate", "tokens", "tokens_per_second", "peak_mb", "validation",
    "validation_loss", "best",
)  # fmt: skip


class Tracker:
    """A store for numbers by name and step; this base class stores nothing.

    It is made at the first step, from the run's folder and config; after an interruption `step` is
    where the training continues. If `package` is missing, the error before the training says how
    to `install` it.
    """

    package: ClassVar[str] = ""
    install: ClassVar[str] = ""

    def __init__(self, folder: Path, config: "Config", step: int) -> None:
        pass

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of a step."""

    def close(self, complete: bool) -> None:
        """End the record; ``complete``: whether the training reached its end."""


class TensorBoard(Tracker):
    """Event files in ``RUN/tensorboard``: ``tensorboard --logdir runs`` shows all runs.

    A resumed training hides the later steps of the one that was interrupted.
    """

    package, install = "tensorboard", "pip install -c constraints.txt '.[track]'"

    def __init__(self, folder: Path, config: "Config", step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter  # torch's class has no types
        self.writer = make(str(folder / "tensorboard"), purge_step=step)
        self.writer.add_text("config", f"    {config.toml().decode()}".replace("\n", "\n    "))

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self, complete: bool) -> None:
        self.writer.close()


TRACKERS: Table[type[Tracker]] = Table(
    {"none": Tracker, "tensorboard": TensorBoard},
    "regard.trackers",
    Tracker,
    "tracker",
    classes=True,
)


@contextmanager
def tracking(folder: Path, config: "Config") -> "Iterator[Callable[[Progress], None]]":
    """Yield a function that sends a step's numbers to the tracker of ``track=``.

    Raises: the tracker or its package is not installed.
    """
    from regard.lab.runs.metrics_log import logged

    make = look_up(TRACKERS, config.training.track, "tracker")
    _must_be_installed(make, config.training.track)
    tracker: Tracker | None = None
    complete = False

    def add(progress: "Progress") -> None:
        nonlocal tracker, complete
        if tracker is None:  # the first step is where a resumed training continues
            tracker = make(folder, config, progress.step)
        if logged(progress):
            values = asdict(progress)
            numbers = {key: values[key] for key in TRACKED if values[key] is not None}
            tracker.add(progress.step, numbers)
        complete = bool(progress.ended) or progress.step >= progress.steps

    try:
        yield add
    finally:
        if tracker is not None:
            tracker.close(complete)


def _must_be_installed(tracker: type[Tracker], name: str) -> None:
    if not tracker.package:
        return
    try:
        import_module(tracker.package)
    except ImportError as error:
        raise RegardError(
            f"track={name} needs {tracker.package}, which is not installed ({error}): "
            f"{tracker.install}, or leave track= out; metrics.jsonl has the same numbers"
        ) from None
