"""regard: attention mechanisms for PyTorch, f(q) = Σ normalize(score(q, kᵢ)) vᵢ.

The names below are loaded when they are first used, so that ``import regard`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

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
    from regard.cli.calls import compare, train
    from regard.interop.sklearn import KernelRegression
    from regard.reports.notebook import html, look
    from regard.runs import load
    from regard.runs.estimators import TextClassifier, TextRegressor
    from regard.trusted import trust

__version__ = "0.1.0"
__all__ = [
    "Attended",
    "Attention",
    "KernelRegression",
    "KeyValueCache",
    "Mask",
    "MultiHeadAttention",
    "Normalizer",
    "RegardError",
    "Score",
    "TextClassifier",
    "TextRegressor",
    "attend",
    "compare",
    "explain",
    "html",
    "load",
    "look",
    "train",
    "trust",
    "use",
]

_HOMES = {
    "KernelRegression": "regard.interop.sklearn",
    "TextClassifier": "regard.runs.estimators",
    "TextRegressor": "regard.runs.estimators",
    "compare": "regard.cli.calls",
    "html": "regard.reports.notebook",
    "load": "regard.runs",
    "look": "regard.reports.notebook",
    "train": "regard.cli.calls",
    "trust": "regard.trusted",
}


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "regard.attention")), name)
