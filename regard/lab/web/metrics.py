"""Metrics of the server in Prometheus' text exposition format 0.0.4."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: The series about requests, without their `_created` timestamps.
KEPT = (
    "regard_requests_total",
    "regard_request_seconds_bucket",
    "regard_request_seconds_sum",
    "regard_request_seconds_count",
)


class Metrics(Collector):
    """Counts and durations of requests by path and status, and the current values of `gauges`.

    ``gauges`` returns (description, value) by name; names of counters end in ``_total``. The
    registry belongs to this server, so that two servers in one process count separately.
    """

    def __init__(self, gauges: Callable[[], Mapping[str, tuple[str, float]]] = lambda: {}) -> None:
        self._gauges, self._registry = gauges, CollectorRegistry()
        self._requests = Counter(
            "regard_requests",
            "Requests by path and status.",
            ("path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "regard_request_seconds",
            "Seconds from arrival to answer.",
            ("path",),
            buckets=EDGES,
            registry=self._registry,
        )

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count one request. ``path`` is that of a route, so that there are few series."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family (prometheus_client's `Collector` interface)."""
        yield from self._registry.restricted_registry(KEPT).collect()
        for name, (description, value) in self._gauges().items():
            counts = name.endswith("_total")
            family = CounterMetricFamily if counts else GaugeMetricFamily
            yield family(name, description, value=value)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self)
