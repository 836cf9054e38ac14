"""The public names, each with where it is defined. Programs read this list too: see `__init__.py`."""

from scratchbus.archive.archiver import Archived as Archived
from scratchbus.archive.archiver import Progress as ArchiveProgress
from scratchbus.archive.archiver import archive_bus as archive_bus
from scratchbus.archive.check import verify as verify_archive
from scratchbus.archive.contents import SegmentInfo as SegmentInfo
from scratchbus.archive.contents import archived_segments as archived_segments
from scratchbus.archive.export import line_of as export_line
from scratchbus.archive.export import row_of as export_row
from scratchbus.archive.stores import Store as ArchiveStore
from scratchbus.archive.stores import open_store as open_archive
from scratchbus.bus import Bus as Bus
from scratchbus.bus_async import AsyncBus as AsyncBus
from scratchbus.context import AsyncContexts as AsyncContexts
from scratchbus.context import Context as Context
from scratchbus.context import Contexts as Contexts
from scratchbus.context import Match as Match
from scratchbus.context import Surfaced as Surfaced
from scratchbus.context.guidance import guidance as guidance
from scratchbus.domain import events as events
from scratchbus.domain.difference import Difference as Difference
from scratchbus.domain.documents import document_of as document_of
from scratchbus.domain.events import EVENT_KINDS as EVENT_KINDS
from scratchbus.domain.events import AnyEvent as AnyEvent
from scratchbus.domain.events import Erased as Erased
from scratchbus.domain.events import Event as Event
from scratchbus.domain.events import StatusChanged as StatusChanged
from scratchbus.domain.exposure import ActionTaken as ActionTaken
from scratchbus.domain.exposure import Exposure as Exposure
from scratchbus.domain.exposure import Seen as Seen
from scratchbus.domain.memories import Note as Note
from scratchbus.domain.memories import NoteResult as NoteResult
from scratchbus.domain.memories import NotesResult as NotesResult
from scratchbus.domain.memories import Revised as Revised
from scratchbus.domain.memories import Session as Session
from scratchbus.domain.memories import TagsResult as TagsResult
from scratchbus.domain.observation import Claim as Claim
from scratchbus.domain.observation import NewObservation as NewObservation
from scratchbus.domain.observation import Observation as Observation
from scratchbus.domain.observation import ObservationPatch as ObservationPatch
from scratchbus.domain.position import BusPosition as BusPosition
from scratchbus.domain.position import Position as Position
from scratchbus.domain.registry import ObservationType as ObservationType
from scratchbus.domain.registry import Registry as Registry
from scratchbus.domain.registry import RegistryChanges as RegistryChanges
from scratchbus.domain.run import ScratchpadReply as ScratchpadReply
from scratchbus.domain.todo import TodoItem as TodoItem
from scratchbus.domain.todo import TodoList as TodoList
from scratchbus.domain.trace import Branch as Branch
from scratchbus.domain.trace import Consequences as Consequences
from scratchbus.domain.trace import Trace as Trace
from scratchbus.domain.urgency import by_urgency as by_urgency
from scratchbus.domain.urgency import urgency as urgency
from scratchbus.domain.values import check_confidence as check_confidence
from scratchbus.domain.values import check_page as check_page
from scratchbus.domain.values import check_source as check_source
from scratchbus.domain.values import duration_ms as duration_ms
from scratchbus.domain.values import duration_text as duration_text
from scratchbus.domain.values import is_type_name as is_type_name
from scratchbus.engine.embedded.server import EmbeddedEngine as EmbeddedEngine
from scratchbus.engine.embedded.server import directory_of as embedded_directory
from scratchbus.engine.embedded.server import find_running as find_engine
from scratchbus.engine.embedded.server import stop as stop_engine
from scratchbus.errors import ScratchbusError as ScratchbusError
from scratchbus.eventlog.because import because as because
from scratchbus.eventlog.foreign import ForeignEntry as ForeignEntry
from scratchbus.eventlog.ids import new_id as new_id
from scratchbus.mcp.identity import Identity as McpIdentity
from scratchbus.mcp.main import run_http as serve_mcp_http
from scratchbus.mcp.main import run_stdio as serve_mcp_stdio
from scratchbus.mcp.tokens import Token as McpToken
from scratchbus.mcp.tokens import Tokens as McpTokens
from scratchbus.memory.memories import Memories as Memories
from scratchbus.memory.memories_async import AsyncMemories as AsyncMemories
from scratchbus.memory.notepad import Notepad as Notepad
from scratchbus.memory.notepad_async import AsyncNotepad as AsyncNotepad
from scratchbus.memory.notes import Notes as Notes
from scratchbus.memory.notes_async import AsyncNotes as AsyncNotes
from scratchbus.memory.runs import Run as Run
from scratchbus.memory.runs_async import AsyncRun as AsyncRun
from scratchbus.memory.scratchpad import Scratchpad as Scratchpad
from scratchbus.memory.scratchpad_async import AsyncScratchpad as AsyncScratchpad
from scratchbus.memory.todo import Todo as Todo
from scratchbus.memory.todo_async import AsyncTodo as AsyncTodo
from scratchbus.page import Page as Page
from scratchbus.page_async import AsyncPage as AsyncPage
from scratchbus.readmodel.rebuild import Rebuilt as Rebuilt
from scratchbus.readmodel.registry_files import as_registry as load_registry
from scratchbus.readmodel.verify import Finding as Finding
from scratchbus.readmodel.verify import Verified as Verified
from scratchbus.status import PageStatus as PageStatus
from scratchbus.status import ShardStatus as ShardStatus
from scratchbus.status import Status as Status
from scratchbus.subscriptions import AsyncDelivery as AsyncDelivery
from scratchbus.subscriptions import AsyncSubscription as AsyncSubscription
from scratchbus.subscriptions import DeadLetter as DeadLetter
from scratchbus.subscriptions import Delivery as Delivery
from scratchbus.subscriptions import Subscription as Subscription
from scratchbus.subscriptions import SubscriptionStatus as SubscriptionStatus
from scratchbus.telemetry.terminal import escaped as escaped
from scratchbus.telemetry.terminal import visible as visible
from scratchbus.timetravel import AsyncPastPage as AsyncPastPage
from scratchbus.timetravel import PastPage as PastPage
from scratchbus.views.live_page import Change as Change
from scratchbus.views.view import View as View
from scratchbus.views.view_async import AsyncView as AsyncView
from scratchbus.work import AsyncJob as AsyncJob
from scratchbus.work import AsyncWork as AsyncWork
from scratchbus.work import Job as Job
from scratchbus.work import Work as Work

__all__ = [  # a type checker exports an alias of another name only if it is listed here
    "ArchiveProgress",
    "ArchiveStore",
    "McpIdentity",
    "McpToken",
    "McpTokens",
    "embedded_directory",
    "export_line",
    "export_row",
    "find_engine",
    "load_registry",
    "open_archive",
    "serve_mcp_http",
    "serve_mcp_stdio",
    "stop_engine",
    "verify_archive",
]
