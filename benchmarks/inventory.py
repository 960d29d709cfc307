"""A list of all of regard's names, to compare after a change.

    python -m benchmarks.inventory --out names.json
    python -m benchmarks.inventory --against names.json

Names are commands with their options, settings with their defaults, models, labs with their arms,
tasks, named data sets, parts of attention with their options, public Python names with their
parameters, paths and schemas of the server, and the keys of ``--json`` outputs and of the JSON
files of a run and of a comparison. Keys are collected from small trainings on built-in data, so
this takes about a minute.
"""

import argparse
import inspect
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import regard
from benchmarks import unmoved
from benchmarks.public_names import modules, public_methods, public_names
from regard.attention import MECHANISMS, NORMALIZERS, PATTERNS, POSITIONS, SCORES
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.core.settings import Settings
from regard.lab.cli.main import COMMANDS, imported
from regard.lab.data.named import DATA
from regard.lab.labs import LABS, open_lab
from regard.lab.tasks import TASKS
from regard.lab.web.api import create_app
from regard.lab.web.limits import Limits
from regard.lab.web.registry import Registry
from regard.training.settings import TrainingSettings

SHORT = ("steps=2", "examples=60", "threads=1")
SMALL = ("width=8", "layers=1", "heads=1", *SHORT)
#: Commands that print JSON, run in this order in a folder of their own.
PRINTED: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "classification", *SMALL, "--out", "runs/one"),
    "train of a writer": ("train", "dates", "width=8", *SHORT, "--out", "runs/two"),
    "compare": (
        "compare", "classification", "--arms", "tfidf,mean", "--seeds", "2", *SHORT,
        "--out", "comparison",
    ),
    "lab": ("lab", "kernel-regression", "keys=0", "steps=60"),
    "evaluate": ("evaluate", "runs/one"),
    "predict": ("predict", "runs/one", "a good film"),
    "predict of a writer": ("predict", "runs/two", "3 May 1999"),
    "show": ("show", "runs/one", "a good film"),
    "runs list": ("runs", "list", "runs"),
    "data check": ("data", "check", "reviews"),
    "data list": ("data", "list"),
    "check": ("check", "dot"),
    "doctor": ("doctor",),
}  # fmt: skip


def commands() -> Iterator[str]:
    """Yield each command, its arguments and its options."""
    for name in COMMANDS:
        command = imported(name)
        inner = getattr(command, "commands", {})
        every = {name: command} | {f"{name} {key}": inner[key] for key in inner}
        for title, one in every.items():
            yield title
            for parameter in one.params:
                for option in (*parameter.opts, *parameter.secondary_opts):
                    yield f"{title} {option}"


