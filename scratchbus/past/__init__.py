"""Pages of the past: as they were at a moment, or as they would have been had some sources been silent."""

from scratchbus.past.blocking import PastPage
from scratchbus.past.cut import When
from scratchbus.past.nonblocking import AsyncPastPage
from scratchbus.past.remembering import notes_as_of, remembered_as_of
from scratchbus.past.travelling import as_of

__all__ = ["AsyncPastPage", "PastPage", "When", "as_of", "notes_as_of", "remembered_as_of"]
