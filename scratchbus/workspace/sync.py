"""Sync `TODO.md` and `NOTES.md` of a directory with the todo list and notepad of a session, both ways."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from scratchbus import (
    MAX_TODO_CONTENT,
    MAX_TODO_ITEMS,
    Bus,
    BusPosition,
    Erased,
    Notepad,
    Position,
    Todo,
    TodoItem,
    TodoList,
    embedded_directory,
)
from scratchbus.errors import (
    Conflict,
    InvalidInput,
    LogRewound,
    NotFound,
    PositionLost,
    RevisionConflict,
    SessionOver,
    TooLarge,
)
from scratchbus.workspace.checklist import Entry, content_of, edited, entries, lines_of, on_one_line
from scratchbus.workspace.merge import Named, merge_items, merge_text
from scratchbus.workspace.shared_file import FileChanged, SharedFile, settled

TODO: Final = "TODO.md"
NOTES: Final = "NOTES.md"
"""The names of the synced files."""

_NEW_TODO: Final = "# TODO\n\n"
_TRIES: Final = 20


class WorkspaceSynced(NamedTuple):
    """The targets that one sync wrote: TODO.md, NOTES.md, todo, notepad."""

    wrote: tuple[str, ...]


@dataclass
class MergeBase:
    """The common state: items by id in the order of the file, the text of the notes, and a position of each."""

    items: dict[str, Entry] = field(default_factory=dict)
    notes: str = ""
    position: str = ""
    notes_position: str = ""


class SyncState:
    """The last common state of one workspace with one session of one bus, in a file of the data directory.

    It is written after both sides. If a process is killed before that, the next sync finds both sides equal and merges
    the changes since the previous state.
    """

    def __init__(self, home: Path, *names: str) -> None:
        self._path = home / "workspace" / f"{sha256(json.dumps(names).encode()).hexdigest()[:32]}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from syncing the same workspace while the `with` lasts. Raises OSError."""
        for directory in (self._path.parent.parent, self._path.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self) -> MergeBase:
        """Return the state, an empty one if none can be read: then nothing counts as removed."""
        try:
            stored: dict[str, Any] = json.loads(self._path.read_bytes())
            items = {str(id): Entry(str(text), str(status)) for id, (text, status) in stored["items"].items()}
            position = str(stored["position"])
            return MergeBase(items, str(stored["notes"]), position, str(stored.get("notes_position", position)))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return MergeBase()

    def write(self, synced: MergeBase) -> None:
        """Store a state atomically; the caller holds the lock. Raises OSError."""
        temporary = self._path.with_suffix(".part")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(asdict(synced), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)


class WorkspaceSync:
    """The files of a directory and the memory of a session. Any number may sync one directory, one at a time."""

    def __init__(self, bus: Bus, directory: str | Path, session: str | None = None) -> None:
        """Take a directory that exists, and a session; without one, the directory has its own. Raises InvalidInput."""
        self.directory = Path(directory).resolve()
        if not self.directory.is_dir():
            raise InvalidInput(f"{directory} is not a directory; pass the project's directory")
        session = _session_of(self.directory) if session is None else session
        settings = bus.settings
        self.bus, self.session = bus, session
        self._todo, self._notepad = bus.todo(session), bus.notepad(session)
        self._todo_file, self._notes_file = SharedFile(self.directory, TODO), SharedFile(self.directory, NOTES)
        home = embedded_directory(None, settings.home) or Path()
        url = settings.url or f"embedded:{home.resolve()}"
        self._state = SyncState(home, str(self.directory), url, settings.bus, session)

    def run(self) -> WorkspaceSynced:
        """Apply the changes of each side since the last sync to the other; return the targets written.

        Raises InvalidInput for a file that is not text, SessionOver, TooLarge beyond the limits of a session, Conflict
        if others keep changing it, OSError, and EngineError. Nothing is lost then: the next sync continues.
        """
        with self._state.locked():
            synced = self._state.read()
            wrote = [*self._sync_todo(synced), *self._sync_notes(synced)]
        return WorkspaceSynced(tuple(dict.fromkeys(wrote)))

    def _sync_todo(self, synced: MergeBase) -> list[str]:
        wrote: list[str] = []
        for _ in range(_TRIES):
            file = settled(self._todo_file.path, self._todo_file.read)
            todo = self._todo.read()
            self._check_open()
            text = _unless_blank(file.text)
            bus = [(item.id, Entry(on_one_line(item.content), item.status)) for item in todo.todos]
            on_file = entries(text)
            base = {} if file.is_blank else self._base(synced, bus, on_file)
            if len(on_file) - len(base) > MAX_TODO_ITEMS:  # before the merge, which takes long for many items
                raise _too_many(len(on_file))
            merged = merge_items(base, on_file, bus)
            after = _unless_blank(edited(text, merged.slots))
            try:
                if merged.todos != bus:
                    self._todo.write(_as_todos(todo, merged.todos), revision=todo.revision)
                    wrote.append("todo")
                if after != file.text or file.data is None:
                    self._todo_file.replace(after, file)
                    wrote.append(TODO)
            except (RevisionConflict, FileChanged):
                continue
            items = _in_the_order_of_the_file(entries(after), merged.todos)
            if base is not synced.items or (items, list(items)) != (synced.items, list(synced.items)):
                synced.items, synced.position = items, str(self.bus.position())
                self._state.write(synced)
            return wrote
        raise Conflict(f"{self._todo_file.path} keeps changing; try again")

    def _sync_notes(self, synced: MergeBase) -> list[str]:
        wrote: list[str] = []
        for _ in range(_TRIES):
            file = settled(self._notes_file.path, self._notes_file.read)
            content, revision = self._notepad.read_with_revision()
            self._check_open()
            printable = content.replace("\0", "\ufffd").lstrip("\ufeff")  # no binary file, nor a byte order mark
            base, text = self._notes_base(synced, printable), file.text
            if base is None:
                base, text = "", _without_lines(text, synced.notes)
            after = printable if file.is_blank else merge_text(base, text, printable)
            try:
                if after != printable:
                    self._notepad.write(after, revision=revision)
                    wrote.append("notepad")
                if after != file.text or file.data is None:
                    self._notes_file.replace(after, file)
                    wrote.append(NOTES)
            except (RevisionConflict, FileChanged):
                continue
            if after != synced.notes or base != synced.notes:
                synced.notes, synced.notes_position = after, str(self.bus.position())
                self._state.write(synced)
            return wrote
        raise Conflict(f"{self._notes_file.path} keeps changing; try again")

    def _check_open(self) -> None:
        """Raise SessionOver if the session has ended: what was read may be empty, and must not reach the files."""
        record = self.bus.session(self.session)
        if record is not None and record.ended:
            raise SessionOver(self.session)

    def _notes_base(self, synced: MergeBase, on_bus: str) -> str | None:
        """Return the last common notes, "" if they changed and are from another log, such as a lost one.

        Return None if they were erased since: none of their lines may reach the bus again.
        """
        if synced.notes and synced.notes != on_bus:
            try:
                then = self._notepad.as_of(synced.notes_position)
            except (InvalidInput, NotFound, PositionLost, LogRewound):
                return ""
            if not then and _was_erased(self._notepad, synced.notes_position):
                return None
        return synced.notes

    def _base(self, synced: MergeBase, bus: list[Named], on_file: list[Entry]) -> dict[str, Entry]:
        """Return the last common items; none if the log never had those now missing on the bus.

        If they were erased, they have their statuses in the file: a ticked box must not bring one back.
        """
        missing = synced.items.keys() - dict(bus).keys()
        if missing:
            try:
                had = {item.id for item in self._todo.as_of(synced.position).todos}
            except (InvalidInput, NotFound, PositionLost, LogRewound):
                return {}
            if not missing <= had:
                if not _was_erased(self._todo, synced.position):
                    return {}  # another log, such as a new engine's: items missing there were not removed
                return _with_statuses(synced.items, on_file)
        return synced.items


