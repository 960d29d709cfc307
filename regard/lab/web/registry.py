"""The registry of served runs and comparisons by name; models are loaded on first use."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from regard.core.atomic_io import MANIFEST
from regard.core.errors import RegardError, look_up
from regard.core.reading import parse_json
from regard.interop.onnx_graphs import runtime
from regard.lab.data.examples import from_json
from regard.lab.runs import load
from regard.lab.runs.config import CONFIG, Config
from regard.lab.runs.convergence import MEANINGS
from regard.lab.runs.folder import Folder
from regard.lab.runs.onnx_folder import can_run, through_onnx
from regard.lab.studies.result import read_comparison
from regard.lab.tasks import unit_of
from regard.lab.web.pretrained import describe as describe_pretrained
from regard.lab.web.pretrained import is_pretrained
from regard.lab.web.served_model import Open, ServedModel, ServedRun, opened

if TYPE_CHECKING:
    from regard.lab.tasks.task import Task

MOST = 500  # maximum number of runs below the given folders
DEEP = 5  # maximum depth below a given folder
COMPARISON = "comparison.json"
ROWS = 2_000  # rows of predictions read for examples
SHORT = 280  # maximum characters of an example
EXAMPLES = 4
ENCODERS = ("bert", "frozen")  # whose answers the page explains by attribution, not attention


@dataclass
class Registry:
    """Runs and comparisons by name, and the models in memory."""

    runs: dict[str, Path]
    comparisons: dict[str, Path] = field(default_factory=dict)
    keep: int = 4
    open: Open = opened
    onnx: bool = False
    int8: bool = False
    _loaded: "OrderedDict[str, ServedModel]" = field(default_factory=OrderedDict)
    _answers_in_texts: dict[str, bool] = field(default_factory=dict)
    _tested: dict[str, dict[str, str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def loaded(self) -> int:
        """Number of models in memory."""
        return len(self._loaded)

    def check(self, name: str) -> str:
        """Return the name if such a run exists. Raises: no such run, with similar names."""
        look_up(self.runs, name, "run")
        return name

    def model(self, name: str) -> ServedModel:
        """Return a run's model, loading it if needed and evicting the least recently used one."""
        with self._lock:  # `listed` runs in another thread
            if name not in self._loaded:
                self._loaded[name] = model = self.open(name, self.runs[self.check(name)])
                if self.onnx and isinstance(model, ServedRun) and can_run(model.run):
                    model.answering = through_onnx(model.run, int8=self.int8)
            self._loaded.move_to_end(name)
            while len(self._loaded) > self.keep:
                self._loaded.popitem(last=False)
            return self._loaded[name]

    def prepare_onnx(self, *, int8: bool = False) -> None:
        """Write the ONNX graph of each run that can use it, and answer by onnxruntime from now on.

        Other runs answer as before. Raises: as `regard.lab.runs.onnx_folder.through_onnx`.
        """
        runtime()
        self.onnx, self.int8 = True, int8
        for name in self.runs:
            self.model(name)

    def listed(self) -> list[dict[str, Any]]:
        """Describe each run in plain values without loading its model.

        A folder that only a custom ``open`` can read is loaded once.
        """
        return [self._listed(name, folder) for name, folder in self.runs.items()]

    def _listed(self, name: str, folder: Path) -> dict[str, Any]:
        try:
            return (
                describe_run(name, folder) if self.open is opened else self._describe(name, folder)
            )
        except RegardError as error:
            return {"name": name, "error": str(error)}

    def _describe(self, name: str, folder: Path) -> dict[str, Any]:
        with suppress(RegardError):
            return describe_run(name, folder)
        if name not in self._answers_in_texts:
            self._answers_in_texts[name] = self.model(name).answers_in_texts
        return describe_custom(name, self._answers_in_texts[name])

    def tested(self, name: str) -> dict[str, str]:
        """Return a run's score on its test split, and how its training ended, as sentences.

        Both are empty for a folder of another layout.
        """
        if name not in self._tested:
            self._tested[name] = _tested(self.runs[self.check(name)])
        return self._tested[name]

    def examples(self, name: str) -> dict[str, str]:
        """Return a few short texts of a run's test split, with different labels if possible.

        Each text has its true label, "" where the task has none.

        For a language model, or if all texts are long, they are beginnings; a folder without texts
        has none.
        """
        path = self.runs[self.check(name)] / "predictions.jsonl"
        by_label: dict[str, list[str]] = {}
        cut: list[str] = []  # used if all texts are long
        task = self._task(name)
        try:
            with path.open("rb") as file:
                for line in islice(file, ROWS):
                    row = parse_json(line, path)
                    text, label = from_json(row), str(row.get("label", ""))
                    text = task.prompt(text) if task else text
                    if 0 < len(text) <= SHORT:
                        by_label.setdefault(label, []).append(text)
                    elif text and len(cut) < EXAMPLES and type(text) is str:
                        cut.append(text[:SHORT].rpartition(" ")[0] or text[:SHORT])
        except (OSError, RegardError, KeyError, TypeError, AttributeError):
            return {}
        longest_first = [sorted(texts, key=len, reverse=True) for texts in by_label.values()]
        turns = [text for turn in zip_longest(*longest_first) for text in turn if text is not None]
        truth = {text: label for label, texts in by_label.items() for text in texts}
        chosen = list(dict.fromkeys(turns or cut))[:EXAMPLES]
        return {text: truth.get(text, "") for text in chosen}

    def _task(self, name: str) -> "Task[Any] | None":
        try:
            return Config.read(self.runs[name]).unread_task
        except RegardError:  # a folder of another layout
            return None

    def comparison(self, name: str) -> dict[str, Any]:
        """Return a comparison's results as in ``regard compare --json``. Raises: unreadable."""
        look_up(self.comparisons, name, "comparison")
        results = read_comparison(self.comparisons[name])
        unit = unit_of(str(results.get("metric")))
        runs = self._runs_of(self.comparisons[name], results)
        formatting = {"unit": unit.sign, "times": unit.times, "digits": unit.digits}
        return {**results, "name": name, **formatting, "lower": unit.lower, "runs": runs}

    def _runs_of(self, folder: Path, results: dict[str, Any]) -> dict[str, list[str]]:
        """Return the registered runs of each arm."""
        homes: dict[str, list[str]] = {}
        for arm in results["arms"]:
            home = folder / str(arm.get("folder") or arm.get("name"))
            homes[str(arm.get("name"))] = [
                name for name, path in self.runs.items() if home == path or home in path.parents
            ]
        return homes


