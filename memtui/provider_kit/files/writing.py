"""The base of the providers that also change files of other programs.

Such a file stores a text and little else. For records written through memtui, the rest (source,
scope, author, time, metadata) is stored by record id in `known.json` in the `data_dir`, where the
other program cannot lose it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from memtui.contract import (
    OWNER_FIELDS,
    BindingContext,
    CorrectRequest,
    EraseReply,
    EraseRequest,
    ForgetReply,
    ForgetRequest,
    Invalid,
    Json,
    MemtuiError,
    Model,
    NotFound,
    Record,
    RecordHandle,
    Scope,
    Snapshot,
    SourceRef,
    Unavailable,
    UtcDatetime,
    WriteRequest,
)
from memtui.provider_kit import (
    abilities_in,
    blocking,
    check_revision,
    require_kept,
    require_writable,
)
from memtui.provider_kit.files.adapter import ConfigT, FilesAdapter
from memtui.provider_kit.files.reading import FileReader, ParsedRecord, digest, sign
from memtui.provider_kit.flock import flock
from memtui.provider_kit.known import KnownFile, remains


class WrittenRecord(Model):
    """The stored metadata of a record that was written through memtui."""

    scope: Scope
    source: SourceRef | None = None
    kind: str | None = None
    """None: as in the file; likewise for the topic."""
    topic: str | None = None
    tags: tuple[str, ...] = ()
    created_at: UtcDatetime | None = None
    updated_at: UtcDatetime | None = None
    created_by: str | None = None
    metadata: Json = {}


def known_then(taken: Snapshot) -> WrittenRecord | None:
    """Return a record's metadata as it was; None: there was none."""
    known = taken.state["known"]
    return None if known is None else WrittenRecord.model_validate(known)


