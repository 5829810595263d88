"""The facts of one scope: which bullet is which fact, since when it holds, and what held before.

The facts file says what holds; the history file beside it says since when, who wrote it and from
where, and what held before (seed 002 §6): one JSON line a version of a fact. Lines that cannot be
read are kept as they are.
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
    """What adding a fact put around its line, so that undoing it leaves no trace."""

    head: str = ""
    tail: str = ""
    new_file: bool = False


class VaultVersion(Model):
    """One value of a fact and the window in which it held."""

    fact: str
    """The fact's name within its file."""
    text: str
    topic: str | None = None
    valid_from: UtcDatetime | None = None
    """None: nobody knows since when."""
    valid_to: UtcDatetime | None = None
    """None: it still holds."""
    created_at: UtcDatetime | None = None
    """When the fact, not this version of it, came to be."""
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
    """It was to begin later than it was written, and the facts file does not have it yet."""
    leaves: bool = False
    """Its end was set ahead, and the facts file has it until then."""
    file_before_ns: int | None = None
    """When the facts file had last changed before this version was written here, which came first.

    In ns since 1970; 0: there was no file. A file that is still of that time lacks the version.
    """
    has_twin: bool = False
    """It was forgotten while another bullet had the same key or text, which keeps its own name."""

    def line(self) -> str:
        """Return it as a line of the history file. Raises `Invalid` if no file can hold it."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        line = f"{json.dumps(fields, ensure_ascii=False)}\n"
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise Invalid(
                "The fact's metadata holds a character that UTF-8 cannot carry; remove it."
            ) from error
        return line

    def closed(self, moment: datetime | None) -> VaultVersion:
        """Return it with its window closed at `moment`, or at its start if that is later."""
        known = [time for time in (moment, self.valid_from) if time is not None]
        ended = {"valid_to": max(known, default=None), "leaves": False, "file_before_ns": None}
        return self.model_copy(update=ended)

    @property
    def is_shown(self) -> bool:
        """Whether the facts file has it, unless hands have changed that."""
        return not self.waits and (self.valid_to is None or self.leaves)

    @property
    def is_past(self) -> bool:
        """Whether it held once."""
        return not self.waits and not self.is_shown

    def holds_at(self, moment: datetime) -> bool:
        """Whether a moment lies in its window."""
        begins = self.valid_from is None or self.valid_from <= moment
        return begins and (self.valid_to is None or moment < self.valid_to)

    def seen_at(self, moment: datetime) -> VaultVersion:
        """Return it as the history has it at a moment: what lay ahead may have come by then."""
        waits = self.valid_from is not None and self.valid_from > moment
        leaves = self.valid_to is not None and self.valid_to > moment
        return self.model_copy(update={"waits": waits, "leaves": leaves})

    def outside(self, begin: datetime, end: datetime | None) -> list[VaultVersion]:
        """Return what is left of it, outside of a window."""
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
        """Line, counted from 1, and what is wrong with it."""
        self._rows = [
            (line, self._read(line, number))
            for number, line in enumerate(facts.split_lines(content), start=1)
        ]
        """Each line and its version; None where the line cannot be read."""
        self._index: dict[str, list[int]] | None = None
        """The places of each fact's lines; None after a line was added or taken out."""

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
        """Put `new` on the line of `old`."""
        place = next(i for i in self._places(old.fact) if self._rows[i][1] is old)
        self._rows[place] = new.line(), new

    def set_lines(self, fact: str, wanted: Sequence[str]) -> None:
        """Make `wanted` a fact's lines: in the places of its lines now, further ones at the end."""
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
    """One fact that holds: its bullet, and its version if anybody wrote one down."""

    name: str
    bullet: Bullet
    recorded: VaultVersion | None
    """The open line of the history file."""
    current: VaultVersion
    """What holds: the recorded version, or what a hand edit made of it."""
    past: tuple[VaultVersion, ...] = ()
    """Oldest first."""

    def revision(self, tags: Sequence[str]) -> str:
        """Return a digest of the fact's lines, of its recorded version and of the file's tags."""
        bullet, line = self.bullet, self.recorded.line() if self.recorded else ""
        body = "\0".join((bullet.namespace or "", bullet.text, bullet.details, line, *tags))
        return hashlib.sha256(body.encode()).hexdigest()[:16]

    @property
    def natural_name(self) -> str:
        """The name that it has by itself."""
        return natural_name(self.bullet.text, self.bullet.namespace)


