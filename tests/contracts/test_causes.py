"""The cause of an event, and the trace it belongs to."""

import pytest

from scratchbus import because, within_trace
from scratchbus.errors import InvalidField, InvalidPosition

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_events_inside_because_have_its_cause_and_trace(bus, page):
    (seen,) = [page.add("observation", "x"), *bus.events()][1:]
    with because(seen, traceparent=TRACE):
        story = page.add("risk_alert", "y", dedupe_key="k")
        page.add("risk_alert", "y", dedupe_key="k")
        page.update(story.id, content="z")
        fence = page.claim(story.id, by="executor-1").fence
        page.link(story.id, "goal-1")
        page.release(story.id, fence=fence)
        page.resolve(story.id)
        page.clear_resolved([story.id])
    events = page.history(story.id)
    assert len(events) == 8
    assert {(event.cause, event.traceparent) for event in events} == {(str(seen.position), TRACE)}


def test_events_outside_because_have_no_cause(page):
    with because("12-1"), because(traceparent=TRACE):
        inner = page.add("observation", "x")
    outer = page.add("observation", "y")
    assert [(event.cause, event.traceparent) for event in page.history(inner.id)] == [("12-1", TRACE)]
    assert [(event.cause, event.traceparent) for event in page.history(outer.id)] == [(None, None)]


def test_an_invalid_cause_or_trace_is_refused(page):
    with pytest.raises(InvalidPosition), because("yesterday"):
        page.add("observation", "x")
    with pytest.raises(InvalidField), because(traceparent="abc"):
        page.add("observation", "x")
    assert page.list() == []


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (TRACE, TRACE),
        (f"01{TRACE[2:]}-more", TRACE),  # of a later version
        (f"{TRACE}-more", None),
        (f"ff{TRACE[2:]}", None),
        (f"00-{'0' * 32}{TRACE[35:]}", None),
        (f"{TRACE[:36]}{'0' * 16}-01", None),
        (f"{TRACE}, {TRACE}", None),
        (TRACE.upper(), None),
        ("abc", None),
        (None, None),
        (7, None),
    ],
)
def test_within_trace_keeps_a_valid_trace_and_ignores_others(page, sent, kept):
    with within_trace(sent):
        one = page.add("observation", "x")
    assert page.history(one.id)[0].traceparent == kept
