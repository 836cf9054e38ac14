"""Recall over all memories of an agent."""

from __future__ import annotations

import gc
import math
import sqlite3
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.context import embedding, recall_index
from scratchbus.context import recall as recall_module
from scratchbus.engine import drivers
from scratchbus.errors import InvalidField, InvalidName, InvalidPosition, ScratchbusError
from scratchbus.readmodel.memory_cache import catch_up_together
from tests.engines import ONE, Engine
from tests.inspection import forget, project
from tests.waiting import PATIENCE, eventually

PLACES: dict[str, Any] = {"scopes": ["ada/shop"], "sessions": ["s1"], "page": "main"}


def texts(found):
    return [each.text for each in found]


def ids(found):
    return [(each.kind, each.id) for each in found]


def reasons(found):
    return {reason.list: reason for reason in found.reasons}


def rows_of(bus: Bus) -> list[tuple[str, ...]]:
    """Return the subjects in the index of a bus."""
    return bus._recaller.index.database.execute("SELECT subject FROM items JOIN texts ON row = texts.rowid").fetchall()


def test_recall_finds_all_kinds_of_memories_with_reasons(bus: Bus):
    note = bus.notes("s1").add("The shop runs on Postgres", tags=["databases"]).note
    bus.notes("s1").add("Bananas are yellow")
    bus.notepad("s1").write("- [ ] move the database\n")
    preference = bus.preferences("ada/shop").remember("database names", "singular")
    fact = bus.facts("ada/shop").assert_fact("billing", "uses", "the old database")
    seen = bus.page().add("risk_alert", "The database is nearly full")
    found = bus.recall("Which databases are there?", **PLACES)
    assert {*ids(found)} == {
        ("note", note.id), ("notepad", "notepad"), ("preference", preference.id), ("fact", fact.id),
        ("observation", seen.id),
    }  # fmt: skip
    by_kind = {each.kind: each for each in found}
    assert by_kind["note"].item == note
    assert by_kind["observation"].item == seen
    assert (by_kind["note"].page, by_kind["fact"].page) == ("session:s1", "knowledge:ada/shop")
    assert reasons(by_kind["note"])["words"].by == "databases"
    assert reasons(by_kind["observation"])["words"].by == "database"
    assert reasons(by_kind["observation"])["priority"].rank == 1
    assert reasons(found[0])["words"].rank == 1
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert str(reasons(by_kind["note"])["words"]).startswith("words ")


def test_recall_searches_only_the_given_scopes_sessions_and_page(bus):
    bus.notes("s1").add("red in s1")
    bus.notes("s2").add("red in s2")
    bus.preferences("ada").remember("red", "of ada")
    bus.page().add("observation", "red on main")
    bus.page("other").add("observation", "red elsewhere")
    assert texts(bus.recall("red")) == ["red on main"]
    assert texts(bus.recall("red", sessions=["s1"])) == ["red in s1"]
    assert {*texts(bus.recall("red", sessions=["s1", "s2"]))} == {"red in s1", "red in s2"}
    assert texts(bus.recall("red", scopes=["ada"])) == ["red: of ada"]
    assert {*texts(bus.recall("red", scopes=["ada"], page="other"))} == {"red: of ada", "red elsewhere"}
    assert texts(bus.recall("red", sessions=["s1"])) == ["red in s1"]


def test_recall_sees_every_change_at_once(bus, connect):
    notes, asked = bus.notes("s1"), {"sessions": ["s1"]}
    assert bus.recall("apple", **asked) == []
    note = connect("another").notes("s1").add("an apple").note
    assert texts(bus.recall("apples", **asked)) == ["an apple"]
    notes.update(note.id, "a pear")
    assert bus.recall("apple", **asked) == []
    assert texts(bus.recall("pear", **asked)) == ["a pear"]
    bus.notepad("s1").write("pears")
    notes.delete(note.id)
    assert texts(bus.recall("pear", **asked)) == ["pears"]
    assert rows_of(bus) == [("notepad",)]
    other = connect("another")
    assert texts(other.recall("pear", **asked)) == ["pears"]
    bus.end_session("s1")
    assert bus.recall("pear", **asked) == other.recall("pear", **asked) == []
    assert rows_of(bus) == rows_of(other) == []


