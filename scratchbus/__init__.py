"""The shared working memory of daemons and agents, kept as one event log on Redis Streams."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scratchbus.async_bus import AsyncBus
    from scratchbus.async_page import AsyncPage
    from scratchbus.bus import Bus
    from scratchbus.domain.events import AnyEvent, Event
    from scratchbus.domain.observation import Claim, NewObservation, Observation
    from scratchbus.domain.position import BusPosition, Position
    from scratchbus.errors import ScratchbusError
    from scratchbus.live import Change
    from scratchbus.page import Page
    from scratchbus.view import AsyncView, View
    from scratchbus.why import because
    from scratchbus.working import AsyncJob, Job

_HOMES = {
    "Bus": "bus",
    "AsyncBus": "async_bus",
    "Page": "page",
    "AsyncPage": "async_page",
    "AnyEvent": "domain.events",
    "Event": "domain.events",
    "Claim": "domain.observation",
    "NewObservation": "domain.observation",
    "Observation": "domain.observation",
    "BusPosition": "domain.position",
    "Position": "domain.position",
    "ScratchbusError": "errors",
    "because": "why",
    "Change": "live",
    "View": "view",
    "AsyncView": "view",
    "Job": "working",
    "AsyncJob": "working",
}

__all__ = [
    "AnyEvent",
    "AsyncBus",
    "AsyncJob",
    "AsyncPage",
    "AsyncView",
    "Bus",
    "BusPosition",
    "Change",
    "Claim",
    "Event",
    "Job",
    "NewObservation",
    "Observation",
    "Page",
    "Position",
    "ScratchbusError",
    "View",
    "because",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's `--help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
