"""Baselines for tagging: each word's most frequent tag, and a linear model of its spelling."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from regard.core.errors import RegardError, UntrainableError
from regard.lab.data.spelling import plain
from regard.lab.tasks.baseline_settings import NoSettings
from regard.lab.tasks.baselines import LinearModel
from regard.lab.tasks.heads import weights_of
from regard.lab.tasks.tagging import TokenRegressionSettings

Words = Sequence[str]
EDGE = "·"  # the neighbour of the first and the last word


class TokenModel(LinearModel):
    """A linear tagger: log p(tag | word) = log softmax(features of the word · weights + bias)."""

    @abstractmethod
    def extract(self, words: Words) -> list[list[str]]:
        """Return the names of the features of each word."""

    @abstractmethod
    def fit(self, sentences: Sequence[Words], tags: Sequence[NDArray[np.integer]]) -> None:
        """Fit to sentences and the numbers of their tags."""

    def features(self, counts: Any) -> Any:
        """Return the counts unchanged."""
        return counts

    def learn_terms(self, sentences: Sequence[Words], minimum: int) -> None:
        """Select the features that occur at least ``minimum`` times. Raises: no such feature."""
        counts = Counter(name for words in sentences for row in self.extract(words) for name in row)
        self.terms = sorted(name for name, count in counts.items() if count >= minimum)
        if not self.terms:
            raise UntrainableError(
                f"no feature occurs {minimum} times in the {len(sentences)} training sentences of "
                f"{self.name}; give more sentences or minimum=1"
            )

    def unknown_words(self, sentences: Sequence[Words]) -> list[tuple[str, ...]]:
        """Return the words of each sentence that are not terms, each once."""
        known = {*self.terms}
        return [
            tuple(
                dict.fromkeys(
                    w for w, r in zip(x, self.extract(x), strict=True) if r[0] not in known
                )
            )
            for x in sentences
        ]

    def matrix(self, sentences: Sequence[Words]) -> Any:
        """Return the known features as a sparse matrix (words of all sentences, terms)."""
        place = {name: i for i, name in enumerate(self.terms)}
        columns: list[int] = []
        ends = [0]
        for words in sentences:
            for row in self.extract(words):
                columns += [place[name] for name in row if name in place]
                ends.append(len(columns))
        ones = np.ones(len(columns), np.float32)
        return csr_matrix((ones, columns, ends), (len(ends) - 1, len(self.terms)))

    def log_probabilities(self, sentences: Sequence[Words]) -> list[NDArray[np.float64]]:
        """Return the log probabilities (words, tags) of each sentence."""
        if not self.terms:
            raise RegardError(f"{self.name} is not fitted; call fit first")
        scores = np.asarray(self.matrix(sentences) @ self.arrays["weights"].T, dtype=np.float64)
        logs = np.asarray(log_softmax(scores + self.arrays["bias"], axis=1), dtype=np.float64)
        return np.split(logs, np.cumsum([len(words) for words in sentences])[:-1])


class MostFrequentTag(TokenModel):
    """P(tag | word) = (count(word, tag) + P(tag)) / (count(word) + 1), with P(tag) over all words.

    An unknown word gets the most frequent tag of all. Words are case-sensitive.
    """

    name = "most-frequent-tag"
    settings_class = NoSettings

    def extract(self, words: Words) -> list[list[str]]:
        """Return each word as its only feature."""
        return [[plain(word)] for word in words]

    def fit(self, sentences: Sequence[Words], tags: Sequence[NDArray[np.integer]]) -> None:
        """Fit to the counts of tags per word."""
        self.learn_terms(sentences, 1)
        counts = np.zeros((self.labels, len(self.terms)))
        features = self.matrix(sentences)
        np.add.at(counts, (np.concatenate(list(tags)), features.indices), 1)
        share = np.maximum(counts.sum(1) / counts.sum(), 1e-12)
        likely = (counts + share[:, None]) / (counts.sum(0) + 1)
        self.arrays["bias"] = np.log(share).astype(np.float32)
        self.arrays["weights"] = (np.log(likely) - np.log(share)[:, None]).astype(np.float32)


class TokenRegression(TokenModel):
    """Multinomial logistic regression on features of a word and its neighbours.

    The features are the word, its lower case, shape (capitals, digits), prefixes and suffixes; the
    lower case of each neighbour with its distance; and the shapes of the adjacent words.
    """

    name = "logistic-regression"
    settings_class = TokenRegressionSettings

    def extract(self, words: Words) -> list[list[str]]:
        """Return the features of each word, in the form key=value."""
        words = [plain(word) for word in words]
        lower = [word.lower() for word in words]
        shapes = [shape(word) for word in words]
        reach, most = self.settings.neighbours, self.settings.affix
        features = []
        for i, word in enumerate(words):
            row = [f"w={word}", f"l={lower[i]}", f"s={shapes[i]}"]
            row += [f"{n}<={lower[i][:n]}" for n in range(1, most + 1) if len(word) > n]
            row += [f"{n}>={lower[i][-n:]}" for n in range(1, most + 1) if len(word) > n]
            for step in (*range(-reach, 0), *range(1, reach + 1)):
                there = 0 <= i + step < len(words)
                row.append(f"{step:+d}={lower[i + step] if there else EDGE}")
                if abs(step) == 1:
                    row.append(f"{step:+d}s={shapes[i + step] if there else EDGE}")
            features.append(row)
        return features

    def fit(self, sentences: Sequence[Words], tags: Sequence[NDArray[np.integer]]) -> None:
        """Fit the weights of the tags that occur; other tags are never predicted."""
        self.learn_terms(sentences, self.settings.minimum)
        truth = np.concatenate(list(tags))
        if len(np.unique(truth)) < 2:
            raise UntrainableError("all training words have the same tag; give more sentences")
        model = LogisticRegression(C=self.settings.inverse_penalty, max_iter=200, tol=1e-3)
        model.fit(self.matrix(sentences), truth)
        weights, bias = weights_of(model, self.labels, never=-30.0)
        self.arrays = {"weights": weights.astype(np.float32), "bias": bias.astype(np.float32)}


def shape(word: str) -> str:
    """Return a word's kinds of characters, runs merged: X upper case, x lower case, 0 digit.

    >>> shape("McDonald's"), shape("B-52"), shape("NASA")
    ("XxXx'x", 'X-0', 'X')
    """
    kinds = ""
    for sign in word:
        kind = "X" if sign.isupper() else "x" if sign.isalpha() else "0" if sign.isdigit() else sign
        if not kinds.endswith(kind):
            kinds += kind
    return kinds
