"""What was asked on the command line, and what answers it: an open service, or the terminal app.

Nothing here needs Typer: without a command the app opens before the parser is imported.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from memtui.channels.cli.interrupts import raise_interrupts
from memtui.channels.cli.output import Output, say
from memtui.channels.helper.words import NAMING

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from memtui.config import Paths, Settings
    from memtui.contract import Model, RecordHandle, Scope
    from memtui.log_file import LogFile
    from memtui.service import Caller, CompanyView, MemoryService, Resolution

    ModelT = TypeVar("ModelT", bound=Model)


DOOR = "cli"


@dataclass(slots=True)
class Invocation:
    """The global options of this run."""

    home: Path | None = None
    company: str | None = None
    principal: str | None = None
    acts_for: str | None = None
    read_only: bool = False
    as_json: bool = False

    @property
    def out(self) -> Output:
        """Where the answer goes."""
        return Output(as_json=self.as_json)

    def paths(self) -> Paths:
        """Return the folders of this run."""
        from memtui.paths import find_paths

        return find_paths(self.home)

    def begun_paths(self) -> Paths:
        """Return the folders of a home that is there. Raises `NotFound`."""
        from memtui.wording import nothing_yet

        paths = self.paths()
        if not paths.is_begun:
            raise nothing_yet(paths.data)
        return paths

    @property
    def names_home(self) -> bool:
        """Whether somebody named the home, who may have mistyped it."""
        from memtui.paths import HOME_VARIABLE

        return bool(self.home or os.environ.get(HOME_VARIABLE))

    @property
    def flags(self) -> dict[str, Any]:
        """The settings that global options give; None: not given."""
        return {
            "company": self.company,
            "principal": self.principal,
            "acts_for": self.acts_for,
            "read_only": self.read_only or None,
        }

    def words(self) -> list[str]:
        """Return the options with which `global_options` gives this again."""
        named = {
            "--home": self.home and str(self.home.absolute()),
            "--company": self.company,
            "--principal": self.principal,
            "--acts-for": self.acts_for,
        }
        given = [f"{name}={value}" for name, value in named.items() if value]
        return [*given, "--read-only"] if self.read_only else given

    def settings(self) -> Settings:
        """Read the settings. Raises `Invalid` for an unknown or unfit one."""
        from memtui.config import load_settings
        from memtui.contract import Invalid

        found = load_settings(self.paths(), **self.flags)
        if self.acts_for and not found.principal.startswith("agent:"):
            raise Invalid(
                f"{found.principal} acts for nobody: only an agent does; "
                "name it too, with --principal agent:NAME."
            )
        return found

    @asynccontextmanager
    async def session(self, *, make: bool | None = None) -> AsyncIterator[Session]:
        """Open the service for one command and close it afterwards.

        `make`: a home is made where there is none; None: unless somebody named it.

        Raises:
            NotFound: there is nothing in the home, and none is to be made.
        """
        from memtui.service import CompanyView, caller_of, open_service

        paths, settings = self.paths(), self.settings()
        is_begun = paths.is_begun
        if make is None:
            make = is_begun or bool(settings.database_url) or not self.names_home
        makes = make and not settings.read_only
        with logging_to(paths.log_file) if makes or is_begun else nullcontext():
            service = await open_service(paths, settings, first_company=make, make=make)
            try:
                if not service.records:
                    self.out.say("This home cannot be written, so nothing of this is recorded.")
                if not is_begun and paths.is_begun:
                    self.out.say(f"Made a new home of memtui in {paths.data}.")
                own = settings.principal, settings.acts_for or None
                entered = await service.companies.all(*own)
                company = choose_company(entered, await service.companies.all(), settings.company)
                if company not in entered:
                    # Nothing is known of it here; whatever is asked is denied, and logged as that.
                    company = CompanyView(company_id=company.company_id, name=company.company_id)
                caller = caller_of(settings, company.company_id, DOOR)
                yield Session(service, caller, company, paths, settings, self.out)
            finally:
                await service.close()


@dataclass(frozen=True, slots=True)
class Session:
    """An open service, who calls it, and where the answer goes."""

    service: MemoryService
    caller: Caller
    company: CompanyView
    paths: Paths
    settings: Settings
    out: Output

    @property
    def now(self) -> datetime:
        """The present moment, UTC."""
        from datetime import UTC, datetime

        return datetime.now(UTC)

    @property
    def zone(self) -> tzinfo:
        """The zone that days and clock times are read and shown in."""
        return zone_of(self.settings)

    def moment(self, text: str) -> datetime:
        """Return the moment that a person names. Raises `Invalid`."""
        from memtui.filters import parse_when

        return parse_when(text, now=self.now, zone=self.zone)

    def at(self, text: str | None) -> Session:
        """Return the session of who looks at a moment, and say which; None: now.

        Raises:
            Invalid: the text names no moment, or one that is yet to come.
        """
        moment = self.past(text)
        if moment is None:
            return self
        from memtui.presenters.format import exact

        if not self.out.as_json:
            self.out.say(f"As of {exact(moment, self.zone)}:")
        return replace(self, caller=self.caller.at(moment))

    def past(self, text: str | None) -> datetime | None:
        """Return a moment that is not yet to come. Raises `Invalid`."""
        from memtui.contract import Invalid

        moment = self.moment(text) if text is not None else None
        if moment is not None and moment > self.now:
            raise Invalid(f"{text} is yet to come; give a moment in the past, such as 90d.")
        return moment

    def future(self, text: str | None) -> datetime | None:
        """Return the moment that an end names: a span from now on (`30d`), or a date.

        Raises:
            Invalid: the text is neither.
        """
        from memtui.filters import parse_ahead

        return None if text is None else parse_ahead(text, now=self.now, zone=self.zone)

    def ahead(self, text: str | None) -> datetime | None:
        """Return the moment that an expiry names, which is still to come.

        Raises:
            Invalid: the text is no moment, or one that is past.
        """
        from memtui.filters import parse_expiry

        return None if text is None else parse_expiry(text, now=self.now, zone=self.zone)

    def zone_name(self) -> str:
        """Return the IANA name of `zone`; UTC, with a note, where the system's has none."""
        if name := self.settings.zone_name:
            return name
        self.out.say("The system's time zone has no name, so days are UTC; set timezone to yours.")
        return "UTC"

    async def resolved(self, scope: Scope, binding_key: str | None) -> Resolution | None:
        """Return the binding that serves `scope`; None where the operation itself is to fail.

        It fails for the same reason then, and leaves a record of that in the log.
        """
        from memtui.contract import MemtuiError

        try:
            return await self.service.resolve(self.caller, scope, binding_key)
        except MemtuiError:
            return None


