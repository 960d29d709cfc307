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

_HOMES = {
    "Config": "config",
    "Forecast": "forecasting",
    "Run": "run",
    "Tracker": "track",
    "below": "opening",
    "forecast": "forecasting",
    "go_on": "opening",
    "load": "opening",
    "model_after": "config",
    "must_match": "opening",
    "open_or_start": "opening",
    "start": "opening",
    "way_of": "pretrain_first",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.lab.runs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regard.lab.runs.{_HOMES[name]}"), name)
