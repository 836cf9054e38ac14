"""What is raised when what was given is not acceptable."""

from __future__ import annotations

from collections.abc import Iterable

from scratchbus.errors.base import LONGEST, ScratchbusError, listed, shown


class InvalidInput(ScratchbusError, ValueError):
    """What was given is not acceptable. Nothing was written."""


class InvalidField(InvalidInput):
    """A field has a value it cannot have."""

    def __init__(self, field: str, problem: str) -> None:
        is_plain = len(field) <= LONGEST and field.isprintable()
        super().__init__(f"{field if is_plain else shown(field)}: {problem}")
        self.field = field


class UnknownField(InvalidField):
    """A field nobody knows was given."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        self.known = sorted(known)
        super().__init__(field, f"unknown field; use one of: {listed(self.known)}")


class ReadOnlyField(InvalidField):
    """A field was given that is set once and never changes."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        super().__init__(field, f"cannot be updated; these can: {listed(known)}")


class TooLarge(InvalidField):
    """A value is over its limit."""

    def __init__(self, field: str, size: int, limit: int, unit: str = "bytes", advice: str = "") -> None:
        advice = advice or "shorten it or raise the limit"
        super().__init__(field, f"{size} {unit} is over the limit of {limit}; {advice}")
        self.size = size
        self.limit = limit


class BudgetTooSmall(InvalidInput):
    """What of a context is never cut has more tokens than the whole may have."""

    def __init__(self, budget: int, needed: int) -> None:
        super().__init__(
            f"budget: {budget} tokens are too few for what is never cut, which has {needed}; raise the budget,"
            " or shorten the notepad and your own sections"
        )
        self.budget = budget
        self.needed = needed


class UnknownType(InvalidInput):
    """An observation type that the registry does not have."""

    def __init__(self, name: str, known: Iterable[str], nearest: str | None) -> None:
        self.type = name
        self.known = sorted(known)
        self.nearest = nearest
        hint = f"did you mean {nearest!r}? " if nearest else ""
        super().__init__(
            f"unknown observation type {shown(name)}; {hint}known: {listed(self.known)}"
            " (add a type with `scratchbus types push FILE`)"
        )


class InvalidTTL(InvalidInput):
    """A duration that cannot be read, or is not positive."""


class InvalidId(InvalidInput):
    """An id that is not a ULID, or a suffix that fits several."""


class InvalidName(InvalidInput):
    """The name of a bus or page has characters it cannot have."""


class InvalidSource(InvalidInput):
    """A source that does not match the pattern of sources."""


class InvalidPosition(InvalidInput):
    """A position or token that cannot be read."""


class InvalidURL(InvalidInput):
    """An engine URL that cannot be read."""


class _FileError(InvalidInput):
    """A YAML file says something it may not."""

    def __init__(
        self, file: str, line: int | None, key: str | None, problem: str, allowed: Iterable[str] | None = None
    ) -> None:
        self.file = file
        self.line = line
        self.key = key
        self.allowed = sorted(allowed) if allowed is not None else None
        where = file if line is None else f"{file}:{line}"
        text = f"{where}: {key}: {problem}" if key else f"{where}: {problem}"
        if self.allowed is not None:
            text += f"; allowed: {listed(self.allowed)}"
        super().__init__(text)


class RegistryError(_FileError):
    """The file of observation types is wrong, at this line and key."""


class RulesError(_FileError):
    """A rules or tools file is wrong, at this line and key."""


class SettingsError(InvalidInput):
    """A setting has a value it cannot have."""


class SettingsFileError(_FileError, SettingsError):
    """The settings file is wrong, at this line and key."""


class InvalidExport(InvalidInput):
    """A line is not of an export, or does not follow the one before it."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(
            f"line {line}: {problem}; import what `scratchbus tail --format jsonl` printed, from its start"
        )
        self.line = line


class ShardsMismatch(InvalidInput):
    """The bus was created with another number of shards."""

    def __init__(self, bus: str, expected: int, actual: int) -> None:
        super().__init__(
            f"bus {bus!r} has {actual} shards, not {expected}; drop the `shards` setting or set it to {actual}"
        )
        self.expected = expected
        self.actual = actual


class Unauthorized(InvalidInput):
    """Someone asks for the scratchpad of an agent who is not that agent."""

    def __init__(self, agent: str, source: str | None, kind: str) -> None:
        who = f"you are {source!r}, a {kind}" if source is not None else "nobody speaks"
        super().__init__(
            f"403 Unauthorized: the scratchpad of {agent!r} is its own, and {who};"
            f" open the bus with source={agent!r} and kind='subagent'"
        )
        self.agent = agent
        self.source = source
        self.kind = kind
