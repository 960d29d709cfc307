"""Whole networks as subjects of the laws: of a run, or of a task and a model."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.conformance import NetworkSubject
from regard.core.errors import RegardError
from regard.core.names import leading_name
from regard.core.trusted import trust_named
from regard.lab.runs import load
from regard.lab.runs.build import build_network, build_once, longest_text
from regard.lab.runs.config import Config
from regard.lab.tasks import TASKS
from regard.training.loop import seeded

WORDS, LABELS = 20, 3  # sizes of an untrained network


def network_of(what: str, settings: Sequence[str] = ()) -> NetworkSubject | None:
    """Return the network of a run's folder or of ``TASK:MODEL``; None for any other name.

    An untrained network gets a little noise on its initial weights, since zeros would hide the
    inputs that they multiply. Raises: settings for a run; an invalid setting; a baseline; an
    incomplete run.
    """
    task, colon, model = leading_name(what)
    if colon and task in TASKS:
        trust_named((task, model))
        config = Config.make(task, model, list(settings))
        if config.entry.baseline:
            raise RegardError(f"{what} is a fitted baseline, for which there are no laws")
        build_once(config)
        make = partial(_new, config)
        return _subject(what, config, make, config.unread_task, WORDS, LABELS)
    if settings:
        raise RegardError(f"{settings[0]}: settings need TASK:MODEL, not {what}")
    if not Path(what).is_dir():
        return None
    run = load(Path(what))
    trained = run.network
    sizes = run.task.sizes
    words, labels = int(sizes["vocabulary"]), int(sizes["labels"])
    return _subject(what, run.config, lambda: trained, run.task, words, labels)


def _subject(
    name: str, config: Config, make: Callable[[], nn.Module], task: Any, words: int, labels: int
) -> NetworkSubject:
    return NetworkSubject(name, make, task.interface, words, longest_text(config), labels)


def _new(config: Config) -> nn.Module:
    network = build_network(config, vocabulary=WORDS, labels=LABELS)
    with seeded(0), torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return network
