"""Operations that take no event id: after an error, a second call does what is left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from scratchbus.engine.steps import Step
from scratchbus.errors import ScratchbusError
from scratchbus.eventlog.confirm import confirm
from scratchbus.readmodel.scope import Core

T = TypeVar("T")


def repeatable(core: Core, shards: Iterable[int], operation: Step[T]) -> Step[T]:
    """Run an operation on these shards; its errors advise to repeat the call.

    Since a second call may have nothing left to write, it waits for the replicas of earlier writes.
    """
    try:
        result = yield from operation
        for shard in shards:
            yield from confirm(core.log, shard)
    except ScratchbusError as error:
        error.repeatable()
        raise
    return result
