"""The runs and comparisons that a server shows, by name; models are loaded when they are asked."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from regard.atomic_io import MANIFEST
from regard.errors import RegardError, look_up
from regard.reading import parse_json
from regard.runs.config import CONFIG
from regard.studies.result import read_comparison
from regard.tasks import TASKS, unit_of
from regard.tasks.pretraining.evaluation import beginning
from regard.web.pretrained import is_pretrained
from regard.web.pretrained import told as pretrained
from regard.web.subject import Open, Subject, opened

MOST = 500  # runs that are found below the folders named
DEEP = 5  # folders below one that is named
COMPARISON = "comparison.json"
LOOKED = 2_000  # rows of predictions that are read for examples
SHORT = 280  # signs of an example
EXAMPLES = 4


@dataclass
class Shelf:
    """Runs and comparisons by name, and the few models that are in memory."""

    runs: dict[str, Path]
    comparisons: dict[str, Path] = field(default_factory=dict)
    keep: int = 4
    open: Open = opened
    _loaded: "OrderedDict[str, Subject]" = field(default_factory=OrderedDict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def loaded(self) -> int:
        """Models in memory."""
        return len(self._loaded)

    def check(self, name: str) -> str:
        """The name of a run that is here. Errors: no such run, with the nearest spellings."""
        look_up(self.runs, name, "run")
        return name

    def subject(self, name: str) -> Subject:
        """A run's model, loaded if need be; the one unused for longest makes room."""
        with self._lock:  # `listed` is asked in another thread
            if name not in self._loaded:
                self._loaded[name] = self.open(name, self.runs[self.check(name)])
            self._loaded.move_to_end(name)
            while len(self._loaded) > self.keep:
                self._loaded.popitem(last=False)
            return self._loaded[name]

    def listed(self) -> list[dict[str, Any]]:
        """Each run in a few plain values, read without loading a model.

        A folder that only an `open` of one's own reads is loaded, once, to ask what it does.
        """
        return [self._listed(name, folder) for name, folder in self.runs.items()]

    def _listed(self, name: str, folder: Path) -> dict[str, Any]:
        try:
            return _told(name, folder) if self.open is opened else self._asked(name, folder)
        except RegardError as error:
            return {"name": name, "error": str(error)}

    def _asked(self, name: str, folder: Path) -> dict[str, Any]:
        with suppress(RegardError):
            return _told(name, folder)
        if name not in self._kinds:
            self._kinds[name] = self.subject(name).kind
        return _own(name, self._kinds[name])

    def examples(self, name: str) -> list[str]:
        """A few short texts of a run's test split, each of another answer where there are several.

        Of a run that goes on with texts, or whose texts are all long, their beginnings; of a
        folder without texts none.
        """
        path = self.runs[self.check(name)] / "predictions.jsonl"
        found: dict[str, list[str]] = {}
        cut: list[str] = []  # where all texts are long
        task = TASKS.get(self._task(name))
        hidden = task.hidden if task else ""
        try:
            with path.open("rb") as file:
                for line in islice(file, LOOKED):
                    row = parse_json(line, path)
                    text, label = str(row["text"]), str(row.get("label", ""))
                    if "nats" in row:  # pieces of texts, of a pretrained run
                        text = beginning(text, hidden)
                    if 0 < len(text) <= SHORT:
                        found.setdefault(label, []).append(text)
                    elif text and len(cut) < EXAMPLES:
                        cut.append(text[:SHORT].rpartition(" ")[0] or text[:SHORT])
        except (OSError, RegardError, KeyError, TypeError, AttributeError):
            return []
        several = [sorted(texts, key=len, reverse=True) for texts in found.values()]
        turns = [text for turn in zip_longest(*several) for text in turn if text is not None]
        return list(dict.fromkeys(turns or cut))[:EXAMPLES]

    def _task(self, name: str) -> str:
        from regard.runs.config import Config

        try:
            return Config.read(self.runs[name]).task
        except RegardError:  # a folder of another layout
            return ""

    def comparison(self, name: str) -> dict[str, Any]:
        """What a comparison found, as ``regard compare --json`` says it. Errors: unreadable."""
        look_up(self.comparisons, name, "comparison")
        found = read_comparison(self.comparisons[name])
        unit = unit_of(str(found.get("metric")))
        runs = self._runs_of(self.comparisons[name], found)
        written = {"unit": unit.sign, "times": unit.times, "digits": unit.digits}
        return {**found, "name": name, **written, "lower": unit.lower, "runs": runs}

    def _runs_of(self, folder: Path, found: dict[str, Any]) -> dict[str, list[str]]:
        """The runs on this shelf of each arm."""
        homes: dict[str, list[str]] = {}
        for arm in found["arms"]:
            home = folder / str(arm.get("folder") or arm.get("name"))
            homes[str(arm.get("name"))] = [
                name for name, path in self.runs.items() if home == path or home in path.parents
            ]
        return homes


