"""The documentation site: its pages, what is generated, its notebooks. The build itself is slow."""

import doctest
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import regard
from benchmarks.public_names import modules, public_names
from regard.lab.cli.main import COMMANDS, imported
from regard.lab.labs import LABS
from regard.lab.tasks import TASKS
from regard.lab.web.limits import Limits
from regard.training.settings import TrainingSettings
from tests.test_documents import parse

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```", re.M | re.S)
NOTEBOOKS = sorted(path.stem for path in (DOCS / "tutorials").glob("*.md") if path.stem != "index")


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("site_parts.reference")
    sys.path.remove(str(DOCS))


def listed(page: Path) -> Iterator[Path]:
    """Yield the pages in the toctrees of a page."""
    for block in re.findall(r"^```\{toctree\}\n(.+?)^```", page.read_text("utf-8"), re.M | re.S):
        for line in block.splitlines():
            if not line or line.startswith((":", "<!--")):
                continue
            base = DOCS if line.startswith("/") else page.parent
            place = line.strip("/")
            yield from base.glob(f"{place}.md")


def test_every_page_is_in_one_table_of_contents(reference: ModuleType) -> None:
    seen: list[Path] = [DOCS / f"{name}.md" for name in reference.unlisted()]
    todo = [DOCS / "index.md"]
    while todo:
        found = list(listed(todo.pop()))
        new = [page for page in found if page not in seen]
        seen += new
        todo += [page for page in new if page.suffix == ".md"]
    pages = {*DOCS.rglob("*.md")} - {DOCS / "index.md"}
    built = {page for page in pages if "_build" in page.parts}
    assert sorted(map(str, pages - built - set(seen))) == []


def test_a_new_page_is_listed(reference: ModuleType, tmp_path: Path,
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    (tmp_path / "index.md").write_text("```{toctree}\n:hidden:\n\nold\n```\n")
    for name in ("old", "new"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n")
    assert list(reference.unlisted()) == ["new"]


def test_every_command_and_option_is_in_the_reference(reference: ModuleType) -> None:
    text = "\n".join(reference.commands())
    for name in COMMANDS:
        command = imported(name)
        below = getattr(command, "commands", {})
        assert f"## regard {name}\n" in text
        for one in [command, *below.values()]:
            section = text.partition(f"regard {name}\n")[2]
            for parameter in one.params:
                for option in parameter.opts if parameter.param_type_name == "option" else ():
                    assert option in section, f"regard {name} {option}"
        assert all(f"### regard {name} {sub}\n" in text for sub in below)


def test_every_setting_is_in_the_reference(reference: ModuleType) -> None:
    text = "\n".join(reference.settings())
    kinds = {TrainingSettings, Limits, *(task.settings for task in TASKS.values())}
    kinds |= {entry.settings for task in TASKS.values() for entry in task.models.values()}
    kinds |= {kind for name in LABS if (kind := reference._lab_settings(name))}
    missing = [
        f"{k.__name__}.{f}" for k in kinds for f in k.model_fields if f"| `{f}` |" not in text
    ]
    assert missing == []
    for name in [*TASKS, *(model for task in TASKS.values() for model in task.models), *LABS]:
        titles = [line for line in text.splitlines() if line.startswith("### ")]
        known = any(name in re.split(", ", title[4:]) for title in titles)
        collections = ("mechanisms", "replications", "scores")  # these have no settings
        assert known or name in collections, name


def test_every_module_has_one_page_layers_first(reference: ModuleType, tmp_path: Path) -> None:
    sections = reference.sections()
    assert [*sections][:3] == ["Layers", "Attention", "Scores"]
    assert [title for title, members in sections.items() if not members] == []
    pages = [module.__name__ for members in sections.values() for module in members]
    assert pages.count("regard.attention.attend") == 1
    assert len(pages) == len({*pages})
    library = {m.__name__ for m in modules() if public_names(m) and ".lab." not in m.__name__}
    assert library - {"regard", *pages} == set()
    folder = tmp_path / reference.FOLDER
    folder.mkdir(parents=True)
    (folder / "old.rst").write_text("a module that is gone")
    reference.write_modules(SimpleNamespace(srcdir=tmp_path))
    assert {path.stem for path in folder.iterdir()} == {*pages}
    assert ".. automodule:: regard.attention.attend\n" in (
        (folder / "regard.attention.attend.rst").read_text("utf-8")
    )


def test_the_page_of_python_links_every_name(reference: ModuleType) -> None:
    pages = {module.__name__ for members in reference.sections().values() for module in members}
    lines = [*reference.package()]
    targets = [re.findall(r"`regard\.(\w+) <(.+)\.\w+>`", line) for line in lines]
    assert [names[0][0] for names in targets] == regard.__all__
    assert [home for [(_, home)] in targets if home not in pages] == []
    text = "\n".join(reference.python())
    assert (
        "| [regard.attention.attend](modules/regard.attention.attend.rst) | `attend`, `expl" in text
    )


