"""The blocking and the asyncio facade are one contract."""

import inspect

import pytest

from scratchbus import AsyncBus, AsyncPage, AsyncView, Bus, Page, View

FACADES = [(Bus, AsyncBus), (Page, AsyncPage), (View, AsyncView)]
SPELLED_DIFFERENTLY = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
OWN = {"__await__"}  # an AsyncBus may be awaited to open it

# What section "public names" of the README promises.
PROMISED = {
    Bus: {
        "connect", "page", "events", "position", "status", "types", "push_types", "refresh_types", "settings", "close",
    },
    Page: {
        "add", "add_many", "get", "list", "active", "update", "review", "resolve", "archive", "reopen",
        "clear_resolved", "claim", "claim_next", "release", "link", "history",
    },
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
    return [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(unbound(value)).parameters.values()]


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
        assert str(theirs_gives).replace("Async", "") == str(ours_gives).replace("Async", ""), name


@pytest.mark.parametrize(("ours", "theirs"), FACADES)
def test_each_method_says_the_same_of_itself(ours, theirs):
    for name, value in public(ours).items():
        if not name.startswith("__") and name != "connect":
            assert inspect.getdoc(unbound(value)) == inspect.getdoc(unbound(public(theirs)[name])), name


@pytest.mark.parametrize("cls", PROMISED)
def test_what_is_promised_is_there(cls):
    assert PROMISED[cls] <= public(cls).keys()


def test_every_write_can_be_retried_and_fenced():
    for name in ("add", "update", "review", "resolve", "archive", "reopen", "claim", "release", "link"):
        assert {"event_id", "fence"} <= inspect.signature(getattr(Page, name)).parameters.keys(), name
    for name in ("add_many", "clear_resolved"):
        assert "event_id" in inspect.signature(getattr(Page, name)).parameters, name
