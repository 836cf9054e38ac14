"""The registry in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationInfo, model_validator

from scratchbus.domain import lifecycle as lifecycles
from scratchbus.domain.lifecycle import ARCHIVED, STATUS_CLASSES, Lifecycle, StatusClass, never_closing
from scratchbus.domain.registry import (
    DEDUPE_FIELDS,
    DEDUPE_PREFIXES,
    HIGHEST_PRIORITY,
    MAX_OWNER,
    MAX_TAGS,
    Lasting,
    ObservationType,
    Registry,
)
from scratchbus.domain.values import MAX_BYTES, NEVER, duration_ms
from scratchbus.domain.yaml_model import (
    Items,
    JsonTable,
    Table,
    Text,
    TypeName,
    YamlModel,
    YamlProblem,
    YamlText,
    whole_number,
)
from scratchbus.errors import InvalidTTL, RegistryError, shown

_DEDUPABLE: Final = (*DEDUPE_FIELDS, *(f"{prefix}<key>" for prefix in DEDUPE_PREFIXES))


@lru_cache(maxsize=16)
def parse_registry(text: str, file: str, *, is_published: bool = False) -> Registry:
    """Return the registry that a YAML text describes; `file` is its name in errors.

    If it `is_published`, an older version may have accepted it, so all its patterns are accepted. The last few are
    cached, since the connections of a process usually read the same one. Raises RegistryError with the file, the line,
    the key and the allowed values.
    """
    source = YamlText(text, file, RegistryError)
    try:
        return source.read(_TypesFile, {"is_published": is_published}).registry(text)
    except YamlProblem as problem:
        raise source.wrong(problem) from None


# -- the values of keys ----------------------------------------------------------------------------------------------


def _status_class(value: Any) -> Any:
    if value not in STATUS_CLASSES:
        raise YamlProblem(f"{shown(value)} is not a status class", STATUS_CLASSES)
    return value


def _lasting(value: Any) -> Lasting:
    try:
        ms = duration_ms("" if value is None else value)
    except InvalidTTL:
        raise YamlProblem(
            "{} is not a duration; use 90s, 2h, 1h30m, 7d, a positive number of seconds, or never"
        ) from None
    return NEVER if ms is None else ms


def _owner(owner: Any) -> Any:
    if isinstance(owner, str) and (len(owner) > MAX_OWNER or not owner.isprintable()):
        raise YamlProblem(f"{shown(owner)} is not an owner; use 1 to {MAX_OWNER} printable characters")
    return owner


def _dedupe(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        nested = name.startswith(DEDUPE_PREFIXES) and not name.endswith(".")
        if not nested and name not in DEDUPE_FIELDS:
            raise YamlProblem(f"observations cannot be deduplicated by {shown(name)}", _DEDUPABLE, (index,))
    if not names:
        raise YamlProblem("is empty; name at least one field, or leave the key out", _DEDUPABLE)
    return tuple(dict.fromkeys(names))


def _mapping_of_schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        raise YamlProblem("must be a JSON Schema, a mapping such as {type: object, required: [task_id]}")
    return schema


def _sound(schema: dict[str, Any], info: ValidationInfo[Mapping[str, bool]]) -> dict[str, Any]:
    from scratchbus.domain.json_schema import schema_problem  # late: it imports jsonschema

    problem = schema_problem(schema, is_published=info.context["is_published"])
    if problem is not None:
        raise YamlProblem(f"not a JSON Schema: {problem.message}", at=problem.path)
    return schema


_Priority = Annotated[int, whole_number(0, HIGHEST_PRIORITY)]
_Lasting = Annotated[Lasting, BeforeValidator(_lasting)]
_Schema = Annotated[JsonTable, AfterValidator(_sound), BeforeValidator(_mapping_of_schema)]


# -- the mappings of the file ----------------------------------------------------------------------------------------


class _Lifecycle(YamlModel):
    statuses: Table[TypeName, Annotated[StatusClass, BeforeValidator(_status_class)]]
    initial: Items[Text]
    transitions: Table[str, Items[Text]] = Field({})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.statuses.get(ARCHIVED, "final") != "final":
            problem = f"{ARCHIVED!r} is the status to which the bus moves old observations; it must be final"
            raise YamlProblem(problem, ["final"], ("statuses", ARCHIVED))
        lifecycle = self.named("")
        can_begin = lifecycle.of_class("open")
        if not self.initial:
            raise YamlProblem("is empty; name at least one open status", can_begin, ("initial",))
        for index, status in enumerate(self.initial):
            if status not in can_begin:
                problem = f"{shown(status)} is not an open status of this lifecycle"
                raise YamlProblem(problem, can_begin, ("initial", index))
        for status, targets in self.transitions.items():
            _check_targets(lifecycle, status, targets)
        if stuck := never_closing(lifecycle):
            problem = f"{', '.join(sorted(stuck))} can never close; let one of them lead to a closed or final status"
            raise YamlProblem(problem, {*lifecycle.statuses} - can_begin, ("transitions",))
        return self

    def named(self, name: str) -> Lifecycle:
        """Return the lifecycle under this name."""
        return Lifecycle(
            name,
            statuses={**self.statuses, ARCHIVED: "final"},
            initial=tuple(dict.fromkeys(self.initial)),
            transitions={status: frozenset(targets) for status, targets in self.transitions.items()},
        )


def _check_targets(lifecycle: Lifecycle, status: str, targets: tuple[str, ...]) -> None:
    """Raise YamlProblem unless a status may lead to these targets."""
    at = ("transitions", status)
    if status not in lifecycle.statuses:
        raise YamlProblem.unknown("status", status, lifecycle.statuses, at)
    if targets and lifecycle.class_of(status) == "final":
        problem = f"{shown(status)} is final and leads nowhere; drop this line, or make the status closed"
        raise YamlProblem(problem, at=at)
    others = [other for other in lifecycle.statuses if other != status]
    for index, target in enumerate(targets):
        if target == status:
            raise YamlProblem(f"{shown(status)} cannot lead to itself", others, (*at, index))
        if target not in others:
            raise YamlProblem(f"{shown(target)} is not a status of this lifecycle", others, (*at, index))


class _Type(YamlModel):
    """A type; all fields except the last two are those of ObservationType."""

    description: Text = ""
    priority: _Priority = 0
    default_ttl_ms: _Lasting = Field(None, alias="default_ttl")
    default_owner: Annotated[Text, AfterValidator(_owner)] = ""
    max_content: Annotated[int, whole_number(1, MAX_BYTES)] = 0
    max_tags: Annotated[int, whole_number(0, MAX_TAGS)] = 0
    context_schema: _Schema = Field({}, alias="context")
    metadata_schema: _Schema = Field({}, alias="metadata")
    auto_archive_after_ms: _Lasting = Field(None, alias="auto_archive_after")
    dedupe: Annotated[Items[Text], AfterValidator(_dedupe)] = ()
    initial_status: Text = ""
    lifecycle: Annotated[
        Annotated[Text, Tag("name")] | Annotated[_Lifecycle, Tag("(in place)")],
        Discriminator(lambda value: "(in place)" if isinstance(value, dict) else "name"),
    ] = lifecycles.DEFAULT.name

    def named(self, name: str, known: Mapping[str, Lifecycle]) -> ObservationType:
        """Return the type under this name. Raises YamlProblem."""
        declared = self.lifecycle if isinstance(self.lifecycle, _Lifecycle) else known.get(self.lifecycle)
        if declared is None:
            raise YamlProblem.unknown("lifecycle", str(self.lifecycle), known, ("types", name, "lifecycle"))
        lifecycle = declared.named(name) if isinstance(declared, _Lifecycle) else declared
        initial = self.initial_status or lifecycle.initial[0]
        if initial not in lifecycle.initial:
            is_known = initial in lifecycle.statuses
            problem = (
                f"{shown(initial)} is not an initial status of lifecycle {lifecycle.name!r}"
                if is_known
                else f"lifecycle {lifecycle.name!r} has no status {shown(initial)}"
            )
            raise YamlProblem(problem, lifecycle.initial, ("types", name, "initial_status"))
        settings = {key: getattr(self, key) for key in self.model_fields_set - {"lifecycle", "initial_status"}}
        return ObservationType(name, lifecycle=lifecycle, initial_status=initial, **settings)


class _TypesFile(YamlModel):
    types: Table[TypeName, _Type] = Field({})
    lifecycles: Table[TypeName, _Lifecycle] = Field({})

    def registry(self, text: str) -> Registry:
        """Return the registry. Raises YamlProblem."""
        if not self.types:
            raise YamlProblem("there are no types; write at least one under `types:`", at=("types",))
        default = lifecycles.DEFAULT
        if default.name in self.lifecycles:
            at = ("lifecycles", default.name)
            raise YamlProblem("is built in and cannot be changed; choose another name", at=at)
        known = {default.name: default} | {name: each.named(name) for name, each in self.lifecycles.items()}
        return Registry({name: each.named(name, known) for name, each in self.types.items()}, known, text)


TYPE_KEYS: Final = tuple(field.alias or name for name, field in _Type.model_fields.items())
"""Every key a type may have."""
