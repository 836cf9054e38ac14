"""The metrics of a process, for Prometheus, with all their names.

The work of the process is counted as it happens. The state of the bus is read for each scrape.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from scratchbus.errors import ScratchbusError, SettingsError
from scratchbus.projections import scratch_page
from scratchbus.status import Status
from scratchbus.telemetry.counters import BOUNDS, Durations, counts

if TYPE_CHECKING:
    from scratchbus.bus import Bus

PATIENCE = 1.0
"""Seconds that a scrape waits for the engine; after that it is answered without the state of the bus."""

Values = Iterable[tuple[list[str], float]]
"""The labels of each sample, and its value."""


class Exporter:
    """Serves the metrics of this process over HTTP until the process ends.

    Port 0 picks a free one. Raises SettingsError if the port is not available.
    """

    def __init__(self, host: str, port: int) -> None:
        self._bus: Bus | None = None
        self._look: Future[Status] | None = None
        self._lock = threading.Lock()
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        registry.register(self)
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as problem:
            raise SettingsError(
                f"metrics on {host}:{port}: {problem.strerror or problem};"
                " choose another port, 0 for a free one, or another host"
            ) from None
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"

    def watching(self, connect: Callable[[], Bus]) -> Callable[[], Bus]:
        """Return a function that connects, and reports the state of the bus that it opened last."""

        def connect_and_watch() -> Bus:
            self._bus = connect()
            return self._bus

        return connect_and_watch

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, within PATIENCE."""
        yield from _work_done()
        status = self._status()
        yield _gauge("up", "Whether the engine answered in time.", [], [([], float(status is not None))])
        if status is not None:
            yield from _state_of(status)

    def _status(self) -> Status | None:
        """Return the status of the bus, or None if it is not there in time. Simultaneous scrapes share one read."""
        bus = self._bus
        if bus is None:
            return None
        with self._lock:
            if self._look is None or self._look.done():
                self._look = Future()
                threading.Thread(target=_look_at, args=(bus, self._look), name="metrics", daemon=True).start()
            look = self._look
        try:
            return look.result(PATIENCE)
        except (TimeoutError, ScratchbusError):
            return None


def _look_at(bus: Bus, look: Future[Status]) -> None:
    try:
        look.set_result(bus.status())
    except Exception as problem:  # raised in the scrape
        look.set_exception(problem)


# -- the work of this process ----------------------------------------------------------------------------------------


def _work_done() -> Iterator[Metric]:
    yield _counter("events_appended", "Events that this process appended.", ["kind"], _each(counts.appended))
    yield _counter("appends_refused", "Appends that the engine refused.", ["reason"], _each(counts.refused))
    yield _histogram("append_seconds", "How long appends took.", [], {"": counts.append_took})
    yield _counter("events_folded", "Events that this process folded and committed.", [], [([], counts.folded)])
    yield _counter("commits", "Commits of folded state.", ["outcome"], _each(counts.commits))
    yield _counter("sweeps", "Looks at what has fallen due.", [], [([], counts.sweeps)])
    yield _counter("fallen_due", "Events appended because time went by.", ["what"], _each(counts.fallen_due))
    yield _counter("missed_events", "Events that were gone before the expirer saw them.", [], [([], counts.missed)])
    yield _counter("events_archived", "Events that this process archived.", [], [([], counts.archived)])
    yield _counter("events_trimmed", "Archived events that it took out of logs.", [], [([], counts.trimmed)])
    yield _counter("engine_errors", "Operations that ended with an error.", ["error"], _each(counts.engine_errors))
    yield _counter("jobs", "Observations that workers claimed, and what became of them.", ["what"], _each(counts.jobs))
    yield _counter("tool_calls", "Calls of MCP tools.", ["tool"], _each(counts.tool_calls))
    yield _counter("tool_errors", "Calls of MCP tools that ended with an error.", ["tool"], _each(counts.tool_errors))
    yield _histogram("tool_seconds", "How long MCP tools took.", [], {"": counts.tool_took})
    yield _counter("contexts", "Contexts assembled for a model.", [], [([], counts.contexts)])
    yield _counter("context_tokens", "The tokens in them.", [], [([], counts.context_tokens)])
    names, handled = ["subscription"], dict(counts.subscriptions)
    rows = [([name], each) for name, each in handled.items()]
    yield _counter("deliveries", "Events handed out.", names, [(at, each.delivered) for at, each in rows])
    yield _counter("acks", "Deliveries acknowledged.", names, [(at, each.acked) for at, each in rows])
    yield _counter("delivery_failures", "Deliveries that failed.", names, [(at, each.failed) for at, each in rows])
    yield _counter("events_set_aside", "Events made dead letters.", names, [(at, each.dead) for at, each in rows])
    took = {name: each.took for name, each in handled.items()}
    yield _histogram("handler_seconds", "From a delivery to its ack or failure.", names, took)


