"""What a server counts, as Prometheus reads it: text exposition format 0.0.4."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from regard.memory import peak_mb

EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
#: The series of each request; without the times at which their counting began.
KEPT = (
    "regard_requests_total",
    "regard_request_seconds_bucket",
    "regard_request_seconds_sum",
    "regard_request_seconds_count",
)


class Metrics(Collector):
    """Requests by path and status, how long they took, and what `gauges` returns when asked.

    ``gauges`` returns (kind, description, value) by name; the kind is a key of `FAMILIES`. The
    registry is this server's own, so that two servers in one process count apart.
    """

    def __init__(
        self, gauges: Callable[[], Mapping[str, tuple[str, str, float]]] = lambda: {}
    ) -> None:
        self._gauges, self._registry = gauges, CollectorRegistry()
        self._requests = Counter(
            "regard_requests",
            "Requests by path and status.",
            ("path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "regard_request_seconds",
            "From arrival to answer.",
            ("path",),
            buckets=EDGES,
            registry=self._registry,
        )

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count one request, answered or refused. `path` is a route's, so that there are few."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield every family, as a registry of prometheus_client asks for them."""
        yield from self._registry.restricted_registry(KEPT).collect()
        for name, (kind, description, value) in self._gauges().items():
            yield FAMILIES[kind](name, description, value=value)
        peak = peak_mb() * 1e6
        description = "Most memory this process has held."
        yield GaugeMetricFamily("regard_peak_memory_bytes", description, value=peak)

    def text(self) -> bytes:
        """Return all of it in the text format."""
        return generate_latest(self)
