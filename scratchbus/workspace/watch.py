"""Sync files whenever one of them or the bus changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from scratchbus import Bus, Synced
from scratchbus.errors import ScratchbusError, SettingsError
from scratchbus.workspace.shared_file import settled
from scratchbus.workspace.sync import NOTES, TODO, WorkspaceSync, WorkspaceSynced

AT_LEAST_EVERY: Final = 30.0
"""Seconds between syncs without a change notification, for file systems that send none."""

_RETRY_AFTER: Final = 1.0  # seconds after a failure
_DEBOUNCE: Final = 200  # milliseconds in which an editor may write several times
_OF_SESSION: Final = {"subjects": ("todo", "notepad", "session")}
_OF_PREFERENCES: Final = {"kinds": ("preference_remembered", "preference_forgotten", "erased")}


class _Watched(NamedTuple):
    """The synced sides: files of a directory, by name, and the subjects of these events of a page."""

    bus: Bus
    directory: Path
    files: Collection[str]
    page: str
    events: Mapping[str, Collection[str]]
    sync: Callable[[], Any]


def watch_workspace(
    sync: WorkspaceSync, report: Callable[[WorkspaceSynced | Exception], object], stop: threading.Event
) -> None:
    """Sync until `stop` is set. Errors are reported once, and retried. Raises SettingsError.

    `report` is called with the targets of each sync that wrote something, and with errors.
    """
    page = f"session:{sync.session}"
    _watch(_Watched(sync.bus, sync.directory, (TODO, NOTES), page, _OF_SESSION, sync.run), report, stop)


def watch_preferences(
    bus: Bus, scope: str, file: Path | str, report: Callable[[Synced | Exception], object], stop: threading.Event
) -> None:
    """Sync a section of a text file with the preferences of a scope until `stop` is set; see `watch_workspace`."""
    path, preferences = Path(file), bus.preferences(scope)
    directory = Path(os.path.realpath(path.parent))  # unlike `resolve`, it takes a loop of links
    names = {path.name, os.path.basename(os.path.realpath(path))}  # a link may lead to a file beside it

    def sync() -> Synced:
        settled(path, lambda: None)
        return preferences.sync(path)

    _watch(_Watched(bus, directory, names, f"knowledge:{scope}", _OF_PREFERENCES, sync), report, stop)


def _watch(watched: _Watched, report: Callable[[Any], object], stop: threading.Event) -> None:
    try:
        import watchfiles  # noqa: F401  # fail now, not in a thread
    except ImportError as problem:
        raise SettingsError(f"--watch needs: pip install 'scratchbus[workspace]' ({problem})") from None
    changed = threading.Event()
    with _in_thread(_watch_files, watched, changed, stop), _in_thread(_watch_bus, watched, changed, stop):
        last_error = ""
        while not stop.is_set():
            changed.clear()
            last_error = _sync(watched, report, last_error)
            changed.wait(_RETRY_AFTER if last_error else AT_LEAST_EVERY)


def _sync(watched: _Watched, report: Callable[[Any], object], last_error: str) -> str:
    """Sync once; return the error, if any; report it unless it was the last one reported."""
    try:
        synced = watched.sync()
    except (ScratchbusError, OSError) as problem:
        if str(problem) != last_error:
            report(problem)
        return str(problem)
    if synced.wrote:
        report(synced)
    return ""


_Watch = Callable[[_Watched, threading.Event, threading.Event], None]


@contextmanager
def _in_thread(watch: _Watch, watched: _Watched, changed: threading.Event, stop: threading.Event) -> Iterator[None]:
    """Run a watch in a thread while the `with` lasts."""

    def run() -> None:
        while not stop.is_set():
            try:
                watch(watched, changed, stop)
            except (ScratchbusError, OSError, RuntimeError):
                # The sync hits it too, and reports it; watchfiles raises RuntimeError without a free inotify instance.
                changed.set()
                stop.wait(_RETRY_AFTER)
        changed.set()

    thread = threading.Thread(target=run, name=watch.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch_files(watched: _Watched, changed: threading.Event, stop: threading.Event) -> None:
    from watchfiles import Change, watch

    def is_ours(_: Change, path: str) -> bool:
        return path.rpartition("/")[2] in watched.files

    changes = watch(
        watched.directory,
        watch_filter=is_ours,
        stop_event=stop,
        debounce=_DEBOUNCE,
        recursive=False,
        raise_interrupt=False,
    )
    for _ in changes:
        changed.set()


def _watch_bus(watched: _Watched, changed: threading.Event, stop: threading.Event) -> None:
    start = watched.bus.position()
    changed.set()  # for earlier changes
    for _ in watched.bus.events(start, follow=True, pages=[watched.page], stop=stop, **watched.events):
        changed.set()
