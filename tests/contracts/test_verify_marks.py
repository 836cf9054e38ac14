"""Verify finds wrong marks of the archiver and of readers, and half-lost subscriptions, but none that may be right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from scratchbus import Bus, Page
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.trimmer import Trimmer
from scratchbus.domain.position import BusPosition, Position
from scratchbus.engine.steps import Step
from scratchbus.errors import ArchiveBusy, Conflict, NotFound
from scratchbus.eventlog.keys import PageKeys
from scratchbus.readmodel.verify import marks, paged_out, probe, verifier
from scratchbus.readmodel.verify.findings import Finding
from scratchbus.readmodel.verify.probe import Probe
from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.paging_out import page_out
from scratchbus.scheduling.reminders import react
from tests.engines import ONE
from tests.inspection import archive, keys_of, mostly_archived, project, send
from tests.threads import Threads
from tests.waiting import eventually

pytestmark = [pytest.mark.engines(*ONE), pytest.mark.damages_the_log]


def found(bus: Bus) -> list[Finding]:
    return bus.verify().findings


def react_to_all(bus: Bus) -> None:
    while bus.converse(react(bus.core))[1]:
        pass


# -- how far the log is archived ----------------------------------------------------------------------------------


@pytest.fixture
def archived(connect: Callable[..., Bus], tmp_path: Path) -> Bus:
    """A bus whose first 24 events on its page's shard are in its archive alone."""
    return mostly_archived(connect, tmp_path / "archive")


def recorded(bus: Bus) -> tuple[int, str]:
    seq, _, location = send(bus, "GET", keys_of(bus).archived).decode().partition("|")
    return int(seq), location


def test_a_raised_end_of_the_archive_is_found_until_an_archiver_records_it_again(archived: Bus) -> None:
    key, (seq, location) = keys_of(archived).archived, recorded(archived)
    send(archived, "SET", key, f"{seq + 1}|{location}")
    (finding,) = found(archived)
    assert (finding.kind, finding.where) == ("archived", key)
    assert f"says that events up to {seq + 1} are archived, and " in finding.what
    assert f"-{seq}" in finding.what.rpartition(" ends at ")[2]
    archive(archived)
    assert found(archived) == []
    assert recorded(archived) == (seq, location)


def test_an_end_of_the_archive_behind_the_log_is_found_without_the_archive(bus: Bus, page: Page) -> None:
    page.add("observation", "one")
    send(bus, "SET", keys_of(bus).archived, "2|/elsewhere")
    what = f"says that events up to 2 are archived, and the log ends at {bus.position().shards[keys_of(bus).shard]}"
    assert found(bus) == [Finding("archived", keys_of(bus).archived, what)]


def test_an_archive_that_is_away_is_found_although_nothing_was_trimmed(
    connect: Callable[..., Bus], tmp_path: Path
) -> None:
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=2, archive_segment=8)
    bus.declare_subscription("waits")
    for number in range(20):
        bus.page().add("observation", f"{number}")
    archive(bus)
    assert send(bus, "GET", keys_of(bus).floor) is None
    assert found(bus) == []
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    other = connect(archive_url=str(tmp_path / "archive"))  # this process knows that there were files
    assert [(each.kind, each.what.rpartition(", and ")[2]) for each in found(other)] == [
        ("archived", f"{recorded(bus)[1]} has no events")
    ]


def test_a_lost_end_of_the_archive_is_found_once_events_were_trimmed(archived: Bus) -> None:
    key, before = keys_of(archived).archived, recorded(archived)
    send(archived, "DEL", key)
    (finding,) = found(archived)
    assert (finding.kind, finding.where) == ("archived", key)
    assert finding.what.startswith("is missing; events up to ")
    assert finding.advice.startswith("run `scratchbus log-archive run`, ")
    archive(archived)
    assert found(archived) == []
    assert recorded(archived) == before


@pytest.mark.parametrize("row", ["garbage", "|/archive", "x|/archive", "7|"])
def test_an_end_of_the_archive_that_cannot_be_read_is_found(bus: Bus, page: Page, row: str) -> None:
    page.add("observation", "one")
    key = keys_of(bus).archived
    send(bus, "SET", key, row)
    assert found(bus) == [Finding("archived", key, f"cannot be read: {row.encode()!r}")]


def test_an_end_of_the_archive_from_before_a_kill_or_of_another_location_is_no_finding(archived: Bus) -> None:
    key, (seq, location) = keys_of(archived).archived, recorded(archived)
    for row in (f"1|{location}", f"{seq + 1}|{location}/elsewhere"):
        send(archived, "SET", key, row)
        assert found(archived) == []


def test_an_archiver_that_was_killed_before_it_recorded_its_first_segment_leaves_no_finding(
    connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=2, archive_segment=8)
    for number in range(20):
        bus.page().add("observation", f"{number}")
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Trimmer, "trim", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            archive(bus)
    assert send(bus, "GET", keys_of(bus).archived) is None
    assert found(bus) == []


