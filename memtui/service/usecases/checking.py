"""Checks of a memory: questions with what their answers must hold, in a file of TOML.

A check is asked as its caller, and logged as memtui's own read with the purpose `check`. An outcome
names records by id and holds no text of a memory, as others read reports. `docs/checks.md` has the
form of the file.
"""

from __future__ import annotations

import json
import os
import tomllib
import unicodedata
from asyncio import gather, to_thread
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, starmap
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from memtui.context.cost import TokenCounter
from memtui.contract import (
    Denied,
    Invalid,
    Json,
    MemtuiError,
    Model,
    OperationStatus,
    OperationType,
    Problem,
    QueryRequest,
    RecordHandle,
    Scope,
    Unavailable,
)
from memtui.paths import read_file, refuse_other_than_file, unwritable
from memtui.patterns import late_pattern
from memtui.service.context.contexts import ContextRequest
from memtui.service.context.impact import NotTried, trial_of
from memtui.service.history.asked import context_again, query_again, scope_outside
from memtui.service.memory import MemoryService
from memtui.service.operations.facts import FactRequest
from memtui.service.operations.reading import LOGGED_CHARS
from memtui.service.operations.redaction import redact
from memtui.service.visibility import Caller, is_org, without_prefix
from memtui.store.bindings import EXPLICIT_KEY
from memtui.store.operation import READS, Operation
from memtui.wording import misfit, unknown

_AT_ONCE = 4
_OWN = {"purpose": "check", "run_id": None}
"""How the caller of a check differs."""
_RESULTS, _UNKNOWN_RESULTS = 10, 100
"""How many results count, where a check does not say: of a question, of what must be unknown."""
_WORDS = late_pattern(r"[^\W_\u0e00-\u0eff\u1780-\u17ff\u2e80-\ud7ff]+|\S")
"""Words, and every other character for itself; so are those of scripts without blanks."""
_HELD_CHARS = 200
"""Most characters of a memory that a recorded check demands."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4_000)]
Texts = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]
Number = Annotated[int, Field(strict=True, ge=1)]
Outcome = Literal["pass", "fail", "error"]
"""`error`: it could not be asked, or the answer does not tell."""


class MemoryCheck(Model):
    """A question to a memory, and what its answer must hold; one of `KINDS` says what it asks."""

    KINDS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "ask": ("holds not records not_records", "within tokens"),
        "context": ("holds not records not_records", "tokens"),
        "unknown": ("", "within"),
        "key": ("value", "namespace"),
    }
    """By the field that asks: the fields of which one must be given, and those that may be."""

    name: Text | None = None
    ask: Text | None = None
    """The question of a query."""
    context: str | None = None
    """The prompt that a model's context is assembled for; empty: for none."""
    unknown: Text | None = None
    """A text that is searched for, and that no result may hold."""
    key: Text | None = None
    """The key of a fact."""
    value: str | int | float | bool | None = None
    """The value of the key, compared as text."""
    namespace: str | None = None
    holds: Texts = ()
    """Texts of which each must be in a result, or in the context."""
    not_: Texts = Field((), alias="not")
    """Texts that may be in no result, nor in the context."""
    records: Texts = ()
    """Ids of records that must be among the results, or in the context."""
    not_records: Texts = ()
    within: Annotated[Number, Field(le=1_000)] | None = None
    """How many results count."""
    tokens: Number | None = None
    """How many tokens of the results, or of the context, count."""
    user: Text | None = None
    project: Text | None = None
    agent: Text | None = None
    binding: Text | None = None

    @model_validator(mode="after")
    def _fits(self) -> MemoryCheck:
        given = {name.rstrip("_") for name in self.model_fields_set}
        if len(kinds := given & self.KINDS.keys()) != 1:
            raise ValueError(f"a check has one of {', '.join(self.KINDS)}")
        [kind] = kinds
        one_of, others = (words.split() for words in self.KINDS[kind])
        where = {"name", "user", "project", "agent", "binding"}
        for name in sorted(given - {kind, *one_of, *others} - where):
            raise ValueError(f"{name} does not go with {kind}")
        if one_of and not given & {*one_of}:
            raise ValueError(f"{kind} needs {' or '.join(one_of)}")
        return self

    @property
    def question(self) -> str:
        """The text that is asked, searched for or looked up; empty: a context for no prompt."""
        return self.ask or self.context or self.unknown or self.key or ""

    @property
    def written(self) -> str:
        """The check in TOML."""
        values = self.model_dump(by_alias=True, exclude_defaults=True).items()
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values]
        # A basic string of TOML is one of JSON, except that it escapes DEL.
        return "".join(["[[check]]\n", *lines]).replace("\x7f", "\\u007f")

    def scope(self, company_id: str) -> Scope:
        """Return the scope that it asks in."""
        owners = {"subject_id": self.user, "project_id": self.project, "agent_id": self.agent}
        return Scope(company_id=company_id, **owners)


