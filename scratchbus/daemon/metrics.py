"""The metrics of a process, for Prometheus, with all their names.

The process counts its work as it happens. The state of the bus is read for each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from scratchbus.daemon.metric_help import HELP
from scratchbus.projections import scratch_page
from scratchbus.readmodel.status import Status
from scratchbus.telemetry.counters import BOUNDS, Durations, counts

Values = Iterable[tuple[list[str], float]]
"""The labels of each sample, and its value."""


def render_metrics(status: Status | None) -> tuple[bytes, str]:
    """Return all metrics in the format of Prometheus, and its media type; a status of None is left out."""
    return generate_latest(registry_with(_Once(status))), CONTENT_TYPE_LATEST


class _Once(Collector):
    """The metrics of one scrape."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield from all_metrics(lambda: self._status)


def registry_with(collector: Collector) -> CollectorRegistry:
    """Return a registry of the metrics of a collector and those of this process."""
    registry = CollectorRegistry()
    for collector_class in (ProcessCollector, PlatformCollector, GCCollector):
        collector_class(registry=registry)
    registry.register(collector)
    return registry


def all_metrics(read_status: Callable[[], Status | None]) -> Iterator[Metric]:
    """Yield all metrics: those of the process first, then those of the status that `read_status` returns, if any."""
    yield from _work_done()
    status = read_status()
    yield _gauge("up", [], [([], float(status is not None))])
    if status is not None:
        yield from _state_of(status)


# -- the work of this process ----------------------------------------------------------------------------------------


def _work_done() -> Iterator[Metric]:
    yield _counter("events_appended", ["kind"], _each(counts.appended))
    yield _counter("displaced", [], [([], counts.displaced)])
    yield _counter("appends_refused", ["reason"], _each(counts.refused))
    yield _histogram("append_seconds", [], {(): counts.append_took})
    yield _counter("events_folded", [], [([], counts.folded)])
    yield _counter("commits", ["outcome"], _each(counts.commits))
    yield _counter("sweeps", [], [([], counts.sweeps)])
    yield _counter("fallen_due", ["what"], _each(counts.fallen_due))
    yield _counter("missed_events", [], [([], counts.missed)])
    yield _counter("events_archived", [], [([], counts.archived)])
    yield _counter("events_trimmed", [], [([], counts.trimmed)])
    yield _counter("engine_errors", ["error"], _each(counts.engine_errors))
    yield _counter("jobs", ["what"], _each(counts.jobs))
    yield _counter("tool_calls", ["tool"], _each(counts.tool_calls))
    yield _counter("tool_errors", ["tool"], _each(counts.tool_errors))
    yield _histogram("tool_seconds", [], {(): counts.tool_took})
    yield _counter("contexts", [], [([], counts.contexts)])
    yield _counter("context_tokens", [], [([], counts.context_tokens)])
    requests = [(list(key), count) for key, count in dict(counts.requests).items()]
    yield _counter("http_requests", ["method", "route", "status"], requests)
    took = dict(counts.request_took)
    yield _histogram("http_request_seconds", ["method", "route"], took)
    yield _gauge("http_open_streams", [], [([], counts.open_streams)])
    names, handled = ["subscription"], dict(counts.subscriptions)
    rows = [([name], each) for name, each in handled.items()]
    yield _counter("deliveries", names, [(at, each.delivered) for at, each in rows])
    yield _counter("acks", names, [(at, each.acked) for at, each in rows])
    yield _counter("delivery_failures", names, [(at, each.failed) for at, each in rows])
    yield _counter("events_set_aside", names, [(at, each.dead) for at, each in rows])
    handling = {(name,): each.took for name, each in handled.items()}
    yield _histogram("handler_seconds", names, handling)


# -- the state of the bus --------------------------------------------------------------------------------------------


def _state_of(status: Status) -> Iterator[Metric]:
    yield _gauge("engine_info", ["engine", "version"], [([status.engine, status.version], 1)])
    yield _gauge("engine_risks", [], [([], len(status.risks))])
    if status.memory_bytes:
        yield _gauge("engine_memory_bytes", [], [([], status.memory_bytes)])
    if status.memory_limit_bytes:
        yield _gauge("engine_memory_limit_bytes", [], [([], status.memory_limit_bytes)])
    shards = [([str(each.shard)], each) for each in status.shards]
    yield _gauge("log_events", ["shard"], [(at, each.events) for at, each in shards])
    names = ["projection", "shard"]
    folds = [([scratch_page.NAME, *at], each) for at, each in shards]
    yield _gauge("projection_lag_events", names, [(at, each.lag) for at, each in folds])
    yield _gauge("projection_lag_seconds", names, [(at, x.lag_seconds) for at, x in folds])
    yield _gauge("rejected_events", names, [(at, x.rejected) for at, x in folds])
    foreign = [(at, each.foreign) for at, each in shards]
    yield _gauge("foreign_entries", ["shard"], foreign)
    yield _gauge("missing_events", ["shard"], [(at, each.missing) for at, each in shards])
    names, rows = ["subscription"], [([each.name], each) for each in status.subscriptions]
    yield _gauge("subscription_lag_events", names, [(at, each.lag) for at, each in rows])
    yield _gauge("subscription_lag_seconds", names, [(at, x.lag_seconds) for at, x in rows])
    yield _gauge("subscription_held", names, [(at, bool(x.holder)) for at, x in rows])
    yield _gauge("dead_letters", names, [(at, each.dead_letters) for at, each in rows])
    yield _gauge("pages", [], [([], status.page_count)])
    yield _gauge("open_observations", [], [([], status.open)])
    pages = [([each.page], each) for each in status.pages]
    yield _gauge("page_open_observations", ["page"], [(at, each.open) for at, each in pages])
    claimed = [(at, each.claimed) for at, each in pages if each.claimed is not None]
    yield _gauge("page_live_claims", ["page"], claimed)


# -- their form ------------------------------------------------------------------------------------------------------


def _each(by_name: Mapping[str, int]) -> Values:
    return [([name], count) for name, count in dict(by_name).items()]


def _counter(name: str, labels: list[str], values: Values) -> Metric:
    metric = CounterMetricFamily(f"scratchbus_{name}", HELP[name], labels=labels)
    for at, value in values:
        metric.add_metric(at, value)
    return metric


def _gauge(name: str, labels: list[str], values: Values) -> Metric:
    metric = GaugeMetricFamily(f"scratchbus_{name}", HELP[name], labels=labels)
    for at, value in values:
        metric.add_metric(at, value)
    return metric


def _histogram(name: str, labels: list[str], values: Mapping[Any, Durations]) -> Metric:
    """Return a histogram; the values are by the tuple of their labels."""
    metric = HistogramMetricFamily(f"scratchbus_{name}", HELP[name], labels=labels)
    bounds = [*map(str, BOUNDS), "+Inf"]
    for at, took in values.items():
        buckets = list(zip(bounds, accumulate(took.counts), strict=True))
        metric.add_metric(list(at), buckets, took.sum)
    return metric
