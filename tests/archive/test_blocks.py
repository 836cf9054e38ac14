"""Segments are divided into blocks: an event is read with one block. The first format is still supported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus import Bus
from scratchbus.archive import blocks
from scratchbus.archive.archive_check import verify
from scratchbus.archive.blocks import BlockPacker, Packed, pack, unpack
from scratchbus.archive.manifest import END, Block, Manifest, StoredFile
from scratchbus.archive.stores import DirectoryStore, open_store
from scratchbus.errors import ArchiveDamaged

LINES = st.lists(st.binary(min_size=20, max_size=60).map(lambda line: line.replace(b"\n", b" ")), min_size=1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Record the name, start and length of each part of a file that is read."""
    seen: list[tuple[str, int, int]] = []
    get_part = DirectoryStore.get_part

    def noted(self: DirectoryStore, name: str, start: int, length: int) -> bytes | None:
        seen.append((name, start, length))
        return get_part(self, name, start, length)

    monkeypatch.setattr(DirectoryStore, "get_part", noted)
    return seen


def folder(directory: Path) -> Path:
    return directory / "kept" / "0000"


def manifests(directory: Path) -> list[Manifest]:
    return [Manifest.parse(file.read_bytes()) for file in sorted(folder(directory).glob("*.manifest.json"))]


def problems(directory: Path) -> list[str]:
    return [each.problem for log in verify(open_store(str(directory))) for each in log.problems]


def reader(bus: Bus) -> Bus:
    """Connect another bus to the same log and archive, with empty caches."""
    core = bus.core
    settings = {"archive_url": core.settings.archive_url, "source": "reader"}
    return Bus.connect(str(core.settings.url), bus=core.log.bus, **settings)


@given(LINES, st.integers(1, 200))
def test_packed_lines_unpack(lines: list[bytes], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", size)
        packer = BlockPacker()
        for at in range(0, len(lines), 3):
            packer.add(lines[at : at + 3], sum(len(line) + 1 for line in lines[at : at + 3]))
        for packed in (packer.finish(), pack(lines)):
            assert unpack(*packed) == lines
            assert sum(block.lines for block in packed.blocks) == len(lines)


def test_lines_of_the_size_of_a_block_stay_in_one_block(monkeypatch) -> None:
    lines = [b"%029d" % number for number in range(10)]
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 300)
    packer = BlockPacker()
    packer.add(lines, 300)
    for packed in (packer.finish(), pack(lines)):
        assert [block.lines for block in packed.blocks] == [10]


@pytest.mark.parametrize("count", [11, 19, 21, 29, 101])
def test_no_block_is_much_smaller_than_the_others(count: int, monkeypatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 300)
    lines = [b"%030d" % number for number in range(count)]
    packer = BlockPacker()
    packer.add(lines, 30 * count)
    for packed in (packer.finish(), pack(lines)):
        sizes = [block.lines for block in packed.blocks]
        assert max(sizes) - min(sizes) <= 1
        assert 5 <= min(sizes) <= max(sizes) <= 15


def test_lines_are_packed_after_the_main_thread_has_ended(monkeypatch) -> None:
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    packer, lines = BlockPacker(), [b"%030d" % number for number in range(10)]
    packer.add(lines, 310)
    assert unpack(*packer.finish()) == lines


@pytest.mark.parametrize(
    "change",
    [
        lambda packed: packed._replace(blocks=packed.blocks[:-1]),
        lambda packed: packed._replace(blocks=packed.blocks[::-1]),
        lambda packed: packed._replace(content=packed.content[:-1]),
        lambda packed: packed._replace(content=packed.content + b"x"),
        lambda packed: packed._replace(blocks=[each.model_copy(update={"lines": 1}) for each in packed.blocks]),
        lambda packed: packed._replace(blocks=[each.model_copy(update={"sha256": "0"}) for each in packed.blocks]),
    ],
)
def test_blocks_that_do_not_match_the_content_are_refused(change: Callable[[Packed], Packed], monkeypatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 80)
    packed = pack([b"%030d" % number for number in range(10)])
    assert len(packed.blocks) > 3
    with pytest.raises(ValueError, match=r"block|lines"):
        unpack(*change(packed))


def test_lines_too_short_for_events_are_refused_before_they_are_split() -> None:
    with pytest.raises(ValueError, match="too short to be events"):
        unpack(*pack([b"{}"] * 100))