# -- the state of the bus --------------------------------------------------------------------------------------------


def _state_of(status: Status) -> Iterator[Metric]:
    yield _gauge("engine_info", "The engine.", ["engine", "version"], [([status.engine, status.version], 1)])
    yield _gauge("engine_risks", "Ways in which it may lose events.", [], [([], len(status.risks))])
    if status.memory_bytes:
        yield _gauge("engine_memory_bytes", "The memory that the engine uses.", [], [([], status.memory_bytes)])
    if status.memory_limit_bytes:
        yield _gauge("engine_memory_limit_bytes", "What it may use.", [], [([], status.memory_limit_bytes)])
    shards = [([str(each.shard)], each) for each in status.shards]
    yield _gauge("log_events", "Events in the log.", ["shard"], [(at, each.events) for at, each in shards])
    names = ["projection", "shard"]
    folds = [([scratch_page.NAME, *at], each) for at, each in shards]
    yield _gauge("projection_lag_events", "Events not folded yet.", names, [(at, each.lag) for at, each in folds])
    yield _gauge("projection_lag_seconds", "The age of the oldest.", names, [(at, x.lag_seconds) for at, x in folds])
    yield _gauge("rejected_events", "Events that could not be folded.", names, [(at, x.rejected) for at, x in folds])
    foreign = [(at, each.foreign) for at, each in shards]
    yield _gauge("foreign_entries", "Entries added by hand, which block writes.", ["shard"], foreign)
    yield _gauge("missing_events", "Events that a log lacks.", ["shard"], [(at, each.missing) for at, each in shards])
    names, rows = ["subscription"], [([each.name], each) for each in status.subscriptions]
    yield _gauge("subscription_lag_events", "Events behind its cursor.", names, [(at, each.lag) for at, each in rows])
    yield _gauge("subscription_lag_seconds", "The age of the oldest.", names, [(at, x.lag_seconds) for at, x in rows])
    yield _gauge("subscription_held", "Whether a consumer has it.", names, [(at, bool(x.holder)) for at, x in rows])
    yield _gauge("dead_letters", "Dead letters that wait.", names, [(at, each.dead_letters) for at, each in rows])
    yield _gauge("pages", "Pages.", [], [([], status.page_count)])
    yield _gauge("open_observations", "Open observations on all pages.", [], [([], status.open)])
    pages = [([each.page], each) for each in status.pages]
    yield _gauge("page_open_observations", "Those of the busiest.", ["page"], [(at, each.open) for at, each in pages])
    claimed = [(at, each.claimed) for at, each in pages if each.claimed is not None]
    yield _gauge("page_live_claims", "Live claims on the busiest.", ["page"], claimed)


# -- their form ------------------------------------------------------------------------------------------------------


def _each(by_name: Mapping[str, int]) -> Values:
    return [([name], count) for name, count in dict(by_name).items()]


def _counter(name: str, text: str, labels: list[str], values: Values) -> Metric:
    metric = CounterMetricFamily(f"scratchbus_{name}", text, labels=labels)
    for at, value in values:
        metric.add_metric(at, value)
    return metric


def _gauge(name: str, text: str, labels: list[str], values: Values) -> Metric:
    metric = GaugeMetricFamily(f"scratchbus_{name}", text, labels=labels)
    for at, value in values:
        metric.add_metric(at, value)
    return metric


def _histogram(name: str, text: str, labels: list[str], values: Mapping[str, Durations]) -> Metric:
    metric = HistogramMetricFamily(f"scratchbus_{name}", text, labels=labels)
    bounds = [*map(str, BOUNDS), "+Inf"]
    for at, took in values.items():
        buckets = list(zip(bounds, accumulate(took.counts), strict=True))
        metric.add_metric([at] if labels else [], buckets, took.sum)
    return metric