def test_examples_of_the_generator(reference: ModuleType) -> None:
    notebooks = importlib.import_module("site_parts.notebooks")
    for module in (reference, notebooks):
        result = doctest.testmod(module)
        assert (result.failed, result.attempted > 0) == (0, True)
    shown = ["<!-- generated: commands -->\n"]
    reference.insert(None, "reference/commands", shown)
    assert shown[0].count("\n## regard ") == len(COMMANDS)


def test_docstrings_are_escaped_once_and_attributes_keep_their_colons(
    reference: ModuleType,
) -> None:
    lines = ["Return (*batch, n)."]
    reference.convert(None, "function", "f", None, None, lines)
    assert lines == ["Return (\\*batch, n)."]
    lines = ["The sizes: rows and columns."]
    reference.convert(None, "attribute", "a", None, None, lines)
    assert lines == ["..", "", "The sizes: rows and columns."]


def test_search_and_configuration() -> None:
    pytest.importorskip("sphinx", reason="the site needs pip install -e '.[docs]'")
    search = importlib.import_module("site_parts.search")
    assert doctest.testmod(search).failed == 0
    assert search.SearchBoth({}).split("用注意力attention") == [
        "用", "注", "意", "力", "用注", "注意", "意力", "attention"
    ]  # fmt: skip
    scope: dict[str, object] = {"__file__": str(DOCS / "conf.py")}
    exec(compile((DOCS / "conf.py").read_text("utf-8"), "conf.py", "exec"), scope)
    assert scope["nb_execution_raise_on_error"] is True
    assert scope["html_title"] == f"regard {scope['release']}"


def test_the_picture_shows_the_recorded_result(reference: ModuleType) -> None:
    picture = importlib.import_module("site_parts.picture")
    rows = {row.name: row for row in picture.rows()}
    assert (rows["real: mean"].mean, rows["generated: transformer"].mean) == (71.2, 92.9)
    assert len(rows) == 10
    for theme in ("light", "dark"):
        stored = (DOCS / "pictures" / f"first-command-{theme}.svg").read_text("utf-8")
        assert stored == picture.drawing(theme), "run python docs/site_parts/picture.py"


@pytest.mark.parametrize("folder", ["tutorials", "zh/tutorials"])
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_commands_of_notebooks_parse(folder: str, name: str) -> None:
    text = (DOCS / folder / f"{name}.md").read_text("utf-8")
    assert "format_name: myst" in text
    cells = CELL.findall(text)
    assert len(cells) >= 4
    for cell in cells:
        if not cell.startswith("%%sh"):
            if not cell.startswith("%%writefile"):
                compile(cell, name, "exec")
            continue
        for line in re.sub(r"\\\n\s*", "", cell).splitlines():
            if line.startswith("regard "):
                parse(shlex.join(shlex.split(re.split(r" \|\| | > ", line)[0])))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_both_languages_run_the_same_cells(name: str) -> None:
    english, chinese = (
        CELL.findall((DOCS / folder / f"{name}.md").read_text("utf-8"))
        for folder in ("tutorials", "zh/tutorials")
    )
    assert len(english) == len(chinese)
    if name != "own-texts":  # its texts are Chinese there
        assert english == chinese


def test_versions_are_sorted(tmp_path: Path) -> None:
    versions = importlib.import_module("site_parts.versions")
    for name in ("0.9.0", "0.10.0", "1.0.0rc1", "notes"):
        (tmp_path / name).mkdir()
    assert versions.versions_in(tmp_path) == ["1.0.0rc1", "0.10.0", "0.9.0"]


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", "-b", "html"]
    done = subprocess.run([*command, DOCS, tmp_path / "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "注意" in (tmp_path / "0" / "searchindex.js").read_text("utf-8")
