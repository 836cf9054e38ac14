"""Sessions: spawned, forked, ended and listed."""

from __future__ import annotations

import signal
import subprocess

import pytest

from scratchbus import AsyncBus, Bus, because
from scratchbus.archive.export import line_of
from scratchbus.errors import EventIdReused, InvalidName, SessionExists, SessionOver
from scratchbus.eventlog.append import append
from scratchbus.memory.overview import list_sessions
from tests import launcher
from tests.engines import ONE, Engine
from tests.inspection import log_length, project, remembered, round_trips


def test_a_spawned_session_is_empty_and_has_its_parent(bus):
    bus.notepad("p").write("the plan")
    bus.notes("p").add("found", ["a"])
    child = bus.spawn_session("p")
    assert bus.notepad(child).read() == ""
    assert bus.notes(child).list().notes == []
    known = bus.session(child)
    assert (known.id, known.parent, known.fork, known.ended) == (child, "p", False, False)
    assert bus.session("p").children == [child]
    assert bus.session("p").parent is None


def test_a_session_can_start_with_a_copy_of_its_parents_notepad(bus):
    bus.notepad("p").write("the plan")
    copied = bus.spawn_session("p", session="copied", copy_notepad=True)
    forked = bus.fork_session("p", session="forked")
    assert (copied, forked) == ("copied", "forked")
    assert bus.notepad(copied).read() == bus.notepad(forked).read() == "the plan"
    assert (bus.session(copied).fork, bus.session(forked).fork) == (False, True)


def test_a_fork_and_its_parent_do_not_share_later_edits(bus):
    bus.notepad("p").write("plan")
    bus.fork_session("p", session="c")
    bus.notepad("p").append(" of the parent")
    bus.notepad("c").append(" of the child")
    assert bus.notepad("p").read() == "plan of the parent"
    assert bus.notepad("c").read() == "plan of the child"


def test_an_unknown_session_is_none(bus):
    bus.notepad("s1").write("x")
    assert bus.session("s1") is None
    assert bus.session("never") is None
    with pytest.raises(InvalidName):
        bus.session("a b")


def test_the_first_events_of_a_child_have_the_parents_event_as_cause(bus):
    bus.notepad("p").write("plan")
    with because("1-1"):
        bus.fork_session("p", session="c")
    (first,) = bus.page("session:p").history("session")
    started, written = bus.page("session:c").history("session") + bus.notepad("c").history()
    assert first.cause == "1-1"
    assert started.cause == written.cause == str(first.position)
    assert (started.id, written.id) == (f"{first.id}/1", f"{first.id}/2")
    assert (started.batch, written.batch) == ("1/2", "2/2")


def test_writers_can_spawn_sessions_with_the_same_event_id(connect):
    alice, bob = connect("alice"), connect("bob")
    alice.notepad("team").write("plan")
    first, second = (bus.spawn_session("team", event_id="EV-1") for bus in (alice, bob))
    assert first != second == bob.spawn_session("team", event_id="EV-1")
    for begin in (
        lambda: alice.spawn_session("another", event_id="EV-1"),
        lambda: alice.fork_session("team", event_id="EV-1"),
        lambda: alice.spawn_session("team", session="named", event_id="EV-1"),
    ):
        with pytest.raises(EventIdReused):
            begin()


def test_a_retried_spawn_or_fork_changes_nothing(bus):
    bus.notepad("p").write("plan")
    forked = bus.fork_session("p", event_id="f1")
    bus.spawn_session("p", session="named", copy_notepad=True)
    length = log_length(bus)
    bus.notepad("p").append(", later")
    assert bus.fork_session("p", event_id="f1") == forked
    assert bus.spawn_session("p", session="named", copy_notepad=True) == "named"
    assert log_length(bus) == length + 1
    assert bus.fork_session("p") != bus.fork_session("p")


def test_an_existing_session_cannot_be_started(bus):
    bus.notepad("there").write("mine")
    bus.fork_session("p", session="c")
    length = log_length(bus)
    for again in (
        lambda: bus.spawn_session("p", session="there"),
        lambda: bus.fork_session("p", session="there"),
        lambda: bus.fork_session("else", session="c"),
        lambda: bus.spawn_session("p", session="c"),
    ):
        with pytest.raises(SessionExists, match="already exists; choose another name"):
            again()
    assert log_length(bus) == length
    assert bus.notepad("there").read() == "mine"


