"""The preferences of a scope."""

from __future__ import annotations

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.archive.export import line_of
from scratchbus.domain.events import PreferenceRemembered
from scratchbus.errors import (
    EventIdReused,
    InvalidExport,
    InvalidField,
    InvalidName,
    NotFound,
    RevisionConflict,
)
from scratchbus.readmodel.history import histories_of
from scratchbus.readmodel.memory_cache import MemoryCache
from scratchbus.readmodel.memory_kinds import PREFERENCES
from tests.engines import ONE, Engine
from tests.inspection import keys_of, project, remembered, round_trips, send


@pytest.fixture
def preferences(bus: Bus):
    return bus.preferences("ada/shop")


def texts(found):
    return {each.key: each.text for each in found}


def test_a_preference_has_its_author_and_times(preferences, clock):
    first = preferences.remember("quotes in JS", "always double", said_by="Ada L.")
    assert (first.key, first.text, first.said_by, first.source) == ("quotes in JS", "always double", "Ada L.", "tester")
    assert (first.created_at, first.revision) == (clock.now, 1)
    clock.advance("1h")
    again = preferences.edit("Quote in js", "double, but not in JSON")
    assert (again.id, again.key, again.said_by, again.revision) == (first.id, "Quote in js", "tester", 2)
    assert (again.created_at, again.updated_at) == (first.created_at, clock.now)
    assert preferences.list() == [again]


def test_remembering_an_equal_preference_changes_nothing(bus, preferences):
    first = preferences.remember("quotes", "double")
    assert preferences.remember("quotes", "double") == first
    assert len(preferences.history()) == 1
    assert preferences.remember("quotes", "double", said_by="ada").revision == 2


def test_scopes_do_not_share_preferences(bus, preferences):
    preferences.remember("quotes", "double")
    bus.preferences("ada").remember("quotes", "single")
    assert texts(preferences.list()) == {"quotes": "double"}
    assert texts(bus.preferences("ada").list()) == {"quotes": "single"}
    assert bus.preferences("eve").list() == []
    with pytest.raises(InvalidName, match="1–118"):
        bus.preferences("x" * 119)
    bus.preferences("x" * 118).remember("long names", "work")


def test_a_forgotten_preference_can_be_remembered_again(preferences):
    preferences.remember("quotes", "double")
    gone = preferences.forget("QUOTES")
    assert (gone.text, gone.forgotten) == ("double", False)
    assert preferences.list() == []
    for write in (lambda: preferences.forget("quotes"), lambda: preferences.edit("quotes", "x")):
        with pytest.raises(NotFound, match="has no preference 'quotes'"):
            write()
    assert preferences.remember("quotes", "single").revision == 3
    kinds = [event.kind.removeprefix("preference_") for event in preferences.history("quotes")]
    assert kinds == ["remembered", "forgotten", "remembered"]
    with pytest.raises(NotFound):
        preferences.history("never there")


def test_a_write_with_an_old_revision_is_refused(preferences):
    preferences.remember("quotes", "double", revision=0)
    preferences.edit("quotes", "single", revision=1)
    for write in (
        lambda: preferences.remember("quotes", "x", revision=0),
        lambda: preferences.edit("quotes", "x", revision=1),
        lambda: preferences.forget("quotes", revision=1),
    ):
        with pytest.raises(RevisionConflict):
            write()
    assert texts(preferences.list()) == {"quotes": "single"}


def test_a_retry_with_the_same_event_id_writes_once(preferences):
    first = preferences.remember("quotes", "double", event_id="e1")
    preferences.edit("quotes", "single")
    assert preferences.remember("quotes", "double", event_id="e1") == first
    with pytest.raises(EventIdReused):
        preferences.remember("quotes", "other", event_id="e1")
    assert preferences.forget("quotes", event_id="e2") == preferences.forget("quotes", event_id="e2")
    assert len(preferences.history()) == 3


def test_the_history_of_many_preferences_takes_one_round_trip(bus, preferences):
    for key in ("quotes", "tabs", "names"):
        preferences.remember(key, "double")
    preferences.edit("tabs", "never")
    events = preferences.history()
    assert [event.kind for event in events] == ["preference_remembered"] * 4
    assert events == sorted(events, key=lambda event: event.position)
    subjects = list(dict.fromkeys(event.subject for event in events))
    assert len(subjects) == 3
    assert round_trips(bus, histories_of(bus.core.log, "knowledge:ada/shop", subjects)) == 1


