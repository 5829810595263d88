"""Folders as agents' programs leave them, and what editors and others make of their files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from memtui.backends.basic_memory import BasicMemoryAdapter
from memtui.backends.claude_memory import ClaudeMemoryAdapter
from memtui.backends.codex_memory import CodexMemoryAdapter
from memtui.backends.gemini import GeminiAdapter
from memtui.backends.hermes import HermesAdapter
from memtui.backends.instructions import InstructionsAdapter
from memtui.backends.letta import LettaAdapter
from memtui.backends.mcp_memory import McpMemoryAdapter
from memtui.backends.memsearch import MemsearchAdapter
from memtui.backends.openclaw import OpenclawAdapter
from memtui.contract import Json
from memtui.provider_kit.files.adapter import FilesAdapter


class Kept(NamedTuple):
    """What a program keeps: its files by name, and how one of their entries is written."""

    kind: type[FilesAdapter[Any]]
    files: dict[str, str]
    main: str
    """The file that has several entries, or one of those with a single one."""
    entry: str
    """An entry with the text `{}`, as the program adds one to the main file."""
    config: Json = {}
    inside: str = "memory"
    """The name of the folder."""
    is_committed: bool = False


_LETTA = {
    "system/human.md": "---\ndescription: Of Ana\n---\nAna walks.\nEach day.\n",
    "reference/tea.md": "---\ndescription: Of tea\nread_only: true\n---\n\nTea at four.\n",
    "reference/bare.md": "Nothing above.",
}
_GEMINI = "# Memory\n\n- Ana walks.\n- Tea at four.\n  Or at five.\n\nA kettle is red.\n"
KEPT: dict[str, Kept] = {
    "hermes": Kept(
        HermesAdapter,
        {"MEMORY.md": "Ana walks.\n§\nTea at four.\nOr at five.\n§\nThe kettle is red.",
         "USER.md": "Ana likes tea."},
        "MEMORY.md", "\n§\n{}", {"memory_chars": 10_000_000},
    ),
    "gemini": Kept(
        GeminiAdapter, {"MEMORY.md": _GEMINI, "notes.md": "Notes stand here.\n"}, "MEMORY.md",
        "- {}\n",
    ),
    "gemini's global file": Kept(
        GeminiAdapter,
        {"GEMINI.md": "# Mine\n\nBe kind.\n\n## Gemini Added Memories\n- Ana walks.\n- Tea.\n"},
        "GEMINI.md", "- {}\n", inside=".gemini",
    ),
    "openclaw": Kept(
        OpenclawAdapter,
        {"MEMORY.md": "# Memory\n\n- Ana walks. <!-- importance: 5 -->\n- Tea at four.\n  Or five."
         "\n\nThe kettle is red.\n",
         "memory/2026-01-02.md": "# 2026-01-02\n\n- It rained.\n"},
        "MEMORY.md", "- {}\n", {"settle_ms": 0},
    ),
    "basic-memory": Kept(
        BasicMemoryAdapter,
        {"a.md": "---\ntitle: A\n---\n\n# A\n\n- [fact] Ana walks #ana (Berlin)\n- [tea] At four\n"
         "- likes [[Tea]]\nProse.\n"},
        "a.md", "- [note] {}\n",
    ),
    "memsearch": Kept(
        MemsearchAdapter,
        {"2026-02-09.md": "# 2026-02-09\n\n## Session 10:00\n\n### 10:00\n"
         "<!-- session:s turn:t1 transcript:/x.jsonl -->\n- Ana walks.\n- Each day.\n\n"
         "### 10:05\n<!-- session:s turn:t2 -->\n- Tea at four.\n"},
        "2026-02-09.md", "\n### 10:10\n{}\n",
    ),
    "codex-memory": Kept(
        CodexMemoryAdapter,
        {"memory_summary.md": "v1\n\n## Preferences\n- Small commits.\n",
         "MEMORY.md": "# Task Group: app\n\n## Task 1\n- Ana walks.\n\n### keywords\n- ana, walks\n"
         "\n## Task 2\n- Tea at four.\n",
         "raw_memories.md": "# Raw\n\n## Thread `t1`\nupdated_at: 2026-01-01\n\nIt ran.\n",
         "extensions/ad_hoc/notes/2026-01-01T00-00-00-a.md": "The kettle is red.\n"},
        "MEMORY.md", "\n## {}\n",
    ),
    "instructions": Kept(
        InstructionsAdapter,
        {"CLAUDE.md": "Read this.\n\n# Web\n\nBe kind.\n\n## Tests\n\n- Run pytest.\n",
         "AGENTS.md": "# All\n\nUse tabs.\n", "sub/CLAUDE.md": "# Sub\nOnly here.\n"},
        "CLAUDE.md", "\n# More\n{}\n",
    ),
    "claude-memory": Kept(
        ClaudeMemoryAdapter,
        {"MEMORY.md": "# Index\n\n- [Ana](user_ana.md) — Ana walks.\n- [Tea](tea.md) — tea\n\n"
         "## Own\n\nThe kettle is red.\n",
         "user_ana.md": "---\nname: Ana\ndescription: Ana walks.\ntype: user\n---\n\nAna walks.\n",
         "tea.md": "Tea at four.\nOr at five.\n"},
        "MEMORY.md", "\n## More\n\n{}\n",
    ),
    "letta": Kept(LettaAdapter, _LETTA, "system/human.md", "{}\n"),
    "letta under git": Kept(LettaAdapter, _LETTA, "system/human.md", "{}\n", is_committed=True),
    "mcp-memory": Kept(
        McpMemoryAdapter,
        {"memory.jsonl": '{"type":"entity","name":"Ana","entityType":"person","observations":'
         '["walks","likes tea"]}\n{"type":"relation","from":"Ana","to":"Tea","relationType":"likes"'
         '}\n'},
        "memory.jsonl",
        '{{"type":"entity","name":"Other","entityType":"x","observations":["{}"]}}\n',
        {"settle_ms": 0},
    ),
}  # fmt: skip


def _mixed(content: bytes) -> bytes:
    lines = content.split(b"\n")
    return (
        b"".join(line + (b"\r\n" if at % 2 else b"\n") for at, line in enumerate(lines[:-1]))
        + (lines[-1])
    )


def _with_entry(kept: Kept, text: str) -> Callable[[bytes], bytes]:
    return lambda content: content + kept.entry.format(text).encode()


ODD: dict[str, Callable[[Kept], Callable[[bytes], bytes]]] = {
    "as it is": lambda _: lambda content: content,
    "line ends of Windows": lambda _: lambda content: content.replace(b"\n", b"\r\n"),
    "mixed line ends": lambda _: _mixed,
    "lone carriage returns": lambda _: lambda content: content.replace(b" ", b" \r", 3),
    "a byte order mark": lambda _: lambda content: b"\xef\xbb\xbf" + content,
    "a mark and line ends of Windows": (
        lambda _: lambda content: b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    ),
    "no last line end": lambda _: lambda content: content.rstrip(b"\n"),
    "many last line ends": lambda _: lambda content: content + b"\n \n\n",
    "other line separators": (
        lambda kept: _with_entry(kept, "one\ftwo\u2028three\u2029four\x85five\x1csix\vseven")
    ),
    "a NUL": lambda kept: _with_entry(kept, "one\0two"),
    "what is not UTF-8": lambda kept: lambda content: (
        content + kept.entry.format("caf").encode() + b"\xe9\n"
    ),
    "marks in code": lambda kept: _with_entry(
        kept,
        "code:\n\n```sh\n# no heading\n\u00a7\n- no item\n### 10:00\n<!-- turn:x -->\n---\n```\n"
        if "json" not in kept.main
        else "# no heading \u00a7",
    ),
    "a fence that nobody closes": lambda kept: _with_entry(kept, "open\n\n```\n# no heading")
    if "json" not in kept.main
    else _with_entry(kept, "```"),
    "equal entries": lambda kept: lambda content: (
        content + kept.entry.format("Twice.").encode() * 3
    ),
    "equal whole files": lambda _: lambda content: content + content,
    "spaces at the ends of lines": lambda _: lambda content: content.replace(b"\n", b" \t\n"),
    "nothing": lambda _: lambda _content: b"",
    "blanks": lambda _: lambda _content: b" \n\t\n",
    "blanks and Windows": lambda _: lambda _content: b"\r\n\r\n",
    "only a mark": lambda _: lambda _content: b"\xef\xbb\xbf",
}  # fmt: skip


def made(kept: Kept, folder: Path, odd: Callable[[bytes], bytes]) -> Path:
    """Make the files of a program in a folder, each changed; return what a binding opens."""
    for name, text in kept.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(odd(text.encode()))
        path.chmod(0o640)
    if kept.is_committed:
        commit(folder)
    return folder / kept.main if kept.kind.holds == "file" else folder


def commit(folder: Path) -> None:
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "core.autocrlf=false",
             *words], cwd=folder, check=True,
        )  # fmt: skip
