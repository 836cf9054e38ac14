"""Serve the plain server over HTTP without tokens, for the official conformance suite; with fixtures if asked.

    python -m tests.edges.mcp.conformance 8123 &
    python -m tests.edges.mcp.conformance 8124 fixtures &
    npx @modelcontextprotocol/conformance server --url http://127.0.0.1:8124/mcp/

The suite cannot send a token, which the real server needs. Its own tools, prompts and resources (`test_…`, `test://`)
are fixtures that answer as the suite describes; the real server answers everything else.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SamplingMessage,
    SubscribeRequestParams,
    TextContent,
    UnsubscribeRequestParams,
)
from starlette.applications import Starlette
from starlette.routing import Mount

from scratchbus.mcp.app import LOCAL, PATH
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
IMAGE: Final = {"type": "image", "data": PNG, "mimeType": "image/png"}

SCHEMA_TOOL: Final = "json_schema_2020_12_tool"
SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def embedded(uri: str, kind: str, content: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": content}}


CONTENTS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
}
RESOURCES: Final = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
}


def options(*pairs: str) -> list[dict[str, str]]:
    return [dict(zip(("const", "title"), pair.split("="), strict=True)) for pair in pairs]


FORMS: Final = {
    "test_elicitation": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": options("value1=First Option", "value2=Second Option", "value3=Third Option"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": options("value1=First Choice", "value2=Second Choice", "value3=Third Choice")},
        },
    },
}


async def fixture_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
    """Answer a tool of the suite."""
    name, given, session = params.name, params.arguments or {}, context.session
    answer_text = "done"
    if name in CONTENTS:
        return CallToolResult.model_validate({"content": CONTENTS[name]})
    if name == "test_error_handling":
        return CallToolResult.model_validate(
            {"content": [text("This tool intentionally returns an error for testing")], "isError": True}
        )
    if name == "test_tool_with_logging":
        for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await session.send_log_message("info", step, None, context.request_id)
            await anyio.sleep(0.05)
    if name == "test_tool_with_progress":
        for share in (0, 50, 100):
            await session.report_progress(share, 100)
            await anyio.sleep(0.05)
    if name == "test_sampling":
        asked = SamplingMessage(role="user", content=TextContent(type="text", text=given["prompt"]))
        reply = await session.create_message([asked], max_tokens=100, related_request_id=context.request_id)
        answer_text = f"LLM response: {reply.content.text}"
    if name in FORMS:
        form = {"type": "object", "properties": FORMS[name], "required": []}
        answer = await session.elicit_form(given.get("message", "Please fill this in"), form, context.request_id)
        verb = "User response" if name == "test_elicitation" else "Elicitation completed"
        answer_text = f"{verb}: action={answer.action}, content={json.dumps(answer.content)}"
    return CallToolResult.model_validate({"content": [text(answer_text)]})


async def fixture_resource(_: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Read a resource of the suite."""
    uri = str(params.uri)
    known = RESOURCES.get(uri)
    if known is None:
        id = uri.removeprefix("test://template/").removesuffix("/data")
        data = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        known = {"mimeType": "application/json", "text": json.dumps(data)}
    return ReadResourceResult.model_validate({"contents": [{"uri": uri, **known}]})


async def fixture_prompt(_: Any, params: GetPromptRequestParams) -> GetPromptResult:
    """Get a prompt of the suite."""
    given = params.arguments or {}
    contents: dict[str, list[dict[str, Any]]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            embedded(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
    }
    return GetPromptResult.model_validate(
        {"messages": [{"role": "user", "content": each} for each in contents[params.name]]}
    )


async def accept(_: Any, __: Any) -> EmptyResult:
    """Accept a subscription to a resource of the suite."""
    return EmptyResult()


def add_fixtures(server: Server[None]) -> None:
    """Answer requests for the suite's own tools, resources and prompts with fixtures."""

    def dispatch(
        method: str, params: type[Any], is_of_the_suite: Callable[[Any], bool], fixture: Callable[..., Awaitable[Any]]
    ) -> None:
        entry = server.get_request_handler(method)
        assert entry is not None
        original = entry.handler

        async def handle(context: Any, given: Any) -> Any:
            return await (fixture if is_of_the_suite(given) else original)(context, given)

        server.add_request_handler(method, params, handle)

    dispatch("tools/call", CallToolRequestParams, lambda given: given.name.startswith("test_"), fixture_tool)
    dispatch("prompts/get", GetPromptRequestParams, lambda given: given.name.startswith("test_"), fixture_prompt)
    for method, params, fixture in (
        ("resources/read", ReadResourceRequestParams, fixture_resource),
        ("resources/subscribe", SubscribeRequestParams, accept),
        ("resources/unsubscribe", UnsubscribeRequestParams, accept),
    ):
        dispatch(method, params, lambda given: str(given.uri).startswith("test://"), fixture)
    listing = server.get_request_handler("tools/list")
    assert listing is not None

    async def list_tools(context: Any, given: Any) -> dict[str, Any]:
        found: Any = await listing.handler(context, given)
        own = {"name": SCHEMA_TOOL, "description": "Keeps keywords.", "inputSchema": dict(SCHEMA)}
        return {**found, "tools": [*found["tools"], own]}

    server.add_request_handler("tools/list", PaginatedRequestParams, list_tools)


async def serve(port: int, has_fixtures: bool) -> None:
    """Serve until interrupted."""
    identity = Identity.of("conformance", session="s1", tools=["all"])
    async with Workspace.opened(identity, url="memory://conformance") as workspace:
        server = server_of(workspace)
        if has_fixtures:
            add_fixtures(server)
        manager = StreamableHTTPSessionManager(server, security_settings=LOCAL)
        app = Starlette(routes=[Mount(PATH, app=manager.handle_request)])
        async with manager.run():
            await uvicorn.Server(uvicorn.Config(app, port=port, lifespan="off", log_level="error")).serve()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    anyio.run(serve, int(sys.argv[1]), "fixtures" in sys.argv)
