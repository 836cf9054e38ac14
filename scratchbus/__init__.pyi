"""The public names, each with where it is defined. Programs read this list too: see `__init__.py`."""

from scratchbus.archive.archive_check import verify as verify_archive
from scratchbus.archive.archiver import Archived as Archived
from scratchbus.archive.archiver import Progress as ArchiveProgress
from scratchbus.archive.archiver import archive_bus as archive_bus
from scratchbus.archive.contents import SegmentInfo as SegmentInfo
from scratchbus.archive.contents import archived_segments as archived_segments
from scratchbus.archive.export import line_of as export_line
from scratchbus.archive.export import row_of as export_row
from scratchbus.archive.stores import Store as ArchiveStore
from scratchbus.archive.stores import open_store as open_archive
from scratchbus.bus import Bus as Bus
from scratchbus.bus_async import AsyncBus as AsyncBus
from scratchbus.commands.items import StoreItems as StoreItems
from scratchbus.commands.read import PageCounts as PageCounts
from scratchbus.context import AsyncContexts as AsyncContexts
from scratchbus.context import Context as Context
from scratchbus.context import Contexts as Contexts
from scratchbus.context import Match as Match
from scratchbus.context import Surfaced as Surfaced
from scratchbus.context.embedding import Embedder as Embedder
from scratchbus.context.guidance import guidance as guidance
from scratchbus.context.layout import Part as ContextPart
from scratchbus.context.recall import Reason as Reason
from scratchbus.context.recall import Recalled as Recalled
from scratchbus.context.surface import rank as rank_matches
from scratchbus.domain import events as events
from scratchbus.domain.cloudevents import cloud_event as cloud_event
from scratchbus.domain.cloudevents import read_cloud_events as read_cloud_events
from scratchbus.domain.conversations import ScratchFile as ScratchFile
from scratchbus.domain.conversations import Text as Text
from scratchbus.domain.conversations import Turn as Turn
from scratchbus.domain.difference import Difference as Difference
from scratchbus.domain.documents import document_of as document_of
from scratchbus.domain.documents import shown_fields as shown_fields
from scratchbus.domain.events import EVENT_KINDS as EVENT_KINDS
from scratchbus.domain.events import AnyEvent as AnyEvent
from scratchbus.domain.events import Erased as Erased
from scratchbus.domain.events import Event as Event
from scratchbus.domain.events import StatusChanged as StatusChanged
from scratchbus.domain.exposure import ActionTaken as ActionTaken
from scratchbus.domain.exposure import Exposure as Exposure
from scratchbus.domain.exposure import Seen as Seen
from scratchbus.domain.facts import Fact as Fact
from scratchbus.domain.facts import Retraction as Retraction
from scratchbus.domain.items import ItemChange as ItemChange
from scratchbus.domain.items import StoreItem as StoreItem
from scratchbus.domain.knowledge import Extractor as Extractor
from scratchbus.domain.knowledge import Neighbour as Neighbour
from scratchbus.domain.knowledge import Span as Span
from scratchbus.domain.knowledge import Triplet as Triplet
from scratchbus.domain.knowledge import Why as Why
from scratchbus.domain.memories import Note as Note
from scratchbus.domain.memories import NoteResult as NoteResult
from scratchbus.domain.memories import NotesResult as NotesResult
from scratchbus.domain.memories import Preference as Preference
from scratchbus.domain.memories import Revised as Revised
from scratchbus.domain.memories import Session as Session
from scratchbus.domain.memories import SessionInfo as SessionInfo
from scratchbus.domain.memories import TagsResult as TagsResult
from scratchbus.domain.observation import Claim as Claim
from scratchbus.domain.observation import Observation as Observation
from scratchbus.domain.observation_models import NewObservation as NewObservation
from scratchbus.domain.observation_models import ObservationPatch as ObservationPatch
from scratchbus.domain.payloads import payload_of as payload_of
from scratchbus.domain.position import BusPosition as BusPosition
from scratchbus.domain.position import Position as Position
from scratchbus.domain.registry import ObservationType as ObservationType
from scratchbus.domain.registry import Registry as Registry
from scratchbus.domain.registry import RegistryChanges as RegistryChanges
from scratchbus.domain.registry_yaml import parse_registry as parse_registry
from scratchbus.domain.relation_registry import Relation as Relation
from scratchbus.domain.relation_registry import RelationRegistry as RelationRegistry
from scratchbus.domain.relation_registry import parse_relations as parse_relations
from scratchbus.domain.runs import ScratchpadReply as ScratchpadReply
from scratchbus.domain.time_checks import When as When
from scratchbus.domain.todo import MAX_CONTENT as MAX_TODO_CONTENT
from scratchbus.domain.todo import MAX_ITEMS as MAX_TODO_ITEMS
from scratchbus.domain.todo import TodoItem as TodoItem
from scratchbus.domain.todo import TodoList as TodoList
from scratchbus.domain.tokens import TokenCounter as TokenCounter
from scratchbus.domain.tokens import estimate_tokens as estimate_tokens
from scratchbus.domain.trace import Branch as Branch
from scratchbus.domain.trace import Consequences as Consequences
from scratchbus.domain.trace import Trace as Trace
from scratchbus.domain.urgency import by_urgency as by_urgency
from scratchbus.domain.urgency import urgency as urgency
from scratchbus.domain.values import Duration as Duration
from scratchbus.domain.values import Moment as Moment
from scratchbus.domain.values import check_confidence as check_confidence
from scratchbus.domain.values import check_page as check_page
from scratchbus.domain.values import check_scope as check_scope
from scratchbus.domain.values import check_source as check_source
from scratchbus.domain.values import duration_ms as duration_ms
from scratchbus.domain.values import duration_text as duration_text
from scratchbus.domain.values import is_type_name as is_type_name
from scratchbus.engine.embedded.server import EmbeddedEngine as EmbeddedEngine
from scratchbus.engine.embedded.server import directory_of as embedded_directory
from scratchbus.engine.embedded.server import find_running as find_engine
from scratchbus.engine.embedded.server import stop as stop_engine
from scratchbus.errors import ScratchbusError as ScratchbusError
from scratchbus.eventlog.causes import because as because
from scratchbus.eventlog.causes import within_trace as within_trace
from scratchbus.eventlog.foreign import ForeignEntry as ForeignEntry
from scratchbus.eventlog.ids import new_id as new_id
from scratchbus.http.main import ServeOptions as HttpOptions
from scratchbus.http.main import Serving as HttpServing
from scratchbus.http.main import run as serve_http
from scratchbus.http.main import serving_beside as serving_http
from scratchbus.mcp.access_tokens import SCOPES as TOKEN_SCOPES
from scratchbus.mcp.access_tokens import Token as McpToken
from scratchbus.mcp.access_tokens import Tokens as McpTokens
from scratchbus.mcp.app import mcp_app as mcp_app
from scratchbus.mcp.identity import Identity as McpIdentity
from scratchbus.mcp.main import run_http as serve_mcp_http
from scratchbus.mcp.main import run_stdio as serve_mcp_stdio
from scratchbus.memory.facts import Facts as Facts
from scratchbus.memory.facts_async import AsyncFacts as AsyncFacts
from scratchbus.memory.files import Files as Files
from scratchbus.memory.files_async import AsyncFiles as AsyncFiles
from scratchbus.memory.items import Items as Items
from scratchbus.memory.items_async import AsyncItems as AsyncItems
from scratchbus.memory.memories import Memories as Memories
from scratchbus.memory.memories_async import AsyncMemories as AsyncMemories
from scratchbus.memory.notepad import Notepad as Notepad
from scratchbus.memory.notepad_async import AsyncNotepad as AsyncNotepad
from scratchbus.memory.notes import Notes as Notes
from scratchbus.memory.notes_async import AsyncNotes as AsyncNotes
from scratchbus.memory.preference_sync import Synced as Synced
from scratchbus.memory.preferences import Preferences as Preferences
from scratchbus.memory.preferences_async import AsyncPreferences as AsyncPreferences
from scratchbus.memory.runs import Run as Run
from scratchbus.memory.runs_async import AsyncRun as AsyncRun
from scratchbus.memory.scratchpad import Scratchpad as Scratchpad
from scratchbus.memory.scratchpad_async import AsyncScratchpad as AsyncScratchpad
from scratchbus.memory.texts import Texts as Texts
from scratchbus.memory.texts_async import AsyncTexts as AsyncTexts
from scratchbus.memory.todo import Todo as Todo
from scratchbus.memory.todo_async import AsyncTodo as AsyncTodo
from scratchbus.memory.turns import Turns as Turns
from scratchbus.memory.turns_async import AsyncTurns as AsyncTurns
from scratchbus.page import Page as Page
from scratchbus.page_async import AsyncPage as AsyncPage
from scratchbus.projections.item_index import FoundItem as FoundItem
from scratchbus.projections.item_index import NamespaceMatch as NamespaceMatch
from scratchbus.readmodel.histogram import Bucket as Bucket
from scratchbus.readmodel.histogram import Histogram as Histogram
from scratchbus.readmodel.rebuild import Rebuilt as Rebuilt
from scratchbus.readmodel.registry_files import as_registry as load_registry
from scratchbus.readmodel.status import PageStatus as PageStatus
from scratchbus.readmodel.status import ShardStatus as ShardStatus
from scratchbus.readmodel.status import Status as Status
from scratchbus.readmodel.status import SubscriptionStatus as SubscriptionStatus
from scratchbus.readmodel.verify import Finding as Finding
from scratchbus.readmodel.verify import Verified as Verified
from scratchbus.subscriptions import AsyncDelivery as AsyncDelivery
from scratchbus.subscriptions import AsyncSubscription as AsyncSubscription
from scratchbus.subscriptions import DeadLetter as DeadLetter
from scratchbus.subscriptions import Delivery as Delivery
from scratchbus.subscriptions import Subscription as Subscription
from scratchbus.subscriptions.definition import Webhook as Webhook
from scratchbus.subscriptions.definition import new_webhook_secret as new_webhook_secret
from scratchbus.subscriptions.pulled_batches import Pulled as Pulled
from scratchbus.subscriptions.pulled_batches import PulledEvent as PulledEvent
from scratchbus.telemetry.terminal import escaped as escaped
from scratchbus.telemetry.terminal import visible as visible
from scratchbus.telemetry.tracing import TraceSpan as TraceSpan
from scratchbus.telemetry.tracing import Tracing as Tracing
from scratchbus.telemetry.tracing import set_tracing as set_tracing
from scratchbus.timetravel import AsyncPastPage as AsyncPastPage
from scratchbus.timetravel import PastPage as PastPage
from scratchbus.views.live_page import Change as Change
from scratchbus.views.view import View as View
from scratchbus.views.view_async import AsyncView as AsyncView
from scratchbus.work import AsyncJob as AsyncJob
from scratchbus.work import AsyncWork as AsyncWork
from scratchbus.work import Job as Job
from scratchbus.work import Work as Work
from scratchbus.workspace.rules import Rule as Rule
from scratchbus.workspace.rules import read_rules as read_rules
from scratchbus.workspace.sync import WorkspaceSync as WorkspaceSync
from scratchbus.workspace.sync import WorkspaceSynced as WorkspaceSynced
from scratchbus.workspace.watch import watch_preferences as watch_preferences
from scratchbus.workspace.watch import watch_workspace as watch_workspace

__all__ = [  # a type checker exports an alias of another name only if it is listed here
    "MAX_TODO_CONTENT",
    "MAX_TODO_ITEMS",
    "TOKEN_SCOPES",
    "ArchiveProgress",
    "ArchiveStore",
    "ContextPart",
    "HttpOptions",
    "HttpServing",
    "McpIdentity",
    "McpToken",
    "McpTokens",
    "embedded_directory",
    "export_line",
    "export_row",
    "find_engine",
    "load_registry",
    "open_archive",
    "rank_matches",
    "serve_http",
    "serve_mcp_http",
    "serve_mcp_stdio",
    "serving_http",
    "stop_engine",
    "verify_archive",
]
