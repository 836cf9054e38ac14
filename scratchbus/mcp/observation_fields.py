"""The fields of observations as tool arguments, each with its description for the model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, WithJsonSchema

from scratchbus.mcp.answers import Object
from scratchbus.mcp.tool_parameters import TYPES, Tags

Id = str
TypeName = Annotated[str, Field(json_schema_extra={TYPES: True})]
KnownType = Annotated[str, Field(json_schema_extra={TYPES: False})]
Content = Annotated[str, Field(description="A few sentences.")]
Confidence = Annotated[float | None, Field(ge=0, le=1)]
Again = Annotated[float | None, WithJsonSchema({"type": "number"}), Field(ge=0, le=1)]
Context = Annotated[dict[str, Any] | None, WithJsonSchema({"type": "object"})]
Metadata = Context
Owner = Annotated[str | None, Field(description="Who handles it.")]
# With bool, true stays what it is and is refused by the bus; without, it would be a second.
Lasting = Annotated[
    int | str | bool | None, WithJsonSchema({"type": "string"}), Field(description='As "2h", "7d", "never".')
]
Seconds = Annotated[int | str | bool, WithJsonSchema({"type": "integer"}), Field(description="Seconds.")]
When = Annotated[AwareDatetime | None, WithJsonSchema({"type": "string", "format": "date-time"})]
Trigger = Annotated[Object | None, Field(description="Due on an event: type, status, tags.")]
Blockers = Annotated[list[str] | None, Field(description="Ids: not active until these are closed.")]
Every = Annotated[str | None, Field(description='Recurs: "1h", or cron in UTC.')]
Reason = str | None
Fence = int | None
Times = Annotated[int, WithJsonSchema({"type": "integer"}), Field(ge=1)]


class NewItem(BaseModel):
    """An observation of a batch."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: TypeName
    content: Content
    status: str | None = None
    confidence: Confidence = None
    tags: Tags = None
    owner: Owner = None
    ttl: Lasting = None
    expires_at: When = None
    remind_at: When = None
    remind_on: Trigger = None
    context: Context = None
    metadata: Metadata = None
    dedupe_key: str | None = None
    times: Times = 1
    evidence: list[str] | None = None
    blocked_by: Blockers = None
    not_before: When = None
    every: Every = None
