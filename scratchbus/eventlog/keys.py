"""The names of all keys, in one place.

All keys of a shard share one hash tag, so that scripts may touch them together on a cluster too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

from scratchbus.engine.slots import hash_tag, slot_of
from scratchbus.projections.scratch_page import NAME

SYSTEM_PAGE = "_bus"
"""The page, on shard 0, of events about the whole bus."""

_MAX_PAGES, _MAX_INDEXES = 4_000, 1_000  # names kept, for a shard and for a page


def _name(suffix: str) -> cached_property[str]:
    """Return a property of `ShardKeys` that is the name of a key."""
    return cached_property(lambda keys: f"{keys.tag}{suffix}")


@dataclass
class ShardKeys:
    """The keys of one shard of a bus. Each name is computed once.

    `build` is the build of the state that was live when this process last read it: a guess that every use checks, like
    the `cached_folds` and `cached_reads` of its readers, by page.
    """

    bus: str
    shard: int
    part: str = ""
    build: int = field(default=1, compare=False)
    cached_folds: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    cached_reads: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def tag(self) -> str:
        """The common beginning of all keys of the shard, with the hash tag."""
        return f"{hash_tag(self.bus, self.shard)}:{self.part}"

    log = _name("log")
    """Stream: the events."""

    tail = _name("tail")
    """String: `<stream id>|<event id>` of the last event. The log ends here, whatever else its stream has."""

    repaired = _name("repaired")
    """Stream: a copy of the log, while a repair makes it, or left by one that was killed."""

    origin = _name("origin")
    """String: a random word written with the first event; another word is another log."""

    floor = _name("floor")
    """String: `<stream id>|<event id>` of the last event that readers take from the archive, if any."""

    archiver = _name("archiver")
    """String: `<token>|<ms>|<who>` of the archiver or eraser at work, and until when others wait for it."""

    archived = _name("archived")
    """String: `<seq>|<location>`: the last event that an archiver stored, and the archive that has it."""

    kept = _name("kept")
    """Stream, on shard 0: trimmed entries that are still needed, such as the registry in force."""

    pages = _name("pages")
    """Hash: page -> a time (ms) before which none of its open observations expires."""

    ids = _name("ids:")
    """Prefix of hashes, one a day: event ids chosen by callers -> `<digest>|<stream id>`.

    With the suffix `retried`, a set: the other ids that were sent again within the last hour. With `erased`, the
    ids whose events were erased.

    A key of just this name never exists. Every script that writes names it, or another such key: while a cluster
    moves the keys of a slot one by one, it runs no script that names a missing key. Otherwise a script could stop
    in the middle, at a key that has moved.
    """

    meta = _name("meta")
    """Hash, on shard 0: the settings fixed when the bus was created."""

    reminders = _name("cursor:reminders")
    """String, on shard 0: how far reminders and refutations have been handled, as the text of a position."""

    subscriptions = _name("subscriptions")
    """Set, on shard 0: the names of all subscriptions."""

    def subscription(self, name: str) -> str:
        """Hash, on shard 0: a subscription's filters, cursor, lease, and the event it is trying."""
        return f"{self.tag}subscription:{name}"

    def dead(self, name: str) -> str:
        """Hash, on shard 0: position -> the dead letter of the event there (JSON)."""
        return f"{self.tag}dead:{name}"

    def again(self, name: str) -> str:
        """Hash, on shard 0: position -> a dead letter to redeliver."""
        return f"{self.tag}again:{name}"

    importing = _name("import")
    """Hash: the import that is at work, or was when it was killed."""

    @cached_property
    def staged(self) -> ShardKeys:
        """The names that an import writes to until all of it is there."""
        return ShardKeys(self.bus, self.shard, "import:")

    def heads(self, page: str) -> str:
        """Hash: subject -> its head."""
        return f"{self.tag}heads:{page}"

    def open(self, page: str) -> str:
        """Sorted set: the open observations, by priority, then by when they were added."""
        return f"{self.tag}open:{page}"

    def dedupe(self, page: str) -> str:
        """Hash: dedupe key -> the open observation that has it."""
        return f"{self.tag}keys:{page}"

    @cached_property
    def page(self) -> Callable[[str, int], PageKeys]:
        """Returns the keys of a page in one build of the state; they are made once."""
        return lru_cache(_MAX_PAGES)(partial(PageKeys, self))

    live = _name(f"checkpoint:{NAME}")
    """String: how far the live state is folded (see `eventlog.checkpoint`)."""

    erased = _name("erased")
    """Sorted set: the `seq` of every event that was erased, by itself."""

    rebuilding = _name("rebuilding")
    """Hash: who rebuilds the state until when, and the number of the last build."""


