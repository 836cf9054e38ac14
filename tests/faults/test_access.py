"""The shipped access list: each role may do its operations; others are refused with an error and change nothing."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, because
from scratchbus.adapters.langgraph import ScratchbusStore
from scratchbus.engine.scripts import Script
from scratchbus.errors import EngineAuth, EngineForbidden, EngineLoading, InvalidTransition, LogBlocked
from scratchbus.eventlog.append_script import ADD, APPEND
from scratchbus.eventlog.subscription_script import subscription_script
from scratchbus.page import Page
from scratchbus.readmodel.page_query import IN_MEMORY
from scratchbus.scheduling.paging_out import page_out
from tests.faults.checker import check
from tests.faults.operations import SUBJECT
from tests.faults.roles import (
    ACCESS_LIST,
    ADMINISTERS,
    APPENDS,
    COMMITS,
    READS,
    SECRET,
    TRIES,
    GuardedServer,
    Try,
    rounds,
)
from tests.faults.servers import Server, embedded_binary, system_binary
from tests.inspection import archive, log_length, project
from tests.past_pages import only, stored_snapshots
from tests.waiting import eventually

pytestmark = pytest.mark.real

ROLES = sorted(READS)
WITHOUT_COMMANDS = {"connect", "page", "converse", "settings", "types", "close"}
"""Names of a bus that send no command of their own, or that every try uses."""


@pytest.fixture(scope="module", params=["embedded", "system"])
def guarded(request: pytest.FixtureRequest) -> Iterator[GuardedServer]:
    binary = embedded_binary() if request.param == "embedded" else system_binary()
    if binary is None:
        pytest.skip("redis-server is not installed")
    server = GuardedServer(binary)
    server.start()
    yield server
    server.close()


@contextmanager
def empty_bus(guarded: GuardedServer) -> Iterator[Bus]:
    """Flush the server and open a bus on it as a user who may do everything."""
    with guarded.client() as client:
        client.flushall()
    with Bus.connect(guarded.url, source="owner") as bus:
        yield bus


@pytest.fixture
def bus(guarded: GuardedServer) -> Iterator[Bus]:
    with empty_bus(guarded) as bus:
        yield bus


def test_a_user_who_may_not_wait_learns_how_to_retry_the_write(guarded: GuardedServer, bus: Bus) -> None:
    with guarded.client() as client:
        client.acl_setuser("hasty", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-wait"])
    for content in "ab":
        bus.page("main").add("observation", content)  # loads the scripts
    url = f"unix://hasty:x@{guarded.socket}"
    with Bus.connect(url, source="owner", ack="replica", replicas=1) as hasty:
        with pytest.raises(EngineForbidden, match="the outcome of the last write is unknown") as refused:
            hasty.page("main").add("observation", "x")
        assert [event.id for event in bus.events()][2:] == [refused.value.event_id]
    with guarded.client() as client:
        client.acl_deluser("hasty")


@pytest.mark.parametrize("name", TRIES)
def test_a_role_is_allowed_its_operations_and_no_others(guarded: GuardedServer, name: str) -> None:
    wanted = TRIES[name]
    for roles in rounds(wanted.roles):
        with empty_bus(guarded) as bus:
            things = wanted.prepare(bus)
            for role in roles:
                assert_tried(guarded, role, wanted, things)


def assert_tried(guarded: GuardedServer, role: str, wanted: Try, things: list[Any]) -> None:
    """Check that a role may do an operation, or is refused and changes nothing."""
    with Bus.connect(guarded.url_of(role), **SUBJECT) as mine:
        before = guarded.changes()
        if role in wanted.roles:
            wanted.act(mine, *things)
        else:
            with pytest.raises(EngineForbidden, match=role) as caught:
                wanted.act(mine, *things)
            assert "right role" in str(caught.value)
            assert "\n" not in str(caught.value)
            assert "s3cr3t" not in repr(caught.value)
        if role not in wanted.roles or (wanted.roles == READS and role not in COMMITS):
            assert guarded.changes() == before


def test_every_public_method_is_tried() -> None:
    for what, cls in (("page", Page), ("bus", Bus)):
        names = {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")} - WITHOUT_COMMANDS
        tried = tuple(name.partition(": ")[2] for name in TRIES if name.startswith(what))
        missing = {name for name in names if not any(each.startswith(name.replace("_", " ")) for each in tried)}
        assert missing == set()


@pytest.mark.parametrize("role", ROLES)
def test_only_committing_roles_store_a_snapshot(guarded: GuardedServer, bus: Bus, role: str) -> None:
    one = bus.page().add("observation", "x")
    with Bus.connect(guarded.url_of(role)) as mine, only("from a snapshot"):
        assert mine.page().as_of(one.position).list() == [one]
    assert stored_snapshots(bus.page()) == (role in COMMITS)


@pytest.mark.parametrize("role", ROLES)
def test_only_appending_roles_log_their_reads(guarded: GuardedServer, bus: Bus, role: str) -> None:
    one = bus.page().add("observation", "x")
    with Bus.connect(guarded.url_of(role), source="subject", log_reads=1) as mine:
        assert mine.page().list() == mine.page().active() == [mine.page().get(one.id)] == [one]
    assert bus.page().exposure(one.id).viewers() == (["agent:subject"] if role in APPENDS else [])


@pytest.mark.parametrize("role", ROLES)
async def test_every_role_reads_items_of_a_langgraph_store_that_expire(
    guarded: GuardedServer, bus: Bus, role: str
) -> None:
    ScratchbusStore(bus).put(("a",), "k", {"n": 1}, ttl=5)
    with Bus.connect(guarded.url_of(role)) as mine:
        assert [item.value for item in ScratchbusStore(mine).search(("a",))] == [{"n": 1}]
    async with AsyncBus.connect(guarded.url_of(role)) as awaited:
        assert await ScratchbusStore(awaited).aget(("a",), "k") is not None
    kinds = [event.kind for event in bus.items().history(("a",), "k")]
    assert kinds == ["item_put", *(["item_used"] * 2 if role in APPENDS else [])]


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_archived_events(guarded: GuardedServer, bus: Bus, role: str, tmp_path: Path) -> None:
    terms: dict[str, Any] = {"archive_url": tmp_path, "retain": "1ms", "retain_events": 1}
    with Bus.connect(guarded.url, source="owner", **terms) as owner:
        ids = [owner.page().add("observation", str(number)).id for number in range(6)]
        owner.push_types(owner.types)
        owner.page().archive(ids[0])
        owner.page().add("observation", "last")
        archive(owner)
    with Bus.connect(guarded.url_of(role), source="subject", archive_url=tmp_path) as mine:
        assert len(list(mine.events())) == 9
        assert [event.kind for event in mine.page().history(ids[0])] == ["added", "status_changed"]
        assert len(list(mine.events(pages="main"))) == 8


@pytest.mark.parametrize("role", ROLES)
def test_only_committing_roles_page_out_and_all_roles_still_read(guarded: GuardedServer, bus: Bus, role: str) -> None:
    one = bus.page().add("observation", "x", tags=["t"])
    done = bus.page().archive(one.id)
    project(bus)
    with Bus.connect(guarded.url_of(role), source="subject") as mine:
        if role in COMMITS:
            eventually(lambda: mine.converse(page_out(mine.core, 1)).documents)
        else:
            assert mine.converse(page_out(mine.core, 1)) == (0, True)
            eventually(lambda: bus.converse(page_out(bus.core, 1)).documents)
        assert mine.page().get(one.id) == done
        assert mine.page().list(tags="t", status="archived") == [done]
        assert [event.kind for event in mine.page().history(one.id)] == ["added", "status_changed"]
    with Bus.connect(guarded.url_of("publisher"), source="other") as other:
        linked = other.page().link(one.id, "goal")
        with pytest.raises(InvalidTransition):
            other.page().reopen(one.id)
    with Bus.connect(guarded.url_of(role), source="subject") as mine:
        assert mine.page().get(one.id) == linked
    assert bus.verify().is_sound


@pytest.mark.parametrize("was_deleted", [False, True], ids=["present", "deleted"])
@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_a_blocked_log_and_only_an_admin_repairs_it(
    guarded: GuardedServer, bus: Bus, role: str, was_deleted: bool
) -> None:
    one = bus.page().add("observation", "x")
    log = bus.core.log.keys(0).log
    with guarded.client() as client:
        client.xadd(log, {"colour": "red"}, id="9999999999999-0")
        if was_deleted:
            client.xdel(log, "9999999999999-0")
    with Bus.connect(guarded.url_of(role), source="subject") as mine:
        assert mine.page().list() == [one]
        assert [event.subject for event in mine.events()] == [one.id]
        assert mine.status().shards[0].foreign == (0 if was_deleted else 1)
        with pytest.raises(LogBlocked if role in APPENDS else EngineForbidden):
            mine.page().add("observation", "y")
        if role not in ADMINISTERS:
            with pytest.raises(EngineForbidden):
                mine.repair()
    with Bus.connect(guarded.url_of("admin"), source="owner") as mine:
        assert len(mine.repair()) == (0 if was_deleted else 1)
    bus.page().add("observation", "z")
    assert bus.verify().is_sound


@pytest.mark.parametrize("role", ROLES)
def test_a_read_far_behind_the_log_is_fresh_for_every_role(guarded: GuardedServer, bus: Bus, role: str) -> None:
    project(bus)
    for number in range(IN_MEMORY + 50):
        bus.page(f"page-{number % 3}").add("observation", str(number))
    with Bus.connect(guarded.url_of(role), source="subject") as mine:
        assert [one.content for one in mine.page("page-0").list(limit=1)] == ["249"]
        assert len(mine.page("page-1").active()) == 83
    assert check(bus) == []


@pytest.mark.parametrize("role", ROLES)
def test_a_trace_is_fresh_for_every_role(guarded: GuardedServer, bus: Bus, role: str) -> None:
    page = bus.page()
    old = page.add("observation", "old")
    project(bus)
    new = page.add("observation", "new", evidence=[old.id])
    with because(page.history(old.id)[0]):
        page.link(new.id, "goal")
    with Bus.connect(guarded.url_of(role), source="subject") as mine:
        assert set(mine.page().trace("goal").observations) == {old.id, new.id}
        led_to = mine.page().consequences(old.id)
    assert set(led_to.observations) == {old.id, new.id}
    assert [event.kind for event in led_to.events] == ["linked"]


@pytest.mark.parametrize("role", ROLES)
def test_only_projectors_and_admins_create_a_bus(guarded: GuardedServer, role: str) -> None:
    with guarded.client() as client:
        client.flushall()
        if role in ("projector", "admin"):
            Bus.connect(guarded.url_of(role), source="subject").close()
            return
        wanted = f"there is no bus 'scratchbus' yet, and only a projector or admin may create one; .*{role}"
        with pytest.raises(EngineForbidden, match=wanted):
            Bus.connect(guarded.url_of(role), source="subject")
        assert client.dbsize() == 0


@pytest.mark.parametrize("way", [Bus, AsyncBus], ids=["blocking", "asyncio"])
async def test_a_forbidden_connect_leaves_no_connection_open(guarded: GuardedServer, way: type[Bus | AsyncBus]) -> None:
    with guarded.client() as client:
        client.flushall()
        with pytest.raises(EngineForbidden) as caught:
            await way.connect(guarded.url_of("reader"), source="subject")  # type: ignore[misc]
        await asyncio.to_thread(eventually, lambda: "reader" not in {row["user"] for row in client.client_list()})
    assert caught.tb is not None  # the traceback keeps the bus alive


async def test_a_forbidden_write_is_refused_under_asyncio(guarded: GuardedServer, bus: Bus) -> None:
    added = bus.page().add("observation", "before")
    async with AsyncBus.connect(guarded.url_of("reader"), source="subject") as mine:
        assert [one.id for one in await mine.page().active()] == [added.id]
        with pytest.raises(EngineForbidden, match="reader"):
            await mine.page().add("observation", "not allowed")
    assert log_length(bus) == 1


@pytest.mark.parametrize("role", ROLES)
def test_status_is_unknown_where_a_role_has_no_access(guarded: GuardedServer, bus: Bus, role: str) -> None:
    with Bus.connect(guarded.url_of(role), source="subject") as mine:
        status = mine.status()
    is_visible = role not in ("reader", "subscriber")
    assert (status.version != "unknown", status.memory_bytes is not None) == (is_visible, is_visible)
    assert (status.persistence != "unknown") == is_visible
    assert SECRET not in str(status)


def test_ack_fsync_is_forbidden_to_a_publisher(guarded: GuardedServer, bus: Bus) -> None:
    with pytest.raises(EngineForbidden, match="publisher"):
        Bus.connect(guarded.url_of("publisher"), source="subject", ack="fsync")


SCRIPTS = {
    ADD: ("publisher", "projector", "admin"),
    APPEND: ("publisher", "projector", "admin"),
    subscription_script: ("subscriber", "publisher", "admin"),
}
KEYS = {
    "LOG": "log", "TAIL": "tail", "ORIGIN": "origin", "PAGES": "pages", "due": "p1:due", "HEADS": "heads:main",
    "checkpoint": "checkpoint:scratch_page", "OPEN": "open:main", "DEDUPE": "keys:main", "retried": "ids:retried",
    "erased_ids": "ids:erased",
    "bucket": "ids:20000", "IDS": "ids:20000", "SUBSCRIPTION": "subscription:s", "NAMES": "subscriptions",
    "DEAD": "dead:s", "AGAIN": "again:s",
}  # fmt: skip
"""The keys for which the variables of the scripts stand."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_role_may_run_every_command_of_its_scripts(guarded: GuardedServer, script: Script[...]) -> None:
    """A script that is refused a command halfway keeps what it has written before."""
    calls = set(re.findall(r"call\('([A-Z]+)', (\w+)", script.text))
    assert len(calls) > 5
    assert {variable for _, variable in calls} <= set(KEYS)
    with guarded.client() as client:
        known = client.command()
        for command, variable in calls:
            more = abs(known[command.lower()]["arity"]) - 2
            call = [command, f"{{scratchbus:0}}:{KEYS[variable]}", *["1"] * more]
            for role in SCRIPTS[script]:
                assert client.acl_dryrun(role, *call) == b"OK", (role, call)


