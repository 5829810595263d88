"""A server that dies in the middle of a write: the outcome is unknown, is found, and is undone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.backends.plugin_v1.servers.loopback import Answer, Request, serve, talk
from tests.backends.plugin_v1.servers.minimal import Minimal
from tests.channels.cli.conftest import Run
from tests.processes import prepared_processes


class Kept(Minimal):
    """Its rows stand in a file; where told so it is killed once a write is in there."""

    def __init__(self, file: Path, *, dies: bool) -> None:
        super().__init__("namespace")
        self._file, self._dies = file, dies
        self.rows = json.loads(file.read_text()) if file.exists() else []

    def __call__(self, request: Request) -> Answer:
        answer = super().__call__(request)
        self._file.write_text(json.dumps(self.rows))
        if self._dies and request.method == "POST" and request.parts[-1] == "memories":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def _serve(file: Path, port: int, said: Connection, *, dies: bool) -> None:
    async def forever() -> None:
        async with serve(talk(Kept(file, dies=dies)), port=port) as url:
            said.send(url)
            await asyncio.Event().wait()

    asyncio.run(forever())


@contextmanager
def server(file: Path, port: int = 0, *, dies: bool = False) -> Iterator[str]:
    """Serve in a process of its own; gives the address."""
    context = prepared_processes()
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(file, port, there), kwargs={"dies": dies})
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_a_write(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    note = ("note", "Deploys go out on Tuesdays", "--project", "web", "--binding", "p")
    with server(file, dies=True) as url:
        port = int(url.rpartition(":")[2])
        assert (
            here("bindings", "add", "p", "plugin-v1", "--config", json.dumps({"url": url})).code
            == 0
        )
        done = here(*note, "--json")
    error: dict[str, Any] = done.document["error"]
    assert (done.code, error["kind"], error["outcome"]) == (3, "unavailable", "unknown")
    assert "Outcome unknown" in error["message"]
    assert f"memtui ops check {error['operation_id']}" in error["message"]
    assert "try again" not in error["message"]
    assert error["message"] in done.err

    operation_id = error["operation_id"]
    shown = here("ops", "show", operation_id, "--json").document
    assert (shown["status"], shown["error_kind"]) == ("unknown", "unavailable")
    assert shown["found"] is None
    listed = here("ops", "list", "--status", "unknown")
    assert shown["error_message"] in listed.out
    assert here("undo").code == 2
    with server(file, port):
        found = here("ops", "check", operation_id, "--json").document
        assert found["happened"] is True
        check = here("ops", "show", found["check_id"], "--json").document
        assert (check["operation_type"], check["status"]) == ("check", "ok")
        shown = here("ops", "show", operation_id, "--json").document
        assert shown["found"]["check_id"] == found["check_id"]
        assert shown["changes"][0]["after"]["text"] == "Deploys go out on Tuesdays"
        for shows in (("ops", "show", operation_id), ("ops", "list", "--status", "unknown")):
            assert found["sentence"] in here(*shows).out
        listed = here("ops", "list", "--status", "unknown", "--json").document
        assert listed["found"][operation_id]["check_id"] == found["check_id"]
        assert here("undo", "--json").document["undoes"] == operation_id
    assert json.loads(file.read_text()) == []
