"""mem0's own library over a store on this machine, where `mem0ai` is installed."""

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from memtui.backends.mem0.config import Mem0Config
from memtui.backends.mem0.memories import Mem0Draft, Mem0Memory, MemoryPage, read_memories
from memtui.backends.mem0.stores import (
    ANY,
    Added,
    OpenStore,
    first_metadata,
    messages,
    open_metadata,
    read_added,
)
from memtui.contract import Invalid, Json, MemtuiError, Unavailable, place_of_path, place_of_url
from memtui.provider_kit import is_uuid
from memtui.provider_kit.derived import scrub

T = TypeVar("T")

_IDLE_SECONDS = 2.0
"""Seconds after a call until the store is closed: only one process can open a store of files."""
_LOCAL_STORES = {"qdrant": "/tmp/qdrant", "faiss": None, "chroma": "db"}  # noqa: S108 - mem0's own
"""The vector stores that are folders, and mem0's default paths."""
_OLDEST = (2, 2)
"""Versions before 2 empty the folder of a store that is not configured as on disk."""
_PARTS = (
    ("vector_store", "vector_stores", "qdrant"),
    ("embedder", "embeddings", "openai"),
    ("llm", "llms", "openai"),
)
"""Parts of a config, the packages of the library that contain them, and their defaults."""
_ERROR_CHARS = 200
_KEPT_TEXTS = """
SELECT old_memory FROM history WHERE memory_id IN (SELECT value FROM json_each(?))
UNION SELECT new_memory FROM history WHERE memory_id IN (SELECT value FROM json_each(?))
"""
_ERASE = "DELETE FROM history WHERE memory_id IN (SELECT value FROM json_each(?))"


