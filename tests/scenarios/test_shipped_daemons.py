"""The three scenarios with the shipped daemons as processes and their shipped configuration."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, Observation, Page
from tests import launcher
from tests.daemons.conftest import ROOT, Daemon, Engine
from tests.waiting import PATIENCE, eventually

CREW = ("projector", "expirer", "router", "executor", "evaluator")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="engine-") as name:
        engine = Engine(Path(name))
        engine.start()
        try:
            yield engine
        finally:
            engine.kill()


@pytest.fixture(scope="module")
def crew(engine: Engine) -> Iterator[None]:
    """All daemons on the page `main`, configured only with the URL of the engine."""
    with tempfile.TemporaryDirectory(prefix="crew-") as name, contextlib.ExitStack() as stack:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SCRATCHBUS_URL": engine.url, "XDG_STATE_HOME": name}
        daemons = list[Daemon]()
        for each in CREW:
            daemons.append(daemon := Daemon(each, (), environment, Path(name) / each))
            stack.callback(daemon.process.wait)
            stack.callback(daemon.process.kill)
        have_started = "all daemons have started"
        eventually(lambda: all(daemon.has_logged("started") for daemon in daemons), have_started, 2 * PATIENCE)
        yield


@pytest.fixture
def page(engine: Engine, crew: None) -> Iterator[Page]:
    with Bus.connect(engine.url, source="tool") as bus:
        yield bus.page("main")


@pytest.fixture
def type_in(engine: Engine) -> Callable[..., str]:
    """Run a command of the CLI, as a user types it."""

    def run(*arguments: str) -> str:
        command = launcher.command("-m", "scratchbus.cli", *arguments)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SCRATCHBUS_URL": engine.url}
        environment["SCRATCHBUS_SOURCE"] = "user"
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def acted_on(page: Page, id: str) -> list[Observation]:
    """Return the suggestions about an observation that an executor has acted on."""
    return [each for each in page.list(type="action_suggestion", tags=f"about:{id}") if "outcome" in each.metadata]


def add_as(page: Page, item: dict[str, Any], source: str) -> Observation:
    """Call `add_observation({...})` as the tool of this name."""
    return page.add(item, source=source)


def test_pending_confirmation(page: Page, type_in: Callable[..., str]) -> None:
    waiting = add_as(
        page,
        {
            "type": "pending_confirmation",
            "content": "Waiting for user to confirm email address",
            "owner": "user",
            "status": "active",
            "context": {"task_id": "verify_email_123"},
        },
        "email_verification",
    )
    eventually(lambda: acted_on(page, waiting.id), "the router suggests a follow-up, and the executor makes it")
    (suggestion,) = acted_on(page, waiting.id)
    assert suggestion.metadata["outcome"] == "notified"
    assert page.get(waiting.id).links == [f"notify:{waiting.id}"]
    type_in("add", "observation", "Opened the mail", "--context", "task_id=verify_email_123")
    unrelated = add_as(page, {"type": "dependency", "content": "Needs nothing", "metadata": {"met": True}}, "tool")
    eventually(lambda: page.get(unrelated.id).status == "resolved", "the evaluator has run since")
    assert page.get(waiting.id).status == "active"
    type_in("add", "observation", "Clicked", "--tag", "confirmed", "--context", "task_id=verify_email_123")
    eventually(lambda: page.get(waiting.id).status == "resolved", "the confirmation is resolved")
    assert "said so" in str(page.get(waiting.id).reason)


def test_contextual_insight(page: Page, type_in: Callable[..., str]) -> None:
    insight = add_as(
        page,
        {
            "type": "contextual_insight",
            "content": "User going to bistro vendome - they'll like 2020 Marcel La Pierre",
            "owner": "agent",
            "confidence": 0.95,
            "context": {"event": "bistro_vendome_visit"},
        },
        "wine_recommender",
    )
    waiting = add_as(page, {"type": "pending_confirmation", "content": "Is the table booked?"}, "tool")
    eventually(lambda: acted_on(page, waiting.id), "the router and the executor have passed the insight")
    unrelated = add_as(page, {"type": "dependency", "content": "Needs nothing", "metadata": {"met": True}}, "tool")
    eventually(lambda: page.get(unrelated.id).status == "resolved", "the evaluator has run since")
    assert page.list(context={"event": "bistro_vendome_visit"}) == [insight]  # unchanged, and in view
    assert page.list(tags=f"about:{insight.id}") == []
    assert "2020 Marcel La Pierre" in type_in("list", "--type", "contextual_insight")


def test_risk_alert(page: Page, type_in: Callable[..., str]) -> None:
    alert = add_as(
        page,
        {
            "type": "risk_alert",
            "content": "Fraud ring targeting users in this demographic - high alert",
            "owner": "agent",
            "status": "active",
            "tags": ["security", "fraud"],
        },
        "fraud_detector",
    )
    eventually(lambda: acted_on(page, alert.id), "someone is notified")
    transfer = add_as(page, {"type": "observation", "content": "Transfer of 900 EUR", "tags": ["financial"]}, "bank")

    def questions(status: str) -> list[Observation]:
        return page.list(type="pending_confirmation", tags=["for:executor", f"about:{transfer.id}"], status=status)

    eventually(lambda: questions("pending_review"), "a confirmation is asked for")
    (question,) = questions("pending_review")
    assert question.evidence == [transfer.id, alert.id]
    assert acted_on(page, transfer.id) == []
    assert "Fraud ring" in type_in("trace", f"notify:{question.id}")
    task = f"task_id={question.context['task_id']}"
    type_in("add", "observation", "They know of it", "--tag", "confirmed", "--context", task)
    eventually(lambda: page.list(type="action_suggestion", tags=f"about:{transfer.id}"), "an action is suggested")
    (suggestion,) = page.list(type="action_suggestion", tags=f"about:{transfer.id}")
    assert suggestion.evidence == [transfer.id, question.id, alert.id]
    assert page.get(alert.id).status == "active"
