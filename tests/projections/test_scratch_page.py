"""The fold of the Scratch Page, tested with plain events, without an engine, a clock or a registry."""

from datetime import UTC, datetime, timedelta

import pytest

from scratchbus.domain.events import (
    Added,
    Changes,
    Claimed,
    Cleared,
    Due,
    Event,
    Lapsed,
    Linked,
    Released,
    Repeated,
    StatusChanged,
    TypesChanged,
    Updated,
)
from scratchbus.domain.observation import Claim
from scratchbus.domain.values import moment
from scratchbus.projections.folded_changes import CHANGES
from scratchbus.projections.projection import FoldError, damage
from scratchbus.projections.scratch_page import evolve, index_entries, next_moment, settled

START = 1_800_000_000_000
"""The time of the first event, in milliseconds."""


def fold(*events, step=1000):
    """Fold events, one a second, into an observation; folding in place must give the same."""
    observation = changed = None
    for number, event in enumerate(events):
        placed = event.placed(
            id=f"e{number}", page="main", subject="S", type="t", ms=START + number * step, seq=number + 1
        )
        observation, changed = evolve(observation, placed), evolve(changed, placed, in_place=True)
        assert changed == observation
    return observation


def added(**more):
    return Added(content="x", by="tool", **more)


def status(to, **more):
    classes = {"active": "open", "pending_review": "open", "resolved": "closed", "archived": "final"}
    return StatusChanged(status=to, status_class=classes[to], reason_code="changed", by="tool", **more)


def test_an_added_observation_has_version_one():
    one = fold(added(source="other", tags=["a"], priority=70, times=3, ttl=60_000, dedupe_key="k"))
    assert (one.id, one.page, one.type, one.version, one.position.seq) == ("S", "main", "t", 1, 1)
    assert (one.source, one.tags, one.priority, one.occurrences, one.dedupe_key) == ("other", ["a"], 70, 3, "k")
    assert one.created_at == one.updated_at == moment(START)
    assert one.expires_at == moment(START + 60_000)
    assert (one.links, one.claim, one.damaged) == ([], None, False)


def test_the_source_defaults_to_the_author():
    assert fold(added()).source == "tool"


def test_every_event_moves_version_and_position():
    one = fold(added(), Linked(action="a", by="x"), Released(by="x"), Lapsed(by="x"))
    assert (one.version, one.seq, one.updated_at) == (4, 4, moment(START + 3000))
    assert one.created_at == moment(START)


def test_an_update_replaces_the_named_fields():
    end = datetime(2100, 1, 1, tzinfo=UTC)
    changes: Changes = {"content": "y", "tags": [], "owner": None, "expires_at": end}
    one = fold(added(tags=["a"], owner="o", ttl=1000), Updated(changes=changes, by="x"))
    assert (one.content, one.tags, one.owner, one.expires_at) == ("y", [], None, end)


def test_a_repeat_counts_and_prolongs():
    one = fold(added(ttl=60_000, evidence=["a"]), Repeated(times=4, ttl=60_000, evidence=["b", "a"], by="x"))
    assert (one.occurrences, one.evidence) == (5, ["a", "b"])
    assert one.expires_at == moment(START + 61_000)
    assert fold(added(ttl=60_000), Repeated(by="x")).expires_at == moment(START + 60_000)


def test_closing_ends_claim_and_reminder():
    one = fold(
        added(remind_on={"type": "x"}, remind_at=moment(START + 5000)),
        Claimed(holder="h", ttl=9000, by="x"),
        status("resolved", reason="done", archive_after=3_600_000),
    )
    assert (one.claim, one.remind_at, one.remind_on, one.fence) == (None, None, None, 1)
    assert (one.status, one.status_class, one.reason) == ("resolved", "closed", "done")
    assert one.archive_at == moment(START + 2000 + 3_600_000)


def test_reopening_sets_a_new_expiry_or_none():
    closed = [added(ttl=1000), status("resolved", archive_after=1000)]
    assert fold(*closed, status("active", ttl=60_000)).expires_at == moment(START + 62_000)
    reopened = fold(*closed, status("active", ttl=0))
    assert (reopened.expires_at, reopened.archive_at, reopened.status_class) == (None, None, "open")


def test_review_keeps_claim_reminder_and_expiry():
    one = fold(
        added(ttl=60_000, remind_on={"type": "x"}), Claimed(holder="h", ttl=9000, by="x"), status("pending_review")
    )
    assert (one.claim.by, one.remind_on, one.expires_at) == ("h", {"type": "x"}, moment(START + 60_000))


