"""The digest that chains a company's operations, so that an auditor can prove none was altered.

The hashed document contains no free text: each such value is replaced by its commitment, so that
the chain can still be verified after the value was erased. `docs/audit.md` describes the document
and the bytes that are hashed.

A log that was cut at its end, with its head set back, passes verification; only a note elsewhere
shows the cut. A note is written after the commit, so it may lag behind the database, for example
after a kill, but is never ahead of it. It is not synced to disk. A power cut may lose committed
reads, so of a note from before the last boot, only the durable part counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from os import urandom
from pathlib import Path
from typing import NamedTuple

from pydantic_core import to_jsonable_python

from memtui.contract import Json, OperationType, Scope, SourceRef, Usage
from memtui.paths import make_private
from memtui.store.details import Details
from memtui.store.operation import OWN_FIELDS, Absent, Operation, OperationDraft, OperationHandle

GENESIS = "0" * 64
"""The digest before a company's first operation."""

SALT_BYTES = 16

SUBJECT = "scope.subject_id"
"""The field whose salt is the company's, so that operations of one subject can be counted."""

CONTROL = frozenset({OperationType.SEAL, OperationType.PURGE, OperationType.REPAIR})
"""Operations on the log itself; an auditor reads the members `PROOFS` of their requests."""

PROOFS = frozenset({"erased", "segments"})
"""Members hashed in clear, as they contain only numbers, paths of fields and SHA-256 of files."""

SOURCE_COMMITTED = ("activity_id", "comment_id", "document_key", "external_ref")

_NOT_COMMITTED = frozenset(
    """
    request operation_id operation_type status binding_key provider_key principal channel error_kind
    result_count capped started_at latency_ms undoes
    """.split()  # noqa: SIM905
)
COMMITTED = tuple(name for name in OWN_FIELDS if name not in _NOT_COMMITTED)
"""Fields of which the document has only commitments; a request is committed by member."""

_NAMES = frozenset(Details.__annotations__) - PROOFS

# The document of a logged operation must never change: a word may be added only if no log has it
# yet.
_WORDS: Mapping[str, frozenset[str]] = {
    "mode": frozenset({"append", "upsert", "summarize"}),
    "intent": frozenset({"agent_preamble", "answer", "browse"}),
    "type": frozenset({"write", "forget", "correct", "sync", "undo", "configure"}),
    "purpose": frozenset(
        "compare delete_namespace impact moments patterns prune purge replay shadow sync".split()  # noqa: SIM905
    ),
    "decision": frozenset({"accept", "fix", "refuse"}),
    "verdict": frozenset({"helped", "not_helped", "withdrawn"}),
}
_TRUTH = ("false", "true")
_PLAIN = (int, float, bool, type(None))

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical(document: object) -> str:
    """Return the canonical JSON of a document: keys sorted, no spaces, ASCII only."""
    return _ENCODER.encode(document)


def commitment(path: str, salt: bytes, value: str) -> str:
    """Return the commitment of a value, SHA-256 in hex; `value` is its canonical JSON text."""
    return sha256(b"%b\0%b%b" % (path.encode(), salt, value.encode())).hexdigest()


def withhold(path: str, value: object) -> tuple[Absent, str]:
    """Return the commitment of a value that must not be logged, and its salt in hex."""
    salt = urandom(SALT_BYTES)
    return Absent(commitment=commitment(path, salt, canonical(value)), withheld=True), salt.hex()


def is_value_of(one: OperationDraft, path: str, value: object) -> bool:
    """Whether a value is the withheld one; false where its salt was erased."""
    gone, salt = one.absent.get(path), one.salts.get(path)
    if gone is None or salt is None:
        return False
    return commitment(path, bytes.fromhex(salt), canonical(value)) == gone.commitment


def field_salt(salt: bytes, path: str) -> bytes:
    """Return the salt of one field, derived from the operation's salt."""
    return sha256(salt + path.encode()).digest()[:SALT_BYTES]


def salt_of(
    one: OperationDraft, path: str, value: str, salt: bytes | None, company: bytes
) -> bytes:
    """Return the salt of a field's commitment; empty where it was erased.

    A subject's salt is derived from the company's salt and the subject, so that a receiver of it
    cannot test other names with it.
    """
    if path == SUBJECT:
        return field_salt(company, value)
    if one.salts and path in one.salts:
        return bytes.fromhex(one.salts[path])
    return b"" if salt is None else field_salt(salt, path)


def committed_subject(subject_id: str, company: bytes) -> str:
    """Return the commitment that replaces an erased subject id, made with the company's salt."""
    value = _quoted(subject_id)
    return commitment(SUBJECT, field_salt(company, value), value)


