"""What a server counts, as Prometheus reads it: text exposition format 0.0.4."""

import threading
from collections import Counter
from collections.abc import Mapping

from regard.memory import peak_mb

EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Requests by path and status, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._taken: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """One request, answered or refused. `path` is a route's, so that there are few."""
        with self._lock:
            self._requests[(("path", path), ("status", str(status)))] += 1
            counts = self._taken.setdefault(path, [0] * (len(EDGES) + 1))
            counts[sum(edge < seconds for edge in EDGES)] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, tuple[str, str, float]]) -> str:
        """All of it; `gauges` are further (kind, what it is, value) by name."""
        lines = _head("regard_requests_total", "counter", "Requests by path and status.")
        with self._lock:
            for labels, count in sorted(self._requests.items()):
                lines.append(f"regard_requests_total{_braces(labels)} {count}")
            lines += _head("regard_request_seconds", "histogram", "From arrival to answer.")
            for path, counts in sorted(self._taken.items()):
                lines += _histogram("regard_request_seconds", path, counts, self._seconds[path])
        for name, (kind, says, value) in gauges.items():
            lines += [*_head(name, kind, says), f"{name} {value:.10g}"]
        peak = _head("regard_peak_memory_bytes", "gauge", "Most memory this process has held.")
        return "\n".join([*lines, *peak, f"regard_peak_memory_bytes {peak_mb() * 1e6:.0f}"]) + "\n"


def _head(name: str, kind: str, says: str) -> list[str]:
    return [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]


def _braces(labels: Labels) -> str:
    """Labels as the format writes them.

    >>> _braces((("path", 'a"b'),))
    '{path="a\\\\"b"}'
    """
    said = ",".join(f'{key}="{_plain(value)}"' for key, value in labels)
    return f"{{{said}}}"


def _plain(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _histogram(name: str, path: str, counts: list[int], seconds: float) -> list[str]:
    lines, total = [], 0
    for edge, count in zip((*map(str, EDGES), "+Inf"), counts, strict=True):
        total += count
        lines.append(f"{name}_bucket{_braces((('path', path), ('le', edge)))} {total}")
    own = _braces((("path", path),))
    return [*lines, f"{name}_sum{own} {seconds:.6f}", f"{name}_count{own} {total}"]
