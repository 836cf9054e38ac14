"""The index of paged-out observations moves to tables in the archive; reads stay the same."""

from __future__ import annotations

from random import Random
from unittest.mock import Mock

import pytest

from scratchbus import NewObservation
from scratchbus.archive.archive_check import verify as verify_archive
from scratchbus.archive.manifest import folder_of
from scratchbus.archive.stores import open_store
from scratchbus.errors import ArchiveDamaged, InvalidTransition, NotFound, PositionLost
from scratchbus.eventlog.checkpoint import write_if_unchanged
from scratchbus.eventlog.index_tables import (
    MAX_LOADED,
    PagedOut,
    Table,
    TableName,
    bytes_of,
    id_text,
    ids_like,
    load_table,
    name_table,
    pack_table,
    table_names,
    trait,
)
from scratchbus.readmodel.short_ids import whole_id
from tests.contracts.test_paging_out import fill, names_of, overtake_a_write, page_all_out
from tests.engines import ALL, ONE
from tests.inspection import archive, assert_sound, documents, keys_of, project, send

pytestmark = pytest.mark.engines(*ALL, slow=("memory", "system"))

FEW = 3


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch):
    monkeypatch.setattr("scratchbus.scheduling.paging_out.MIN_ENTRIES", FEW)


@pytest.fixture
def bus(connect, tmp_path):
    return connect(archive_url=tmp_path / "archive", retain="1ms", retain_events=2, archive_segment=5)


@pytest.fixture
def page(bus):
    return bus.page("main")


def tables_of(bus):
    return table_names(send(bus, "HGETALL", names_of(bus).tables))


def files_of(tmp_path):
    return sorted((tmp_path / "archive").rglob("*.zst"))


def tables_on_disk(tmp_path):
    return [file for file in files_of(tmp_path) if file.parent.name == "index"]


def test_engine_keeps_few_entries_and_the_names_of_the_tables(bus, page, tmp_path):
    for _ in range(3):
        fill(page, 6)
        page_all_out(bus)
    names = names_of(bus)
    assert send(bus, "HGET", names.tables, "kept") == b"0"
    assert send(bus, "EXISTS", names.paged) == 0
    assert [field for field in send(bus, "HKEYS", names.places) if field.isdigit()] == []
    assert [table.number for table in tables_of(bus)] == [3, 2, 1]
    assert {file.stem for file in tables_on_disk(tmp_path)} == {table.sha256 for table in tables_of(bus)}


def test_index_stays_in_the_engine_while_the_archive_takes_no_table(bus, page, tmp_path, monkeypatch):
    logger = Mock()
    monkeypatch.setattr("scratchbus.scheduling.paging_out.limited_logger", logger)
    added = fill(page, 6)
    in_the_way = tmp_path / "archive" / folder_of(bus.core.log.bus, keys_of(bus).shard) / "index"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    page_all_out(bus)
    (warning,) = logger.warning.mock_calls
    assert warning.args == ("the index of paged-out observations stays in the engine",)
    assert warning.kwargs["page"] == "main"
    assert "check the disk" in warning.kwargs["problem"]
    assert tables_of(bus) == []
    assert send(bus, "EXISTS", names_of(bus).paged) == 1
    assert {one.id for one in page.list(limit=None)} == {one.id for one in added}
    in_the_way.unlink()
    fill(page, 6)
    page_all_out(bus)
    assert len(tables_of(bus)) == 1
    assert send(bus, "EXISTS", names_of(bus).paged) == 0


