"""regard train classification --model examples/my_model.py:bag
regard compare classification --arms tfidf,examples/my_model.py:bag"""

from torch import arange, nn

from regard.core.settings import Settings
from regard.lab.tasks.models import ModelEntry


class BagSettings(Settings):
    """A mean of word vectors and one hidden layer."""

    width: int = 32


class Bag(nn.Module):  # label = Linear(tanh(mean of the word vectors))
    def __init__(self, settings, vocabulary, labels, vectors):
        super().__init__()
        self.words = nn.EmbeddingBag(vocabulary, settings.width, padding_idx=0)
        self.to_labels = nn.Sequential(nn.Tanh(), nn.Linear(settings.width, labels))

    def forward(self, tokens, lengths):  # padding is not part of a text
        beyond = arange(tokens.shape[1], device=tokens.device) >= lengths[:, None]
        return self.to_labels(self.words(tokens.masked_fill(beyond, 0)))


bag = ModelEntry("bag", "Linear(tanh(mean of the word vectors))", BagSettings, Bag)
