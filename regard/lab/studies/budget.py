"""Parse training budgets: 10m, 90s, 500 steps, 3 epochs, 2M tokens; and seeds: 5, 3..30."""

import re
from fractions import Fraction

from regard.core.errors import RegardError

_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_TIME = re.compile(_NUMBER + r"\s*(s|secs?|seconds?|m|mins?|minutes?|h|hours?)")
_COUNT = re.compile(_NUMBER + r"\s*([kKmMbB]?)\s*(step|epoch|token)s?")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}
_ALL = 10**18
MOST_SEEDS = 1_000  # the levels of the looks are simulated for so many
_FORMS = "10m, 90s, 1.5h, 500 steps, 3 epochs or 2M tokens"


def parse_budget(text: str) -> dict[str, str]:
    """Return a budget as a training setting: minutes, steps, epochs or tokens.

    >>> parse_budget("10m"), parse_budget("90s"), parse_budget("2M tokens")
    ({'minutes': '10'}, {'minutes': '1.5'}, {'tokens': '2000000'})
    >>> parse_budget("500 steps"), parse_budget("1 epoch")
    ({'steps': '500'}, {'epochs': '1'})
    >>> parse_budget("10")
    Traceback (most recent call last):
    regard.core.errors.RegardError: budget '10' has no unit; write 10m, 90s, ... or 2M tokens
    """
    written = text.strip()
    if time := _TIME.fullmatch(written):
        key, amount = "minutes", Fraction(time[1]) * _SECONDS[time[2][0]] / 60
    elif count := _COUNT.fullmatch(written):
        key, amount = f"{count[3]}s", Fraction(count[1]) * _TIMES[count[2].lower()]
    elif re.fullmatch(_NUMBER, written):
        raise RegardError(f"budget {text!r} has no unit; write {_FORMS}")
    else:
        raise RegardError(f"unknown budget {text!r}; write {_FORMS}")
    if not 0 < amount < _ALL:
        raise RegardError(f"budget {text!r} must be above 0 and finite; write {_FORMS}")
    whole = amount.denominator == 1
    if not whole and key in ("steps", "tokens"):
        raise RegardError(f"budget {text!r}: {key} must be a whole number")
    return {key: str(amount) if whole else repr(float(amount))}


def parse_seeds(text: str | int) -> tuple[int, int]:
    """Return the first and the last number of seeds of ``3..30``; the first is 0 for one number.

    >>> parse_seeds("3..30"), parse_seeds("5"), parse_seeds(5)
    ((3, 30), (0, 5), (0, 5))
    >>> parse_seeds("5..3")
    Traceback (most recent call last):
    regard.core.errors.RegardError: --seeds 5..3: 5 is more than 3; write --seeds 3..5
    """
    written = str(text).strip()
    if not (numbers := re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", written, re.ASCII)):
        raise RegardError(f"--seeds {text}: write a number, 5, or a range, 3..30")
    first, last = int(numbers[1]), int(numbers[2] or 0)
    if numbers[2] is None:
        if first < 1:
            raise RegardError(f"--seeds {text}: give at least 1")
        return 0, first
    if first > last:
        raise RegardError(
            f"--seeds {text}: {first} is more than {last}; write --seeds {last}..{first}"
        )
    if first < 2:
        raise RegardError(f"--seeds {text}: one seed decides nothing about methods; begin with 2")
    if last > MOST_SEEDS:
        raise RegardError(f"--seeds {text}: a range ends at {MOST_SEEDS:,} seeds at most")
    return first, last
