"""Status transitions in the default lifecycle and in one of a type's own."""

from datetime import datetime, timedelta
from itertools import product

import pytest

from scratchbus import Page
from scratchbus.commands import execution
from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.errors import (
    Claimed,
    EventIdReused,
    InvalidField,
    InvalidTransition,
    InvalidTTL,
    NotChangeable,
    NotClaimed,
    NotFound,
    VersionConflict,
)
from tests.cases import case
from tests.engines import ALL
from tests.inspection import log_length

pytestmark = pytest.mark.engines(*ALL)

VERBS = {"pending_review": "review", "resolved": "resolve", "archived": "archive", "active": "reopen"}

TICKETS = """
types:
  ticket:
    lifecycle: tickets
    auto_archive_after: never
  observation: {}
lifecycles:
  tickets:
    statuses: {new: open, in_progress: open, done: closed, rejected: closed}
    initial: [new, in_progress]
    transitions:
      new: [in_progress, rejected, archived]
      in_progress: [new, done]
      done: [in_progress, archived]
      rejected: [done]
"""


def add_with_status(page, status):
    """Add an observation and move it to a status."""
    added = page.add("observation", "x")
    return added if status == "active" else getattr(page, VERBS[status])(added.id)


def test_transitions_follow_the_table(bus, page):
    for status, target in product(DEFAULT.statuses, repeat=2):
        with case((status, target)):
            assert_transition(bus, page, status, target)


def assert_transition(bus, page, status, target):
    before = add_with_status(page, status)
    if target in DEFAULT.allowed_from(status):
        after = getattr(page, VERBS[target])(before.id, reason="because")
        assert (after.status, after.reason, after.version) == (target, "because", before.version + 1)
        assert page.get(before.id) == after
        return
    length = log_length(bus)
    with pytest.raises(InvalidTransition) as refused:
        getattr(page, VERBS[target])(before.id)
    assert (refused.value.from_status, refused.value.to_status) == (status, target)
    assert refused.value.allowed == sorted(DEFAULT.allowed_from(status))
    assert ", ".join(refused.value.allowed or ["none"]) in str(refused.value)
    assert log_length(bus) == length


@pytest.mark.parametrize("status", ["active", "pending_review"])
def test_status_update_follows_the_table(page, status):
    before = add_with_status(page, status)
    after = page.update(before.id, status="resolved", content="done")
    assert (after.status, after.content, after.version) == ("resolved", "done", before.version + 2)
    page.archive(before.id)
    with pytest.raises(InvalidTransition):
        page.update(before.id, status="active")


def test_an_action_and_a_resolution_are_recorded_together_or_not_at_all(bus, page, connect):
    added = page.add("observation", "x")
    done = page.resolve(added.id, reason="frozen", action="freeze-1", expected_version=1, event_id="E")
    assert (done.status, done.links, done.reason, done.version) == ("resolved", ["freeze-1"], "frozen", 3)
    assert page.resolve(added.id, reason="frozen", action="freeze-1", expected_version=1, event_id="E") == done
    assert [event.kind for event in page.history(added.id)] == ["added", "linked", "status_changed"]
    assert [motive.id for motive in page.trace("freeze-1").motives] == [added.id]
    for other in ({"action": "freeze-2"}, {}, {"action": "freeze-1", "expected_version": None}):
        with pytest.raises(EventIdReused):
            page.resolve(added.id, **{"reason": "frozen", "expected_version": 1, "event_id": "E", **other})
    length = log_length(bus)
    with pytest.raises(InvalidTransition):
        page.resolve(added.id, action="freeze-3")
    claimed = page.add("observation", "y")
    with pytest.raises(VersionConflict) as raised:
        page.resolve(claimed.id, action="freeze-3", expected_version=2)
    assert (raised.value.expected, raised.value.actual) == (2, 1)
    fence = connect(source="executor").page().claim(claimed.id).fence
    with pytest.raises(Claimed):
        page.resolve(claimed.id, action="freeze-3")
    assert log_length(bus) == length + 2
    assert connect(source="executor").page().get(claimed.id).claim.fence == fence


def test_an_update_can_release_the_claim(bus, page):
    added = page.add("observation", "x")
    fence = page.claim(added.id).fence
    done = page.update(added.id, content="half done", fence=fence, release=True, event_id="E")
    assert (done.content, done.claim, done.version) == ("half done", None, 4)
    assert page.update(added.id, content="half done", fence=fence, release=True, event_id="E") == done
    with pytest.raises(EventIdReused):
        page.update(added.id, content="half done", fence=fence, event_id="E")
    length = log_length(bus)
    with pytest.raises(NotClaimed):
        page.update(added.id, content="done", release=True)
    with pytest.raises(InvalidField, match="release"):
        page.update(added.id, content="done", release="no")
    assert log_length(bus) == length


