"""Connects to Milvus: a server or cluster by its address, or a file of Milvus Lite in this process.

By default, Milvus Lite listens on a TCP port that any user of this machine can reach; here it
listens on a socket in a private folder. Only one process at a time can open a file: it is released
two seconds after each use, and locked by the operating system, so that a killed process loses it.
"""

import contextlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from memtui.contract import Denied, Invalid, Json, MemtuiError, NotFound, Scope, Unavailable

from .expressions import one_of
from .naming import owner_of_collection
from .rows import DETAILS, SCHEMA, VECTOR, Row

MODEL = "memtui.embedding"
"""The property of a collection that memtui made: the name of the model of its vectors."""
_MADE = "memtui.made"
"""A property with a random word, which tells a collection from an earlier one of its name."""
_METRIC = "COSINE"
_IDLE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_KNOWN_SECONDS = 30.0
"""Seconds for which descriptions of a server's collections are cached."""
_BATCH = 1_000
_IDS_A_CALL = 500
_FLUSHED_AT = 250
"""Entries after which Milvus Lite is flushed: each unflushed one slows down every read."""
_MESSAGE_BYTES = 256 << 20
_SOCKET_CHARS = 90
_ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class Collection:
    """The description of a collection."""

    name: str
    owner: Scope
    fields: Mapping[str, int | None]
    """Its declared fields, with the most bytes of a text field."""
    dimensions: int | None
    """Dimensions of its vectors; None: it has none that memtui can use."""
    metric: str
    keeps_details: bool
    """Whether it has dynamic fields, for the details that the schema lacks."""
    is_loaded: bool
    model: str | None
    """The embedding model of its vectors; None: unknown, another program made the collection."""
    made: str = ""
    """Differs once the collection is dropped and created again; survives a re-index."""
    unfillable: tuple[str, ...] = ()
    """Required fields for which memtui has no value."""

    @property
    def lacks(self) -> list[str]:
        """The fields of the schema that it does not have."""
        return [name for name in (*SCHEMA, VECTOR) if name not in self.fields]

    @property
    def is_readable(self) -> bool:
        """Whether its entries can be read and identified."""
        return self.is_loaded and {"entry_id", "entry_type"} <= self.fields.keys()