def test_a_publisher_with_an_older_access_list_can_add(guarded: GuardedServer, bus: Bus) -> None:
    listed = Path(guarded.config["aclfile"])
    text = listed.read_text()
    listed.write_text(text.replace("+hsetnx", "-hsetnx"))
    try:
        with guarded.client() as client:
            client.acl_load()
        with Bus.connect(guarded.url_of("publisher"), source="older", max_observations=2) as mine:
            added = [mine.page().add("observation", f"{number}") for number in range(4)]
    finally:
        listed.write_text(text)
        with guarded.client() as client:
            client.acl_load()
    assert [each.id for each in bus.page().active()] == [each.id for each in reversed(added[2:])]
    assert check(bus) == []


@pytest.mark.parametrize("role", ROLES)
def test_every_role_may_run_the_topology_commands(guarded: GuardedServer, role: str) -> None:
    with guarded.client() as client:
        for command in (("ROLE",), ("CLUSTER", "SLOTS"), ("ASKING",)):
            assert client.acl_dryrun(role, *command) == b"OK"


def test_no_user_is_admitted_before_passwords_are_set(each_binary: Path) -> None:
    server = Server(each_binary, tcp=True, aclfile=str(ACCESS_LIST))
    try:
        server.start(wait=False)
        eventually(server.socket.exists)
        for url in (server.url, *(f"unix://{role}:@{server.socket}" for role in ROLES)):
            with pytest.raises(EngineAuth, match="that the user is enabled"):
                Bus.connect(url)
    finally:
        server.close()