def find(folders: Sequence[Path], keep: int = 4) -> Shelf:
    """All complete runs and comparisons in these folders and below; without any, in ``runs``.

    Names are paths from the nearest folder that holds them all.

    Errors: no such folder; nothing in it.
    """
    asked = list(folders) or [Path("runs")]
    runs: list[Path] = []
    comparisons: list[Path] = []
    for folder in asked:
        if not folder.is_dir():
            what = (
                "give the folder of a run" if folders else "train one: regard train classification"
            )
            raise RegardError(f"{folder} is no folder; {what}")
        _search(folder.resolve(), runs, comparisons, DEEP)
    if not runs and not comparisons:
        places = ", ".join(map(str, asked))
        raise RegardError(f"no complete run in {places}; train one: regard train classification")
    both = list(dict.fromkeys([*runs, *comparisons]))
    base = _above(both)
    return Shelf(
        {_name(path, base): path for path in dict.fromkeys(runs)},
        {_name(path, base): path for path in dict.fromkeys(comparisons)},
        keep,
    )


def _search(folder: Path, runs: list[Path], comparisons: list[Path], depth: int) -> None:
    if (folder / CONFIG).exists():
        if (folder / MANIFEST).exists() and len(runs) < MOST:
            runs.append(folder)
        return
    if is_pretrained(folder):
        runs.append(folder)
        return
    if (folder / COMPARISON).exists():
        comparisons.append(folder)
    if depth:
        for below in _inside(folder):
            if below.is_dir() and not below.is_symlink() and not below.name.startswith("."):
                _search(below, runs, comparisons, depth - 1)


def _inside(folder: Path) -> list[Path]:
    """What a folder holds; nothing of one that may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _above(paths: Sequence[Path]) -> Path:
    """The nearest folder that holds all of them, itself none of them."""
    common = paths[0].parent
    while not all(common in path.parents for path in paths):
        common = common.parent
    return common


def _name(path: Path, base: Path) -> str:
    return path.relative_to(base).as_posix().encode(errors="replace").decode()


def _told(name: str, folder: Path) -> dict[str, Any]:
    """A run in a few plain values. Errors: a folder of another layout; its files are broken."""
    from regard.runs.config import Config
    from regard.runs.folder import Folder

    if is_pretrained(folder):
        return pretrained(name, folder)
    config, environment = Config.read(folder), Folder(folder).environment()
    network, data = config.network.model_dump(), environment.get("data", {})
    return {
        "name": name,
        "task": config.task,
        "model": config.model,
        "says": config.entry.describe(config.network),
        "kind": "sequences" if TASKS[config.task].answers_in_texts else "classification",
        "data": str(data.get("name", getattr(config.data, "data", ""))),
        "labels": data.get("labels", []),
        "attends": config.attends,
        "layers": network.get("layers"),
        "heads": network.get("heads"),
        "parameters": environment.get("parameters"),
        "writes": TASKS[config.task].writes,
        "temperature": TASKS[config.task].temperature,
        "settings": {k: v for k, v in network.items() if isinstance(v, str | int | float | bool)},
    }


def _own(name: str, kind: str) -> dict[str, Any]:
    """What can be told of a subject that is no run."""
    writes = kind == "sequences"
    return {
        "name": name,
        "task": "your own",
        "model": name,
        "says": "writes texts" if writes else "labels texts",
        "kind": kind,
        "data": "",
        "labels": [],
        "attends": True,
        "layers": None,
        "heads": None,
        "parameters": None,
        "writes": "another" if writes else "",
        "temperature": 0.0,
        "settings": {},
    }
