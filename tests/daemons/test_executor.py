"""The executor acts once on each suggestion, also beside other executors."""

import pytest

from daemons.executor import Executor
from daemons.router import FOR_EXECUTOR, SUGGESTION
from daemons.tools import Choice, ToolTable
from scratchbus.errors import InvalidField, StaleFence
from tests.waiting import eventually

TABLE = ToolTable(tools=(Choice(tool="block", type="risk_alert", tags=("ssh",), success="done"),))


class Toolbox:
    """One tool, which records its calls."""

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
def toolbox():
    return Toolbox()


@pytest.fixture
def suggest(page):
    def add(content="192.0.2.1", tags=("ssh",)):
        alert = page.add("risk_alert", content, tags=tags)
        return page.add(SUGGESTION, f"Act on: {content}", evidence=[alert.id], tags=[FOR_EXECUTOR])

    return add


@pytest.fixture
def act(bus, page):
    """Have an executor act on the next suggestion."""

    def act_on_next(toolbox):
        with page.claim_next(types=SUGGESTION) as job:
            toolbox.executor(bus).act(job)

    return act_on_next


def kinds(page, id):
    return [event.kind for event in page.history(id)]


def status(page, suggestion):
    return page.get(suggestion.id).status


def test_an_executor_claims_acts_links_and_resolves(page, toolbox, suggest, act):
    suggestion = suggest()
    act(toolbox)
    (alert_id,) = suggestion.evidence
    assert toolbox.acted == [alert_id]
    assert page.get(alert_id).links == ["block:192.0.2.1"]
    assert kinds(page, suggestion.id) == ["added", "claimed", "updated", "status_changed"]
    done = page.get(suggestion.id)
    assert (done.status, done.reason) == ("resolved", "block:192.0.2.1")


def test_the_events_of_an_action_name_the_claim_as_cause(page, toolbox, suggest, act):
    suggestion = suggest()
    act(toolbox)
    _, claimed, _, resolved = page.history(suggestion.id)
    linked = page.history(suggestion.evidence[0])[-1]
    assert (linked.kind, linked.cause, resolved.cause) == ("linked", str(claimed.position), str(claimed.position))
    assert linked.id in {event.id for event in page.consequences(suggestion.id).events}


@pytest.fixture
def logged(log_of):
    return log_of("daemons.executor")


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ([], [("info", "done")]),
        ([InvalidField("context", "address: no")], [("warning", "left for review")]),
        ([OSError(28, "No space left on device")], []),
    ],
    ids=["done", "left", "failed"],
)
def test_only_a_successful_action_is_logged_as_done(suggest, act, logged, problems, expected):
    suggestion = suggest()
    act(Toolbox(*problems))
    assert [(line["log_level"], line["event"]) for line in logged] == expected
    assert all(line["suggestion"] == suggestion.id for line in logged)


def test_earlier_and_new_suggestions_are_acted_on(bus, page, toolbox, suggest, running):
    before = suggest("192.0.2.1")
    with running(toolbox.executor(bus).run):
        eventually(lambda: status(page, before) == "resolved", "the earlier suggestion is resolved")
        after = suggest("192.0.2.2")
        eventually(lambda: status(page, after) == "resolved", "the new suggestion is resolved")
    assert toolbox.acted == [*before.evidence, *after.evidence]


def test_suggestions_for_others_and_on_other_pages_are_left_alone(bus, page, toolbox, suggest, running):
    for_people = page.add(SUGGESTION, "Go to the bistro")
    elsewhere = bus.page("elsewhere").add(SUGGESTION, "Act on: 192.0.2.7", tags=[FOR_EXECUTOR])
    with running(toolbox.executor(bus).run):
        mine = suggest()
        eventually(lambda: status(page, mine) == "resolved", "its own suggestion is resolved")
    assert kinds(page, for_people.id) == kinds(bus.page("elsewhere"), elsewhere.id) == ["added"]


def test_a_claimed_suggestion_is_left_alone(bus, page, toolbox, suggest, running):
    held = suggest()
    page.claim(held.id, by="somebody", ttl="1m")
    with running(toolbox.executor(bus).run):
        free = suggest("192.0.2.2")
        eventually(lambda: status(page, free) == "resolved", "the free suggestion is resolved")
    assert kinds(page, held.id) == ["added", "claimed"]


