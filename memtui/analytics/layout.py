"""The archive folder of a company's sealed operations, and its manifest.

    <data>/archive/<company>/manifest.json
    <data>/archive/<company>/<first seq>-<last seq>/operations.parquet, usage.parquet,
        handles.parquet

A rewritten segment has its revision after its name. Only segments that the manifest names are
sealed, whatever else is in the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from memtui.contract import Json, Model, Unavailable, UtcDatetime
from memtui.paths import sync_folder
from memtui.store import statements
from memtui.store.database import Database, quoted
from memtui.store.digest import GENESIS

TABLES = ("operations", "usage", "handles")
"""The files of a segment."""

UNFINISHED = re.compile(r"\.new-\d+-\d+")
SEGMENT = re.compile(r"(\d{12,})-\d{12,}(\.\d+)?")
_READABLE = re.compile(r"[^A-Za-z0-9_-]")
_CHUNK = 1 << 20
_READ: dict[Path, tuple[tuple[int, ...], Manifest]] = {}
"""The last read state of each manifest, and what it said."""


class SegmentFile(Model):
    """One Parquet file of a segment."""

    sha256: str
    rows: int
    bytes: int


class Segment(Model):
    """Consecutive operations in immutable files."""

    first_seq: int
    last_seq: int
    previous_digest: str
    """The digest that the first operation is chained to."""
    first_digest: str
    last_digest: str
    started_from: UtcDatetime
    """The earliest `started_at` of its operations; `started_to` is the latest."""
    started_to: UtcDatetime
    sealed_at: UtcDatetime
    sealed_by: str
    """The principal who sealed it."""
    revision: int = 0
    """How often it was written anew because values were erased."""
    files: dict[str, SegmentFile]
    """By table name."""

    @property
    def span(self) -> str:
        """Its first and last numbers, the same in every revision."""
        return f"{self.first_seq:012d}-{self.last_seq:012d}"

    @property
    def name(self) -> str:
        """Its folder's name."""
        return f"{self.span}.{self.revision}" if self.revision else self.span

    def proof(self) -> Json:
        """Return its proof for the chain, an element of a request's `segments`."""
        files = {
            table: {"rows": file.rows, "sha256": file.sha256} for table, file in self.files.items()
        }
        return {"files": files, "name": self.name}

    @property
    def count(self) -> int:
        """How many operations it holds."""
        return self.last_seq - self.first_seq + 1

    @property
    def bytes(self) -> int:
        """How large its files are together."""
        return sum(file.bytes for file in self.files.values())


class Manifest(Model):
    """The sealed operations of a company: numbers 1 to `sealed_through`, without a gap."""

    version: int = 1
    company_id: str
    salt: str = ""
    """The salt for commitments of subjects, in hex, the same as in the log's head."""
    segments: tuple[Segment, ...] = ()

    @property
    def sealed_through(self) -> int:
        """The highest sealed `seq`, 0: nothing is sealed. Later operations are in the hot table."""
        return self.segments[-1].last_seq if self.segments else 0

    @property
    def last_digest(self) -> str:
        """The digest that the first operation of the hot table is chained to."""
        return self.segments[-1].last_digest if self.segments else GENESIS

    def with_segment(self, segment: Segment) -> Manifest:
        """Return the manifest with a segment added, or in place of its other revision."""
        others = tuple(one for one in self.segments if one.span != segment.span)
        segments = sorted((*others, segment), key=lambda one: one.first_seq)
        return self.model_copy(update={"segments": tuple(segments)})

    def holding(self, first: int, last: int) -> tuple[Segment, ...]:
        """Return the segments that have any of these numbers, both ends included."""
        return tuple(s for s in self.segments if s.first_seq <= last and s.last_seq >= first)