# -- how far events were examined for paging out ------------------------------------------------------------------


@pytest.fixture
def paging(bus: Bus, page: Page) -> str:
    """The key with the cursor, which is at the third of four events."""
    page.archive(page.add("observation", "final").id)
    page.add("observation", "open")
    project(bus)
    eventually(lambda: bus.converse(page_out(bus.core, 0)).documents == 1)
    page.add("observation", "not folded")
    return PageKeys(keys_of(bus), "main").paging


def test_a_wrong_cursor_of_paging_out_is_found_and_rebuilt(bus: Bus, paging: str) -> None:
    at = Position.parse(send(bus, "HGET", paging, "cursor").decode())
    end = bus.position().shards[keys_of(bus).shard]
    for cursor, what in (
        ("garbage", "cannot be read: b'garbage'"),
        (end.stream_id, f"is {end}, and the state is folded up to "),
        (f"{at.ms - 1}-{at.seq}", "and the log has no event there"),
    ):
        send(bus, "HSET", paging, "cursor", cursor)
        (finding,) = found(bus)
        assert (finding.kind, finding.where) == ("paged", f"{paging} cursor")
        assert what in finding.what
        assert finding.advice == "run `scratchbus rebuild`"
    bus.rebuild()
    assert found(bus) == []


def test_an_earlier_or_lost_cursor_of_paging_out_is_no_finding(bus: Bus, page: Page, paging: str) -> None:
    first = next(iter(bus.events())).position
    send(bus, "HSET", paging, "cursor", first.stream_id)
    assert found(bus) == []
    send(bus, "DEL", paging)
    assert found(bus) == []
    bus.converse(page_out(bus.core, 0))
    assert found(bus) == []


# -- how far reminders were handled -------------------------------------------------------------------------------


@pytest.fixture
def reminders(bus: Bus, page: Page) -> str:
    """The key with how far reminders were handled: all events, one of which was waited for."""
    page.add("reminder", "waits", remind_on={"type": "risk_alert"})
    page.add("risk_alert", "awaited")
    react_to_all(bus)
    assert [event.kind for event in bus.events()] == ["added", "added", "due"]
    return bus.core.log.keys(0).reminders


def test_a_position_of_reminders_that_cannot_be_read_is_found_and_may_be_deleted(bus: Bus, reminders: str) -> None:
    shards = bus.core.log.shards
    for row in ("garbage", ",".join(["0-0"] * (shards + 1))):
        send(bus, "SET", reminders, row)
        what = f"is {row.encode()!r}, which is not a position in {shards} shards"
        (finding,) = found(bus)
        assert finding == Finding("cursor", reminders, what)
        assert finding.advice.startswith("delete this key")
    send(bus, "DEL", reminders)
    react_to_all(bus)
    assert [event.kind for event in bus.events()] == ["added", "added", "due"]
    assert found(bus) == []


def test_a_position_of_reminders_between_two_events_is_found(bus: Bus, page: Page, reminders: str) -> None:
    shard, positions = keys_of(bus).shard, [*BusPosition.parse(send(bus, "GET", reminders).decode()).shards]
    was = positions[shard]
    positions[shard] = was._replace(ms=was.ms - 1)
    send(bus, "SET", reminders, str(BusPosition(tuple(positions))))
    what = f"is at {positions[shard]}, and the log has no event there"
    assert found(bus) == [Finding("cursor", reminders, what)]


def test_a_position_of_reminders_where_they_may_be_or_that_they_leave_is_no_finding(
    bus: Bus, page: Page, reminders: str
) -> None:
    shard, positions = keys_of(bus).shard, [*BusPosition.parse(send(bus, "GET", reminders).decode()).shards]
    was = positions[shard]
    for position in (next(iter(bus.events())).position, was._replace(ms=0, seq=0), was._replace(seq=was.seq + 9)):
        positions[shard] = position
        send(bus, "SET", reminders, str(BusPosition(tuple(positions))))
        assert found(bus) == []
    react_to_all(bus)
    assert send(bus, "GET", reminders).decode() == str(bus.position())
    assert found(bus) == []


def test_a_position_of_reminders_whose_event_was_erased_or_archived_is_no_finding(
    connect: Callable[..., Bus], tmp_path: Path
) -> None:
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=1, archive_segment=4)
    last = [bus.page().add("observation", f"{number}") for number in range(9)][-1]
    react_to_all(bus)
    erased = send(bus, "GET", bus.core.log.keys(0).reminders)
    bus.page().erase(last.id, reason="private")
    assert found(bus) == []
    trimmed = bus.position()
    bus.page().add("observation", "newer")
    bus.page().add("observation", "newest")
    react_to_all(bus)
    archive(bus)
    assert Position.parse(send(bus, "XRANGE", keys_of(bus).log, "-", "+", "COUNT", 1)[0][0].decode()).seq > 9
    for handled in (erased, str(trimmed)):
        send(bus, "SET", bus.core.log.keys(0).reminders, handled)
        assert found(bus) == []


# -- subscriptions ------------------------------------------------------------------------------------------------