def fields(one: OperationDraft) -> list[tuple[str, str]]:
    """Return path and canonical JSON text of each value that the document commits to."""
    return _fields(one, _split(one)[1])


def _fields(one: OperationDraft, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    found = [
        (f"handles.{handle.rank}.provider_record_id", _quoted(handle.provider_record_id))
        for handle in one.handles
    ]
    found += [
        (name, canonical(value)) for name in COMMITTED if (value := getattr(one, name)) is not None
    ]
    if one.scope.subject_id is not None:
        found.append((SUBJECT, _quoted(one.scope.subject_id)))
    if one.source is not None:
        found += [
            (f"source.{name}", _quoted(value))
            for name in SOURCE_COMMITTED
            if (value := getattr(one.source, name)) is not None
        ]
    for ordinal, usage in enumerate(one.usage):
        if usage.details:
            found.append((f"usage.{ordinal}.details", canonical(_plain(usage.details))))
    found += asked
    return found


def _split(one: OperationDraft) -> tuple[Json, list[tuple[str, str]]]:
    """Return the request's members to hash in clear, and path and JSON text of the others."""
    if not one.request:
        return {}, []
    clear, found, rest = {}, [], {}
    for name, value in _plain(dict(one.request)).items():
        if not is_own(one.operation_type, name):
            rest[name] = value
        elif _is_clear(name, value):
            clear[name] = value
        elif isinstance(value, list):
            found += [
                (f"request.{name}.{place}", canonical(part)) for place, part in enumerate(value)
            ]
        else:
            found.append((f"request.{name}", canonical(value)))
    if rest:
        found.append(("request", canonical(rest)))
    if one.absent:  # an erased member is null and would pass for a clear one
        clear = {
            name: value for name, value in clear.items() if f"request.{name}" not in one.absent
        }
    return clear, found


def is_own(kind: OperationType, name: str) -> bool:
    """Whether memtui defines a member's name; others are committed together with their names."""
    return name in _NAMES or (name in PROOFS and kind in CONTROL)


def _is_clear(name: str, value: object) -> bool:
    """Whether a request's member, of a name that memtui defines, holds no free text."""
    if isinstance(value, str):
        return value in _WORDS.get(name, ())
    return isinstance(value, _PLAIN) or not value or name in PROOFS


def commitments(one: OperationDraft, salt: bytes | None, company: bytes) -> dict[str, str]:
    """Return the commitment of every field that has or had a value, by path."""
    return _commitments(one, fields(one), salt, company)


def _commitments(
    one: OperationDraft, there: list[tuple[str, str]], salt: bytes | None, company: bytes
) -> dict[str, str]:
    absent = one.absent
    if salt is not None and not absent:  # nearly always: the code below, inlined for speed
        found = {}
        for path, value in there:
            name, text = path.encode(), value.encode()
            own = sha256(company + text if path == SUBJECT else salt + name).digest()[:SALT_BYTES]
            found[path] = sha256(name + b"\0" + own + text).hexdigest()
        return found
    found = {
        path: commitment(path, salt_of(one, path, value, salt, company), value)
        for path, value in there
        if path not in absent
    }
    found.update((path, gone.commitment) for path, gone in absent.items())
    return found


def document_of(
    one: OperationDraft, *, seq: int, previous_digest: str, salt: bytes | None, company: bytes
) -> str:
    """Return the canonical text of an operation's document at its place in the chain.

    Args:
        one: The operation.
        seq: Its number.
        previous_digest: The digest of the operation before it.
        salt: Its salt; None once one of its fields was erased.
        company: The company's salt, for subjects.
    """
    clear, asked = _split(one)
    committed = _commitments(one, _fields(one, asked), salt, company)
    listed = ",".join([f'"{path}":"{committed[path]}"' for path in sorted(committed)])
    handles = ",".join([_handle(handle) for handle in one.handles])
    usage = ",".join([_usage(usage) for usage in one.usage])
    withheld = [path for path in sorted(one.absent) if one.absent[path].withheld]
    return (
        f'{{"binding_key":{_text(one.binding_key)},"capped":{_TRUTH[one.capped]},'
        f'"channel":{_quoted(one.channel)},"committed":{{{listed}}},'
        f'"error_kind":{_text(one.error_kind)},"handles":[{handles}],'
        f'"latency_ms":{_number(one.latency_ms)},"operation_id":{_quoted(one.operation_id)},'
        f'"operation_type":{_quoted(one.operation_type)},'
        f'"previous_digest":{_quoted(previous_digest)},"principal":{_quoted(one.principal)},'
        f'"provider_key":{_text(one.provider_key)},"request":{canonical(clear) if clear else "{}"},'
        f'"result_count":{one.result_count},"scope":{_scope(one.scope)},"seq":{seq},'
        f'"source":{_source(one.source) if one.source else "null"},'
        f'"started_at":"{one.started_at.isoformat().replace("+00:00", "Z")}",'
        f'"status":{_quoted(one.status)},"undoes":{_text(one.undoes)},"usage":[{usage}],'
        f'"withheld":{canonical(withheld) if withheld else "[]"}}}'
    )


def digest_of(
    one: OperationDraft, *, seq: int, previous_digest: str, salt: bytes | None, company: bytes
) -> str:
    """Return the SHA-256, in hex, of an operation's document; arguments as `document_of`."""
    text = document_of(one, seq=seq, previous_digest=previous_digest, salt=salt, company=company)
    return sha256(text.encode()).hexdigest()


def is_intact(operation: Operation, company: bytes = b"") -> bool:
    """Whether an operation still matches its digest.

    Args:
        operation: As read from the log.
        company: The company's salt; an operation about no subject needs none.
    """
    return not _holds_what_is_absent(operation) and operation.digest == digest_of(
        operation,
        seq=operation.seq,
        previous_digest=operation.previous_digest,
        salt=operation.salt,
        company=company,
    )


def _holds_what_is_absent(operation: Operation) -> bool:
    """Whether a field that is marked absent has a value."""
    absent = operation.absent
    return bool(absent) and any(
        path in absent and value not in blank(path, absent[path].commitment)
        for path, value in fields(operation)
    )


def blank(path: str, committed: str) -> tuple[str, ...]:
    """Return the JSON texts that may replace an absent value; elsewhere the value is left out.

    A subject id is replaced by its commitment, a record id by "", a request's member by null.
    """
    if path == SUBJECT:
        return (_quoted(committed),)
    if path.startswith("handles."):
        return ('""',)
    return ("null",) if path.startswith("request.") else ()


# These write the members of `document_of` one by one: every operation is hashed when it is
# appended, and this takes half the time of a JSON encoder.


def _handle(handle: OperationHandle) -> str:
    return (
        f'{{"binding_key":{_text(handle.binding_key)},"ghost":{_TRUTH[handle.ghost]},'
        f'"provider_key":{_quoted(handle.provider_key)},'
        f'"rank":{handle.rank},"score":{_number(handle.score)}}}'
    )


def _usage(usage: Usage) -> str:
    cost = "null" if usage.cost_usd is None else f'"{usage.cost_usd}"'
    return (
        f'{{"cost_usd":{cost},"embedding_tokens":{usage.embedding_tokens},'
        f'"input_tokens":{usage.input_tokens},"latency_ms":{_number(usage.latency_ms)},'
        f'"model":{_text(usage.model)},"output_tokens":{usage.output_tokens},'
        f'"provider":{_quoted(usage.provider)}}}'
    )


def _scope(scope: Scope) -> str:
    return (
        f'{{"agent_id":{_text(scope.agent_id)},"company_id":{_quoted(scope.company_id)},'
        f'"issue_id":{_text(scope.issue_id)},"project_id":{_text(scope.project_id)},'
        f'"run_id":{_text(scope.run_id)}}}'
    )


def _source(source: SourceRef) -> str:
    return (
        f'{{"company_id":{_quoted(source.company_id)},"issue_id":{_text(source.issue_id)},'
        f'"kind":{_quoted(source.kind)},"run_id":{_text(source.run_id)}}}'
    )


def _text(value: str | None) -> str:
    return "null" if value is None else _quoted(value)


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    stored = value + 0.0  # as `unsigned_zero`
    return repr(stored) if isfinite(stored) else canonical(stored)


def _plain(value: Json) -> Json:
    """Return a value as plain JSON: enumerations become texts, NaN and infinities null."""
    try:
        return to_jsonable_python(value, inf_nan_mode="null")  # type: ignore[no-any-return]
    except UnicodeEncodeError:  # pydantic rejects a key with half of a surrogate pair
        return json.loads(canonical(value), parse_constant=lambda _: None)  # type: ignore[no-any-return]


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
    """The notes of one database, a small file per company. Blocking."""

    def __init__(self, folder: Path, place: str) -> None:
        """Store notes in `folder`; `place` identifies the database."""
        self._folder = folder
        self._place = place

    def path(self, company_id: str) -> Path:
        """Return the file of a company's note."""
        return self._folder / sha256(f"{self._place}\0{company_id}".encode()).hexdigest()[:32]

    def read(self, company_id: str) -> LogHead | None:
        """Return the noted end of a log; None: there is no readable note."""
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
