"""Traces: publishing an event and handling it elsewhere are one trace, by the trace context of the event."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from scratchbus import AsyncBus, because
from scratchbus.errors import InvalidField, InvalidInput, VersionConflict
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace
from scratchbus.telemetry import tracing
from tests.edges.http.conftest import serving_here
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]

pytest.importorskip("opentelemetry.sdk", reason="NOT TESTED: the extra otel and its SDK are not installed")

from opentelemetry.sdk.trace import TracerProvider  # noqa: E402 - there is an SDK
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: E402

from scratchbus.adapters.opentelemetry import ScratchbusInstrumentor  # noqa: E402

# A publisher in a separate process, which prints the spans in its in-memory exporter.
PUBLISHER = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from scratchbus import Bus
from scratchbus.adapters.opentelemetry import ScratchbusInstrumentor
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
ScratchbusInstrumentor().instrument(tracer_provider=provider)
with Bus.connect(sys.argv[1], bus=sys.argv[2], source="detector") as bus:
    with provider.get_tracer("test").start_as_current_span("look"):
        bus.page("main").add("risk_alert", "Fraud ring", tags=["x"])
print(json.dumps([{"name": s.name, "trace": s.context.trace_id, "span": s.context.span_id,
                   "parent": s.parent and s.parent.span_id} for s in exporter.get_finished_spans()]))
"""


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ScratchbusInstrumentor().instrument(tracer_provider=provider)
    yield exporter
    ScratchbusInstrumentor().uninstrument()
    assert tracing.active is None


def named(spans: InMemorySpanExporter, name: str) -> list[Any]:
    return [span for span in spans.get_finished_spans() if span.name == name]


