"""`get` and `browse`: stored records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from memtui.channels.cli.marks import marks_of
from memtui.channels.cli.options import (
    AllBindings,
    AsOf,
    FilterLine,
    Limit,
    RecordId,
    ScopeOptions,
    Since,
    Until,
    filter_of,
)
from memtui.channels.cli.output import Dim, Line, columns, fields, jsonable, of_bindings, table
from memtui.channels.cli.session import Session
from memtui.contract import (
    OWNER_FIELDS,
    BrowseRequest,
    Comparison,
    Filter,
    Invalid,
    Measure,
    MemtuiError,
    NotFound,
    OperationStatus,
    OperationType,
    Record,
    Scope,
    SourceKind,
    Unsupported,
    owner_of,
    owner_words,
)
from memtui.filters import (
    WORD_OF,
    FilterTarget,
    as_written,
    build_filter,
    format_filter,
    names_bindings,
    written_value,
)
from memtui.presenters import format as shown
from memtui.presenters.filter_words import known_values
from memtui.record_changes import changed_fields

if TYPE_CHECKING:
    from memtui.service import BrowseAnswer, Change, GetAnswer, Operation, Provenance
    from memtui.service.history.past import TimelineAnswer
    from memtui.service.operations.tags import TagsAnswer

_NEWEST, _PAGE = "-updated_at", 100


async def get(
    session: Session,
    record_id: RecordId,
    scope: ScopeOptions,
    *,
    provenance: bool = False,
    history: bool = False,
    as_of: AsOf = None,
) -> None:
    """Show one record, whole, or its history.

    Args:
        provenance: Add who wrote it and who read it: the queries and contexts that returned it.
        history: Show the record's changes and versions instead, newest first.
    """
    session = session.at(as_of)
    if history and provenance:
        raise Invalid(
            "--history says who wrote each version; leave out --provenance, or --history for it."
        )
    if history:
        timeline = await session.service.past.timeline(
            session.caller, record_id, scope.scope(session), binding_key=scope.binding
        )
        session.out.answer(timeline, _history(session, timeline))
        return
    answer = await session.service.get(
        session.caller, record_id, scope.scope(session), binding_key=scope.binding
    )
    marks = await marks_of(session, [(answer.binding_key, answer.record)])
    mark = marks.briefly(answer.binding_key, answer.record)
    document = jsonable(answer)
    document["record"] = marks.document(answer.binding_key, answer.record)
    origin: Provenance | None = None
    if provenance:
        origin = await session.service.log.provenance(
            session.caller, answer.binding_key, answer.record.handle
        )
        document["provenance"] = jsonable(origin)

    session.out.answer(document, _record(session, answer, mark, origin))


def _record(
    session: Session, answer: GetAnswer, mark: str, origin: Provenance | None
) -> Iterator[Line]:
    record = answer.record
    yield from record.text.split("\n")
    yield ""
    if mark:
        yield mark
    yield from map(Dim, _details(session, record))
    for label, found in (("links to", answer.links), ("linked by", answer.backlinks)):
        for link in found:
            end = link.handle.provider_record_id if link.handle else shown.NOWHERE
            yield Dim(f"{label}  {shown.link_words(link)}  {end}")
    if answer.backlinks_capped:
        yield Dim("linked by  more records, which are not listed")
    if origin is not None:
        yield from _provenance(session, origin)


async def browse(
    session: Session,
    scope: ScopeOptions,
    line: FilterLine = None,
    *,
    topic: str | None = None,
    tag: str | None = None,
    kind: str | None = None,
    source_kind: SourceKind | None = None,
    text: str | None = None,
    since: Since = None,
    until: Until = None,
    sort: str = _NEWEST,
    cursor: str | None = None,
    limit: Limit = _PAGE,
    as_of: AsOf = None,
    all_bindings: AllBindings = False,
    tags: bool = False,
) -> None:
    """List what a binding stores, one page at a time.

    Args:
        topic: Only this topic.
        tag: Only this tag.
        kind: Only this sort of record.
        source_kind: Only this source.
        text: Every word must occur.
        sort: created_at, updated_at, title or size; - before it descends.
        cursor: The cursor that the page before printed.
        tags: Count the tags of all bindings instead.
    """
    session = session.at(as_of)
    chosen = filter_of(
        session,
        line,
        FilterTarget.RECORDS,
        topic=topic,
        tag=tag,
        kind=kind,
        source_kind=source_kind,
        text=text,
        since=since,
        until=until,
        issue_id=scope.issue,
        run_id=scope.run,
        binding_key=scope.binding,
    )
    if tags:
        others = sort != _NEWEST or limit != _PAGE or all_bindings or cursor is not None
        if chosen.model_fields_set or others:
            raise Invalid("--tags counts all tags; give only --project, --agent or --subject.")
        await _count_tags(session, scope.scope(session))
        return
    request = scope.request(
        session,
        BrowseRequest,
        binding_key=chosen.binding_key,
        filter=chosen,
        sort=sort,
        cursor=cursor,
        limit=limit,
    )
    everywhere, service = all_bindings or names_bindings(chosen), session.service
    if everywhere:
        page = await service.everywhere.browse(session.caller, request, seen_only=True)
    else:
        page = await service.browse(session.caller, request)
    await _answer_page(session, page)
    if not page.records and cursor is None:
        if not everywhere:
            await say_unknown_of_records(session, chosen, request.scope, chosen.binding_key)
        elif chosen.tag:
            counted = await service.tags.counts(session.caller, request.scope)
            known = [one.tag for one in counted.tags]
            _say_unknown(session, "tag", written_value("tag", chosen.tag), chosen.tag, known)
        binding = None if everywhere else page.binding_key
        await say_unknown_owners(session, request.scope, binding, everywhere=everywhere)


async def _count_tags(session: Session, scope: Scope) -> None:
    counted = await session.service.tags.counts(session.caller, scope)
    least = "at least " if counted.at_least else ""
    session.out.answer(
        counted,
        table(columns("tag", "records>", "bindings*"), _tag_rows(counted)),
        f"{least}{shown.counted(len(counted.tags), 'tag')} {of_bindings(counted)}.",
        *(one.sentence for one in counted.failed),
    )


def _tag_rows(counted: TagsAnswer) -> Iterator[list[str]]:
    for one in counted.tags:
        where = (f"{key} {shown.count(records)}" for key, records in one.by_binding.items())
        yield [one.tag, shown.count(one.records), ", ".join(where)]


def _row(session: Session, record: Record, mark: str) -> list[str]:
    return [
        record.handle.provider_record_id,
        shown.ago(record.updated_at or record.created_at, session.now),
        mark,
        record.kind,
        record.topic or "",
        shown.source_line(record.source),
        record.shown or record.title or "",
    ]


async def _answer_page(session: Session, page: BrowseAnswer) -> None:
    """Print a page of records; from several bindings, each with its binding."""
    titles = ["id", "updated>", "", "kind", "topic", "source", "text*"]
    is_of_all = page.together is not None
    placed = [
        (page.binding_of(one) if is_of_all else page.binding_key, one) for one in page.records
    ]
    marks = await marks_of(session, placed)
    rows = [_row(session, one, marks.sign(key, one)) for key, one in placed]
    if is_of_all:
        titles.insert(0, "binding")
        rows = [[key, *row] for (key, _), row in zip(placed, rows, strict=True)]
    document: Any = page
    if session.out.as_json:
        document = jsonable(page) | {"records": [marks.document(*one) for one in placed]}
    session.out.answer(document, table(columns(*titles), rows), *_page_summary(page))


def _page_summary(page: BrowseAnswer) -> Iterator[str]:
    count = shown.of_total(len(page.records), page.total, at_least=page.at_least)
    following = f"; the next page: --cursor {page.next_cursor}" if page.next_cursor else ""
    where = f"in {page.binding_key} ({page.bindings[0].binding_reason})"
    if page.together is not None:
        where = of_bindings(page)
    yield f"{count} {where}{following}."
    for one in page.bindings:
        yield one.sentence
        yield from one.unread


def _details(session: Session, record: Record) -> Iterator[str]:
    def moment(value: datetime | None) -> str:
        return shown.exact(value, session.zone) if value else ""

    link = record.source and session.company.link(record.source)
    place = record.location and f"{record.location.path}:{record.location.line}"
    for line in fields(
        ("id", record.handle.provider_record_id),
        ("title", record.title or ""),
        ("summary", record.summary or ""),
        ("kind", record.kind),
        ("topic", record.topic or ""),
        ("tags", ", ".join(record.tags)),
        ("source", shown.source_line(record.source)),
        ("open", link or ""),
        ("written by", record.created_by or ""),
        ("created", moment(record.created_at)),
        ("updated", moment(record.updated_at)),
        ("expires", moment(record.expires_at)),
        ("pinned", "yes" if record.pinned else ""),
        ("valid until", moment(record.valid_to)),
        ("revision", record.revision or ""),
        ("file", place or ""),
        ("problem", record.problem or ""),
        ("caution", record.caution or ""),
        ("metadata", json.dumps(record.metadata, default=str) if record.metadata else ""),
    ):
        yield str(line)


def _provenance(session: Session, origin: Provenance) -> Iterator[Line]:
    written = origin.written
    if written is None:
        yield "not written through memtui"
    else:
        yield (
            f"written {shown.since(written.started_at, session.now)} by {shown.doer(written)}, "
            f"from {shown.source_line(written.source)}, operation #{written.seq}"
        )
    count, listed = origin.retrieval_count, len(origin.retrievals)
    newest = f"; the newest {listed}:" if listed < count else ""
    yield f"returned by {shown.counted(count, 'query', 'queries')}{newest}"
    if said := shown.helpfulness(origin.helped, origin.not_helped):
        yield said
    for found in origin.retrievals:
        run = f" in {found.run_id}" if found.run_id else ""
        yield Dim(
            f"  {shown.ago(found.at, session.now):>6}  rank {found.rank}  #{found.seq}  "
            f"{shown.who(found.principal)}{run}  {found.query}"
        )


def _history(session: Session, answer: TimelineAnswer) -> Iterator[Line]:
    if not answer.changes and not answer.versions:
        yield "nothing was done to it through memtui, and its provider keeps no history"
    for change in answer.changes:
        yield from change_lines(session, change)
    for entry in answer.timeline:
        window = span(session, entry.valid_from, entry.valid_to)
        made, ended = entry.made_by, entry.ended_by
        author, source = entry.created_by, entry.source
        if made is not None:
            author, source = shown.doer(made, author), made.reason
        origin = [
            f"by {author}" if author else "not in memtui's log" if made is None else "",
            f"from {shown.source_line(source)}" if source else "",
            f"#{made.seq}" if made else "",
            f"ended by {shown.doer(ended)} #{ended.seq}" if ended else "",
        ]
        yield Dim("  ".join([window, *filter(None, origin)]))
        yield f"  {entry.text}"


def span(session: Session, since: datetime | None, until: datetime | None) -> str:
    """Return a validity window in words."""
    begin = shown.exact(since, session.zone) if since else "before"
    if until is not None:
        return f"{begin} to {shown.exact(until, session.zone)}"
    return f"from {begin} on" if since and since > session.now else f"{begin} to now"


def change_lines(session: Session, change: Change) -> Iterator[Line]:
    """Yield a change: operation, author, and the text before and after."""
    operation = change.operation
    yield Dim(
        f"#{operation.seq}  {operation.operation_type}  "
        f"{shown.since(operation.started_at, session.now)} by {shown.doer(operation)}"
        f"{from_words(operation)}  {operation.operation_id}"
    )
    yield from change_of(change.before, change.after)
    window = [operation.request.get("valid_from"), operation.request.get("valid_to")]
    if any(window):
        since, until = (datetime.fromisoformat(one) if one else None for one in window)
        yield f"    valid: {span(session, since, until)}"


def from_words(operation: Operation) -> str:
    """Return the source given as reason of an operation; empty: none."""
    return f", from {shown.source_line(operation.reason)}" if operation.reason else ""


def change_of(
    before: Record | None, after: Record | None, *, whole: bool = False
) -> Iterator[Line]:
    """Yield the texts before and after (once if equal), then the other changed fields.

    `whole`: also for a created or deleted record all its fields.
    """
    sides = [("-", before), ("+", after)]
    if before is not None and after is not None and before.text == after.text:
        sides = [(" ", after)]
    for sign, record in sides:
        if record is not None:
            for line in record.text.split("\n"):
                yield f"  {sign} {line}"
    if whole or (before is not None and after is not None):
        for name, change in changed_fields(before, after):
            yield f"    {name}: {change}"


_LOOKED_AT = 500
"""Most operations or records whose values are compared with an unknown one."""
_NEAR = 75
"""Least likeness of a near value, of 100."""
_MOST_NEAR = 3
_MOST_NAMED = 10
_WRITERS = {"project_id": "project", "subject_id": "user"}
"""Owners whose stored records the log knows, with their words."""
_ANSWERED = Comparison(measure=Measure.RESULTS, sign=">", value=Decimal(0))
_STORED = Filter(operation_type=OperationType.WRITE, status=OperationStatus.OK)
_KNOWN = {"source_kind", "operation_type", "status", "since", "until"}
"""Fields with a fixed set of values, or with moments."""


async def say_no_operation(session: Session, chosen: Filter) -> None:
    """Say why a filter finds no operation: unknown values, or the combination."""
    if not await say_unknown_of_operations(session, chosen) and chosen != Filter():
        asked = format_filter(chosen, session.zone)
        session.out.say(f"No operation is found by {asked}; leave a part of it out.")


async def say_unknown_of_operations(session: Session, chosen: Filter) -> int:
    """Name each value of a filter that no operation has; return their number."""
    given, log, unknown = _given(chosen), session.service.log, 0
    if not given:
        return unknown
    newest = await log.page(session.caller, Filter(), limit=_LOOKED_AT)
    known = known_values(newest.operations)
    for name, written, value, only in given:
        if not (await log.page(session.caller, only, limit=1)).total:
            _say_unknown(session, name, written, value, known.get(name, ()))
            unknown += 1
    return unknown


async def say_unknown_of_records(
    session: Session, chosen: Filter, scope: Scope, binding: str | None
) -> None:
    """Name each value of a filter that no record has."""
    from memtui.provider_kit.matching import conditions, matcher, values_of

    async def browsed(only: Filter, limit: int) -> BrowseAnswer:
        request = BrowseRequest(scope=scope, binding_key=binding, filter=only, limit=limit)
        return await session.service.browse(session.caller, request)

    if not (given := _given(chosen, but="binding")):
        return
    looked_at = await browsed(Filter(), _LOOKED_AT)
    for name, written, value, only in given:
        is_there = any(map(matcher(only), looked_at.records))
        if not is_there and looked_at.next_cursor is not None:
            is_there = bool((await browsed(only, 1)).records)
        if not is_there:
            [condition] = conditions(only)
            read = (values_of(one, condition.field) for one in looked_at.records)
            near = {str(other) for one in read for other in one if other}
            _say_unknown(session, name, written, value, near)


async def say_unknown_owners(
    session: Session,
    scope: Scope,
    binding: str | None,
    found: Sequence[Scope] = (),
    *,
    everywhere: bool = False,
) -> None:
    """Name each project, user and agent of a scope that has no records.

    `found` are the scopes of the answer's records: their owners are known, and an unknown agent is
    named only if it is empty. `everywhere`: all bindings were queried.
    """
    for field in OWNER_FIELDS:
        value = getattr(scope, field)
        is_known = value in {None, *(getattr(one, field) for one in found)}
        if is_known or (found and field == "agent_id"):
            continue
        if await _is_unknown(session, field, value, binding, everywhere=everywhere):
            name, known = WORD_OF[field], await _known_owners(session, field, value)
            _say_unknown(session, name, written_value(name, value), value, known)


async def say_first_of(session: Session, scope: Scope, binding: str | None) -> None:
    """Say if a write is the first record of its project or user.

    The name may be mistyped, so near names are listed, else some known ones.
    """
    field, value = owner_of(scope)
    if field not in _WRITERS:
        return
    try:
        if not await _is_unknown(session, field, value, binding):
            return
    except MemtuiError:  # the write will fail for the same reason, and say so
        return
    known = await _known_owners(session, field, value)
    hint = ""
    if near := _near(value, known):
        hint = f"; near is {' or '.join(near)}"
    elif known:
        hint = f"; known {_WRITERS[field]}s: {', '.join(known[:_MOST_NAMED])}"
    session.out.say(f"Nothing was remembered of {owner_words(scope)} before this{hint}.")


async def _is_unknown(
    session: Session, field: str, value: str, binding: str | None, *, everywhere: bool = False
) -> bool:
    """Return whether a project, user or agent has no records; False: nobody can tell."""
    # Each owner alone: there may be no record of a user in a project, but many of each.
    alone = {field: value}
    chosen = build_filter(**alone, comparisons=(_ANSWERED,))
    if field in _WRITERS:
        if await session.service.has_written(session.caller, field, value):
            return False
        # Only writes count: a query for a project or user may have returned everybody's memories.
        chosen = _STORED.narrowed_to(**alone)
    if (await session.service.log.page(session.caller, chosen, limit=1)).total:
        return False
    owner = Scope(company_id=session.company.company_id, **alone)
    service, caller = session.service, session.caller
    keys: list[str | None] = [binding]
    if everywhere:
        keys = [view.key for view in await service.bindings.all(caller) if view.enabled]
    try:
        for key in keys:
            if await service.has_records(caller, owner, binding_key=key):
                return False
    except (Unsupported, NotFound):  # it cannot list, or nothing serves them: nobody can tell
        return False
    except MemtuiError:  # with `everywhere`, the answer has named bindings that do not respond
        if everywhere:
            return False
        raise
    return True


async def _known_owners(session: Session, field: str, but: str) -> list[str]:
    """Return the other projects, users or agents of the newest operations, the latest first."""
    log = session.service.log
    if field in _WRITERS:
        newest = await log.page(session.caller, _STORED, limit=_LOOKED_AT)
        seen = [one.scope for one in newest.operations]
    else:
        seen = await log.scopes(session.caller, _LOOKED_AT)
    known = dict.fromkeys(getattr(one, field) for one in seen)
    return [one for one in known if one not in {None, but}]


def _given(chosen: Filter, *, but: str = "") -> list[tuple[str, str, str, Filter]]:
    """Return each value of a filter: its word, written form, value, and a filter of it alone."""
    return [
        (name, written, meant[0], _only(field, meant))
        for one in (chosen, *chosen.alternatives)
        for field, name in WORD_OF.items()
        if field not in _KNOWN and name != but
        for written, meant in as_written(name, one.any_of(field)).items()
    ]


def _only(field: str, values: Sequence[str]) -> Filter:
    if len(values) == 1:
        return build_filter(**{field: values[0]})
    return build_filter(terms=({"field": field, "values": values},))


def _say_unknown(
    session: Session, name: str, written: str, value: str, known: Iterable[str]
) -> None:
    found = _near(value, known)
    near = " or ".join(f"{name}:{written_value(name, other)}" for other in found)
    session.out.say(f"Nothing has {name}:{written}" + (f"; near is {near}." if near else "."))


def _near(value: str, known: Iterable[str]) -> list[str]:
    """Return known names near a mistyped one, at most `_MOST_NEAR`."""
    from rapidfuzz import process

    names = list(known)
    part_of = sorted(other for other in names if value.casefold() in other.casefold())
    alike = process.extract(value, names, limit=_MOST_NEAR, score_cutoff=_NEAR)
    return part_of[:_MOST_NEAR] or [other for other, _, _ in alike]
