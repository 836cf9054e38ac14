"""Triplets as the summary of a text: how they are found, and how many tokens they save."""

from __future__ import annotations

import pytest

from scratchbus import Bus, Triplet, estimate_tokens
from scratchbus.commands.ingest import lines
from scratchbus.domain.tokens import TokenCounter
from scratchbus.errors import EventIdReused, InvalidField, TooLarge, UnknownRelation
from tests.engines import ONE
from tests.inspection import log_length
from tests.memory import savings
from tests.memory.fact_log import RELATIONS
from tests.memory.transcripts import ALL

pytestmark = pytest.mark.engines(*ONE)


@pytest.fixture
def facts(bus: Bus):
    return bus.facts("p1")


def triplets(found):
    return [fact.triplet for fact in found]


TEXT = """\
[Agent] -> [uses] -> [resize handles]
- App -> depends on -> react-resizable-panels
  > a->uses->b
runs on: Node 24
* Depends-On: postgres
note: nothing of interest
a -> b
a -> b -> c -> d
 -> uses -> x
http://example.org: a page
"""


def test_lines_become_triplets():
    assert [triplet[:3] for triplet in lines(TEXT, RELATIONS, "App")] == [
        ("Agent", "uses", "resize handles"),
        ("App", "depends on", "react-resizable-panels"),
        ("a", "uses", "b"),
        ("App", "runs on", "Node 24"),
        ("App", "Depends-On", "postgres"),
    ]
    assert len(lines(TEXT, RELATIONS)) == 3
    assert lines("App -> uses -> Docker", RELATIONS)[0].source_text == "App -> uses -> Docker"


def test_an_ingestion_is_one_batch_that_can_be_retried(facts, bus):
    found = facts.ingest("a -> uses -> b\nb -> uses -> c", event_id="mine", confidence=0.5)
    assert [(fact.triplet, fact.source_text, fact.confidence) for fact in found] == [
        ("a -> uses -> b", "a -> uses -> b", 0.5),
        ("b -> uses -> c", "b -> uses -> c", 0.5),
    ]
    assert facts.ingest("a -> uses -> b\nb -> uses -> c", event_id="mine", confidence=0.5) == found
    assert log_length(bus) == 2
    with pytest.raises(EventIdReused):
        facts.ingest("a -> uses -> c", event_id="mine")
    assert facts.ingest("no facts here") == []


def test_any_function_can_be_the_extractor(facts):
    def model(text):
        yield Triplet("App", "uses", "Docker", text)
        yield ("App", "uses", "git")
        yield {"subject": "App", "relation": "uses", "object": "make"}

    found = facts.ingest("We use Docker, git and make.", model)
    assert triplets(found) == ["App -> uses -> Docker", "App -> uses -> git", "App -> uses -> make"]
    assert found[0].source_text == "We use Docker, git and make."


@pytest.mark.parametrize(
    ("answer", "error", "problem"),
    [
        ([("a", "uses", "b"), ("a", "xyzzy", "b")], UnknownRelation, "triplet 2 of 2: .*nothing was asserted"),
        ([("a", "uses", "b"), ("a", "uses", "")], InvalidField, "triplet 2 of 2: object"),
        ([("a", "uses")], InvalidField, "which is not"),
        ([{"subject": "a"}], InvalidField, "relation"),
        ("a -> uses -> b", InvalidField, "not a list of triplets"),
        (None, InvalidField, "not a list of triplets"),
        ([("a", "uses", f"b{number}") for number in range(1_001)], TooLarge, "split the text"),
    ],
)
def test_an_invalid_extraction_asserts_nothing(facts, bus, answer, error, problem):
    with pytest.raises(error, match=problem):
        facts.ingest("a text", lambda text: answer)
    assert log_length(bus) == 0
    with pytest.raises(ZeroDivisionError):
        facts.ingest("a text", lambda text: 1 / 0)
    with pytest.raises(InvalidField, match="cannot be called"):
        facts.ingest("a text", "model")


