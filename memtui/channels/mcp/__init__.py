"""The MCP server: what agents are told, and what they write."""
