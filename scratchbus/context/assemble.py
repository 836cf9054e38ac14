"""Assemble contexts: the operations behind `bus.context`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from scratchbus.commands import exposure, notes, preferences, scratchpad, todo, turns
from scratchbus.commands import notepad as notepads
from scratchbus.context import sections
from scratchbus.context.compaction import after_compaction
from scratchbus.context.layout import Layout, Part, Section, lay_out
from scratchbus.context.surface import MAX_CANDIDATES, Candidate, Match, rank
from scratchbus.domain.checks import check_own_event_id
from scratchbus.domain.digest import derived_event_id
from scratchbus.domain.documents import document_of
from scratchbus.domain.facts import Fact, plain_entity
from scratchbus.domain.memories import Note, Preference
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.quoting import encodable
from scratchbus.domain.schedule import is_scheduled
from scratchbus.domain.todo import TodoItem
from scratchbus.domain.tokens import TokenCounter
from scratchbus.domain.values import (
    check_page,
    check_whole,
    page_of_agent,
    page_of_scope,
    page_of_session,
)
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, Unauthorized, shown
from scratchbus.eventlog.bus_log import bounded_event_id
from scratchbus.projections.notepad import SUBJECT as NOTEPAD
from scratchbus.projections.todo import SUBJECT as TODO
from scratchbus.readmodel.page_query import active
from scratchbus.readmodel.queries import count_of_open, recollect
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):  # most contexts have no scope
    from scratchbus.commands import fact_reads


@dataclass(frozen=True, slots=True)
class Context:
    """One text for an agent to read. `left_out` counts by section the items left out for lack of room, or cut.

    Its keys are the names of `parts`: own, preferences, scratchpad, notepad, todo, conversation, reports (the session's
    own page), observations, contested (facts on which sources disagree), facts and notes; a section that is complete
    has none.

    `exposed` maps the ids of its observations to their versions; `position` is that of the event that recorded this, if
    any. `parts` are the sections of the text: each has its name, its text, and its items, each with its own text.
    """

    text: str
    tokens: int
    budget: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    exposed: Mapping[str, int] = field(default_factory=dict)
    position: Position | None = None
    parts: Sequence[Part] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Surfaced(Context):
    """What is relevant to a query, as a text within a budget, and the matches in it, best first."""

    matches: Sequence[Match] = ()


@document_of.register
def _(context: Context) -> dict[str, Any]:
    return {
        "text": context.text,
        "tokens": context.tokens,
        "budget": context.budget,
        "left_out": dict(context.left_out),
        "exposed": dict(context.exposed),
        "position": context.position and str(context.position),
    }


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """The arguments of a context."""

    session: str | None
    agent: str | None
    page: str | None
    budget: int
    query: str | None
    own: Sequence[str]
    count: TokenCounter
    strict: bool = False
    scopes: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidName, or InvalidField for an invalid budget or if there is nothing to show."""
        for name, check in ((self.session, page_of_session), (self.agent, page_of_agent), (self.page, check_page)):
            if name is not None:
                check(name)
        check_whole("budget", self.budget)
        if self.query is not None and not isinstance(self.query, str):
            raise InvalidField("query", f"{shown(self.query)} is not a text")
        if not _are_texts(self.own):
            raise InvalidField("sections", f"{shown(self.own)} is not a list of texts")
        if not _are_digests(self.files):
            raise InvalidField("files", f"{shown(self.files)} does not map paths to digests")
        if not _are_texts(self.scopes):
            raise InvalidField("scopes", f"{shown(self.scopes)} is not a list of scopes")
        for scope in self.scopes:
            page_of_scope(scope)
        if self.session is None and self.agent is None and self.page is None and not self.scopes:
            raise InvalidField("session", "is missing; give a session, an agent, a page or scopes")


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is_text, value))