class FactsDocument:
    """One scope's facts as they stand on disk."""

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
        """When hands last changed it; nobody knows when they removed it."""
        self.folder = folder
        self._place = place_of(path)
        self._let_come()
        self._finish_write()
        self._name_facts()

    @classmethod
    def read(cls, folder: VaultFolder, path: str) -> FactsDocument | Problem:
        """Read a facts file and its history; a `Problem` where either cannot be read."""
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
        """Whether something in its history begins or ends by itself later."""
        return any(version.waits or version.leaves for version in self.ledger.versions)

    def _let_come(self) -> None:
        """Put in and take out what was to begin or to end by now; saving it is a later matter."""
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
            if shown is None or bullet is not None:  # else hands have changed it meanwhile
                self.show(bullet, holds)

    def _finish_write(self) -> None:
        """Follow a write that ended between the history and the facts file.

        A new fact did not come to be; a change of one that the file still has is completed.
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
        """Let the file say `version` in the place of a bullet; None: nothing, or in a new place."""
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

        One of a forgotten fact that had a twin is taken too: the twin must not inherit it.
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
        """Write down what hands changed: before memtui itself changes the file's time."""
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
        """Put the facts file and then its history on disk, each only if it changed.

        Raises `Denied`, and changes neither, where one of the two is not to be written.
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
        """Note that a new facts file was written: where it is gone, hands have removed it."""
        for version in self.ledger.versions:
            if version.file_before_ns == 0:
                self.ledger.put(version, version.model_copy(update={"file_before_ns": None}))
        self.folder.replace(history_path(self.path), self.ledger.joined())

    def versions_of(self, name: str) -> list[VaultVersion]:
        """Return a fact's versions, oldest first, hand edits included; also of one that is gone.

        Those that lie ahead are the last.
        """
        fact, recorded = self.facts.get(name), self.ledger.of(name)
        waiting = [version for version in recorded if version.waits]
        if fact is not None:
            return [*fact.past, fact.current, *waiting]
        gone = [v.closed(self.changed_at) if v.is_shown else v for v in recorded if not v.waits]
        return [*gone, *waiting]

    def records(self) -> list[StoredRecord]:
        """Return the facts that hold and, for questions about the past, the versions that held."""
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
        """Return a fact that holds; None if it does not."""
        fact = self.facts.get(name)
        return StoredRecord(self.record_of(fact), self._place.area) if fact else None

    def record_of(self, fact: VaultFact) -> Record:
        """Return a fact that holds as a record."""
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
        return Record(
            handle=handle_of(f"{self.path}#{version.fact}"),
            text=version.text,
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
            topic=version.topic,
            tags=(*marks.added_to(version.tags), *self.content.tags),
            created_at=version.created_at,
            updated_at=version.updated_at or version.valid_from or self.changed_at,
            created_by=version.created_by or first.created_by,
            expires_at=version.expires_at,
            pinned=version.pinned,
            valid_from=version.valid_from,
            valid_to=version.valid_to,
            revision=revision,
            location=self.folder.location(self.path, line),
            metadata={**version.metadata, **kind, **more},
        )


def _number(natural: str, name: str) -> int:
    """The place of a name among its twins; one that is not of their family comes last."""
    if name == natural:
        return 1
    number = name.removeprefix(f"{natural}-")
    return int(number) if number.isdecimal() and number != name else sys.maxsize


def natural_name(text: str, namespace: str | None) -> str:
    """Return the name that a fact has by itself: namespace and key, or a digest of its text."""
    pair = pair_of(text)
    return f"{namespace or ''}/{pair.key}" if pair else facts.short_hash(text)
