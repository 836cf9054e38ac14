"""The bus: one line per operation."""

# Generated from bus_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from scratchbus.domain.position import BusPosition, Position
from scratchbus.engine.renewal import Keeper
from scratchbus.memory.memories import Memories
from scratchbus.telemetry.lazy import imported_on_first_use, once

with imported_on_first_use(__name__):  # modules for opening a bus are imported then
    from scratchbus import context as contexts
    from scratchbus import opening, timetravel
    from scratchbus import page as page_facade
    from scratchbus import settings as configuration
    from scratchbus import subscriptions as subscription
    from scratchbus import work as workers
    from scratchbus.archive import importing
    from scratchbus.commands import claim as claims
    from scratchbus.commands import read
    from scratchbus.context import embedding
    from scratchbus.context import recall as recall_search
    from scratchbus.domain import events as event_kinds
    from scratchbus.domain import registry as registries
    from scratchbus.domain import representation, values
    from scratchbus.eventlog import cursor, foreign, newest_events, reader, subscription_state, tail_readers
    from scratchbus.eventlog import follow as followers
    from scratchbus.readmodel import histogram as histograms
    from scratchbus.readmodel import rebuild as rebuilds
    from scratchbus.readmodel import registry_files, scope
    from scratchbus.readmodel import status as bus_status
    from scratchbus.readmodel import verify as verification
    from scratchbus.subscriptions import dead_letters as dead_letter
    from scratchbus.subscriptions import definition, event_filters, options, pulled_batches, settlement
    from scratchbus.subscriptions import pull as pull_loop
    from scratchbus.views import shared as shared_views
    from scratchbus.views import view as views
    from scratchbus.work import handlers as handlers

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


