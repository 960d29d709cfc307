"""regard check examples/my_score.py:Laplacian
regard compare classification --arms transformer,transformer:score=examples/my_score.py:Laplacian"""

from torch import full, nn

from regard import Score


class Laplacian(Score):  # score(q, k) = −w ‖q − k‖₁, with a learned w for each head
    def __init__(self, query_width=None, key_width=None, *, heads=None, length=None):
        super().__init__(query_width, key_width, heads=heads, length=length)
        self.slope = nn.Parameter(full((heads, 1, 1) if heads else (), (key_width or 1) ** -0.5))

    def compare(self, queries, keys, positions):
        return -self.slope * (queries[..., :, None, :] - keys[..., None, :, :]).abs().sum(-1)
