"""Closed observations whose status the lifecycle of their type no longer has can be archived and cleared, only that."""

from datetime import timedelta
from functools import partial

import pytest

from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.errors import InvalidField, InvalidTransition, NotChangeable
from scratchbus.readmodel import scope
from scratchbus.scheduling.expiry import sweep
from tests.cases import case
from tests.engines import ONE
from tests.inspection import assert_sound, log_length

pytestmark = pytest.mark.engines(*ONE)

STATUSES = ("archived", "done", "new", "void", "resolved", "active", "pending_review")


def lifecycle(statuses, **transitions):
    """Return a types file in which tickets have this lifecycle."""
    table = "".join(f"        {status}: [{', '.join(targets)}]\n" for status, targets in transitions.items())
    return (
        "types:\n  observation: {}\n  ticket:\n    auto_archive_after: 1h\n    lifecycle:\n"
        f"      statuses: {{{statuses}}}\n      initial: [new]\n      transitions:\n{table}"
    )


TICKETS = lifecycle(
    "new: open, done: closed, void: closed",
    new=["done", "void", "archived"],
    done=["new", "void", "archived"],
    void=["done"],
)
TO_VOID = {"new": ["void", "archived"], "void": ["archived"]}
NOW_OPEN = lifecycle(
    "new: open, done: open, void: closed",
    new=["done", "void", "archived"],
    done=["new", "void", "archived"],
    void=["archived"],
)

LEFTOVERS = {
    "done was removed": (TICKETS, "done", lifecycle("new: open, void: closed", **TO_VOID)),
    "done is open": (TICKETS, "done", NOW_OPEN),
    "done is open and cannot be archived": (TICKETS, "done", NOW_OPEN.replace("new, void, archived]", "new, void]")),
    "done is final": (TICKETS, "done", lifecycle("new: open, done: final, void: closed", **TO_VOID)),
    "the type was removed": (TICKETS, "done", "types:\n  observation: {}\n"),
    "the type left the default lifecycle": ("types:\n  ticket: {auto_archive_after: 1h}\n", "resolved", TICKETS),
    "the type returned to it": (TICKETS, "void", "types:\n  ticket: {}\n"),
}
"""The types when an observation was closed, the status that it got, and the types now."""


@pytest.fixture
def push(tmp_path):
    """Publish a text as the registry of a bus."""

    def push(bus, text):
        file = tmp_path / "types.yaml"
        file.write_text(text)
        bus.push_types(file)

    return push


@pytest.fixture(params=LEFTOVERS)
def leave(request, bus, page, push):
    """Return a function that returns the ids of closed observations, whose status their lifecycle then lacks."""
    before, status, now = LEFTOVERS[request.param]

    def leave(count):
        push(bus, before)
        ids = [page.add("ticket", "x").id for _ in range(count)]
        for id in ids:
            page.update(id, status=status)
        push(bus, now)
        return ids

    return leave


def lifecycle_now(bus):
    """Return the lifecycle of tickets."""
    kind = bus.types.types.get("ticket")
    return DEFAULT if kind is None else kind.lifecycle


OPERATIONS = {
    "archive": lambda page, id, clock: page.archive(id, reason="old"),
    "archive by an update": lambda page, id, clock: page.update(id, status="archived"),
    "archive with a change": lambda page, id, clock: page.update(id, content="y", status="archived"),
    "archive at a version": lambda page, id, clock: page.archive(id, expected_version=2),
    "clear": lambda page, id, clock: page.clear_resolved([id]),
}
REFUSED = {
    "reopen": lambda page, id, clock: page.reopen(id),
    "reopen with a lifetime": lambda page, id, clock: page.reopen(id, ttl="1h"),
    "remind": lambda page, id, clock: page.update(id, remind_at=clock.now + timedelta(days=1)),
    "schedule": lambda page, id, clock: page.update(id, not_before=clock.now + timedelta(days=1)),
    "unschedule": lambda page, id, clock: page.update(id, not_before=None),
}


def test_leftovers_can_be_archived_and_cleared(bus, page, clock, leave):
    ids = leave(len(OPERATIONS) + 1)
    for (name, operation), id in zip(OPERATIONS.items(), ids, strict=False):
        with case(name):
            operation(page, id, clock)
            left = page.get(id)
            assert left is None if name == "clear" else (left.status, left.status_class) == ("archived", "final")
            assert page.history(id)[-1].kind == ("cleared" if name == "clear" else "status_changed")
    clock.advance("1h")
    assert bus.converse(sweep(bus.core)) == 1
    assert page.get(ids[-1]).reason_code == "auto_archived"


