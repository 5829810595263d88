"""The base of the providers over files of other programs."""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Generic, Self, TypeVar

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
    Invalid,
    Location,
    Matching,
    Model,
    Problem,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    Snippet,
    SourceKind,
    SourceRef,
    Unavailable,
    Unsupported,
    WriteReply,
    WriteRequest,
    place_of_path,
    sees,
)
from memtui.provider_kit import LocalPath, blocking, read_config
from memtui.provider_kit.files.reading import FileReader, ParsedFile, ParsedRecord, digest, numbered
from memtui.provider_kit.matching import eligible, matcher
from memtui.provider_kit.pages import page
from memtui.provider_kit.search import TextIndex
from memtui.provider_kit.watching import WatchEnd

_PROBLEM_LIMIT = 500


class FilesConfig(Model):
    """Settings that all providers of files share."""

    path: LocalPath
    """The folder or file to read; absolute, or from `~`."""
    project_id: str | None = None
    """The project that the memories belong to; unset means the whole company."""
    agent_id: str | None = None
    """The agent that the memories belong to; unset means every agent."""
    subject_id: str | None = None
    """The user that the memories are about; unset means nobody in particular."""


ConfigT = TypeVar("ConfigT", bound=FilesConfig)


class FilesAdapter(Adapter, Generic[ConfigT]):
    """Shows the records in files; write, forget and correct raise `Unsupported`.

    A subclass implements `parse_all`, which reads and parses every file through the reader. The
    result is cached until a file, a folder or a missing path that was looked up changes.
    """

    config_model: ClassVar[type[FilesConfig]] = FilesConfig
    numbers_equals = True
    capabilities = Capabilities(
        browse=True, writable=False, full_text=True, watch=True, without=True
    )
    holds: ClassVar[str] = "folder"
    """The required type of the path: `folder` or `file`."""
    inside: ClassVar[str] = ""
    """Where the program's own folder has the right folder, and there a file that tells it."""

    def __init__(self, context: BindingContext, config: ConfigT) -> None:
        self.config = config
        self._context = context
        self._scope = Scope(
            company_id=context.company_id,
            project_id=config.project_id,
            agent_id=config.agent_id,
            subject_id=config.subject_id,
        )
        self._lock = Lock()
        self._reader = FileReader()
        self._records: dict[str, Record] | None = None
        """By id, in the order of the files."""
        self._index: TextIndex | None = None
        self._is_still = False
        """Whether the records are a fixed copy that no longer follows the files."""
        self._stopped = asyncio.Event()

    @classmethod
    def places(cls, context: BindingContext) -> Sequence[tuple[str, ...]]:
        """Return the file or folder that is shown."""
        return [place_of_path(read_config(cls.config_model, context).path)]

    @classmethod
    async def open(cls, context: BindingContext) -> Self:
        """Open the files. Raises `Invalid` for a bad config, `Unavailable` if they are gone."""
        config: Any = read_config(cls.config_model, context)
        adapter = cls(context, config)
        await asyncio.to_thread(adapter._require)
        return adapter

    async def close(self) -> None:
        """Stop watching and free the index."""
        self._stopped.set()
        await asyncio.to_thread(self._drop_index)

    @abstractmethod
    def parse_all(self, reader: FileReader) -> Iterable[tuple[Path, ParsedFile]]:
        """Read every file and yield its parsed content. Blocking; never raises for bad content."""

    async def write(self, request: WriteRequest) -> WriteReply:  # noqa: ARG002
        """Refuse. Raises `Unsupported`."""
        raise self._read_only("added")

    async def forget(self, request: ForgetRequest) -> ForgetReply:  # noqa: ARG002
        """Refuse. Raises `Unsupported`."""
        raise self._read_only("forgotten")

    async def correct(self, request: CorrectRequest) -> CorrectReply:  # noqa: ARG002
        """Refuse. Raises `Unsupported`."""
        raise self._read_only("corrected")

    def _read_only(self, refused: str) -> Unsupported:
        return Unsupported(
            f"A memory cannot be {refused}: the provider {self.key} only reads; edit "
            f"{self.config.path} itself, or use a binding that can be written."
        )

    @blocking
    def query(self, request: QueryRequest) -> ContextBundle:
        """Return the best matches of any word; with a topic, records without one also match."""
        with self._lock:
            may_be = eligible(request)
            found = (
                Snippet(**dict(record), score=score)
                for record, score in self._matches(request, self._fresh())
                if may_be(record)
            )
            snippets = tuple(islice(found, request.top_k))
            return ContextBundle(snippets=snippets, capped=next(found, None) is not None)

    def _matches(
        self, request: QueryRequest, records: dict[str, Record]
    ) -> Iterator[tuple[Record, float | None]]:
        if request.matching is Matching.AGENTS:
            return ((record, None) for record in self.found_by_agents(request.query, records))
        self._index = self._index or TextIndex(tuple(filter(self.is_listed, records.values())))
        return self._index.search(request.query)

    def is_listed(self, record: Record) -> bool:  # noqa: ARG002
        """Whether a record is found and listed in general, not only by a filter of its kind."""
        return True

    def found_by_agents(self, query: str, records: dict[str, Record]) -> Iterable[Record]:
        """Return the records that this provider's own agents would find, best first.

        Capability `agents_search`. Blocking.
        """
        del query, records
        raise Unsupported(f"memtui does not know how agents search {self.key}.")

    @blocking
    def get(self, handle: RecordHandle, scope: Scope) -> Record | None:
        """Return one record; None if this scope has none of that id."""
        return self._find(handle, scope)

    def _find(self, handle: RecordHandle, scope: Scope) -> Record | None:
        return self._find_all([handle], scope)[handle]

    def _find_all(
        self, handles: Iterable[RecordHandle], scope: Scope
    ) -> dict[RecordHandle, Record | None]:
        """Return the records of handles as they are now; None where this scope has none."""
        there, found = self._load()[0], dict[RecordHandle, Record | None]()
        for handle in handles:
            record = there.get(handle.provider_record_id)
            is_seen = handle.provider_key == self.key and record and sees(scope, record.scope)
            found[handle] = record if is_seen else None
        return found

    @blocking
    def browse(self, request: BrowseRequest) -> BrowsePage:
        """Return one page and the exact total."""
        fits, kinds = matcher(request.filter), request.filter.any_of("kind")
        there = [r for r in self._load()[0].values() if self.is_listed(r) or r.kind in kinds]
        return page([r for r in there if sees(request.scope, r.scope) and fits(r)], request)

    @blocking
    def without(self, record_ids: Collection[str]) -> Adapter:
        """Return a copy of the present records without some; it lacks the agents' search."""
        self._load()
        still = copy(self)
        still.stand_still(record_ids)
        return still

    def stand_still(self, left_out: Collection[str]) -> None:
        """Stop following the files, and remove some records from those read last."""
        self.capabilities = self.capabilities.model_copy(update={"agents_search": False})
        self._lock, self._stopped = Lock(), asyncio.Event()
        self._index, self._is_still = None, True
        read = self._records or {}
        self._records = {name: one for name, one in read.items() if name not in left_out}

    @blocking
    def problems(self, scope: Scope) -> Sequence[Problem]:
        """Return the unreadable parts, if these files are visible to `scope`."""
        if not sees(scope, self._scope):
            return ()
        _, found = self._load()
        return [problem.model_copy(update={"scope": self._scope}) for problem in found]

    @blocking
    def health(self) -> Health:
        """Count the records and list the problems, at most 500 of them."""
        try:
            records, problems = self._load()
        except Unavailable as error:
            return Health(status="down", message=str(error))
        count = len(problems)
        if count > _PROBLEM_LIMIT:
            rest = Problem(message=f"{count - _PROBLEM_LIMIT} more problems are not shown.")
            problems = [*problems[:_PROBLEM_LIMIT], rest]
        return Health(
            status="degraded" if problems else "ok",
            message=f"{count} problem{'s' * (count > 1)}" if problems else "",
            records=sum(map(self.is_listed, records.values())),
            problems=tuple(problems),
        )

    async def watch(self) -> AsyncIterator[Sequence[RecordHandle]]:
        """Yield the handles of added, changed and removed records, until the adapter is closed."""
        known = await self._revisions()
        async with contextlib.aclosing(self._wakes()) as waking:
            async for _ in waking:
                now = await self._revisions()
                names = known.keys() | now.keys()
                changed = sorted(name for name in names if known.get(name) != now.get(name))
                known = now
                if changed:
                    yield [self._handle(name) for name in changed]

    async def _wakes(self) -> AsyncGenerator[None, None]:
        """Yield whenever something may have changed, and at least every 5 s.

        The folders to watch change too, so they are determined again after each wake. The limit
        covers file systems that do not notify of changes.

        Raises:
            Unavailable: the system refuses to watch.
        """
        import watchfiles

        while not self._stopped.is_set():
            watched = await self._watched()
            yield
            changes = watchfiles.awatch(
                *watched,
                watch_filter=None,
                recursive=False,
                stop_event=WatchEnd(self._stopped),
                yield_on_timeout=True,
                ignore_permission_denied=True,
            )
            try:
                async with contextlib.aclosing(changes):
                    async for _ in changes:
                        yield
                        if await self._watched() != watched:
                            break
            except FileNotFoundError:
                continue
            except (OSError, RuntimeError) as error:
                raise Unavailable(
                    f"The system does not allow watching files ({error}); refresh by hand."
                ) from error

    @blocking
    def _watched(self) -> list[Path]:
        """Return the existing folders to watch for changes."""
        with self._lock:
            places = set(self._reader.seen) | {path.parent for path in self._reader.seen}
        folders = sorted(path for path in places if path.is_dir())
        return folders or [next(path for path in self.config.path.parents if path.is_dir())]

    @blocking
    def _revisions(self) -> dict[str, str | None]:
        try:
            return {name: record.revision for name, record in self._load()[0].items()}
        except Unavailable:
            return {}

    def _load(self) -> tuple[dict[str, Record], list[Problem]]:
        """Return the present records by id, and the problems.

        Raises:
            Unavailable: the files are gone.
        """
        with self._lock:
            return self._fresh(), self._reader.problems

    def _fresh(self) -> dict[str, Record]:
        if self._records is None or (not self._is_still and self._reader.changed()):
            self._records = None
            self._drop_index()
            reader = FileReader(memo=self._reader.memo)
            records = self._read(reader)
            for path in reader.memo.keys() - reader.seen.keys():
                del reader.memo[path]
            self._reader, self._records = reader, records
        return self._records

    def _drop_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None

    def _require(self) -> None:
        """Raise `Unavailable` or `Invalid` unless the path is there and the right one."""
        path, inner = self.config.path, self.config.path / self.inside
        try:
            found = path.is_dir() if self.holds == "folder" else path.exists() and not path.is_dir()
            is_above = self.inside and inner.exists() and not (path / inner.name).exists()
        except OSError:
            found = is_above = False
        if not found:
            raise Unavailable(
                f"There is no {self.holds} {path} that can be read; put it back, or change the "
                f"path of the binding {self._context.binding_key}."
            )
        if is_above:
            raise Invalid(
                f"The memories are not in {path} but in {inner.parent}; set path to that folder."
            )

    def _read(self, reader: FileReader) -> dict[str, Record]:
        self._require()
        entries: list[tuple[ParsedRecord, Path]] = []
        for path, parsed in self.parse_all(reader):
            for flaw in parsed.flaws:
                reader.report(flaw.message, path, flaw.line)
            entries += [(found, path) for found in parsed.records]
        ids = numbered(found.id for found, _ in entries)
        return {
            one: self._record(found, path, one)
            for one, (found, path) in zip(ids, entries, strict=True)
        }

    def _record(self, found: ParsedRecord, path: Path, record_id: str) -> Record:
        place = f"{path}:{found.line}"
        source = SourceRef(
            kind=SourceKind.RUN if found.run_id else SourceKind.EXTERNAL_DOCUMENT,
            company_id=self._context.company_id,
            run_id=found.run_id,
            external_ref=found.external_ref if found.run_id else place,
        )
        return Record.like(
            found,
            handle=self._handle(record_id),
            scope=self._scope,
            source=source,
            revision=digest(found.text, found.title or "", found.summary or "", found.kind),
            location=Location(path=str(path), line=found.line),
        )

    def _handle(self, record_id: str) -> RecordHandle:
        return RecordHandle(provider_key=self.key, provider_record_id=record_id)