@pytest.mark.engines(*ONE)
def test_page_with_tables_reads_like_a_page_without(bus, page, connect):
    other, random, ids = bus.page("other"), Random(5), list[tuple[str, str]]()
    for step in range(120):
        act = random.choice(["add", "add", "archive", "archive", "link", "page out", "move to the archive"])
        if act == "add" or not ids:
            fields = {
                "type": random.choice(["observation", "risk_alert"]), "content": f"story {step}",
                "tags": [random.choice("ab")],
            }  # fmt: skip
            ids.append((page.add(**fields).id, other.add(**fields).id))
        elif act in ("archive", "link"):
            for where, id in zip((page, other), random.choice(ids), strict=True):
                if act == "link":
                    where.link(id, f"goal-{step % 4}")
                elif where.get(id).status == "active":
                    where.archive(id)
        elif act == "page out":
            page_all_out(bus)
        else:
            archive(bus)
    assert len(tables_of(bus)) > 3

    def rows(where, **wanted):
        return [(one.content, one.status, one.links, one.tags) for one in where.list(limit=None, **wanted)]

    def in_pages(where, size):
        found, after = [], None
        while some := where.list(limit=size, after=after):
            found += some
            after = some[-1].id
        return [one.content for one in found]

    for wanted in ({}, {"status": "archived"}, {"tags": "a"}, {"type": "risk_alert", "status": "archived"}):
        assert rows(page, **wanted) == rows(other, **wanted)
    assert in_pages(page, 4) == in_pages(other, 4)
    for mine, theirs in ids:
        assert page.get(mine).links == other.get(theirs).links
        assert len(page.history(mine)) == len(other.history(theirs))
    assert bus.verify().is_sound
    assert_sound(bus)