def test_leftovers_cannot_be_changed_otherwise(bus, page, clock, leave):
    (id,) = leave(1)
    before, length = page.get(id), log_length(bus)
    for name, operation in REFUSED.items():
        with case(name):
            assert_refused(lambda operation=operation: operation(page, id, clock))
    for status in STATUSES:
        with case(status):
            if status not in lifecycle_now(bus).statuses:
                assert_names_the_statuses(bus, page, id, status)
            elif status != "archived":
                assert_refused(lambda status=status: page.update(id, status=status))
    assert (page.get(id), log_length(bus)) == (before, length)


def assert_refused(operation):
    advice = "the lifecycle of its type no longer has this closed status, so it can only be archived or cleared"
    with pytest.raises(InvalidTransition, match=advice) as refused:
        operation()
    assert refused.value.allowed == ["archived"]


def assert_names_the_statuses(bus, page, id, status):
    with pytest.raises(InvalidField) as refused:
        page.update(id, status=status)
    assert str(refused.value).endswith("use one of: " + ", ".join(sorted(lifecycle_now(bus).statuses)))


def test_leftovers_are_auto_archived_at_the_time_set_when_they_were_closed(bus, page, clock, leave):
    (id,) = leave(1)
    end = page.get(id).archive_at
    with pytest.raises(NotChangeable):
        page.update(id, remind_at=clock.now + timedelta(days=1))
    changed = page.update(id, content="y", expires_at=clock.now + timedelta(days=1))
    assert (changed.archive_at, changed.remind_at) == (end, None)
    assert_sound(bus)
    clock.advance("59m")
    assert bus.converse(sweep(bus.core)) == 0
    clock.advance("1m")
    assert bus.converse(sweep(bus.core)) == 1
    assert page.get(id).reason_code == "auto_archived"


def test_retries_find_what_was_done_before_and_after_the_status_was_dropped(bus, page, push):
    push(bus, TICKETS)
    first, second = (page.add("ticket", "x").id for _ in range(2))
    done = page.update(first, status="done", event_id="done")
    page.update(second, status="done")
    push(bus, NOW_OPEN)
    assert page.update(first, status="done", event_id="done") == done
    archived = page.archive(first, event_id="archived")
    assert page.archive(first, event_id="archived") == archived
    page.clear_resolved([second], event_id="cleared")
    length = log_length(bus)
    page.clear_resolved([second], event_id="cleared")
    assert log_length(bus) == length


def test_leftovers_are_cleared_together_with_those_of_the_lifecycle(bus, page, push):
    push(bus, TICKETS)
    leftover, resolved = page.add("ticket", "x"), page.add("observation", "z")
    page.update(leftover.id, status="done")
    page.resolve(resolved.id)
    push(bus, NOW_OPEN)
    open_one = page.add("ticket", "y")
    page.update(open_one.id, status="done")
    with pytest.raises(NotChangeable, match="from done it can become: archived, new, void"):
        page.clear_resolved([leftover.id, open_one.id])
    page.clear_resolved([leftover.id, resolved.id])
    assert [each.id for each in page.list(status="done")] == [open_one.id]


def test_a_closed_status_that_the_lifecycle_has_follows_it(bus, page, push):
    push(bus, TICKETS)
    ticket = page.add("ticket", "x")
    page.update(ticket.id, status="void")
    push(bus, TICKETS.replace("new: open", "new: open, odd: final"))
    with pytest.raises(InvalidTransition, match="from void it can become: done"):
        page.archive(ticket.id)
    assert page.update(ticket.id, status="done").status == "done"


@pytest.mark.parametrize("now", ["open", "closed"])
def test_a_final_status_stays_final(bus, page, push, now):
    push(bus, TICKETS.replace("void: closed", "void: final").replace("        void: [done]\n", ""))
    ticket = page.add("ticket", "x")
    page.update(ticket.id, status="void")
    push(bus, TICKETS.replace("void: closed", f"void: {now}"))
    to_done = partial(page.update, status="done")
    for operation in (page.archive, page.reopen, to_done, lambda id: page.clear_resolved([id])):
        with pytest.raises(InvalidTransition, match="from void it can become: none"):
            operation(ticket.id)


def test_an_open_status_that_the_lifecycle_lacks_opens_nothing(bus, page, push, monkeypatch):
    push(bus, TICKETS)
    ticket = page.add("ticket", "x")

    def missed(log, name):
        yield from ()
        return 0

    monkeypatch.setattr(scope, "count_open", missed)  # as if it had been added right after the check
    push(bus, "types:\n  observation: {}\n")
    for operation in (page.archive, page.resolve, lambda id: page.clear_resolved([id])):
        with pytest.raises(InvalidTransition, match="from new it can become: none"):
            operation(ticket.id)
