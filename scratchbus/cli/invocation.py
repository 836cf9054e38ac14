"""The shared options of a command line: the source, the bus and page, and the output."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import scratchbus
from scratchbus.cli.instance import terminal_instance
from scratchbus.cli.output import Output
from scratchbus.cli.startup import keep_all, uncollected
from scratchbus.daemon import configure_logging_late

if TYPE_CHECKING:
    from scratchbus.settings import Settings


class OpenPage(NamedTuple):
    """An open bus and one of its pages."""

    bus: scratchbus.Bus
    page: scratchbus.Page

    def ids(self, texts: Sequence[str]) -> list[str]:
        """Return the whole ids of ids and suffixes on the command line. Raises InvalidId or NotFound."""
        return [self.page.whole_id(text) for text in texts]


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

    @cached_property
    def out(self) -> Output:
        """Where results go."""
        return Output(self.as_json, self.no_color)

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
        """Open the bus at the page of `--page` while the `with` lasts."""
        with self.connect() as bus:
            yield OpenPage(bus, bus.page() if self.page is None else bus.page(self.page))

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

        A URL with a user and a password is left to the reader.
        """
        url = "URL" if self.url is not None and "@" in self.url else self.url
        options = {"--config": self.config, "--url": url, "--bus": self.bus, "--page": self.page}
        given = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value is not None]
        return f"`{' '.join(['scratchbus', *given, command])}`"

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


pass_invocation: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(Invocation, ensure=True)
"""Give a command its invocation as the first argument."""
