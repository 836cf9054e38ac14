"""The base class of the memories on one page, with what their modules share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from scratchbus.commands.memory import edit
from scratchbus.commands.memory_edit import MemoryEdit
from scratchbus.domain.document import Remembered
from scratchbus.domain.events import AnyEvent
from scratchbus.engine.steps import Step
from scratchbus.readmodel.scope import AsyncHost, Core
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):  # most programs never read the past
    from scratchbus import timetravel as timetravel

P = ParamSpec("P")
T = TypeVar("T")

Events = list[AnyEvent]  # inside a class with a method `list`, that name is taken


class AsyncPageMemory:
    """A memory of a session, an agent, a scope or a store, on its page."""

    _page_of: Callable[[str], str]
    """Returns the name of its owner's page; raises InvalidName."""

    def __init__(self, bus: AsyncHost, owner: str) -> None:
        self._bus = bus
        self._page = self._page_of(owner)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on page {self._page!r} of {self._bus!r}>"

    def _do(
        self, operation: Callable[Concatenate[Core, str, P], Step[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Run an operation on the page with these arguments, and return its result."""
        return self._bus.converse(operation(self._bus.core, self._page, *args, **kwargs))

    def _edit(self, kind: type[MemoryEdit], arguments: Mapping[str, Any]) -> Awaitable[Remembered | None]:
        """Carry out an edit with these arguments, and return the resulting document."""
        return self._do(edit, kind.parse(arguments))