def test_recall_omits_archived_forgotten_and_outdated_items(bus, page, clock):
    kept = page.add("observation", "apple kept")
    done = page.add("observation", "apple done")
    page.add("observation", "apple of an hour", ttl="1h")
    gone = page.add("observation", "apple archived")
    assert len(bus.recall("apple")) == 4
    page.resolve(done.id)
    page.archive(gone.id)
    clock.advance("2h")
    assert {*ids(bus.recall("apple"))} == {("observation", kept.id), ("observation", done.id)}
    preferences = bus.preferences("ada")
    preferences.remember("apple", "peeled")
    preferences.forget("apple")
    assert bus.recall("apple", scopes=["ada"]) == []
    facts = bus.facts("ada")
    facts.assert_fact("apple", "runs_on", "Node 20")
    new = facts.assert_fact("apple", "runs_on", "Node 24")
    assert ids(bus.recall("apple", scopes=["ada"])) == [("fact", new.id)]
    facts.retract(new.id, "misread")
    assert all(found.id != new.id for found in bus.recall("apple", scopes=["ada"]))


def test_recall_follows_facts_beyond_the_words_of_the_query(bus):
    facts = bus.facts("ada/shop")
    facts.assert_fact("Ada", "works_on", "shop")
    uses = facts.assert_fact("shop", "uses", "Docker")
    bus.notes("s1").add("Docker Desktop needs a licence")
    found = bus.recall("What does Ada's work need?", **PLACES, limit=5)
    by_id = {each.id: each for each in found}
    assert reasons(by_id[uses.id])["neighbours"].by == "shop"
    assert "words" not in reasons(by_id[uses.id])
    assert any(each.kind == "note" and reasons(each)["neighbours"].by == "docker" for each in found)


def test_newer_and_more_urgent_items_rank_first_among_equals(bus, page, clock):
    for number, confidence in enumerate((0.5, 1.0, 0.5)):
        page.add("observation", f"the gate is open {number}", confidence=confidence)
        clock.advance("1h")
    found = bus.recall("gate")
    assert {reasons(each)["words"].rank for each in found} == {1}
    assert [each.text[-1] for each in found][-1] == "0"  # neither newer nor more urgent than another
    assert [reasons(each)["freshness"].rank for each in sorted(found, key=lambda each: each.text)] == [3, 2, 1]
    assert [reasons(each)["priority"].rank for each in sorted(found, key=lambda each: each.text)] == [2, 1, 2]


def test_recall_at_a_position_uses_the_memories_of_that_time(bus, clock):
    notes, page = bus.notes("s1"), bus.page()
    note = notes.add("the port is 80").note
    seen = page.add("observation", "the port is open", ttl="1h")
    bus.preferences("ada/shop").remember("port", "in hexadecimal")
    bus.facts("ada/shop").assert_fact("port", "runs_on", "Node 20")
    then = bus.position()
    clock.advance("2h")
    notes.update(note.id, "the port is 443")
    bus.preferences("ada/shop").forget("port")
    bus.facts("ada/shop").assert_fact("port", "runs_on", "Node 24")
    notes.add("another port")
    assert {*texts(bus.recall("port", **PLACES, at=then))} == {
        "the port is 80", "the port is open", "port: in hexadecimal", "port runs on Node 20",
    }  # fmt: skip
    assert {*texts(bus.recall("port", **PLACES))} == {"the port is 443", "another port", "port runs on Node 24"}
    assert texts(bus.recall("port", page="main", at=seen.created_at)) == ["the port is open"]
    assert bus.recall("port", **PLACES, at="0-0") == []
    with pytest.raises(InvalidPosition):
        bus.recall("port", at="soon")


def test_a_long_text_is_cut_to_the_matching_part(bus):
    bus.notepad("s1").write("filler words here\n" * 500 + "the gate code is secret\n" + "more filler\n" * 500)
    (found,) = bus.recall("gate code", sessions=["s1"])
    assert "gate code is secret" in found.text
    assert len(found.text) < 1_000
    assert reasons(found)["words"].by == "gate, code"


def test_an_empty_query_finds_the_newest_items(bus):
    for number in range(3):
        bus.notes("s1").add(f"note {number}")
    assert texts(bus.recall("", sessions=["s1"], limit=2)) == ["note 2", "note 1"]
    assert bus.recall("?!", sessions=["s1"]) == []


@pytest.mark.parametrize(
    "query", ['"quoted"', "a AND", "NEAR(", "NOT text", "te*xt text*", "\u4e2d\u6587", "text\0", "{text"]
)
def test_operators_in_a_query_are_plain_text(bus, query):
    note = bus.notes("s1").add('a AND "quoted" NEAR( text \u4e2d\u6587').note
    bus.notes("s1").add("unrelated")
    assert ids(bus.recall(query, sessions=["s1"])) == [("note", note.id)]


@pytest.mark.parametrize("query", ['"', "tags:x", "*", "p1", "-", "x" * 10_000, "\0", "{", "unrelated"])
def test_a_query_without_a_word_of_a_note_does_not_find_it(bus, query):
    bus.notes("s1").add('a AND "quoted" NEAR( text \u4e2d\u6587')
    assert bus.recall(query, sessions=["s1"]) == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"query": 5}, InvalidField),
        ({"query": "\ud800"}, InvalidField),
        ({"query": "a", "limit": 0}, InvalidField),
        ({"query": "a", "scopes": "ada"}, InvalidField),
        ({"query": "a", "sessions": ["a b"]}, InvalidName),
        ({"query": "a", "scopes": [5]}, InvalidName),
        ({"query": "a", "page": ""}, InvalidName),
    ],
)
def test_wrong_arguments_are_refused(bus, wrong, error):
    with pytest.raises(error):
        bus.recall(**wrong)


def test_east_asian_text_is_returned_as_it_was_written(bus):
    text = "\u2026\u2026 the \u6570\u636e\u5e93 is full, \u4e2d\u6587 \u30c6\u30b9\u30c8\u3067\u3059 \ud55c\uad6d"
    bus.notes("s1").add(text)
    for query in ("\u4e2d\u6587", "full", "\ud55c\uad6d"):
        assert texts(bus.recall(query, sessions=["s1"])) == [text]
    bus.notes("s2").add(long := "\u6587\u5b57" * 200 + text + "\u5b57\u6587" * 200)
    (found,) = bus.recall("full", sessions=["s2"])
    assert "\u6570\u636e\u5e93 is full, \u4e2d\u6587 \u30c6" in found.text
    assert found.text.startswith(" \u2026 \u6587\u5b57")
    assert found.text.strip(" \u2026") in long


def test_common_words_do_not_crowd_out_rare_ones(bus, monkeypatch):
    monkeypatch.setattr(recall_index, "MAX_MATCHES", 20)
    for number in range(60):
        bus.notes("s1").add(f"common filler {number}")
    bus.notes("s1").add("common treasure")
    bus.notes("s1").add("common end")
    found = bus.recall("common treasure", sessions=["s1"], limit=1)
    assert texts(found) == ["common treasure"]
    assert reasons(found[0])["words"].rank == 1
    assert texts(bus.recall("common", sessions=["s1"], limit=100))[0] in {"common end", "common treasure"}
    assert len(bus.recall("common", sessions=["s1"], limit=100)) == 20


def test_an_old_item_with_a_rare_word_is_found_beside_a_common_word(bus, monkeypatch):
    monkeypatch.setattr(recall_index, "MAX_MATCHES", 20)
    bus.notes("s1").add("common treasure")
    for number in range(60):
        bus.notes("s1").add(f"common filler {number}")
    assert texts(bus.recall("common treasure", sessions=["s1"], limit=1)) == ["common treasure"]


def test_a_page_dropped_from_the_cache_leaves_the_index(bus):
    bus.notes("s1").add("apple")
    bus.recall("apple", sessions=["s1"])
    recaller = bus._recaller
    recaller.cache.drop("session:s1")
    gc.collect()
    assert texts(bus.recall("apple", sessions=["s1"])) == ["apple"]
    assert len(rows_of(bus)) == 1


@pytest.mark.damages_the_log
def test_recall_rereads_a_replaced_log(bus):
    bus.notes("s1").add("apple of the old log")
    assert bus.recall("apple", sessions=["s1"])
    forget(bus)
    assert bus.recall("apple", sessions=["s1"]) == []
    bus.notes("s1").add("apple of the new log")
    assert texts(bus.recall("apple", sessions=["s1"])) == ["apple of the new log"]


@pytest.mark.engines(*ONE)
def test_recall_finds_folded_and_rebuilt_items(bus, connect):
    for number in range(5):
        bus.notes("s1").add(f"apple {number}")
        bus.page().add("observation", f"apple {number}")
    project(bus)
    before = ids(connect("another").recall("apple", sessions=["s1"], page="main"))
    assert len(before) == 10
    bus.rebuild()
    assert ids(connect("third").recall("apple", sessions=["s1"], page="main")) == before


@pytest.mark.engines(*ONE)
def test_an_unchanged_recall_asks_each_shard_once(bus, monkeypatch):
    bus.facts("ada/shop").assert_fact("shop", "uses", "Docker")
    bus.notes("s1").add("bananas are yellow")
    places = {"scopes": ["ada/shop"], "sessions": ["s1"]}
    before = bus.recall("Docker", **places)
    asked: list[Any] = []
    send = drivers.Engine._send

    def counted(*given: Any) -> list[Any]:
        asked.append(given)
        return send(*given)

    monkeypatch.setattr(drivers.Engine, "_send", counted)
    assert bus.recall("Docker", **places) == before
    assert len(asked) == len({bus.core.log.shard(page) for page in ("knowledge:ada/shop", "session:s1")})
    bus.facts("ada/shop").assert_fact("shop", "uses", "Podman")
    assert len(bus.recall("shop", **places)) == 2


def finish(steps: Any, bus: Any, request: Any) -> Any:
    """Run a conversation from this request to its end; return its result."""
    try:
        while True:
            request = steps.send(bus._engine.execute(request))
    except StopIteration as done:
        return done.value


@pytest.mark.engines(*ONE)
def test_joint_catch_up_misses_nothing_when_one_cache_moves_on(bus):
    facts, pages = bus.facts("p2"), ("knowledge:p1", "knowledge:p2")
    bus.facts("p1").assert_fact("a", "uses", "b")
    bus.recall("b", scopes=["p1"])
    facts.assert_fact("c", "uses", "d")
    bus.recall("d", scopes=["p2"])
    cache, log = bus._recaller.cache, bus.core.log
    together = catch_up_together(log, [(cache, pages[0]), (cache, pages[1]), (bus.core.facts, pages[1])])
    request = next(together)
    cached_facts = bus.core.facts.cached(pages[1])
    added = facts.assert_fact("e", "uses", "f")
    bus.converse(cache.cached(pages[1]).catch_up(log))
    assert finish(together, bus, request)
    assert cached_facts.memory.fact(added.id) is not None


@pytest.mark.engines(*ONE)
def test_a_query_waits_for_a_concurrent_query_to_index(bus, monkeypatch):
    notes = bus.notes("s1")
    notes.add("an apple")
    assert bus.recall("apple", sessions=["s1"])
    notes.add("an apple pie")
    is_reading, may_go_on = threading.Event(), threading.Event()
    documents = recall_module._documents

    def slowly(*given: Any) -> Any:
        is_reading.set()
        may_go_on.wait(PATIENCE)
        return (yield from documents(*given))

    monkeypatch.setattr(recall_module, "_documents", slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(bus.recall, "apple", sessions=["s1"])
        assert is_reading.wait(PATIENCE)
        second = pool.submit(bus.recall, "apple", sessions=["s1"])
        eventually(lambda: second.done() or any(bus.core.queues._waiting.values()))
        may_go_on.set()
        assert sorted(texts(second.result())) == sorted(texts(first.result())) == ["an apple", "an apple pie"]


@pytest.mark.engines(*ONE)
def test_an_erased_item_leaves_the_index(bus):
    note = bus.notes("s1").add("a secret").note
    assert bus.recall("secret", sessions=["s1"])
    bus.page("session:s1").erase(note.id, reason="asked for")
    assert bus.recall("secret", sessions=["s1"]) == []
    assert rows_of(bus) == []


def test_recall_of_a_session_leaves_out_its_todo_list_and_tasks(bus):
    bus.todo("s1").write([{"id": "1", "content": "buy apples", "status": "pending"}])
    bus.begin_task("s1", "count apples")
    bus.notes("s1").add("apples are ripe")
    assert texts(bus.recall("apples", sessions=["s1"])) == ["apples are ripe"]


class Toy:
    """An embedder that knows a few words: those of one group have the same direction."""

    GROUPS = (("car", "automobile", "vehicle"), ("sea", "ocean"), ("cat", "kitten"))

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        self.texts += texts
        return [
            [*map(math.sqrt, (sum(word in text for word in group) for group in self.GROUPS)), 0.1] for text in texts
        ]


needs_extensions = pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"), reason="this Python's SQLite loads no extensions"
)