class ArchiveFolder:
    """The archive folder of one company; any text can be a company's id."""

    def __init__(self, root: Path, company_id: str) -> None:
        readable = _READABLE.sub("_", company_id)[:40]
        exact = hashlib.sha256(company_id.encode(errors="surrogatepass")).hexdigest()[:16]
        self.path = root / f"{readable}-{exact}"
        self.company_id = company_id

    @property
    def manifest_file(self) -> Path:
        """The manifest."""
        return self.path / "manifest.json"

    @property
    def waiting_file(self) -> Path:
        """The manifest that counts once the chain names its segments (`seal.rewrite`)."""
        return self.path / ".manifest-waiting.json"

    @property
    def lock_file(self) -> Path:
        """Locked while the folder is changed."""
        return self.path / ".lock"

    def segment(self, segment: Segment) -> Path:
        """Return the folder of a segment."""
        return self.path / segment.name

    def file(self, segment: Segment, table: str) -> Path:
        """Return one file of a segment."""
        return self.path / segment.name / f"{table}.parquet"

    def parquet(self, segments: Sequence[Segment], table: str) -> str:
        """Return the rows of segments in DuckDB's SQL, for FROM.

        Raises:
            Unavailable: a file of them is missing.
        """
        files = [self.file(segment, table) for segment in segments]
        for file in files:
            if not file.is_file():
                raise Unavailable(
                    f"The file {file} is missing; restore it from a backup, then check the others "
                    "with memtui ops archive verify."
                )
        return f"read_parquet([{', '.join(map(quoted, files))}])"

    def create(self) -> None:
        """Create the folder with mode 0700."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.parent.chmod(0o700)
        self.path.chmod(0o700)

    def read(self, *, waiting: bool = False) -> Manifest:
        """Read the manifest, or the waiting one.

        Raises:
            Unavailable: it is damaged, or another company's.
        """
        file = self.waiting_file if waiting else self.manifest_file
        try:
            # Each state of the file is parsed once: that of a long log takes milliseconds.
            found = file.stat()
            state = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
            if (known := _READ.get(file)) and known[0] == state:
                return known[1]
            text = file.read_text(encoding="utf-8")
            manifest = Manifest.model_validate(json.loads(text))
        except FileNotFoundError:
            return Manifest(company_id=self.company_id)
        except PermissionError as error:
            raise Unavailable(
                f"The archive {self.path} may not be read; ask its owner for permission."
            ) from error
        except (OSError, ValueError, ValidationError) as error:
            raise Unavailable(
                f"The archive's manifest {file} cannot be read; restore it from a backup."
            ) from error
        if manifest.company_id != self.company_id or manifest.version != 1:
            raise Unavailable(
                f"The archive's manifest {self.manifest_file} is of another company or of a newer "
                "memtui; restore the right one or upgrade memtui."
            )
        _READ[file] = state, manifest
        return manifest

    def write(self, manifest: Manifest, *, waiting: bool = False) -> None:
        """Write the manifest, or the waiting one, atomically and durably."""
        fresh = self.path / ".manifest.json"
        document = json.dumps(manifest.model_dump(mode="json"), indent=1)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.waiting_file if waiting else self.manifest_file)
        sync_folder(self.path)

    def accept_waiting(self) -> None:
        """Put the waiting manifest in force."""
        self.waiting_file.replace(self.manifest_file)
        sync_folder(self.path)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class LogEnds(NamedTuple):
    """The newest number of a log, and the oldest in its hot table (`head` + 1 if that is empty)."""

    head: int
    hot_first: int


def log_ends(database: Database, company_id: str) -> LogEnds:
    """Return where a company's log ends and where its hot table begins. Blocking."""
    with database.read() as connection:
        heads = statements.HEAD_SEQ.rows(connection, company_id=company_id)
        [(first,)] = statements.FIRST_HOT.rows(connection, company_id=company_id)
    head = heads[0][0] if heads else 0
    return LogEnds(head, head + 1 if first is None else first)


def is_settled(database: Database, folder: ArchiveFolder) -> bool:
    """Whether a killed seal left nothing to clean up; does not lock the folder. Blocking."""
    with usable(folder):
        return not folder.path.exists() or _agrees_with_log(database, folder)


def _agrees_with_log(database: Database, folder: ArchiveFolder) -> bool:
    manifest = folder.read()
    ends = log_ends(database, folder.company_id)
    if ends.head < manifest.sealed_through or folder.waiting_file.exists():
        return False
    named = {segment.name for segment in manifest.segments}
    unnamed = (
        path.name not in named and (UNFINISHED.fullmatch(path.name) or SEGMENT.fullmatch(path.name))
        for path in folder.path.iterdir()
    )
    return ends.hot_first == manifest.sealed_through + 1 and not any(unnamed)


@contextmanager
def usable(folder: ArchiveFolder) -> Iterator[None]:
    """Turn errors of the file system into `Unavailable`: rights, a full disk, a file in the way."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The archive {error.filename or folder.path} cannot be used ({error.strerror}); check "
            "its permissions and its disk."
        ) from error