class CheckedMemory(Model):
    """A check with its outcome."""

    number: int
    """Its place in the file, from 1."""
    check: MemoryCheck = Field(exclude=True)
    outcome: Outcome
    title: str
    """The name or question of the check, its secrets masked."""
    why: str = ""
    """Why it did not pass; records are named by id, and secrets are masked."""
    error_kind: str = ""


class CheckReport(Model):
    """The outcomes of the checks of a file, in their order."""

    file: str
    checks: tuple[CheckedMemory, ...]

    @property
    def words(self) -> str:
        """How many passed and failed, and how many could not be asked."""
        count = Counter(one.outcome for one in self.checks)
        errors = f", {count['error']:,} could not be asked" if count["error"] else ""
        return f"{count['pass']:,} passed, {count['fail']:,} failed{errors}"

    @property
    def exit_code(self) -> int:
        """0 if all passed, 1 if one failed; 2, 3 or 4 if one could not be asked."""
        codes = {"Unavailable": 3, "Denied": 4, "": 0}
        errors = max(codes.get(one.error_kind, 2) for one in self.checks)
        return errors or int(any(one.outcome == "fail" for one in self.checks))


def read_checks(path: Path, least: int = 1) -> list[MemoryCheck]:
    """Read the checks of a file. Blocking.

    Raises:
        Invalid: it cannot be read, is not TOML, has fewer than `least` checks, or one that does
            not fit; the sentence names the check's line and the key.
    """
    refuse_other_than_file(path)
    document = read_file(path)
    if others := document.keys() - {"check"}:
        raise Invalid(f"{path}: {unknown('table', min(others), ['check'])}")
    found = document.get("check", [])
    if not isinstance(found, list) or len(found) < least:
        raise Invalid(f"{path} has no check; write each as a table [[check]] (docs/checks.md).")
    return [_read(path, number, one) for number, one in enumerate(found)]


def _read(path: Path, number: int, values: object) -> MemoryCheck:
    try:
        return MemoryCheck.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        why = f"{key}: {misfit(first)}.".removeprefix(": ")
        if first["type"] == "extra_forbidden":
            why = unknown("key", key, [name.rstrip("_") for name in MemoryCheck.model_fields])
        if not isinstance(values, dict):
            why = "write it as a table [[check]]."
        lines = enumerate(path.read_text("utf-8-sig").splitlines(), 1)
        starts = [line for line, text in lines if text.split("#")[0].strip() == "[[check]]"]
        place = f"line {starts[number]}" if number < len(starts) else f"check {number + 1}"
        raise Invalid(f"{path}, {place}: {why}") from error


async def check_memory(
    service: MemoryService,
    caller: Caller,
    file: Path | None = None,
    *,
    binding_key: str | None = None,
    without: Mapping[str, Iterable[RecordHandle]] = MappingProxyType({}),
    so_far: Callable[[str], None] = lambda _words: None,
) -> CheckReport:
    """Ask the checks of a file, and return their outcomes.

    Args:
        service: The open service.
        caller: Who asks.
        file: The file; None: the one of the setting `checks_file`, else of the home.
        binding_key: Ask this binding, whatever a check names.
        without: Answer as if these records, by binding, were forgotten: of copies, and unlogged.
        so_far: Called with how many were asked, in words.

    Raises:
        Invalid: the file is not one of checks.
    """
    path, found = checks_path(service, file), list[CheckedMemory]()
    checks = await to_thread(read_checks, path)
    known = [one.key for one in await service.bindings.all(caller)]
    gone = {key: {one.provider_record_id for one in own} for key, own in without.items()}
    trial = trial_of(service.runtime, gone) if without else None
    asked, own = MemoryService(trial) if trial else service, caller.model_copy(update=_OWN)

    async def outcome(number: int, check: MemoryCheck) -> CheckedMemory:
        key, why, kind = binding_key or check.binding, "", ""
        common: Json = {"scope": check.scope(caller.company_id), "binding_key": key}
        try:
            if key is not None and key not in known:
                raise Invalid(unknown("binding", key, known))
            why = await _fault(asked, own, check, common)
        except (MemtuiError, NotTried) as error:
            why, kind = str(error), getattr(error, "kind", "Unsupported")
        is_now: Outcome = "error" if kind else "fail" if why else "pass"
        title, why = (redact(text)[0] for text in (check.name or check.question or "context", why))
        return CheckedMemory(
            number=number, check=check, outcome=is_now, title=title, why=why, error_kind=kind
        )

    try:
        for start in range(0, len(checks), _AT_ONCE):
            some = enumerate(checks[start : start + _AT_ONCE], start + 1)
            found += await gather(*starmap(outcome, some))
            so_far(f"{len(found):,} of {len(checks):,} checks asked")
    finally:
        if trial is not None:
            await trial.close()
    return CheckReport(file=str(path), checks=tuple(found))


