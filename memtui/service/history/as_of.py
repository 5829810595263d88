"""A binding as it was at a past moment, for callers with `as_of`.

A provider with validity windows answers for the moment itself. Other records are rolled back by the
undo journal, which has each record before and after every change through memtui. Changes made
elsewhere are known only by the record's times of creation and change; `problems` reports the gaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from memtui.contract import (
    FILE,
    Adapter,
    BrowsePage,
    BrowseRequest,
    ContextBundle,
    ExplainStage,
    Explanation,
    Filter,
    Namespace,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    RecordVersion,
    Scope,
    Snippet,
    Unsupported,
    holds_at,
    owner_of,
)
from memtui.provider_kit.matching import eligible, matcher
from memtui.provider_kit.pages import page, read_cursor, write_cursor
from memtui.provider_kit.search import ranked
from memtui.service.connections import Connection
from memtui.store.journal import Journal

RecordT = TypeVar("RecordT", bound=Record)

_OF_NOW = (
    "profile", "correction", "writable", "sync", "namespace_changes", "restore", "watch",
    "agents_search", "links", "tags", "without",
)  # fmt: skip
"""Capabilities that a provider has for the present only."""
_RANKING = ("text", "title", "summary", "kind", "topic", "tags")
"""These fields and the pin decide the rank of a record in a query."""
_DIGITS = 9
"""Digits to which scores are rounded, so that equal ones computed differently compare equal."""
_PAGE = 1_000
_MOST_HITS = 1_000
"""The highest `top_k` that a query may have."""
_READ = ""
"""The provider's cursor once its list was read to the end."""
_FEW = 300
"""Up to so many changed records are merged into the provider's pages; with more, the whole list
is read and sorted here."""


@dataclass(frozen=True, slots=True)
class _Past:
    """What is known of the past of a binding; its present records are read from the provider."""

    changed: dict[str, Record | None]
    """Records by the journal, by id, where the provider's versions are missing or incomplete;
    None: the record did not exist at the moment."""
    kept: dict[str, Record | None]
    """The journal's records by id, where the provider has versions of them."""


