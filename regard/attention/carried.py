"""Context variables whose values travel with a call, and not with the thread that computes it.

torch.utils.checkpoint calls a function again in the backward pass: after the block that set a
variable has ended, or in a thread that never had it. torch.compile reads no context variable at
all.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch.utils import checkpoint

T = TypeVar("T")
LOCK = Lock()
HERE = vars(checkpoint)  # the globals of the functions that call again


class Repeated(NamedTuple):
    """The call of torch.utils.checkpoint that a line of code runs in.

    ``state`` is the object that torch keeps until the call is repeated; ``again``: it is repeated
    now.
    """

    state: Any
    again: bool


class Carried(Generic[T]):
    """A context variable that a recomputed call reads as the call did that it repeats.

    What is set inside of the function that is repeated is set again there, and holds.
    """

    def __init__(self, name: str) -> None:
        self._name = f"_regard_{name}"
        self._value: ContextVar[tuple[T, Any] | None] = ContextVar(name, default=None)
        #: What the blocks that are open have set, in any thread.
        self._open: list[tuple[object, T]] = []
        #: What was set last of these: a graph of torch.compile is guarded by it, so that a compiled
        #: call has the value of its own thread where one thread at a time sets one.
        self.latest: T | None = None

    def get(self) -> T | None:
        """The value, or None."""
        if torch.compiler.is_compiling():
            return self.latest
        given = self._value.get()
        if given is None and torch._C._current_graph_task_id() < 0:  # no backward pass
            return None
        value, inside = given or (None, None)
        begun = []
        for state, again in repeated():
            if given is not None and state is inside:
                break
            if again:
                value = getattr(state, self._name, None)
                break
            begun.append(state)
        for state in begun:
            setattr(state, self._name, value)
        return value

    @contextmanager
    def set(self, value: T) -> Iterator[None]:
        """Inside the block `get` gives this value."""
        if torch.compiler.is_compiling():
            before, self.latest = self.latest, value
            yield
            self.latest = before
            return
        innermost = next(repeated(), None)
        token = self._value.set((value, innermost and innermost.state))
        mine = (object(), value)
        self._opened(mine)
        try:
            yield
        finally:
            self._value.reset(token)
            self._closed(mine)

    def _opened(self, mine: tuple[object, T]) -> None:
        with LOCK:
            self._open.append(mine)
            self.latest = mine[1]

    def _closed(self, mine: tuple[object, T]) -> None:
        with LOCK:
            self._open = [block for block in self._open if block[0] is not mine[0]]
            self.latest = self._open[-1][1] if self._open else None


def repeated() -> Iterator[Repeated]:
    """The calls of torch.utils.checkpoint on the stack, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is HERE:
            held = frame.f_locals
            match frame.f_code.co_name:
                case "forward" | "backward" if "ctx" in held:  # use_reentrant=True
                    yield Repeated(held["ctx"], frame.f_code.co_name == "backward")
                case "checkpoint" if "gen" in held:  # False
                    begun = held["gen"].gi_frame
                    if begun is not None and "new_frame" in begun.f_locals:
                        yield Repeated(begun.f_locals["new_frame"], False)
                case "unpack_hook" if "frame" in held:
                    yield Repeated(held["frame"], True)
        frame = frame.f_back
