"""The facts of one scope with their identity, validity and earlier versions.

The facts file has the present facts. The history file beside it adds their start, author and
source, and their earlier versions (seed 002 §6): one JSON line per version. Unreadable lines are
preserved.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from memtui.contract import Invalid, Json, Model, Problem, Record, Scope, UtcDatetime
from memtui.fact_values import pair_of, parsed
from memtui.wording import misfit

from . import facts, markdown
from .facts import Bullet
from .files import File, VaultFolder
from .layout import StoredRecord, handle_of, history_path, place_of, source_of


def _checked(fields: Json) -> Json:
    source_of(fields, "any")
    return fields


class Frame(Model):
    """The text that adding a fact put around its line, for undo to remove."""

    head: str = ""
    tail: str = ""
    new_file: bool = False


class VaultVersion(Model):
    """One value of a fact and its validity window."""

    fact: str
    """The fact's name within its file."""
    text: str
    topic: str | None = None
    valid_from: UtcDatetime | None = None
    """None: unknown."""
    valid_to: UtcDatetime | None = None
    """None: it is still valid."""
    created_at: UtcDatetime | None = None
    """When the fact, not this version, was created."""
    updated_at: UtcDatetime | None = None
    created_by: str | None = None
    source: Annotated[Json, AfterValidator(_checked)] | None = None
    """The source reference without its company."""
    pinned: bool = False
    expires_at: UtcDatetime | None = None
    tags: tuple[str, ...] = ()
    agent_id: str | None = None
    issue_id: str | None = None
    run_id: str | None = None
    subject_id: str | None = None
    metadata: Json = {}
    frame: Frame | None = None
    waits: bool = False
    """It starts in the future and is not in the facts file yet."""
    leaves: bool = False
    """It ends in the future and is in the facts file until then."""
    file_before_ns: int | None = None
    """Modification time of the facts file, in ns since 1970, before this version was written here.

    0: there was no file. The history is written first, so a file that still has this time lacks the
    version.
    """
    has_twin: bool = False
    """It was forgotten while another bullet had the same key or text; that one keeps its name."""

    def line(self) -> str:
        """Return the version as a history line. Raises `Invalid` if UTF-8 cannot encode it."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        line = f"{json.dumps(fields, ensure_ascii=False)}\n"
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise Invalid(
                "The fact's metadata contains a character that UTF-8 cannot encode; remove it."
            ) from error
        return line

    def closed(self, moment: datetime | None) -> VaultVersion:
        """Return the version ended at `moment`, or at its start if that is later."""
        known = [time for time in (moment, self.valid_from) if time is not None]
        ended = {"valid_to": max(known, default=None), "leaves": False, "file_before_ns": None}
        return self.model_copy(update=ended)

    @property
    def is_shown(self) -> bool:
        """Whether the version belongs in the facts file, apart from manual edits."""
        return not self.waits and (self.valid_to is None or self.leaves)

    @property
    def is_past(self) -> bool:
        """Whether its validity has ended."""
        return not self.waits and not self.is_shown

    def holds_at(self, moment: datetime) -> bool:
        """Whether a moment lies in its window."""
        begins = self.valid_from is None or self.valid_from <= moment
        return begins and (self.valid_to is None or moment < self.valid_to)

    def seen_at(self, moment: datetime) -> VaultVersion:
        """Return the version with `waits` and `leaves` as they are at a moment."""
        waits = self.valid_from is not None and self.valid_from > moment
        leaves = self.valid_to is not None and self.valid_to > moment
        return self.model_copy(update={"waits": waits, "leaves": leaves})

    def outside(self, begin: datetime, end: datetime | None) -> list[VaultVersion]:
        """Return the parts of the version that lie outside of a window."""
        parts = []
        if self.valid_from is None or self.valid_from < begin:
            last = begin if self.valid_to is None else min(self.valid_to, begin)
            parts.append(self.model_copy(update={"valid_to": last}))
        if end is not None and (self.valid_to is None or self.valid_to > end):
            first = end if self.valid_from is None else max(self.valid_from, end)
            parts.append(self.model_copy(update={"valid_from": first}))
        return parts


class Ledger:
    """A history file being read or changed."""

    def __init__(self, content: str) -> None:
        self.problems: list[tuple[int, str]] = []
        """Line number, counted from 1, and message."""
        self._rows = [
            (line, self._read(line, number))
            for number, line in enumerate(facts.split_lines(content), start=1)
        ]
        """Each line and its version; None for an unreadable line."""
        self._index: dict[str, list[int]] | None = None
        """The row numbers of each fact; None after a line was added or removed."""

    def _read(self, line: str, number: int) -> VaultVersion | None:
        if not line.strip():
            return None
        try:
            return VaultVersion.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "line"
            message = f"The history line cannot be read: {where}: {misfit(first)}."
            self.problems.append((number, message))
            return None

    def joined(self) -> str:
        """Return the file."""
        return "".join(line for line, _ in self._rows)

    @property
    def versions(self) -> list[VaultVersion]:
        """Every version, in the order of the file."""
        return [version for _, version in self._rows if version is not None]

    def of(self, fact: str) -> list[VaultVersion]:
        """Return a fact's versions, oldest first."""
        found = (self._rows[place][1] for place in self._places(fact))
        return [version for version in found if version is not None]

    def lines_of(self, fact: str, *, without: VaultVersion | None = None) -> list[str]:
        """Return the exact lines of a fact, except that of one version."""
        rows = [self._rows[place] for place in self._places(fact)]
        return [line for line, version in rows if without is None or version is not without]

    def _places(self, fact: str) -> list[int]:
        if self._index is None:
            self._index = {}
            for place, (_, version) in enumerate(self._rows):
                if version is not None:
                    self._index.setdefault(version.fact, []).append(place)
        return self._index.get(fact, [])

    def append(self, version: VaultVersion) -> None:
        """Add a version as the last line."""
        self._append(version.line(), version)

    def _append(self, line: str, version: VaultVersion | None) -> None:
        if self._rows and not self._rows[-1][0].endswith("\n"):
            last, known = self._rows[-1]
            self._rows[-1] = f"{last}\n", known
        if self._index is not None and version is not None:
            self._index.setdefault(version.fact, []).append(len(self._rows))
        self._rows.append((line, version))

    def put(self, old: VaultVersion, new: VaultVersion) -> None:
        """Replace the line of `old` by `new`."""
        place = next(i for i in self._places(old.fact) if self._rows[i][1] is old)
        self._rows[place] = new.line(), new

    def set_lines(self, fact: str, wanted: Sequence[str]) -> None:
        """Replace a fact's lines in place; additional ones go to the end."""
        places = list(self._places(fact))
        for place, line in zip(places, wanted, strict=False):
            self._rows[place] = line, self._read(line, place + 1)
        for place in reversed(places[len(wanted) :]):
            del self._rows[place]
            self._index = None
        for line in wanted[len(places) :]:
            self._append(line, self._read(line, len(self._rows) + 1))


