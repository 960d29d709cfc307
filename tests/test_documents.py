"""Every command line in README.md and docs/ is one that ``regard`` accepts."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from regard.lab.cli.main import app
from regard.lab.cli.train import TASKS_IN_WORDS
from regard.lab.cli.train_request import MODELS_IN_WORDS, WRITERS_IN_WORDS
from regard.lab.tasks import TASKS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REGARD = typer.main.get_command(app)


def command_lines(page: Path) -> Iterator[str]:
    """Yield each command of an indented block, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    for line in re.findall(r"^    (?:\.venv/bin/)?(regard .+)$", text, re.M):
        yield from (part for part in line.split(" && ") if part.startswith("regard "))


def parse(line: str) -> None:
    """Parse one command line without running it."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((i for i, word in enumerate(words) if word in ("<", ">", "|")), None)]
    command, parent = REGARD, None
    while hasattr(command, "resolve_command"):  # a group, of typer's own copy of click
        parent = command.make_context("regard", list(words), parent=parent)
        _, command, words = command.resolve_command(parent, words)
    command.make_context("regard", list(words), parent=parent)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page: Path) -> None:
    wrong = []
    for line in command_lines(page):
        try:
            parse(line)
        except Exception as error:  # typer's copy of click is private, and so are its errors
            wrong.append(f"{line}: {error}")
    assert wrong == []


def test_an_unknown_option_is_seen() -> None:
    with pytest.raises(Exception, match="No such option: --no-such"):
        parse("regard train classification --no-such 3")
    with pytest.raises(Exception, match="No such command 'nosuch'"):
        parse("regard nosuch")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    local = [link.replace("\n", " ") for link in links if not link.startswith(("http", "mailto"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_notes_lead_to_calls_that_compute_the_same() -> None:
    page = ROOT / "docs" / "from-your-notes.md"
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert len(snippets) >= 10
    scope: dict[str, object] = {}
    for number, snippet in enumerate(snippets, 1):
        exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), scope)


def test_the_figures_of_the_questions_are_stored_results() -> None:
    """A number with a decimal or a percent sign stands in a result that its section links."""
    page = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    number = r"(?<![\w.])(?:\d[\d,]*\.\d+(?:e-?\d+)?|\d+(?= %))"
    count = 0
    for section in page.split("\n## ")[1:]:
        links = set(re.findall(r"results/\w+\.md", section))
        texts = [(ROOT / "docs" / link).read_text(encoding="utf-8") for link in links]
        stored = {figure for text in texts for figure in re.findall(number, text)}
        prose = re.sub(r"^```.*?^```|^    .*?$|`[^`]*`|\]\([^)]*\)", "", section, flags=re.M | re.S)
        figures = re.findall(number, prose)
        count += len(figures)
        assert [figure for figure in figures if figure not in stored] == [], section[:40]
    assert count > 40


def test_help_names_every_task_and_model() -> None:
    def names(words: str) -> set[str]:
        return set(re.split(r"[,;] ", words))

    assert names(TASKS_IN_WORDS) == set(TASKS)
    assert names(MODELS_IN_WORDS) == set(TASKS["classification"].models)
    assert names(WRITERS_IN_WORDS) == set(TASKS["translation"].models)
