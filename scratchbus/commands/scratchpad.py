"""Read and write the scratchpad of an agent; no one else may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory import edit
from scratchbus.commands.memory_edit import MemoryEdit, Revision, check_based_on
from scratchbus.commands.notepad import revision_of
from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Revised
from scratchbus.domain.memory_events import RunEnded, ScratchpadWritten
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.scratchpad import check_content, whoami
from scratchbus.domain.values import AGENT_PAGES
from scratchbus.engine.steps import Step
from scratchbus.errors import Unauthorized
from scratchbus.projections.scratchpad import SUBJECT, Pad
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core


def read(core: Core, page: str) -> Step[Revised]:
    """Return the scratchpad's content and revision; "" and 0 for people, who have none."""
    if not may_see(core, page):
        return Revised("", 0)
    document = yield from recollect_one(core, page, SUBJECT)
    return Revised(content_of(document), revision_of(document))


def show(core: Core, page: str) -> Step[str]:
    """Return the text that an agent is shown about itself at the start of a run."""
    content = (yield from read(core, page)).content if may_see(core, page) else None
    return whoami(core.by, core.settings.kind, content)


class WriteScratchpad(MemoryEdit):
    """Replace the content of the scratchpad."""

    verb, subject = "write_scratchpad", SUBJECT
    content: Annotated[str, CheckedBy(check_content)]
    revision: Revision = None

    def decide(self, occasion: Occasion, document: Pad | None) -> Event:
        """See `MemoryEdit`. Raises RevisionConflict."""
        check_based_on("scratchpad", self.revision, revision_of(document), content_of(document))
        return occasion.event(ScratchpadWritten, SUBJECT, content=self.content)


class RecordRun(MemoryEdit):
    """Record a run that has ended."""

    verb, subject = "record_run", SUBJECT
    run: dict[str, Any]

    def decide(self, occasion: Occasion, document: Pad | None) -> Event:
        """See `MemoryEdit`."""
        return occasion.event(RunEnded, SUBJECT, **self.run)


def write(core: Core, page: str, kind: type[MemoryEdit], arguments: Mapping[str, Any]) -> Step[int]:
    """Edit the scratchpad; return its revision. Raises Unauthorized."""
    _check_own(core, page)
    return revision_of((yield from edit(core, page, kind.parse(arguments))))


def may_see(core: Core, page: str) -> bool:
    """Return whether the caller has a scratchpad to read: people have none. Raises Unauthorized."""
    if core.settings.kind == "person":
        return False
    _check_own(core, page)
    return True


def _check_own(core: Core, page: str) -> None:
    agent, caller, kind = page.removeprefix(AGENT_PAGES), core.settings.source, core.settings.kind
    if kind != "subagent" or caller != agent:
        raise Unauthorized(agent, caller, kind)


def content_of(document: Remembered | None) -> str:
    """Return the text of a scratchpad."""
    return document.content if isinstance(document, Pad) else ""
