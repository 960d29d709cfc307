"""Errors that become HTTP answers: a status, one line, headers."""

from collections.abc import Mapping

from regard.lab.web.limits import Limits


class RefusedError(Exception):
    """An error with the HTTP status and one line that says what to do."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def over(limit: str, most: float, value: float, status: int = 422) -> RefusedError:
    """Return the refusal of a value over a limit, which it names.

    >>> over("texts", 256, 300).message
    'texts: at most 256 here, not 300; send less, or start the server with texts=300'
    """
    return RefusedError(
        status,
        f"{limit}: at most {most:,} here, not {value:,}; send less, or start the server with "
        f"{limit}={value}",
    )


def too_late(limits: Limits) -> RefusedError:
    """Return the refusal of a request that missed its deadline."""
    return RefusedError(
        504, f"deadline: no answer within {limits.deadline:g} s; send less or raise deadline"
    )
