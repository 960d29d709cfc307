"""Make the two sets of docs/results/pairs-and-columns.md, and score scikit-learn on them.

    python -m benchmarks.pairs_and_columns FOLDER

writes FOLDER/pairs-train.csv, pairs-test.csv, columns-train.csv and columns-test.csv, made of
imdb/*.jsonl.gz in REGARD_DATA, and prints the test accuracies of scikit-learn.

pairs: "are these the beginnings of two reviews of one film?" The first four reviews of each film
(by id) give two pairs of their first 50 words; a pair of two films takes its first text from one
film and its second from the next film in the order of the hashes of their ids. So every text is in
one pair of each label, and no text alone tells anything. Films of train and test are different.

columns: "is the rating 7 or more?", from the first 20 words of a review (text), its rating from 1
to 10 (empty in a fifth of the rows, by the hash of the id) and its film.
"""

import csv
import gzip
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

FILMS = {"train": 1000, "test": 500}
REVIEWS = {"train": 2000, "test": 2000}


def reviews(split: str) -> list[dict[str, Any]]:
    """Return the reviews of a split, ordered by the hash of their ids."""
    path = Path(os.environ["REGARD_DATA"]) / "imdb" / f"{split}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return sorted(rows, key=lambda row: hashed(row["id"]))


def hashed(name: str) -> str:
    """Return the hash of a name."""
    return sha256(name.encode()).hexdigest()


def beginning(text: str, words: int) -> str:
    """Return the first words of a review."""
    return " ".join(text.replace("<br />", " ").split()[:words])


def pairs(split: str) -> Iterator[dict[str, str]]:
    """Yield the pairs of a split."""
    films = defaultdict(list)
    for row in sorted(reviews(split), key=lambda row: str(row["id"])):
        films[row["movie"]].append(beginning(row["text"], 50))
    chosen = sorted((film for film in films if len(films[film]) >= 4), key=hashed)[: FILMS[split]]
    for film, following in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        for first in (0, 2):
            for other, label in ((film, "same film"), (following, "two films")):
                yield {"a": films[film][first], "b": films[other][first + 1], "label": label}


def columns(split: str) -> Iterator[dict[str, str]]:
    """Yield the rows with further columns of a split."""
    for row in reviews(split)[: REVIEWS[split]]:
        known = int(hashed(f"known {row['id']}"), 16) % 5
        yield {
            "text": beginning(row["text"], 20),
            "rating": str(row["rating"]) if known else "",
            "film": row["movie"],
            "label": "good" if row["rating"] >= 7 else "bad",
        }


def scores(made: dict[str, dict[str, list[dict[str, str]]]]) -> Iterator[tuple[str, float]]:
    """Yield the test accuracy of each pipeline of scikit-learn."""
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def words() -> Any:
        return TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)

    def score(what: str, features: Any) -> float:
        frames = {split: pd.DataFrame(rows) for split, rows in made[what].items()}
        for frame in frames.values():
            if what == "pairs":
                frame["text"] = frame["a"] + " " + frame["b"]
            else:
                frame["rating"] = pd.to_numeric(frame["rating"])
        model = make_pipeline(features, LogisticRegression(max_iter=1000))
        model.fit(frames["train"], frames["train"]["label"])
        return float(model.score(frames["test"], frames["test"]["label"]))

    yield "pairs, both texts joined", score("pairs", make_column_transformer((words(), "text")))
    sides = make_column_transformer((words(), "a"), (words(), "b"))
    yield "pairs, each text by itself", score("pairs", sides)
    yield "columns, text", score("columns", make_column_transformer((words(), "text")))
    rating = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    film = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=2)
    everything = make_column_transformer((words(), "text"), (rating, ["rating"]), (film, ["film"]))
    yield "columns, text, rating and film", score("columns", everything)


def main() -> None:
    """Write the files and print the accuracies."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        what: {split: list(make(split)) for split in FILMS}
        for what, make in (("pairs", pairs), ("columns", columns))
    }
    for what, parts in made.items():
        for split, rows in parts.items():
            with (folder / f"{what}-{split}.csv").open("w", encoding="utf-8", newline="") as file:
                table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                table.writeheader()
                table.writerows(rows)
    for name, accuracy in scores(made):
        print(f"scikit-learn, {name}: {accuracy:.1%}")


if __name__ == "__main__":
    main()