FirstSession = Annotated[Session, "makes a home"]
"""The session of a command that adds something or sets it up: where no home is, it makes one."""


def handle_in(found: Resolution | None, record_id: str) -> RecordHandle:
    """Return the handle of a record in a binding; None where no binding serves the scope."""
    from memtui.contract import RecordHandle

    provider_key = found.provider_key if found else "unresolved"
    return build(RecordHandle, provider_key=provider_key, provider_record_id=record_id)


def zone_of(settings: Settings) -> tzinfo:
    """Return the zone that is set, else the system's."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    if name := settings.zone_name:
        return ZoneInfo(name)
    return datetime.now(UTC).astimezone().tzinfo or UTC


def choose_company(
    entered: list[CompanyView], companies: list[CompanyView], wanted: str
) -> CompanyView:
    """Return the company of that id or name; for no wish the first that may be entered.

    Raises:
        NotFound: there is no such company.
    """
    from memtui.contract import NotFound
    from memtui.wording import unknown

    for company in (*entered, *companies):
        if not wanted or company.company_id == wanted:
            return company
    for company in (*entered, *companies):
        if company.name == wanted:
            return company
    if not companies:
        raise NotFound("There is no company yet; start memtui once without --read-only.")
    if not entered:
        raise NotFound(f"There is no company {wanted} that you may see.")
    raise NotFound(unknown("company", wanted, [company.company_id for company in entered]))


def build(model: type[ModelT], /, **values: Any) -> ModelT:
    """Make a request; a value that does not fit becomes one sentence.

    Raises:
        Invalid: a value does not fit its field.
    """
    from pydantic import ValidationError

    from memtui.contract import Invalid
    from memtui.wording import misfit

    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]).replace("_", " ")
        raise Invalid(f"The {field or 'request'} does not fit: {misfit(first)}.") from error


@contextmanager
def logging_to(path: Path) -> Iterator[LogFile]:
    """Send warnings and errors of every module to the log file, or to stderr where it takes none.

    A log that cannot be written is no reason to refuse a command.
    """
    import logging

    from memtui.log_file import LogFile

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    handler = LogFile(path, say, _redacted)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        handler.close()


def _redacted(text: str) -> str:
    from memtui.service.operations.redaction import redact  # when there is something to log

    return redact(text)[0]


def open_app(invocation: Invocation) -> int:
    """Open the terminal app and return its exit code.

    Raises:
        Invalid: there is no terminal, or a setting does not fit.
    """
    require_terminal()
    raise_interrupts()
    with keys_kept() as attributes:
        from memtui.app import run_app

        return run_app(
            invocation.paths(),
            invocation.settings,
            company=invocation.company,
            terminal=attributes,
        )


@contextmanager
def keys_kept() -> Iterator[list[Any]]:
    """Have the terminal keep each key as it is, unseen, until the app reads it.

    Until then it would show it, wait for a whole line, and take enter for ctrl+j. Yields what the
    terminal's attributes were, and sets them again.
    """
    before = termios.tcgetattr(sys.stdin)
    now = list(before)
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, now)
    try:
        yield before
    finally:
        with suppress(termios.error):  # a terminal that was closed has none
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def require_terminal() -> None:
    """Raise `Invalid` unless input, output and errors are a terminal of UTF-8, to paint on."""
    from memtui.contract import Invalid

    if not is_terminal():
        raise Invalid("The terminal app needs a terminal; give a command, or see memtui --help.")
    for stream in (sys.stdout, sys.stderr):
        if not is_utf8(stream.encoding):
            raise Invalid(
                f"The terminal app draws with characters of UTF-8, and this terminal takes "
                f"{stream.encoding}; set LANG to a UTF-8 locale such as C.UTF-8, or give a command."
            )


def is_utf8(encoding: str | None) -> bool:
    """Whether the name of an encoding is one of UTF-8's."""
    return (encoding or "").lower().replace("_", "-") in {"utf-8", "utf8"}


def is_terminal() -> bool:
    """Whether a person reads and types here."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def global_options(arguments: Sequence[str]) -> Invocation | None:
    """Return the options before a command, as `memtui.channels.cli.main.start` takes them.

    None where there is anything else.
    """
    found = Invocation()
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--read-only":
            found.read_only = True
            continue
        if name not in NAMING:
            return None
        value = value if equals else next(words, "")
        if not value.isprintable() or not value or value.startswith("-"):
            return None
        if name != "--home":
            setattr(found, name.removeprefix("--").replace("-", "_"), value)
        elif os.access(value, os.F_OK) and not os.access(f"{value}/", os.R_OK):
            return None  # a file, or closed to us
        else:
            found.home = Path(value)
    return found
