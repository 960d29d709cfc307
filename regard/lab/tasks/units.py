"""Units of metrics and the format of their values. Does not import torch."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """The unit of a metric: format, range, and whether lower values are better.

    `sign` follows a value, `points` a difference. Values are multiplied by `times`, which is 100
    for fractions. A value lies between `least` and `most`; `lower` means lower is better. As a
    rule, a difference below `delta` does not matter; None if that depends on the data.
    """

    sign: str = " %"
    points: str = "points"
    times: float = 100.0
    digits: int = 1
    lower: bool = False
    least: float = 0.0
    most: float = 1.0
    delta: float | None = 1.0

    def write(self, value: float, sign: str = "") -> str:
        """Format a value without its unit; a dash if it is not finite.

        ``sign="+"`` also marks positive numbers with a sign.

        >>> Unit().write(0.9138), UNITS["log loss"].write(-0.25, "+")
        ('91.4', '−0.250')
        """
        if not math.isfinite(value):
            return "–"
        rounded = round(self.times * value, self.digits) + 0.0  # no minus before 0
        return f"{rounded:{sign}.{self.digits}f}".replace("-", "−")

    def heading(self, metric: str) -> str:
        """Return the metric and its unit, as the title of a column or an axis.

        >>> Unit().heading("accuracy"), UNITS["BLEU"].heading("BLEU")
        ('accuracy, %', 'BLEU')
        """
        return f"{metric},{self.sign}" if self.sign else metric

    def better(self, value: float) -> float:
        """Return the value, negated if lower is better, so that larger is always better."""
        return -value if self.lower else value


UNITS = {
    "BLEU": Unit("", "BLEU"),  # 33.1 BLEU, not per cent
    "chrF": Unit("", "chrF"),
    "log loss": Unit(" nats", "nats", times=1.0, digits=3, lower=True, most=math.inf, delta=0.01),
    "loss": Unit(" nats", "nats", times=1.0, digits=3, lower=True, most=math.inf, delta=0.01),
    "perplexity": Unit("", "", times=1.0, digits=2, lower=True, most=math.inf, delta=None),
}
