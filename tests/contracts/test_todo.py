"""The todo list of a session."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scratchbus import AsyncBus
from scratchbus.domain.todo import CUT
from scratchbus.errors import EventIdReused, InvalidField, InvalidName, SessionOver
from tests.inspection import log_length

PLAN = [
    {"id": "1", "content": "survey the sheets", "status": "completed"},
    {"id": "2", "content": "fix the totals", "status": "in_progress"},
    {"id": "3", "content": "colour the variance"},
]


@pytest.fixture
def todo(bus):
    return bus.todo("s1")


def shown(found):
    return [(item.id, item.content, item.status) for item in found.todos]


def test_an_unwritten_list_is_empty(bus, todo):
    found = todo.read()
    assert (found.todos, found.revision, found.summary["total"]) == ([], 0, 0)
    assert todo.format_for_injection() is None
    assert todo.history() == []
    assert log_length(bus) == 0


def test_a_write_returns_the_list_that_all_clients_read(connect, todo):
    written = todo.write(PLAN)
    assert written == todo.read() == connect("another").todo("s1").read()
    assert [item.status for item in written.todos] == ["completed", "in_progress", "pending"]
    assert written.summary == {"total": 3, "pending": 1, "in_progress": 1, "completed": 1, "cancelled": 0}


def test_each_session_has_its_own_list(bus, todo):
    todo.write(PLAN)
    assert bus.todo("s2").read().todos == []


def test_a_merge_changes_only_the_given_items(todo):
    todo.write(PLAN)
    merged = todo.write([{"id": "3", "status": "in_progress"}, {"id": "4", "content": "new"}], merge=True)
    assert merged == todo.read()
    assert shown(merged)[1:] == [
        ("2", "fix the totals", "in_progress"),
        ("3", "colour the variance", "in_progress"),
        ("4", "new", "pending"),
    ]


def test_the_revision_grows_only_on_change(bus, todo):
    assert todo.write([]).revision == 0
    assert todo.write(PLAN).revision == 1
    length = log_length(bus)
    for todos, merge in ((PLAN, False), (PLAN, True), ([], True), ([{"id": "1", "status": "nonsense"}], True)):
        assert todo.write(todos, merge=merge).revision == 1
    assert log_length(bus) == length
    assert todo.write([{"id": "1", "status": "cancelled"}], merge=True).revision == 2
    assert todo.write([]).revision == 3
    assert todo.read().todos == []


def test_limits_hold_for_writes_and_merges(todo):
    todo.write([{"id": str(number), "content": "x"} for number in range(1_000)])
    full = todo.write([{"id": "0", "content": "é" * 10_000}, {"id": "more", "content": "no room"}], merge=True)
    assert len(full.todos) == 256
    assert full.todos[0].content == "é" * (4_000 - len(CUT)) + CUT
    assert full == todo.read()
    assert todo.write([{"id": "more", "content": "no room"}], merge=True).revision == full.revision


def test_concurrent_merges_lose_nothing(connect, todo):
    todo.write([{"id": "0", "content": "there before"}])
    writers = [connect(f"writer-{number}") for number in range(4)]

    def write(number):
        for turn in range(5):
            writers[number].todo("s1").write([{"id": f"{number}.{turn}", "content": "mine"}], merge=True)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(4)))
    found = todo.read()
    assert {item.id for item in found.todos} == {"0"} | {f"{n}.{t}" for n in range(4) for t in range(5)}
    assert found.revision == 21


def test_a_retried_write_without_changes_changes_nothing(todo):
    first = todo.write(PLAN)
    assert todo.write(PLAN, event_id="mine") == first
    todo.write([])
    assert todo.write(PLAN, event_id="mine") == first
    assert (todo.read().todos, todo.read().revision) == ([], 2)


def test_a_retried_write_changes_nothing(bus, todo):
    first = todo.write(PLAN, event_id="mine")
    length = log_length(bus)
    assert todo.write(PLAN, event_id="mine") == first
    todo.write([{"id": "3", "status": "cancelled"}], merge=True)
    later = todo.read()
    assert todo.write(PLAN, event_id="mine") == first
    assert todo.read() == later
    assert log_length(bus) == length + 1
    with pytest.raises(EventIdReused):
        todo.write([], event_id="mine")


def test_the_history_has_the_author_and_items_of_each_write(bus, connect, todo):
    todo.write(PLAN)
    connect("another").todo("s1").write([{"id": "2", "status": "completed"}], merge=True)
    first, second = todo.history()
    assert [(event.kind, event.by) for event in (first, second)] == [
        ("todo_written", "tester"),
        ("todo_written", "another"),
    ]
    assert [(item.id, item.status) for item in second.todos] == [("2", "completed")]


def test_as_of_returns_past_lists(todo):
    before = todo.write(PLAN)
    moment = todo.history()[-1].position
    todo.write([])
    assert todo.as_of(moment) == before
    assert todo.as_of(todo.history()[-1].at) == todo.read()


def test_only_unfinished_items_are_injected(todo):
    todo.write(PLAN)
    assert todo.format_for_injection() == (
        "[Your active task list was preserved across context compression]\n"
        "- [>] 2. fix the totals (in_progress)\n"
        "- [ ] 3. colour the variance (pending)"
    )


@pytest.mark.parametrize(
    "todos", [None, "x", [1], [{"content": "x"}], [{"id": "1"}], [{"id": "1", "content": "\ud800"}]]
)
def test_an_invalid_list_is_refused_and_nothing_is_written(bus, todo, todos):
    with pytest.raises(InvalidField):
        todo.write(todos)
    assert log_length(bus) == 0


@pytest.mark.parametrize("session", ["", "no spaces please", None, 7, "x" * 200])
def test_an_invalid_session_name_is_refused(bus, session):
    with pytest.raises(InvalidName):
        bus.todo(session)


def test_ending_the_session_archives_the_list(bus, todo):
    written = todo.write(PLAN)
    bus.end_session("s1")
    assert todo.read().todos == []
    assert todo.format_for_injection() is None
    assert [event.kind for event in todo.history()] == ["todo_written", "session_ended"]
    assert todo.as_of(todo.history()[0].position) == written
    with pytest.raises(SessionOver):
        todo.write(PLAN)


@pytest.mark.anyio
async def test_async_todo_lists_behave_the_same(engine, bus_name, todo):
    todo.write(PLAN)
    async with AsyncBus.connect(engine.url, source="another", bus=bus_name, shards=engine.shards) as bus:
        theirs = bus.todo("s1")
        assert await theirs.read() == todo.read()
        merged = await theirs.write([{"id": "2", "status": "completed"}], merge=True)
        assert merged == todo.read() == await theirs.as_of((await theirs.history())[-1].position)
        assert await theirs.format_for_injection() == todo.format_for_injection()


def test_an_erased_list_can_be_written_again(bus, todo):
    todo.write(PLAN)
    todo.write([])
    bus.page("session:s1").erase("todo", reason="asked for")
    assert (todo.read().todos, [event.kind for event in todo.history()]) == ([], ["erased"])
    assert todo.write([{"id": "9", "content": "again"}], merge=True).revision == 4