def test_an_ended_child_cannot_be_started_again_except_by_a_retry(bus):
    bus.spawn_session("p", session="named")
    bus.fork_session("p", session="fork")
    retried = bus.spawn_session("p", session="retried", event_id="EV-1")
    for child in ("named", "fork", "retried"):
        bus.end_session(child)
    length = log_length(bus)
    for again in (
        lambda: bus.spawn_session("p", session="named"),
        lambda: bus.fork_session("p", session="fork"),
    ):
        with pytest.raises(SessionOver, match="has ended and its memories are archived; start another session"):
            again()
    assert bus.spawn_session("p", session="retried", event_id="EV-1") == retried
    assert log_length(bus) == length


def test_a_session_without_memories_can_end(bus):
    assert bus.sessions(["unused"]) == []
    assert bus.end_session("unused").ended
    with pytest.raises(SessionOver):
        bus.notepad("unused").write("late")


CUT_SHORT = """
import os, signal, sys
from scratchbus import Bus
from scratchbus.commands import sessions

url, name, when = sys.argv[1:]
append = sessions.append

def killed(*arguments):
    if when == "after":
        yield from append(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
    yield

sessions.append = killed
with Bus.connect(url, bus=name, source="tester") as bus:
    bus.fork_session("p", session="c")
"""


@pytest.mark.real
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_fork_can_be_retried_and_happens_once(embedded_url: str, real_bus: Bus, when: str):
    bus = real_bus
    bus.notepad("p").write("as it was")
    command = launcher.command("-c", CUT_SHORT, embedded_url, bus.core.log.bus, when)
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    bus.notepad("p").append(", and more")
    assert (bus.session("c") is None) == (when == "before")
    for _ in range(2):
        assert bus.fork_session("p", session="c") == "c"
    assert bus.notepad("c").read() == "as it was"
    assert len(bus.page("session:p").history("session")) == 1
    assert len(bus.page("session:c").history("session")) == len(bus.notepad("c").history()) == 1


@pytest.fixture
def ended(bus: Bus):
    """The notes of a session that has ended."""
    bus.notepad("s1").write("the plan")
    bus.notepad("s1").append("!")
    notes = [bus.notes("s1").add(f"note {number}", ["a"]).note for number in range(3)]
    bus.end_session("s1")
    return notes


def test_ending_a_session_archives_its_memories(bus, ended, connect):
    assert bus.session("s1").ended
    for _ in ("not folded", "folded"):
        for each in (bus, connect("another")):
            assert each.notepad("s1").read() == ""
            assert each.notes("s1").list().notes == each.notes("s1").search("note").notes == []
            assert each.notes("s1").tags().tags == {}
        project(bus)
    assert set(remembered(bus)) == {("session:s1", "session")}
    assert bus.verify().findings == []


def test_ending_a_session_is_one_event(bus, ended):
    (event,) = bus.page("session:s1").history("session")
    assert (event.kind, event.by, event.batch) == ("session_ended", "tester", "1/1")
    assert log_length(bus) == 6


def test_the_history_of_an_ended_session_stays_readable(bus, ended):
    notepad, notes = bus.notepad("s1"), bus.notes("s1")
    assert [event.kind for event in notepad.history()] == ["notepad_written", "notepad_edited", "session_ended"]
    assert [event.kind for event in notes.history()] == [*["note_added"] * 3, "session_ended"]
    assert [event.kind for event in notes.history(ended[0].id)] == ["note_added", "session_ended"]
    over = notes.history()[-1]
    assert notepad.as_of(ended[-1].position) == "the plan!"
    assert notes.as_of(ended[-1].position).notes == ended[::-1]
    assert notepad.as_of(over.position) == ""
    assert notes.as_of(over.position).notes == []


def test_writes_to_an_ended_session_are_refused(bus, ended):
    length = log_length(bus)
    for late in (
        lambda: bus.notepad("s1").write("late"),
        lambda: bus.notepad("s1").append("late"),
        lambda: bus.notepad("s1").update("find_replace", find="plan", replace="late"),
        lambda: bus.notes("s1").add("late"),
        lambda: bus.notes("s1").update(ended[0].id, "late"),
        lambda: bus.notes("s1").delete(ended[0].id),
        lambda: bus.spawn_session("s1"),
    ):
        with pytest.raises(SessionOver, match="session 's1' has ended and its memories are archived"):
            late()
    assert log_length(bus) == length


def test_an_edit_that_races_the_end_of_its_session_is_refused(bus, connect, monkeypatch):
    """The session ends after the straggler reads the notepad and before it writes."""
    bus.notepad("s1").write("the plan")
    straggler, name = connect("straggler"), "scratchbus.commands.memory.append"

    def late(*arguments, **keywords):
        monkeypatch.setattr(name, append)
        bus.end_session("s1")
        return (yield from append(*arguments, **keywords))

    monkeypatch.setattr(name, late)
    with pytest.raises(SessionOver):
        straggler.notepad("s1").append(" goes on")
    assert bus.notepad("s1").read() == ""


