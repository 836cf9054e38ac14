"""The todo list of a session, and the effect of a write on it.

A list keeps the order in which it was given, and merged items stay in their places. An item or a list that is too long
is cut rather than refused; a list keeps its first items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, computed_field

from scratchbus.domain.checks import MAX_LABEL, check_label, check_text
from scratchbus.domain.quoting import on_one_line, visible
from scratchbus.errors import InvalidField, UnknownField, key_text, shown

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]

STATUSES: Final[tuple[TodoStatus, ...]] = ("pending", "in_progress", "completed", "cancelled")
"""The statuses of an item, in their usual order."""

ACTIVE: Final = frozenset({"pending", "in_progress"})
"""The statuses of items still to do. A model that is shown the others again tends to do them again."""

MAX_ITEMS: Final = 256
"""The most items in a list; the first ones are kept."""

MAX_CONTENT: Final = 4_000
"""The most characters in an item, including the mark of a cut."""

CUT: Final = "… [truncated]"
"""The end of an item that was cut."""

HEADER: Final = "[Your active task list was preserved across context compression]"
"""The first line of the block that is added to a compacted conversation."""

_MARKERS: Final[Mapping[str, str]] = {"pending": "[ ]", "in_progress": "[>]"}
_FIELDS: Final = ("id", "content", "status")


class TodoItem(BaseModel):
    """One thing to do. Its id is the agent's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    content: str
    status: TodoStatus = "pending"


class TodoList(BaseModel):
    """The todo list of a session at some point in time. `revision` counts its changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    todos: list[TodoItem] = []
    revision: int = 0

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def summary(self) -> dict[str, int]:
        """The number of items in total and of each status."""
        counts: dict[str, int] = {"total": len(self.todos), **dict.fromkeys(STATUSES, 0)}
        for item in self.todos:
            counts[item.status] += 1
        return counts


def parse_changes(todos: object) -> list[dict[str, str]]:
    """Return the last change for each id, with its content, its status, both or neither.

    An id may be a number. Empty content and an unknown status count as not given. Raises InvalidField unless this is a
    list of items that all have ids.
    """
    if isinstance(todos, str | Mapping) or not isinstance(todos, Iterable):
        raise InvalidField("todos", f'{shown(todos)} is not a list of items like {{"id": "1", "content": "…"}}')
    changes: dict[str, dict[str, str]] = {}
    for index, item in enumerate(todos):
        change = _parse_change(f"todos[{index}]", item)
        changes.pop(change["id"], None)  # so that the last one also determines the place
        changes[change["id"]] = change
    return list(changes.values())


def apply_changes(before: Sequence[TodoItem], changes: Iterable[Mapping[str, str]], merge: bool) -> list[TodoItem]:
    """Return the list after a write: the changes alone, or merged by id into the list before.

    A new item is pending unless its status is given. Raises InvalidField for a new item without content.
    """
    after = {item.id: item for item in before} if merge else {}
    for change in changes:
        existing = after.get(change["id"])
        if existing is None and "content" not in change:
            raise InvalidField("todos", f"item {shown(change['id'])} is new and has no content; say what to do")
        after[change["id"]] = _item(change) if existing is None else existing.model_copy(update=dict(change))
    return list(after.values())[:MAX_ITEMS]


def upserted(before: Sequence[TodoItem], items: Iterable[TodoItem]) -> list[TodoItem]:
    """Return the list with these items: each replaces the one with its id; new ones come at the end."""
    return list(({item.id: item for item in before} | {item.id: item for item in items}).values())


def for_injection(items: Iterable[TodoItem]) -> str | None:
    """Return the block that preserves a plan when its conversation is compacted; None if nothing is left to do.

    Each item is one line, so that no content can look like another item; a line break in it is shown as a mark.
    """
    lines = [
        f"- {_MARKERS[item.status]} {visible(item.id)}. {on_one_line(item.content)} ({item.status})"
        for item in items
        if item.status in ACTIVE
    ]
    return "\n".join([HEADER, *lines]) if lines else None


def _item(change: Mapping[str, str]) -> TodoItem:
    return TodoItem(
        id=change["id"], content=change["content"], status=cast(TodoStatus, change.get("status", "pending"))
    )


def _parse_change(path: str, item: object) -> dict[str, str]:
    fields: Any = item.model_dump() if isinstance(item, TodoItem) else item
    if not isinstance(fields, Mapping):
        raise InvalidField(path, f'{shown(item)} is not an item like {{"id": "1", "content": "…"}}')
    for name in fields:
        if name not in _FIELDS:
            raise UnknownField(f"{path}.{key_text(name)}", _FIELDS)
    change = {"id": _id(f"{path}.id", fields.get("id"))}
    if (content := _content(f"{path}.content", fields.get("content"))) is not None:
        change["content"] = content
    status = fields.get("status")
    if isinstance(status, str) and (status := status.strip().lower()) in STATUSES:
        change["status"] = status
    return change


def _id(field: str, id: object) -> str:
    if isinstance(id, int) and not isinstance(id, bool) and id.bit_length() < 4 * MAX_LABEL:
        id = str(id)
    if id is None or (isinstance(id, str) and not id.strip()):
        raise InvalidField(field, "is missing; give each item its own id, so that you can change it later")
    return check_label(field, id.strip() if isinstance(id, str) else id)


def _content(field: str, content: object) -> str | None:
    if content is None:
        return None
    content = check_text(field, content).strip()
    if len(content) > MAX_CONTENT:
        return content[: MAX_CONTENT - len(CUT)] + CUT
    return content or None
