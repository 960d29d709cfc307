"""Scores of generated texts: BLEU and chrF with signatures, exact match, alignment error.

Texts are detokenized and cased. BLEU and chrF are those of sacreBLEU (Post 2018); its signature
names all choices behind a number, and only numbers with the same signature are comparable.

A `Judgement` keeps the sufficient statistics of each text (n-gram counts, lengths), which add up to
those of the corpus. The score of a resampled corpus thus equals sacreBLEU's score of its texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from regard.core.errors import RegardError, look_up
from regard.lab.tasks.evaluation import wilson

Wanted = Sequence[str] | Sequence[Sequence[str]]  # one or several references per text

MEASURES: Final = {
    "bleu": "BLEU. Papineni et al. 2002; Post 2018",
    "chrf": "chrF2, of characters. Popović 2015",
    "exact": "fraction of texts that equal a reference exactly",
}
#: sacreBLEU's tokenizer for a language; 13a (mteval-v13a, by spaces and punctuation) for others.
TOKENIZE: Final = {"zh": "zh"} | dict.fromkeys(("ja", "ko", "th", "lo", "km", "my"), "char")
#: Unicode ranges of the letters of a script.
SCRIPTS: Final = {
    "ja": (("\u3040", "\u30ff"),),
    "ko": (("\uac00", "\ud7a3"),),
    "zh": (("\u4e00", "\u9fff"), ("\u3400", "\u4dbf"), ("\U00020000", "\U0003134f")),
    "th": (("\u0e00", "\u0e7f"),),
    "lo": (("\u0e80", "\u0eff"),),
    "my": (("\u1000", "\u109f"),),
    "km": (("\u1780", "\u17ff"),),
}
SAMPLE = 1_000  # texts from which the script is detected
RESAMPLES = 1_000
SEED = 12_345  # sacreBLEU's
NO_SOURCE = "no target position has a true source; give texts with an alignment"


@dataclass(frozen=True)
class Judgement:
    """A corpus score with its signature and ``statistics``, one row per text."""

    measure: str
    signature: str
    statistics: Int[np.ndarray, "texts numbers"]
    scorer: Any = field(repr=False, compare=False, default=None)

    def __len__(self) -> int:
        return len(self.statistics)

    @cached_property
    def value(self) -> float:
        """Return the score of the corpus: 0 … 100 for BLEU and chrF, 0 … 1 for exact match."""
        return self._of(self.statistics.sum(0))

    def score(self, texts: Integer[np.ndarray, " drawn"]) -> float:
        """Return the score of the corpus of these text indexes, which may repeat."""
        return self._of(np.bincount(texts, minlength=len(self)) @ self.statistics)

    def by_text(self) -> Float[np.ndarray, " texts"]:
        """Return the score of each text as a corpus of its own; BLEU uses the effective order."""
        return np.array([self._of(row, alone=True) for row in self.statistics])

    def pseudo_values(self) -> Float[np.ndarray, " texts"]:
        """Return jackknife pseudo-values, one per text, whose mean is the score of the corpus.

            x_i = v + (N − 1) (mean_j v_(−j) − v_(−i))

        with v_(−i) the score without text i (Miller 1974), shifted so that their mean is v. Their
        variance / N estimates the variance of v over samples of texts, so that statistics of
        per-example numbers apply to corpus scores.

        >>> found = judge("bleu", ["a cat sat down", "it rains a lot"], ["a cat sat up"] * 2)
        >>> bool(np.isclose(found.pseudo_values().mean(), found.value))
        True
        """
        total, count = self.statistics.sum(0), len(self)
        without = np.array([self._of(total - row) if count > 1 else 0 for row in self.statistics])
        return np.asarray(self.value + (count - 1) * (without.mean() - without))

    def interval(
        self, level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = SEED
    ) -> tuple[float, float]:
        """Return a confidence interval over test texts: Wilson's for exact match, else bootstrap.

        The bootstrap takes the middle `level` of the scores of `resamples` corpora drawn with
        replacement (Koehn 2004). The interval does not cover other training seeds.
        """
        if self.measure == "exact":
            return wilson(int(self.statistics[:, 0].sum()), len(self), level)
        random, count = np.random.default_rng(seed), len(self)
        scores = [self.score(random.integers(0, count, count)) for _ in range(resamples)]
        low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def _of(self, total: Integer[np.ndarray, " numbers"], *, alone: bool = False) -> float:
        if self.measure == "exact":
            return float(total[0] / total[1])
        numbers = total.tolist()
        if self.measure == "bleu":
            score = self.scorer.compute_bleu(
                numbers[2:6],
                numbers[6:],
                *numbers[:2],
                smooth_method="exp",
                effective_order=alone,
            )
            return float(score.score)
        return float(self.scorer._compute_score_from_stats(numbers).score)


def judge(
    measure: str, predicted: Sequence[str], wanted: Wanted, *, language: str = ""
) -> Judgement:
    """Score generated texts by "bleu", "chrf" or "exact" against references.

    Each text has one or several references. The `language` of the texts selects BLEU's tokenizer
    (Chinese and Japanese are split into characters), which the signature names.

    Raises: no texts; different numbers of texts and references; a text without a reference.

    >>> found = judge("bleu", ["A man sleeps on a bench."], ["A man sleeps on the bench."])
    >>> f"{found.value:.1f}", found.signature
    ('48.9', 'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...')
    """
    look_up(MEASURES, measure, "measure")
    references = [[one] if isinstance(one, str) else list(one) for one in wanted]
    if not references or len(predicted) != len(references):
        raise RegardError(
            f"{len(predicted)} texts for {len(references)} references; give at least one text, and "
            "a reference for each"
        )
    if [] in references:
        raise RegardError(f"text {references.index([]) + 1} has no reference; give at least one")
    if measure == "exact":
        hits = [text in accepted for text, accepted in zip(predicted, references, strict=True)]
        return Judgement(measure, "", np.array([[int(hit), 1] for hit in hits]))
    scorer = _scorer(measure, language)
    most = max(map(len, references))
    streams = [[(*accepted, *[None] * most)[i] for accepted in references] for i in range(most)]
    # As in sacreBLEU's significance tests (sacrebleu/significance.py).
    rows = scorer._extract_corpus_statistics(list(predicted), streams)
    return Judgement(measure, scorer.get_signature().format(), np.array(rows), scorer)


def restored(
    measure: str, statistics: Int[np.ndarray, "texts numbers"], signature: str
) -> Judgement:
    """Rebuild a judgement from its saved statistics and signature.

    >>> found = judge("bleu", ["a cat sat down"], ["a cat sat up"])
    >>> restored("bleu", found.statistics, found.signature).value == found.value
    True
    """
    look_up(MEASURES, measure, "measure")
    scorer = None if measure == "exact" else _scorer(measure)
    return Judgement(measure, signature, statistics, scorer)


def language_of(texts: Sequence[str]) -> str:
    """Detect a language with special tokenization in BLEU, by its script; "" for others.

    If more than a third of the letters are kana the language is ja, for Hangul ko, for Han zh, for
    Thai th, …: scripts without spaces, or whose words BLEU does not split at spaces.

    >>> language_of(["我们 2024 年去北京。"]), language_of(["We go to 北京."])
    ('zh', '')
    """
    letters = [character for text in texts[:SAMPLE] for character in text if character.isalpha()]
    for language, spans in SCRIPTS.items():
        inside = sum(any(first <= c <= last for first, last in spans) for c in letters)
        if inside > len(letters) / 3:
            return language
    return ""


def language_for(named: str, texts: Sequence[str]) -> str:
    """Return the language for BLEU: ``named`` if it is in `TOKENIZE`, else that of the script."""
    return named if named in TOKENIZE else language_of(texts)


def _scorer(measure: str, language: str = "") -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if measure == "chrf":
        return CHRF()
    return BLEU(tokenize=TOKENIZE.get(language.partition("_")[0], "13a"), force=True)


def bleu(predicted: Sequence[str], wanted: Wanted, *, language: str = "") -> float:
    """Compute sacreBLEU's corpus BLEU, 0 … 100; see `judge`."""
    return judge("bleu", predicted, wanted, language=language).value


