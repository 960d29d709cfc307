"""Does a network that says what comes next look at it? Asked before every training."""

from copy import deepcopy

import torch
from torch import nn

from regard.errors import RegardError
from regard.training.loop import seeded

WORDS = 4  # of the text that is read twice, its last word another
SLACK = 1e-4  # of the largest state


def must_not_look_ahead(
    network: nn.Module, writes: str, vocabulary: int, longest: int | None = None
) -> None:
    """Refuse a network that is trained on what comes next and can see it.

    A score of one's own sees all keys when it prepares them, whatever the mask hides: a mean over
    them tells of words to come, and a training on it learns to copy. A text is read
    twice, the second time with another last word, and nothing before that may change.

    ``writes``: whether the network writes "on" behind a text, "another" text, or none (""; then
    nothing is looked at). ``longest``: the words that it can read, if there is such a number.
    Errors: what changed.
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
        for parameter in shaken.parameters():  # what begins at 0 would hide what it multiplies
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        one, other = (shaken(*beside, x)[0, :-1].float() for x in (text, changed))
    apart = (one - other).abs()
    if words > 1 and apart.max() > SLACK * max(float(one.abs().max()), 1.0):
        word = int(apart.amax(-1).argmax()) + 1
        raise RegardError(
            f"the network looks ahead: what it makes of word {word} of a text changes with word "
            f"{words}, so that training would teach it to copy. Is it a score of your own? "
            "`regard check FILE.py:Name` names the law that it breaks"
        )
