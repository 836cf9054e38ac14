"""The keys that the engine holds, and what has to be in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

from scratchbus.domain.memories import Session
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import START, Position
from scratchbus.errors import shown
from scratchbus.eventlog import paged_out
from scratchbus.eventlog.codec import encode_document, read_document
from scratchbus.eventlog.keys import SYSTEM_PAGE, PageKeys, ShardKeys
from scratchbus.eventlog.layouts import SPAN, Head
from scratchbus.projections import scratch_page
from scratchbus.projections.projection import Document
from scratchbus.projections.scratch_page import may_be_paged_out
from scratchbus.projections.session import SUBJECT as SESSION
from scratchbus.projections.table import is_remembered
from scratchbus.readmodel.verify.expected import PageState, State

_INDEXES = ("type", "tag", "owner", "waiting")  # whose keys name a page and a value
"""The score of an open observation is its priority times this, plus the `seq` of the event that added it."""


class Holding(NamedTuple):
    """A key, and what has to be in it.

    `members` yields what has to be there. `judge` says of a member and its value, None for none, what is wrong, if
    anything; both go by the states as they are when they are called.
    """

    kind: str
    key: str
    type: Literal["hash", "zset"]
    members: Callable[[], Iterable[str]]
    judge: Callable[[str, bytes | None], str]


class Holdings:
    """What a shard has to hold: by `base` what is folded of it, and by `tip` what the append script wrote.

    `absent` are the pages and ids of what may be paged out, since its document is not stored, or an index does not have
    it (`unindexed`): whether it is has to be seen in one look.
    """

    def __init__(self, keys: ShardKeys) -> None:
        self.keys = keys
        self.build = 0
        self.floor = START
        self.base = State()
        self.tip = self.base.branch()
        self.absent: set[tuple[str, str]] = set()
        self.unindexed: set[tuple[str, str]] = set()

    def names(self) -> set[str]:
        """Return the keys that have to be there, as they are now."""
        common = PageKeys(self.keys, "", self.build)
        names = {self.keys.pages, common.due, common.gaps, *map(common.relation, scratch_page.RELATIONS)}
        for page in self.tip.names():
            names |= {self.keys.heads(page), self.keys.open(page), self.keys.dedupe(page)}
        for page in self.base.names():
            mine = PageKeys(self.keys, page, self.build)
            names |= {mine.docs, mine.memory, mine.all}
            for document in self.base.peek(page).live():
                names |= {mine.index(*index) for index in scratch_page.index_entries(document)}
        return names

    def holding(self, key: str) -> Holding | None:
        """Return what has to be in a key; None when it is not one of those that are compared member by member."""
        name, state = key.removeprefix(self.keys.tag), f"p{self.build}:"
        if name == "pages":
            return Holding("page", key, "hash", lambda: self.tip.names(), self._judge_page)
        if name.startswith(state):
            kind, _, rest = name.removeprefix(state).partition(":")
            if kind not in _INDEXES:  # someone may have appended events of a page whose name has a "#" in it
                return self._state_holding(key, kind, rest)
            page, _, value = rest.partition("#")
            return self._state_holding(key, kind, page, value)
        kind, _, page = name.partition(":")
        if kind == "heads":
            return Holding("head", key, "hash", partial(self._heads, page), partial(self._judge_head, page))
        if kind == "open":
            return _scores("room", key, partial(self._open, page), partial(self._room, page))
        if kind == "keys":
            return Holding("key", key, "hash", partial(self._held, page), partial(self._judge_key, page))
        return None

    def _state_holding(self, key: str, kind: str, page: str, value: str = "") -> Holding | None:
        def document(id: str) -> Observation | None:
            return self.base.peek(page).documents.get(id)

        def ids() -> Iterator[str]:
            return (one.id for one in self.base.peek(page).live())

        if kind == "docs":
            return Holding("document", key, "hash", ids, partial(self._judge_document, page))
        if kind == "paged":
            return Holding("paged", key, "hash", lambda: (), lambda _, row: self._judge_bucket(page, row))
        if kind == "memory":
            return Holding(
                "document", key, "hash", lambda: self.base.peek(page).kept(), partial(self._judge_kept, page)
            )
        if kind == "all":
            return self._index(key, page, ids, lambda id: one.added_seq if (one := document(id)) else None)
        if kind in _INDEXES:
            index = (kind, value)

            def place(id: str) -> int | None:
                one = document(id)
                return one.added_seq if one is not None and index in scratch_page.index_entries(one) else None

            return self._index(key, page, lambda: (id for id in ids() if place(id) is not None), place)
        if kind == "due":
            return _scores("due", key, self._due, self._moment)
        if kind in scratch_page.RELATIONS:
            members = self.base.relations[kind]
            return _scores("relation", key, lambda: members, lambda member: 0 if member in members else None)
        if kind == "gaps":
            return Holding("gap", key, "hash", lambda: self.base.gaps, self._judge_gap)
        return None

    # -- what the append script wrote ------------------------------------------------------------------------------

    def _heads(self, page: str) -> Iterator[str]:
        return (id for id, subject in self.tip.peek(page).subjects.items() if subject.is_sure)

    def _judge_head(self, page: str, id: str, row: bytes | None) -> str:
        subject = self.tip.peek(page).subjects.get(id)
        if subject is not None and row is None and self._may_be_dropped(page, id):
            return ""
        if subject is None or row is None:
            return _presence(subject is not None, row is not None)
        if not subject.is_sure:
            return ""  # what is no event did not come by the script
        try:
            head = Head.parse(row)
        except (ValueError, TypeError):
            return f"cannot be read: {shown(row)}"
        if page == SYSTEM_PAGE:
            return _differences((head.version, head.position), (subject.events, subject.last), ("version", "position"))
        wanted = self.tip.peek(page).head(id)
        if wanted is not None and not wanted.added:  # it was erased, and what it had been
            head = head._replace(priority=0, added=0, fence=0)
        return _differences(head, wanted, Head._fields) if wanted is not None else _presence(False, True)

    def _may_be_dropped(self, page: str, id: str) -> bool:
        """Say whether a head may have been dropped: nothing more happens to it, and it follows from the rest."""
        head, session = self.tip.peek(page).head(id), self.tip.peek(page).remembered.get(SESSION)
        if (document := self.tip.peek(page).documents.get(id)) is not None and may_be_paged_out(document):
            return True
        if head is None or Position.parse(head.position).seq > self.floor.seq:
            return False
        is_over = isinstance(session, Session) and session.ended and session.seq <= self.floor.seq
        return head.status_class == "f" or (is_over and id != SESSION and is_remembered(id))

    def _room(self, page: str, id: str) -> int | None:
        document = self.tip.peek(page).documents.get(id)
        return document.priority * SPAN + document.added_seq if document is not None and document.is_open else None

    def _open(self, page: str) -> Iterator[str]:
        return (one.id for one in self.tip.peek(page).live() if one.is_open)

    def _held(self, page: str) -> Iterator[str]:
        return (word for word, holder in self.tip.peek(page).holders.items() if holder is not None)

    def _judge_key(self, page: str, word: str, row: bytes | None) -> str:
        holder = self.tip.peek(page).holders.get(word)
        if holder is None or row is None:
            return _presence(holder is not None, row is not None)
        return "" if row == holder.encode() else f"is held by {shown(row)}, not by {holder}"

    def _judge_page(self, name: str, row: bytes | None) -> str:
        if name not in self.tip.names() or row is None:
            return _presence(name in self.tip.names(), row is not None)
        page: PageState = self.tip.peek(name)
        soonest = min((head.expires for id in self._open(name) if (head := page.head(id)) and head.expires), default=0)
        if not row.isdigit() or (soonest and int(row) > soonest):
            return f"is {shown(row)}, after {soonest}, when the first on it expires"
        return ""

    # -- what is paged out -----------------------------------------------------------------------------------------

    def _judge_document(self, page: str, id: str, row: bytes | None) -> str:
        wanted = self.base.peek(page).documents.get(id)
        if row is None and wanted is not None and may_be_paged_out(wanted):
            self.absent.add((page, id))
            return ""
        return _judge_document(id, wanted, row)

    def _index(
        self, key: str, page: str, members: Callable[[], Iterable[str]], wanted: Callable[[str], float | None]
    ) -> Holding:
        held = _scores("index", key, members, wanted)

        def judge(id: str, row: bytes | None) -> str:
            document = self.base.peek(page).documents.get(id)
            if row is None and document is not None and may_be_paged_out(document):
                self.absent.add((page, id))
                self.unindexed.add((page, id))
                return ""
            return held.judge(id, row)

        return held._replace(judge=judge)

    def _judge_bucket(self, page: str, row: bytes | None) -> str:
        """Judge the ids of a bucket, which may be paged in by the time their places are compared."""
        wrong = []
        for id, added in paged_out.ids_in(row).items():
            document = self.base.peek(page).documents.get(paged_out.whole(id))
            if document is None or document.added_seq != added:
                wrong.append(f"{paged_out.whole(id)} was not added by event {added}")
            self.absent.add((page, paged_out.whole(id)))
        return ", ".join(wrong)

    def judge_absent(self, page: str, id: str, row: bytes | None, index: paged_out.IndexEdit) -> str:
        """Say what is wrong with a document that may be stored or paged out, but not both, and not neither."""
        wanted = self.base.peek(page).documents.get(id)
        place = index.find(id)
        if place is None or wanted is None:
            is_unindexed = row is not None and (page, id) in self.unindexed
            return _judge_document(id, wanted, row) or ("is stored, and missing in an index" if is_unindexed else "")
        if row is not None:
            return "is stored and paged out at once"
        if not may_be_paged_out(wanted):
            return "is paged out and not final"
        return _differences(place, paged_out.PagedOut.of(wanted), paged_out.PagedOut._fields)

    # -- what is folded --------------------------------------------------------------------------------------------

    def _judge_kept(self, page: str, subject: str, row: bytes | None) -> str:
        return _judge_document(subject, self.base.peek(page).remembered.get(subject), row)

    def _due(self) -> Iterator[str]:
        for page in self.base.names():
            for document in self.base.peek(page).live():
                if scratch_page.next_moment(document) is not None:
                    yield f"{document.id}@{page}"

    def _moment(self, member: str) -> int | None:
        id, _, page = member.partition("@")
        document = self.base.peek(page).documents.get(id)
        return scratch_page.next_moment(document) if document is not None else None

    def _judge_gap(self, place: str, row: bytes | None) -> str:
        missing = self.base.gaps.get(place)
        if missing is None or row is None:
            return _presence(missing is not None, row is not None)
        return "" if row == str(missing).encode() else f"says {shown(row)} instead of {missing}"


def _scores(
    kind: str, key: str, members: Callable[[], Iterable[str]], wanted: Callable[[str], float | None]
) -> Holding:
    """Return a sorted set whose members have these scores."""

    def judge(member: str, row: bytes | None) -> str:
        score = wanted(member)
        if score is None or row is None:
            return _presence(score is not None, row is not None)
        return "" if float(row) == score else f"has the score {row.decode()} instead of {score}"

    return Holding(kind, key, "zset", members, judge)


def _presence(is_wanted: bool, is_there: bool) -> str:
    return "is missing" if is_wanted and not is_there else "should not be there" if is_there and not is_wanted else ""


def _judge_document(subject: str, wanted: Document | None, row: bytes | None) -> str:
    if wanted is None or row is None:
        return _presence(wanted is not None, row is not None)
    if row == encode_document(wanted):
        return ""
    try:
        held = read_document(subject, row)
    except ValueError:
        return f"cannot be read: {shown(row)}"
    names = list(type(wanted).model_fields)
    return _differences([getattr(held, name) for name in names], [getattr(wanted, name) for name in names], names)


def _differences(held: Iterable[Any], wanted: Iterable[Any], names: Iterable[str]) -> str:
    """Describe the fields that differ: actual and expected value."""
    return ", ".join(
        f"{name} is {shown(one)} instead of {shown(other)}"
        for name, one, other in zip(names, held, wanted, strict=True)
        if one != other
    )