class PageKeys:
    """The keys of one page in one build of the scratch page projection.

    checkpoint  string, while the build is being made: how far it is folded; that of the live one is `checkpoint:…`
    rejected    stream of the whole shard: events that could not be folded, each with its reason
    due         sorted set of the whole shard: `<id>@<page>` by the next time (ms) that changes it, as by its expiry
    docs        hash: subject -> its document (JSON)
    memory      hash: subject -> what an agent remembers (JSON): its notepad, a note …
    of_type     the common beginning of the names of the indexes by type
    types       hash: type -> 1, for each type of an observation: the indexes of these types have all observations
    positions   string: the positions of the page's events in order, 16 bytes each (see `eventlog.positions`)
    gaps        hash of the whole shard: stream id of an event -> how many events were missing before it
    snapshots   hash: stream id -> the documents as they were then, compressed (see `readmodel.snapshots`)
    paged       hash: bucket -> ids of paged-out observations, each with when it was added (see `eventlog.paged_out`)
    places      hash: range of when they were added -> the position of each paged-out observation's last event
    tables      hash: number -> a table of paged-out observations in the archive (see `eventlog.index_tables`)
    paging      hash of the whole shard: `cursor` -> the last event examined for observations to page out

    heads, open: those of the page in `ShardKeys`, whatever the build

    Relations are sorted sets of the whole shard, all scores 0, with members `<from>` TAB `<to>`; nothing leaves them:

    evidence    `<id>` of the evidence, anywhere in the bus -> `<id>@<page>` of the observation that rests on it
    links       `<page>#<action>` -> `<id>@<stream id of the event that linked it>`
    actions     who linked -> stream id of the event that did
    seen        `<id>` -> `<subject of the contexts that it was in>@<page>`
    causes      the text of a position, anywhere in the bus -> stream id of an event that it caused
    """

    __slots__ = (
        "_indexes", "_tag", "checkpoint", "docs", "due", "gaps", "heads", "memory", "of_type", "open", "page", "paged",
        "paging", "places", "positions", "rejected", "snapshots", "tables", "types",
    )  # fmt: skip

    def __init__(self, shard: ShardKeys, page: str, build: int = 1) -> None:
        tag = self._tag = f"{shard.tag}p{build}:"
        self.page = page
        self.checkpoint = f"{tag}checkpoint"
        self.rejected = f"{tag}rejected"
        self.due = f"{tag}due"
        self.gaps = f"{tag}gaps"
        self.docs = f"{tag}docs:{page}"
        self.memory = f"{tag}memory:{page}"
        self.types = f"{tag}types:{page}"
        self.positions = f"{tag}positions:{page}"
        self.snapshots = f"{tag}snapshots:{page}"
        self.paging = f"{tag}paging"
        self.paged = f"{tag}paged:{page}"
        self.places = f"{tag}places:{page}"
        self.tables = f"{tag}tables:{page}"
        self.heads = shard.heads(page)
        self.open = shard.open(page)
        self.of_type = f"{tag}type:{page}#"
        self._indexes: dict[tuple[str, str], str] = {}

    def relation(self, name: str) -> str:
        """Sorted set: a relation of the whole shard."""
        return self._tag + name

    def index(self, kind: str, value: str) -> str:
        """Sorted set: the observations with this type, tag or owner, by the `seq` of the event that added each.

        No page has a `#` in its name, so that no two pages share an index.
        """
        name = self._indexes.get((kind, value))
        if name is None:
            if len(self._indexes) >= _MAX_INDEXES:
                self._indexes.clear()
            name = self._indexes[kind, value] = f"{self._tag}{kind}:{self.page}#{value}"
        return name


@lru_cache(maxsize=65536)
def shard_of(page: str, shards: int) -> int:
    """Return the shard of a page: CRC16 of its name, as Redis Cluster does it; `_bus` is on shard 0."""
    if shards == 1 or page == SYSTEM_PAGE:
        return 0
    return slot_of(page.encode()) % shards
