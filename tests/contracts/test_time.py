"""Time: expiry, auto-archive, lapsed claims and reminders, each appended exactly once."""

import re
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from unittest.mock import Mock

import pytest

from scratchbus import Bus, NewObservation, Page
from scratchbus.domain.position import BusPosition
from scratchbus.engine.steps import Pause, Step
from scratchbus.engine.waits import StopSignal
from scratchbus.errors import (
    ArchiveUnavailable,
    CodeTooOld,
    EngineUnreachable,
    InvalidField,
    InvalidTTL,
    LogBlocked,
    NotChangeable,
    UnknownField,
)
from scratchbus.eventlog import log_wait
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.layouts import Head
from scratchbus.readmodel.catch_up import await_fold
from scratchbus.readmodel.projector import run_projector
from scratchbus.scheduling import expiry, reminders
from scratchbus.scheduling.expiry import run_expirer, sweep
from scratchbus.scheduling.reminders import react, remind
from scratchbus.telemetry.counters import counts
from tests.clock import Clock
from tests.engines import ONE
from tests.halted import Halted
from tests.inspection import all_events, archive, keys_of, log_length, project, send
from tests.waiting import PATIENCE, eventually

KEEPS = """
types:
  kept: {auto_archive_after: never}
  brief: {auto_archive_after: 1m}
  observation: {}
"""

TWICE_CLOSED = """
types:
  ticket: {lifecycle: tickets}
  observation: {}
lifecycles:
  tickets:
    statuses: {new: open, rejected: closed, done: closed}
    initial: [new]
    transitions: {new: [rejected, archived], rejected: [done]}
"""


def swept(bus):
    return bus.converse(sweep(bus.core))


def kinds(page, id):
    return [event.kind for event in page.history(id)]


def test_an_expired_observation_cannot_be_updated_before_it_is_archived(bus, page, clock):
    added = page.add("observation", "x", ttl="1s")
    clock.advance("1s")
    with pytest.raises(NotChangeable, match="is archived and cannot be updated"):
        page.update(added.id, content="y")
    assert [event.kind for event in page.history(added.id)] == ["added"]


def test_an_expired_observation_is_archived_once(bus, page, clock):
    story = page.add("observation", "x", ttl="1m")
    assert swept(bus) == 0
    clock.advance("1m")
    assert swept(bus) == 1
    assert swept(bus) == 0
    archived = page.get(story.id)
    assert (archived.status, archived.reason_code, archived.version) == ("archived", "expired", 2)
    assert page.history(story.id)[-1].by == "tester"


def test_a_sweep_changes_nothing_that_readers_see(bus, page, clock):
    page.add("observation", "x", ttl="1m")
    clock.advance("2m")
    before = page.list()[0]
    swept(bus)
    after = page.list()[0]
    assert after.model_copy(update={"version": 1, "ms": before.ms, "seq": before.seq}) == before


