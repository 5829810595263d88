"""The global options, and what they open: the service for a command, or the terminal app.

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
ASKED_BY_SHELL = "_MEMTUI_COMPLETE"
"""The environment variable that a shell sets to ask for completions."""


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
        """The output of the answer."""
        return Output(as_json=self.as_json)

    def paths(self) -> Paths:
        """Return the folders of this run."""
        from memtui.paths import find_paths

        return find_paths(self.home)

    def begun_paths(self) -> Paths:
        """Return the folders of an existing home. Raises `NotFound`."""
        from memtui.wording import nothing_yet

        paths = self.paths()
        if not paths.is_begun:
            raise nothing_yet(paths.data)
        return paths

    @property
    def names_home(self) -> bool:
        """Whether the home was named explicitly, and so may be mistyped."""
        from memtui.paths import HOME_VARIABLE

        return bool(self.home or os.environ.get(HOME_VARIABLE))

    @property
    def flags(self) -> dict[str, Any]:
        """The settings from the global options; None: not given."""
        return {
            "company": self.company,
            "principal": self.principal,
            "acts_for": self.acts_for,
            "read_only": self.read_only or None,
        }

    def words(self) -> list[str]:
        """Return the options that `global_options` parses to this invocation."""
        named = {
            "--home": self.home and str(self.home.absolute()),
            "--company": self.company,
            "--principal": self.principal,
            "--acts-for": self.acts_for,
        }
        given = [f"{name}={value}" for name, value in named.items() if value]
        return [*given, "--read-only"] if self.read_only else given

    def settings(self) -> Settings:
        """Read the settings. Raises `Invalid` for an unknown name or an invalid value."""
        from memtui.config import load_settings
        from memtui.contract import Invalid

        found = load_settings(self.paths(), **self.flags)
        if self.acts_for and not found.principal.startswith("agent:"):
            raise Invalid(
                f"{found.principal} cannot act for a person: only an agent can; "
                "add --principal agent:NAME."
            )
        return found

    @asynccontextmanager
    async def session(self, *, make: bool = False) -> AsyncIterator[Session]:
        """Open the service for one command and close it afterwards.

        `make`: create the home if there is none.

        Raises:
            NotFound: there is no home, and none is to be created.
        """
        from memtui.service import CompanyView, caller_of, open_service

        paths, settings = self.paths(), self.settings()
        is_begun = paths.is_begun
        make = make or is_begun or bool(settings.database_url)
        makes = make and not settings.read_only
        with logging_to(paths.log_file) if makes or is_begun else nullcontext():
            service = await open_service(paths, settings, first_company=make, make=make)
            try:
                if not service.records:
                    self.out.say("This home cannot be written, so nothing of this is recorded.")
                if not is_begun and paths.is_begun:
                    self.out.say(
                        f"Made a new home of memtui in {paths.data}; memtui bindings discover "
                        "lists the memories that other programs keep on this machine."
                    )
                own = settings.principal, settings.acts_for or None
                entered = await service.companies.all(*own)
                company = choose_company(entered, await service.companies.all(), settings.company)
                if company not in entered:
                    # The caller may not enter it: every request is denied, and logged as denied.
                    company = CompanyView(company_id=company.company_id, name=company.company_id)
                caller = caller_of(settings, company.company_id, DOOR)
                yield Session(service, caller, company, paths, settings, self.out)
            finally:
                await service.close()


@dataclass(frozen=True, slots=True)
class Session:
    """An open service, its caller, and the output."""

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
        """The time zone of input and output."""
        return zone_of(self.settings)

    def moment(self, text: str) -> datetime:
        """Parse a moment. Raises `Invalid`."""
        from memtui.filters import parse_when

        return parse_when(text, now=self.now, zone=self.zone)

    def at(self, text: str | None) -> Session:
        """Return a session that views the past at a moment, and print the moment; None: now.

        Raises:
            Invalid: the text is no moment, or one in the future.
        """
        moment = self.past(text)
        if moment is None:
            return self
        from memtui.presenters.format import exact

        if not self.out.as_json:
            self.out.say(f"As of {exact(moment, self.zone)}:")
        return replace(self, caller=self.caller.at(moment))

    def past(self, text: str | None) -> datetime | None:
        """Parse a moment in the past. Raises `Invalid`."""
        from memtui.contract import Invalid

        moment = self.moment(text) if text is not None else None
        if moment is not None and moment > self.now:
            raise Invalid(f"{text} is yet to come; give a moment in the past, such as 90d.")
        return moment

    def future(self, text: str | None) -> datetime | None:
        """Parse an end: a span from now on (`30d`), or a date.

        Raises:
            Invalid: the text is neither.
        """
        from memtui.filters import parse_ahead

        return None if text is None else parse_ahead(text, now=self.now, zone=self.zone)

    def ahead(self, text: str | None) -> datetime | None:
        """Parse an expiry, a moment in the future.

        Raises:
            Invalid: the text is no moment, or one in the past.
        """
        from memtui.filters import parse_expiry

        return None if text is None else parse_expiry(text, now=self.now, zone=self.zone)

    def zone_name(self) -> str:
        """Return the IANA name of `zone`; UTC, with a note, if the system's has none."""
        if name := self.settings.zone_name:
            return name
        self.out.say("The system's time zone has no name, so days are UTC; set timezone to yours.")
        return "UTC"

    async def resolved(self, scope: Scope, binding_key: str | None) -> Resolution | None:
        """Return the binding that serves `scope`; None: there is none.

        The operation itself then fails for the same reason, and so logs the failure.
        """
        from memtui.contract import MemtuiError

        try:
            return await self.service.resolve(self.caller, scope, binding_key)
        except MemtuiError:
            return None


