"""An export has every event as it was written, and an equal bus can be made of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.archive.export import line_of
from scratchbus.archive.importing import import_events
from scratchbus.engine.steps import Call
from scratchbus.errors import CodeTooOld, InvalidExport, NotEmpty
from scratchbus.eventlog.raw_entries import entry_fields
from tests.contracts.test_verify import live
from tests.engines import ONE
from tests.inspection import assert_sound, documents, entries, heads, keys_of, project, send

pytestmark = pytest.mark.engines(*ONE)

Connect = Callable[..., Bus]


def export(bus: Bus) -> list[str]:
    return [line_of(event) for event in bus.events()]


def read(bus: Bus, shard: int) -> list[tuple[str, dict[bytes, bytes], object]]:
    """Return the log of a shard, with the bodies of its events as JSON has them."""
    found = [(entry[0].decode(), entry_fields(entry)) for entry in entries(bus, shard)]
    return [(id, fields, json.loads(fields.pop(b"event"))) for id, fields in found]


@pytest.fixture
def copy(connect: Connect, bus_name: str) -> Bus:
    """A new bus on the same engine."""
    return connect(bus=f"{bus_name}-copy")


def test_an_imported_bus_is_equal_to_the_one_exported(bus: Bus, copy: Bus) -> None:
    live(bus)
    lines = export(bus)
    told: list[int] = []
    assert copy.import_events(lines, told.append) == len(lines) == told[-1]
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


def test_what_was_erased_is_missing_in_the_copy_too(bus: Bus, copy: Bus) -> None:
    live(bus)
    page = bus.page()
    tombstone = page.erase(page.list(text="rests")[0].id, reason="asked for")
    page.add("observation", "later")
    copy.import_events(export(bus))
    for each in (bus, copy):
        assert each.verify().findings == []
        assert [event.kind for event in each.page().history(tombstone.subject)] == ["erased"]
    assert list(copy.events()) == list(bus.events())


def test_an_imported_bus_goes_on_where_the_other_ended(bus: Bus, copy: Bus) -> None:
    live(bus)
    copy.import_events(export(bus))
    first = copy.page().list(type="risk_alert")[0]
    assert copy.page().add("risk_alert", "again", dedupe_key="k").id == first.id
    copy.page().resolve(first.id)
    assert copy.verify().findings == []


def test_a_bus_that_has_the_first_events_gets_the_rest(bus: Bus, copy: Bus) -> None:
    live(bus)
    begun = export(bus)
    assert copy.import_events(begun) == len(begun)
    project(copy)
    bus.page().add("observation", "later", dedupe_key="later")
    bus.page().resolve(bus.page().list(type="risk_alert")[0].id)
    bus.page("user:43").add("observation", "elsewhere")
    lines = export(bus)
    assert copy.import_events(lines) == len(lines)
    assert copy.import_events(lines) == len(lines)  # and once more changes nothing
    assert export(copy) == lines
    assert heads(copy) == heads(bus)
    assert copy.verify().findings == []
    with pytest.raises(NotEmpty):
        copy.import_events(begun)


def test_a_bus_with_events_of_its_own_is_left_alone(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    copy.page().add("observation", "own")
    before = export(copy)
    with pytest.raises(NotEmpty, match="import into a new bus"):
        copy.import_events(export(bus))
    with pytest.raises(NotEmpty):
        copy.import_events([])
    assert export(copy) == before


def test_events_that_are_written_meanwhile_end_it(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    lines = export(bus)

    def meddled():
        copy.page().add("observation", "own")
        yield from lines

    with pytest.raises(NotEmpty):
        copy.import_events(meddled())


def test_an_invalid_export_is_refused_with_its_line(bus: Bus, copy: Bus) -> None:
    live(bus)
    lines = [line_of(event) for event in bus.events(pages=["main"])]
    broken = {
        "no JSON": [*lines[:2], "{"],
        "no event": [*lines[:2], '{"kind":"added"}'],
        "a list": [*lines[:2], "[]"],
        "an event twice": [*lines[:2], lines[1]],
        "a body of another kind": [*lines[:2], _edit(lines[2], event={"v": 1, "by": "x"})],
        "another before it": [*lines[:1], _edit(lines[1], prev="1-1")],
        "another shard": [*lines[:2], _edit(lines[2], shard=99)],
        "an odd place": [*lines[:2], _edit(lines[2], seq="many")],
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


def test_an_export_of_newer_code_is_refused(bus: Bus, copy: Bus) -> None:
    bus.page().add("observation", "one")
    with pytest.raises(CodeTooOld):
        copy.import_events([_edit(line, event={"v": 3, "by": "x"}) for line in export(bus)])


def _edit(line: str, **changes: object) -> str:
    return json.dumps(json.loads(line) | changes, ensure_ascii=False)


def test_a_reply_that_is_lost_writes_nothing_twice(bus: Bus, copy: Bus) -> None:
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


async def test_it_is_the_same_under_asyncio(bus: Bus, engine_url: str, bus_name: str) -> None:
    bus.page().add("observation", "one")
    async with AsyncBus.connect(engine_url, bus=f"{bus_name}-async", shards=bus.core.log.shards) as other:
        assert await other.import_events(export(bus)) == 1
        assert [one.content for one in await other.page().list()] == ["one"]
