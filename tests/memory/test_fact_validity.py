"""When facts are valid: independent of their order of arrival, and as known at any time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from scratchbus.domain.knowledge import Span
from scratchbus.domain.relation_registry import NamedRelation
from scratchbus.domain.values import millis
from scratchbus.readmodel.fact_index import NOW, Edge, FactIndex
from scratchbus.readmodel.known_facts import KnownFacts
from tests.memory.fact_log import RELATIONS, Log, day

ENTITIES = ["a", "b", "c", "d"]
EVER = day(1_000)


class Assertion(NamedTuple):
    """An assertion that is valid from day `begins`, for `lasts` days."""

    subject: str
    relation: str
    object: str
    begins: int
    lasts: int | None
    by: str

    def append_to(self, log: Log) -> str:
        ends = None if self.lasts is None else day(self.begins + self.lasts)
        return log.assert_fact(
            self.subject, self.relation, self.object, self.by, valid_at=day(self.begins), invalid_at=ends
        )


SINGLE = ["runs_on", "partner_of"]
assertions = st.builds(
    Assertion,
    subject=st.sampled_from(ENTITIES[:2]),
    relation=st.sampled_from(SINGLE),
    object=st.sampled_from(ENTITIES[2:]),
    begins=st.integers(1, 6),
    lasts=st.none() | st.integers(1, 5),
    by=st.sampled_from(["one", "two"]),
)
steps = st.lists(
    assertions | st.tuples(st.just("retract"), st.integers(0, 20))
    | st.tuples(st.just("same"), st.sampled_from(ENTITIES), st.sampled_from(ENTITIES)),
    max_size=12,
)  # fmt: skip


def play(story) -> Log:
    log, ids = Log(), list[str]()
    for step in story:
        if isinstance(step, Assertion):
            ids.append(step.append_to(log))
        elif step[0] == "same":
            if step[1] != step[2]:
                ids.append(log.assert_fact(step[1], "same_as", step[2]))
        elif ids:
            log.retract(ids.pop(step[1] % len(ids)))
    return log


def spans(index: FactIndex, until: int = NOW) -> list[Span]:
    known = KnownFacts(index, until)
    return [span for name in ENTITIES for relation in SINGLE for span in known.timeline(name, read(relation), 1_000)]


def read(relation: str) -> NamedRelation:
    return RELATIONS.find(relation)


@settings(max_examples=60)
@given(steps)
def test_a_subject_has_one_value_at_a_time(story):
    index = play(story).index()
    known = KnownFacts(index)
    for name in ENTITIES:
        for relation in SINGLE:
            valid = [span for span in known.timeline(name, read(relation), 1_000) if span.state == "valid"]
            assert all(span.ends is None or span.begins < span.ends for span in valid)
            for before, after in pairwise(sorted(valid, key=lambda span: span.begins)):
                assert before.ends is not None
                assert before.ends <= after.begins


@settings(max_examples=40)
@given(st.lists(assertions, max_size=8, unique_by=lambda each: each.begins), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(asserted, random):
    def outcome(order):
        log = Log()
        for each in order:
            each.append_to(log)
        return sorted(
            (span.fact.triplet, span.begins, span.ends or EVER, span.state, span.fact.source)
            for span in spans(log.index())
        )

    shuffled = asserted.copy()
    random.shuffle(shuffled)
    assert outcome(asserted) == outcome(shuffled)


@settings(max_examples=25)
@given(steps)
def test_past_knowledge_equals_the_index_of_that_time(story):
    log = play(story)
    index, then = log.index(), log.index(0)
    for until, event in enumerate(log.events, 1):
        then.evolve(event)
        assert spans(index, until) == spans(then)


@settings(max_examples=40)
@given(steps, st.integers(0, 12))
def test_a_query_at_a_moment_agrees_with_the_timelines(story, number):
    known = KnownFacts(play(story).index())
    at = millis(day(number))
    for name in ENTITIES:
        for relation in SINGLE:
            found = [fact.id for fact in known.find(at, name, read(relation), None, None)]
            expected = {span.fact.id for span in known.timeline(name, read(relation), 1_000) if span.holds(day(number))}
            assert found == [*expected]
    everything = [fact.id for fact in known.find(at, None, None, None, None) if fact.relation in SINGLE]
    assert set(everything) == {span.fact.id for span in spans(play(story).index()) if span.holds(day(number))}


def test_a_distinct_query_reads_no_further_than_its_limit(monkeypatch):
    log = Log()
    for name in ("old", "Redis", "Docker", "Docker", "Docker"):
        log.assert_fact("app", "uses", name)
    index, rows = log.index(), list[Edge]()
    edges = FactIndex.edges

    def noted(*given: Any) -> Iterator[Edge]:
        for edge in edges(*given):
            rows.append(edge)
            yield edge

    monkeypatch.setattr(FactIndex, "edges", noted)
    facts = [fact.object for fact in KnownFacts(index).find(index.newest, "app", limit=2, distinct=True)]
    assert facts == ["Docker", "Redis"]
    assert [edge.seq for edge in rows] == [5, 4, 3, 2]


@settings(max_examples=20)
@given(steps)
def test_repeated_events_change_nothing(story):
    log = play(story)
    index = log.index()
    before = spans(index)
    for event in log.events:
        index.evolve(event)
        assert spans(index) == before


def test_a_later_value_of_another_source_ends_the_one_before():
    log = Log()
    log.assert_fact("app", "runs_on", "Node 24", "two", valid_at=day(5))
    log.assert_fact("app", "runs_on", "Node 20", "one", valid_at=day(1))  # asserted late
    first, second = KnownFacts(log.index()).timeline("App", read("runs_on"), 10)
    assert (first.fact.object, first.begins, first.ends) == ("Node 20", day(1), day(5))
    assert (second.fact.object, second.ends, first.ended_by) == ("Node 24", None, second.fact.id)


def test_a_source_can_correct_its_value_of_a_moment():
    log = Log()
    log.assert_fact("app", "runs_on", "Node 22", valid_at=day(1))
    log.assert_fact("app", "runs_on", "Node 24", valid_at=day(1))
    wrong, right = KnownFacts(log.index()).timeline("app", read("runs_on"), 10)
    assert (wrong.state, right.state) == ("superseded", "valid")


def test_sources_that_disagree_about_a_moment_contest_each_other():
    log = Log()
    log.assert_fact("app", "runs_on", "Node 18", valid_at=day(1))
    one = log.assert_fact("app", "runs_on", "Node 22", "one", valid_at=day(3))
    two = log.assert_fact("app", "runs_on", "Node 24", "two", valid_at=day(3))
    known = KnownFacts(log.index())
    before, first, second = known.timeline("app", read("runs_on"), 10)
    assert (before.ends, first.state, second.state) == (day(3), "contested", "contested")
    assert (first.contested_by, second.contested_by) == ([two], [one])
    assert known.find(millis(day(4)), "app", None, None, None) == []
    log.retract(one)
    assert [fact.id for fact in KnownFacts(log.index()).find(millis(day(4)), "app", None, None, None)] == [two]


def test_facts_without_valid_at_are_never_contested():
    log = Log()
    log.assert_fact("app", "runs_on", "Node 22", "one")
    event = log.events[0]
    log.assert_fact("app", "runs_on", "Node 24", "two")
    log.events[1] = log.events[1].placed(ms=event.ms)  # in the same millisecond
    first, second = KnownFacts(log.index()).timeline("app", read("runs_on"), 10)
    assert (first.state, second.state) == ("superseded", "valid")


def test_both_sides_of_a_symmetric_relation_have_one_value():
    log = Log()
    log.assert_fact("ann", "partner_of", "bob", valid_at=day(1))
    log.assert_fact("cleo", "partner_of", "bob", valid_at=day(3))
    known = KnownFacts(log.index())
    assert known.find(millis(day(4)), "ann", read("partner_of"), None, None) == []
    assert [fact.subject for fact in known.find(millis(day(4)), "bob", read("partner_of"), None, None)] == ["cleo"]


def test_merged_names_share_their_values_since_the_merge():
    log = Log()
    log.assert_fact("user", "runs_on", "Linux", valid_at=day(1))
    log.assert_fact("Ann", "runs_on", "Plan 9", valid_at=day(2))
    joined = log.assert_fact("Ann", "same_as", "user")
    index = log.index()
    assert [span.ends for span in KnownFacts(index).timeline("user", read("runs_on"), 10)] == [day(2), None]
    assert [span.ends for span in KnownFacts(index, 2).timeline("user", read("runs_on"), 10)] == [None]
    log.retract(joined)
    index = log.index()
    assert [span.ends for span in KnownFacts(index).timeline("user", read("runs_on"), 10)] == [None]
    assert len(KnownFacts(index, 3).timeline("user", read("runs_on"), 10)) == 2
