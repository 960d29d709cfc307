"""A window that slides over a text gives what reading the window anew at every turn gives."""

import pytest
import torch

from regard.core.errors import RegardError
from regard.decoding import Limits, Sliding, greedy, sample
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings

END, CONTEXT = 10, 6
MORE = Limits(ratio=0, more=25, longest=25)


@pytest.fixture(scope="module")
def model() -> GPT:
    """With positions that are learned, so that there is none past the context."""
    torch.manual_seed(4)
    settings = GPTSettings(width=8, heads=2, layers=2, feedforward=12, length=CONTEXT,
                           position="learned", dropout=0, tie=False)  # fmt: skip
    made = GPT(settings, 11).double().eval()
    with torch.no_grad():
        for x in made.parameters():
            x.add_(torch.randn_like(x), alpha=0.7)
    return made


def written(model: GPT, text: list[int], count: int, half: int = CONTEXT // 2) -> list[int]:
    """What the window says, read as a whole for every token."""
    found: list[int] = []
    window = text[-CONTEXT:]
    while len(found) < count:
        logits = model.to_logits(model(torch.tensor([window]))[0, -1])
        logits[0] = -torch.inf
        found.append(int(logits.argmax()))
        if found[-1] == END:
            return found[:-1]
        window = [*window, found[-1]]
        window = window if len(window) <= CONTEXT else window[-half:]
    return found


def test_past_the_context_the_last_half_is_read_anew(model: GPT) -> None:
    texts = [[3, 4], [7], [1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4, 3, 2], [5, 5, 5]]
    lengths = torch.tensor([len(text) for text in texts])
    source = torch.zeros(5, 8, dtype=torch.long)
    for row, text in enumerate(texts):
        source[row, : len(text)] = torch.tensor(text)
    found = greedy(Sliding(model, CONTEXT), source, lengths, end=END, limits=MORE)
    longest = 0
    for text, own in zip(texts, found, strict=True):
        assert list(own.tokens) == written(model, text, 25)
        assert list(own.tokens) != written(model, text, 25, 2), "else any window would do"
        longest = max(longest, len(text) + len(own.tokens))
    assert longest > 3 * CONTEXT, "else nothing slid"


def test_up_to_the_context_nothing_changes_and_draws_are_repeated(model: GPT) -> None:
    source, lengths = torch.tensor([[3, 4], [7, 0]]), torch.tensor([2, 1])
    within = Limits(ratio=-1, more=CONTEXT, longest=CONTEXT)
    for how in ({}, {"temperature": 2.0}):
        write = sample if how else greedy
        once = write(model, source, lengths, end=END, limits=within, **how)
        slid = write(Sliding(model, CONTEXT), source, lengths, end=END, limits=within, **how)
        assert [text.tokens for text in slid] == [text.tokens for text in once]
    far = [
        sample(Sliding(model, CONTEXT), source, lengths, end=END, limits=MORE, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert far[0] == far[1] != far[2]


def test_errors(model: GPT) -> None:
    with pytest.raises(RegardError, match="2 or more tokens, not 1"):
        Sliding(model, 1)
    writing = Sliding(model, CONTEXT).start(torch.tensor([[3]]), torch.tensor([1]))
    with pytest.raises(RegardError, match="beam search cannot exceed the context"):
        writing.step(torch.zeros(1, 3, dtype=torch.long))
