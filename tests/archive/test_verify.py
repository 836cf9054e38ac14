"""Verifying archives: an intact one has no problems; what was changed in another is found and located."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import duckdb
import pytest

from scratchbus import Bus
from scratchbus.archive.archive_check import verify
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.blocks import pack, unpack
from scratchbus.archive.catalog import read_file
from scratchbus.archive.contents import archived_segments
from scratchbus.archive.lines import check_line, erase_lines, position_of
from scratchbus.archive.manifest import FORMAT, Manifest, SegmentFiles, StoredFile
from scratchbus.archive.segment import index_of
from scratchbus.archive.stores import open_store
from scratchbus.errors import ArchiveDamaged, ArchiveForeign, ArchiveUnavailable
from scratchbus.eventlog.compression import zstd

pytestmark = pytest.mark.real


def problems(directory: Path) -> list[str]:
    return [f"{each.file}: {each.problem}" for log in verify(open_store(str(directory))) for each in log.problems]


def folder(directory: Path) -> Path:
    return directory / "kept" / "0000"


def manifests(directory: Path) -> list[Path]:
    return sorted(folder(directory).glob("*.manifest.json"))


def segments(directory: Path) -> list[Path]:
    return sorted(folder(directory).glob("*.jsonl.zst"))


def indexes(directory: Path) -> list[Path]:
    return sorted(folder(directory).glob("*.index.json.zst"))


def rewrite(directory: Path, at: int, change: Callable[[list[bytes]], list[bytes]], **erased: list[int]) -> None:
    """Change the lines of a segment, and update its index and manifest to match, as an attacker would."""
    manifest = Manifest.parse(manifests(directory)[at].read_bytes())
    file = folder(directory) / manifest.files.segment.name
    lines = change(unpack(file.read_bytes(), manifest.blocks))
    packed = pack(lines)
    file.write_bytes(packed.content)
    index_file = folder(directory) / manifest.files.index.name
    checked = [check_line(line, position_of(line)[1]) for line in lines]
    index_file.write_bytes(index_of(checked).encode())
    files = SegmentFiles(
        segment=StoredFile.of(file.name, file.read_bytes()),
        index=StoredFile.of(index_file.name, index_file.read_bytes()),
        blocks=packed.blocks,
        **erased,
    )
    manifests(directory)[at].write_bytes(Manifest(manifest.chain, files).encode())


def test_an_intact_archive_has_no_problems(archive: Path):
    (log,) = verify(open_store(str(archive)))
    assert log.problems == []
    assert (log.bus, log.shard, log.segments, log.events, log.erased) == ("kept", 0, 5, 50, 0)
    assert [each.events for each in archived_segments(open_store(str(archive)))] == [10] * 5


def test_a_flipped_byte_in_any_file_is_found(archive: Path):
    for file in (manifests(archive)[1], manifests(archive)[-1], segments(archive)[1], indexes(archive)[1]):
        content = file.read_bytes()
        for at in range(0, len(content), len(content) // 12):  # one checksum is over all of them
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert any(file.name[:16] in each for each in problems(archive)), f"byte {at} of {file.name}"
        file.write_bytes(content)
    assert problems(archive) == []


@pytest.mark.parametrize("kind", [manifests, segments, indexes])
def test_a_dropped_inserted_or_swapped_byte_is_found(archive: Path, kind):
    file = kind(archive)[2]
    content = file.read_bytes()
    at = next(at for at in range(len(content) // 2, len(content)) if content[at] != content[at + 1])
    for changed in (
        content[:at] + content[at + 1 :],
        content[:at] + b"x" + content[at:],
        content[:at] + content[at + 1 : at + 2] + content[at : at + 1] + content[at + 2 :],
        content + b" ",
        content[: len(content) // 2],
        b"",
    ):
        file.write_bytes(changed)
        assert any(file.name[:16] in each for each in problems(archive))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:3], lines[3].replace(b'"content":"', b'"content":"!'), *lines[4:]],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
        lambda lines: [*lines[:3], lines[3], *lines[3:]],
        lambda lines: lines[:-1],
        lambda lines: erase_lines(lines, {position_of(lines[3])[1]}),
    ],
    ids=["changed", "dropped", "swapped", "inserted", "cut off", "erased without a record"],
)
def test_a_changed_event_is_found_despite_a_matching_manifest(archive: Path, change):
    rewrite(archive, 1, change)
    found = problems(archive)
    assert found
    assert all(manifests(archive)[1].name[:16] in each for each in found)


def early(line: bytes) -> bytes:
    """Return a line as that of an event of the first millisecond."""
    return re.sub(rb'"ms":\d+', b'"ms":1', line, count=1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: [early(lines[0]), *lines[1:]], "its manifest says from"),
        (
            lambda lines: [*lines[:3], early(lines[3]), *lines[4:]],
            "line 4, event 14: it is older than the previous one",
        ),
        (
            lambda lines: [*lines[:-1], re.sub(rb'"batch":"\d+/\d+"', b'"batch":"1/2"', lines[-1], count=1)],
            "its last batch is incomplete",
        ),
    ],
    ids=["another first event", "older", "half a batch"],
)
def test_a_changed_order_is_explained(archive: Path, change, problem: str):
    rewrite(archive, 1, change)
    assert any(problem in each for each in problems(archive))


def test_readers_refuse_the_line_of_another_event(archived: Bus, directory: Path):
    rewrite(directory, 0, lambda lines: [lines[1], lines[0], *lines[2:]])
    settings = archived.settings
    with (
        Bus.connect(settings.url, bus="kept", archive_url=settings.archive_url) as other,
        pytest.raises(ArchiveDamaged, match=r"event 1: its line is that of \d+-2"),
    ):
        list(other.events())


def test_readers_refuse_an_event_of_another_time(archived: Bus, directory: Path):
    event = [*archived.events()][2]
    rewrite(directory, 0, lambda lines: [*lines[:2], early(lines[2]), *lines[3:]])
    settings = archived.settings
    with (
        Bus.connect(settings.url, bus="kept", archive_url=settings.archive_url) as other,
        pytest.raises(ArchiveForeign, match=r"has event 1-3 instead of \d+-3: it is the archive of another log; set"),
    ):
        other.page(event.page).history(event.subject)


def exchange_index(directory: Path) -> Path:
    """Give a segment the index of the next one, with a matching manifest; return the file."""
    manifest, other = (Manifest.parse(file.read_bytes()) for file in manifests(directory)[1:3])
    file = folder(directory) / manifest.files.index.name
    file.write_bytes((folder(directory) / other.files.index.name).read_bytes())
    index = StoredFile.of(file.name, file.read_bytes())
    changed = Manifest(manifest.chain, manifest.files.model_copy(update={"index": index}))
    manifests(directory)[1].write_bytes(changed.encode())
    return file


def test_the_index_of_another_segment_is_found(archive: Path):
    file = exchange_index(archive)
    assert problems(archive) == [f"kept/0000/{file.name}: it does not match the segment"]


def test_readers_refuse_the_index_of_another_segment(archived: Bus, directory: Path):
    file, settings = exchange_index(directory), archived.settings
    problem = f"{file.name}: it names events that the segment does not have; restore it"
    with (
        Bus.connect(settings.url, bus="kept", archive_url=settings.archive_url) as other,
        pytest.raises(ArchiveDamaged, match=problem),
    ):
        list(other.events(pages="page-1"))


def test_a_first_manifest_that_names_a_predecessor_is_found(archive: Path):
    first, second = manifests(archive)[:2]
    chain, files = Manifest.parse(first.read_bytes())
    changed = chain.model_copy(update={"previous": second.name, "previous_sha256": "0" * 64})
    first.write_bytes(Manifest(changed, files).encode())
    assert any(f"it is the first manifest, but names {second.name}" in each for each in problems(archive))


def test_recorded_erasures_are_counted_and_are_no_problem(archive: Path):
    rewrite(archive, 1, lambda lines: erase_lines(lines, {13, 14}), erased=[13, 14])
    (log,) = verify(open_store(str(archive)))
    assert log.problems == []
    assert log.erased == 2


def test_a_chain_forged_from_some_point_on_is_found(archive: Path):
    file = manifests(archive)[1]
    manifest = Manifest.parse(file.read_bytes())
    chain = manifest.chain.model_copy(update={"origin": "another"})
    file.write_bytes(Manifest(chain, manifest.files).encode())
    assert any("SHA-256 differs from the one" in each for each in problems(archive))
    assert any("another log" in each for each in problems(archive))


def ends(directory: Path) -> list[Path]:
    return [folder(directory) / "end.json"]


def tables(directory: Path) -> list[Path]:
    """Write a table of paged-out observations and return it."""
    content = b"a table"
    file = folder(directory) / "index" / f"{sha256(content).hexdigest()}.zst"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return [file]


@pytest.mark.parametrize("at", [0, 2, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("kind", [manifests, segments, indexes, ends, tables])
def test_a_file_without_permission_is_a_problem_beside_those_of_other_files(
    archive: Path, monkeypatch: pytest.MonkeyPatch, kind, at: int
):
    file = kind(archive)[at if len(kind(archive)) > 1 else 0]
    others = [each for each in (segments(archive)[1], indexes(archive)[3]) if each != file]
    for each in others:
        each.write_bytes(b"")
    read = Path.read_bytes

    def read_permitted(path: Path) -> bytes:
        if path == file:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_permitted)
    found = problems(archive)
    refused = f"{file.name}: it cannot be read: archive {file}: Permission denied; check the disk"
    assert sum(refused in each for each in found) == 1
    assert not [each for each in found if f"{file.name}: " in each and refused not in each]
    for each in others:
        assert any(f"{each.name}: it has 0 bytes" in problem for problem in found)


@pytest.mark.parametrize(("kind", "at"), [(manifests, -1), (segments, 0), (indexes, 2), (ends, 0)])
def test_a_directory_in_the_place_of_a_file_is_a_problem(archive: Path, kind, at: int):
    file = kind(archive)[at]
    file.unlink()
    file.mkdir()
    assert sum(f"{file.name}: it cannot be read: " in each for each in problems(archive)) == 1


def test_an_archive_that_disappears_while_it_is_checked_is_unavailable(archive: Path):
    store = open_store(str(archive))

    def remove(done: int, total: int) -> None:
        if archive.exists():
            shutil.rmtree(archive)

    with pytest.raises(ArchiveUnavailable, match="mount it again"):
        verify(store, remove)


def fail(what: str) -> None:
    raise ArchiveUnavailable(what)


def test_a_store_that_cannot_be_listed_after_a_failed_read_is_unavailable(
    archive: Path, monkeypatch: pytest.MonkeyPatch
):
    store = open_store(str(archive))

    def go_down(done: int, total: int) -> None:
        monkeypatch.setattr(store, "get", fail)
        monkeypatch.setattr(store, "list", lambda prefix: fail("it cannot be listed"))

    with pytest.raises(ArchiveUnavailable, match="it cannot be listed"):
        verify(store, go_down)


def test_a_store_in_which_four_files_in_a_row_cannot_be_read_is_unavailable(
    archive: Path, monkeypatch: pytest.MonkeyPatch
):
    store = open_store(str(archive))
    failed: list[str] = []
    listed: list[str] = []

    def get(name: str) -> None:
        failed.append(name)
        fail(f"{name} cannot be read")

    def list_names(prefix: str = "") -> list[str]:
        listed.append(prefix)
        return list_all(prefix)

    list_all = store.list
    monkeypatch.setattr(store, "get", get)
    monkeypatch.setattr(store, "list", list_names)
    with pytest.raises(ArchiveUnavailable, match=manifests(archive)[3].name):
        verify(store)
    assert set(failed) == {f"kept/0000/{each.name}" for each in manifests(archive)[:4]}
    assert len(listed) == len(set(listed)) + 1, "the folder is listed once more"


def test_a_store_in_which_other_files_can_be_read_is_not_down(archive: Path, monkeypatch: pytest.MonkeyPatch):
    store = open_store(str(archive))
    unread = {f"kept/0000/{each.name}" for each in (*manifests(archive)[::2], indexes(archive)[1], indexes(archive)[3])}

    def get(name: str) -> bytes | None:
        if name in unread:
            fail("no permission")
        return get_content(name)

    get_content = store.get
    monkeypatch.setattr(store, "get", get)
    found = {
        each.file for log in verify(store) for each in log.problems if each.problem.startswith("it cannot be read")
    }
    assert found == unread


def test_a_read_that_fails_once_is_no_problem(archive: Path, monkeypatch: pytest.MonkeyPatch):
    store = open_store(str(archive))
    read: set[str] = set()

    def get(name: str) -> bytes | None:
        if name not in read:
            read.add(name)
            fail("it was busy")
        return get_content(name)

    get_content = store.get
    monkeypatch.setattr(store, "get", get)
    assert [each.problems for each in verify(store)] == [[]]
    assert len(read) > 10


def test_files_are_not_reported_as_unnamed_if_a_manifest_cannot_be_read(archive: Path, monkeypatch: pytest.MonkeyPatch):
    store, unread = open_store(str(archive)), manifests(archive)[1].name

    def get(name: str) -> bytes | None:
        if name.endswith(unread):
            fail("no permission")
        return get_content(name)

    get_content = store.get
    monkeypatch.setattr(store, "get", get)
    found = [each.problem for log in verify(store) for each in log.problems]
    assert found == ["it cannot be read: no permission"]


def test_an_unnamed_file_that_is_gone_by_now_is_no_problem(archive: Path, monkeypatch: pytest.MonkeyPatch):
    store, left = open_store(str(archive)), segments(archive)[0].with_name("0000000000000001-x.jsonl.zst")
    left.write_bytes(b"x")
    assert [each.problem for log in verify(store) for each in log.problems] == [
        "no manifest names it: an archiver is at work or was interrupted, or it was put there by hand"
    ]

    def get(name: str) -> bytes | None:
        if name.endswith(left.name):
            left.unlink()
        return get_content(name)

    get_content = store.get
    monkeypatch.setattr(store, "get", get)
    assert [each.problems for each in verify(store)] == [[]]


@pytest.mark.parametrize("at", [0, 2, 4], ids=["first", "middle", "last"])
@pytest.mark.parametrize("kind", [manifests, segments, indexes])
def test_a_missing_file_is_found(archive: Path, kind, at):
    kind(archive)[at].unlink()
    assert problems(archive)


@pytest.mark.parametrize(
    ("at", "problem"),
    [(0, "no segment has events 1 to 10"), (2, "no segment has events 21 to 30"), (4, "it was the last")],
)
def test_a_segment_missing_with_its_manifest_is_found(archive: Path, at: int, problem: str):
    for kind in (manifests, segments, indexes):
        kind(archive)[at].unlink()
    assert any(problem in each for each in problems(archive))


def test_an_archive_reduced_to_its_end_file_is_found(archive: Path):
    for file in (*manifests(archive), *segments(archive), *indexes(archive)):
        file.unlink()
    assert any("it was the last manifest" in each for each in problems(archive))


def test_a_replaced_last_segment_is_found(archive: Path):
    file = manifests(archive)[-1]
    manifest = Manifest.parse(file.read_bytes())
    file.write_bytes(Manifest(manifest.chain.model_copy(update={"events": "0" * 64}), manifest.files).encode())
    assert any("one of them was changed" in each for each in problems(archive))


def test_the_end_file_is_checked(archive: Path):
    file = folder(archive) / "end.json"
    content = file.read_bytes()
    for at in range(0, len(content), len(content) // 20):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert problems(archive), f"byte {at}"
    file.unlink()
    assert any("end.json: it is missing" in each for each in problems(archive))


@pytest.mark.parametrize(("segments_left", "missing"), [(1, 0), (2, 1)])
def test_the_end_file_may_be_missing_beside_a_single_segment(archive: Path, segments_left: int, missing: int):
    for kind in (manifests, segments, indexes):
        for file in kind(archive)[segments_left:]:
            file.unlink()
    (folder(archive) / "end.json").unlink()
    assert problems(archive) == ["kept/0000/end.json: it is missing; it names the last manifest"] * missing


def test_files_that_a_manifest_names_by_the_end_of_the_check_are_no_problem(
    archive: Path, monkeypatch: pytest.MonkeyPatch
):
    store, last = open_store(str(archive)), manifests(archive)[-1].name
    listing, listed = store.list, list[str]()

    def list_before_the_last_manifest(prefix: str = "") -> list[str]:
        names = listing(prefix)
        if prefix and not listed:
            listed.append(prefix)
            names = [name for name in names if not name.endswith(last)]
        return names

    monkeypatch.setattr(store, "list", list_before_the_last_manifest)
    (log,) = verify(store)
    assert (log.segments, log.problems) == (4, [])


def test_an_archiver_updates_the_end_file_of_a_killed_one(archived: Bus, directory: Path):
    file = folder(directory) / "end.json"
    content = file.read_bytes()
    file.write_bytes(Manifest.parse(manifests(directory)[-2].read_bytes()).end)
    assert problems(directory) == [], "the end file may be one manifest behind"
    archive_bus(archived)
    assert file.read_bytes() == content


def test_a_concurrent_erasure_is_no_problem(archived: Bus, directory: Path, monkeypatch: pytest.MonkeyPatch):
    (id,) = [event.subject for event in archived.events(pages="page-1") if event.seq == 15]

    def read_late(get: Callable[[str], bytes | None], folder: str, file: StoredFile) -> bytes:
        if file.name.startswith(f"{11:016d}"):  # it is rewritten after its manifest was read
            monkeypatch.setattr("scratchbus.archive.archive_check.read_file", read_file)
            archived.page("page-1").erase(id, reason="asked for")
        return read_file(get, folder, file)

    monkeypatch.setattr("scratchbus.archive.archive_check.read_file", read_late)
    assert problems(directory) == []


@pytest.mark.parametrize("kind", [manifests, segments, indexes])
def test_two_swapped_files_are_found(archive: Path, kind):
    one, other = kind(archive)[1:3]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    found = problems(archive)
    assert any(one.name[:16] in each for each in found)
    assert any(other.name[:16] in each for each in found)


@pytest.mark.parametrize("kind", [manifests, segments, indexes])
def test_an_inserted_file_is_found(archive: Path, kind):
    file = kind(archive)[1]
    for number in (12, 51):
        inserted = file.with_name(f"{number:016d}{file.name[16:]}")
        inserted.write_bytes(file.read_bytes())
        assert any(inserted.name in each for each in problems(archive))
        inserted.unlink()
    assert problems(archive) == []


def test_a_damaged_manifest_is_reported_with_the_files_that_it_named(archive: Path):
    file, index, segment = (kind(archive)[1] for kind in (manifests, indexes, segments))
    file.write_bytes(b"{}")
    unnamed = "no manifest names it: an archiver is at work or was interrupted, or it was put there by hand"
    assert problems(archive) == [
        f"kept/0000/{file.name}: it is not a manifest",
        f"kept/0000/{index.name}: {unnamed}",
        f"kept/0000/{segment.name}: {unnamed}",
    ]


def test_a_manifest_of_another_bus_is_found(archive: Path):
    folder(archive).rename(archive / "kept" / "0001")
    assert any("it belongs to bus 'kept', shard 0" in each for each in problems(archive))


def test_a_manifest_of_a_newer_format_asks_for_an_upgrade(archive: Path):
    file = manifests(archive)[0]
    parts = json.loads(file.read_bytes())
    parts["chain"]["format"] = FORMAT + 1
    parts["files"]["a field of that format"] = []
    file.write_bytes(json.dumps(parts).encode())
    assert any("upgrade scratchbus" in each for each in problems(archive))
    with pytest.raises(ArchiveDamaged, match="archive verify"):
        list(archived_segments(open_store(str(archive))))


def test_a_directory_without_an_archive_has_no_problems(tmp_path: Path):
    (tmp_path / "readme.txt").write_text("nothing to do with it")
    assert verify(open_store(str(tmp_path))) == []
    assert verify(open_store(str(tmp_path / "not there"))) == []


def test_any_zstd_decoder_reads_a_segment(archive: Path):
    lines = zstd.decompress(segments(archive)[0].read_bytes()).splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 11))


def test_duckdb_reads_all_segments_at_once(archive: Path):
    query = """
        SELECT page, count(*) FROM read_json($files, format = 'newline_delimited')
        WHERE kind = 'added' AND event.content LIKE '% a' GROUP BY page ORDER BY page
    """
    rows = duckdb.execute(query, {"files": f"{archive}/*/*/*.jsonl.zst"}).fetchall()
    assert rows == [("page-0", 9), ("page-1", 8), ("page-2", 8)]


def test_a_chain_is_checked_without_its_segments(archive: Path):
    for segment in segments(archive):
        segment.write_bytes(b"")
    (report,) = verify(open_store(str(archive)), only_chain=True)
    assert (report.problems, report.segments) == ([], len(segments(archive)))
    manifests(archive)[1].unlink()
    (report,) = verify(open_store(str(archive)), only_chain=True)
    assert "no segment has events" in str(report.problems)


def test_the_segments_of_one_bus_are_listed_although_those_of_another_are_damaged(archive: Path) -> None:
    other = archive / "another" / "0000" / f"{1:016d}.manifest.json"
    other.parent.mkdir(parents=True)
    other.write_text("damaged")
    store = open_store(str(archive))
    assert [each.events for each in archived_segments(store, "kept")] == [10] * 5
    (log,) = verify(store, bus="kept")
    assert (log.segments, log.problems) == (5, [])
    assert not [*archived_segments(store, "none"), *verify(store, bus="none")]
