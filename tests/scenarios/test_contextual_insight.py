"""Scenario 2: a tool records an insight; a memory system surfaces it, and the agent uses it."""

import pytest

pytestmark = pytest.mark.engines("memory")


@pytest.fixture
def insight(connect):
    """The insight that `wine_recommender` adds."""
    return (
        connect("wine_recommender")
        .page("user:42")
        .add(
            "contextual_insight",
            "User going to bistro vendome - they'll like 2020 Marcel La Pierre",
            owner="agent",
            confidence=0.95,
            context={"event": "bistro_vendome_visit"},
        )
    )


def test_contextual_insight(connect, insight):
    memory = connect("memory").page("user:42")
    memory.add("contextual_insight", "They never drink coffee", confidence=0.4)
    memory.add("observation", "It rains")
    for surfaced in (
        memory.list(context={"event": "bistro_vendome_visit"}),
        memory.list(type="contextual_insight", owner="agent"),
        memory.list(text="VENDOME"),
        [one for one in memory.list(type="contextual_insight") if one.confidence >= 0.9],
    ):
        assert surfaced == [insight]
    assert (insight.confidence, insight.priority) == (0.95, 30)

    agent = connect("agent").page("user:42")
    used = agent.link(insight.id, "recommend-marcel-lapierre-2020")
    assert used.links == ["recommend-marcel-lapierre-2020"]
    assert used.status == "active"


def test_an_unused_insight_expires(connect, insight, clock):
    clock.advance("7d")
    page = connect("router").page("user:42")
    assert page.active() == []
    assert page.get(insight.id).status == "archived"
    assert [event.kind for event in page.history(insight.id)] == ["added"]


def test_a_doubtful_insight_is_sent_back_to_review(connect, insight):
    evaluator = connect("evaluator").page("user:42")
    evaluator.review(insight.id, reason="they moved the dinner")
    assert evaluator.active() == []
    revised = evaluator.update(insight.id, confidence=0.5, metadata={"checked": True}, expected_version=2)
    assert (revised.status, revised.confidence) == ("pending_review", 0.5)
    assert evaluator.reopen(insight.id).status == "active"


def test_insights_of_one_user_are_hidden_from_another(connect, insight):
    assert connect("memory").page("user:43").list() == []
