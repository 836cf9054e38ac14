"""The folds of todo lists, tasks, scratchpads and notepads."""

from __future__ import annotations

import pytest

from scratchbus.domain.events import Erased, Linked
from scratchbus.domain.memory_events import (
    NotepadEdited,
    NotepadWritten,
    RunEnded,
    ScratchpadWritten,
    TaskBegun,
    TaskEnded,
    TodoWritten,
)
from scratchbus.domain.todo import TodoItem
from scratchbus.projections import notepad, scratchpad, tasks, todo
from scratchbus.projections.projection import FoldError

ONE, TWO = TodoItem(id="1", content="one"), TodoItem(id="2", content="two")
DONE = TodoItem(id="1", content="one", status="completed")
RUN = RunEnded(by="a", task="t", outcome="completed", summary="s")


def placed(*events):
    return [
        event.placed(kind=type(event).model_fields["kind"].default, ms=n, seq=n) for n, event in enumerate(events, 1)
    ]


def folded(evolve, *events):
    document = None
    for event in placed(*events):
        document = evolve(document, event)
    return document


def test_a_todo_list_is_replaced_or_merged():
    plan = folded(
        todo.evolve,
        TodoWritten(by="a", todos=[ONE, TWO]),
        TodoWritten(by="a", todos=[DONE], merge=True),
    )
    assert (plan.todos, plan.revision, plan.version) == ([DONE, TWO], 2, 2)
    assert folded(todo.evolve, TodoWritten(by="a", todos=[ONE, TWO]), TodoWritten(by="a", todos=[])).todos == []


def test_a_run_does_not_change_the_content_of_the_scratchpad():
    pad = folded(scratchpad.evolve, ScratchpadWritten(by="a", content="x"), RUN.model_copy())
    assert (pad.content, pad.version) == ("x", 2)
    assert folded(scratchpad.evolve, RUN.model_copy()).content == ""


def test_a_task_has_a_summary_once_it_has_ended():
    assert folded(tasks.evolve, TaskBegun(by="a", title="t")).summary is None
    assert folded(tasks.evolve, TaskBegun(by="a", title="t"), TaskEnded(by="a", summary="s")).summary == "s"


def test_a_task_that_was_never_begun_cannot_end():
    with pytest.raises(FoldError):
        folded(tasks.evolve, TaskEnded(by="a", summary="s"))


def test_an_erased_memory_is_empty_and_can_be_written_again():
    erased = Erased(by="a", reason="r", positions=["1-1"], version=2)
    plan = folded(todo.evolve, TodoWritten(by="a", todos=[ONE]), erased, TodoWritten(by="a", todos=[TWO], merge=True))
    assert (plan.todos, plan.version, plan.revision) == ([TWO], 3, 3)
    pad = folded(scratchpad.evolve, ScratchpadWritten(by="a", content="x"), erased)
    assert (pad.content, pad.version) == ("", 2)
    assert folded(tasks.evolve, TaskBegun(by="a", title="t"), erased) is None


def test_an_edit_of_the_notepad_replaces_the_first_occurrence_or_every_one():
    edit = NotepadEdited(by="a", operation="find_replace", find="x", replace="y")
    for replace_all, content in ((False, "y x x"), (True, "y y y")):
        asked = edit.model_copy(update={"replace_all": replace_all})
        assert folded(notepad.evolve, NotepadWritten(by="a", content="x x x"), asked).content == content


@pytest.mark.parametrize("evolve", [todo.evolve, scratchpad.evolve, tasks.evolve])
def test_other_events_change_nothing(evolve):
    assert folded(evolve, Linked(by="a", action="x")) is None
