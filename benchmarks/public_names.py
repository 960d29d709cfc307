"""The public names of the package: one walk, used by the inventory and by the reference pages."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import regard


def modules() -> Iterator[ModuleType]:
    """Yield each module of the package that can be imported here, in alphabetical order."""
    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        if "__main__" not in module.name:
            try:
                yield importlib.import_module(module.name)
            except ImportError:  # an extra that is not installed
                continue


def public_names(module: ModuleType) -> Mapping[str, Any]:
    """Return the public classes and functions that a module defines, in the order of its source.

    >>> from regard.attention import score
    >>> [*public_names(score)]
    ['Score', 'InnerProduct']
    """
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    }


def public_methods(kind: type) -> Mapping[str, Any]:
    """Return the public methods that a class itself defines."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }
