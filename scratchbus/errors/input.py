"""Errors for invalid input."""

from __future__ import annotations

from collections.abc import Iterable

from scratchbus.errors.base import MAX_SHOWN, ScratchbusError, listed, shown


class InvalidInput(ScratchbusError, ValueError):
    """The input is invalid. Nothing was written."""


class InvalidField(InvalidInput):
    """The value of a field is invalid."""

    def __init__(self, field: str, problem: str) -> None:
        is_plain = len(field) <= MAX_SHOWN and field.isprintable()
        super().__init__(f"{field if is_plain else shown(field)}: {problem}")
        self.field = field


class UnknownField(InvalidField):
    """There is no such field."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        self.known = sorted(known)
        super().__init__(field, f"unknown field; use one of: {listed(self.known)}")


class ReadOnlyField(InvalidField):
    """The field is set once and never changes."""

    def __init__(self, field: str, known: Iterable[str]) -> None:
        super().__init__(field, f"cannot be updated; these can: {listed(known)}")


class TooLarge(InvalidField):
    """A value is over its limit. A `message` of its own replaces the usual one."""

    def __init__(
        self, field: str, size: int, limit: int, unit: str = "bytes", advice: str = "", message: str = ""
    ) -> None:
        super().__init__(field, f"{size} {unit} is over the limit of {limit}; {advice or 'shorten it'}")
        if message:
            self.args = (message,)
        self.size = size
        self.limit = limit


class BudgetTooSmall(InvalidInput):
    """The texts of a strict context exceed the budget."""

    def __init__(self, budget: int, needed: int) -> None:
        super().__init__(
            f"budget: {budget} tokens are too few; the notepad and your own sections need {needed}; raise the budget,"
            " shorten them, or leave out `strict` to have them cut"
        )
        self.budget = budget
        self.needed = needed


class _UnknownName(InvalidInput):
    """There is no type or relation of this name."""

    def __init__(self, noun: str, name: str, known: Iterable[str], nearest: str | None, advice: str) -> None:
        self.known = sorted(known)
        self.nearest = nearest
        hint = f"did you mean {nearest!r}? " if nearest else ""
        super().__init__(f"unknown {noun} {shown(name)}; {hint}known: {listed(self.known)} ({advice})")


class UnknownType(_UnknownName):
    """The observation type is not registered."""

    def __init__(self, name: str, known: Iterable[str], nearest: str | None) -> None:
        self.type = name
        advice = "add a type with `scratchbus types push FILE`"
        super().__init__("observation type", name, known, nearest, advice)


class UnknownRelation(_UnknownName):
    """The relation of a fact is not declared."""

    def __init__(self, name: str, known: Iterable[str], nearest: str | None) -> None:
        self.relation = name
        advice = "declare more in a file, and publish it with `scratchbus facts push-relations`"
        super().__init__("relation", name, known, nearest, advice)


class InvalidTTL(InvalidInput):
    """The text or number is not a valid duration."""


class InvalidId(InvalidInput):
    """The id is not a ULID, or a suffix that matches several ids."""


class InvalidName(InvalidInput):
    """The name of a page, session, scope, store or subscription is invalid; that of a bus raises SettingsError."""


class InvalidSource(InvalidInput):
    """The name of a source is invalid."""


class InvalidPosition(InvalidInput):
    """The position or token is invalid."""


class InvalidURL(InvalidInput):
    """The engine URL is invalid."""


class _FileError(InvalidInput):
    """A YAML file has an error."""

    def __init__(
        self,
        file: str,
        line: int | None,
        key: str | None,
        problem: str,
        allowed: Iterable[str] | None = None,
        column: int | None = None,
    ) -> None:
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self.problem = problem
        self.allowed = sorted(allowed) if allowed is not None else None
        where = ":".join(str(part) for part in (file, line, column) if part is not None)
        text = f"{where}: {key}: {problem}" if key else f"{where}: {problem}"
        if self.allowed is not None:
            text += f"; allowed: {listed(self.allowed)}"
        super().__init__(text)


class RegistryError(_FileError):
    """The file of observation types has an error at this line and key."""


class RelationsError(_FileError):
    """The file of relations has an error at this line and key."""


class RulesError(_FileError):
    """A rules or tools file has an error at this line and key."""


class SettingsError(InvalidInput):
    """The value of a setting is invalid."""


class SettingsFileError(_FileError, SettingsError):
    """The settings file has an error at this line and key."""


class InvalidExport(InvalidInput):
    """A line of the file to import is not from an export, or does not follow the previous line."""

    def __init__(
        self, line: int, problem: str, advice: str = "import the complete output of `scratchbus tail --format jsonl`"
    ) -> None:
        super().__init__(f"line {line}: {problem}; {advice}")
        self.line = line


class ShardsMismatch(InvalidInput):
    """The bus was created with a different number of shards."""

    def __init__(self, bus: str, expected: int, actual: int) -> None:
        super().__init__(
            f"bus {bus!r} has {actual} shards, not {expected}; drop the `shards` setting or set it to {actual}"
        )
        self.expected = expected
        self.actual = actual


class Unauthorized(InvalidInput):
    """Only the agent itself may use its scratchpad."""

    def __init__(self, agent: str, source: str | None, kind: str) -> None:
        who = f"you are {source!r}, a {kind}" if source is not None else "this bus has no source"
        super().__init__(
            f"403 Unauthorized: only {agent!r} may use its scratchpad, and {who};"
            f" open the bus with source={agent!r} and kind='subagent'"
        )
        self.agent = agent
        self.source = source
        self.kind = kind
