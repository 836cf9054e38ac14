"""The shared working memory of daemons and agents, kept as one event log on Redis Streams."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scratchbus.bus import Bus
    from scratchbus.bus_async import AsyncBus
    from scratchbus.context import AsyncContexts, Context, Contexts, Match, Surfaced
    from scratchbus.domain.difference import Difference
    from scratchbus.domain.events import AnyEvent, Erased, Event
    from scratchbus.domain.exposure import Exposure
    from scratchbus.domain.memories import Note, NoteResult, NotesResult, Revised, Session, TagsResult
    from scratchbus.domain.observation import Claim, NewObservation, Observation
    from scratchbus.domain.patch import ObservationPatch
    from scratchbus.domain.position import BusPosition, Position
    from scratchbus.domain.registry import Registry
    from scratchbus.domain.run import ScratchpadReply
    from scratchbus.domain.todo import TodoItem, TodoList
    from scratchbus.domain.trace import Consequences, Trace
    from scratchbus.domain.urgency import by_urgency, urgency
    from scratchbus.errors import ScratchbusError
    from scratchbus.eventlog.because import because
    from scratchbus.memory import (
        AsyncMemories,
        AsyncNotepad,
        AsyncNotes,
        AsyncRun,
        AsyncScratchpad,
        AsyncTodo,
        Memories,
        Notepad,
        Notes,
        Run,
        Scratchpad,
        Todo,
    )
    from scratchbus.page import Page
    from scratchbus.page_async import AsyncPage
    from scratchbus.readmodel.rebuild import Rebuilt
    from scratchbus.readmodel.verify import Finding, Verified
    from scratchbus.status import Status
    from scratchbus.subscriptions import AsyncDelivery, AsyncSubscription, DeadLetter, Delivery, Subscription
    from scratchbus.timetravel import AsyncPastPage, PastPage
    from scratchbus.views.live_page import Change
    from scratchbus.views.view import View
    from scratchbus.views.view_async import AsyncView
    from scratchbus.work import AsyncJob, AsyncWork, Job, Work

_HOMES = {
    "Bus": "bus",
    "AsyncBus": "bus_async",
    "Page": "page",
    "AsyncPage": "page_async",
    "PastPage": "timetravel",
    "AsyncPastPage": "timetravel",
    "Memories": "memory",
    "AsyncMemories": "memory",
    "Notepad": "memory",
    "Notes": "memory",
    "AsyncNotes": "memory",
    "Note": "domain.memories",
    "NoteResult": "domain.memories",
    "NotesResult": "domain.memories",
    "TagsResult": "domain.memories",
    "Revised": "domain.memories",
    "Session": "domain.memories",
    "AsyncNotepad": "memory",
    "Run": "memory",
    "AsyncRun": "memory",
    "Scratchpad": "memory",
    "AsyncScratchpad": "memory",
    "ScratchpadReply": "domain.run",
    "Todo": "memory",
    "AsyncTodo": "memory",
    "TodoItem": "domain.todo",
    "TodoList": "domain.todo",
    "View": "views.view",
    "AsyncView": "views.view_async",
    "Change": "views.live_page",
    "Subscription": "subscriptions",
    "AsyncSubscription": "subscriptions",
    "Delivery": "subscriptions",
    "AsyncDelivery": "subscriptions",
    "DeadLetter": "subscriptions",
    "Work": "work",
    "AsyncWork": "work",
    "Job": "work",
    "AsyncJob": "work",
    "Context": "context",
    "Contexts": "context",
    "AsyncContexts": "context",
    "Surfaced": "context",
    "Match": "context",
    "Difference": "domain.difference",
    "AnyEvent": "domain.events",
    "Event": "domain.events",
    "Erased": "domain.events",
    "Exposure": "domain.exposure",
    "Claim": "domain.observation",
    "NewObservation": "domain.observation",
    "Observation": "domain.observation",
    "ObservationPatch": "domain.patch",
    "BusPosition": "domain.position",
    "Position": "domain.position",
    "Rebuilt": "readmodel.rebuild",
    "Registry": "domain.registry",
    "Consequences": "domain.trace",
    "Trace": "domain.trace",
    "by_urgency": "domain.urgency",
    "urgency": "domain.urgency",
    "Status": "status",
    "Finding": "readmodel.verify",
    "Verified": "readmodel.verify",
    "ScratchbusError": "errors",
    "because": "eventlog.because",
}

__all__ = [
    "AnyEvent",
    "AsyncBus",
    "AsyncContexts",
    "AsyncDelivery",
    "AsyncJob",
    "AsyncMemories",
    "AsyncNotepad",
    "AsyncNotes",
    "AsyncPage",
    "AsyncPastPage",
    "AsyncRun",
    "AsyncScratchpad",
    "AsyncSubscription",
    "AsyncTodo",
    "AsyncView",
    "AsyncWork",
    "Bus",
    "BusPosition",
    "Change",
    "Claim",
    "Consequences",
    "Context",
    "Contexts",
    "DeadLetter",
    "Delivery",
    "Difference",
    "Erased",
    "Event",
    "Exposure",
    "Finding",
    "Job",
    "Match",
    "Memories",
    "NewObservation",
    "Note",
    "NoteResult",
    "Notepad",
    "Notes",
    "NotesResult",
    "Observation",
    "ObservationPatch",
    "Page",
    "PastPage",
    "Position",
    "Rebuilt",
    "Registry",
    "Revised",
    "Run",
    "ScratchbusError",
    "Scratchpad",
    "ScratchpadReply",
    "Session",
    "Status",
    "Subscription",
    "Surfaced",
    "TagsResult",
    "Todo",
    "TodoItem",
    "TodoList",
    "Trace",
    "Verified",
    "View",
    "Work",
    "because",
    "by_urgency",
    "urgency",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's `--help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
