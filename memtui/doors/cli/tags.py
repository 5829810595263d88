"""`tags`: what memories are marked with, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.contract import BrowseRequest, Invalid, owner_of
from memtui.doors.cli.options import AsOf, Limit, OwnerOptions
from memtui.doors.cli.output import columns, table
from memtui.doors.cli.session import Session
from memtui.widgets import format as shown

if TYPE_CHECKING:
    from memtui.service.everywhere import EverywhereAnswer, EverywherePage
    from memtui.service.tags import TagsAnswer

_NEAR = 60
"""From this likeness on, of 100, a tag is near."""
_MOST_NEAR = 3


async def tags(
    session: Session,
    scope: OwnerOptions,
    tag: Annotated[
        str | None, typer.Argument(metavar="TAG", help="List what has it, or one below it.")
    ] = None,
    *,
    cursor: Annotated[str | None, typer.Option(help="From the page before; with TAG.")] = None,
    limit: Limit = 100,
    as_of: AsOf = None,
) -> None:
    """Count the tags of all bindings, or list what has TAG."""
    session = session.at(as_of)
    service, caller, whose = session.service, session.caller, scope.scope(session)
    if tag is None:
        counted = await service.tags.counts(caller, whose)
        titles = columns("tag", "records>", "bindings*")
        session.out.answer(counted, table(titles, _totals(counted)), _counted(counted))
        return
    tag = tag.removeprefix("#")
    if not tag:
        raise Invalid("Name a tag, or leave it out to count all of them.")
    request = BrowseRequest(scope=whose, cursor=cursor, limit=limit)
    page = await service.tags.having(caller, tag, request)
    titles = columns("binding", "id", "updated>", "kind", "owner", "text*")
    session.out.answer(page, table(titles, _records(session, page)), _listed(page))
    if not page.records and cursor is None:
        _say_near(session, tag, await service.tags.counts(caller, whose))


def _totals(counted: TagsAnswer) -> Iterator[list[str]]:
    for one in counted.tags:
        where = (f"{key} {shown.count(records)}" for key, records in one.by_binding.items())
        yield [one.tag, shown.count(one.records), ", ".join(where)]


def _records(session: Session, page: EverywherePage) -> Iterator[list[str]]:
    for record in page.records:
        yield [
            record.binding_key,
            record.handle.provider_record_id,
            shown.ago(record.updated_at or record.created_at, session.now),
            record.kind,
            owner_of(record.scope)[1],
            record.text,
        ]


def _counted(counted: TagsAnswer) -> str:
    least = "at least " if counted.at_least else ""
    return f"{least}{shown.counted(len(counted.tags), 'tag')}{_asked(counted)}"


def _listed(page: EverywherePage) -> str:
    number = shown.of_total(len(page.records), page.total, at_least=page.at_least)
    more = f"; the next page: --cursor {page.next_cursor}" if page.next_cursor else ""
    return f"{number}{more}{_asked(page)}"


def _asked(answer: EverywhereAnswer) -> str:
    """Say how many bindings answered, and why the others did not."""
    answered = len(answer.bindings) - len(answer.failed)
    failures = "".join(f"\n{one.binding_key}: {one.reason}" for one in answer.failed)
    return f" in {shown.counted(answered, 'binding')}.{failures}"


def _say_near(session: Session, tag: str, counted: TagsAnswer) -> None:
    from rapidfuzz import process

    known = [one.tag for one in counted.tags]
    found = process.extract(tag, known, limit=_MOST_NEAR, score_cutoff=_NEAR)
    near = " and ".join(name for name, _, _ in found)
    session.out.say(f"Nothing has the tag {tag}" + (f"; near is {near}." if near else "."))
