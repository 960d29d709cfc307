"""regard: attention mechanisms for PyTorch, f(q) = Σ normalize(score(q, kᵢ)) vᵢ.

The names below are loaded when they are first used, so that ``import regard`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from regard.core.errors import RegardError

if TYPE_CHECKING:
    from regard.attention import (
        Attended,
        Attention,
        KeyValueCache,
        Mask,
        MultiHeadAttention,
        Normalizer,
        Score,
        explain,
        use,
    )
    from regard.attention.attend import attend
    from regard.conformance import adopt
    from regard.core.trusted import trust
    from regard.lab.cli.calls import Arm, compare, suggest, train
    from regard.lab.reports.notebook import html, look
    from regard.lab.reports.plots import plot
    from regard.lab.runs import load
    from regard.lab.runs.estimators import MultilabelClassifier, TextClassifier, TextRegressor
    from regard.lab.runs.kernel_estimator import KernelRegression

__version__ = "0.1.0"
__all__ = [
    "Arm",
    "Attended",
    "Attention",
    "KernelRegression",
    "KeyValueCache",
    "Mask",
    "MultiHeadAttention",
    "MultilabelClassifier",
    "Normalizer",
    "RegardError",
    "Score",
    "TextClassifier",
    "TextRegressor",
    "adopt",
    "attend",
    "compare",
    "explain",
    "html",
    "load",
    "look",
    "plot",
    "suggest",
    "train",
    "trust",
    "use",
]

_HOMES = {
    "Arm": "regard.lab.cli.calls",
    "KernelRegression": "regard.lab.runs.kernel_estimator",
    "MultilabelClassifier": "regard.lab.runs.estimators",
    "TextClassifier": "regard.lab.runs.estimators",
    "TextRegressor": "regard.lab.runs.estimators",
    "adopt": "regard.conformance",
    "compare": "regard.lab.cli.calls",
    "html": "regard.lab.reports.notebook",
    "load": "regard.lab.runs",
    "look": "regard.lab.reports.notebook",
    "plot": "regard.lab.reports.plots",
    "suggest": "regard.lab.cli.calls",
    "train": "regard.lab.cli.calls",
    "trust": "regard.core.trusted",
}


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "regard.attention")), name)
