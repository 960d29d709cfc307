"""regard lab examples/my_lab.py:LAB
regard lab examples/my_lab.py:LAB --data reviews.csv --seeds 5 --budget 1m"""

from regard.lab.labs.comparison import ANY_DATA, ComparisonLab, Preset
from regard.lab.labs.lab import claim


def claims(result):
    gain = result.means["transformer"] - result.means["mean"]
    yield claim(f"attention leads the mean of word vectors by {gain:.1%}", gain, gain > 0.02)


LAB = ComparisonLab(
    question="Does attention read a film review better than a mean of its words?",
    task="classification",
    arms=["mean", "transformer", "transformer:score=additive"],
    presets={"reviews": Preset(settings={"width": 32, "layers": 1}), ANY_DATA: Preset()},
    claims=claims,
)
