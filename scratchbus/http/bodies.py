"""Bodies as models: each gives the schema for OpenAPI and validates requests."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from scratchbus.http import patterns
from scratchbus.http.documents import body_of, fields_of
from scratchbus.http.problems import Refusal, explanation_of
from scratchbus.http.schemas import body

NotBlank = Annotated[str, StringConstraints(pattern=patterns.NOT_BLANK)]
"""A text that says something; the bus checks its size."""


def optional(**more: Any) -> Any:
    """Return the default of a field that may be left out, but not be null; see `Body.given`."""
    return Field(default=None, **more)


def whole_number(value: object) -> object:
    """Return a number as JSON Schema reads it, for which 2.0 is whole too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Body(BaseModel):
    """What a request says."""

    model_config = ConfigDict(extra="forbid", strict=True)

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
    required = any(keyword in schema for schema in found for keyword in ("required", "anyOf", "minProperties"))
    return body(found[0] if len(found) == 1 else {"oneOf": found}, required=required, example=example)


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
