"""What an agent remembered at a moment."""

from __future__ import annotations

from scratchbus.core import Core
from scratchbus.domain.remembered import Remembered
from scratchbus.log.steps import Step
from scratchbus.operations.remembering import folded, history_of
from scratchbus.past.cut import When, cut_at


def remembered_as_of(core: Core, page: str, subject: str, when: When) -> Step[Remembered | None]:
    """Return a subject as it was at a moment: it costs the events about it. Raises as `cut_at`, and PositionLost."""
    cut = yield from cut_at(core, page, when)
    return folded((yield from history_of(core, page, subject)), subject, cut.position)
