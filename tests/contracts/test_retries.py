"""A retry with the same event id writes nothing and returns the first result."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scratchbus import ItemChange, NewObservation
from scratchbus.commands import add
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.engine.steps import Interrupted
from scratchbus.errors import (
    EngineUnreachable,
    EventIdReused,
    InvalidField,
    InvalidId,
    InvalidTTL,
    LogRewound,
    NotFound,
    VersionConflict,
)
from scratchbus.eventlog import codec, raw_entries
from scratchbus.eventlog.bus_log import bounded_event_id
from tests.engines import ALL, ONE
from tests.faults.interposing import interposed
from tests.inspection import all_events, forget, log_length, project
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ALL, slow=("memory",))

PAST = datetime(2026, 1, 1, tzinfo=UTC)
FUTURE = datetime(2099, 1, 1, tzinfo=UTC)

# Each write, and another that must not pass for its retry.
WRITES = {
    "add": (
        lambda page, id, **more: page.add("observation", "new", **more),
        lambda page, id, **more: page.add("observation", "other", **more),
    ),
    "update": (
        lambda page, id, **more: page.update(id, content="new", tags=["a"], **more),
        lambda page, id, **more: page.update(id, content="other", **more),
    ),
    "update with status": (
        lambda page, id, **more: page.update(id, content="new", status="pending_review", **more),
        lambda page, id, **more: page.update(id, content="new", **more),
    ),
    "review": (
        lambda page, id, **more: page.review(id, reason="doubtful", **more),
        lambda page, id, **more: page.review(id, **more),
    ),
    "resolve": (
        lambda page, id, **more: page.resolve(id, **more),
        lambda page, id, **more: page.resolve(id, reason="done", **more),
    ),
    "archive": (
        lambda page, id, **more: page.archive(id, **more),
        lambda page, id, **more: page.resolve(id, **more),
    ),
    "claim": (
        lambda page, id, **more: page.claim(id, by="me", ttl="1m", **more),
        lambda page, id, **more: page.claim(id, by="you", ttl="1m", **more),
    ),
    "link": (
        lambda page, id, **more: page.link(id, "goal-1", **more),
        lambda page, id, **more: page.link(id, "goal-2", **more),
    ),
}


def each_write(page):
    """Yield each write, another that differs, an observation for both, and an event id."""
    for name, (write, other) in WRITES.items():
        yield write, other, page.add("observation", "old").id, f"once-{name.replace(' ', '-')}"


@pytest.fixture
def story(page):
    return page.add("observation", "old")


def test_a_retry_returns_the_first_result(bus, page):
    for write, _, id, once in each_write(page):
        first = write(page, id, event_id=once)
        length = log_length(bus)
        assert write(page, id, event_id=once) == first
        assert log_length(bus) == length


def test_an_event_id_of_another_write_is_refused(bus, page):
    for write, other, id, once in each_write(page):
        write(page, id, event_id=once)
        length = log_length(bus)
        with pytest.raises(EventIdReused, match=f"'{once}' was used before") as refused:
            other(page, id, event_id=once)
        assert refused.value.event_id == once
        assert log_length(bus) == length


def test_a_generated_event_id_is_refused_for_other_arguments(bus, page):
    """Generated ids have no digest; the arguments are compared with the event in the log."""
    for write, other, id, _ in each_write(page):
        first = write(page, id)
        made = all_events(bus)[-1]
        once = made.id.removesuffix("/status")
        length = log_length(bus)
        with pytest.raises(EventIdReused, match=f"'{once}' was used before"):
            other(page, id, event_id=once)
        assert write(page, id, event_id=once) == first
        assert log_length(bus) == length


@pytest.mark.parametrize(
    "others",
    [
        {"type": "risk_alert"},
        {"tags": ["b"]},
        {"context": {"k": 2}},
        {"metadata": {"m": 1}},
        {"ttl": "3h"},
        {"times": 2},
    ],
    ids=str,
)
def test_a_generated_event_id_is_refused_for_another_addition(bus, page, others):
    given = {"type": "observation", "content": "x", "tags": ["a"], "context": {"k": 1}, "ttl": "2h"}
    first = page.add(**given)
    once = all_events(bus)[-1].id
    with pytest.raises(EventIdReused):
        page.add(**given | others, event_id=once)
    assert page.add(**given, event_id=once) == first


@pytest.mark.parametrize(
    "given",
    [
        {"every": "1h"},
        {"expires_at": "in 2h"},
        {"remind_at": "in 2h"},
        {"not_before": "in 2h", "ttl": "1h"},
        {"not_before": PAST, "ttl": "1h"},
    ],
    ids=str,
)
def test_a_generated_event_id_accepts_an_addition_whose_times_follow_the_clock(page, given):
    first = page.add("observation", "x", **given)
    once = page.history(first.id)[0].id
    time.sleep(0.002)  # a millisecond later
    again = page.add("observation", "x", **given, event_id=once)
    assert (again.id, again.expires_at, again.remind_at) == (first.id, first.expires_at, first.remind_at)
    with pytest.raises(EventIdReused):
        page.add("observation", "y", **given, event_id=once)


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"every": "1h"}, {"every": "2h"}),
        ({}, {"expires_at": "in 2h"}),
        ({}, {"not_before": "in 2h"}),
        ({"ttl": "1h"}, {"not_before": FUTURE}),
        ({"not_before": FUTURE}, {"not_before": None}),
    ],
    ids=str,
)
def test_a_generated_event_id_accepts_an_update_whose_times_follow_the_clock(page, given, changes):
    id = page.add("observation", "x", **given).id
    first = page.update(id, **changes, tags=["a"])
    once = page.history(id)[-1].id
    time.sleep(0.002)  # a millisecond later
    assert page.update(id, **changes, tags=["a"], event_id=once) == first
    with pytest.raises(EventIdReused):
        page.update(id, **changes, tags=["b"], event_id=once)


def test_a_generated_event_id_accepts_a_fact_whose_time_follows_the_clock(bus):
    facts = bus.facts("s")
    first = facts.assert_fact("a", "uses", "b", valid_at="10m ago")
    once = all_events(bus)[-1].id
    time.sleep(0.002)  # a millisecond later
    assert facts.assert_fact("a", "uses", "b", valid_at="10m ago", event_id=once) == first
    with pytest.raises(EventIdReused):
        facts.assert_fact("a", "uses", "c", valid_at="10m ago", event_id=once)


def test_a_generated_event_id_accepts_a_reopened_recurrence(page):
    id = page.add("observation", "x", every="1h").id
    page.resolve(id)
    first = page.reopen(id)
    once = page.history(id)[-1].id.removesuffix("/schedule")
    page.update(id, every="2h")
    assert page.reopen(id, event_id=once) == first


@pytest.mark.parametrize("verb", ["reopen", "review", "update"])
@pytest.mark.parametrize("is_generated", [True, False])
def test_a_change_of_a_recurrence_can_be_retried_after_it_was_cleared(bus, page, verb, is_generated):
    id = page.add("observation", "x", every="1h").id
    page.resolve(id)
    once = bus.converse(bounded_event_id(bus.core.log, page.name)) if is_generated else "once"
    given = {"status": "active", "tags": ["t"]} if verb == "update" else {}
    first = getattr(page, verb)(id, event_id=once, **given)
    page.resolve(id)
    page.clear_resolved([id])
    length = log_length(bus)
    assert getattr(page, verb)(id, event_id=once, **given) == first
    assert log_length(bus) == length
    with pytest.raises(EventIdReused):
        page.resolve(id, event_id=once)


def test_a_shorter_update_is_no_retry_of_a_cleared_one(bus, page):
    id = page.add("observation", "x").id
    once = bus.converse(bounded_event_id(bus.core.log, page.name))
    page.update(id, tags=["t"], status="pending_review", event_id=once)
    page.resolve(id)
    page.clear_resolved([id])
    with pytest.raises(EventIdReused):
        page.update(id, tags=["t"], event_id=once)


ITEM = {"id": "1", "content": "a"}

# Edits of memories: the state before, the edit, and others that must not pass for its retry.
EDITS = {
    "note": (
        [],
        lambda bus, **more: bus.notes("s").add("a", tags=["t"], **more),
        [lambda bus, **more: bus.notes("s").add("a", tags=["u"], **more)],
    ),
    "append": (
        [lambda bus: bus.notepad("s").write("no line break")],
        lambda bus, **more: bus.notepad("s").update("append", content="a", **more),
        [lambda bus, **more: bus.notepad("s").update("append", content="b", **more)],
    ),
    "delete": (
        [lambda bus: bus.notepad("s").write("a b")],
        lambda bus, **more: bus.notepad("s").update("delete", content="a", **more),
        [
            lambda bus, **more: bus.notepad("s").update("delete", content="b", **more),
            lambda bus, **more: bus.notepad("s").update("delete", content="z", **more),
            lambda bus, **more: bus.notepad("s").update("delete", content="a", replace_all=True, **more),
        ],
    ),
    "find_replace": (
        [lambda bus: bus.notepad("s").write("a")],
        lambda bus, **more: bus.notepad("s").update("find_replace", find="a", replace="b", **more),
        [
            lambda bus, **more: bus.notepad("s").update("find_replace", find="a", replace="c", **more),
            lambda bus, **more: bus.notepad("s").update("find_replace", find="z", replace="b", **more),
        ],
    ),
    "a whole notepad": (
        [],
        lambda bus, **more: bus.notepad("s").write("a", **more),
        [lambda bus, **more: bus.notepad("s").write("b", **more)],
    ),
    "an added item": (
        [lambda bus: bus.todo("s").write([{"id": "0", "content": "before"}])],
        lambda bus, **more: bus.todo("s").write([ITEM], merge=True, **more),
        [
            lambda bus, **more: bus.todo("s").write([{"id": "2", "content": "b"}], merge=True, **more),
            lambda bus, **more: bus.todo("s").write([ITEM | {"content": "b"}], merge=True, **more),
            lambda bus, **more: bus.todo("s").write([ITEM | {"status": "completed"}], merge=True, **more),
            lambda bus, **more: bus.todo("s").write([{"id": "2", "status": "completed"}], merge=True, **more),
            lambda bus, **more: bus.todo("s").write([], merge=True, **more),
            lambda bus, **more: bus.todo("s").write([ITEM], **more),
            lambda bus, **more: bus.todo("s").write([ITEM], merge=True, revision=7, **more),
        ],
    ),
    "a completed item": (
        [lambda bus: bus.todo("s").write([ITEM, {"id": "2", "content": "b"}])],
        lambda bus, **more: bus.todo("s").write([{"id": "1", "status": "completed"}], merge=True, **more),
        [
            lambda bus, **more: bus.todo("s").write([{"id": "2", "status": "completed"}], merge=True, **more),
            lambda bus, **more: bus.todo("s").write([{"id": "1", "status": "cancelled"}], merge=True, **more),
        ],
    ),
    "a whole list": (
        [],
        lambda bus, **more: bus.todo("s").write([ITEM], **more),
        [
            lambda bus, **more: bus.todo("s").write([], **more),
            lambda bus, **more: bus.todo("s").write([ITEM, {"id": "2", "content": "b"}], **more),
            lambda bus, **more: bus.todo("s").write([{"id": "2", "content": "b"}], merge=True, **more),
        ],
    ),
    "a scratchpad": (
        [],
        lambda bus, **more: bus.scratchpad("tester").write("a", **more),
        [lambda bus, **more: bus.scratchpad("tester").write("b", **more)],
    ),
    "the end of a task": (
        [],
        lambda bus, **more: bus.end_task(_only_task(bus), summary="a", **more),
        [lambda bus, **more: bus.end_task(_only_task(bus), summary="b", **more)],
    ),
}


def _only_task(bus):
    tasks = [event for event in bus.events() if event.kind == "task_begun"]
    return f"{tasks[0].subject}@s" if tasks else bus.begin_task("s", "do it")


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("ends", [False, True], ids=["", "in an ended session"])
def test_a_generated_event_id_is_refused_for_another_memory_edit(connect, name, ends):
    """Generated ids have no digest, and the result of an edit depends on the state before it."""
    bus = connect("tester", kind="subagent")
    befores, edit, others = EDITS[name]
    for before in befores:
        before(bus)
    edit(bus)
    once = all_events(bus)[-1].id
    if ends:
        bus.end_session("s")
    length = log_length(bus)
    for other in others:
        with pytest.raises(EventIdReused):
            other(bus, event_id=once)
    edit(bus, event_id=once)
    assert log_length(bus) == length


def test_an_appended_line_can_be_retried_after_the_notepad_changed(bus):
    notepad = bus.notepad("s")
    notepad.append("a", line=True)
    once = all_events(bus)[-1].id
    notepad.write("no line break")
    notepad.append("a", line=True, event_id=once)
    assert notepad.read() == "no line break"
    with pytest.raises(EventIdReused):
        notepad.append("b", line=True, event_id=once)


def test_a_generated_event_id_of_a_deleted_note_is_for_the_same_edit(bus):
    notes = bus.notes("s")
    note = notes.add("a").note.id
    notes.update(note, content="b")
    updated = all_events(bus)[-1].id
    notes.delete(note)
    deleted = all_events(bus)[-1].id
    for other in (
        lambda: notes.update(note, content="c", event_id=updated),
        lambda: notes.update(note, tags=["t"], event_id=updated),
        lambda: notes.update(note, content="b", event_id=deleted),
        lambda: notes.delete(note, event_id=updated),
    ):
        with pytest.raises(EventIdReused):
            other()
    assert notes.update(note, content="b", event_id=updated).note.content == "b"
    assert notes.delete(note, event_id=deleted).note.content == "b"


def test_a_generated_event_id_of_a_repeat_is_for_the_same_key(bus, page):
    page.add("observation", "x", dedupe_key="k")
    second = page.add("observation", "x", dedupe_key="k")
    once, length = all_events(bus)[-1].id, log_length(bus)
    for other in ({"dedupe_key": "l"}, {}, {"dedupe_key": "k", "times": 2}):
        with pytest.raises(EventIdReused):
            page.add("observation", "x", event_id=once, **other)
    assert page.add("observation", "x", dedupe_key="k", event_id=once) == second
    assert log_length(bus) == length


def test_a_generated_event_id_of_claim_next_is_for_the_same_filters(bus, page):
    page.add("observation", "x", tags=["a"])
    page.add("risk_alert", "y", tags=["b"])
    first = page.claim_next(types=["observation"], tags=["a"])
    once = all_events(bus)[-1].id
    for other in ({"types": ["risk_alert"]}, {"tags": ["b"]}, {"types": ["observation"], "ttl": "1h"}):
        with pytest.raises(EventIdReused):
            page.claim_next(event_id=once, **other)
    assert page.claim_next(types=["observation"], tags=["a"], event_id=once).observation == first.observation


def test_the_event_id_of_an_erasure_is_for_the_same_reason(bus, page):
    for event_id in (None, "once"):
        id = page.add("observation", "x").id
        tombstone = page.erase(id, reason="a slip", event_id=event_id)
        with pytest.raises(EventIdReused):
            page.erase(id, reason="another", event_id=tombstone.id)
        assert page.erase(id, reason="a slip", event_id=tombstone.id) == tombstone


def link(page, id):
    page.link(id, "later")


def archive(page, id):
    page.archive(id)


def clear(page, id):
    if page.get(id).status != "resolved":
        page.resolve(id)
    page.clear_resolved([id])


@pytest.mark.parametrize("later", [link, archive, clear])
def test_a_late_retry_returns_the_first_result(bus, page, later):
    for write, _, id, once in each_write(page):
        first = write(page, id, event_id=once)
        subject = first.id if hasattr(first, "id") else id
        if page.get(subject).status == "archived":
            continue
        if page.get(subject).claim is not None:
            page.release(subject, by="me")
        later(page, subject)
        length = log_length(bus)
        assert write(page, id, event_id=once) == first
        assert log_length(bus) == length


def test_another_client_can_retry(connect):
    first = connect("one").page().resolve(connect().page().add("observation", "x").id, event_id="once")
    assert connect("one").page().resolve(first.id, event_id="once") == first


def test_a_retried_release_returns_the_first_result(page, story):
    claim = page.claim(story.id)
    released = page.release(story.id, event_id="once")
    page.claim(story.id)
    assert page.release(story.id, event_id="once") == released
    assert page.get(story.id).claim.fence == claim.fence + 1


def test_a_retried_reopen_returns_the_first_result(page, story):
    page.resolve(story.id)
    reopened = page.reopen(story.id, event_id="once")
    page.resolve(story.id)
    assert page.reopen(story.id, event_id="once") == reopened
    assert page.get(story.id).status == "resolved"


def test_a_retried_clear_changes_nothing(bus, page, story):
    other = page.add("observation", "other")
    for one in (story, other):
        page.resolve(one.id)
    page.clear_resolved([story.id, other.id], event_id="once")
    length = log_length(bus)
    page.clear_resolved([story.id, other.id], event_id="once")
    assert log_length(bus) == length
    with pytest.raises(EventIdReused):
        page.clear_resolved([story.id], event_id="once")


def test_a_retried_repeat_is_counted_once(page):
    page.add("observation", "x", dedupe_key="k")
    second = page.add("observation", "x", dedupe_key="k", event_id="once")
    page.add("observation", "x", dedupe_key="k")
    assert page.add("observation", "x", dedupe_key="k", event_id="once") == second
    assert page.list()[0].occurrences == 3


def test_a_retried_addition_displaces_nothing_more(connect):
    page = connect(max_observations=1).page()
    page.add("observation", "old")
    first = page.add("observation", "new", event_id="once")
    assert page.add("observation", "new", event_id="once") == first
    assert page.active() == [first]


def batch(*contents):
    return [NewObservation(type="observation", content=content) for content in contents]


@contextmanager
def others_writing(bus, page, id):
    """Let others link the observation right before the next write and right after it."""
    other = bus.page(page.name)
    at_work = [False]

    def around(call, send):
        if not call.is_write or at_work[0]:
            return send()
        at_work[0] = True
        other.link(id, "before")
        replies = send()
        other.link(id, "after")
        return replies

    with interposed(bus, around):
        yield


CONTESTED = {
    "repeated": lambda page, id: page.add("observation", "old", dedupe_key="k", event_id="once"),
    "update": lambda page, id: page.update(id, content="new", event_id="once"),
    "update with status": lambda page, id: page.update(id, content="new", status="pending_review", event_id="once"),
    "resolve": lambda page, id: page.resolve(id, event_id="once"),
    "link": lambda page, id: page.link(id, "mine", event_id="once"),
}


@pytest.mark.parametrize("projects", [False, True], ids=["unfolded", "folded"])
@pytest.mark.parametrize("write", CONTESTED.values(), ids=CONTESTED)
def test_a_result_omits_later_writes(bus, page, write, projects):
    id = page.add("observation", "old", dedupe_key="k").id
    if projects:
        project(bus)
    with others_writing(bus, page, id):
        first = write(page, id)
    assert first.links[:1] == ["before"]
    assert "after" not in first.links
    assert page.get(id).links[-1] == "after"
    assert write(page, id) == first


def test_concurrent_repeats_count_up_one_by_one(connect):
    connect().page().add("observation", "seen", dedupe_key="k")

    def repeat(source):
        page = connect(source).page()
        return [page.add("observation", "seen", dedupe_key="k").occurrences for _ in range(25)]

    with ThreadPoolExecutor(4) as threads:
        counts = [count for counted in threads.map(repeat, "abcd") for count in counted]
    assert sorted(counts) == list(range(2, 102))


def test_a_retried_batch_returns_the_first_one(bus, page):
    first = page.add_many(batch("a", "b"), event_id="once")
    assert page.add_many(batch("a", "b"), event_id="once") == first
    assert log_length(bus) == 2


def test_a_retried_batch_with_a_repeated_key_returns_the_first_result(page):
    items = [NewObservation(type="observation", content=content, dedupe_key="k") for content in "abc"]
    first = page.add_many(items, event_id="once")
    assert [each.occurrences for each in first] == [3, 3, 3]
    assert page.add_many(items, event_id="once") == first


@pytest.mark.parametrize("others", [("a",), ("a", "b", "c"), ("b", "a")])
def test_another_batch_with_the_same_id_is_refused(bus, page, others):
    page.add_many(batch("a", "b"), event_id="once")
    with pytest.raises(EventIdReused):
        page.add_many(batch(*others), event_id="once")
    assert log_length(bus) == 2


def test_a_batch_of_one_can_be_retried_as_an_addition(page):
    (first,) = page.add_many(batch("a"), event_id="once")
    assert page.add("observation", "a", event_id="once") == first


def named(*ids):
    return [NewObservation(type="observation", content=id, event_id=id) for id in ids]


def test_batch_items_can_have_their_own_event_ids(bus, page):
    first = page.add_many(named("a", "b"))
    assert page.add_many(named("a", "b")) == first
    assert page.add("observation", "b", event_id="b") == first[1]
    for given, number in ((("b", "c"), 1), (("c", "b"), 2)):
        reason = f"item {number} of 2: event id 'b' was used before, but 'c', of the same batch, was not; .*; nothing"
        with pytest.raises(EventIdReused, match=reason) as refused:
            page.add_many(named(*given))
        assert (refused.value.event_id, vars(refused.value)["index"]) == ("b", number - 1)
    assert log_length(bus) == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_generated_event_id_anywhere_in_a_batch_is_found(bus, page, order):
    first = page.add("observation", "x")
    generated = page.history(first.id)[0].id
    given = [(generated, "x"), ("mine", "y")]
    items = [NewObservation(type="observation", content=given[n][1], event_id=given[n][0]) for n in order]
    with pytest.raises(EventIdReused, match=f"event id '{generated}' was used before, but 'mine', of the same batch,"):
        page.add_many(items)
    assert log_length(bus) == 1


def test_a_retried_batch_of_which_an_observation_was_erased_says_so(bus, page):
    first = page.add_many(batch("a", "b"))
    generated = page.history(first[0].id)[0].id
    page.erase(first[1].id, reason="asked for")
    with pytest.raises(NotFound, match="was erased"):
        page.add_many(batch("a", "b"), event_id=generated)


def test_a_longer_batch_is_no_part_of_the_one_with_its_event_id(bus, page):
    generated = page.history(page.add_many(batch("a", "b"))[0].id)[0].id
    with pytest.raises(EventIdReused, match=f"event id '{generated}' was used before with other arguments"):
        page.add_many(batch("a", "b", "c"), event_id=generated)
    assert log_length(bus) == 2


@pytest.mark.parametrize("order", ["own, own", "own, new", "new, own", "new, new"])
def test_a_batch_with_ids_of_any_kind_is_recognised_after_its_end(bus, page, monkeypatch, order):
    page.add("observation", "w")
    end = datetime(2090, 1, 1, tzinfo=UTC)
    ids = [
        bus.converse(bounded_event_id(bus.core.log, page.name)) if kind == "new" else f"{number}"
        for number, kind in enumerate(order.split(", "))
    ]
    items = [NewObservation(type="observation", content=id, event_id=id, expires_at=end) for id in ids]
    first, has_passed = page.add_many(items), datetime.now(UTC)

    def check_end(end, now):
        if now > has_passed:
            raise InvalidTTL("it has passed")
        return end

    monkeypatch.setattr(add, "check_end", check_end)
    assert page.add_many(items) == first
    items[1] = items[1].model_copy(update={"content": "other"})
    with pytest.raises(InvalidTTL if order == "own, own" else EventIdReused):
        page.add_many(items)
    assert log_length(bus) == 3


def test_event_ids_for_half_a_batch_are_refused(bus, page):
    for given, whole in ((named("a") + batch("b"), None), (named("a"), "once")):
        with pytest.raises(InvalidField, match="event_id"):
            page.add_many(given, event_id=whole)
    assert log_length(bus) == 0


def test_an_event_id_used_on_another_page_is_refused(connect):
    bus = connect()
    pages = [bus.page(name) for name in ("a", "b") if bus.core.log.shards == 1] or [bus.page("main"), bus.page("other")]
    pages[0].add("observation", "x", event_id="once")
    with pytest.raises(EventIdReused):
        pages[1].add("observation", "x", event_id="once")


@pytest.mark.engines("memory")
def test_an_invalid_event_id_is_refused(bus, page):
    for write, _, id, _ in each_write(page):
        length = log_length(bus)
        for bad in ("", "with space", "é", "x" * 201, "line\n", 5):
            with pytest.raises(InvalidId, match="event_id"):
                write(page, id, event_id=bad)
        assert log_length(bus) == length


def test_a_batch_accepts_the_longest_event_id(page):
    assert len(page.add_many(batch("a", "b"), event_id="x" * 200)) == 2


def test_an_event_id_can_have_any_printable_ascii(bus, page):
    id = "".join(chr(code) for code in range(0x21, 0x7F))
    first = page.add("observation", "x", event_id=id)
    project(bus)
    assert page.list() == [first]
    assert page.add("observation", "x", event_id=id) == first


def test_a_retry_succeeds_despite_a_changed_version(page, story):
    first = page.update(story.id, content="new", expected_version=1, event_id="once")
    assert page.update(story.id, content="new", expected_version=1, event_id="once") == first
    with pytest.raises(VersionConflict):
        page.update(story.id, content="new", expected_version=1)


def test_a_refused_write_leaves_its_event_id_free(page, story):
    with pytest.raises(VersionConflict):
        page.update(story.id, content="new", expected_version=7, event_id="once")
    assert page.update(story.id, content="new", event_id="once").content == "new"


def test_events_have_the_callers_event_id(bus, page, story):
    page.update(story.id, content="new", status="resolved", event_id="once")
    assert [event.id for event in all_events(bus)[1:]] == ["once", "once/status"]


END = datetime(2099, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"ttl": "1h"}, {"ttl": 3600}),
        ({"ttl": "60m"}, {"ttl": timedelta(hours=1)}),
        ({"expires_at": END}, {"expires_at": "2099-01-31T13:00:00+01:00"}),
        ({"tags": ["a", "b"]}, {"tags": ("a", "b")}),
        ({"confidence": 1}, {"confidence": 1.0}),
        ({"context": {"a": (1, 2)}}, {"context": {"a": [1, 2]}}),
    ],
)
def test_a_retry_accepts_equal_arguments_in_another_form(bus, page, first, again):
    added = page.add("observation", "x", event_id="once", **first)
    assert page.add("observation", "x", event_id="once", **again) == added
    if "ttl" not in first:
        updated = page.update(added.id, event_id="update", **first)
        assert page.update(added.id, event_id="update", **again) == updated
        assert log_length(bus) == 2


def test_explicit_arguments_differ_from_omitted_ones(page):
    page.add("observation", "x", event_id="once")
    others: list[dict[str, Any]] = [{"ttl": "never"}, {"ttl": "7d"}, {"tags": []}]
    for other in others:
        with pytest.raises(EventIdReused):
            page.add("observation", "x", event_id="once", **other)


SIGHTINGS = 80


@pytest.fixture
def sightings(bus, page):
    """An observation with many repeats, and a function that retries one of them."""

    def see(n):
        return page.add("observation", "x", dedupe_key="k", event_id=f"sighting-{n}")

    first = [see(n) for n in range(SIGHTINGS)]
    project(bus)
    return see, first


@pytest.fixture
def decoded(monkeypatch):
    """The ids of the events that are decoded while the test runs."""
    ids: list[str] = []

    decode = codec.decode_bodies

    def counting(entries, shard, *rest):
        ids.extend(map(raw_entries.entry_id, entries))
        return decode(entries, shard, *rest)

    monkeypatch.setattr(codec, "decode_bodies", counting)
    return ids


@pytest.mark.engines(*ONE)
def test_a_retry_does_not_decode_later_events(sightings, decoded):
    see, first = sightings
    assert see(0) == first[0]
    assert len(decoded) == 1
    assert see(1) == first[1]
    assert len(decoded) <= 4


@pytest.mark.engines(*ONE)
def test_a_retry_of_the_last_event_decodes_only_that(sightings, decoded):
    see, first = sightings
    assert see(SIGHTINGS - 1) == first[-1]
    assert len(decoded) == 1


@pytest.mark.slow
@pytest.mark.engines(*ONE)
def test_retries_in_sequence_decode_a_few_events_each(sightings, decoded):
    see, first = sightings
    assert [see(n) for n in range(SIGHTINGS)] == first
    assert len(decoded) <= 10 * SIGHTINGS
    assert [see(n) for n in reversed(range(SIGHTINGS))] == first[::-1]


def test_changing_a_result_does_not_change_the_next(page, story):
    changed = page.update(story.id, context={"a": [1]}, event_id="once")
    page.link(story.id, "later")
    page.update(story.id, event_id="once", context={"a": [1]}).context["a"].append(2)
    assert page.update(story.id, event_id="once", context={"a": [1]}) == changed


def test_a_retry_during_a_flush_raises_log_rewound(bus, page, connect):
    page.add("observation", "once", event_id="e")

    def flush_behind(call, send):
        replies = send()
        if call.is_write:
            forget(another)
        return replies

    another = connect()
    with interposed(bus, flush_behind), pytest.raises(LogRewound, match="try again"):
        page.add("observation", "once", event_id="e")
    page.add("observation", "once", event_id="e")
    assert log_length(bus) == 1


def test_callers_whose_items_were_put_together_retry_with_ids_of_their_own(bus):
    items = bus.items("s")
    items.put(("a",), "first", {"n": 0})  # loads the scripts
    bus.core.log.patience = 0
    is_held, may_go, errors = threading.Event(), threading.Event(), dict[int, EngineUnreachable]()

    def around(call, send):
        replies = send()
        if call.is_write and is_held.is_set():
            raise Interrupted("the test lost the reply")
        if call.is_write:
            is_held.set()
            may_go.wait(10)
        return replies

    def put(number):
        try:
            items.put(("a",), f"{number}", {"n": number})
        except EngineUnreachable as error:
            errors[number] = error

    with interposed(bus, around):
        threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
        threads[0].start()
        is_held.wait(10)
        for each in threads[1:]:
            each.start()
        eventually(lambda: sum(map(len, bus.core.queues._waiting.values())) == 3)
        may_go.set()
        for each in threads:
            each.join()
    assert sorted(errors) == [1, 2, 3]
    length = log_length(bus)
    for number in (3, 2, 1):
        items.put(("a",), f"{number}", {"n": number}, event_id=errors[number].event_id)
    assert log_length(bus) == length


def test_a_retried_use_of_items_writes_nothing(bus):
    items = bus.items("s")
    items.write([ItemChange(("a",), key, {"n": 1}, ttl=3_600_000) for key in "xyz"])
    used = [items.read().get(("a",), key) for key in "xyz"]
    assert items.use(used, event_id="once") == 3
    length = log_length(bus)
    assert items.use(used, event_id="once") == 3
    assert log_length(bus) == length
    with pytest.raises(EventIdReused, match="'once' was used before"):
        items.use(used[:2], event_id="once")
    with pytest.raises(EventIdReused, match="'once' was used before"):
        items.put(("a",), "x", {"n": 1}, event_id="once")
    assert log_length(bus) == length


@pytest.mark.engines(*ONE)
def test_a_refused_addition_of_a_type_published_since_says_why(bus, page, connect):
    other = connect().page(page.name)
    bus.push_types(parse_registry("types: {brand_new: }", "types"))
    once = bus.converse(bounded_event_id(bus.core.log, page.name))
    with pytest.raises(InvalidTTL, match="expires_at"):
        other.add("brand_new", "x", expires_at=PAST, event_id=once)


@pytest.mark.parametrize("count", [1, 2])
def test_plain_additions_that_arrive_twice_are_written_once(bus, page, count):
    page.add("observation", "first")
    again = []

    def twice(call, send):
        replies = send()
        if call.is_write:
            again.extend(send())
        return replies

    with interposed(bus, twice):
        page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(count)])
    assert again == [[b"other"]]
    assert log_length(bus) == 1 + count
