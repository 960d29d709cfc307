"""What written texts are worth: BLEU and chrF with signatures, exact match, alignment error.

Texts are as people write them: detokenised, cased. BLEU and chrF are sacreBLEU's (Post 2018), whose
signature says all that the number depends on; a figure without it is not comparable.

A `Judgement` keeps each text's sufficient statistics (counts of n-grams, lengths), whose sum is the
corpus's. So a resampled corpus is a sum of drawn rows, and its score the very number that sacreBLEU
gives for its texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from regard.errors import RegardError, look_up
from regard.tasks.classification.metrics import wilson

Wanted = Sequence[str] | Sequence[Sequence[str]]  # one reference for each text, or some

MEASURES: Final = {
    "bleu": "BLEU. Papineni et al. 2002; Post 2018",
    "chrf": "chrF2, of characters. Popović 2015",
    "exact": "the share of texts that are a reference, letter by letter",
}
#: How sacreBLEU cuts texts of a language; elsewhere as mteval-v13a does, by spaces and punctuation.
TOKENIZE: Final = {"zh": "zh"} | dict.fromkeys(("ja", "ko", "th", "lo", "km", "my"), "char")
#: Where the letters of a script lie.
SCRIPTS: Final = {
    "ja": (("\u3040", "\u30ff"),),
    "ko": (("\uac00", "\ud7a3"),),
    "zh": (("\u4e00", "\u9fff"), ("\u3400", "\u4dbf"), ("\U00020000", "\U0003134f")),
    "th": (("\u0e00", "\u0e7f"),),
    "lo": (("\u0e80", "\u0eff"),),
    "my": (("\u1000", "\u109f"),),
    "km": (("\u1780", "\u17ff"),),
}
SAMPLE = 1_000  # texts that tell the script
RESAMPLES = 1_000
SEED = 12_345  # sacreBLEU's


@dataclass(frozen=True)
class Judgement:
    """A corpus score, its signature, and what every text adds to it: rows of ``statistics``."""

    measure: str
    signature: str
    statistics: Int[np.ndarray, "texts numbers"]
    scorer: Any = field(repr=False, compare=False, default=None)

    def __len__(self) -> int:
        return len(self.statistics)

    @cached_property
    def value(self) -> float:
        """The score of the corpus: 0 … 100 for BLEU and chrF, 0 … 1 for exact match."""
        return self._of(self.statistics.sum(0))

    def score(self, texts: Integer[np.ndarray, " drawn"]) -> float:
        """The score of the corpus made of these texts, some maybe several times."""
        return self._of(self.statistics[texts].sum(0))

    def by_text(self) -> Float[np.ndarray, " texts"]:
        """Each text alone as a corpus, to find the worst; BLEU with effective order."""
        return np.array([self._of(row, alone=True) for row in self.statistics])

    def pseudo_values(self) -> Float[np.ndarray, " texts"]:
        """A number for each text, whose mean is the score of the corpus.

            x_i = v + (N − 1) (mean_j v_(−j) − v_(−i))

        with v_(−i) the score without text i: the jackknife's (Miller 1974), moved so that their
        mean is v itself. Their variance over N is that of v over other texts, so that a corpus
        score enters every statistic that is made of examples.

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
        """What other test texts would give: Wilson's for exact match, else by bootstrap.

        The middle `level` of the scores of `resamples` corpora drawn with replacement (Koehn
        2004). It says nothing about other seeds of training.
        """
        if self.measure == "exact":
            return wilson(int(self.statistics[:, 0].sum()), len(self), level)
        scores = [self.score(texts) for texts in _draws(len(self), resamples, seed)]
        low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def _of(self, total: Integer[np.ndarray, " numbers"], *, alone: bool = False) -> float:
        if self.measure == "exact":
            return float(total[0] / total[1])
        numbers = total.tolist()
        if self.measure == "bleu":
            found = self.scorer.compute_bleu(
                numbers[2:6],
                numbers[6:],
                *numbers[:2],
                smooth_method="exp",
                effective_order=alone,
            )
            return float(found.score)
        return float(self.scorer._compute_score_from_stats(numbers).score)


@dataclass(frozen=True)
class Resampled:
    """System a minus system b on the same texts, and what other texts would say of it.

    ``wins`` is the share of resampled corpora on which a is better (an equal score counts half),
    Koehn's statistic; ``p`` that of a difference as large if there were none, two-sided.
    """

    difference: float
    low: float
    high: float
    p: float
    wins: float
    texts: int
    resamples: int


