"""Handlers of events and jobs, declared with decorators."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from scratchbus import AnyEvent, AsyncBus, AsyncJob, Bus, Job, Page
from scratchbus.errors import InvalidField, InvalidInput, PositionLost
from tests.waiting import eventually


@contextmanager
def running(run: Callable[[threading.Event], object]) -> Iterator[list[BaseException]]:
    """Run a function in a thread until the end of the `with`; yield its errors."""
    stop, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            run(stop)
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def test_handlers_get_events_and_jobs_of_their_types(bus: Bus, page: Page):
    seen: list[str] = []

    @bus.on("risk_alert")
    def notify(event: AnyEvent) -> None:
        seen.append(f"{event.kind} {event.subject}")

    @bus.on_job("action_suggestion")
    def act(job: Job) -> None:
        seen.append(job.resolve().status)

    page.add("observation", "not theirs")
    alert = page.add("risk_alert", "fraud")
    page.update(alert.id, content="fraud, for sure")
    page.add("action_suggestion", "block it")
    with running(bus.run_handlers) as failures:
        eventually(lambda: len(seen) == 2)
    assert (sorted(seen), failures) == ([f"added {alert.id}", "resolved"], [])


def test_handler_retries_failures_and_resumes_after_a_restart(bus: Bus, page: Page):
    seen: list[str] = []

    @bus.on("risk_alert", name="notifier", retry_delay="10ms")
    def notify(event: AnyEvent) -> None:
        seen.append(event.subject)
        if len(seen) == 1:
            raise ValueError("not yet")

    first = page.add("risk_alert", "one").id
    with running(bus.run_handlers):
        eventually(lambda: len(seen) == 2)
    second = page.add("risk_alert", "two").id
    with running(bus.run_handlers):
        eventually(lambda: len(seen) == 3)
    assert seen == [first, first, second]
    (status,) = bus.subscriptions()
    assert status.name == "notifier"


@pytest.mark.parametrize("kind", ["subscription", "work"])
def test_concurrency_handles_several_at_once(bus: Bus, page: Page, kind: str):
    together, handled = threading.Barrier(3), list[int]()

    def meet() -> None:
        together.wait(30)  # passes only while three are being handled
        handled.append(1)

    def one_job(job: Job) -> None:
        meet()
        job.resolve()

    for number in range(6):
        page.add("risk_alert", f"{number}")
    if kind == "work":
        bus.on_job("risk_alert", name="w", concurrency=3)(one_job)
    else:
        bus.on("risk_alert", name="s", concurrency=3)(lambda event: meet())
    with running(bus.run_handlers) as failures:
        eventually(lambda: len(handled) == 6)
    assert failures == []
    assert not together.broken


def test_failing_handler_ends_run_handlers(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch):
    page.add("risk_alert", "one")
    seen: list[str] = []
    bus.on("risk_alert", name="well")(lambda event: seen.append(event.subject))
    bus.on_job("reminder", name="idle", concurrency=2)(lambda job: None)

    @bus.on("risk_alert", name="lost", after="9999-12-31")
    def lost(event: AnyEvent) -> None: ...

    def fail(*_: object, **__: object) -> None:
        raise PositionLost("it was trimmed")

    own = bus.subscribe

    def subscribe(name: str, **how: object) -> object:
        made = own(name, **how)  # type: ignore[arg-type]  # passed on
        if name == "lost":
            monkeypatch.setattr(made._consumer, "advance", fail)
        return made

    monkeypatch.setattr(bus, "subscribe", subscribe)
    handlers = bus._handlers
    handlers._declared.pop("lost")
    bus.on("risk_alert", name="lost")(lost)
    with running(bus.run_handlers) as failures:
        eventually(lambda: bool(failures))
    assert isinstance(failures[0], PositionLost)


def test_bad_declarations_are_refused(bus: Bus):
    with pytest.raises(InvalidInput, match=r"no handler is declared; decorate functions with @bus\.on"):
        bus.run_handlers()
    bus.on("risk_alert", name="mine")(print)
    with pytest.raises(InvalidInput, match="two handlers are called 'mine'"):
        bus.on("reminder", name="mine")(print)
    with pytest.raises(InvalidInput, match="handler 'later' is a coroutine function, which this bus cannot run"):

        @bus.on("reminder")
        async def later(event: AnyEvent) -> None: ...

    for source in (bus.subscribe("s"), bus.work("w")):
        with source, pytest.raises(InvalidField, match="concurrency: 0 is not a whole number from 1 to 1000"):
            source.run(print, concurrency=0)


async def later(event: AnyEvent) -> None: ...


def in_steps(event: AnyEvent) -> Iterator[None]:
    yield


async def in_async_steps(event: AnyEvent) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("handler", [lambda event: later(event), in_steps, in_async_steps])
def test_event_of_a_handler_that_has_not_run_is_not_acked(bus: Bus, page: Page, handler: Callable[[AnyEvent], object]):
    page.add("observation", "one")
    with bus.subscribe("s", max_attempts=1) as deliveries, running(partial(deliveries.run, handler)):
        eventually(lambda: bool(bus.dead_letters("s")))
    (letter,) = bus.dead_letters("s")
    assert letter.reason.startswith("InvalidInput: the handler returned ")


def test_what_is_no_handler_is_refused_before_an_event_is_lost(bus: Bus):
    async def later(given: object) -> None: ...

    class Later:
        async def __call__(self, given: object) -> None: ...

    wrong: Any
    for wrong, name in ((later, "later"), (Later(), "Later")):
        for source in (bus.subscribe("s"), bus.work("w")):
            with source, pytest.raises(InvalidInput, match=f"handler '{name}' is a coroutine function, which this bus"):
                source.run(wrong)
    for wrong in (5, None):
        for source in (bus.subscribe("s"), bus.work("w")):
            with source, pytest.raises(InvalidInput, match=f"{wrong} is not a handler; give a function"):
                source.run(wrong)
        with pytest.raises(InvalidInput, match=f"{wrong} is not a handler; give a function"):
            bus.on("reminder", name="x")(wrong)
    with pytest.raises(InvalidInput, match=r"functools\.partial.* has no name; declare it with name="):
        bus.on_job("reminder")(partial(print, "due"))


@pytest.mark.parametrize("stop", [lambda: True, True, threading.Event, "now"])
def test_a_stop_that_cannot_be_set_is_refused_by_all_that_wait_for_it(bus: Bus, stop: Any):
    bus.on("reminder")(print)
    waiting: dict[str, Callable[[], object]] = {
        "events": lambda: bus.events(stop=stop),
        "changes": lambda: bus.view().__enter__().changes(stop),
        "subscribe": lambda: bus.subscribe("s", stop=stop),
        "work": lambda: bus.work("w", stop=stop),
        "run": lambda: bus.subscribe("s").run(print, stop),
        "run of work": lambda: bus.work("w").run(print, stop),
        "handlers": lambda: bus.run_handlers(stop),
    }
    for wait in waiting.values():
        with pytest.raises(
            InvalidField, match=r"^stop: .* cannot be set; give a threading\.Event or an asyncio\.Event$"
        ):
            wait()


@pytest.mark.engines("embedded")
async def test_async_concurrency_handles_several_at_once(bus: Bus, page: Page):
    for number in range(4):
        page.add("risk_alert", f"{number}")
    async with AsyncBus.connect(
        bus.settings.url, source="async", bus=bus.settings.bus, home=bus.settings.home
    ) as other:
        stop, met = threading.Event(), asyncio.Barrier(4)
        handled: list[str] = []

        @other.on("risk_alert", concurrency=2)
        async def notify(event: AnyEvent) -> None:
            await asyncio.wait_for(met.wait(), 30)
            handled.append(event.subject)
            if len(handled) == 8:
                stop.set()

        @other.on_job("risk_alert", concurrency=2)
        async def act(job: AsyncJob) -> None:
            await asyncio.wait_for(met.wait(), 30)
            handled.append((await job.resolve()).id)
            if len(handled) == 8:
                stop.set()

        async with asyncio.timeout(60):
            await other.run_handlers(stop)
        assert len(handled) == 8


@pytest.mark.parametrize("declare", ["on", "on_job"])
@pytest.mark.parametrize(
    "types", [("risk_alert", "reminder"), ["risk_alert"], lambda event: None], ids=["tuple", "list", "function"]
)
def test_types_in_a_tuple_are_refused_at_the_call(bus: Bus, declare: str, types: Any):
    with pytest.raises(
        InvalidField, match=r'is not the name of a type; pass each .*@bus.on\("risk_alert", "reminder"\)'
    ):
        getattr(bus, declare)(types)
