"""The shared options of a command line: the source, the bus and page, and the output."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import scratchbus
from scratchbus.cli.output import Output
from scratchbus.cli.startup import keep_all, uncollected
from scratchbus.daemon import configure_logging_late
from scratchbus.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from scratchbus.settings import Settings


class OpenPage(NamedTuple):
    """An open bus and one of its pages."""

    bus: scratchbus.Bus
    page: scratchbus.Page

    def ids(self, texts: Sequence[str]) -> list[str]:
        """Return the whole ids of ids and suffixes on the command line. Raises InvalidId or NotFound."""
        return [self.page.whole_id(text) for text in texts]


def without_source(problem: str, option: str = "--source") -> click.UsageError:
    """Return the error of a command that does not know who speaks; the option would say so."""
    return click.UsageError(f"{problem}; give {option} NAME, or set SCRATCHBUS_SOURCE")


class Invocation:
    """One run of the command line, with the options that every command takes.

    None stands for an option that was not given: the settings decide.
    """

    url: str | None = None
    bus: str | None = None
    page: str | None = None
    source: str | None = None
    instance: str | None = None
    config: str | None = None
    as_json: bool = False
    no_color: bool = False

    owner: str = ""
    """The session, agent or scope whose memory the command is about."""

    @cached_property
    def out(self) -> Output:
        """Where results go."""
        return Output(self.as_json, self.no_color)

    @property
    def page_in_force(self) -> str | None:
        """The page of `--page`, else of `SCRATCHBUS_PAGE`, None without either.

        A command that reads all pages without `--page` ignores the variable, which would narrow it unseen.
        """
        return self.page if self.page is not None else os.environ.get("SCRATCHBUS_PAGE") or None

    @contextmanager
    def connect(self) -> Iterator[scratchbus.Bus]:
        """Open the bus while the `with` lasts."""
        with uncollected():
            settings = self.settings()
            home = scratchbus.embedded_directory(None, settings.home)
            instance = settings.instance or (terminal_instance(home) if home else None)
            connected = scratchbus.Bus.connect(
                self.url, source=self.source, instance=instance, config=self.config, bus=self.bus
            )
            keep_all()
        with connected as bus:
            configure_logging_late(lambda: bus.settings.log_level)
            yield bus

    @contextmanager
    def open(self) -> Iterator[OpenPage]:
        """Open the bus at the page in force while the `with` lasts."""
        with self.connect() as bus:
            page = self.page_in_force
            yield OpenPage(bus, bus.page() if page is None else bus.page(page))

    @contextmanager
    def open_fenced(self, id: str, fence: int | None) -> Iterator[OpenPage]:
        """Open the bus for a write under a fence.

        Without a source, the holder of the claim speaks, if the observation was claimed in this terminal.
        """
        if fence is not None and self.settings().source is None:
            with self.open() as opened:
                found = opened.page.get(opened.page.whole_id(id))
                if found is not None and found.claim is not None and found.claim.is_from(opened.bus.instance):
                    self.source = found.claim.by
        with self.open() as opened:
            yield opened

    def hint(self, command: str) -> str:
        """Return a command to run next, with the options by which this one found its page and bus.

        A URL that may have a password, before its host or among its options, is left to the reader.
        """
        url = "URL" if self.url is not None and ("@" in self.url or "?" in self.url) else self.url
        options = {"--config": self.config, "--url": url, "--bus": self.bus, "--page": self.page}
        return f"`{command_line(command, options)}`"

    def speak_as(self, name: str | None) -> None:
        """Set the source, unless the options or settings name one."""
        if self.settings().source is None:
            self.source = name

    def act_for(self, agent: str) -> None:
        """Make an agent the source, unless --source names one. The settings remain those of the invoking user."""
        self.source = self.source or agent

    def settings(self) -> Settings:
        """Return the settings in force, without connecting to an engine."""
        with uncollected():
            from scratchbus.settings import load_settings  # late: it imports pydantic, which `--help` does not need

        return load_settings(self.config, url=self.url, source=self.source, instance=self.instance, bus=self.bus)


def command_line(command: str, options: Mapping[str, str | None]) -> str:
    """Return a command with those of these options that have a value, as a shell takes it."""
    given = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value is not None]
    return " ".join(["scratchbus", *given, command])


def public_name(name: str, needed_by: str, extra: str) -> Any:
    """Return what `scratchbus` exports by a name that needs an extra. Raises SettingsError unless it is installed."""
    try:
        return getattr(scratchbus, name)
    except ImportError as problem:
        raise SettingsError(f"{needed_by} needs: pip install 'scratchbus[{extra}]' ({problem})") from None


pass_invocation: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(Invocation, ensure=True)
"""Give a command its invocation as the first argument."""


# -- the instance that the commands of a terminal share, so that a claim holds from one command to the next -----------

_KEY = re.compile("[0-9a-f]{64}")


def terminal_instance(directory: Path) -> str:
    """Return the instance of all commands of this user in one login session.

    It is a secret: part of it is a random key, which the directory keeps for this user alone. Where none can be kept,
    each command has an instance of its own, as has each login session. A script that starts every command in a session
    of its own sets `--instance`.
    """
    try:
        key = _kept_key(directory)
    except OSError:
        key = os.urandom(32).hex()
    return f"{key} {os.uname().nodename} user {os.getuid()} session {os.getsid(0)}"


def _kept_key(directory: Path) -> str:
    """Return this user's key; create it if there is none, or if others may have read it."""
    path = directory / f"terminal-{os.getuid()}.key"
    if (key := _read(path)) is not None:
        return key
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(directory.iterdir()):
        directory.chmod(0o700)  # like the embedded engine, which refuses a directory in use that is open to others
    temporary = directory / f"{path.name}.{os.urandom(8).hex()}"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(os.urandom(32).hex())
        try:
            os.link(temporary, path)
        except FileExistsError:
            if _read(path) is None:  # else another command was faster
                temporary.replace(path)
        except OSError:
            temporary.replace(path)  # a file system without hard links
    finally:
        temporary.unlink(missing_ok=True)
    return _read(path) or os.urandom(32).hex()


def _read(path: Path) -> str | None:
    """Return the key in a file that belongs to this user alone, None for any other file, or none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return None
        text = file.read(100).decode("ascii", "replace")
    return text if _KEY.fullmatch(text) else None
