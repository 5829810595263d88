"""`facts prune`: records that could be forgotten, the reasons, and forgetting them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtui.channels.cli import impact
from memtui.channels.cli.check import lines as check_lines
from memtui.channels.cli.forget import changed_ids, forgetting_code, forgotten
from memtui.channels.cli.impact import ImpactOptions
from memtui.channels.cli.input import confirm
from memtui.channels.cli.options import BindingOptions, FactScope, FilterLine, Yes, filter_of
from memtui.channels.cli.output import Dim, Line, jsonable, ticker
from memtui.channels.cli.session import Session, build
from memtui.contract import BrowseRequest, Denied, Invalid, NotFound, owner_of, owner_words
from memtui.fact_values import FACT
from memtui.filters import FilterTarget
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.pruning.candidates import PruneCandidate, Reason
    from memtui.pruning.insights import Insight
    from memtui.pruning.plan import PrunePlan
    from memtui.service.context.pruning import PruneAnswer, PruneRequest
    from memtui.service.usecases.forgetting import ForgottenEverywhere
    from memtui.service.usecases.pruning import ContextPlan


async def facts_prune(
    session: Session,
    scope: FactScope,
    line: FilterLine = None,
    *,
    everything: bool = False,
    dry_run: bool = False,
    apply: bool = False,
    yes: Yes = False,
    reason: list[str] | None = None,
    stale_days: Annotated[int, typer.Option(min=0, max=36_500)] = 30,
    unread_days: Annotated[int, typer.Option(min=0, max=36_500)] = 7,
    kind: Annotated[str | None, typer.Option(show_default="fact")] = None,
    only_company: bool = False,
    workspace: Path | None = None,
    to_budget: bool = False,
    budget: Annotated[int | None, typer.Option(min=0)] = None,
    trial: ImpactOptions,
    checks: Path | None = None,
) -> int:
    """Show which facts could go, and why; --apply forgets them.

    It marks facts whose loss loses nothing: duplicates, expired, contradicted and once deleted
    ones, never pinned ones. --reason marks facts for these reasons instead, and --to-budget those
    that are worth least to a context; exit 1 if no such plan meets the budget. A filter narrows
    what could go. It asks before it applies a plan to several bindings or owners; undo brings the
    facts back. A binding that is slow or down is named, and the plans of the others stand.

    Args:
        everything: Look through all records of all owners, notes too, in all bindings.
        dry_run: Show the plan and change nothing; the default.
        apply: Forget what the plan marks; one undo undoes it.
        reason: Mark these instead of what is suggested: holds_secret, poisoned, exact_duplicate,
            expired, contradicted, near_duplicate, forgotten_before, same_meaning, says_otherwise,
            disagrees, refers_to_gone, source_changed, said_elsewhere, changes_often,
            changed_late, redacted, did_not_help, costly, never_read, stale, too_long; may be
            repeated.
        stale_days: Days without a read after which a fact is stale.
        unread_days: Days for which a new record does not count as unread.
        kind: The sort of record; all: every sort, as with --everything.
        only_company: Only what belongs to no user, project or agent.
        workspace: The folder whose git history says what is gone, for memories of which memtui
            does not know it.
        to_budget: Mark the facts that are worth least until the whole context of --project,
            --subject or --agent fits its budget.
        budget: The budget in tokens; the setting context_budget if left out.
        checks: A file of checks, asked without what is marked; if one fails, nothing is forgotten.
    """
    from memtui.service.context.pruning import PruneRequest
    from memtui.service.usecases.pruning import rules_of

    if to_budget or budget is not None:
        given = {
            "--everything": everything,
            "--reason": reason,
            "--kind": kind,
            "--only-company": only_company,
        }
        _refuse_clashes([name for name, value in given.items() if value], to_budget=to_budget)
    if only_company and (everything or scope.project or scope.subject or scope.agent):
        raise Invalid("Give --only-company, or whose facts they are, not both.")
    if everything and any(asdict(scope).values()):
        raise Invalid(
            "--everything takes a filter in the place of these options, "
            "such as: --everything project:infra binding:default"
        )
    if apply and (dry_run or trial.tried):
        other = "--dry-run" if dry_run else "--impact"
        raise Invalid(f"Give {other} or --apply, not both.")
    trial.refuse_alone()
    reasons = _reasons(reason or ())
    kind = kind or ("all" if everything else FACT)
    owners = BindingOptions(**asdict(scope)) if to_budget else scope
    request = owners.request(
        session,
        PruneRequest,
        kind=None if kind == "all" else kind,
        rules=rules_of(session.settings, stale_days=stale_days, unread_days=unread_days),
        model=session.settings.context_model,
        only_company=only_company,
        filter=filter_of(session, line, FilterTarget.RECORDS),
        workspace=workspace,
    )
    pruning = session.service.pruning
    if to_budget:
        planned: PruneAnswer = await _to_budget(session, request, budget)
    else:
        planned = await (pruning.everything if everything else pruning.plan)(
            session.caller, request
        )
    await _refuse_unknown(session, request, planned)
    if reasons:
        planned = planned.mark_reasons(reasons)
    if apply and planned.kept and not planned.marked and (planned.stuck or not to_budget):
        raise Denied(next(iter(planned.kept)))
    if checks and (code := await _checked(session, planned, checks)):
        return code
    applied = await _applied(session, planned, yes=yes) if apply and planned.marked else None
    document = _document(planned) | _outcome(applied, dry_run=not apply)
    summary = _summary(planned, applied, dry_run=not apply)
    if trial.tried and planned.marked:
        found = await impact.find(session, planned.going, trial.last)
        session.out.answer(
            document | {"impact": impact.document(found)},
            [*_lines(planned), Dim("Without what is marked:"), *impact.lines(found)],
            *summary,
            *impact.sentences(found),
        )
        return trial.exit_code(found)
    session.out.answer(document, _lines(planned), *summary)
    return forgetting_code(applied.answers, applied.failed) if applied else bool(planned.stuck)


def _refuse_clashes(given: Sequence[str], *, to_budget: bool) -> None:
    if not to_budget:
        raise Invalid("--budget goes with --to-budget; give both or neither.")
    if given:
        raise Invalid(f"--to-budget chooses among the facts of one context; leave out {given[0]}.")


async def _to_budget(session: Session, request: PruneRequest, budget: int | None) -> ContextPlan:
    """Plan which facts go, so that a context of the request's scope fits its budget."""
    from memtui.service.context.contexts import ContextRequest
    from memtui.service.usecases.pruning import plan_context

    context = build(
        ContextRequest,
        scope=request.scope,
        model=request.model,
        budget=session.settings.context_budget if budget is None else budget,
        binding_key=request.binding_key,
    )
    return await plan_context(
        session.service, session.caller, context,
        rules=request.rules, chosen=request.filter, to_budget=True,
    )  # fmt: skip


