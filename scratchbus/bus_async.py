"""The bus: one line per operation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scratchbus import opening
from scratchbus.domain.events import Event
from scratchbus.domain.position import BusPosition, Position
from scratchbus.domain.registry import Registry
from scratchbus.domain.values import Duration
from scratchbus.engine.renewal import AsyncKeeper
from scratchbus.engine.steps import Step
from scratchbus.eventlog.foreign import ForeignEntry
from scratchbus.eventlog.tail_readers import AsyncFeeds
from scratchbus.memory.memories_async import AsyncMemories
from scratchbus.page_async import AsyncPage
from scratchbus.readmodel.scope import push_registry, refresh_registry
from scratchbus.settings import Settings
from scratchbus.telemetry.late import late, once

if TYPE_CHECKING:
    from scratchbus import context as contexts
    from scratchbus import status as statuses
    from scratchbus import subscriptions as subscribing
    from scratchbus import work as working
    from scratchbus.archive import importing
    from scratchbus.commands import claim as claiming
    from scratchbus.commands import read as looking
    from scratchbus.eventlog import consumers, cursor, foreign, reader
    from scratchbus.eventlog import follow_async as following
    from scratchbus.readmodel import rebuild as rebuilding
    from scratchbus.readmodel import registry_files
    from scratchbus.readmodel import verify as verifying
    from scratchbus.subscriptions import dead_letters as letters
    from scratchbus.subscriptions import filters, options
    from scratchbus.views import shared as sharing
    from scratchbus.views import view_async as viewing
else:
    claiming = late("scratchbus.commands.claim")
    consumers = late("scratchbus.eventlog.consumers")
    contexts = late("scratchbus.context")
    cursor = late("scratchbus.eventlog.cursor")
    filters = late("scratchbus.subscriptions.filters")
    following = late("scratchbus.eventlog.follow_async")
    foreign = late("scratchbus.eventlog.foreign")
    importing = late("scratchbus.archive.importing")
    letters = late("scratchbus.subscriptions.dead_letters")
    looking = late("scratchbus.commands.read")
    options = late("scratchbus.subscriptions.options")
    reader = late("scratchbus.eventlog.reader")
    rebuilding = late("scratchbus.readmodel.rebuild")
    registry_files = late("scratchbus.readmodel.registry_files")
    sharing = late("scratchbus.views.shared")
    statuses = late("scratchbus.status")
    subscribing = late("scratchbus.subscriptions")
    verifying = late("scratchbus.readmodel.verify")
    viewing = late("scratchbus.views.view_async")
    working = late("scratchbus.work")

T = TypeVar("T")


class AsyncBus(AsyncMemories):
    # asyncio only:
    """An open bus for asyncio: `await AsyncBus.connect(…)`, or `async with AsyncBus.connect(…) as bus`."""

    # end
    # blocking only:
    # """An open bus. Safe to share between threads; usable as a context manager."""
    # end

    def __init__(self, opened: opening.Opened) -> None:
        self._opened = opened
        self._engine = opened.target.async_engine()
        self._reader = opened.target.async_reader()
        # asyncio only:
        self._is_greeted = False
        # end
        # blocking only:
        # self.converse = self._engine.run
        # end
        self.core = opened.core
        self.feeds = AsyncFeeds(self.core.log, self._reader)
        self.keeper = AsyncKeeper(self.converse)
        # blocking only:
        # try:
        #     self.converse(opening.greet(opened))
        # except BaseException:
        #     self._engine.close()  # nobody else can
        #     raise
        # end

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        source: str | None = None,
        instance: str | None = None,
        config: str | Path | None = None,
        **settings: Any,
    ) -> AsyncBus:
        """Open a bus: at `url`, else at $SCRATCHBUS_URL, else on the embedded engine.

        `source` says who speaks: it is the default source of what is added, and the `by` of all writes. `instance`
        tells this connection from others with the same source, since claims belong to both: a program that restarts
        with the same instance gets its claims back. A second live program with it takes the first one's jobs. By
        default it is random. The other keywords are the settings of `config/scratchbus.yaml`.

        Raises EngineError when the engine cannot be used (asyncio: once awaited or entered), and InvalidInput for a
        setting.
        """
        return cls(opening.prepare(url, source, instance, config, settings))

    # asyncio only:
    def __await__(self) -> Generator[Any, None, Self]:
        return self._greeted().__await__()

    async def _greeted(self) -> Self:
        if not self._is_greeted:
            try:
                await self._engine.run(opening.greet(self._opened))
            except BaseException:
                await self._engine.disconnect()  # who awaits or enters this gets nothing to close
                raise
            self._is_greeted = True
        return self

    async def converse(self, conversation: Step[T]) -> T:
        """Run a conversation with the engine. Raises EngineError, and BusClosed once the bus is closed."""
        await self._greeted()
        return await self._engine.run(conversation)

    # end

    def page(self, name: str = "main") -> AsyncPage:
        """Return a page. Raises InvalidName."""
        return AsyncPage(self, name)

    @once
    def _live_pages(self) -> sharing.AsyncLivePages:
        return sharing.AsyncLivePages(self.core, self.converse, self.feeds, self.keeper)

    def view(self, page: str = "main") -> viewing.AsyncView:
        """Return a live view of a page, held in memory; it follows the log once it is entered. Raises InvalidName."""
        return viewing.AsyncView(self._live_pages, page)

    def events(
        self,
        after: BusPosition | Position | str | None = None,
        *,
        follow: bool = False,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        stop: reader.Stop | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the events after a position, oldest first; with `follow`, go on as they happen until `stop` is set.

        `pages`, `types` and `kinds` select events. Raises InvalidInput for a type or kind that does not exist.
        Iterating raises PositionLost, LogRewound or LogGap rather than skip an event.
        """
        narrow = looking.narrow_of(pages, types, kinds)
        return following.follow_events(self.core.log, self.converse, self.feeds, after, pages, narrow, follow, stop)

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
    ) -> subscribing.AsyncSubscription:
        """Return a durable subscription: its cursor in the log is stored under this name, with one active consumer.

        A new name starts after `after` once the subscription is entered or iterated over; a known name continues at
        its cursor, unless `reset` is set. Events are delivered in order, and again after a failure; one that has
        failed `max_attempts` times becomes a dead letter. `retry_delay` doubles with each attempt; numbers are
        seconds. The lease is not renewed while an event is out for longer than `handler_timeout`. Raises
        InvalidInput, and when iterated over SubscriptionMismatch.
        """
        wanted = filters.Filters.of(looking.narrow_of(pages, types, kinds), tags)
        terms = options.Terms(after, reset, max_attempts, retry_delay, handler_timeout)
        lease = self.settings.seconds("subscription_lease")
        return subscribing.AsyncSubscription(self, name, wanted, terms, lease, stop)

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
    ) -> working.AsyncWork:
        """Return work: hands out the open observations of these pages, or of all, to competing workers, by priority.

        Each is claimed for `ttl`; the claim is renewed while the worker handles it, up to `handler_timeout`. A job
        that fails is handed out again after `retry_delay`, which doubles with each attempt, and goes to review after
        `max_attempts`. Numbers are seconds. Raises InvalidInput.
        """
        terms = working.WorkTerms.of(max_attempts, retry_delay, handler_timeout)
        return working.AsyncWork(self, name, claiming.Wanted.of(types, tags), pages, ttl, terms, stop)

    async def unsubscribe(self, name: str) -> None:
        """Delete a subscription and its dead letters. Raises NotFound, or SubscriptionHeld while it is consumed."""
        return await self.converse(consumers.remove(self.core.log.keys(0), options.check_name(name)))

    async def dead_letters(self, name: str | None = None) -> list[subscribing.DeadLetter]:
        """Return the dead letters of a subscription, or of all, in the order of their events. Raises NotFound."""
        return await self.converse(letters.list_letters(self.core, name))

    async def retry_dead_letters(self, name: str, positions: letters.Positions = None) -> int:
        """Deliver dead letters again, all or those at these positions; return their number.

        Raises NotFound, or PositionLost when an event has left the log; then none is delivered again.
        """
        return await self.converse(letters.retry_letters(self.core, name, positions))

    async def drop_dead_letters(self, name: str, positions: letters.Positions = None) -> int:
        """Delete dead letters, all or those at these positions; return their number. Raises NotFound."""
        return await self.converse(letters.drop_letters(self.core, name, positions))

    async def wait_for_events(self, behind: Mapping[int, Position], seconds: float = 0.5) -> bool:
        """Wait until a shard has an event after its position here; return whether one has."""
        if self.core.log.is_spread and len(behind) > 1:
            return await self.feeds.wait_behind(behind, seconds)
        return await self._reader.run(reader.wait(self.core.log, behind, seconds))

    async def position(self) -> BusPosition:
        """Return the end of all logs of the bus, as an opaque token for `events(after=…)`."""
        return await self.converse(cursor.bus_position(self.core.log))

    @once
    def context(self) -> contexts.AsyncContexts:
        """The contexts of agents: texts within a token budget, relevant memories, compaction."""
        return contexts.AsyncContexts(self)

    @property
    def instance(self) -> str:
        """The secret that tells this connection from others with the same source; do not share it."""
        return self.core.instance

    @property
    def owner(self) -> str:
        """The token in the `owner` of claims made through this connection."""
        return self.core.log.owner

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.core.settings

    async def status(self) -> statuses.Status:
        """Return the status of the engine, the logs, the projections and the pages."""
        return await self.converse(opening.status_of(self._opened))

    async def rebuild(self, progress: rebuilding.Progress | None = None) -> rebuilding.Rebuilt:
        """Fold the whole log into a new state, and switch to it atomically; readers never see a gap.

        It yields to publishers. `progress` is called with the number of events folded and the total. Raises
        RebuildHeld while someone else rebuilds, and PositionLost, LogRewound or CodeTooOld; then the state is
        unchanged.
        """
        return await self.converse(rebuilding.rebuild(self.core, progress))

    async def verify(self, progress: rebuilding.Progress | None = None) -> verifying.Verified:
        """Compare everything the engine stores with what follows from the log; works while others write.

        Returns the differences, and how much was compared. `progress` is called with the number of events read and
        the total.
        """
        return await self.converse(verifying.verify(self.core, progress))

    async def repair(self) -> list[ForeignEntry]:
        """Remove the entries that someone added to the logs by hand behind their last events; return them.

        Such an entry blocks all writes to its shard with LogBlocked. Readers continue meanwhile. No event is removed.
        Raises LogError for a log of which it is not known where it ends.
        """
        return await self.converse(foreign.repair(self.core.log))

    async def import_events(self, lines: Iterable[str | bytes], progress: Callable[[int], object] | None = None) -> int:
        """Write the events of an export (`scratchbus tail --format jsonl`) into an empty bus; return their number.

        They keep their positions, times and ids, and give equal pages. All lines are checked before the first is
        written, and the import is all or nothing. A bus that already has the first of these events gets the rest.
        `progress` is called with the number of lines checked. Raises InvalidExport, NotEmpty or Conflict.
        """
        return await self.converse(importing.import_events(self.core, lines, progress))

    @property
    def types(self) -> Registry:
        """The registry of observation types in use."""
        return self.core.registry

    @property
    def types_version(self) -> int:
        """The version of the registry in use; each registry that is pushed gets the next one."""
        return self.core.registry_version

    async def refresh_types(self) -> bool:
        """Load the published registry if it is newer; return whether it was."""
        return await self.converse(refresh_registry(self.core))

    async def push_types(self, registry: Registry | Path | str, *, event_id: str | None = None) -> bool:
        """Publish a registry, or the file at a path, to the whole bus; return whether it changed anything.

        Raises RegistryError for a bad file, and TypeInUse when an open observation needs a type that would be
        removed.
        """
        return await self.converse(push_registry(self.core, registry_files.as_registry(registry), event_id))

    async def close(self) -> None:
        """Close the connections; from then on every operation, also one that is waiting, raises BusClosed."""
        if "_live_pages" in vars(self):
            await self._live_pages.close()
        await self.keeper.close()
        await self._engine.close()
        await self.feeds.close()

    async def __aenter__(self) -> Self:
        # asyncio only:
        await self._greeted()
        # end
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
