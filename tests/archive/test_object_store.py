"""An archive in an object store over the network, including failures midway."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from secrets import token_hex

import pytest

from scratchbus import Bus
from scratchbus.archive.archive_check import verify
from scratchbus.archive.archiver import archive_bus
from scratchbus.archive.contents import archived_segments
from scratchbus.archive.object_store import ObjectStore
from scratchbus.archive.stores import open_store
from scratchbus.errors import ArchiveDamaged, ArchiveUnavailable
from tests.archive.buckets import Bucket, bucket
from tests.inspection import settle
from tests.log.test_forks import run_in_child


@pytest.fixture
def objects() -> Iterator[Bucket]:
    with bucket() as held:
        yield held


@pytest.fixture
def bus(objects: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """A bus whose archive is in the bucket; failed requests are not retried."""
    at = ObjectStore.at
    monkeypatch.setattr(ObjectStore, "at", lambda url: at(url, retries=0))
    with Bus.connect(
        f"memory://{token_hex(6)}", bus="kept", source="tester", archive_url=objects.url, archive_segment=10,
        retain="1ms", retain_events=10,
    ) as bus:  # fmt: skip
        for number in range(50):
            bus.page().add("observation", f"{number}")
        settle(bus)
        yield bus


def problems(url: str) -> list[str]:
    return [f"{each.file}: {each.problem}" for log in verify(open_store(url)) for each in log.problems]


@pytest.mark.slow
def test_an_object_store_serves_writes_reads_erasure_and_checks(bus: Bus, objects: Bucket) -> None:
    events = list(bus.events())
    archive_bus(bus)
    assert all(name.startswith("pre/fix/kept/0000/") for name in objects.objects)
    assert list(bus.events()) == events
    bus.page().erase(events[3].subject, reason="asked for")
    assert [event.seq for event in bus.events()] == [*range(1, 4), *range(5, 52)]
    assert [each.erased for each in archived_segments(open_store(objects.url))] == [1, 0, 0, 0]
    assert problems(objects.url) == []
    assert bus.verify().findings == []


@pytest.mark.slow
def test_a_failure_midway_loses_nothing_and_archiving_resumes(bus: Bus, objects: Bucket) -> None:
    events = list(bus.events())
    for step in range(1, 30, 3):
        left = count(step, -1)
        objects.fails = lambda method, name, left=left: 500 if next(left) <= 1 else 0  # type: ignore[misc]
        try:
            archive_bus(bus)
            break
        except ArchiveUnavailable:
            objects.fails = lambda method, name: 0
            assert list(bus.events()) == events
    assert step > 5, "archiving failed several times"
    objects.fails = lambda method, name: 0
    archive_bus(bus)
    assert list(bus.events()) == events
    assert problems(objects.url) == []
    assert len(objects.objects) == 3 * 4 + 1


@pytest.mark.slow
def test_a_truncated_object_is_damaged_at_every_event(bus: Bus, objects: Bucket) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scratchbus.archive.blocks.BLOCK_BYTES", 1_000)
        archive_bus(bus)
    events = [*bus.events()]
    name = next(name for name in objects.objects if name.endswith("jsonl.zst"))
    objects.objects[name] = objects.objects[name][:20]
    for event in events[:10:4]:
        with (
            Bus.connect(bus.settings.url, bus="kept", archive_url=objects.url) as reader,
            pytest.raises(ArchiveDamaged, match="its size is not that of its blocks"),
        ):
            reader.page().history(event.subject)


@pytest.mark.parametrize("code", [401, 403, 507])
def test_a_refused_upload_is_an_error_and_trims_nothing(bus: Bus, objects: Bucket, code: int) -> None:
    objects.fails = lambda method, name: code if method == "PUT" else 0
    with pytest.raises(ArchiveUnavailable, match="check the object store and the permissions of its key") as raised:
        archive_bus(bus)
    assert "s3cr3t" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert objects.objects == {}
    assert [event.seq for event in bus.events()] == list(range(1, 51))


def test_an_existing_manifest_is_not_overwritten(bus: Bus, objects: Bucket) -> None:
    archive_bus(bus)
    store, name = open_store(objects.url), "kept/0000/0000000000000001.manifest.json"
    before = objects.objects[f"pre/fix/{name}"]
    assert not store.put_new(name, b"another")
    assert objects.objects[f"pre/fix/{name}"] == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of threads
def test_a_forked_child_gets_an_error_if_its_parent_used_an_object_store(objects: Bucket) -> None:
    store = open_store(objects.url)
    store.put_new("a/one", b"1")

    def read() -> None:
        for held in (store, open_store(objects.url)):
            with pytest.raises(ArchiveUnavailable, match=r"one: object stores cannot be used.*'spawn'"):
                held.get("a/one")

    run_in_child(read)
    assert store.get("a/one") == b"1"