@needs_extensions
def test_an_embedder_finds_by_meaning_and_embeds_each_text_once(bus):
    pytest.importorskip("sqlite_vec")
    notes, toy = bus.notes("s1"), Toy()
    for text in ("an automobile in the yard", "the ocean is deep", "a kitten sleeps"):
        notes.add(text)
    assert bus.recall("car", sessions=["s1"]) == []
    found = bus.recall("car", sessions=["s1"], embedder=toy)
    assert found[0].text == "an automobile in the yard"
    assert reasons(found[0])["meaning"].rank == 1
    note = notes.add("a vehicle on the road").note
    bus.notes("s2").add("a car elsewhere")
    again = bus.recall("car", sessions=["s1"], embedder=toy, limit=2)
    assert {*texts(again)} == {"an automobile in the yard", "a vehicle on the road"}
    notes.update(note.id, "the sea")
    assert texts(bus.recall("ocean", sessions=["s1"], embedder=toy))[0] == "the ocean is deep"
    embedded = [text.strip() for text in toy.texts if text not in ("car", "ocean")]
    assert sorted(embedded) == sorted({*embedded})
    then = bus.recall("ocean", sessions=["s1"], embedder=toy, at=note.position)
    assert "the sea" not in texts(then)
    assert texts(then)[0] == "the ocean is deep"


class Scaled(Toy):
    """A `Toy` whose vectors have this length, or only zeros for a text without known words."""

    def __init__(self, length: float) -> None:
        super().__init__()
        self.length = length

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        return [[number * self.length for number in vector[:-1]] for vector in super().embed(texts)]


@needs_extensions
@pytest.mark.parametrize("length", [1e-320, 1e-40, 1.0, 1e38, 1e300])
def test_vectors_of_any_length_are_compared(bus, length):
    pytest.importorskip("sqlite_vec")
    for text in ("a stone", "an automobile", "the ocean"):
        bus.notes("s1").add(text)
    embedder = Scaled(length)
    found = bus.recall("car", sessions=["s1"], embedder=embedder)
    assert {each.text: reasons(each)["meaning"].rank for each in found} == {
        "an automobile": 1,
        "a stone": 2,
        "the ocean": 2,
    }
    assert bus.recall("granite", sessions=["s1"], embedder=embedder) == []


@needs_extensions
@pytest.mark.engines(*ONE)
def test_vectors_of_a_page_that_was_read_again_are_found(bus):
    pytest.importorskip("sqlite_vec")
    toy = Toy()
    bus.notes("s1").add("an automobile")
    assert texts(bus.recall("car", sessions=["s1"], embedder=toy)) == ["an automobile"]
    bus._recaller.cache.drop("session:s1")
    gc.collect()
    assert texts(bus.recall("car", sessions=["s1"], embedder=toy)) == ["an automobile"]


@needs_extensions
@pytest.mark.engines(*ONE)
def test_an_embedder_gets_texts_as_they_were_written(bus):
    pytest.importorskip("sqlite_vec")
    seen: list[str] = []

    class Seeing(Toy):
        def embed(self, texts: Sequence[str], /) -> list[list[float]]:
            seen.extend(text.strip() for text in texts)
            return super().embed(texts)

    bus.notes("s1").add("数据库 เพิ่มบัญชี automobile")
    bus.recall("car", sessions=["s1"], embedder=Seeing())
    assert seen == ["car", "数据库 เพิ่มบัญชี automobile"]


