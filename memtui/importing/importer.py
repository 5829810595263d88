"""Import files of another system: read operations, sort them by time, add them to the log."""

import asyncio
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memtui.contract import Invalid, Model, Usd, UtcDatetime
from memtui.importing.claude_code import Transcripts, transcripts_in
from memtui.importing.mapping import MappedRows
from memtui.importing.rows import FormatName, format_of
from memtui.importing.staging import ParsedOperation, Staging
from memtui.importing.translating import FIELDS, NEEDED, PRICED_BY, Translator
from memtui.service import Caller, MemoryService
from memtui.service.home.imports import ForeignOperation
from memtui.store.operation import OperationDraft
from memtui.wording import unknown

_TOKENS = ("input_tokens", "output_tokens", "embedding_tokens")
_LISTED = 10
"""How many bad rows are reported with their reason, and how many files are logged by name."""
_TRANSCRIPTS: FormatName = "claude-code"
_WHERE = "where"
_NOT_IN_AN_ID = re.compile(r"[^a-z0-9._-]+")


class BadRow(Model):
    """A row that cannot be imported."""

    file: str
    line: int
    reason: str


class ImportReport(Model):
    """The result of an import: the operations read, added and left out, and their totals."""

    company_id: str
    created: bool
    """Whether the company is new."""
    dry_run: bool
    files: tuple[str, ...]
    format: FormatName
    operations: int
    """Operations in the files, each counted once."""
    added: int
    known: int
    """Operations that an earlier import has added."""
    bad_count: int = 0
    bad: tuple[BadRow, ...] = ()
    """The first bad rows."""
    skipped: dict[str, int] = {}
    """Lines of transcripts that are not operations, and other rows left out, by reason."""
    repeated: int = 0
    """Lines of transcripts that repeat or continue a reply, which is counted once."""
    fields: dict[str, str] = {}
    """The source of each field of an operation: the column of its name, or an expression."""
    kept: tuple[str, ...] = ()
    """Columns of no field, which are stored in the request."""
    types_count: dict[str, int] = {}
    status_count: dict[str, int] = {}
    first: UtcDatetime | None = None
    last: UtcDatetime | None = None
    naive_count: int = 0
    """Moments without a zone, which were read in `timezone`."""
    timezone: str
    unmeasured_count: int = 0
    """Operations of unknown duration, which percentiles leave out."""
    input_tokens: int = 0
    output_tokens: int = 0
    embedding_tokens: int = 0
    cost_usd: Usd | None = None
    """None: no usage has a price."""
    usage_count: int = 0
    priced_here_count: int = 0
    """Usage that memtui priced by its own table."""
    unpriced_count: int = 0