def test_as_of_returns_past_preferences(bus, preferences):
    first = preferences.remember("quotes", "double")
    other = preferences.remember("tabs", "never")
    preferences.edit("quotes", "single")
    preferences.forget("tabs")
    assert texts(preferences.as_of(first.position)) == {"quotes": "double"}
    assert texts(preferences.as_of(other.position)) == {"quotes": "double", "tabs": "never"}
    assert texts(preferences.as_of(bus.position())) == {"quotes": "single"}


def test_clients_see_each_others_writes(preferences, connect):
    other = connect("another").preferences("ada/shop")
    assert other.list() == []
    preferences.remember("quotes", "double")
    assert texts(other.list()) == {"quotes": "double"}
    other.forget("quotes")
    assert preferences.list() == []


def test_the_cache_stays_within_its_byte_limit(bus):
    bus.core.preferences = MemoryCache(PREFERENCES, most_bytes=4_000)
    scopes = [bus.preferences(f"user{number}") for number in range(5)]
    for scope in scopes * 2:
        scope.remember("quotes", "x" * 1_000)
    assert [len(scope.list()) for scope in scopes] == [1] * 5
    assert 1 <= len(bus.core.preferences._cached) < 5


@pytest.mark.engines(*ONE)
def test_a_rebuild_restores_preferences(bus, preferences, connect):
    for number in range(5):
        preferences.remember(f"key {number}", "x")
    preferences.forget("key 1")
    project(bus)
    before = remembered(bus)
    assert before
    bus.rebuild()
    assert remembered(bus) == before
    assert connect("another").preferences("ada/shop").list() == preferences.list()
    assert bus.verify().findings == []


@pytest.mark.engines(*ONE)
def test_erasing_a_preference_removes_its_text_and_frees_its_key(bus, preferences):
    secret = preferences.remember("a secret", "the secret text")
    preferences.edit("a secret", "still the secret text")
    bus.page("knowledge:ada/shop").erase(secret.id, reason="asked for")
    assert preferences.list() == []
    entries = send(bus, "XRANGE", keys_of(bus, "knowledge:ada/shop").log, "-", "+")
    assert not any(b"secret text" in entry[1][-1] for entry in entries)
    preferences.remember("a secret", "none")
    assert texts(preferences.list()) == {"a secret": "none"}
    assert bus.verify().findings == []


@pytest.mark.engines(*ONE)
def test_an_import_restores_preferences(bus, preferences, connect):
    preferences.remember("quotes", "double", said_by="ada")
    preferences.edit("quotes", "single")
    preferences.remember("tabs", "never")
    preferences.forget("tabs")
    lines = [line_of(event) for event in bus.events()]
    other = connect(bus=f"{bus.core.log.bus}-2")
    other.import_events(lines)
    assert other.preferences("ada/shop").list() == preferences.list()
    assert other.verify().findings == []


@pytest.mark.engines(*ONE)
@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("remembered", '"key":"quotes"', '"key":"colons"'),
        ("remembered", '"text":"double"', '"text":" "'),
        ("forgotten", "", ""),
    ],
)
def test_an_import_refuses_impossible_preference_events(bus, preferences, connect, kind, old, new):
    preferences.remember("quotes", "double")
    if kind == "forgotten":
        preferences.forget("quotes")
    lines = [line_of(event) for event in bus.events()]
    if old:
        assert old in lines[0].replace(": ", ":")
        lines = [line.replace(": ", ":").replace(old, new) for line in lines]
    else:
        lines = [line.replace("preference_remembered", "preference_forgotten") for line in lines[1:]]
    with pytest.raises(InvalidExport):
        connect(bus=f"{bus.core.log.bus}-2").import_events(lines)


@pytest.mark.parametrize(("key", "text"), [("", "x"), ("a", ""), (5, "x"), ("a", None), ("a\nb", "x")])
def test_bad_input_writes_nothing(bus, preferences, key, text):
    with pytest.raises(InvalidField):
        preferences.remember(key, text)
    assert list(bus.events()) == []


async def test_async_preferences_behave_the_same(engine: Engine, bus_name: str, tmp_path):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        preferences = bus.preferences("ada")
        first = await preferences.remember("quotes", "double")
        assert (await preferences.edit("quotes", "single")).revision == 2
        assert texts(await preferences.as_of(first.position)) == {"quotes": "double"}
        assert (await preferences.sync(tmp_path / "AGENTS.md")).is_written
        assert (await preferences.forget("quotes")).text == "single"
        assert await preferences.list() == []
        assert [type(event) for event in await preferences.history()][:2] == [PreferenceRemembered] * 2
