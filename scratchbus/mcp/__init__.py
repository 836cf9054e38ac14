"""The MCP server: the bus as tools and resources for agents, over stdio or HTTP."""
