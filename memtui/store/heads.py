"""Where each log ended when this machine last saw it, noted beside the database.

A log that was cut at its end, with its head set back, passes verification; only a note elsewhere
shows the cut. A note is written after the commit, so it may lag behind the database, after a kill
say, but is never ahead of it. The note is not synced to disk. A power cut may lose committed reads,
so of a note from before the machine's start only the part counts that was durable.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from memtui.paths import make_private

_SIZE = 256
"""Bytes of a note; one write replaces it."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class LogHead(NamedTuple):
    """The last operation of a log."""

    seq: int
    digest: str


class _Note(NamedTuple):
    seen: LogHead
    durable: LogHead
    """The last operation known to be on disk."""
    boot: str
    """The id of the machine's boot."""

    @property
    def head(self) -> LogHead:
        """The operation that the database must have."""
        return self.seen if self.boot == _boot() else self.durable


class HeadNotes:
    """The notes of one database, a small file a company. Blocking."""

    def __init__(self, folder: Path, place: str) -> None:
        """Store notes in `folder`; `place` tells the database from others."""
        self._folder = folder
        self._place = place

    def path(self, company_id: str) -> Path:
        """Return the file of a company's note."""
        return self._folder / sha256(f"{self._place}\0{company_id}".encode()).hexdigest()[:32]

    def read(self, company_id: str) -> LogHead | None:
        """Return where a log ended; None: there is no readable note."""
        try:
            note = _parsed(self.path(company_id).read_bytes())
        except OSError:
            return None
        return note.head if note else None

    def advance(
        self,
        company_id: str,
        before: LogHead,
        last: LogHead,
        *,
        durable: bool,
        digest_at: Callable[[int], str | None],
    ) -> None:
        """Note the new end of a log after an append.

        A note that contradicts the log is left unchanged, so that a check finds it.

        Args:
            company_id: The log's company.
            before: The log's end before the append.
            last: The log's end now.
            durable: Whether `last` is on disk.
            digest_at: Returns the digest of an operation in the database; None if it is sealed.

        Raises:
            OSError: the note cannot be written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            handle = os.open(self.path(company_id), flags, 0o600)
        except FileNotFoundError:
            make_private(self._folder)
            handle = os.open(self.path(company_id), flags, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            note = _parsed(os.pread(handle, _SIZE, 0))
            if note is not None and note.head != before:
                is_later = note.head.seq >= before.seq  # another process noted first, or a cut
                if is_later or digest_at(note.head.seq) not in {None, note.head.digest}:
                    return
            kept = last if durable else note.durable if note else LogHead(0, "-")
            os.pwrite(handle, _written(_Note(last, kept, _boot())), 0)
        finally:
            os.close(handle)

    def forget(self, company_id: str) -> None:
        """Remove the note of a log that starts over. Raises `OSError`."""
        self.path(company_id).unlink(missing_ok=True)


@cache
def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip() or "-"
    except OSError:
        return "-"


def _written(note: _Note) -> bytes:
    words = (*note.seen, *note.durable, note.boot)
    line = " ".join(map(str, words)).encode("ascii")
    return b"%08x %s" % (zlib.crc32(line), line.ljust(_SIZE - 10)) + b"\n"


def _parsed(content: bytes) -> _Note | None:
    """Return a note; None where it is damaged or only partly written."""
    try:
        checksum, line = content.decode("ascii").split(" ", 1)
        line = line.strip()
        if int(checksum, 16) != zlib.crc32(line.encode()):
            return None
        seq, digest, durable_seq, durable_digest, boot = line.split()
        return _Note(LogHead(int(seq), digest), LogHead(int(durable_seq), durable_digest), boot)
    except ValueError:
        return None
