"""Run the command line: in this process over a provider in memory, or as a real process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memtui import service
from memtui.channels.cli.main import run
from memtui.config import Paths, find_paths, load_settings
from memtui.service import Caller, open_service
from memtui.service.runtime import SETUP_CHANNEL
from memtui.store import bindings
from memtui.store.database import Database
from memtui.store.rows import CompanyRow
from tests.analytics.logs import fill
from tests.service.fake import FakeAdapter


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Stream(io.TextIOWrapper):
    """A text stream in memory that may pass for a terminal."""

    terminal = False

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", newline="\n")

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8")


class Terminal(Stream):
    terminal = True


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's own empty home folder, so that discovery finds nothing of this machine."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def home(new_paths: Paths, begun: Path) -> Path:
    """A home with its first company."""
    return Path(shutil.copytree(begun, new_paths.data))


@pytest.fixture
def empty_home(home: Path, empty_database: Path) -> Path:
    """The same home without a company."""
    shutil.rmtree(home)
    paths = find_paths(home)
    paths.create()
    shutil.copy(empty_database, paths.database)
    return home


@pytest.fixture
def fake(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeAdapter]]:
    """The company `local` with the provider in memory behind the binding `default`."""
    FakeAdapter.reset()
    opener = partial(open_service, providers={"fake": FakeAdapter})
    monkeypatch.setattr(service, "open_service", opener)
    asyncio.run(_prepare(empty_home))
    yield FakeAdapter
    FakeAdapter.reset()


async def _prepare(home: Path) -> None:
    paths = find_paths(home)
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    opened = await open_service(
        paths, load_settings(paths), providers={"fake": FakeAdapter}, first_company=False
    )
    setup = caller.model_copy(update={"channel": SETUP_CHANNEL})
    await opened.companies.add(setup, "Local", link_templates={"run": "https://x.test/r/{run_id}"})
    await opened.bindings.add(setup, "default", "fake", {})
    await opened.bindings.set_target(setup, "company", "local", "default")
    await opened.close()


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process. `terminal` makes all three streams terminals."""

    def invoke(
        *arguments: str, stdin: bytes = b"", terminal: bool = False, **environment: str
    ) -> Ran:
        kind = Terminal if terminal else Stream
        streams = kind(stdin), kind(), kind()
        with monkeypatch.context() as patched:
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patched.setattr(sys, name, stream)
            for variable, value in environment.items():
                patched.setenv(variable, value)
            try:
                code = run(["--home", str(home), *arguments])
            except SystemExit as ended:  # as of what a shell asks to complete
                code = int(ended.code or 0)
        return Ran(code, streams[1].text(), streams[2].text())

    return invoke


@pytest.fixture
def empty_log(empty_home: Path) -> Iterator[Database]:
    """The database of a home in which nothing happened: the companies `acme` and `other`."""
    database = Database.open(empty_home / "memtui.db")
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    with database.write() as connection:
        for name in ("acme", "other"):
            row = CompanyRow(company_id=name, name=name, link_templates={}, created_at=moment)
            bindings.add_company(connection, row)
            moment += timedelta(days=1)
    yield database
    database.close()


@pytest.fixture
def logged(empty_log: Database) -> Database:
    """The same with 60 operations of `acme` and 5 of `other`."""
    fill(empty_log, 60)
    fill(empty_log, 5, "other")
    return empty_log


@pytest.fixture
def memtui(home: Path) -> Run:
    """Run the command line as a process of its own."""

    def invoke(*arguments: str | bytes, stdin: bytes = b"", **environment: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "memtui", *arguments],
            input=stdin,
            capture_output=True,
            env=os.environ | {"MEMTUI_HOME": str(home), **environment},
            check=False,
            timeout=60,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return invoke


HOSTILE = (
    "\x1b]0;title\x07 \x1b[2J \x1b]52;c;aGk=\x07 \x9b31m \u202e evil \x00 [$error] [/a "
    "[/tmp/x] \x7f \u2066 a\u0301\u0301\u0301\u0301\u0301\u0301\u0301 \ue000"
)
"""Escapes (title, clear, clipboard), C1, bidi, NUL, markup, DEL, a combining flood."""


def assert_harmless(text: str) -> None:
    """Fail if a terminal would obey anything in `text` but newlines and zero-width joiners."""
    kept = "\n\u200c\u200d"
    obeyed = [
        char
        for char in text
        if char not in kept and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]
    assert obeyed == []
