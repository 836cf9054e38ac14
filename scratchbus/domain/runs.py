"""A run of an agent: the steps it took, how it ended."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from scratchbus.domain.scratchpad import COMPLETED, ERROR, EXCEPTION, MAX_STEPS, end_of_run_prompt
from scratchbus.errors import shown

SHOWN: Final = 100
"""How many characters of a new scratchpad its step tells."""

MOST_STEPS: Final = 500
"""The most steps of a run that its event tells: the last ones."""

LONGEST: Final = 1_000
"""The most characters of a task, a summary, or the details of a step that the event of a run tells."""

_FRAMES: Final = 5
_COMPLETED: Final = "Task completed"


class RunStep(NamedTuple):
    """One step of a run: its name, with whatever its maker wants to be known of it."""

    name: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScratchpadReply:
    """The outcome of a model's answer: true when the scratchpad was updated.

    `content` is what it says then. When the answer could not be used `error` says why, and nothing was changed; neither
    is there when the answer was to leave it as it is.
    """

    content: str | None = None
    error: str | None = None

    def __bool__(self) -> bool:
        return self.content is not None


class RunRecord:
    """What is known of a run. It has one of four ends; the one that is said last counts."""

    def __init__(self, agent: str, task: str) -> None:
        self.agent = agent
        self.task = task
        self.steps: list[RunStep] = []
        self.outcome, self.summary = COMPLETED, _COMPLETED

    def step(self, name: str, /, **details: Any) -> None:
        """Record a step."""
        self.steps.append(RunStep(name, details))

    def done(self, message: str | None = None) -> None:
        """Say that the task is done, and what came of it."""
        self.step("done", message=message)
        self.outcome, self.summary = COMPLETED, message or _COMPLETED

    def error(self, message: str | None = None) -> None:
        """Say that the agent gave up on the task, and why."""
        self.step("error", message=message)
        self.outcome, self.summary = ERROR, message or "Agent encountered an error"

    def max_steps(self, limit: int) -> None:
        """Say that the run ends because it took as many steps as it may."""
        self.outcome = MAX_STEPS
        self.summary = f"Reached maximum steps ({limit}) without completing task"


def record_exception(run: RunRecord, error: BaseException) -> None:
    """Record the exception that ended a run, with the first lines of its traceback, the innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[::-1][:_FRAMES]
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    run.step("error", message=str(error), backtrace=lines)
    run.outcome, run.summary = EXCEPTION, f"Agent encountered an error: {str(error) or type(error).__name__}"


def record_reply(run: RunRecord, reply: ScratchpadReply) -> None:
    """Record what became of the answer to the prompt at the end of a run."""
    if reply.content is not None:
        run.step("scratchpad_update", content=reply.content[:SHOWN])
    elif reply.error is not None:
        run.step("scratchpad_update_failed", error=reply.error)


def prompt_of(run: RunRecord) -> str:
    """Return what the agent is asked at the end of a run."""
    return end_of_run_prompt(_plain(run.task), _plain(run.outcome), _plain(run.summary), run.steps)


def event_fields(run: RunRecord) -> dict[str, Any]:
    """Return what the event of a run that is over says of it; what is too long is cut."""
    return {
        "task": _text(run.task),
        "outcome": run.outcome,
        "summary": _text(run.summary),
        "steps": [{"name": _text(step.name), "details": _json(step.details)} for step in run.steps[-MOST_STEPS:]],
    }


def _text(value: object) -> str:
    return _plain(value)[:LONGEST]


def _plain(value: object) -> str:
    """Return whatever a run was told as a text that can be written anywhere."""
    try:
        text = str(value)
    except Exception:  # a number that Python refuses to write, lists in lists without end, a __str__ that fails
        text = shown(value)
    return text.encode("utf-8", "replace").decode()


def _json(details: dict[str, Any]) -> dict[str, Any]:
    """Return details as JSON has them; those that are too long, or that JSON cannot have, as a text."""
    try:
        text = json.dumps(details, default=str, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = ""
    if not text or len(text) > LONGEST:
        return {"cut": _text(text or details)}
    read: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))  # a text may hold half a character
    return read
