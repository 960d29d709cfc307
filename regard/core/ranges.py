"""Search ranges of settings, declared with the settings as ``search``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from regard.core.errors import RegardError

DIGITS = 3  # significant digits of a drawn number


@dataclass(frozen=True)
class Uniform:
    """Numbers from `low` to `high`, both included; whole numbers if `whole`.

    >>> str(Uniform(0.0, 0.5)), Uniform(1, 4, whole=True).written(2.0)
    ('0 to 0.5', '2')
    """

    low: float
    high: float
    whole: bool = False
    log: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise RegardError(f"range {self.low:g}..{self.high:g}: the low end comes first")
        if self.log and self.low <= 0:
            raise RegardError(f"range {self.low:g}..{self.high:g}: a logarithmic range is above 0")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}"

    def ends(self) -> tuple[str, ...]:
        """Return the values that decide whether the whole range is valid."""
        return self.written(self.low), self.written(self.high)

    def written(self, value: float) -> str:
        """Return a drawn value as a setting, rounded to three digits and within the range.

        >>> Uniform(0.12345, 0.5).written(0.1234567), Uniform(0.0, 0.5).written(0.1234567)
        ('0.12345', '0.123')
        """
        if self.whole:
            return str(round(value))
        rounded = float(f"{value:.{DIGITS}g}")
        return repr(min(max(rounded, float(self.low)), float(self.high)))

    def read(self, text: str) -> float:
        """Return the number that `written` wrote."""
        return int(text) if self.whole else float(text)

    def has(self, text: str) -> bool:
        """Return whether a setting's value lies in the range."""
        try:
            return self.low <= self.read(text) <= self.high
        except ValueError:
            return False


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Numbers from `low` to `high` whose logarithm is uniform, for settings that span decades.

    >>> str(LogUniform(1e-4, 1e-2))
    '0.0001 to 0.01, logarithmic'
    """

    log: ClassVar[bool] = True


@dataclass(frozen=True)
class Choice:
    """A few values, all equally likely.

    >>> str(Choice(("1", "2", "3")))
    '1, 2 or 3'
    """

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise RegardError(
                f"{','.join(self.values)!r}: a choice needs two or more different values"
            )

    def __str__(self) -> str:
        return f"{', '.join(self.values[:-1])} or {self.values[-1]}"

    def ends(self) -> tuple[str, ...]:
        """Return the values that decide whether the whole range is valid: all of them."""
        return self.values

    def written(self, value: str) -> str:
        """Return a drawn value as a setting."""
        return value

    def read(self, text: str) -> str:
        """Return the value that `written` wrote."""
        return text

    def has(self, text: str) -> bool:
        """Return whether a setting's value is one of the choices."""
        return text in self.values


Range = Uniform | Choice
FORMS = "key=low..high, key=low..high:log or key=a,b,c"


def parse_range(key: str, text: str, usual: Range | None = None, *, whole: bool = False) -> Range:
    """Return the range that a command line gives for a setting.

    ``low..high`` keeps the scale of the `usual` range of this key and is linear without one;
    ``low..high:log`` is logarithmic; ``a,b,c`` are choices. `whole`: the setting is a whole number.

    >>> parse_range("dropout", "0..0.3"), str(parse_range("width", "64,128"))
    (Uniform(low=0.0, high=0.3, whole=False), '64 or 128')
    >>> parse_range("learning_rate", "1e-4..1e-3", LogUniform(1e-5, 1e-2)).log
    True
    >>> parse_range("layers", "2")
    Traceback (most recent call last):
    regard.core.errors.RegardError: layers=2 is one value: give it as a setting ...
    """
    span, colon, scale = text.partition(":")
    low, dots, high = span.partition("..")
    if not dots:
        values = [value.strip() for value in text.split(",") if value.strip()]
        if len(values) == 1:
            raise RegardError(f"{key}={text} is one value: give it as a setting, which fixes it")
        return _named(key, lambda: Choice(tuple(values)))
    number = int if whole else float
    try:
        ends = (number(low), number(high))
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise RegardError(
            f"{key}={text}: the ends of a range are {kind}; a range is written {FORMS}"
        ) from None
    if colon and scale.strip() != "log":
        raise RegardError(f"{key}={text}: only 'log' may follow the colon, not {scale!r}")
    log = bool(colon) or (isinstance(usual, Uniform) and usual.log)
    scaled = LogUniform if log else Uniform
    return _named(key, lambda: scaled(*ends, whole=whole))


def _named(key: str, make: Callable[[], Range]) -> Range:
    """Make a range; an error names the setting."""
    try:
        return make()
    except RegardError as error:
        raise RegardError(f"{key}: {error}") from None
