"""A conversation shows every turn, either itself or a turn that replaces it."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from scratchbus.domain.conversation_events import TurnAppended, TurnsCompacted
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import TaskBegun, TaskEnded
from scratchbus.projections.conversation import Conversation

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.none() | st.integers(0, 3)),
        st.tuples(st.just("begin"), st.none()),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("compact"), st.sets(st.integers(0, 7), min_size=1, max_size=4)),
    ),
    max_size=25,
)


class Session:
    """A growing conversation, and the original turns that each shown turn represents."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.events: list[Event] = []
        self.appended: list[str] = []
        self.tasks: list[str] = []
        self.ended: set[str] = set()
        self.represents: dict[str, set[str]] = {}

    def append_event(self, kind: type[Event], prefix: str, subject: str = "", **fields: Any) -> str:
        at = len(self.events) + 1
        subject = subject or f"{prefix}_{1000 + at}"
        event = kind(by="x", id=f"e{at}", page="session:s1", subject=subject, **fields).placed(ms=1000 + at, seq=at)
        self.events.append(event)
        self.conversation.evolve(event)
        return subject

    def run_step(self, verb: str, which: Any) -> None:
        shown = self.conversation.shown()
        if verb == "say":
            task = self.tasks[which] if which is not None and which < len(self.tasks) else None
            self.appended.append(self.append_event(TurnAppended, "turn", role="user", content="x", task=task))
        elif verb == "begin":
            self.tasks.append(self.append_event(TaskBegun, "task", title="x"))
        elif verb == "end" and which < len(self.tasks) and self.tasks[which] not in self.ended:
            self.ended.add(self.append_event(TaskEnded, "task", self.tasks[which], summary="done"))
        elif verb == "compact" and (ids := [shown[place].id for place in sorted(which) if place < len(shown)]):
            self.append_event(TurnsCompacted, "turn", turns=ids, content="x")
        for turn in self.conversation.shown():
            whole = {id for other in turn.replaces for id in self.represents.get(other, {other})}
            self.represents[turn.id] = whole or {turn.id}


LATE = [("begin", None), ("say", 0), ("end", 0), ("compact", {0}), ("say", 0)]
NESTED = [("begin", None), ("begin", None), ("say", 1), ("end", 1), ("compact", {0}), ("say", None), ("end", 0)]


@example(LATE)
@example(NESTED)
@given(STEPS)
def test_every_turn_is_shown_or_represented(steps):
    session = Session()
    for verb, which in steps:
        session.run_step(verb, which)
        shown = session.conversation.shown()
        assert {id for turn in shown for id in session.represents[turn.id]} == set(session.appended)
        assert len({turn.id for turn in shown}) == len(shown)
        assert [turn.id for turn in session.conversation.original_turns()] == session.appended


@given(STEPS)
def test_repeated_events_change_nothing(steps):
    session = Session()
    for verb, which in steps:
        session.run_step(verb, which)
    before = session.conversation.shown()
    for event in session.events:
        session.conversation.evolve(event)
    assert session.conversation.shown() == before


def test_a_conversation_of_many_tasks_takes_no_longer_for_each():
    """One of 1,500 tasks took four seconds."""
    session = Session()
    for _ in range(1_500):
        task = session.append_event(TaskBegun, "task", title="x")
        for _ in range(10):
            session.append_event(TurnAppended, "turn", role="user", content="x")
        session.append_event(TaskEnded, "task", task, summary="done")
    began = time.process_time()
    assert len(session.conversation.shown()) == 1_500
    assert time.process_time() - began < 2
