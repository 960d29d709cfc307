"""regard check examples/my_position.py:Reach
regard train classification --model transformer position=examples/my_position.py:Reach"""

from torch import nn, zeros

from regard.attention import Wrapper, distance


class Reach(Wrapper):  # score(q, k) − |w| ln(1 + |j − i|), with a learned w for each head
    def __init__(self, inner):
        super().__init__(inner)
        self.slope = nn.Parameter(zeros((inner.heads, 1, 1) if inner.heads else ()) + 1)

    def added(self, queries, keys, positions):
        return -self.slope.abs() * distance(positions).abs().add(1).to(self.slope.dtype).log()