def _tested(folder: Path) -> dict[str, str]:
    with suppress(RegardError, LookupError, ValueError, TypeError):  # another layout, or damaged
        run = load(folder)
        if run.complete and not is_pretrained(folder):
            how = run.convergence
            ended = "" if run.config.entry.fitted else f"{how}: {MEANINGS[how]}"
            return {
                "test": f"{'test' if run.held_out else 'train'} {run.evaluate().line()}",
                "ended": run.notes[0] if run.ended is not None else ended,
            }
    return {"test": "", "ended": ""}


def find(folders: Sequence[Path], keep: int = 4) -> Registry:
    """Find all complete runs and comparisons in these folders and below (default: ``runs``).

    Names are paths relative to the nearest common folder.

    Without runs, ``runs`` may be missing or empty: the lessons of the page need none.

    Raises: no such folder; a given one without runs.
    """
    roots = list(folders) or [Path("runs")]
    runs: list[Path] = []
    comparisons: list[Path] = []
    for folder in roots:
        if folders and not folder.is_dir():
            raise RegardError(f"{folder} is not a folder; give the folder of a run")
        _search(folder.resolve(), runs, comparisons)
    if folders and not runs and not comparisons:
        places = ", ".join(map(str, roots))
        raise RegardError(f"no complete run in {places}; train one: regard train classification")
    above = [path.parent for path in (*runs, *comparisons)]
    base = Path(os.path.commonpath(above)) if above else Path()
    return Registry(
        {_name(path, base): path for path in dict.fromkeys(runs)},
        {_name(path, base): path for path in dict.fromkeys(comparisons)},
        keep,
    )


def _search(root: Path, runs: list[Path], comparisons: list[Path]) -> None:
    for place, below, _ in os.walk(root):  # which skips links and unreadable folders
        folder = Path(place)
        is_run = (folder / CONFIG).exists()
        usable = (folder / MANIFEST).exists() and len(runs) < MOST if is_run else True
        if is_run or is_pretrained(folder):
            runs += [folder] if usable else []
            below.clear()
            continue
        if (folder / COMPARISON).exists():
            comparisons.append(folder)
        deepest = len(folder.relative_to(root).parts) == DEEP
        below[:] = [] if deepest else sorted(name for name in below if not name.startswith("."))


def _name(path: Path, base: Path) -> str:
    return path.relative_to(base).as_posix().encode(errors="replace").decode()


def describe_run(name: str, folder: Path) -> dict[str, Any]:
    """Describe a run in plain values. Raises: a folder of another layout; damaged files."""
    if is_pretrained(folder):
        return describe_pretrained(name, folder)
    config, environment = Config.read(folder), Folder(folder).environment()
    network, data = config.network.model_dump(), environment.get("data", {})
    task = config.unread_task
    return {
        "name": name,
        "task": config.task,
        "model": config.model,
        "says": config.entry.describe(config.network),
        "answers_in_texts": task.answers_in_texts,
        "data": str(data.get("name", getattr(config.data, "data", ""))),
        "labels": data.get("labels", []),
        "attends": config.attends,
        "attributes": config.model in ENCODERS and task.fits_head,
        "layers": network.get("layers"),
        "heads": network.get("heads"),
        "parameters": environment.get("parameters"),
        "writes": task.writes,
        "temperature": task.temperature,
        "second": task.columns.second,
        "features": task.columns.further,
        "settings": {k: v for k, v in network.items() if isinstance(v, str | int | float | bool)},
    }


def describe_custom(name: str, writes: bool) -> dict[str, Any]:
    """Describe a custom model, which is not a run of regard."""
    return {
        "name": name,
        "task": "your own",
        "model": name,
        "says": "generates texts" if writes else "labels texts",
        "answers_in_texts": writes,
        "data": "",
        "labels": [],
        "attends": True,
        "attributes": False,
        "layers": None,
        "heads": None,
        "parameters": None,
        "writes": "another" if writes else "",
        "temperature": 0.0,
        "second": "",
        "features": [],
        "settings": {},
    }
