"""What is on the disk at a point of `benchmarks.crash_points`, and what memtui reads from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.crash_mutations import ANA, SECRET, Known, Place
from memtui.contract import (
    BrowseRequest,
    Conflict,
    Filter,
    Invalid,
    MemtuiError,
    Record,
    Scope,
)
from memtui.service import MemoryService
from memtui.store.digest import GENESIS, is_intact
from memtui.store.log import company_salt

_DERIVED = re.compile(
    r"/index/|\.lock$|-(wal|shm|journal)$|/sessions/|memtui\.log|/changed$|/clients/|/LOCK$|/daily-"
    r"|/made_folders/|/\.git/|/known\.json$"
)
"""Files that are made again, or tell nothing of memories; notes of folders that memtui made, which
are known by their inodes and so not in a copy; git's, whose names are made of the time too; and
what is known of records, which is compared with the records: of a write that was killed it keeps
the owner, for the case that the server stores the text all the same, until a purge erases it."""
_SQLITE = b"SQLite format 3\0"
_BESIDE = ("-wal", "-journal")
"""What SQLite keeps beside a database and reads after a kill; it makes `-shm` anew."""


class Entry(NamedTuple):
    """A file, a link or a folder."""

    mode: int
    modified_ns: int
    content: bytes | str | None
    """A file's bytes, a link's target; None: a folder."""


Disk = dict[str, Entry]
"""Everything below a folder, by path; a folder comes before what is in it."""


def copied(root: Path) -> Disk:
    """Return everything below a folder."""
    disk: Disk = {}
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        with os.scandir(root / inner) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                name = f"{inner}{entry.name}"
                content: bytes | str | None = None
                if entry.is_symlink():
                    content = str(Path(entry.path).readlink())
                elif entry.is_dir():
                    waiting.append(f"{name}/")
                else:
                    content = Path(entry.path).read_bytes()
                disk[name] = Entry(stat.S_IMODE(found.st_mode), found.st_mtime_ns, content)
    return disk


def put(root: Path, disk: Disk) -> None:
    """Make a folder what it was when it was copied."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, entry in disk.items():
        path = root / name
        if isinstance(entry.content, str):
            path.symlink_to(entry.content)
            continue
        if entry.content is None:
            path.mkdir()
        else:
            path.write_bytes(entry.content)
        path.chmod(entry.mode)
        os.utime(path, ns=(entry.modified_ns, entry.modified_ns))


def is_database(disk: Disk, name: str) -> bool:
    """Whether a file is a database of SQLite's, or lies beside one as a part of it."""
    for beside in _BESIDE:
        name = name.removesuffix(beside)
    content = disk[name].content if name in disk else None
    return isinstance(content, bytes) and (not content or content.startswith(_SQLITE))


class Digests:
    """Tells which copies are the same state to whoever opens them next.

    A database is what SQLite makes of its files when it is opened after a kill: pages of a
    transaction that was not committed are as if they had not been written.
    """

    def __init__(self, scratch: Path) -> None:
        """Open databases in a folder of their own."""
        self._scratch = scratch / "database"
        self._known: dict[bytes, bytes] = {}

    def of(self, disk: Disk) -> str:
        """Return the digest of a state."""
        whole = blake2b()
        for name in sorted(disk):
            entry = disk[name]
            if name.endswith(("-shm", *_BESIDE)):
                continue
            content, modified = entry.content, entry.modified_ns
            if isinstance(content, bytes):
                beside = [disk.get(f"{name}{one}") for one in _BESIDE]
                if content.startswith(_SQLITE) or any(beside):
                    parts = [content, *(one.content if one else b"" for one in beside)]
                    content, modified = self._opened(parts), 0
            elif content is None:
                modified = 0
            whole.update(repr((name, entry.mode, modified, content)).encode())
        return whole.hexdigest()

    def _opened(self, parts: list[Any]) -> bytes:
        key = blake2b(repr([blake2b(one).digest() for one in parts]).encode()).digest()
        if key not in self._known:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
            file = self._scratch / "file"
            for part, beside in zip(parts, ("", *_BESIDE), strict=True):
                if part or not beside:
                    Path(f"{file}{beside}").write_bytes(part)
            with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(file)) as database:
                database.execute("PRAGMA synchronous = OFF")
                database.execute("SELECT count(*) FROM sqlite_master").fetchall()
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._known[key] = blake2b(file.read_bytes()).digest()
        return self._known[key]


