"""regard check classification:transformer pattern=examples/my_pattern.py:stripes-4
regard train classification --model transformer pattern=examples/my_pattern.py:stripes-4"""

from regard import Mask
from regard.attention.masks.patterns import Pattern


def every(length, step):  # position i sees j if j − i is a multiple of step
    return Mask(lambda i, j: (j[..., None, :] - i[..., :, None]) % step == 0)


stripes = Pattern(("stripes-4",), every)
