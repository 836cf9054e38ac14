"""Writes whose subject another process changes before each of their tries."""

from itertools import count

import pytest

from scratchbus.errors import Conflict
from tests.engines import ALL
from tests.faults.interposing import interposed

pytestmark = pytest.mark.engines(*ALL, slow=("memory",))


def an_observation(bus):
    return bus.page().add("observation", "x").id


def a_note(bus):
    return bus.notes("s").add("x").note.id


def a_file(bus):
    bus.texts("agent").create("a.txt", "x")
    return "a.txt"


def names(bus):
    bus.facts("world").same_as("A", "B")


def change(bus, id, number):
    bus.page().update(id, content=f"{number}")


def join_again(bus, _, number):
    bus.facts("world").not_same_as("A", "B", reason=f"{number}")
    bus.facts("world").same_as("A", "B")


WRITES = {
    "update": (an_observation, lambda bus, id: bus.page().update(id, remind_at="2090-01-01"), change, "execution"),
    "erase": (an_observation, lambda bus, id: bus.page().erase(id, reason="asked for"), change, "erase"),
    "note": (
        a_note,
        lambda bus, id: bus.notes("s").update(id, "mine"),
        lambda bus, id, number: bus.notes("s").update(id, f"{number}"),
        "memory",
    ),
    "file": (
        a_file,
        lambda bus, path: bus.texts("agent").rename(path, "b.txt"),
        lambda bus, path, number: bus.texts("agent").insert(path, 0, f"{number}"),
        "texts",
    ),
    "names": (names, lambda bus, _: bus.facts("world").not_same_as("A", "B"), join_again, "facts"),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_subject_that_keeps_changing_is_a_conflict(connect, monkeypatch, name):
    prepare, write, overtake, module = WRITES[name]
    bus, other, numbers = connect(), connect(), count()
    subject = prepare(other)
    monkeypatch.setattr(f"scratchbus.commands.{module}._TRIES", 3)

    def around(call, send):
        if call.is_write:
            overtake(other, subject, next(numbers))
        return send()

    with interposed(bus, around), pytest.raises(Conflict, match=r"(keeps|keep) changing; try again") as refused:
        write(bus, subject)
    assert subject is None or f"{subject} keeps changing" in str(refused.value)
    write(bus, subject)
    assert next(numbers) >= 3