def judge(measure: str, said: Sequence[str], wanted: Wanted, *, language: str = "") -> Judgement:
    """How good the texts `said` are, by "bleu", "chrf" or "exact", beside those `wanted`.

    A text may have several references; their number may differ. The `language` of the texts
    chooses how BLEU cuts them into words (Chinese and Japanese by characters); the signature
    tells.

    Errors: no texts; another number of references; a text without any.

    >>> found = judge("bleu", ["A man sleeps on a bench."], ["A man sleeps on the bench."])
    >>> f"{found.value:.1f}", found.signature
    ('48.9', 'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...')
    """
    look_up(MEASURES, measure, "measure")
    references = [[one] if isinstance(one, str) else list(one) for one in wanted]
    if not references or len(said) != len(references):
        raise RegardError(f"{len(said)} texts cannot be judged by {len(references)} references")
    if [] in references:
        raise RegardError(f"text {references.index([]) + 1} has no reference to be judged by")
    if measure == "exact":
        hits = [text in found for text, found in zip(said, references, strict=True)]
        return Judgement(measure, "", np.array([[int(hit), 1] for hit in hits]))
    scorer = _scorer(measure, language)
    most = max(map(len, references))
    streams = [[(*found, *[None] * most)[i] for found in references] for i in range(most)]
    # As sacreBLEU's own tests of significance get them (sacrebleu/significance.py).
    rows = scorer._extract_corpus_statistics(list(said), streams)
    return Judgement(measure, scorer.get_signature().format(), np.array(rows), scorer)


def restored(
    measure: str, statistics: Int[np.ndarray, "texts numbers"], signature: str
) -> Judgement:
    """A judgement from what was kept of it.

    >>> found = judge("bleu", ["a cat sat down"], ["a cat sat up"])
    >>> restored("bleu", found.statistics, found.signature).value == found.value
    True
    """
    look_up(MEASURES, measure, "measure")
    scorer = None if measure == "exact" else _scorer(measure)
    return Judgement(measure, signature, statistics, scorer)


