"""What is raised when something is used that its own program has closed."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError


class BusClosed(ScratchbusError):
    """The bus was closed, or its `with` has ended; nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this bus is closed; connect again, or close it later")


class ViewClosed(ScratchbusError):
    """The `with` of a view has ended, or not yet begun."""

    def __init__(self, page: str) -> None:
        super().__init__(f"this view of page {page!r} is not open; use it inside `with bus.view(…) as view:`")
