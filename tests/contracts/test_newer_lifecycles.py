"""A change that the types known to a process refuse follows newer ones, if there are any."""

import asyncio
import time
from contextlib import suppress

import pytest

from scratchbus import AsyncBus
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import EngineUnreachable, InvalidField, InvalidTransition, RegistryError, TooLarge
from scratchbus.readmodel import published_statuses, scope
from tests.cases import case
from tests.engines import ONE
from tests.inspection import archive, log_length, project

OLD = """types:
  build: {lifecycle: builds, max_content: 10}
lifecycles:
  builds:
    statuses: {running: open, done: closed}
    initial: [running]
    transitions: {running: [done, archived], done: [archived]}
"""
NEW = """types:
  build: {lifecycle: builds, max_content: 100}
lifecycles:
  builds:
    statuses: {running: open, paused: open, pending_review: open, done: closed, void: closed}
    initial: [running]
    transitions:
      running: [paused, pending_review, done, void, archived]
      paused: [running]
      pending_review: [running]
      done: [running, archived]
      void: [archived]
"""
CHANGES = {
    "an unknown status": lambda page, id, done: page.update(id, status="paused").status == "paused",
    "a verb without a status": lambda page, id, done: page.review(id).status == "pending_review",
    "a transition": lambda page, id, done: page.update(done, status="running").status == "running",
    "reopening": lambda page, id, done: page.reopen(done).status == "running",
    "a retry with an id": lambda page, id, done: page.reopen(done, event_id="r-1") == page.reopen(done, event_id="r-1"),
    "a limit": lambda page, id, done: page.update(id, content="x" * 20).content == "x" * 20,
}
REFUSED = {
    "an unknown status": (InvalidField, lambda page, id, done: page.update(id, status="paused")),
    "a verb without a status": (InvalidField, lambda page, id, done: page.review(id)),
    "a transition": (InvalidTransition, lambda page, id, done: page.update(done, status="running")),
    "a limit": (TooLarge, lambda page, id, done: page.update(id, content="x" * 20)),
}


def push(bus, text):
    assert bus.push_types(parse_registry(text, "types.yaml"))


@pytest.fixture
def refreshes(monkeypatch):
    """A list to which every read of the published registry is appended."""
    found, refresh = [], scope.refresh_registry

    def counted(core):
        found.append(core)
        return refresh(core)

    monkeypatch.setattr(scope, "refresh_registry", counted)
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_refused_change_follows_a_newer_lifecycle(connect, change):
    publisher = connect("publisher")
    push(publisher, OLD)
    other = connect("other")
    done = publisher.page().resolve(publisher.page().add("build", "x").id)
    push(publisher, NEW)
    build = publisher.page().add("build", "y")
    assert change(other.page(), build.id, done.id)
    assert other.types_version == 2


async def test_a_refused_change_of_a_task_follows_a_newer_lifecycle(engine, bus_name):
    where = {"bus": bus_name, "shards": engine.shards}
    async with (
        AsyncBus.connect(engine.url, source="publisher", **where) as publisher,
        AsyncBus.connect(engine.url, source="other", **where) as other,
    ):
        await publisher.push_types(parse_registry(OLD, "types.yaml"))
        await other.refresh_types()
        await publisher.push_types(parse_registry(NEW, "types.yaml"))
        build = await publisher.page().add("build", "y")
        assert (await other.page().update(build.id, status="paused")).status == "paused"


def test_a_refused_change_asks_once_and_keeps_its_error(bus, page, refreshes):
    push(bus, OLD)
    build = page.add("build", "x")
    done = page.resolve(page.add("build", "y").id)
    length = log_length(bus)
    for name, (error, change) in REFUSED.items():
        with case(name):
            refreshes.clear()
            with pytest.raises(error):
                change(page, build.id, done.id)
            assert len(refreshes) == 1
    assert log_length(bus) == length


def test_an_allowed_change_does_not_ask_for_newer_types(bus, page, refreshes, monkeypatch):
    push(bus, OLD)
    builds = [page.add("build", "x") for _ in range(3)]
    monkeypatch.setattr(scope, "REGISTRY_AGE", 0)
    page.update(builds[0].id, content="y")
    page.resolve(builds[0].id)
    page.clear_resolved([builds[0].id])
    page.refute(builds[1].id, reason="wrong")
    page.archive(builds[2].id)
    with pytest.raises(InvalidTransition, match="from archived it can become: none"):
        page.archive(builds[2].id)
    assert refreshes == []