@needs_extensions
@pytest.mark.engines(*ONE)
def test_two_embedders_keep_their_vectors_apart(bus):
    pytest.importorskip("sqlite_vec")
    short, long, is_embedding, may_go_on = Toy(), Toy(), threading.Event(), threading.Event()
    bus.notes("s1").add("an automobile")

    def embed(texts: Sequence[str]) -> list[list[float]]:
        if "an automobile" in texts[0]:
            is_embedding.set()
            assert may_go_on.wait(PATIENCE)
        return [[*vector, 1.0] for vector in Toy().embed(texts)]

    long.embed = embed  # type: ignore[method-assign]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(bus.recall, "car", sessions=["s1"], embedder=long)
        assert is_embedding.wait(PATIENCE)
        second = pool.submit(bus.recall, "car", sessions=["s1"], embedder=short)
        assert texts(second.result(PATIENCE)) == ["an automobile"]
        may_go_on.set()
        assert texts(first.result(PATIENCE)) == ["an automobile"]


@pytest.fixture
def without_sqlite_vec(monkeypatch):
    """Let a recall reach the embedder even where sqlite-vec cannot be loaded."""
    monkeypatch.setattr(embedding, "_load_extension", lambda database: None)


@pytest.mark.parametrize("query", ["", " \n"])
def test_a_blank_query_does_not_call_the_embedder(bus, query: str, without_sqlite_vec):
    bus.notes("s1").add("an automobile")
    toy = Toy()
    (found,) = bus.recall(query, sessions=["s1"], embedder=toy)
    assert reasons(found).keys() == {"freshness", "priority"}
    assert toy.texts == []


async def test_an_embedder_does_not_block_the_event_loop(engine: Engine, bus_name: str, without_sqlite_vec: None):
    threads = []

    class Slow(Toy):
        def embed(self, texts: Sequence[str], /) -> list[list[float]]:
            threads.append(threading.get_ident())
            return super().embed(texts)

    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        note = (await bus.notes("s1").add("an automobile")).note
        for moment in (None, note.position):
            with suppress(sqlite3.OperationalError):  # there is no sqlite-vec to search the vectors
                await bus.recall("car", sessions=["s1"], at=moment, embedder=Slow())
    assert threads
    assert threading.get_ident() not in threads


def test_an_invalid_embedder_is_refused(bus):
    with pytest.raises(InvalidField, match="embedder: 5 has no method `embed`"):
        bus.recall("x", sessions=["s1"], embedder=5)
    with pytest.raises(InvalidField, match="embedder: 5 has no method `embed`"):
        bus.recall("x", sessions=["s1"], embedder=5, at=bus.notes("s1").add("x").note.position)
    with pytest.raises(InvalidField, match="embedder: Toy is a class; pass an instance of it"):
        bus.recall("x", sessions=["s1"], embedder=Toy)


def test_an_embedder_is_not_called_without_sqlite_vec(bus, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    bus.notes("s1").add("an automobile")
    toy = Toy()
    with pytest.raises(ScratchbusError, match="search by meaning needs the package sqlite-vec"):
        bus.recall("car", sessions=["s1"], embedder=toy)
    assert toy.texts == []


@pytest.mark.parametrize(
    "vectors",
    [
        [],
        [[]],
        [[1.0], [1.0]],
        None,
        [1.0],
        [["x"]],
        [[math.nan]],
        [[1.0, -math.inf]],
        [[10**400]],
        [[1.0] * 8_192],
    ],
)
def test_wrong_embedder_results_are_refused(bus, vectors, without_sqlite_vec):
    class Wrong:
        def embed(self, texts: Sequence[str], /) -> Any:
            return vectors

    bus.notes("s1").add("x")
    with pytest.raises(InvalidField, match="embedder: returned"):
        bus.recall("x", sessions=["s1"], embedder=Wrong())


def test_an_embedder_without_sqlite_vec_names_the_package(bus, monkeypatch):
    bus.notes("s1").add("x")
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    with pytest.raises(ScratchbusError, match="needs the package sqlite-vec"):
        bus.recall("x", sessions=["s1"], embedder=Toy())


async def test_async_recall_behaves_the_same(engine: Engine, bus_name: str):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        note = (await bus.notes("s1").add("an apple")).note
        assert ids(await bus.recall("apples", sessions=["s1"])) == [("note", note.id)]
        await bus.notes("s1").delete(note.id)
        assert await bus.recall("apples", sessions=["s1"]) == []
        assert ids(await bus.recall("apples", sessions=["s1"], at=note.position)) == [("note", note.id)]