# -- scripts that readers may run but not load -----------------------------------------------------------------------

LOOP = "while true do end"


def test_a_reader_cannot_send_a_script_of_its_own(guarded: GuardedServer, bus: Bus) -> None:
    with guarded.client() as client:
        for command in ("EVAL", "EVAL_RO"):
            assert client.acl_dryrun("reader", command, LOOP, 0) != b"OK"
        assert client.acl_dryrun("reader", "SCRIPT", "LOAD", LOOP) != b"OK"
        assert client.acl_dryrun("reader", "EVALSHA_RO", "0" * 40, 1, "{scratchbus:0}:log") == b"OK"


@pytest.mark.parametrize("role", sorted(set(ROLES) - {"reader"}))
def test_every_other_role_loads_the_scripts_of_readers(guarded: GuardedServer, bus: Bus, role: str) -> None:
    with guarded.client() as client:
        client.script_flush()
    Bus.connect(guarded.url_of(role), source="subject").close()
    with guarded.client() as client:
        kept = client.info("memory")["number_of_cached_scripts"]
    assert kept >= 4
    with Bus.connect(guarded.url_of("reader"), source="subject") as mine:
        assert mine.page().list() == mine.page().active() == []
        assert list(mine.events()) == []


def test_readers_fail_after_a_script_flush_until_a_write(guarded: GuardedServer, bus: Bus) -> None:
    added = bus.page().add("observation", "before")
    with (
        Bus.connect(guarded.url_of("reader"), source="subject") as mine,
        Bus.connect(guarded.url_of("publisher"), source="subject") as writer,
    ):
        assert [one.id for one in mine.page().list()] == [added.id]
        with guarded.client() as client:
            client.script_flush()
        with pytest.raises(EngineLoading, match=r"lacks the scripts.*as a publisher, projector or admin"):
            mine.page().list()
        writer.page().add("observation", "after")  # finds its script missing, and loads all scripts
        assert len(mine.page().list()) == 2
        assert mine.page().history(added.id)


