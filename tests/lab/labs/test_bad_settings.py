"""Settings that a lab refuses, each in words that say what to do."""

import re
from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab
from tests.lab.labs.conftest import quiet

REFUSED = {
    "complexity": [
        ("lengths=512", "two or more whole numbers"),
        ("lengths=512,128", "two or more whole numbers, rising"),
        ("lengths=a,b", "two or more whole numbers"),
        ("lengths=1,8", "the smallest may be 2, not 1"),
        ("widths=8,16", "the smallest may be 16, not 8"),
        ("d=-3", "d='-3': must be at least"),
        ("kernel=1", "kernel='1'"),
        ("window=wide", "window='wide'"),
        ("heads=3", "heads=3 does not divide a width of 64: change heads, d or widths"),
        ("budget=500 steps", "its budget is a time, as in 30s"),
        ("budget=9", "budget '9' has no unit"),
    ],
    "exploration": [
        ("keys=65", "65 keys with orthogonal means need d=65 or more, not d=64: raise d or lower"),
        ("d=-3", "d='-3': must be at least 3"),
        ("beta=0", "beta='0'"),
        ("beta=nan", "beta='nan'"),
        ("alpha=-1", "alpha='-1'"),
        ("draws=ten", "draws='ten': must be a whole number"),
        ("betta=3", "did you mean beta"),
    ],
    "normalisation": [
        ("small=32", "small=32 must be below large=32"),
        ("width=7", "width=7 is odd"),
        ("seeds=1", "seeds='1'"),
        ("step=9", "did you mean steps"),
        ("depth=many", "depth='many'"),
    ],
    "softmax-gradient": [
        ("high=8", "low=4 and high=8 leave no three widths to fit a line through: set high to 16"),
        ("keys=1", "keys='1'"),
        ("low=0", "low='0'"),
        ("widht=3", "did you mean width"),
        ("blocks=many", "blocks='many'"),
        ("seed=-1", "seed='-1'"),
    ],
}
CASES = [(name, *case) for name, cases in REFUSED.items() for case in cases]


@pytest.mark.parametrize(("name", "pair", "says"), CASES)
def test_bad_settings_say_what_to_do(name: str, pair: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=re.escape(says)):
        open_lab(name).run(LabRequest(out=tmp_path, overrides=[pair]), quiet, quiet)
