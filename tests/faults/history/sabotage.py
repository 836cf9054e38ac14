"""Code broken on purpose in the processes of a round, which the judge must detect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from itertools import count
from typing import Any

from scratchbus import Observation
from scratchbus.domain.events import Event
from scratchbus.engine.drivers import Engine
from scratchbus.engine.scripts import Script
from scratchbus.engine.steps import Call
from scratchbus.eventlog import append_script
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.subscription_state import CursorEnd
from scratchbus.page import Page
from scratchbus.readmodel.fold import Fold
from scratchbus.subscriptions.window import DeliveryWindow


def skip() -> None:
    """Make a subscriber skip one of ten events."""
    numbers, receive = count(1), DeliveryWindow.receive

    def leave_out(window: DeliveryWindow, items: Sequence[LogEntry], shard: int, end: CursorEnd) -> None:
        receive(window, [item for item in items if next(numbers) % 10], shard, end)

    DeliveryWindow.receive = leave_out  # type: ignore[assignment,method-assign]


def forget_fences() -> None:
    """Make the append script accept any fence."""
    _edit(append_script.APPEND, "not (held and head.fence == fence)", "false")
    _edit(append_script.APPEND, "(owner_of(head.holder) or OWNER) == OWNER", "true")


def ignore_claims() -> None:
    """Make the append script grant claims on claimed observations."""
    _edit(append_script.APPEND, "if fence == '' or not is_ours_as(name_of(holder), head) then", "if false then")


def trust_the_primary() -> None:
    """Make a client report enough copies without waiting for them."""
    execute = Engine.execute

    def hurry(engine: Engine, call: Call) -> list[Any]:
        commands = tuple(command for command in call.commands if command[0] != "WAIT")
        waits = len(call.commands) - len(commands)
        return execute(engine, Call(call.shard, commands, call.is_write)) + waits * [1]

    Engine.execute = hurry  # type: ignore[assignment,method-assign]


def forget_links() -> None:
    """Make the fold skip one of three links."""
    numbers, apply = count(1), Fold.apply

    def leave_out(fold: Fold, entry: Any, item: Event | Poison) -> None:
        if isinstance(item, Poison) or item.kind != "linked" or next(numbers) % 3:
            apply(fold, entry, item)

    Fold.apply = leave_out  # type: ignore[assignment,method-assign]


def answer_from_memory() -> None:
    """Make a client return an old answer in one of three reads."""
    numbers, look, known = count(1), Page.list, list[Any]()

    def remember(page: Page, **wanted: Any) -> Any:
        if known and not next(numbers) % 3:
            return known.pop(0)
        known.append(look(page, **wanted))
        return known[-1]

    Page.list = remember  # type: ignore[assignment,method-assign]


def retry_with_new_id() -> None:
    """Make a client repeat one of five additions with another event id, as if the reply was lost."""
    numbers, add = count(1), Page.add

    def lose(page: Page, *given: Any, event_id: str | None = None, **more: Any) -> Observation:
        added = add(page, *given, event_id=event_id, **more)
        return added if next(numbers) % 5 else add(page, *given, **more)

    Page.add = lose  # type: ignore[assignment,method-assign]


def _edit(script: Script[...], old: str, new: str) -> None:
    assert old in script.text
    script.text = script.text.replace(old, new)
    script.sha = sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    Script.known[script.sha] = script.text


SABOTAGE: dict[str, Callable[[], None]] = {
    "subscriber skips events": skip,
    "script ignores fences": forget_fences,
    "script ignores claims": ignore_claims,
    "client retries with a new id": retry_with_new_id,
    "client trusts the primary": trust_the_primary,
    "client returns old answers": answer_from_memory,
    "fold skips links": forget_links,
}
"""The sabotages by name."""