class Import:
    """One import of some files. Run it once, then close it."""

    def __init__(
        self,
        files: Sequence[Path],
        company_id: str,
        expressions: Mapping[str, str],
        *,
        where: str | None = None,
        timezone: str | None = None,
        form: FormatName | None = None,
    ) -> None:
        """Set it up.

        Args:
            files: Logs of one format, or transcripts of Claude Code and folders of them.
            company_id: The company that gets the operations.
            expressions: SQL over the columns, by field; a field without one is read from the
                column of its name. Transcripts need none.
            where: SQL condition of the rows to import; the others are counted.
            timezone: The IANA name of the zone of times without one; None: UTC.
            form: The format; None: determined from the files.

        Raises:
            Invalid: a file, a field or the zone does not exist, a file's format is unknown, or the
                files have several formats.
        """
        for name in expressions:
            if name not in FIELDS:
                raise Invalid(unknown("field", name, FIELDS))
        for path in files:
            if not path.exists():
                raise Invalid(f"The file {path} does not exist.")
        forms = {form or format_of(path) for path in files}
        if len(forms) != 1:
            raise Invalid("Import files of one format at a time.")
        self.form: FormatName = forms.pop()
        self.files = _files(files, self.form)
        self.company_id = company_id
        self._expressions = {**expressions}
        if where is not None:
            self._expressions[_WHERE] = f"({where}\n)::BOOLEAN"
        self._zone = _zone(timezone)
        taken = frozenset(self._expressions.values())
        self._translator = Translator(company_id, self._zone, taken)
        self._columns: dict[str, str] = {}
        """The columns of all files, with DuckDB's types."""
        self._rows: MappedRows | None = None
        self._transcripts = Transcripts(company_id, self._refuse)
        self._staging: Staging | None = None
        self._types: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._figures: Counter[str] = Counter()
        """Counts for the report, by the names of its fields."""
        self._cost = Decimal(0)
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._left_out: Counter[str] = Counter()
        self.bad_count = 0
        self.bad: list[BadRow] = []
        """The first rows that cannot be imported."""

    async def run(
        self,
        service: MemoryService,
        caller: Caller,
        *,
        skip_bad: bool = False,
        dry_run: bool = False,
        report: Callable[[str, int], None] = lambda _what, _count: None,
    ) -> ImportReport:
        """Read everything, then add the operations that the company's log lacks, oldest first.

        Args:
            service: The service.
            caller: Who imports, in a company of their own.
            skip_bad: Leave out rows that do not fit, instead of importing nothing.
            dry_run: Add nothing; only report what would be added.
            report: Called with `read` or `gone through` and a count, from several threads.

        Raises:
            Invalid: a file cannot be read, there is no operation, or rows do not fit (`bad` has
                the first of them).
            Denied, Conflict: as `Imports.append`.
        """
        staging = self._staging = Staging(self.company_id, once=self.form == _TRANSCRIPTS)
        await asyncio.to_thread(self._read, staging, lambda count: report("read", count))
        # Damaged lines, as a killed client leaves them, never stop an import of transcripts.
        if self.bad_count and not skip_bad and not dry_run and self.form != _TRANSCRIPTS:
            raise self._refusal()
        if not staging.count and not (dry_run and (self.bad_count or self._left_out)):
            raise self._nothing()
        count = await service.imports.append(
            caller,
            self.company_id,
            self._counted(staging.in_order()),
            name=self._name(),
            asked={
                "files": [path.name for path in self.files[:_LISTED]],
                "file_count": len(self.files),
                "format": self.form,
            },
            dry_run=dry_run,
            report=lambda count: report("gone through", count),
        )
        spent = self._figures["usage_count"] > self._figures["unpriced_count"]
        return ImportReport(
            company_id=self.company_id,
            created=count.created,
            dry_run=dry_run,
            files=tuple(str(path) for path in self.files),
            format=self.form,
            operations=self._types.total(),
            added=count.added,
            known=count.known,
            bad_count=self.bad_count,
            bad=tuple(self.bad),
            skipped=dict(self._transcripts.skipped + self._left_out),
            repeated=self._transcripts.repeated + staging.added - staging.count,
            fields={name: name for name in self._columns if name in FIELDS} | self._expressions,
            kept=tuple(filter(self._translator.keeps, self._columns)),
            types_count=dict(self._types),
            status_count=dict(self._statuses),
            first=self._first,
            last=self._last,
            naive_count=self._translator.naive,
            timezone=str(self._zone),
            cost_usd=self._cost if spent else None,
            **self._figures,
        )

    def close(self) -> None:
        """Delete the staged operations, and stop the running query."""
        if self._staging is not None:
            self._staging.close()
        if self._rows is not None:
            self._rows.close()

    def _read(self, staging: Staging, report: Callable[[int], None]) -> None:
        for number, path in enumerate(self.files):
            for entry in self._entries(path):
                staging.add(number, entry)
                if staging.added % 1000 == 0:
                    report(staging.added)

    def _entries(self, path: Path) -> Iterator[ParsedOperation]:
        if self.form == _TRANSCRIPTS:
            yield from self._transcripts.entries(path)
            return
        self._rows = MappedRows(path, self.form, self._expressions, zone=str(self._zone))
        with closing(self._rows) as rows:
            self._columns |= rows.columns
            _refuse_missing(rows, self._expressions)
            for row, mapped in rows:
                if not mapped.pop(_WHERE, True):
                    self._left_out["not in --where"] += 1
                elif row.values is None:
                    self._refuse(path, row.line, row.problem)
                else:
                    try:
                        yield self._translator.entry(path.name, row, mapped)
                    except ValueError as error:
                        self._refuse(path, row.line, str(error))

    def _refuse(self, path: Path, line: int, reason: str) -> None:
        self.bad_count += 1
        if len(self.bad) < _LISTED:
            self.bad.append(BadRow(file=path.name, line=line, reason=reason))

    def _refusal(self) -> Invalid:
        place = f"{self.bad[0].file} line {self.bad[0].line}"  # `bad` has the reason of each
        rows = f"1 row does not fit: {place}"
        if self.bad_count > 1:
            rows = f"{self.bad_count:,} rows do not fit; the first is {place}"
        error = Invalid(f"{rows}. Nothing was imported; add --skip-bad to import the others.")
        error.details = {"bad_count": self.bad_count, "bad": self.bad}
        return error

    def _nothing(self) -> Invalid:
        where = self.files[0].name if len(self.files) == 1 else f"{len(self.files):,} files"
        others = self.bad_count + self._left_out.total()
        rows = "the 1 row was" if others == 1 else f"the {others:,} rows were"
        why = f": {rows} left out" if others else ""
        return Invalid(f"There is no operation in {where}{why}. Nothing was imported.")

    def _counted(self, operations: Iterator[ForeignOperation]) -> Iterator[ForeignOperation]:
        for operation in operations:
            self._count(operation.draft)
            yield operation

    def _count(self, draft: OperationDraft) -> None:
        self._types[draft.operation_type.value] += 1
        self._statuses[draft.status.value] += 1
        self._first = self._first or draft.started_at
        self._last = draft.started_at
        figures = self._figures
        figures["unmeasured_count"] += draft.latency_ms is None
        for usage in draft.usage:
            figures["usage_count"] += 1
            for name in _TOKENS:
                figures[name] += getattr(usage, name)
            figures["priced_here_count"] += PRICED_BY in usage.details
            figures["unpriced_count"] += usage.cost_usd is None
            self._cost += usage.cost_usd or 0

    def _name(self) -> str:
        first = self.files[0].name
        more = len(self.files) - 1
        source = "Claude Code" if self.form == _TRANSCRIPTS else first
        also = f" and {more:,} more" if more and self.form != _TRANSCRIPTS else ""
        return f"Imported from {source}{also}"


