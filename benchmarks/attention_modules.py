"""Compare every attention class of transformers with regard by its eager function.

No model inputs are needed: a class's own eager attention function and regard get the same random
queries, keys, values and mask. This covers the classes whose models `benchmarks.families` cannot
build.
"""

import ast
import importlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from regard.core.errors import RegardError
from regard.interop.attention_interface import attended, make_layer
from regard.interop.eager import eager_of, refuse_difference

HEADS, LENGTH, WIDTH = 4, 6, 8


def attention_modules() -> dict[str, str]:
    """Return each class by name with "" if regard agrees with its eager function, or the reason."""
    found: dict[str, str] = {}
    for kind, source in classes():
        found[kind.__name__] = found.get(kind.__name__) or reason(kind, sinks="s_aux=" in source)
    return dict(sorted(found.items()))


def classes() -> Iterator[tuple[type[nn.Module], str]]:
    """Yield the classes that name the attention interface in their code, with this code."""
    import transformers

    folder = Path(transformers.__file__).parent / "models"
    for path in sorted(folder.glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        if "ALL_ATTENTION_FUNCTIONS" not in text:
            continue
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        lines = text.splitlines()
        for x in ast.parse(text).body:
            source = "\n".join(lines[x.lineno - 1 : x.end_lineno])
            if isinstance(x, ast.ClassDef) and "ALL_ATTENTION_FUNCTIONS" in source:
                yield getattr(module, x.name), source


def reason(kind: type[nn.Module], *, sinks: bool) -> str:
    """Return "" if regard gives the result of the class's eager function, or the reason why not."""
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    module.eval()
    generator = torch.Generator().manual_seed(0)
    numbers = {
        "num_key_value_groups": 1,
        "head_dim": WIDTH,
        "scaling": WIDTH**-0.5,
        "sinks": torch.randn(HEADS, generator=generator),
        "config": SimpleNamespace(),
    }
    for name, value in numbers.items():
        object.__setattr__(module, name, value)
    if eager_of(module) is None:
        return "its code names no eager attention function"
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, WIDTH, generator=generator)
    hidden = torch.ones(LENGTH, LENGTH).triu(1).bool()
    mask = torch.zeros(1, 1, LENGTH, LENGTH).masked_fill(hidden, torch.finfo().min)
    ours = partial(attended, make_layer("scaled-dot", "softmax", WIDTH, HEADS))
    known = {"scaling": module.scaling, "s_aux": module.sinks if sinks else None}
    try:
        try:
            refuse_difference(module, ours, q, k, v, mask, None, known)
        except RegardError:  # some ignore the mask, which their models never have
            refuse_difference(module, ours, q, k, v, None, None, known)
    except RegardError as error:
        return str(error)
    return ""
