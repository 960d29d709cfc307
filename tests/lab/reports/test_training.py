"""What a report says of trainings is what their folders hold."""

import json
from pathlib import Path
from typing import Any

from regard.lab.reports.training import COLUMNS, training_table
from regard.lab.runs import Config


def folder(
    path: Path,
    task: str,
    model: str,
    settings: list[str],
    environment: dict[str, Any],
    steps: int = 0,
) -> Path:
    path.mkdir(parents=True)
    (path / "config.toml").write_bytes(Config.make(task, model, settings).toml())
    (path / "env.json").write_text(json.dumps(environment))
    if steps:
        rows = [{"step": 1}, {"step": steps, "epoch": 2.5, "tokens": 90 * steps}]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (path / "metrics.jsonl").write_text(lines + '{"step": 9')  # cut off by a kill
    return path


def test_size_batch_steps_and_rate_of_each_arm(tmp_path: Path) -> None:
    sizes = {"trained_on": {"examples": 1_600, "tokens": 40_000}}
    seeds = [
        folder(tmp_path / f"transformer-{steps}", "classification", "transformer",
               ["learning_rate=0.002", "schedule=linear"], sizes, steps)
        for steps in (50, 40)
    ]  # fmt: skip
    counted = folder(
        tmp_path / "tfidf", "classification", "tfidf", [], {"data": {"counts": [700, 900]}}
    )
    lm = folder(tmp_path / "lm", "language-modeling", "gpt", [], sizes)
    odd = tmp_path / "odd"
    odd.mkdir()
    arms = [("net", seeds), ("words", [counted]), ("odd", [odd]), ("lm", [odd, lm])]
    table = training_table(arms)
    assert table is not None
    assert table.columns == COLUMNS
    assert table.rows == [
        ["net", "1,600 texts, 40,000 tokens", "80 texts, 90 tokens", "40 to 50", "0.002, linear"],
        ["words", "1,600 texts", "–", "–", "–"],
        ["lm", "1,600 pieces, 40,000 tokens", "–", "–", "0.001, constant"],
    ]
    assert "40 to 50" in table.html()
    assert training_table([("odd", [odd])]) is None
