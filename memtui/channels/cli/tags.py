"""`tags`: the tags of memories in all bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.options import AsOf, Limit, OwnerOptions
from memtui.channels.cli.output import columns, of_bindings, table
from memtui.channels.cli.records import answer_page
from memtui.channels.cli.session import Session
from memtui.contract import BrowseRequest, Invalid
from memtui.presenters import format as shown

if TYPE_CHECKING:
    from memtui.service.operations.tags import TagsAnswer

_NEAR = 60
"""Least likeness of a near tag, of 100."""
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
        session.out.answer(counted, table(titles, _totals(counted)), *_summary(counted))
        return
    tag = tag.removeprefix("#")
    if not tag:
        raise Invalid("Name a tag, or leave it out to count all of them.")
    request = BrowseRequest(scope=whose, cursor=cursor, limit=limit)
    page = await service.tags.having(caller, tag, request)
    answer_page(session, page)
    if not page.records and cursor is None:
        _say_near(session, tag, await service.tags.counts(caller, whose))


def _totals(counted: TagsAnswer) -> Iterator[list[str]]:
    for one in counted.tags:
        where = (f"{key} {shown.count(records)}" for key, records in one.by_binding.items())
        yield [one.tag, shown.count(one.records), ", ".join(where)]


def _summary(counted: TagsAnswer) -> Iterator[str]:
    least = "at least " if counted.at_least else ""
    yield f"{least}{shown.counted(len(counted.tags), 'tag')} {of_bindings(counted)}."
    yield from (one.sentence for one in counted.failed)


def _say_near(session: Session, tag: str, counted: TagsAnswer) -> None:
    from rapidfuzz import process

    known = [one.tag for one in counted.tags]
    found = process.extract(tag, known, limit=_MOST_NEAR, score_cutoff=_NEAR)
    near = " or ".join(name for name, _, _ in found)
    session.out.say(f"Nothing has the tag {tag}" + (f"; near is {near}." if near else "."))