def test_table_size_grows_with_the_number_of_entries(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.scheduling.paging_out.SHARE", 2)
    monkeypatch.setattr("scratchbus.scheduling.paging_out.MAX_ENTRIES", 8)
    sizes = []
    for _ in range(40):
        page.archive(page.add("observation", "x").id)
        page_all_out(bus)
    names = tables_of(bus)
    for name in reversed(names):
        table = bus.converse(load_table(bus.core.log, keys_of(bus).shard, name))
        sizes.append(len([*table.ids()]))
    assert sizes == [3, 3, 3, 4, 6, 8, 8]
    assert bus.verify().is_sound


def test_partial_id_is_found_in_a_table(bus, page):
    gone = [one for one in fill(page, 6) if one.content[-1] not in "0369"]
    page_all_out(bus)
    assert tables_of(bus)
    for one in gone:
        for some in (one.id[-10:], one.id[1:]):
            assert bus.converse(whole_id(bus.core.log, "main", some)) == one.id
    with pytest.raises(NotFound):
        bus.converse(whole_id(bus.core.log, "main", "ZZZZZZZZ"))


def test_ids_in_a_table_match_by_prefix_and_suffix(bus, page):
    random, log, shard = Random(3), bus.core.log, keys_of(bus).shard
    ids = {random.randbytes(16): number for number in range(100)}
    places = {number: PagedOut(number, 1, 1, 0) for number in ids.values()}
    content = pack_table(ids, places)
    log.tables["it"] = Table(content)
    name = name_table([], "it", ids, places)
    texts = [id_text(id) for id in ids]
    for text in texts:
        for some in (text[:length] for length in range(1, 26)):
            for part in (some, text[-len(some) :]):
                like = {each for each in texts if each.startswith(part) or each.endswith(part)}
                assert bus.converse(ids_like(log, shard, [name], part)) == like


def test_link_pages_an_observation_in_from_its_table(bus, page):
    gone = next(one for one in fill(page, 6) if one.content[-1] == "1")
    page_all_out(bus)
    page.link(gone.id, "goal")
    project(bus)
    assert ("main", gone.id) in documents(bus)
    assert page.list(limit=None, status="archived").count(page.get(gone.id)) == 1
    assert bus.verify().is_sound
    page_all_out(bus)
    assert ("main", gone.id) not in documents(bus)
    assert page.get(gone.id).links == ["goal"]
    assert bus.verify().is_sound


def test_entries_stay_in_the_engine_without_a_writable_archive(connect, bus, page, tmp_path, monkeypatch):
    fill(page, 6)

    def full(*_):
        raise ArchiveDamaged("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.archive.archive_reader.Archive.put_table", full)
        assert page_all_out(bus) == 4
    assert not tables_of(bus)
    assert len(page.list(limit=None, status="archived")) == 4
    without = connect("other")
    fill(without.page("main"), 6)
    assert page_all_out(without) == 4
    assert not tables_of(without)


def test_entry_that_changes_during_a_move_keeps_the_change(bus, page, monkeypatch):
    gone = next(one for one in fill(page, 6) if one.content[-1] == "1")

    def overtaken(*arguments):
        if not page.get(gone.id).links:
            page.link(gone.id, "late-action")
            project(bus)
        return (yield from write_if_unchanged(*arguments))

    monkeypatch.setattr("scratchbus.scheduling.paging_out.write_if_unchanged", overtaken)
    page_all_out(bus)
    assert bus.verify().is_sound
    assert page.get(gone.id).links == ["late-action"]
    assert_sound(bus)


@pytest.mark.parametrize("when", ["before", "after"])
def test_write_during_a_move_to_a_table_is_refused(bus, page, monkeypatch, when):
    gone, other = page.add("observation", "gone"), page.add("observation", "other")
    page.archive(gone.id)
    assert page_all_out(bus) == 1

    def move():
        for one in (other, page.add("observation", "another")):
            page.archive(one.id)
        page_all_out(bus)
        assert tables_of(bus)

    assert not tables_of(bus)
    left = overtake_a_write(monkeypatch, when, move)
    with pytest.raises(InvalidTransition):
        page.reopen(gone.id)
    assert not left
    assert_sound(bus)


def test_link_during_a_move_builds_on_the_newest_table(bus, page, monkeypatch):
    monkeypatch.setattr("scratchbus.scheduling.paging_out.MIN_ENTRIES", 1)
    gone = page.add("observation", "gone")
    page.archive(gone.id)
    assert page_all_out(bus) == 1

    def move():
        page.link(gone.id, "earlier")
        assert page_all_out(bus) == 1

    left = overtake_a_write(monkeypatch, "after", move)
    assert page.link(gone.id, "later").links == ["earlier", "later"]
    assert not left
    assert_sound(bus)


@pytest.mark.damages_the_log
def test_damaged_table_is_reported_and_rebuilt(connect, bus, page, tmp_path):
    before = fill(page, 6)
    page_all_out(bus)
    gone = next(one for one in before if one.content[-1] == "1")
    expected = page.list(limit=None)
    (file,) = tables_on_disk(tmp_path)
    content = file.read_bytes()
    for damaged in (content[:-3], content[:20] + bytes([content[20] ^ 1]) + content[21:], None):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        fresh = connect(archive_url=tmp_path / "archive")
        with pytest.raises(ArchiveDamaged, match=r"index/.*(it is missing|it was changed).*scratchbus rebuild"):
            fresh.page("main").get(gone.id)
        assert [finding.kind for finding in fresh.verify().findings] == ["archive"]
        assert fresh.page("main").active()
        if damaged is None:
            fresh.rebuild()
            assert fresh.page("main").list(limit=None) == expected
            assert page_all_out(fresh) == 4
            assert fresh.verify().is_sound
        else:
            file.write_bytes(content)
            assert fresh.page("main").get(gone.id)


@pytest.mark.parametrize("change", [lambda content: content[:-3], lambda content: content + b"\0", lambda content: b""])
def test_changed_table_is_found_without_the_engine(bus, page, tmp_path, change):
    fill(page, 6)
    page_all_out(bus)
    (file,) = tables_on_disk(tmp_path)
    content = file.read_bytes()
    file.write_bytes(change(content))
    store = open_store(str(tmp_path / "archive"))
    problems = [
        (each.file, each.problem) for log in verify_archive(store) for each in log.problems if file.stem in each.file
    ]
    assert problems == [
        (file.relative_to(tmp_path / "archive").as_posix(), "its SHA-256 differs from its name: it was changed")
    ]
    assert not [each for log in verify_archive(store, only_chain=True) for each in log.problems]
    file.write_bytes(content)
    assert not [each for log in verify_archive(store) for each in log.problems]


def test_a_table_that_is_damaged_after_this_process_read_it_is_reported(bus, page, tmp_path):
    fill(page, 6)
    page_all_out(bus)
    assert bus.verify().is_sound
    (file,) = tables_on_disk(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:-3])
    assert [finding.kind for finding in bus.verify().findings] == ["archive"]
    file.write_bytes(content)


