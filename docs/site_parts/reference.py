"""The reference pages: commands, settings and Python modules, read from regard itself.

A page under ``docs/reference`` contains a line ``<!-- generated: NAME -->`` (Markdown) or
``.. generated: NAME`` (reStructuredText), which `insert` replaces when Sphinx reads the page.
"""

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

import regard
from regard.core.settings import Settings, in_words
from regard.lab.cli.main import COMMANDS, imported
from regard.lab.labs import LABS, open_lab
from regard.lab.labs.comparison import ComparisonLab
from regard.lab.labs.lab import MeasuringLab
from regard.lab.tasks import TASKS
from regard.lab.web.limits import Limits
from regard.training.settings import TrainingSettings

DOCS = Path(__file__).parent.parent
MARKER = re.compile(r"^(?:<!-- generated: (.+) -->|\.\. generated: (.+))$", re.M)
SPECIAL = re.compile(r"([\\*_<>\[\]|$~{}#])")
#: What a docstring writes and reStructuredText would read as markup: |x|, *, x_ and file:line.
MARKUP = re.compile(r"[|*]|_(?=\W|$)|(?<=\bfile):(?=\w)")
CODE = re.compile(r"(`[^`]+`)")
#: The pages of modules: folders, without their inner workings, and single modules.
PAGES = {
    "attention": ("regard.attention",),
    "layers": ("regard.nn.layers",),
    "models": ("regard.nn.models",),
    "decoding": ("regard.decoding",),
    "analysis": ("regard.analysis",),
    "conformance": ("regard.conformance",),
    "interop": ("regard.interop",),
    "data": ("regard.lab.data.examples", "regard.lab.data.named", "regard.lab.data.tokenizers"),
    "tasks": ("regard.lab.tasks.task", "regard.lab.tasks.evaluation", "regard.lab.tasks.texts"),
    "runs": ("regard.lab.runs.run", "regard.lab.runs.config", "regard.training.settings"),
    "studies": (
        "regard.lab.studies.arms", "regard.lab.studies.compare", "regard.lab.studies.result",
        "regard.lab.studies.statistics", "regard.lab.studies.search",
    ),
    "reports": (
        "regard.lab.reports.notebook", "regard.lab.reports.figures", "regard.lab.reports.findings",
    ),
    "labs": ("regard.lab.labs.lab", "regard.lab.labs.comparison", "regard.lab.labs.collection"),
    "base": (
        "regard.core.errors", "regard.core.settings", "regard.core.ranges", "regard.core.tables",
        "regard.core.names", "regard.core.plugins", "regard.core.trusted",
        "regard.lab.web.served_model", "regard.lab.web.limits",
    ),
}  # fmt: skip
INNER = ("regard.attention.kernels", "regard.nn.models.settings", "regard.conformance.__main__")


