"""Change observations: their fields and their status."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Self, cast

from scratchbus.commands.claim import link_write, release_write
from scratchbus.commands.execution import Command, Occasion, Reason, Version
from scratchbus.commands.observations import Lifetime, lifecycle_of
from scratchbus.commands.references import check_blockers
from scratchbus.commands.rescheduling import FIELDS, Rescheduled, rescheduled, resumed
from scratchbus.domain.checks import MAX_LABEL, check_action, check_flag, check_size, check_tags
from scratchbus.domain.given_observation import check_patch
from scratchbus.domain.lifecycle import ARCHIVED, Lifecycle
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import UPDATABLE, Changes, ObservationPatch
from scratchbus.domain.page_events import ReasonCode, StatusChanged, Updated
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.schedule import varying_times
from scratchbus.domain.time_checks import check_end
from scratchbus.domain.times import settle
from scratchbus.domain.values import MAX_BYTES, duration_of, millis
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, shown
from scratchbus.eventlog.writes import Op, Write
from scratchbus.readmodel.scope import Core

_OF_STATUS = ("status", "reason")  # what a change of status has, and not `Updated`
_REASONS: dict[str, ReasonCode] = {
    "pending_review": "reviewed",
    "resolved": "resolved",
    "archived": "archived",
    "active": "reopened",
}


class Update(Command):
    """Replace fields, change the status as the lifecycle allows, and release a claim, in one batch."""

    verb = "update"
    changes: Annotated[dict[str, Any], CheckedBy(check_patch)]
    expected_version: Version = None
    release: Annotated[bool, CheckedBy(partial(check_flag, "release"))] = False

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Self:
        """See `Given`."""
        command = super().parse(arguments)
        if not (command.changes or command.release):
            raise InvalidField("changes", f"nothing to update; give one of: {', '.join(UPDATABLE)}, release")
        return command

    def retry_arguments(self, by: str) -> tuple[object, ...]:
        """See `Command`. Events from before `release` existed have a digest without it."""
        return self.changes, self.expected_version, *([True] if self.release else ())

    @property
    def continues_lifetime(self) -> bool:
        """See `Command`."""
        return "status" in self.changes and "expires_at" not in self.changes

    @property
    def follows_state(self) -> bool:
        """Whether it is decided again if the observation has changed since it was read."""
        return self.expected_version is None and not FIELDS.isdisjoint(self.changes)

    def look_up(self, core: Core, page: str) -> Step[None]:
        """See `Command`."""
        if blockers := self.changes.get("blocked_by"):
            yield from check_blockers(core, page, blockers)

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """See `Command`."""
        writes: list[Write] = []
        fields = {name: settle(value) for name, value in self.changes.items() if name not in _OF_STATUS}
        if fields:
            schedule = Rescheduled({}, frozenset())
            if before is not None and not FIELDS.isdisjoint(fields):
                schedule = rescheduled(self.changes | fields, before, kind, occasion)
                fields |= schedule.fields
            elif fields.get("every", "") is None:  # no update that succeeded had that, so it is no retry of one
                raise InvalidField("every", f"cannot be None; leave it out, or archive {self.id} to end its recurrence")
            if "blocked_by" in fields and before is not None and before.every is not None:
                raise InvalidField("blocked_by", f"{self.id} recurs and is never active; nothing can block it")
            _check_changes(fields, kind, occasion)
            end = fields.get("expires_at")
            writes.append(
                Write(
                    occasion.event(Updated, self.id, changes=cast(Changes, fields)),
                    Op.UPDATE,
                    occasion.digest,
                    before.version if before is not None and self.follows_state else self.expected_version,
                    allowed=schedule.allowed or None,
                    due_at=schedule.due_at,
                    not_before=schedule.not_before,
                    expires="" if "expires_at" not in fields else "0" if end is None else str(millis(end)),
                    argument=occasion.by,
                    fence=self.fence,
                    tags=fields.get("tags"),
                    blocked_by=fields.get("blocked_by"),
                    verb="rescheduled" if schedule.fields else "updated",
                    lifecycle=lifecycle_of(kind, before),
                    varying=varying_times(self.changes) if occasion.digest else frozenset(),
                )
            )
        if "status" in self.changes:
            suffix = "/status" if writes else ""
            if not self.continues_lifetime:
                occasion = occasion._replace(lifetime=Lifetime(end=self.changes["expires_at"]))
            status, reason = self.changes["status"], self.changes.get("reason")
            write = _status_write(self, occasion, before, kind, status, reason, suffix)
            write.version = None if self.expected_version is None else self.expected_version + len(writes)
            writes.append(write)
            writes += resumed(occasion, before, kind, write.status_class, len(writes))
        if self.release and not any(write.status_class not in ("", "open") for write in writes):  # closing ends a claim
            release = release_write(occasion.following("/release") if writes else occasion, self.id, self.fence)
            release.version = None if self.expected_version is None else self.expected_version + len(writes)
            writes.append(release)
        return writes


def merged(patch: object, changes: ObservationPatch) -> ObservationPatch:
    """Return the changes of a patch with those that were given as keywords. Raises InvalidField."""
    if not isinstance(patch, Mapping):
        raise InvalidField("patch", f"{shown(patch)} is not a mapping; write update(id, content=…)")
    return cast(ObservationPatch, {**patch, **changes})


def _check_changes(changes: dict[str, Any], kind: ObservationType | None, occasion: Occasion) -> None:
    """Raise InvalidInput for new values that the type, the settings or the time do not allow."""
    if "content" in changes:
        limit = min(occasion.settings.max_content, kind.max_content if kind else MAX_BYTES)
        check_size("content", changes["content"], limit)
    if "tags" in changes:
        check_tags(changes["tags"], kind.max_tags if kind else MAX_LABEL)
    if changes.get("expires_at") is not None:
        check_end(changes["expires_at"], occasion.now)
    if kind is not None:
        if "context" in changes:
            kind.check_context(changes["context"])
        if "metadata" in changes:
            kind.check_metadata(changes["metadata"])


class _Transition(Command):
    """Change the status as the lifecycle allows."""

    reason: Reason = None
    expected_version: Version = None

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """See `Command`."""
        status = _target_status(lifecycle_of(kind), self.verb)
        write = _status_write(self, occasion, before, kind, status, self.reason)
        write.version = self.expected_version
        return [write, *resumed(occasion, before, kind, write.status_class, 1)]


class Review(_Transition):
    """Send an observation to review."""

    verb = "review"

    @property
    def continues_lifetime(self) -> bool:
        """See `Command`."""
        return True


class Resolve(_Transition):
    """Close an observation, because it has been dealt with."""

    verb = "resolve"
    action: Annotated[str | None, CheckedBy(check_action)] = None

    def retry_arguments(self, by: str) -> tuple[object, ...]:
        """See `Command`. Events from before `action` existed have a digest without it."""
        action = () if self.action is None else (self.action,)
        return self.reason, self.expected_version, *action

    def decide(self, occasion: Occasion, before: Observation | None, kind: ObservationType | None) -> list[Write]:
        """See `Command`; the action is linked first, in the same batch."""
        if self.action is None:
            return super().decide(occasion, before, kind)
        link = link_write(occasion, self.id, self.action, self.fence, self.expected_version)
        rest = super().decide(occasion.following("/1"), before, kind)
        rest[0].version = None  # checked by the link, after which it is one more
        return [link, *rest]


class ArchiveObservation(_Transition):
    """Archive an observation for good."""

    verb = "archive"


class Reopen(_Transition):
    """Reopen an observation, with a new lifetime if a `ttl` is given."""

    verb = "reopen"
    ttl: Annotated[int | str | None, CheckedBy(duration_of)] = None

    def retry_arguments(self, by: str) -> tuple[object, ...]:
        """See `Command`. Events from before `ttl` existed have a digest without it."""
        ttl = () if self.ttl is None else (self.ttl,)
        return self.reason, self.expected_version, *ttl

    @property
    def continues_lifetime(self) -> bool:
        """See `Command`."""
        return self.ttl is None

    def on(self, core: Core, page: str) -> Occasion:
        """See `Command`."""
        lifetime = Lifetime() if self.ttl is None else Lifetime(ttl=self.ttl if isinstance(self.ttl, int) else 0)
        return super().on(core, page)._replace(lifetime=lifetime)


def _target_status(lifecycle: Lifecycle, verb: str) -> str:
    """Return the status that a verb leads to in a lifecycle."""
    name = {"review": "pending_review", "resolve": "resolved", "archive": ARCHIVED, "reopen": "active"}[verb]
    if name in lifecycle.statuses:
        return name
    closed = sorted(lifecycle.of_class("closed"))
    if verb == "resolve" and len(closed) == 1:
        return closed[0]
    if verb == "reopen":
        return lifecycle.initial[0]
    statuses = ", ".join(closed if verb == "resolve" and closed else lifecycle.statuses)
    raise InvalidField(
        "status", f"lifecycle {lifecycle.name!r} has no {name!r}; use update(id, status=…) with: {statuses}"
    )


def _status_write(
    command: Command,
    occasion: Occasion,
    before: Observation | None,
    kind: ObservationType | None,
    status: str,
    reason: str | None = None,
    suffix: str = "",
) -> Write:
    """Return the write that changes the status of an observation."""
    lifecycle, settings = lifecycle_of(kind, before), occasion.settings
    status_class = lifecycle_of(kind).class_of(status)
    archive_after = None
    if status_class == "closed" and settings.archive_after_ms is not None:
        archive_after = kind.archive_after_ms(settings.archive_after_ms) if kind else settings.archive_after_ms
    reopens = status_class == "open" and before is not None and before.status_class == "closed"
    sources = lifecycle.sources_of(status)
    if status_class == "open" and before is not None and before.status_class != "final":
        sources &= lifecycle.of_class("closed" if reopens else "open")  # only a reopened one begins a new life
    ttl = _reopened_ttl(occasion, kind) if reopens else None
    event = occasion.event(
        StatusChanged,
        command.id,
        suffix,
        status=status,
        status_class=status_class,
        reason_code=_REASONS.get(status, "changed"),
        reason=reason,
        archive_after=archive_after,
        ttl=ttl,
    )
    return Write(
        event,
        Op.CHANGE_STATUS,
        occasion.digest,
        allowed=sources,
        status=status,
        status_class=status_class,
        expires="" if ttl is None else f"+{ttl}" if ttl else "0",
        due_at=f"+{archive_after}" if archive_after is not None else "",
        argument=occasion.by,
        fence=command.fence,
        lifecycle=lifecycle,
        may_be_followed=before is None and status_class == "open",  # see `resumed`
    )


def _reopened_ttl(occasion: Occasion, kind: ObservationType | None) -> int | None:
    """Return the lifetime (ms) of a reopened observation: 0 for ever, None until its present end.

    If that end has passed, the lifetime of the type applies.
    """
    ttl, end = occasion.lifetime
    if ttl is not None:
        return ttl
    if end is None or end > occasion.now:
        return None
    default = occasion.settings.default_ttl_ms
    return (kind.ttl_ms(default) if kind else default) or 0