def test_the_unpacking_limit_is_for_all_blocks_together(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
    packed = pack([b"%030d" % number for number in range(10)])
    monkeypatch.setattr(blocks, "MAX_UNPACKED", 250)
    assert unpack(packed.content[: packed.blocks[0].size], packed.blocks[:1])
    with pytest.raises(ValueError, match="more than"):
        unpack(*packed)


def test_the_history_of_one_observation_reads_one_block(archived: Bus, directory: Path, reads) -> None:
    manifest = manifests(directory)[2]
    assert len(manifest.blocks) > 3
    with reader(archived) as bus:
        event = next(event for event in archived.events() if event.seq == manifest.chain.first.seq + 7)
        reads.clear()
        assert bus.page(event.page).history(event.subject) == [event]
    (read,) = reads
    assert read[0].endswith(manifest.files.segment.name)
    assert read[2] in [block.size for block in manifest.blocks]


def test_reading_consecutive_events_reads_each_block_once(archived: Bus, directory: Path, reads) -> None:
    manifest = manifests(directory)[2]
    first = manifest.chain.first.seq
    events = {event.seq: event for event in archived.events()}
    with reader(archived) as bus:
        reads.clear()
        for seq in range(first, first + manifest.chain.count):
            assert bus.page(events[seq].page).history(events[seq].subject) == [events[seq]]
    assert [length for _, _, length in reads] == [block.size for block in manifest.blocks]


def test_the_unpacking_limit_holds_for_sequential_reads(archived: Bus, monkeypatch) -> None:
    monkeypatch.setattr(blocks, "MAX_UNPACKED", 2_000)
    with reader(archived) as bus, pytest.raises(ArchiveDamaged, match="unpacks to more than"):
        list(bus.events())


def test_sequential_reads_take_two_parts_per_segment(archived: Bus, directory: Path, reads) -> None:
    expected = list(archived.events())
    reads.clear()
    with reader(archived) as bus:
        assert list(bus.events()) == expected
    found = manifests(directory)
    assert len(reads) == 2 * len(found)
    assert sum(length for _, _, length in reads) == sum(manifest.files.segment.size for manifest in found)


def to_first_format(directory: Path) -> None:
    """Rewrite an archive in the first version of the format."""
    before: Manifest | None = None
    for file in sorted(folder(directory).glob("*.manifest.json")):
        manifest = Manifest.parse(file.read_bytes())
        segment = folder(directory) / manifest.files.segment.name
        packed = pack(unpack(segment.read_bytes(), manifest.blocks), 1)
        segment.write_bytes(packed.content)
        link = {"previous_sha256": before.chain.sha256} if before else {}
        chain = manifest.chain.model_copy(update={"format": 1, **link})
        files = {"segment": StoredFile.of(segment.name, packed.content), "blocks": packed.blocks}
        before = Manifest(chain, manifest.files.model_copy(update=files))
        file.write_bytes(before.encode())
        assert b"blocks" not in file.read_bytes()
    assert before is not None
    (folder(directory) / END).write_bytes(before.end)


def test_an_archive_of_the_first_format_is_still_usable(archived: Bus, directory: Path) -> None:
    expected = list(archived.events())
    to_first_format(directory)
    assert problems(directory) == []
    with reader(archived) as bus:
        assert list(bus.events()) == expected
        event = expected[12]
        assert bus.page(event.page).history(event.subject) == [event]
        bus.page(event.page).erase(event.subject, reason="asked for")
    assert problems(directory) == []
    (rewritten,) = [manifest for manifest in manifests(directory) if manifest.files.erased]
    assert (rewritten.chain.format, rewritten.files.blocks) == (1, [])
    with reader(archived) as bus:
        assert [each.seq for each in bus.events()][:13] == [*range(1, 13), 14]


def test_a_manifest_whose_blocks_do_not_add_up_is_refused(archive: Path) -> None:
    manifest = manifests(archive)[1]
    for change in ({"lines": 99}, {"size": 99}):
        wrong = [manifest.blocks[0].model_copy(update=change), *manifest.blocks[1:]]
        files = manifest.files.model_copy(update={"blocks": wrong})
        with pytest.raises(ValueError, match="do not add up"):
            Manifest.parse(Manifest(manifest.chain, files).encode())


@pytest.mark.parametrize(("size", "lines"), [(0, 1), (1, 0), (-1, 1), (1, -1), (2**70, 1)])
def test_a_block_of_an_impossible_size_is_refused(archive: Path, size: int, lines: int) -> None:
    """Even if the blocks add up, no reader asks a store for a part outside its file."""
    manifest = manifests(archive)[1]
    segment, count = manifest.files.segment, manifest.chain.count
    odd = Block(lines=lines, size=size, sha256=segment.sha256)
    rest = Block(lines=count - lines, size=max(1, segment.size - size), sha256=segment.sha256)
    changed = {"segment": segment.model_copy(update={"size": odd.size + rest.size}), "blocks": [odd, rest]}
    with pytest.raises(ValueError, match=r"is empty|none has more"):
        Manifest.parse(Manifest(manifest.chain, manifest.files.model_copy(update=changed)).encode())


def test_a_block_with_a_wrong_hash_is_found(archive: Path) -> None:
    file = sorted(folder(archive).glob("*.manifest.json"))[1]
    manifest = Manifest.parse(file.read_bytes())
    wrong = [Block(**{**manifest.blocks[0].model_dump(), "sha256": "0" * 64}), *manifest.blocks[1:]]
    file.write_bytes(Manifest(manifest.chain, manifest.files.model_copy(update={"blocks": wrong})).encode())
    assert any("block" in problem for problem in problems(archive))


def test_reading_a_missing_segment_is_an_error(archived: Bus, directory: Path, tmp_path: Path) -> None:
    manifest = manifests(directory)[2]
    segment = folder(directory) / manifest.files.segment.name
    event = next(event for event in archived.events() if event.seq == manifest.chain.first.seq + 7)
    shutil.move(segment, tmp_path / "elsewhere")
    with reader(archived) as bus, pytest.raises(Exception, match="it is missing"):
        bus.page(event.page).history(event.subject)
