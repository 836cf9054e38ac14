"""The public names that programs rely on, and the classes that are written twice, for threads and for asyncio.

The facades are generated from one source: see `tests/tools/test_generate_blocking.py`.
"""

import inspect
import re
import typing

import pytest

import scratchbus
from scratchbus import (
    AsyncBus,
    Bus,
    Contexts,
    Delivery,
    Facts,
    Files,
    Job,
    Memories,
    Notepad,
    Notes,
    Page,
    PastPage,
    Run,
    Scratchpad,
    Subscription,
    Texts,
    Todo,
    Turns,
    View,
    Work,
)
from scratchbus.engine.renewal import AsyncKeeper, Keeper
from scratchbus.eventlog import follow, follow_async
from scratchbus.eventlog.tail_readers import AsyncFeeds, Feeds
from scratchbus.readmodel.scope import AsyncHost, Host

WRITTEN_TWICE = [(Feeds, AsyncFeeds), (Keeper, AsyncKeeper), (Host, AsyncHost)]
ASYNC_NAMES = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}
NOT_EXPORTED = {
    "AsyncIterator",
    "Callable", "Differences", "Events", "FileList", "H", "Iterator", "None", "Observations", "Path", "Self",
    "Settings", "T", "TextList", "TurnList",
}  # fmt: skip

# What programs rely on.
PROMISED = {
    Bus: {
        "connect", "page", "view", "events", "subscribe", "unsubscribe", "dead_letters", "retry_dead_letters",
        "drop_dead_letters", "last_events", "histogram", "pull", "ack", "nack", "requeue", "declare_subscription",
        "subscriptions", "webhook", "work", "on", "on_job", "run_handlers",
        "position", "status", "pages", "types", "push_types", "refresh_types",
        "settings", "close",
    },
    Notes: {"add", "scratch", "search", "list", "update", "delete", "tags", "history", "as_of"},
    Memories: {
        "notes", "notepad", "session", "sessions", "agents", "spawn_session", "fork_session", "end_session", "todo",
        "scratchpad", "run", "begin_task", "end_task", "report_result", "turns", "files", "texts", "relations",
        "push_relations",
    },
    Facts: {
        "assert_fact", "retract", "query", "neighbours", "path", "timeline", "why", "same_as", "not_same_as",
        "pending_review", "ingest", "render_triplets", "contested",
    },
    Turns: {"append", "list", "shown", "compact", "history", "as_of"},
    Files: {"write", "read", "list", "delete", "sync", "path", "history"},
    Texts: {"create", "read", "list", "replace", "insert", "delete", "rename", "history", "as_of"},
    Todo: {"read", "write", "format_for_injection", "history", "as_of"},
    Scratchpad: {
        "read", "write", "whoami", "end_of_run_prompt", "accept_reply", "record_run", "history", "as_of",
    },
    Run: {"step", "done", "error", "max_steps", "__enter__", "__exit__"},
    Notepad: {"read", "write", "append", "update", "history", "as_of"},
    Page: {
        "add", "add_many", "get", "list", "count", "counts", "active", "update", "review", "resolve", "archive",
        "reopen", "clear_resolved", "displaced", "claim", "claim_next", "release", "link", "refute", "trace",
        "consequences", "history", "as_of",
    },
    PastPage: {"name", "position", "at", "get", "list", "count", "counts", "active", "history", "diff"},
    View: {"active", "list", "count", "get", "changes", "wait_for"},
    Subscription: {"name", "is_active", "ack", "run", "close", "__enter__", "__iter__"},
    Delivery: {"ack", "fail", "__enter__"},
    Contexts: {"assemble", "surface", "should_warn", "warning", "after_compaction"},
    Work: {"name", "run", "close", "__enter__", "__iter__"},
    Job: {"resolve", "review", "archive", "update", "link", "release", "fail", "id", "fence", "is_lost", "__enter__"},
}  # fmt: skip


