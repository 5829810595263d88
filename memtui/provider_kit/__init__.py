"""Building blocks for providers, ours or third-party: config, threads, and required refusals.

A provider with a blocking store writes plain methods under `@blocking`. One with its records in
memory uses `matching.matcher`, `pages.page` and `search.TextIndex`; one whose store has a query
language passes its clauses for `matching.conditions` to `translated`. One that calls a server uses
`servers.JsonApi`, and one that derives an index stores it in a `derived.DerivedDatabase`.
"""

import asyncio
import errno
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

from memtui.contract import (
    BindingContext,
    Capabilities,
    Conflict,
    CorrectRequest,
    Denied,
    Invalid,
    MemtuiError,
    Record,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.threads import in_thread
from memtui.wording import misfit

T = TypeVar("T")
ConfigT = TypeVar("ConfigT", bound=BaseModel)


UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID in the usual spelling."""
    return UUID.fullmatch(text) is not None


def read_config(model: type[ConfigT], context: BindingContext) -> ConfigT:
    """Return the config of a binding. Raises `Invalid` where it does not fit."""
    try:
        return model.model_validate(context.config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "config"
        raise Invalid(
            f"The setting {field} of the binding {context.binding_key} does not fit: "
            f"{misfit(first)}."
        ) from error


def _absolute(path: Path) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise ValueError("the home folder is not known") from error
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError("give an absolute path")
    return path


LocalPath = Annotated[Path, AfterValidator(_absolute)]
"""Path in a config, absolute or from `~`, since a command may run in any folder."""


blocking = in_thread
"""Turn an adapter's plain method into a coroutine that runs it in a thread.

The service sets the time-out and abandons a call that does not return; give each call to the store
its own time-out, so that its thread ends.
"""


async def together(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run calls, at most eight at a time, and return their answers in order.

    All calls end before the first error, if any, is raised.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await call()

    answers = await asyncio.gather(*map(one, calls), return_exceptions=True)
    done: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done


_AT_ONCE = 8


def need_secret(context: BindingContext, name: str, what: str) -> str:
    """Return a secret. Raises `Invalid` if it is missing, with `what` as its description."""
    if secret := context.secret(name):
        return secret
    raise Invalid(
        f"There is no secret {name}; put {what} into the keyring or the environment under that "
        "name."
    )


_CHANGING = ("writable", "correction", "restore", "keeps_ids", "namespace_changes")


def abilities_in(context: BindingContext, abilities: Capabilities) -> Capabilities:
    """Return a provider's abilities in a binding: without changes if it is read-only."""
    return read_only(abilities) if context.read_only else abilities


def read_only(abilities: Capabilities) -> Capabilities:
    """Return the abilities without those that change anything."""
    return abilities.model_copy(update=dict.fromkeys(_CHANGING, False))


def require_writable(context: BindingContext, what: str) -> None:
    """Raise `Unsupported` in a read-only binding; `what` begins the sentence."""
    if context.read_only:
        raise Unsupported(f"{what} open read-only here; open the binding for writing first.")


def require_whole(source: SourceRef | None) -> None:
    """Raise `Unsupported` for a sync of one source; for providers that always read all."""
    if source is not None:
        raise Unsupported("This provider always reads everything again; leave the source out.")


def require_unprotected(path: Path, name: str) -> None:
    """Raise `Denied` where a file is write-protected; `name` begins the sentence.

    Checked explicitly, since replacing or removing a file needs rights on its folder only, and
    root may write any file. Blocking.
    """
    try:
        may_write = path.stat().st_mode & stat.S_IWUSR and os.access(path, os.W_OK)
    except OSError:
        return  # a missing file is not protected; an unreadable one fails later
    if not may_write:
        raise Denied(f"{name} is write-protected, so it is left alone; `chmod u+w` opens it.")


def refused_by_system(name: str, error: OSError) -> MemtuiError:
    """Return the error where the system refused to change a file, which is unchanged.

    `name` begins the sentence.
    """
    problem = f"{name} cannot be changed ({error.strerror or type(error).__name__})"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return Denied(f"{problem}; check its permissions and those of its folder.")
    return Unavailable(f"{problem}; nothing was changed there.")


def require_kept(able: Capabilities, request: WriteRequest | CorrectRequest) -> None:
    """Raise `Unsupported` where a request sets a field that the provider does not store.

    A pin, expiry or validity window must not be dropped silently.
    """
    asked = {
        "pins": (able.pin, request.pinned),
        "expiry": (able.expiry, request.expires_at),
        "validity windows": (
            able.validity,
            getattr(request, "valid_from", None) or getattr(request, "valid_to", None),
        ),
    }
    for what, (kept, value) in asked.items():
        if value and not kept:
            raise Unsupported(f"This provider keeps no {what}; leave that out.")


def check_revision(record: Record, revision: str | None, proposed: str | None = None) -> None:
    """Raise `Conflict` if `revision` is not the record's; None matches any revision."""
    if revision is not None and revision != record.revision:
        changed = record.handle.provider_record_id
        raise Conflict(
            f"The record {changed} changed since you read it; look at both versions.",
            current=record,
            proposed=proposed,
        )


def read_moment(value: object) -> datetime | None:
    """Return ISO 8601 text, a datetime or a date as a moment; None: it is none of these.

    Without a zone it is taken as UTC.
    """
    try:
        found = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
        if isinstance(found, datetime):
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(found, date):
            return datetime(found.year, found.month, found.day, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None  # not a date, or outside of the years 1 to 9999 in UTC
    return None


def from_epoch(units: float | str, per_second: int = 1) -> datetime | None:
    """Return a moment in units since 1970; None: no number, or outside of the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(float(units) / per_second, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def is_nested_deeper(value: object, most: int) -> bool:
    """Whether lists and objects are nested more than `most` deep; works without recursion."""
    level = [value]
    for _ in range(most + 1):
        nodes = [one for one in level if isinstance(one, (dict, list))]
        level = [
            one for part in nodes for one in (part.values() if isinstance(part, dict) else part)
        ]
    return bool(nodes)
