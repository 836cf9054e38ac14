"""Opening a bus: settings, engine, shards, registry."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scratchbus.readmodel.verify_script  # noqa: F401 - its script is among those that a writer loads for readers
from scratchbus.domain.ownership import new_instance, owner_token
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import EngineError, EngineForbidden, EngineMisconfigured, ShardsMismatch, shown
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import is_state_too_old
from scratchbus.readmodel.freshness import Freshness
from scratchbus.readmodel.scope import Core, refresh_registry
from scratchbus.settings import CONFIG_VARIABLE, MAX_SHARDS, URL_VARIABLE, load_settings, shipped
from scratchbus.telemetry.lazy import imported_on_first_use
from scratchbus.telemetry.logs import stderr_logger

if TYPE_CHECKING:
    from scratchbus.engine.connect import Target

with imported_on_first_use(__name__):
    from scratchbus.archive import archive_reader, stores
    from scratchbus.engine import connect
    from scratchbus.readmodel import rebuild, status

SHARDS_OF_CLUSTER = 16
"""The shards of a new bus on a cluster, unless the settings say otherwise."""

_MAX_SOCKET_TIMEOUT = 24 * 86_400.0  # seconds; the operating system counts milliseconds, and ends at 2³¹

logger = stderr_logger()


@dataclass(slots=True)
class Opened:
    """A bus and the engine it is on."""

    target: Target
    core: Core
    about: dict[str, str] = field(default_factory=dict)


def prepare(
    url: str | None,
    source: str | None,
    instance: str | None,
    config: str | Path | None,
    overrides: Mapping[str, Any],
) -> Opened:
    """Read settings and registry and find the engine. Raises InvalidInput or EngineError."""
    settings = load_settings(config, url=url, source=source, instance=instance, **overrides)
    by, instance = settings.source or "anonymous", settings.instance or new_instance()
    types = settings.observation_types or shipped("observation_types.yaml")
    engine = connect.target(
        settings.url,
        home=settings.home,
        appendfsync=settings.appendfsync,
        socket_timeout=min(settings.seconds("socket_timeout"), _MAX_SOCKET_TIMEOUT),
        connect_timeout=min(settings.seconds("connect_timeout"), _MAX_SOCKET_TIMEOUT),
        bus=settings.bus,
    )
    if settings.url is None:
        _warn_of_empty_variables(str(engine.directory))
    core = Core(
        settings=settings,
        log=Log(
            settings.bus,
            settings.shards or (SHARDS_OF_CLUSTER if engine.kind == "cluster" else 1),
            by=by,
            owner=owner_token(by, instance),
            id_days=ceil(settings.seconds("idempotency_window") / 86_400),
            replicas=settings.replicas if settings.ack == "replica" else 0,
            is_spread=engine.kind == "cluster",
            archive=archive_reader.Archive(stores.open_store(settings.archive_url), settings.bus)
            if settings.archive_url
            else None,
            # before the socket gives up; 0 would wait for ever
            replica_ms=max(1, min(2_000, round(settings.seconds("socket_timeout") * 500))),
        ),
        types_file=types,
        by=by,
        instance=instance,
        fresh=Freshness(timeout=settings.seconds("fresh_timeout")),
    )
    if settings.observation_types is not None:
        _ = core.registry  # report errors in the user's file here; the shipped one can wait
    if settings.relations is not None:
        _ = core.relations  # the same
    return Opened(engine, core)


def _warn_of_empty_variables(directory: str) -> None:
    """Warn if nothing names the engine, and a variable that is there to name it is empty."""
    for name in (URL_VARIABLE, CONFIG_VARIABLE):
        if os.environ.get(name) == "":
            logger.warning(f"{name} is empty, so the embedded engine is used", directory=directory)


def greet(opened: Opened) -> Step[None]:
    """Check the engine and the number of shards, load the published registry, and upgrade state of an older version."""
    log = opened.core.log
    if opened.target.kind != "memory":
        opened.about = yield from _check(opened, [0])
    elif (ack := opened.core.settings.ack) != "memory":
        raise EngineMisconfigured(
            f"ack={ack}: {opened.target.where} has no disk and no replicas; use ack=memory, or a server"
        )
    opened.target.topology.has_answered = True
    meta = log.keys(0).meta
    row = yield from ask(0, "HGET", meta, "shards")
    if row is None:
        try:
            yield from ask(0, "HSETNX", meta, "shards", log.shards)  # safe to repeat
        except EngineForbidden as error:
            raise EngineForbidden(
                f"there is no bus {log.bus!r} yet, and only a projector or admin may create one; connect once as one of"
                f" them, or check the name of the bus ({error})"
            ) from None
        row = yield from ask(0, "HGET", meta, "shards")
    shards = int(row) if row.isdigit() and len(row) < 6 else 0
    if not 0 < shards <= MAX_SHARDS:
        raise EngineError(
            f"the number of shards of bus {log.bus!r} is stored as {shown(row)}; set the field `shards` of the hash"
            f" {meta} to the number that the bus was created with"
        )
    if opened.core.settings.shards not in (None, shards):
        raise ShardsMismatch(log.bus, log.shards, shards)
    log.shards = shards
    if log.is_spread:
        yield from _check(opened, range(1, log.shards))
    yield from refresh_registry(opened.core)
    if (yield from is_state_too_old(log)):
        yield from rebuild.renew(opened.core)


def _check(opened: Opened, shards: Iterable[int]) -> Step[dict[str, str]]:
    """Check the engines of some shards; return the description of the last one."""
    about: dict[str, str] = {}
    found: dict[str, None] = {}
    for shard in shards:
        about = yield from connect.check_engine(opened.target, opened.core.settings.ack, shard)
        found |= dict.fromkeys(connect.risks(about, opened.core.log.replicas))
        yield from connect.load_reading_scripts(shard)
    for risk in found:
        logger.warning("the engine is not set up to keep events", engine=opened.target.where, reason=risk)
    return about


def status_of(opened: Opened) -> Step[status.Status]:
    """Return the status of an open bus."""
    directory = str(opened.target.directory) if opened.target.directory else None
    return (yield from status.read_status(opened.core, opened.target.shown, directory, opened.about))
