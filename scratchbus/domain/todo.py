"""The todo list of a session: what a write makes of it.

The order of the items is theirs: a list is kept as it was given, and what is merged into it stays in its place. An
item is cut rather than refused, and so is a list, at its tail: what was planned first is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, computed_field

from scratchbus.domain.checks import MAX_LABEL, bytes_of, check_label
from scratchbus.domain.quoting import visible
from scratchbus.errors import InvalidField, UnknownField, key_text, shown

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]

STATUSES: Final[tuple[TodoStatus, ...]] = ("pending", "in_progress", "completed", "cancelled")
"""What an item can be, in the order in which it usually becomes it."""

ACTIVE: Final = frozenset({"pending", "in_progress"})
"""What still has to be done. A model that is shown the rest again tends to do it again."""

MAX_ITEMS: Final = 256
"""The most items of a list; the head is kept."""

MAX_CONTENT: Final = 4_000
"""The most characters of an item, the mark of its being cut included."""

CUT: Final = "… [truncated]"
"""What ends the content of an item that was cut."""

HEADER: Final = "[Your active task list was preserved across context compression]"
"""What begins the block that a compacted conversation gets."""

_BREAK: Final = " ⏎ "
_MARKERS: Final[Mapping[str, str]] = {"pending": "[ ]", "in_progress": "[>]"}
_FIELDS: Final = ("id", "content", "status")


class TodoItem(BaseModel):
    """One thing to do. Its id is the agent's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    content: str
    status: TodoStatus = "pending"


class TodoList(BaseModel):
    """The todo list of a session at some moment. `revision` is how often it has changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    todos: list[TodoItem] = []
    revision: int = 0

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def summary(self) -> dict[str, int]:
        """How many items there are in all, and of each status."""
        counts: dict[str, int] = {"total": len(self.todos), **dict.fromkeys(STATUSES, 0)}
        for item in self.todos:
            counts[item.status] += 1
        return counts


def given(todos: object) -> list[dict[str, str]]:
    """Return the last usable change for each id: its content, its status, both or neither.

    An id may be a number. Empty content and a status that is none count as not given. Raises InvalidField for what is
    no list of items, and for an item without an id.
    """
    if isinstance(todos, str | Mapping) or not isinstance(todos, Iterable):
        raise InvalidField("todos", f'{shown(todos)} is not a list of items like {{"id": "1", "content": "…"}}')
    last: dict[str, dict[str, str]] = {}
    for index, item in enumerate(todos):
        change = _given_item(f"todos[{index}]", item)
        last.pop(change["id"], None)  # so that the last one's place counts too
        last[change["id"]] = change
    return list(last.values())


def written(before: Sequence[TodoItem], changes: Iterable[Mapping[str, str]], merge: bool) -> list[TodoItem]:
    """Return the list after a write: the changes alone, or merged into what was there, by id.

    An item that is new is pending unless it says otherwise. Raises InvalidField for a new one without content.
    """
    after = {item.id: item for item in before} if merge else {}
    for change in changes:
        known = after.get(change["id"])
        if known is None and "content" not in change:
            raise InvalidField("todos", f"item {shown(change['id'])} is new and has no content; say what to do")
        after[change["id"]] = _item(change) if known is None else known.model_copy(update=dict(change))
    return list(after.values())[:MAX_ITEMS]


def upserted(before: Sequence[TodoItem], items: Iterable[TodoItem]) -> list[TodoItem]:
    """Return the list with these items in the place of those with the same id, the others at its end."""
    return list(({item.id: item for item in before} | {item.id: item for item in items}).values())


def for_injection(items: Iterable[TodoItem]) -> str | None:
    """Return the block that keeps a plan alive when its conversation is compacted; None when nothing is left to do.

    Each item is one line, so that no content can pass for another item; a line break in it is shown as a mark.
    """
    lines = [
        f"- {_MARKERS[item.status]} {visible(item.id)}. {_on_one_line(item.content)} ({item.status})"
        for item in items
        if item.status in ACTIVE
    ]
    return "\n".join([HEADER, *lines]) if lines else None


def _on_one_line(content: str) -> str:
    return _BREAK.join(map(visible, content.splitlines()))


def _item(change: Mapping[str, str]) -> TodoItem:
    return TodoItem(
        id=change["id"], content=change["content"], status=cast(TodoStatus, change.get("status", "pending"))
    )


def _given_item(place: str, item: object) -> dict[str, str]:
    fields: Any = item.model_dump() if isinstance(item, TodoItem) else item
    if not isinstance(fields, Mapping):
        raise InvalidField(place, f'{shown(item)} is not an item like {{"id": "1", "content": "…"}}')
    for name in fields:
        if name not in _FIELDS:
            raise UnknownField(f"{place}.{key_text(name)}", _FIELDS)
    change = {"id": _id(f"{place}.id", fields.get("id"))}
    if (content := _content(f"{place}.content", fields.get("content"))) is not None:
        change["content"] = content
    status = fields.get("status")
    if isinstance(status, str) and (status := status.strip().lower()) in STATUSES:
        change["status"] = status
    return change


def _id(field: str, id: object) -> str:
    if isinstance(id, int) and not isinstance(id, bool) and id.bit_length() < 4 * MAX_LABEL:
        id = str(id)
    if id is None or (isinstance(id, str) and not id.strip()):
        raise InvalidField(field, "is missing; give each item its own id, by which you can change it later")
    return check_label(field, id.strip() if isinstance(id, str) else id)


def _content(field: str, content: object) -> str | None:
    if content is None:
        return None
    if not isinstance(content, str):
        raise InvalidField(field, f"{shown(content)} is not a text")
    bytes_of(field, content)
    content = content.strip()
    if len(content) > MAX_CONTENT:
        return content[: MAX_CONTENT - len(CUT)] + CUT
    return content or None
