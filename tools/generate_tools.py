"""Write the MCP tools as clients see them into a file, since deriving their schemas takes longer than a server's start.

`make generate` writes `scratchbus/mcp/tools.json`, and `make check` fails when it is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from scratchbus.mcp.groups import GROUPS
from scratchbus.mcp.toolbox import arguments_model

FILE = Path(__file__).parents[1] / "scratchbus" / "mcp" / "tools.json"


def declared(method: Any) -> dict[str, Any]:
    """Return a tool's method as clients see it, with marks where the observation types belong."""
    title, hints = method.tool
    schema = lean(arguments_model(method).model_json_schema())
    arguments = {name: without_null(each) for name, each in schema.get("properties", {}).items()}
    answer = get_type_hints(method, include_extras=True)["return"]
    return {
        "name": method.__name__,
        "title": title,
        "description": " ".join((getdoc(method) or "").split()),
        "inputSchema": {"type": "object", **schema, "properties": arguments, "additionalProperties": False},
        "outputSchema": lean(TypeAdapter(answer).json_schema(mode="serialization")),
        "annotations": {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": False,
        },
    }


def text() -> str:
    """Return the text of the file: all tools by name, also former ones."""
    methods = [vars(group)[name] for groups in GROUPS.values() for group in groups for name in group.current_names()]
    tools = {method.__name__: declared(method) for method in methods}
    if len(tools) < len(methods):
        raise SystemExit("two tools have the same name")
    return json.dumps(tools, indent=1, ensure_ascii=False) + "\n"


def lean(schema: Any, parts: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON schema without titles, references and redundant defaults.

    Titles cost a model tokens and say nothing; references slow validation in clients; strict clients refuse a default
    of another type.
    """
    if isinstance(schema, list):
        return [lean(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if parts is None:
        parts = schema.get("$defs", {})
    if "$ref" in schema:
        return lean(parts[schema["$ref"].removeprefix("#/$defs/")], parts)
    return {name: lean(value, parts) for name, value in schema.items() if not _is_idle(name, value)}


def _is_idle(name: str, value: Any) -> bool:
    return (
        name == "$defs"
        or (name == "title" and isinstance(value, str))
        or (name == "default" and value in (None, False, ""))
    )


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional argument without the null it also accepts."""
    choices = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    if len(choices) == 1:
        return {**choices[0], **rest}
    return {"anyOf": choices, **rest} if choices else schema


def main() -> int:
    """Write the file, or with `--check` say whether it is stale."""
    new = text()
    if FILE.exists() and FILE.read_text("utf-8") == new:
        return 0
    if "--check" in sys.argv:
        print(f"stale: {FILE.name}; run `make generate`", file=sys.stderr)
        return 1
    FILE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
