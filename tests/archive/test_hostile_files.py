"""Damaged or malicious archive files raise only our errors, within bounds of memory and time."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.archive.archive_check import verify
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.manifest import END, Block, Manifest, SegmentFiles, StoredFile
from scratchbus.archive.stores import open_store
from scratchbus.errors import ArchiveDamaged, ScratchbusError
from scratchbus.eventlog.compression import decompress, zstd

pytestmark = pytest.mark.real


def folder(directory: Path) -> Path:
    return directory / "kept" / "0000"


@cache
def bomb() -> bytes:
    """Return about 256 KiB that unpack to a gigabyte of line breaks."""
    packer = zstd.ZstdCompressor(level=3)
    part = b"\n" * 2**20
    return b"".join(packer.compress(part) for _ in range(1024)) + packer.flush()


def replace_file(directory: Path, which: str, content: bytes, **chain: object) -> None:
    """Replace the first segment or index, and update its manifest to match."""
    path = sorted(folder(directory).glob("*.manifest.json"))[0]
    manifest = Manifest.parse(path.read_bytes())
    files = manifest.files.model_dump()
    stored = StoredFile.of(files[which]["name"], content)
    (folder(directory) / stored.name).write_bytes(content)
    if which == "segment":
        files["blocks"] = [{"lines": manifest.chain.count, "size": stored.size, "sha256": stored.sha256}]
    new = SegmentFiles.model_validate({**files, which: stored.model_dump()})
    path.write_bytes(Manifest(manifest.chain.model_copy(update=chain), new).encode())


def read_all(bus: Bus) -> None:
    """Read all archived events, with empty caches."""
    archive = bus.core.log.archive
    assert archive is not None
    with Bus.connect(bus.settings.url, bus="kept", archive_url=bus.settings.archive_url) as other:
        for event in list(other.events())[:3]:
            other.page(event.page).history(event.subject)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["segment", "index"])
def test_a_decompression_bomb_is_refused(archived: Bus, directory: Path, which: str) -> None:
    content = bomb()
    assert len(content) < 1024 * 1024
    replace_file(directory, which, content)
    problems = [each.problem for log in verify(open_store(str(directory))) for each in log.problems]
    assert any("unpack" in problem or "bytes" in problem for problem in problems)
    if which == "segment":
        with pytest.raises(ArchiveDamaged):
            read_all(archived)


def test_data_after_a_compressed_frame_is_refused() -> None:
    content = zstd.compress(b"{}")
    assert decompress(content, 2) == b"{}"
    with pytest.raises(ValueError, match="data after its end"):
        decompress(content + content, 4)


@pytest.mark.parametrize("which", ["segment", "index"])
@pytest.mark.parametrize("name", ["0000000000000001./../secret", "0000000000000011.jsonl.zst", "secret"])
def test_a_manifest_that_names_files_of_others_is_refused(archive: Path, which: str, name: str) -> None:
    chain, files = Manifest.parse(min(folder(archive).glob("*.manifest.json")).read_bytes())
    stored = getattr(files, which).model_copy(update={"name": name})
    changed = Manifest(chain, files.model_copy(update={which: stored}))
    with pytest.raises(ValueError, match="is not a file of its segment"):
        Manifest.parse(changed.encode())


def test_a_manifest_with_another_count_than_its_ends_is_refused(archive: Path) -> None:
    chain, files = Manifest.parse(min(folder(archive).glob("*.manifest.json")).read_bytes())
    changed = Manifest(chain.model_copy(update={"count": 11}), files)
    with pytest.raises(ValueError, match="it says that there are 11 events from"):
        Manifest.parse(changed.encode())


def test_archive_files_are_private_to_their_owner(archived: Bus, directory: Path) -> None:
    files = [path for path in directory.rglob("*") if path.is_file()]
    folders = [directory, *(path for path in directory.rglob("*") if path.is_dir())]
    assert len(files) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_an_existing_directory_keeps_its_mode(bus: Bus, directory: Path) -> None:
    directory.mkdir(mode=0o750)
    directory.chmod(0o750)
    archive_bus(bus)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750
    assert stat.S_IMODE(folder(directory).stat().st_mode) == 0o700


def flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def torn(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def odd_line(content: bytes, draw: random.Random) -> bytes:
    """Change a value in a line or an index, and pack it again."""
    lines = zstd.decompress(content).split(b"\n")
    at = draw.randrange(len(lines))
    try:
        parsed = json.loads(lines[at])
    except ValueError:
        return zstd.compress(b"\n".join(lines[:at] + lines[at + 1 :]))
    odd: list[object] = [None, True, -1, 2**70, 1.5, "x", "", [], [None], {}, {"a": None}, "9-9"]
    key = draw.choice(list(parsed))
    if isinstance(parsed[key], dict) and parsed[key] and draw.random() < 0.6:
        parsed[key][draw.choice(list(parsed[key]))] = draw.choice(odd)
    else:
        parsed[key] = draw.choice(odd)
    lines[at] = json.dumps(parsed, separators=(",", ":")).encode()
    return zstd.compress(b"\n".join(lines))


def odd_manifest(content: bytes, draw: random.Random) -> bytes:
    """Change a value in a manifest, and update its checksum."""
    parts = json.loads(content)
    del parts["sha256"]
    files = parts["files"]
    holders = [parts, parts["chain"], files, parts["chain"]["first"], files["segment"], *files["blocks"]]
    holder = draw.choice(holders)
    odd: list[object] = [None, True, -1, 0, 2**70, "x", "", [], [None], {}, "9-9", "../../x", "1-1", "/etc/passwd"]
    holder[draw.choice(list(holder))] = draw.choice(odd)
    text = json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()
    return (
        json.dumps({**parts, "sha256": sha256(text).hexdigest()}, sort_keys=True, separators=(",", ":")).encode()
        + b"\n"
    )


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "*.manifest.json flipped": flipped,
    "*.manifest.json torn": torn,
    "*.manifest.json odd": odd_manifest,
    "*.jsonl.zst flipped": flipped,
    "*.jsonl.zst odd": odd_line,
    "*.index.json.zst flipped": flipped,
    "*.index.json.zst odd": odd_line,
    END + " flipped": flipped,
    END + " torn": torn,
}


CASES = [
    *(pytest.param(change, False, id=f"alone-{change}") for change in CHANGES),
    *(pytest.param(change, True, id=f"matching manifest-{change}") for change in CHANGES if ".zst" in change),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "has_matching_manifest"), CASES)
@pytest.mark.parametrize("tries", [4, pytest.param(100, marks=pytest.mark.faults)])
def test_a_changed_file_raises_only_our_errors(
    archived: Bus, directory: Path, change: str, has_matching_manifest: bool, tries: int
) -> None:
    pattern, draw = change.split()[0], random.Random(change)
    whole = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    for _ in range(tries):
        path = draw.choice(sorted(folder(directory).glob(pattern)))
        content = CHANGES[change](whole[path], draw)
        if has_matching_manifest and path.suffix == ".zst":
            for manifest_path in folder(directory).glob("*.manifest.json"):
                manifest = Manifest.parse(manifest_path.read_bytes())
                for which in ("segment", "index"):
                    stored = getattr(manifest.files, which)
                    if stored.name == path.name:
                        file = StoredFile.of(path.name, content)
                        block = Block(lines=manifest.chain.count, size=file.size, sha256=file.sha256)
                        update = {"segment": file, "blocks": [block]} if which == "segment" else {which: file}
                        files = manifest.files.model_copy(update=update)
                        manifest_path.write_bytes(Manifest(manifest.chain, files).encode())
        path.write_bytes(content)
        verify(open_store(str(directory)))
        archived.verify()
        for act in (read_all, archive_bus):
            with suppress(ScratchbusError):
                act(archived)
        for each, before in whole.items():
            each.write_bytes(before)