class WritableFilesAdapter(FilesAdapter[ConfigT]):
    """Shows the records in files and changes them, unless the binding is read-only."""

    def __init__(self, context: BindingContext, config: ConfigT) -> None:
        super().__init__(context, config)
        self.capabilities = abilities_in(context, type(self).capabilities)
        what = f"the memories in {config.path}"
        self._known_file = KnownFile(context.data_dir, WrittenRecord, what)
        self._known: Mapping[str, WrittenRecord] = {}
        """By record id."""
        self._is_changing = False
        self._known_lock = Lock()
        """Held while `_known` is read from the file."""
        self.marker = context.data_dir / "changed"
        """A file whose modification time is that of memtui's last change of these files."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock these files against memtui's other processes. Blocking.

        Raises:
            Unsupported: the binding is read-only.
            Unavailable: another memtui does not release the lock in time.
        """
        require_writable(self._context, f"The memories in {self.config.path}")
        busy = f"{self.config.path} is being changed by another memtui; try again."
        with flock(self._context.data_dir / "changing.lock", busy):
            try:
                with self._known_lock:
                    self._is_changing, self._known = True, self._known_file.read()
                yield
            finally:
                self._is_changing = False

    def known_of(self, request: WriteRequest, *, kind: str | None = None) -> WrittenRecord:
        """Return the metadata to store for a write.

        Raises:
            Invalid: the files belong to another project, agent or user than the request's.
            Unsupported: the record is pinned or expires, which the files cannot represent.
        """
        require_kept(self.capabilities, request)
        named = {}
        for field in OWNER_FIELDS:
            own, asked = getattr(self._scope, field), getattr(request.scope, field)
            if own and asked and own != asked:
                what = field.removesuffix("_id")
                raise Invalid(
                    f"{self.config.path} belongs to the {what} {own}, so memories of the {what} "
                    f"{asked} cannot be written to it; choose another binding."
                )
            named[field] = own or asked
        return WrittenRecord.like(
            request,
            scope=request.scope.model_copy(update=named),
            kind=kind,
            created_at=request.created_at or self._context.now(),
        )

    def keep_known(self, changes: Mapping[str, WrittenRecord | None]) -> None:
        """Store the metadata of these records; None removes it. Call it within `changing`."""
        self._known = self._known_file.change(self._known, changes)

    def corrected(self, record_id: str, request: CorrectRequest) -> WrittenRecord:
        """Return a record's metadata after a correction.

        Raises:
            Unsupported: the correction pins the record or sets an expiry.
        """
        require_kept(self.capabilities, request)
        known = self._known.get(record_id) or WrittenRecord(scope=self._scope)
        update = request.changes("topic", "tags")
        return known.model_copy(update={**update, "updated_at": self._context.now()})

    def to_correct(self, request: CorrectRequest) -> tuple[Record, WrittenRecord | None]:
        """Return the record of a correction as it is now, and its metadata afterwards, if any.

        Raises:
            Conflict: it has changed since it was read.
            NotFound: there is none in the scope.
            Unsupported: the correction pins the record or sets an expiry.
        """
        record, name = self._find(request.handle, request.scope), request.handle.provider_record_id
        if record is None:
            raise self.missing(request.handle)
        check_revision(record, request.revision, request.text)
        known = self.corrected(name, request)
        is_kept = name in self._known or (request.topic, request.tags) != (None, None)
        return record, known if is_kept else None

    def to_forget(self, request: ForgetRequest) -> tuple[dict[str, Record], ForgetReply]:
        """Return the records to forget by their ids, and the reply that lists the missing ones.

        Raises:
            Conflict: one has changed since it was read.
        """
        there = self._find_all(request.handles, request.scope)
        found = {one.provider_record_id: record for one, record in there.items() if record}
        for name, record in found.items():
            check_revision(record, request.revisions.get(name))
        missing = tuple(one for one, record in there.items() if record is None)
        return found, ForgetReply(missing=missing)

    @contextmanager
    def known_first(self, changes: Mapping[str, WrittenRecord | None]) -> Iterator[None]:
        """Store metadata before a change of the files, and take that back if the change fails.

        A record without its owner would be everybody's meanwhile.
        """
        before = {name: self._known.get(name) for name in changes}
        self.keep_known(changes)
        try:
            yield
        except MemtuiError as error:
            if not (isinstance(error, Unavailable) and error.sent):
                self.keep_known(before)
            raise

    def known_json(self, record_id: str) -> Json | None:
        """Return a record's metadata for a snapshot; None if there is none."""
        known = self._known.get(record_id)
        return None if known is None else known.model_dump(mode="json", exclude_defaults=True)

    def missing(self, handle: RecordHandle) -> NotFound:
        """Return the error for a handle without a record in its scope."""
        return NotFound(f"There is no record {handle.provider_record_id} in {self.config.path}.")

    def _read(self, reader: FileReader) -> dict[str, Record]:
        path = self._known_file.path
        while True:
            before = reader.look(path)
            with self._known_lock:
                if not self._is_changing:  # then `_known` is newer than what is read here
                    self._known = self._known_file.read()
            records = super()._read(reader)
            if sign(path) == before:
                return records
            reader.problems.clear()  # a record without its owner would be everybody's: read again

    def _record(self, found: ParsedRecord, path: Path, record_id: str) -> Record:
        record = super()._record(found, path, record_id)
        if (known := self._known.get(record_id)) is None:
            return record
        update: dict[str, Any] = {name: value for name, value in known if value}
        update["metadata"] = {**record.metadata, **known.metadata}
        update["revision"] = digest(record.revision or "", known.model_dump_json())
        return record.model_copy(update=update)

    @blocking
    def erase(self, request: EraseRequest) -> EraseReply:
        """Erase the metadata of records that the other program has removed."""
        there, _ = self._load()
        owners = {name: one.scope for name, one in self._known.items()}
        found = remains(owners, there, request)
        if request.apply and found.record_ids:
            with self.changing():
                self.keep_known(dict.fromkeys(found.record_ids))
        beyond = (self.keeps,) if self.keeps else ()
        return found.model_copy(update={"folders": (self.config.path,), "beyond": beyond})
