"""Every write of a bus, for tests in which its reply is lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from scratchbus import Bus
from scratchbus.domain.registry_yaml import parse_registry
from tests.faults.operations import OPERATIONS, Operation, prepare

_numbers = count(1)


class Writing(NamedTuple):
    """A write: its preparation by another client, the call, and the kinds of its events."""

    prepare: Callable[[Bus], list[Any]]
    act: Callable[..., Any]
    kinds: tuple[str, ...]


def _session(_: Bus) -> list[Any]:
    return [f"s{next(_numbers)}"]


def _note(bus: Bus) -> list[Any]:
    (session,) = _session(bus)
    return [session, bus.notes(session).add("before").note.id]


def _preference(bus: Bus) -> list[Any]:
    (scope,) = _session(bus)
    bus.preferences(scope).remember("quotes", "double")
    return [scope]


def _item(bus: Bus) -> list[Any]:
    (store,) = _session(bus)
    bus.items(store).put(("a",), "b", {"n": 1}, ttl="1h")
    return [store, [bus.items(store).read().get(("a",), "b")]]


def _task(bus: Bus) -> list[Any]:
    return [bus.begin_task(f"s{next(_numbers)}", "look around")]


def _child(bus: Bus) -> list[Any]:
    return [bus.spawn_session(f"s{next(_numbers)}")]


def _free(bus: Bus) -> list[Any]:
    page = f"p{next(_numbers)}"
    bus.page(page).add("observation", "to be done")
    return [page]


def _types(bus: Bus) -> list[Any]:
    return [parse_registry(f"{bus.types.text}\n# {next(_numbers)}", "types")]


def _on_page(operation: Operation) -> Writing:
    return Writing(
        lambda bus: prepare(operation, bus),
        lambda bus, *things, event_id: operation.act(bus.page(), *things, event_id=event_id),
        operation.kinds,
    )


WRITES = {name: _on_page(each) for name, each in OPERATIONS.items()} | {
    "claim next": Writing(_free, lambda bus, page, **how: bus.page(page).claim_next(**how), ("claimed",)),
    "push types": Writing(_types, lambda bus, types, **how: bus.push_types(types, **how), ("types_changed",)),
    "record a context": Writing(
        _free, lambda bus, page, **how: bus.context.assemble(page=page, record=True, **how), ("context_rendered",)
    ),
    "add a note": Writing(_session, lambda bus, session, **how: bus.notes(session).add("new", **how), ("note_added",)),
    "change a note": Writing(
        _note, lambda bus, session, id, **how: bus.notes(session).update(id, "after", **how), ("note_updated",)
    ),
    "delete a note": Writing(
        _note, lambda bus, session, id, **how: bus.notes(session).delete(id, **how), ("note_deleted",)
    ),
    "write a notepad": Writing(
        _session, lambda bus, session, **how: bus.notepad(session).write("all", **how), ("notepad_written",)
    ),
    "edit a notepad": Writing(
        _session, lambda bus, session, **how: bus.notepad(session).append("more", **how), ("notepad_edited",)
    ),
    "remember a preference": Writing(
        _session,
        lambda bus, scope, **how: bus.preferences(scope).remember("quotes", "double", **how),
        ("preference_remembered",),
    ),
    "forget a preference": Writing(
        _preference, lambda bus, scope, **how: bus.preferences(scope).forget("quotes", **how), ("preference_forgotten",)
    ),
    "write a todo list": Writing(
        _session,
        lambda bus, session, **how: bus.todo(session).write([{"id": "1", "content": "look"}], **how),
        ("todo_written",),
    ),
    "put an item": Writing(
        _session, lambda bus, store, **how: bus.items(store).put(("a",), "b", {"n": 1}, **how), ("item_put",)
    ),
    "delete an item": Writing(
        _session, lambda bus, store, **how: bus.items(store).delete(("a",), "b", **how), ("item_deleted",)
    ),
    "use an item": Writing(_item, lambda bus, store, used, **how: bus.items(store).use(used, **how), ("item_used",)),
    "write a scratchpad": Writing(
        lambda bus: [], lambda bus, **how: bus.scratchpad("subject").write("mine", **how), ("scratchpad_written",)
    ),
    "begin a task": Writing(
        _session, lambda bus, session, **how: bus.begin_task(session, "look around", **how), ("task_begun",)
    ),
    "end a task": Writing(_task, lambda bus, task, **how: bus.end_task(task, "all is well", **how), ("task_ended",)),
    "spawn a session": Writing(
        _session, lambda bus, session, **how: bus.spawn_session(session, **how), ("session_spawned", "session_started")
    ),
    "fork a session": Writing(
        _session,
        lambda bus, session, **how: bus.fork_session(session, **how),
        ("session_spawned", "session_started", "notepad_written"),
    ),
    "report a result": Writing(
        _child, lambda bus, session, **how: bus.report_result(session, "found it", **how), ("added",)
    ),
    "end a session": Writing(_session, lambda bus, session, **how: bus.end_session(session, **how), ("session_ended",)),
}
"""Every write by name. Each takes a bus, the prepared arguments, and `event_id`."""
