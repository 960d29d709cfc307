"""Accuracy of the arms for 25 labelled texts to all, on eight data sets, beside other libraries.

    python -m benchmarks.few_labels --data FOLDER --weights ENCODER --out results.jsonl
    python -m benchmarks.few_labels … --sets trec,cr --arms bert --sizes 25,100 --draws 2
    python -m benchmarks.few_labels --out results.jsonl --table      # Markdown of what is there
    python -m benchmarks.few_labels … --cost 500                     # seconds and megabytes

Each line of the file is one fit; lines that are there are not computed again. The test texts are
fixed, at most 1,000; draw d takes the first rows of a permutation of the others by seed d, so that
small draws are parts of large ones. "all" is one fit to all others, at most 4,000.

Vectors of texts are computed once. ``frozen`` is computed here from states of all texts, by the
functions of the run: a run would store the encoder with each of some thousand heads.
"""

import argparse
import csv
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import regard
from regard.core.memory import peak_mb
from regard.interop.sentences import SentenceEncoder, load, load_static
from regard.lab.data.embeddings import embed
from regard.lab.data.examples import Example
from regard.lab.data.splits import hold_out
from regard.lab.tasks.heads import PENALTIES, fit_labels
from regard.lab.tasks.models import MODELS

SIZES = (25, 50, 100, 200, 500, 1000, 0)  # 0: all
DRAWS, TEST, MOST = 5, 1_000, 4_000
SLOW = ("bert", "SetFit")  # arms that are only run by name
Rows = list[tuple[str, str]]


def tsv(path: Path) -> Rows:
    """Return texts and labels of a compressed TSV file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["text"], row["label"]) for row in rows]


def reviews(path: Path) -> Rows:
    """Return texts and labels of IMDB's file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = map(json.loads, file)
        return [(row["text"].replace("<br />", " "), str(row["label"])) for row in rows]


def genres(path: Path) -> Rows:
    """Return the sentences of EWT, each with its genre: the first part of its sent_id."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        comments = [line[2:].strip().partition(" = ") for line in file if line.startswith("# ")]
    labels = [value.partition("-")[0] for key, _, value in comments if key == "sent_id"]
    return list(zip([value for key, _, value in comments if key == "text"], labels, strict=True))


def languages(folder: Path, split: str) -> Rows:
    """Return captions of Multi30k, each with its language."""
    rows = []
    for language in ("en", "de"):
        with gzip.open(folder / f"{split}.{language}.gz", "rt", encoding="utf-8") as file:
            rows += [(line.strip(), language) for line in file]
    return rows


#: The rows of each set: one list that is divided, or those for training and for test.
SETS: Mapping[str, Callable[[Path], tuple[Rows, Rows]]] = {
    "Subj": lambda x: (tsv(x / "sentences/subj.tsv.gz"), []),
    "CR": lambda x: (tsv(x / "sentences/cr.tsv.gz"), []),
    "MPQA": lambda x: (tsv(x / "sentences/mpqa.tsv.gz"), []),
    "TREC": lambda x: (
        tsv(x / "sentences/trec-train.tsv.gz"),
        tsv(x / "sentences/trec-test.tsv.gz"),
    ),
    "polarity": lambda x: (tsv(x / "polarity/polarity.tsv.gz"), []),
    "IMDB": lambda x: (reviews(x / "imdb/train.jsonl.gz"), reviews(x / "imdb/test.jsonl.gz")),
    "EWT": lambda x: (
        genres(x / "tagging/en_ewt-ud-dev.conllu.gz"),
        genres(x / "tagging/en_ewt-ud-test.conllu.gz"),
    ),
    "Multi30k": lambda x: (
        languages(x / "multi30k", "train"),
        languages(x / "multi30k", "test_2016_flickr"),
    ),
}
LONG = {"IMDB": (1_000, 500)}  # maximum rows and test texts of sets with long texts


@dataclass(frozen=True)
class Problem:
    """A data set: the texts that may be labelled, the test texts, and the encoders."""

    name: str
    pool: Rows
    test: Rows
    weights: str

    @classmethod
    def read(cls, name: str, data: Path, weights: str) -> "Problem":
        """Read a set and divide it by a fixed seed."""
        rows, test = SETS[name](data)
        most, least = LONG.get(name, (MOST, TEST))
        order = np.random.default_rng(0).permutation(len(rows))
        rows = [rows[i] for i in order[: most if test else most + TEST]]
        if test:
            kept = np.random.default_rng(0).permutation(len(test))[:least]
            return cls(name, rows, [test[i] for i in kept], weights)
        held = min(TEST, len(rows) // 3)
        return cls(name, rows[held:], rows[:held], weights)

    def draw(self, size: int, seed: int) -> Rows:
        """Return the first rows of a permutation; size 0: all."""
        order = np.random.default_rng(1 + seed).permutation(len(self.pool))
        return [self.pool[i] for i in order[: size or None]]

    @cached_property
    def labels(self) -> list[str]:
        """Return the labels of all rows."""
        return sorted({label for _, label in self.pool})

    def numbers(self, rows: Rows) -> np.ndarray:
        """Return the label numbers of rows."""
        return np.array([self.labels.index(label) for _, label in rows])

    @cached_property
    def texts(self) -> list[str]:
        """Return the texts for test."""
        return [text for text, _ in self.test]

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """Return the encoder."""
        return load(self.weights)

    @cached_property
    def states(self) -> Mapping[str, np.ndarray]:
        """Return the states of ``frozen`` for every text: see the module."""
        run = regard.TextClassifier("frozen", weights=self.weights, threads=1)
        fitted = run.fit(*zip(*self.draw(25, 0), strict=True)).run_
        texts = [text for text, _ in [*self.pool, *self.test]]
        ids = fitted.task.encode(texts)
        states: dict[str, np.ndarray] = {}
        from regard.training.batches import pad, plan_batches

        lengths = [len(x) for x in ids]
        with torch.inference_mode():
            for batch in plan_batches(lengths, tokens=8192, seed=0, epoch=0, shuffle=False):
                vectors = fitted.model.vector(*pad([ids[i] for i in batch])).numpy()
                states |= {texts[i]: row for i, row in zip(batch, vectors, strict=True)}
        return states

    @cached_property
    def normalized(self) -> Mapping[str, np.ndarray]:
        """Return the states at length 1: the encoder's vectors of texts that are not too long."""
        vectors = {text: x / np.linalg.norm(x) for text, x in self.states.items()}
        some = list(vectors)[:50]
        assert np.allclose([vectors[x] for x in some], self.encoder.encode(some), atol=1e-5)
        return vectors

    def vectors(self, texts: Sequence[str], *, windows: bool = True) -> np.ndarray:
        """Return the vectors of the sentence encoder; of long texts, of all or the first part."""
        if self.name in LONG or "states" not in vars(self):
            return embed(self.encoder, texts, windows=windows and self.name in LONG)
        return np.stack([self.normalized[text] for text in texts])


