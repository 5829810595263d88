"""Check that what a provider forgets is gone: plant memories, forget them, ask for them again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from memtui.contract import (
    BrowseRequest,
    Capabilities,
    Denied,
    ForgetRequest,
    Matching,
    MemtuiError,
    Model,
    NotFound,
    OperationType,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteRequest,
)
from memtui.service.runtime import find_binding

if TYPE_CHECKING:
    from memtui.service.memory import MemoryService
    from memtui.service.visibility import Caller

_PLANTED = {
    "The {} heron nests under the old iron bridge.": "Which bird lives below the rusty crossing?",
    "The {} ferry leaves the harbour at dawn.": "When does the boat sail in the morning?",
    "The {} parrot speaks only after midnight.": "Which pet is silent during the day?",
}
"""Texts with a place for an invented word, and questions for them in other words."""
_CALM = 5
"""How often nothing is found after a re-index until that counts as the end of it."""
_NEIGHBOUR = "The {} heron fishes beside the old wooden mill."
"""The memory that stays; it shares words with the first one that is forgotten."""
_LIVE = ("words", "paraphrase", "neighbour", "agents' search", "list", "id")
"""The ways of asking that are repeated until nothing is found."""
_WAYS, _SURE = (*_LIVE, "history", "after re-index"), ("words", "list", "id")
"""All ways, and those that tell which of the memories are there. A history is asked once, since a
provider keeps it on purpose."""


class GoneProbe(Model):
    """One way of asking for the forgotten memories, and whether it found one."""

    name: str
    outcome: str
    """`gone`, `found`, `not offered` (the provider cannot be asked so, or it did not find them
    before either) or `not asked` (it failed); of the memory that stays `kept` or `lost`."""
    detail: str = ""


class GoneReport(Model):
    """Whether the forgotten memories are gone, and what is left of them."""

    binding_key: str
    provider_key: str
    project_id: str
    """The project that they were written to."""
    probes: tuple[GoneProbe, ...]
    gone_after_s: float | None
    """Seconds from the end of forgetting to the first questions that found nothing; None: they
    were still found when the time was over."""
    record_ids: tuple[str, ...]
    """The ids of the forgotten memories."""
    traces: tuple[str, ...] = ()
    """Places in the provider's files on this machine that still contain a forgotten text."""
    copies: tuple[str, ...] = ()
    """The places where memtui has copies, which a purge erases."""
    beyond: tuple[str, ...] = ()
    """Sentences on copies that memtui cannot erase, or could not look for."""


async def check_forgetting(
    service: MemoryService,
    caller: Caller,
    binding_key: str,
    *,
    project_id: str | None = None,
    within_s: float = 30,
    agree: Callable[[], None] = lambda: None,
    tell_leftovers: Callable[[Sequence[str]], None] = lambda _ids: None,
) -> GoneReport:
    """Plant memories in a scratch project, forget them, and ask for them in every way there is.

    What was planted is removed at the end, also after a failure and when cancelled.

    Args:
        service: The open service.
        caller: Who asks.
        binding_key: The binding to check.
        project_id: The project to write to; None: a new one.
        within_s: Seconds to wait until the memories are found, and until they are gone.
        agree: Called before anything is written; raises where it should not be.
        tell_leftovers: Receives the ids of what could not be removed, if there is any.

    Raises:
        Denied: the caller cannot write to the binding and forget from it at once.
        MemtuiError: the memories cannot be planted or forgotten.
    """
    project_id = project_id or f"memtui-forgetting-{secrets.token_hex(6)}"
    scope = Scope(company_id=caller.company_id, project_id=project_id)
    able = await service.allowed(caller, scope, binding_key)
    if not able.issuperset({OperationType.WRITE, OperationType.FORGET}):
        raise Denied(f"{binding_key} is read-only (`memtui bindings list`), or your role is.")
    row = await service.runtime.ask(find_binding, caller.company_id, binding_key)
    if row.review and not caller.by_person:
        raise Denied(f"What agents write to {binding_key} is reviewed; let a person check this.")
    agree()
    resolved = await service.resolve(caller, scope, binding_key)
    check = _Check(service, caller, binding_key, scope, resolved.capabilities, within_s)
    planting = asyncio.ensure_future(check.plant())
    try:
        await asyncio.shield(planting)  # a write that has begun must be known to `clean_up`
        if await check.until(_SURE, lambda found: found.issuperset(check.words)) is None:
            raise Unavailable(f"{binding_key} did not find what was written; raise --within.")
        await check.ask(_WAYS)
        before = dict(check.found)
        await check.forget()
        gone_after_s = await check.until(_LIVE, lambda found: found.isdisjoint(check.doomed))
        await check.ask(["history"])
        has_index = resolved.capabilities.sync
        await check.until(["after re-index"], check.is_calm if has_index else lambda _found: True)
        probes = [check.probe(name, before[name]) for name in _WAYS]
        return GoneReport.like(
            resolved,
            project_id=project_id,
            probes=(*probes, check.probe_neighbour()),
            gone_after_s=gone_after_s,
            record_ids=tuple(one.provider_record_id for one in check.forgotten),
            **await check.residue(),
        )
    finally:
        await asyncio.wait([planting])
        if leftovers := await check.clean_up():
            tell_leftovers(leftovers)


