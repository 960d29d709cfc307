"""Arms of equal size: the hidden layer of each network is adjusted until parameters are equal."""

from collections.abc import Sequence
from dataclasses import replace

from regard.core.errors import RegardError
from regard.core.settings import key_of
from regard.lab.labs.comparison import Plan
from regard.lab.runs.build import build_network
from regard.lab.runs.config import Config
from regard.lab.studies.arms import Arm

WORDS, LABELS = 8, 2  # any sizes: word vectors and outputs are the same in all arms


def equalized(plan: Plan) -> Plan:
    """Give all arms as many parameters as the reference has."""
    arms = equal_parameters(plan.task, plan.arms, plan.overrides, plan.reference)
    return replace(plan, arms=arms)


def equal_parameters(
    task: str, arms: Sequence[Arm], overrides: Sequence[str], reference: str
) -> list[Arm]:
    """Return arms with ``feedforward=`` such that each has as many parameters as the reference.

    They agree up to half of the parameters of one hidden unit. An arm that sets ``feedforward``
    itself stays as it is. Raises: an arm that has too many even with one hidden unit.

    >>> arms = [Arm("a", "gpt"), Arm("b", "gpt", ("attention=gated",))]
    >>> equal_parameters("mqar", arms, ["width=64", "feedforward=256"], "a")[1].overrides
    ('attention=gated', 'feedforward=224')
    """
    aim = parameters(task, next(arm for arm in arms if arm.name == reference), overrides)
    equal = []
    for arm in arms:
        own = [pair for pair in arm.overrides if key_of(pair) == "feedforward"]
        config = _config(task, arm, overrides)
        width = getattr(config.network, "feedforward", 0)
        if own or not width or arm.name == reference:
            equal.append(arm)
            continue
        wider = replace(arm, overrides=(*arm.overrides, f"feedforward={width + 1}"))
        here = parameters(task, arm, overrides)
        unit = parameters(task, wider, overrides) - here
        adjusted = width - round((here - aim) / unit)
        if adjusted < 1:
            raise RegardError(
                f"{arm.name} has {here - aim:,} parameters more than {reference}, and "
                f"feedforward={width} leaves too few to take away; set feedforward="
                f"{width - adjusted + 1} or more"
            )
        equal.append(replace(arm, overrides=(*arm.overrides, f"feedforward={adjusted}")))
    return equal


def parameters(task: str, arm: Arm, overrides: Sequence[str]) -> int:
    """Return the number of parameters of an arm's network for a few words and labels."""
    network = build_network(_config(task, arm, overrides), vocabulary=WORDS, labels=LABELS)
    return sum(parameter.numel() for parameter in network.parameters())


def _config(task: str, arm: Arm, overrides: Sequence[str]) -> Config:
    own = {key_of(pair) for pair in arm.overrides}
    return Config.make(
        task, arm.model, [*(p for p in overrides if key_of(p) not in own), *arm.overrides]
    )
