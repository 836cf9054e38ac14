"""A model of a page, written independently and as simply as possible: no log, no engine, no events."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

ROOM = 4
WEEK = 7 * 86_400_000
HOUR = 3_600_000

PRIORITY = {"risk_alert": 90, "reminder": 60, "pattern_detected": 40, "observation": 20}
LIFE = {"risk_alert": WEEK, "reminder": None, "pattern_detected": 30 * 86_400_000, "observation": WEEK}
NEXT = {
    "active": {"pending_review", "resolved", "archived"},
    "pending_review": {"active", "resolved", "archived"},
    "resolved": {"active", "pending_review", "archived"},
    "archived": set(),
}
OPEN = {"active", "pending_review"}


class Refused(Exception):
    """The name of the error that the bus must raise."""


@dataclass
class Item:
    """An observation in the model; times are in milliseconds, None means never."""

    type: str
    content: str
    order: int
    key: str | None = None
    tags: tuple[str, ...] = ()
    status: str = "active"
    version: int = 1
    occurrences: int = 1
    links: tuple[str, ...] = ()
    ends: int | None = None
    life: int | None = None  # the last given TTL; None also for an end that was given as a time
    archived_at: int | None = None
    due_at: int | None = None
    has_been_due: bool = False
    holder: str | None = None  # each client has its own source, so it is the only holder of that name
    held_until: int = 0
    fence: int = 0
    attempts: int = 0

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    def is_over(self, now: int) -> bool:
        return self.is_open and self.ends is not None and self.ends <= now

    def is_held(self, now: int) -> bool:
        return self.holder is not None and self.held_until > now

    def seen_status(self, now: int) -> str:
        return "archived" if self.is_over(now) else self.status

    def leave(self, status: str) -> None:
        """Change to a status that is not open."""
        self.status, self.holder, self.due_at, self.archived_at = status, None, None, None
        self.attempts = 0
        self.version += 1


@dataclass
class New:
    """The arguments of an addition."""

    type: str
    content: str
    key: str | None = None
    tags: tuple[str, ...] = ()
    life: int | None = None
    lives_for_ever: bool = False
    due_at: int | None = None

    @property
    def lives(self) -> int | None:
        return None if self.lives_for_ever else self.life or LIFE[self.type]

    def end(self, now: int) -> int | None:
        return None if self.lives is None else now + self.lives


@dataclass
class PageModel:
    """A page: its items by id, or by a placeholder until the bus has returned their id."""

    items: dict[str, Item] = field(default_factory=dict)
    cleared: set[str] = field(default_factory=set)
    erased: set[str] = field(default_factory=set)
    count: int = 0

    # -- reading

    def active(self, now: int) -> list[str]:
        found = [id for id, item in self.items.items() if item.seen_status(now) == "active"]
        return sorted(found, key=lambda id: (-PRIORITY[self.items[id].type], -self.items[id].order))

    def newest_first(self) -> list[str]:
        return sorted(self.items, key=lambda id: -self.items[id].order)

    # -- adding

    def add(self, news: list[New], now: int) -> list[str]:
        """Add all or nothing; return the id of each, or a placeholder for a new one."""
        before = deepcopy((self.items, self.count))
        mine = {id for new in news if (id := self._holder(new.key)) is not None}
        try:
            return [self._add(new, now, mine) for new in news]
        except Refused:
            self.items, self.count = before
            raise

    def _add(self, new: New, now: int, mine: set[str]) -> str:
        holder = self._holder(new.key)
        if holder is not None:
            item = self.items[holder]
            if not item.is_over(now):
                item.occurrences += 1
                item.version += 1
                if new.lives is not None:
                    item.ends, item.life = new.end(now), new.lives
                return holder
            item.leave("archived")
        self._make_room(PRIORITY[new.type], now, mine)
        self.count += 1
        id = f"new {self.count}"
        self.items[id] = Item(
            new.type,
            new.content,
            self.count,
            key=new.key,
            tags=new.tags,
            ends=new.end(now),
            life=new.lives,
            due_at=new.due_at,
        )
        mine.add(id)
        return id

    def name(self, placeholder: str, id: str) -> None:
        """Give an item the id that the bus chose."""
        self.items[id] = self.items.pop(placeholder)

    def _holder(self, key: str | None) -> str | None:
        if key is None:
            return None
        return next((id for id, item in self.items.items() if item.is_open and item.key == key), None)

    def _make_room(self, priority: int, now: int, mine: set[str]) -> None:
        is_open = {id: item for id, item in self.items.items() if item.is_open}
        if len(is_open) < ROOM:
            return
        for item in is_open.values():
            if item.is_over(now):
                item.leave("archived")
        while sum(item.is_open for item in self.items.values()) >= ROOM:
            candidates = [
                (PRIORITY[item.type], item.order, id)
                for id, item in self.items.items()
                if item.is_open and id not in mine and not item.is_held(now) and PRIORITY[item.type] <= priority
            ]
            if not candidates:
                raise Refused("PageFull")
            self.items[min(candidates)[2]].leave("archived")

    # -- changing

    def _item(self, id: str) -> Item:
        if id not in self.items:
            raise Refused("NotFound")
        return self.items[id]

    def _check_version(self, item: Item, version: int | None) -> None:
        if version is not None and version != item.version:
            raise Refused("VersionConflict")

    def _check_fence(self, item: Item, by: str, fence: int | None, now: int) -> None:
        if fence is not None and not (item.is_held(now) and item.fence == fence):
            raise Refused("StaleFence")
        if fence is not None and item.holder != by:
            raise Refused("Claimed")

    def _check_holder(self, item: Item, by: str, now: int) -> None:
        if item.is_held(now) and item.holder != by:
            raise Refused("Claimed")

    def update(
        self,
        id: str,
        now: int,
        by: str,
        tags: tuple[str, ...],
        ends: int | None,
        version: int | None,
        fence: int | None,
    ) -> None:
        item = self._item(id)
        self._check_version(item, version)
        self._check_fence(item, by, fence, now)
        if item.seen_status(now) == "archived":
            raise Refused("NotChangeable")
        self._check_holder(item, by, now)
        item.tags = tags
        item.ends, item.life = ends, None
        item.version += 1

    def move(self, id: str, status: str, now: int, by: str, version: int | None, fence: int | None) -> None:
        item = self._item(id)
        self._check_version(item, version)
        self._check_fence(item, by, fence, now)
        if status not in NEXT[item.seen_status(now)]:
            raise Refused("InvalidTransition")
        self._check_holder(item, by, now)
        if status in OPEN and not item.is_open:
            self._reopen(id, item, status, now)
        elif status in OPEN:
            item.status, item.attempts = status, 0
            item.version += 1
        else:
            item.leave(status)
            if status == "resolved":
                item.archived_at = now + HOUR

    def _reopen(self, id: str, item: Item, status: str, now: int) -> None:
        before = deepcopy(self.items)
        try:
            other = self._holder(item.key)
            if other is not None:
                if not self.items[other].is_over(now):
                    raise Refused("KeyHeld")
                self.items[other].leave("archived")
            self._make_room(PRIORITY[item.type], now, {id})
        except Refused:
            self.items = before
            raise
        if item.life is None and item.ends is not None and item.ends <= now:
            item.life = LIFE[item.type]
            item.ends = None
        if item.life is not None:
            item.ends = now + item.life
        item.status, item.archived_at, item.attempts = status, None, 0
        item.version += 1

    def claim(self, id: str, now: int, by: str, ttl: int, fence: int | None) -> None:
        item = self._item(id)
        self._check_fence(item, by, fence, now)
        if not item.is_open or item.is_over(now):
            raise Refused("NotChangeable")
        if item.is_held(now):
            if fence is None:
                raise Refused("Claimed")
        else:
            if item.holder is not None:
                item.version += 1  # it lapsed
            item.fence += 1
        item.holder, item.held_until = by, now + ttl
        item.version += 1

    def claim_next(self, now: int, by: str, ttl: int, types: set[str] | None, tags: tuple[str, ...]) -> str | None:
        """Claim the next free item and return its id, or None if there is none."""
        for id in self.active(now):
            item = self.items[id]
            fits = (types is None or item.type in types) and set(tags) <= set(item.tags)
            if fits and not item.is_held(now):
                self.claim(id, now, by, ttl, None)
                item.attempts += 1
                return id
        return None

    def release(self, id: str, now: int, by: str, fence: int | None) -> None:
        item = self._item(id)
        self._check_fence(item, by, fence, now)
        if not item.is_held(now):
            raise Refused("NotClaimed")
        self._check_holder(item, by, now)
        item.holder = None
        item.version += 1

    def link(self, id: str, action: str, now: int, by: str, fence: int | None) -> None:
        item = self._item(id)
        self._check_fence(item, by, fence, now)
        if action not in item.links:
            item.links += (action,)
        item.version += 1

    def clear(self, ids: list[str], now: int) -> None:
        for id in ids:
            if self._item(id).seen_status(now) != "resolved":
                raise Refused("NotChangeable")
        for id in ids:
            del self.items[id]
            self.cleared.add(id)

    def erase(self, id: str) -> None:
        self.items.pop(id, None)
        self.cleared.discard(id)
        self.erased.add(id)

    # -- time

    def sweep(self, now: int) -> int:
        """Apply one due change to each item that has one; return their number."""
        count = 0
        for item in self.items.values():
            if item.is_over(now):
                item.leave("archived")
            elif item.holder is not None and item.held_until <= now:
                item.holder = None
                item.version += 1
            elif item.archived_at is not None and item.archived_at <= now:
                item.leave("archived")
            elif item.due_at is not None and item.due_at <= now:
                item.due_at, item.has_been_due = None, True
                item.version += 1
            else:
                continue
            count += 1
        return count
