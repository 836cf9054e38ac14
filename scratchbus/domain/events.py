"""The events: immutable facts about a subject, in one closed list of kinds.

An event is stored as a JSON *body* beside a few plain fields that readers filter on (the *envelope*: id, page,
subject, kind, type, batch). The body has the schema version and everything that was decided when the event was made:
priority, status class, durations. Folding therefore needs no registry and no clock. An event's time `at` is that of
its position, from the engine's clock.
"""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from typing import Annotated, get_args

from pydantic import Field

from scratchbus.domain.conversation_events import FileRemoved as FileRemoved
from scratchbus.domain.conversation_events import FileWritten as FileWritten
from scratchbus.domain.conversation_events import TextDeleted as TextDeleted
from scratchbus.domain.conversation_events import TextEdited as TextEdited
from scratchbus.domain.conversation_events import TextWritten as TextWritten
from scratchbus.domain.conversation_events import TurnAppended as TurnAppended
from scratchbus.domain.conversation_events import TurnsCompacted as TurnsCompacted
from scratchbus.domain.event import ENVELOPE as ENVELOPE
from scratchbus.domain.event import SCHEMA as SCHEMA
from scratchbus.domain.event import Event as Event
from scratchbus.domain.fact_events import FactAsserted as FactAsserted
from scratchbus.domain.fact_events import FactRetracted as FactRetracted
from scratchbus.domain.item_events import ItemDeleted as ItemDeleted
from scratchbus.domain.item_events import ItemPut as ItemPut
from scratchbus.domain.item_events import ItemUsed as ItemUsed
from scratchbus.domain.memory_events import NoteAdded as NoteAdded
from scratchbus.domain.memory_events import NoteDeleted as NoteDeleted
from scratchbus.domain.memory_events import NotepadEdited as NotepadEdited
from scratchbus.domain.memory_events import NotepadWritten as NotepadWritten
from scratchbus.domain.memory_events import NoteUpdated as NoteUpdated
from scratchbus.domain.memory_events import PreferenceForgotten as PreferenceForgotten
from scratchbus.domain.memory_events import PreferenceRemembered as PreferenceRemembered
from scratchbus.domain.memory_events import RunEnded as RunEnded
from scratchbus.domain.memory_events import ScratchpadWritten as ScratchpadWritten
from scratchbus.domain.memory_events import SessionEnded as SessionEnded
from scratchbus.domain.memory_events import SessionSpawned as SessionSpawned
from scratchbus.domain.memory_events import SessionStarted as SessionStarted
from scratchbus.domain.memory_events import TaskBegun as TaskBegun
from scratchbus.domain.memory_events import TaskEnded as TaskEnded
from scratchbus.domain.memory_events import TodoWritten as TodoWritten
from scratchbus.domain.observation_models import Changes as Changes
from scratchbus.domain.page_events import Added as Added
from scratchbus.domain.page_events import Claimed as Claimed
from scratchbus.domain.page_events import Cleared as Cleared
from scratchbus.domain.page_events import ContextRendered as ContextRendered
from scratchbus.domain.page_events import Due as Due
from scratchbus.domain.page_events import Erased as Erased
from scratchbus.domain.page_events import Lapsed as Lapsed
from scratchbus.domain.page_events import Linked as Linked
from scratchbus.domain.page_events import PageEvent
from scratchbus.domain.page_events import ReasonCode as ReasonCode
from scratchbus.domain.page_events import RelationsChanged as RelationsChanged
from scratchbus.domain.page_events import Released as Released
from scratchbus.domain.page_events import Repeated as Repeated
from scratchbus.domain.page_events import StatusChanged as StatusChanged
from scratchbus.domain.page_events import TypesChanged as TypesChanged
from scratchbus.domain.page_events import Updated as Updated

AnyEvent = Annotated[
    PageEvent
    | NotepadWritten
    | NotepadEdited
    | NoteAdded
    | NoteUpdated
    | NoteDeleted
    | SessionSpawned
    | SessionStarted
    | SessionEnded
    | TodoWritten
    | TaskBegun
    | TaskEnded
    | ScratchpadWritten
    | RunEnded
    | PreferenceRemembered
    | PreferenceForgotten
    | FactAsserted
    | FactRetracted
    | TurnAppended
    | TurnsCompacted
    | FileWritten
    | FileRemoved
    | TextWritten
    | TextEdited
    | TextDeleted
    | ItemPut
    | ItemUsed
    | ItemDeleted,
    Field(discriminator="kind"),
]

Events = list[AnyEvent]
"""Events of any kind."""

EVENTS: dict[str, type[Event]] = {each.model_fields["kind"].default: each for each in get_args(get_args(AnyEvent)[0])}
"""The class of each kind of event."""

EVENT_KINDS = tuple(EVENTS)
"""All kinds of events, as accepted by `Bus.events(kinds=...)`."""