def test_ending_a_session_again_changes_nothing(bus, ended, connect):
    length = log_length(bus)
    assert bus.end_session("s1") == bus.end_session("s1", event_id="e1") == bus.session("s1")
    assert connect("another").end_session("s1").ended
    assert log_length(bus) == length
    first = bus.end_session("s2", event_id="e2")
    assert bus.end_session("s2", event_id="e2") == first


def test_writes_can_be_retried_after_the_end_of_their_session(bus):
    note = bus.notes("s1").add("x", event_id="n1").note
    bus.notepad("s1").write("x", event_id="w1")
    bus.end_session("s1")
    bus.notepad("s1").write("x", event_id="w1")
    assert bus.notes("s1").add("x", event_id="n1").note == note


def test_a_rebuild_leaves_an_ended_session_archived(bus, ended):
    project(bus)
    before = remembered(bus)
    bus.rebuild()
    assert remembered(bus) == before
    assert bus.verify().findings == []


def test_an_imported_session_stays_ended(bus, ended, connect):
    other = connect(bus=f"{bus.core.log.bus}-2")
    other.import_events([line_of(event) for event in bus.events()])
    assert other.session("s1").ended
    assert other.verify().findings == []
    with pytest.raises(SessionOver):
        other.notes("s1").add("late")


def test_other_sessions_accept_writes(bus, ended):
    bus.notepad("s2").write("mine")
    bus.notes("s2").add("mine")
    assert bus.notepad("s2").read() == "mine"
    assert len(bus.notes("s2").list().notes) == 1


async def test_async_sessions_behave_the_same(engine: Engine, bus_name: str):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        await bus.notepad("p").write("plan")
        child = await bus.fork_session("p")
        assert await bus.notepad(child).read() == "plan"
        assert (await bus.session(child)).parent == "p"
        other = await bus.spawn_session("p")
        assert await bus.notepad(other).read() == ""
        assert (await bus.end_session("p")).ended
        assert await bus.notepad("p").read() == ""


# -- lists


def test_all_sessions_are_listed_with_their_last_writer(bus, connect):
    bus.notes("p").add("found")
    child = bus.spawn_session("p", session="c")
    connect(source="another").todo("q").write([{"id": "1", "content": "ask"}])
    bus.page("no-session").add("observation", "x")
    bus.end_session(child)
    listed = {each.id: each for each in bus.sessions()}
    assert list(listed) == ["c", "p", "q"]
    assert [(each.parent, each.children, each.ended, each.agent) for each in listed.values()] == [
        ("p", [], True, "tester"),
        (None, ["c"], False, "tester"),
        (None, [], False, "another"),
    ]
    assert listed["p"].updated_at == bus.session("p").updated_at
    assert [each.id for each in bus.sessions(["q", "unknown", "q"])] == ["q"]
    assert [each.id for each in bus.sessions("q")] == ["q"]
    for names in (["a b"], 5):
        with pytest.raises(InvalidName):
            bus.sessions(names)


def test_sessions_are_listed_as_of_a_moment(bus):
    before = bus.position()
    bus.notes("p").add("found")
    then = bus.position()
    bus.spawn_session("p", session="c")
    bus.end_session("p")
    assert [each for each in bus.sessions(as_of=before) if each.id in ("p", "c")] == []
    (known,) = bus.sessions(as_of=then)
    assert (known.id, known.children, known.ended) == ("p", [], False)


def test_unfolded_sessions_are_listed(bus, connect):
    bus.spawn_session("p", session="c")
    project(bus)
    bus.end_session("c")
    assert {each.id: each.ended for each in connect().sessions()} == {"c": True, "p": False}


def test_agents_with_a_scratchpad_are_listed(bus, connect):
    assert bus.agents() == []
    bus.page("agent:none").add("observation", "on a page that is called so")
    bus.scratchpad("tester").write("mine")
    connect(source="another").scratchpad("another").write("theirs")
    assert bus.agents() == ["another", "tester"]


@pytest.mark.engines(*ONE)
def test_past_sessions_take_as_many_round_trips_for_many_as_for_few(bus):
    asked = []
    for count in (20, 10):  # the first ones, so that every shard has some
        for number in range(count):
            bus.spawn_session("p", session=f"s{count}-{number}")
        project(bus)
        asked.append(round_trips(bus, list_sessions(bus.core, None, bus.position())))
    assert len(bus.sessions(as_of=bus.position())) == 31
    assert asked[0] == asked[1]
