"""Results that a refactoring must not change: every lab, and a training of each kind of task.

    python -m benchmarks.unmoved --out before.json
    python -m benchmarks.unmoved --against before.json

Labs run with small settings and one or two seeds; compared are their claims, verdicts, arms and
tables, without seconds and memory. For a training, the bytes of its weights, its test metric and
its predictions are compared. Every number must be the same to the last digit: run both on one
machine. The lab `complexity` is omitted, since it measures only time.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Small settings of each lab, and its options.
LABS: Mapping[str, tuple[str, ...]] = {
    "sentiment": ("examples=80", "steps=2", "width=8", "layers=1", "--seeds", "1"),
    "kernel-regression": ("keys=0", "steps=60"),
    "positions": (
        "steps=2", "copy_steps=2", "seeds=1", "length=10", "trained=4", "reach=2", "widths=16,7",
        "shifts=1,-3", "farthest=64", "width=8", "heads=2", "words=5",
    ),
    "softmax-gradient": ("keys=8", "high=16", "width=4", "blocks=20"),
    "normalisation": ("steps=1", "seeds=2", "small=2", "large=4", "width=8", "depth=4"),
    "exploration": ("d=12", "keys=6", "draws=2000", "bases=30"),
    "scores": (
        "scores=dot", "normalizers=sum", "steps=2", "width=8", "feedforward=8", "threads=1",
        "only=recall,recall-pairs", "examples=60", "held_out=20", "--seeds", "2",
    ),
    "birthplace": ("arms=vanilla", "--seeds", "1"),
    "pretraining": ("models=bert", "--seeds", "1"),
    "reverse": ("letters=4", "steps=3", "seeds=1", "width=6", "hidden=6", "batch=4"),
    "replications": (
        "only=max-retrieval", "steps=3", "examples=60", "held_out=10", "width=8",
        "test_length=20", "threads=1",
    ),
    "mechanisms": (
        "only=mqar", "steps=2", "examples=40", "held_out=10", "width=8", "threads=1",
    ),
    "translation": (
        "steps=2", "width=8", "hidden=8", "feedforward=8", "examples=300", "judged=4",
        "batch_tokens=300", "evaluate_every=2", "layers=1", "length=24", "--seeds", "1",
    ),
}  # fmt: skip
TINY = ("width=8", "steps=12", "threads=1", "precision=fp32")
#: A training of each kind of task: the task, the model and its settings.
TRAININGS: Mapping[str, tuple[str, ...]] = {
    "classification": ("transformer", "layers=1", "heads=2"),
    "regression": ("transformer", "layers=1", "heads=2"),
    "tagging": ("transformer", "layers=1", "heads=2"),
    "mqar": ("gpt", "layers=1", "heads=2", "attention=delta"),
    "reverse": ("lab-6", "hidden=8"),
    "dates": ("bahdanau", "hidden=8"),
    "language-modeling": ("gpt", "layers=1", "heads=2"),
    "masked-modeling": ("bert", "layers=1", "heads=2"),
    "span-corruption": ("t5", "layers=1", "heads=2"),
    "birthplace": ("gpt", "layers=1", "heads=2"),
}
#: Keys whose values are times, sizes in memory and places.
LEFT_OUT = {"seconds", "peak_mb", "report", "machine", "reproduce", "out", "folder", "page"}

#: Titles of columns with times.
TIMES = re.compile(r"second|time|fastest|\bm?s\b", re.I)


def regard(*words: str, folder: Path) -> str:
    """Run a command and return what it prints on stdout. Raises: it fails."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "regard", *words], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"regard {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def kept(found: Any) -> Any:
    """Return a record without the keys of ``LEFT_OUT``, columns of times, and times in texts.

    >>> kept({"seconds": 1, "says": "after 60 steps in 1.9 s"})
    {'says': 'after 60 steps in TIME'}
    """
    if isinstance(found, Mapping):
        if {"columns", "rows"} <= found.keys():
            timed = [bool(TIMES.search(str(title))) for title in found["columns"]]
            rows = [[x for x, time in zip(row, timed, strict=True) if not time]
                    for row in found["rows"]]  # fmt: skip
            found = {**found, "rows": rows}
        return {key: kept(value) for key, value in found.items() if key not in LEFT_OUT}
    if isinstance(found, str):
        return re.sub(r"\b[\d.,]+ (ms|s|min)\b", "TIME", found)
    if isinstance(found, list):
        return [kept(one) for one in found if not (isinstance(one, Mapping) and _timed(one))]
    return found


def _timed(table: Mapping[str, Any]) -> bool:
    """Return whether a whole table depends on times, such as scores after the same time."""
    return "rows" in table and bool(TIMES.search(str(table.get("title", ""))))


def lab(name: str, folder: Path) -> Any:
    """Return the record of a lab with small settings."""
    words = ("lab", name, *LABS[name], "--out", f"lab-{name}", "--json")
    return kept(json.loads(regard(*words, folder=folder)))


def training(task: str, folder: Path) -> dict[str, str]:
    """Return the hashes of the weights and the predictions of a small training."""
    model, *settings = TRAININGS[task]
    out = folder / f"run-{task}"
    regard("train", task, "--model", model, *TINY, *settings, "--out", str(out), folder=folder)
    files = sorted([*out.rglob("*.safetensors"), *out.rglob("predictions.jsonl")])
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main() -> int:
    """Write the results, or print which of an earlier file have moved."""
    reader = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    reader.add_argument("--out", type=Path, help="file for the results")
    reader.add_argument("--against", type=Path, help="an earlier file, to compare with")
    options = reader.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for kind, measure, names in (("lab", lab, LABS), ("training", training, TRAININGS)):
            for name in names:
                results[f"{kind} {name}"] = measure(name, Path(place))
                print(f"{kind} {name}", file=sys.stderr, flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True), encoding="utf-8")
    before = json.loads(options.against.read_text("utf-8")) if options.against else results
    moved = [name for name, value in before.items() if results.get(name) != value]
    print(f"{len(before)} results, {len(moved)} moved{': ' * bool(moved)}{', '.join(moved)}")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
