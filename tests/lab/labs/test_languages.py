"""Pages of labs in other languages: the same values, claims and figures as the English page."""

import re
from pathlib import Path

import pytest
from jinja2 import Environment, meta, nodes

import regard.lab.labs
from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.collection import CollectionLab
from regard.lab.reports.prose import FORMATS

FOLDER = Path(regard.lab.labs.__file__).parent
PAGES = sorted(page for page in FOLDER.rglob("*.md") if not page.name.endswith(".zh.md"))


def uses(page: Path) -> dict[str, object]:
    """Return the variables of a page, its formatted values, claims, figures and tables."""
    text = page.read_text(encoding="utf-8")
    environment = Environment(autoescape=True)
    environment.filters.update(FORMATS)
    tree = environment.parse(text)
    shown = [repr(one) for one in tree.find_all(nodes.Filter) if one.name in FORMATS]
    return {
        "variables": meta.find_undeclared_variables(tree),
        "values": set(shown),
        "claims": re.findall(r"^\* (\S+?): ", text, re.MULTILINE),
        "figures": re.findall(r'\]\((\S+(?: }})?)(?: "|\))', text),
        "sections": text.count("\n## "),
        "tests": [repr(one.test) for one in tree.find_all(nodes.If)],
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(FOLDER)))
def test_a_page_says_the_same_in_chinese(page: Path) -> None:
    assert uses(page.with_suffix(".zh.md")) == uses(page)


def test_a_lab_takes_its_pages_in_a_language() -> None:
    lab = open_lab("replications", "zh")
    assert isinstance(lab, CollectionLab)
    pages = [lab.page, *(member.lab.page for member in lab.members)]
    assert all(page and page.name.endswith(".zh.md") for page in pages)


def test_a_language_without_a_page_is_refused() -> None:
    with pytest.raises(
        RegardError, match=r"reverse has no page in 'fr'; its languages are: en, zh"
    ):
        open_lab("reverse", "fr")


def test_a_report_names_its_language(tmp_path: Path) -> None:
    request = LabRequest(out=tmp_path, overrides=["d=12", "keys=6", "draws=200", "bases=3"])
    record = open_lab("exploration", "zh").run(request, lambda says: None, lambda *given: None)
    assert record["lang"] == "zh"
    assert record["command"].startswith("regard lab exploration ")
    assert " --lang zh " in record["command"]
    assert "复制误差" in record["claims"][0]["says"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<html lang="zh">' in page
    assert "何时 c = v_j" in page
