"""Why a request is not answered: a status, one line, and the headers that go with it."""

from collections.abc import Mapping

from regard.web.limits import Limits


class RefusedError(Exception):
    """A request that is not answered: status and what to do, in one line."""

    def __init__(self, status: int, says: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(says)
        self.status, self.says, self.headers = status, says, dict(headers or {})


def over(limit: str, most: float, came: float, status: int = 422) -> RefusedError:
    """A number over a limit, which the line names.

    >>> over("texts", 256, 300).says
    'texts: at most 256 here, not 300; ask for less, or begin the server with texts=300'
    """
    return RefusedError(
        status,
        f"{limit}: at most {most:,} here, not {came:,}; ask for less, or begin the server with "
        f"{limit}={came}",
    )


def too_late(limits: Limits) -> RefusedError:
    """The refusal of a request that was not answered in time."""
    return RefusedError(504, f"deadline: not answered within {limits.deadline:g} s; ask for less")
