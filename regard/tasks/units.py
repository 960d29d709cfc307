"""How the numbers of a metric are written. No torch here."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """How a metric's numbers are written, and whether the smaller is the better.

    `sign` stands behind a number, `points` behind a difference; shares are written `times` 100. A
    value is between
    `least` and `most`.
    """

    sign: str = " %"
    points: str = "points"
    times: float = 100.0
    digits: int = 1
    lower: bool = False
    least: float = 0.0
    most: float = 1.0

    def write(self, value: float, sign: str = "") -> str:
        """The number without its unit, a dash for none; ``sign="+"`` shows the sign of a gain.

        >>> Unit().write(0.9138), UNITS["log loss"].write(-0.25, "+")
        ('91.4', '−0.250')
        """
        if not math.isfinite(value):
            return "–"
        rounded = round(self.times * value, self.digits) + 0.0  # no minus before 0
        return f"{rounded:{sign}.{self.digits}f}".replace("-", "−")

    def heading(self, metric: str) -> str:
        """The metric and its unit, over a column or beside an axis.

        >>> Unit().heading("accuracy"), UNITS["BLEU"].heading("BLEU")
        ('accuracy, %', 'BLEU')
        """
        return f"{metric},{self.sign}" if self.sign else metric

    def better(self, value: float) -> float:
        """The value, or minus it, so that of two the larger is the better."""
        return -value if self.lower else value


UNITS = {
    "BLEU": Unit("", "BLEU"),  # people say 33.1 BLEU, not per cent
    "chrF": Unit("", "chrF"),
    "log loss": Unit(" nats", "nats", times=1.0, digits=3, lower=True, most=math.inf),
    "loss": Unit(" nats", "nats", times=1.0, digits=3, lower=True, most=math.inf),
    "perplexity": Unit("", "", times=1.0, digits=2, lower=True, most=math.inf),
}
