"""Write, edit, move and delete the texts of a scope.

Each edit applies to the text as it is when the edit is appended, so concurrent writers lose nothing. A change of
several texts, such as renaming a directory, is one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, cast

from scratchbus.commands.execution import Occasion, nth_suffix
from scratchbus.commands.memory import edit
from scratchbus.commands.memory_edit import MemoryEdit, is_retry, put
from scratchbus.commands.memory_reads import read_memory
from scratchbus.domain.checks import check_length, check_own_event_id, check_text
from scratchbus.domain.conversation_events import TextDeleted, TextEdited, TextWritten
from scratchbus.domain.conversations import Text, check_path, subject_of
from scratchbus.domain.event import Event
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.values import check_whole
from scratchbus.engine.retry_limits import contention
from scratchbus.engine.steps import Pause, Step
from scratchbus.errors import Conflict, InvalidField, NotFound, TooLarge, VersionConflict, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import MAX_BATCH
from scratchbus.projections.memory_index import Directory
from scratchbus.projections.texts import PREFIX, edited, evolve, lines_of
from scratchbus.readmodel.queries import recollect_one
from scratchbus.readmodel.scope import Core

_TRIES = 100

Decide = Callable[[Mapping[str, Text], Occasion], list[Event]]
"""Returns the events of a change, given the current texts by path."""


class _TextEdit(MemoryEdit):
    path: Annotated[str, CheckedBy(check_path)]

    @property
    def about(self) -> str:
        """See `MemoryEdit`."""
        return subject_of(PREFIX, self.path)

    def present(self, document: Text | None) -> Text:
        """Return the text. Raises NotFound."""
        if document is None or document.deleted:
            raise _not_found(self.path)
        return document


class CreateText(_TextEdit):
    """Write a new text."""

    verb = "create_text"
    content: Annotated[str, CheckedBy(partial(check_text, "content"))]

    def decide(self, occasion: Occasion, document: Text | None) -> Event:
        """See `MemoryEdit`. Raises Conflict, TooLarge."""
        if document is not None and not document.deleted:
            raise Conflict(f"{shown(self.path)} already exists; edit it, or delete it first")
        _check_size(occasion, self.content)
        return occasion.event(TextWritten, self.about, path=self.path, content=self.content)


class ReplaceInText(_TextEdit):
    """Replace a part of a text that occurs once."""

    verb = "replace_in_text"
    old: Annotated[str, CheckedBy(partial(check_text, "old"))]
    new: Annotated[str, CheckedBy(partial(check_text, "new"))]

    def decide(self, occasion: Occasion, document: Text | None) -> Event:
        """See `MemoryEdit`. Raises NotFound, InvalidField, TooLarge."""
        text = self.present(document)
        count = text.content.count(self.old) if self.old else 0
        if count != 1:
            raise InvalidField(
                "old", f"{shown(self.old)} occurs {count} times in {shown(self.path)}; give a part that occurs once"
            )
        event = occasion.event(TextEdited, self.about, find=self.old, content=self.new)
        _check_size(occasion, edited(text.content, event))
        return event


class InsertIntoText(_TextEdit):
    """Insert lines into a text, after the line with this number; 0 inserts them at the start."""

    verb = "insert_into_text"
    line: Annotated[int, CheckedBy(partial(check_whole, "line", minimum=0))]
    text: Annotated[str, CheckedBy(partial(check_text, "text"))]

    def decide(self, occasion: Occasion, document: Text | None) -> Event:
        """See `MemoryEdit`. Raises NotFound, InvalidField, TooLarge."""
        text = self.present(document)
        count = len(lines_of(text.content))
        if self.line > count:
            raise InvalidField("line", f"{self.line} is beyond the {count} lines of {shown(self.path)}")
        event = occasion.event(TextEdited, self.about, line=self.line, content=self.text.removesuffix("\n"))
        _check_size(occasion, edited(text.content, event))
        return event


def create(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Text]:
    """Write a new text. Raises Conflict if there is a text or a directory at its path, unless this is a retry."""
    command = CreateText.parse(arguments)
    occasion = command.on(core, page)

    def decide(texts: Mapping[str, Text], occasion: Occasion) -> list[Event]:
        if problem := _problem_at(command.path, texts):
            raise Conflict(f"{problem}; choose another path")
        return [command.decide(occasion, texts.get(command.path))]

    try:
        for before, event in (yield from _change_all(core, page, command.path, occasion, decide)):
            return cast(Text, evolve(before, event))
    except Conflict:
        if not (yield from is_retry(core, occasion, command.about)):
            raise
    return cast(Text, (yield from edit(core, page, command)))


def _problem_at(path: str, texts: Mapping[str, Text]) -> str:
    """Return why there can be no text at a path, "" if there can be."""
    ancestor = next((each for each in _above(path) if each in texts), None)
    if ancestor is not None:
        return f"{shown(ancestor)} is a text, not a directory"
    return f"{shown(path)} is a directory" if path not in texts and _below(texts, path) else ""


def read(core: Core, page: str, path: str) -> Step[Text]:
    """Return a text. Raises NotFound."""
    found = yield from recollect_one(core, page, subject_of(PREFIX, check_path(path)))
    if not isinstance(found, Text) or found.deleted:
        raise _not_found(path)
    return found


def present(core: Core, page: str, under: str | None) -> Step[list[Text]]:
    """Return the texts, or those in a directory, by path."""
    if under is not None:
        check_path(under, "under")
    texts = yield from _texts(core, page)
    return list(texts.values()) if under is None else [texts[path] for path in _below(texts, under)]


def delete(core: Core, page: str, path: str, event_id: str | None) -> Step[None]:
    """Delete a text, or all texts in a directory. Raises NotFound."""

    def decide(texts: Mapping[str, Text], occasion: Occasion) -> list[Event]:
        return [_delete_event(occasion, number, texts[each]) for number, each in enumerate(_paths_at(texts, path))]

    yield from _change_paths(core, page, "delete_text", [check_path(path)], event_id, decide)


def rename(core: Core, page: str, path: str, to: str, event_id: str | None) -> Step[None]:
    """Move a text, or all texts in a directory. Raises NotFound, and Conflict if the target exists."""
    check_path(path)
    check_path(to, "to")
    if f"{to}/".startswith(f"{path}/"):
        raise InvalidField("to", f"{shown(to)} is {shown(path)} itself or inside it; choose another path")

    def decide(texts: Mapping[str, Text], occasion: Occasion) -> list[Event]:
        paths = _paths_at(texts, path)
        existing = [each for each in (to, *_above(to)) if each in texts] or _below(texts, to)
        if existing:
            raise Conflict(f"{shown(existing[0])} already exists; choose another path, or delete it first")
        events: list[Event] = []
        for each in paths:
            events += _move_events(occasion, len(events), texts[each], check_path(to + each[len(path) :], "to"))
        return events

    yield from _change_paths(core, page, "rename_text", [path, to], event_id, decide)


def _move_events(occasion: Occasion, number: int, text: Text, to: str) -> list[Event]:
    subject, content = subject_of(PREFIX, to), text.content
    written = occasion.event(TextWritten, subject, nth_suffix(number), path=to, content=content, source=text.path)
    return [written, _delete_event(occasion, number + 1, text, to)]


def _delete_event(occasion: Occasion, number: int, text: Text, to: str | None = None) -> Event:
    return occasion.event(TextDeleted, text.id, nth_suffix(number), target=to)


def _change_paths(
    core: Core, page: str, verb: str, arguments: Sequence[str], event_id: str | None, decide: Decide
) -> Step[None]:
    """Append the change of several texts, unless this is a retry."""
    check_own_event_id(event_id)
    occasion = Occasion.of(core, page, event_id, verb, *arguments)
    if event_id is None or not (yield from is_retry(core, occasion, PREFIX)):
        yield from _change_all(core, page, arguments[0], occasion, decide)


def _change_all(
    core: Core, page: str, path: str, occasion: Occasion, decide: Decide
) -> Step[list[tuple[Text | None, Event]]]:
    """Append the change of several texts as one batch; it is decided again if another writer was faster.

    Returns its events, each with the text before it; none if an earlier attempt has already appended them.
    """
    unreadable: dict[str, int] = {}  # the versions of subjects whose documents cannot be read
    for attempt in range(_TRIES):
        cached = yield from core.directories.fresh(core.log, page)
        with cached.lock:
            known, since = cached.memory.present(), cached.cursor.position.stream_id
            events = decide({each.path: each for each in known if isinstance(each, Text)}, occasion)
            documents = [cached.memory.get(event.subject) for event in events]
        if len(events) > MAX_BATCH:
            raise TooLarge("path", len(events), MAX_BATCH, "events", "move or delete parts of the directory")
        writes = [
            put(occasion, event, document.version if document is not None else unreadable.get(event.subject, 0))
            for event, document in zip(events, documents, strict=True)
        ]
        for write in writes:
            if isinstance(write.event, TextWritten):
                write.argument += f":{since}"
        try:
            appended = yield from append(core.log, page, writes)
        except VersionConflict as conflict:
            unreadable[conflict.id] = conflict.actual
            yield Pause(contention(attempt))
            continue
        placed = [row.placed(event) for event, row in zip(events, appended.written, strict=False)]  # none if recalled
        return list(zip(cast(list[Text | None], documents), placed, strict=False))
    raise Conflict(f"{path} keeps changing; try again")


def _texts(core: Core, page: str) -> Step[dict[str, Text]]:
    """Return the texts of a scope by path, in order."""
    entries = yield from read_memory(core, core.directories, page, Directory.present)
    return {each.path: each for each in entries if isinstance(each, Text)}


def _paths_at(texts: Mapping[str, Text], path: str) -> list[str]:
    """Return the path if it is a text's, else the paths of the texts in that directory. Raises NotFound."""
    found = [path] if path in texts else _below(texts, path)
    if not found:
        raise _not_found(path)
    return found


def _below(texts: Mapping[str, Text], path: str) -> list[str]:
    return [each for each in texts if each.startswith(f"{path}/")]


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


def _not_found(path: str) -> NotFound:
    return NotFound(f"there is no text {shown(path)}; list the texts for their paths")


def _check_size(occasion: Occasion, content: str) -> None:
    check_length("content", content, occasion.settings.max_text, "split it into several texts, or raise max_text")
