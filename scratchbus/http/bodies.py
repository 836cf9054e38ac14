"""Bodies of requests, as parameters of routes: a parameter says what the body is, for its check and for OpenAPI.

A route takes `body: JsonBody[NewNote]`, a model, or `given: Annotated[Given, fields(SCHEMA)]` where the bus checks the
values. The body is read once all other parameters are valid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from scratchbus.http import patterns
from scratchbus.http.documents import body_of, check_lists, fields_of
from scratchbus.http.problems import Refusal, explanation_of
from scratchbus.http.schemas import COMPONENTS, REFERENCE, Schema, body

NotBlank = Annotated[str, StringConstraints(pattern=patterns.NOT_BLANK)]
"""A text that says something; the bus checks its size."""


def optional(**more: Any) -> Any:
    """Return the default of a field that may be left out, but not be null; see `Body.given`."""
    return Field(default=None, **more)


def whole_number(value: object) -> object:
    """Return a number as JSON Schema reads it, for which 2.0 is whole too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Body(BaseModel):
    """What a request says; a subclass gives an example for OpenAPI, unless no route takes it alone."""

    model_config = ConfigDict(extra="forbid", strict=True)
    example: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, *, example: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.example = example or {}

    @classmethod
    async def of(cls, request: Request) -> Self:
        """Return the parsed body of a request. Raises Refusal."""
        return cls.checked(await body_of(request))

    @classmethod
    def checked(cls, document: dict[str, Any]) -> Self:
        """Return a JSON object as this body. Raises Refusal for the first field that does not fit."""
        required = tuple(name for name, field in cls.model_fields.items() if field.is_required())
        fields_of(document, *cls.model_fields, required=required)
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise Refusal(422, "invalid-field", f"{field}: {explanation_of(first)}", field=field) from None

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were given."""
        return self.model_dump(exclude_unset=True)


def takes(example: dict[str, Any], *models: type[Body]) -> dict[str, Any]:
    """Return the request body of an operation, for `openapi_extra`: one of these, such as the example."""
    found = [schema_of(model) for model in models]
    required = any(keyword in schema for schema in found for keyword in ("required", "allOf", "minProperties"))
    return body(found[0] if len(found) == 1 else {"oneOf": found}, required=required, example=example)


Given = dict[str, Any]
"""The fields of a body that the bus checks."""


@dataclass(frozen=True, eq=False)
class BodyReader:
    """The dependency of a route on the body of the request: what reads it, and `openapi_extra` that documents it."""

    read: Callable[[Request], Awaitable[Any]]
    documented: dict[str, Any]

    async def __call__(self, request: Request) -> Any:
        """Return the parsed body. Raises Refusal."""
        return await self.read(request)


def reader_of(dependant: Dependant) -> tuple[str, BodyReader] | None:
    """Return the parameter of an endpoint that takes the body, and its reader; None if it takes none."""
    found = ((str(each.name), each.call) for each in dependant.dependencies if isinstance(each.call, BodyReader))
    return next(found, None)


def fields(schema: Schema, *, required: bool = True, example: Any = None) -> Any:
    """Return the dependency on a body with the fields of a schema, whose values the bus checks."""
    described = COMPONENTS.get(schema.get("$ref", "").removeprefix(REFERENCE), schema)
    lists = [name for name, each in described["properties"].items() if "items" in each]

    async def read(request: Request) -> Given:
        needed = described.get("required", ())
        given = fields_of(await body_of(request), *described["properties"], required=needed)
        check_lists(given, *lists)
        return given

    return Depends(BodyReader(read, body(schema, required=required, example=example)))


T = TypeVar("T")

if TYPE_CHECKING:
    JsonBody = Annotated[T, BodyReader]
else:

    class JsonBody:
        """The parameter of a route that takes its body as a model."""

        def __class_getitem__(cls, model: type[Body]) -> Any:
            """Return the annotation of the parameter."""
            return Annotated[model, Depends(BodyReader(model.of, takes(model.example, model)))]


def schema_of(model: type[BaseModel], mode: str = "validation") -> dict[str, Any]:
    """Return the JSON Schema of a model, with the schemas of its parts in place and without titles."""
    schema = model.model_json_schema(mode=mode)  # type: ignore[arg-type]  # "validation" or "serialization"
    return _plain(schema, schema.get("$defs", {}))  # type: ignore[no-any-return]  # a mapping, as `schema` is


def _plain(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _plain(definitions[node["$ref"].rpartition("/")[2]], definitions)
    found = {}
    for name, each in node.items():
        if name in ("properties", "patternProperties"):
            found[name] = {property_name: _plain(schema, definitions) for property_name, schema in each.items()}
        elif name not in ("$defs", "title") and (name, each) != ("default", None):
            found[name] = _plain(each, definitions)
    return found