def test_an_update_that_closes_an_observation_needs_no_release(page):
    added = page.add("observation", "x")
    fence = page.claim(added.id).fence
    done = page.update(added.id, status="resolved", fence=fence, release=True, event_id="E")
    assert (done.status, done.claim, done.version) == ("resolved", None, 3)
    assert page.update(added.id, status="resolved", fence=fence, release=True, event_id="E") == done


def test_an_update_may_only_release_the_claim(bus, page):
    added = page.add("observation", "x")
    fence = page.claim(added.id).fence
    length = log_length(bus)
    with pytest.raises(VersionConflict):
        page.update(added.id, release=True, fence=fence, expected_version=1)
    assert log_length(bus) == length
    done = page.update(added.id, release=True, fence=fence, expected_version=2, event_id="E")
    assert (done.claim, done.version) == (None, 3)
    assert page.update(added.id, release=True, fence=fence, expected_version=2, event_id="E") == done


def test_content_and_status_change_together_or_not_at_all(bus, page):
    added = page.add("observation", "old")
    length = log_length(bus)
    with pytest.raises(InvalidTransition, match=r"item 2 of 2: .*; nothing was written"):
        page.update(added.id, content="new", status="active")
    assert page.get(added.id) == added
    assert log_length(bus) == length


def test_unknown_status_error_lists_the_valid_ones(page):
    added = page.add("observation", "x")
    with pytest.raises(InvalidField, match="use one of: active, archived, pending_review, resolved"):
        page.update(added.id, status="done")
    with pytest.raises(InvalidField, match="start with: active, pending_review"):
        page.add("observation", "x", status="resolved")