def settings_of(owner: str, kind: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of one owner with their defaults."""
    for key, field in kind.model_fields.items():
        yield f"{owner}: {key}={given.get(key, field.default)!r}"


def settings() -> Iterator[str]:
    """Yield each setting of trainings, tasks, models, labs and the server with its default."""
    yield from settings_of("training", TrainingSettings, {})
    yield from settings_of("server", Limits, {})
    for name, task in TASKS.items():
        yield from settings_of(f"task {name}", task.settings, task.defaults)
        yield from (f"task {name}, training: {key}={x!r}" for key, x in task.training.items())
        for model, entry in task.models.items():
            yield from settings_of(f"model {name}/{model}", entry.settings, entry.defaults)
    for name in LABS:
        lab = open_lab(name)
        kind = getattr(lab, "settings", None) or getattr(lab, "options", None)
        if isinstance(kind, type) and issubclass(kind, Settings):
            yield from settings_of(f"lab {name}", kind, {})


def labs() -> Iterator[str]:
    """Yield each lab with its question, and its arms or members."""
    for name, entry in LABS.items():
        yield f"{name}: {entry.question}"
        lab = open_lab(name)
        for kind in ("arms", "members", "presets"):
            for one in getattr(lab, kind, ()):
                yield f"{name}, {kind}: {getattr(one, 'name', one)}"


def parts() -> Iterator[str]:
    """Yield each part of attention with the options of its name."""
    tables: Mapping[str, Mapping[str, Any]] = {
        "score": SCORES, "wrapper": SCORE_WRAPPERS, "position": POSITIONS,
        "normalizer": NORMALIZERS, "mechanism": MECHANISMS, "pattern": PATTERNS,
    }  # fmt: skip
    for kind, table in tables.items():
        for name, part in table.items():
            yield f"{kind} {name}"
            yield from (f"{kind} {name}, option {key}" for key in getattr(part, "options", ()))


def python() -> Iterator[str]:
    """Yield each public class, function and method with its parameters, without its module."""
    yield from (f"regard.{name}" for name in regard.__all__)
    for module in modules():
        for name, value in public_names(module).items():
            if not isinstance(value, type):
                yield f"{name}({parameters(value)})"
                continue
            yield name
            for method, body in public_methods(value).items():
                yield f"{name}.{method}({parameters(body)})"


def parameters(function: Any) -> str:
    """Return the names of a function's parameters."""
    return ", ".join(inspect.signature(function).parameters)


def keys(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys; items of a list share one, and so do rows named by data.

    >>> sorted(keys({"arms": [{"name": "mean"}, {"mean": 1.0}]}))
    ['arms', 'arms[].mean', 'arms[].name']
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            here = f"{path}.{key}" if path else key
            if not re.fullmatch(r"[a-z_]+", key):
                here = f"{path}.*"
            yield here
            yield from keys(value, here)
    elif isinstance(tree, list):
        for one in tree:
            yield from keys(one, f"{path}[]")


def printed() -> Iterator[str]:
    """Yield the keys of each command's ``--json`` output, and of the files of its run."""
    with tempfile.TemporaryDirectory() as folder:
        for name, words in PRINTED.items():
            output = json.loads(unmoved.regard(*words, "--json", folder=Path(folder)))
            yield from (f"{name}: {key}" for key in keys(output))
        for path in sorted(Path(folder).rglob("*.json")):
            name = re.sub(r"(arms|runs)/.*/", "", str(path.relative_to(folder)))
            yield from (f"{name}: {key}" for key in keys(json.loads(path.read_text("utf-8"))))


def server() -> Iterator[str]:
    """Yield each path of the server with its methods, and the fields of its schemas."""
    app: Any = create_app(Registry({})).app
    schema = app.openapi()
    for path, methods in schema["paths"].items():
        yield from (f"{method.upper()} {path}" for method in methods)
    for name, one in schema["components"]["schemas"].items():
        yield from (f"{name}.{field}" for field in one.get("properties", ()))


def inventory() -> dict[str, list[str]]:
    """Return the sorted names of each kind."""
    kinds: dict[str, Any] = {
        "commands and options": commands, "settings": settings, "labs": labs, "parts": parts,
        "tasks": lambda: iter(TASKS), "data sets": lambda: iter(DATA),
        "models": lambda: (f"{name}/{one}" for name, task in TASKS.items() for one in task.models),
        "python": python, "server": server, "JSON keys": printed,
    }  # fmt: skip
    return {kind: sorted({*names()}) for kind, names in kinds.items()}


def main() -> None:
    """Write the names, or print those of an earlier list that are gone."""
    reader = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    reader.add_argument("--out", type=Path, help="file for the names")
    reader.add_argument("--against", type=Path, help="an earlier file, to compare with")
    options = reader.parse_args()
    now = inventory()
    if options.out:
        options.out.write_text(json.dumps(now, indent=1, ensure_ascii=False), encoding="utf-8")
    before = json.loads(options.against.read_text("utf-8")) if options.against else now
    for kind, names in before.items():
        lost = sorted({*names} - {*now[kind]})
        print(f"{kind}: {len(names)} before, {len(now[kind])} now, {len(lost)} lost")
        print(*(f"  {name}" for name in lost), sep="\n", end="\n" * bool(lost))


if __name__ == "__main__":
    main()
