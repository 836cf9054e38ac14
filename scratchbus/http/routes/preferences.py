"""The preferences of a scope: how a user wants things done, in general or in a project."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints
from starlette.responses import Response

from scratchbus import Preference, document_of
from scratchbus.http import patterns
from scratchbus.http.bodies import Body, JsonBody, NotBlank, optional
from scratchbus.http.documents import answer, listing
from scratchbus.http.memories import Based, events_answer, memory_example, memory_fields
from scratchbus.http.moments import When
from scratchbus.http.parameters import Absent, Label, ScopeName
from scratchbus.http.responses import ETAG, EVENTS
from scratchbus.http.schemas import component, document, exact, items_of
from scratchbus.http.server import MemoryBus

router = APIRouter(tags=["preferences"])
PATH: Final = "/scopes/{scope}/preferences"

Key = Annotated[str, StringConstraints(pattern=patterns.KEY, max_length=200)]
AskedKey = Annotated[Key, Query(description="What it is about; see the keys of the list.", examples=["quotes in JS"])]


class PreferenceText(Body, example={"key": "quotes in JS", "text": "Single quotes.", "said_by": "ada"}):
    """How something should be done; `said_by` is the person who wants it, by default you."""

    key: Key
    text: NotBlank = Field(json_schema_extra={"maxLength": 4_000})
    said_by: Label = optional()


_FIELDS: Final = memory_fields(*PreferenceText.example)
_EXAMPLE: Final = memory_example("preference_67a91a2df6a5b2f8", **PreferenceText.example)
_SCHEMA: Final = component("Preference", exact(**_FIELDS))
_WRITTEN: Final = document("The preference; its version is the ETag", _SCHEMA, _EXAMPLE, {"ETag": ETAG})
_FORGOTTEN: Final = document("The forgotten preference", _SCHEMA, _EXAMPLE)
_PREFERENCES: Final = items_of("The preferences, in the order in which they were first remembered", _SCHEMA, _EXAMPLE)


@router.get(PATH, responses={200: _PREFERENCES})
async def list_preferences(bus: MemoryBus, scope: ScopeName, at: When = None) -> Response:
    """Return the preferences of a scope."""
    preferences = bus.preferences(scope)
    found = await (preferences.list() if at is None else preferences.as_of(at))
    return answer(listing(found))


@router.put(PATH, responses={200: _WRITTEN})
async def remember_preference(
    bus: MemoryBus, scope: ScopeName, guards: Based, body: JsonBody[PreferenceText]
) -> Response:
    """Remember a preference, in the place of the one with the same key if there is one.

    Case, punctuation and the simple plural of English words do not count in a key.
    """
    return _written(await bus.preferences(scope).remember(**body.given, **guards.of_revision()))


@router.patch(PATH, responses={200: _WRITTEN})
async def edit_preference(bus: MemoryBus, scope: ScopeName, guards: Based, body: JsonBody[PreferenceText]) -> Response:
    """Replace the text of a preference that is there."""
    return _written(await bus.preferences(scope).edit(**body.given, **guards.of_revision()))


@router.delete(PATH, responses={200: _FORGOTTEN})
async def forget_preference(bus: MemoryBus, scope: ScopeName, guards: Based, key: AskedKey) -> Response:
    """Forget a preference and return it; its history stays."""
    return answer(document_of(await bus.preferences(scope).forget(key, **guards.of_revision())))


@router.get(PATH + "/history", responses={200: EVENTS})
async def get_preferences_history(
    bus: MemoryBus, scope: ScopeName, key: AskedKey | Absent = None, at: When = None
) -> Response:
    """Return the events of a preference, or of all of the scope, oldest first; also of forgotten ones."""
    return await events_answer(bus, f"knowledge:{scope}", await bus.preferences(scope).history(key), at)


def _written(preference: Preference) -> Response:
    return answer(document_of(preference), version=preference.version)
