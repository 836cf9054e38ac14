"""Scenario 1: a tool waits for a confirmation; later turns see it, follow up, and end it."""

from datetime import timedelta

import pytest

from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.reminders import remind

pytestmark = pytest.mark.engines("memory")


@pytest.fixture
def waiting(connect):
    """The confirmation that `email_verification` waits for."""
    return (
        connect("email_verification")
        .page("user:42")
        .add(
            "pending_confirmation",
            "Waiting for user to confirm email address",
            owner="user",
            status="active",
            context={"task_id": "verify_email_123"},
        )
    )


def test_pending_confirmation(connect, waiting):
    router = connect("router").page("user:42")
    router.add("contextual_insight", "Prefers short answers")
    first = router.active()[0]
    assert first == waiting
    assert (first.source, first.owner, first.context) == (
        "email_verification", "user", {"task_id": "verify_email_123"},
    )  # fmt: skip
    assert router.list(type="pending_confirmation", status="active", owner="user") == [waiting]
    assert router.list(context={"task_id": "verify_email_123"}) == [waiting]

    follow_up = router.add("action_suggestion", "Send the confirmation mail again", evidence=[waiting.id])
    router.link(waiting.id, "send-confirmation-again")
    assert router.get(waiting.id).links == ["send-confirmation-again"]
    assert follow_up.evidence == [waiting.id]

    verifier = connect("email_verification").page("user:42")
    confirmed = verifier.resolve(waiting.id, reason="the user clicked the link")
    assert (confirmed.status, confirmed.reason) == ("resolved", "the user clicked the link")
    assert waiting.id not in [one.id for one in router.active()]
    assert [(event.kind, event.by) for event in router.history(waiting.id)] == [
        ("added", "email_verification"),
        ("linked", "router"),
        ("status_changed", "email_verification"),
    ]


def test_a_reminder_falls_due_on_an_event_or_at_a_time(connect, waiting, clock):
    agent = connect("agent").page("user:42")
    when_confirmed = agent.add(
        "reminder", "Greet them", remind_on={"type": "pending_confirmation", "status": "resolved"}
    )
    after_a_day = agent.add("reminder", "Ask again", remind_at=clock.now + timedelta(days=1))
    connect("email_verification").page("user:42").resolve(waiting.id)
    expirer = connect("expirer")
    assert expirer.converse(remind(expirer.core, list(expirer.events()))) == 1
    assert agent.get(when_confirmed.id).due_at is not None
    assert agent.get(after_a_day.id).due_at is None
    clock.advance("1d")
    expirer.converse(sweep(expirer.core))
    assert agent.get(after_a_day.id).due_at == clock.now
