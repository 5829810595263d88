"""The tags of memories, over all scopes and bindings that a caller sees (seed 002 §7)."""

from collections import Counter, defaultdict
from collections.abc import Awaitable
from datetime import UTC, datetime
from functools import partial

from memtui.contract import BrowseRequest, Model, OperationType, Record, Scope, TagCount, folded
from memtui.service.answers import Answer, OutcomesAnswer
from memtui.service.connections import Connection
from memtui.service.operations.everywhere import Everywhere, gather
from memtui.service.recorder import FanOut, RunningOperation
from memtui.service.runtime import ServiceModule
from memtui.service.visibility import Caller, may_read, readable
from memtui.store.details import BrowseDetails

_PAGE = 1_000
_NEVER = datetime.max.replace(tzinfo=UTC)


class BindingTags(Answer):
    """How many records of one binding have each tag."""

    records: dict[str, int]
    at_least: bool = False
    """True: the provider did not list all of its records, so the counts are lower bounds."""


class TagTotal(Model):
    """How many records have a tag."""

    tag: str
    records: int
    by_binding: dict[str, int]


class TagsAnswer(OutcomesAnswer):
    """The tags of all bindings, the most common first; each in its oldest spelling."""

    tags: tuple[TagTotal, ...] = ()

    @property
    def at_least(self) -> bool:
        """Whether the counts are lower bounds."""
        return any(one.capped or one.status != "ok" for one in self.bindings)


class Tags(ServiceModule):
    """The tags of memories, over all bindings."""

    async def counts(
        self, caller: Caller, scope: Scope, *, within_ms: int | None = None
    ) -> TagsAnswer:
        """Count the records with each tag; for the whole company, those that the caller sees.

        Args:
            caller: Who asks.
            scope: The scope whose records are counted.
            within_ms: Time limit of each binding; None: `all_bindings_timeout_ms`.

        Raises:
            Denied: the caller sees nothing here.
            NotFound: there is no enabled binding.
            Unavailable: no binding answered.
        """
        asked = await self._runtime.module(Everywhere).begin(caller, within_ms, seen_only=True)
        answers: dict[str, dict[str, int]] = {}

        def answered(key: str, answer: BindingTags) -> None:
            answers[key] = answer.records
            asked.note(key, answer, len(answer.records), capped=answer.at_least)

        def ask(key: str) -> Awaitable[BindingTags]:
            return self._count(caller, scope, key, asked.fan_out)

        await gather(asked, {key: partial(ask, key) for key in asked.outcomes}, answered)
        asked.refuse_silence()
        found: dict[str, dict[str, int]] = defaultdict(dict)
        written: dict[str, str] = {}
        for key in asked.outcomes:
            for tag, records in answers.get(key, {}).items():
                found[written.setdefault(folded(tag), tag)][key] = records
        totals = (
            TagTotal(tag=tag, records=sum(by_binding.values()), by_binding=by_binding)
            for tag, by_binding in found.items()
        )
        ordered = sorted(totals, key=lambda one: (-one.records, one.tag.casefold(), one.tag))
        return TagsAnswer(**asked.values(), tags=tuple(ordered))

    async def _count(self, caller: Caller, scope: Scope, key: str, fan_out: FanOut) -> BindingTags:
        asked = BrowseDetails(tags=True)
        async with self._runtime.connected(
            OperationType.BROWSE, caller, scope, asked, key, needs="browse", fan_out=fan_out
        ) as (entry, connection):
            if connection.adapter.capabilities.tags and not entry.has_held:
                counted = await connection.read(partial(connection.adapter.tags, scope))
                at_least = False
            else:
                counted, at_least = await _read_through(entry, connection, scope)
            records: Counter[str] = Counter()
            written: dict[str, str] = {}
            for one in counted:
                if may_read(one.scope, entry.scope, entry.visibility):
                    records[written.setdefault(folded(one.tag), one.tag)] += one.records
            entry.result_count, entry.capped = len(records), at_least
        return BindingTags(**entry.answer(), records=dict(records), at_least=at_least)


async def _read_through(
    entry: RunningOperation, connection: Connection, scope: Scope
) -> tuple[list[TagCount], bool]:
    """Count the tags by reading every listed record, oldest first.

    Also returns whether there may be more.
    """
    found: list[Record] = []
    request = BrowseRequest(scope=scope, binding_key=connection.binding.key, limit=_PAGE)
    while True:
        page = await connection.read(partial(connection.adapter.browse, request))
        entry.usage = (*entry.usage, *page.usage)
        seen = readable(page.records, scope, entry.visibility, connection.binding.key)
        found += [record.model_copy(update={"text": ""}) for record in seen if record.tags]
        if page.next_cursor is None:
            break
        request = request.model_copy(update={"cursor": page.next_cursor})
    found.sort(key=lambda record: record.created_at or _NEVER)
    counted = [
        TagCount(tag=tag, scope=record.scope, records=1) for record in found for tag in record.tags
    ]
    return counted, page.at_least or page.unfinished