@dataclass
class _Check:
    """The planted memories of one check; each is known by an invented word in its text."""

    service: MemoryService
    caller: Caller
    key: str
    scope: Scope
    able: Capabilities
    within_s: float
    words: list[str] = field(default_factory=lambda: [_word() for _ in (*_PLANTED, _NEIGHBOUR)])
    """In the order of `_PLANTED`; the last is the neighbour's."""
    written: list[RecordHandle] = field(default_factory=list)
    forgotten: list[RecordHandle] = field(default_factory=list)
    found: dict[str, set[str]] = field(default_factory=dict)
    """The words that each way of asking found the last time."""
    errors: dict[str, str] = field(default_factory=dict)
    """Why a way of asking failed the last time."""
    unasked: dict[str, str] = field(default_factory=dict)
    """Why a way of asking is not offered here, such as without the provider's program."""
    reindexed: list[bool] = field(default_factory=list)
    """After each re-index, whether a forgotten memory was found."""

    @property
    def doomed(self) -> set[str]:
        """The words of the memories that are forgotten."""
        return set(self.words[:-1])

    async def plant(self) -> None:
        """Write the memories."""
        source = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=self.scope.company_id)
        request = WriteRequest(scope=self.scope, source=source, content="-", binding_key=self.key)
        for text, word in zip((*_PLANTED, _NEIGHBOUR), self.words, strict=True):
            written = request.model_copy(update={"content": text.format(word)})
            self.written += (await self.service.write(self.caller, written)).handles

    async def forget(self) -> None:
        """Forget what was planted, and not what the provider derived from it."""
        there, chosen = await self._there(), dict[RecordHandle, Record]()
        for word in self.words[:-1]:
            found = {one.handle: one for one in there if word in self._words_in([one])}
            chosen |= {name: found[name] for name in self.written if name in found} or found
        self.forgotten = list(chosen)
        request = ForgetRequest.of([*chosen.values()], self.scope, self.key)
        await self.service.forget(self.caller, request)

    def probe(self, name: str, before: set[str]) -> GoneProbe:
        """Return the outcome of a way of asking, given what it found `before` forgetting."""
        if found := len(self.found[name] & self.doomed):
            detail = f"{found} of {len(_PLANTED)}{self._rounds(name)}"
            return GoneProbe(name=name, outcome="found", detail=detail)
        if self.errors[name]:
            return GoneProbe(name=name, outcome="not asked", detail=self.errors[name])
        if not before & self.doomed:
            return GoneProbe(name=name, outcome="not offered", detail=self.unasked.get(name, ""))
        return GoneProbe(name=name, outcome="gone", detail=self._rounds(name).lstrip(", "))

    def _rounds(self, name: str) -> str:
        """Return how often it was asked after a re-index, and how often that found something."""
        if name != _WAYS[-1] or not self.reindexed:
            return ""
        again = sum(self.reindexed)
        return f", asked {len(self.reindexed)} times" + (f", found {again} times" if again else "")

    def is_calm(self, found: set[str]) -> bool:
        """Note what was found after a re-index; returns whether nothing comes back any more."""
        self.reindexed.append(not found.isdisjoint(self.doomed))
        last = self.reindexed[-_CALM:]
        return len(last) == _CALM and not any(last)

    def probe_neighbour(self) -> GoneProbe:
        """Return whether the memory that was not forgotten is still found."""
        outcome = "not asked" if any(self.errors.values()) else "lost"
        is_there = any(self.words[-1] in self.found[name] for name in _SURE)
        return GoneProbe(name="what stays", outcome="kept" if is_there else outcome)

    async def until(self, names: Sequence[str], ends: Callable[[set[str]], bool]) -> float | None:
        """Ask until the words found suffice; return the seconds until then, None: time is over."""
        began = perf_counter()
        while True:
            if self.able.async_ingestion:
                await self.service.ask_later(self.caller)
            seconds = round(perf_counter() - began, 3)
            await self.ask(names)
            if ends(set().union(*(self.found[name] for name in names))):
                return seconds
            if seconds >= self.within_s:
                return None
            await asyncio.sleep(0.25)

    async def ask(self, names: Sequence[str]) -> None:
        """Ask in each of these ways, and keep the words that are found and the failures."""
        for name in names:
            self.found[name], self.errors[name] = set(), ""
            try:
                self.found[name] = self._words_in(await self._answers(name))
            except Unsupported as error:
                self.unasked[name] = str(error)
            except MemtuiError as error:
                self.errors[name] = str(error)

    def _words_in(self, found: Sequence[Model]) -> set[str]:
        texts = [one.model_dump_json() for one in found]
        return {word for word in self.words if any(word in text for text in texts)}

    async def _answers(self, name: str) -> list[Any]:
        """Return the records or versions that a way of asking finds."""
        service, able, at = self.service, self.able, dict[str, Any](binding_key=self.key)
        by = self.caller.model_copy(update={"purpose": "forgetting"})
        questions = {"paraphrase": [*_PLANTED.values()], "neighbour": [_NEIGHBOUR.format("")]}
        found: list[Any] = []
        if name == "after re-index" and able.sync:
            await service.sync(self.caller, self.key)
            return [one for other in _LIVE for one in await self._answers(other)]
        if name == "list" and able.browse:
            async for page in service.pages(by, BrowseRequest(scope=self.scope, **at)):
                found += page.records
        elif name == "id" or (name == "history" and able.history):
            for handle in self.written:
                asked = by, handle, self.scope
                with suppress(NotFound):
                    if name == "id":
                        found.append((await service.get(*asked, **at)).record)
                    else:
                        found += (await service.history(*asked, **at)).versions
        elif name in {"words", *questions} or (name == "agents' search" and able.agents_search):
            matching = Matching.AGENTS if name == "agents' search" else Matching.MEMTUI
            for text in questions.get(name, self.words):
                request = QueryRequest(scope=self.scope, query=text, matching=matching, **at)
                found += (await service.query(by, request)).snippets
        return found

    async def _there(self) -> list[Record]:
        """Return the planted records, and those derived from them, that are still found."""
        found = {one.handle: one for name in _SURE for one in await self._answers(name)}
        return [one for one in found.values() if self._words_in([one])]

    async def residue(self) -> dict[str, Sequence[str]]:
        """Return where forgotten texts still are, for the fields of `GoneReport`."""
        from memtui.analytics.traces import look
        from memtui.service.home.survey import PurgeRequest

        runtime = self.service.runtime
        row = await runtime.ask(find_binding, self.caller.company_id, self.key)
        places = await runtime.connections.places(row, load=True)
        paths = [path for kind, *parts in places if kind == "path" for path in _files(parts)]
        report = await asyncio.to_thread(look, paths, self.words[:-1])
        traces = [*dict.fromkeys(one.place for one in report.traces)]
        first = PurgeRequest(record_id=self.forgotten[0].provider_record_id, binding_key=self.key)
        try:
            plan = await self.service.purging.plan(self.caller, first)
        except MemtuiError as error:
            return {"traces": traces, "beyond": [*report.unread, str(error)]}
        copies = [one.place for one in plan.copies]
        return {"traces": traces, "copies": copies, "beyond": [*report.unread, *plan.beyond]}

    async def clean_up(self) -> Sequence[str]:
        """Remove what was planted; return the ids of what could not be removed."""
        left = [one for one in self.written if one not in self.forgotten]
        with suppress(MemtuiError):
            if there := await self._there():
                request = ForgetRequest.of(there, self.scope, self.key)
                await self.service.forget(self.caller, request)
            left = [one.handle for one in await self._there()]
        return [one.provider_record_id for one in left]


def _word() -> str:
    """Return an invented word that no memory has, and that does not look like a secret.

    It begins with a letter with which no word of a question begins, as some providers complete
    words.
    """
    return "z" + "".join(secrets.choice("abdefgiklmnoprstuvz") for _ in range(13))


def _files(parts: Sequence[str]) -> list[Path]:
    """Return the file or folder of a place, whose last words may be no path, such as a table.

    A file comes with what lies beside it, such as the write-ahead log of a database.
    """
    whole = Path(*parts)
    path = next((one for one in (whole, *whole.parents) if one.is_file()), whole)
    return [path, *path.parent.glob(f"{escape(path.name)}-*")] if path.is_file() else [path]