class BindingThen:
    """A read-only adapter of a binding as it was at a moment."""

    def __init__(
        self,
        connection: Connection,
        ask: Callable[..., Awaitable[Any]],
        moment: datetime,
    ) -> None:
        """Read through a connection's adapter; `ask` reads the company's undo journal."""
        adapter: Any = connection.adapter
        self.present: Adapter = adapter.present if isinstance(adapter, BindingThen) else adapter
        self._binding = connection.binding
        self._ask = ask
        self._moment = moment
        able = self.present.capabilities
        self._keeps = able.validity
        update = dict.fromkeys(_OF_NOW, False) | {"explain": able.explain and able.validity}
        self.capabilities = able.model_copy(update=update)
        self._past: _Past | None = None
        self._seen: dict[Scope, dict[str, list[Record]]] = {}
        self._guessed: set[str] = set()
        """Ids of records whose state at the moment is not known for sure."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that does not depend on the moment, such as the provider's key."""
        return getattr(self.present, name)

    async def _known(self) -> _Past:
        if self._past is None:
            then = await self._ask(Journal.states_at, self._binding.key, self._moment)
            versions: dict[str, list[Record]] = {}
            if self._keeps and then:
                versions = await self._versions(Scope(company_id=self._binding.company_id))
            changed = {
                identity: one.record
                for identity, one in then.items()
                if not identity.startswith(FILE)
                if identity not in versions
                or one.taken_back
                or _is_fuller(one.record, self._version(versions[identity]))
            }
            kept = {name: one.record for name, one in then.items() if name in versions}
            self._past = _Past(changed, kept)
        return self._past

    async def _rolled_back(self, record: Record) -> Record | None:
        """Return a record from the provider's answer as it was then; None: it did not exist.

        A record with versions by the provider is already as it was then.
        """
        past, identity = await self._known(), _id(record)
        if identity in past.changed:
            return await self._as_known(past.changed[identity])
        if identity in past.kept or (self._keeps and record.valid_from is not None):
            return record
        return await self._as_known(record)

    async def _as_ending(self, record: RecordT) -> RecordT:
        """Return a provider's version with the end that it had at the moment.

        Only the journal distinguishes a planned expiry from a later change.
        """
        if record.valid_to is None:
            return record
        kept, identity = (await self._known()).kept, _id(record)
        seen = kept[identity] if identity in kept else await self._last_seen(identity)
        is_this = seen is not None and seen.valid_from == record.valid_from
        return record.model_copy(update={"valid_to": seen.valid_to if seen and is_this else None})

    async def _last_seen(self, identity: str) -> Record | None:
        """Return a record after the last change that memtui made of it by the moment."""
        place = self._binding.key, identity
        seen: Record | None = await self._ask(Journal.last_seen, *place, self._moment)
        return seen

    def _version(self, versions: Iterable[Record]) -> Record | None:
        """Return the version that was valid at the moment."""
        return next((one for one in versions if holds_at(one, self._moment)), None)

    async def _as_known(self, record: Record | None) -> Record | None:
        """Return a record as it was then, if memtui has not changed it since."""
        if record is None or (record.created_at is not None and record.created_at > self._moment):
            return None
        if record.updated_at is None or record.updated_at <= self._moment:
            return record
        # Changed since outside memtui: the best known state is the last one that memtui saw.
        seen = await self._last_seen(_id(record))
        if seen is None or seen.text != record.text:
            self._guessed.add(_id(record))
        return seen or record

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record as it was then, looked up by every id that it has had."""
        ids = await self._ask(Journal.ids_of, self._binding.key, handle.provider_record_id)
        for identity in dict.fromkeys((handle.provider_record_id, *ids)):
            named = handle.model_copy(update={"provider_record_id": identity})
            if (found := await self._get(named, scope)) is not None:
                return found
        return None

    async def _get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        past, identity = await self._known(), handle.provider_record_id
        if identity in past.changed:
            known = await self._as_known(past.changed[identity])
            is_seen = known is not None and self.present.sees(scope, known)
            return known if known and is_seen and self._is_fresh(known) else None
        if self._keeps:
            versions = (await self._versions(scope)).get(identity)
            if versions:
                version = self._version(versions)
                return await self._as_ending(version) if version else None
        record = await self.present.get(handle, scope)
        return await self._as_known(record)

    async def _versions(self, scope: Scope) -> dict[str, list[Record]]:
        """Return a scope's versions by record id; cached, as a replay looks up many records."""
        if scope not in self._seen:
            found: dict[str, list[Record]] = defaultdict(list)
            for one in await self.present.versions(scope):
                found[_id(one)].append(one)
            self._seen[scope] = found
        return self._seen[scope]

    def _is_fresh(self, record: Record) -> bool:
        return record.expires_at is None or record.expires_at > self._moment

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page of the records that existed then."""
        if request.namespace is not None:
            raise Unsupported(
                "A single namespace can be listed only as it is now; go back to now, or list all "
                "of them."
            )
        if self._keeps and len((await self._known()).changed) <= _FEW:
            return await self._patched(request)
        return await self._whole(request)

    async def _patched(self, request: BrowseRequest) -> BrowsePage:
        """Return a page of the provider's list as of then, with the changed records merged in.

        The cursor is the provider's cursor and the number of changed records before it.
        """
        changed, fits = (await self._known()).changed, matcher(request.filter)
        all_known = [await self._as_known(known) for known in changed.values()]
        mine = sorted(
            (one for one in all_known if one and fits(one) and self._is_listed(request, one)),
            key=lambda one: _place(one, request.sort),
            reverse=request.sort.startswith("-"),
        )
        theirs, start = None, 0
        if request.cursor is not None:
            theirs, start = read_cursor(request.cursor, request.sort, (str, type(None)), int)
        # After the end of the provider's list, its page is still needed for the total.
        is_read = theirs == _READ
        update = {"cursor": None, "limit": 1} if is_read else {"cursor": theirs}
        asked = self._asked(request.model_copy(update=update))
        found = await self._browsed(asked)
        if is_read:
            found = found.model_copy(update={"records": (), "next_cursor": None})
        kept: list[tuple[int, Record]] = []
        for number, record in enumerate(found.records, 1):
            if _id(record) not in changed and (then := await self._rolled_back(record)):
                kept.append((number, then))
        rows = _in_order(kept, mine[start:], request.sort, is_last=found.next_cursor is None)
        shown = rows[: request.limit]
        used = [number for number, _ in shown if number]
        used_up = max(used, default=0) if len(shown) < len(rows) else len(found.records)
        start += len(shown) - len(used)
        cursor: str | None = found.next_cursor or _READ
        if used_up < len(found.records):
            cursor = theirs
            if used_up:
                part = asked.model_copy(update={"limit": used_up})
                cursor = (await self.present.browse(part)).next_cursor
        is_more = len(shown) < len(rows) or found.next_cursor is not None or start < len(mine)
        total = found.total
        if total is not None:
            total += len(mine) - sum([await self._lists_now(request, one) for one in changed])
        whole = {
            "records": tuple(record for _, record in shown),
            "next_cursor": write_cursor(request.sort, cursor, start) if is_more else None,
            "total": total,
        }
        return found.model_copy(update=whole)

    async def _lists_now(self, request: BrowseRequest, identity: str) -> bool:
        """Whether the provider's list as of then contains a record that was changed since."""
        versions = (await self._versions(request.scope)).get(identity)
        if versions:
            found = self._version(versions)
        else:
            handle = RecordHandle(provider_key=self.present.key, provider_record_id=identity)
            found = await self.present.get(handle, request.scope)
        is_made = found is not None and not (found.created_at and found.created_at > self._moment)
        return bool(
            found
            and (versions or is_made)
            and matcher(request.filter)(found)
            and self._is_listed(request, found)
        )

    def _is_listed(self, request: BrowseRequest, record: Record) -> bool:
        return self._lists(request, record) and (request.expired or self._is_fresh(record))

    def _asked(self, request: BrowseRequest) -> BrowseRequest:
        return request.model_copy(update={"as_of": self._moment if self._keeps else None})

    async def _whole(self, request: BrowseRequest) -> BrowsePage:
        """Return one page, after reading all records and sorting them here."""
        all_of_it: dict[str, Any] = {
            "filter": Filter(), "sort": "created_at", "cursor": None, "limit": _PAGE,
            "expired": True,
        }  # fmt: skip
        found: dict[str, Record | None] = {}
        async for last in self._pages(self._asked(request.model_copy(update=all_of_it))):
            for record in last.records:
                found[_id(record)] = await self._rolled_back(record)
        for identity, known in (await self._known()).changed.items():
            if identity not in found and known is not None and self._lists(request, known):
                found[identity] = await self._as_known(known)
        fits = matcher(request.filter)
        chosen = [
            record
            for record in found.values()
            if record and fits(record) and (request.expired or self._is_fresh(record))
        ]
        then = page(chosen, request)
        update = {"at_least": last.at_least, "unread": last.unread, "usage": last.usage}
        return then.model_copy(update=update)

    def _lists(self, request: BrowseRequest, record: Record) -> bool:
        """Whether a list includes a record, by its owner."""
        owners = {owner_of(scope) for scope in request.owners}
        if owners and owner_of(record.scope) not in owners:
            return False
        return self.present.lists(request.scope, record.scope)

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Find records by their state at the moment, and rank them by it."""
        found, same = await self._found(request)
        return found.model_copy(update={"stages": _stages(found.stages, found.snippets, same)})

    async def _found(self, request: QueryRequest) -> tuple[ContextBundle, set[str]]:
        """Return the records found, and the ids of those that the provider ranked.

        A hit that is unchanged since then keeps its score; a record that was changed or removed, or
        has expired since, is ranked here.
        """
        past, wanted = await self._known(), request.top_k
        update = {
            "as_of": self._moment if self._keeps else None,
            "top_k": min(_MOST_HITS, wanted + len(past.changed)),
        }
        bundle = await self.present.query(request.model_copy(update=update))
        ranking = [name for name in _RANKING if name not in self.present.lacks]
        fits = self._fits(request)
        hits: dict[str, Snippet] = {}
        others: dict[str, Record] = {}
        same: set[str] = set()
        for hit in [await self._as_ending(one) for one in bundle.snippets]:
            then, identity = await self._rolled_back(hit), _id(hit)
            if then is None or not (then is hit or fits(then)):
                continue
            if any(getattr(then, name) != getattr(hit, name) for name in ranking):
                others[identity] = then
                continue
            score = hit.score
            if then.pinned is hit.pinned:
                same.add(identity)
            elif score is not None:
                weight = self.present.pinned_weight
                score = score * weight if then.pinned else score / weight
            hits[identity] = Snippet(**{**dict(then), "score": score})
        known = {_id(one): one for one in await self._expired_since(request)} | past.changed
        for identity in known.keys() - hits.keys() - others.keys():
            then = await self._as_known(known[identity])
            if then is not None and fits(then):
                others[identity] = then
        snippets = list(hits.values())
        if others or len(same) < len(hits):
            snippets = self._merged(snippets, [*others.values()], request.query)
        capped = bundle.capped or len(snippets) > wanted
        found = {"snippets": tuple(snippets[:wanted]), "profile_summary": None, "capped": capped}
        return bundle.model_copy(update=found), same

    def _fits(self, request: QueryRequest) -> Callable[[Record], bool]:
        """Return the test whether a past record fits a query's scope and filters, not its words."""
        is_eligible = eligible(request, self.present.sees)
        owners = {owner_of(scope) for scope in request.owners}
        return lambda record: (
            is_eligible(record)
            and (not owners or owner_of(record.scope) in owners)
            and self._is_fresh(record)
        )

    async def _expired_since(self, request: QueryRequest) -> list[Record]:
        """Return records that have expired since then, which a present query does not find."""
        able = self.present.capabilities
        if self._keeps or not (able.expiry and able.browse):
            return []
        asked = BrowseRequest(
            scope=request.scope, owners=request.owners, sort="created_at", expired=True, limit=_PAGE
        )
        return [
            one
            async for found in self._pages(asked)
            for one in found.records
            if one.expires_at is not None and self._is_fresh(one)
        ]

    async def _browsed(self, asked: BrowseRequest) -> BrowsePage:
        """Return a page of the provider's list, without ends that came later."""
        found = await self.present.browse(asked)
        records = [await self._as_ending(one) for one in found.records]
        return found.model_copy(update={"records": tuple(records)})

    async def _pages(self, asked: BrowseRequest) -> AsyncIterator[BrowsePage]:
        """Yield all pages of the provider's list."""
        while True:
            found = await self._browsed(asked)
            yield found
            if found.next_cursor is None:
                return
            asked = asked.model_copy(update={"cursor": found.next_cursor})

    def _merged(
        self, hits: Sequence[Snippet], others: Sequence[Record], query: str
    ) -> list[Snippet]:
        """Return the provider's hits and the records ranked here as one list, best first.

        Scores of the two lists cannot be compared, so the hits are ranked here too, and the scores
        made here are scaled so that the best hit has the same score in both.
        """
        weight = self.present.pinned_weight
        own = {
            _id(one): (one, (one.score or 0.0) * (weight if one.pinned else 1.0))
            for one in ranked([*others, *hits], query)
        }
        # A provider without scores is ranked by its order.
        scored = [
            (one, 1 / place if one.score is None else one.score)
            for place, one in enumerate(hits, 1)
        ]
        best, most = max(scored, key=lambda pair: pair[1], default=(None, 1.0))
        mine = own.get(_id(best), (best, 0.0))[1] if best else 0.0
        scale = (most or 1.0) / (
            mine or max((score for _, score in own.values()), default=0.0) or 1.0
        )
        scored += [(own[name][0], own[name][1] * scale) for name in map(_id, others) if name in own]
        top = max((score for _, score in scored), default=0.0) or 1.0
        shares = [(round(score / top, _DIGITS), one) for one, score in scored]
        shares.sort(key=lambda pair: (-pair[0], _id(pair[1])))
        return [one.model_copy(update={"score": fan_out}) for fan_out, one in shares]

    async def explain(self, request: QueryRequest) -> Explanation:
        """Explain the provider's ranking for the moment, and the ranking done here."""
        asked = request.model_copy(update={"as_of": self._moment})
        now = await self.present.explain(asked)
        found, same = await self._found(request)
        return now.model_copy(update={"stages": _stages(now.stages, found.snippets, same)})

    async def versions(self, scope: Scope) -> Sequence[Record]:
        """Return the versions that existed at the moment."""
        return self._by_then(await self.present.versions(scope))

    async def history(self, handle: RecordHandle, scope: Scope) -> Sequence[RecordVersion]:
        """Return the versions of a record that existed at the moment."""
        return self._by_then(await self.present.history(handle, scope))

    def _by_then(self, versions: Iterable[Any]) -> list[Any]:
        """Return the versions that had begun by then; one that ended later has no end yet."""
        begun = (one for one in versions if not (one.valid_from and one.valid_from > self._moment))
        return [
            one.model_copy(update={"valid_to": None})
            if one.valid_to is not None and one.valid_to > self._moment
            else one
            for one in begun
        ]

    async def namespaces(self) -> Sequence[Namespace]:
        """List the provider's namespaces, without counts: the past ones are not known."""
        return [one.model_copy(update={"records": None}) for one in await self.present.namespaces()]

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return the items that could not be read, and the gaps in what is known of the moment."""
        found = list(await self.present.problems(scope))
        if not self._keeps:
            sentence = (
                f"Changes made outside memtui since then are not known: {self._binding.key} keeps "
                "no history."
            )
            found.append(Problem(message=sentence))
        elif self._guessed:
            many = len(self._guessed)
            what = "1 record was" if many == 1 else f"{many:,} records were"
            sentence = (
                f"What {what} then is not certain, because of changes made outside memtui since."
            )
            found.append(Problem(message=sentence))
        return found


def _is_fuller(seen: Record | None, version: Record | None) -> bool:
    """Whether the journal's record has other pins, tags or time of change than its version."""
    if seen is None or version is None or seen.text != version.text:
        return False
    names = ("pinned", "tags", "updated_at")
    return any(getattr(seen, name) != getattr(version, name) for name in names)


