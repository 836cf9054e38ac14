"""A LangGraph store on the bus: durable, shared, with expiry, full-text search and history."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, Item, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from scratchbus import AsyncBus, Bus, ItemChange, StoreItem, export_line
from scratchbus.adapters.langgraph import ScratchbusStore
from scratchbus.errors import EngineUnreachable, InvalidExport, InvalidField, InvalidName, TooLarge
from scratchbus.memory.items import Items
from tests.waiting import eventually


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


@pytest.fixture
def bus(url: str) -> Iterator[Bus]:
    with Bus.connect(url, source="agent") as opened:
        yield opened


@pytest.fixture
def store(bus: Bus) -> ScratchbusStore:
    return ScratchbusStore(bus)


def keys(found: list[Any]) -> list[str]:
    return [item.key for item in found]


def test_two_buses_share_a_store(store: ScratchbusStore, url: str):
    store.put(("users", "1"), "food", {"likes": "pizza", "deep": {"list": [1, None, True]}})
    with Bus.connect(url, source="other") as other:
        item = ScratchbusStore(other).get(("users", "1"), "food")
        assert isinstance(item, Item)
        assert item.value == {"likes": "pizza", "deep": {"list": [1, None, True]}}
        assert ScratchbusStore(other, name="another").get(("users", "1"), "food") is None
        ScratchbusStore(other).put(("users", "1"), "food", {"likes": "soup"})
    after = store.get(("users", "1"), "food")
    assert after is not None
    assert after.value == {"likes": "soup"}
    assert after.created_at == item.created_at <= after.updated_at


def test_a_value_that_was_read_may_be_changed(store: ScratchbusStore):
    store.put(("a",), "k", {"deep": {"list": [1]}})
    for found in (store.get(("a",), "k"), *store.search(("a",)), *store.search(())):
        assert found is not None
        found.value["deep"]["list"].append(2)
    again = store.get(("a",), "k")
    assert again is not None
    assert again.value == {"deep": {"list": [1]}}


def test_items_survive_a_rebuild_and_have_a_history(bus: Bus, store: ScratchbusStore):
    store.put(("a",), "k", {"n": 1})
    store.delete(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    store.put(("a",), "gone", {"n": 1})
    store.delete(("a",), "gone")
    bus.rebuild()
    assert not bus.verify().findings
    with Bus.connect(bus.settings.url, source="fresh") as other:
        assert [item.value for item in ScratchbusStore(other).search(())] == [{"n": 2}]
    assert [event.kind for event in bus.items().history(("a",), "k")] == ["item_put", "item_deleted", "item_put"]


def test_items_are_exported_and_imported(bus: Bus, store: ScratchbusStore, url: str):
    store.put(("a", "b"), "k", {"text": "pizza", "n": [1.5, None]}, ttl=5)
    store.get(("a", "b"), "k")
    store.put(("a", "b"), "gone", {"n": 1}, index=False)
    store.delete(("a", "b"), "gone")
    lines = [export_line(event) for event in bus.events()]
    with Bus.connect(f"{url}-copy", source="other") as copy:
        assert copy.import_events(lines) == 4
        assert [item.value for item in ScratchbusStore(copy).search((), query="pizza")] == [
            {"text": "pizza", "n": [1.5, None]}
        ]
        assert not copy.verify().findings
    forged = lines[0].replace('"pizza"', '"soup"').replace('"key":"k"', '"key":"other"')
    with Bus.connect(f"{url}-forged", source="other") as other, pytest.raises(InvalidExport, match="not the subject"):
        other.import_events([forged])


def test_the_order_is_the_same_in_each_process(bus: Bus, store: ScratchbusStore, url: str):
    for namespace, key in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("a", "3")):
        store.put((namespace,), key, {"t": "pizza"})
        store.search(())
    for namespace, key, again in (("a", "1", False), ("b", "1", True), ("a", "2", True), ("c", "1", True)):
        store.delete((namespace,), key)
        if again:
            store.put((namespace,), key, {"t": "pizza"})
        with Bus.connect(url, source="fresh") as other:
            for query in (None, "pizza"):
                found = [(each.namespace, each.key) for each in store.search((), query=query)]
                fresh = [(each.namespace, each.key) for each in ScratchbusStore(other).search((), query=query)]
                assert found == fresh


def test_an_erased_item_is_gone_and_can_be_put_again(bus: Bus, store: ScratchbusStore):
    store.put(("a",), "k", {"secret": "xyzzy"})
    item = bus.items().read().get(("a",), "k")
    assert item is not None
    bus.page("store:default").erase(item.id, reason="asked for")
    assert store.get(("a",), "k") is None
    assert store.search((), query="xyzzy") == []
    store.put(("a",), "k", {"n": 1})
    assert keys(store.search(())) == ["k"]
    assert not bus.verify().findings


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"n": 2}, ["b"]),
        ({"n": {"$eq": 2}}, ["b"]),
        ({"n": {"$ne": 2}}, ["a", "c", "d"]),
        ({"n": {"$gt": 1}}, ["b", "c"]),
        ({"n": {"$gte": 2, "$lt": 3}}, ["b"]),
        ({"n": {"$lte": 2}}, ["a", "b"]),
        ({"n": {"$lte": "2"}}, ["a", "b"]),
        ({"deep": {"x": {"$gt": 5}}}, ["c"]),
        ({"deep": {"x": 9}, "n": 3}, ["c"]),
        ({"tags": ["x", "y"]}, ["d"]),
        ({"$ref": {"$eq": "x"}}, ["d"]),  # the name of a field
        ({"missing": {"$gt": 0}}, []),
        ({}, ["a", "b", "c", "d"]),
    ],
)
def test_filters_compare_values(store: ScratchbusStore, filter: dict[str, Any], expected: list[str]):
    values: dict[str, dict[str, Any]] = {
        "a": {"n": 1},
        "b": {"n": 2},
        "c": {"n": 3, "deep": {"x": 9}},
        "d": {"n": "no number", "tags": ["x", "y"], "$ref": "x"},
    }
    for key, value in values.items():
        store.put(("s",), key, value)
    assert keys(store.search(("s",), filter=filter)) == expected


def test_an_unknown_operator_is_refused(store: ScratchbusStore):
    store.put(("s",), "a", {"n": 1})
    with pytest.raises(ValueError, match="is not an operator"):
        store.search(("s",), filter={"n": {"$regex": "1"}})
    for misplaced in ({"$or": [{"n": 1}]}, {"n": 1, "$gt": 0}):
        with pytest.raises(ValueError, match=r"stands where a field is named; write field: condition"):
            store.search(("s",), filter=misplaced)


def test_a_query_finds_words_best_match_first(store: ScratchbusStore):
    store.put(("u", "1"), "long", {"text": "the user mentioned pizza once, in a long story of other matters entirely"})
    store.put(("u", "1"), "short", {"text": "likes pizzas"})
    store.put(("u", "2"), "other", {"nested": {"list": ["pizza with ham"]}})
    store.put(("u", "1"), "soup", {"text": "likes soup"})
    found = store.search(("u", "1"), query="Which pizza?")
    assert keys(found) == ["short", "long"]
    assert found[0].score is not None
    assert found[0].score > (found[1].score or 0)
    assert keys(store.search((), query='pizza "AND* (')) == ["short", "other", "long"]
    assert keys(store.search((), query="pizza", limit=1, offset=1)) == ["other"]
    assert keys(store.search(("u", "2"), query="!?")) == ["other"]
    store.put(("u", "1"), "short", {"text": "likes bread"})
    store.delete(("u", "2"), "other")
    assert keys(store.search((), query="pizza")) == ["long"]


def test_only_indexed_fields_are_searched(store: ScratchbusStore):
    value = {"title": "apple", "body": "banana", "list": [{"x": "cherry"}]}
    store.put(("s",), "none", value, index=False)
    store.put(("s",), "some", value, index=["title", "list[*].x"])
    store.put(("s",), "all", value)
    assert sorted(keys(store.search((), query="apple"))) == ["all", "some"]
    assert sorted(keys(store.search((), query="cherry"))) == ["all", "some"]
    assert keys(store.search((), query="banana")) == ["all"]
    assert store.get(("s",), "none") is not None


def age(bus: Bus, key: str, ms: int) -> None:
    """Make the last use of an item `ms` milliseconds older."""
    held = bus.core.items._cached
    (cached,) = held.values()
    index = cached.memory
    (item,) = [each for each in index._documents.values() if each.key == key]
    assert isinstance(item, StoreItem)
    index._put(item.id, item.model_copy(update={"expires_ms": (item.expires_ms or 0) - ms}))


def test_an_item_expires_after_its_last_use(bus: Bus, store: ScratchbusStore):
    store.put(("s",), "k", {"n": 1}, ttl=1)
    store.put(("s",), "stays", {"n": 2})
    assert store.get(("s",), "k", refresh_ttl=False) is not None
    age(bus, "k", 50_000)
    assert store.get(("s",), "k") is not None  # this restarts its TTL
    assert [event.kind for event in bus.items().history(("s",), "k")] == ["item_put", "item_used"]
    store.search(("s",), refresh_ttl=False)
    age(bus, "k", 59_000)
    assert store.get(("s",), "k", refresh_ttl=False) is not None
    age(bus, "k", 2_000)
    assert store.get(("s",), "k") is None
    assert keys(store.search(("s",))) == ["stays"]
    assert store.sweep_ttl() == 1
    assert [event.kind for event in bus.items().history(("s",), "k")][-1] == "item_deleted"
    assert store.sweep_ttl() == 0


def test_a_sweep_keeps_an_item_that_was_put_again(bus: Bus, store: ScratchbusStore, url: str):
    store.put(("s",), "k", {"n": 1}, ttl=1)
    assert store.get(("s",), "k", refresh_ttl=False) is not None
    age(bus, "k", 61_000)
    (cached,) = bus.core.items._cached.values()
    found = cached.memory.expired(time.time() * 1000)
    assert keys(found) == ["k"]
    cached.memory.expired = lambda _: found  # type: ignore[method-assign, assignment]  # another process is faster than the sweep
    with Bus.connect(url, source="other") as other:
        ScratchbusStore(other).put(("s",), "k", {"n": 2}, ttl=1)
    assert store.sweep_ttl() == 0
    again = store.get(("s",), "k")
    assert again is not None
    assert again.value == {"n": 2}


@pytest.mark.parametrize("namespace", ["users", None, [], ["a", ""], ["a"] * 33])
def test_a_namespace_is_a_list_of_labels(bus: Bus, namespace: Any):
    items = bus.items("s")
    with pytest.raises((InvalidField, TooLarge), match="namespace"):
        items.put(namespace, "k", {"n": 1})
    with pytest.raises((InvalidField, TooLarge), match="namespace"):
        items.delete(namespace, "k")
    assert bus.items("s").read().search() == []


@pytest.mark.parametrize("ttl", [0, -1, -0.00001])
def test_a_ttl_that_is_not_positive_is_refused(store: ScratchbusStore, ttl: float):
    with pytest.raises(InvalidField, match=rf"ttl: {ttl} is not a positive number of minutes"):
        store.put(("s",), "k", {"n": 1}, ttl=ttl)
    assert store.get(("s",), "k") is None


def test_an_item_with_a_short_ttl_expires(bus: Bus, store: ScratchbusStore):
    store.put(("s",), "k", {"n": 1}, ttl=0.0005)
    eventually(lambda: store.get(("s",), "k", refresh_ttl=False) is None)
    assert store.list_namespaces() == []


def test_the_ttl_configuration_is_applied(bus: Bus):
    store = ScratchbusStore(bus, name="ttl", ttl={"default_ttl": 1, "refresh_on_read": False})
    store.put(("s",), "k", {"n": 1})
    store.put(("s",), "for ever", {"n": 1}, ttl=None)
    assert len(store.search(())) == 2
    assert [event.kind for event in bus.items("ttl").history(("s",), "k")] == ["item_put"]
    assert [item.ttl for item in (bus.items("ttl").read().get(("s",), key) for key in ("k", "for ever"))] == [
        60_000,
        None,
    ]


def test_a_batch_reads_before_it_writes_and_its_last_write_wins(store: ScratchbusStore):
    store.put(("s",), "k", {"n": 1})
    found = store.batch(
        [
            PutOp(("s",), cast(str, 1), {"n": 2}),
            PutOp(("s",), "k", {"n": 2}),
            PutOp(("s",), "1", {"n": 3}),
            PutOp(("s",), cast(str, 1), {"n": 4}),
            GetOp(("s",), "k"),
            PutOp(("s",), "k", {"n": 3}),
            SearchOp(()),
            GetOp(("s",), "x"),
        ]
    )
    assert [found[at] for at in (0, 1, 2, 3, 5, 7)] == [None] * 6
    assert found[4].value == {"n": 1}
    assert [item.value for item in found[6]] == [{"n": 1}]
    assert store.get(("s",), "k").value == {"n": 3}
    assert store.get(("s",), "1").value == {"n": 4}
    assert store.batch([]) == []


def test_a_batch_that_cannot_restart_a_ttl_writes_nothing(store: ScratchbusStore, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise EngineUnreachable("the test says so")

    store.put(("s",), "k", {"n": 1}, ttl=5)
    with monkeypatch.context() as patch:
        patch.setattr(Items, "use", fail)
        with pytest.raises(EngineUnreachable):
            store.batch([GetOp(("s",), "k"), PutOp(("s",), "new", {"n": 2})])
    assert store.get(("s",), "new") is None


async def test_an_async_bus_serves_tasks(url: str):
    async with AsyncBus.connect(url, source="agent") as bus:
        store = ScratchbusStore(bus, name="tasks")
        await store.aput(("s",), "k", {"text": "hello"}, ttl=5)
        assert (await store.aget(("s",), "k")).value == {"text": "hello"}
        assert keys(await store.asearch((), query="hello")) == ["k"]
        assert await store.alist_namespaces() == [("s",)]
        await store.adelete(("s",), "k")
        assert await store.aget(("s",), "k") is None
        assert await store.asweep_ttl() == 0
        with pytest.raises(TypeError, match="has an AsyncBus"):
            store.get(("s",), "k")


async def test_a_blocking_bus_serves_tasks_from_a_thread(store: ScratchbusStore):
    await store.aput(("s",), "k", {"n": 1})
    assert (await store.aget(("s",), "k")).value == {"n": 1}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"x": float("nan")}, InvalidField),
        ({"x": object()}, InvalidField),
        ({1: "x"}, InvalidField),
        ("text", InvalidField),
        ({"x": "y" * 70_000}, TooLarge),
        ({"x": "\ud800"}, InvalidField),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_its_batch(store: ScratchbusStore, value: Any, error: type):
    with pytest.raises(error):
        store.batch([PutOp(("s",), "fine", {"n": 1}), PutOp(("s",), "bad", value)])
    assert store.search(()) == []


def test_the_searchable_text_has_a_limit(bus: Bus, store: ScratchbusStore):
    longest = ItemChange(("s",), "k", {"n": 1}, text="ä" * (512 * 1024))
    with pytest.raises(TooLarge, match="text: 1048577 bytes is over the limit of 1048576"):
        bus.items("default").write([longest, longest._replace(key="other", text=f"{longest.text}x")])
    assert store.search(()) == []
    bus.items("default").write([longest])
    store.put(("s",), "k", {"x": "ä" * 32_000}, index=["$", "x", "$"])  # the text is much larger than the value
    assert len(store.search(())) == 1


@pytest.mark.parametrize("ttl", [float("inf"), float("nan"), 1e308, 10**400, "5", True, 0, -1])
def test_a_time_to_live_is_a_positive_number_of_minutes(store: ScratchbusStore, ttl: Any):
    with pytest.raises(InvalidField, match="ttl: "):
        store.put(("s",), "k", {}, ttl=ttl)
    assert store.search(()) == []


@pytest.mark.parametrize("namespace", [("x",) * 33, ("y" * 1_001,)])
def test_a_namespace_has_limits(store: ScratchbusStore, namespace: tuple[str, ...]):
    with pytest.raises(TooLarge):
        store.put(namespace, "k", {})


def test_a_store_name_must_be_valid(bus: Bus):
    with pytest.raises(InvalidName):
        ScratchbusStore(bus, name="no spaces")
    with pytest.raises(InvalidField, match="namespace"):
        bus.items().write([ItemChange((), "k", {})])


def test_a_store_needs_a_bus(bus: Bus):
    for other in (bus.page(), "memory://", None):
        with pytest.raises(InvalidField, match=r"^bus: .* is neither a Bus nor an AsyncBus"):
            ScratchbusStore(cast(Bus, other))


def test_an_empty_key_is_refused_as_empty(store: ScratchbusStore):
    for use in (lambda: store.put(("users",), "", {}), lambda: store.get(("users",), "")):
        with pytest.raises(InvalidField, match=r"^key: is empty"):
            use()


@pytest.mark.slow
def test_more_items_than_fit_a_batch_are_put_in_order(store: ScratchbusStore):
    long = "x" * 60_000
    store.batch([PutOp(("s",), f"k{n}", {"n": n, **({"text": long} if n < 130 else {})}) for n in range(1_100)])
    assert keys(store.search((), limit=3_000)) == [f"k{n}" for n in range(1_100)]


def test_threads_share_a_store(store: ScratchbusStore):
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        ready.wait()
        for n in range(25):
            store.put(("t", str(number)), str(n), {"text": f"word{number} common"})
            assert store.search(("t", str(number)), query="common")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert len(store.search((), query="common", limit=200)) == 100


_labels = st.sampled_from(["a", "b", "c"])
_spaces = st.lists(_labels, min_size=1, max_size=3).map(tuple)
_values = st.fixed_dictionaries({"n": st.integers(0, 3)})
_puts = st.tuples(_spaces, _labels, st.none() | _values).map(lambda given: PutOp(*given))
_gets = st.tuples(_spaces, _labels).map(lambda given: GetOp(*given))
_searches = st.tuples(
    st.lists(_labels, max_size=2).map(tuple), st.none() | _values, st.integers(0, 5), st.integers(0, 3)
).map(lambda given: SearchOp(*given))
_numbers = count()


@given(batches=st.lists(st.lists(_puts | _gets | _searches, max_size=8), max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_store_behaves_like_the_in_memory_store(batches: list[list[Any]]):
    model = InMemoryStore()
    with Bus.connect(f"memory://model-{next(_numbers)}", source="agent") as bus:
        store = ScratchbusStore(bus)
        for ops in batches:
            ours, theirs = cast(Any, store.batch(ops)), cast(Any, model.batch(ops))
            for op, one, other in zip(ops, ours, theirs, strict=True):
                if isinstance(op, SearchOp):
                    assert len(one) == len(other)  # the order may differ
                else:
                    assert (one and one.value) == (other and other.value)
        every = [SearchOp((), limit=1_000)]
        found = [
            sorted((item.namespace, item.key, item.value["n"]) for item in each.batch(every)[0])
            for each in (store, model)
        ]
        assert found[0] == found[1]
