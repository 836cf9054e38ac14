"""The executor acts on a suggestion once, whoever else is after it."""

import pytest
import structlog
from structlog.testing import LogCapture

from daemons.executor import Executor
from daemons.router import FOR_EXECUTOR, SUGGESTION
from daemons.tools import Choice, ToolTable
from scratchbus.errors import InvalidField, StaleFence
from tests.waiting import eventually

TABLE = ToolTable(tools=(Choice(tool="block", type="risk_alert", tags=("ssh",), success="done"),))


class Chest:
    """One tool, which remembers what it was called for."""

    def __init__(self, *problems):
        self.problems = list(problems)
        self.acted = []

    def block(self, alert):
        if self.problems:
            raise self.problems.pop(0)
        self.acted.append(alert.id)
        return f"block:{alert.content}"

    def executor(self, bus, **options):
        return Executor(bus, "main", TABLE, {"block": self.block}, **options)


@pytest.fixture
def chest():
    return Chest()


@pytest.fixture
def suggest(page):
    def add(content="192.0.2.1", tags=("ssh",)):
        alert = page.add("risk_alert", content, tags=tags)
        return page.add(SUGGESTION, f"Act on: {content}", evidence=[alert.id], tags=[FOR_EXECUTOR])

    return add


@pytest.fixture
def act(bus, page):
    """Have an executor act on the next suggestion."""

    def act_on_next(chest):
        with page.claim_next(types=SUGGESTION) as job:
            chest.executor(bus).act(job)

    return act_on_next


def kinds(page, id):
    return [event.kind for event in page.history(id)]


def status(page, suggestion):
    return page.get(suggestion.id).status


def test_it_claims_acts_links_and_resolves(page, chest, suggest, act):
    suggestion = suggest()
    act(chest)
    (alert_id,) = suggestion.evidence
    assert chest.acted == [alert_id]
    assert page.get(alert_id).links == ["block:192.0.2.1"]
    assert kinds(page, suggestion.id) == ["added", "claimed", "updated", "status_changed"]
    done = page.get(suggestion.id)
    assert (done.status, done.reason) == ("resolved", "block:192.0.2.1")


def test_what_it_does_says_that_the_suggestion_is_the_cause(page, chest, suggest, act):
    suggestion = suggest()
    act(chest)
    _, claimed, _, resolved = page.history(suggestion.id)
    linked = page.history(suggestion.evidence[0])[-1]
    assert (linked.kind, linked.cause, resolved.cause) == ("linked", str(claimed.position), str(claimed.position))
    assert linked.id in {event.id for event in page.consequences(suggestion.id).events}


@pytest.fixture
def said(monkeypatch):
    """What the executor logs, however logging is configured."""
    capture = LogCapture()
    every_level = structlog.make_filtering_bound_logger(0)
    logger = structlog.wrap_logger(None, processors=[capture], wrapper_class=every_level)
    monkeypatch.setattr("daemons.executor.logger", logger)
    return capture.entries


@pytest.mark.parametrize(
    ("problems", "says"),
    [
        ([], [("info", "done")]),
        ([InvalidField("context", "address: no")], [("warning", "left for review")]),
        ([OSError(28, "No space left on device")], []),
    ],
    ids=["done", "left", "failed"],
)
def test_the_log_says_done_of_nothing_but_what_is_done(suggest, act, said, problems, says):
    suggestion = suggest()
    act(Chest(*problems))
    assert [(line["log_level"], line["event"]) for line in said] == says
    assert all(line["suggestion"] == suggestion.id for line in said)


def test_what_is_there_and_what_comes_is_taken_up_while_it_runs(bus, page, chest, suggest, running):
    before = suggest("192.0.2.1")
    with running(chest.executor(bus).run):
        eventually(lambda: status(page, before) == "resolved", "what was there is done")
        after = suggest("192.0.2.2")
        eventually(lambda: status(page, after) == "resolved", "what came is done")
    assert chest.acted == [*before.evidence, *after.evidence]


def test_suggestions_for_others_and_on_other_pages_are_left_alone(bus, page, chest, suggest, running):
    for_people = page.add(SUGGESTION, "Go to the bistro")
    elsewhere = bus.page("elsewhere").add(SUGGESTION, "Act on: 192.0.2.7", tags=[FOR_EXECUTOR])
    with running(chest.executor(bus).run):
        mine = suggest()
        eventually(lambda: status(page, mine) == "resolved", "its own is done")
    assert kinds(page, for_people.id) == kinds(bus.page("elsewhere"), elsewhere.id) == ["added"]


