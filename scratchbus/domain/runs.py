"""A run of an agent: its steps and its outcome."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from scratchbus.domain.quoting import encodable
from scratchbus.domain.scratchpad import COMPLETED, ERROR, EXCEPTION, MAX_STEPS, end_of_run_prompt
from scratchbus.errors import shown

SHOWN: Final = 100
"""The number of characters of a new scratchpad that its step records."""

MAX_KEPT_STEPS: Final = 500
"""The most steps in the event of a run, which keeps the last ones."""

MAX_CHARACTERS: Final = 1_000
"""The most characters of a task, a summary, or the details of a step in the event of a run."""

_FRAMES: Final = 5
_COMPLETED: Final = "Task completed"


class RunStep(NamedTuple):
    """One step of a run: its name, and any details."""

    name: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScratchpadReply:
    """The outcome of a model's answer; true if the scratchpad was updated.

    `content` is then its new content. If the answer could not be used, `error` says why, and nothing was changed. Both
    are None if the answer was to leave the scratchpad unchanged.
    """

    content: str | None = None
    error: str | None = None

    def __bool__(self) -> bool:
        return self.content is not None


class RunRecord:
    """The record of a run. It has one of four outcomes; the last one that is set counts."""

    def __init__(self, agent: str, task: str) -> None:
        self.agent = agent
        self.task = task
        self.steps: list[RunStep] = []
        self.outcome, self.summary = COMPLETED, _COMPLETED

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.agent!r}: {self.task[:80]!r}, {self.outcome}, steps {len(self.steps)}>"

    def step(self, name: str, /, **details: Any) -> None:
        """Record a step."""
        self.steps.append(RunStep(name, details))

    def done(self, message: str | None = None) -> None:
        """Record that the task is done, and its result."""
        self.step("done", message=message)
        self.outcome, self.summary = COMPLETED, message or _COMPLETED

    def error(self, message: str | None = None) -> None:
        """Record that the agent gave up on the task, and why."""
        self.step("error", message=message)
        self.outcome, self.summary = ERROR, message or "Agent encountered an error"

    def max_steps(self, limit: int) -> None:
        """Record that the run ends because it reached its limit of steps."""
        self.outcome = MAX_STEPS
        self.summary = f"Reached maximum steps ({limit}) without completing task"


def record_exception(run: RunRecord, error: BaseException) -> None:
    """Record the exception that ended a run, with the innermost frames of its traceback, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[::-1][:_FRAMES]
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    message = plain_text(error)
    run.step("error", message=message, backtrace=lines)
    run.outcome, run.summary = EXCEPTION, f"Agent encountered an error: {message or type(error).__name__}"


def record_reply(run: RunRecord, reply: ScratchpadReply) -> None:
    """Record the outcome of the answer to the prompt at the end of a run."""
    if reply.content is not None:
        run.step("scratchpad_update", content=reply.content[:SHOWN])
    elif reply.error is not None:
        run.step("scratchpad_update_failed", error=reply.error)


def prompt_of(run: RunRecord) -> str:
    """Return the prompt at the end of a run."""
    return end_of_run_prompt(plain_text(run.task), plain_text(run.outcome), plain_text(run.summary), run.steps)


def event_fields(run: RunRecord) -> dict[str, Any]:
    """Return the fields of the event of a run that ended; texts that are too long are cut."""
    return {
        "task": _text(run.task),
        "outcome": run.outcome,
        "summary": _text(run.summary),
        "steps": [{"name": _text(step.name), "details": _json(step.details)} for step in run.steps[-MAX_KEPT_STEPS:]],
    }


def _text(value: object) -> str:
    return plain_text(value)[:MAX_CHARACTERS]


def plain_text(value: object) -> str:
    """Return any value as a text that can be encoded in UTF-8."""
    try:
        text = str(value)
    except Exception:  # a number too long to print, endlessly nested lists, a failing __str__
        text = shown(value)
    return encodable(text)


def _json(details: dict[str, Any]) -> dict[str, Any]:
    """Return details as JSON reads them back; as a text if they are too long or JSON cannot express them."""
    try:
        text = json.dumps(details, default=str, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = ""
    if not text or len(text) > MAX_CHARACTERS:
        return {"cut": _text(text or details)}
    parsed: dict[str, Any] = json.loads(encodable(text))
    return parsed