async def _refuse_unknown(session: Session, request: PruneRequest, planned: PruneAnswer) -> None:
    """Raise `NotFound` where an owner has no records of any kind."""
    is_empty = not planned.problems and not any(one.items for one in planned.plans.values())
    if is_empty and owner_of(request.scope)[1] != session.caller.company_id:
        anything = BrowseRequest(scope=request.scope, binding_key=request.binding_key, limit=1)
        if not (await session.service.browse(session.caller, anything)).records:
            raise NotFound(
                f"{planned.binding_key} remembers nothing of {owner_words(request.scope)}."
            )


async def _checked(session: Session, planned: PruneAnswer, file: Path) -> int:
    """Ask checks without what is marked; return their exit code, having shown what fails."""
    from memtui.service.usecases.checking import check_memory

    with ticker(on_terminal_only=True) as show:
        report = await check_memory(
            session.service, session.caller, file, without=planned.going, so_far=show
        )
    end = ", so nothing was forgotten" if report.exit_code else ""
    session.out.say(f"Without what is marked: {report.words}{end}.")
    if report.exit_code:
        document = _document(planned) | _outcome(None, dry_run=True)
        session.out.answer(document | {"checks": jsonable(report)}, check_lines(report))
    return report.exit_code


async def _applied(session: Session, planned: PruneAnswer, *, yes: bool) -> ForgottenEverywhere:
    from memtui.service.usecases.forgetting import forget

    marked = planned.marked
    if planned.several and not yes:
        count = shown.counted(sum(map(len, marked.values())), "record")
        confirm(f"Forget {count} from {' and '.join(marked)}?")
    return await forget(session.service, session.caller, marked, planned.staying)


def _reasons(names: Sequence[str]) -> list[Reason]:
    from memtui.pruning.candidates import Reason

    known = [one for one in Reason if one is not Reason.LEAST_WORTH]
    if not set(names) <= set(known):
        raise Invalid(f"There is no such reason; choose from {', '.join(known)}.")
    return [Reason(name) for name in names]


def _document(planned: PruneAnswer) -> dict[str, Any]:
    plans = planned.plans
    return {
        "together": planned.together,
        "bindings": jsonable(planned.bindings),
        "insights": jsonable(planned.insights),
        "problems": jsonable(planned.problems),
        "records": sum(len(plan.items) for plan in plans.values()),
        "marked": sum(map(len, planned.marked.values())),
        "tokens_before": planned.tokens_before,
        "tokens_after": planned.tokens_after,
        "tokens_saved": planned.tokens_before - planned.tokens_after,
        "budget": planned.budget,
        "limits": planned.limits,
        "candidates": [one for key, plan in plans.items() for one in _candidates(key, plan)],
        "clusters": [one for key, plan in plans.items() for one in _clusters(key, plan)],
        "diff": [
            {
                "binding_key": key,
                "record_id": line.handle.provider_record_id,
                **line.model_dump(exclude={"handle"}),
            }
            for key, plan in plans.items()
            for line in plan.diff()
        ],
    }


