"""A LangGraph agent whose long-term memory is a bus, and whose findings are on a page.

python agent.py USER MESSAGE
"""

from __future__ import annotations

import re
import sys
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore

from scratchbus import Bus
from scratchbus.adapters.langgraph import ScratchbusStore


class State(TypedDict, total=False):
    """What the nodes hand on."""

    user: str
    message: str
    known: list[str]
    answer: str


def scripted_model(message: str, known: list[str]) -> str:
    """Stand in for a language model: answer with what is known of the user."""
    return f"I remember: {'; '.join(known)}" if known else "I know nothing of you yet"


def recall(state: State, *, store: BaseStore) -> State:
    """Find what is known of the user that bears on the message."""
    found = store.search(("users", state["user"]), query=state["message"], limit=5)
    return {"known": [item.value["text"] for item in found]}


def answer(state: State, *, store: BaseStore) -> State:
    """Ask the model."""
    return {"answer": scripted_model(state["message"], state["known"])}


def remember(state: State, *, store: BaseStore) -> State:
    """Keep what the user says of themselves."""
    for text in re.findall(r"\bI (?:like|am|live)[^.!?]*", state["message"]):
        store.put(("users", state["user"]), re.sub(r"\W+", "-", text.lower()), {"text": text})
    return {}


def run(bus: Bus, user: str, message: str) -> str:
    """Run the agent on a message; return the answer."""
    graph = StateGraph(State)
    graph.add_sequence([recall, answer, remember])
    graph.add_edge(START, "recall")
    agent = graph.compile(store=ScratchbusStore(bus))
    state = agent.invoke({"user": user, "message": message})
    seen: dict[str, Any] = {"user": user, "known": len(state["known"])}
    bus.page("chat").add("contextual_insight", f"{user} asked: {message}", context=seen)
    return str(state["answer"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: agent.py USER MESSAGE")
    with Bus.connect(source="chat-agent") as opened:
        print(run(opened, sys.argv[1], sys.argv[2]))
