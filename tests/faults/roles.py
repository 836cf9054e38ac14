"""A server with the shipped access list, and the operations that its users try."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple
from urllib.parse import quote

from scratchbus import Bus, Job, NewObservation, new_webhook_secret
from scratchbus.archive.export import line_of
from scratchbus.domain.events import Linked
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.engine.steps import ask
from scratchbus.eventlog.trim import Archiving
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.scheduling.expiry import sweep
from tests.faults.operations import OPERATIONS, prepare
from tests.faults.servers import Server
from tests.past_pages import only

ACCESS_LIST = Path(__file__).parents[2] / "config" / "users.acl"
SECRET = "s3cr3t/:@?#%"

READS = frozenset({"reader", "subscriber", "publisher", "projector", "admin"})
SUBSCRIBES = frozenset({"subscriber", "publisher", "admin"})
APPENDS = frozenset({"publisher", "projector", "admin"})
COMMITS = frozenset({"projector", "admin"})
ADMINISTERS = frozenset({"admin"})
NOBODY = frozenset[str]()

_names = count(1)


def write_access_list(directory: Path) -> Path:
    """Write the shipped access list, with one password for all roles; the default user may do everything."""
    listed = directory / "users.acl"
    password = hashlib.sha256(SECRET.encode()).hexdigest()
    text = ACCESS_LIST.read_text().replace(" off -@all", f" on #{password} -@all")
    listed.write_text(text.replace("user default off", "user default on nopass ~* &* +@all"))
    return listed


def login(role: str) -> str:
    """Return the user and password of a role for a URL."""
    return f"{role}:{quote(SECRET, safe='')}@"


class GuardedServer(Server):
    """A server with the access list, one password for all roles, and a default user that may do everything."""

    def __init__(self, binary: Path) -> None:
        super().__init__(binary, tcp=True)
        self.config["aclfile"] = str(write_access_list(self.directory))

    def url_of(self, role: str) -> str:
        """Return the URL for a user of this role."""
        return f"unix://{login(role)}{self.socket}"

    def changes(self) -> int:
        """Return the number of changes to the data so far."""
        with self.client() as client:
            return int(client.info("persistence")["rdb_changes_since_last_save"])


class Try(NamedTuple):
    """An operation to try: the roles that may do it, its preparation, and the call."""

    roles: frozenset[str]
    prepare: Callable[[Bus], list[Any]]
    act: Callable[..., object]


def rounds(roles: frozenset[str]) -> list[list[str]]:
    """Return all roles in groups, in each of which at most the last role may do the operation.

    So a group can try it one after the other on one preparation.
    """
    refused = sorted(READS - roles)
    allowed = sorted(roles, key=lambda role: (role in COMMITS, role))
    if roles == READS:
        return [allowed]
    return [refused + allowed[:1], *([role] for role in allowed[1:])]


def _some(bus: Bus) -> list[Any]:
    return [bus.page().add("risk_alert", "something", tags=["t"], owner="agent").id]


def _remembered(bus: Bus) -> list[Any]:
    bus.notes("s").add("x", ["a"])
    bus.notepad("s").write("x")
    return []


def _known(bus: Bus) -> list[Any]:
    bus.preferences("ada").remember("x", "y")
    bus.facts("ada").assert_fact("x", "uses", "z")
    return _remembered(bus)


def _said(bus: Bus) -> list[Any]:
    bus.turns("s").append("user", "x")
    bus.files("s").write("x.txt", "x")
    bus.texts("ada").create("x.md", "x")
    bus.items("shop").put(["a"], "k", {"x": 1})
    return []


def _planned(bus: Bus) -> list[Any]:
    bus.todo("s").write([{"id": "1", "content": "x"}])
    child = bus.spawn_session("s")
    with Bus.connect(bus.settings.url, source="subject") as subject:
        subject.scratchpad("subject").write("x")
    return [bus.begin_task("s", "x"), child]


def _run(bus: Bus, *_: object) -> None:
    with bus.run("subject", "x", ask=lambda _: '{"scratchpad": "y"}') as run:
        run.done()
    if run.steps[-1].name != "scratchpad_update":
        bus.scratchpad("subject").write("y")  # raises the error that the run has swallowed


def _ended(bus: Bus) -> list[Any]:
    _remembered(bus)
    bus.converse(catch_up(bus.core.log, bus.core.log.shard("session:s")))
    bus.end_session("s")
    return []


def _nothing(_: Bus) -> list[Any]:
    return []


def _linked(bus: Bus) -> list[Any]:
    (id,) = _some(bus)
    return [bus.page().link(id, action="goal-1").id]


def _view(bus: Bus, _: object) -> None:
    with bus.view() as view:
        assert len(view.active()) == 1


def _fold(bus: Bus, _: object) -> None:
    bus.converse(catch_up(bus.core.log, bus.core.log.shard("main")))


def _fold_session(bus: Bus) -> None:
    bus.converse(catch_up(bus.core.log, bus.core.log.shard("session:s")))


def _work(bus: Bus, _: object) -> None:
    with bus.work("hands", pages=["main"]) as jobs:
        next(iter(jobs)).resolve()


def _handle(bus: Bus, _: object) -> None:
    stop = threading.Event()
    bus.on(name=f"sub-{next(_names)}", after="1h ago")(lambda event: stop.set())
    bus.run_handlers(stop)


def _handle_job(bus: Bus, _: object) -> None:
    stop = threading.Event()

    @bus.on_job(name=f"hands-{next(_names)}")
    def settle(job: Job) -> None:
        job.resolve()
        stop.set()

    bus.run_handlers(stop)


def _consume(bus: Bus, name: str, handle: Callable[[Any], object]) -> None:
    with bus.subscribe(name, max_attempts=1) as deliveries:
        handle(next(iter(deliveries)))


def _subscribed(bus: Bus) -> list[Any]:
    _some(bus)
    name = f"sub-{next(_names)}"
    _consume(bus, name, lambda delivery: delivery.ack())
    return [name]


def _waiting(bus: Bus) -> list[Any]:
    """Prepare a subscription with events to pull."""
    name, start = f"sub-{next(_names)}", bus.position()
    bus.page().add_many([NewObservation(type="observation", content=f"{n}") for n in range(10)])
    bus.declare_subscription(name, after=start)
    return [name]


def _hooked(bus: Bus) -> list[Any]:
    name = f"sub-{next(_names)}"
    bus.declare_subscription(name, url="https://example.com/", secret=new_webhook_secret())
    return [name]


def _ack(bus: Bus, name: str) -> None:
    pulled = bus.pull(name, max=1)
    bus.ack(name, pulled.token, [each.position for each in pulled.deliveries])


def _requeue(bus: Bus, name: str) -> None:
    pulled = bus.pull(name, max=1)
    bus.requeue(name, pulled.token, [each.position for each in pulled.deliveries])


def _nack(bus: Bus, name: str) -> None:
    pulled = bus.pull(name, max=1)
    bus.nack(name, pulled.token, pulled.deliveries[0].position, "on purpose", delay=0)


def _with_dead_letter(bus: Bus) -> list[Any]:
    _some(bus)
    name = f"sub-{next(_names)}"
    _consume(bus, name, lambda delivery: delivery.fail("on purpose"))
    return [name]


def _go_back(bus: Bus, id: str) -> None:
    with only("from a snapshot"):
        assert bus.page().as_of(bus.position()).get(id) is not None


def _changed_types(bus: Bus) -> list[Any]:
    path = ACCESS_LIST.with_name("observation_types.yaml")
    return [f"{path.read_text()}\n  another_{next(_names)}:\n    description: Made up\n"]


def exported(bus: Bus) -> list[str]:
    """Return an export of a bus with one event more than it has."""
    events = [event for event in bus.events() if event.shard == bus.core.log.shard("main")]
    event = Linked(by="tester", action="goal-2")
    event = event.placed(
        id="late", page="main", subject=events[-1].subject, type=events[-1].type, prev=events[-1].position.stream_id,
        shard=events[-1].shard, ms=events[-1].ms, seq=events[-1].seq + 1,
    )  # fmt: skip
    return [line_of(each) for each in [*events, event]]


def _push(bus: Bus, text: str) -> None:
    bus.push_types(parse_registry(text, "types.yaml"))


def _push_relations(bus: Bus) -> None:
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(f"relations:\n  uses_{next(_names)}: {{}}\n")
        file.flush()
        bus.push_relations(file.name)


def _writes() -> dict[str, Try]:
    def row(name: str) -> Try:
        operation = OPERATIONS[name]
        return Try(
            APPENDS,
            lambda bus: prepare(operation, bus),
            lambda bus, *things: operation.act(bus.page(), *things, event_id=f"own-{next(_names)}"),
        )

    return {f"page: {name}": row(name) for name in OPERATIONS}


def _context(bus: Bus, record: bool = False) -> None:
    assert bus.context.assemble(session="s1", agent="subject", page="main", record=record).exposed


def _archive(bus: Bus) -> None:
    lease = Archiving(bus.core.log.keys(0), "0123", "subject", 60_000)
    bus.converse(lease.take())
    bus.converse(lease.leave())


def _raw(*command: str) -> Callable[[Bus], object]:
    return lambda bus: bus.converse(ask(0, *(word.replace("@:", bus.core.log.keys(0).tag) for word in command)))


TRIES: dict[str, Try] = {
    "page: get": Try(READS, _some, lambda bus, id: bus.page().get(id)),
    "page: list": Try(READS, _some, lambda bus, _: bus.page().list(type="risk_alert", tags=["t"], owner="agent")),
    "page: list all": Try(READS, _some, lambda bus, _: bus.page().list(text="some", limit=None)),
    "page: count": Try(READS, _some, lambda bus, _: bus.page().count(type="risk_alert", confidence=0.5)),
    "page: displaced": Try(READS, _some, lambda bus, id: bus.page().displaced(bus.page().get(id))),
    "page: counts": Try(READS, _some, lambda bus, _: bus.page().counts()),
    "page: active": Try(READS, _some, lambda bus, _: bus.page().active()),
    "page: active, stale": Try(READS, _some, lambda bus, _: bus.page().active(stale_ok=True)),
    "page: ready": Try(READS, _some, lambda bus, _: bus.page().ready()),
    "page: history": Try(READS, _some, lambda bus, id: bus.page().history(id)),
    "page: as of": Try(READS, _some, lambda bus, id: bus.page().as_of(bus.position()).get(id)),
    "page: as of, folded": Try(READS, _some, _go_back),
    "page: without a source": Try(READS, _some, lambda bus, _: bus.page().as_of(bus.position(), "tool").list()),
    "bus: events": Try(READS, _some, lambda bus, _: list(bus.events())),
    "bus: events of a page": Try(READS, _some, lambda bus, _: list(bus.events(pages=["main"]))),
    "bus: last events": Try(READS, _some, lambda bus, _: bus.last_events(5)),
    "bus: histogram": Try(READS, _some, lambda bus, _: bus.histogram()),
    "bus: pages": Try(READS, _some, lambda bus, _: bus.pages()),
    "bus: position": Try(READS, _some, lambda bus, _: bus.position()),
    "bus: wait for events": Try(READS, _nothing, lambda bus: bus.wait_for_events({0: bus.position().shards[0]}, 0.01)),
    "bus: status": Try(READS, _some, lambda bus, _: bus.status()),
    "bus: refresh types": Try(READS, _nothing, lambda bus: bus.refresh_types()),
    "bus: view": Try(READS, _some, _view),
    "bus: dead letters": Try(READS, _with_dead_letter, lambda bus, name: bus.dead_letters(name)),
    "bus: subscribe": Try(SUBSCRIBES, _some, lambda bus, _: _consume(bus, "mine", lambda delivery: delivery.ack())),
    "bus: on": Try(SUBSCRIBES, _some, _handle),
    "bus: run handlers": Try(SUBSCRIBES, _some, _handle),
    "bus: retry dead letters": Try(SUBSCRIBES, _with_dead_letter, lambda bus, name: bus.retry_dead_letters(name)),
    "bus: drop dead letters": Try(SUBSCRIBES, _with_dead_letter, lambda bus, name: bus.drop_dead_letters(name)),
    "bus: subscriptions": Try(READS, _subscribed, lambda bus, _: bus.subscriptions()),
    "bus: webhook": Try(READS, _hooked, lambda bus, name: bus.webhook(name)),
    "bus: declare subscription": Try(SUBSCRIBES, _some, lambda bus, _: bus.declare_subscription("mine")),
    "bus: pull": Try(SUBSCRIBES, _waiting, lambda bus, name: bus.pull(name, max=1)),
    "bus: ack": Try(SUBSCRIBES, _waiting, _ack),
    "bus: nack": Try(SUBSCRIBES, _waiting, _nack),
    "bus: requeue": Try(SUBSCRIBES, _waiting, _requeue),
    "bus: unsubscribe": Try(SUBSCRIBES, _subscribed, lambda bus, name: bus.unsubscribe(name)),
    **_writes(),
    "page: claim next": Try(APPENDS, _some, lambda bus, _: bus.page().claim_next(types=["risk_alert"], tags=["t"])),
    "page: refute": Try(APPENDS, _some, lambda bus, id: bus.page().refute(id, reason="it is not so")),
    "page: erase": Try(ADMINISTERS, _some, lambda bus, id: bus.page().erase(id, reason="asked for")),
    "page: trace": Try(READS, _linked, lambda bus, _: bus.page().trace("goal-1")),
    "page: consequences": Try(READS, _some, lambda bus, id: bus.page().consequences(id)),
    "page: evidence": Try(READS, _some, lambda bus, id: bus.page().evidence(id)),
    "page: whole id": Try(READS, _some, lambda bus, id: bus.page().whole_id(id[-6:])),
    "page: exposure": Try(READS, _some, lambda bus, id: bus.page().exposure(id)),
    "page: log read": Try(READS, _some, lambda bus, id: bus.page().log_read(bus.page().list())),
    "assemble a context": Try(READS, _some, lambda bus, _: _context(bus)),
    "surface": Try(READS, _some, lambda bus, _: bus.context.surface("some")),
    "record a context": Try(APPENDS, _some, lambda bus, _: _context(bus, record=True)),
    "bus: work": Try(APPENDS, _some, _work),
    "bus: on job": Try(APPENDS, _some, _handle_job),
    "bus: notes": Try(READS, _remembered, lambda bus: bus.notes("s").search("x", ["a"])),
    "bus: notes, taken": Try(APPENDS, _remembered, lambda bus: bus.notes("s").add("x")),
    "bus: notepad": Try(READS, _remembered, lambda bus: bus.notepad("s").read()),
    "bus: notepad, edited": Try(APPENDS, _remembered, lambda bus: bus.notepad("s").append("x")),
    "bus: preferences": Try(READS, _known, lambda bus: bus.preferences("ada").list()),
    "bus: preferences, remembered": Try(APPENDS, _known, lambda bus: bus.preferences("ada").remember("x", "z")),
    "bus: facts": Try(READS, _known, lambda bus: bus.facts("ada").query("x")),
    "bus: facts, asserted": Try(APPENDS, _known, lambda bus: bus.facts("ada").assert_fact("x", "uses", "y")),
    "bus: recall": Try(READS, _known, lambda bus: bus.recall("x", scopes=["ada"], sessions=["s"])),
    "bus: recall, the past": Try(READS, _known, lambda bus: bus.recall("x", scopes=["ada"], at=bus.position())),
    "bus: turns": Try(READS, _said, lambda bus: bus.turns("s").shown()),
    "bus: turns, appended": Try(APPENDS, _said, lambda bus: bus.turns("s").append("user", "y")),
    "bus: files": Try(READS, _said, lambda bus: bus.files("s").list()),
    "bus: files, written": Try(APPENDS, _said, lambda bus: bus.files("s").write("y.txt", "y")),
    "bus: evict files": Try(READS, _said, lambda bus: bus.evict_files()),
    "bus: texts": Try(READS, _said, lambda bus: bus.texts("ada").read("x.md")),
    "bus: texts, created": Try(APPENDS, _said, lambda bus: bus.texts("ada").create("y.md", "y")),
    "bus: items": Try(READS, _said, lambda bus: bus.items("shop").read()),
    "bus: items, put": Try(APPENDS, _said, lambda bus: bus.items("shop").put(["a"], "l", {})),
    "bus: session": Try(READS, _remembered, lambda bus: bus.session("s")),
    "bus: sessions": Try(READS, _remembered, lambda bus: bus.sessions()),
    "bus: agents": Try(READS, _planned, lambda bus, *_: bus.agents()),
    "bus: spawn session": Try(APPENDS, _remembered, lambda bus: bus.spawn_session("s", copy_notepad=True)),
    "bus: fork session": Try(APPENDS, _remembered, lambda bus: bus.fork_session("s")),
    "bus: end session": Try(APPENDS, _remembered, lambda bus: bus.end_session("s")),
    "bus: todo": Try(READS, _planned, lambda bus, *_: bus.todo("s").read()),
    "bus: todo, written": Try(APPENDS, _planned, lambda bus, *_: bus.todo("s").write([])),
    "bus: scratchpad": Try(READS, _planned, lambda bus, *_: bus.scratchpad("subject").whoami()),
    "bus: scratchpad, written": Try(APPENDS, _planned, lambda bus, *_: bus.scratchpad("subject").write("y")),
    "bus: run": Try(APPENDS, _planned, _run),
    "bus: begin task": Try(APPENDS, _planned, lambda bus, *_: bus.begin_task("s", "y")),
    "bus: end task": Try(APPENDS, _planned, lambda bus, task, _: bus.end_task(task, "y")),
    "bus: report result": Try(APPENDS, _planned, lambda bus, _, child: bus.report_result(child, "y")),
    "commit the end of a session": Try(COMMITS, _ended, _fold_session),
    "commit folded events": Try(COMMITS, _some, _fold),
    "sweep expired observations": Try(
        COMMITS,
        lambda bus: [bus.page().add("observation", "short", ttl="1ms")],
        lambda bus, _: bus.converse(sweep(bus.core)),
    ),
    "sweep recurring observations": Try(
        COMMITS,
        lambda bus: [bus.page().add("observation", "often", every="1h", not_before=datetime.now(UTC))],
        lambda bus, _: bus.converse(sweep(bus.core)),
    ),
    "move the cursor of reminders": Try(COMMITS, _nothing, _raw("SET", "@:cursor:reminders", "")),
    "create a bus": Try(COMMITS, _nothing, _raw("HSETNX", "@:meta", "made", "1")),
    "bus: import events": Try(ADMINISTERS, _some, lambda bus, *_: bus.import_events(exported(bus))),
    "bus: verify": Try(ADMINISTERS, _some, lambda bus, _: bus.verify()),
    "bus: repair": Try(ADMINISTERS, _some, lambda bus, _: bus.repair()),
    "bus: rebuild": Try(ADMINISTERS, _some, lambda bus, _: bus.rebuild()),
    "archive": Try(ADMINISTERS, _some, lambda bus, _: _archive(bus)),
    "bus: push types": Try(ADMINISTERS, _changed_types, _push),
    "bus: push relations": Try(ADMINISTERS, _nothing, _push_relations),
    "bus: relations": Try(READS, _nothing, lambda bus: bus.relations()),
    "write to a system page": Try(
        ADMINISTERS, _nothing, lambda bus: bus.page("_own").add("observation", "x", event_id="own")
    ),
    "delete the log": Try(ADMINISTERS, _nothing, _raw("DEL", "@:log")),
    "trim the log with XADD, which counts as an append": Try(
        APPENDS, _some, lambda bus, _: _raw("XADD", "@:log", "MAXLEN", "1000000", "9999999999999-0", "by", "hand")(bus)
    ),
    "trim the log": Try(ADMINISTERS, _some, lambda bus, _: _raw("XTRIM", "@:log", "MAXLEN", "0")(bus)),
    "replace the log": Try(ADMINISTERS, _nothing, _raw("SET", "@:log", "x")),
    "flush the server": Try(NOBODY, _nothing, _raw("FLUSHALL")),
    "list all keys": Try(NOBODY, _nothing, _raw("KEYS", "*")),
    "change the server's settings": Try(NOBODY, _nothing, _raw("CONFIG", "SET", "maxmemory", "1")),
    "change the access list": Try(NOBODY, _nothing, _raw("ACL", "SETUSER", "publisher", "+@all")),
    "read another bus": Try(NOBODY, _nothing, _raw("GET", "{another:0}:tail")),
    "write to another bus": Try(NOBODY, _nothing, _raw("SET", "{another:0}:tail", "x")),
}
"""The tries by name."""
