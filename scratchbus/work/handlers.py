"""Handlers: functions that a program declares for events and for jobs, and runs together."""

# Generated from handlers_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from scratchbus.errors import InvalidField, InvalidInput, ScratchbusError, shown
from scratchbus.eventlog.reader import Stop
from scratchbus.subscriptions.concurrency import check_handler, run_together
from scratchbus.subscriptions.subscription import Subscription
from scratchbus.work.work import Work

Handler = TypeVar("Handler", bound=Callable[..., object])

Source = Subscription | Work


class Handlers:
    """The handlers of a bus, each with the function that opens its subscription or its work."""

    def __init__(self) -> None:
        self._declared: dict[str, Callable[[Stop | None], None]] = {}
        self._open: list[Source] = []
        self._is_halted = False

    def declare(
        self, types: tuple[object, ...], name: str | None, concurrency: int, open: Callable[..., Source]
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that declares a handler, by its own name unless one is given. Raises InvalidInput."""
        for each in types:
            if not isinstance(each, str):
                advice = 'pass each name as an argument of its own, such as @bus.on("risk_alert", "reminder")'
                raise InvalidField("types", f"{shown(each)} is not the name of a type; {advice}")

        def decorate(handler: Handler) -> Handler:
            check_handler(handler)
            handler_name = name or getattr(handler, "__name__", None)
            if handler_name is None:
                raise InvalidInput(f"{shown(handler)} has no name; declare it with name=")
            if handler_name in self._declared:
                raise InvalidInput(f"two handlers are called {handler_name!r}; give one of them another name=")
            self._declared[handler_name] = partial(self._run, handler, concurrency, partial(open, handler_name))
            return handler

        return decorate

    def run(self, stop: Stop | None) -> None:
        """Run all handlers until `stop` is set, or one of them cannot continue. Raises InvalidInput without any."""
        if not self._declared:
            raise InvalidInput("no handler is declared; decorate functions with @bus.on(type) or @bus.on_job(type)")
        self._is_halted = False
        run_together([partial(each, stop) for each in self._declared.values()], self._close)

    def _run(self, handler: Any, concurrency: int, open: Callable[..., Source], stop: Stop | None) -> None:
        with open(stop=stop) as source:
            self._open.append(source)
            try:
                if not self._is_halted:
                    source.run(handler, concurrency=concurrency)
            finally:
                self._open.remove(source)

    def _close(self) -> None:
        self._is_halted = True
        for source in list(self._open):
            with suppress(ScratchbusError):  # the error that ended the run is raised; all must end
                source.close()
