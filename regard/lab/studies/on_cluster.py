"""The common base of cluster launchers: jobs as plain values, with files next to their runs."""

from abc import abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.core.errors import RegardError
from regard.lab.studies.launch import Job, Work
from regard.lab.studies.pool import Answer, PoolLauncher
from regard.lab.studies.progress import progress_path
from regard.lab.studies.spec import JobSpec

EXTRA = "pip install 'regard[cluster]'"


class ClusterLauncher(PoolLauncher):
    """A launcher whose workers are elsewhere, and have the same files."""

    def progress(self, job: Job, aside: Path) -> Path:
        """Return the path beside the run's folder, which the workers know too."""
        path = progress_path(Path(job.task.folder))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def call(
        self, work: Work, job: Job, progress: Path
    ) -> tuple[Callable[..., Answer], tuple[Any, ...]]:
        """Return the function of the worker, and the job as plain values."""
        return self.function, (JobSpec.of(work, job).plain(),)

    @property
    @abstractmethod
    def function(self) -> Callable[[dict[str, Any]], Answer]:
        """Return the module-level function that runs a job in a worker."""


def package(name: str) -> ModuleType:
    """Import a package of the extra ``cluster``. Raises: it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise RegardError(f"--launch needs the package {name} ({error}); {EXTRA}") from None
