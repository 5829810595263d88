"""SQLite files and PostgreSQL databases: settings, connections, transactions, translated errors."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    NoSuchModuleError,
)
from sqlalchemy.pool import QueuePool

from memtui.contract import (
    BindingContext,
    Conflict,
    Denied,
    Invalid,
    MemtuiError,
    Model,
    Unavailable,
    place_of_url,
)
from memtui.paths import is_writable
from memtui.provider_kit import need_secret, read_config
from memtui.wording import missing_extra

WAIT_MS = 10_000
"""How long a call waits for another program that is writing."""
_ADVISORY_LOCK = 0x6D65_6D74_7569
"""Key of the advisory lock that serialises memtui's writers of one database."""
KEPT_BY_POSTGRES = (
    "The PostgreSQL of {} keeps deleted rows until it vacuums, and its write-ahead log, replicas "
    "and backups keep them longer; ask its administrator."
)
_WAL_FORMAT = 2
_FILE = "file"
OPENING = "opening"
"""Key of what is another object after each opening of a file, in the `info` of a connection."""


class DatabaseConfig(Model):
    """The settings of a provider that may have its records in PostgreSQL."""

    url: str | None = None
    """The database's URL, `postgresql://user@host/name`, if it contains no password."""
    url_secret: str | None = None
    """The name of the secret that holds the URL, password and all."""

    @classmethod
    def of(cls, context: BindingContext) -> Self:
        """Return the config of a binding. Raises `Invalid` for a bad one."""
        config = read_config(cls, context)
        if config.url and config.url_secret:
            raise Invalid("Set either url or url_secret, not both.")
        return config

    def find_url(self, context: BindingContext) -> str | None:
        """Return the database's URL; None for SQLite.

        Raises:
            Invalid: the secret is not set, or the `url` contains a password.
        """
        if self.url_secret:
            return need_secret(context, self.url_secret, "the database's URL")
        if self.url and _has_password(self.url):
            raise Invalid(
                "The url contains a password; store the whole URL as a secret and set url_secret "
                "to the secret's name."
            )
        return self.url


def is_postgres(connection: Connection) -> bool:
    """Whether a connection is to PostgreSQL, not SQLite."""
    return connection.dialect.name == "postgresql"


