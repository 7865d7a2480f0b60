"""What a service counts, for Prometheus. No question, id or condition is in a label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ragidx.pipelines.serve.served_index import Served

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The counters of one service, in a registry of their own."""

    def __init__(self, indexes: Mapping[str, Served]) -> None:
        self.registry = every = CollectorRegistry()
        self.requests = Counter("ragidx_requests", "Requests by route and status.", ["route", "status"], registry=every)
        self.seconds = Histogram(
            "ragidx_request_seconds", "Seconds of a request.", ["route"], buckets=_SECONDS, registry=every
        )
        self.stages = Histogram(
            "ragidx_search_seconds",
            "Seconds of the stages of a search.",
            ["stage"],
            buckets=_SECONDS,
            registry=every,
        )
        self._of_stage = {name: self.stages.labels(name) for name in ("encode", "search", "total")}
        self.in_flight = Gauge("ragidx_in_flight", "Requests that are worked on.", registry=every)
        self.registry.register(_Indexes(indexes))

    def searched(self, took_ms: Mapping[str, float]) -> None:
        """Count a search, by the milliseconds of its stages."""
        for stage, milliseconds in took_ms.items():
            self._of_stage[stage].observe(milliseconds / 1000)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)


class _Indexes(Collector):
    """What each index is, read when it is asked for."""

    def __init__(self, indexes: Mapping[str, Served]) -> None:
        self._indexes = indexes

    def collect(self) -> Iterator[Metric]:
        """Each index's generation, chunks and dead rows, whether it is stale, and reloads."""
        generation = GaugeMetricFamily("ragidx_generation", "The generation that answers.", labels=["index"])
        rows = GaugeMetricFamily("ragidx_rows", "Chunks that can be found.", labels=["index"])
        dead = GaugeMetricFamily("ragidx_dead_rows", "Rows of deleted chunks that are stored.", labels=["index"])
        stale = GaugeMetricFamily("ragidx_stale", "1 where a newer state cannot be shown.", labels=["index"])
        reloads = GaugeMetricFamily("ragidx_reloads", "Newer states, shown or failed.", labels=["index", "result"])
        for name, served in self._indexes.items():
            if served.state is not None:
                generation.add_metric([name], served.state.store.manifest.generation)
                rows.add_metric([name], served.state.store.manifest.n_chunks)
                dead.add_metric([name], max(0, served.state.store.manifest.n_dead))  # an engine has no segments
            stale.add_metric([name], bool(served.problem))
            reloads.add_metric([name, "shown"], served.n_reloads)
            reloads.add_metric([name, "failed"], served.n_failures)
        return iter([generation, rows, dead, stale, reloads])
