"""Conversations that are driven side by side: their reads share round trips, all else is done alone."""

from __future__ import annotations

from typing import Any

import pytest

from scratchbus.engine.steps import Call, Fetch, Pause, ask, ask_all, side_by_side
from scratchbus.errors import PositionLost


def drive(conversation, answers):
    """Return the requests of a conversation and its result; each request is answered by a function."""
    requests = list[Any]()
    reply, resume = None, conversation.send
    while True:
        try:
            request = resume(reply)
        except StopIteration as done:
            return requests, done.value
        requests.append(request)
        try:
            resume, reply = conversation.send, answers(request)
        except PositionLost as error:
            resume, reply = conversation.throw, error


def echo(request):
    return [" ".join(command) for command in request.commands] if isinstance(request, Call) else None


def test_conversations_of_different_lengths_read_together_and_return_in_order():
    def reads(name, times):
        found = []
        for number in range(times):
            found += yield from ask_all(0, [("GET", name), ("GET", str(number))])
        return found

    requests, results = drive(side_by_side([reads("a", 2), reads("b", 0), reads("c", 1)]), echo)
    assert results == [["GET a", "GET 0", "GET a", "GET 1"], [], ["GET c", "GET 0"]]
    assert [len(each.commands) for each in requests] == [4, 2]
    assert drive(side_by_side([]), echo) == ([], [])


def test_reads_of_different_shards_are_different_calls():
    requests, results = drive(side_by_side([ask(shard, "GET", str(shard)) for shard in (0, 1, 0)]), echo)
    assert results == ["GET 0", "GET 1", "GET 0"]
    assert [(each.shard, len(each.commands)) for each in requests] == [(0, 2), (1, 1)]


def test_writes_and_what_is_no_call_are_done_alone_and_their_errors_reach_their_conversation():
    write, fetch = Call(0, (("SET", "a"),), is_write=True), Fetch(dict)

    def writes():
        replies = yield write
        yield Pause(0)
        return replies

    def reads_the_archive():
        try:
            yield fetch
        except PositionLost:
            return (yield from ask(0, "GET", "b"))

    def answers(request):
        if request is fetch:
            raise PositionLost("no archive")
        return echo(request)

    requests, results = drive(side_by_side([writes(), reads_the_archive(), ask(0, "GET", "c")]), answers)
    assert results == [["SET a"], "GET b", "GET c"]
    assert requests == [write, Pause(0), fetch, Call(0, (("GET", "b"), ("GET", "c")))]


def test_an_error_that_no_conversation_handles_ends_all():
    def fails():
        yield from ask(0, "GET", "a")
        raise PositionLost("lost")

    with pytest.raises(PositionLost, match="lost"):
        drive(side_by_side([ask(0, "GET", "b"), fails()]), echo)


def test_the_error_of_one_read_reaches_its_conversation_alone():
    def reads(name):
        try:
            return (yield from ask(0, "GET", name))
        except PositionLost:
            return "lost"

    def refuse(request):
        if ("GET", "b") in request.commands:
            raise PositionLost("b is gone")
        return echo(request)

    requests, results = drive(side_by_side([reads("a"), reads("b"), reads("c")]), refuse)
    assert results == ["GET a", "lost", "GET c"]
    assert [len(each.commands) for each in requests] == [3, 1, 1, 1]