def chrf(predicted: Sequence[str], wanted: Wanted) -> float:
    """Compute sacreBLEU's corpus chrF2, 0 … 100; see `judge`."""
    return judge("chrf", predicted, wanted).value


def exact_match(predicted: Sequence[str], wanted: Wanted) -> float:
    """Compute the fraction of texts that equal a reference exactly.

    >>> exact_match(["2024-03-05", "2024-03-06"], ["2024-03-05", "2024-06-03"])
    0.5
    """
    return judge("exact", predicted, wanted).value


@dataclass(frozen=True)
class Aligned:
    """Attention weights compared with a true alignment, over target positions that have one.

    ``error`` is the fraction of positions with their largest weight on a source that is not a true
    one, ``mass`` the mean weight on the true sources, ``guess`` the mass of uniform weights.
    """

    error: float
    mass: float
    guess: float
    positions: int

    @classmethod
    def joined(cls, parts: Sequence["Aligned"]) -> "Aligned":
        """Combine several texts, with equal weight for each position."""
        positions = sum(part.positions for part in parts)
        if not positions:
            raise RegardError(NO_SOURCE)
        error, mass, guess = (
            sum(getattr(part, name) * part.positions for part in parts) / positions
            for name in ("error", "mass", "guess")
        )
        return cls(error, mass, guess, positions)


def alignment_error(
    weights: Float[np.ndarray, "target source"], truth: Bool[np.ndarray, "target source"]
) -> Aligned:
    """Compare the weights of a text (target × source) with its true alignment.

    Target positions without a true source (the dashes of a date) are ignored. Among equal weights
    the first is the largest.

    Raises: different shapes; a weight that is not finite; no true source at all.

    >>> weights = np.array([[0.1, 0.9], [0.6, 0.4], [0.5, 0.5]])
    >>> alignment_error(weights, np.array([[False, True], [False, True], [False, False]]))
    Aligned(error=0.5, mass=0.65, guess=0.5, positions=2)
    """
    looked, truth = np.asarray(weights, dtype=np.float64), np.asarray(truth, dtype=bool)
    if looked.shape != truth.shape or looked.ndim != 2:
        raise RegardError(
            f"the weights have shape {looked.shape} and the true alignment has shape "
            f"{truth.shape}; both must be (target, source)"
        )
    aligned = truth.any(1)
    looked, truth = looked[aligned], truth[aligned]
    if not np.isfinite(looked).all():
        raise RegardError("a weight is not finite")
    positions = len(looked)
    if not positions:
        raise RegardError(NO_SOURCE)
    wrong = int((~truth[np.arange(positions), looked.argmax(1)]).sum())
    mass, guess = float((looked * truth).sum()), float(truth.mean(1).sum())
    return Aligned(wrong / positions, mass / positions, guess / positions, positions)
