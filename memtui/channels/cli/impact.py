"""`--impact` of `forget` and `facts prune`: what forgetting some records would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.channels.cli.output import Dim, Line, ticker
from memtui.channels.cli.session import Session
from memtui.contract import Invalid, RecordHandle
from memtui.presenters import format as shown
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.service.context.impact import Effect, Impact

_TEXT = 100
"""Most characters of a text on a line."""


@dataclass(frozen=True)
class ImpactOptions:
    """Whether the impact is looked for, and how far back.

    Args:
        tried: Show which of the last answers would differ without them, and change nothing.
        last: With --impact: how many of the newest queries and contexts are tried; left out: 500.
        check: With --impact: exit 1 where an answer would differ.
    """

    tried: Annotated[bool, typer.Option("--impact")] = False
    last: Annotated[int | None, typer.Option(min=1, max=10_000)] = None
    check: bool = False

    def refuse_alone(self) -> None:
        """Raise `Invalid` if --last or --check is given without --impact."""
        if not self.tried and (self.last is not None or self.check):
            raise Invalid("--last and --check go with --impact; give that too.")

    def exit_code(self, found: Impact) -> int:
        """Return 1 if `check` is set and an answer differs, or may; else 0."""
        return int(self.check and bool(found.differ or found.with_a_record))


async def find(
    session: Session, records: Mapping[str, Sequence[RecordHandle]], last: int | None
) -> Impact:
    """Replay the log's last questions without some records, given by binding key."""
    from memtui.service.context.impact import ImpactRequest

    request = ImpactRequest.model_validate(
        {"records": records, **({} if last is None else {"last": last})}
    )
    with ticker() as show:
        return await session.service.impact.of(
            session.caller, request, progress=lambda so_far: show(shown.trial_words(so_far))
        )


def document(found: Impact) -> dict[str, Any]:
    """Return the impact as JSON."""
    return {
        "record_ids": [one.handle.provider_record_id for one in found.records],
        "unread_ids": [one.provider_record_id for one in found.unread],
        "missing_ids": [one.provider_record_id for one in found.missing],
        **found.model_dump(mode="json", include={"asked", "tried", "questions", "is_all"}),
        "differ": found.differ,
        "would_lose": found.would_lose,
        "tokens_saved": found.tokens_saved,
        "untried_with_a_record": found.with_a_record,
        "untried": [one.model_dump(mode="json") for one in found.untried],
        "effects": [_effect(one) for one in found.effects],
    }


def _effect(one: Effect) -> dict[str, Any]:
    still_said = set(one.still_said)

    def rows_of(side: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "rank": one.rank,
                "binding_key": one.binding_key,
                "record_id": one.handle.provider_record_id,
                "text": one.text,
            }
            for one in side
        ]

    gone = [
        {**row, "marked": record.marked, "still_said": record.place in still_said}
        for row, record in zip(rows_of(one.gone), one.gone, strict=True)
    ]
    return {
        "seq": one.operation.seq,
        "type": one.operation.operation_type,
        "question": one.question,
        "times": one.times,
        "how": shown.effect_words(one),
        **one.model_dump(
            mode="json",
            include={"operation_ids", "agents", "principals", "runs", "projects", "subjects"},
        ),
        "emptied": one.emptied,
        "reordered": one.reordered,
        "loses_nothing": one.loses_nothing,
        "tokens_saved": one.tokens_saved,
        "gone": gone,
        "come": rows_of(one.come),
        "before": rows_of(one.before.records),
        "after": rows_of(one.after.records),
        "difference": one.difference,
    }


def lines(found: Impact) -> Iterator[Line]:
    """Yield each answer that would differ."""
    for one in found.effects:
        times = f"  {shown.count(one.times)} times" if one.times > 1 else ""
        question = visible(one.question or "-", limit=_TEXT)
        yield f"{one.operation.operation_type}  {question}{times}: {shown.effect_words(one)}"
        yield Dim(f"    {one.operation.operation_id[:12]}  {shown.asked_by(one)}".rstrip())
        for record in one.gone:
            yield f"    - {record.rank}  {visible(record.text, limit=_TEXT)}"
        for record in one.come:
            yield f"    + {record.rank}  {visible(record.text, limit=_TEXT)}"


def sentences(found: Impact) -> Iterator[str]:
    """Yield missing records and the summary."""
    for one in found.missing:
        yield f"There is no record {one.provider_record_id}."
    yield from shown.impact_words(found)
