"""Errors for using something after closing it."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError


class BusClosed(ScratchbusError):
    """The bus was closed, or its `with` block has ended. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this bus is closed; connect again, or close it later")


class ViewClosed(ScratchbusError):
    """The view is used outside its `with` block."""

    def __init__(self, page: str) -> None:
        super().__init__(f"this view of page {page!r} is not open; use it inside `with bus.view(…) as view:`")
