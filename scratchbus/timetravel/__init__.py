"""Past pages: at a given moment, or as they would have been without some sources."""

from scratchbus.timetravel.cut import Cut, When
from scratchbus.timetravel.past import as_of
from scratchbus.timetravel.past_memories import (
    conversation_as_of,
    documents_as_of,
    notes_as_of,
    preferences_as_of,
    remembered_as_of,
)
from scratchbus.timetravel.past_page import PastPage
from scratchbus.timetravel.past_page_async import AsyncPastPage
from scratchbus.timetravel.past_pages import pages_as_of

__all__ = [
    "AsyncPastPage",
    "Cut",
    "PastPage",
    "When",
    "as_of",
    "conversation_as_of",
    "documents_as_of",
    "notes_as_of",
    "pages_as_of",
    "preferences_as_of",
    "remembered_as_of",
]