class DatabasePool:
    """A pool of connections. Blocking: an adapter calls it from worker threads.

    memtui's writers are serialised, so that a write builds on what it reads. Other programs are
    not, so each change requires that the row is still as it was read.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for one consistent read."""
        with translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection for one transaction, exclusive among memtui's writers.

        It is durable once it ends.
        """
        with translated(), self._lock, self._engine.connect() as plain:
            connection = plain.execution_options(immediate=True)
            with connection.begin() as transaction:
                if is_postgres(connection):
                    connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
                yield connection
                with translated(sent=True):
                    transaction.commit()

    def empty_log(self) -> None:
        """Write what a SQLite file's log has into the file, unless another program reads the log.

        Until then the log and the file have the text of removed rows.
        """
        with translated(), closing(self._engine.raw_connection()) as plain:
            plain.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @property
    def is_shared(self) -> bool:
        """Whether the database is a PostgreSQL, not a file."""
        return self._engine.dialect.name == "postgresql"

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def open_postgres(url: str, *, read_only: bool) -> Engine:
    """Return the connections to a PostgreSQL. Raises `Invalid` for a malformed URL."""
    parsed = _parse(url)
    defaults = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": 30_000}
    arguments: dict[str, Any] = {
        name: value for name, value in defaults.items() if name not in parsed.query
    }
    # Off: prepared statements outlive a transaction, but a pooler may switch connections then.
    arguments["prepare_threshold"] = None
    try:
        engine = create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
    except ModuleNotFoundError as error:
        raise missing_extra("PostgreSQL", "postgres") from error
    settings = {
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "lock_timeout": str(WAIT_MS),
        "statement_timeout": str(3 * WAIT_MS),
        **({"transaction_read_only": "on"} if read_only else {}),
    }
    calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(f"SELECT {calls}"))
    return engine


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgres", "postgresql"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.drivername != "postgresql+psycopg":
            raise Invalid(f"memtui opens no {parsed.drivername} database; use postgresql://.")
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise Invalid("The url is not a database URL; use postgresql://user@host/name.") from error
    return parsed


def place_of(url: str) -> tuple[str, ...]:
    """Return the place of a database (`Adapter.places`). Raises `Invalid` for a malformed URL."""
    parsed = _parse(url)
    # As in libpq, a query may name the server; a socket's folder means this machine.
    host = str(parsed.query.get("host", parsed.host) or "localhost")
    port = parsed.query.get("port", parsed.port) or 5432
    server = "localhost" if host.startswith("/") else host
    return place_of_url(f"postgresql://{server}:{port}/{parsed.database or parsed.username or ''}")


def _has_password(url: str) -> bool:
    parsed = _parse(url)
    return bool(parsed.password) or not {"password", "sslpassword"}.isdisjoint(parsed.query)


def open_sqlite(path: Path, *, read_only: bool) -> Engine:
    """Return the only connection to another program's file; the file's journal mode stays.

    Raises:
        Unavailable: there is no such file.
    """
    if not path.is_file():
        raise Unavailable(f"There is no file {path}; check the path of the binding.")
    if not (is_writable(path.parent) and os.access(path, os.W_OK)):
        return as_it_lies(path)
    # Not SQLite's mode=ro, which leaves the files of a write-ahead log behind.
    engine = _engine(path, f"{path.absolute().as_uri()}?mode=rw")
    event.listen(engine, "connect", _prepare_foreign)
    if read_only:
        event.listen(engine, "connect", lambda plain, _: plain.execute("PRAGMA query_only = ON"))
    return engine


def as_it_lies(path: Path, prepare: Callable[[Any, object], None] | None = None) -> Engine:
    """Open a file in a read-only folder, where SQLite cannot even write its shared memory."""
    changes = path.with_name(f"{path.name}-wal")
    is_still = not (changes.exists() and changes.stat().st_size) and _has_wal_format(path)
    engine = _engine(
        path, f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"
    )
    event.listen(engine, "connect", prepare or _prepare_foreign)
    return engine


def _has_wal_format(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(20)[18:19] == bytes([_WAL_FORMAT])
    except OSError as error:
        raise Unavailable(f"Cannot read {path}: {error.strerror}.") from error


def _engine(path: Path, uri: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        creator=lambda: sqlite3.connect(
            uri, uri=True, check_same_thread=False, timeout=WAIT_MS / 1000
        ),
        poolclass=QueuePool, pool_size=1, max_overflow=0,
    )  # fmt: skip
    event.listen(engine, "begin", begin_sqlite)
    event.listen(engine, "connect", lambda _, record: record.info.update(_identity(path)))
    event.listen(engine, "checkout", lambda _, record, __: _require_same(path, record.info))
    return engine


def _identity(path: Path) -> dict[str, object]:
    """Return what a connection notes of its file: which one it is, and which opening."""
    found = path.stat()
    return {_FILE: (found.st_dev, found.st_ino), OPENING: object()}


def _require_same(path: Path, noted: dict[str, object]) -> None:
    """Have the file opened again where another one took its place, such as a restored backup."""
    try:
        is_same = _identity(path)[_FILE] == noted[_FILE]
    except OSError:
        is_same = False
    if not is_same:
        raise DisconnectionError


class Undecodable(bytes):
    """A text in a SQLite file that is not UTF-8, as its bytes."""


def _prepare_foreign(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.text_factory = _decoded
    connection.execute("PRAGMA secure_delete = ON")  # of what this connection removes


def _decoded(text: bytes) -> str | Undecodable:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return Undecodable(text)


def begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; one that writes takes its lock at once."""
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


_DENIED = frozenset({"42501", "25006", "28000", "28P01", "SQLITE_READONLY"})
_CLASH = frozenset({"23505", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"})
_MISSING = frozenset({"23503", "SQLITE_CONSTRAINT_FOREIGNKEY"})
_CHANGED = frozenset({"42P01", "42703", "42804"})


def code_of(error: DBAPIError) -> str:
    """Return PostgreSQL's state code, or SQLite's name of the error."""
    original = error.orig
    return str(
        getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None) or ""
    )


def is_missing_parent(error: IntegrityError) -> bool:
    """Whether a foreign key refers to a missing row."""
    return code_of(error) in _MISSING


@contextmanager
def translated(*, sent: bool = False) -> Iterator[None]:
    """Translate the database's errors to the contract's; `sent`: the change may have happened."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise Invalid(
            "The text contains half a character (a lone surrogate), which no database stores; "
            "remove it."
        ) from error
    except DBAPIError as error:
        raise _translate(error, sent=sent) from error


def _translate(error: DBAPIError, *, sent: bool) -> MemtuiError:
    code, reason = code_of(error), _reason(error)
    if code in _DENIED:
        return Denied(f"The database refused permission ({reason}); ask its owner to grant it.")
    if code in _CLASH:
        return Conflict("A record with the same id exists already; read it and try again.")
    if code == "SQLITE_NOTADB":
        return Unavailable("The file is not a SQLite database; check the path of the binding.")
    if code in _CHANGED:
        return Unavailable(
            f"The tables were changed while memtui had them open ({reason}); try again."
        )
    if code.startswith(("22", "23")) or "NUL" in reason:
        return Invalid(f"The database refused the values ({reason}); change them.")
    words = f"The database failed ({reason}); check its disk or server and try again."
    if code.startswith("SQLITE_BUSY"):
        words = "Another program has the database locked; try again once it is done."
    return Unavailable(words, sent=sent)


def _reason(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0][:200] if lines else type(error.orig).__name__