class Bus(Memories):
    """An open bus. Safe to share between threads; usable as a context manager."""

    def __init__(self, opened: opening.Opened) -> None:
        self._opened = opened
        self._engine = opened.target.engine()
        self._reader = opened.target.reader()
        self.converse = self._engine.run
        self.core = opened.core
        target, log = opened.target, self.core.log
        self.feeds = tail_readers.Feeds(log, self._reader, target.reader, can_break_off=target.kind != "memory")
        self.keeper = Keeper(self.converse)
        self._new_page = page_facade.Page  # imported here, so that the first addition does not wait for it
        try:
            self.converse(opening.greet(opened))
        except BaseException:
            self._engine.close()  # nobody else can
            raise

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
        """Open a bus at `url`, by default at $SCRATCHBUS_URL or else on the embedded engine.

        `source` names the program: it is the default source of observations it adds, and the `by` of all its writes.
        `instance` distinguishes this connection from others with the same source, since claims belong to both: a
        program that restarts with the same instance keeps its claims, but a second live program with it takes over the
        first one's jobs. By default it is random. The other keywords are the settings of `config/scratchbus.yaml`.

        Raises EngineError if the engine cannot be used, and InvalidInput for a bad
        setting.
        """
        return cls(opening.prepare(url, source, instance, config, settings))

    def page(self, name: str = "main") -> page_facade.Page:
        """Return a page. Raises InvalidName."""
        return self._new_page(self, name)

    @once
    def _live_pages(self) -> shared_views.LivePages:
        return shared_views.LivePages(self.core, self.converse, self.feeds, self.keeper)

    def view(self, page: str = "main") -> views.View:
        """Return a live view of a page, held in memory; it follows the log once it is entered. Raises InvalidName."""
        return views.View(self._live_pages, page)

    def events(
        self,
        after: timetravel.When | None = None,
        *,
        follow: bool = False,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        stop: reader.Stop | None = None,
    ) -> Iterator[event_kinds.AnyEvent]:
        """Yield the events after a position, oldest first; with `follow`, continue with new ones until `stop` is set.

        `pages`, `types`, `kinds` and `subjects` select events. Raises InvalidInput for a kind that does not exist.
        Iterating raises PositionLost, LogRewound or LogGap rather than skip an event.
        """
        entry_filter = read.entry_filter_of(pages, types, kinds, subjects)
        until = reader.check_stop(stop)
        return followers.follow_events(
            self.core.log, self.converse, self.feeds, after, pages, entry_filter, follow, until
        )

    def last_events(
        self,
        count: int = 100,
        *,
        before: Position | str | None = None,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
    ) -> list[event_kinds.AnyEvent]:
        """Return the newest events, oldest first: up to `count` (10,000 at most) before the position of an event.

        Reads the log backwards (for one page: its index) until it has found enough matches. Events trimmed from the log
        are left out; `events` reads them from the archive. To page backwards, pass the position of the first event as
        `before`.
        Raises InvalidInput.
        """
        entry_filter = read.entry_filter_of(pages, types, kinds, subjects)
        checked_count = values.check_whole("count", count, maximum=10_000)
        return self.converse(newest_events.newest(self.core.log, checked_count, before, entry_filter))

    def histogram(
        self,
        *,
        since: values.Moment | None = None,
        until: values.Moment | None = None,
        buckets: int = 120,
        page: str | None = None,
    ) -> histograms.Histogram:
        """Return the number of events over time, by kind, from `since` up to `until`, by default in the whole log.

        Costs a few small reads for each of the `buckets` (1,000 at most), independent of the number of events. Totals
        are exact. Kinds are counted up to 5,000 events, beyond that estimated from the first events of each bucket.
        Events trimmed from the log are not counted. Raises InvalidInput.
        """
        return self.converse(histograms.histogram(self.core.log, since, until, buckets, page))

    def subscribe(
        self,
        name: str,
        *,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        after: timetravel.When | None = None,
        reset: bool = False,
        max_attempts: int = 5,
        retry_delay: values.Duration = "1s",
        handler_timeout: values.Duration = "5m",
        stop: reader.Stop | None = None,
    ) -> subscription.Subscription:
        """Return a durable subscription: its cursor in the log is stored under this name, with one active consumer.

        A new name starts after `after` once the subscription is entered or iterated over; a known name continues at
        its cursor, unless `reset` is set. Events are delivered in order, and again after a failure; one that has
        failed `max_attempts` times becomes a dead letter. `retry_delay` doubles with each attempt; numbers are
        seconds. The lease is not renewed while an event is out for longer than `handler_timeout`. Raises
        InvalidInput, and on iteration SubscriptionMismatch.
        """
        filters = event_filters.Filters.of(read.entry_filter_of(pages, types, kinds), tags)
        terms = options.Terms(after, reset, max_attempts, retry_delay, handler_timeout)
        lease = self.settings.seconds("subscription_lease")
        return subscription.Subscription(self, name, filters, terms, lease, stop)

    def work(
        self,
        name: str,
        *,
        types: str | Collection[str] | None = None,
        tags: str | Collection[str] | None = None,
        pages: str | Collection[str] | None = None,
        ttl: values.Duration = "30s",
        max_attempts: int = 5,
        retry_delay: values.Duration = "1s",
        handler_timeout: values.Duration = "5m",
        stop: reader.Stop | None = None,
    ) -> workers.Work:
        """Return work, which hands out the open observations of these pages, by default of all, to workers by priority.

        Each is claimed for `ttl`; the claim is renewed while the worker handles it, up to `handler_timeout`. A job
        that fails is handed out again after `retry_delay`, which doubles with each attempt, and goes to review after
        `max_attempts`. Numbers are seconds. Raises InvalidInput.
        """
        terms = workers.WorkTerms.of(max_attempts, retry_delay, handler_timeout)
        return workers.Work(self, name, claims.PickFilter.of(types, tags), pages, ttl, terms, stop)

    @once
    def _handlers(self) -> handlers.Handlers:
        return handlers.Handlers()

    def on(
        self,
        *types: str,
        name: str | None = None,
        pages: Collection[str] | None = None,
        kinds: Collection[str] | None = ("added",),
        tags: Collection[str] | None = None,
        after: timetravel.When | None = None,
        concurrency: int = 1,
        max_attempts: int = 5,
        retry_delay: values.Duration = "1s",
        handler_timeout: values.Duration = "5m",
    ) -> Callable[[H], H]:
        """Return a decorator that declares a handler for events, by default additions of observations of these types.

        `run_handlers` runs it on a subscription with this `name`, by default the function's: durable, at least once, in
        order, in one active process, `concurrency` events at once. `kinds` selects other events, None all. The other
        keywords are those of `subscribe`. Raises InvalidInput.
        """
        subscribe = partial(
            self.subscribe,
            pages=pages,
            types=types or None,
            kinds=kinds,
            tags=tags,
            after=after,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            handler_timeout=handler_timeout,
        )
        return self._handlers.declare(types, name, concurrency, subscribe)

    def on_job(
        self,
        *types: str,
        name: str | None = None,
        tags: str | Collection[str] | None = None,
        pages: str | Collection[str] | None = None,
        concurrency: int = 1,
        ttl: values.Duration = "30s",
        max_attempts: int = 5,
        retry_delay: values.Duration = "1s",
        handler_timeout: values.Duration = "5m",
    ) -> Callable[[H], H]:
        """Return a decorator that declares a handler for jobs: open observations of these types, claimed for it.

        `run_handlers` runs it as `work` with this `name`, by default the function's, alongside workers in other
        processes, `concurrency` jobs at once. The other keywords are those of `work`. Raises InvalidInput.
        """
        start_work = partial(
            self.work,
            types=types or None,
            tags=tags,
            pages=pages,
            ttl=ttl,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            handler_timeout=handler_timeout,
        )
        return self._handlers.declare(types, name, concurrency, start_work)

    def run_handlers(self, stop: reader.Stop | None = None) -> None:
        """Run the handlers declared with `on` and `on_job` until `stop` is set, or one of them cannot continue.

        An exception in a handler is logged, and its event or job is delivered again. Raises InvalidInput without a
        handler, and the errors of `subscribe` and `work`.
        """
        self._handlers.run(stop)

    def declare_subscription(
        self,
        name: str,
        *,
        pages: Collection[str] | None = None,
        types: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        after: timetravel.When | None = None,
        reset: bool = False,
        max_attempts: int | None = None,
        retry_delay: values.Duration = "1s",
        url: str | None = None,
        secret: str | None = None,
        default_secret: str | None = None,
    ) -> bool:
        """Store the definition of a durable subscription without consuming it; return whether the name is new.

        A new name starts after `after`; a known one keeps its cursor, unless `reset` is set, and this definition
        replaces its own. `max_attempts` and `retry_delay` apply to pulled events. With a `url`, `scratchbus serve`
        delivers the events there, signed with the `secret`. Without one, the stored secret stays, and `default_secret`
        is stored if there is none. By default there are 5 attempts; with a `url` 500, about 8 hours. Raises
        InvalidInput, SubscriptionHeld for other filters while it is consumed, or PositionLost if it was dropped and is
        not reset.
        """
        filters = event_filters.Filters.of(read.entry_filter_of(pages, types, kinds), tags)
        terms = options.Terms(after, reset, definition.attempts_of(max_attempts, url), retry_delay)
        return self.converse(definition.declare(self.core, name, filters, terms, url, secret, default_secret))

    def subscriptions(self) -> list[bus_status.SubscriptionStatus]:
        """Return the status of every subscription, by name."""
        return self.converse(bus_status.read_subscriptions(self.core))

    def webhook(self, name: str) -> definition.Webhook:
        """Return the webhook of a subscription, with its secret. Raises NotFound if it has none."""
        return self.converse(definition.read_webhook(self.core, name))

    def pull(
        self,
        name: str,
        *,
        max: int = 10,
        wait: values.Duration = 0,
        lease: values.Duration = "30s",
        by: str | None = None,
    ) -> pulled_batches.Pulled:
        """Return the next events of a durable subscription, oldest first, up to `max` (1,000 at most); possibly none.

        For clients without a lasting connection: any process may ack them with the batch's token. It waits up to `wait`
        for events. Events not acked within the `lease` (1s to 12h) are delivered again; until then nobody gets others,
        since a batch counts as the active consumer, shown as `by`. An event that failed, or whose lease ended, is
        delivered again on its own; after `max_attempts` it becomes a dead letter. Numbers are seconds. Raises NotFound
        for a name that was never declared or consumed, InvalidInput, PositionLost, LogRewound or LogGap.
        """
        return pull_loop.pull_from(self, pulled_batches.Pull(self.core, name, max, lease, by), wait)

    def ack(self, name: str, token: str, positions: Position | str | Iterable[Position | str]) -> None:
        """Ack pulled events with the token of their batch, all or none.

        Acking again changes nothing. Raises LeaseLost if they were handed out again after the lease ended,
        NotDelivered for events that are not out, or InvalidInput.
        """
        self.converse(settlement.ack_pulled(self.core, name, token, positions))

    def nack(
        self,
        name: str,
        token: str,
        position: Position | str,
        reason: str,
        *,
        delay: values.Duration | None = None,
        max_attempts: int | None = None,
    ) -> None:
        """Deliver a pulled event again after `delay`, or set it aside as a dead letter after the last attempt.

        By default the delay is the subscription's `retry_delay`, doubled with each attempt. `max_attempts` can lower
        the subscription's for this failure: with 1, the event is set aside at once. The other events of the batch stay
        out. Raises LeaseLost, NotDelivered, NotFound or InvalidInput.
        """
        self.converse(settlement.fail_pulled(self.core, name, token, position, reason, delay, max_attempts))

    def requeue(self, name: str, token: str, positions: Position | str | Iterable[Position | str]) -> None:
        """Give pulled events back unhandled, all or none; they are delivered again, as the same attempt.

        Raises LeaseLost, NotDelivered, NotFound or InvalidInput.
        """
        self.converse(settlement.requeue(self.core, name, token, positions))

    def unsubscribe(self, name: str) -> None:
        """Delete a subscription and its dead letters. Raises NotFound, or SubscriptionHeld while it is consumed."""
        return self.converse(subscription_state.remove(self.core.log.keys(0), options.check_name(name)))

    def dead_letters(self, name: str | None = None) -> list[subscription.DeadLetter]:
        """Return the dead letters of a subscription, or of all, in the order of their events. Raises NotFound."""
        return self.converse(dead_letter.list_dead_letters(self.core, name))

    def retry_dead_letters(self, name: str, positions: dead_letter.Positions = None) -> int:
        """Deliver dead letters again, all or those at these positions; return their number.

        Raises NotFound, or PositionLost when an event has left the log; then none is delivered again.
        """
        return self.converse(dead_letter.retry_dead_letters(self.core, name, positions))

    def drop_dead_letters(self, name: str, positions: dead_letter.Positions = None) -> int:
        """Delete dead letters, all or those at these positions; return their number. Raises NotFound."""
        return self.converse(dead_letter.drop_dead_letters(self.core, name, positions))

    def wait_for_events(self, behind: Mapping[int, Position], seconds: float = 0.5) -> bool:
        """Wait until a shard has an event after its position here; return whether one has."""
        if self.core.log.is_spread and len(behind) > 1:
            return self.feeds.wait_behind(behind, seconds)
        return self._reader.run(reader.wait(self.core.log, behind, seconds))

    def position(self) -> BusPosition:
        """Return the current end of the bus's logs, as an opaque token for `events(after=…)`."""
        return self.converse(cursor.bus_position(self.core.log))

    @once
    def context(self) -> contexts.Contexts:
        """The contexts of agents: texts within a token budget, relevant memories, compaction."""
        return contexts.Contexts(self)

    @once
    def _recaller(self) -> recall_search.Recaller:
        return recall_search.Recaller()

    def recall(
        self,
        query: str,
        *,
        scopes: Collection[str] = (),
        sessions: Collection[str] = (),
        page: str | None = None,
        at: timetravel.When | None = None,
        limit: int | None = 10,
        embedder: embedding.Embedder | None = None,
    ) -> list[recall_search.Recalled]:
        """Return the items relevant to a question, best first, from some scopes, sessions and a page.

        Notes, notepads, preferences, true facts and observations that are not archived are ranked by their words, by
        the entities they connect, and with an `embedder` by their meaning; freshness and priority break ties. Each
        result says why it was found. Without scopes, sessions or a page it searches the page `main`. With `at`, a
        position or a time, it searches the knowledge of that moment, which costs the events of these pages up to then;
        otherwise each page is read once, and later only its new events. An empty query finds the newest. With None as
        `limit` it returns every match, at most a few hundred. Raises InvalidName, InvalidField and InvalidPosition.
        """
        question = recall_search.RecallQuestion(query, scopes, sessions, page, limit)
        if at is not None:
            return self.converse(recall_search.recall_past(self.core, question, at, embedder))
        return self.converse(recall_search.recall(self.core, self._recaller, question, embedder))

    @property
    def instance(self) -> str:
        """The secret that distinguishes this connection from others with the same source; do not share it."""
        return self.core.instance

    @property
    def owner(self) -> str:
        """The token in the `owner` of claims made through this connection."""
        return self.core.log.owner

    @property
    def settings(self) -> configuration.Settings:
        """The settings in force."""
        return self.core.settings

    def status(self) -> bus_status.Status:
        """Return the status of the engine, the logs, the projections and the pages."""
        return self.converse(opening.status_of(self._opened))

    def pages(self, at: timetravel.When | None = None) -> list[bus_status.PageStatus]:
        """Return the status of all pages, those with the most open observations first.

        With `at`, a position or a time, return the pages of that moment; it costs a read of each page.
        Raises InvalidPosition, LogRewound, PositionLost.
        """
        if at is not None:
            return self.converse(timetravel.pages_as_of(self.core, at))
        return self.converse(bus_status.read_pages(self.core))

    def rebuild(self, progress: rebuilds.Progress | None = None, *, over_gaps: bool = False) -> rebuilds.Rebuilt:
        """Fold the whole log into a new state, and switch to it atomically; readers never see a gap.

        It yields to publishers. `progress` is called with the number of events folded and the total. Raises
        RebuildHeld while someone else rebuilds, and PositionLost, LogRewound or CodeTooOld; then the state is
        unchanged. The same holds for LogGap: the log has lost events that the state contains. With `over_gaps`, the new
        state goes without them.
        """
        return self.converse(rebuilds.rebuild(self.core, progress, over_gaps=over_gaps))

    def verify(self, progress: rebuilds.Progress | None = None) -> verification.Verified:
        """Compare everything the engine stores with the log, also while others write.

        Returns the differences and the amount compared. `progress` is called with the number of events read and the
        total.
        """
        return self.converse(verification.verify(self.core, progress))

    def repair(self) -> list[foreign.ForeignEntry]:
        """Remove the entries that someone added to the logs by hand behind their last events; return them.

        Such an entry blocks all writes to its shard with LogBlocked. Readers continue meanwhile. No event is removed.
        Raises LogError for a log whose end is unknown.
        """
        return self.converse(foreign.repair(self.core.log))

    def import_events(self, lines: Iterable[str | bytes], progress: Callable[[int], object] | None = None) -> int:
        """Write the events of an export (`scratchbus tail --format jsonl`) into an empty bus; return their number.

        They keep their positions, times and ids, and give equal pages. All lines are checked before the first is
        written, and the import is all or nothing. A bus that already has the first of these events gets the rest.
        `progress` is called with the number of lines checked. Raises InvalidExport, NotEmpty or Conflict.
        """
        return self.converse(importing.import_events(self.core, lines, progress))

    @property
    def types(self) -> registries.Registry:
        """The registry of observation types in use."""
        return self.core.registry

    @property
    def types_version(self) -> int:
        """The version of the registry in use; each push increments it."""
        return self.core.registry_version.number

    def refresh_types(self) -> bool:
        """Load the published registry if it is newer; return whether it was."""
        return self.converse(scope.refresh_registry(self.core))

    def push_types(
        self,
        registry: registries.Registry | Path | str,
        *,
        expected_version: int | None = None,
        event_id: str | None = None,
    ) -> bool:
        """Publish a registry, or the file at a path, to the whole bus; return whether it changed anything.

        With an `expected_version`, only if the published registry still has that version (0: none was published).
        Raises RegistryError for a bad file, TypeInUse when an open observation needs a type that would be removed,
        and VersionConflict.
        """
        new_registry = registry_files.as_registry(registry)
        return self.converse(scope.push_registry(self.core, new_registry, event_id, expected_version))

    def close(self) -> None:
        """Close the connections; from then on every operation, including waiting ones, raises BusClosed."""
        try:
            if "_live_pages" in vars(self):
                self._live_pages.close()
        finally:  # also if the caller is cancelled meanwhile: nobody else can close the rest
            try:
                self.keeper.close()
            finally:
                try:
                    self._engine.close()
                finally:
                    self.feeds.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.settings.bus!r} at {self._opened.target.shown}, source {self.core.by!r}>"

    def __dir__(self) -> list[str]:
        return representation.public_names(self, ("converse", "core", "feeds", "keeper"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
