"""Traces of an action back to its motives, and of an observation to its consequences, over all pages."""

import pytest

from scratchbus import AsyncBus, because
from scratchbus.domain.position import in_time
from scratchbus.errors import InvalidField, NotFound
from scratchbus.eventlog.ids import new_id
from tests.engines import ONE
from tests.inspection import project

pytestmark = pytest.mark.engines(*ONE)


def on(page, content, *evidence):
    return page.add("observation", content, evidence=[getattr(each, "id", each) for each in evidence])


def lines(tree):
    """Return a tree as text, one indented line per branch."""
    return [
        "  " * branch.depth + (branch.observation.content if branch.observation else "?") + "…" * branch.again
        for branch in tree.tree()
    ]


def test_an_action_is_traced_to_its_evidence(connect):
    log, page = connect("logwatch").page(), connect("executor").page()
    line = on(log, "line")
    alert = on(log, "alert", line)
    page.link(alert.id, "block:192.0.2.7")
    trace = page.trace("block:192.0.2.7")
    assert lines(trace) == ["alert", "  line"]
    (motive,) = trace.motives
    linked = page.history(alert.id)[-1]
    assert (motive.id, motive.by, motive.at) == (alert.id, "executor", linked.at)
    assert trace.observations == {alert.id: page.get(alert.id), line.id: line}
    assert trace.observations[line.id].source == "logwatch"


def test_motives_are_in_the_order_of_their_links(page):
    first, second = on(page, "first"), on(page, "second")
    page.link(second.id, "goal")
    page.link(first.id, "goal")
    page.link(second.id, "goal")
    page.link(first.id, "goal-2")
    assert lines(page.trace("goal")) == ["second", "first"]


def test_a_trace_finds_evidence_on_all_pages(bus):
    pages = [bus.page(f"page-{number}") for number in range(6)]
    chain = [on(pages[0], "0")]
    for number, page in enumerate(pages[1:], 1):
        chain.append(on(page, str(number), chain[-1]))
    pages[-1].link(chain[-1].id, "goal")
    trace = pages[-1].trace("goal")
    assert lines(trace) == ["5", "  4", "    3", "      2", "        1", "          0"]
    assert [branch.observation.page for branch in trace.tree()][-1] == "page-0"


def test_a_trace_marks_repeated_and_missing_observations(page):
    bottom = page.add("observation", "bottom", dedupe_key="k")
    left, right = on(page, "left", bottom), on(page, "right", bottom)
    gone = page.resolve(on(page, "gone").id)
    lost = on(page, "lost")
    top = on(page, "top", left, right, lost.id, gone)
    page.erase(lost.id, reason="private")
    page.clear_resolved([gone.id])
    page.add("observation", "bottom", dedupe_key="k", evidence=[top.id])
    page.link(top.id, "goal")
    assert lines(page.trace("goal")) == [
        "top", "  left", "    bottom", "      top…", "  right", "    bottom…", "  ?", "  ?",
    ]  # fmt: skip


def test_actions_belong_to_a_page_and_can_have_any_name(bus, page):
    for action in ("a", "a b", "a#b", "a>b@c", "b" * 256, "é"):
        page.link(on(page, action).id, action)
        assert lines(page.trace(action)) == [action]
    with pytest.raises(NotFound, match="'other' is linked to 'a'; check the page"):
        bus.page("other").trace("a")
    with pytest.raises(NotFound):
        page.trace("a ")
    with pytest.raises(InvalidField):
        page.trace("a\tb")


def test_a_trace_shows_refutations(page):
    line = on(page, "line")
    alert = on(page, "alert", line)
    page.link(alert.id, "goal")
    page.refute(line.id, reason="misread")
    trace = page.trace("goal")
    assert [branch.observation.reason_code for branch in trace.tree()] == ["reviewed", "refuted"]


def test_consequences_include_dependents_and_actions(bus, page):
    other = bus.page("other")
    line = on(page, "line")
    alert = on(other, "alert", line)
    suggestion = on(page, "suggestion", alert, line)
    on(page, "aside")
    other.link(alert.id, "ticket-1")
    page.link(suggestion.id, "block")
    page.link(suggestion.id, "ticket-1")
    led_to = page.consequences(line.id)
    assert lines(led_to) == ["line", "  alert", "    suggestion", "  suggestion…"]
    assert led_to.actions == ["ticket-1", "block"]
    assert led_to.events == []


def test_consequences_include_caused_events_on_all_pages(bus, page):
    cause = on(page, "cause")
    (seen,) = page.history(cause.id)
    expected = []
    for number in range(4):
        with because(seen):
            added = on(bus.page(f"page-{number}"), "effect")
        expected.append(added.id)
    page.update(cause.id, content="more")
    with because(page.history(cause.id)[-1]):
        expected.append(page.resolve(cause.id).id)
    with because(bus.page("page-0").history(expected[0])[-1]):
        on(page, "effect of an effect")
    events = page.consequences(cause.id).events
    assert sorted(event.subject for event in events) == sorted(expected)
    assert events == sorted(events, key=in_time)


def test_a_cleared_observation_has_consequences(page):
    gone = on(page, "gone")
    above = on(page, "above", gone)
    page.resolve(gone.id)
    page.clear_resolved([gone.id])
    assert lines(page.consequences(gone.id)) == ["?", "  above"]
    assert page.consequences(above.id).observations == {above.id: above}


def test_consequences_of_an_unknown_observation_raise_not_found(page):
    with pytest.raises(NotFound):
        page.consequences(new_id())


def test_traces_are_the_same_before_and_after_a_fold(bus, page):
    line = on(page, "line")
    alert = on(page, "alert", line)
    page.link(alert.id, "goal")
    with because(page.history(line.id)[0]):
        page.update(alert.id, content="alert!")
    before = page.trace("goal"), page.consequences(line.id)
    project(bus)
    assert (page.trace("goal"), page.consequences(line.id)) == before
    assert len(before[1].events) == 1


def test_traces_round_trip_through_json(page):
    line = on(page, "line")
    alert = on(page, "alert", line)
    page.link(alert.id, "goal")
    for tree in (page.trace("goal"), page.consequences(line.id)):
        assert type(tree).model_validate_json(tree.model_dump_json(exclude_computed_fields=True)) == tree


def test_a_long_chain_of_evidence_is_traced_to_its_end(page):
    chain = [on(page, "0")]
    for number in range(1, 80):
        chain.append(on(page, str(number), chain[-1]))
    page.link(chain[-1].id, "goal")
    assert [branch.depth for branch in page.trace("goal").tree()] == list(range(80))


async def test_async_traces_are_the_same(engine, connect, bus_name):
    page = connect().page()
    line = on(page, "line")
    page.link(line.id, "goal")
    async with AsyncBus.connect(engine.url, bus=bus_name, shards=engine.shards, source="async") as other:
        assert await other.page().trace("goal") == page.trace("goal")
        assert await other.page().consequences(line.id) == page.consequences(line.id)