def _are_digests(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


def _is_text(value: object) -> bool:
    """Return whether a value is a text that UTF-8 can encode."""
    return isinstance(value, str) and encodable(value) == value


def assemble(core: Core, request: ContextRequest, record: bool, event_id: str | None) -> Step[Context]:
    """Return the context of a session, an agent, a page and scopes; with `record`, append who was shown what."""
    request.check()
    check_own_event_id(event_id)
    chosen_sections = [Section("own", text) for text in request.own if text]
    session_notes: list[Note] = []
    if request.scopes:
        chosen_sections.append(sections.preferences((yield from _preferences(core, request.scopes))))
    if request.agent is not None:
        with suppress(Unauthorized):  # a scratchpad is shown only to its owner
            pad = yield from scratchpad.read(core, page_of_agent(request.agent))
            chosen_sections.append(sections.scratchpad(pad.content))
    if request.session is not None:
        page = page_of_session(request.session)
        notepad, items = yield from _notepad_and_todo(core, page)
        chosen_sections += [sections.notepad(notepad), sections.todo(items)]
        chosen_sections.append(sections.conversation((yield from turns.shown_turns(core, page))))
        session_notes = (yield from notes.list_all(core, page, None)).notes
        if page != request.page:
            chosen_sections.append((yield from _page(core, request, "reports", page)))
    if request.page is not None:
        chosen_sections.append((yield from _page(core, request, "observations", request.page)))
    if request.scopes:
        facts, contests = yield from _facts(core, request)
        chosen_sections += [sections.contested(contests), sections.facts(facts)]
    if request.query:
        session_notes = [
            match.item for match in rank(request.query, session_notes[:MAX_CANDIDATES]) if isinstance(match.item, Note)
        ]
    chosen_sections.append(sections.notes(session_notes))
    layout = lay_out(chosen_sections, request.budget, request.count, strict=request.strict)
    return (yield from _finish(core, request, layout, record, event_id))


def _preferences(core: Core, scopes: Sequence[str]) -> Step[list[Preference]]:
    """Return the preferences of several scopes; for a key in several of them, that of the last scope."""
    found: dict[str, Preference] = {}
    for scope in scopes:
        found |= {each.id: each for each in (yield from preferences.list_all(core, page_of_scope(scope)))}
    return list(found.values())


def _facts(core: Core, request: ContextRequest) -> Step[tuple[list[Fact], list[list[Fact]]]]:
    """Return the facts of the scopes that are true now, without duplicates, and those that contest each other.

    No more are read per scope than could fit.
    """
    limit = fact_reads.most_in(request.budget, request.count)
    found: dict[str, Fact] = {}
    contests: dict[tuple[str, ...], list[Fact]] = {}
    for scope in request.scopes:
        facts, contested = yield from fact_reads.query_with_contests(core, page_of_scope(scope), limit)
        for contest in contested:
            contests.setdefault(tuple(sorted(plain_entity(fact.triplet) for fact in contest)), contest)
        for fact in facts:
            found.setdefault(plain_entity(fact.triplet), fact)
    return list(found.values()), list(contests.values())


def _page(core: Core, request: ContextRequest, name: str, page: str) -> Step[Section]:
    """Return the section with the open observations of a page; no more are read than could fit."""
    limit = 1 + request.budget // max(1, request.count(sections.SHORTEST))
    found = yield from _open(core, page, limit)
    total = (yield from count_of_open(core.log, page)) if len(found) == limit else 0
    return sections.observations(name, page, found, max(0, total - limit))


def surface(core: Core, request: ContextRequest, record: bool, event_id: str | None) -> Step[Surfaced]:
    """Return the notes of a session and the open observations of a page that are relevant to a query."""
    request.check()
    check_own_event_id(event_id)
    items: list[Candidate] = []
    if request.session is not None:
        items += (yield from notes.list_all(core, page_of_session(request.session), None)).notes[:MAX_CANDIDATES]
    if request.page is not None:
        items += yield from _open(core, request.page, MAX_CANDIDATES)
    matches = rank(request.query or "", items)
    layout = lay_out([sections.surfaced([match.item for match in matches])], request.budget, request.count)
    shown_ids = {id(item) for item in layout.chosen.get("surfaced", ())}
    context = yield from _finish(core, request, layout, record, event_id)
    matches_shown = [match for match in matches if id(match.item) in shown_ids]
    return Surfaced(**{each.name: getattr(context, each.name) for each in fields(context)}, matches=matches_shown)


def compacted(core: Core, session: str, system: str, summary: str) -> Step[str]:
    """Return the text with which the conversation of a session continues after compaction."""
    notepad, items = yield from _notepad_and_todo(core, page_of_session(session))
    return after_compaction(system, summary, notepad, items)


def _notepad_and_todo(core: Core, page: str) -> Step[tuple[str, list[TodoItem]]]:
    """Return the notepad and the todo list of a session, read at the same moment."""
    found = yield from recollect(core, page, [NOTEPAD, TODO])
    return notepads.content_of(found.get(NOTEPAD)), todo.list_of(found.get(TODO)).todos


def _finish(core: Core, request: ContextRequest, layout: Layout, record: bool, event_id: str | None) -> Step[Context]:
    by_page: dict[str, dict[str, int]] = {}
    for item in (item for items in layout.chosen.values() for item in items if isinstance(item, Observation)):
        by_page.setdefault(item.page, {})[item.id] = item.version
    page_of_files = _recorded_on(request)
    if request.files:
        by_page.setdefault(page_of_files, {})
    first = event_id or ""
    pages = sorted(by_page, key=lambda page: page != request.page)  # the first one is refused before any is written
    earlier = (yield from _recorded(core, request, event_id)) if record and event_id is not None else {}
    position = next(iter(earlier.values()), None)
    if earlier and request.page not in earlier:
        pages = []  # the earlier attempt had nothing of this page to record, and is complete
    for page in pages if record else ():
        versions = by_page[page]
        first = first or (yield from bounded_event_id(core.log, request.page or page))
        id = _id_on(request, page, first)
        callers_id = id if event_id is not None else None
        files = request.files if page == page_of_files else {}
        recorded = yield from exposure.record(
            core, page, request.session, request.agent, versions, layout.tokens, callers_id, id, files
        )
        position = position or recorded
    exposed = {id: version for versions in by_page.values() for id, version in versions.items()}
    return Context(layout.text, layout.tokens, request.budget, layout.left_out, exposed, position, layout.parts)


def _recorded(core: Core, request: ContextRequest, event_id: str) -> Step[dict[str, Position]]:
    """Return the positions of the events that an earlier attempt has appended, by page, the context's own first."""
    pages = [request.page, request.session and page_of_session(request.session), _recorded_on(request)]
    found: dict[str, Position] = {}
    for page in filter(None, dict.fromkeys(pages)):
        id = _id_on(request, page, event_id)
        position = yield from exposure.recorded(core, page, request.session, request.agent, id)
        if position is not None:
            found[page] = position
    return found


def _id_on(request: ContextRequest, page: str, first: str) -> str:
    """Return the id of the event on a page: the first id on the context's own page, else one derived from it."""
    return first if page == request.page else derived_event_id(first, "reports")


def _recorded_on(request: ContextRequest) -> str:
    """Return the page that records the files of a context: its own, or that of its session, agent or first scope."""
    if request.page is not None:
        return request.page
    if request.session is not None:
        return page_of_session(request.session)
    return page_of_scope(request.scopes[0]) if request.agent is None else page_of_agent(request.agent)


def _open(core: Core, page: str, limit: int | None = None) -> Step[list[Observation]]:
    """Return the open observations of a page by priority, including those waiting for review."""
    return (
        yield from active(
            core.log,
            page,
            core.fresh,
            limit,
            wanted=lambda observation: observation.status_class == "open" and not is_scheduled(observation),
        )
    )
