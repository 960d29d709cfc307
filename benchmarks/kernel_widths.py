"""Errors on small tables of `regard.KernelRegression` with learned widths, one width, and ridge.

    python -m benchmarks.kernel_widths --out docs/results/kernel_widths.json

The tables are those in scikit-learn; wine and iris as regressions of one of their columns
on the others. Five folds, shuffled by seed 0; errors in standard deviations of y, and in units of y
for diabetes.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.datasets import load_diabetes, load_iris, load_linnerud, load_wine
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

from regard import KernelRegression
from regard.nn.models.kernel_regression import learn

Numbers = NDArray[np.float64]


class OneWidth(KernelRegression):
    """The same kernel with one factor for all standardised columns, learned by leave-one-out."""

    def _learn(self) -> Iterator[object]:  # type: ignore[override]
        keys, values = torch.from_numpy(self._keys), torch.from_numpy(self._values)
        yield from learn(self._model, keys, values, batch=1024, common=True)


def tables() -> Iterator[tuple[str, Numbers, Numbers]]:
    """Yield the name, the columns and the numbers to predict of each table."""
    diabetes, linnerud = load_diabetes(), load_linnerud()
    wine, iris = load_wine().data, load_iris().data
    yield "diabetes", diabetes.data, diabetes.target
    for name, table, column in (
        ("wine: alcohol", wine, 0),
        ("wine: hue", wine, 10),
        ("iris: petal width", iris, 3),
        ("iris: sepal width", iris, 1),
    ):
        yield name, np.delete(table, column, 1), table[:, column]
    yield "linnerud", linnerud.data, linnerud.target


def error(model: RegressorMixin, x: Numbers, y: Numbers) -> float:
    """Return the root mean squared error over five folds, in standard deviations of y."""
    predicted = cross_val_predict(model, x, y, cv=KFold(5, shuffle=True, random_state=0))
    return float(np.sqrt((((predicted - y) / y.std(0)) ** 2).mean()))


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="file of the results")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    models = {
        "default": KernelRegression(), "one width": OneWidth(),
        "shrink=False": KernelRegression(shrink=False), "ridge": RidgeCV(np.logspace(-4, 4, 17)),
    }  # fmt: skip
    rows = []
    for name, x, y in tables():
        begun, row = time.perf_counter(), {"table": name, "rows": len(x), "columns": x.shape[1]}
        row |= {kind: error(model, (x - x.mean(0)) / x.std(0), y) for kind, model in models.items()}
        row |= {"std": float(y.std()), "seconds": time.perf_counter() - begun}
        rows.append(row)
        print(json.dumps(row), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
