"""An agent: the official MCP client over stdio, which says what it did as it is told to.

Each line of its input is a tool and its arguments as JSON, and each line of its output the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def work(home: str) -> None:
    named = ["--agent", "coding", "--project", "apollo"]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "memtui", "mcp", *named, "--allow-destructive"],
        env={**os.environ, "MEMTUI_HOME": home, "MEMTUI_PRINCIPAL": "user:ana"},
    )
    async with Client(stdio_client(server)) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer
            sys.stdout.write(json.dumps(answer.structured_content) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
