"""The blocking facade: one line per operation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from scratchbus import opening
from scratchbus.archive.importing import import_events
from scratchbus.commands import read
from scratchbus.commands.claim import Wanted
from scratchbus.context import Contexts
from scratchbus.domain.events import Event
from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.registry import Registry
from scratchbus.domain.values import Duration
from scratchbus.engine.renewal import Keeper
from scratchbus.engine.steps import Step
from scratchbus.errors import EngineError
from scratchbus.eventlog import reader
from scratchbus.eventlog.consumers import remove
from scratchbus.eventlog.tail_readers import Feeds
from scratchbus.memory import Memories
from scratchbus.page import Page
from scratchbus.readmodel.rebuild import Progress, Rebuilt, rebuild
from scratchbus.readmodel.scope import push_registry, refresh_registry
from scratchbus.readmodel.verify import Verified, verify
from scratchbus.settings import Settings
from scratchbus.status import Status
from scratchbus.subscriptions import DeadLetter, Subscription, Terms
from scratchbus.subscriptions.dead_letters import Positions, drop_letters, list_letters, retry_letters
from scratchbus.subscriptions.filters import Filters
from scratchbus.subscriptions.options import check_name
from scratchbus.telemetry.counters import counts
from scratchbus.views.shared import LivePages
from scratchbus.views.view import View
from scratchbus.work import Terms as WorkTerms
from scratchbus.work import Work

T = TypeVar("T")


class Bus(Memories):
    """An open bus. Safe to share between threads; usable as a context manager."""

    def __init__(self, opened: opening.Opened) -> None:
        self._opened = opened
        self._engine = opened.target.engine()
        self._reader = opened.target.reader()
        self.core = opened.core
        self.feeds = Feeds(self.core.log, self._reader)
        self._contexts = Contexts(self)
        self.keeper = Keeper(self.converse)
        self._live_pages = LivePages(self.core, self.converse, self.feeds, self.keeper)
        self.converse(opening.greet(opened))

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        source: str | None = None,
        instance: str | None = None,
        config: str | Path | None = None,
        **settings: Any,
    ) -> Bus:
        """Open a bus: at `url`, else $SCRATCHBUS_URL, else on the embedded engine.

        `source` is who speaks: the default source of what is added, and the `by` of everything done. `instance` tells
        this connection from others of the same source: claims belong to both. A program that is restarted with the same
        instance has its claims again; left out, it is random. Other settings are those of `config/scratchbus.yaml`.
        Raises an EngineError when the engine cannot be used.
        """
        return cls(opening.prepare(url, source, instance, config, settings))

    def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine. Raises EngineError, and BusClosed once the bus is closed."""
        try:
            return self._engine.run(conversation)
        except EngineError as error:
            counts.engine_errors[type(error).__name__] += 1
            raise

    def page(self, name: str = "main") -> Page:
        """Return a page. Raises InvalidName."""
        return Page(self, name)

    def view(self, page: str = "main") -> View:
        """Return a live view of a page: in memory, kept up by the log while its `with` lasts. Raises InvalidName."""
        return View(self._live_pages, page)

    def events(
        self,
        after: BusPosition | Position | str | None = None,
        *,
        follow: bool = False,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        stop: reader.Stop | None = None,
    ) -> Iterator[Event]:
        """Yield the events behind a position, oldest first; with `follow`, go on as they happen until `stop` is set.

        Raises PositionLost, LogRewound or LogGap rather than leave out an event, and InvalidInput for a filter that
        names what does not exist.
        """
        narrow = read.narrow_of(pages, types, kinds)
        places = self._reader.run(reader.cursors(self.core.log, after, pages))
        while stop is None or not stop.is_set():
            ms = reader.block_ms(follow, stop)
            chunks = self._reader.run(reader.read(self.core.log, places, ms))
            yield from reader.decode_wanted(chunks, narrow)
            if chunks:
                continue
            if ms is None:
                return
            if self.core.log.is_spread and len(places) > 1:
                self.feeds.wait_behind({place.position.shard: place.position for place in places}, ms / 1000)

    def subscribe(
        self,
        name: str,
        *,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        after: BusPosition | Position | str | None = None,
        reset: bool = False,
        max_attempts: int = 5,
        retry_delay: Duration = "1s",
        handler_timeout: Duration = "5m",
        stop: reader.Stop | None = None,
    ) -> Subscription:
        """Return a durable subscription: its place in the log is kept under this name, and one consumer is active.

        A new name begins behind `after` when it is entered, or iterated over; one that is known goes on where it was,
        unless `reset` is set. Deliveries come in order, until they are acked; one that failed `max_attempts` times
        becomes a dead letter. A `retry_delay` doubles with each attempt; a number is in seconds. Raises InvalidInput;
        its iteration, SubscriptionMismatch.
        """
        filters = Filters.of(read.narrow_of(pages, types, kinds), tags)
        terms = Terms(after, reset, max_attempts, retry_delay, handler_timeout)
        return Subscription(self, name, filters, terms, self.settings.seconds("subscription_lease"), stop)

    def work(
        self,
        name: str,
        *,
        types: str | Collection[str] | None = None,
        tags: str | Collection[str] | None = None,
        pages: str | Collection[str] | None = None,
        ttl: Duration = "30s",
        max_attempts: int = 5,
        retry_delay: Duration = "1s",
        handler_timeout: Duration = "5m",
        stop: reader.Stop | None = None,
    ) -> Work:
        """Return work: what is open on these pages, or all, is handed out by priority to one of its workers, claimed.

        The claim lasts `ttl`, and is prolonged while the worker is at it, up to `handler_timeout`. What fails is given
        back for a while, and goes to review after `max_attempts`. Numbers are in seconds. Raises InvalidInput.
        """
        terms = WorkTerms.of(max_attempts, retry_delay, handler_timeout)
        return Work(self, name, Wanted.of(types, tags), pages, ttl, terms, stop)

    def unsubscribe(self, name: str) -> None:
        """Remove a subscription with its dead letters. Raises NotFound, or SubscriptionHeld while it is consumed."""
        return self.converse(remove(self.core.log.keys(0), check_name(name)))

    def dead_letters(self, name: str | None = None) -> list[DeadLetter]:
        """Return what a subscription, or any, set aside, in the order of the events. Raises NotFound."""
        return self.converse(list_letters(self.core, name))

    def retry_dead_letters(self, name: str, positions: Positions = None) -> int:
        """Have dead letters delivered again, all or those at these positions; return how many.

        Raises NotFound, or PositionLost when an event is no longer in the log; then nothing was done.
        """
        return self.converse(retry_letters(self.core, name, positions))

    def drop_dead_letters(self, name: str, positions: Positions = None) -> int:
        """Throw dead letters away, all or those at these positions; return how many. Raises NotFound."""
        return self.converse(drop_letters(self.core, name, positions))

    def wait_for_events(self, behind: Mapping[int, Position], seconds: float = 0.5) -> bool:
        """Wait until there is an event behind one of these positions, by shard; say whether there is."""
        if self.core.log.is_spread and len(behind) > 1:
            return self.feeds.wait_behind(behind, seconds)
        return self._reader.run(reader.wait(self.core.log, behind, seconds))

    def position(self) -> BusPosition:
        """Return where the logs of the bus end, as an opaque token for `events(after=…)`."""
        return self.converse(reader.bus_position(self.core.log))

    @property
    def context(self) -> Contexts:
        """What agents are shown: contexts within a budget of tokens, what bears on a question, compaction."""
        return self._contexts

    @property
    def instance(self) -> str:
        """What tells this connection from others of the same source; keep it to yourself."""
        return self.core.instance

    @property
    def owner(self) -> str:
        """The token that claims made through this connection have as their `owner`."""
        return self.core.log.owner

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._opened.settings

    def status(self) -> Status:
        """Return how the engine, the logs, the projections and the pages are."""
        return self.converse(opening.status_of(self._opened))

    def rebuild(self, progress: Progress | None = None) -> Rebuilt:
        """Fold the state anew from the whole log, and switch to it at once; readers see no difference meanwhile.

        It rests while others publish. `progress` is told how many events are done, of how many. Raises RebuildHeld
        while someone else does so, PositionLost, LogRewound or CodeTooOld; then the state is as it was.
        """
        return self.converse(rebuild(self.core, progress))

    def verify(self, progress: Progress | None = None) -> Verified:
        """Compare all that the engine holds with what follows from the log, also while others write.

        Returns what is wrong, and how much was looked at. `progress` is told how many events are done, of how many.
        """
        return self.converse(verify(self.core, progress))

    def import_events(self, lines: Iterable[str | bytes], progress: Callable[[int], object] | None = None) -> int:
        """Write the events of an export, as `scratchbus tail --format jsonl` prints it, into a bus that has none.

        They keep their places, times and ids, and make an equal page. Returns how many there are. All lines are checked
        before anything is written, and then all is written or nothing. A bus that has the first of them gets the
        others. `progress` is told how many lines are checked. Raises InvalidExport, NotEmpty or Conflict.
        """
        return self.converse(import_events(self.core, lines, progress))

    @property
    def types(self) -> Registry:
        """The registry of observation types in use."""
        return self.core.registry

    @property
    def types_version(self) -> int:
        """The version of the registry in use; each registry that is pushed gets the next one."""
        return self.core.registry_version

    def refresh_types(self) -> bool:
        """Take a newer published registry, if there is one; say whether there was."""
        return self.converse(refresh_registry(self.core))

    def push_types(self, registry: Registry | Path | str, *, event_id: str | None = None) -> bool:
        """Publish a registry, or the file at a path, to the whole bus; say whether it changed anything.

        Raises RegistryError for the file, and TypeInUse when an open observation still needs what would go.
        """
        return self.converse(push_registry(self.core, opening.as_registry(registry), event_id))

    def close(self) -> None:
        """Close the connections; every operation from then on raises BusClosed, also what waits for events by then."""
        self._live_pages.close()
        self.keeper.close()
        self._engine.close()
        self.feeds.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
