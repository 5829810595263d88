"""Questions that lead from a record to others with a tag of it, or to a query that returned it."""

from collections.abc import Sequence
from functools import partial

from memtui.contract import Filter, NotFound, Record, RecordHandle, Scope, distinct_tags, folded
from memtui.filters import format_filter
from memtui.presenters import format as fmt
from memtui.screens.base import MemtuiScreen, ServiceScreen
from memtui.screens.dialogs import Choice, Choose
from memtui.screens.state import GoTo


class ChooseTag(Choose[str]):
    """Choose a tag; each has its number of records."""

    NOTHING = "No record has a tag yet."


async def choose_tag(screen: MemtuiScreen, record: Record | None) -> None:
    """Offer the tags of a record, then all others, and list the records of the chosen one."""
    session, own = screen.session, record.tags if record else ()
    company = Scope(company_id=session.caller.company_id)

    async def choices() -> Sequence[Choice[str]]:
        counted = await session.service.tags.counts(session.caller, company)
        for one in counted.failed:
            screen.toast(one.sentence, severity="warning")
        by_tag = {folded(one.tag): one.records for one in counted.tags}
        ordered = distinct_tags((*own, *(one.tag for one in counted.tags)))
        return [Choice(tag, tag, f"{fmt.count(by_tag.get(folded(tag), 0)):>6}") for tag in ordered]

    if tag := await screen.ask(ChooseTag("Tags", choices)):
        show_tagged(screen, tag)


def show_tagged(screen: MemtuiScreen, tag: str) -> None:
    """List the records with a tag, or one below it, from all scopes and bindings."""
    company = Scope(company_id=screen.session.caller.company_id)
    line = format_filter(Filter(tag=tag))
    screen.post_message(GoTo("records", filter_line=line, scope=company, everywhere=True))
    screen.toast("All scopes and bindings are listed; s and 0 narrow them again.")


async def choose_reader(screen: ServiceScreen, binding_key: str, handle: RecordHandle) -> None:
    """Offer the queries that returned a record, and go to the chosen one.

    Raises:
        NotFound: no query has returned it.
    """
    session, now = screen.session, screen.state.clock()
    read = partial(session.service.log.provenance, session.caller, binding_key, handle)
    story = await screen.wait("reading who read it", read)
    if not story.retrievals:
        raise NotFound("No query has returned this record.")
    choices = [
        Choice(
            one.operation_id,
            one.query,
            f"{fmt.ago(one.at, now):>6}  {f'rank {one.rank}':<7} {fmt.who(one.principal)}",
        )
        for one in story.retrievals
    ]
    if operation_id := await screen.ask(Choose("Queries that returned it", choices)):
        screen.post_message(GoTo("operations", select=operation_id))