def test_a_refused_change_keeps_its_error_when_newer_types_cannot_be_read(bus, page, monkeypatch):
    push(bus, OLD)
    build, asked = page.add("build", "x"), []

    def unreachable(core):
        asked.append(core)
        yield from ()
        raise EngineUnreachable("shard 0 is down")

    monkeypatch.setattr(scope, "refresh_registry", unreachable)
    monkeypatch.setattr(bus.core.log, "is_spread", True)  # as on a cluster, where other shards may still be served
    for _ in range(3):
        with pytest.raises(InvalidField, match="'paused' is not a status of lifecycle 'builds'"):
            page.update(build.id, status="paused")
    assert len(asked) == 1, "it is not asked again at once"
    bus.core.registry_unreachable = time.monotonic() - scope.REGISTRY_AGE
    with pytest.raises(InvalidField):
        page.update(build.id, status="paused")
    assert len(asked) == 2


def test_earlier_statuses_are_not_asked_for_again_at_once_when_they_cannot_be_read(bus, page, monkeypatch):
    asked = []

    def unreachable(core):
        asked.append(core)
        yield from ()
        raise EngineUnreachable("shard 0 is down")

    monkeypatch.setattr(published_statuses, "_read", unreachable)
    monkeypatch.setattr(bus.core.log, "is_spread", True)
    for _ in range(3):
        with pytest.raises(InvalidField, match="'nope' is not a status of any type"):
            page.list(status="nope")
    assert len(asked) == 1


def test_a_refused_change_keeps_its_error_when_newer_types_are_of_a_newer_version(bus, page, connect, monkeypatch):
    push(bus, OLD)
    build = page.add("build", "x")
    push(connect("other"), OLD.replace("10", "20"))

    def unreadable(*_, **__):
        raise RegistryError("types (version 2)", 3, "builds", "unknown key")

    monkeypatch.setattr("scratchbus.readmodel.scope.registry_yaml.parse_registry", unreadable)
    with pytest.raises(InvalidField, match="'paused' is not a status of lifecycle 'builds'"):
        page.update(build.id, status="paused")
    bus.core.registry_checked = float("-inf")
    for is_spread in (False, False, True, True):
        monkeypatch.setattr(bus.core.log, "is_spread", is_spread)
        with pytest.raises(RegistryError):
            page.add("build", "y")
        with bus.view("main") as view:
            assert view.list() == [build]
        with bus.subscribe("router", types=["build", "typo"]) as deliveries:
            next(deliveries)


async def test_no_task_adds_by_older_types_while_newer_ones_are_read(engine, bus_name):
    async with (
        AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="one") as one,
        AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="two") as two,
    ):
        page, too_long = one.page("main"), "x" * 20
        await two.push_types(parse_registry(NEW, "types.yaml"))
        await page.add("build", "x")
        await page.archive((await page.list())[0].id)
        await two.push_types(parse_registry(OLD, "types.yaml"))
        one.core.registry_checked = float("-inf")
        cancelled = asyncio.create_task(page.add("build", too_long))
        await asyncio.sleep(0)
        cancelled.cancel()
        with suppress(asyncio.CancelledError, TooLarge):
            await cancelled
        answers = await asyncio.gather(*[page.add("build", too_long) for _ in range(5)], return_exceptions=True)
        assert [type(each) for each in answers] == [TooLarge] * 5


@pytest.mark.engines(*ONE)
@pytest.mark.damages_the_log
def test_an_unknown_status_is_refused_though_the_history_of_types_is_damaged(connect, tmp_path):
    bus = connect(archive_url=tmp_path, retain="1ms", retain_events=1)
    for text in (OLD, NEW):
        push(bus, text)
    for number in range(5):
        bus.page().add("build", str(number))
    project(bus)
    assert any(each.trimmed for each in archive(bus))
    for segment in tmp_path.rglob("0000/*.jsonl.zst"):
        segment.write_bytes(b"damaged")
    with pytest.raises(InvalidField, match="'pausd' is not a status of any type"):
        connect("other", archive_url=tmp_path).page().list(status="pausd")
