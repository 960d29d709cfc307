"""The reference pages: commands, settings and Python modules, read from regard itself.

A page under ``docs/reference`` contains a line ``<!-- generated: NAME -->``, which `insert`
replaces when Sphinx reads the page. `write_modules` writes one page for each module.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic_core import PydanticUndefined

import regard
from benchmarks.public_names import modules, public_names
from regard.core.settings import Settings, in_words
from regard.lab.cli.main import COMMANDS, imported
from regard.lab.labs import LABS, open_lab
from regard.lab.labs.comparison import ComparisonLab
from regard.lab.labs.lab import MeasuringLab
from regard.lab.tasks import TASKS
from regard.lab.web.limits import Limits
from regard.training.settings import TrainingSettings

DOCS = Path(__file__).parent.parent
MARKER = re.compile(r"^<!-- generated: (.+) -->$", re.M)
SPECIAL = re.compile(r"([\\*_<>\[\]|$~{}#])")
#: What a docstring writes and reStructuredText would read as markup: |x|, *, x_ and file:line.
MARKUP = re.compile(r"[|*]|_(?=\W|$)|(?<=\bfile):(?=\w)")
CODE = re.compile(r"(`[^`]+`)")
#: An empty comment of reStructuredText, which shows nothing.
NO_TYPE = ["..", ""]
#: The sections of the reference: their modules, or folders of modules, in the order of the page.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Layers": ("regard.nn.layers",),
    "Attention": (
        "regard.attention.attend", "regard.attention.layer", "regard.attention.attended",
        "regard.attention.head_spec", "regard.attention.cache", "regard.attention.packing",
    ),
    "Scores": ("regard.attention.score", "regard.attention.scores"),
    "Masks": ("regard.attention.mask", "regard.attention.masks"),
    "Positions": ("regard.attention.positions",),
    "Normalizers": ("regard.attention.normalizer", "regard.attention.normalizers"),
    "Mechanisms": ("regard.attention.mechanism", "regard.attention.mechanisms"),
    "Kernels": ("regard.attention",),
    "Models": ("regard.nn.models",),
    "Training": ("regard.training",),
    "Decoding": ("regard.decoding",),
    "Analysis": ("regard.analysis",),
    "Import and export": ("regard.interop",),
    "Laws of every part": ("regard.conformance",),
    "Errors, settings, names, files": ("regard.core",),
    "Runs": (
        "regard.lab.cli.calls", "regard.lab.runs.opening", "regard.lab.runs.run",
        "regard.lab.runs.config", "regard.lab.runs.estimators",
        "regard.lab.runs.kernel_estimator",
    ),
    "Data": ("regard.lab.data.examples", "regard.lab.data.named", "regard.lab.data.tokenizers"),
    "Tasks": ("regard.lab.tasks.task", "regard.lab.tasks.evaluation", "regard.lab.tasks.texts"),
    "Comparisons": (
        "regard.lab.studies.arms", "regard.lab.studies.compare", "regard.lab.studies.result",
        "regard.lab.studies.statistics", "regard.lab.tasks.estimates", "regard.lab.studies.search",
    ),
    "Reports": (
        "regard.lab.reports.notebook", "regard.lab.reports.plots", "regard.lab.reports.figures",
        "regard.lab.reports.findings",
    ),
    "Labs": ("regard.lab.labs.lab", "regard.lab.labs.comparison", "regard.lab.labs.collection"),
    "Server": ("regard.lab.web.served_model", "regard.lab.web.limits"),
}  # fmt: skip
#: The folder of the generated pages, one a module, below ``docs``.
FOLDER = "reference/modules"


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


@cache
def sections() -> Mapping[str, Sequence[ModuleType]]:
    """Return the modules of each section that have public names; each module stands in one."""
    remaining = {module.__name__: module for module in modules() if public_names(module)}
    found: dict[str, list[ModuleType]] = {}
    for title, owners in SECTIONS.items():
        names = [
            name for owner in owners for name in remaining if f"{name}.".startswith(f"{owner}.")
        ]
        found[title] = [remaining.pop(name) for name in dict.fromkeys(names)]
    return found


def python() -> Iterator[str]:
    """Yield the Markdown lines of the list of modules, with their names and tables of contents."""
    for title, members in sections().items():
        yield f"\n### {title}\n\n| module | names | |\n|---|---|---|"
        for module in members:
            page = f"[{module.__name__}](modules/{module.__name__}.rst)"
            names = ", ".join(f"`{name}`" for name in public_names(module))
            yield f"| {page} | {names} | {escape(_summary(module))} |"
        yield "\n```{toctree}\n:hidden:\n:caption: " + title + "\n"
        yield from (f"modules/{module.__name__}" for module in members)
        yield "```"


def package() -> Iterator[str]:
    """Yield the Markdown lines of the names of ``import regard``, linked to their modules."""
    for name in regard.__all__:
        one = getattr(regard, name)
        target = f"{one.__module__}.{one.__qualname__}"
        yield f"* {{py:obj}}`regard.{name} <{target}>`: {escape(_summary(one))}"


def _summary(documented: Any) -> str:
    """Return the first paragraph of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n\n")[0]


def module_page(module: ModuleType) -> str:
    """Return the reStructuredText page of one module."""
    name = module.__name__
    return (
        f"{name}\n{'=' * len(name)}\n\n"
        f".. automodule:: {name}\n   :members:\n   :show-inheritance:\n"
    )


def write_modules(app: Any) -> None:
    """Write the page of every module (the event ``builder-inited``); equal pages stay untouched."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    pages = {f"{m.__name__}.rst": module_page(m) for every in sections().values() for m in every}
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, page in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != page:
            path.write_text(page, encoding="utf-8")


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
    "python": python,
    "package": package,
    "unlisted": unlisted,
}


def insert(app: Any, docname: str, content: list[str]) -> None:
    """Replace the markers of a page by what they name (the event ``source-read``)."""

    content[0] = MARKER.sub(lambda match: "\n".join(GENERATED[match[1]]()), content[0])


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out scikit-learn's generated methods (the event ``autodoc-skip-member``)."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def convert(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring in place (the event ``autodoc-process-docstring``).

    Napoleon takes the words before a colon in an attribute's first line for its type, so that an
    attribute gets an empty comment as its first line.
    """
    lines[:] = [*NO_TYPE * (what in ("attribute", "data", "property")), *as_rst(lines)]
