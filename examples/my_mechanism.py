"""regard check examples/my_mechanism.py:Sandwich
regard train classification --model transformer attention=examples/my_mechanism.py:Sandwich"""

from torch import nn

from regard import MultiHeadAttention


class Sandwich(MultiHeadAttention):  # LayerNorm(multi-head attention): Ding et al. 2021, 2.4
    def __init__(self, width, heads, **settings):
        super().__init__(width, heads, **settings)
        self.norm = nn.LayerNorm(width)

    def forward(self, queries, memory=None, mask=None, **more):
        return self.norm(super().forward(queries, memory, mask, **more))
