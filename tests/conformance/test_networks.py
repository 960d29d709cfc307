"""Laws of whole networks: they hold for every model of every task, and each can be broken."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.conformance import NetworkSubject, conform
from regard.core.errors import RegardError
from regard.lab.runs.checking import network_of
from regard.lab.tasks import TASKS
from regard.training.interface import Interface
from tests.lab.small_runs import trained_run

NAMED = [
    f"{task}:{model}"
    for task in ("classification", "tagging", "translation", "language-modeling", "masked-modeling")
    for model, entry in TASKS[task].models.items()
    if not entry.deterministic
]
#: Translators share their layers with each other: all but one are for the second circle.
SHARED = {name for name in NAMED if name.startswith("translation:")} - {"translation:transformer"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.deep if name in SHARED else ()) for name in NAMED],
)
def test_every_model_holds(name: str) -> None:
    subject = network_of(name)
    assert subject is not None
    long = (NAMED.index(name) + date.today().toordinal()) % 8 == 0  # each day other long texts
    assert [v for v in conform(subject, long=long) if v.outcome == "fails"] == []


class Reads(nn.Module):
    """A mean of word vectors, with something wrong in it."""

    def __init__(self, wrong: Callable[["Reads", Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.words, self.wrong = nn.Embedding(9, 4), wrong
        self.calls, self.hidden = 0, torch.randn(4)
        nn.init.normal_(self.words.weight)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        self.calls += self.training
        inside = torch.arange(tokens.shape[1]) < lengths[:, None]
        vectors = self.words(tokens) * inside[..., None]
        mean = vectors.sum(1) / lengths.clamp(min=1)[:, None]
        return self.wrong(self, mean, tokens)


def holds(self: Reads, mean: Tensor, tokens: Tensor) -> Tensor:
    return mean


BROKEN = {
    "computes": lambda self, mean, tokens: mean / 0,
    "padding": lambda self, mean, tokens: mean + tokens.shape[1],
    "batches": lambda self, mean, tokens: mean - mean.mean(0),
    "order": lambda self, mean, tokens: mean + torch.arange(len(mean))[:, None],
    "empty text": lambda self, mean, tokens: mean / mean.abs().sum(-1, keepdim=True),
    "gradients": lambda self, mean, tokens: (mean - mean.detach()).abs().sqrt() + mean,
    "evaluation": lambda self, mean, tokens: mean + self.calls,
    "state": lambda self, mean, tokens: mean + self.hidden,
}


@pytest.mark.parametrize("law", BROKEN)
def test_each_law_can_be_broken(law: str) -> None:
    subject = NetworkSubject("broken", lambda: Reads(BROKEN[law]), Interface(), 9)
    assert law in [v.law for v in conform(subject) if v.outcome == "fails"]
    whole = Reads(holds)
    sound = NetworkSubject("sound", lambda: whole, Interface(), 9)
    assert [v.law for v in conform(sound) if v.outcome == "fails"] == []


GOES_ON = Interface("on", left_to_right=True)


class LooksAhead(nn.Module):
    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.words, self.after = nn.Embedding(9, 4), after

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.words(tokens)
        return vectors + vectors[:, -1:] if tokens.shape[1] > self.after else vectors


def test_looking_ahead_is_found() -> None:
    verdicts = conform(NetworkSubject("ahead", LooksAhead, GOES_ON, 9))
    found = {v.law: v.message for v in verdicts if v.outcome == "fails"}
    assert found["future"].startswith("later tokens changed the output of token 1")


def test_looking_ahead_in_long_texts_is_found() -> None:
    verdicts = conform(NetworkSubject("ahead", lambda: LooksAhead(64), GOES_ON, 9))
    assert [v.law for v in verdicts if v.outcome == "fails"] == ["future", "long texts"]


def test_runs_are_checked_and_other_things_are_not(tmp_path: Path) -> None:
    given = ["examples=200", "epochs=1", "width=8"]
    run = trained_run(tmp_path / "run", "classification", "mean", given)
    subject = network_of(str(tmp_path / "run"))
    assert subject is not None
    assert subject.vocabulary == run.task.sizes["vocabulary"]
    assert [v for v in conform(subject) if v.outcome == "fails"] == []
    assert network_of("scaled-dot") is None
    with pytest.raises(RegardError, match="a=b: settings need TASK:MODEL"):
        network_of("scaled-dot", ["a=b"])
    with pytest.raises(RegardError, match="classification:tfidf is a fitted baseline"):
        network_of("classification:tfidf")
    with pytest.raises(RegardError, match="did you mean transformer"):
        network_of("classification:transformr")
    with pytest.raises(RegardError, match="layers=0 does not have"):
        network_of("classification:transformer", ["layers=0"])