@pytest.mark.engines(*ONE)
def test_two_expirers_expire_each_observation_once(connect, clock):
    bus = connect(max_observations=1000)
    bus.page().add_many([NewObservation(type="observation", content=f"{n}", ttl="1m") for n in range(600)])
    clock.advance("2m")
    project(bus)
    counts: list[int] = []
    expirers = [connect(f"expirer-{n}") for n in range(2)]
    threads = [threading.Thread(target=lambda other=other: counts.append(swept(other))) for other in expirers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(counts) == 600
    expired = [event.subject for event in all_events(bus) if event.kind == "status_changed"]
    assert len(expired) == len(set(expired)) == 600


def test_an_extended_observation_does_not_expire_early(bus, page, clock):
    story = page.add("observation", "x", ttl="1m")
    page.update(story.id, expires_at=clock.now + timedelta(minutes=5))
    clock.advance("2m")
    assert swept(bus) == 0
    assert page.get(story.id).status == "active"


def test_a_closed_observation_does_not_expire(bus, page, clock):
    story = page.add("observation", "x", ttl="1m")
    page.resolve(story.id)
    clock.advance("2m")
    assert swept(bus) == 0
    assert page.get(story.id).status == "resolved"


@pytest.mark.parametrize("ttl", ["soon", "", "0", 0, -1, "1y", [], "200y"])
def test_an_invalid_duration_is_refused(bus, page, ttl):
    with pytest.raises((InvalidTTL, InvalidField), match="ttl"):
        page.add("observation", "x", ttl=ttl)
    assert log_length(bus) == 0


def test_a_past_expiry_or_two_expiries_are_refused(bus, page):
    with pytest.raises(InvalidTTL, match="is in the past"):
        page.add("observation", "x", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidTTL, match="not both"):
        page.add("observation", "x", ttl="1h", expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    assert log_length(bus) == 0


def test_resolved_observations_are_archived_after_an_hour(bus, page, clock):
    story = page.resolve(page.add("observation", "x").id)
    assert story.archive_at == clock.now + timedelta(hours=1)
    clock.advance("59m")
    assert swept(bus) == 0
    clock.advance("1m")
    assert swept(bus) == 1
    assert (page.get(story.id).status, page.get(story.id).reason_code) == ("archived", "auto_archived")
    assert swept(bus) == 0


def test_a_reopened_observation_is_not_auto_archived(bus, page, clock):
    story = page.resolve(page.add("observation", "x").id)
    assert page.reopen(story.id).archive_at is None
    clock.advance("2h")
    assert swept(bus) == 0


def test_auto_archive_can_be_turned_off(connect, clock):
    bus = connect(auto_archive_resolved=False)
    assert bus.page().resolve(bus.page().add("observation", "x").id).archive_at is None
    clock.advance("10d")
    assert swept(bus) == 0


def test_the_delay_of_auto_archive_can_be_set(connect, clock):
    bus = connect(auto_archive_after="5m")
    bus.page().resolve(bus.page().add("observation", "x").id)
    clock.advance("5m")
    assert swept(bus) == 1


def test_a_type_can_set_its_delay_of_auto_archive(connect, tmp_path, clock):
    file = tmp_path / "types.yaml"
    file.write_text(KEEPS)
    bus = connect(observation_types=file)
    for type in ("kept", "brief", "observation"):
        bus.page().resolve(bus.page().add(type, type).id)
    clock.advance("1m")
    assert swept(bus) == 1
    clock.advance("10d")
    assert swept(bus) == 1
    assert [one.content for one in bus.page().list(status="resolved")] == ["kept"]


def test_the_next_closed_status_ends_the_delay_of_the_former_one(bus, connect, tmp_path, clock):
    file = tmp_path / "types.yaml"
    file.write_text(TWICE_CLOSED)
    bus.push_types(file)
    added = bus.page().add("ticket", "x")
    assert bus.page().update(added.id, status="rejected").archive_at is not None
    done = connect(auto_archive_resolved=False).page(bus.page().name).update(added.id, status="done")
    assert (done.status, done.archive_at) == ("done", None)
    assert bus.verify().findings == []
    clock.advance("10d")
    assert swept(bus) == 0


def test_a_reminder_falls_due_once(bus, page, clock):
    reminder = page.add("reminder", "call back", remind_at=clock.now + timedelta(minutes=5))
    assert swept(bus) == 0
    clock.advance("5m")
    assert swept(bus) == 1
    assert swept(bus) == 0
    due = page.get(reminder.id)
    assert (due.status, due.due_at, due.remind_at) == ("active", clock.now, None)
    assert kinds(page, reminder.id) == ["added", "due"]


def test_a_reminder_for_the_past_falls_due_at_once(bus, page, clock):
    page.add("reminder", "call back", remind_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert swept(bus) == 1


def test_a_closed_reminder_does_not_fall_due(bus, connect, clock):
    page = connect(auto_archive_resolved=False).page()
    reminder = page.add("reminder", "call back", remind_at=clock.now + timedelta(minutes=5))
    page.resolve(reminder.id)
    clock.advance("5m")
    assert swept(bus) == 0
    page.reopen(reminder.id)
    assert swept(bus) == 0


def test_a_lapse_a_reminder_and_an_expiry_happen_in_order(bus, page, clock):
    story = page.add("reminder", "x", ttl="10m", remind_at=clock.now + timedelta(minutes=5))
    page.claim(story.id, ttl="2m")
    for _ in range(12):
        clock.advance("1m")
        swept(bus)
    assert kinds(page, story.id) == ["added", "claimed", "lapsed", "due", "status_changed"]


def reminded(bus):
    """Match reminders with all events, as an expirer does; return how many fell due."""
    return bus.converse(remind(bus.core, list(bus.events())))


def test_a_reminder_waits_for_an_event(bus, page):
    reminder = page.add("reminder", "look again", remind_on={"type": "risk_alert", "tags": ["fraud"]})
    page.add("risk_alert", "harmless", tags=["other"])
    page.add("observation", "fraud", tags=["fraud"])
    assert reminded(bus) == 0
    trigger = page.add("risk_alert", "fraud ring", tags=["security", "fraud"])
    assert reminded(bus) == 1
    assert reminded(bus) == 0
    due = page.get(reminder.id)
    assert (due.due_at, due.remind_on) == (page.history(reminder.id)[-1].at, None)
    assert page.history(reminder.id)[-1].trigger == str(trigger.position)


def test_a_reminder_waits_for_a_status(bus, page):
    alert = page.add("risk_alert", "x")
    reminder = page.add("reminder", "y", remind_on={"type": "risk_alert", "status": "resolved"})
    page.review(alert.id)
    assert reminded(bus) == 0
    page.resolve(alert.id)
    assert reminded(bus) == 1
    assert kinds(page, reminder.id) == ["added", "due"]


def test_earlier_events_and_other_pages_do_not_trigger_a_reminder(bus, page):
    page.add("risk_alert", "before")
    page.add("reminder", "x", remind_on={"type": "risk_alert"})
    bus.page("other").add("risk_alert", "elsewhere")
    assert reminded(bus) == 0


def test_changes_of_a_reminder_do_not_trigger_itself(bus: Bus, page: Page) -> None:
    one = page.add("reminder", "x", remind_on={"type": "reminder"})
    page.update(one.id, content="y")
    assert reminded(bus) == 0
    other = page.add("reminder", "z", remind_on={"type": "risk_alert"})
    assert reminded(bus) == 1
    assert page.history(one.id)[-1].trigger == str(other.position)


def trigger_of(bus, page, reminder):
    """Return the kind and the subject of the event that made a reminder due."""
    due = page.history(reminder.id)[-1]
    assert (due.kind, due.cause) == ("due", due.trigger)
    (event,) = [event for event in bus.events() if str(event.position) == due.trigger]
    return event.kind, event.subject


@pytest.mark.parametrize("is_folded", [True, False])
def test_a_trigger_counts_after_its_observation_is_cleared(bus, page, is_folded):
    reminder = page.add("reminder", "x", remind_on={"type": "risk_alert", "status": "active", "tags": ["fraud"]})
    alert = page.add("risk_alert", "y", tags=["fraud"])
    page.resolve(alert.id)
    page.clear_resolved([alert.id])
    if is_folded:
        project(bus)
    assert reminded(bus) == 1
    assert trigger_of(bus, page, reminder) == ("added", alert.id)


@pytest.mark.parametrize("is_folded", [True, False])
def test_a_trigger_counts_after_its_observation_changes(bus, page, is_folded):
    alert = page.add("risk_alert", "y", tags=["calm"])
    tagged = page.add("reminder", "x", remind_on={"type": "risk_alert", "tags": ["fraud"]})
    resolved = page.add("reminder", "x", remind_on={"status": "resolved", "tags": ["fraud"]})
    page.update(alert.id, tags=["fraud"])
    page.resolve(alert.id)
    page.reopen(alert.id)
    page.update(alert.id, tags=[])
    if is_folded:
        project(bus)
    assert reminded(bus) == 2
    assert trigger_of(bus, page, tagged) == ("updated", alert.id)
    assert trigger_of(bus, page, resolved) == ("status_changed", alert.id)


def test_an_event_is_matched_by_the_state_of_its_time(bus, page):
    reminder = page.add("reminder", "x", remind_on={"type": "risk_alert", "tags": ["fraud"]})
    alert = page.add("risk_alert", "y")
    page.update(alert.id, content="z")
    page.update(alert.id, tags=["fraud"])
    assert reminded(bus) == 1
    assert page.history(reminder.id)[-1].trigger == str(page.get(alert.id).position)


def test_the_first_matching_event_is_the_trigger(bus, page):
    reminder = page.add("reminder", "x", remind_on={"type": "risk_alert"})
    first = page.add("risk_alert", "first")
    page.add("risk_alert", "second")
    page.resolve(first.id)
    assert reminded(bus) == 1
    assert trigger_of(bus, page, reminder) == ("added", first.id)


def test_a_trigger_counts_after_its_observation_expires(bus, page, clock):
    alert = page.add("risk_alert", "y", ttl="1m")
    reminder = page.add("reminder", "x", remind_on={"type": "risk_alert", "status": "active"})
    page.update(alert.id, content="z")
    clock.advance("1h")
    assert reminded(bus) == 1
    assert trigger_of(bus, page, reminder) == ("updated", alert.id)


def test_a_repeat_triggers_a_reminder(bus, page):
    alert = page.add("risk_alert", "y", tags=["fraud"], dedupe_key="k")
    page.review(alert.id)
    reminder = page.add("reminder", "x", remind_on={"tags": ["fraud"], "status": "pending_review"})
    page.add("risk_alert", "y", dedupe_key="k")
    assert reminded(bus) == 1
    assert trigger_of(bus, page, reminder) == ("repeated", alert.id)


def test_claims_links_and_releases_trigger_no_reminder(bus, page):
    alert = page.add("risk_alert", "y")
    page.add("reminder", "x", remind_on={"type": "risk_alert"})
    claim = page.claim(alert.id)
    page.link(alert.id, action="goal-17", fence=claim.fence)
    page.release(alert.id)
    assert reminded(bus) == 0


@pytest.mark.damages_the_log
def test_reminders_match_the_remaining_events_of_a_trimmed_log(bus, page):
    alert = page.add("risk_alert", "y", tags=["fraud"])
    reminder = page.add("reminder", "x", remind_on={"type": "risk_alert", "tags": ["fraud"]})
    page.update(alert.id, content="z")
    page.update(alert.id, content="zz")
    project(bus)
    events = list(bus.events())
    send(bus, "XTRIM", keys_of(bus).log, "MINID", events[1].position.stream_id)
    assert bus.converse(remind(bus.core, events)) == 1
    (due,) = [event for event in bus.events(events[-1].position) if event.kind == "due"]
    assert (due.subject, due.trigger) == (reminder.id, str(events[2].position))


def test_an_event_that_is_erased_before_it_is_matched_triggers_no_reminder(bus: Bus, page: Page) -> None:
    page.add("reminder", "x", remind_on={"type": "risk_alert"})
    alert = page.add("risk_alert", "y")
    page.update(alert.id, content="z")
    events = list(bus.events(kinds={"updated"}))
    page.erase(alert.id, reason="secret")
    assert bus.converse(remind(bus.core, events)) == 0


def test_one_event_can_trigger_many_reminders(bus, page):
    for n in range(3):
        page.add("reminder", f"{n}", remind_on={"type": "risk_alert"})
    page.add("risk_alert", "x")
    assert reminded(bus) == 3
    assert len(page.list(type="reminder")) == 3


def test_a_reminder_with_a_damaged_head_is_reported_and_holds_up_no_other(bus, page, monkeypatch):
    logger = Mock()
    monkeypatch.setattr("scratchbus.scheduling.reminders.logger", logger)
    damaged, sound = (page.add("reminder", "x", remind_on={"type": "risk_alert"}) for _ in range(2))
    page.add("risk_alert", "now")
    key = keys_of(bus).heads("main")
    head = Head.parse(send(bus, "HGET", key, damaged.id))
    send(bus, "HSET", key, damaged.id, str(head._replace(version=7)))
    assert reminded(bus) == 1
    logger.warning.assert_called_once_with("a reminder keeps changing, or its state is damaged", observation=damaged.id)
    assert kinds(page, damaged.id) == ["added"]
    assert kinds(page, sound.id) == ["added", "due"]
    send(bus, "HSET", key, damaged.id, str(head))
    assert reminded(bus) == 1


def test_two_expirers_remind_once(connect):
    bus, other = connect("a"), connect("b")
    reminder = bus.page().add("reminder", "x", remind_on={"type": "risk_alert"})
    bus.page().add("risk_alert", "now")
    threads = [threading.Thread(target=reminded, args=(one,)) for one in (bus, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert kinds(bus.page(), reminder.id) == ["added", "due"]


def test_a_late_expirer_does_not_remind_again(connect):
    bus, other = connect("a"), connect("b")
    reminder = bus.page().add("reminder", "x", remind_on={"type": "risk_alert"})
    bus.page().add("risk_alert", "now")
    late = Halted(other, remind(other.core, list(other.events())))
    assert reminded(bus) == 1
    assert late.go_on() == 0
    assert kinds(bus.page(), reminder.id) == ["added", "due"]


def test_a_late_expirer_leaves_closed_reminders_alone(connect):
    bus, other = connect("a"), connect("b")
    page = bus.page()
    cleared, left = (page.add("reminder", "x", remind_on={"type": "risk_alert"}) for _ in range(2))
    page.add("risk_alert", "now")
    late = Halted(other, remind(other.core, list(other.events())))
    page.resolve(cleared.id)
    page.clear_resolved([cleared.id])
    page.resolve(left.id)
    assert late.go_on() == 0
    assert kinds(page, cleared.id)[-1] == "cleared"
    assert kinds(page, left.id)[-1] == "status_changed"


def test_a_sweep_records_what_had_expired_before_the_clock_was_set_back(bus, page, clock):
    expiring = page.add("observation", "expiring", ttl="1m")
    clock.advance("2m")
    page.add("observation", "later")
    project(bus)
    clock.set(clock.ms - 3_600_000)
    assert bus.converse(sweep(bus.core)) == 1
    assert kinds(page, expiring.id)[-1] == "status_changed"


def test_a_late_sweep_does_not_expire_extended_observations(connect, clock):
    bus, other = connect("a"), connect("b")
    prolonged, repeated, expiring = (
        bus.page().add("observation", f"{n}", ttl="1m", dedupe_key=f"{n}") for n in range(3)
    )
    project(bus)
    clock.advance("1m")
    late = Halted(other, sweep(other.core))
    clock.set(clock.ms - 1)
    bus.page().update(prolonged.id, expires_at=None)
    bus.page().add("observation", "again", dedupe_key="1", ttl="1h")
    assert late.go_on() == 1
    assert [bus.page().get(one.id).status for one in (prolonged, repeated, expiring)] == [
        "active", "active", "archived",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("trigger", "error"),
    [
        ({}, InvalidField),
        ({"colour": "red"}, UnknownField),
        ({"type": ""}, InvalidField),
        ({"tags": "t"}, InvalidField),
    ],
)
def test_an_invalid_trigger_is_refused(bus, page, trigger, error):
    with pytest.raises(error, match=r"remind_on|tags"):
        page.add("reminder", "x", remind_on=trigger)
    assert log_length(bus) == 0


_CALLS = re.compile(r"^cmdstat_(\w+):calls=(\d+)", re.MULTILINE)


def last_event_is(page, id, kind):
    return kinds(page, id)[-1] == kind


def test_a_running_expirer_expires_archives_and_reminds(connect):
    bus, stop = connect(auto_archive_after="60ms", sweep_interval="20ms"), threading.Event()
    page = bus.page()
    expiring = page.add("observation", "x", ttl="80ms")
    waiting = page.add("reminder", "y", remind_on={"type": "risk_alert"})
    page.add("dependency", "v", dedupe_key="k")
    again = page.add("reminder", "y", remind_on={"type": "dependency"})
    timed = page.add("reminder", "z", remind_at=datetime.now(UTC) + timedelta(milliseconds=500))
    closed = page.resolve(page.add("observation", "w").id)
    thread = threading.Thread(target=run_expirer, args=(connect("expirer", sweep_interval="20ms"), stop))
    thread.start()
    try:
        page.add("risk_alert", "now")
        page.add("dependency", "v", dedupe_key="k")
        for one in (waiting, again, timed):
            eventually(partial(last_event_is, page, one.id, "due"))
        for one in (expiring, closed):
            eventually(partial(last_event_is, page, one.id, "status_changed"))
        eventually(lambda: page.get(closed.id).reason_code == "auto_archived")
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert page.get(expiring.id).reason_code == "expired"


@pytest.mark.engines("embedded")
def test_an_idle_projector_and_expirer_wait_on_the_log_until_they_are_stopped(connect, monkeypatch):
    monkeypatch.setattr(log_wait, "STOPPABLE_BLOCK_MS", 20)
    bus, stop = connect(sweep_interval="20ms"), StopSignal()
    bus.page().add("observation", "x")

    def calls():
        return {name: int(count) for name, count in _CALLS.findall(send(bus, "INFO", "commandstats").decode())}

    threads = [threading.Thread(target=run, args=(bus, stop)) for run in (run_projector, run_expirer)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: "blocked_clients:2" in send(bus, "INFO", "clients").decode())
        before, started_at, sweeps = calls(), time.monotonic(), counts.sweeps
        eventually(lambda: counts.sweeps > sweeps + 4)
        after, seconds, swept = calls(), time.monotonic() - started_at, counts.sweeps - sweeps
    finally:
        stopped_at = time.monotonic()
        stop.set()
        for thread in threads:
            thread.join()
    assert time.monotonic() - stopped_at < 3
    sent = {name: after[name] - before.get(name, 0) for name in after}
    assert sent.get("xread", 0) <= 2 * (1 + seconds / 5)
    assert swept <= 2 + seconds / 0.08  # most know that nothing is due
    assert sent["get"] <= 8 * swept + 20 * (1 + sent.get("xread", 0))


def trim(bus, keys, _):
    send(bus, "XTRIM", keys.log, "MAXLEN", 1)


def pierce(bus, keys, gone):
    send(bus, "XDEL", keys.log, gone.position.stream_id)


def rewind(bus, keys, _):
    ends = (end._replace(seq=end.seq + 100) for end in bus.position().shards)
    send(bus, "SET", bus.core.log.keys(0).reminders, str(BusPosition(tuple(ends))))


def replace_log(bus, _, gone):
    """Set a position that is earlier than the events of the log, and has a higher number."""
    ends = (end._replace(ms=gone.position.ms - 1, seq=end.seq + 100) for end in bus.position().shards)
    send(bus, "SET", bus.core.log.keys(0).reminders, str(BusPosition(tuple(ends))))


@pytest.mark.damages_the_log
@pytest.mark.parametrize(("damage", "missing"), [(trim, 2), (pierce, 1), (rewind, 0), (replace_log, 0)])
def test_reminders_continue_after_missing_events_and_log_them(bus, page, capfd, damage, missing):
    reminder = page.add("reminder", "look again", remind_on={"type": "risk_alert"})
    while bus.converse(react(bus.core))[1]:
        pass
    page.add("observation", "first")
    gone = page.add("risk_alert" if damage in (trim, pierce) else "observation", "gone")
    page.add("observation", "last")
    project(bus)
    before = counts.missed
    damage(bus, keys_of(bus), gone)
    assert bus.converse(react(bus.core))[1]
    assert counts.missed - before == missing
    assert "reminders continue after missing events" in capfd.readouterr().err
    assert page.get(reminder.id).due_at is None
    page.add("risk_alert", "now")
    while bus.converse(react(bus.core))[1]:
        pass
    assert page.get(reminder.id).due_at is not None


def test_erased_events_are_not_missing_for_reminders(bus: Bus, page: Page) -> None:
    while bus.converse(react(bus.core))[1]:
        pass
    erased = [page.add("observation", f"{n}") for n in range(2)]
    for each in erased:
        page.erase(each.id, reason="secret")
    before = counts.missed
    while bus.converse(react(bus.core))[1]:
        pass
    assert counts.missed == before


@pytest.mark.damages_the_log
def test_reminders_match_every_event_after_missing_ones(bus, page, monkeypatch):
    monkeypatch.setattr(reminders, "CHUNK", 1)
    reminder = page.add("reminder", "look again", remind_on={"type": "risk_alert"})
    while bus.converse(react(bus.core))[1]:
        pass
    for content in ("gone", "last"):
        page.add("observation", content)
    page.add("risk_alert", "now")
    project(bus)
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 2)
    before = counts.missed
    while bus.converse(react(bus.core))[1]:
        pass
    assert (page.get(reminder.id).due_at is not None, counts.missed - before) == (True, 1)


@pytest.mark.parametrize("is_trigger_archived", [False, True])
def test_reminders_continue_after_events_in_a_damaged_archive(connect, tmp_path, capfd, is_trigger_archived):
    bus = connect(archive_url=tmp_path / "archive", retain="1ms", retain_events=1)
    page = bus.page("main")
    reminder = page.add("reminder", "look again", remind_on={"type": "observation", "status": "resolved"})
    story = page.add("observation", "story")
    if is_trigger_archived:
        page.resolve(story.id)
    page.add("risk_alert", "a")
    page.add("risk_alert", "b")
    if not is_trigger_archived:
        while bus.converse(react(bus.core))[1]:
            pass
    project(bus)
    assert any(each.trimmed for each in archive(bus))
    for segment in (tmp_path / "archive").rglob("*.jsonl.zst"):
        segment.write_bytes(b"damaged")
    other = connect("other", archive_url=tmp_path / "archive")
    if not is_trigger_archived:
        other.page("main").resolve(story.id)
        other.page("main").link(story.id, "goal-1")
    while other.converse(react(other.core))[1]:
        pass
    warning = "after missing events" if is_trigger_archived else "use its current state"
    assert warning in capfd.readouterr().err
    assert (page.get(reminder.id).due_at is None) is is_trigger_archived
    other.page("main").resolve(other.page("main").add("observation", "late").id)
    while other.converse(react(other.core))[1]:
        pass
    assert page.get(reminder.id).due_at is not None


def test_recurring_observations_on_a_full_page_do_not_stop_expiry(connect, clock, monkeypatch):
    monkeypatch.setattr(expiry, "AT_ONCE", 2)
    bus = connect(max_observations=3)
    log, page = bus.core.log, bus.page("main")
    for n in range(3):
        page.add("observation", f"{n}", every="1m")
    other = bus.page(next(name for n in range(100) if log.shard(name := f"p{n}") == log.shard("main")))
    stories = [other.add("observation", "x", ttl="2m") for _ in range(3)]
    clock.advance("3m")
    assert swept(bus) == 3
    assert [kinds(other, story.id) for story in stories] == [["added", "status_changed"]] * 3


@pytest.mark.engines("embedded-4-shards")
def test_much_that_is_due_on_one_shard_does_not_hold_up_the_others(bus, clock, monkeypatch):
    monkeypatch.setattr(expiry, "AT_ONCE", 2)
    pages = {bus.core.log.shard(name): bus.page(name) for name in map("p{}".format, range(50))}
    many = [pages[0].add("observation", "x", ttl="1m") for _ in range(5)]
    one = pages[3].add("observation", "x", ttl="1m")
    clock.advance("1m")
    swept_shards = []

    def record(core, shard, skip, sweep_batch=expiry._sweep_batch):
        swept_shards.append(shard)
        return sweep_batch(core, shard, skip)

    monkeypatch.setattr(expiry, "_sweep_batch", record)
    assert swept(bus) == 6
    assert swept_shards == [0, 1, 2, 3, 0, 0]
    assert [len(kinds(pages[each.shard], each.id)) for each in (*many, one)] == [2] * 6


def test_a_recurrence_that_cannot_be_read_does_not_stop_expiry(bus, page, clock, monkeypatch):
    recurring = page.add("observation", "recurs", every="1m")
    story = page.add("observation", "x", ttl="1m")
    clock.advance("2m")

    def refuse(every, slot, after):
        raise ValueError(f"{every} is of another version")

    with monkeypatch.context() as patches:
        patches.setattr("scratchbus.scheduling.recurring.next_slot", refuse)
        assert swept(bus) == 1
    assert page.get(story.id).version == 2
    assert swept(bus) == 2
    assert kinds(page, recurring.id) == ["added", "due"]


@pytest.mark.engines("embedded-4-shards")
@pytest.mark.damages_the_log
def test_a_blocked_shard_does_not_stop_the_sweep_of_the_others(bus, clock):
    pages = {bus.core.log.shard(name): bus.page(name) for name in map("p{}".format, range(50))}
    stories = {shard: pages[shard].add("observation", "x", ttl="1m") for shard in range(4)}
    clock.advance("1m")
    send(bus, "XADD", bus.core.log.keys(0).log, "*", "name", "value")
    with pytest.raises(LogBlocked):
        swept(bus)
    assert [len(kinds(pages[shard], stories[shard].id)) for shard in range(4)] == [1, 2, 2, 2]


@pytest.mark.engines("embedded-4-shards")
def test_an_archive_that_is_away_does_not_stop_the_sweep_of_other_shards(
    bus: Bus, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {bus.core.log.shard(name): bus.page(name) for name in map("p{}".format, range(50))}
    stories = {shard: pages[shard].add("observation", "x", ttl="1m") for shard in range(4)}
    clock.advance("1m")

    def fold_from_archive(log: Log, shard: int, patience: float) -> Step[bool]:
        if shard == 0:
            raise ArchiveUnavailable("the archive is away")
        return (yield from await_fold(log, shard, patience))

    monkeypatch.setattr(expiry, "await_fold", fold_from_archive)
    with pytest.raises(ArchiveUnavailable):
        swept(bus)
    assert [len(kinds(pages[shard], stories[shard].id)) for shard in range(4)] == [1, 2, 2, 2]


def test_a_stopped_sweep_leaves_the_rest_for_later(bus, page, clock, monkeypatch):
    monkeypatch.setattr(expiry, "AT_ONCE", 2)
    for _ in range(5):
        page.add("observation", "x", ttl="1m")
    clock.advance("1m")
    answers = iter([*[False] * bus.core.log.shards, True])
    assert bus.converse(sweep(bus.core, 0.0, lambda: next(answers))) == 2
    assert bus.converse(sweep(bus.core, 0.0, lambda: True)) == 0
    assert swept(bus) == 3


@pytest.mark.parametrize("error", [EngineUnreachable, CodeTooOld, ZeroDivisionError])
def test_an_expirer_raises_the_errors_of_its_sweep(bus, monkeypatch, error):
    def broken(core, patience, is_stopped):
        yield Pause(0)
        raise error("no")

    monkeypatch.setattr(expiry, "sweep", broken)
    stop = threading.Event()
    patience = threading.Timer(PATIENCE, stop.set)
    patience.start()
    try:
        with pytest.raises(error):
            run_expirer(bus, stop)
    finally:
        patience.cancel()


@pytest.fixture
def set_clock(monkeypatch):
    """Set the clock of this machine, as the expirer's scheduler reads it, ahead by a time or back."""
    ahead = timedelta()

    class _Kind(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, datetime)

    class _Set(datetime, metaclass=_Kind):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + ahead

    def set_ahead(by):
        nonlocal ahead
        ahead = by

    for name, module in list(sys.modules.items()):
        if name.startswith(("apscheduler.", "scratchbus.")) and vars(module).get("datetime") is datetime:
            monkeypatch.setattr(module, "datetime", _Set)
    return set_ahead


@pytest.mark.engines("embedded")
@pytest.mark.parametrize("by", [timedelta(hours=-1), timedelta(days=1)], ids=["back", "ahead"])
@pytest.mark.parametrize("during_a_sweep", [False, True], ids=["between sweeps", "during a sweep"])
def test_an_expirer_sweeps_after_the_clock_of_its_machine_was_set(connect, monkeypatch, set_clock, by, during_a_sweep):
    bus, stop, is_due = connect(sweep_interval="20ms"), threading.Event(), threading.Event()

    def set_and_sweep(core, patience, is_stopped):
        if is_due.is_set():
            is_due.clear()
            set_clock(by)
        return sweep(core, patience, is_stopped)

    monkeypatch.setattr(expiry, "sweep", set_and_sweep)
    thread = threading.Thread(target=run_expirer, args=(bus, stop), daemon=True)
    thread.start()
    try:
        sweeps = counts.sweeps
        eventually(lambda: counts.sweeps > sweeps)
        if during_a_sweep:
            is_due.set()
            eventually(lambda: not is_due.is_set())
        else:
            set_clock(by)
        sweeps = counts.sweeps + 2
        eventually(lambda: counts.sweeps > sweeps)
    finally:
        stop.set()
        thread.join()


def test_positions_grow_when_the_clock_goes_back(bus, page, clock):
    positions = [page.add("observation", "now").position]
    clock.advance("1h")
    positions.append(page.add("observation", "later").position)
    clock.set(clock.ms - 7_200_000)
    positions.append(page.add("observation", "back").position)
    positions.append(page.resolve(page.list()[0].id).position)
    clock.advance("1m")
    positions.append(page.add("observation", "still behind").position)
    assert all((a.ms, a.seq) < (b.ms, b.seq) and a.ms <= b.ms for a, b in pairwise(positions))
    assert [position.seq for position in positions] == list(range(positions[0].seq, positions[0].seq + 5))


@pytest.mark.parametrize("ahead", [-86_400_000, 86_400_000], ids=["behind", "ahead"])
def test_reads_judge_expiry_by_the_engine_clock_before_a_sweep(page, clock, ahead):
    clock.set(clock.ms + ahead)
    story = page.add("observation", "x", ttl="1h")
    clock.advance("59m")
    assert page.get(story.id).status == "active"
    assert page.active() == [story]
    clock.advance("1m")
    assert page.get(story.id).status == "archived"
    assert page.active() == []


def test_a_fold_does_not_depend_on_the_clock(bus, page, clock):
    page.add("observation", "x", ttl="1m")
    before = page.list()[0]
    clock.advance("10d")
    project(bus)
    clock.set(clock.ms - 864_000_000)
    assert page.list()[0] == before
