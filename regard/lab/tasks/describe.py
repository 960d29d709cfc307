"""One-line descriptions of text classifiers from their settings. Does not import torch."""

from regard.lab.data.spelling import counted
from regard.lab.tasks.baseline_settings import NaiveBayesSVMSettings, TfidfSettings
from regard.nn.models.settings import (
    ConvolutionalSettings,
    RecurrentSettings,
    TextClassifierSettings,
)

_BLOCKS = {
    "plain": "x' = g(f(x)), g Linear then ReLU",
    "residual": "x' = g(x + f(LayerNorm x)), g Linear then ReLU",
    "pre-norm": "x += f(LN x), x += FeedForward(LN x)",
    "post-norm": "x = LN(x + f(x)), x = LN(x + FeedForward(x))",
}
_POSITIONS = {"sinusoidal": "sine positions", "learned": "learned positions"}
_POOLS = {
    "mean": "mean",
    "attention": "attention pool",
    "query-from-mean": "attention pool, query from the mean",
    "cls": "state of CLS",
}


def text_classifier(settings: TextClassifierSettings) -> str:
    """Describe a classifier's layers, positions, non-default attention settings and pool.

    >>> text_classifier(TextClassifierSettings(layers=1, position="sinusoidal"))
    "1 layer of x' = g(f(x)), g Linear then ReLU; sine positions; mean; Linear"
    """
    if not settings.layers and settings.position == "none":
        return _pooled_words(settings)
    parts = []
    if settings.layers:
        parts.append(f"{counted(settings.layers, 'layer')} of {_BLOCKS[settings.block]}")
        parts += [f"{settings.heads} heads"] if settings.heads > 1 else []
        parts += [f"{settings.score} scores"] if settings.score != "scaled-dot" else []
    if settings.position != "none":
        parts.append(_POSITIONS.get(settings.position, f"{settings.position} positions"))
    for name in ("attention", "normalize", "pattern", "compress"):
        value = getattr(settings, name)
        parts += [str(value)] if value not in ("none", "softmax", "multi-head") else []
    return "; ".join([*parts, _POOLS[settings.pool], "Linear"])


def _pooled_words(settings: TextClassifierSettings) -> str:
    """Return the formula of a classifier without layers, with word vectors t."""
    if settings.pool == "mean":
        return "label = Linear(mean of the words' vectors)"
    if settings.pool == "cls":
        return "label = Linear(CLS), independent of the words"
    score = "q·tᵢ" if settings.pool_score == "dot" else f"{settings.pool_score}(q, tᵢ)"
    softmax = settings.normalize == "softmax"
    weights = f"pᵢ ∝ exp({score})" if softmax else f"p = {settings.normalize}({score})"
    if settings.pool == "attention":
        return f"t̂ = Σ pᵢ tᵢ, {weights} with a learned q; label = Linear(t̂)"
    return f"t̂ = Σ pᵢ W_v tᵢ, {weights} with q = W t̄ of the text's mean; label = Linear(t̂)"


def recurrent(settings: RecurrentSettings) -> str:
    """Describe the recurrent network.

    >>> recurrent(RecurrentSettings(layers=2))
    'bidirectional LSTM of 2 layers, maximum over time; Linear'
    """
    deep = f" of {settings.layers} layers" if settings.layers > 1 else ""
    pool = {"max": "maximum", "mean": "mean", "attention": "attention pool"}[settings.pool]
    return f"bidirectional LSTM{deep}, {pool} over time; Linear"


def convolutional(settings: ConvolutionalSettings) -> str:
    """Describe the convolutional network.

    >>> convolutional(ConvolutionalSettings())
    'filters over 3, 4 and 5 words, maximum over time; Linear. Kim 2014'
    """
    widths = _listed(settings.widths.split(","))
    return f"filters over {widths} words, maximum over time; Linear. Kim 2014"


def tfidf(settings: TfidfSettings) -> str:
    """Describe the linear model on TF-IDF.

    >>> tfidf(TfidfSettings(ngrams=1))
    'logistic regression on TF-IDF of single words; no network'
    """
    return f"logistic regression on TF-IDF of {_ngrams(settings.ngrams)}; no network"


def naive_bayes_svm(settings: NaiveBayesSVMSettings) -> str:
    """Describe the linear model on log-count ratios."""
    ngrams = _ngrams(settings.ngrams)
    return f"linear SVM on {ngrams} weighted by log-count ratios. Wang & Manning 2012"


def _ngrams(longest: int) -> str:
    names = {1: "single words", 2: "single words and pairs"}
    return names.get(longest, f"n-grams of 1 to {longest} words")


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
