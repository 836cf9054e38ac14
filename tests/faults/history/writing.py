"""The writers of a round: publishers, claimers and workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from scratchbus import Bus, NewObservation, Observation
from scratchbus.domain.observation import Claim
from scratchbus.domain.values import millis
from scratchbus.errors import Conflict, EngineError, LogError, NotFound
from scratchbus.eventlog.ids import new_id
from scratchbus.page import Page
from scratchbus.work import Job
from tests.faults.history.journal import Journal
from tests.faults.marks import marked

if TYPE_CHECKING:
    from tests.faults.history.roles import Part

LEVELS = ("replica", "fsync")
CLAIM_TTL = 1.0  # seconds
WORK: dict[str, Any] = {"types": ["risk_alert"], "pages": ["main"], "ttl": "1s", "retry_delay": "50ms"}
_PAUSE = 0.02
_KEYS = [f"key-{number}" for number in range(5)]

Act = Callable[[str | None], Any]
"""A write, which receives the event id."""


class Writer:
    """A writer that records each write before it is sent and when it is answered."""

    def __init__(self, part: Part, journal: Journal, bus: Bus, level: str) -> None:
        self.name = part.name
        self.bus = bus
        self.random = part.random
        self._part, self._journal, self._level = part, journal, level
        self._count = 0

    def act(self, call: str, page: Page, mark: str, act: Act, *, own: bool = True, **guards: Any) -> Any:
        """Do one write; with an event id (`own`), retry until there is an answer.

        Return its result, or None. The body of its event contains the mark.
        """
        self._count += 1
        n, event_id = self._count, f"{self.name}.{self._count}" if own else None
        self._journal.note(
            "invoke", n=n, call=call, page=page.name, mark=mark, event_id=event_id, level=self._level, **guards
        )
        while True:
            try:
                answer = act(event_id)
            except (Conflict, NotFound) as refusal:
                return self._journal.note("refused", n=n, why=type(refusal).__name__)
            except (EngineError, LogError) as problem:
                self._journal.note("unknown", n=n, why=type(problem).__name__)
                if event_id is None:
                    return None
                time.sleep(_PAUSE)
                continue
            self._journal.note("ok", n=n, **_told(answer))
            return answer

    def some(self, page: Page, number: int = 10) -> Observation | None:
        """Return a random one of the newest observations of a page, or None."""
        try:
            found = page.list(limit=number, status=["active", "pending_review", "resolved"])
        except (EngineError, LogError):
            return None
        return self.random.choice(found) if found else None


def _told(answer: Any) -> dict[str, Any]:
    if isinstance(answer, list):
        return {"ids": [one.id for one in answer]}
    if isinstance(answer, Claim):
        return {"fence": answer.fence, "until": millis(answer.until)}
    return {"ids": [answer.id], "version": answer.version}


def publish(part: Part, journal: Journal) -> None:
    """Write all kinds of events to two pages."""
    level = LEVELS[part.number % 2]
    with part.connected(ack=level) as bus:
        writer = Writer(part, journal, bus, level)
        while not part.is_over:
            writer.random.choice(KINDS_OF_WRITES)(
                writer, bus.page("main" if writer.random.random() < 0.8 else "aside"), new_id()
            )
            part.rest(writer.random.uniform(0, 0.02))


def _add(writer: Writer, page: Page, mark: str) -> None:
    kind, own = writer.random.choice(["observation", "risk_alert", "reminder"]), writer.random.random() < 0.5
    writer.act("add", page, mark, lambda event_id: page.add(kind, mark, tags=["t"], event_id=event_id), own=own)


def _add_brief(writer: Writer, page: Page, mark: str) -> None:
    brief = writer.bus.page("brief")
    writer.act("add", brief, mark, lambda event_id: brief.add("observation", mark, ttl="300ms", event_id=event_id))


def _add_keyed(writer: Writer, page: Page, mark: str) -> None:
    key = writer.random.choice(_KEYS)

    def add(event_id: str | None) -> Observation:
        with marked(mark):
            return page.add("pattern_detected", "again", dedupe_key=key, event_id=event_id)

    writer.act("add, with a key", page, mark, add)


def _add_many(writer: Writer, page: Page, mark: str) -> None:
    items = [NewObservation(type="reminder", content=word) for word in ("one", mark, "three")]
    writer.act("add many", page, mark, lambda event_id: page.add_many(items, event_id=event_id))


def _change(writer: Writer, page: Page, mark: str, call: str, act: Callable[..., Any]) -> None:
    one = writer.some(page)
    if one is not None:
        version = one.version if writer.random.random() < 0.5 else None
        writer.act(
            call, page, mark,
            lambda event_id: act(one.id, expected_version=version, event_id=event_id),
            id=one.id, expected=version, own=writer.random.random() < 0.5,
        )  # fmt: skip


def _update(writer: Writer, page: Page, mark: str) -> None:
    _change(writer, page, mark, "update", lambda id, **guards: page.update(id, content=mark, **guards))


def _resolve(writer: Writer, page: Page, mark: str) -> None:
    _change(writer, page, mark, "resolve", lambda id, **guards: page.resolve(id, reason=mark, **guards))


def _review(writer: Writer, page: Page, mark: str) -> None:
    _change(writer, page, mark, "review", lambda id, **guards: page.review(id, reason=mark, **guards))


def _reopen(writer: Writer, page: Page, mark: str) -> None:
    _change(writer, page, mark, "reopen", lambda id, **guards: page.reopen(id, reason=mark, **guards))


def _link(writer: Writer, page: Page, mark: str) -> None:
    one = writer.some(page)
    if one is not None:
        writer.act("link", page, mark, lambda event_id: page.link(one.id, mark, event_id=event_id), id=one.id)


KINDS_OF_WRITES: list[Callable[[Writer, Page, str], None]] = [
    _add, _add, _add, _add, _add_brief, _add_keyed, _add_many, _update, _update, _resolve, _review, _reopen, _link,
]  # fmt: skip


def claim(part: Part, journal: Journal) -> None:
    """Claim observations, then write with the fence, and release or resolve; every fourth time too late."""
    with part.connected(ack="replica") as bus:
        writer, page = Writer(part, journal, bus, "replica"), bus.page("main")
        turn = 0
        while not part.is_over:
            one = writer.some(page, 2)
            held = _claim(writer, page, one.id) if one is not None else None
            if one is not None and held is not None:
                if turn % 4 == 0:
                    time.sleep(CLAIM_TTL * 1.2)
                _work(writer, page, one.id, held, writer.random)
                turn += 1
            part.rest(_PAUSE)


def _claim(writer: Writer, page: Page, id: str, fence: int | None = None) -> Claim | None:
    claimed: Claim | None = writer.act(
        "claim", page, "",
        lambda event_id: page.claim(id, by=writer.name, ttl=f"{CLAIM_TTL}s", event_id=event_id, fence=fence),
        id=id, fence=fence,
    )  # fmt: skip
    return claimed


def _work(writer: Writer, page: Page, id: str, held: Claim, random: Random) -> None:
    fence = held.fence
    for _ in range(random.randint(0, 2)):
        mark = new_id()
        writer.act("update", page, mark, _fenced(page.update, id, fence, content=mark), id=id, fence=fence)
        if random.random() < 0.3:
            time.sleep(0.05)
            _claim(writer, page, id, fence)
    if random.random() < 0.5:
        mark = new_id()
        writer.act("resolve", page, mark, _fenced(page.resolve, id, fence, reason=mark), id=id, fence=fence)
    else:
        writer.act("release", page, "", _fenced(page.release, id, fence), id=id, fence=fence)


def work(part: Part, journal: Journal) -> None:
    """Take jobs and resolve or fail them; start over after an error."""
    with part.connected(ack="replica") as bus:
        writer = Writer(part, journal, bus, "replica")
        while not part.is_over:
            with suppress(EngineError, LogError, Conflict, NotFound), bus.work("work", **WORK) as jobs:
                for job in jobs:
                    journal.note("job", id=job.id, fence=job.fence, until=millis(job.claim.until), attempt=job.attempt)
                    _do(writer, job)


def _do(writer: Writer, job: Job) -> None:
    page, about = writer.bus.page(job.page), dict[str, Any](id=job.id, fence=job.fence)
    mark = new_id()
    writer.act("update", page, mark, lambda event_id: job.update(content=mark, event_id=event_id), **about)
    if writer.random.random() < 0.3:
        time.sleep(writer.random.choice([0.05, CLAIM_TTL * 1.2]))  # the claim is renewed meanwhile
    if writer.random.random() < 0.8:
        reason = new_id()
        writer.act("resolve", page, reason, lambda event_id: job.resolve(reason=reason, event_id=event_id), **about)
    else:
        writer.act("release", page, "", lambda _: job.fail("on purpose"), own=False, **about)


def _fenced(act: Callable[..., Any], id: str, fence: int, **given: Any) -> Act:
    return lambda event_id: act(id, fence=fence, event_id=event_id, **given)
