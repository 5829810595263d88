"""The MCP server, through which agents search and write memories."""
