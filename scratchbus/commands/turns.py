"""Append turns to the conversation of a session, and replace turns with summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any

from scratchbus.commands.execution import Occasion
from scratchbus.commands.memory import append_new
from scratchbus.commands.memory_edit import MemoryEdit, is_retry
from scratchbus.commands.memory_reads import read_memory
from scratchbus.commands.sessions import has_ended
from scratchbus.domain.checks import check_length, check_limit, check_not_blank
from scratchbus.domain.conversation_events import TurnAppended, TurnsCompacted
from scratchbus.domain.conversations import MAX_COMPACTED, Turn, check_role
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.tasks import TaskId, task_id
from scratchbus.domain.values import SESSION_PAGES, check_memory_id, check_whole
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, InvalidId, NotFound, TooLarge, shown
from scratchbus.projections.conversation import Conversation
from scratchbus.projections.turns import PREFIX, evolve
from scratchbus.readmodel.memory_history import history_of_all
from scratchbus.readmodel.scope import Core

_TOO_LONG = "append it as several turns, or raise max_turn"

_content = partial(check_not_blank, advice="give a text of at least one character that is not whitespace")


def _check_ids(ids: object) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidField("turns", f"{shown(ids)} is not a list of ids")
    found = list(dict.fromkeys(check_memory_id("turn", id, "turns", "task") for id in ids))
    if not found:
        raise InvalidField(
            "turns", "is empty; give the ids of the turns to replace, or leave it out to replace all shown"
        )
    return sorted(found) if isinstance(ids, set | frozenset) else found


_Tokens = Annotated[int | None, CheckedBy(partial(check_whole, "tokens", minimum=0))]


class AppendTurn(MemoryEdit):
    """Append a turn; the append script gives it its id."""

    verb, subject = "append_turn", PREFIX
    role: Annotated[str, CheckedBy(check_role)]
    content: Annotated[str, CheckedBy(partial(_content, "content"))]
    tokens: _Tokens = None
    task: Annotated[TaskId | None, CheckedBy(task_id)] = None

    def retry_arguments(self) -> list[object]:
        """See `MemoryEdit`."""
        return [self.role, self.content, self.tokens, None if self.task is None else self.task.subject]

    def decide(self, occasion: Occasion, document: Turn | None) -> Event:
        """See `MemoryEdit`. Raises TooLarge, and InvalidId for a task of another session."""
        check_length("content", self.content, occasion.settings.max_turn, _TOO_LONG)
        if self.task is not None and f"{SESSION_PAGES}{self.task.session}" != occasion.page:
            raise InvalidId(f"task: {self.task} belongs to another session; append the turn there, or leave task out")
        task = None if self.task is None else self.task.subject
        return occasion.event(TurnAppended, PREFIX, role=self.role, content=self.content, tokens=self.tokens, task=task)


class CompactTurns(MemoryEdit):
    """Replace turns with a summary; the append script gives it its id."""

    verb, subject = "compact_turns", PREFIX
    summary: Annotated[str, CheckedBy(partial(_content, "summary"))]
    turns: Annotated[list[str] | None, CheckedBy(_check_ids)] = None
    tokens: _Tokens = None

    def decide(self, occasion: Occasion, document: Turn | None) -> Event:
        """See `MemoryEdit`. Raises TooLarge."""
        check_length("summary", self.summary, occasion.settings.max_turn, _TOO_LONG)
        if len(self.turns or ()) > MAX_COMPACTED:
            advice = "compact some of them first, then the summary with the rest"
            raise TooLarge("turns", len(self.turns or ()), MAX_COMPACTED, "turns", advice)
        return occasion.event(
            TurnsCompacted, PREFIX, turns=self.turns or [PREFIX], content=self.summary, tokens=self.tokens
        )


def add(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Turn]:
    """Append a turn. Raises NotFound for a task that was never begun in the session, unless this is a retry."""
    command = AppendTurn.parse(arguments)
    occasion = command.on(core, page)
    command.decide(occasion, None)
    if command.task is not None:
        subject = command.task.subject
        exists = yield from read_memory(core, core.conversations, page, lambda conversation: subject in conversation)
        session = page.removeprefix(SESSION_PAGES)
        if not (exists or (yield from is_retry(core, occasion, PREFIX)) or (yield from has_ended(core, session))):
            raise NotFound(f"there is no {command.task}; pass the id that begin_task returned, or leave task out")
    return (yield from _append(core, command, occasion))


def compact(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[Turn]:
    """Replace turns with a summary: the named ones, else all that are shown.

    A retry is recognised by its arguments, whatever is shown by then. Raises NotFound for a turn that does not exist.
    """
    command = CompactTurns.parse(arguments)
    occasion = command.on(core, page)
    cached = yield from core.conversations.fresh(core.log, page)
    with cached.lock:
        ids = command.turns or [turn.id for turn in cached.memory.shown()]
        missing = [id for id in ids if id not in cached.memory]
    if (missing or not ids) and not (yield from is_retry(core, occasion, PREFIX)):
        session = page.removeprefix(SESSION_PAGES)
        if not missing:
            raise NotFound(f"session {session!r} has no turns to replace; append some first")
        raise NotFound(f"there is no {missing[0]} in session {session!r}; list its turns for their ids")
    varying = frozenset(("turns",)) if command.turns is None else frozenset[str]()
    return (yield from _append(core, command.model_copy(update={"turns": ids or None}), occasion, varying))


def _append(
    core: Core, command: AppendTurn | CompactTurns, occasion: Occasion, varying: frozenset[str] = frozenset()
) -> Step[Turn]:
    turn = evolve(None, (yield from append_new(core, occasion, command.decide(occasion, None), varying=varying)))
    if turn is None:
        raise NotFound("the turn was erased; its history says why")
    return turn


def original_turns(core: Core, page: str, after: str | None, limit: int | None) -> Step[list[Turn]]:
    """Return the turns in order, after a given one, up to a limit."""
    check_slice(after, limit)
    return (
        yield from read_memory(
            core, core.conversations, page, lambda conversation: conversation.original_turns(after, limit)
        )
    )


def check_slice(after: str | None, limit: int | None) -> None:
    """Raise InvalidId unless `after` is None or the id of a turn, InvalidField unless `limit` is None or positive."""
    check_limit(limit)
    if after is not None:
        check_memory_id("turn", after, "after")


def shown_turns(core: Core, page: str) -> Step[list[Turn]]:
    """Return the turns, with summaries in place of those they replace."""
    return (yield from read_memory(core, core.conversations, page, Conversation.shown))


def history_of_turns(core: Core, page: str) -> Step[list[AnyEvent]]:
    """Return the events about turns of a session, oldest first. Raises PositionLost."""
    return (yield from history_of_all(core, page, PREFIX))
