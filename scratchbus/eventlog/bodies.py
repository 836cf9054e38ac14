"""Decode the bodies of events into structs made from the event models, or by the models where a struct refuses.

A struct is several times as fast as its model and accepts less: a refused body goes to the model, which alone decides
whether it is an event and says what is wrong with it. A struct must not accept more than its model, or read a value
differently. That is why times, which the two round differently, are left to the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import is_typeddict

from scratchbus.domain.event import ENVELOPE, Event
from scratchbus.domain.page_events import PAGE_EVENTS
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.telemetry.lazy import imported_on_first_use, once

with imported_on_first_use(__name__):
    from scratchbus.domain import events as event_kinds

Fields = Any
"""A struct with the fields of an event, in the order of its model; only `kind` of the envelope's fields is set."""

REFUSED = (msgspec.MsgspecError, ValueError, LookupError, RecursionError)
"""The errors for a body that the model has to decode; LookupError if there is neither struct nor model."""

_MAX_BRACKETS = 100
"""A body with more brackets goes to the model: pydantic refuses JSON nested 200 deep, msgspec does not."""

_PLAIN = (str, int, float, bool, NoneType, Any)


class BodyDecoder:
    """Decodes the bodies of one kind of event."""

    def __init__(self, cls: type[Event]) -> None:
        fields = cls.model_fields
        self._cls = cls
        self._names = [name for name in fields if name not in ENVELOPE]
        struct = msgspec.defstruct(
            cls.__name__,
            [(name, _type_of(name, each), _default_of(each)) for name, each in fields.items()],
            forbid_unknown_fields=True,
            kw_only=True,
            gc=False,  # it is never part of a cycle
        )
        self._decode: Callable[[bytes], Fields] = msgspec.json.Decoder(struct).decode
        self._mappings = [name for name in self._names if is_typeddict(fields[name].annotation)]
        list_type: Any = list[_ForTheModel if self._mappings else struct]  # type: ignore[misc]  # it is made here
        self.decode_flat: Callable[[bytes], list[Fields]] = msgspec.json.Decoder(list_type).decode
        """Returns the fields of a list of bodies without objects in them, or raises one of REFUSED.

        Damaged bodies may complete each other in a list, but then make fewer objects: each brace begins one.
        """
        self._blank = struct(**dict.fromkeys(self._names))

    def decode(self, body: bytes) -> Fields:
        """Return the fields of a body. Raises pydantic's ValidationError."""
        is_flat = not body.rfind(b"{")
        if not is_flat and body.count(b"{") + body.count(b"[") > _MAX_BRACKETS:
            return self.by_model(body)
        try:
            return self._with_mappings(body) if self._mappings else self._decode(body)
        except REFUSED:
            return self.by_model(body)

    def _with_mappings(self, body: bytes) -> Fields:
        """Return the fields of a body in which some fields are mappings: as structs."""
        fields = self._decode(body)
        for name in self._mappings:
            values = asdict(getattr(fields, name))
            setattr(fields, name, {key: value for key, value in values.items() if value is not UNSET})
        return fields

    @once
    def _model(self) -> Any:
        """The validator of the model; many programs never need it, and building the first one takes long."""
        self._cls.model_rebuild()
        return self._cls.__pydantic_validator__

    def by_model(self, body: bytes) -> Fields:
        """Return the fields of a body as its model has them. Raises pydantic's ValidationError."""
        values = self._model.validate_json(body).__dict__
        fields = copy(self._blank)
        for name in self._names:
            setattr(fields, name, values[name])
        return fields


class _Classes(dict[str, type[Event]]):
    """The class of each kind of event; those of memories are imported when one of them is asked for."""

    def __missing__(self, kind: str) -> type[Event]:
        found = self[kind] = event_kinds.EVENTS[kind]
        return found


CLASSES = _Classes(PAGE_EVENTS)


@cache
def decoder_of(kind: bytes) -> BodyDecoder:
    """Return the decoder for a kind of event, made on first use. Raises KeyError."""
    return BodyDecoder(CLASSES[text_of(kind)])


@cache
def flat_decoder(kind: bytes) -> Callable[[bytes], list[Fields]]:
    """Return the function `BodyDecoder.decode_flat` for a kind of event. Raises KeyError."""
    return decoder_of(kind).decode_flat


class _ForTheModel:
    """The type of a field that a struct cannot decode as its model does: no JSON value matches it."""


def _type_of(name: str, field: FieldInfo) -> Any:
    return _ForTheModel if name in ENVELOPE else _struct_type(Annotated[field.annotation, field])


def _default_of(field: FieldInfo) -> Any:
    if field.default_factory is not None:
        return msgspec.field(default_factory=field.default_factory)  # type: ignore[arg-type]  # it takes no argument
    return msgspec.NODEFAULT if field.default is PydanticUndefined else field.default


def _struct_type(annotation: Any) -> Any:
    """Return a type that accepts no more in a struct than this annotation does in a model."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN or origin is Literal:
        return annotation
    if is_typeddict(annotation):
        return _struct_of(annotation)
    if origin is Annotated:
        return _bounded(_struct_type(arguments[0]), arguments[1])
    if origin in (Union, UnionType):
        return Union[tuple(map(_struct_type, arguments))]  # noqa: UP007 - of a tuple
    if origin in (list, dict):
        return origin[tuple(map(_struct_type, arguments))]
    return _ForTheModel


def _struct_of(mapping: Any) -> Any:
    """Return a struct for a mapping without required keys that allows no other keys."""
    if mapping.__required_keys__ or mapping.__pydantic_config__ != {"extra": "forbid"}:
        return _ForTheModel
    keys = get_type_hints(mapping, include_extras=True).items()
    fields = [(key, Union[_struct_type(each), UnsetType], UNSET) for key, each in keys]  # noqa: UP007 - see above
    return msgspec.defstruct(mapping.__name__, fields, forbid_unknown_fields=True, kw_only=True, gc=False)


def _bounded(annotation: Any, field: FieldInfo) -> Any:
    """Return a type, or each member of a union except None, with the bounds that the field has in its model."""
    bounds: dict[str, Any] = {}
    for each in field.metadata:
        found = {name: value for name in ("ge", "le", "pattern") if (value := getattr(each, name, None)) is not None}
        if not found and getattr(each, "allow_inf_nan", None) is not False:  # msgspec accepts neither in JSON
            return _ForTheModel
        bounds |= found
    if "pattern" in bounds:
        bounds["pattern"] = re.sub(r"\$$", r"\\Z", bounds["pattern"])  # here `$` would match before a line break too
    if not bounds:
        return annotation
    meta = msgspec.Meta(**bounds)
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return Union[tuple(each if each is NoneType else Annotated[each, meta] for each in members)]  # noqa: UP007 - see above
