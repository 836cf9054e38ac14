"""The HTTP interface: the API under /api/v1, the console at /, and MCP at /mcp."""