class MilvusStore(ABC):
    """The calls to Milvus. All block, are thread-safe, and raise the contract's errors."""

    is_file: ClassVar[bool] = False
    """Whether its data is a local file."""

    def __init__(self, prefix: str, company_id: str, seconds: float) -> None:
        self._prefix, self._company_id, self._seconds = prefix, company_id, seconds
        self._described: dict[str, tuple[float, Collection]] = {}
        self._unflushed: Counter[str] = Counter()

    @abstractmethod
    def _using(self, *, changes: bool = False) -> contextlib.AbstractContextManager[Any]:
        """Yield the client for one call, and translate its errors to the contract's."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; the next call opens it again."""

    def version(self) -> str:
        """Return the version of Milvus."""
        with self._using() as client:
            return str(client.get_server_version(timeout=self._seconds))

    def collections(self) -> list[Collection]:
        """Return the collections of the company's scopes, sorted by name."""
        with self._using() as client:
            names = sorted(client.list_collections(timeout=self._seconds))
            owners = {name: owner_of_collection(self._prefix, name, self._company_id)
                      for name in names}  # fmt: skip
            return [self._describe(client, name, own) for name, own in owners.items() if own]

    def find(self, name: str, owner: Scope) -> Collection | None:
        """Return a collection of any name; None if there is none."""
        with self._using() as client:
            if not client.has_collection(name, timeout=self._seconds):
                return None
            return self._describe(client, name, owner)

    def _describe(self, client: Any, name: str, owner: Scope) -> Collection:
        moment, known = self._described.get(name, (0.0, None))
        if known is not None and time.monotonic() - moment < _KNOWN_SECONDS:
            return known
        described = client.describe_collection(name, timeout=self._seconds)
        fields = {one["name"]: one for one in described["fields"]}
        vector = fields.get(VECTOR, {})
        index = client.describe_index(name, VECTOR, timeout=self._seconds) if vector else None
        metric = str((index or {}).get("metric_type") or _METRIC)
        is_loaded = _is_loaded(client, name, self._seconds)
        size = vector.get("params", {}).get("dim")
        is_text_key = bool(fields.get("entry_id", {}).get("is_primary"))
        if not is_text_key:
            fields.pop("entry_id", None)
        properties = described.get("properties") or {}
        found = Collection(
            name=name,
            owner=owner,
            fields={key: one.get("params", {}).get("max_length") for key, one in fields.items()},
            dimensions=int(size) if size and index is not None and _is_float(vector) else None,
            metric=metric,
            keeps_details=bool(described.get("enable_dynamic_field")),
            is_loaded=is_loaded,
            model=properties.get(MODEL) or None,
            made=properties.get(_MADE) or str(described.get("collection_id") or ""),
            unfillable=tuple(
                key
                for key, one in fields.items()
                if key not in SCHEMA and key != VECTOR and not _may_be_left_out(one)
            ),
        )
        self._described[name] = time.monotonic(), found
        return found

    def create(self, name: str, dimensions: int, model: str, *, made: str = "") -> None:
        """Create a collection with the schema of seed 002 §6, unless it exists.

        `made` is taken over from the collection that it replaces.
        """
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(
            auto_id=False,
            enable_dynamic_field=True,
            description=f"memtui: vectors of {model}",
        )
        for field, size in SCHEMA.items():
            if size is None:
                schema.add_field(field, DataType.INT64)
            else:
                is_key = field == "entry_id"
                schema.add_field(field, DataType.VARCHAR, max_length=size, is_primary=is_key)
            if field == "entry_type":
                schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=dimensions)
        index = MilvusClient.prepare_index_params()
        index.add_index(VECTOR, index_type="AUTOINDEX", metric_type=_METRIC)
        with self._using(changes=True) as client:
            if client.has_collection(name, timeout=self._seconds):
                return
            client.create_collection(
                name,
                schema=schema,
                properties={MODEL: model, _MADE: made or secrets.token_hex(8)},
                consistency_level="Strong",
                timeout=self._seconds,
            )
            # With sync, the client would wait half a second for the index of an empty collection.
            client.create_index(name, index, timeout=self._seconds, sync=False)
            client.load_collection(name, timeout=self._seconds)

    def rename(self, old: str, new: str) -> None:
        """Rename a collection; one that has the new name is dropped."""
        with self._using(changes=True) as client:
            if client.has_collection(new, timeout=self._seconds):
                client.drop_collection(new, timeout=self._seconds)
            client.rename_collection(old, new, timeout=self._seconds)
            self._described.pop(new, None)

    def drop(self, name: str) -> None:
        """Drop a collection, if it exists."""
        with self._using(changes=True) as client:
            if client.has_collection(name, timeout=self._seconds):
                client.drop_collection(name, timeout=self._seconds)
            self._described.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all collections, those of other programs included."""
        with self._using() as client:
            return list(client.list_collections(timeout=self._seconds))

    def rows(
        self, collection: Collection, expression: str, *, most: int | None = None,
        whole: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Return the entries that match an expression, at most `most`.

        `whole`: with their vectors and other programs' fields, to be restored later.
        """
        asked = {
            "filter": expression,
            "output_fields": ["*"] if whole else self._fields(collection),
            "consistency_level": "Strong",
            "timeout": self._seconds,
        }
        with self._using() as client:
            return [dict(row) for row in self._select(client, collection.name, asked, most)]

    @abstractmethod
    def _select(self, client: Any, name: str, asked: Json, most: int | None) -> Iterable[Row]:
        """Query entries, at most `most`."""

    def count(self, collection: Collection, expression: str) -> int:
        """Return the number of entries that match an expression."""
        with self._using() as client:
            [row] = client.query(
                collection.name,
                filter=expression,
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=self._seconds,
            )
            return int(row["count(*)"])

    def near(
        self, collection: Collection, vector: Sequence[float], expression: str, top_k: int
    ) -> list[tuple[Row, float]]:
        """Return the nearest entries with their similarity, 1 for the same direction."""
        with self._using() as client:
            [hits] = client.search(
                collection.name,
                data=[list(vector)],
                anns_field=VECTOR,
                limit=top_k,
                filter=expression,
                output_fields=self._fields(collection),
                consistency_level="Strong",
                timeout=self._seconds,
            )
            # For vectors of length 1, similarity is 1 minus half the squared distance.
            is_distance = collection.metric == "L2"
            return [
                (dict(hit["entity"]),
                 1 - float(hit["distance"]) / 2 if is_distance else float(hit["distance"]))
                for hit in hits
            ]  # fmt: skip

    def _fields(self, collection: Collection) -> list[str]:
        known = [name for name in SCHEMA if name in collection.fields]
        return [*known, DETAILS] if collection.keeps_details else known

    def put(self, collection: Collection, rows: Sequence[Row]) -> None:
        """Store entries; each replaces the one with its key."""
        with self._using(changes=True) as client:
            for start in range(0, len(rows), _BATCH):
                batch = list(rows[start : start + _BATCH])
                client.upsert(collection.name, batch, timeout=self._seconds)
            self._unflushed[collection.name] += len(rows)
            if self.is_file and self._unflushed[collection.name] >= _FLUSHED_AT:
                self._unflushed[collection.name] = 0
                client.flush(collection.name, timeout=self._seconds)

    def delete(self, collection: Collection, entry_ids: Iterable[str]) -> None:
        """Delete entries."""
        ids = list(entry_ids)
        with self._using(changes=True) as client:
            for start in range(0, len(ids), _IDS_A_CALL):
                # An expression of ours, since the client does not escape a list of keys.
                named = one_of("entry_id", ids[start : start + _IDS_A_CALL])
                client.delete(collection.name, filter=named, timeout=self._seconds)


