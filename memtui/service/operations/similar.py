"""Find existing records that duplicate a new one (seed 002).

The nearest records of the same owner and kind are compared with the new text: by vectors where the
provider searches by meaning and the model `static` is installed, else by words. Records are never
merged automatically.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

from memtui.contract import QueryRequest, Record, Snippet, WriteRequest, owner_of, owner_scope
from memtui.service.answers import CLOSE, SAME, Similar
from memtui.service.connections import Connection
from memtui.service.recorder import RunningOperation
from memtui.service.visibility import for_caller, readable

_CANDIDATES, _LISTED, _CHARS = 10, 3, 2_000


async def candidates(
    entry: RunningOperation, connection: Connection, request: WriteRequest, text: str | None = None
) -> Sequence[Snippet]:
    """Return the nearest records of the same owner and kind, by the provider's search.

    Those that the caller may not read are left out. The usage is added to that of the operation.
    `text`: the text to search for; None: the content of the write.
    """
    asked = QueryRequest(
        scope=owner_scope(request.scope),
        query=(text or request.content)[:_CHARS],
        binding_key=connection.binding.key,
        top_k=_CANDIDATES,
        metadata_filter={"kind": request.kind},
    )
    bundle = await connection.read(lambda: connection.adapter.query(asked))
    entry.usage += bundle.usage
    return readable(bundle.snippets, request.scope, entry.visibility, connection.binding.key)


async def already_there(
    entry: RunningOperation, connection: Connection, request: WriteRequest
) -> tuple[Similar, ...]:
    """Return the owner's records that are the same as a write or close to it, if readable.

    Empty also where the provider lacks `similar`, or a spending limit prevents the search.
    """
    abilities = connection.adapter.capabilities
    if not (abilities.similar and entry.may_search()):
        return ()
    found = [
        one
        for one in await candidates(entry, connection, request)
        if owner_of(one.scope) == owner_of(request.scope)
    ]
    if not found:
        return ()
    liken = partial(likest, by_meaning=abilities.semantic)
    alike = await asyncio.to_thread(liken, request.content, found)
    records = for_caller(entry.caller, [one.record for one in alike])
    pairs = zip(alike, records, strict=True)
    return tuple(one.model_copy(update={"record": record}) for one, record in pairs)


def likest(text: str, found: Sequence[Snippet], *, by_meaning: bool) -> tuple[Similar, ...]:
    """Return the records that are the same as a text or close to it, the most similar first.

    Duplicates by the rules of pruning are the same. Of the others, texts that differ in a number,
    a name or a negation are at most close, and so are texts compared by words only. Blocking.
    """
    from memtui.pruning.duplicates import Likeness, compare, form_of, guard

    text, texts = text[:_CHARS], [one.text[:_CHARS] for one in found]
    has_vectors = by_meaning and find_spec("wordllama") is not None
    measured = _cosines(text, texts) if has_vectors else _shared(text, texts)
    own, alike = form_of(text), []
    for one, form, measure in zip(found, map(form_of, texts), measured, strict=True):
        match = compare(own, form)
        if match is not None:
            likeness = 1.0 if match.likeness is Likeness.EXACT else SAME
        elif has_vectors and guard(form) == guard(own):
            likeness = min(measure, 1.0)
        else:
            likeness = min(measure, SAME - 0.01)
        if likeness >= CLOSE:
            alike.append(Similar(record=Record.like(one), likeness=round(likeness, 3)))
    return tuple(sorted(alike, key=lambda one: -one.likeness)[:_LISTED])


def _cosines(text: str, texts: Sequence[str]) -> list[float]:
    from memtui.embedding import STATIC, embedder

    rows = embedder(STATIC).embed([text, *texts]).vectors
    return [float(one) for one in rows[1:] @ rows[0]]


def _shared(text: str, texts: Sequence[str]) -> list[float]:
    """Return the share of words, in order, that a text has in common with each of `texts`."""
    from difflib import SequenceMatcher

    from memtui.pruning.duplicates import form_of

    own = form_of(text).words
    return [SequenceMatcher(None, own, form_of(one).words, autojunk=False).ratio() for one in texts]
