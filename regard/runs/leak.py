"""A check before every training that a network predicting the next token cannot see it."""

from copy import deepcopy

import torch
from torch import nn

from regard.errors import RegardError
from regard.training.loop import seeded

WORDS = 4  # length of the test text, whose last word is changed
SLACK = 1e-4  # tolerance, relative to the largest state


def must_not_look_ahead(
    network: nn.Module, writes: str, vocabulary: int, longest: int | None = None
) -> None:
    """Raise an error if a network that predicts the next token can see it.

    A user's own score prepares all keys, whatever the mask hides: a mean over them reveals later
    words, and training would learn to copy. This reads a text twice, the second time with another
    last word; no earlier output may change.

    ``writes``: whether the network continues a text ("on"), writes "another" text, or none (""; no
    check). ``longest``: the maximum length that it reads, if any. Errors: what changed.
    """
    words = min(WORDS, longest or WORDS)
    if not writes:
        return
    text = torch.arange(1, words + 1).remainder(vocabulary)[None]
    changed = text.clone()
    changed[0, -1] = 0
    beside: tuple[torch.Tensor, ...] = ()
    if writes == "another":  # the network reads a source too
        beside = (text, torch.tensor([words]))
    with seeded(0), torch.no_grad():
        shaken = deepcopy(network).eval()
        for parameter in shaken.parameters():  # parameters initialised with 0 would hide a leak
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        one, other = (shaken(*beside, x)[0, :-1].float() for x in (text, changed))
    apart = (one - other).abs()
    if words > 1 and apart.max() > SLACK * max(float(one.abs().max()), 1.0):
        word = int(apart.amax(-1).argmax()) + 1
        raise RegardError(
            f"the network looks ahead: its output for word {word} of a text changes with word "
            f"{words}, so it would learn to copy. If you use your own score, "
            "`regard check FILE.py:Name` shows the law that it breaks"
        )