def test_a_subscription_of_which_a_part_is_lost_is_found(bus: Bus, page: Page) -> None:
    keys = bus.core.log.keys(0)
    bus.declare_subscription("router", max_attempts=1)
    page.add("observation", "one")
    batch = bus.pull("router")
    bus.nack("router", batch.token, batch.deliveries[0].position, "bad")
    assert [each.subscription for each in bus.dead_letters("router")] == ["router"]
    assert found(bus) == []
    stored = send(bus, "DUMP", keys.subscription("router"))
    send(bus, "DEL", keys.subscription("router"))
    where = keys.subscription("router")
    assert found(bus) == [Finding("subscription", where, "has no cursor, though it is listed")]
    send(bus, "SREM", keys.subscriptions, "router")
    assert found(bus) == [Finding("subscription", where, "has no cursor, though it has dead letters")]
    send(bus, "RESTORE", where, 0, stored)
    (finding,) = found(bus)
    assert (finding.kind, finding.where) == ("subscription", f"{keys.subscriptions} router")
    assert finding.what.startswith("is missing, so that nothing lists it")
    send(bus, "SADD", keys.subscriptions, "router", "lost")
    where = keys.subscription("lost")
    assert found(bus) == [Finding("subscription", where, "has no cursor, though it is listed")]
    send(bus, "SREM", keys.subscriptions, "lost")
    bus.unsubscribe("router")
    assert found(bus) == []


def test_a_subscription_is_whole_again_once_it_is_declared_again(bus: Bus) -> None:
    keys = bus.core.log.keys(0)
    bus.declare_subscription("router")
    send(bus, "DEL", keys.subscription("router"))
    (finding,) = found(bus)
    assert finding.advice.startswith("unsubscribe it if it still has a cursor, then declare it again")
    bus.declare_subscription("router")
    assert found(bus) == []
    send(bus, "DEL", keys.subscriptions)
    assert [each.where for each in found(bus)] == [f"{keys.subscriptions} router"]
    bus.unsubscribe("router")
    bus.declare_subscription("router")
    assert found(bus) == []


# -- meanwhile ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (verifier, paged_out, marks):
        monkeypatch.setattr(module, "_AT_ONCE", 3)
    monkeypatch.setattr(probe, "_CHUNK", 5)


def acts(bus: Bus) -> Iterator[Callable[[], object]]:
    """Yield what moves the marks, in turns."""
    page = bus.page()
    for number in count():
        name = f"reader-{number}"
        yield lambda: page.archive(page.add("observation", "final").id)
        yield lambda: page.add("reminder", "waits", remind_on={"type": "risk_alert"})
        yield lambda: page.add("risk_alert", "awaited", ttl="1ms")
        yield lambda name=name: bus.declare_subscription(name)  # type: ignore[misc]
        yield lambda: react_to_all(bus)
        yield lambda: project(bus)
        yield lambda: bus.converse(sweep(bus.core))
        yield lambda: bus.converse(page_out(bus.core, 0))
        yield lambda name=name: bus.unsubscribe(name)  # type: ignore[misc]
        yield lambda: archive_bus(bus)
        yield lambda: page.erase(page.add("observation", "private").id, reason="private")


@pytest.mark.parametrize("every", [1, 2, 3])
def test_marks_that_move_at_every_read_are_no_findings(
    connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_steps: None, every: int
) -> None:
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=2, archive_segment=5)
    other = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=2, archive_segment=5)
    turns, reads, is_disturbing = acts(other), count(), False

    def disturbed(read: Callable[..., Any]) -> Callable[..., Any]:
        def conversation(*arguments: Any) -> Step[Any]:
            nonlocal is_disturbing
            if not is_disturbing and next(reads) % every == 0:
                is_disturbing = True
                next(turns)()
                is_disturbing = False
            return (yield from read(*arguments))

        return conversation

    for _ in range(33):
        next(turns)()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Probe, "read", disturbed(Probe.read))
        for name in ("ask", "ask_all", "read_floor", "not_erased"):
            meanwhile.setattr(marks, name, disturbed(getattr(marks, name)))
        assert found(bus) == []
    assert next(reads) > 30
    assert found(bus) == []


@pytest.mark.slow
def test_marks_that_other_processes_move_are_no_findings(
    connect: Callable[..., Bus], tmp_path: Path, small_steps: None
) -> None:
    settings: dict[str, Any] = {"archive_url": str(tmp_path / "archive"), "retain": "1ms", "retain_events": 2}
    buses = [connect(archive_segment=5, **settings) for _ in range(4)]
    until = time.monotonic() + 10

    def work(bus: Bus) -> None:
        for act in acts(bus):
            if time.monotonic() > until:
                return
            with suppress(ArchiveBusy, Conflict, NotFound):
                act()

    works = [lambda bus=bus: work(bus) for bus in buses[1:]]
    with Threads(*works):
        while time.monotonic() < until:
            assert found(buses[0]) == []
    assert found(buses[0]) == []