def _place(record: Record, sort: str) -> tuple[bool, str | int]:
    """Return the sort key of a record: whether it has a value, and the value."""
    name = sort.removeprefix("-")
    if name in {"created_at", "updated_at"}:
        moments = [record.created_at, record.updated_at]
        first, second = moments if name == "created_at" else reversed(moments)
        moment = first or second
        return moment is not None, moment.isoformat(timespec="microseconds") if moment else ""
    values: dict[str, str | int | None] = {
        "title": (record.title or record.text)[:100].lower(),
        "size": len(record.text),
        "kind": record.kind,
        "topic": record.topic,
    }
    value = values.get(name)
    return value is not None, value if value is not None else ""


def _in_order(
    theirs: Sequence[tuple[int, Record]], mine: Sequence[Record], sort: str, *, is_last: bool
) -> list[tuple[int, Record]]:
    """Merge two sorted lists up to the end of `theirs`; on the last page, to the end of both."""
    rows: list[tuple[int, Record]] = []
    waiting = list(mine)
    is_down = sort.startswith("-")
    for number, record in theirs:
        place = _place(record, sort)
        while waiting:
            first = _place(waiting[0], sort)
            if not (first > place if is_down else first < place):
                break
            rows.append((0, waiting.pop(0)))
        rows.append((number, record))
    return rows + [(0, record) for record in waiting] if is_last else rows


def _stages(
    stages: Sequence[ExplainStage], found: Sequence[Snippet], same: Collection[str]
) -> tuple[ExplainStage, ...]:
    """Return the provider's stages for the records it ranked, and one with the final scores."""
    if not stages or all(_id(one) in same for one in found):
        return tuple(stages)
    detail = (
        "Records that changed since then are ranked by their earlier text; the other stages leave "
        "them out."
    )
    scores = {_id(one): round(one.score or 0.0, 4) for one in found}
    now = ExplainStage(name="as of", detail=detail, scores=scores)
    return *(one.of(same) for one in stages), now


def _id(record: Record) -> str:
    return record.handle.provider_record_id