FirstSession = Annotated[Session, "makes a home"]
"""The session of a command that adds or sets up something: it creates a missing home."""


def handle_in(found: Resolution | None, record_id: str) -> RecordHandle:
    """Return the handle of a record in a binding; `found` None: no binding serves the scope."""
    from memtui.contract import RecordHandle

    provider_key = found.provider_key if found else "unresolved"
    return build(RecordHandle, provider_key=provider_key, provider_record_id=record_id)


def zone_of(settings: Settings) -> tzinfo:
    """Return the time zone of the settings, else the system's."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    if name := settings.zone_name:
        return ZoneInfo(name)
    return datetime.now(UTC).astimezone().tzinfo or UTC


def choose_company(
    entered: list[CompanyView], companies: list[CompanyView], wanted: str
) -> CompanyView:
    """Return the company with the id or name `wanted`; if that is empty, the first one.

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
    """Build a model from the values of a request.

    Raises:
        Invalid: a value is invalid for its field; the message is one sentence.
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
    """Send warnings and errors of all modules to the log file, or to stderr if it is not writable.

    A command runs even if the log file cannot be written.
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
        Invalid: there is no terminal, or a setting is invalid.
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
    """Leave keys typed while the app starts to the app, without echo.

    Otherwise the terminal would echo them, wait for a whole line, and turn enter into ctrl+j.
    Yields the terminal's earlier attributes, and restores them at the end.
    """
    before = termios.tcgetattr(sys.stdin)
    now = list(before)
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, now)
    try:
        yield before
    finally:
        with suppress(termios.error):  # the terminal may be closed by now
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def require_terminal() -> None:
    """Raise `Invalid` unless stdin, stdout and stderr are a terminal that takes UTF-8."""
    encodings = {stream.encoding for stream in (sys.stdout, sys.stderr) if stream is not None}
    others = sorted(name for name in encodings if not is_utf8(name))
    if is_terminal() and not others:
        return
    from memtui.contract import Invalid  # its models would delay the first paint

    if not is_terminal():
        raise Invalid("The terminal app needs a terminal; give a command, or see memtui --help.")
    raise Invalid(
        "The terminal app draws with characters of UTF-8, and this terminal takes "
        f"{others[0]}; set LANG to a UTF-8 locale such as C.UTF-8, or give a command."
    )


def is_utf8(encoding: str | None) -> bool:
    """Whether an encoding's name means UTF-8."""
    return (encoding or "").lower().replace("_", "-") in {"utf-8", "utf8"}


def is_terminal() -> bool:
    """Whether stdin, stdout and stderr are terminals."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def global_options(arguments: Sequence[str]) -> Invocation | None:
    """Parse the global options of `memtui.channels.cli.main.start`.

    None: there is anything else, such as a command, or a wrong value.
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
            return None  # a file, or a folder that we may not read
        else:
            found.home = Path(value)
    return found
