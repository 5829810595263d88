"""Puts a client's MCP server behind `memtui mcp wrap`, and restores its entry to the byte.

The new entry contains the old one, in an environment variable. So there is no other file to keep,
and the rest of the configuration may change meanwhile.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memtui.channels.clients import FileChange, form_of, read, unchanged
from memtui.channels.mcp.clients import CLIENTS, NAME, McpClient, servers
from memtui.contract import Conflict, Invalid, Json, NotFound
from memtui.mcp_mapping import bundled_mappings
from memtui.service.operations.redaction import redact

ORIGINAL = "WRAPPED_BY_MEMTUI"
_HEADER = "WRAPPED_HEADER_"
_URLS = "url", "httpUrl", "serverUrl"
_HEADERS = "headers", "http_headers"
_OF_COMMAND = {"command", "args", "env"}
_OTHERS_AUTH = {"bearer_token_env_var", "env_http_headers", "oauth", "authProviderType"}
"""Ways to prove who one is that only the client itself knows."""
_MEMORIES = ("mem", "hindsight", "letta", "zep", "graphiti", "cognee", "remember", "recall")
"""Parts of the names of servers that keep memories."""


def wrapped(client: McpClient, path: Path, name: str, command: Sequence[str]) -> FileChange:
    """Return the change that puts a client's server behind a command of `memtui mcp wrap`.

    Raises:
        NotFound: the client has no such server.
        Invalid: the file cannot be read or edited, or the server is reached in another way.
    """
    entry = _entry(client, path, name)
    if _original(entry) is not None:
        return unchanged(path)
    before = read(path) or b""
    text, form, place = before.decode(), form_of(path), (client.holder, name)
    begin, end = form.written(text, place)
    new = _behind(name, entry, text[begin:end], command, client)
    after = form.replaced(text, place, new).encode()
    return _checked(client, FileChange(path, before, after), name, new)


def taken_back(client: McpClient, path: Path, name: str) -> FileChange:
    """Return the change that takes a client's server back as it was.

    Raises:
        NotFound: the client has no such server, or it is not wrapped.
        Invalid: the file cannot be read or edited.
        Conflict: somebody changed the entry since, which would be lost.
    """
    entry = _entry(client, path, name)
    raw = _original(entry)
    if raw is None:
        raise NotFound(f"{client.name}'s server {name} is not behind memtui in {path}.")
    before = read(path) or b""
    text, form = before.decode(), form_of(path)
    begin, end = form.written(text, (client.holder, name))
    change = FileChange(path, before, (text[:begin] + raw + text[end:]).encode())
    was = form.load(path, change.after).get(client.holder, {}).get(name)
    if not isinstance(was, dict):
        raise Invalid(f"{path} is written in a way that memtui cannot edit; do it by hand.")
    if _own(_behind(name, was, raw, ["memtui"], client)) != _own(entry):
        raise Conflict(
            f"The entry {name} in {path} was changed since it was wrapped. The variable {ORIGINAL} "
            "in it has the entry as it was; take it back by hand."
        )
    return _checked(client, change, name, was)


def servers_past(client: McpClient, home: Path) -> dict[str, list[str]]:
    """Return the names of a client's memory servers, wrapped ones and those that go past memtui."""
    found: dict[str, list[str]] = {"wrapped": [], "past_memtui": []}
    for name, entry in _memory_servers(client, home):
        found["past_memtui" if _original(entry) is None else "wrapped"].append(name)
    return found


def servers_to_bind(home: Path) -> list[Json]:
    """Return the memory servers that go past memtui, each with the command line that binds it.

    Secrets are masked in it. Values of variables and headers are left out: the names are given.
    """
    return [
        {"client": client.key, "server": name, "command": _binding_command(name, entry),
         "needs": [*_object(entry, "env"), *_headers(entry)]}
        for client in CLIENTS
        for name, entry in _memory_servers(client, home)
        if _original(entry) is None and (entry.get("command") or _url(entry))
    ]  # fmt: skip


