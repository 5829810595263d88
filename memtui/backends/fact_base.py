"""The common base of the providers of facts (seed 004): validation, ownership and queries."""

import asyncio
import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from memtui.contract import (
    Adapter,
    BindingContext,
    Capabilities,
    ContextBundle,
    Invalid,
    Json,
    NotFound,
    QueryIntent,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    Usage,
)
from memtui.provider_kit import abilities_in, require_writable
from memtui.provider_kit.matching import has_metadata, matcher
from memtui.provider_kit.search import ranked

DRIVE_PREFIX = "drive:"
"""Prefix of the record id of a drive's fact, if a user's fact has the same id."""
MAKER = "fact_source"
"""The metadata key of the seed's `source`: ai or user."""
OWNER_IDS = {"user": "subject_id", "drive": "project_id"}

_REFUSED = frozenset({"Cc", "Cs", "Zl", "Zp"})
_QUERY_CHARS = 1_000
"""Most characters of a query that are used; a fact is far shorter."""


class FactProvider(Adapter):
    """Base of a provider of facts: one line each, owned by a user or a drive (a project)."""

    abilities: ClassVar[Capabilities]
    usage: ClassVar[Usage]
    """The usage of one call."""
    only_facts = True
    lacks = frozenset({"kind", "title"})

    def __init__(self, context: BindingContext) -> None:
        self.context = context
        self.capabilities = abilities_in(context, self.abilities)

    @classmethod
    def home_of(cls, config: Json, scope: Scope) -> str | None:  # noqa: ARG003
        """Return the owner. Raises `Invalid` if the scope has neither a project nor a subject."""
        if scope.project_id is None and scope.subject_id is None:
            raise Invalid(
                "This provider stores facts of projects and users only; name one of them."
            )
        return " ".join(fact_owner(scope))

    def lists(self, scope: Scope, owner: Scope) -> bool:
        """Whether an owner is the scope's project or subject; with neither, all are listed."""
        if not (scope.project_id or scope.subject_id):
            return True
        if owner.project_id:
            return owner.project_id == scope.project_id
        return owner.subject_id == scope.subject_id

    @abstractmethod
    async def candidates(self, request: QueryRequest) -> Sequence[Record]:
        """Return the facts of a query's scope, the oldest first."""

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return the facts that match, or for a prompt every fact of the user and the drive.

        A preamble gets every fact in order of creation (seed 004 §5.3), so that the model sees what
        the user sees. So does a query without words. Other queries get the facts with any of their
        words, ranked by BM25.
        """
        scope, is_prompt = request.scope, request.intent is QueryIntent.AGENT_PREAMBLE
        if is_prompt and not (scope.project_id or scope.subject_id):
            return ContextBundle(usage=(self.usage,))
        records = await self.candidates(request)
        found = await asyncio.to_thread(_chosen, records, request)
        return ContextBundle(
            snippets=tuple(found[: request.top_k]),
            capped=len(found) > request.top_k,
            usage=(self.usage,),
        )

    def require_writable(self) -> None:
        """Raise `Unsupported` in a read-only binding."""
        require_writable(self.context, "These facts are")


def _chosen(records: Sequence[Record], request: QueryRequest) -> list[Snippet]:
    passes = matcher(request.filter)
    fitting = [
        record
        for record in records
        if passes(record) and has_metadata(record, request.metadata_filter)
    ]
    if request.intent is QueryIntent.AGENT_PREAMBLE or not request.query.strip():
        return [Snippet(**dict(record)) for record in fitting]
    return ranked(fitting, request.query[:_QUERY_CHARS])


def fact_owner(scope: Scope) -> tuple[str, str]:
    """Return the owner of a write: the project (`drive`), or else the subject (`user`).

    Raises:
        Invalid: the scope names neither.
    """
    if scope.project_id:
        return "drive", scope.project_id
    if scope.subject_id:
        return "user", scope.subject_id
    raise Invalid("A fact is about a user or a project; name one with --subject or --project.")


def missing(handle: RecordHandle) -> NotFound:
    """Return the error for a missing fact."""
    return NotFound(
        f"There is no fact {handle.provider_record_id} in this scope; list the facts again."
    )


def check_line(text: str) -> None:
    """Raise `Invalid` unless the text is one line that any database can store.

    It is invalid if it is empty, has several lines, control characters or lone surrogates.
    """
    if not text.strip():
        raise Invalid("A fact needs some text; forget it instead of emptying it.")
    for char in "" if text.isprintable() else text:
        if char in "\n\r\x0b\x0c\x85\u2028\u2029":
            raise Invalid("A fact is one line; split it into several facts, or write a note.")
        if unicodedata.category(char) in _REFUSED:
            raise Invalid(f"A fact cannot contain control characters; remove U+{ord(char):04X}.")