@dataclass(slots=True)
class VaultFact:
    """One present fact: its bullet, and its version if the history has one."""

    name: str
    bullet: Bullet
    recorded: VaultVersion | None
    """The open line of the history file."""
    current: VaultVersion
    """The present value: the recorded version, or its manual edit."""
    past: tuple[VaultVersion, ...] = ()
    """Oldest first."""

    def revision(self, tags: Sequence[str]) -> str:
        """Return a digest of the fact's lines, of its recorded version and of the file's tags."""
        bullet, line = self.bullet, self.recorded.line() if self.recorded else ""
        body = "\0".join((bullet.namespace or "", bullet.text, bullet.details, line, *tags))
        return hashlib.sha256(body.encode()).hexdigest()[:16]

    @property
    def natural_name(self) -> str:
        """The name without a number for twins."""
        return natural_name(self.bullet.text, self.bullet.namespace)


class FactsDocument:
    """One scope's facts, read from its facts file and its history."""

    def __init__(
        self, folder: VaultFolder, path: str, file: File | None, history: File | None
    ) -> None:
        self.path = path
        self.file = file
        self.history = history
        self.content = facts.parse(file.content if file else "")
        self.ledger = Ledger(history.content if history else "")
        self.facts: dict[str, VaultFact] = {}
        """By name, in the order of the file."""
        self.changed_at = file.modified if file else folder.now()
        """Time of the last manual edit: the file's, or now if the file is gone."""
        self.folder = folder
        self._place = place_of(path)
        self._let_come()
        self._finish_write()
        self._name_facts()

    @classmethod
    def read(cls, folder: VaultFolder, path: str) -> FactsDocument | Problem:
        """Read a facts file and its history; a `Problem` if either is unreadable."""
        file = folder.read(path)
        if isinstance(file, Problem):
            return file
        history = folder.read(history_path(path))
        if isinstance(history, Problem):
            return history
        return cls(folder, path, file, history)

    @property
    def file_ns(self) -> int:
        """When the facts file last changed, in ns since 1970; 0: there is none."""
        return self.file.modified_ns if self.file else 0

    @property
    def is_ahead(self) -> bool:
        """Whether a version starts or ends at a future time."""
        return any(version.waits or version.leaves for version in self.ledger.versions)

    def _let_come(self) -> None:
        """Add and remove the bullets of versions that have started or ended; does not save."""
        now = self.folder.now()
        ahead = [version for version in self.ledger.versions if version.waits or version.leaves]
        for name in dict.fromkeys(one.fact for one in ahead if one.seen_at(now) != one):
            versions = self.ledger.of(name)
            shown = next((one for one in versions if one.is_shown), None)
            for one in versions:
                if one.waits or one.leaves:
                    self.ledger.put(one, one.seen_at(now))
            holds = next((one for one in self.ledger.of(name) if one.is_shown), None)
            bullet = self._bullet_of(shown) if shown else None
            if shown is None or bullet is not None:  # otherwise the bullet was edited manually
                self.show(bullet, holds)

    def _finish_write(self) -> None:
        """Repair a write that was interrupted between the history and the facts file.

        The history line of a new fact is dropped; a change of a fact that is still in the file is
        completed.
        """
        for version in self.ledger.versions:
            if version.file_before_ns != self.file_ns or not version.is_shown:
                continue
            said = version.topic, version.text
            claims = [one for one in self.ledger.versions if one.is_shown]
            bullets = [(one.namespace, one.text) for one in self.content.bullets]
            if bullets.count(said) >= [(one.topic, one.text) for one in claims].count(said):
                continue
            others = [one for one in self.ledger.of(version.fact) if one is not version]
            if old := next(filter(None, map(self._bullet_of, reversed(others))), None):
                self.show(old, version)
            else:
                lines = self.ledger.lines_of(version.fact, without=version)
                self.ledger.set_lines(version.fact, lines)

    def _bullet_of(self, version: VaultVersion) -> Bullet | None:
        said = version.topic, version.text
        found = (one for one in self.content.bullets if (one.namespace, one.text) == said)
        return next(found, None)

    def show(self, bullet: Bullet | None, version: VaultVersion | None) -> None:
        """Replace a bullet by a version; no version: remove it; no bullet: add one."""
        content = self.content
        if version is None:
            changed = facts.removed(content, [bullet]) if bullet else content.joined()
        elif bullet is not None and bullet.namespace == version.topic:
            changed = facts.replaced(content, bullet, version.text)
        else:
            if bullet is not None:
                content = facts.parse(facts.removed(content, [bullet]))
            place = facts.place_for(content, version.text, version.topic)
            changed = facts.inserted(content, place)
        self.content = facts.parse(changed)

    def _name_facts(self) -> None:
        """Give each bullet its name: the recorded one of the same text, else key or digest."""
        recorded = {v.fact: v for v in self.ledger.versions if v.is_shown}
        by_text: dict[tuple[str | None, str], list[Bullet]] = {}
        for bullet in self.content.bullets:
            by_text.setdefault((bullet.namespace, bullet.text), []).append(bullet)
        known: dict[tuple[str | None, str], list[str]] = {}
        for name, version in recorded.items():
            known.setdefault((version.topic, version.text), []).append(name)
        names: dict[int, str] = {}
        for key in by_text.keys() & known.keys():
            names |= self._twins(by_text[key], known[key], recorded.keys())
        taken = set(names.values())
        for bullet in self.content.bullets:
            if bullet.first not in names:
                natural = natural_name(bullet.text, bullet.namespace)
                names[bullet.first] = self.free_name(natural, taken)
                taken.add(names[bullet.first])
            name = names[bullet.first]
            self.facts[name] = self._fact(name, bullet, recorded.get(name))

    def _twins(
        self, bullets: list[Bullet], known: list[str], recorded: Collection[str]
    ) -> dict[int, str]:
        """Name bullets of one text: the recorded names, then free numbers, in file order."""
        natural = natural_name(bullets[0].text, bullets[0].namespace)
        wanted = list(known)
        while len(wanted) < len(bullets):
            wanted.append(self.free_name(natural, {*wanted, *recorded}))
        wanted.sort(key=lambda name: _number(natural, name))
        return {bullet.first: name for bullet, name in zip(bullets, wanted, strict=False)}

    def free_name(self, name: str, taken: Collection[str]) -> str:
        """Return `name`, with -2, -3 … if it is taken.

        The name of a forgotten fact with a twin counts as taken: the twin must not inherit it.
        """
        number, candidate = 1, name
        while candidate in taken or any(
            last.valid_to is not None and last.has_twin for last in self.ledger.of(candidate)[-1:]
        ):
            number += 1
            candidate = f"{name}-{number}"
        return candidate

    def _fact(self, name: str, bullet: Bullet, recorded: VaultVersion | None) -> VaultFact:
        past = tuple(v for v in self.ledger.of(name) if v.is_past)
        said = {"text": bullet.text, "topic": bullet.namespace}
        plain = VaultVersion(fact=name, **said)
        if recorded is not None and recorded.text == bullet.text:
            if recorded.topic == bullet.namespace:
                return VaultFact(name, bullet, recorded, recorded, past)
            plain = recorded.model_copy(update=said)
        if recorded is None:
            since = self.changed_at if past else None
            return VaultFact(
                name, bullet, None, plain.model_copy(update={"valid_from": since}), past
            )
        ended = recorded.closed(self.changed_at)
        update = {
            "valid_from": ended.valid_to,
            "created_at": recorded.created_at,
            "updated_at": self.changed_at,
        }
        return VaultFact(name, bullet, recorded, plain.model_copy(update=update), (*past, ended))

    def note_hand_edits(self) -> None:
        """Add manual edits to the history, before memtui changes the file's time."""
        for version in [v for v in self.ledger.versions if v.is_shown]:
            fact = self.facts.get(version.fact)
            if fact is not None and fact.current is version:
                continue
            self.ledger.put(version, version.closed(self.changed_at))
            if fact is not None and fact.recorded is version:
                self.ledger.append(fact.current)
                fact.past = tuple(v for v in self.ledger.of(fact.name) if v.is_past)
                fact.recorded = fact.current

    def save(self, content: str, *, history_first: bool = False, drop_empty: bool = False) -> None:
        """Write the facts file and then its history, each only if it changed.

        Raises `Denied`, and changes neither, if one of them is write-protected.
        """
        history = (history_path(self.path), self.history, self.ledger.joined(), True)
        both = [(self.path, self.file, content, drop_empty), history]
        parts = [one for one in both if one[2] != (one[1].content if one[1] else "")]
        for path, *_ in parts:
            self.folder.check_unprotected(path)
        for path, _, now, may_go in reversed(parts) if history_first else parts:
            if not now and may_go:
                self.folder.remove(path)
            else:
                self.folder.replace(path, now)
        if history_first and self.file is None:
            self._confirm()

    def _confirm(self) -> None:
        """Record that a new facts file exists; if it is missing later, a person removed it."""
        for version in self.ledger.versions:
            if version.file_before_ns == 0:
                self.ledger.put(version, version.model_copy(update={"file_before_ns": None}))
        self.folder.replace(history_path(self.path), self.ledger.joined())

    def versions_of(self, name: str) -> list[VaultVersion]:
        """Return the versions of a present or deleted fact, oldest first, with manual edits.

        Versions that start in the future come last.
        """
        fact, recorded = self.facts.get(name), self.ledger.of(name)
        waiting = [version for version in recorded if version.waits]
        if fact is not None:
            return [*fact.past, fact.current, *waiting]
        gone = [v.closed(self.changed_at) if v.is_shown else v for v in recorded if not v.waits]
        return [*gone, *waiting]

    def records(self) -> list[StoredRecord]:
        """Return the present facts and, for queries about the past, their earlier versions."""
        found = [
            StoredRecord(
                self.record_of(fact),
                self._place.area,
                names=self._names(fact.current),
                links=markdown.marks_of(f"{fact.current.text}\n{fact.bullet.details}").links,
            )
            for fact in self.facts.values()
        ]
        for name in dict.fromkeys([*self.facts, *(v.fact for v in self.ledger.versions)]):
            found += [
                StoredRecord(
                    self._record(version, 1, ""),
                    self._place.area,
                    is_current=False,
                    names=self._names(version),
                )
                for version in self.versions_of(name)
                if name not in self.facts or version is not self.facts[name].current
            ]
        return found

    def _names(self, version: VaultVersion) -> str:
        return version.subject_id or self._place.subject_id or ""

    def find(self, name: str) -> StoredRecord | None:
        """Return a present fact; None if there is none of that name."""
        fact = self.facts.get(name)
        return StoredRecord(self.record_of(fact), self._place.area) if fact else None

    def record_of(self, fact: VaultFact) -> Record:
        """Return the record of a present fact."""
        more: Json = {"details": fact.bullet.details} if fact.bullet.details else {}
        since = fact.current.valid_from
        has_key = fact.bullet.pair is not None or "key" in fact.current.metadata
        if has_key and (fact.past or since not in {None, fact.current.created_at}):
            more["entry_type"] = "temporal"
        return self._record(
            fact.current, fact.bullet.first + 1, fact.revision(self.content.tags), more
        )

    def _record(
        self, version: VaultVersion, line: int, revision: str, more: Json | None = None
    ) -> Record:
        place, pair = self._place, pair_of(version.text)
        more = more or {}
        marks = markdown.marks_of(f"{version.text}\n{more.get('details', '')}")
        kind = {"entry_type": "fact"}
        if pair:
            kind = {"entry_type": "kv", "key": pair.key, "value": parsed(pair.value)}
        first = next(iter(self.ledger.of(version.fact)), version)
        return Record.like(
            version,
            handle=handle_of(f"{self.path}#{version.fact}"),
            scope=Scope(
                company_id=self.folder.company_id,
                project_id=place.project_id,
                agent_id=version.agent_id or place.agent_id,
                subject_id=version.subject_id or place.subject_id,
                issue_id=version.issue_id,
                run_id=version.run_id,
            ),
            source=source_of(version.source or first.source, self.folder.company_id),
            kind="fact",
            tags=(*marks.added_to(version.tags), *self.content.tags),
            updated_at=version.updated_at or version.valid_from or self.changed_at,
            created_by=version.created_by or first.created_by,
            revision=revision,
            location=self.folder.location(self.path, line),
            metadata={**version.metadata, **kind, **more},
        )


def _number(natural: str, name: str) -> int:
    """The number of a name among its twins; an unrelated name comes last."""
    if name == natural:
        return 1
    number = name.removeprefix(f"{natural}-")
    return int(number) if number.isdecimal() and number != name else sys.maxsize


def natural_name(text: str, namespace: str | None) -> str:
    """Return a fact's name before numbering: namespace and key, or a digest of its text."""
    pair = pair_of(text)
    return f"{namespace or ''}/{pair.key}" if pair else facts.short_hash(text)
