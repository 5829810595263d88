"""The control plane's duties around every provider (seed 001).

Secrets are taken out by `memtui.service.redaction`. Here: a caller gets only what it may read, a
company-wide ("org") memory reaches an agent with a prefix that says that it is no instruction of
its own, and a write of one is audited by a salted SHA-256, without its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from memtui.contract import Record, Scope
from memtui.service.answers import Caller
from memtui.service.recorder import Entry
from memtui.store.digest import withhold
from memtui.store.sight import Sight
from memtui.visible import visible

R = TypeVar("R", bound=Record)

CONTENT = "request.content"
"""Where the log has the text that was written."""

_LOGGED_CHARS = 2_000
_PREFIX = re.compile(r"(?:\[MEMORY id=[^\]\n]* scope=ORG ns=[^\]\n]*\]: )+")
_UNSAFE = re.compile(r"[\s\[\]]")


def is_org(scope: Scope) -> bool:
    """Whether a scope is the whole company's."""
    return not (scope.project_id or scope.agent_id or scope.subject_id)


def readable(records: Sequence[R], asked: Scope, sight: Sight | None) -> tuple[R, ...]:
    """Return the records that may be seen; another company's are nobody's.

    Args:
        records: What the provider returned.
        asked: The scope that was asked for.
        sight: None: the company has no members, and everybody reads everything.
    """
    return tuple(record for record in records if may_read(record.scope, asked, sight))


def may_read(scope: Scope | None, asked: Scope, sight: Sight | None) -> bool:
    """Whether what is in `scope` may be seen; None is everybody's."""
    if scope is None:
        return True
    return scope.company_id == asked.company_id and (sight is None or sight.reads(scope))


def note_owner(entry: Entry, scopes: Iterable[Scope]) -> None:
    """Let an operation that named no user be the one's whose own memories it touched.

    Who may see an operation shows in its scope. A company without members hides nothing; there
    only a change, whose text stays until there are some, is noted as its user's.
    """
    if entry.scope.subject_id or (entry.sight is None and not entry.operation_type.mutates):
        return
    owners = {scope.subject_id for scope in scopes if scope.subject_id and not scope.project_id}
    if len(owners) == 1 or (owners and entry.sight is not None):
        entry.scope = entry.scope.model_copy(update={"subject_id": min(owners)})


def for_caller(caller: Caller, records: Sequence[R]) -> tuple[R, ...]:
    """Return records as a caller gets them: an agent gets company-wide ones with the prefix."""
    if not caller.by_ai:
        return tuple(records)
    return tuple(_prefixed(record) if is_org(record.scope) else record for record in records)


def _prefixed(record: R) -> R:
    identity = record.handle.provider_record_id
    namespace, _, name = identity.rpartition("/")
    if not namespace.startswith("org:"):
        namespace, name = f"org:{record.scope.company_id}", identity
    safe_id, safe_namespace = (_UNSAFE.sub("_", visible(part)) for part in (name, namespace))
    prefix = f"[MEMORY id={safe_id} scope=ORG ns={safe_namespace}]: "
    return record.model_copy(update={"text": prefix + without_prefix(record.text)})


def without_prefix(text: str) -> str:
    """Return a text without the prefix: an agent may write back what it was given."""
    return _PREFIX.sub("", text, count=1) if text.startswith("[MEMORY ") else text


def log_text(entry: Entry, text: str, *, withheld: bool) -> None:
    """Let the log keep the beginning of a text that is written; of a withheld one, no part of it.

    In the place of a withheld text stands a commitment, by which it is known again.
    """
    entry.request = {name: value for name, value in entry.request.items() if name != "content"}
    entry.absent, entry.salts = {}, {}
    if withheld:
        entry.absent[CONTENT], entry.salts[CONTENT] = withhold(CONTENT, text)
    else:
        entry.request["content"] = text[:_LOGGED_CHARS]
    entry.request["content_chars"] = len(text)