def lost_checks(before: CheckReport, after: CheckReport) -> tuple[CheckedMemory, ...]:
    """Return the checks that passed before and do not pass after."""
    passed = {one.number for one in before.checks if one.outcome == "pass"}
    return tuple(one for one in after.checks if one.outcome != "pass" and one.number in passed)


def checks_path(service: MemoryService, file: Path | None = None) -> Path:
    """Return a file of checks; None: the one of the setting `checks_file`, else of the home."""
    chosen = file or service.settings.checks_file
    return Path(chosen).expanduser().absolute() if chosen else service.paths.checks_file


async def _fault(service: MemoryService, by: Caller, check: MemoryCheck, common: Json) -> str:
    """Return why a check fails, or nothing.

    Raises:
        MemtuiError: it could not be asked, a provider failed, or what is hidden could decide it.
    """
    if check.key is not None:
        return await _of_key(service, by, check, common)
    ask = _results if check.context is None else _context
    found = await ask(service, by, check, common)
    texts = [(place, _folded(text)) for _, place, text in found]

    def places(text: str) -> list[str]:
        return [place for place, held in texts if _folded(text) in held]

    ids = [record_id for record_id, *_ in found]
    absent = (check.unknown,) if check.unknown else check.not_
    wrong = [f"“{one}” is in {', '.join(at)}" for one in absent if (at := places(one))]
    wrong += [f"{one} was found" for one in check.not_records if one in ids]
    where = f"in none of {len(ids)} results" if check.context is None else "not in the context"
    wrong += [f"“{one}” is {where}" for one in check.holds if not places(one)]
    return "; ".join([*wrong, *(f"{one} is {where}" for one in check.records if one not in ids)])


async def _of_key(service: MemoryService, by: Caller, check: MemoryCheck, common: Json) -> str:
    answer = await service.facts.keys(by, FactRequest(**common, namespace=check.namespace))
    refuse_failures(answer.problems)
    facts = [one for one in answer.facts if _folded(one.key) == _folded(check.question)]
    wanted = check.value if isinstance(check.value, str) else json.dumps(check.value)
    others = [one for one in facts if _folded(one.written) != _folded(wanted)]
    places = (f"{one.record.handle.provider_record_id} of {one.binding_key}" for one in others)
    if not facts or others:
        return f"{check.key} has {'another value, in ' if facts else 'no value'}{', '.join(places)}"
    return ""


_Held = list[tuple[str, str, str]]
"""Of each record its id, its place in words, and its text."""


async def _results(service: MemoryService, by: Caller, check: MemoryCheck, common: Json) -> _Held:
    most = check.within or (_UNKNOWN_RESULTS if check.unknown else _RESULTS)
    answer = await service.query(by, QueryRequest(**common, query=check.question, top_k=most))
    if answer.withheld and (check.unknown or check.not_ or check.not_records):
        raise Denied(
            f"{answer.withheld} of the results are hidden from {by.principal} and may hold it; "
            "run it as somebody who sees them."
        )
    names = [one.handle.provider_record_id for one in answer.snippets]
    texts = [f"{one.title or ''}\n{one.shown}\n{one.text}" for one in answer.snippets]
    if check.tokens is not None:
        count = TokenCounter(service.settings.context_model).tokens
        sizes = accumulate(count(one.text) for one in answer.snippets)
        names = [name for name, size in zip(names, sizes, strict=True) if size <= check.tokens]
    places = [f"{name} of {answer.binding_key}" for name in names]
    return list(zip(names, places, texts, strict=False))


async def _context(service: MemoryService, by: Caller, check: MemoryCheck, common: Json) -> _Held:
    settings = service.settings
    request = ContextRequest(
        **common, model=settings.context_model, budget=settings.context_budget,
        by_relevance=settings.facts_by_relevance, max_tokens=check.tokens,
        prompt=check.context or None,
    )  # fmt: skip
    answer = await service.context(by, request)
    refuse_failures(answer.problems)
    facts = (fact for section in answer.sections for fact in section.facts)
    found = [(one.handle.provider_record_id, one) for one in facts if one.handle is not None]
    records = ((name, f"{name} of {one.binding_key}", one.text) for name, one in found)
    return [("", "the context", answer.text), *records]