@pytest.mark.real
@pytest.mark.engines("embedded")
def test_two_processes_make_one_trace(bus, engine_url, bus_name, spans: InMemorySpanExporter):
    done = subprocess.run(
        [sys.executable, "-c", PUBLISHER, engine_url, bus_name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    theirs = {each["name"]: each for each in json.loads(done.stdout)}
    assert theirs["publish main"]["parent"] == theirs["look"]["span"]
    page, stop = bus.page("main"), threading.Event()

    def handle(event):
        page.add("action_suggestion", "Look into it", evidence=[event.subject], tags=["work"])
        stop.set()

    with bus.subscribe("router", types=["risk_alert"], after="0-0") as deliveries:
        deliveries.run(handle, stop)
    with bus.work("executor", types=["action_suggestion"]) as jobs, next(jobs) as job:
        job.resolve(reason="done")
    page.list()
    trace_id = theirs["publish main"]["trace"]
    (receive,), (process,) = named(spans, "receive router"), named(spans, "process router")
    (act,) = named(spans, "act action_suggestion")
    chain = [receive, process]
    assert receive.parent.span_id == theirs["publish main"]["span"]
    assert process.parent.span_id == receive.context.span_id
    suggested = next(
        s for s in named(spans, "publish main") if s.parent and s.parent.span_id == process.context.span_id
    )
    assert suggested.attributes["scratchbus.event.kind"] == "added"
    assert act.parent.span_id == suggested.context.span_id
    resolved = [s for s in named(spans, "publish main") if s.parent and s.parent.span_id == act.context.span_id]
    assert [s.attributes["scratchbus.event.kind"] for s in resolved] == ["status_changed"]
    assert {span.context.trace_id for span in (*chain, suggested, act, *resolved)} == {trace_id}


@pytest.mark.engines("memory")
def test_spans_follow_the_conventions_for_messaging(bus, spans: InMemorySpanExporter):
    page = bus.page("session:abc")
    first = page.add("observation", "x")
    with bus.subscribe("s", after="0-0") as deliveries, next(deliveries):
        pass
    (publish,), (receive,), (process,) = (
        named(spans, name) for name in ("publish session:{id}", "receive s", "process s")
    )
    assert (publish.kind, receive.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER)
    assert dict(publish.attributes) == {
        "messaging.system": "scratchbus", "messaging.operation.name": "publish", "messaging.operation.type": "send",
        "messaging.destination.name": "session:abc", "messaging.destination.template": "session:{id}",
        "messaging.message.id": page.history(first.id)[0].id, "messaging.message.conversation_id": first.id,
        "scratchbus.event.kind": "added",
    }  # fmt: skip
    assert receive.attributes["messaging.destination.subscription.name"] == "s"
    assert receive.attributes["messaging.message.id"] == publish.attributes["messaging.message.id"]
    assert [each.attributes["messaging.operation.type"] for each in (receive, process)] == ["receive", "process"]
    event = page.history(first.id)[0]
    assert (
        event.traceparent
        == f"00-{publish.context.trace_id:032x}-{publish.context.span_id:016x}-{publish.context.trace_flags:02x}"
    )


@pytest.mark.engines("memory")
def test_a_pulled_event_is_in_the_trace_of_its_addition(bus, spans: InMemorySpanExporter):
    bus.declare_subscription("s")
    bus.page("main").add("observation", "x")
    batch = bus.pull("s")
    (publish,), (receive,) = named(spans, "publish main"), named(spans, "receive s")
    assert receive.parent.span_id == publish.context.span_id
    assert receive.attributes["messaging.message.id"] == batch.deliveries[0].event.id


@pytest.mark.engines("embedded")
async def test_calls_that_are_appended_together_have_a_span_each(
    engine_url: str, bus_name: str, spans: InMemorySpanExporter
):
    async with AsyncBus.connect(engine_url, bus=bus_name, source="agent") as bus:
        items = bus.items()
        await asyncio.gather(*(items.put(("n",), str(number), {"n": number}) for number in range(8)))
        traceparents = [event.traceparent async for event in bus.events()]
    ids = [f"{span.context.span_id:016x}" for span in named(spans, "publish store:{id}")]
    assert sorted(ids) == sorted(str(traceparent).split("-")[2] for traceparent in traceparents)


@pytest.mark.engines("memory")
def test_folding_links_to_the_publishing_spans(bus, spans: InMemorySpanExporter):
    page = bus.page("main")
    for number in range(3):
        page.add("observation", str(number))
    bus.rebuild()
    published = {span.context.span_id for span in named(spans, "publish main")}
    folded = named(spans, "project scratch_page")
    assert {link.context.span_id for span in folded for link in span.links} == published
    assert sum(span.attributes["messaging.batch.message_count"] for span in folded) >= 3


@pytest.mark.engines("memory")
def test_a_failure_is_an_error_in_its_span(bus, spans: InMemorySpanExporter):
    page = bus.page("main")
    found, stop = page.add("observation", "x"), threading.Event()

    def handle(event):
        stop.set()
        raise IndexError("broken")

    with pytest.raises(VersionConflict):
        page.update(found.id, content="y", expected_version=9)
    with bus.subscribe("s", after="0-0") as deliveries:
        deliveries.run(handle, stop)
    failed = {span.name: span for span in spans.get_finished_spans() if span.status.status_code is StatusCode.ERROR}
    assert set(failed) >= {"process s", "receive s"}
    assert failed["receive s"].status.description == "IndexError: broken"
    assert failed["process s"].events[0].attributes["exception.type"] == "IndexError"
    assert failed["publish main"].attributes["error.type"] == "VersionConflict"


def test_a_refused_write_with_an_event_id_is_no_publication(bus, spans: InMemorySpanExporter):
    page = bus.page("main")
    added = page.add("risk_alert", "Fraud ring")
    with pytest.raises(InvalidField):
        page.update(added.id, status="nowhere", event_id="turn-1")
    with pytest.raises(InvalidInput):
        page.add("risk_alert", "Fraud ring", status="nowhere", event_id="turn-2")
    assert len(named(spans, "publish main")) == 1


def test_threads_with_many_refused_writes_publish_on(spans: InMemorySpanExporter):
    failures: list[Exception] = []
    interval = sys.getswitchinterval()

    def refused_writes() -> None:
        try:
            for _ in range(4_000):
                tracing.active.because({})
        except Exception as problem:
            failures.append(problem)

    threads = [threading.Thread(target=refused_writes) for _ in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


def test_looking_for_an_earlier_attempt_is_no_publication(bus, spans: InMemorySpanExporter):
    bus.page("main").add("observation", "x")
    spans.clear()
    bus.context.assemble(page="main", record=True, event_id="turn-1")
    (published,) = named(spans, "publish main")
    assert published.status.status_code is StatusCode.UNSET
    assert published.attributes["scratchbus.event.kind"] == "context_rendered"


@pytest.mark.engines("embedded")
async def test_a_job_in_a_task_is_in_the_trace_of_its_addition(engine_url, bus_name, spans: InMemorySpanExporter):
    async with await AsyncBus.connect(engine_url, bus=bus_name, source="a") as async_bus:
        await _work(async_bus)
    (act,) = named(spans, "act observation")
    first, *_ = named(spans, "publish main")
    assert act.parent.span_id == first.context.span_id


async def _work(async_bus: AsyncBus) -> None:
    page = async_bus.page("main")
    added = await page.add("observation", "x")
    async with async_bus.work("w", types=["observation"]) as jobs, await anext(jobs) as job:
        assert job.id == added.id
        await job.resolve()


@pytest.mark.engines("memory")
def test_without_a_tracer_an_event_has_no_trace_context(bus):
    event = bus.page("main").history(bus.page("main").add("observation", "x").id)[0]
    assert event.traceparent is None


@pytest.mark.engines("embedded")
def test_without_a_tracer_nothing_is_imported(bus, engine_url, bus_name):
    code = """
import sys
from scratchbus import Bus
Bus.connect(sys.argv[1], bus=sys.argv[2], source="a").page("main").add("observation", "x")
assert not [name for name in sys.modules if name.startswith(("opentelemetry", "scratchbus.adapters"))]
"""
    subprocess.run([sys.executable, "-c", code, engine_url, bus_name], cwd=ROOT, check=True)


@pytest.mark.engines("memory")
def test_the_trace_named_by_the_caller_is_continued(bus, spans: InMemorySpanExporter):
    with because(traceparent=f"00-{7:032x}-{9:016x}-01"):
        bus.page("main").add("observation", "x")
    (publish,) = named(spans, "publish main")
    assert (publish.context.trace_id, publish.parent.span_id) == (7, 9)
    eventually(lambda: publish.end_time is not None, "the span has ended")


@pytest.mark.engines("memory")
def test_a_current_span_of_the_named_trace_is_the_parent(bus, spans: InMemorySpanExporter):
    traceparent = f"00-{7:032x}-{9:016x}-01"
    provider = TracerProvider()
    within = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    with (
        because(traceparent=traceparent),
        provider.get_tracer("server").start_as_current_span("POST", context=within) as post,
    ):
        bus.page("main").add("observation", "x")
    with because(traceparent=traceparent), provider.get_tracer("server").start_as_current_span("elsewhere"):
        bus.page("main").add("observation", "y")
    first, second = named(spans, "publish main")
    assert (first.context.trace_id, first.parent.span_id) == (7, post.get_span_context().span_id)
    assert (second.context.trace_id, second.parent.span_id) == (7, 9)


@pytest.mark.real
@pytest.mark.engines("embedded")
def test_the_trace_of_an_http_caller_includes_the_handling(bus, engine_url, bus_name, spans):
    caller, stop = caller_tracer(), threading.Event()
    with serving_here(engine_url, bus=bus_name) as served, served.client() as http:
        with caller.start_as_current_span("ask") as ask:
            headers: dict[str, str] = {}
            TraceContextTextMapPropagator().inject(headers)
        body = {"type": "risk_alert", "content": "Fraud ring"}
        added = http.post("/pages/main/observations", json=body, headers=headers).json()
        plain = http.post("/pages/main/observations", json=body).json()
        wrong = http.post("/pages/main/observations", json=body, headers={"traceparent": "00-wrong"}).json()
    with bus.subscribe("router", types=["risk_alert"], after="0-0") as deliveries:
        deliveries.run(lambda event: stop.set(), stop)
    with bus.work("executor", types=["risk_alert"]) as jobs:
        for job in jobs:
            with job:
                job.resolve()
            if job.id == added["id"]:
                break
    context = ask.get_span_context()
    publish = next(s for s in named(spans, "publish main") if s.parent and s.parent.span_id == context.span_id)
    assert publish.attributes["messaging.message.conversation_id"] == added["id"]
    for name in ("receive router", "process router", "act risk_alert"):
        assert context.trace_id in {span.context.trace_id for span in named(spans, name)}, name
    trace_of = {event.subject: event.traceparent.split("-")[1] for event in bus.events(kinds=["added"])}
    assert trace_of[added["id"]] == f"{context.trace_id:032x}"
    assert len({trace_of[each["id"]] for each in (added, plain, wrong)}) == 3


def caller_tracer() -> Any:
    """Return the tracer of a calling program."""
    return TracerProvider().get_tracer("caller")


async def test_the_trace_of_an_mcp_caller_includes_its_additions(spans: InMemorySpanExporter):
    with caller_tracer().start_as_current_span("ask") as ask:
        sent: dict[str, Any] = {}
        TraceContextTextMapPropagator().inject(sent)
    async with (
        Workspace.opened(Identity.of("analyst"), url="memory://mcp-trace") as workspace,
        Client(server_of(workspace)) as client,
    ):
        for meta in (sent, {"traceparent": "wrong"}, {"traceparent": 7}, None):
            called = await client.call_tool("add_observation", {"type": "observation", "content": "x"}, meta=meta)  # type: ignore[arg-type]
            assert not called.is_error
    context = ask.get_span_context()
    parents = [span.parent and span.parent.span_id for span in named(spans, "publish main")]
    assert parents == [context.span_id, None, None, None]
