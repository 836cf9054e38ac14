"""The scratchpads of agents: each is read and written by its owner alone."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from scratchbus.errors import Unauthorized
from scratchbus.http.bodies import Body, takes
from scratchbus.http.callers import Caller
from scratchbus.http.memories import (
    REVISED,
    TEXT,
    AgentName,
    Based,
    events_answer,
    revised,
    text_answer,
)
from scratchbus.http.moments import When
from scratchbus.http.responses import EVENTS
from scratchbus.http.server import CallerOf, MemoryBus

router = APIRouter(tags=["scratchpad"])
PATH: Final = "/agents/{agent}/scratchpad"

MAX_CHARACTERS: Final = 10_000


class ScratchpadText(Body, example={"content": "Ask for the account number first."}):
    """The whole text of a scratchpad; a blank one clears it."""

    content: str = Field(json_schema_extra={"maxLength": MAX_CHARACTERS})


def check_owner(caller: Caller, agent: str) -> None:
    """Raise Unauthorized unless the caller is this agent."""
    if caller.kind != "subagent" or caller.source != agent:
        raise Unauthorized(agent, caller.source, caller.kind)


@router.get(PATH, responses={200: TEXT})
async def read_scratchpad(bus: MemoryBus, caller: CallerOf, agent: AgentName, at: When = None) -> Response:
    """Return the text of one's own scratchpad."""
    check_owner(caller, agent)
    return await text_answer(bus.scratchpad(agent), at)


@router.put(PATH, responses={200: REVISED}, openapi_extra=takes(ScratchpadText.example, ScratchpadText))
async def write_scratchpad(
    request: Request, bus: MemoryBus, caller: CallerOf, agent: AgentName, guards: Based
) -> Response:
    """Replace the text of one's own scratchpad."""
    check_owner(caller, agent)
    given = await ScratchpadText.of(request)
    return revised(await bus.scratchpad(agent).write(given.content, **guards.of_revision()))


@router.get(PATH + "/history", responses={200: EVENTS})
async def get_scratchpad_history(bus: MemoryBus, caller: CallerOf, agent: AgentName, at: When = None) -> Response:
    """Return the writes of one's own scratchpad and the ends of one's runs as events, oldest first."""
    check_owner(caller, agent)
    return await events_answer(bus, f"agent:{agent}", await bus.scratchpad(agent).history(), at)
