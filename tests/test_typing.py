"""Type checking of programs that use scratchbus."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
from datetime import UTC, datetime

from pydantic import BaseModel

from scratchbus import AnyEvent, AsyncBus, Bus, Context, Duration, Job, Moment, NewObservation, Observation
from scratchbus import TokenCounter, When, events, payload_of


@payload_of("risk_alert")
class FraudAlert(BaseModel):
    card: str


bus = Bus.connect("memory://typing", source="me")
page = bus.page()

story = page.add("risk_alert", "text", tags=["a"], expires_at=datetime.now(UTC), context={"a": 1})
page.add("reminder", "text", expires_at="tomorrow 9:00", remind_at="2 h", metadata=FraudAlert(card="1"))
page.add(NewObservation(type="observation", content="x"))
page.add(FraudAlert(card="1"), source="me")
page.update(story.id, content="new", expires_at="in 2h")
page.list(since="yesterday")
page.as_of("14:02")
page.add("risk_alert", "text", tag=["a"])  # refused
page.add("risk_alert", "text", confidence="high")  # refused
page.update(story.id, contnt="x")  # refused
page.update(story.id, content=5)  # refused
page.list(since=5)  # refused

alert: FraudAlert = story.payload(FraudAlert)
wrong: str = story.payload(FraudAlert)  # refused


def remind(text: str, at: Moment, ttl: Duration) -> Observation:
    return page.add("reminder", text, remind_at=at, ttl=ttl)


def context(count: TokenCounter) -> Context:
    return bus.context.assemble(page="main", counter=count)


def was(when: When) -> list[Observation]:
    return page.as_of(when).active()


def about(event: AnyEvent) -> str:
    if event.kind == "added":
        return event.content
    if event.kind == "status_changed":
        return event.reason_code
    if event.kind == "linked":
        return event.content  # refused
    return event.by


for each in bus.events(after="1h"):
    about(each)


@bus.on("risk_alert", concurrency=4)
def notify(event: AnyEvent) -> None:
    print(event.payload(FraudAlert).card)


@bus.on("risk_alert", name="added")
def added(event: events.Added) -> None:
    print(event.content)


@bus.on_job("risk_alert")
def act(job: Job) -> None:
    job.update(contnt="x")  # refused
    job.resolve()


async def main() -> None:
    async with AsyncBus.connect("memory://typing", source="me") as other:
        text: str = (await other.page().add("observation", "x")).content
        await other.page().add("observation", "x", tag=["a"])  # refused
        async for event in other.events():
            about(event)
        print(text)
"""


@pytest.mark.slow
def test_mypy_finds_exactly_the_marked_errors(tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout)}
    wanted = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")}
    assert found == wanted, done.stdout
