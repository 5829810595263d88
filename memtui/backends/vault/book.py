"""A facts file together with its history: which bullet is which fact, and since when it holds."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime

from memtui.contract import Problem

from . import facts
from .entries import Entry
from .facts import Bullet, FactsFile
from .files import File, Folder
from .layout import Place, history_path, place_of
from .versions import Ledger, Version


@dataclass(slots=True)
class Fact:
    """One fact that holds: its bullet, and its version if anybody wrote one down."""

    name: str
    bullet: Bullet
    recorded: Version | None
    """The open line of the history file."""
    current: Version
    """What holds: the recorded version, or what a hand edit made of it."""
    past: tuple[Version, ...] = ()
    """Oldest first."""

    @property
    def revision(self) -> str:
        """A digest of the fact's lines and of its recorded version."""
        line = self.recorded.line() if self.recorded else ""
        body = f"{self.bullet.namespace}\0{self.bullet.text}\0{self.bullet.details}\0{line}"
        return hashlib.sha256(body.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Book:
    """One scope's facts as they stand on disk."""

    path: str
    file: File | None
    history: File | None
    content: FactsFile
    ledger: Ledger
    facts: dict[str, Fact] = field(default_factory=dict)
    """By name, in the order of the file."""

    @property
    def modified(self) -> datetime | None:
        """When the facts file, or failing that its history, was last changed."""
        known = self.file or self.history
        return known.modified if known else None


def load(folder: Folder, path: str) -> Book | Problem:
    """Read a facts file and its history; a `Problem` where either cannot be read."""
    file = folder.read(path)
    if isinstance(file, Problem):
        return file
    history = folder.read(history_path(path))
    if isinstance(history, Problem):
        return history
    content = facts.parse(file.content if file else "")
    book = Book(path, file, history, content, Ledger.parse(history.content if history else ""))
    _name_facts(book)
    return book


def _name_facts(book: Book) -> None:
    """Give each bullet its name: the recorded one of the same text, else key or digest."""
    recorded = {v.fact: v for v in book.ledger.versions if v and v.valid_to is None}
    names: dict[int, str] = {}
    by_text: dict[tuple[str | None, str], list[Bullet]] = {}
    for bullet in book.content.bullets:
        by_text.setdefault((bullet.namespace, bullet.text), []).append(bullet)
    known: dict[tuple[str | None, str], list[str]] = {}
    for name, version in recorded.items():
        known.setdefault((version.topic, version.text), []).append(name)
    for key in by_text.keys() & known.keys():
        _name_twins(book, by_text[key], known[key], recorded.keys(), names)
    taken = set(names.values())
    for bullet in book.content.bullets:
        if bullet.first not in names:
            natural = natural_name(bullet.text, bullet.namespace)
            free = free_name(natural, lambda one: one in taken or is_reserved(book, one))
            names[bullet.first] = free
            taken.add(free)
        name = names[bullet.first]
        book.facts[name] = _fact(book, name, bullet, recorded.get(name))


def _name_twins(
    book: Book,
    bullets: list[Bullet],
    known: list[str],
    recorded: Collection[str],
    names: dict[int, str],
) -> None:
    """Name bullets of one text: the recorded names, and what numbers are free, in file order."""
    natural = natural_name(bullets[0].text, bullets[0].namespace)
    wanted = list(known)
    while len(wanted) < len(bullets):
        wanted.append(
            free_name(
                natural,
                lambda one: one in wanted or one in recorded or is_reserved(book, one),
            )
        )
    wanted.sort(key=lambda name: _number(natural, name))
    for bullet, name in zip(bullets, wanted, strict=False):
        names[bullet.first] = name


def _number(natural: str, name: str) -> int:
    """The place of a name among its twins; one that is not of their family comes last."""
    if name == natural:
        return 1
    number = name.removeprefix(f"{natural}-")
    return int(number) if number.isdecimal() and number != name else sys.maxsize


def is_reserved(book: Book, name: str) -> bool:
    """Whether a name belongs to a forgotten fact whose twin must not inherit it."""
    versions = book.ledger.of(name)
    return bool(versions) and versions[-1].valid_to is not None and versions[-1].has_twin


def natural_name(text: str, namespace: str | None) -> str:
    """Return the name that a fact has by itself: namespace and key, or a digest of its text."""
    pair = facts.key_value(text)
    return f"{namespace or ''}/{pair[0]}" if pair else facts.short_hash(text)


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return `name`, with -2, -3 … if it is taken."""
    number, candidate = 1, name
    while is_taken(candidate):
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _fact(book: Book, name: str, bullet: Bullet, recorded: Version | None) -> Fact:
    before = tuple(v for v in book.ledger.of(name) if v.valid_to is not None)
    plain = Version(fact=name, text=bullet.text, topic=bullet.namespace)
    if recorded is None:
        since = book.modified if before else None
        return Fact(name, bullet, None, plain.model_copy(update={"valid_from": since}), before)
    if recorded.text == bullet.text:
        return Fact(name, bullet, recorded, recorded, before)
    edited = plain.model_copy(
        update={"valid_from": book.modified, "created_at": recorded.created_at,
                "updated_at": book.modified}
    )  # fmt: skip
    past = (*before, closed(recorded, book.modified))
    return Fact(name, bullet, recorded, edited, past)


def closed(version: Version, moment: datetime | None) -> Version:
    """Return `version` with its window closed at `moment`, or at its start if that is later."""
    known = [time for time in (moment, version.valid_from) if time is not None]
    return version.model_copy(update={"valid_to": max(known, default=None)})


def note_hand_edits(book: Book) -> None:
    """Write down in the ledger what hands changed: before memtui itself changes the file's time."""
    for version in [v for v in book.ledger.versions if v and v.valid_to is None]:
        fact = book.facts.get(version.fact)
        if fact is None or fact.recorded is not version:
            book.ledger.put(version, closed(version, book.modified))
        elif fact.current is not version:
            book.ledger.put(version, closed(version, book.modified))
            book.ledger.append(fact.current)
            fact.past = tuple(v for v in book.ledger.of(fact.name) if v.valid_to is not None)
            fact.recorded = fact.current


def versions_of(book: Book, name: str) -> list[Version]:
    """Return a fact's versions, oldest first, hand edits included; also of one that is gone."""
    fact = book.facts.get(name)
    if fact is not None:
        if fact.recorded is None and fact.current.valid_from is None and not fact.past:
            return [fact.current]
        return [*fact.past, fact.current]
    return [v if v.valid_to else closed(v, book.modified) for v in book.ledger.of(name)]


def entries(book: Book) -> list[Entry]:
    """Return the facts that hold and, for questions about the past, the versions that held."""
    place = place_of(book.path)
    found = [entry_of(book, fact) for fact in book.facts.values()]
    names = dict.fromkeys(v.fact for v in book.ledger.versions if v)
    for name in dict.fromkeys([*book.facts, *names]):
        past = [v for v in versions_of(book, name) if v.valid_to is not None]
        found += [_entry(book, place, v, 1, "", is_current=False) for v in past]
    return found


def entry_of(book: Book, fact: Fact) -> Entry:
    """Return a fact that holds as an entry."""
    line = fact.bullet.first + 1
    entry = _entry(book, place_of(book.path), fact.current, line, fact.revision, is_current=True)
    if fact.bullet.details:
        entry.metadata["details"] = fact.bullet.details
    since = fact.current.valid_from
    if "key" in entry.metadata and (fact.past or since not in {None, fact.current.created_at}):
        entry.metadata["entry_type"] = "temporal"
    return entry


def _entry(
    book: Book, place: Place, version: Version, line: int, revision: str, *, is_current: bool
) -> Entry:
    pair = facts.key_value(version.text)
    kind = (
        {"entry_type": "kv", "key": pair[0], "value": pair[1]} if pair else {"entry_type": "fact"}
    )
    first = next(iter(book.ledger.of(version.fact)), version)
    subject = version.subject_id or place.subject_id
    source = version.source or first.source
    return Entry(
        id=f"{book.path}#{version.fact}",
        path=book.path,
        line=line,
        area=place.area,
        kind="fact",
        text=version.text,
        revision=revision,
        project_id=place.project_id,
        agent_id=version.agent_id or place.agent_id,
        subject_id=subject,
        issue_id=version.issue_id,
        run_id=version.run_id,
        topic=version.topic,
        tags=version.tags,
        created=version.created_at,
        updated=version.updated_at or version.valid_from or book.modified,
        expires=version.expires_at,
        pinned=version.pinned,
        created_by=version.created_by or first.created_by,
        source=source,
        metadata={**version.metadata, **kind},
        valid_from=version.valid_from,
        valid_to=version.valid_to,
        is_current=is_current,
        names=subject or "",
    )
