"""Reading the registry from YAML, as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from scratchbus.domain import lifecycle as lifecycles
from scratchbus.domain.lifecycle import ARCHIVED, STATUS_CLASSES, Lifecycle, StatusClass, never_closing
from scratchbus.domain.registry import (
    DEDUPE_FIELDS,
    DEDUPE_PREFIXES,
    HIGHEST_PRIORITY,
    LONGEST_OWNER,
    MOST_TAGS,
    Lasting,
    ObservationType,
    Registry,
)
from scratchbus.domain.values import MAX_BYTES, NEVER, duration_ms, is_type_name
from scratchbus.domain.yaml_nodes import Spot, compose
from scratchbus.errors import InvalidTTL, RegistryError, shown

_NAME_RULE: Final = "use 1–64 lower-case letters, digits and _, and begin with a letter"


def parse_registry(text: str, file: str) -> Registry:
    """Return the registry that a YAML text describes; `file` is its name in errors.

    Raises RegistryError with the file, the line, the key and what is allowed there.
    """
    top = compose(text, file, RegistryError)
    sections = top.fields(("types", "lifecycles"))
    known = {lifecycles.DEFAULT.name: lifecycles.DEFAULT}
    if "lifecycles" in sections:
        for name, spot in sections["lifecycles"].fields().items():
            if name in known:
                raise spot.wrong("is built in and cannot be changed; choose another name")
            known[name] = _lifecycle(spot, _name(spot, name))
    types = sections["types"].fields() if "types" in sections else {}
    if not types:
        raise sections.get("types", top).wrong("there are no types; write at least one under `types:`")
    return Registry({name: _type(spot, _name(spot, name), known) for name, spot in types.items()}, known, text)


def _type(spot: Spot, name: str, known: Mapping[str, Lifecycle]) -> ObservationType:
    fields = spot.fields(TYPE_KEYS)
    lifecycle = _chosen(fields["lifecycle"], name, known) if "lifecycle" in fields else lifecycles.DEFAULT
    initial = _status(fields["initial_status"], lifecycle) if "initial_status" in fields else lifecycle.initial[0]
    rest = {field: read(fields[key]) for key, (field, read) in _READERS.items() if key in fields}
    return ObservationType(name, lifecycle=lifecycle, initial_status=initial, **rest)


def _chosen(spot: Spot, type_name: str, known: Mapping[str, Lifecycle]) -> Lifecycle:
    if spot.is_mapping():
        return _lifecycle(spot, type_name)
    name = spot.text()
    if name not in known:
        raise spot.wrong(f"unknown lifecycle {shown(name)}", known)
    return known[name]


def _status(spot: Spot, lifecycle: Lifecycle) -> str:
    status = spot.text()
    if status not in lifecycle.statuses:
        raise spot.wrong(f"lifecycle {lifecycle.name!r} has no status {shown(status)}", lifecycle.initial)
    if status not in lifecycle.initial:
        raise spot.wrong(f"{shown(status)} is not an initial status of lifecycle {lifecycle.name!r}", lifecycle.initial)
    return status


# -- lifecycles ----------------------------------------------------------------------------------------------------


def _lifecycle(spot: Spot, name: str) -> Lifecycle:
    fields = spot.fields(("statuses", "initial", "transitions"))
    for key in ("statuses", "initial"):
        if key not in fields:
            raise spot.wrong(f"{key!r} is missing; add it")
    statuses = _statuses(fields["statuses"])
    lifecycle = Lifecycle(
        name=name,
        statuses=statuses,
        initial=_initial(fields["initial"], statuses),
        transitions=_transitions(fields["transitions"], statuses) if "transitions" in fields else {},
    )
    stuck = never_closing(lifecycle)
    if stuck:
        raise fields.get("transitions", spot).wrong(
            f"{', '.join(sorted(stuck))} can never close; let one of them lead to a closed or final status",
            set(statuses) - lifecycle.of_class("open"),
        )
    return lifecycle


def _statuses(spot: Spot) -> dict[str, StatusClass]:
    statuses: dict[str, StatusClass] = {}
    for status, class_spot in spot.fields().items():
        given = class_spot.text()
        its_class = next((one for one in STATUS_CLASSES if one == given), None)
        if its_class is None:
            raise class_spot.wrong(f"{shown(given)} is not a class of status", STATUS_CLASSES)
        if status == ARCHIVED and its_class != "final":
            raise class_spot.wrong(
                f"{ARCHIVED!r} is where the bus puts closed observations; it must be final", ["final"]
            )
        statuses[_name(class_spot, status)] = its_class
    statuses.setdefault(ARCHIVED, "final")
    return statuses


def _initial(spot: Spot, statuses: Mapping[str, StatusClass]) -> tuple[str, ...]:
    can_begin = [status for status, its_class in statuses.items() if its_class == "open"]
    initial = []
    for entry in spot.elements():
        status = entry.text()
        if status not in can_begin:
            raise entry.wrong(f"{shown(status)} is not an open status of this lifecycle", can_begin)
        initial.append(status)
    if not initial:
        raise spot.wrong("is empty; name at least one open status", can_begin)
    return tuple(dict.fromkeys(initial))


def _transitions(spot: Spot, statuses: Mapping[str, StatusClass]) -> dict[str, frozenset[str]]:
    transitions = {}
    for status, targets in spot.fields(statuses, what="status").items():
        others = [other for other in statuses if other != status]
        entries = targets.elements()
        if entries and statuses[status] == "final":
            raise targets.wrong(
                f"{shown(status)} is final and leads nowhere; drop this line, or make the status closed"
            )
        for entry in entries:
            target = entry.text()
            if target == status:
                raise entry.wrong(f"{shown(status)} cannot lead to itself", others)
            if target not in statuses:
                raise entry.wrong(f"{shown(target)} is not a status of this lifecycle", others)
        transitions[status] = frozenset(entry.text() for entry in entries)
    return transitions


# -- the keys of a type --------------------------------------------------------------------------------------------


def _name(spot: Spot, name: str) -> str:
    if not is_type_name(name):
        raise spot.wrong(f"{shown(name)} is not a valid name; {_NAME_RULE}")
    return name


def _lasting(spot: Spot) -> Lasting:
    value = spot.scalar()
    try:
        ms = duration_ms("" if value is None else value)
    except InvalidTTL:
        raise spot.wrong(
            f"{shown(value)} is not a duration; use 90s, 2h, 1h30m, 7d, a positive number of seconds, or never"
        ) from None
    return NEVER if ms is None else ms


def _owner(spot: Spot) -> str:
    owner = spot.text()
    if len(owner) > LONGEST_OWNER or not owner.isprintable():
        raise spot.wrong(f"{shown(owner)} is not an owner; use 1 to {LONGEST_OWNER} printable characters")
    return owner


def _dedupe(spot: Spot) -> tuple[str, ...]:
    allowed = [*DEDUPE_FIELDS, *(f"{prefix}<key>" for prefix in DEDUPE_PREFIXES)]
    names = []
    for entry in spot.elements():
        name = entry.text()
        nested = name.startswith(DEDUPE_PREFIXES) and not name.endswith(".")
        if not nested and name not in DEDUPE_FIELDS:
            raise entry.wrong(f"cannot tell observations apart by {shown(name)}", allowed)
        names.append(name)
    if not names:
        raise spot.wrong("is empty; name at least one field, or leave the key out", allowed)
    return tuple(dict.fromkeys(names))


def _schema(spot: Spot) -> Mapping[str, Any]:
    if not spot.is_mapping():
        raise spot.wrong("must be a JSON Schema, a mapping such as {type: object, required: [task_id]}")
    from scratchbus.domain.json_schema import schema_problem

    schema: dict[str, Any] = spot.plain()
    problem = schema_problem(schema)
    if problem is not None:
        raise spot.at(problem.path).wrong(f"not a JSON Schema: {problem.message}")
    return schema


_READERS: Final[Mapping[str, tuple[str, Callable[[Spot], Any]]]] = {
    "description": ("description", Spot.text),
    "priority": ("priority", lambda spot: spot.whole(0, HIGHEST_PRIORITY)),
    "default_ttl": ("default_ttl_ms", _lasting),
    "default_owner": ("default_owner", _owner),
    "max_content": ("max_content", lambda spot: spot.whole(1, MAX_BYTES)),
    "max_tags": ("max_tags", lambda spot: spot.whole(0, MOST_TAGS)),
    "context": ("context_schema", _schema),
    "metadata": ("metadata_schema", _schema),
    "auto_archive_after": ("auto_archive_after_ms", _lasting),
    "dedupe": ("dedupe", _dedupe),
}
"""What each key of a type fills in, and how it is read; `lifecycle` and `initial_status` are read together."""

TYPE_KEYS: Final = (*_READERS, "initial_status", "lifecycle")
"""Every key a type may have."""
