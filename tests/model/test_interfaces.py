"""Random operations, sent alike through Python, asyncio, the command line, MCP and HTTP, each to a bus of its own.

All must accept, refuse and log the same. A retry with the same event id, through Python too, must change nothing.
"""

from __future__ import annotations

import json
import random
import re
from contextlib import AsyncExitStack
from secrets import token_hex
from typing import Any, ClassVar, NamedTuple

import httpx2
import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.cli import main
from scratchbus.daemon import exit_code
from scratchbus.errors import ScratchbusError
from scratchbus.http.problems import slug_of
from scratchbus.mcp.agent_tools import AgentTools, open_agent_tools
from tests.edges.http.conftest import serving_here

Arguments = dict[str, Any]
SOURCE, SESSION, SCOPE = "here", "s1", "ada"
STEPS = 40
OF_HTTP = {"invalid-field", "invalid-request"}
"""The problems of HTTP for input that it refuses by itself."""

_VARYING = re.compile(r"(note|fact)_\d+|0[0-9A-HJKMNP-TV-Z]{25}|\d{13}-|\d{4}-\d\d-\d\dT[\d:.]+")


class Operation(NamedTuple):
    """An operation; `about` is the number of its subject, in the order in which the log has them, from 0."""

    name: str
    about: int | None
    arguments: Arguments


def call(bus: Any, operation: Operation, arguments: Arguments) -> Any:
    """Call the method of a blocking or an asyncio bus."""
    owner, _, verb = operation.name.partition(".")
    owners = {"page": bus.page(), "notes": bus.notes(SESSION), "notepad": bus.notepad(SESSION)}
    owners |= {"facts": bus.facts(SCOPE), "preferences": bus.preferences(SCOPE)}
    ids = [arguments.pop(name) for name in ("id", "ids") if name in arguments]
    return getattr(owners[owner], verb)(*ids, **arguments)


