"""The arms of the scores lab: a score with a normaliser each, everything else the same."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pydantic import Field

from regard.attention import NORMALIZERS, SCORES, make_score
from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.core.trusted import trust_named
from regard.lab.labs.comparison import Plan
from regard.lab.studies.arms import Arm

Pair = tuple[str, str]  # a score and a normaliser
REFERENCE = "scaled-dot × softmax"
DOT, SOFTMAX = "scaled-dot", "softmax"
#: The normaliser that a score is made for, if not softmax.
MADE_FOR = {"epanechnikov": "sum", "boxcar": "sum"}
#: top-k keeps 16 keys by default, which are all keys of these inputs.
OPTIONS = {"top-k": "top-k-4"}
TIMES = " × "


class ScoresOptions(Settings):
    """The scores and normalisers to compare; an empty setting means all."""

    scores: str = Field("", description="names of scores, with commas between; or FILE.py:Name")
    normalizers: str = Field(
        "", description="names of normalisers, with commas between; or FILE.py:Name"
    )


def once(scores: Sequence[str], normalizers: Sequence[str]) -> list[Pair]:
    """Return every score with its normaliser, and every normaliser with scaled-dot.

    The reference comes first. A score has softmax, or the normaliser that it is made for.

    >>> once(["dot", "boxcar"], ["sum"])
    [('scaled-dot', 'softmax'), ('dot', 'softmax'), ('boxcar', 'sum'), ('scaled-dot', 'sum')]
    """
    pairs = [(score, MADE_FOR.get(score, SOFTMAX)) for score in scores]
    pairs += [(DOT, name) for name in normalizers]
    return list(dict.fromkeys([(DOT, SOFTMAX), *pairs]))


def every(scores: Sequence[str], normalizers: Sequence[str]) -> list[Pair]:
    """Return every score with every normaliser, the reference first."""
    pairs = [(score, name) for score in scores for name in normalizers]
    return list(dict.fromkeys([(DOT, SOFTMAX), *pairs]))


Arrange = Callable[[Sequence[str], Sequence[str]], list[Pair]]


def name_of(score: str, normalizer: str) -> str:
    """Return the name of an arm: the part in which it differs from the reference.

    >>> [name_of(*pair) for pair in once(["dot", "boxcar"], ["sum"])]
    ['scaled-dot × softmax', 'dot', 'boxcar × sum', '× sum']
    """
    if normalizer == SOFTMAX:
        return REFERENCE if score == DOT else score
    return f"× {normalizer}" if score == DOT else f"{score}{TIMES}{normalizer}"


def pair_of(name: str) -> Pair:
    """Return the score and the normaliser of an arm's name.

    >>> pair_of("× sum"), pair_of("dot"), pair_of("boxcar × sum")
    (('scaled-dot', 'sum'), ('dot', 'softmax'), ('boxcar', 'sum'))
    """
    score, _, normalizer = f" {name}".partition(TIMES)
    return score.strip() or DOT, normalizer or SOFTMAX


def arms_of(pairs: Iterable[Pair], model: str) -> list[Arm]:
    """Return the arms of pairs, on a model."""
    return [
        Arm(
            name_of(score, name),
            model,
            (f"score={score}", f"normalize={OPTIONS.get(name, name)}"),
        )
        for score, name in pairs
    ]


def chosen(plan: Plan, arrange: Arrange) -> Plan:
    """Replace the arms of a plan if the user named scores or normalisers.

    Raises: an unknown name, or a part of one's own that cannot be made.
    """
    options: ScoresOptions = plan.options
    if not (options.scores or options.normalizers):
        return plan
    planned = [pair_of(arm.name) for arm in plan.arms]
    scores = _names("scores", options.scores) or [score for score, _ in planned]
    normalizers = _names("normalizers", options.normalizers) or [name for _, name in planned]
    for score in scores:
        make_score(score, "none", 4, 4, heads=2, length=4)
    for name in normalizers:
        NORMALIZERS.named(name)
    return replace(plan, arms=arms_of(arrange(scores, normalizers), plan.arms[0].model))


def _names(key: str, text: str) -> list[str]:
    """Return the names of an option. Raises: an empty or repeated name."""
    names = [name.strip() for name in text.split(",")] if text else []
    if not all(names) or len({*names}) < len(names):
        raise RegardError(f"{key}={text}: give names with commas between, each once")
    trust_named(names)
    return names


ONCE = once([*SCORES], [*NORMALIZERS])
EVERY = every([*SCORES], [*NORMALIZERS])
#: The pairs of the short version: scores with a wide, a bounded and a negative range.
FEW = every([DOT, "cosine", "gaussian"], [SOFTMAX, "sparsemax", "sum"])
