"""Exposure: viewers of an observation in contexts, the versions they saw, and their later actions."""

import pytest

from scratchbus.commands import exposure as exposing
from scratchbus.commands.exposure import record
from scratchbus.errors import (
    EngineForbidden,
    EngineFull,
    EngineReadOnly,
    EventIdReused,
    LogBlocked,
    NotFound,
    NotReplicated,
)
from scratchbus.eventlog.ids import new_id
from tests.engines import ONE
from tests.inspection import archive, project

pytestmark = pytest.mark.engines(*ONE)


def show(bus, session, agent, *observations, page="main", event_id=None):
    """Record a context with these observations."""
    seen = {each.id: each.version for each in observations}
    return bus.converse(record(bus.core, page, session, agent, seen, 100, event_id))


def viewers(exposure):
    return [(each.session, each.agent, each.version, each.times) for each in exposure.seen]


def actions(exposure):
    return [(each.action, each.by) for each in exposure.actions]


@pytest.mark.parametrize("folded", [True, False])
def test_exposure_lists_each_viewer_with_version_and_time(bus, folded):
    page = bus.page()
    one, other = page.add("observation", "one"), page.add("observation", "other")
    first = show(bus, "s1", "analyst", one, other)
    show(bus, "s2", None, one)
    changed = page.update(one.id, content="one, changed")
    show(bus, "s1", "analyst", changed)
    show(bus, "s1", "analyst", changed)
    if folded:
        project(bus)
    exposure = page.exposure(one.id)
    assert viewers(exposure) == [("s1", "analyst", 1, 1), ("s2", None, 1, 1), ("s1", "analyst", 2, 2)]
    assert exposure.seen[0].at == next(event.at for event in bus.events() if event.position == first)
    assert viewers(page.exposure(other.id)) == [("s1", "analyst", 1, 1)]


def test_unseen_observation_has_no_exposure(page):
    exposure = page.exposure(page.add("observation", "unseen").id)
    assert (exposure.seen, exposure.actions) == ([], [])


def test_exposure_of_an_unknown_id_is_not_found(page):
    with pytest.raises(NotFound):
        page.exposure(new_id())


def test_exposure_lists_later_actions_of_viewers(connect):
    bus = connect("harness")
    seen, other = bus.page().add("observation", "seen"), bus.page("user:42").add("observation", "other")
    connect("analyst").page().link(seen.id, "before")
    show(bus, "s1", "analyst", seen)
    connect("analyst").page("user:42").link(other.id, "elsewhere")
    connect("executor").page().link(seen.id, "by-someone-else")
    connect("s1").page().link(seen.id, "by-the-session")
    bus.page().link(seen.id, "by-who-assembled")
    found = bus.page().exposure(seen.id)
    assert actions(found) == [("elsewhere", "analyst"), ("by-the-session", "s1"), ("by-who-assembled", "harness")]
    assert (found.actions[0].id, found.actions[0].page) == (other.id, "user:42")


def test_actions_before_the_own_viewing_are_not_listed(connect):
    one = connect("harness").page().add("observation", "one")
    show(connect("harness"), "s1", "analyst", one)
    connect("reviewer").page().link(one.id, "too-early")
    show(connect("harness"), "s2", "reviewer", one)
    connect("reviewer").page().link(one.id, "after")
    assert actions(connect("harness").page().exposure(one.id)) == [("after", "reviewer")]


def test_viewer_without_a_session_is_the_agent(connect):
    bus = connect("analyst")
    one = bus.page().add("observation", "one")
    show(bus, None, "analyst", one)
    show(bus, None, None, one)
    assert bus.page().exposure(one.id).viewers() == ["agent:analyst"]


def test_retry_of_a_recorded_context_counts_once(bus):
    page = bus.page()
    one = page.add("observation", "one")
    assert show(bus, "s1", None, one, event_id="mine") == show(bus, "s1", None, one, event_id="mine")
    assert viewers(page.exposure(one.id)) == [("s1", None, 1, 1)]
    with pytest.raises(EventIdReused):
        show(bus, "s2", None, one, event_id="mine")


def test_refutation_lists_viewers_and_their_later_actions(connect):
    page = connect("analyst").page()
    one = page.add("observation", "one")
    show(connect("harness"), "s1", "analyst", one)
    page.link(one.id, "goal-17")
    refuted = page.refute(one.id, reason="the log was from a test")
    assert refuted.seen_by == ["session:s1", "agent:analyst"]
    assert refuted.followed == ["goal-17"]
    assert page.get(one.id).seen_by == refuted.seen_by
    event = page.history(one.id)[-1]
    assert (event.reason_code, event.seen_by, event.followed) == ("refuted", refuted.seen_by, refuted.followed)


def test_exposure_of_a_cleared_observation_stays(bus):
    page = bus.page()
    one = page.add("observation", "one")
    show(bus, "s1", None, one)
    page.resolve(one.id)
    page.clear_resolved(one.id)
    assert viewers(page.exposure(one.id)) == [("s1", None, 1, 1)]


