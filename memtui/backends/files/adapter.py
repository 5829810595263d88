"""The base of every provider that shows files it never writes."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from memtui.backends.files.collection import Collection, View, find
from memtui.backends.files.config import FilesConfig
from memtui.backends.files.entries import Entry, Flaw, Parsed, digest, printable_id
from memtui.backends.files.reading import FileReader
from memtui.backends.files.watching import wakes
from memtui.contract import (
    Adapter,
    BindingContext,
    BrowsePage,
    BrowseRequest,
    Capabilities,
    ContextBundle,
    CorrectReply,
    CorrectRequest,
    ForgetReply,
    ForgetRequest,
    Health,
    Location,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteReply,
    WriteRequest,
    place_of_path,
)
from memtui.provider_kit import matcher, page, read_config, sees

_PROBLEM_LIMIT = 500


ConfigT = TypeVar("ConfigT", bound=FilesConfig)


class FilesAdapter(Adapter, Generic[ConfigT]):
    """Shows what files hold; write, forget and correct raise `Unsupported`.

    A subclass parses: `parse_all` reads every file through the reader and says what is in it.
    The result is kept until a file, a folder or a place where one was looked for changes.
    """

    config_model: ClassVar[type[FilesConfig]] = FilesConfig
    capabilities = Capabilities(browse=True, writable=False, full_text=True, watch=True)
    holds: ClassVar[str]
    """What the path must be: `folder` or `file`."""

    def __init__(self, context: BindingContext, config: ConfigT) -> None:
        self.config = config
        self._context = context
        self._scope = Scope(
            company_id=context.company_id,
            project_id=config.project_id,
            agent_id=config.agent_id,
            subject_id=config.subject_id,
        )
        self._made: dict[Path, tuple[Parsed, dict[str, Record]]] = {}
        self._collection = Collection(self._load)
        self._stopped = asyncio.Event()

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Name the file or folder that is shown."""
        return [place_of_path(read_config(cls.config_model, context).path)]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the files. Raises `Invalid` for a bad config, `Unavailable` if they are gone."""
        config: Any = read_config(cls.config_model, context)
        adapter = cls(context, config)
        await asyncio.to_thread(adapter.require)
        return adapter

    async def close(self) -> None:
        """Stop watching and free the index."""
        self._stopped.set()
        await asyncio.to_thread(self._collection.close)

    @abstractmethod
    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, Parsed]]:
        """Read every file and yield what is in it. Blocking; never raises for bad content."""

    def require(self) -> None:
        """Check that the path is there. Blocking.

        Raises:
            Unavailable: it is not, or it is something else.
        """
        path = self.config.path
        try:
            found = path.is_dir() if self.holds == "folder" else path.exists() and not path.is_dir()
        except OSError:
            found = False
        if not found:
            raise Unavailable(
                f"There is no {self.holds} {path} that can be read; put it back, or change the "
                f"path of the binding {self._context.binding_key}."
            )

    async def write(self, request: WriteRequest) -> WriteReply:
        """Refuse. Raises `Unsupported`."""
        del request
        raise self._read_only("A memory cannot be added")

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Refuse. Raises `Unsupported`."""
        del request
        raise self._read_only("A memory cannot be forgotten")

    async def correct(self, request: CorrectRequest) -> CorrectReply:
        """Refuse. Raises `Unsupported`."""
        del request
        raise self._read_only("A memory cannot be corrected")

    async def query(self, request: QueryRequest) -> ContextBundle:
        """Return the best matches of any word of the query."""
        return await asyncio.to_thread(self._collection.use, lambda view: find(view, request))

    async def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record, or None where this scope has none."""
        view = await self._view()
        record = view.by_id.get(handle.provider_record_id)
        if handle.provider_key != self.key or record is None or not sees(scope, record.scope):
            return None
        return record

    async def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page and the exact total."""
        return await asyncio.to_thread(self._collection.use, lambda view: _browse(view, request))

    async def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return what could not be read, where `scope` sees these files at all."""
        if not sees(scope, self._scope):
            return ()
        found = (await self._view()).problems
        return [problem.model_copy(update={"scope": self._scope}) for problem in found]

    async def health(self) -> Health:
        """Count records and list what could not be read; at most 500 problems are spelled out."""
        try:
            view = await self._view()
        except Unavailable as error:
            return Health(status="down", message=str(error))
        problems = view.problems
        if len(problems) > _PROBLEM_LIMIT:
            rest = Problem(message=f"{len(problems) - _PROBLEM_LIMIT} more problems are not shown.")
            problems = (*problems[:_PROBLEM_LIMIT], rest)
        return Health(
            status="degraded" if problems else "ok",
            message=f"{len(view.problems)} problems" if problems else "",
            records=len(view.records),
            problems=problems,
        )

    async def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the handles that came, changed or went, until the adapter is closed."""
        known = await self._revisions()
        async with contextlib.aclosing(wakes(self._watched, self._stopped)) as waking:
            async for _ in waking:
                now = await self._revisions()
                names = known.keys() | now.keys()
                changed = sorted(name for name in names if known.get(name) != now.get(name))
                known = now
                if changed:
                    yield [self._handle(name) for name in changed]

    def _watched(self) -> list[Path]:
        above = next(path for path in self.config.path.parents if path.is_dir())
        return self._collection.folders() or [above]

    async def _view(self) -> View:
        return await asyncio.to_thread(self._collection.use, lambda view: view)

    async def _revisions(self) -> dict[str, str | None]:
        try:
            view = await self._view()
        except Unavailable:
            return {}
        return {name: record.revision for name, record in view.by_id.items()}

    def _handle(self, record_id: str) -> RecordHandle:
        return RecordHandle(provider_key=self.key, provider_record_id=record_id)

    def _read_only(self, refusal: str) -> Unsupported:
        return Unsupported(
            f"{refusal}: the provider {self.key} only reads; edit {self.config.path} itself, or "
            "use a binding that can be written."
        )

    def _load(self, reader: FileReader) -> dict[str, Record]:
        self.require()
        records: dict[str, Record] = {}
        made: dict[Path, tuple[Parsed, dict[str, Record]]] = {}
        for path, parsed in self.parse_all(reader):
            for flaw in parsed.flaws:
                reader.report(flaw.message, path, flaw.line)
            before = self._made.get(path)
            if before is None or before[0] is not parsed or before[1].keys() & records.keys():
                before = (parsed, self._records(parsed, path, records))
            made[path] = before
            records |= before[1]
        self._made = made
        return records

    def _records(
        self, parsed: Parsed, path: Path, taken: Mapping[str, Record]
    ) -> dict[str, Record]:
        records: dict[str, Record] = {}
        for entry in parsed.entries:
            wanted = record_id = printable_id(entry.id)
            copy = 1
            while record_id in taken or record_id in records:
                copy += 1
                record_id = f"{wanted}~{copy}"
            records[record_id] = self._record(entry, path, record_id)
        return records

    def _record(self, entry: Entry, path: Path, record_id: str) -> Record:
        place = f"{path}:{entry.line}"
        source = SourceRef(
            kind=SourceKind.RUN if entry.run_id else SourceKind.EXTERNAL_DOCUMENT,
            company_id=self._context.company_id,
            run_id=entry.run_id,
            external_ref=entry.external_ref if entry.run_id else place,
        )
        return Record(
            handle=self._handle(record_id),
            text=entry.text,
            scope=self._scope,
            source=source,
            title=entry.title,
            summary=entry.summary,
            kind=entry.kind,
            topic=entry.topic,
            tags=entry.tags,
            created_at=entry.created_at,
            updated_at=entry.updated_at,
            revision=digest(entry.text, entry.title or "", entry.summary or "", entry.kind),
            location=Location(path=str(path), line=entry.line),
            metadata=entry.metadata,
        )


def whole_text(text: str, record_id: str, flaw: Flaw) -> Parsed:
    """Return an unparsed file as one entry with the flaw that kept it from being parsed."""
    entries = (Entry(id=record_id, text=text),) if text.strip() else ()
    return Parsed(entries, (flaw,))


def _browse(view: View, request: BrowseRequest) -> BrowsePage:
    fits = matcher(request.filter)
    chosen = [r for r in view.records if sees(request.scope, r.scope) and fits(r)]
    return page(chosen, request)
