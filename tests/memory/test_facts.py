"""Facts of a scope: assertions, queries, evidence, contests, and their events in the log."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Timer
from unittest.mock import Mock

import pytest

from scratchbus import AsyncBus, Bus, Facts, NewObservation
from scratchbus.commands import contested_facts, execution, fact_reads
from scratchbus.commands.contested_facts import CONTEST
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import (
    Conflict,
    EngineReadOnly,
    EventIdReused,
    IndexFailed,
    InvalidField,
    InvalidId,
    InvalidName,
    InvalidPosition,
    NotFound,
    RelationsError,
    TooLarge,
    UnknownRelation,
)
from scratchbus.readmodel import known_facts
from scratchbus.readmodel.fact_index import FactIndex
from scratchbus.scheduling.reminders import complete_all
from tests.engines import ONE
from tests.inspection import log_length, project
from tests.waiting import PATIENCE

pytestmark = pytest.mark.engines(*ONE)
USUAL = pytest.mark.engines("memory", *ONE)


@pytest.fixture
def facts(bus: Bus) -> Facts:
    return bus.facts("p1")


def triplets(found):
    return [fact.triplet for fact in found]


# -- asserting and ending ----------------------------------------------------------------------------------------------


@USUAL
def test_a_new_value_ends_the_old_one(facts, bus):
    old = facts.assert_fact("the project", "runs_on", "Node 20", valid_at="2025-03-01", source_text="we use Node 20")
    new = facts.assert_fact("the project", "upgraded to", "Node 24", valid_at="2026-02-01")
    assert triplets(facts.query("The Project", "runs_on")) == ["the project -> runs_on -> Node 24"]
    assert triplets(facts.query("the project", at="2025-12-31")) == ["the project -> runs_on -> Node 20"]
    assert facts.query("the project", at="2024-01-01") == []
    first, second = facts.timeline("the project", "runs_on")
    assert (first.fact, first.ends, first.ended_by) == (old, new.valid_at, new.id)
    assert (second.fact, second.ends, second.state) == (new, None, "valid")
    assert "Node 20" not in facts.render_triplets(1_000)
    assert "Node 20" not in bus.context.assemble(scopes=["p1"]).text
    assert triplets(facts.query("the project", known_at=old.position)) == ["the project -> runs_on -> Node 20"]


@USUAL
def test_a_fact_has_the_asserted_fields(facts, bus):
    seen = bus.page().add("observation", "the build log says so")
    fact = facts.assert_fact(
        "App", "Depends on", "react-resizable-panels", valid_at=datetime(2026, 1, 2, tzinfo=UTC),
        invalid_at="2099-01-01", confidence=0.5, evidence=[seen.id], source_text="it needs panels",
    )  # fmt: skip
    assert (fact.subject, fact.relation, fact.object, fact.source) == (
        "App", "depends_on", "react-resizable-panels", "tester",
    )  # fmt: skip
    assert (fact.confidence, fact.evidence, fact.source_text) == (0.5, [seen.id], "it needs panels")
    assert facts.query("app") == [fact]
    assert facts.query("app", at="2099-01-01") == []
    with Bus.connect(bus.settings.url, bus=bus.core.log.bus) as another:
        assert another.facts("p1").query("app") == [fact]


def test_without_valid_at_a_fact_is_valid_from_its_assertion(facts):
    fact = facts.assert_fact("App", "uses", "Docker")
    assert facts.query("App") == [fact]
    assert facts.query("App", at=fact.created_at - timedelta(milliseconds=1)) == []


def test_a_retracted_fact_is_known_at_earlier_positions(facts):
    fact = facts.assert_fact("App", "uses", "Docker")
    gone = facts.retract(fact.id, "it was another app")
    assert (gone.retraction.reason, gone.retraction.by) == ("it was another app", "tester")
    assert facts.query("App") == []
    assert facts.query("App", known_at=fact.position) == [fact]
    assert facts.query("App", known_at=gone.position) == []
    assert [span.state for span in facts.timeline("App", "uses")] == ["retracted"]
    assert facts.retract(fact.id, "again") == gone


def test_retracting_a_value_restores_the_one_before(facts):
    old = facts.assert_fact("User", "lives_in", "New York", valid_at="2020-01-01")
    facts.retract(facts.assert_fact("User", "moved_to", "London", valid_at="2021-01-01").id, "that was a joke")
    assert facts.query("User") == [old]


def test_a_retry_returns_the_first_fact(facts, bus):
    first = facts.assert_fact("App", "uses", "Docker", event_id="mine")
    length = log_length(bus)
    assert facts.assert_fact("App", "uses", "Docker", event_id="mine") == first
    assert log_length(bus) == length
    with pytest.raises(EventIdReused):
        facts.assert_fact("App", "uses", "Podman", event_id="mine")


def test_a_retry_returns_a_fact_whose_evidence_was_refuted_since(facts, bus):
    seen = bus.page().add("observation", "Ann said so")
    first = facts.assert_fact("Ann", "works_on", "Project A", evidence=[seen.id], event_id="mine")
    bus.page().refute(seen.id, reason="no")
    assert facts.assert_fact("Ann", "works_on", "Project A", evidence=[seen.id], event_id="mine") == first
    with pytest.raises(InvalidField, match="was refuted"):
        facts.assert_fact("Ann", "works_on", "Project A", evidence=[seen.id], event_id="another")


def test_a_retry_returns_a_fact_that_has_ended_since(facts, monkeypatch):
    end = datetime.now(UTC) + timedelta(hours=1)
    given = {"relation": "works_on", "object": "Project A", "invalid_at": end}
    first = facts.assert_fact("Ann", **given, event_id="mine")
    many = facts.ingest("x", lambda _: [("Ann", "uses", "Go"), ("Ann", "uses", "Rust")], event_id="text")

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return end + timedelta(hours=1)

    monkeypatch.setattr(execution, "datetime", Later)
    assert facts.assert_fact("Ann", **given, event_id="mine") == first
    for found in (
        [("Ann", "unheard_of", "Go")],
        [],
        [("Ann", "uses", "Go")],
        [("Ann", "uses", each) for each in "abc"],
    ):
        assert facts.ingest("x", lambda _, found=found: found, event_id="text") == many
    with pytest.raises(EventIdReused):
        facts.ingest("another text", lambda _: [], event_id="text")
    for subject, event_id in (("Ann", "another"), ("Ann", None)):
        with pytest.raises(InvalidField, match="is not after now"):
            facts.assert_fact(subject, **given, event_id=event_id)
    with pytest.raises(EventIdReused):
        facts.assert_fact("Bob", **given, event_id="mine")


# -- queries -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def chain(facts):
    for subject, relation, object in (
        ("Ann", "works_on", "Project A"), ("Project A", "uses", "Docker"), ("Docker", "depends_on", "containerd"),
        ("containerd", "depends_on", "runc"), ("Bob", "works_on", "Project B"), ("runc", "depends_on", "Linux"),
    ):  # fmt: skip
        facts.assert_fact(subject, relation, object)
    return facts


def test_a_path_answers_a_question_that_keyword_search_misses(chain, bus):
    """Which Docker tools does the user need? No single text has both names of the question."""
    notes = bus.notes("s1")
    for fact in chain.query():
        notes.add(fact.triplet)
    assert [note.content for note in notes.search("Ann").notes] == ["Ann -> works_on -> Project A"]
    assert not any("runc" in note.content for note in notes.search("Ann").notes)
    assert triplets(chain.path("Ann", "runc")) == [
        "Ann -> works_on -> Project A", "Project A -> uses -> Docker", "Docker -> depends_on -> containerd",
        "containerd -> depends_on -> runc",
    ]  # fmt: skip
    assert {each.entity: each.distance for each in chain.neighbours("ann", 3)} == {
        "Project A": 1, "Docker": 2, "containerd": 3,
    }  # fmt: skip


def test_a_query_follows_a_transitive_relation(chain):
    assert triplets(chain.query("Docker", "depends_on")) == [
        "Docker -> depends_on -> containerd", "containerd -> depends_on -> runc", "runc -> depends_on -> Linux",
    ]  # fmt: skip
    assert triplets(chain.query("Docker", "depends_on", "runc")) == [
        "Docker -> depends_on -> containerd", "containerd -> depends_on -> runc",
    ]  # fmt: skip
    assert chain.query("Docker", "depends_on", "Ann") == []
    assert triplets(chain.query("Linux", "needed by", limit=1)) == ["runc -> depends_on -> Linux"]


def test_an_inverse_reads_a_relation_from_the_other_side(facts):
    facts.assert_fact("postgres", "needed by", "api")
    assert triplets(facts.query("api", "depends on")) == ["postgres -> needed_by -> api"]
    facts.assert_fact("Ann", "owns", "api", valid_at="2025-01-01")
    facts.assert_fact("api", "owner", "Bob", valid_at="2026-01-01")  # one owner at a time
    assert triplets(facts.query(object="api", relation="owns")) == ["api -> owner -> Bob"]


def test_a_symmetric_relation_holds_both_ways(facts):
    fact = facts.assert_fact("Ann", "knows", "Bob")
    assert facts.query("Bob", "knows") == facts.query(object="Ann") == facts.query() == [fact]


def test_a_plain_relation_may_hold_between_an_entity_and_itself(facts):
    fact = facts.assert_fact("compiler", "uses", "Compiler")
    assert facts.query("compiler", "uses", "compiler") == [fact]


def test_a_search_ends_in_cycles(facts):
    for a, b in ("ab", "bc", "ca"):
        facts.assert_fact(a, "depends_on", b)
    assert triplets(facts.query("a", "depends_on")) == ["a -> depends_on -> b", "b -> depends_on -> c"]
    assert [each.entity for each in facts.neighbours("a", 20)] == ["b", "c"]
    assert facts.path("a", "a") == facts.path("a", "nobody") == []


def test_the_shortest_path_is_found(facts):
    for a, b in ("ab", "bc", "cd", "de", "ax", "xe", "zz"):
        if a != b:
            facts.assert_fact(a, "uses", b)
    assert triplets(facts.path("e", "a")) == ["x -> uses -> e", "a -> uses -> x"]


def test_a_path_has_only_facts_that_are_valid_at_its_time(facts):
    facts.assert_fact("Ann", "works_at", "Acme", valid_at="2020-01-01")
    facts.assert_fact("Ann", "works_at", "Initech", valid_at="2022-01-01")
    facts.assert_fact("Acme", "located_in", "Berlin", valid_at="2019-01-01")
    assert facts.path("Ann", "Berlin") == []
    assert len(facts.path("Ann", "Berlin", at="2021-06-01")) == 2


def test_a_search_over_too_many_facts_is_refused(facts, monkeypatch):
    facts.ingest("\n".join(f"hub -> uses -> spoke {number}" for number in range(300)))
    assert len(facts.neighbours("hub", limit=7)) == 7
    monkeypatch.setattr(known_facts, "MAX_FOLLOWED", 200)
    with pytest.raises(TooLarge, match="smaller depth"):
        facts.neighbours("spoke 7", 2, limit=None)
    assert len(facts.query("hub", limit=5)) == 5


def test_facts_are_listed_newest_first(facts):
    facts.ingest("a -> uses -> b\nc -> uses -> d\ne -> uses -> f")
    assert triplets(facts.query(limit=2)) == ["e -> uses -> f", "c -> uses -> d"]
    assert triplets(facts.query(relation="uses", limit=2)) == ["e -> uses -> f", "c -> uses -> d"]


def test_a_distinct_query_returns_the_last_of_equal_facts(facts):
    facts.ingest("App -> uses -> Redis\nApp -> uses -> nginx\napi -> uses -> Docker")
    for name in ("Docker", "docker", "DOCKER"):
        last = facts.assert_fact("app", "Works with", name)
    assert len(facts.query("App")) == 5
    assert triplets(facts.query("App", limit=2)) == ["app -> uses -> DOCKER", "app -> uses -> docker"]
    assert triplets(facts.query("App", distinct=True, limit=2)) == ["app -> uses -> DOCKER", "App -> uses -> nginx"]
    inverse = ["app -> uses -> DOCKER", "api -> uses -> Docker"]
    assert triplets(facts.query(object="docker", distinct=True)) == inverse
    assert triplets(facts.query("docker", "used_by", distinct=True)) == inverse
    assert facts.query("app", "uses", "docker", distinct=True) == [last]
    assert len(facts.query(relation="uses", distinct=True)) == len(facts.query(distinct=True)) == 4


def test_a_distinct_query_has_the_facts_of_its_moment(facts):
    first = facts.assert_fact("App", "uses", "Docker", valid_at="2025-01-01", invalid_at="2026-01-01")
    second = facts.assert_fact("App", "uses", "Docker", valid_at="2026-02-01")
    third = facts.assert_fact("App", "uses", "Docker", valid_at="2026-02-01")
    assert facts.query("App", distinct=True) == [third]
    assert facts.query("App", at="2025-06-01", distinct=True) == [first]
    assert facts.query("App", known_at=second.position, distinct=True) == [second]
    facts.retract(third.id, "wrong")
    assert facts.query("App", distinct=True) == [second]


def test_equal_facts_hold_both_ways_and_along_chains(facts):
    facts.assert_fact("Ann", "knows", "Bob")
    again = facts.assert_fact("Bob", "knows", "Ann")
    assert facts.query("Ann", distinct=True) == facts.query(object="Ann", distinct=True) == [again]
    assert facts.query(distinct=True) == [again]
    facts.same_as("Ann", "Dr. Ann")
    named = facts.assert_fact("Bob", "knows", "Dr. Ann")
    assert facts.query("Bob", "knows", distinct=True) == [named]
    for _ in range(2):
        facts.ingest("a -> depends_on -> b\nb -> depends_on -> c\nb -> uses -> a\na -> uses -> b")
    assert triplets(facts.query("a", object="b", distinct=True)) == ["a -> uses -> b", "a -> depends_on -> b"]
    assert triplets(facts.query(relation="uses", distinct=True)) == ["a -> uses -> b", "b -> uses -> a"]
    chain = ["b -> depends_on -> c", "a -> depends_on -> b"]
    assert triplets(facts.query(relation="depends_on", distinct=True)) == chain
    assert triplets(facts.query("c", "needed_by", distinct=True)) == chain
    assert triplets(facts.query("a", "depends_on", "c", distinct=True)) == chain[::-1]


# -- names -------------------------------------------------------------------------------------------------------------


def test_the_value_of_one_subject_is_not_that_of_another(facts):
    facts.assert_fact("App", "runs_on", "Node 20")
    facts.assert_fact("Shop", "runs_on", "Node 24")
    assert facts.query("App", "runs_on", "Node 24") == []
    assert triplets(facts.query("App", "runs_on", "Node 20")) == ["App -> runs_on -> Node 20"]


def test_no_facts_connect_an_unknown_name(facts):
    facts.assert_fact("Ann", "knows", "Bob")
    assert facts.query("Ann", object="nobody") == facts.query("nobody", object="Bob") == []
    assert facts.query("nobody") == facts.query(object="nobody") == []


def test_two_names_can_be_merged_and_separated(facts):
    facts.assert_fact("NYC", "located_in", "US")
    facts.assert_fact("User", "lives_in", "New York", valid_at="2020-01-01")
    merged = facts.same_as("NYC", "new york")
    assert facts.same_as("New York", "NYC") == merged
    assert triplets(facts.query(object="nyc", relation="lives_in")) == ["User -> lives_in -> New York"]
    assert len(facts.path("User", "US")) == 2
    for call in (facts.same_as, facts.not_same_as):
        with pytest.raises(InvalidField, match="b: ' nyc ' is the same name as a; give two names of one entity"):
            call("NYC", " nyc ")
        with pytest.raises(InvalidField, match="a: 5 must be"):
            call(5, "nyc")
    (separated,) = facts.not_same_as("New York", "NYC")
    assert separated.id == merged.id
    assert facts.query(object="nyc", relation="lives_in") == []
    assert facts.path("User", "US") == []
    assert len(facts.path("User", "US", known_at=merged.position)) == 2
    with pytest.raises(NotFound, match="no fact says"):
        facts.not_same_as("New York", "NYC")


def test_names_are_separated_once_per_event_id(bus, facts):
    with pytest.raises(NotFound, match="no fact says"):
        facts.not_same_as("NYC", "New York", event_id="part-0")
    merged = [facts.same_as("NYC", "New York", event_id=f"join-{number}") for number in range(2)]
    separated = facts.not_same_as("NYC", "New York", event_id="part-1")
    assert [fact.id for fact in separated] == [fact.id for fact in merged]
    facts.same_as("New York", "NYC")
    end = bus.position()
    assert facts.not_same_as("NYC", "New York", event_id="part-1") == separated
    with pytest.raises(EventIdReused):
        facts.not_same_as("NYC", "New York", reason="another", event_id="part-1")
    assert bus.position() == end


def test_names_merged_through_others_are_not_separated(facts):
    facts.same_as("NYC", "New York")
    facts.same_as("New York", "The Big Apple")
    with pytest.raises(Conflict, match=r"through other names: fact_.*retract what is wrong"):
        facts.not_same_as("NYC", "The Big Apple")


# -- evidence ----------------------------------------------------------------------------------------------------------


@USUAL
def test_refuting_evidence_retracts_its_facts(bus, facts):
    seen = bus.page("elsewhere").add("observation", "Ann said so")
    other = bus.page("elsewhere").add("observation", "Bob said so")
    fact = facts.assert_fact("Ann", "works_on", "Project A", evidence=[other.id, seen.id])
    kept = facts.assert_fact("Bob", "works_on", "Project A", evidence=[other.id])
    bus.page("elsewhere").refute(seen.id, reason="it was someone else")
    assert facts.query(object="Project A") == [kept]
    assert "Ann" not in facts.render_triplets(1_000)
    why = facts.why(fact)
    assert (why.span.state, why.fact.retraction.refuted) == ("retracted", seen.id)
    assert f"rests on {seen.id}, which was refuted: it was someone else" in why.text()
    assert [event.kind for event in why.events] == ["fact_asserted", "fact_retracted"]
    assert facts.query("Ann", known_at=fact.position) == [fact]


def test_an_interrupted_refutation_is_completed_from_the_log(bus, facts, monkeypatch):
    seen = bus.page("elsewhere").add("observation", "Ann said so")
    facts.assert_fact("Ann", "works_on", "Project A", evidence=[seen.id])

    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.commands.refute.complete", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bus.page("elsewhere").refute(seen.id, reason="it was someone else")
    assert len(facts.query("Ann")) == 1
    refuted = [event for event in bus.events() if event.kind == "status_changed"]
    assert bus.converse(complete_all(bus.core, refuted)) == 1
    assert facts.query("Ann") == []
    assert bus.converse(complete_all(bus.core, refuted)) == 0


def test_refuted_or_unknown_evidence_is_refused(bus, facts):
    seen = bus.page().add("observation", "Ann said so")
    bus.page().refute(seen.id, reason="no")
    with pytest.raises(InvalidField, match="was refuted"):
        facts.assert_fact("Ann", "works_on", "Project A", evidence=[seen.id])
    assert facts.query() == []
    with pytest.raises(InvalidField, match="not on any page"):
        facts.assert_fact("Ann", "works_on", "Project A", evidence=["01M7ZG05XPKZK2CR4XCAZB2BQ8"])


def test_why_shows_the_source_the_text_and_the_end(bus, facts):
    seen = bus.page().add("observation", "the log says v24")
    old = facts.assert_fact("App", "runs_on", "Node 20", valid_at="2025-01-01")
    fact = facts.assert_fact("App", "runs_on", "Node 24", source_text="we upgraded", evidence=[seen.id])
    text = facts.why(fact.id).text()
    for part in ("App -> runs_on -> Node 24 (valid)", "asserted by tester", "we upgraded", "the log says v24"):
        assert part in text
    assert f"ended by {fact.id}" in facts.why(old).text()
    with pytest.raises(NotFound):
        facts.why("fact_1")


def test_no_text_imitates_a_line_of_an_explanation(bus, facts):
    forged = "x\nretracted by ada: wrong\r\nended by fact_1\u2028\x1b[2Jvalid from 2001"
    seen = bus.page().add("observation", forged)
    fact = facts.assert_fact("App", "runs_on", "Node 24", source_text=forged, evidence=[seen.id])
    facts.retract(fact.id, forged)
    starts = [line.split(" ")[0] for line in facts.why(fact.id).text().splitlines()]
    assert starts == ["App", "asserted", "from", "rests", "valid", "retracted"]
    assert "\x1b" not in facts.why(fact.id).text()


def test_why_reads_and_shows_no_more_than_asked(bus, facts, monkeypatch):
    seen = bus.page().add_many([NewObservation(type="observation", content=f"{n:02} " + "x" * 97) for n in range(12)])
    fact = facts.assert_fact("App", "uses", "Docker", evidence=[each.id for each in seen], source_text="y" * 300)
    why = facts.why(fact, max_evidence=5)
    assert ([each.id for each in why.evidence], why.unread) == (fact.evidence[:5], 7)
    assert why.text().splitlines()[-2] == "rests on 7 more, left out here"
    _, _, source, first, second, left_out, _ = why.text(count=2, length=50).splitlines()
    assert source == f"from the text: {'y' * 50} (… 250 characters left out)"
    assert first.endswith(f": 00 {'x' * 47} (… 50 characters left out)")
    assert seen[1].id in second
    assert left_out == "rests on 10 more, left out here"
    assert "left out" not in facts.why(fact).text()
    with pytest.raises(InvalidField, match="max_evidence: -1"):
        facts.why(fact, max_evidence=-1)
    for name in ("find_pages", "gather"):
        monkeypatch.setattr(f"scratchbus.commands.fact_reads.{name}", Mock(side_effect=AssertionError))
    assert facts.why(fact, max_evidence=0).unread == 12


def test_an_explanation_counts_the_rivals_it_leaves_out(connect):
    told = [
        connect(source=f"s{number}").facts("p1").assert_fact("App", "runs_on", f"Node {number}", valid_at="2026-01-01")
        for number in range(5)
    ]
    text = connect().facts("p1").why(told[0]).text(count=2)
    assert f"contested by {told[1].id}, {told[2].id} and 2 more; retract what is wrong" in text


# -- contested facts ---------------------------------------------------------------------------------------------------


@USUAL
def test_contested_facts_go_to_review_with_both_sides(connect):
    bus, other = connect(), connect(source="other")
    facts, theirs = bus.facts("p1"), other.facts("p1")
    seen = [bus.page().add("observation", text) for text in ("a", "b")]
    one = facts.assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01", evidence=[seen[0].id])
    assert facts.pending_review() == []
    two = theirs.assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01", evidence=[seen[1].id])
    assert facts.query("App") == []
    assert facts.render_triplets(100) == ""
    (question,) = facts.pending_review()
    assert (question.status, question.tags, question.page) == ("pending_review", [CONTEST], "knowledge:p1")
    assert question.evidence == [each.id for each in seen]
    assert question.context["facts"] == [one.id, two.id]
    assert "tester says Node 22" in question.content
    assert "other says Node 24" in question.content
    facts.retract(one.id, "I looked again")
    assert facts.query("App") == [two]
    assert facts.pending_review() == []
    assert bus.page("knowledge:p1").get(question.id).status == "resolved"


def test_a_retraction_succeeds_though_its_question_cannot_be_resolved(bus, facts, connect):
    types = bus.types.text.replace("  pending_confirmation:\n", "  pending_confirmation:\n    lifecycle: judged\n")
    types += """