@pytest.mark.slow
def test_each_suggestion_is_acted_on_by_one_of_many_executors(bus, page, toolbox, suggest, running):
    wanted = [suggest(f"192.0.2.{number}") for number in range(10)]
    with (
        running(toolbox.executor(bus).run),
        running(toolbox.executor(bus).run),
        running(toolbox.executor(bus).run),
    ):
        wanted += [suggest(f"198.51.100.{number}") for number in range(10)]
        eventually(lambda: not page.list(type=SUGGESTION, status="active"), "all are resolved")
    assert sorted(toolbox.acted) == sorted(each.evidence[0] for each in wanted)
    assert all(kinds(page, each.id) == ["added", "claimed", "updated", "status_changed"] for each in wanted)
    assert all(len(page.get(each.evidence[0]).links) == 1 for each in wanted)


def test_an_action_after_a_lapsed_claim_is_linked_once(
    bus, page, toolbox, suggest, running
):  # fmt: skip
    suggestion = suggest()
    (alert_id,) = suggestion.evidence
    page.claim(suggestion.id, by="executor-1", ttl="20ms")  # it acted and linked, and died before it resolved
    page.link(alert_id, action="block:192.0.2.1", event_id=f"executor:{suggestion.id}:link")
    with running(toolbox.executor(bus).run):
        eventually(
            lambda: status(page, suggestion) == "resolved", "the claim has lapsed and the suggestion is resolved"
        )
    assert toolbox.acted == [alert_id]
    assert page.get(alert_id).links == ["block:192.0.2.1"]
    assert kinds(page, alert_id) == ["added", "linked"]


def test_a_slow_executor_that_lost_its_claim_does_not_resolve(bus, page, toolbox, suggest):
    suggestion = suggest()
    slow = page.claim_next(types=SUGGESTION, by="executor-1", ttl="20ms")
    eventually(lambda: page.claim_next(types=SUGGESTION, by="executor-2", ttl="1m"), "the claim has lapsed")
    with pytest.raises(StaleFence):
        toolbox.executor(bus).act(slow)
    assert page.get(suggestion.id).status == "active"
    assert page.get(suggestion.id).claim.by == "executor-2"


def test_an_archived_alert_is_not_acted_on(page, toolbox, suggest, act):
    suggestion = suggest()
    page.archive(suggestion.evidence[0])
    act(toolbox)
    assert toolbox.acted == []
    assert page.get(suggestion.id).reason == "what it rests on is over"


def test_a_suggestion_without_a_usable_tool_goes_to_review(page, toolbox, suggest, act):
    refused, without = suggest(), suggest(tags=["fraud"])
    act(toolbox)
    act(Toolbox(InvalidField("context", "address: 'example.org' is not an IP address")))
    assert [status(page, each) for each in (refused, without)] == ["pending_review", "pending_review"]
    assert "not an IP address" in page.get(refused.id).reason
    assert "no tool for this risk_alert" in page.get(without.id).reason


def test_a_failed_action_is_released_and_retried(bus, page, suggest, running):
    suggestion = suggest()
    toolbox = Toolbox(OSError(28, "No space left on device"))
    with running(toolbox.executor(bus).run):
        eventually(lambda: status(page, suggestion) == "resolved", "it is tried again")
    assert kinds(page, suggestion.id) == [
        "added", "claimed", "updated", "released", "claimed", "updated", "status_changed"
    ]  # fmt: skip
    assert "No space left" in page.history(suggestion.id)[3].reason


def test_metadata_that_others_wrote_on_a_suggestion_is_kept(page, toolbox, suggest, act):
    suggestion = suggest()
    page.update(suggestion.id, metadata={"note": "ok by Ann"})
    act(toolbox)
    assert page.get(suggestion.id).metadata == {"note": "ok by Ann", "outcome": "done", "action": "block:192.0.2.1"}


def test_an_action_repeated_after_a_crash_keeps_its_first_link(bus, page, suggest, act, monkeypatch):
    other = page.add("risk_alert", "Fraud")
    alert = page.add("risk_alert", "192.0.2.1", tags=["ssh"])
    suggestion = page.add(SUGGESTION, "Act", evidence=[alert.id, other.id], tags=[FOR_EXECUTOR])
    page.link(alert.id, "block:first", event_id=f"executor:{suggestion.id}:link")
    act(Toolbox())
    assert page.get(alert.id).links == ["block:first"]
    assert page.get(other.id).links == []
    done = page.get(suggestion.id)
    assert (done.links, done.metadata["action"]) == (["block:first"], "block:first")
