"""regard's classifier and scikit-learn's own pipeline on four data sets, with the same calls.

    python -m benchmarks.sklearn_texts --data FOLDER        # subj, cr, mpqa and trec as .tsv.gz
    python -m benchmarks.sklearn_texts --data FOLDER --sets trec --models nb-svm,transformer

prints a table: accuracy by stratified cross-validation (TREC: its own test), and the CPU seconds of
a fit, which a busy machine changes little. Every estimator is called by ``fit``,
``predict`` and ``score`` alone.
"""

import argparse
import csv
import gzip
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

import regard

SETS = ("subj", "cr", "mpqa", "trec")
MODELS: Mapping[str, Callable[[], Any]] = {
    "scikit-learn: tf-idf + logistic": lambda: make_pipeline(
        TfidfVectorizer(), LogisticRegression(max_iter=1000)
    ),
    "regard: tfidf": lambda: regard.TextClassifier("tfidf"),
    "regard: nb-svm": lambda: regard.TextClassifier("nb-svm"),
    "regard: mean": lambda: regard.TextClassifier("mean"),
    "regard: small transformer": lambda: regard.TextClassifier(
        "transformer", length=60, width=64, layers=1, feedforward=128, epochs=5
    ),
    "regard: transformer": lambda: regard.TextClassifier("transformer", length=60),
}


def read(path: Path) -> tuple[list[str], list[str]]:
    """Return texts and labels of a compressed TSV file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def splits(folder: Path, name: str, folds: int) -> list[tuple[Any, Any, Any, Any]]:
    """Return (train texts, train labels, test texts, test labels) of each fold."""
    if name == "trec":
        return [(*read(folder / "trec-train.tsv.gz"), *read(folder / "trec-test.tsv.gz"))]
    texts, labels = (np.array(x, dtype=object) for x in read(folder / f"{name}.tsv.gz"))
    parts = StratifiedKFold(folds, shuffle=True, random_state=0).split(texts, labels)
    return [(texts[a], labels[a], texts[b], labels[b]) for a, b in parts]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Text classifiers by scikit-learn's calls.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tsv.gz files")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--models", default="", help="parts of names, separated by commas")
    parser.add_argument("--folds", type=int, default=5, help="folds of the cross-validation")
    parser.add_argument("--first", type=int, default=0, help="only the first folds; 0 = all")
    asked = parser.parse_args(arguments)
    wanted = asked.models.split(",")
    for name in asked.sets.split(","):
        parts = splits(asked.data, name, asked.folds)[: asked.first or None]
        for label, make in MODELS.items():
            if not any(part in label for part in wanted):
                continue
            scores, seconds, estimator = [], [], make()
            for texts, labels, test_texts, test_labels in parts:
                begun = time.process_time()
                fitted = clone(estimator).fit(texts, labels)
                seconds.append(time.process_time() - begun)
                scores.append(fitted.score(test_texts, test_labels))
            line = f"{name} | {label} | {100 * mean(scores):.1f} % | {mean(seconds):.1f} CPU s"
            sys.stdout.write(f"{line} | {len(parts)} fits\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