def _candidates(binding_key: str, plan: PrunePlan) -> Iterator[dict[str, Any]]:
    items = {item.record.handle: item for item in plan.items}
    for candidate in plan.candidates:
        item = items[candidate.record.handle]
        yield {
            "record_id": candidate.record.handle.provider_record_id,
            "binding_key": binding_key,
            "belongs_to": owner_words(candidate.record.scope),
            "kind": candidate.record.kind,
            "text": candidate.record.text,
            **candidate.model_dump(mode="json", exclude={"record", "survivor"}),
            "survivor_id": candidate.survivor and candidate.survivor.provider_record_id,
            "marked": item.marked,
            "kept": item.kept or None,
        }


def _clusters(binding_key: str, plan: PrunePlan) -> Iterator[dict[str, Any]]:
    """Yield each group of duplicates, with the survivor."""
    texts = {item.record.handle: item.record.text for item in plan.items}
    found: dict[str, list[PruneCandidate]] = {}
    for candidate in plan.candidates:
        if candidate.cluster_id is not None:
            found.setdefault(candidate.cluster_id, []).append(candidate)
    for cluster_id, members in found.items():
        survivor = members[0].survivor
        yield {
            "binding_key": binding_key,
            "cluster_id": cluster_id,
            "survivor_id": survivor and survivor.provider_record_id,
            "survivor_text": survivor and texts.get(survivor),
            "duplicate_ids": [member.record.handle.provider_record_id for member in members],
        }


def _outcome(applied: ForgottenEverywhere | None, *, dry_run: bool) -> dict[str, Any]:
    answers = applied.answers if applied else ()
    return {
        "dry_run": dry_run,
        "operation_id": answers[0].operation_id if answers else None,
        "operation_ids": [one.operation_id for one in answers],
        "forgotten": [name for one in answers for name in changed_ids(one)],
        "missing": [gone.provider_record_id for one in answers for gone in one.missing],
        "refused": {name: why for one in answers for name, why in one.refused.items()},
        "ghosts": [ghost.provider_record_id for one in answers for ghost in one.ghosts],
        "failed": jsonable(applied.failed if applied else ()),
    }


def _lines(planned: PruneAnswer) -> Iterator[Line]:
    for key, plan in planned.plans.items():
        owners = {one.record.handle: owner_words(one.record.scope) for one in plan.items}
        for line in plan.diff():
            yield str(line)
            place = f"  {key}, {owners[line.handle]}" if planned.several else ""
            name = f"{line.handle.provider_record_id}{place}"
            yield Dim(f"    {name}  {line.tokens} tokens  {line.why}".rstrip())
    if left := list(_left(planned)):
        yield Dim("Not marked:")
        yield from left
    if planned.insights:
        yield ""
        yield from insight_lines(planned.insights)


def _left(planned: PruneAnswer) -> Iterator[Line]:
    """Yield candidates that are not marked, their reasons, and why they cannot be forgotten."""
    from memtui.pruning.candidates import Reason

    for key, plan in planned.plans.items():
        items = {item.record.handle: item for item in plan.items}
        others = (one for one in plan.candidates if one.reason is not Reason.LEAST_WORTH)
        for handle, reasons in groupby(others, key=lambda one: one.record.handle):
            item = items[handle]
            if item.marked:
                continue
            place = f"  {key}, {owner_words(item.record.scope)}" if planned.several else ""
            yield f"? {item.record.text}"
            name = f"{handle.provider_record_id}{place}"
            yield Dim(f"    {name}  {item.tokens} tokens  {item.kept}".rstrip())
            for one in reasons:
                yield Dim(f"    {one.reason.replace('_', ' ')}: {one.sentence}")


def insight_lines(insights: Sequence[Insight]) -> Iterator[Line]:
    """Yield the insights, grouped by kind."""
    for kind, found in groupby(insights, key=lambda one: one.kind):
        yield Dim(kind.replace("_", " "))
        for one in found:
            yield f"  {one.sentence}"


def _summary(
    planned: PruneAnswer, applied: ForgottenEverywhere | None, *, dry_run: bool
) -> Iterator[str]:
    plans = planned.plans.values()
    marked, everything = sum(len(plan.marked) for plan in plans), sum(len(p.items) for p in plans)
    count, all_of = shown.counted(marked, "record"), shown.count(everything)
    before, after = planned.tokens_before, planned.tokens_after
    saved = f"{shown.count(before - after)} of {shown.count(before)} tokens"
    if planned.budget is not None:
        yield planned.stuck or (
            f"The context has {shown.counted(before, 'token')}"
            f"{f' now, and {shown.count(after)} after that' if marked else ''}; "
            f"its budget is {shown.count(planned.budget)}."
        )
    if not everything:
        yield "There is nothing here that could go."
    elif not marked:
        yield f"Nothing of {all_of} is marked to go."
    elif dry_run:
        yield f"{count} of {all_of} would go and save {saved}; --apply lets them go."
    elif applied is not None and not applied.failed and not any(a.refused for a in applied.answers):
        yield f"That saves {saved}."
    yield from planned.limits
    for why, kept in planned.kept.items():
        yield f"{shown.counted(kept, 'record')} cannot be forgotten: {why}"
    for answer in applied.answers if applied else ():
        yield from forgotten(answer)
    if applied and len(applied.answers) > 1:
        yield "One undo brings all of them back."
    for outcome in (*planned.failed, *(applied.failed if applied else ())):
        yield outcome.sentence
