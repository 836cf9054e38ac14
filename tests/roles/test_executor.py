"""The executor acts on a suggestion once, whoever else is after it."""

import threading

import pytest
import structlog
from structlog.testing import LogCapture

from scratchbus.errors import InvalidField
from scratchbus.roles.executor import Executor
from scratchbus.roles.router import SUGGESTION
from scratchbus.roles.tools import Choice, ToolTable
from tests.roles.waiting import until

TABLE = ToolTable((Choice("block", "risk_alert", frozenset({"ssh"})),))


class Chest:
    """One tool, which remembers what it was called for."""

    def __init__(self, problem=None):
        self.problem = problem
        self.acted = []

    def block(self, alert):
        if self.problem:
            raise self.problem
        self.acted.append(alert.id)
        return f"block:{alert.content}"

    def executor(self, bus, name="executor-1", **options):
        return Executor(bus, "main", TABLE, {"block": self.block}, name, **options)


@pytest.fixture
def chest():
    return Chest()


@pytest.fixture
def suggest(page):
    def add(content="192.0.2.1", tags=("ssh",), urgency=70):
        alert = page.add("risk_alert", content, tags=tags)
        return page.add(SUGGESTION, f"Act on: {content}", evidence=[alert.id], metadata={"urgency": urgency})

    return add


def kinds(page, id):
    return [event.kind for event in page.history(id)]


def test_it_claims_acts_links_and_resolves(bus, page, chest, suggest):
    suggestion = suggest()
    chest.executor(bus).look_around(threading.Event())
    (alert_id,) = suggestion.evidence
    assert chest.acted == [alert_id]
    assert page.get(alert_id).links == ["block:192.0.2.1"]
    assert kinds(page, suggestion.id) == ["added", "claimed", "status_changed"]
    done = page.get(suggestion.id)
    assert (done.status, done.reason) == ("resolved", "block:192.0.2.1")


def test_what_it_does_says_that_the_suggestion_is_the_cause(bus, page, chest, suggest):
    suggestion = suggest()
    chest.executor(bus).look_around(threading.Event())
    done = [*page.history(suggestion.id)[1:], page.history(suggestion.evidence[0])[-1]]
    assert [event.kind for event in done] == ["claimed", "status_changed", "linked"]
    assert {event.cause for event in done} == {str(suggestion.position)}


@pytest.fixture
def said(monkeypatch):
    """What the executor logs, however logging is configured."""
    capture = LogCapture()
    every_level = structlog.make_filtering_bound_logger(0)
    logger = structlog.wrap_logger(None, processors=[capture], wrapper_class=every_level)
    monkeypatch.setattr("scratchbus.roles.executor.logger", logger)
    return capture.entries


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (None, [("info", "done")]),
        (InvalidField("context", "address: no"), [("warning", "left for review")]),
        (OSError(28, "No space left on device"), [("error", "failed; will be tried again")]),
    ],
    ids=["done", "left", "failed"],
)
def test_the_log_says_done_of_nothing_but_what_is_done(bus, suggest, said, problem, says):
    suggestion = suggest()
    Chest(problem).executor(bus).look_around(threading.Event())
    assert [(line["log_level"], line["event"]) for line in said] == says
    assert said[0]["suggestion"] == suggestion.id


def test_the_most_urgent_suggestion_comes_first(bus, chest, suggest):
    less, most = suggest("less", urgency=66), suggest("most", urgency=99)
    chest.executor(bus).look_around(threading.Event())
    assert chest.acted == [most.evidence[0], less.evidence[0]]


def test_what_has_no_tool_is_left_alone(bus, page, chest, suggest):
    suggestion = suggest(tags=("fraud",))
    chest.executor(bus).look_around(threading.Event())
    assert kinds(page, suggestion.id) == ["added"]


def test_what_someone_else_holds_is_left_alone(bus, page, chest, suggest):
    suggestion = suggest()
    page.claim(suggestion.id, by="executor-2", ttl="1m")
    chest.executor(bus).look_around(threading.Event())
    assert chest.acted == []
    assert page.get(suggestion.id).status == "active"


def test_each_suggestion_is_acted_on_by_one_of_many_executors(bus, page, chest, suggest, running):
    wanted = [suggest(f"192.0.2.{number}") for number in range(10)]
    with (
        running(chest.executor(bus, "executor-1").run),
        running(chest.executor(bus, "executor-2").run),
        running(chest.executor(bus, "executor-3").run),
    ):
        wanted += [suggest(f"198.51.100.{number}") for number in range(10)]
        until(lambda: not page.list(type=SUGGESTION, status="active"), "all are resolved")
    assert sorted(chest.acted) == sorted(each.evidence[0] for each in wanted)
    assert all(kinds(page, each.id) == ["added", "claimed", "status_changed"] for each in wanted)
    assert all(len(page.get(each.evidence[0]).links) == 1 for each in wanted)


def test_what_an_executor_left_when_it_died_is_done_by_the_next_one_and_recorded_once(bus, page, chest, suggest):
    suggestion = suggest()
    (alert_id,) = suggestion.evidence
    page.claim(suggestion.id, by="executor-1", ttl="20ms")  # it acted and linked, and died before it resolved
    page.link(alert_id, action="block:192.0.2.1", event_id=f"executor:{suggestion.id}:link")
    second = chest.executor(bus, "executor-2")

    def is_taken_over():
        second.look_around(threading.Event())
        return page.get(suggestion.id).status == "resolved"

    until(is_taken_over, "the claim has lapsed and the suggestion is resolved")
    assert page.get(alert_id).links == ["block:192.0.2.1"]


def test_a_slow_executor_that_lost_its_claim_does_not_resolve(bus, page, suggest):
    suggestion = suggest()

    class Slow(Chest):
        def block(self, alert):
            until(lambda: claims_again(), "the claim has lapsed")
            return super().block(alert)

    def claims_again():
        try:
            return page.claim(suggestion.id, by="executor-2", ttl="1m")
        except Exception:
            return None

    slow = Slow()
    slow.executor(bus, "executor-1", claim_ttl="20ms").look_around(threading.Event())
    assert page.get(suggestion.id).status == "active"
    assert page.get(suggestion.id).claim.by == "executor-2"


def test_an_alert_that_is_over_is_not_acted_on(bus, page, chest, suggest):
    suggestion = suggest()
    page.archive(suggestion.evidence[0])
    chest.executor(bus).look_around(threading.Event())
    assert chest.acted == []
    assert page.get(suggestion.id).reason == "what it rests on is over"


def test_what_the_tool_can_do_nothing_with_goes_to_review_with_the_reason(bus, page, suggest):
    suggestion = suggest()
    chest = Chest(InvalidField("context", "address: 'example.org' is not an IP address"))
    chest.executor(bus).look_around(threading.Event())
    left = page.get(suggestion.id)
    assert left.status == "pending_review"
    assert "not an IP address" in left.reason


def test_what_failed_is_given_back_and_tried_again(bus, page, suggest):
    suggestion = suggest()
    chest = Chest(OSError(28, "No space left on device"))
    executor = chest.executor(bus)
    executor.look_around(threading.Event())
    assert kinds(page, suggestion.id) == ["added", "claimed", "released"]
    chest.problem = None
    executor.look_around(threading.Event())
    assert page.get(suggestion.id).status == "resolved"
