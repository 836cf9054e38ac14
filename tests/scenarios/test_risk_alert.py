"""Scenario 3: a detector raises an alert; routers and executors heed it until it is resolved."""

import pytest

from scratchbus.errors import PageFull

pytestmark = pytest.mark.engines("memory")


@pytest.fixture
def alert(connect):
    """The alert that `fraud_detector` raises."""
    return (
        connect("fraud_detector")
        .page()
        .add(
            "risk_alert",
            "Fraud ring targeting users in this demographic - high alert",
            owner="agent",
            status="active",
            tags=["security", "fraud"],
        )
    )


def test_risk_alert(connect, alert):
    router = connect("router").page()
    for n in range(5):
        router.add("observation", f"transaction {n}", tags=["payment"])
    assert router.active(limit=1) == [alert]
    assert router.list(tags=["security", "fraud"], status="active") == [alert]

    suggestion = router.add("action_suggestion", "Verify payments twice", evidence=[alert.id], tags=["verify"])
    executor = connect("executor-1").page()
    (found,) = executor.list(type="action_suggestion", tags="verify", status="active")
    claim = executor.claim(found.id)
    executor.link(alert.id, "verify-transaction-3")
    done = executor.resolve(found.id, reason="verified", fence=claim.fence)
    assert (done.id, done.evidence) == (suggestion.id, [alert.id])
    assert executor.active(limit=1)[0].links == ["verify-transaction-3"]

    connect("evaluator").page().resolve(alert.id, reason="the ring was caught")
    assert "risk_alert" not in {one.type for one in router.active()}


def test_minor_observations_never_displace_an_alert(connect, alert):
    page = connect("chatter", max_observations=3).page()
    for n in range(20):
        page.add("observation", f"{n}")
    assert page.active()[0] == alert
    assert len(page.active()) == 3


def test_a_page_full_of_alerts_refuses_minor_observations(connect, alert):
    page = connect("fraud_detector", max_observations=2).page()
    page.add("risk_alert", "second")
    with pytest.raises(PageFull):
        page.add("observation", "chatter")
    assert page.get(alert.id).status == "active"


def test_every_action_on_an_alert_is_in_the_log(connect, alert):
    page = connect("router").page()
    page.claim(alert.id, by="executor-1")
    page.update(alert.id, confidence=0.7, fence=1)
    page.archive(alert.id, reason="false alarm", fence=1)
    (_, *later) = connect("auditor").events(types=["risk_alert"])
    assert [(event.kind, event.by) for event in later] == [
        ("claimed", "router"), ("updated", "router"), ("status_changed", "router"),
    ]  # fmt: skip
    assert page.get(alert.id).reason == "false alarm"