def escape(text: str) -> str:
    """Return prose as Markdown that shows exactly this text; code in backticks stays code.

    >>> escape("1 * 2 in `a*b`")
    '1 \\\\* 2 in `a*b`'
    """
    text = text.replace("``", "`")
    parts = CODE.split(" ".join(text.split()))
    return "".join(part if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def commands() -> Iterator[str]:
    """Yield the Markdown lines of every command: its help, arguments and options."""
    for name in COMMANDS:
        command = imported(name)
        inner = getattr(command, "commands", {})
        yield from _command(f"regard {name}", command, 2)
        for below in inner:
            yield from _command(f"regard {name} {below}", inner[below], 3)


def _command(title: str, command: Any, level: int) -> Iterator[str]:
    """Yield what ``--help`` prints for one command."""
    yield f"\n{'#' * level} {title}\n"
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("regard "):
            yield f"    {' '.join(paragraph.split())}\n"
        else:
            yield f"{escape(paragraph)}\n"
    with command.make_context(title, [], resilient_parsing=True) as context:
        records = [parameter.get_help_record(context) for parameter in command.params]
    for names, help_text in filter(None, records):
        yield f"* `{names}`: {escape(help_text)}"


def settings() -> Iterator[str]:
    """Yield the Markdown lines of every setting of tasks, models, training, server and labs."""
    yield "\n## Training\n"
    yield from _table(TrainingSettings)
    yield "\n## Tasks\n"
    yield from _owners({name: (task.settings, task.defaults) for name, task in TASKS.items()})
    yield "\n## Models\n"
    models = {
        name: (entry.settings, entry.defaults)
        for task in TASKS.values()
        for name, entry in task.models.items()
    }
    yield from _owners(models)
    yield "\n## Server\n"
    yield from _table(Limits)
    yield "\n## Labs\n"
    labs = {name: (kind, {}) for name in LABS if (kind := _lab_settings(name))}
    yield from _owners(labs)


def _lab_settings(name: str) -> type[Settings] | None:
    lab = open_lab(name)
    if isinstance(lab, MeasuringLab):
        return lab.settings
    return lab.options if isinstance(lab, ComparisonLab) else None


def _owners(owners: Mapping[str, tuple[type[Settings], Mapping[str, Any]]]) -> Iterator[str]:
    """Yield each class of settings once, with the names that it belongs to."""
    kinds = dict.fromkeys(kind for kind, _ in owners.values())
    for kind in kinds:
        names = {name: given for name, (one, given) in owners.items() if one is kind}
        yield f"\n### {', '.join(names)}\n"
        for name, given in names.items():
            own = ", ".join(f"`{key}={in_words(value)}`" for key, value in given.items())
            if own:
                yield f"Defaults of {escape(name)} other than below: {own}.\n"
        if not kind.model_fields:
            yield "No settings.\n"
            continue
        yield from _table(kind)


def _table(kind: type[Settings]) -> Iterator[str]:
    """Yield the table of one class: name, default, bounds and meaning of each setting."""
    meanings = kind.meanings()
    described = all(field.description for field in kind.model_fields.values())
    if not described:
        for paragraph in (kind.__doc__ or "").split("\n\n")[:2]:
            yield f"{escape(paragraph)}\n"
    yield f"| setting | default | range |{' meaning |' * described}"
    yield f"|---|---|---|{'---|' * described}"
    for key, field in kind.model_fields.items():
        default = "" if field.default is PydanticUndefined else in_words(field.default)
        meaning = f" {escape(meanings[key])} |" if described else ""
        shown = f"`{default}`" if default else ""
        yield f"| `{key}` | {shown} | {_range(field.metadata)} |{meaning}"


def _range(metadata: list[Any]) -> str:
    """Return the bounds of a number in words."""
    signs = {"ge": "≥", "gt": "\\>", "le": "≤", "lt": "\\<"}
    return ", ".join(
        f"{sign} {bound:,}"
        for one in metadata
        for key, sign in signs.items()
        if (bound := getattr(one, key, None)) is not None
    )


def unlisted() -> Iterator[str]:
    """Yield the pages of the folder ``docs`` itself that no toctree names."""
    texts = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    blocks = "\n".join(re.findall(r"^```{toctree}\n(.+?)^```", "\n".join(texts), re.M | re.S))
    named = {Path(line.strip()).name for line in blocks.splitlines()}
    yield from sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in {*named, "index"})


def modules(page: str) -> Iterator[str]:
    """Yield the reStructuredText lines of each module of a page."""
    for name in module_names(page):
        yield f"\n{name}\n{'-' * len(name)}\n"
        yield f".. automodule:: {name}\n   :members:\n   :show-inheritance:\n"


def package() -> Iterator[str]:
    """Yield the reStructuredText lines of the names of ``import regard``, at their homes."""
    for name in regard.__all__:
        one = getattr(regard, name)
        kind = "class" if isinstance(one, type) else "function"
        kind = "exception" if isinstance(one, type) and issubclass(one, Exception) else kind
        yield f"\nregard.{name}\n{'-' * (len(name) + 7)}\n"
        members = "   :members:\n" if kind == "class" else ""
        yield f".. auto{kind}:: {one.__module__}.{one.__qualname__}\n   :no-index:\n{members}"


def module_names(page: str) -> list[str]:
    """Return the names of the modules of a page, in alphabetical order."""
    names = []
    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        inside = any(f"{module.name}.".startswith(f"{one}.") for one in PAGES[page])
        if inside and not module.ispkg and not module.name.startswith(INNER):
            names.append(module.name)
    return sorted(names)


def as_rst(lines: list[str]) -> list[str]:
    """Return a docstring of regard as reStructuredText: signs of formulas are text, not markup.

    >>> as_rst(["|i − j| and ``a|b`` and *x"])
    ['\\\\|i − j\\\\| and ``a|b`` and \\\\*x']
    """
    return [_formula(line) for line in lines]


def _formula(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    body = line[indent:]
    if body.startswith((">>>", "...", "* ", "- ")):
        mark = body[:2] if body.startswith(("* ", "- ")) else ""
        return line[:indent] + mark + (_formula(body[2:]) if mark else body)
    parts = re.split(r"(``.+?``|:\w+:`[^`]+`|`[^`]+`|#: )", body)
    plain = (MARKUP.sub(r"\\\g<0>", part) for part in parts)
    return line[:indent] + "".join(
        part if i % 2 else clean for i, (part, clean) in enumerate(zip(parts, plain, strict=True))
    )


GENERATED: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "settings": settings,
    "package": package,
    "unlisted": unlisted,
}


def insert(app: Any, docname: str, content: list[str]) -> None:
    """Replace the markers of a page by what they name (the event ``source-read``)."""

    def generated(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        kind, _, argument = name.partition(" ")
        return "\n".join(modules(argument) if kind == "modules" else GENERATED[kind]())

    content[0] = MARKER.sub(generated, content[0])


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out scikit-learn's generated methods (the event ``autodoc-skip-member``)."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def convert(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring in place (the event ``autodoc-process-docstring``)."""
    lines[:] = as_rst(lines)
