"""Runs: train a model on a task in a folder that stores everything.

run = open_or_start("runs/first", "classification", "transformer", ["epochs=3"])
for progress in run.train(): ...
run.evaluate().value
load("runs/first").predict("not a bad film")

The names below are imported on first use, so that `Config` reports a misspelt name before torch is
loaded.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.lab.runs.config import Config, model_after
    from regard.lab.runs.forecasting import Forecast, forecast
    from regard.lab.runs.opening import below, go_on, load, must_match, open_or_start, start
    from regard.lab.runs.pretrain_first import way_of
    from regard.lab.runs.run import Run
    from regard.lab.runs.track import Tracker

__all__ = [
    "Config",
    "Forecast",
    "Run",
    "Tracker",
    "below",
    "forecast",
    "go_on",
    "load",
    "model_after",
    "must_match",
    "open_or_start",
    "start",
    "way_of",
]

_NAMES = {  # of each module
    "config": ["Config", "model_after"],
    "forecasting": ["Forecast", "forecast"],
    "opening": ["below", "go_on", "load", "must_match", "open_or_start", "start"],
    "pretrain_first": ["way_of"],
    "run": ["Run"],
    "track": ["Tracker"],
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"regard.lab.runs.{module}"), name)
    raise AttributeError(f"module 'regard.lab.runs' has no attribute {name!r}")
