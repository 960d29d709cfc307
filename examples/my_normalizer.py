"""regard check examples/my_normalizer.py:Squared
regard train classification --model transformer normalize=examples/my_normalizer.py:Squared"""

from regard import Normalizer


class Squared(Normalizer):  # weight_j = max(s_j, 0)² / Σ_i max(s_i, 0)², or 0 if the sum is 0
    def forward(self, scores):
        squares = scores.relu().square()
        return squares / squares.sum(-1, keepdim=True).clamp(min=1e-9)