async def observed(service: MemoryService, place: Place) -> Known:
    """Return everything that can be read, as values that compare."""
    records: list[Any] = []
    for view in await service.bindings.all(ANA):
        request = BrowseRequest(scope=Scope(company_id="local"), binding_key=view.key, limit=500)
        page = await service.browse(ANA, request)
        records += [[view.key, *_said(one)] for one in page.records]
    bindings = [
        view.model_dump(mode="json", exclude={"created_at", "capabilities"})
        for view in await service.bindings.all(ANA)
    ]
    held = [one.model_dump(mode="json", include={"text", "kind"}) for one in
            await service.review.waiting(ANA)]  # fmt: skip
    members = [one.model_dump(mode="json") for one in await service.members.all(ANA)]
    theirs = ANA.model_copy(update={"company_id": "theirs"})
    imported = 0
    with suppress(MemtuiError):
        imported = len((await service.log.page(theirs, limit=500)).operations)
    sealed = (await service.analysis.segments(ANA)).sealed_through > 0
    seen = {
        "records": sorted(records, key=str),
        "bindings": sorted(bindings, key=str),
        "held": sorted(held, key=str),
        "members": sorted(members, key=str),
        "imported": imported,
        "sealed": sealed,
        "log": await _chain_problem(service),
        "secret": _holds(place.root, SECRET.encode()),
        "uncommitted": [_uncommitted(path.parent) for path in place.root.glob("*/.git")],
        "files": sorted({name for name, _ in _files(place)}),
        "lines": [path.read_text().split("\n") for path in place.root.rglob("MEMORY.md")],
        "history": sorted(_past(place)),
    }
    told: Known = json.loads(json.dumps(seen, default=str))  # as it comes out of a process
    return told


def _uncommitted(folder: Path) -> str:
    words = ["git", "-C", str(folder), "status", "--porcelain"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def _said(record: Record) -> list[Any]:
    metadata = {k: v for k, v in record.metadata.items() if k not in {"index_line", "entry_type"}}
    return [
        record.text, record.title, record.summary, record.kind, record.topic,
        sorted(record.tags), record.pinned, str(record.expires_at), record.scope.model_dump(),
        record.source and record.source.model_dump(mode="json", exclude={"run_id"}),
        record.created_by, {k: str(v) for k, v in metadata.items()},
    ]  # fmt: skip


def _past(place: Place) -> Iterator[str]:
    """Yield the windows of the vault's facts, without their moments."""
    for path in place.home.rglob("facts.history.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            version = json.loads(line)
            ended = version.get("valid_to") is not None
            yield f"{version['text']} {version.get('created_by')} {ended=}"


def _files(place: Place) -> Iterator[tuple[str, Path]]:
    for path in place.root.rglob("*"):
        name = path.relative_to(place.root).as_posix()
        if path.is_file() and not _DERIVED.search(f"/{name}") and path.read_bytes() != b"{}":
            yield re.sub(r"\d+-\d+(\.\d+)?(?=/)", "#", name), path


def _holds(root: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in root.rglob("*") if path.is_file())


async def _chain_problem(service: MemoryService) -> str:
    """Return what `audit verify` finds wrong; where nothing is sealed, without DuckDB."""
    if (await service.analysis.segments(ANA)).segments:
        return (await service.analysis.verify_chain(ANA)).problem or ""
    operations = (await service.log.page(ANA, limit=500)).operations[::-1]
    with service.runtime.database.read() as database:
        salt = company_salt(database, ANA.company_id)
    previous = GENESIS
    for seq, one in enumerate(operations, start=1):
        if (one.seq, one.previous_digest) != (seq, previous) or not is_intact(one, salt):
            return f"operation {seq} does not fit"
        previous = one.digest
    return ""


async def last(service: MemoryService) -> int:
    operations = (await service.log.page(ANA, Filter(internal=True), limit=1)).operations
    return operations[0].seq if operations else 0


async def take_back(service: MemoryService, since: int) -> str:
    """Undo what changed something since an operation, the newest first; return what was refused."""
    chosen, refused = Filter(internal=True), ""
    for one in (await service.log.page(ANA, chosen, limit=100)).operations:
        if one.seq > since and one.operation_type.mutates:
            try:
                await service.undo(ANA, one.operation_id)
            except (Conflict, Invalid, MemtuiError) as error:
                refused = f"{one.operation_type} {one.status}: {error}"
    return refused