def _binding_command(name: str, entry: Json) -> str:
    said = _words(name, entry)
    url = _url(entry)
    started = shlex.join(map(str, [entry.get("command") or "", *_args(entry)]))
    config = [f"url={url}" if url else f"command={started}"]
    config += [f"mapping={one}" for one in bundled_mappings() if one in said][:1]
    given = (word for one in config for word in ("--set", one))
    return redact(shlex.join(["memtui", "bindings", "add", name, "mcp", *given]))[0]


def _memory_servers(client: McpClient, home: Path) -> Iterator[tuple[str, Json]]:
    try:
        entries = servers(client, client.file(home))
    except Invalid:
        return
    for name, entry in entries.items():
        is_other = name != NAME and isinstance(entry, dict)
        said = _words(name, entry) if is_other else ""
        is_memory = any(one in said for one in (*_MEMORIES, *bundled_mappings()))
        if is_other and (is_memory or _original(entry) is not None):
            yield name, entry


def _words(name: str, entry: Json) -> str:
    """Return what an entry says of its server, in small letters."""
    words = [name, entry.get("command"), *(entry.get(one) for one in _URLS), *_args(entry)]
    return " ".join(map(str, words)).casefold()


def _object(entry: Json, name: str) -> Json:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _args(entry: Json) -> list[Any]:
    found = entry.get("args")
    return found if isinstance(found, list) else []


def _url(entry: Json) -> str | None:
    return next((entry[one] for one in _URLS if isinstance(entry.get(one), str)), None)


def _headers(entry: Json) -> Json:
    return {name: one for each in _HEADERS for name, one in _object(entry, each).items()}


def _entry(client: McpClient, path: Path, name: str) -> Json:
    found = servers(client, path)
    entry = found.get(name)
    if not isinstance(entry, dict):
        known = ", ".join(one for one in found if one != NAME) or "none"
        raise NotFound(f"{client.name} has no server {name} in {path}; it has: {known}.")
    return entry


def _original(entry: Json) -> str | None:
    raw = _object(entry, "env").get(ORIGINAL)
    return raw if isinstance(raw, str) else None


def _behind(name: str, entry: Json, raw: str, command: Sequence[str], client: McpClient) -> Json:
    """Return an entry that starts the wrap of one."""
    program, *words = command
    env = {**_object(entry, "env"), ORIGINAL: raw}
    if isinstance(entry.get("command"), str):
        args = [*words, "--", entry["command"], *_args(entry)]
        return {**entry, "command": program, "args": args, "env": env}
    url, why = _url(entry), f"its entry has no command and none of {', '.join(_URLS)}"
    if only_its := sorted(_OTHERS_AUTH & entry.keys()):
        url, why = None, f"what {only_its[0]} says only its client knows"
    if url is None:
        raise Invalid(
            f"memtui cannot wrap {name}: {why}. Wrap it by hand; `memtui mcp wrap --help` says how."
        )
    for header, value in _headers(entry).items():
        variable = f"{_HEADER}{len(env)}"
        env[variable] = value
        words += ["--header-secret", f"{header}={variable}"]
    gone = {*_URLS, *_HEADERS, "type"}
    kept = {key: value for key, value in entry.items() if key not in gone}
    return {**client.entry([program, *words, "--url", url]), **kept, "env": env}


def _own(entry: Json) -> Json:
    """Return what of a wrapped entry somebody may have changed."""
    env = {key: value for key, value in _object(entry, "env").items() if key != ORIGINAL}
    args = _args(entry)
    args = args[next((at for at, one in enumerate(args) if one in {"--", "--url"}), len(args)) :]
    return {**{key: one for key, one in entry.items() if key not in _OF_COMMAND}, "env": env,
            "args": args}  # fmt: skip


def _checked(client: McpClient, change: FileChange, name: str, entry: Json) -> FileChange:
    """Return the change if the file then says the same but for this entry."""
    form = form_of(change.path)
    wanted, said = form.load(change.path, change.before), form.load(change.path, change.after)
    wanted[client.holder][name] = entry
    if said != wanted:
        raise Invalid(f"{change.path} is written in a way that memtui cannot edit; do it by hand.")
    return change
