"""Tab completion of tasks, models, data, settings and runs, without torch.

``regard --install-completion`` installs it for bash, zsh, fish or PowerShell. The shell starts
``regard`` at each press of Tab, so the tables of attention parts are read from the text of their
modules, which would import torch.
"""

import ast
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from regard.core.settings import Settings, in_words, words
from regard.core.tables import Table

ATTENTION = Path(__file__).parents[2] / "attention"
#: Settings whose values are rows of a table: the module and the name of the table.
TABLES = {
    "score": ("scores/__init__", "SCORES"),
    "pool_score": ("scores/__init__", "SCORES"),
    "normalize": ("normalizers/__init__", "NORMALIZERS"),
    "position": ("positions/__init__", "POSITIONS"),
    "pattern": ("masks/patterns", "PATTERNS"),
    "attention": ("mechanisms/__init__", "MECHANISMS"),
}
MOST = 200  # runs that are offered
Item = tuple[str, str]


def tasks(incomplete: str) -> list[Item]:
    """Complete a task."""
    from regard.lab.tasks import TASKS

    rows = [(name, TASKS[name].description) for name in TASKS.rows]
    return [row for row in rows if row[0].startswith(incomplete)]


def models(ctx: Any, incomplete: str) -> list[str]:
    """Complete a model of the task, or of any task; after a comma another one."""
    from regard.lab.tasks import TASKS

    task = _task(ctx)
    known = [task] if task in TASKS.rows else list(TASKS.rows)
    names = dict.fromkeys(name for entry in map(TASKS.__getitem__, known) for name in entry.models)
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def data(incomplete: str) -> list[str]:
    """Complete named data; without a match the shell offers files."""
    from regard.lab.data.named import DATA

    return [*[name for name in DATA.rows if name.startswith(incomplete)], *files(incomplete)]


def files(incomplete: str) -> Iterator[str]:
    """Complete a path: folders end with a slash."""
    home, slash, last = incomplete.rpartition("/")
    try:
        inside = sorted(Path(f"{home}{slash}" or ".").expanduser().iterdir())
    except OSError:
        return
    for path in inside:
        if path.name.startswith(last) and (last.startswith(".") or not path.name.startswith(".")):
            yield f"{home}{slash}{path.name}{'/' if path.is_dir() else ''}"


def runs(incomplete: str) -> list[str]:
    """Complete a folder of a run: those in runs/ and on the typed path."""
    from regard.lab.runs.config import CONFIG

    home = incomplete.rpartition("/")[0] or "runs"
    names = ("/".join(["*"] * depth) for depth in range(1, 4))
    runs = [
        path.parent.as_posix() for name in names for path in Path(home).glob(f"{name}/{CONFIG}")
    ]
    fit = [name for name in sorted(runs) if name.startswith(incomplete)]
    return fit[:MOST] or [name for name in files(incomplete) if name.endswith("/")]


def settings(ctx: Any, incomplete: str) -> list[Item]:
    """Complete ``key=`` or the value after it; bash passes ``key``, ``=``, ``value`` apart."""
    given = [str(word) for word in ctx.params.get("settings") or []]
    kinds = list(_kinds(_task(ctx), ctx.params.get("model")))
    if given and any(given[-1] in kind.model_fields for kind in kinds):  # "key=": click drops "="
        return [(v, "") for v in values(kinds, given[-1]) if v.startswith(incomplete)]
    if len(given) > 1 and given[-1] == "=":
        return [(v, "") for v in values(kinds, given[-2]) if v.startswith(incomplete)]
    key, equals, value = incomplete.partition("=")
    if equals:
        fit = values(kinds, key.replace("-", "_"))
        return [(f"{key}={one}", "") for one in fit if one.startswith(value)]
    used = {word.partition("=")[0] for word in given}
    meanings = {name: means for kind in kinds for name, means in kind.meanings().items()}
    fitting = [
        (name, means)
        for name, means in sorted(meanings.items())
        if name.startswith(incomplete.replace("-", "_")) and name not in used
    ]
    rows = [(f"{name}=", means) for name, means in fitting]
    if len(rows) == 1:  # a shell adds a space to the only match: "width= 64" is wrong
        rows.append((f"{rows[0][0]}{_default(kinds, fitting[0][0])}", "default"))
    return rows


def _default(kinds: Iterable[type[Settings]], name: str) -> str:
    """Return the default of a setting in words, or an ellipsis for an empty one."""
    fields = [kind.model_fields[name] for kind in kinds if name in kind.model_fields]
    return in_words(fields[0].default) or "…"


def _task(ctx: Any) -> str:
    """Return the task on the line; it may be among the other words after an incomplete option."""
    from regard.lab.tasks import TASKS

    given = [ctx.params.get("task"), *ctx.args]
    return next((str(word) for word in given if word in TASKS.rows), "")


def _kinds(task: object, model: object) -> Iterator[type[Settings]]:
    """Return the settings of a task, of its model (by default all of its models) and training."""
    from regard.lab.tasks import TASKS
    from regard.training.settings import TrainingSettings

    names = [str(task)] if task in TASKS.rows else list(TASKS.rows)
    for entry in map(TASKS.__getitem__, names):
        yield entry.settings
        rows = entry.models.rows if isinstance(entry.models, Table) else entry.models
        chosen = [str(model)] if model in rows else list(rows)
        yield from dict.fromkeys(entry.models[name].settings for name in chosen)
    yield TrainingSettings


def values(kinds: Iterable[type[Settings]], key: str) -> list[str]:
    """Return the values that a setting can have; empty for numbers and free text."""
    if key in TABLES:
        return ["none", *names_of(key)] if key == "pattern" else names_of(key)
    if key == "data":
        from regard.lab.data.named import DATA

        return list(DATA.rows)
    if key == "schedule":
        from regard.training.schedules import SCHEDULES

        return list(SCHEDULES)
    if key == "track":
        from regard.lab.runs.track import TRACKERS

        return list(TRACKERS)
    if key == "tokenizer":
        return ["words", "characters", "bpe", "unigram"]
    for kind in kinds:
        if choices := words(kind, key):
            return [str(choice) for choice in choices]
        if key in kind.model_fields and kind.model_fields[key].annotation is bool:
            return ["0", "1"]
    return []


def names_of(key: str) -> list[str]:
    """Return the rows of the table behind a setting, read from the text of its module.

    >>> names_of("score")[:3], names_of("pattern")[:2]
    (['dot', 'scaled-dot', 'general'], ['causal', 'window-64'])
    """
    module, table = TABLES[key]
    tree = ast.parse((ATTENTION / f"{module}.py").read_text(encoding="utf-8"))
    names: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.target) != table:
            continue
        assert isinstance(node.value, ast.Call)
        rows = node.value.args[0]
        assert isinstance(rows, ast.Dict)
        for name, row in zip(rows.keys, rows.values, strict=True):
            names += _examples(row) or ([str(name.value)] if isinstance(name, ast.Constant) else [])
    names += [point.name for point in entry_points(group=f"regard.{table.lower()}")]
    return list(dict.fromkeys(names))


def _examples(row: ast.expr) -> list[str]:
    """Return the examples of a pattern, which has numbers: Pattern(("window-64",), …)."""
    if isinstance(row, ast.Call) and row.args and isinstance(row.args[0], ast.Tuple):
        return [ast.literal_eval(each) for each in row.args[0].elts]
    return []