def public(cls):
    """Return the public members of a class; only blocking code has threads to reset after a fork."""
    members = {name: value for name, value in inspect.getmembers(cls) if not name.startswith("_")}
    members.pop("reset_after_fork", None)
    return members


def unbound(value):
    return value.fget if isinstance(value, property) else value


def parameters(function):
    """Return the names, kinds, defaults and types of parameters, with the types of the blocking facade."""
    return [
        (p.name, p.kind, p.default, re.sub(r"Awaitable\[(\w+)\]", r"\1", str(p.annotation)).replace("Async", ""))
        for p in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("cls", PROMISED)
def test_promised_names_exist(cls):
    assert PROMISED[cls] <= set(dir(cls))


@pytest.mark.parametrize("cls", PROMISED)
def test_promised_names_exist_for_asyncio(cls):
    promised = {ASYNC_NAMES.get(name, name) for name in PROMISED[cls]}
    assert promised <= set(dir(getattr(scratchbus, f"Async{cls.__name__}")))


@pytest.mark.anyio
async def test_an_async_bus_can_be_awaited():
    async with AsyncBus.connect("memory://awaited", source="tester") as bus:
        assert await bus is bus


@pytest.mark.parametrize(("ours", "theirs"), WRITTEN_TWICE)
def test_blocking_and_asyncio_classes_have_the_same_methods(ours, theirs):
    assert public(ours).keys() == public(theirs).keys()
    for name, value in public(ours).items():
        spelled = [(*rest, re.sub("threading|asyncio", "", kind)) for *rest, kind in parameters(unbound(value))]
        others = parameters(unbound(public(theirs)[name]))
        assert spelled == [(*rest, re.sub("threading|asyncio", "", kind)) for *rest, kind in others], name


def test_both_follow_functions_have_the_same_parameters():
    assert parameters(follow.follow_events) == parameters(follow_async.follow_events)


def test_types_in_signatures_are_exported():
    facades = [*PROMISED, *(getattr(scratchbus, f"Async{cls.__name__}") for cls in PROMISED)]
    values = [unbound(value) for cls in facades for name, value in vars(cls).items() if not name.startswith("_")]
    mentioned = {
        word
        for value in values
        if callable(value)
        for word in re.findall(r"\w+", str(inspect.signature(value).return_annotation))
    }
    own = {word for word in mentioned if word[0].isupper()} - NOT_EXPORTED
    assert own <= set(scratchbus.__all__)


def own_functions(cls):
    """Yield the public methods and properties of a class that are defined in scratchbus, by name."""
    for name in ["__init__", *(name for name in dir(cls) if not name.startswith("_"))]:
        value = inspect.getattr_static(cls, name)
        value = getattr(value, "fget", None) or getattr(value, "_make", None) or getattr(value, "func", value)
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value) and value.__module__.startswith("scratchbus."):
            yield f"{cls.__name__}.{name}", value


def test_type_hints_of_public_names_resolve_at_runtime():
    """Frameworks resolve them, such as FastAPI for the return type of a dependency."""
    values = {name: getattr(scratchbus, name) for name in scratchbus.__all__}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    for value in values.values():
        if inspect.isclass(value):
            functions |= own_functions(value)
    assert {"Bus.events", "Bus.context", "Bus.settings", "Page.add", "AsyncBus.connect", "archive_bus"} <= set(
        functions
    )
    for name, function in functions.items():
        try:
            typing.get_type_hints(function)
        except NameError as error:
            raise AssertionError(name) from error


def test_every_write_takes_an_event_id_and_a_fence():
    for name in ("add", "update", "review", "resolve", "archive", "reopen", "claim", "release", "link", "refute"):
        assert {"event_id", "fence"} <= inspect.signature(getattr(Page, name)).parameters.keys(), name
    for name in ("add_many", "clear_resolved", "claim_next"):
        assert "event_id" in inspect.signature(getattr(Page, name)).parameters, name
