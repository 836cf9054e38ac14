"""The base of all projections: their documents, their fold, and the mark of a damaged document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from scratchbus.domain.document import Remembered
from scratchbus.domain.event import Event
from scratchbus.domain.models import trusted
from scratchbus.domain.observation import Observation

Document = Observation | Remembered
"""The current state of a subject."""

D = TypeVar("D", bound=Document)

Store = Literal["docs", "memory"]
"""The hash of a page that has the documents, by its name in `PageKeys`."""


class FoldError(ValueError):
    """A well-formed event cannot follow the earlier events."""


UNFOLDABLE = (ValueError, TypeError, OverflowError)
"""The exceptions that `evolve` raises for an event that cannot be folded."""


class Indexes(NamedTuple):
    """The indexes over documents.

    `entries` returns the (index, value) pairs under which a document is found; only `fields` can change them. `moment`
    returns when (ms) time changes the document next, None for never.
    """

    entries: Callable[[Any], list[tuple[str, str]]]
    fields: tuple[str, ...]
    moment: Callable[[Any], int | None]


@dataclass(frozen=True, slots=True)
class Projection(Generic[D]):
    """One read model: its documents, where they are stored, and how events change them.

    `evolve` returns the document after an event, None once there is none; it reads no clock and no registry, and raises
    FoldError for an event that cannot follow the earlier ones. Without `indexes`, documents are found only by their
    subjects.
    """

    document: type[D]
    evolve: Callable[[Any, Event], D | None]
    store: Store = "memory"
    indexes: Indexes | None = None

    def fold(self, document: D | None, event: Event) -> tuple[D | None, str]:
        """Return the document after an event, and "" or the reason why it could not be folded and is now damaged."""
        try:
            return self.evolve(document, event), ""
        except UNFOLDABLE as error:
            return damage(document, event.ms, event.seq), reason_of(error)


def reason_of(error: Exception) -> str:
    """Return why an event could not be folded, in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def damage(document: D | None, ms: int, seq: int) -> D | None:
    """Return a document after an event that could not be read: only its version and position move.

    An event that the document already includes changes nothing.
    """
    if document is None or document.seq >= seq:
        return document
    changes = {"version": document.version + 1, "ms": ms, "seq": seq, "damaged": True}
    return trusted(type(document), document.__dict__ | changes)
