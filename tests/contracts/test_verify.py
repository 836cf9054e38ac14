"""Verify finds all stored data that does not follow from the log, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, NewObservation, because
from scratchbus.archive import stores
from scratchbus.archive.archiver import archive_bus
from scratchbus.domain.position import Position
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.engine.steps import Step
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.positions import pack
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.verify import paged_out, probe, verifier
from scratchbus.readmodel.verify.findings import Finding
from scratchbus.readmodel.verify.paged_out import PagedOutCheck
from scratchbus.readmodel.verify.probe import Probe
from scratchbus.scheduling.expiry import sweep
from scratchbus.scheduling.paging_out import page_out
from tests.engines import ONE
from tests.inspection import archive, forget, keys_of, mostly_archived, project, raw_append, send
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ONE)


def live(bus: Bus) -> None:
    """Leave behind every kind of stored data."""
    page, other = bus.page(), bus.page("user:42")
    first = page.add("risk_alert", "first", tags=["a#b", "c"], owner="agent", dedupe_key="k", event_id="own")
    page.add("risk_alert", "again", dedupe_key="k", times=2, event_id="own-2")
    page.add_many([NewObservation(type="observation", content=f"{n}", tags=["t"], ttl="1d") for n in range(12)])
    page.add("reminder", "waits", remind_on={"type": "risk_alert"}, remind_at=datetime.now(UTC) + timedelta(hours=1))
    with because(page.history(first.id)[0]):
        rests = page.add("observation", "rests", evidence=[first.id], event_id="batch")
    page.link(rests.id, "goal")
    page.claim(rests.id, by="somebody", ttl="1h")
    page.update(first.id, tags=["c", "d"], owner="other")
    gone = page.resolve(page.add("observation", "gone", dedupe_key="gone").id)
    page.clear_resolved([gone.id])
    page.reopen(page.resolve(page.add("observation", "back", dedupe_key="back").id).id)
    page.claim(page.add("observation", "lapses").id, ttl="1ms")
    other.add("observation", "short", ttl="1ms")
    other.review(other.add("observation", "reviewed").id)
    other.refute(other.add("observation", "wrong").id, reason="misread")
    bus.push_types(parse_registry(f"{bus.types.text}\n  another:\n", "types"))
    eventually(lambda: bus.converse(sweep(bus.core)) == 0 and len(other.list(status="archived")) == 2)


def test_a_bus_with_every_kind_of_stored_data_is_sound(bus: Bus) -> None:
    assert bus.verify().is_sound
    live(bus)
    for _ in range(2):
        verified = bus.verify()
        assert verified.findings == []
        bus.rebuild()
    assert verified.events == sum(place.seq for place in bus.position().shards)
    assert (verified.documents, verified.pages) == (20, 3)


def test_verify_reports_progress(bus: Bus) -> None:
    live(bus)
    reports: list[tuple[int, int]] = []
    bus.verify(lambda done, total: reports.append((done, total)))
    assert reports[-1][0] == reports[-1][1] == sum(place.seq for place in bus.position().shards)


def test_a_page_that_displaces_is_sound(connect: Callable[..., Bus]) -> None:
    with connect(max_observations=5) as bus:
        page = bus.page()
        for number in range(12):
            page.add("observation", f"{number}", dedupe_key=f"{number}")
        assert bus.verify().findings == []


def test_concurrent_writes_folds_and_rebuilds_are_no_findings(
    bus: Bus, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (verifier, paged_out):
        monkeypatch.setattr(module, "_AT_ONCE", 3)
    monkeypatch.setattr(probe, "_CHUNK", 5)
    live(bus)
    other, count = connect(), iter(range(10_000))
    page = other.page()
    look = Probe.read

    def disturbed(self, commands):
        number = next(count)
        if number % 3 == 0:
            added = page.add("observation", f"{number}", tags=[f"t{number % 4}"], ttl="1h", dedupe_key=f"{number % 5}")
            if added.claim is None:
                page.claim(added.id)
        elif number % 7 == 1:
            project(other)
        elif number in (20, 40):
            other.rebuild()
        elif number % 11 == 0:
            page.clear_resolved([page.resolve(page.add("observation", "gone").id).id])
        return (yield from look(self, commands))

    monkeypatch.setattr(Probe, "read", disturbed)
    verified = bus.verify()
    assert verified.findings == []
    assert next(count) > 40


def test_a_concurrent_erasure_is_no_finding(bus: Bus, page, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [page.add("observation", f"{number}").id for number in range(9)]
    project(bus)
    look, erased = Probe.read, list[str]()

    def disturbed(self, commands):
        commands = list(commands)
        if "heads:main" in str(commands) and not erased:  # its shard is folded by now, and nothing compared yet
            erased.append(page.erase(ids[4], reason="private").id)
        return (yield from look(self, commands))

    monkeypatch.setattr(Probe, "read", disturbed)
    assert bus.verify().findings == []
    assert erased


@pytest.fixture
def secret(bus: Bus, page) -> str:
    """An observation with relations and two events, folded, between others like it."""
    ids = list[str]()
    for number in range(9):
        added = page.add("observation", f"{number}", tags=["t"], ttl="1d", evidence=ids[-1:])
        ids.append(page.link(added.id, f"goal-{number}").id)
    project(bus)
    return ids[4]


def test_relations_that_a_concurrent_erasure_drops_are_no_findings(
    bus: Bus, page, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(
        monkeypatch, Probe, "read", lambda self, commands: "heads:main" in str(commands), lambda: erase(page, secret)
    )
    assert bus.verify().findings == []


def test_events_erased_between_a_read_and_its_fold_are_no_findings(
    bus: Bus, page, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update() -> None:
        for content in "abc":
            page.update(secret, content=content)

    before(monkeypatch, Probe, "read", lambda self, commands: "heads:main" in str(commands), update)
    before(monkeypatch, Probe, "fold", lambda self, checkpoint, end: end.seq > 18, lambda: erase(page, secret))
    assert bus.verify().findings == []
    assert [event.kind for event in page.history(secret)] == ["erased"]


@pytest.mark.parametrize("is_paged_out", [False, True])
def test_what_an_unfolded_tombstone_is_about_is_no_finding(
    bus: Bus, page, secret: str, is_paged_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_paged_out:
        page.archive(secret)
        project(bus)
        eventually(lambda: bus.converse(page_out(bus.core, 0)).documents == 1)
    folds = iter([True])  # before the tombstone

    def fold(log: Log, shard: int) -> Step[None]:
        if not next(folds, False):
            raise KeyboardInterrupt
        yield from catch_up(log, shard)

    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.commands.erase.catch_up", fold)
        with pytest.raises(KeyboardInterrupt):
            erase(page, secret)
    assert bus.verify().findings == []
    project(bus)
    assert bus.verify().findings == []


def test_an_observation_that_is_paged_in_meanwhile_is_no_finding(
    bus: Bus, page, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.archive(secret)
    project(bus)
    eventually(lambda: bus.converse(page_out(bus.core, 0)).documents == 1)

    def page_in() -> None:
        page.link(secret, "late")
        project(bus)

    before(monkeypatch, PagedOutCheck, "run", lambda self: secret in str(self._wanted.absent), page_in)
    assert bus.verify().findings == []
    assert page.get(secret).links == ["goal-4", "late"]


def test_a_snapshot_that_an_erasure_deletes_is_no_finding(
    bus: Bus, page, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_EVENTS", "OPEN_MIN_EVENTS"):
        monkeypatch.setattr(snapshots, name, 1)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
    keys = keys_of(bus)
    assert bus.converse(snapshots.take(keys, "main", lambda: True))
    assert bus.converse(snapshots.take_open(keys, "main"))
    before(monkeypatch, snapshots, "read", lambda *_: True, lambda: erase(page, secret))
    assert bus.verify().findings == []


def test_the_snapshots_of_a_page_are_listed_as_often_however_many_there_are(
    bus: Bus, page, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_EVENTS", "OPEN_MIN_EVENTS"):
        monkeypatch.setattr(snapshots, name, 1)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
    keys, listed = keys_of(bus), list[Any]()
    for n in range(3):
        page.add("observation", f"{n}")
        bus.converse(catch_up(bus.core.log, keys.shard))
        assert bus.converse(snapshots.take(keys, "main", lambda: True))
        assert bus.converse(snapshots.take_open(keys, "main"))
    listing = snapshots.stored

    def counted(*arguments: Any) -> Step[Any]:
        listed.append(arguments)
        return (yield from listing(*arguments))

    monkeypatch.setattr(snapshots, "stored", counted)
    assert bus.verify().findings == []
    assert len(listed) == 2, "the whole and the open ones"


def erase(page, id: str) -> None:
    page.erase(id, reason="private")


def before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, is_now: Callable[..., bool], act: Callable[[], object]
) -> None:
    """Do something once, at the beginning of the first call of a conversation with such arguments."""
    conversation, done = getattr(owner, name), list[object]()

    def disturbed(*arguments: Any) -> Step[Any]:
        if not done and is_now(*arguments):
            done.append(True)
            act()
        return (yield from conversation(*arguments))

    monkeypatch.setattr(owner, name, disturbed)


def test_unfolded_events_are_no_findings(bus: Bus, page) -> None:
    live(bus)
    project(bus)
    page.add("observation", "late")
    assert bus.verify().findings == []


@pytest.mark.damages_the_log
def test_damage_of_an_unfolded_observation_is_found(bus: Bus, page) -> None:
    live(bus)
    project(bus)
    late = page.add("observation", "late")
    send(bus, "HDEL", keys_of(bus).heads("main"), late.id)
    assert {finding.kind for finding in bus.verify().findings} == {"head"}


def test_a_bus_is_sound_while_and_after_its_log_is_archived(
    connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (verifier, paged_out):
        monkeypatch.setattr(module, "_AT_ONCE", 3)
    monkeypatch.setattr(probe, "_CHUNK", 5)
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=3, archive_segment=7)
    live(bus)
    page, look, count = bus.page(), Probe.read, iter(range(10_000))
    project(bus)

    def disturbed(self, commands):
        number = next(count)
        if number % 10 == 3:
            page.archive(page.add("observation", f"{number}", event_id=f"own-{number}").id)
            project(bus)
            archive_bus(bus)
        return (yield from look(self, commands))

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Probe, "read", disturbed)
        assert bus.verify().findings == []
    assert next(count) > 30
    assert bus.verify().findings == []
    bus.rebuild()
    assert bus.verify().findings == []
    positions = PageKeys(keys_of(bus), "main", bus.converse(read_checkpoint(keys_of(bus))).build).positions
    value = send(bus, "GET", positions)
    send(bus, "SET", positions, value[:-1] + bytes([value[-1] ^ 1]))
    assert "position" in {finding.kind for finding in bus.verify().findings}
    send(bus, "SET", positions, value)


@pytest.mark.parametrize("name", ["manifest.json", "jsonl.zst", "index.json.zst"])
def test_files_of_an_archiver_at_work_are_no_findings(
    connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=3, archive_segment=7)
    for number in range(20):
        bus.page().add("observation", f"{number}")
    project(bus)
    sync, found = stores._sync, list[Finding]()

    def verify_before(folder: Path) -> None:
        if any(file.name.endswith((name, ".tmp")) and name in file.name for file in folder.glob("*")):
            found.extend(connect(archive_url=str(tmp_path / "archive")).verify().findings)
        sync(folder)

    monkeypatch.setattr(stores, "_sync", verify_before)
    archive(bus)
    assert found == []
    assert bus.verify().findings == []


@pytest.mark.damages_the_log
@pytest.mark.parametrize("lease", ["", "token|1|an archiver that was killed"], ids=["no lease", "ended lease"])
def test_files_of_an_interrupted_archiver_are_found(archived: Bus, tmp_path: Path, lease: str) -> None:
    for shard in range(archived.core.log.shards):
        send(archived, "SET", archived.core.log.keys(shard).archiver, lease)
    file = next((tmp_path / "archive").rglob("*.jsonl.zst"))
    file.with_name(f".{1:016d}.manifest.json.beef.tmp").write_bytes(b"half")
    assert ["no manifest names it" in finding.what for finding in archived.verify().findings] == [True]


def test_event_ids_of_events_that_are_trimmed_meanwhile_are_no_findings(
    connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=3, archive_segment=7)
    for number in range(20):
        bus.page().add("observation", f"{number}", event_id=f"own-{number}")
    project(bus)
    before(monkeypatch, verifier, "ask_all", lambda shard, commands: "XRANGE" in str(commands), lambda: archive(bus))
    assert bus.verify().findings == []
    assert send(bus, "XLEN", keys_of(bus).log) < 20


# -- tampering ----------------------------------------------------------------------------------------------------


UNCHECKED = {"meta", "rebuilding", "ids:retried"}


@pytest.fixture
def scene(bus: Bus) -> Iterator[Bus]:
    """A bus with every kind of stored data, all folded, and one rejected event."""
    live(bus)
    raw_append(bus, subject="01M7YS0X7YM47HSFZZZJC2DZ9D", kind="linked", event="garbage")
    project(bus)
    assert {finding.kind for finding in bus.verify().findings} == {"event"}
    yield bus
    forget(bus)


def tampered(bus: Bus, key: str, before: set[Finding], *commands: tuple[object, ...]) -> list[str]:
    """Tamper with a key by some commands, return where verify finds something new, and restore the key."""
    kept = send(bus, "DUMP", key)
    for command in commands:
        send(bus, *command)
    found = bus.verify().findings
    send(bus, "RESTORE", key, 0, kept, "REPLACE")
    return [finding.where for finding in found if finding not in before]


@pytest.mark.slow
@pytest.mark.damages_the_log
@pytest.mark.engines("embedded-4-shards")
def test_any_change_of_any_key_is_found(scene: Bus) -> None:
    tag = keys_of(scene).tag
    tried, before = set(), set(scene.verify().findings)
    for key in sorted(key.decode() for key in send(scene, "KEYS", f"{tag}*")):
        name = key.removeprefix(tag)
        if name in UNCHECKED:
            continue
        kind = send(scene, "TYPE", key).decode()
        tried.add(kind)
        for what, commands in _ways(scene, key, kind):
            where = tampered(scene, key, before, *commands)
            assert where, f"{name}: {what} was not found"
            if kind in ("hash", "zset"):
                # An entry missing from an index may be paged out, so the finding may be of the paged-out entries.
                assert any(each.startswith(key) or ":paged:" in each for each in where), (name, what, where)
        assert set(scene.verify().findings) == before, f"{name} was not restored"
    assert tried == {"hash", "zset", "string", "stream"}


def _ways(bus: Bus, key: str, kind: str) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Yield ways to tamper with a key, each with its commands."""
    if kind == "hash":
        flat = send(bus, "HGETALL", key)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        # The head of a final observation may be dropped at any time: its document says the same.
        field, value = next((pair for pair in pairs if not (":heads:" in key and b"|f|" in pair[1])), pairs[0])
        flat = [field, value, *(part for pair in pairs if pair[0] != field for part in pair)]
        at = len(value) - 1 if ":ids:" in key else 0  # it begins with a digest
        flipped = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        if ":ids:" not in key:  # ids are forgotten after some days
            yield "a missing field", [("HDEL", key, field)]
        if ":pages" in key:  # an earlier time only costs a sweep
            yield "a later time", [("HSET", key, "main", "9007199254740991")]
        else:
            yield "a flipped byte", [("HSET", key, field, flipped)]
        yield "an extra field", [("HSET", key, "GHOST", value)]
        if len(flat) > 2 and flat[1] != flat[3] and ":pages" not in key:
            yield "two swapped values", [("HSET", key, field, flat[3], flat[2], value)]
    elif kind == "zset":
        member, score = send(bus, "ZRANGE", key, 0, 0, "WITHSCORES")
        yield "a missing member", [("ZREM", key, member)]
        yield "another score", [("ZADD", key, float(score) + 1, member)]
        yield "an extra member", [("ZADD", key, 1, "GHOST")]
    elif kind == "string":
        value = send(bus, "GET", key)
        at = 0 if "checkpoint" in key else len(value) - 2  # it ends with a random token
        if ":origin" not in key:
            yield "a flipped byte", [("SETRANGE", key, at, bytes([value[at] ^ 1]))]
            yield "a missing byte", [("SET", key, value[1:])]
    else:
        entries = send(bus, "XRANGE", key, "-", "+")
        for at in {0, len(entries) // 2, len(entries) - 1}:
            yield "a missing entry", [("XDEL", key, entries[at][0])]
        ms, seq = map(int, entries[-1][0].split(b"-"))
        yield "an extra entry", [("XADD", key, f"{ms}-{seq + 1}", *entries[-1][1])]


@pytest.mark.slow
@pytest.mark.damages_the_log
@pytest.mark.engines("embedded")
def test_a_flipped_byte_in_any_event_is_found(scene: Bus) -> None:
    log = keys_of(scene).log
    entries = send(scene, "XRANGE", log, "-", "+")
    kept, quiet = send(scene, "DUMP", log), set(scene.verify().findings)
    for at in range(0, len(entries), 3):
        for place in (1, 3, 5, 7, 9, 11, 13, 15):
            flat = list(entries[at][1])
            if not flat[place] or (place == 1 and not flat[1].startswith(b"own")):
                continue  # nothing follows from a random id
            flat[place] = flat[place][:-1] + bytes([flat[place][-1] ^ 1])
            send(scene, "DEL", log)
            for number, (id, fields) in enumerate(entries):
                send(scene, "XADD", log, id, *(flat if number == at else fields))
            found = set(scene.verify().findings) - quiet
            assert found, (entries[at], place)
    send(scene, "RESTORE", log, 0, kept, "REPLACE")


@pytest.mark.damages_the_log
def test_unknown_keys_and_entries_are_found(bus: Bus, page) -> None:
    page.add("observation", "one")
    keys = keys_of(bus)
    send(bus, "SET", keys.tag + "stray", "x")
    send(bus, "HSET", keys.heads("ghost"), "GHOST", "x")
    send(bus, "ZADD", PageKeys(keys, "main").index("tag", "ghost"), 1, "GHOST")
    found = {(finding.kind, finding.where.split(" ")[0].removeprefix(keys.tag)) for finding in bus.verify().findings}
    assert found == {("unknown", "stray"), ("head", "heads:ghost"), ("index", "p1:tag:main#ghost")}


@pytest.mark.damages_the_log
@pytest.mark.parametrize(
    "name",
    [
        "tail:old",
        "erased:1",
        "log:1",
        "ids:",
        "ids:junk",
        "ids:retried:1",
        "p²:docs",
        "p1:rejected:main",
        "p1:snapshots",
    ],
)
def test_keys_with_names_like_those_of_other_keys_are_found(bus: Bus, page, name: str) -> None:
    page.add("observation", "one")
    keys = keys_of(bus)
    send(bus, "SET", keys.tag + name, "x")
    assert bus.verify().findings == [Finding("unknown", keys.tag + name, "should not be there")]


def _erase_one(bus: Bus) -> str:
    page = bus.page()
    erased = page.add("observation", "private").id
    erase(page, erased)
    return erased


def _head_with(bus: Bus, page: str, subject: str, at: int, value: str) -> None:
    key = keys_of(bus, page).heads(page)
    fields = send(bus, "HGET", key, subject).decode().split("|")
    send(bus, "HSET", key, subject, "|".join([*fields[:at], value, *fields[at + 1 :]]))


@pytest.mark.damages_the_log
@pytest.mark.parametrize("row", ["", "garbage", "1|active|o"])
def test_a_head_that_cannot_be_read_is_found(bus: Bus, page, row: str) -> None:
    send(bus, "HSET", keys_of(bus).heads("main"), page.add("observation", "one").id, row)
    assert [(each.kind, "cannot be read" in each.what) for each in bus.verify().findings] == [("head", True)]


@pytest.mark.damages_the_log
@pytest.mark.parametrize(("at", "value", "name"), [(0, "7", "version"), (1, "active", "status"), (2, "o", "class")])
def test_a_change_of_the_head_of_an_erased_observation_is_found(bus: Bus, at: int, value: str, name: str) -> None:
    _head_with(bus, "main", _erase_one(bus), at, value)
    assert [(each.kind, name in each.what) for each in bus.verify().findings] == [("head", True)]


@pytest.mark.damages_the_log
def test_another_version_of_the_types_in_their_head_is_found(bus: Bus) -> None:
    bus.push_types(parse_registry(f"{bus.types.text}\n  another:\n", "types"))
    (subject,) = map(bytes.decode, send(bus, "HKEYS", keys_of(bus, "_bus").heads("_bus")))
    _head_with(bus, "_bus", subject, 0, "7")
    assert [(each.kind, each.what) for each in bus.verify().findings] == [("head", "version is 7 instead of 1")]


@pytest.mark.damages_the_log
@pytest.mark.parametrize("moment", ["", "soon"])
def test_a_time_of_a_page_that_cannot_be_read_is_found(bus: Bus, page, moment: str) -> None:
    page.add("observation", "one")
    send(bus, "HSET", keys_of(bus).pages, "main", moment)
    assert [each.kind for each in bus.verify().findings] == ["page"]


@pytest.mark.damages_the_log
@pytest.mark.parametrize("name", ["garbage", "0 zz zz 1 1"])
def test_a_table_whose_name_cannot_be_read_is_found(bus: Bus, page, name: str) -> None:
    page.add("observation", "one")
    project(bus)
    send(bus, "HSET", PageKeys(keys_of(bus), "main", 1).tables, "1", name)
    assert [(each.kind, "cannot be read" in each.what) for each in bus.verify().findings] == [("paged", True)]


@pytest.mark.damages_the_log
def test_an_event_with_the_number_of_the_one_before_is_found(bus: Bus, page) -> None:
    page.add("observation", "one")
    project(bus)
    keys = keys_of(bus)
    ((id, fields),) = send(bus, "XREVRANGE", keys.log, "+", "-", "COUNT", 1)
    ms, seq = id.decode().split("-")
    again = send(bus, "XADD", keys.log, f"{int(ms) + 1}-{seq}", *fields).decode()
    send(bus, "SET", keys.tail, f"{again}|{fields[1].decode()}")
    assert ("order", str(Position.parse(f"{keys.shard}/{again}"))) in [each[:2] for each in bus.verify().findings]


@pytest.mark.damages_the_log
def test_only_the_first_findings_are_listed_but_all_are_counted(
    bus: Bus, page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scratchbus.readmodel.verify.findings.MAX_FINDINGS", 2)
    keys = keys_of(bus)
    for number in range(5):
        send(bus, "SET", f"{keys.tag}stray-{number}", "x")
    verified = bus.verify()
    assert (len(verified.findings), verified.count, verified.is_sound) == (2, 5, False)


@pytest.fixture
def archived(connect: Callable[..., Bus], tmp_path: Path) -> Bus:
    """A bus whose first 24 events are in its archive alone."""
    return mostly_archived(connect, tmp_path / "archive")


@pytest.mark.damages_the_log
@pytest.mark.parametrize("pattern", ["*.jsonl.zst", "*.index.json.zst", "*.manifest.json", "end.json"])
@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_damage_of_the_archive_is_found(archived: Bus, tmp_path: Path, pattern: str, harm: str) -> None:
    file = sorted((tmp_path / "archive").rglob(pattern))[-1]
    content = file.read_bytes()
    file.unlink() if harm == "gone" else file.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    assert "archive" in {finding.kind for finding in archived.verify().findings}
    file.write_bytes(content)
    assert archived.verify().findings == []


@pytest.mark.damages_the_log
@pytest.mark.parametrize("erased", [0, 1])
def test_events_missing_from_the_log_are_counted_without_the_erased_ones(bus: Bus, page, erased: int) -> None:
    keys = keys_of(bus)
    ids = [page.add("observation", f"{number}").id for number in range(6)]
    project(bus)
    entries = send(bus, "XRANGE", keys.log, "-", "+")
    for id in ids[2 : 2 + erased]:
        erase(page, id)
    send(bus, "XDEL", keys.log, entries[1][0], entries[3][0], entries[4][0])
    gaps = [finding.what for finding in bus.verify().findings if finding.kind == "gap" and "behind" in finding.what]
    expected = ["3 events are"] if erased else ["1 event is", "2 events are"]
    assert [what.partition(" missing")[0] for what in gaps] == expected


@pytest.mark.damages_the_log
def test_a_missing_head_of_an_open_observation_is_found_although_its_events_are_archived(archived: Bus) -> None:
    first = archived.page().list(limit=None)[-1]
    send(archived, "HDEL", keys_of(archived).heads("main"), first.id)
    assert [(each.kind, each.what) for each in archived.verify().findings] == [("head", "is missing")]


@pytest.mark.damages_the_log
def test_a_missing_head_of_a_note_of_a_session_at_work_is_found_although_its_events_are_archived(
    archived: Bus,
) -> None:
    session = archived.spawn_session("s0")
    notes, page = archived.notes(session), archived.page(f"session:{session}")
    subject = notes.add("found").note.id
    for number in range(30):
        page.add("observation", f"{number}")
    archive(archived)
    send(archived, "HDEL", keys_of(archived, page.name).heads(page.name), subject)
    assert [(each.kind, each.what) for each in archived.verify().findings] == [("head", "is missing")]


@pytest.mark.damages_the_log
def test_a_missing_document_of_a_final_observation_is_found(bus: Bus, page) -> None:
    final = page.archive(page.add("observation", "one").id)
    project(bus)
    send(bus, "HDEL", PageKeys(keys_of(bus), "main", 1).docs, final.id)
    assert [(each.kind, each.what) for each in bus.verify().findings] == [("paged", "is missing")]


@pytest.mark.damages_the_log
@pytest.mark.parametrize("more", [pack([1, 1]), b"\0", pack([1, 1]) * 40], ids=["another", "half of one", "many"])
def test_positions_that_no_event_has_are_found_below_the_floor(archived: Bus, more: bytes) -> None:
    key = PageKeys(keys_of(archived), "main", 1).positions
    send(archived, "SET", key, more + send(archived, "GET", key))
    assert [each[:2] for each in archived.verify().findings] == [("position", key)]


@pytest.mark.damages_the_log
def test_segments_missing_from_the_archive_are_found(archived: Bus, tmp_path: Path) -> None:
    for file in (tmp_path / "archive").rglob("*"):
        if file.is_file():
            file.unlink()
    findings = [finding.what for finding in archived.verify().findings if finding.kind == "archive"]
    assert any("no segment has events 1 to 24, which left the log" in what for what in findings)


@pytest.mark.damages_the_log
def test_an_archive_of_another_log_is_a_finding(archived: Bus) -> None:
    send(archived, "SET", keys_of(archived).origin, "another")
    findings = archived.verify().findings
    assert any("of another log" in finding.what for finding in findings)
    whats = [finding.what for finding in findings if finding.where.endswith(".manifest.json")]
    assert whats == ["it belongs to another log of this bus, which was flushed or replaced"] * 3