def _is_loaded(client: Any, name: str, seconds: float) -> bool:
    """Load a collection, so that it can be queried; return whether it is loaded."""
    try:
        client.load_collection(name, timeout=seconds)
    except Exception:  # noqa: BLE001 - it is not indexed, or the token has no right to
        state = client.get_load_state(name, timeout=seconds).get("state")
        return getattr(state, "name", "") == "Loaded"
    return True


def _is_float(field: Json) -> bool:
    return getattr(field.get("type"), "name", "") == "FLOAT_VECTOR"


def _may_be_left_out(field: Json) -> bool:
    return bool(field.get("nullable") or field.get("default_value") or field.get("auto_id"))


class MilvusServerStore(MilvusStore):
    """A server or a cluster."""

    def __init__(
        self, prefix: str, company_id: str, seconds: float, *, uri: str, token: str, database: str
    ) -> None:
        super().__init__(prefix, company_id, seconds)
        self._uri, self._token, self._database = uri, token, database
        self._turn = threading.Lock()
        self._client: Any = None

    @contextmanager
    def _using(self, *, changes: bool = False) -> Iterator[Any]:
        with _errors(f"Milvus at {self._uri}", changes=changes):
            with self._turn:
                if self._client is None:
                    self._client = _client(
                        self._uri, self._seconds, token=self._token, database=self._database
                    )
            yield self._client

    def _select(self, client: Any, name: str, asked: Json, most: int | None) -> Iterator[Row]:
        """Query page by page: a server returns at most 16,384 entries at once."""
        pages = client.query_iterator(
            name, batch_size=_BATCH, limit=-1 if most is None else most, **asked
        )
        try:
            while page := pages.next():
                yield from page
        finally:
            pages.close()

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class FileStore(MilvusStore):
    """A file of Milvus Lite, which is a folder."""

    is_file = True

    def __init__(
        self, prefix: str, company_id: str, seconds: float, *, path: Path, database: str,
        lock_seconds: float,
    ) -> None:  # fmt: skip
        super().__init__(prefix, company_id, seconds)
        self._path, self._database, self._lock_seconds = path, database, lock_seconds
        self._turn = threading.Lock()
        self._running: _Running | None = None
        self._users = 0
        self._idle: threading.Timer | None = None

    @contextmanager
    def _using(self, *, changes: bool = False) -> Iterator[Any]:
        with _errors(f"Milvus Lite in {self._path}", changes=changes):
            with self._turn:
                self._stay_awake()
                if self._running is None:
                    self._running = _Running(
                        self._path, self._database, self._seconds, self._lock_seconds
                    )
                client = self._running.client
                self._users += 1
            try:
                yield client
            finally:
                with self._turn:
                    self._users -= 1
                    self._stay_awake()
                    self._idle = threading.Timer(_IDLE_SECONDS, self._rest)
                    self._idle.daemon = True
                    self._idle.start()

    def _select(self, client: Any, name: str, asked: Json, most: int | None) -> Iterable[Row]:
        """Query all at once, which is several times as fast as paging here."""
        limit = {} if most is None else {"limit": most}
        rows: Iterable[Row] = client.query(name, **asked, **limit)
        return rows

    def _stay_awake(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _rest(self) -> None:
        """Close the file unless a call is running."""
        with self._turn:
            if not self._users:
                self._let_go()

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._let_go()

    def _let_go(self) -> None:
        self._stay_awake()
        self._described.clear()
        running, self._running = self._running, None
        if running is not None:
            running.close()


class _Running:
    """Milvus Lite over a file, behind a private socket."""

    def __init__(self, path: Path, database: str, seconds: float, lock_seconds: float) -> None:
        _check_file(path)
        try:
            import grpc
            from milvus_lite import MilvusLite
            from milvus_lite.adapter.grpc.servicer import MilvusServicer
            from pymilvus.grpc_gen import milvus_pb2_grpc
        except ImportError as error:
            raise Invalid("Milvus is not installed here; install memtui[milvus].") from error
        with contextlib.ExitStack() as parts:
            database_files = _locked(MilvusLite, path, lock_seconds)
            parts.callback(database_files.close)
            # One call at a time: its engine allows one writer per collection.
            pool = parts.enter_context(ThreadPoolExecutor(1, "memtui-milvus"))
            sizes = [
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ]
            server = grpc.server(pool, options=sizes)
            servicer = MilvusServicer(database_files)
            milvus_pb2_grpc.add_MilvusServiceServicer_to_server(servicer, server)
            with _private_folder() as folder:
                address = f"unix:{folder}/socket"
                server.add_insecure_port(address)
                server.start()
                parts.callback(lambda: server.stop(None).wait())
                self.client = _client(address, seconds, database=database)
            parts.callback(self.client.close)
            self._parts = parts.pop_all()

    def close(self) -> None:
        """Close the client, the server and last the files."""
        self._parts.close()


def _check_file(path: Path) -> None:
    """Raise `Invalid` for a path that Milvus Lite would refuse or damage."""
    if os.name == "nt":
        raise Invalid(
            "On Windows Milvus Lite listens on a port that every program can reach; run a Milvus "
            "server with a token and set uri."
        )
    if path.is_file():
        raise Invalid(
            f"{path} was made by Milvus Lite before version 3, and newer versions cannot open it; "
            "export it with the program that made it, and set path to a new folder."
        )
    if not path.parent.is_dir():
        raise Invalid(f"The folder {path.parent} does not exist; create it, or set another path.")
    others = [one.name for one in path.iterdir()] if path.is_dir() else []
    if others and "collections" not in others:
        raise Invalid(f"{path} is not a folder of Milvus Lite; set path to one.")


def _locked(opener: Any, path: Path, seconds: float) -> Any:
    """Open the files, waiting while another process has them open. Raises `Unavailable`."""
    from milvus_lite import DataDirLockedError

    until = time.monotonic() + seconds
    while True:
        try:
            return opener(str(path))
        except DataDirLockedError as error:
            if time.monotonic() > until:
                raise Unavailable(
                    f"{path} is open in {_holder(path)}, and only one process can open Milvus "
                    "Lite; try again when it is closed, or run a Milvus server for both."
                ) from error
        except OSError as error:
            raise Invalid(
                f"{path} cannot be opened ({error.strerror}); check its permissions, or set "
                "another path."
            ) from error
        time.sleep(_POLL_SECONDS)


def _holder(path: Path) -> str:
    """Name the process that has the lock, if the system tells."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        inode = str((path / "LOCK").stat().st_ino)
        locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
        pid = next(int(line[4]) for line in locks if line[5].rpartition(":")[2] == inode)
        if pid == os.getpid():
            return "this program"
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        return f"the process {pid} ({name})"
    return "another process"


@contextmanager
def _private_folder() -> Iterator[str]:
    """Yield a folder for a socket, whose path must be short, and remove it afterwards.

    Existing connections survive the removal; new ones are impossible, and a killed process leaves
    no folder behind.
    """
    folder = tempfile.mkdtemp(prefix="memtui-")
    if len(folder) > _SOCKET_CHARS:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="memtui-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _client(uri: str, seconds: float, *, token: str = "", database: str = "") -> Any:
    """Connect, with pymilvus's logging off: memtui reports the errors."""
    # Otherwise gRPC writes on the screen when an editor or another program is started.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        from pymilvus import MilvusClient
    except ImportError as error:
        raise Invalid("Milvus is not installed here; install memtui[milvus].") from error
    for name in ("pymilvus", "milvus_lite", "grpc"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    return MilvusClient(uri, token=token, db_name=database, timeout=seconds, dedicated=True)


@contextmanager
def _errors(who: str, *, changes: bool) -> Iterator[None]:
    """Translate Milvus's errors to the contract's."""
    try:
        yield
    except MemtuiError:
        raise
    except Exception as error:
        raise _refusal(error, who, changes=changes) from error


def _refusal(error: Exception, who: str, *, changes: bool) -> MemtuiError:
    said = " ".join(str(getattr(error, "message", "") or error).split())[:_ERROR_CHARS].rstrip(".")
    folded = said.casefold()
    if any(word in folded for word in ("unauthenticated", "auth check", "permission", "privilege")):
        return Denied(
            f"{who} refuses the token ({said}); set token_secret to a token with that permission."
        )
    if "database" in folded and ("not found" in folded or "does not exist" in folded):
        return NotFound(f"{who} has no such database ({said}); create it there, or set database.")
    if "exceeds max" in folded or "length of varchar" in folded:
        return Invalid(f"{who} refused the request: {said}.")
    return Unavailable(
        f"{who} failed ({type(error).__name__}: {said}); check that it runs and can be reached, "
        "then try again.",
        sent=changes,
    )
