"""The conversation of one session in memory: its turns, and the summaries that replace some of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from scratchbus.domain.conversations import SUMMARY, Turn
from scratchbus.domain.models import trusted
from scratchbus.domain.tasks import PREFIX as TASKS
from scratchbus.domain.tasks import replacement
from scratchbus.projections import turns
from scratchbus.projections.memory_index import MemoryIndex
from scratchbus.projections.tasks import Task

_BYTES = 1_500  # approximate size of a turn or a task without its text


class Conversation(MemoryIndex[Turn | Task]):
    """The turns and tasks of a session, by their ids."""

    prefixes = (turns.PREFIX, TASKS)

    def _size_of(self, document: Turn | Task) -> int:
        return _BYTES + len((document.content if isinstance(document, Turn) else document.summary) or "")

    def __contains__(self, id: str) -> bool:
        return id in self._documents

    def _turns(self) -> list[Turn]:
        return [each for each in self._documents.values() if isinstance(each, Turn)]

    def original_turns(self, after: str | None = None, limit: int | None = None) -> list[Turn]:
        """Return the turns in order, without summaries: those after the turn with the id `after`, at most `limit`."""
        start = -1 if after is None else _order(after)
        found = [turn for turn in self._turns() if turn.role != SUMMARY and _order(turn.id) > start]
        return sorted(found, key=lambda turn: _order(turn.id))[:limit]

    def documents(self) -> list[tuple[str, Turn | Task]]:
        """Return all turns, summaries and tasks by their ids, in the order in which they began."""
        return sorted(self._documents.items(), key=lambda each: each[1].added_seq)

    def shown(self) -> list[Turn]:
        """Return the turns to show to an agent, with summaries in the place of the turns that they replace.

        The summary of an ended task replaces, under the id of the task, the turns that belong to it: those appended
        before its end that named it, or that named no task and came after its start.
        """
        turns = sorted(self._turns(), key=attrgetter("added_seq"))  # turns come before their summaries
        replaced = {id for turn in turns for id in turn.replaces}
        ended = self._ended_tasks()
        covered: dict[str, list[str]] = {id: [] for id in ended}
        positions: dict[str, int] = {}
        tasks: dict[str, list[str]] = {}
        not_begun, running = deque(ended.items()), list[str]()
        for turn in turns:
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
        shown = [turn for turn in turns if turn.id not in replaced and not tasks[turn.id]]
        for id, (task, outer) in ended.items():
            if id not in replaced and covered[id] and not any(covered[other] for other in outer):
                shown.append(_summary_of(id, task, covered[id]))
        return sorted(shown, key=lambda turn: positions[turn.id])

    def _ended_tasks(self) -> dict[str, tuple[Task, list[str]]]:
        """Return the ended tasks in the order in which they began, each with those that also ended after it."""
        found: dict[str, tuple[Task, list[str]]] = {}
        running: list[tuple[str, Task]] = []
        for id, task in self.documents():
            if not isinstance(task, Task) or task.summary is None:
                continue
            running = [each for each in running if task.added_seq < each[1].seq]
            found[id] = task, [other for other, outer in running if task.seq < outer.seq]
            running.append((id, task))
        return found


def conversation_of(documents: Mapping[str, Any]) -> Conversation:
    """Return the conversation in the documents of a session, which are given by subject."""
    conversation = Conversation()
    conversation.load({id: each for id, each in documents.items() if isinstance(each, Turn | Task)})
    conversation.loaded()
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
