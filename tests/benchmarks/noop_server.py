"""An MCP server with one tool that does nothing: the cost of the protocol with the SDK."""

from mcp.server import MCPServer

server = MCPServer("noop")


@server.tool()
async def noop(text: str = "") -> str:
    """Do nothing."""
    return text[:2]


if __name__ == "__main__":
    server.run("stdio")
