"""The blocking and the asyncio facade are one contract."""

import inspect
import re

import pytest

import scratchbus
from scratchbus import (
    AsyncBus,
    AsyncContexts,
    AsyncDelivery,
    AsyncJob,
    AsyncMemories,
    AsyncNotepad,
    AsyncNotes,
    AsyncPage,
    AsyncPastPage,
    AsyncRun,
    AsyncScratchpad,
    AsyncSubscription,
    AsyncTodo,
    AsyncView,
    AsyncWork,
    Bus,
    Contexts,
    Delivery,
    Job,
    Memories,
    Notepad,
    Notes,
    Page,
    PastPage,
    Run,
    Scratchpad,
    Subscription,
    Todo,
    View,
    Work,
)

FACADES = [
    (Bus, AsyncBus),
    (Memories, AsyncMemories),
    (Notepad, AsyncNotepad),
    (Notes, AsyncNotes),
    (Todo, AsyncTodo),
    (Scratchpad, AsyncScratchpad),
    (Run, AsyncRun),
    (Page, AsyncPage),
    (PastPage, AsyncPastPage),
    (View, AsyncView),
    (Subscription, AsyncSubscription),
    (Delivery, AsyncDelivery),
    (Work, AsyncWork),
    (Job, AsyncJob),
    (Contexts, AsyncContexts),
]
SPELLED_DIFFERENTLY = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}
OWN = {"__await__"}  # an AsyncBus may be awaited to open it
NOT_OURS = {"AsyncIterator", "Differences", "Events", "Iterator", "None", "Observations", "Self", "Settings", "T"}

# What programs rely on.
PROMISED = {
    Bus: {
        "connect", "page", "view", "events", "subscribe", "unsubscribe", "dead_letters", "retry_dead_letters",
        "drop_dead_letters", "work", "position", "status", "types", "push_types", "refresh_types", "settings", "close",
    },
    Notes: {"add", "scratch", "search", "list", "update", "delete", "tags", "history", "as_of"},
    Memories: {
        "notes", "notepad", "session", "spawn_session", "fork_session", "end_session", "todo", "scratchpad", "run",
        "begin_task", "end_task", "report_result",
    },
    Todo: {"read", "write", "format_for_injection", "history", "as_of"},
    Scratchpad: {
        "read", "write", "whoami", "end_of_run_prompt", "accept_reply", "record_run", "history", "as_of",
    },
    Run: {"step", "done", "error", "max_steps", "__enter__", "__exit__"},
    Notepad: {"read", "write", "append", "update", "history", "as_of"},
    Page: {
        "add", "add_many", "get", "list", "active", "update", "review", "resolve", "archive", "reopen",
        "clear_resolved", "claim", "claim_next", "release", "link", "refute", "trace", "consequences", "history",
        "as_of",
    },
    PastPage: {"name", "position", "at", "get", "list", "active", "history", "diff"},
    View: {"active", "list", "get", "changes", "wait_for"},
    Subscription: {"name", "is_active", "ack", "run", "close", "__enter__", "__iter__"},
    Delivery: {"ack", "fail", "__enter__"},
    AsyncBus: {"__await__"},
    Work: {"name", "run", "close", "__enter__", "__iter__"},
    Job: {"resolve", "review", "archive", "update", "link", "release", "fail", "id", "fence", "is_lost", "__enter__"},
}  # fmt: skip


def public(cls):
    """Return what a class offers, by name as the blocking facade spells it."""
    back = {theirs: ours for ours, theirs in SPELLED_DIFFERENTLY.items()}
    return {
        back.get(name, name): value
        for name, value in vars(cls).items()
        if (not name.startswith("_") or name in SPELLED_DIFFERENTLY or name in back) and name not in OWN
    }


def unbound(value):
    return value.__func__ if isinstance(value, classmethod) else value.fget if isinstance(value, property) else value


def parameters(value):
    return [
        (p.name, p.kind, p.default, blocking(p.annotation))
        for p in inspect.signature(unbound(value)).parameters.values()
    ]


def blocking(annotation):
    """Return a type as the blocking facade spells it."""
    return str(annotation).replace("Awaitable[object]", "object").replace("Async", "")


@pytest.mark.parametrize(("ours", "theirs"), FACADES)
def test_both_facades_have_the_same_methods(ours, theirs):
    assert public(ours).keys() == public(theirs).keys()
    for name, value in public(ours).items():
        assert isinstance(public(theirs)[name], property) == isinstance(value, property), name


@pytest.mark.parametrize(("ours", "theirs"), FACADES)
def test_each_method_takes_and_returns_the_same(ours, theirs):
    for name, value in public(ours).items():
        other = public(theirs)[name]
        assert parameters(value) == parameters(other), name
        ours_gives, theirs_gives = (inspect.signature(unbound(one)).return_annotation for one in (value, other))
        assert blocking(theirs_gives) == blocking(ours_gives), name


@pytest.mark.parametrize(("ours", "theirs"), FACADES)
def test_each_method_says_the_same_of_itself(ours, theirs):
    for name, value in public(ours).items():
        if not name.startswith("__") and name != "connect":
            says, other = (inspect.getdoc(unbound(one)) for one in (value, public(theirs)[name]))
            assert says == other.replace("Any task", "Any thread"), name


@pytest.mark.parametrize("cls", PROMISED)
def test_what_is_promised_is_there(cls):
    assert PROMISED[cls] <= set(dir(cls))


def test_what_a_signature_names_can_be_imported_from_the_top():
    mentioned = {
        word
        for ours, theirs in FACADES
        for value in [*public(ours).values(), *public(theirs).values()]
        for word in re.findall(r"\w+", str(inspect.signature(unbound(value)).return_annotation))
    }
    own = {word for word in mentioned if word[0].isupper()} - NOT_OURS
    assert own <= set(scratchbus.__all__)


def test_every_public_name_is_there():
    assert all(getattr(scratchbus, name) for name in scratchbus.__all__)


def test_every_write_can_be_retried_and_fenced():
    for name in ("add", "update", "review", "resolve", "archive", "reopen", "claim", "release", "link", "refute"):
        assert {"event_id", "fence"} <= inspect.signature(getattr(Page, name)).parameters.keys(), name
    for name in ("add_many", "clear_resolved", "claim_next"):
        assert "event_id" in inspect.signature(getattr(Page, name)).parameters, name
