"""A server of ours in a thread of its own, over a real service and on a real socket."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from fastapi import FastAPI

from memtui.channels.http.app import Served
from memtui.channels.http.facts import facts_app
from memtui.channels.http.plugin import plugin_app
from memtui.channels.listening import on_port
from memtui.config import find_paths, load_settings
from memtui.service import Caller, MemoryService, open_service
from tests.serving import make_server

ANA = Caller(company_id="local", principal="user:ana", channel="test")
MakeApp = Callable[[MemoryService, frozenset[str] | None], Awaitable[FastAPI]]
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

    async def app(service: MemoryService, names: frozenset[str] | None) -> FastAPI:
        await service.bindings.add(ANA, "served", provider, config)
        return await plugin_app(Served(service, "local"), "served", names=names)

    with _serving(home, app, database_url) as url:
        yield url


@contextmanager
def facts_over(home: Path, provider: str, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Serve the facts of a new binding of a provider; gives the address and Ana's token."""

    async def app(service: MemoryService, names: frozenset[str] | None) -> FastAPI:
        await service.bindings.add(ANA, "served", provider, config)
        await service.bindings.set_target(ANA, "company", "local", "served")
        tokens.append((await service.tokens.add(ANA, "ana", "user:ana")).token)
        return facts_app(Served(service, "local"), names=names)

    tokens: list[str] = []
    with _serving(home, app) as url:
        yield url, tokens[0]


def empty(home: Path) -> None:
    """Take away what the served binding of a home holds, behind the server's back."""
    folder = home / "bindings" / "local" / "served"
    for found in (folder / "vault").glob("[!.]*"):
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    if (folder / "facts.sqlite3").exists():
        with closing(sqlite3.connect(folder / "facts.sqlite3")) as facts, facts:
            for table in ("user_memories", "drive_memories"):
                facts.execute(f"DELETE FROM {table}")


@contextmanager
def _serving(home: Path, make: MakeApp, database_url: str = "") -> Iterator[str]:
    """Serve an app over a service of its own, in a thread of its own."""
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
        with on_port("127.0.0.1", 0) as listener:
            server = make_server(await make(service, listener.names))
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