async def test_asyncio_readers_fail_after_a_script_flush_until_a_write(guarded: GuardedServer, bus: Bus) -> None:
    bus.page().add("observation", "before")
    async with (
        AsyncBus.connect(guarded.url_of("reader"), source="subject") as mine,
        AsyncBus.connect(guarded.url_of("publisher"), source="subject") as writer,
    ):
        with guarded.client() as client:
            client.script_flush()
        with pytest.raises(EngineLoading, match="lacks the scripts"):
            await mine.page().list()
        await writer.page().add("observation", "after")
        assert len(await mine.page().list()) == 2


def test_a_reader_reads_a_promoted_replica_after_a_write(guarded: GuardedServer, bus: Bus) -> None:
    """Scripts are not replicated, so a writer has to load them."""
    added = bus.page().add("observation", "before")
    replica = GuardedServer(guarded.binary)
    try:
        replica.start()
        replica.follow(guarded)
        eventually(lambda: replica.has_caught_up(guarded))
        replica.promote()
        with Bus.connect(replica.url_of("reader"), source="subject") as mine:
            with pytest.raises(EngineLoading, match="lacks the scripts"):
                mine.page().list()
            with Bus.connect(replica.url_of("publisher"), source="subject") as writer:
                writer.page().add("observation", "after")
            assert [one.content for one in mine.page().list()] == ["after", added.content]
    finally:
        replica.close()