def parts(rows: Rows) -> tuple[Rows, Rows]:
    """Return rows to learn from and to validate on, as `regard.TextClassifier` divides them."""
    train, held = hold_out([Example(text, label, "") for text, label in rows], 0.1)
    known = {x.label for x in train}
    train += [x for x in held if x.label not in known]
    held = [x for x in held if x.label in known]
    divided = [[(x.text, x.label) for x in part] for part in (train, held)]
    return (divided[0], divided[1]) if divided[1] else (rows, rows)


def fitted(name: str, **settings: Any) -> Callable[[Problem, Rows], np.ndarray]:
    """Return an arm of a fitted baseline; those on vectors are fitted again to all rows."""

    def arm(problem: Problem, rows: Rows) -> np.ndarray:
        entry = MODELS[name]
        given = {"weights": problem.weights, **settings} if name == "sentence" else settings
        baseline = entry.build(entry.configure(given), vocabulary=0, labels=len(problem.labels))
        if name == "sentence":
            baseline.vectors = problem.vectors
        train, _ = parts(rows)
        for some in (train, rows) if entry.pretrained else (train,):
            baseline.fit([text for text, _ in some], problem.numbers(some))
        return np.asarray(baseline.probabilities(problem.texts).argmax(1))

    return arm


def frozen(problem: Problem, rows: Rows) -> np.ndarray:
    """Fit ``frozen`` to states of its encoder that are computed once."""
    states = problem.states
    penalties: Sequence[float] = PENALTIES
    for some in (parts(rows)[0], rows):
        vectors = np.stack([states[text] for text, _ in some])
        head = fit_labels(vectors, problem.numbers(some), len(problem.labels), penalties)
        penalties = (head.inverse_penalty,)
    return np.asarray(head(np.stack([states[text] for text in problem.texts])).argmax(1))


def run(model: str, **settings: Any) -> Callable[[Problem, Rows], np.ndarray]:
    """Return an arm that trains a run."""

    def arm(problem: Problem, rows: Rows) -> np.ndarray:
        given = {"weights": problem.weights, **settings} if model == "bert" else settings
        classifier = regard.TextClassifier(model, threads=1, **given)
        classifier.fit([text for text, _ in rows], [label for _, label in rows])
        return np.array([problem.labels.index(x) for x in classifier.predict(problem.texts)])

    return arm


def logistic(static: bool) -> Callable[[Problem, Rows], np.ndarray]:
    """Return scikit-learn's default logistic regression on a library's vectors."""

    def arm(problem: Problem, rows: Rows) -> np.ndarray:
        vectors = partial(problem.vectors, windows=False)
        if static:
            vectors = partial(embed, load_static("wordllama"))
        model = LogisticRegression(max_iter=2000)
        model.fit(vectors([text for text, _ in rows]), problem.numbers(rows))
        return np.asarray(model.predict(vectors(problem.texts)))

    return arm


