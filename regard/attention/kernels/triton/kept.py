"""Programs are kept for later calls with equal shapes and an equal score and mask."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.call import Call
from regard.attention.kernels.triton.expression import UnsupportedScore
from regard.attention.kernels.triton.program import Program, Sides, program_of
from regard.attention.mask import Mask

#: Programs that are kept; the one that was not used for the longest time is dropped.
MOST = 256


class Kept(NamedTuple):
    """A program, or the reason why there is none.

    ``places`` are those of its captured tensors among a call's `tensors_of`; None: it captures
    others, so it is kept for these very objects alone. ``objects`` are named in the key by their
    id, which no other object can get while they are kept.
    """

    program: Program | None
    refusal: str
    places: tuple[int, ...] | None
    objects: Sequence[object]


_kept: "OrderedDict[object, Kept]" = OrderedDict()
_lock = Lock()


def program_for(call: Call, sides: Sides, wanted: Sequence[bool]) -> Program:
    """Return the program of a call. Raise an UnsupportedScore with the reason if there is none.

    A program depends on the classes and plain attributes of the score and the mask and on all
    shapes, not on numbers in tensors. A score whose `compare` reads an object that changes must be
    built anew.
    """
    tensors = list(tensors_of(call))
    for marks in (Marks(tensors), Marks([])):
        key = key_of(call, sides, wanted, marks)
        with _lock:
            if key in _kept:
                _kept.move_to_end(key)
            kept = _kept.get(key)
        if kept is None:
            kept = made(call, sides, wanted, tensors, marks)
            with _lock:
                _kept[key] = kept
                while len(_kept) > MOST:
                    _kept.popitem(last=False)
        if kept.refusal:
            raise UnsupportedScore(kept.refusal)
        if kept.program is not None and kept.places is not None:
            return replace(kept.program, captured=[tensors[i] for i in kept.places])
        if kept.program is not None and not marks.tensors:
            return kept.program
    raise AssertionError("the second key is that of the objects themselves")


def made(
    call: Call, sides: Sides, wanted: Sequence[bool], tensors: Sequence[Tensor], marks: "Marks"
) -> Kept:
    """Return the program of a call to keep."""
    try:
        program = program_of(call, sides, wanted)
    except UnsupportedScore as reason:
        return Kept(None, str(reason), None, marks.objects)
    places = [next((i for i, x in enumerate(tensors) if x is y), -1) for y in program.captured]
    kept_places = None if -1 in places else tuple(places)
    return Kept(program, "", kept_places, marks.objects)


def tensors_of(call: Call) -> Iterator[Tensor]:
    """Yield the buffers of a call's score and the tensors that its mask is made of."""
    yield from call.score.buffers()
    masks: list[object] = [call.context.mask]
    while masks:
        x = masks.pop()
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, Mask) and x._made is not None:
            masks += x._made[1]


@dataclass
class Marks:
    """Hashable marks of values: a tensor by its place and shape, a plain value by itself.

    Anything else is marked by its id and put among ``objects``.
    """

    tensors: Sequence[Tensor]
    objects: list[object] = field(default_factory=list)

    def of(self, value: object) -> object:
        """Return the mark of a value."""
        if value is None or isinstance(value, bool | int | float | str | torch.dtype):
            return type(value), value
        if isinstance(value, Tensor):
            place = next((i for i, x in enumerate(self.tensors) if x is value), None)
            if place is not None:
                return place, tuple(value.shape), value.dtype
        if isinstance(value, Mask) and value._made is not None:
            function, arguments = value._made
            return function, tuple(map(self.of, arguments))
        if type(value) in (tuple, list, dict, OrderedDict):
            assert isinstance(value, tuple | list | dict)
            items = value.items() if isinstance(value, dict) else value
            return type(value), tuple(map(self.of, items))
        self.objects.append(value)
        return id(value)

    def of_module(self, module: nn.Module) -> object:
        """Return the mark of a module: classes and attributes of it and of its children."""
        marks: list[object] = []
        for each in module.modules():
            marks.append(type(each))
            for name, value in each.__dict__.items():
                if name not in ("_parameters", "_modules", "training"):
                    marks.append((name, self.of(value)))
        return tuple(marks)


def key_of(call: Call, sides: Sides, wanted: Sequence[bool], marks: Marks) -> object:
    """Return all that the program of a call depends on."""
    context = call.context
    every = (*sides.tensors, *sides.positions, context.rows, context.columns)
    return (
        bool(marks.tensors), marks.of_module(call.score), marks.of(context.mask),
        tuple(context.shape), context.heads, tuple((tuple(x.shape), x.dtype) for x in every),
        len(sides.queries), len(sides.keys), isinstance(call.queries, tuple),
        isinstance(call.keys, tuple), tuple(wanted), str(every[0].device),
    )  # fmt: skip
