"""`memtui mcp wrap`: stands between an agent and an MCP server, and logs what passes."""
