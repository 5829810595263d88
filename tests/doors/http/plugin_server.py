"""A memory plugin of ours in a thread of its own, over a real service and on a real socket."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from memtui.config import find_paths, load_settings
from memtui.doors.http.app import Served
from memtui.doors.http.listening import on_port
from memtui.doors.http.plugin_api import plugin_app
from memtui.doors.http.server import make_server
from memtui.service import Caller, MemoryService, open_service

ANA = Caller(company_id="local", principal="user:ana", door="test")
Provider = tuple[str, dict[str, Any]]
VAULT: Provider = ("vault", {})
FACTS: Provider = ("facts", {"max_chars": 10_000, "max_facts": 100_000})


@contextmanager
def plugin_over_postgres(home: Path, server: str) -> Iterator[str]:
    """Serve fact tables in one database of a PostgreSQL server, the control plane in another."""
    names = [f"plugin_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with psycopg.connect(server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
    own, facts = (server.replace("/postgres?", f"/{name}?") for name in names)
    config = {**FACTS[1], "url": facts, "create": True}
    with plugin_over(home, "facts", config, database_url=own) as url:
        yield url


@contextmanager
def plugin_over(
    home: Path, provider: str, config: dict[str, Any], *, database_url: str = ""
) -> Iterator[str]:
    """Serve a new binding of a provider until the block ends; gives the address."""
    ready, stop = threading.Event(), threading.Event()
    told: list[str | BaseException] = []

    async def run() -> None:
        paths = find_paths(home)
        service = await open_service(paths, load_settings(paths, database_url=database_url))
        try:
            await serve(service)
        finally:
            await service.close()

    async def serve(service: MemoryService) -> None:
        await service.add_binding(ANA, "served", provider, config)
        with on_port("127.0.0.1", 0) as listener:
            app = await plugin_app(Served(service, "local"), "served", names=listener.names)
            server = make_server(app)
            running = asyncio.create_task(server.serve(sockets=[listener.socket]))
            told.append(listener.url)
            ready.set()
            await asyncio.to_thread(stop.wait)
            server.should_exit = True
            await running

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - told to the test below
            told.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(60)
        address = told[0]
        if isinstance(address, BaseException):
            raise address
        yield address
    finally:
        stop.set()
        thread.join()
    assert told[1:] == []
