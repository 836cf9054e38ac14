"""The arguments that several tools take, and the checks of a revision: no model overwrites what it has not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

from scratchbus.errors import Conflict, RevisionConflict

EventId = Annotated[
    str | None, Field(description="Your own id for this call; a retry with the same id changes nothing twice.")
]
Tags = Annotated[list[str] | None, Field(description="Topics to find it by.")]
Cursor = Annotated[str | None, Field(description="The `next_cursor` of the previous answer.")]
Based = Annotated[
    int | None, Field(ge=0, description="The `revision` you last read; the write is refused if it has changed since.")
]
Overwrite = Annotated[bool, Field(description="Replace the text even if you have not read it.")]


def base_of(revision: int | None, overwrite: bool) -> int | None:
    """Return the revision a replacement is based on; 0 (the memory must be empty) if none is given."""
    return revision if revision is not None else None if overwrite else 0


@contextmanager
def explained(what: str, how_to_read: str, revision: int | None) -> Iterator[None]:
    """Turn RevisionConflict into a Conflict that tells the model how to proceed."""
    try:
        yield
    except RevisionConflict as conflict:
        problem = "is not empty" if revision is None else f"has changed since revision {revision}"
        raise Conflict(
            f"the {what} {problem}, so nothing was written; read it with {how_to_read} and pass its revision, or pass"
            " overwrite=true without a revision to replace it unread"
        ) from conflict
