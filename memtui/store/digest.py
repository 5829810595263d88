"""The digest that chains a company's operations, so that an auditor can prove none was altered."""

from __future__ import annotations

import hashlib
import json

from memtui.store.operation import Operation, OperationDraft

GENESIS = "0" * 64
"""The digest before a company's first operation."""

_CHAIN_FIELDS = {"digest"}
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical(document: object) -> str:
    """Return the one JSON text of a document: keys sorted, no spaces, ASCII only."""
    return _ENCODER.encode(document)


def digest_of(draft: OperationDraft, *, seq: int, previous_digest: str) -> str:
    """Return the SHA-256, in hex, of an operation in its place in the chain.

    It covers the operation's JSON document as every door prints it, less the `digest` itself and
    with `previous_digest` and `seq` in it.
    """
    document = draft.model_dump(mode="json", exclude=_CHAIN_FIELDS)
    document |= {"seq": seq, "previous_digest": previous_digest}
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def is_intact(operation: Operation) -> bool:
    """Tell whether an operation still is what its digest was made of."""
    return operation.digest == digest_of(
        operation, seq=operation.seq, previous_digest=operation.previous_digest
    )