class Interface:
    """Blocking Python, and the bus behind any other interface."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.subjects: list[str] = []
        self._end: Any = None

    def arguments(self, operation: Operation) -> Arguments:
        """Return the arguments, with the id of the subject on this bus."""
        if operation.about is None:
            return dict(operation.arguments)
        id = self.subjects[operation.about]
        return {"ids" if operation.name == "page.clear_resolved" else "id": id} | operation.arguments

    def in_python(self, operation: Operation) -> ScratchbusError | None:
        """Do it with the blocking facade; return the refusal."""
        try:
            call(self.bus, operation, self.arguments(operation))
        except ScratchbusError as error:
            return error
        return None

    async def agrees(self, operation: Operation, refusal: ScratchbusError | None) -> bool:
        """Do it; return whether it is refused as Python refused it."""
        error = self.in_python(operation)
        return (type(error), self.plain(str(error))) == (type(refusal), self.plain(str(refusal)))

    @staticmethod
    def plain(text: str) -> str:
        """Return a text without the ids, positions and times that differ from bus to bus."""
        return _VARYING.sub("…", text)

    def news(self) -> list[str]:
        """Return the events since the last call, and remember their subjects."""
        events = list(self.bus.events(after=self._end))
        self._end = events[-1].position if events else self._end
        self.subjects += [each.subject for each in events if each.kind in ("added", "note_added")]
        found = []
        for event in events:
            varying = {"id", "ms", *(["owner"] if event.kind == "claimed" else [])}
            document = event.model_dump(mode="json", exclude=varying)
            found.append(self.plain(json.dumps(document, sort_keys=True)))
        return found


class Asyncio(Interface):
    """AsyncBus."""

    def __init__(self, bus: Bus, own: AsyncBus) -> None:
        super().__init__(bus)
        self._own = own

    async def agrees(self, operation: Operation, refusal: ScratchbusError | None) -> bool:
        """See `Interface`."""
        error = None
        try:
            await call(self._own, operation, self.arguments(operation))
        except ScratchbusError as found:
            error = found
        return (type(error), self.plain(str(error))) == (type(refusal), self.plain(str(refusal)))


class CommandLine(Interface):
    """The command line in this process."""

    async def agrees(self, operation: Operation, refusal: ScratchbusError | None) -> bool:
        """See `Interface`."""
        owner, _, verb = operation.name.partition(".")
        group = {"page": [], "notes": ["note"], "facts": ["facts"], "preferences": ["memory"]}.get(owner, [owner])
        verb = {"assert_fact": "assert", "remember": "add", "clear_resolved": "clear-resolved"}.get(verb, verb)
        where = {"page": [], "facts": ["--scope", SCOPE], "preferences": ["--scope", SCOPE]}
        given = self.arguments(operation)
        names: tuple[str, ...] = (
            "id",
            "ids",
            "type",
            "operation",
            "subject",
            "relation",
            "object",
            "key",
            "text",
            "action",
        )
        if operation.name not in ("page.update", "notes.update", "notepad.update"):
            names += ("content",)
        words = [given.pop(name) for name in names if name in given]
        options = []
        for name, value in given.items():
            flag = f"--{'tag' if name == 'tags' else name.replace('_', '-')}"
            options += [f"{flag}={each}" for each in (value if isinstance(value, list) else [value])]
        settings = ["--json", "--source", SOURCE, "--url", str(self.bus.settings.url), "--bus", self.bus.settings.bus]
        place = where.get(owner, ["--session", SESSION])
        code = main([*settings, *group, verb, *place, *options, "--", *words])
        return code == (0 if refusal is None else exit_code(refusal))


class Mcp(Interface):
    """The tools of MCP."""

    TOOLS: ClassVar[dict[str, str]] = {
        "page.add": "add_observation", "page.clear_resolved": "clear_resolved", "notes.add": "add_note",
        "notes.update": "update_note", "notes.delete": "delete_note", "notepad.update": "update_notepad",
        "facts.assert_fact": "assert_fact", "preferences.remember": "remember_preference",
    }  # fmt: skip

    def __init__(self, bus: Bus, tools: AgentTools) -> None:
        super().__init__(bus)
        self._tools = tools

    async def agrees(self, operation: Operation, refusal: ScratchbusError | None) -> bool:
        """See `Interface`."""
        given = self.arguments(operation)
        if "ids" in given:
            given["ids"] = [given["ids"]]
        tool = self.TOOLS.get(operation.name) or f"{operation.name.partition('.')[2]}_observation"
        answer = await self._tools.call(tool, given)
        return answer.is_error == (refusal is not None)


class Http(Interface):
    """The HTTP server."""

    def __init__(self, bus: Bus, client: httpx2.Client) -> None:
        super().__init__(bus)
        self._client = client

    async def agrees(self, operation: Operation, refusal: ScratchbusError | None) -> bool:
        """See `Interface`."""
        owner, _, verb = operation.name.partition(".")
        given = self.arguments(operation)
        headers = {"Idempotency-Key": given.pop("event_id")} if "event_id" in given else {}
        if "expected_version" in given:
            headers["If-Match"] = f'"{given.pop("expected_version")}"'
        path = {
            "page": "/pages/main/observations", "notes": f"/sessions/{SESSION}/notes",
            "notepad": f"/sessions/{SESSION}/notepad", "facts": f"/scopes/{SCOPE}/facts",
            "preferences": f"/scopes/{SCOPE}/preferences",
        }[owner]  # fmt: skip
        if verb == "clear_resolved":
            path, given = "/pages/main/clear-resolved", {"ids": [given["ids"]]}
        elif "id" in given:
            path += f"/{given.pop('id')}" + ("" if verb in ("update", "delete") else f"/{verb}")
        request = {"update": "PATCH", "delete": "DELETE", "remember": "PUT"}.get(verb, "POST")
        answer = self._client.request(request, path, json=None if verb == "delete" else given, headers=headers)
        if refusal is None:
            return answer.is_success
        return answer.json()["type"].rpartition(":")[2] in {slug_of(type(refusal)), *OF_HTTP}


def random_operation(chance: random.Random, subjects: list[str]) -> Operation:
    """Return an operation, a few of them invalid."""
    observations = [number for number, each in enumerate(subjects) if each[0].isdigit()]
    notes = [number for number, each in enumerate(subjects) if each.startswith("note")]
    content = chance.choice(["a story", "Ü 🚀", "two\nlines", " "])
    tags: Arguments = chance.choice([{}, {"tags": ["a"]}, {"tags": ["b", "a", "a"]}])
    new: Arguments = {"type": chance.choice(["risk_alert", "observation", "nothing"]), "content": content, **tags}
    new |= chance.choice(
        [{}, {"confidence": 0.5}, {"confidence": 2}, {"dedupe_key": "k"}, {"ttl": "0s"}, {"ttl": "2h"}]
    )
    edit: Arguments = chance.choice(
        [{"operation": "append", "content": content}, {"operation": "delete", "content": "story"}]
    )
    fact = {"subject": chance.choice(["api", " "]), "relation": chance.choice(["runs_on", "is_near"]), "object": "x"}
    found: list[tuple[str, int | None, Arguments]] = [
        ("page.add", None, new),
        ("notes.add", None, {"content": content, **tags}),
    ]
    found += [("notepad.update", None, edit), ("facts.assert_fact", None, fact)]
    found += [("preferences.remember", None, {"key": chance.choice(["tabs", "!"]), "text": content})]
    if observations:
        reason: Arguments = {"reason": chance.choice(["because", " "])}
        changes: Arguments = chance.choice(
            [{"content": content}, {"status": "active"}, {"confidence": 0.5, "expected_version": 2}]
        )
        about: int | None = chance.choice(observations)
        found += [("page.update", about, changes), ("page.resolve", about, reason), ("page.archive", about, reason)]
        found += [("page.resolve", about, {}), ("page.clear_resolved", about, {}), ("page.claim", about, {"ttl": "2m"})]
        found += [("page.refute", about, reason), ("page.link", about, {"action": chance.choice(["goal", ""])})]
    if notes:
        found += [
            ("notes.update", chance.choice(notes), {"content": content}),
            ("notes.delete", chance.choice(notes), {}),
        ]
    name, subject, arguments = chance.choice(found)
    return Operation(name, subject, arguments | chance.choice([{}, {"event_id": f"own-{chance.random()}"}]))


@pytest.mark.parametrize("seed", [23, 28])  # together they do nearly all that `random_operation` knows
async def test_all_interfaces_do_the_same(embedded_url: str, seed: int):
    chance = random.Random(seed)
    prefix = f"same-{token_hex(4)}"
    async with AsyncExitStack() as opened:
        buses = [
            opened.enter_context(Bus.connect(embedded_url, source=SOURCE, bus=f"{prefix}-{name}"))
            for name in ("python", "asyncio", "cli", "mcp", "http")
        ]
        own = await opened.enter_async_context(AsyncBus.connect(embedded_url, source=SOURCE, bus=f"{prefix}-asyncio"))
        tools = open_agent_tools(
            SOURCE, session=SESSION, tools=["all"], knowledge=[SCOPE], url=embedded_url, bus=f"{prefix}-mcp"
        )
        served = opened.enter_context(serving_here(embedded_url, bus=f"{prefix}-http"))
        client = opened.enter_context(served.client(served.key))
        python = Interface(buses[0])
        others: list[Interface] = [Asyncio(buses[1], own), CommandLine(buses[2])]
        others += [Mcp(buses[3], await opened.enter_async_context(tools)), Http(buses[4], client)]
        for _ in range(STEPS):
            operation = random_operation(chance, python.subjects)
            refusal = python.in_python(operation)
            expected = python.news()
            for each in others:
                assert await each.agrees(operation, refusal), (each, operation, refusal)
                assert each.news() == expected, (each, operation)
            if refusal is None and "event_id" in operation.arguments:
                for each in others:
                    assert await each.agrees(operation, None), (each, operation)
                    assert each.in_python(operation) is None, (each, operation)
                    assert each.news() == []
