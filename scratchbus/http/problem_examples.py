"""An example of every problem that an operation may answer, made as the real ones are, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from scratchbus import errors
from scratchbus.http import examples
from scratchbus.http.problems import Refusal, body_of, refusal_body, status_of

PAGES: Final = "pages"
MEMORY: Final = "memory"
DELIVERY: Final = "delivery"
OPERATIONS: Final = "operations"

_TAGS: Final = {
    PAGES: ("observations", "changes", "history", "pages"),
    MEMORY: (
        *("sessions", "notes", "notepad", "todo", "scratchpad", "context", "facts", "relations", "preferences"),
        *("recall", "turns", "files", "whoami"),
    ),
    OPERATIONS: ("types", "operations"),
    DELIVERY: ("subscriptions",),
}
_AREAS: Final = {tag: area for area, tags in _TAGS.items() for tag in tags}
"""What the operations with a tag are about; those with another may answer any problem."""


class _Row(NamedTuple):
    """A problem, its status, and the area that has it; None for all."""

    status: int
    problem: errors.ScratchbusError | Refusal
    area: str | None = None

    @property
    def slug(self) -> str:
        return str(self.body()["type"]).rpartition(":")[2]

    def body(self) -> dict[str, Any]:
        problem = self.problem
        return refusal_body(problem) if isinstance(problem, Refusal) else body_of(problem, self.status)


_ID: Final = examples.ID
_UNTIL: Final = datetime(2026, 11, 22, 22, 21, 5, 625000, UTC)


def _rows() -> Iterator[_Row]:
    """Yield every problem, by status."""
    for problem in _REFUSALS:
        yield _Row(problem.status, problem)
    for area, found in _ERRORS.items():
        for error in found:
            yield _Row(status_of(error), error, area or None)
    for area, found in _REFUSED_NOW.items():
        for error in found:
            yield _Row(409, error, area or None)
            yield _Row(404, error, area or None)
    yield _Row(409, _ERRORS[""][0])  # without If-Match, when the write was based on a version all the same


_AS_BEARER: Final = "send one as Authorization: Bearer TOKEN"

_REFUSALS: Final = (
    Refusal(400, "bad-json", "the body is not JSON: expected value at line 1 column 1"),
    Refusal(400, "bad-request", "the path has a control character or a backslash; no name has one"),
    Refusal(401, "no-token", f"this server needs a token; {_AS_BEARER}", signs_in_with="token"),
    Refusal(401, "wrong-token", f"this token or key is not valid here; {_AS_BEARER}", signs_in_with="token"),
    Refusal(403, "insufficient-scope", "this needs the scope publish; reader has: read"),
    Refusal(403, "foreign-origin", "a page of https://elsewhere.example sent this; only pages of this server may"),
    Refusal(403, "forged-source", "source: you speak as rules; leave it out, or use a token with the scope admin"),
    Refusal(404, "not-found", f"no observation {_ID} on page 'main'; its history may still be there"),
    Refusal(
        406,
        "not-acceptable",
        "events come as application/json, text/event-stream or application/cloudevents-batch+json",
    ),
    Refusal(408, "request-timeout", "the body did not arrive within 30 s; send it again"),
    Refusal(409, "conflicting-preconditions", "If-None-Match: cannot be combined with If-Match"),
    Refusal(413, "body-too-large", "the body is larger than 16,777,216 bytes; send several"),
    Refusal(415, "unsupported-media-type", "the body is text/plain; send application/json"),
    Refusal(421, "unknown-host", "Host is elsewhere.example; this server answers to 127.0.0.1:8700"),
    Refusal(422, "invalid-request", "limit: '9999' should be less than or equal to 1000", errors=[]),
    Refusal(422, "unknown-parameter", "tags: unknown query parameter; use one of: tag, type", known=["tag", "type"]),
    Refusal(422, "repeated-parameter", "limit: this is there more than once; give one value"),
    Refusal(422, "unknown-precondition", "If-None-Match: this operation compares no version in this way; leave it out"),
    Refusal(422, "unknown-field", "colour: unknown field; use one of: fence, reason", field="colour"),
    Refusal(422, "private-address", "url: 127.0.0.1 is not a public address; start the server with …", field="url"),
    Refusal(422, "missing-field", "reason: this field is required", field="reason"),
    Refusal(500, "internal-error", "the server failed; its log says why"),
)

_ERRORS: Final[dict[str, tuple[errors.ScratchbusError, ...]]] = {
    "": (
        errors.VersionConflict(_ID, 2, 3),
        errors.NotFound(f"there is no {_ID} on page 'main'; list the page to find ids"),
        errors.EventIdReused("order-17/alert"),
        errors.UnknownType("Risk alert", ["observation", "risk_alert"], None),
        errors.InvalidField("confidence", "2 is not a number from 0 to 1"),
        errors.UnknownField("colour", ["content", "type"]),
        errors.TooLarge("content", 70_000, 65_536),
        errors.InvalidId("id: 'x' is not an observation id; ids are ULIDs of 26 characters"),
        errors.InvalidName("page: 'a b' is not a page name; use 1–128 letters, digits and _.@/:-"),
        errors.InvalidSource("source: '' is not a valid source; use 1–128 letters, digits and _.:@/-"),
        errors.InvalidPosition("'x' is neither a position nor a time since 1970"),
        errors.PositionLost("shard 0: the log was trimmed to 1795387336012-4, after that time; ask for a later one"),
        errors.LogRewound("the log has no event at 1795387336012-9; it was replaced. Start again from its end"),
        errors.LogGap("shard 0: event 1795387336012-9 is missing; restore the engine from a backup"),
        errors.EngineUnreachable("cannot reach the engine at redis://localhost:6379; start it, then try again"),
        errors.EngineLoading("the engine is loading its data; wait, then try again"),
        errors.EngineReadOnly("the engine is a replica, which takes no writes; use its master"),
        errors.EngineFull("the engine's memory is full; raise maxmemory, or archive"),
        errors.NotReplicated(0, 1, "order-17/alert"),
        errors.ForeignData("the keys of the bus are not its own; use another name, or another engine"),
        errors.EngineAuth("the engine refused the password"),
        errors.EngineForbidden("the engine's user may not run this command"),
        errors.Behind("the stored state is behind the log; run a projector, or raise fresh_timeout"),
        errors.LogBlocked(0, "1795387336012-9"),
        errors.ArchiveUnavailable("the archive cannot be reached; its events come back with it"),
    ),
    PAGES: (
        errors.ReadOnlyField("source", ["content", "tags"]),
        errors.InvalidTTL('ttl: 0 is not a valid duration here; use a positive number of seconds, or "90s"'),
        errors.InvalidTransition(_ID, "archived", "resolved", []),
        errors.NotChangeable(_ID, "archived", "refuted", []),
        errors.Claimed(_ID, "executor-1", _UNTIL),
        errors.NotClaimed(_ID),
        errors.NotReady(_ID, "01M82NHKCCEBT4DDKQ2K3C35T4 blocks it"),
        errors.StaleFence(_ID, 1, 2),
        errors.PageFull("main", 100),
        errors.KeyHeld(_ID, "order-17", "01M82NHKCCEBT4DDKQ2K3C35T4"),
        errors.RebuildHeld(0, "operator"),
    ),
    MEMORY: (
        errors.RevisionConflict("notepad", 2, 3),
        errors.SessionOver("s1"),
        errors.SessionExists("s1"),
        errors.Unauthorized("planner", "rules", "daemon"),
        errors.BudgetTooSmall(100, 250),
        errors.UnknownRelation("runson", ["depends_on", "runs_on"], "runs_on"),
        errors.RelationsError("relations.yaml", 3, "values", "'some' is not how many values a subject has", ()),
        errors.IndexFailed("the disk is full"),
        errors.FilesUnavailable("files", "no space left on device"),
    ),
    DELIVERY: (
        errors.InvalidTTL('retry_delay: 0 is not a valid duration here; use a positive number of seconds, or "90s"'),
        errors.SubscriptionMismatch("mail", "executor-1", "{}", "{'page': 'main'}"),
        errors.SubscriptionHeld("mail", "executor-1", "be deleted"),
        errors.LeaseLost("mail"),
        errors.NotDelivered("mail", "1795386035607-1"),
        errors.TooManyUnacked("mail", 10_000),
        errors.InvalidURL("url: 'mail' is not a URL; write https://…"),
    ),
    OPERATIONS: (
        errors.TypeInUse("risk_alert", 3),
        errors.RegistryError("types", 3, "priority", "200 is not a whole number from 0 to 100", ()),
        errors.ArchiveBusy(0, "archiver-1"),
        errors.ArchiveDamaged("segment 4 does not match its manifest; restore it from a copy"),
    ),
}

_REFUSED_NOW: Final[dict[str, tuple[errors.ScratchbusError, ...]]] = {
    "": (
        errors.UnknownType("risk_alarm", ["observation", "risk_alert"], "risk_alert"),
        errors.InvalidPosition("2030-01-01T00:00:00+00:00 is in the future"),
    ),
    MEMORY: (errors.UnknownRelation("runson", ["depends_on", "runs_on"], "runs_on"),),
    PAGES: (
        errors.InvalidField("status", "'resolved' cannot be the first status; start with: active, pending_review"),
        errors.TooLarge("tags", 33, 32, "tags", "give fewer, or raise max_tags of observation"),
        errors.InvalidTTL("expires_at: 2000-01-01T00:00:00+00:00 is in the past; give a later moment, or leave it out"),
    ),
}
"""Valid requests refused because of the state of the bus or the time: 404 for reads, 409 for others."""


def _by_name(rows: Iterable[_Row]) -> dict[str, _Row]:
    """Return rows by the names of their examples; two areas may have the same problem, each with its own example."""
    named = dict[str, _Row]()
    for row in rows:
        name = f"{row.status}-{row.slug}"
        named[name if name not in named or named[name].area == row.area else f"{name}-{row.area}"] = row
    return named


_TABLE: Final = _by_name(_rows())


def components() -> dict[str, Any]:
    """Return all examples, by name."""
    return {name: {"value": to_jsonable_python(row.body())} for name, row in _TABLE.items()}


def of_operation(status: int, tags: Iterable[str]) -> dict[str, Any]:
    """Return references to the examples of a status that an operation with these tags may answer."""
    area = next((_AREAS[tag] for tag in tags if tag in _AREAS), None)
    return {
        row.slug: {"$ref": f"#/components/examples/{name}"}
        for name, row in _TABLE.items()
        if row.status == status and (row.area is None or area is None or row.area == area)
    }
