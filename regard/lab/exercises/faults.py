"""Name the first fault of a function in one sentence, from what it did in the cases of a part."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import isnan, prod
from typing import Any

from torch import Tensor

from regard.lab.exercises.observing import Observation, observe
from regard.lab.exercises.part import Arguments, Part

FEW = 8  # numbers of an argument that a sentence shows; of a larger one it shows the shape
MOST = 3  # arguments that a sentence shows
TOLERANCE = 1e-4


def judge(part: Part, seen: Sequence[Observation]) -> str:
    """Return the first fault in one sentence, or "".

    `seen` may come from a student's process: it is taken for no more than values.
    """
    cases = part.cases()
    if len(seen) != len(cases):
        return str(seen[0].get("error", "no answer")) if len(seen) == 1 else "no answer"
    due = _observed(part, part.reference)
    faults = [_fault(one, other) for one, other in zip(due, seen, strict=True)]
    first = next((i for i, fault in enumerate(faults) if fault), None)
    if first is not None:
        if seen[first].get("error") == "it is still blank":
            return "it is still blank"
        where = f"for {shown(part.reference, cases[first])}"
        cause = _named(part, seen, first) or _changed(part.reference, due[first], seen[first])
        if cause:
            return f"{cause}; {where} {faults[first]}"
        if first:
            before = shown(part.reference, cases[0])
            return f"right for {before}, but {where} {faults[first]}"
        return f"{where} {faults[first]}"
    for arguments, one, other in zip(cases, due, seen, strict=True):
        if fault := _beyond_values(part.reference, one, other):
            return f"{fault}, for {shown(part.reference, arguments)}"
    return ""


@cache
def _observed(part: Part, function: Callable[..., Any]) -> list[Observation]:
    """Return what the reference or a wrong variant does in the cases."""
    return [observe(function, arguments) for arguments in part.cases()]


def _fault(due: Observation, seen: Observation) -> str:
    """Return how an answer differs from the one that is due, or ""."""
    return str(seen["error"])[:300] if "error" in seen else difference(due["value"], seen["value"])


def difference(due: Any, seen: Any) -> str:
    """Return how an encoded value differs from the one that is due, or "".

    >>> difference({"shape": [2], "values": [1.0, 2.0]}, {"shape": [2], "values": [1.0, 3.0]})
    'element [1] is 3 and must be 2'
    """
    try:
        return _difference(due, seen)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return "the answer cannot be read"


def _difference(due: Any, seen: Any) -> str:
    if "items" in due:
        n = len(due["items"])
        if len(seen.get("items", ())) != n:
            return f"it returns {_kind(seen)}, not {n} values"
        for i, (one, other) in enumerate(zip(due["items"], seen["items"], strict=True)):
            if fault := _difference(one, other):
                return f"for returned value {i + 1} of {n}: {fault}"
        return ""
    if due.keys() != seen.keys():
        return f"it returns {_kind(seen)}, not {_kind(due)}"
    if "plain" in due:
        right = type(due["plain"]) is type(seen["plain"]) and due["plain"] == seen["plain"]
        return "" if right else f"it returns {seen['plain']!r}, not {due['plain']!r}"[:300]
    if due["shape"] != seen["shape"]:
        return f"it returns the shape {tuple(seen['shape'])}, not {tuple(due['shape'])}"
    if len(seen["values"]) != prod(due["shape"]):
        return "the answer cannot be read"
    places = product(*map(range, due["shape"]))
    for place, one, other in zip(places, due["values"], seen["values"], strict=True):
        if not (isnan(one) and isnan(other)) and not abs(one - other) <= TOLERANCE * (1 + abs(one)):
            what = f"element {list(place)}" if place else "the result"
            return f"{what} is {other:.4g} and must be {one:.4g}"
    return ""


def _kind(value: Any) -> str:
    if "shape" in value:
        return f"a tensor of shape {tuple(value['shape'])}"
    if "items" in value:
        return f"{len(value['items'])} values"
    return f"{value['plain']!r}"[:80] if "plain" in value else f"a {value.get('other')}"[:80]


def _named(part: Part, seen: Sequence[Observation], first: int) -> str:
    """Return the sentence of the wrong variant that does the same, or ""."""
    same = {
        says: [_alike(*pair) for pair in zip(_observed(part, wrong), seen, strict=True)]
        for says, wrong in part.variants.items()
    }
    # In a later case alone, a variant may agree by chance.
    same_first = (says for says, alike in same.items() if alike[0] and not first)
    return next((says for says, alike in same.items() if all(alike)), next(same_first, ""))


def _alike(wrong: Observation, seen: Observation) -> bool:
    if "error" in wrong or "error" in seen:
        return wrong.get("error") == seen.get("error")
    return not difference(wrong["value"], seen["value"])


def _changed(reference: Callable[..., Any], due: Observation, seen: Observation) -> str:
    """Return which argument was changed in place, in words, or ""."""
    names, after = inspect.signature(reference).parameters, seen.get("after") or due["after"]
    for name, one, other in zip(names, due["after"], after, strict=True):
        if one is not None and difference(one, other):
            return f"it changes its argument {name} in place"
    return ""


def _beyond_values(reference: Callable[..., Any], due: Observation, seen: Observation) -> str:
    """Return a fault of a function that returns the right values: in-place changes, gradients."""
    if changed := _changed(reference, due, seen):
        return changed
    if "second" in seen:
        return f"with arguments that need a gradient it {seen['second']}"[:300]
    if difference(due["value"], seen["again"]):
        return "a second call with the same arguments gives another answer"
    rows = zip(inspect.signature(reference).parameters, due["grads"], seen["grads"], strict=True)
    grads = [row for row in rows if row[1] is not None and any(row[1]["values"])]
    for name, _, other in grads:
        if other is None:
            return f"no gradient reaches {name}: it was detached or rebuilt on the way"
    for name, one, other in grads:
        if fault := difference(one, other):
            return f"the values are right, but the gradient by {name} is wrong ({fault})"
    return ""


def shown(reference: Callable[..., Any], arguments: Arguments) -> str:
    """Return the arguments of a call in words.

    >>> import torch
    >>> shown(lambda x, k: x, (torch.ones(2), 3))
    'x=[1, 1], k=3'
    """
    names = inspect.signature(reference).parameters
    words = [_word(name, one) for name, one in zip(names, arguments, strict=True)]
    words = [word for word in words if word]
    return ", ".join(words[:MOST] + ["…"] * (len(words) > MOST))


def _word(name: str, value: object) -> str:
    if not isinstance(value, Tensor):
        return f"{name}={value!r}" if isinstance(value, bool | int | float | str) else ""
    if value.numel() > FEW:
        return f"{name} of shape {tuple(value.shape)}"
    return f"{name}={_plain(value.tolist())}"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    return f"{value:.3g}"
