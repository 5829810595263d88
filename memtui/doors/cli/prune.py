"""`facts prune`: what a scope could do without, why, and away with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.contract import Invalid
from memtui.doors.cli import impact
from memtui.doors.cli.facts import FACT, FactScope
from memtui.doors.cli.forget import changed_ids, forgotten
from memtui.doors.cli.impact import Check, Last, Tried
from memtui.doors.cli.output import Dim, Line
from memtui.doors.cli.session import Session
from memtui.widgets import format as shown

if TYPE_CHECKING:
    from memtui.pruning.candidates import PruneCandidate, Reason
    from memtui.pruning.plan import PrunePlan
    from memtui.service import MutationAnswer, PruneAnswer

_NO_LIMIT = 2**31


async def facts_prune(
    session: Session,
    scope: FactScope,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and change nothing; the default.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Forget what the plan marks, as one operation.")
    ] = False,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            help="Mark these instead of what is suggested: holds_secret, poisoned, "
            "exact_duplicate, expired, contradicted, near_duplicate, forgotten_before, "
            "same_meaning, says_otherwise, disagrees, changes_often, changed_late, redacted, "
            "costly, never_read, stale, too_long; may be repeated."
        ),
    ] = None,
    stale_days: Annotated[
        int, typer.Option(min=0, help="Days without a read after which a fact is stale.")
    ] = 30,
    unread_days: Annotated[
        int, typer.Option(min=0, help="Days for which a new record is not called unread.")
    ] = 7,
    kind: Annotated[str, typer.Option(help="The sort of record; all takes every one.")] = FACT,
    only_company: Annotated[
        bool,
        typer.Option("--only-company", help="Only what is no user's, project's or agent's."),
    ] = False,
    tried: Tried = False,
    last: Last = None,
    check: Check = False,
) -> int:
    """Show which facts could go, and why; --apply lets them go.

    Marked are those whose loss loses nothing (duplicates, expired, contradicted and once deleted
    ones, none of them pinned), or those of the given reasons. undo brings back what was applied.
    """
    from memtui.pruning.candidates import PruneRules
    from memtui.service import PruneRequest

    if only_company and (scope.project or scope.subject or scope.agent):
        raise Invalid("Give --only-company, or whose facts they are, not both.")
    if dry_run and apply:
        raise Invalid("Give --dry-run or --apply, not both.")
    impact.refuse_alone(impact=tried, last=last, check=check)
    if tried and apply:
        raise Invalid("Give --impact or --apply, not both: look at it first.")
    reasons = _reasons(reason or ())
    request = scope.request(
        session,
        PruneRequest,
        kind=None if kind == "all" else kind,
        rules=PruneRules(
            stale_days=stale_days,
            unread_days=unread_days,
            max_characters=session.settings.fact_max_chars or _NO_LIMIT,
        ),
        model=session.settings.context_model,
        only_company=only_company,
    )
    answer = await session.service.pruning.plan(session.caller, request)
    plan = answer.plan
    if reasons:
        plan = plan.mark_reasons(reasons)
    applied = None
    if apply and plan.marked:
        applied = await scope.forget(session, plan.marked, answer.binding_key)
    document = _document(answer, plan) | _outcome(applied, dry_run=not apply)
    if tried and plan.marked:
        marked = {answer.binding_key: [record.handle for record in plan.marked]}
        found = await impact.find(session, marked, last)
        session.out.answer(
            document | {"impact": impact.document(found)},
            [*_lines(plan), Dim("Without what is marked:"), *impact.lines(found)],
            *_told(plan, applied, dry_run=True),
            *impact.sentences(found),
        )
        return impact.exit_code(found, check=check)
    session.out.answer(document, _lines(plan), *_told(plan, applied, dry_run=not apply))
    return 1 if applied and (applied.missing or applied.ghosts) else 0


def _reasons(names: Sequence[str]) -> list[Reason]:
    from memtui.pruning.candidates import Reason

    try:
        return [Reason(name) for name in names]
    except ValueError as error:
        raise Invalid(f"There is no such reason; it is one of {', '.join(Reason)}.") from error


def _document(answer: PruneAnswer, plan: PrunePlan) -> dict[str, Any]:
    marked = {record.handle for record in plan.marked}
    return {
        "plan_operation_id": answer.operation_id,
        "binding_key": answer.binding_key,
        "problems": [one.model_dump(mode="json") for one in answer.problems],
        "records": len(plan.items),
        "marked": len(marked),
        "tokens_before": plan.tokens_before,
        "tokens_after": plan.tokens_after,
        "tokens_saved": plan.tokens_saved,
        "candidates": [
            {
                "record_id": candidate.record.handle.provider_record_id,
                "text": candidate.record.text,
                **candidate.model_dump(mode="json", exclude={"record", "survivor"}),
                "survivor_id": candidate.survivor and candidate.survivor.provider_record_id,
                "marked": candidate.record.handle in marked,
            }
            for candidate in plan.candidates
        ],
        "clusters": _clusters(plan),
        "diff": [
            {"record_id": line.handle.provider_record_id, **line.model_dump(exclude={"handle"})}
            for line in plan.diff()
        ],
    }


def _clusters(plan: PrunePlan) -> list[dict[str, Any]]:
    """Return each group of records that say the same, with the one that stays."""
    texts = {item.record.handle: item.record.text for item in plan.items}
    found: dict[str, list[PruneCandidate]] = {}
    for candidate in plan.candidates:
        if candidate.cluster_id is not None:
            found.setdefault(candidate.cluster_id, []).append(candidate)
    return [
        {
            "cluster_id": cluster_id,
            "survivor_id": members[0].survivor and members[0].survivor.provider_record_id,
            "survivor_text": members[0].survivor and texts.get(members[0].survivor),
            "duplicate_ids": [member.record.handle.provider_record_id for member in members],
        }
        for cluster_id, members in found.items()
    ]


def _outcome(applied: MutationAnswer | None, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "operation_id": applied and applied.operation_id,
        "forgotten": changed_ids(applied) if applied else [],
        "missing": [handle.provider_record_id for handle in applied.missing] if applied else [],
        "ghosts": [handle.provider_record_id for handle in applied.ghosts] if applied else [],
    }


def _lines(plan: PrunePlan) -> Iterator[Line]:
    for line in plan.diff():
        yield str(line)
        yield Dim(
            f"    {line.handle.provider_record_id}  {line.tokens} tokens  {line.why}".rstrip()
        )
    marked = {record.handle for record in plan.marked}
    others = [one for one in plan.candidates if one.record.handle not in marked]
    if others:
        yield Dim("Not marked:")
    for candidate in others:
        yield f"? {candidate.record.text}"
        yield Dim(
            f"    {candidate.record.handle.provider_record_id}  {candidate.tokens_saved} tokens  "
            f"{candidate.reason}: {candidate.sentence}"
        )


def _told(plan: PrunePlan, applied: MutationAnswer | None, *, dry_run: bool) -> Iterator[str]:
    count, all_of = shown.counted(len(plan.marked), "record"), shown.count(len(plan.items))
    saved = f"{shown.count(plan.tokens_saved)} of {shown.count(plan.tokens_before)} tokens"
    if not plan.items:
        yield "There is nothing here that could go."
    elif not plan.marked:
        yield f"Nothing of {all_of} is marked to go."
    elif dry_run:
        yield f"{count} of {all_of} would go and save {saved}; --apply lets them go."
    elif applied is not None:
        yield f"That saves {saved}."
        yield from forgotten(applied)
