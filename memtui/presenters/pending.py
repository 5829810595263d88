"""Pending writes in words, for the command line and the app.

Foreign strings are returned unchanged; the caller makes them visible.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from memtui.contract import CorrectRequest, Proposal, Record, WriteRequest, owner_words
from memtui.presenters import format as fmt
from memtui.record_changes import asked_fields, changed_fields, written_with
from memtui.service.review.proposals import ProposedChange, in_short
from memtui.service.review.queue import PendingDetails, PendingDifference, PendingWrite

GONE = "The record that it would change is gone; refuse it"
ORDERS = "It reads like an order, or hides something."


def owners_of(one: PendingWrite) -> str:
    """Return the owners of the memories that the write would change."""
    return ", ".join(map(owner_words, one.owners))


def briefly(one: PendingWrite, zone: tzinfo | None = None) -> str:
    """Return the request in one line: its text or the records', then each other field."""
    named = ", ".join(handle.provider_record_id for handle in one.handles)
    texts = [one.text] if one.text else one.texts_before or [named]
    asked = (f"{name}: {value}" for name, value in _asked(one, zone))
    return " · ".join(filter(None, (*texts, *asked)))


def about(one: PendingWrite, now: datetime, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    """Yield names and values: who requested a write, when, from where, and why it is held."""
    acts_for = f", for {one.acts_for}" if one.acts_for else ""
    is_proposal = isinstance(one.request, ProposedChange)
    yield (
        "asks to",
        "change settings" if is_proposal else f"{one.operation_type} in {one.binding_key}",
    )
    yield "of", owners_of(one)
    yield "by", f"{one.principal}{acts_for}, through {one.channel}"
    yield "from", (came_from := fmt.source_line(one.source))
    reference = one.source and one.source.external_ref
    yield "reference", reference if reference and reference not in came_from else ""
    yield "run", one.run_id or ""
    if isinstance(one.request, WriteRequest | CorrectRequest):
        yield from (pair for pair in written_with(one.request, zone) if pair != _own_author(one))
    times = f", {one.times} times, last {fmt.since(one.last_at, now)}" if one.times > 1 else ""
    yield "held", f"{fmt.since(one.pending_since, now)}{times}"
    yield "rule", "; ".join(one.reasons)
    if isinstance(one.request, Proposal):
        yield "file", one.request.location.path
    yield "unfit", one.unfit
    yield "not yours", one.kept
    if one.decider:
        yield "unknown", f"{one.decider} was accepting it; check its outcome in Operations."
    yield "id", one.pending_id


def fields(one: PendingDifference, zone: tzinfo | None = None) -> list[tuple[str, str]]:
    """Return each field, except the text, that the write would change."""
    return changed_fields(one.before, one.after, zone)


def beside(found: PendingDetails) -> Iterator[tuple[str, Sequence[Record]]]:
    """Yield the records to compare a pending write with, each group with its title."""
    shown = {one.before.handle for one in found.differences if one.before is not None}
    yield "says otherwise than", [one for one in found.contradicts if one.handle not in shown]
    yield "is there already", found.same
    yield "was, when it was held", found.then if found.changed else ()


def left_out(one: PendingWrite, text: str) -> str:
    """Return which fields of the agent are not stored with an edited text; empty: none."""
    gone = [name for name in ("summary", "embedding") if getattr(one.request, name, None)]
    if text == one.text or not gone:
        return ""
    words = " and ".join("vector" if name == "embedding" else name for name in gone)
    return f"The agent's {words} of its own text {'are' if len(gone) > 1 else 'is'} left out."


def kept_with(one: PendingWrite, zone: tzinfo | None = None) -> str:
    """Return the fields of the agent that are stored with an edited text."""
    stays = (pair for pair in _asked(one, zone) if pair[0] not in {"summary", "vector"})
    return "; ".join(f"{name}: {value}" for name, value in stays)


def _asked(one: PendingWrite, zone: tzinfo | None) -> list[tuple[str, str]]:
    if isinstance(one.request, ProposedChange):
        return [(change.name, in_short(change)) for change in one.request.changes]
    if isinstance(one.request, Proposal):
        return []
    return [pair for pair in asked_fields(one.request, zone) if pair != _own_author(one)]


def _own_author(one: PendingWrite) -> tuple[str, str]:
    """Return the author field that only repeats the requester."""
    return "author", one.principal
