"""Errors of scratchbus survive a pool of processes, which pickles what its workers raise."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from scratchbus import errors
from scratchbus.domain.position import Position

RAISED = [
    errors.VersionConflict("01M7ZP2ZGJ8VWNW7K7M9G48F7Y", 1, 2),
    errors.Claimed("01M7ZP2ZGJ8VWNW7K7M9G48F7Y", "executor-1", datetime(2026, 11, 1, tzinfo=UTC)),
    errors.UnknownType("risk_alrt", ["risk_alert"], "risk_alert"),
    errors.InvalidField("priority", "must be a number"),
    errors.TooLarge("content", 70_000, 65_536),
    errors.NotReplicated(0, 1, "event-1"),
]


def subclasses(kind: type[errors.ScratchbusError]) -> Iterator[type[errors.ScratchbusError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def shown(error: BaseException) -> tuple[object, ...]:
    return type(error), str(error), error.args, vars(error)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_message_and_its_attributes_when_pickled(error: errors.ScratchbusError) -> None:
    error.add_note("while the router started")
    error.written("event-2", Position(5, 6), fence=7)
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own
        assert shown(same) == shown(error)


def test_errors_of_every_class_can_be_pickled() -> None:
    for kind in set(subclasses(errors.ScratchbusError)):
        error = kind.__new__(kind, "what happened")
        assert shown(pickle.loads(pickle.dumps(error))) == shown(error)  # noqa: S301  # our own
