"""Each parameter of a method reaches its command: they are matched by name, so another name would be dropped."""

import inspect
from collections.abc import Callable
from typing import get_args, get_type_hints

import pytest

from scratchbus import Bus, Facts, Notepad, Notes, Page, PastPage, Preferences, Scratchpad, Todo, View
from scratchbus.commands import (
    change,
    claim,
    clear,
    facts,
    ingest,
    notepad,
    notes,
    preferences,
    refute,
    scratchpad,
    tasks,
    todo,
)
from scratchbus.domain.models import Given
from scratchbus.domain.observation_models import GivenObservation
from scratchbus.projections.filters import Filter

COMMANDS: list[tuple[Callable[..., object], type[Given]]] = [
    (Page.add, GivenObservation),
    (Page.update, change.Update),
    (Page.review, change.Review),
    (Page.resolve, change.Resolve),
    (Page.archive, change.ArchiveObservation),
    (Page.reopen, change.Reopen),
    (Page.clear_resolved, clear.Clear),
    (Page.claim, claim.TakeClaim),
    (Page.release, claim.Release),
    (Page.link, claim.LinkAction),
    (Page.refute, refute.Refute),
    (Page.list, Filter),
    (PastPage.list, Filter),
    (View.list, Filter),
    (Notes.add, notes.AddNote),
    (Notes.update, notes.UpdateNote),
    (Notes.delete, notes.DeleteNote),
    (Notepad.write, notepad.WriteNotepad),
    (Notepad.update, notepad.UpdateNotepad),
    (Notepad.append, notepad.AppendLine),
    (Todo.write, todo.WriteTodo),
    (Scratchpad.write, scratchpad.WriteScratchpad),
    (Preferences.remember, preferences.RememberPreference),
    (Preferences.edit, preferences.EditPreference),
    (Preferences.forget, preferences.ForgetPreference),
    (Facts.assert_fact, facts.AssertFact),
    (Facts.retract, facts.RetractFact),
    (Facts.ingest, ingest.Ingest),
    (Bus.begin_task, tasks.BeginTask),
    (Bus.end_task, tasks.EndTask),
]
NOT_PASSED_ON = {"self", "unknown", "limit", "after", "stale_ok", "line", "session", "filters", "patch"}
"""Parameters that the command does not have."""
SET_BY_METHODS = {"back", "waiting", "is_open"}
"""Fields that methods set, not callers."""


@pytest.mark.parametrize(("method", "command"), COMMANDS, ids=lambda each: each.__qualname__)
def test_a_command_has_every_parameter_of_its_method(method: Callable[..., object], command: type[Given]):
    fields = set(command.model_fields)
    assert parameters_of(method, fields) - NOT_PASSED_ON == fields - SET_BY_METHODS


def parameters_of(method: Callable[..., object], fields: set[str]) -> set[str]:
    """Return the names of a method's parameters, including the keys of a TypedDict of its keywords."""
    names = set()
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name not in {*fields, "unknown"}:
            (keywords,) = get_args(get_type_hints(method)[name])
            names |= keywords.__annotations__.keys()
        else:
            names.add(name)
    return names
