"""The registry: the observation types, each with its defaults, limits and lifecycle."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from scratchbus.domain import lifecycle as lifecycles
from scratchbus.domain.lifecycle import Lifecycle
from scratchbus.domain.values import MAX_BYTES
from scratchbus.errors import InvalidField, UnknownType

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

DEFAULT_PRIORITY: Final = 50
HIGHEST_PRIORITY: Final = 100
DEFAULT_MAX_TAGS: Final = 32
MAX_TAGS: Final = 256
MAX_OWNER: Final = 256
DEDUPE_FIELDS: Final = ("content", "owner", "source", "type")
DEDUPE_PREFIXES: Final = ("context.", "metadata.")
_MAX_READABLE_KEY: Final = 160
_MAX_COMPARED: Final = 64  # characters of an unknown name, as long as the name of a type may be

Lasting = int | Literal["never"] | None
"""Milliseconds, "never", or None if the settings decide."""


@dataclass(frozen=True)
class ObservationType:
    """A kind of observation: its priority, its defaults, its limits and its lifecycle.

    `priority` is 0 to 100, higher first. `max_content` is in bytes of UTF-8. `context_schema` and `metadata_schema`
    are JSON Schemas (draft 2020-12). `dedupe` names the fields that make up the dedupe_key when a caller gives none.
    """

    name: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    default_ttl_ms: Lasting = None
    default_owner: str | None = None
    initial_status: str = "active"
    lifecycle: Lifecycle = lifecycles.DEFAULT
    max_content: int = MAX_BYTES
    max_tags: int = DEFAULT_MAX_TAGS
    context_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    metadata_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    auto_archive_after_ms: Lasting = None
    dedupe: tuple[str, ...] = ()

    def ttl_ms(self, default: int | None) -> int | None:
        """Return how long an observation of this type lives, in ms, or None for no limit; `default` is the setting."""
        return _lasting(self.default_ttl_ms, default)

    def archive_after_ms(self, default: int | None) -> int | None:
        """Return how long after closing it is archived, in ms, or None for never; `default` is the setting."""
        return _lasting(self.auto_archive_after_ms, default)

    def dedupe_key_of(self, fields: Mapping[str, Any]) -> str | None:
        """Return the dedupe_key that the type derives from an observation's fields, or None.

        The key begins with the type's name, even if `dedupe` does not contain `type`. It is None if the type has no
        `dedupe`, or if a field of it is missing: two observations that lack the same field are not duplicates. A long
        key is shortened to a digest; all keys are ASCII and below 256 bytes.
        """
        if not self.dedupe:
            return None
        values = [_field(fields, name) for name in self.dedupe if name != "type"]
        if any(value is None for value in values):
            return None
        key = json.dumps(values, separators=(",", ":"), sort_keys=True)
        if len(key) > _MAX_READABLE_KEY:
            key = "sha256-" + sha256(key.encode()).hexdigest()
        return f"{self.name}:{key}"

    def check_context(self, context: Mapping[str, Any]) -> None:
        """Raise InvalidField, with the path of the wrong value, if the context does not fit the type's schema."""
        self._check("context", context)

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Raise InvalidField, with the path of the wrong value, if the metadata does not fit the type's schema."""
        self._check("metadata", metadata)

    def _check(self, field_name: str, value: Mapping[str, Any]) -> None:
        if field_name in self._validators:
            from scratchbus.domain.json_schema import value_problem  # late: it imports jsonschema

            problem = value_problem(self._validators[field_name], value)
            if problem is not None:
                path = ".".join([field_name, *map(str, problem.path)])
                raise InvalidField(path, f"{problem.message} (by the schema of type {self.name!r})")

    @cached_property
    def _validators(self) -> dict[str, Draft202012Validator]:
        """The validators of the fields with a schema."""
        schemas = {"context": self.context_schema, "metadata": self.metadata_schema}
        given = {name: schema for name, schema in schemas.items() if schema is not None}
        if given:
            from scratchbus.domain.json_schema import compile_schema  # late: it imports jsonschema
        return {name: compile_schema(schema) for name, schema in given.items()}


@dataclass(frozen=True)
class RegistryChanges:
    """The differences from an older registry: names of types, sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    lifecycle_changed: tuple[str, ...] = ()

    @property
    def needs_none_open(self) -> tuple[str, ...]:
        """The types whose changes are allowed only while none of their observations is open."""
        return tuple(sorted({*self.removed, *self.lifecycle_changed}))

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class Registry:
    """All observation types of a bus, with the YAML text they were read from.

    `lifecycles` has the default one and those that the file names. Registries compare by their types and lifecycles,
    not by `text`.
    """

    types: Mapping[str, ObservationType] = field(hash=False)
    lifecycles: Mapping[str, Lifecycle] = field(hash=False)
    text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        """Make the tables read-only."""
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))
        object.__setattr__(self, "lifecycles", MappingProxyType(dict(self.lifecycles)))

    def get(self, name: str) -> ObservationType:
        """Return the type with this name. Raises UnknownType, with the nearest known name."""
        found = self.types.get(name)
        if found is None:
            start = str(name)[:_MAX_COMPARED]
            similar = difflib.get_close_matches(start, self.types, n=1, cutoff=0.5)
            raise UnknownType(name, self.types, similar[0] if similar else None)
        return found

    @cached_property
    def all_lifecycles(self) -> tuple[Lifecycle, ...]:
        """The named lifecycles, and those of the types."""
        return (*self.lifecycles.values(), *(kind.lifecycle for kind in self.types.values()))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the text: registries with the same digest were read from the same text."""
        return sha256(self.text.encode()).hexdigest()

    def changes_from(self, old: Registry) -> RegistryChanges:
        """Return what this registry would change if it replaced `old`."""
        common = sorted(self.types.keys() & old.types.keys())
        return RegistryChanges(
            added=tuple(sorted(self.types.keys() - old.types.keys())),
            removed=tuple(sorted(old.types.keys() - self.types.keys())),
            changed=tuple(name for name in common if _differ(self.types[name], old.types[name])),
            lifecycle_changed=tuple(
                name for name in common if not self.types[name].lifecycle.same_table(old.types[name].lifecycle)
            ),
        )


def _differ(one: ObservationType, other: ObservationType) -> bool:
    """Return whether two types differ; to Python, two schemas with 1 and true at the same place are equal."""
    return one != other or _schemas(one) != _schemas(other)


def _schemas(kind: ObservationType) -> str:
    return json.dumps((kind.context_schema, kind.metadata_schema), sort_keys=True, default=dict)


def _lasting(value: Lasting, default: int | None) -> int | None:
    if value is None:
        return default
    return None if value == "never" else value


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if name.startswith(DEDUPE_PREFIXES):
        field_name, _, key = name.partition(".")
        return (fields.get(field_name) or {}).get(key)
    return fields.get(name)