def read_library_config(path: Path) -> Json:
    """Return the config in a file, for `Mem0Memory.from_config`. Blocking.

    Raises:
        Invalid: the file cannot be read, or is no config.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise Invalid(f"mem0's config {path} cannot be read ({why}); set library.") from error
    try:
        if path.suffix in {".yaml", ".yml"}:
            import yaml

            config = yaml.safe_load(text)
        else:
            config = json.loads(text)
    except (ValueError, RecursionError, _yaml_error()) as error:
        raise Invalid(f"mem0's config {path} is neither JSON nor YAML: {_short(error)}.") from error
    if not isinstance(config, dict):
        raise Invalid(f"mem0's config {path} must be an object with vector_store and embedder.")
    store = config.setdefault("vector_store", {})
    if not isinstance(store, dict) or not isinstance(store.setdefault("config", {}), dict):
        raise Invalid(f"The vector_store of mem0's config {path} must be an object with a config.")
    return config


def _yaml_error() -> type[Exception]:
    import yaml

    return yaml.YAMLError


def places_of(config: Json) -> list[tuple[str, ...]]:
    """Return where a library stores its memories: a folder or a server, and the collection."""
    store = config["vector_store"]
    provider, own = store.get("provider", "qdrant"), store["config"]
    collection = str(own.get("collection_name", "mem0"))
    address = own.get("url") or own.get("connection_string") or own.get("uri")
    if address is None and own.get("host"):
        address = f"{provider}://{own['host']}:{own.get('port', '')}".rstrip(":")
    if address is not None and "://" in str(address):
        return [(*place_of_url(str(address)), collection)]
    folder = address or own.get("path") or _LOCAL_STORES.get(provider)
    return [(*place_of_path(Path(str(folder))), collection)] if folder else []


class LibraryStore(OpenStore):
    """The library in a thread, one call at a time; it is closed while idle."""

    def __init__(self, config: Mem0Config, library: Json) -> None:
        self.api = config.client("mem0's library", {})
        self._config = library
        self._memory: Any = None
        self._turn = threading.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Close the store."""
        self._stay_awake()
        await asyncio.to_thread(self._let_go)

    async def add(self, draft: Mem0Draft, *, infer: bool) -> Added:
        """Store a text."""
        content: Json = {"messages": messages(draft.text), "metadata": first_metadata(draft)}

        def work(memory: Any) -> Any:
            return memory.add(**content, **draft.owners, infer=infer)

        return read_added(await self._call(work, changes=True))

    async def search_in(self, owner: str, query: str, asked: Json) -> MemoryPage:
        """Search."""
        whole = {"filters": {owner: ANY}, **asked}
        return await self._call(lambda memory: read_memories(memory.search(query, **whole)))

    async def list_in(self, owner: str, top_k: int) -> MemoryPage:
        """List, expired memories included."""
        asked: Json = {"filters": {owner: ANY}, "top_k": top_k, "show_expired": True}
        return await self._call(lambda memory: read_memories(memory.get_all(**asked)))

    async def get(self, memory_id: str) -> Mem0Memory | None:
        """Return one memory."""
        row = await self._call(lambda memory: memory.get(memory_id))
        return None if row is None else next(iter(read_memories([row]).items), None)

    async def update(self, memory_id: str, text: str, metadata: Json, expires: date | None) -> None:
        """Change a memory; the given metadata is merged into the existing one."""
        whole = open_metadata(metadata, expires)
        await self._call(lambda m: m.update(memory_id, text=text, metadata=whole), changes=True)

    async def drop(self, memory_id: str) -> None:
        """Delete a memory."""
        await self._call(lambda memory: memory.delete(memory_id), changes=True)

    async def history(self, memory_id: str) -> Any:
        """Return the rows of a memory's history."""
        return await self._call(lambda memory: memory.history(memory_id))

    async def check(self) -> str:
        """Open the store."""
        version = await self._call(lambda _memory: _library().__version__)
        return f"mem0's library {version} has the store open."

    async def erase(self, memory_ids: Sequence[str], *, apply: bool) -> Sequence[str] | None:
        """Erase from the history file, which keeps the texts of deleted memories."""
        named = [one for one in memory_ids if is_uuid(one)]

        def work(memory: Any) -> list[str]:
            gone = [one for one in named if memory.get(one) is None]
            return _erased(Path(memory.config.history_db_path), gone, apply=apply)

        return await self._call(work, changes=apply) if named else ()

    async def _call(self, work: Callable[[Any], T], *, changes: bool = False) -> T:
        self._stay_awake()
        try:
            return await asyncio.to_thread(self._run, work, changes=changes)
        finally:
            self._stay_awake()
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(_IDLE_SECONDS, loop.run_in_executor, None, self._let_go)

    def _stay_awake(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _run(self, work: Callable[[Any], T], *, changes: bool) -> T:
        with self._turn:
            if self._memory is None:
                self._memory = _opened(self._config)
            try:
                return work(self._memory)
            except Exception as error:
                raise _refusal(error, changes=changes) from error

    def _let_go(self) -> None:
        with self._turn:
            memory, self._memory = self._memory, None
            if memory is None:
                return
            with ExitStack() as parts:  # closes each part even if closing another one fails
                for part in (memory.vector_store, memory.embedding_model, memory.llm):
                    client = getattr(part, "client", None)
                    if client is not None and hasattr(client, "close"):
                        parts.callback(client.close)
                parts.callback(memory.close)


def _library() -> Any:
    """Import mem0, with its telemetry off, which must be set before the import."""
    os.environ.setdefault("MEM0_TELEMETRY", "False")
    try:
        import mem0
    except ImportError as error:
        raise Invalid(
            "mem0's library is not installed here; install memtui[mem0], or run mem0's server and "
            "set url."
        ) from error
    if _number(mem0.__version__) < _OLDEST:
        raise Invalid(
            f"mem0's library is {mem0.__version__} here, and memtui needs "
            f"{'.'.join(map(str, _OLDEST))} or newer; install memtui[mem0]."
        )
    return mem0


def import_parts(config: Json) -> None:
    """Import the library and the parts that a config names, which takes seconds. Blocking.

    Raises:
        Invalid: the library is not installed, or too old.
    """
    _library()
    for part, package, usual in _PARTS:
        named = config.get(part)
        provider = named.get("provider", usual) if isinstance(named, dict) else usual
        module = f"mem0.{package}.{provider}"
        # The first call reports a missing or broken part, in mem0's own words.
        if str(provider).isidentifier() and find_spec(module) is not None:
            with suppress(Exception):
                import_module(module)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _opened(config: Json) -> Any:
    """Open the store. Raises `Invalid`, `Unavailable`."""
    library = _library()
    try:
        return library.Memory.from_config(config)
    except Exception as error:
        raise _refusal(error, changes=False) from error


def _erased(history: Path, memory_ids: list[str], *, apply: bool) -> list[str]:
    """Return the texts of memories in a history file, and erase them if `apply`."""
    named = json.dumps(memory_ids)
    with closing(sqlite3.connect(history)) as database:
        rows = database.execute(_KEPT_TEXTS, (named, named)).fetchall()
        if apply and rows:
            database.execute(_ERASE, (named,))
            database.commit()
            scrub(database)
    return [text for (text,) in rows if text]


def _refusal(error: Exception, *, changes: bool) -> MemtuiError:
    """Translate an error of the library, or of a package it uses, to the contract's."""
    if isinstance(error, MemtuiError):
        return error
    said = _short(error)
    if "already accessed by another instance" in said:
        return Unavailable(
            "Another program, or another binding, has mem0's store open, and a store of files can "
            "be open only once; try again when it is closed, or let both use a server."
        )
    if isinstance(error, ImportError):
        return Invalid(f"mem0's library lacks a package that its config needs: {said}.")
    if isinstance(error, ValueError):  # includes the validation errors of pydantic and mem0
        return Invalid(f"mem0's library refused the request: {said}.")
    return Unavailable(
        f"mem0's library failed ({type(error).__name__}: {said}); check that its store, its "
        "embedder and its model can be reached.",
        sent=changes,
    )


def _short(error: Exception) -> str:
    said = str(error)
    if isinstance(error, ValidationError):  # its text would quote the config, with API keys
        found = error.errors(include_input=False, include_context=False, include_url=False)
        said = "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in found)
    return " ".join(said.split())[:_ERROR_CHARS].rstrip(".")
