"""An export has every event as written, and importing it makes an equal bus."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scratchbus import AsyncBus, Bus, BusPosition
from scratchbus.archive.export import line_of
from scratchbus.archive.importing import import_events, importer
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Call
from scratchbus.errors import CodeTooOld, InvalidExport, NotEmpty
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.staging import Staging
from tests.contracts.test_verify import live
from tests.engines import ONE
from tests.inspection import assert_sound, documents, entries, heads, keys_of, project, send

pytestmark = pytest.mark.engines(*ONE)

Connect = Callable[..., Bus]


def export(bus: Bus) -> list[str]:
    return [line_of(event) for event in bus.events()]


def read(bus: Bus, shard: int) -> list[tuple[str, dict[bytes, bytes], object]]:
    """Return the log of a shard, with decoded event bodies."""
    found = [(entry[0].decode(), entry_fields(entry)) for entry in entries(bus, shard)]
    return [(id, fields, json.loads(fields.pop(b"event"))) for id, fields in found]


@pytest.fixture
def copy(connect: Connect, bus_name: str) -> Bus:
    """A new bus on the same engine."""
    return connect(bus=f"{bus_name}-copy")


def test_imported_bus_equals_the_exported_one(bus: Bus, copy: Bus) -> None:
    live(bus)
    lines = export(bus)
    reported: list[int] = []
    assert copy.import_events(lines, reported.append) == len(lines) == reported[-1]
    for shard in range(bus.core.log.shards):
        assert read(copy, shard) == read(bus, shard)
    project(bus)
    project(copy)
    assert documents(copy) == documents(bus)
    assert heads(copy) == heads(bus)
    assert export(copy) == lines
    assert copy.verify().findings == []
    assert_sound(copy)
    copy.refresh_types()
    assert copy.types.text == bus.types.text


def test_erased_observation_is_missing_in_the_copy(bus: Bus, copy: Bus) -> None:
    live(bus)
    page = bus.page()
    tombstone = page.erase(page.list(text="rests")[0].id, reason="asked for")
    notepad = bus.notepad("twice")
    for content in ("first", "second"):
        notepad.write(content)
        twice = bus.page("session:twice").erase("notepad", reason="asked for")
    assert [Position.parse(each).seq for each in twice.positions] == [twice.seq - behind for behind in (3, 2, 1)]
    page.add("observation", "later")
    copy.import_events(export(bus))
    for each in (bus, copy):
        assert each.verify().findings == []
        assert [event.kind for event in each.page().history(tombstone.subject)] == ["erased"]
    assert list(copy.events()) == list(bus.events())


def test_imported_bus_continues_after_the_last_event(bus: Bus, copy: Bus) -> None:
    live(bus)
    copy.import_events(export(bus))
    first = copy.page().list(type="risk_alert")[0]
    assert copy.page().add("risk_alert", "again", dedupe_key="k").id == first.id
    copy.page().resolve(first.id)
    assert copy.verify().findings == []


def test_import_adds_the_missing_events_of_a_partial_copy(bus: Bus, copy: Bus) -> None:
    live(bus)
    begun = export(bus)
    assert copy.import_events(begun) == len(begun)
    project(copy)
    bus.page().add("observation", "later", dedupe_key="later")
    bus.page().resolve(bus.page().list(type="risk_alert")[0].id)
    bus.page("user:43").add("observation", "elsewhere")
    lines = export(bus)
    assert copy.import_events(lines) == len(lines)
    assert copy.import_events(lines) == len(lines)  # a second import changes nothing
    assert export(copy) == lines
    assert heads(copy) == heads(bus)
    assert copy.verify().findings == []
    with pytest.raises(NotEmpty):
        copy.import_events(begun)


def test_import_into_a_bus_with_other_events_is_refused(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    copy.page().add("observation", "own")
    before = export(copy)
    with pytest.raises(NotEmpty, match="import into a new bus"):
        copy.import_events(export(bus))
    with pytest.raises(NotEmpty):
        copy.import_events([])
    assert export(copy) == before


def test_event_added_during_an_import_aborts_it(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    lines = export(bus)

    def with_a_write():
        copy.page().add("observation", "own")
        yield from lines

    with pytest.raises(NotEmpty):
        copy.import_events(with_a_write())


def test_an_export_that_was_cut_is_refused(bus: Bus, copy: Bus) -> None:
    live(bus)
    first, *others = bus.events()
    lines = [line_of(first, bus.position()), *map(line_of, others)]
    for count in range(1, len(lines), 5):
        with pytest.raises(InvalidExport, match=r"line \d+: the file ends here, before event \d+ of shard \d"):
            copy.import_events(lines[:count])
    assert all(end.seq == 0 for end in copy.position().shards)
    bus.page().add("observation", "written while the others were exported")
    assert copy.import_events([*lines, export(bus)[-1]]) == len(lines) + 1


@pytest.mark.parametrize("kind", [io.BytesIO, io.StringIO])
def test_a_file_without_line_breaks_is_refused_before_all_of_it_is_read(
    copy: Bus, monkeypatch: pytest.MonkeyPatch, kind: type[io.BytesIO | io.StringIO]
) -> None:
    monkeypatch.setattr(importer, "MAX_LINE", 100)
    file = kind()
    file.write("x" * 1_000 if isinstance(file, io.StringIO) else b"x" * 1_000)  # type: ignore[arg-type]
    file.seek(0)
    with pytest.raises(InvalidExport, match="line 1: is not JSON"):
        copy.import_events(file)
    assert file.tell() == 101


def test_a_line_that_is_too_long_is_refused(copy: Bus) -> None:
    with pytest.raises(InvalidExport, match=r"line 1: is longer than 16,777,216 characters"):
        copy.import_events(["x" * 16_777_217])


def test_the_export_of_an_empty_bus_is_imported(bus: Bus, copy: Bus) -> None:
    assert export(bus) == []
    assert copy.import_events(io.BytesIO()) == 0


def test_an_export_in_a_file_is_imported(bus: Bus, copy: Bus, tmp_path: Path) -> None:
    live(bus)
    file = tmp_path / "all.jsonl"
    file.write_text("".join(f"{line}\n" for line in export(bus)))
    with file.open("rb") as lines:
        copy.import_events(lines)
    assert export(copy) == export(bus)


def test_the_end_of_an_export_of_other_shards_is_refused(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "x")
    (event,) = bus.events()
    others = BusPosition((*bus.position().shards, *bus.position().shards))
    with pytest.raises(InvalidExport, match="line 1: is of a bus with"):
        copy.import_events([line_of(event, others)])
    count = len(others.shards)
    for shard in (0, count - 1):
        line = line_of(event, others).replace(f'"shard":{event.position.shard},', f'"shard":{shard},')
        with pytest.raises(InvalidExport, match=rf"; set SCRATCHBUS_SHARDS={count} and choose a new name for the bus$"):
            copy.import_events([line])
    with pytest.raises(InvalidExport, match=r"line 1: .*is not a position"):
        copy.import_events([line_of(event).replace('"id":', '"until":"x","id":', 1)])


def test_an_interrupted_import_leaves_nothing(bus: Bus, copy: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    live(bus)

    def interrupt(staging: Staging, *tails: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "switch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            copy.import_events(export(bus))
    assert copy.verify().findings == []
    assert copy.import_events(export(bus)) == len(export(bus))


def test_bad_export_error_names_the_line(bus: Bus, copy: Bus) -> None:
    live(bus)
    lines = [line_of(event) for event in bus.events(pages=["main"])]
    broken = {
        "invalid JSON": [*lines[:2], "{"],
        "not an event": [*lines[:2], '{"kind":"added"}'],
        "a list": [*lines[:2], "[]"],
        "an event twice": [*lines[:2], lines[1]],
        "a body of another kind": [*lines[:2], _edit(lines[2], event={"v": 1, "by": "x"})],
        "a wrong prev": [*lines[:1], _edit(lines[1], prev="1-1")],
        "another shard": [*lines[:2], _edit(lines[2], shard=99)],
        "a bad position": [*lines[:2], _edit(lines[2], seq="many")],
    }
    for what, given in broken.items():
        with pytest.raises(InvalidExport, match=r"^line [23]: ") as caught:
            copy.import_events(given)
        assert caught.value.line in (2, 3), what
        assert "\n" not in str(caught.value)
    assert send(copy, "EXISTS", keys_of(copy).log) == 0
    with pytest.raises(InvalidExport, match=r"missing|came before it"):
        copy.import_events([*lines[:1], *lines[2:]])
    batch = next(number for number, line in enumerate(lines) if json.loads(line)["batch"].startswith("1/12"))
    with pytest.raises(InvalidExport, match="in the middle of a batch"):
        copy.import_events(lines[: batch + 3])


def test_export_of_newer_code_is_refused(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    with pytest.raises(CodeTooOld):
        copy.import_events([_edit(line, event={"v": 3, "by": "x"}) for line in export(bus)])


def _edit(line: str, **changes: object) -> str:
    return json.dumps(json.loads(line) | changes, ensure_ascii=False)


def test_repeated_import_requests_write_nothing_twice(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    conversation, calls, reply = import_events(copy.core, export(bus)), 0, None
    while True:
        try:
            request = conversation.send(reply)
        except StopIteration:
            break
        assert isinstance(request, Call)
        for _ in range(2):  # as the driver does when the connection breaks
            reply = copy._engine.execute(request)
        calls += 1
    assert calls
    assert export(copy) == export(bus)


async def test_async_bus_imports_the_same(bus: Bus, engine_url: str, bus_name: str) -> None:
    bus.page().add("observation", "one")
    async with AsyncBus.connect(engine_url, bus=f"{bus_name}-async", shards=bus.core.log.shards) as other:
        assert await other.import_events(export(bus)) == 1
        assert [one.content for one in await other.page().list()] == ["one"]
