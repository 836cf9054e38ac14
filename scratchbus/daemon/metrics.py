"""The metrics of a process, for Prometheus, with all their names.

The process counts its work as it happens. The state of the bus is read for each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

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

from scratchbus.projections import scratch_page
from scratchbus.readmodel.status import Status
from scratchbus.telemetry.counters import BOUNDS, Durations, counts

HELP: Final = {
    "up": "Whether the engine answered this scrape within a second: 1 or 0.",
    "events_appended": "Events appended to the log by this process, by kind of event.",
    "displaced": "Observations displaced from full pages by additions of this process.",
    "appends_refused": "Appends of this process that the engine refused, by class of error.",
    "append_seconds": "Duration of appends of this process, retries included, in seconds.",
    "events_folded": "Events folded into stored documents and committed by this process.",
    "commits": "Commits of folded events that this process tried, by outcome: done, lost or rewound.",
    "sweeps": "Sweeps by the expirer of this process for observations that have fallen due.",
    "fallen_due": "Events appended by the expirer of this process because time had passed, by cause.",
    "missed_events": "Events that left the log before the expirer of this process had matched them with reminders.",
    "events_archived": "Events written to the archive by this process.",
    "events_trimmed": "Archived events removed from the log by this process.",
    "engine_errors": "Operations of this process that ended with an engine error, by class of error.",
    "jobs": "Observations handled by workers of this process, by what they did: claimed, resolved, failed and so on.",
    "tool_calls": "Calls of MCP tools answered by this process, by tool.",
    "tool_errors": "Calls of MCP tools that ended with an error in this process, by tool.",
    "tool_seconds": "Duration of calls of MCP tools in this process, in seconds.",
    "contexts": "Contexts assembled for a model by this process.",
    "context_tokens": "Tokens in the contexts assembled for a model by this process, as estimated.",
    "http_requests": "HTTP requests answered by this process, by method, route and status.",
    "http_request_seconds": "Time until an HTTP answer or a stream of events began in this process, in seconds.",
    "http_open_streams": "Streams of events that are open to HTTP clients of this process.",
    "deliveries": "Events delivered to consumers in this process, by subscription.",
    "acks": "Deliveries acknowledged by consumers in this process, by subscription.",
    "delivery_failures": "Deliveries that failed in this process, by subscription.",
    "events_set_aside": "Events made dead letters by this process after too many failed deliveries, by subscription.",
    "handler_seconds": "Time from a delivery to its acknowledgement or failure in this process, in seconds.",
    "engine_info": "Name and version of the engine, as labels; the value is always 1.",
    "engine_risks": "Ways in which the engine may lose acknowledged writes, as its configuration stands.",
    "engine_memory_bytes": "Memory used by the engine, in bytes.",
    "engine_memory_limit_bytes": "Memory limit of the engine (maxmemory), in bytes.",
    "log_events": "Events in the log of the engine, by shard.",
    "projection_lag_events": "Events in the log that a projection has not folded yet, by projection and shard.",
    "projection_lag_seconds": "Age of the oldest event that a projection has not folded yet, in seconds.",
    "rejected_events": "Events that a projection could not fold and set aside.",
    "foreign_entries": "Entries added to the log by hand, which block all writes until they are removed.",
    "missing_events": "Events found missing in the middle of the log, by shard.",
    "subscription_lag_events": "Events in the log after the cursor of a subscription.",
    "subscription_lag_seconds": "Age of the oldest event after the cursor of a subscription, in seconds.",
    "subscription_held": "Whether a consumer has the lease of a subscription: 1 or 0.",
    "dead_letters": "Dead letters of a subscription that wait to be retried or dropped.",
    "pages": "Pages that the bus has.",
    "open_observations": "Open observations on all pages of the bus.",
    "page_open_observations": "Open observations on each of the 20 busiest pages.",
    "page_live_claims": "Observations claimed by a worker on each of the busiest pages.",
}
"""The help text of each metric, clear without the others, by its name without `scratchbus_` and `_total`."""

Values = Iterable[tuple[list[str], float]]
"""The labels of each sample, and its value."""


def render_metrics(status: Status | None) -> tuple[bytes, str]:
    """Return all metrics in the format of Prometheus, and its media type; a status of None is left out."""
    return generate_latest(registry_of(lambda: status)), CONTENT_TYPE_LATEST


def registry_of(read_status: Callable[[], Status | None]) -> CollectorRegistry:
    """Return a registry of all metrics; `read_status` returns the status of the bus at each scrape, if there is one."""
    registry = CollectorRegistry()
    for collector_class in (ProcessCollector, PlatformCollector, GCCollector):
        collector_class(registry=registry)
    registry.register(_Scratchbus(read_status))
    return registry


class _Scratchbus(Collector):
    """The metrics of the work of this process, and then those of the status of the bus."""

    def __init__(self, read_status: Callable[[], Status | None]) -> None:
        self._read_status = read_status

    def collect(self) -> Iterator[Metric]:
        yield from _work_done()
        status = self._read_status()
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
    yield _histogram("http_request_seconds", ["method", "route"], dict(counts.request_took))
    yield _gauge("http_open_streams", [], [([], counts.open_streams)])
    names, handled = ["subscription"], dict(counts.subscriptions)
    rows = [([name], each) for name, each in handled.items()]
    yield _counter("deliveries", names, [(at, each.delivered) for at, each in rows])
    yield _counter("acks", names, [(at, each.acked) for at, each in rows])
    yield _counter("delivery_failures", names, [(at, each.failed) for at, each in rows])
    yield _counter("events_set_aside", names, [(at, each.dead) for at, each in rows])
    yield _histogram("handler_seconds", names, {(name,): each.took for name, each in handled.items()})


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
    yield _gauge("foreign_entries", ["shard"], [(at, each.foreign) for at, each in shards])
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
    return _with_values(CounterMetricFamily(f"scratchbus_{name}", HELP[name], labels=labels), values)


def _gauge(name: str, labels: list[str], values: Values) -> Metric:
    return _with_values(GaugeMetricFamily(f"scratchbus_{name}", HELP[name], labels=labels), values)


def _with_values(metric: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
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
