"""Run the work of a daemon: logging, signals, and retries when the engine goes away."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import structlog

from scratchbus import Bus
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.waits import StopSignal
from scratchbus.errors import (
    ArchiveUnavailable,
    Behind,
    EngineFull,
    EngineLoading,
    EngineReadOnly,
    EngineUnreachable,
    LogBlocked,
    LogRewound,
    NotReplicated,
    PageFull,
    PositionLost,
    ScratchbusError,
    SettingsError,
)
from scratchbus.telemetry.lazy import import_all
from scratchbus.telemetry.logs import Stderr
from scratchbus.telemetry.terminal import escaped, visible

TRANSIENT_ERRORS: tuple[type[ScratchbusError], ...] = (
    EngineUnreachable,
    EngineLoading,
    EngineReadOnly,
    EngineFull,
    ArchiveUnavailable,
    NotReplicated,
    Behind,
    LogBlocked,
    LogRewound,
    PositionLost,
    PageFull,
)
"""Errors that may pass: a daemon waits, then starts its work again.

They pass by themselves, or someone repairs the cause meanwhile, such as the state of a projector whose log was
replaced. Daemons that read from the present on, such as the router, recover by starting again.
"""

_AWAITED: tuple[type[ScratchbusError], ...] = (*TRANSIENT_ERRORS, SettingsError)

GRACE = 1.0
"""Seconds that the work has to end after a signal; its writes may safely be cut off anywhere."""

_FIRST_PAUSE = 0.1
_MAX_PAUSE = 2.0
_SETTLED = 10.0  # seconds of work after which the next pause is a short one again
_PROOF = 2.0  # seconds of work after which recovery is logged

DaemonRun = Callable[[Bus, StopSignal], None]
"""The work of a daemon: it runs until the event is set, or until it is done."""

logger = structlog.get_logger(__name__)


def configure_logging(level: str = "info", **always: str) -> None:
    """Log to stderr: for people on a terminal, else as one JSON object per line. Every line has the fields `always`.

    Warnings and errors of libraries are logged in the same form.
    """
    if sys.stderr is None:  # it was closed; so that no connection gets its descriptor
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process runs
    renderer: structlog.types.Processor = _render_for_people if sys.stderr.isatty() else _render_json
    number = logging.getLevelNamesMapping()[level.upper()]
    processors: list[structlog.types.Processor] = [
        lambda _, __, line: {**line, **always},
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: Stderr(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        foreign_pre_chain=processors,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING))


_json = structlog.processors.JSONRenderer(ensure_ascii=False)
_console = structlog.dev.ConsoleRenderer()


def _render_json(logger: Any, name: str, line: structlog.types.EventDict) -> str:
    return escaped(str(_json(logger, name, line)))


def _render_for_people(logger: Any, name: str, line: structlog.types.EventDict) -> str:
    """Render a line without control characters, which may come from data."""
    return _console(logger, name, {key: visible(each) if isinstance(each, str) else each for key, each in line.items()})


def serve(connect: Callable[[], Bus], run: DaemonRun, *, patient: bool = True) -> None:
    """Connect and do the work, until SIGTERM or SIGINT or until the work is done.

    When the engine goes away, wait with growing, jittered pauses until it is back, and start the work again on a new
    bus; with `patient` False, raise instead. A settings file that someone broke meanwhile is waited for, too. This does
    not start an embedded engine that someone stopped. Any other error ends the work and is raised here. Call this from
    the main thread. A second signal ends the process at once.
    """
    stop, done = StopSignal(), StopSignal()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            _keep_running(connect, run, stop, patient)
        except BaseException as problem:  # raised again below, in the main thread
            failure.append(problem)
        finally:
            done.set()

    import_all()  # before the code on disk can change
    gc.freeze()  # so that collections during folds skip the objects loaded so far
    with _signals() as signals, stop.calling(signals.wake), done.calling(signals.wake):
        logger.info("started")
        threading.Thread(target=work, name="work", daemon=True).start()
        signals.wait()
        stop.set()
        if not done.wait(GRACE):
            logger.warning("stopped in the middle of its work")
    if failure:
        raise failure[0]
    logger.info("stopped")


def _keep_running(connect: Callable[[], Bus], run: DaemonRun, stop: StopSignal, patient: bool) -> None:
    attempt, wait_log = 0, _WaitLog()
    with ExitStack() as open_bus:
        bus: Bus | None = None
        while not stop.is_set():
            started_at, is_connected = time.monotonic(), False
            try:
                if bus is not None:
                    bus.position()  # while the engine is stopped the old bus says so, and a new one would start it
                bus = connect()
                is_connected = True
                open_bus.pop_all().close()
                open_bus.enter_context(bus)
                bus.position()  # a connection that answers
                with wait_log.log_recovery():
                    run(bus, stop)
                return
            except _AWAITED as problem:
                is_wrong_now = bus is not None and not is_connected  # settings that were right when it began
                if not patient or (isinstance(problem, SettingsError) and not is_wrong_now):
                    raise
                if not stop.is_set():
                    wait_log.log_wait(str(problem))
                attempt = 0 if time.monotonic() - started_at > _SETTLED else attempt + 1
                stop.wait(pause(attempt))


class _WaitLog:
    """Logs once when the work starts to wait, and once when it has recovered, not if it fails again at once."""

    def __init__(self) -> None:
        self._is_waiting = False

    def log_wait(self, reason: str) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            logger.warning("waiting", reason=reason)

    @contextmanager
    def log_recovery(self) -> Iterator[None]:
        timer = threading.Timer(_PROOF, self._log_end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        self._log_end()

    def _log_end(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            logger.info("going on")


def pause(attempt: int) -> float:
    """Return the seconds to wait after this many failed attempts: growing, with jitter."""
    longest = min(_MAX_PAUSE, _FIRST_PAUSE * 2 ** min(attempt, 16))
    return JITTER.uniform(longest / 2, longest)


class _Signals:
    """A pair of sockets that wakes the main thread.

    Python handles a signal in the main thread, which a signal that arrives just before a wait does not wake. A child
    that is forked has the same sockets, and wakes nobody.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that Python writes to when a signal arrives."""
        return self._writer.fileno()

    def wake(self) -> None:
        """End the wait."""
        if os.getpid() == self._process:
            with suppress(OSError):  # it is full, or the wait has ended
                self._writer.send(b"\0")

    def wait(self) -> None:
        """Wait for `wake`, or for a signal that has been handled."""
        while self._reader.recv(1) != b"\0":  # for a signal, Python writes its number
            pass

    def close(self) -> None:
        """Close both sockets."""
        self._reader.close()
        self._writer.close()


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Wake the main thread on the first SIGTERM or SIGINT; the second has its default effect."""
    signals = _Signals()

    def on_signal(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        signals.wake()

    woken_before = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken_before)
        signals.close()
