"""What the shell offers on TAB. None of it starts an engine."""

from __future__ import annotations

import click


def type_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the observation types of the settings that begin so."""
    from scratchbus.errors import ScratchbusError
    from scratchbus.opening import as_registry
    from scratchbus.settings import load_settings, shipped

    try:
        settings = load_settings()
        registry = as_registry(settings.observation_types or shipped("observation_types.yaml"))
    except ScratchbusError:
        return []
    return [name for name in registry.types if name.startswith(incomplete)]


def statuses(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the statuses of the default lifecycle that begin so."""
    from scratchbus.domain.lifecycle import DEFAULT

    return [name for name in DEFAULT.statuses if name.startswith(incomplete)]


def kinds(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of events that begin so."""
    from scratchbus.domain.events import EVENTS

    return [name for name in EVENTS if name.startswith(incomplete)]
