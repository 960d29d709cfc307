"""A comparison folder that nobody trained: the files of runs, written by hand."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.lab.studies.arms import Arm
from regard.lab.tasks.models import MODELS
from tests.lab.small_runs import trained_run
from tests.lab.web.conftest import TINY

Made = dict[str, Any]
Make = Callable[..., tuple[Made, Path]]
Open = Callable[..., tuple[Any, list[str], list[str]]]
TEXTS = [f"a film of {i} scenes that I liked" for i in range(40)]
TRUTHS = ["positive" if i % 2 else "negative" for i in range(40)]
OTHER = {"positive": "negative", "negative": "positive"}


def write_run(
    folder: Path, model: str, wrong: set[int], texts: list[str] = TEXTS, curve: bool = True
) -> None:
    """One run's files as `lab/runs` writes them; the answers numbered in `wrong` are wrong."""
    folder.mkdir(parents=True)
    network = {"position": MODELS[model].defaults.get("position", "none"), "width": 16}
    (folder / "config.toml").write_text(
        f'task = "classification"\nmodel = "{model}"\n'
        f'[network]\nposition = "{network["position"]}"\nwidth = 16\n'
    )
    (folder / "env.json").write_text(json.dumps({"versions": {"torch": "2.13"}, "threads": 1}))
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for i, (text, truth) in enumerate(zip(texts, TRUTHS, strict=True)):
            said = OTHER[truth] if i in wrong else truth
            chances = {said: 0.9 + i / 1000, OTHER[said]: 0.1 - i / 1000}
            row = {"text": text, "label": truth, "predicted": said, "probabilities": chances}
            file.write(json.dumps(row) + "\n")
    if curve:
        rows = [{"step": 10 * i, "epoch": i / 2, "loss": 1 / (1 + i), "validation": 0.5 + i / 20}
                for i in range(8)]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Writes a comparison of mean, transformer and nb-svm; returns it and its folder."""

    def make(texts: list[str] = TEXTS) -> tuple[Made, Path]:
        misses = {"mean": 10, "transformer": 6, "nb-svm": 2}
        for name, count in misses.items():
            baseline = MODELS[name].baseline
            for seed in range(1 if baseline else 3):
                wrong = set(range(seed, seed + count))
                home = tmp_path / Arm(name, name).folder / f"seed-{seed}"
                write_run(home, name, wrong, texts, curve=not baseline)
        arms = [
            {"name": name, "seeds": 3, "mean": 1 - n / 40, "low": 0.95 - n / 40,
             "high": 1.02 - n / 40, "seconds": 3.0 * n, "peak_mb": 400, "parameters": 12_345}
            for name, n in misses.items()
        ]  # fmt: skip
        verdicts = [
            {"a": "transformer", "b": "mean", "difference": 0.1, "low": 0.05, "high": 0.15,
             "p": 0.004, "says": "transformer beats mean by 10.0 points"},
            {"a": "nb-svm", "b": "mean", "difference": 0.2, "low": -0.05, "high": 0.45,
             "p": 0.2, "says": "no evidence of a difference between nb-svm and mean"},
        ]  # fmt: skip
        return {
            "task": "classification", "metric": "accuracy", "arms": arms, "verdicts": verdicts,
            "claims": [{"says": "it holds", "value": 0.9, "holds": True}], "report": "",
            "reference": "mean", "data": "reviews", "command": "regard lab sentiment",
            "notes": ["123 texts dropped"], "fingerprint": "abc123", "question": "Which?",
        }, tmp_path  # fmt: skip

    return make


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open a file: its page, what it asks for besides itself, and what it complains about."""
    pages: list[Any] = []

    def open_(path: Path, **options: Any) -> tuple[Any, list[str], list[str]]:
        page, requests, complaints = browser.new_page(**options), list[str](), list[str]()
        pages.append(page)
        own = path.as_uri()
        page.on("request", lambda r: requests.append(r.url) if r.url != own else None)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(own)
        return page, requests, complaints

    yield open_
    for page in pages:
        page.close()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of a tiny transformer; nobody may change it."""

    folder = tmp_path_factory.mktemp("reported") / "run"
    trained_run(folder, "classification", "transformer", TINY)
    return folder