def language_of(texts: Sequence[str]) -> str:
    """The language that texts are cut for where none is named, by their script; else none.

    Where a third of the letters are kana it is ja, of Hangul ko, of Han zh, of Thai th, …: scripts
    without spaces, or whose words BLEU does not count by spaces.

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
    """The language that texts are judged in: the named one if it is cut in a way of its own, else
    that of their script.
    """
    return named if named in TOKENIZE else language_of(texts)


def _scorer(measure: str, language: str = "") -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if measure == "chrf":
        return CHRF()
    return BLEU(tokenize=TOKENIZE.get(language.partition("_")[0], "13a"), force=True)


def bleu(said: Sequence[str], wanted: Wanted, *, language: str = "") -> float:
    """Corpus BLEU by sacreBLEU, 0 … 100; see `judge`."""
    return judge("bleu", said, wanted, language=language).value


def chrf(said: Sequence[str], wanted: Wanted) -> float:
    """Corpus chrF2 by sacreBLEU, 0 … 100; see `judge`."""
    return judge("chrf", said, wanted).value


def exact_match(said: Sequence[str], wanted: Wanted) -> float:
    """The share of texts that are as they should be, letter by letter.

    >>> exact_match(["2024-03-05", "2024-03-06"], ["2024-03-05", "2024-06-03"])
    0.5
    """
    return judge("exact", said, wanted).value


def bleu_interval(
    said: Sequence[str], wanted: Wanted, *, language: str = ""
) -> tuple[float, float]:
    """The 95 % bootstrap interval of `bleu` over other test texts."""
    return judge("bleu", said, wanted, language=language).interval()


def signature(measure: str = "bleu", *, language: str = "") -> str:
    """The signature that `judge` gives with one reference for each text.

    >>> signature("chrf")
    'nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:...'
    """
    return judge(measure, [""], [""], language=language).signature


def paired_bootstrap(
    a: Judgement, b: Judgement, *, resamples: int = RESAMPLES, seed: int = SEED
) -> Resampled:
    """Compare two systems on the same texts, by the same measure. Koehn 2004, section 4.

    Both are scored on `resamples` corpora of as many texts drawn with replacement, the same for
    both: the interval is the middle 95 % of the differences d*, and

        p = (1 + #{|d* − d| ≥ |d|}) / (1 + resamples)

    for the difference d that was observed. It is about these two models; of methods only several
    seeds tell.

    >>> wanted = ["a cat sat down", "it rains again today", "we go home now"] * 20
    >>> good = judge("bleu", wanted, wanted)
    >>> bad = judge("bleu", [text[:-3] for text in wanted], wanted)
    >>> found = paired_bootstrap(good, bad)
    >>> found.wins, found.p < 0.01
    (1.0, True)
    """
    if (a.measure, a.signature, len(a)) != (b.measure, b.signature, len(b)):
        raise RegardError(
            "a paired bootstrap compares one measure on the same texts, not "
            f"{_title(a)} with {_title(b)}"
        )
    seen = a.value - b.value
    drawn = np.array([a.score(texts) - b.score(texts) for texts in _draws(len(a), resamples, seed)])
    low, high = np.quantile(drawn, [0.025, 0.975])
    far = np.abs(drawn - seen) >= abs(seen)
    return Resampled(
        seen,
        float(low),
        float(high),
        float((1 + far.sum()) / (1 + resamples)),
        float((drawn > 0).mean() + (drawn == 0).mean() / 2),
        len(a),
        resamples,
    )


def _title(judged: Judgement) -> str:
    return " ".join(filter(None, (judged.measure, judged.signature, f"of {len(judged):,} texts")))


def _draws(texts: int, resamples: int, seed: int) -> Iterator[Integer[np.ndarray, " drawn"]]:
    random = np.random.default_rng(seed)
    for _ in range(resamples):
        yield random.integers(0, texts, texts)


@dataclass(frozen=True)
class Aligned:
    """How far attention looks where the truth is, over all target positions that have one.

    ``error`` is the share of them whose heaviest source is not a true one, ``mass`` the mean
    weight on the true ones, ``guess`` what weights spread evenly would put there.
    """

    error: float
    mass: float
    guess: float
    positions: int

    @classmethod
    def joined(cls, parts: Sequence["Aligned"]) -> "Aligned":
        """That of several texts together, each position alike."""
        positions = sum(part.positions for part in parts)
        if not positions:
            raise RegardError("no target position has a true source: there is nothing to compare")
        error, mass, guess = (
            sum(getattr(part, name) * part.positions for part in parts) / positions
            for name in ("error", "mass", "guess")
        )
        return cls(error, mass, guess, positions)


def alignment_error(
    weights: Sequence[Float[np.ndarray, "target source"]],
    truths: Sequence[Bool[np.ndarray, "target source"]],
) -> Aligned:
    """Compare the weights of each text (target × source) with its true alignment.

    A target position without a true source (the dashes of a date) is not asked. Of equal weights
    the first counts.

    Errors: other numbers of texts or positions; a weight that is no number; no true source at all.

    >>> weights = [np.array([[0.1, 0.9], [0.6, 0.4], [0.5, 0.5]])]
    >>> truths = [np.array([[False, True], [False, True], [False, False]])]
    >>> alignment_error(weights, truths)
    Aligned(error=0.5, mass=0.65, guess=0.5, positions=2)
    """
    if len(weights) != len(truths):
        raise RegardError(f"{len(weights)} texts have weights, {len(truths)} a true alignment")
    wrong = positions = 0
    mass = guess = 0.0
    for number, (looked, truth) in enumerate(zip(weights, truths, strict=True), 1):
        looked, truth = np.asarray(looked, dtype=np.float64), np.asarray(truth, dtype=bool)
        if looked.shape != truth.shape or looked.ndim != 2:
            raise RegardError(
                f"text {number} has weights of shape {looked.shape} and a true alignment of shape "
                f"{truth.shape}; both are target × source"
            )
        asked = truth.any(1)
        looked, truth = looked[asked], truth[asked]
        if not np.isfinite(looked).all():
            raise RegardError(f"text {number} has a weight that is no number")
        if not len(looked):
            continue
        heaviest = looked.argmax(1)
        wrong += int((~truth[np.arange(len(truth)), heaviest]).sum())
        mass += float((looked * truth).sum())
        guess += float(truth.mean(1).sum())
        positions += len(looked)
    if not positions:
        raise RegardError("no target position has a true source, so there is nothing to compare")
    return Aligned(wrong / positions, mass / positions, guess / positions, positions)