def setfit(problem: Problem, rows: Rows) -> np.ndarray:
    """Fit SetFit with its defaults: 20 pairs of each kind for a text, one epoch."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(problem.weights)
    texts, numbers = [text for text, _ in rows], problem.numbers(rows).tolist()
    asked = TrainingArguments(num_epochs=1, num_iterations=20, seed=0, save_strategy="no")
    data = Dataset.from_dict({"text": texts, "label": numbers})
    Trainer(model=model, args=asked, train_dataset=data).train()
    return np.asarray(model.predict(problem.texts))


def counts(problem: Problem, rows: Rows) -> np.ndarray:
    """Fit scikit-learn's own TF-IDF and logistic regression."""
    counter, model = TfidfVectorizer(), LogisticRegression(max_iter=2000)
    model.fit(counter.fit_transform([text for text, _ in rows]), problem.numbers(rows))
    return np.asarray(model.predict(counter.transform(problem.texts)))


ARMS: Mapping[str, Callable[[Problem, Rows], np.ndarray]] = {
    "tfidf": fitted("tfidf"),
    "scikit-learn: TF-IDF + LR": counts,
    "fasttext": fitted("fasttext"),
    "static": fitted("static", weights="wordllama"),
    "wordllama + LR": logistic(static=True),
    "frozen": frozen,
    "sentence": fitted("sentence"),
    "sentence-transformers + LR": logistic(static=False),
    "bert": run("bert"),
    "SetFit": setfit,
}


def cells(asked: argparse.Namespace) -> Iterator[tuple[str, int, int, str]]:
    """Yield set, size, draw and arm of each fit."""
    for name in asked.sets.split(","):
        for size in map(int, asked.sizes.split(",")):
            for seed in range(asked.draws if size else 1):
                for arm in asked.arms.split(","):
                    yield name, size, seed, arm


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def work(asked: argparse.Namespace) -> None:
    """Compute the fits that are not in the file yet."""
    done = {tuple(row[key] for key in ("set", "size", "draw", "arm")) for row in read(asked.out)}
    problem = None
    for name, size, seed, arm in cells(asked):
        if (name, size, seed, arm) in done:
            continue
        if problem is None or problem.name != name:
            problem = Problem.read(name, asked.data, asked.weights)
        rows, begun = problem.draw(size, seed), time.process_time()
        if size > len(problem.pool):
            continue
        hits = ARMS[arm](problem, rows) == problem.numbers(problem.test)
        row = {"set": name, "size": size, "draw": seed, "arm": arm, "rows": len(rows)}
        row |= {"accuracy": float(hits.mean()), "seconds": time.process_time() - begun}
        with asked.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def cost(asked: argparse.Namespace) -> None:
    """Print processor seconds and peak megabytes of each arm in a process of its own."""
    if asked.one:
        problem = Problem.read(asked.sets, asked.data, asked.weights)
        begun = time.process_time()
        ARMS[asked.one](problem, problem.draw(asked.cost, 0))
        seconds = time.process_time() - begun
        sys.stdout.write(f"| {asked.one} | {seconds:.1f} | {peak_mb():,.0f} |\n")
        return
    sys.stdout.write("| arm | CPU seconds | peak MB |\n|---|--:|--:|\n")
    for arm in asked.arms.split(","):
        sys.stdout.flush()
        same = ["--data", asked.data, "--weights", asked.weights, "--cost", str(asked.cost)]
        command = [sys.executable, "-m", "benchmarks.few_labels", *same]
        subprocess.run(  # noqa: S603
            [*command, "--sets", asked.sets.split(",")[0], "--one", arm], check=True
        )


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown tables of mean accuracies, one for each set."""
    sizes = sorted({row["size"] for row in rows}, key=lambda size: size or MOST * 10)
    for name in dict.fromkeys(row["set"] for row in rows):
        here = [row for row in rows if row["set"] == name]
        whole = max((row["rows"] for row in here if not row["size"]), default=0)
        names = [f"{size:,}" if size else f"all {whole:,}".removesuffix(" 0") for size in sizes]
        yield f"| {name} | {' | '.join(names)} |"
        yield f"|---|{'--:|' * len(sizes)}"
        for arm in [arm for arm in ARMS if any(row["arm"] == arm for row in here)]:
            shown = []
            for size in sizes:
                of = [r["accuracy"] for r in here if (r["arm"], r["size"]) == (arm, size)]
                shown.append(f"{100 * mean(of):.1f}" if of else "")
            yield f"| {arm} | {' | '.join(shown)} |"
        yield ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Accuracy of the arms with few labels.")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--weights", help="folder of the sentence encoder")
    parser.add_argument("--out", type=Path, help="file of results, one a line")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--arms", default=",".join(arm for arm in ARMS if arm not in SLOW))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="0: all rows")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--table", action="store_true", help="print the table and end")
    parser.add_argument("--cost", type=int, default=0, help="rows of a measurement of the costs")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if asked.table:
        sys.stdout.write("\n".join(table(read(asked.out))) + "\n")
    elif asked.cost:
        cost(asked)
    else:
        work(asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
