"""What each way of asking for a use case needs."""

from __future__ import annotations

import asyncio
import sys

import pytest

from memtui.channels.cli.main import run
from memtui.config import Paths, Settings
from tests.channels.cli.conftest import Stream
from tests.homes import service  # noqa: F401 - over the vault, not the folder's fake
from tests.service.usecases.ways import Command, Typed


@pytest.fixture
def command(paths: Paths, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Type a command in the home of `service`, as the same person."""
    monkeypatch.setenv("MEMTUI_PRINCIPAL", settings.principal)

    async def typed(*words: str) -> Typed:
        streams = Stream(), Stream(), Stream()
        with monkeypatch.context() as patched:
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patched.setattr(sys, name, stream)
            code = await asyncio.to_thread(run, ["--home", str(paths.data), *words])
        return Typed(code, streams[1].text(), streams[2].text())

    return typed