def _refuse_missing(rows: MappedRows, expressions: Mapping[str, str]) -> None:
    missing = [one for one in NEEDED if one not in {*rows.columns, *expressions}]
    if missing and rows.columns:
        examples = zip(missing, rows.columns, strict=False)
        maps = [f"--map {shlex.quote(f'{name}={column}')}" for name, column in examples]
        raise Invalid(
            f"{rows.described()}, but not {' and '.join(missing)}; name its column or SQL "
            f"expression, such as {' '.join(maps)}."
        )


def company_for(files: Sequence[Path], form: FormatName | None = None) -> str:
    """Return the id of the company for an import that names none."""
    first = files[0]
    if (form or format_of(first)) == _TRANSCRIPTS:
        return _TRANSCRIPTS
    readable = _NOT_IN_AN_ID.sub("-", first.stem.lower()).strip("-._")
    return readable[:63] or "imported"


def _files(given: Sequence[Path], form: FormatName) -> list[Path]:
    found: list[Path] = []
    for path in given:
        if not path.is_dir():
            found.append(path)
        elif form != _TRANSCRIPTS:
            raise Invalid(f"{path} is a folder; only transcripts of Claude Code come in folders.")
        elif not (below := transcripts_in(path)):
            raise Invalid(f"There is no transcript (.jsonl) in {path}.")
        else:
            found.extend(below)
    return list(dict.fromkeys(found))


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Invalid(
            f"There is no time zone {name}; use an IANA name such as Europe/Berlin."
        ) from error