def test_exposure_survives_a_rebuild_and_another_erasure(bus):
    page = bus.page()
    one, other = page.add("observation", "one"), page.add("observation", "other")
    show(bus, "s1", "analyst", one, other)
    page.link(one.id, "goal")
    before = page.exposure(one.id)
    page.erase(other.id, reason="asked for")
    bus.rebuild()
    assert page.exposure(one.id) == before


@pytest.mark.parametrize("name", ["a_", "a@b", "a:b/c-d", "_"])
def test_exposure_works_for_every_session_name(bus, name):
    one = bus.page().add("observation", "one")
    for _ in range(2):
        show(bus, name, None, one)
    assert viewers(bus.page().exposure(one.id)) == [(name, None, 1, 2)]
    assert {event.subject for event in bus.events(kinds=["context_rendered"])} == {f"context_session:{name}"}


def test_exposure_works_for_every_page_name(connect):
    bus = connect("harness")
    observations = {name: bus.page(name).add("observation", "one") for name in ("user:ada@example.com", "example.com")}
    for name, seen in observations.items():
        show(bus, "s1@here", None, seen, page=name)
        bus.page(name).link(seen.id, f"act on {name}")
    for name, seen in observations.items():
        exposure = bus.page(name).exposure(seen.id)
        assert viewers(exposure) == [("s1@here", None, 1, 1)]
        assert (f"act on {name}", "harness") in actions(exposure)
        assert bus.page(name).refute(seen.id, reason="wrong").seen_by == ["session:s1@here"]


def test_exposure_survives_archiving(connect, tmp_path):
    bus = connect("analyst", archive_url=tmp_path, retain="1ms", retain_events=1)
    page = bus.page()
    one = page.add("observation", "one")
    show(bus, "s1", "analyst", one)
    page.link(one.id, "goal")
    before = page.exposure(one.id)
    for number in range(3):
        page.add("observation", str(number))
    archive(bus)
    assert before.seen
    assert page.exposure(one.id) == before


def test_recorded_context_does_not_change_past_pages(bus):
    page = bus.page()
    one = page.add("observation", "one")
    show(bus, "s1", "analyst", one)
    changed = page.update(one.id, content="two")
    assert page.as_of(one.position).get(one.id) == one
    assert page.as_of(changed.position).get(one.id) == changed


def test_recorded_context_does_not_change_the_page(bus):
    page = bus.page()
    one = page.add("observation", "one")
    with bus.view() as view:
        view.wait_for(show(bus, "s1", "analyst", one))
        assert view.active() == page.active() == [one]


def test_log_reads_records_reads(connect):
    page = connect("writer").page()
    one, other = page.add("observation", "one"), page.add("observation", "other")
    page.resolve(other.id)
    reading = connect("reader", log_reads=1).page()
    assert [each.id for each in reading.active()] == [one.id]
    assert page.exposure(other.id).seen == []
    assert len(reading.list()) == 2
    assert reading.get(one.id) == one
    assert reading.get(new_id()) is None
    assert [(each.by, each.version, each.times) for each in page.exposure(one.id).seen] == [("reader", 1, 3)]
    assert [(each.by, each.version, each.times) for each in page.exposure(other.id).seen] == [("reader", 2, 1)]
    connect("unlogged").page().list()
    assert page.exposure(one.id).viewers() == ["agent:reader"]
    assert {event.tokens for event in connect().events(kinds=["context_rendered"])} == {0}


def test_fractional_log_reads_records_that_share(connect, monkeypatch):
    one = connect("writer").page().add("observation", "one")
    reading = connect("reader", log_reads=0.25).page()
    chances = iter([0.1, 0.25, 0.9, 0.24])
    monkeypatch.setattr("scratchbus.engine.retry_limits.JITTER.random", lambda: next(chances))
    for _ in range(4):
        reading.get(one.id)
    monkeypatch.undo()
    assert [each.times for each in connect().page().exposure(one.id).seen] == [2]


def test_long_list_is_recorded_in_several_events(connect, monkeypatch):
    monkeypatch.setattr(exposing, "_MAX_BATCH", 2)
    page = connect("reader", log_reads=1).page()
    for number in range(5):
        page.add("observation", f"{number}")
    page.list()
    rendered = list(connect().events(kinds=["context_rendered"]))
    assert [len(event.observations) for event in rendered] == [2, 2, 1]


@pytest.mark.parametrize(
    "error",
    [EngineForbidden("no"), EngineReadOnly("no"), EngineFull("no"), LogBlocked(0, "1-1"), NotReplicated(0, 1, "id")],
    ids=str,
)
def test_reader_without_write_permission_can_read(connect, monkeypatch, error):
    one = connect("writer").page().add("observation", "one")

    def refused(*_):
        yield from ()
        raise error

    monkeypatch.setattr(exposing, "record", refused)
    assert connect("reader", log_reads=1).page().list() == [one]