def _was_erased(memory: Todo | Notepad, synced_at: str) -> bool:
    """Return whether the todo list or notepad that the log had at the last sync was erased since."""
    ends = BusPosition.parse(synced_at).shards
    for event in memory.history():
        end = next((each for each in ends if each.shard == event.position.shard), None)
        if end is not None and isinstance(event, Erased) and event.positions:
            first = Position.parse(event.positions[0])
            if first[:2] <= end[:2] < event.position[:2]:
                return True
    return False


def _with_statuses(items: dict[str, Entry], on_file: list[Entry]) -> dict[str, Entry]:
    """Return items with the statuses of those in a file that have the same texts, in the same order."""
    found: dict[str, list[Entry]] = {}
    for entry in on_file:
        found.setdefault(entry.text, []).append(entry)
    return {id: found[entry.text].pop(0) if found.get(entry.text) else entry for id, entry in items.items()}


def _without_lines(text: str, removed: str) -> str:
    """Return a text without the lines of another one, but with its blank lines."""
    lines = {line.rstrip("\r\n") for line in lines_of(removed) if line.strip()}
    return "".join(line for line in lines_of(text) if line.rstrip("\r\n") not in lines)


def _unless_blank(text: str) -> str:
    """Return a text, or the text of a new file: an empty one counts as missing."""
    return text if text.strip() else _NEW_TODO


def _as_todos(before: TodoList, items: list[Named]) -> list[TodoItem]:
    """Return items as a todo list; if the text is equal, the bus's content is kept. Raises TooLarge."""
    contents = {item.id: item.content for item in before.todos}
    todos = [
        TodoItem.model_validate(
            {
                "id": id,
                "content": contents[id] if on_one_line(contents.get(id, "")) == entry.text else content_of(entry.text),
                "status": entry.status,
            }
        )
        for id, entry in items
    ]
    if len(todos) > MAX_TODO_ITEMS:
        raise _too_many(len(todos))
    longest = max((len(todo.content) for todo in todos), default=0)
    if longest > MAX_TODO_CONTENT:
        raise TooLarge(TODO, longest, MAX_TODO_CONTENT, "characters in one item", "shorten it")
    return todos


def _too_many(count: int) -> TooLarge:
    return TooLarge(TODO, count, MAX_TODO_ITEMS, "items", "remove completed items")


def _in_the_order_of_the_file(file: list[Entry], todos: list[Named]) -> dict[str, Entry]:
    ids: dict[Entry, list[str]] = {}
    for id, entry in todos:
        ids.setdefault(entry, []).append(id)
    return {ids[entry].pop(0): entry for entry in file}


def _session_of(directory: Path) -> str:
    """Return the id of a directory's own session: its name, and eight digits that depend on its path."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", directory.name)[:64].strip("-")
    digits = sha256(os.fsencode(directory)).hexdigest()[:8]
    return f"{name}-{digits}" if name else digits