@pytest.mark.parametrize("name", ALL)
def test_triplets_have_a_fraction_of_the_tokens_of_a_transcript(facts, name):
    text, summary = ALL[name]
    facts.ingest(summary)
    shown = facts.render_triplets(10_000)
    assert len(shown.splitlines()) == len(summary.splitlines())
    assert savings.saved(text, shown, estimate_tokens) > 0.7
    assert savings.saved(text, shown, savings.exact) > 0.7


@pytest.mark.parametrize("budget", [1, 5, 12, 20, 40, 80, 1_000])
@pytest.mark.parametrize("counter", [estimate_tokens, len])
def test_a_rendering_keeps_its_budget_and_counts_omissions(facts, budget: int, counter: TokenCounter):
    facts.ingest("\n".join(f"App -> uses -> tool {number}" for number in range(12)))
    text = facts.render_triplets(budget, counter=counter)
    assert counter(text) <= budget
    kept = [line for line in text.splitlines() if "->" in line]
    assert kept == [f"App -> uses -> tool {number}" for number in range(11, 11 - len(kept), -1)]
    if text and len(kept) < 12:
        assert text.splitlines()[-1] == f"({12 - len(kept)} more left out for lack of room)"


def test_each_pair_of_names_is_rendered(facts):
    facts.same_as("NYC", "New York")
    facts.same_as("New York", "Big Apple")
    assert facts.render_triplets(1_000).splitlines() == [
        "New York -> same_as -> Big Apple",
        "NYC -> same_as -> New York",
    ]


def test_a_rendering_uses_its_whole_budget(facts):
    facts.ingest("App -> uses -> a tool that is too long to fit beside the other\nApp -> uses -> two")
    text = "App -> uses -> two\n(1 more left out for lack of room)"
    assert facts.render_triplets(len(text), counter=len) == text
    text = "\n".join(fact.triplet for fact in facts.query())
    assert facts.render_triplets(len(text), counter=len) == text


def test_a_rendering_has_fewer_lines_if_they_cost_more_together_than_alone(facts):
    facts.ingest("\n".join(f"App -> uses -> tool {number}" for number in range(12)))
    text = facts.render_triplets(20, counter=lambda text: len(text.splitlines()) ** 2)
    lines = [f"App -> uses -> tool {number}" for number in (11, 10, 9)]
    assert text.splitlines() == [*lines, "(9 more left out for lack of room)"]


def test_a_context_shows_the_facts_of_a_scope_as_quotes(facts, bus):
    facts.assert_fact("App", "uses", "Docker")
    found = bus.context.assemble(scopes=["p1"], page="main", budget=1_000)
    assert "## Facts\n" in found.text
    assert "\n> App -> uses -> Docker" in found.text
    assert [part.name for part in found.parts] == ["facts"]
    facts.ingest("\n".join(f"App -> uses -> tool {number}" for number in range(300)))
    small = bus.context.assemble(scopes=["p1"], budget=300)
    assert small.tokens <= 300
    assert small.left_out["facts"] > 0


def test_facts_asserted_again_are_rendered_once(bus: Bus, facts):
    for _ in range(50):
        facts.assert_fact("Heron", "uses", "Docker")
    again = facts.assert_fact("heron", "Works with", "docker")
    facts.assert_fact("Docker", "used_by", "Heron")
    facts.assert_fact("Ann", "knows", "Bob")
    facts.assert_fact("Bob", "knows", "Ann")
    facts.assert_fact("Ann", "works_on", "Heron")
    facts.same_as("Docker", "Docker Engine")
    facts.assert_fact("Heron", "uses", "Docker Engine")
    lines = ["Heron -> uses -> Docker Engine", "Docker -> same_as -> Docker Engine", "Ann -> works_on -> Heron"]
    lines.append("Bob -> knows -> Ann")
    assert facts.render_triplets(1_000).split("\n") == lines
    assert facts.render_triplets(40).split("\n") == lines
    shown = bus.context.assemble(scopes=["p1"]).text
    assert [line.removeprefix("> ") for line in shown.split("\n") if "->" in line] == lines
    assert len(facts.query("heron", "uses", limit=None)) == 53
    recalled = [each.text for each in bus.recall("heron", scopes=["p1"], limit=3)]
    assert len(set(recalled)) == 3
    assert again.id not in facts.render_triplets(1_000)