lifecycles:
  judged:
    statuses: {pending_review: open, right: closed, wrong: closed}
    initial: [pending_review]
    transitions: {pending_review: [right, wrong, archived]}
"""
    bus.push_types(parse_registry(types, "types.yaml"))
    first = facts.assert_fact("User", "lives_in", "Rome", valid_at="2020-01-01")
    connect(source="other").facts("p1").assert_fact("User", "lives_in", "Oslo", valid_at="2020-01-01")
    (question,) = facts.pending_review()
    assert facts.retract(first, "it was Oslo").retraction.reason == "it was Oslo"
    assert bus.page("knowledge:p1").get(question.id).status == "pending_review"


def test_retracting_a_correction_renews_the_contest(bus, connect):
    facts, theirs = bus.facts("p1"), connect(source="other").facts("p1")
    facts.assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01")
    theirs.assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01")
    correction = facts.assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01")
    assert facts.pending_review() == []
    facts.retract(correction.id, "it was right before")
    assert len(facts.contested("App")) == len(facts.pending_review()) == 1


def test_separating_subjects_asks_about_the_contest_that_a_correction_had_ended(bus, connect):
    facts, theirs = bus.facts("p1"), connect(source="other").facts("p1")
    facts.assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01")
    theirs.assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01")
    facts.same_as("App", "Shop")
    facts.assert_fact("Shop", "runs_on", "Node 24", valid_at="2026-01-01")
    assert facts.pending_review() == []
    facts.not_same_as("App", "Shop", reason="two programs")
    assert len(facts.contested("App")) == len(facts.pending_review()) == 1


def test_refuting_the_evidence_of_merged_names_asks_about_the_contest_again(bus, connect):
    facts, theirs = bus.facts("p1"), connect(source="other").facts("p1")
    seen = bus.page().add("observation", "they are one")
    facts.assert_fact("App", "runs_on", "NYC", valid_at="2026-01-01")
    theirs.assert_fact("App", "runs_on", "New York", valid_at="2026-01-01")
    facts.same_as("NYC", "New York", evidence=[seen.id])
    assert facts.pending_review() == []
    bus.page().refute(seen.id, reason="they are two")
    assert len(facts.contested("App")) == len(facts.pending_review()) == 1


def test_a_fact_that_is_erased_right_after_it_was_retracted_is_reviewed_no_more(bus, connect, monkeypatch):
    facts, erased = bus.facts("p1"), list[str]()
    fact = facts.assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01")

    def late(*given, **options):
        if not erased:
            erased.append(fact.id)
            connect(source="other").page("knowledge:p1").erase(fact.id, reason="asked for")
        return (yield from fact_reads.read_facts(*given, **options))

    monkeypatch.setattr(contested_facts, "read_facts", late)
    assert facts.retract(fact.id, "I looked again").retraction.reason == "I looked again"


def test_a_failing_index_keeps_no_fact_from_being_retracted_or_erased(bus, connect, monkeypatch):
    seen, theirs = bus.page().add("observation", "seen"), connect(source="other")
    told = []
    for scope in ("p1", "p2"):
        told.append(
            bus.facts(scope).assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01", evidence=[seen.id])
        )
        theirs.facts(scope).assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01")
    gone = bus.facts("p1").assert_fact("App", "uses", "npm")

    def failing(*given):
        raise IndexFailed("database or disk is full")

    with monkeypatch.context() as full:
        full.setattr(FactIndex, "edges", failing)
        bus.page().refute(seen.id, reason="a mistake")
        assert bus.page("knowledge:p1").erase(gone.id, reason="asked for").subject == gone.id
    for fact, scope in zip(told, ("p1", "p2"), strict=True):
        assert bus.facts(scope).why(fact).span.state == "retracted"
        assert bus.facts(scope).pending_review() == []


def test_sources_that_joined_a_contest_are_asked_about_when_the_first_withdraw(bus, connect):
    sources = [connect(source=name).facts("p1") for name in ("one", "two", "three", "four")]
    told = [
        facts.assert_fact("App", "runs_on", f"Node {number}", valid_at="2026-01-01")
        for number, facts in enumerate(sources)
    ]
    (first,) = sources[0].pending_review()
    for facts, fact in zip(sources[:2], told[:2], strict=True):
        facts.retract(fact.id, "I looked again")
    (second,) = sources[0].pending_review()
    assert first.context["facts"] == [fact.id for fact in told]
    assert second.context["facts"] == [fact.id for fact in told[2:]]
    assert bus.page("knowledge:p1").get(first.id).status == "resolved"
    sources[2].retract(told[2].id, "I looked again")
    assert sources[0].pending_review() == []


def test_a_source_that_corrects_itself_ends_the_review(bus, connect):
    facts, theirs = bus.facts("p1"), connect(source="other").facts("p1")
    facts.assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01")
    theirs.assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01")
    (question,) = facts.pending_review()
    facts.assert_fact("App", "runs_on", "node 24", valid_at="2026-01-01")
    assert facts.pending_review() == []
    assert bus.page("knowledge:p1").get(question.id).status == "resolved"
    assert len(facts.query("App")) == 1


@pytest.fixture
def contest(connect):
    """Return a function that has two sources contest a fact of scope p1, and returns both facts and the question."""
    sources = [connect(source=name).facts("p1") for name in ("one", "two")]

    def contest(*subjects, objects=("Node 22", "Node 24"), evidence=()):
        for_each = zip(sources, subjects * 2, objects, [evidence, ()], strict=False)
        told = [
            facts.assert_fact(subject, "runs_on", object, valid_at="2026-01-01", evidence=seen)
            for facts, subject, object, seen in for_each
        ]
        return told, next(iter(sources[0].pending_review()), None)

    return contest


def test_erasing_a_side_ends_the_review(bus, facts, contest):
    (one, two), question = contest("App")
    page = bus.page("knowledge:p1")
    page.erase(one.id, reason="private")
    assert facts.query("App") == [two]
    assert page.get(question.id).status == "resolved"


def test_merging_the_values_ends_the_review_and_separating_them_asks_again(bus, facts, contest):
    told, question = contest("App")
    facts.same_as("Node 22", "Node 24")
    assert len(facts.query("App", "runs_on")) == 1
    assert bus.page("knowledge:p1").get(question.id).status == "resolved"
    facts.not_same_as("Node 22", "Node 24")
    (again,) = facts.pending_review()
    assert again.context["facts"] == [each.id for each in told]


def test_merging_the_subjects_asks_and_separating_them_ends_the_review(bus, facts, contest):
    told, question = contest("App", "The App")
    assert question is None
    same = facts.same_as("App", "The App")
    (question,) = facts.pending_review()
    assert question.context["facts"] == [each.id for each in told]
    page = bus.page("knowledge:p1")
    page.erase(same.id, reason="private")
    assert page.get(question.id).status == "resolved"


def test_refuting_the_evidence_of_a_side_ends_the_review(bus, facts, contest):
    seen = bus.page("elsewhere").add("observation", "it runs on Node 22")
    (_, two), question = contest("App", evidence=[seen.id])
    bus.page("elsewhere").refute(seen.id, reason="it was another app")
    assert facts.query("App") == [two]
    assert bus.page("knowledge:p1").get(question.id).status == "resolved"


def test_a_batch_that_ends_one_contest_and_starts_another_settles_both(bus, facts, contest, connect):
    _, ended = contest("App")
    connect(source="two").facts("p1").assert_fact("Job", "runs_on", "Node 24", valid_at="2026-01-01")
    text = "App -> runs_on -> Node 24\nJob -> runs_on -> Node 22"
    connect(source="one").facts("p1").ingest(text, valid_at="2026-01-01")
    (started,) = facts.pending_review()
    assert started.context["subject"] == "Job"
    assert bus.page("knowledge:p1").get(ended.id).status == "resolved"


def test_sides_that_both_correct_themselves_are_asked_about(bus, facts, contest):
    _, first = contest("App")
    corrected, second = contest("App", objects=("Node 26", "Node 28"))
    assert second.context["facts"] == [each.id for each in corrected]
    assert bus.page("knowledge:p1").get(first.id).status == "resolved"


@USUAL
def test_contested_lists_the_facts_that_disagree(bus, facts, contest):
    before = bus.position()
    told, _ = contest("App")
    job, _ = contest("Job")
    facts.same_as("Job", "Task")
    assert facts.contested("app") == facts.contested("App", "upgraded to") == [told]
    assert facts.contested("task") == [job]
    assert facts.contested("App", object="node 24") == facts.contested("App", "runs_on", "Node 22") == [told]
    assert facts.contested("App", object="Job") == facts.contested("App", object="x") == []
    facts.same_as("Node 24", "Iron")
    assert facts.contested("task", object="iron") == [job]
    assert facts.contested("App", "uses") == facts.contested("App", at="2025-01-01") == facts.contested("x") == []
    assert facts.contested("App", known_at=before) == []
    later = facts.assert_fact("App", "runs_on", "Node 26", valid_at="2026-02-01")
    assert facts.contested("App") == []
    assert facts.contested("App", at="2026-01-15") == [told]
    assert facts.query("App") == [later]


def test_a_context_shows_contested_facts_as_such(bus, facts, contest):
    facts.assert_fact("App", "uses", "npm")
    (one, two), _ = contest("App")
    found = bus.context.assemble(scopes=["p1"])
    title, meaning, _, *lines = next(part.text for part in found.parts if part.name == "contested").splitlines()
    assert (title, meaning) == ("## Contested Facts", "Sources disagree on these; none of them counts as true yet.")
    assert lines == [
        f"- {one.id} from one, confidence 1",
        "> App -> runs_on -> Node 22",
        f"- {two.id} from two, confidence 1",
        "> App -> runs_on -> Node 24",
    ]
    assert next(part.text for part in found.parts if part.name == "facts").splitlines()[2:] == ["> App -> uses -> npm"]
    facts.retract(one, "I looked again")
    text = bus.context.assemble(scopes=["p1"]).text
    assert "Contested" not in text
    assert "> App -> runs_on -> Node 24" in text


def test_a_contest_in_several_scopes_is_shown_once_in_a_context(bus, connect):
    for name, version in (("one", 22), ("two", 24)):
        for scope in ("p1", "p2"):
            connect(source=name).facts(scope).assert_fact("App", "runs_on", f"Node {version}", valid_at="2026-01-01")
    text = bus.context.assemble(scopes=["p1", "p2"]).text
    assert text.count("Node 22") == text.count("Node 24") == 1


def test_contested_facts_keep_the_budget_of_a_context(bus, facts, contest):
    for number in range(20):
        facts.assert_fact("App", "uses", f"package {number}")
        contest(f"Service {number}")
    for budget in (40, 100, 200, 400):
        found = bus.context.assemble(scopes=["p1"], budget=budget)
        assert found.tokens <= budget
        assert found.left_out["contested"] > 0
    assert {part.name for part in found.parts} == {"contested", "facts"}
    short = bus.context.assemble(scopes=["p1"], budget=200).text
    assert short.count(" uses -> ") > 3 * short.count("Node 22"), "true facts have most of the room"
    rows = [line for line in found.text.splitlines() if "Service 19" in line]
    assert rows == ["> Service 19 -> runs_on -> Node 22", "> Service 19 -> runs_on -> Node 24"]


def test_a_contest_over_the_other_side_of_a_symmetric_relation_is_asked_about(bus, facts, connect, tmp_path):
    file = tmp_path / "relations.yaml"
    file.write_text("relations:\n  partner_of:\n    values: one\n    symmetric: true\n")
    bus.push_relations(file)
    first = facts.assert_fact("Ann", "partner_of", "Bea", valid_at="2020-01-01")
    theirs = connect(source="other").facts("p1").assert_fact("Cleo", "partner_of", "Bea", valid_at="2020-01-01")
    (question,) = facts.pending_review()
    assert question.context["facts"] == [first.id, theirs.id]
    assert facts.retract(theirs, "misheard").retraction is not None
    assert bus.page("knowledge:p1").get(question.id).status == "resolved"


@pytest.mark.parametrize(
    "context", [None, {}, {"facts": None}, {"facts": 5}, {"facts": "fact_1"}, {"facts": [None, {}, 7, "", "fact_1"]}]
)
def test_an_observation_that_only_has_the_tag_is_no_question(bus, facts, contest, context):
    page = bus.page("knowledge:p1")
    theirs = page.add("pending_confirmation", "mine", tags=[CONTEST], context=context)
    told, question = contest("App")
    assert facts.pending_review() == [question]
    facts.retract(told[0], "I looked again")
    assert facts.pending_review() == []
    assert page.get(theirs.id).status == "active"
    assert page.get(question.id).status == "resolved"


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_an_unknown_relation_error_names_the_nearest(facts, bus):
    with pytest.raises(UnknownRelation, match="did you mean 'depends_on'") as refused:
        facts.assert_fact("a", "depnds_on", "b")
    assert (refused.value.relation, refused.value.nearest) == ("depnds_on", "depends_on")
    with pytest.raises(UnknownRelation):
        facts.query(relation="xyzzy")
    assert log_length(bus) == 0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"valid_at": "2026-01-01", "invalid_at": "2025-01-01"}, "is not after valid_at"),
        ({"valid_at": "2026-01-01", "invalid_at": "2026-01-01"}, "is not after valid_at"),
        ({"invalid_at": "2020-01-01"}, "give valid_at"),
        ({"valid_at": "soon"}, "is not a time"),
        ({"confidence": 1.5}, "from 0 to 1"),
        ({"confidence": float("nan")}, "from 0 to 1"),
        ({"source_text": " "}, "is empty"),
        ({"evidence": "01M7ZG05XPKZK2CR4XCAZB2BQ8"}, "not a list"),
        ({"subject": ""}, "printable"),
        ({"object": "two\nlines"}, "printable"),
        ({"object": "x" * 257}, "printable"),
        ({"subject": 7}, "printable"),
        ({"relation": "depends_on", "object": " A "}, "needs two entities"),
        ({"relation": "knows", "object": "A"}, "needs two entities"),
        ({"relation": "same_as", "object": "a"}, "needs two entities"),
        ({"relation": "same_as", "valid_at": "2020-01-01"}, "leave out valid_at"),
        ({"relation": "same_as", "invalid_at": "2099-01-01"}, "leave out valid_at"),
    ],
)
def test_an_invalid_fact_is_refused_and_not_written(facts, bus, fields, problem):
    with pytest.raises(InvalidField, match=problem):
        facts.assert_fact(**{"subject": "a", "relation": "uses", "object": "b"} | fields)
    assert log_length(bus) == 0


def test_invalid_queries_are_refused(facts, bus):
    for ask, error in (
        (lambda: bus.facts("a b"), InvalidName),
        (lambda: bus.facts("x" * 120), InvalidName),
        (lambda: facts.retract("note_1", "no"), InvalidId),
        (lambda: facts.retract("fact_1", "no"), NotFound),
        (lambda: facts.retract("fact_1", " "), InvalidField),
        (lambda: facts.query(at="soon"), InvalidField),
        (lambda: facts.query(known_at="9-9-9"), InvalidPosition),
        (lambda: facts.query(limit=0), InvalidField),
        (lambda: facts.neighbours("a", 0), InvalidField),
        (lambda: facts.neighbours("a", 21), InvalidField),
        (lambda: facts.timeline("a", "uses", limit=0), InvalidField),
        (lambda: facts.render_triplets(0), InvalidField),
        (lambda: facts.ingest(7), InvalidField),
    ):
        with pytest.raises(error):
            ask()


def test_an_invalid_relations_file_is_refused_on_connect(connect, tmp_path):
    file = tmp_path / "relations.yaml"
    file.write_text("relations:\n  uses: {values: two}\n")
    with pytest.raises(RelationsError, match=rf"{file}:2:10: relations\.uses\.values: 'two' is not how many"):
        connect(relations=file)
    file.write_text("relations:\n  barks_at: {values: one}\n")
    facts = connect(relations=file).facts("p1")
    facts.assert_fact("Rex", "barks at", "Ann")
    with pytest.raises(UnknownRelation):
        facts.assert_fact("Rex", "uses", "a bone")


def test_facts_of_removed_relations_have_many_values(connect, tmp_path):
    file = tmp_path / "relations.yaml"
    file.write_text("relations:\n  barks_at: {values: one}\n")
    connect(relations=file).facts("p1").ingest("Rex -> barks_at -> Ann\nRex -> barks_at -> Bob")
    assert len(connect().facts("p1").query("Rex")) == 2


def test_a_full_disk_loses_nothing(facts, bus):
    facts.assert_fact("a", "uses", "b")
    facts.query()
    (held,) = bus.core.facts._cached.values()
    held.memory._write("PRAGMA max_page_count = 1")  # no room for more
    facts.ingest("\n".join(f"{'long ' * 40} {number} -> uses -> b" for number in range(200)))
    with pytest.raises(IndexFailed, match=r"disk is full; free space where"):
        facts.query()
    assert len(facts.query(limit=None)) == 201


@pytest.mark.parametrize("failure", [IndexFailed("disk is full"), KeyboardInterrupt()])
@pytest.mark.parametrize("read", [lambda bus: bus.recall("Docker", scopes=["p1"]), lambda bus: bus.facts("p1").query()])
def test_an_update_of_the_index_that_fails_loses_no_fact(facts, bus, monkeypatch, failure, read):
    fact = facts.assert_fact("App", "uses", "Docker")
    bus.recall("Docker", scopes=["p1"])
    facts.query()
    with Bus.connect(bus.settings.url, bus=bus.core.log.bus, source="tester") as another:
        another.facts("p1").retract(fact.id, "no longer")

    def fail(*_):
        monkeypatch.undo()
        raise failure

    monkeypatch.setattr(FactIndex, "_put", fail)
    with suppress(type(failure)):
        read(bus)
    assert facts.why(fact.id).span.state == "retracted"


def test_an_error_after_a_write_says_that_it_is_in_the_log(facts, monkeypatch):
    facts.same_as("NYC", "New York")

    def fail(*_):
        raise EngineReadOnly("it is read-only; connect to its primary")

    monkeypatch.setattr("scratchbus.commands.facts.review_asserted", fail)
    with pytest.raises(EngineReadOnly) as failed:
        facts.assert_fact("App", "uses", "Docker", event_id="assert-1")
    (fact,) = facts.query("App")
    assert (failed.value.event_id, failed.value.position) == ("assert-1", fact.position)
    monkeypatch.setattr("scratchbus.commands.facts.review_withdrawn", fail)
    written = []
    for _ in range(2):
        with pytest.raises(EngineReadOnly) as failed:
            facts.not_same_as("NYC", "New York", event_id="part-1")
        written.append((failed.value.event_id, failed.value.position))
    assert written == [("part-1", fact.position._replace(ms=written[0][1].ms, seq=fact.position.seq + 1))] * 2


# -- the log -----------------------------------------------------------------------------------------------------------


@USUAL
def test_an_erased_fact_is_gone_from_every_read(facts, bus):
    kept = facts.assert_fact("App", "uses", "Docker")
    fact = facts.assert_fact("Ann", "knows", "a secret", source_text="very private")
    project(bus)
    bus.page("knowledge:p1").erase(fact.id, reason="asked for")
    assert facts.query() == [kept]
    assert facts.query("Ann", known_at=fact.position) == []
    with pytest.raises(NotFound):
        facts.retract(fact.id, "no")
    with Bus.connect(bus.settings.url, bus=bus.core.log.bus) as another:
        assert another.facts("p1").query() == [kept]


def test_a_rebuilt_state_has_the_same_facts(facts, bus):
    facts.ingest("a -> uses -> b\nb -> runs_on -> c")
    facts.retract(facts.query("a")[0].id, "wrong")
    before = facts.query()
    bus.rebuild()
    bus.core.facts.drop("knowledge:p1")
    assert facts.query() == before
    assert bus.verify().findings == []


def test_concurrent_threads_lose_no_facts(facts):
    def work(number):
        facts.assert_fact(f"thread {number}", "uses", "Docker")
        return len(facts.query(f"thread {number}"))

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(work, range(40))] == [1] * 40
    assert len(facts.query(object="docker", limit=None)) == 40


async def test_a_slow_read_of_facts_stops_no_other_task(engine, bus_name):
    async with await AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="tester") as bus:
        facts = bus.facts("p1")
        await facts.assert_fact("a", "uses", "b")
        await facts.query()
        (held,) = bus.core.facts._cached.values()
        for is_new in (False, True):
            if is_new:
                await facts.assert_fact("c", "uses", "d")
            held.lock.acquire()  # as a slow read does, in another thread
            timer = Timer(PATIENCE, held.lock.release)
            timer.start()
            waiting = asyncio.create_task(facts.query())
            await asyncio.sleep(0.2)
            assert timer.is_alive(), "the loop stood still until the lock was released"
            assert not waiting.done()
            timer.cancel()
            held.lock.release()
            assert len(await waiting) == 1 + is_new


async def test_concurrent_tasks_lose_no_facts(engine, bus_name):
    async with await AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="tester") as bus:
        facts = bus.facts("p1")
        await asyncio.gather(*(facts.assert_fact(f"task {number}", "uses", "Docker") for number in range(40)))
        assert len(await facts.query(object="Docker", limit=None)) == 40
        assert len(await facts.neighbours("docker", limit=None)) == 40


def test_a_query_folds_only_new_events(facts, bus, monkeypatch):
    facts.assert_fact("a", "uses", "b")
    facts.query()
    (held,) = bus.core.facts._cached.values()
    folded = Mock(side_effect=held.memory.evolve)
    monkeypatch.setattr(held.memory, "evolve", folded)
    facts.assert_fact("c", "uses", "d")
    assert len(facts.query()) == 2
    assert [call.args[0].about for call in folded.call_args_list] == ["c"]


def test_the_end_of_a_session_keeps_the_facts(facts, bus):
    facts.assert_fact("a", "uses", "b")
    bus.notes("p1").add("a note")
    bus.end_session("p1")
    assert len(facts.query()) == 1


def test_a_clock_behind_the_engines_hides_no_new_facts(facts, monkeypatch):
    monkeypatch.setattr(
        "scratchbus.readmodel.fact_validity.time.time_ns", lambda: 0
    )  # a clock that is far behind the engine's
    facts.assert_fact("a", "uses", "b")
    assert len(facts.query()) == 1


@USUAL
def test_a_fact_is_asserted_though_its_question_finds_the_page_full(connect):
    bus, other = (
        connect(max_observations=1, on_full="refuse"),
        connect(source="other", max_observations=1, on_full="refuse"),
    )
    bus.page("knowledge:p1").add("risk_alert", "a")
    bus.facts("p1").assert_fact("App", "runs_on", "Node 22", valid_at="2026-01-01")
    other.facts("p1").assert_fact("App", "runs_on", "Node 24", valid_at="2026-01-01")
    assert [span.state for span in bus.facts("p1").timeline("App", "runs_on")] == ["contested"] * 2


@pytest.mark.engines("memory")
def test_a_question_has_at_most_1000_ids_of_evidence(connect):
    bus, other = connect(max_observations=1_000), connect(source="other", max_observations=1_000)
    for number, each in enumerate((bus, other)):
        seen = bus.page(f"p{number}").add_many([NewObservation(type="observation", content="a")] * 600)
        ids = [observation.id for observation in seen]
        each.facts("p1").assert_fact("App", "runs_on", f"Node {number}", valid_at="2026-01-01", evidence=ids)
    (question,) = bus.facts("p1").pending_review()
    assert len(question.evidence) == 1_000
