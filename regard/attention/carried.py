"""Context variables whose values belong to a call, not to the thread that computes it.

torch.utils.checkpoint repeats a function in the backward pass: after the block that set a variable
has ended, or in a thread without the variable. torch.compile reads no context variables.

Nothing that torch passes from a call to its repetition can hold the variable: its caller, who may
be any user's code, alone gives ``context_fn``, which ``use_reentrant=True`` refuses; hooks of saved
tensors see a function's inputs, and a closure has none. So this reads the frames of torch's own
functions, where the object that belongs to a call is at hand in both passes.
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
HERE = vars(checkpoint)  # the globals of the functions that repeat a call


class Repeated(NamedTuple):
    """A call of torch.utils.checkpoint on the stack.

    ``state`` is the object that torch keeps until the call is repeated; ``again`` is true while it
    is repeated.
    """

    state: Any
    again: bool


class Carried(Generic[T]):
    """A context variable that has its original value when torch.utils.checkpoint repeats a call.

    A value set inside the repeated function is set again there, and applies.
    """

    def __init__(self, name: str) -> None:
        self._name = f"_regard_{name}"
        self._value: ContextVar[tuple[T, Any] | None] = ContextVar(name, default=None)
        #: The values set by the open blocks of all threads.
        self._open: list[tuple[object, T]] = []
        #: The latest of them, which guards graphs of torch.compile: a compiled call has the value
        #: of its own thread if only one thread at a time sets one.
        self.latest: T | None = None

    def get(self) -> T | None:
        """Return the value, or None."""
        if torch.compiler.is_compiling():
            return self.latest
        current = self._value.get()
        if current is None and torch._C._current_graph_task_id() < 0:  # no backward pass
            return None
        value, inside = current or (None, None)
        begun = []
        for state, again in repeated():
            if current is not None and state is inside:
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
        """Set the value that `get` returns inside the block."""
        if torch.compiler.is_compiling():
            before, self.latest = self.latest, value
            yield
            self.latest = before
            return
        innermost = next(repeated(), None)
        token = self._value.set((value, innermost and innermost.state))
        mine = (object(), value)
        with LOCK:
            self._open.append(mine)
            self.latest = value
        try:
            yield
        finally:
            self._value.reset(token)
            with LOCK:
                self._open.remove(mine)
                self.latest = self._open[-1][1] if self._open else None


def repeated() -> Iterator[Repeated]:
    """Yield the calls of torch.utils.checkpoint on the stack, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is HERE:
            local = frame.f_locals
            match frame.f_code.co_name:
                case "forward" | "backward" if "ctx" in local:  # use_reentrant=True
                    yield Repeated(local["ctx"], frame.f_code.co_name == "backward")
                case "checkpoint" if "gen" in local:  # False
                    begun = local["gen"].gi_frame
                    if begun is not None and "new_frame" in begun.f_locals:
                        yield Repeated(begun.f_locals["new_frame"], False)
                case "unpack_hook" if "frame" in local:
                    yield Repeated(local["frame"], True)
        frame = frame.f_back