def test_fences_grow_with_claims_but_not_with_renewals():
    first = Claimed(holder="a", ttl=1000, by="x")
    one = fold(added(), first, Claimed(holder="a", ttl=5000, fence=1, by="x"))
    assert one.claim == Claim(by="a", fence=1, until=moment(START + 7000))
    assert fold(added(), first, Lapsed(by="x"), Claimed(holder="b", ttl=1, by="x")).claim.fence == 2
    assert fold(added(), first, Released(by="x")).claim is None


def test_an_action_is_linked_once():
    one = fold(added(), Linked(action="a", by="x"), Linked(action="b", by="x"), Linked(action="a", by="x"))
    assert one.links == ["a", "b"]


def test_a_due_reminder_no_longer_waits():
    one = fold(added(remind_at=moment(START + 1), remind_on={"type": "x"}), Due(by="x"))
    assert (one.due_at, one.remind_at, one.remind_on) == (moment(START + 1000), None, None)


def test_a_cleared_observation_is_gone():
    assert fold(added(), status("resolved"), Cleared(by="x")) is None


def test_events_that_are_not_about_observations_change_nothing():
    assert fold(TypesChanged(text="", by="x")) is None
    one = fold(added())
    assert evolve(one, TypesChanged(text="", by="x")) is one


def test_a_change_of_a_missing_observation_is_an_error():
    with pytest.raises(FoldError, match="linked of an observation that is not on the page"):
        fold(Linked(action="a", by="x"))


def test_damage_moves_version_and_position_only():
    one = fold(added())
    hurt = damage(one, START + 5, 9)
    assert hurt is not None
    assert (hurt.damaged, hurt.version, hurt.position.seq) == (True, 2, 9)
    assert hurt.model_copy(update={"damaged": False, "version": 1, "ms": one.ms, "seq": one.seq}) == one


def test_folding_does_not_change_its_input():
    one = fold(added(tags=["a"]))
    before = one.model_dump()
    for event in (
        Linked(action="a", by="x"),
        Repeated(evidence=["b"], by="x"),
        Updated(changes={"tags": ["b"]}, by="x"),
    ):
        evolve(one, event)
    assert one.model_dump() == before


def test_an_expired_observation_settles_as_archived():
    one = fold(added(ttl=60_000), Claimed(holder="h", ttl=1000, by="x"))
    assert settled(one, START + 1999) is one
    assert settled(one, START + 2000).claim is None
    assert settled(one, START + 59_999).status == "active"
    over = settled(one, START + 60_000)
    assert (over.status, over.status_class, over.reason_code, over.version) == ("archived", "final", "expired", 2)


def test_a_closed_observation_settles_unchanged():
    one = fold(added(ttl=1000), status("resolved"))
    assert settled(one, START + 10**9) is one


def test_the_next_moment_is_the_earliest_timed_change():
    assert next_moment(fold(added())) is None
    assert next_moment(fold(added(ttl=60_000))) == START + 60_000
    one = fold(added(ttl=60_000, remind_at=moment(START + 5000)), Claimed(holder="h", ttl=1000, by="x"))
    assert next_moment(one) == START + 2000
    assert next_moment(fold(added(ttl=60_000), status("resolved"))) is None
    assert next_moment(fold(added(ttl=60_000), status("resolved", archive_after=1000))) == START + 2000
    assert next_moment(fold(added(ttl=60_000), status("archived"))) is None


def test_an_observation_is_indexed_by_type_tags_owner_and_waiting():
    one = fold(added(tags=["a", "b"], owner="o", remind_on={"type": "x"}))
    assert set(index_entries(one)) == {
        ("type", "t"), ("tag", "a"), ("tag", "b"), ("owner", "o"), ("waiting", "event"),
    }  # fmt: skip
    assert set(index_entries(fold(added()))) == {("type", "t")}


def test_times_are_exact_to_the_millisecond():
    one = fold(added(expires_at=datetime(2027, 1, 1, 0, 0, 0, 123_000, UTC)))
    assert (
        next_moment(one)
        == round((datetime(2027, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
        + 123
    )


def test_every_kind_of_event_is_folded_or_ignored_on_purpose():
    from scratchbus.domain import conversation_events, fact_events, item_events, memory_events
    from scratchbus.domain.events import EVENTS

    memories = (memory_events.__name__, fact_events.__name__, conversation_events.__name__, item_events.__name__)
    ours = {kind for kind, cls in EVENTS.items() if cls.__module__ not in memories}
    assert ours - CHANGES.keys() == {
        "added",
        "cleared",
        "erased",
        "types_changed",
        "relations_changed",
        "context_rendered",
    }
    assert all(issubclass(cls, Event) for cls in EVENTS.values())