def test_what_someone_else_holds_is_left_alone(bus, page, chest, suggest, running):
    held = suggest()
    page.claim(held.id, by="somebody", ttl="1m")
    with running(chest.executor(bus).run):
        free = suggest("192.0.2.2")
        eventually(lambda: status(page, free) == "resolved", "what is free is done")
    assert kinds(page, held.id) == ["added", "claimed"]


@pytest.mark.slow
def test_each_suggestion_is_acted_on_by_one_of_many_executors(bus, page, chest, suggest, running):
    wanted = [suggest(f"192.0.2.{number}") for number in range(10)]
    with (
        running(chest.executor(bus).run),
        running(chest.executor(bus).run),
        running(chest.executor(bus).run),
    ):
        wanted += [suggest(f"198.51.100.{number}") for number in range(10)]
        eventually(lambda: not page.list(type=SUGGESTION, status="active"), "all are resolved")
    assert sorted(chest.acted) == sorted(each.evidence[0] for each in wanted)
    assert all(kinds(page, each.id) == ["added", "claimed", "updated", "status_changed"] for each in wanted)
    assert all(len(page.get(each.evidence[0]).links) == 1 for each in wanted)


def test_what_an_executor_left_when_it_died_is_done_by_the_next_one_and_recorded_once(
    bus, page, chest, suggest, running
):  # fmt: skip
    suggestion = suggest()
    (alert_id,) = suggestion.evidence
    page.claim(suggestion.id, by="executor-1", ttl="20ms")  # it acted and linked, and died before it resolved
    page.link(alert_id, action="block:192.0.2.1", event_id=f"executor:{suggestion.id}:link")
    with running(chest.executor(bus).run):
        eventually(
            lambda: status(page, suggestion) == "resolved", "the claim has lapsed and the suggestion is resolved"
        )
    assert chest.acted == [alert_id]
    assert page.get(alert_id).links == ["block:192.0.2.1"]
    assert kinds(page, alert_id) == ["added", "linked"]


def test_a_slow_executor_that_lost_its_claim_does_not_resolve(bus, page, chest, suggest):
    suggestion = suggest()
    slow = page.claim_next(types=SUGGESTION, by="executor-1", ttl="20ms")
    eventually(lambda: page.claim_next(types=SUGGESTION, by="executor-2", ttl="1m"), "the claim has lapsed")
    with pytest.raises(StaleFence):
        chest.executor(bus).act(slow)
    assert page.get(suggestion.id).status == "active"
    assert page.get(suggestion.id).claim.by == "executor-2"


def test_an_alert_that_is_over_is_not_acted_on(page, chest, suggest, act):
    suggestion = suggest()
    page.archive(suggestion.evidence[0])
    act(chest)
    assert chest.acted == []
    assert page.get(suggestion.id).reason == "what it rests on is over"


def test_what_no_tool_can_do_anything_with_goes_to_review_with_the_reason(page, chest, suggest, act):
    refused, without = suggest(), suggest(tags=["fraud"])
    act(chest)
    act(Chest(InvalidField("context", "address: 'example.org' is not an IP address")))
    assert [status(page, each) for each in (refused, without)] == ["pending_review", "pending_review"]
    assert "not an IP address" in page.get(refused.id).reason
    assert "no tool for this risk_alert" in page.get(without.id).reason


def test_what_failed_is_given_back_and_tried_again_after_a_while(bus, page, suggest, running):
    suggestion = suggest()
    chest = Chest(OSError(28, "No space left on device"))
    with running(chest.executor(bus).run):
        eventually(lambda: status(page, suggestion) == "resolved", "it is tried again")
    assert kinds(page, suggestion.id) == [
        "added", "claimed", "updated", "released", "claimed", "updated", "status_changed"
    ]  # fmt: skip
    assert "No space left" in page.history(suggestion.id)[3].reason


def test_what_others_wrote_on_a_suggestion_meanwhile_stays(page, chest, suggest, act):
    suggestion = suggest()
    page.update(suggestion.id, metadata={"note": "ok by Ann"})
    act(chest)
    assert page.get(suggestion.id).metadata == {"note": "ok by Ann", "outcome": "done", "action": "block:192.0.2.1"}


def test_an_executor_that_died_between_two_links_loses_neither(bus, page, suggest, act, monkeypatch):
    other = page.add("risk_alert", "Fraud")
    alert = page.add("risk_alert", "192.0.2.1", tags=["ssh"])
    suggestion = page.add(SUGGESTION, "Act", evidence=[alert.id, other.id], tags=[FOR_EXECUTOR])
    page.link(alert.id, "block:first", event_id=f"executor:{suggestion.id}:link")
    act(Chest())
    assert page.get(alert.id).links == ["block:first"]
    done = page.get(suggestion.id)
    assert (done.links, done.metadata["action"]) == (["block:first"], "block:first")