def test_a_transition_is_refused_from_a_status_whose_name_is_part_of_another(connect, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text(
        "types: {ticket: {lifecycle: tickets}}\nlifecycles:\n  tickets:\n"
        "    statuses: {new: open, renewed: open, done: closed}\n    initial: [new, renewed]\n"
        "    transitions: {new: [archived], renewed: [done], done: [archived]}\n"
    )
    page = connect(observation_types=file).page()
    new, renewed = page.add("ticket", "x"), page.add("ticket", "y", status="renewed")
    with pytest.raises(InvalidTransition):
        page.update(new.id, status="done")
    assert page.get(new.id) == new
    assert page.update(renewed.id, status="done").status == "done"


def test_archived_observation_cannot_be_changed(page):
    added = page.add("observation", "x")
    archived = page.archive(added.id)
    with pytest.raises(NotChangeable, match="is archived and cannot be updated"):
        page.update(added.id, content="y")
    with pytest.raises(NotChangeable, match="cannot be claimed"):
        page.claim(added.id)
    assert page.get(added.id) == archived


def test_resolved_observation_can_be_updated(page):
    added = page.add("observation", "x")
    page.resolve(added.id)
    assert page.update(added.id, content="y").content == "y"


def test_unknown_observation_is_not_found(bus, page):
    nobody = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    for change in (
        lambda: page.update(nobody, content="x"),
        lambda: page.resolve(nobody),
        lambda: page.claim(nobody),
        lambda: page.release(nobody),
        lambda: page.link(nobody, "goal-1"),
        lambda: page.clear_resolved([nobody]),
        lambda: page.history(nobody),
    ):
        with pytest.raises(NotFound, match=f"there is no {nobody} on page 'main'"):
            change()
    assert log_length(bus) == 0


def test_reopening_restarts_the_ttl(page, clock):
    added = page.add("observation", "x", ttl="1h")
    page.resolve(added.id)
    clock.advance("2h")
    reopened = page.reopen(added.id)
    assert reopened.expires_at - clock.now == timedelta(hours=1)
    assert page.get(added.id) == reopened


@pytest.mark.parametrize(
    "reopen",
    [Page.reopen, Page.review, lambda page, id: page.update(id, status="active")],
    ids=["reopen", "review", "update"],
)
def test_reopening_uses_the_expiry_given_last(page, clock, reopen):
    week = timedelta(days=7)
    for_ever = page.add("observation", "x", ttl="never")
    freed = page.add("observation", "x", ttl="1h")
    page.update(freed.id, expires_at=None)
    until = page.add("observation", "x", expires_at=clock.now + timedelta(days=1))
    moved = page.add("observation", "x", ttl="1h")
    page.update(moved.id, expires_at=clock.now + timedelta(days=1))
    repeated = page.add("observation", "x", dedupe_key="k", ttl="1h")
    page.add("observation", "x", dedupe_key="k", ttl="3h")
    of_its_type = page.add("observation", "x")
    ids = [for_ever.id, freed.id, until.id, moved.id, repeated.id, of_its_type.id]
    lives = [None, None, until.expires_at - clock.now, timedelta(days=1), timedelta(hours=3), week]
    begin = clock.now
    for id in ids:
        page.resolve(id)
    clock.advance("2h")
    for id, life in zip(ids, lives, strict=True):
        reopened = reopen(page, id)
        start = begin if id in (until.id, moved.id) else clock.now
        assert (reopened.expires_at, reopened.is_open) == (None if life is None else start + life, True)
        assert page.get(id) == reopened


def test_reopening_after_expires_at_uses_the_ttl_of_the_type(page, clock, monkeypatch):
    class Turned(datetime):
        @classmethod
        def now(cls, tz=None):
            return clock.now

    monkeypatch.setattr(execution, "datetime", Turned)
    observation = page.add("observation", "x", expires_at=clock.now + timedelta(hours=2))
    page.resolve(observation.id)
    clock.advance("2h")
    assert page.reopen(observation.id).expires_at == clock.now + timedelta(days=7)


def test_reopening_with_a_ttl_replaces_the_expiry(page, clock):
    added = page.add("observation", "x", ttl="1h")
    page.resolve(added.id)
    clock.advance("1h")
    assert page.reopen(added.id, ttl="5m").expires_at == clock.now + timedelta(minutes=5)
    page.resolve(added.id)
    clock.advance("1h")
    assert page.reopen(added.id).expires_at == clock.now + timedelta(minutes=5)
    page.resolve(added.id)
    assert page.reopen(added.id, ttl="never").expires_at is None
    with pytest.raises(InvalidTTL):
        page.reopen(added.id, ttl="soon")


@pytest.mark.parametrize("life", [timedelta(days=2), None])
def test_update_that_reopens_sets_its_own_expiry(page, clock, life):
    added = page.add("observation", "x", ttl="1h")
    page.resolve(added.id)
    end = None if life is None else clock.now + life
    reopened = page.update(added.id, status="active", expires_at=end)
    assert (reopened.status, reopened.expires_at) == ("active", end)
    assert page.get(added.id) == reopened
    clock.advance("2h")
    assert page.get(added.id).status == "active"
    clock.advance("2d")
    assert page.get(added.id).status == ("active" if life is None else "archived")


def test_retry_of_a_reopen_needs_the_same_ttl(page):
    added = page.add("observation", "x")
    page.resolve(added.id)
    reopened = page.reopen(added.id, ttl="1h", event_id="r-1")
    assert page.reopen(added.id, ttl="60m", event_id="r-1") == reopened
    with pytest.raises(EventIdReused):
        page.reopen(added.id, event_id="r-1")


def test_reopening_a_type_without_ttl_never_expires(page, clock):
    added = page.add("reminder", "x")
    page.resolve(added.id)
    clock.advance("2h")
    assert page.reopen(added.id).expires_at is None
    assert page.get(added.id).status == "active"


def test_review_and_reopen_keep_the_expiry(page):
    added = page.add("observation", "x", ttl="1h")
    page.review(added.id)
    assert page.reopen(added.id).expires_at == added.expires_at


@pytest.fixture
def tickets(bus, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text(TICKETS)
    bus.push_types(file)
    return bus.page("tickets")


def test_type_can_have_its_own_lifecycle(tickets):
    ticket = tickets.add("ticket", "broken")
    assert ticket.status == "new"
    with pytest.raises(InvalidTransition, match="from new it can become: archived, in_progress, rejected"):
        tickets.update(ticket.id, status="done")
    tickets.update(ticket.id, status="in_progress")
    done = tickets.update(ticket.id, status="done")
    assert (done.status, done.status_class, done.archive_at) == ("done", "closed", None)
    tickets.clear_resolved([ticket.id])
    assert tickets.get(ticket.id) is None


def test_verbs_follow_the_lifecycle_of_the_type(tickets):
    ticket = tickets.add("ticket", "broken", status="in_progress")
    with pytest.raises(InvalidField, match=r"has no 'resolved'; use update\(id, status=…\) with: done, rejected$"):
        tickets.resolve(ticket.id)
    with pytest.raises(InvalidField, match="has no 'pending_review'"):
        tickets.review(ticket.id)
    with pytest.raises(InvalidTransition):
        tickets.archive(ticket.id)
    assert tickets.reopen(ticket.id).status == "new"


def test_a_closed_observation_cannot_be_claimed(tickets):
    ticket = tickets.add("ticket", "broken")
    tickets.update(ticket.id, status="rejected")
    with pytest.raises(NotChangeable) as refused:
        tickets.claim(ticket.id)
    assert str(refused.value) == (
        f"{ticket.id} is rejected and cannot be claimed; it is closed; claim an open one, or reopen it if its lifecycle"
        " allows that"
    )


def test_open_statuses_of_any_name_are_active(tickets):
    ticket = tickets.add("ticket", "broken")
    assert tickets.active() == [ticket]
    assert tickets.list(status=["new"]) == [ticket]
    tickets.update(ticket.id, status="rejected")
    assert tickets.active() == []