def refuse_failures(problems: Iterable[Problem]) -> None:
    """Raise `Unavailable` if a provider failed; an unreadable item, which has a place, is none."""
    for one in problems:
        if one.location is None and not one.search_only:
            raise Unavailable(one.message)


def _folded(text: str) -> str:
    """Return a text as words between blanks, in which another is found as whole words."""
    return f" {' '.join(_WORDS.findall(unicodedata.normalize('NFKC', text).casefold()))} "


async def record_check(
    service: MemoryService,
    caller: Caller,
    operation_id: str,
    file: Path | None = None,
    *,
    record_id: str | None = None,
    helped: bool = True,
) -> str:
    """Append a check to a file, and say so: the answer of a logged question holds a record, or not.

    Args:
        service: The open service.
        caller: Who records it.
        operation_id: A query or a context, or feedback on one, which names record and verdict.
        file: As for `check_memory`.
        record_id: One of the records of the answer; None: the first.
        helped: False: the answer must not hold it.

    Raises:
        Denied: memtui is read-only.
        Invalid: the operation cannot be asked again as a check, or the file cannot be written.
        NotFound: there is no such operation or record.
    """
    if service.read_only:
        raise Denied("memtui was started with --read-only, so it records no check.")
    operation = await service.log.get(caller, operation_id)
    if operation.operation_type is OperationType.FEEDBACK:
        [said], asked = operation.handles, str(operation.request.get("operation_id"))
        if said.score is None:
            raise Invalid("The feedback was withdrawn; name a question, or other feedback.")
        record_id, helped = said.provider_record_id, bool(said.score)
        operation = await service.log.get(caller, asked)
    values = _asked_again(operation)
    found = (one for one in operation.handles if record_id in {None, one.provider_record_id})
    if (handle := next(found, None)) is None:
        what = f"It did not return {record_id}" if record_id else "It found nothing"
        raise Invalid(f"{what}, so there is nothing to check; `memtui ops show` lists what it did.")
    key, scope = operation.place_of(handle)[0] or None, scope_outside(operation)
    answer = await service.get(
        caller.model_copy(update=_OWN), handle.handle, scope, binding_key=key
    )
    owner, visibility = answer.record.scope, await to_thread(service.runtime.visibility, caller)
    is_open = is_org(owner) or (visibility is None and owner.subject_id is None)
    line = without_prefix(answer.record.text).strip().partition("\n")[0] if is_open else ""
    text = "" if redact(line)[1] else shorten(line, _HELD_CHARS, placeholder="")
    fields = ("records", "holds") if helped else ("not_records", "not")
    values[fields[bool(text)]] = text or handle.provider_record_id
    path, check = checks_path(service, file), MemoryCheck.model_validate(values)
    is_new = await to_thread(_append, path, check)
    return f"Recorded in {path}." if is_new else f"{path} has this check already."


def _asked_again(one: Operation) -> Json:
    """Return the fields by which a check asks what a logged operation asked."""
    is_query = one.operation_type is OperationType.QUERY
    if one.operation_type not in READS or one.status is not OperationStatus.OK:
        raise Invalid("A check is recorded from a question or context that succeeded.")
    if one.absent or one.request.get("as_of"):
        raise Invalid("This was erased in part, or asked of the past; it makes no check.")
    again = query_again(one) if is_query else context_again(one, [])
    asked = again.query if isinstance(again, QueryRequest) else again.prompt or ""
    if len(asked) >= LOGGED_CHARS:
        raise Invalid(f"This was cut at {LOGGED_CHARS:,} characters; it makes no check.")
    if any(one.request.get(name) for name in ("filter", "owners", "metadata_filter", "topic")):
        raise Invalid("A filter or topic narrowed this question; ask it without to record it.")
    scope, key = again.scope, one.binding_key if one.binding_reason == EXPLICIT_KEY else None
    values = {
        "ask" if is_query else "context": asked, "within": getattr(again, "top_k", None),
        "user": scope.subject_id, "project": scope.project_id, "agent": scope.agent_id,
        "binding": key,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def _append(path: Path, check: MemoryCheck) -> bool:
    """Append a check to a file, which is made if need be; False: it has the check. Blocking."""
    try:
        there = path.exists() and path.stat().st_size > 0
        if there and check.written in [one.written for one in read_checks(path, least=0)]:
            return False
        added = "\n" * there + check.written
        tomllib.loads((path.read_text("utf-8-sig") if there else "") + added)
        # Appended in one write, so that of two programs neither loses what the other wrote.
        path.touch(0o600)
        with path.open("ab") as file:
            file.write(added.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from error
    except tomllib.TOMLDecodeError as error:  # as after `check = […]`
        raise Invalid(f"{path}: write each check as a table [[check]] to add one.") from error
    return True