@pytest.mark.damages_the_log
def test_rebuild_replaces_a_damaged_table_with_the_same_entries(connect, bus, page, tmp_path):
    fill(page, 6)
    page_all_out(bus)
    expected = page.list(limit=None)
    (file,) = tables_on_disk(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:-3])
    fresh = connect(archive_url=tmp_path / "archive")
    fresh.rebuild()
    page_all_out(fresh)
    assert tables_of(fresh)
    assert file.read_bytes() == content
    assert fresh.page("main").list(limit=None) == expected
    assert fresh.verify().is_sound


def test_read_without_archive_url_says_to_set_it(connect, bus, page):
    gone = next(one for one in fill(page, 6) if one.content[-1] == "1")
    page_all_out(bus)
    without = connect(archive_url=None).page("main")
    with pytest.raises(PositionLost, match="archive_url"):
        without.get(gone.id)
    assert without.active()


@pytest.mark.damages_the_log
def test_verify_finds_wrong_table_entries(bus, page, tmp_path):
    fill(page, 6)
    page_all_out(bus)
    (name,) = tables_of(bus)
    keys = keys_of(bus)
    table = bus.converse(load_table(bus.core.log, keys.shard, name))
    ids = {id: table.find(id) for id in table.ids()}
    places = {place.added: place for place in table.entries(0, 1 << 62)}
    wrong, twisted = sorted(ids)[0], sorted(ids)[1]
    places[ids[twisted]] = places[ids[twisted]]._replace(traits=7)
    stranger = bytes_of("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    ids = {id: at for id, at in ids.items() if id != wrong} | {stranger: 999}
    places[999] = places[ids[twisted]]._replace(added=999)
    sha256 = bus.core.log.archive.put_table(keys.shard, pack_table(ids, places))
    send(bus, "HSET", names_of(bus).tables, name.number, str(name_table([], sha256, ids, places)))
    found = {each.where.rpartition(" ")[2]: each.what for each in bus.verify().findings if each.kind == "paged"}
    assert found.keys() == {"01ARZ3NDEKTSV4RRFFQ69G5FAV", *map(id_text, (wrong, twisted))}
    assert found[id_text(wrong)] == "is missing"
    assert found[id_text(twisted)].startswith("traits is 7 instead of")
    send(bus, "HSET", names_of(bus).tables, name.number, "no table")
    assert any("cannot be read" in each.what for each in bus.verify().findings)


def test_a_process_keeps_few_tables_in_memory(bus, page):
    for _ in range(MAX_LOADED + 3):
        page.add_many([NewObservation(type="observation", content="x") for _ in range(FEW)])
        for one in page.list(status="active"):
            page.archive(one.id)
        page_all_out(bus)
    assert len(tables_of(bus)) == MAX_LOADED + 3
    assert len(page.list(limit=None)) == (MAX_LOADED + 3) * FEW
    assert len(bus.core.log.tables) == MAX_LOADED


@pytest.mark.engines("memory")
def test_table_finds_exactly_its_entries():
    random = Random(1)
    ids = {random.randbytes(16): added * 3 for added in range(500)}
    places = {added: PagedOut(added, random.getrandbits(40), added + 9, 5) for added in ids.values()}
    table = Table(pack_table(ids, places))
    assert all(table.find(id) == added for id, added in ids.items())
    assert all(table.entry(added) == place for added, place in places.items())
    assert not any(table.find(random.randbytes(16)) for _ in range(100))
    assert [table.entry(n) for n in (1, 1498, 1 << 60)] == [None] * 3
    assert [place.added for place in table.entries(299, 310)] == [300, 303, 306, 309]
    name = name_table([], "ab" * 32, ids, places)
    assert TableName.parse(b"1", str(name).encode()) == name
    assert name.spans(0)
    assert name.spans(1497)
    assert not name.spans(1498)
    with pytest.raises(ValueError, match="cut short"):
        Table(pack_table(ids, places)[:-9])


def test_the_bits_of_a_field_are_those_of_stored_entries():
    assert (trait("type", "observation"), trait("tag", "é")) == (0x100400020, 0x900000010000)
