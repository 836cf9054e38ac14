"""The conversation of one session in memory: its turns, and the summaries that replace some of them.

The caller feeds it events; it reads nothing itself. It is not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from scratchbus.domain.conversations import SUMMARY, Turn
from scratchbus.domain.event import Event
from scratchbus.domain.models import trusted
from scratchbus.domain.tasks import PREFIX as TASKS
from scratchbus.domain.tasks import replacement
from scratchbus.projections import turns
from scratchbus.projections.subjects import is_over, projection_of
from scratchbus.projections.tasks import Task

_BYTES = 1_500  # approximate size of a turn or a task without its text


class Conversation:
    """The turns and tasks of a session, by their ids; `size` is their approximate size in bytes."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._tasks: dict[str, Task] = {}
        self.size = 0

    def load(self, documents: Mapping[str, Any]) -> None:
        """Add some of the stored turns and tasks, by their ids, in any order."""
        for id, document in documents.items():
            self._put(id, document)

    def loaded(self) -> None:
        """Do nothing: the loaded documents need no order."""

    def evolve(self, event: Event) -> None:
        """Fold an event; known events, and events that cannot follow the earlier ones, change nothing."""
        if is_over(event):
            for documents in (self._turns, self._tasks):
                for id in [id for id, document in documents.items() if document.seq < event.seq]:
                    self._put(id, None)
        elif event.subject.startswith((turns.PREFIX, TASKS)):
            before = self._turns.get(event.subject) or self._tasks.get(event.subject)
            if before is None or before.seq < event.seq:
                self._put(event.subject, projection_of(event.subject).fold(before, event)[0])

    def _put(self, id: str, document: Any) -> None:
        documents: dict[str, Any] = self._tasks if id.startswith(TASKS) else self._turns
        before = documents.pop(id, None)
        self.size += _size(document) - _size(before)
        if document is not None:
            documents[id] = document

    def __contains__(self, id: str) -> bool:
        return id in self._turns or id in self._tasks

    def original_turns(self, after: str | None = None, limit: int | None = None) -> list[Turn]:
        """Return the turns in order, without summaries: those after the turn with the id `after`, at most `limit`."""
        start = -1 if after is None else _order(after)
        found = [turn for turn in self._in_order() if turn.role != SUMMARY and _order(turn.id) > start]
        return found if limit is None else found[:limit]

    def documents(self) -> list[tuple[str, Turn | Task]]:
        """Return all turns, summaries and tasks by their ids, in the order in which they began."""
        found: list[tuple[str, Turn | Task]] = [*self._turns.items(), *self._tasks.items()]
        return sorted(found, key=lambda each: each[1].added_seq)

    def _in_order(self) -> list[Turn]:
        return sorted(self._turns.values(), key=lambda turn: _order(turn.id))

    def shown(self) -> list[Turn]:
        """Return the turns to show to an agent, with summaries in the place of the turns that they replace.

        The summary of an ended task replaces, under the id of the task, the turns that belong to it: those appended
        before its end that named it, or that named no task and came after its start.
        """
        replaced = {id for turn in self._turns.values() for id in turn.replaces}
        ended = self._ended_tasks()
        covered: dict[str, list[str]] = {id: [] for id in ended}
        positions: dict[str, int] = {}
        tasks: dict[str, list[str]] = {}
        not_begun, running = deque(ended.items()), list[str]()
        for turn in sorted(self._turns.values(), key=lambda turn: turn.added_seq):  # turns come before their summaries
            while not_begun and not_begun[0][1][0].added_seq < turn.added_seq:
                running.append(not_begun.popleft()[0])
            running = [id for id in running if turn.added_seq < ended[id][0].seq]
            position = min((positions[id] for id in turn.replaces if id in positions), default=_order(turn.id))
            replaced_tasks = [tasks[id] for id in turn.replaces if id in tasks]
            positions[turn.id] = position
            tasks[turn.id] = _in_all(replaced_tasks) if replaced_tasks else _tasks_of(turn, ended, running)
            for id in tasks[turn.id]:
                positions[id] = min(position, positions.get(id, position))
                if turn.id not in replaced:
                    covered[id].append(turn.id)
        shown = [turn for id, turn in self._turns.items() if id not in replaced and not tasks[id]]
        for id, (task, outer) in ended.items():
            if id not in replaced and covered[id] and not any(covered[other] for other in outer):
                shown.append(_summary_of(id, task, covered[id]))
        return sorted(shown, key=lambda turn: positions[turn.id])

    def _ended_tasks(self) -> dict[str, tuple[Task, list[str]]]:
        """Return the ended tasks in the order in which they began, each with those that also ended after it."""
        ended = [(id, task) for id, task in self._tasks.items() if task.summary is not None]
        found: dict[str, tuple[Task, list[str]]] = {}
        running: list[tuple[str, Task]] = []
        for id, task in sorted(ended, key=lambda each: each[1].added_seq):
            running = [each for each in running if task.added_seq < each[1].seq]
            found[id] = task, [other for other, outer in running if task.seq < outer.seq]
            running.append((id, task))
        return found


def conversation_of(documents: Mapping[str, Any]) -> Conversation:
    """Return the conversation in the documents of a session, which are given by subject."""
    conversation = Conversation()
    conversation.load({id: each for id, each in documents.items() if isinstance(each, Turn | Task)})
    return conversation


def _tasks_of(turn: Turn, ended: Mapping[str, tuple[Task, list[str]]], running: Sequence[str]) -> list[str]:
    """Return the ended tasks that a turn belongs to; turns after the end are not part of the summary.

    `running` are those that had begun by then, and ended later.
    """
    if turn.task is None:
        return [*running]
    task, outer = ended.get(turn.task, (None, []))
    return [turn.task, *outer] if task is not None and turn.added_seq < task.seq else []


def _in_all(lists: list[list[str]]) -> list[str]:
    """Return the items that all lists contain: a summary belongs to the tasks of all turns that it replaces."""
    return [id for id in lists[0] if all(id in items for items in lists[1:])]


def _order(id: str) -> int:
    """Return the number in the id of a turn, which grows with each turn and stays the same in a fork.

    It is scaled to a common length: a turn of a parent whose id was taken in the fork has more digits.
    """
    return int(id.partition("_")[2].ljust(16, "0"))


def _summary_of(id: str, task: Task, replaces: list[str]) -> Turn:
    fields = {"id": id, "role": SUMMARY, "content": replacement(task.title, task.summary or ""), "tokens": None}
    values = {name: value for name, value in task.__dict__.items() if name not in ("title", "summary")}
    return trusted(Turn, {**values, **fields, "task": id, "replaces": replaces, "source": ""})


def _size(document: Turn | Task | None) -> int:
    if document is None:
        return 0
    return _BYTES + (len(document.content) if isinstance(document, Turn) else len(document.summary or ""))
