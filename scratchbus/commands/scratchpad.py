"""Reading and writing the scratchpad of an agent: nobody else may."""

from __future__ import annotations

from typing import Any

from scratchbus.commands.memory import Edit, check_based_on, edit
from scratchbus.commands.notepad import revision_of
from scratchbus.domain.agent_events import RunEnded, ScratchpadWritten
from scratchbus.domain.event import Event
from scratchbus.domain.memories import Remembered, Revised
from scratchbus.domain.scratchpad import check_content, whoami
from scratchbus.domain.values import page_of_agent
from scratchbus.engine.steps import Step
from scratchbus.errors import Unauthorized
from scratchbus.eventlog.because import reasons
from scratchbus.projections.scratchpad import SUBJECT, Pad
from scratchbus.readmodel.queries import recollect
from scratchbus.readmodel.scope import Core


def read(core: Core, agent: str) -> Step[str]:
    """Return what the scratchpad says; nothing when it is empty, and for people, who have none."""
    if not may_see(core, agent):
        return ""
    found = yield from recollect(core.log, page_of_agent(agent), [SUBJECT], core.fresh)
    return content_of(found.get(SUBJECT))


def read_revised(core: Core, agent: str) -> Step[Revised]:
    """Return what the scratchpad says, and its revision; nothing and 0 for people."""
    if not may_see(core, agent):
        return Revised("", 0)
    found = yield from recollect(core.log, page_of_agent(agent), [SUBJECT], core.fresh)
    return Revised(content_of(found.get(SUBJECT)), revision_of(found.get(SUBJECT)))


def show(core: Core, agent: str) -> Step[str]:
    """Return what whoever speaks is shown of itself at the start of a run."""
    content = (yield from read(core, agent)) if may_see(core, agent) else None
    return whoami(core.source or core.by, core.kind, content)


def write(core: Core, agent: str, content: str, revision: int | None, event_id: str | None) -> Step[int]:
    """Replace what the scratchpad says; return its revision. Raises RevisionConflict."""
    _check_own(core, agent)
    text = check_content(content)
    wanted = Edit.based_on(revision, page_of_agent(agent), SUBJECT, event_id, "write_scratchpad", text)

    def make(document: Remembered | None) -> Event:
        check_based_on("scratchpad", revision, revision_of(document), content_of(document))
        return ScratchpadWritten(by=core.acting(), **reasons(), content=text)

    return revision_of((yield from edit(core, wanted, make)))


def record(core: Core, agent: str, run: dict[str, Any], event_id: str | None) -> Step[None]:
    """Append the event of a run that is over."""
    _check_own(core, agent)

    def make(_: Remembered | None) -> Event:
        return RunEnded(by=core.acting(), **reasons(), **run)

    yield from edit(core, Edit.of(page_of_agent(agent), SUBJECT, event_id, "record_run", run), make)


def may_see(core: Core, agent: str) -> bool:
    """Say whether there is something to see for whoever speaks: people have no scratchpad. Raises Unauthorized."""
    if core.kind == "person":
        return False
    _check_own(core, agent)
    return True


def _check_own(core: Core, agent: str) -> None:
    if core.kind != "subagent" or core.source != agent:
        raise Unauthorized(agent, core.source, core.kind)


def content_of(document: Remembered | None) -> str:
    """Return what a document says, as a scratchpad."""
    return document.content if isinstance(document, Pad) else ""
