"""The config of a binding to an MCP server, and the client that it makes."""

import os
import shlex
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator

from memtui.backends.mcp.client import HttpChannel, StdioChannel, ToolClient
from memtui.contract import BindingContext, Invalid
from memtui.provider_kit import need_secret
from memtui.provider_kit.server_provider import ServerConfig

_INHERITED = ("PATH", "HOME", "LANG")


def _absolute(mapping: str) -> str:
    is_file = "/" in mapping or mapping.endswith(".toml")
    if is_file and not os.path.isabs(os.path.expanduser(mapping)):  # noqa: PTH111, PTH117
        raise ValueError("give an absolute path")
    return mapping


class McpConfig(ServerConfig):
    """A memory server that speaks MCP: a command that starts it, or the URL of one that runs.

    Set `command` or `url`, and the `mapping` of its tools.
    """

    url: str = ""
    """The address of its streamable HTTP, such as `http://127.0.0.1:8000/mcp`."""
    command: str = ""
    """The program and its arguments, as in a shell, but without one: no variables, no pipes."""
    mapping: Annotated[str, AfterValidator(_absolute)] = ""
    """The name of a mapping of memtui, or the path of a TOML file; unset: the one that fits is
    named, and nothing is opened."""
    env: dict[str, str] = {}
    """Environment variables of the command, beside PATH, HOME and LANG."""
    env_secrets: dict[str, str] = {}
    """Environment variables of the command by the names of the secrets that they get."""
    arguments: dict[str, Any] = {}
    """The values of the mapping's own placeholders, such as a user or a bank."""

    def words(self) -> list[str]:
        """Return the program and its arguments. Raises `Invalid`."""
        try:
            return shlex.split(self.command)
        except ValueError as error:
            raise Invalid(
                "The command has a quote without its end; write it as in a shell."
            ) from error

    def command_line(self) -> str:
        """Return the command for a person, with its variables and the names of its secrets."""
        variables = [f"{name}={value}" for name, value in self.env.items()]
        variables += [f"{name}=<{secret}>" for name, secret in self.env_secrets.items()]
        return shlex.join([*variables, *self.words()])

    def tool_client(
        self, who: str, context: BindingContext, headers: Mapping[str, str]
    ) -> ToolClient:
        """Return the client of the server; nothing is started or sent yet. Raises `Invalid`."""
        if self.url:
            parts = urlsplit(self.url)
            host = self.model_copy(update={"url": f"{parts.scheme}://{parts.netloc}"})
            api = host.client(who, headers)
            return ToolClient(who, HttpChannel(who, api, parts.path or "/"))
        own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        secrets = {
            name: need_secret(context, secret, f"the {name} of {context.binding_key}")
            for name, secret in self.env_secrets.items()
        }
        channel = StdioChannel(
            who,
            self.words(),
            {**own, **self.env, **secrets},
            seconds=self.timeout_seconds,
            most_bytes=int(self.max_body_mb * 1_000_000),
            redact=context.redact,
        )
        return ToolClient(who, channel)
