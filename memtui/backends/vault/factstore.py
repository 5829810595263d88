"""Write, correct and forget facts; every change is one edit of the file and of its history."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from memtui.contract import (
    Conflict,
    CorrectRequest,
    EraseRequest,
    Invalid,
    Problem,
    Scope,
    WriteMode,
    WriteRequest,
)

from . import book as books
from . import facts, notes
from .book import Book, Fact
from .entries import Entry, source_fields
from .facts import FactsFile, Insertion
from .files import File, Folder, nanoseconds
from .layout import FACTS, Place, history_path, place_of, split_id
from .versions import Frame, Version

NEW_FILE = "# Facts\n\n"
_NUMBER = re.compile(r"-\d+$")


class FactStore:
    """The facts files of a vault. Every method that changes one runs under the vault's lock."""

    def __init__(
        self, folder: Folder, now: Callable[[], datetime], conflict: Callable[..., Conflict]
    ) -> None:
        self._folder = folder
        self._now = now
        self._conflict = conflict

    def load(self, path: str) -> Book:
        """Read a facts file. Raises `Invalid` if it cannot be read."""
        loaded = books.load(self._folder, path)
        if isinstance(loaded, Problem):
            raise Invalid(f"{path} cannot be read: {loaded.message} Mend the file by hand first.")
        return loaded

    def _to_change(self, path: str) -> Book:
        book = self.load(path)
        if book.content.problem:
            message = book.content.problem.message
            raise Invalid(f"{path} cannot be changed: {message} Mend the file by hand first.")
        return book

    def write(self, request: WriteRequest, folder: str) -> str:
        """Store a fact and return its id; an upsert replaces the value of its key."""
        notes.check_utf8(request.content)
        text = facts.clean(request.content)
        path = f"{folder}/{FACTS}"
        book = self._to_change(path)
        namespace = _namespace(request.topic)
        moment = self._now()
        start = request.valid_from or request.created_at or moment
        old = self._same(book, request, text, namespace)
        if old is not None:
            return self._replace(book, old, text, _fields(request, place_of(path)), start)
        books.note_hand_edits(book)
        name = books.free_name(
            books.natural_name(text, namespace),
            lambda one: one in book.facts or books.is_reserved(book, one),
        )
        content, frame = _with_new_fact(book, text, namespace)
        version = Version(
            fact=name,
            text=text,
            topic=namespace,
            valid_from=start,
            created_at=request.created_at or moment,
            updated_at=moment,
            frame=frame,
            **_fields(request, place_of(path)),
        )
        book.ledger.append(version)
        # A crash between the two leaves a version without its fact, not a fact without its origin.
        self._put_history(book)
        self._put(book.path, book.file, content)
        return f"{path}#{name}"

    def replaces(self, request: WriteRequest, folder: str) -> str | None:
        """Return the id of the fact that a write would replace."""
        path = f"{folder}/{FACTS}"
        book = self._to_change(path)
        text = facts.clean(request.content)
        old = self._same(book, request, text, _namespace(request.topic))
        return f"{path}#{old.name}" if old else None

    def _same(
        self, book: Book, request: WriteRequest, text: str, namespace: str | None
    ) -> Fact | None:
        """The fact that an upsert replaces."""
        if request.mode is not WriteMode.UPSERT:
            return None
        path, name = split_id(request.record_id or "")
        if path == book.path and name in book.facts:
            return book.facts[name]
        pair = facts.key_value(text)
        found = list(book.facts.values())
        if pair is None:
            same = [f for f in found if (f.bullet.namespace, f.bullet.text) == (namespace, text)]
            return same[0] if same else None
        same = [fact for fact in found if (fact.bullet.pair or ("",))[0] == pair[0]]
        here = [fact for fact in same if fact.bullet.namespace == namespace]
        if here or namespace is not None or len(same) != 1:
            return here[0] if here else None
        return same[0]

    def correct(self, request: CorrectRequest, path: str, name: str) -> None:
        """Change a fact that holds; a new text opens a new version."""
        book = self._to_change(path)
        fact = book.facts[name]
        notes.check_utf8(request.text or "")
        text = fact.bullet.text if request.text is None else facts.clean(request.text)
        if request.topic is not None and (_namespace(request.topic) != fact.bullet.namespace):
            raise Invalid("A fact's topic is the heading it stands under; move it in the file.")
        rival = _rival(book, fact, text)
        if rival is not None:
            raise self._conflict(
                "Another fact in this namespace says that, or has that key, already.",
                books.entry_of(book, rival),
                text,
            )
        is_new_text = text != fact.bullet.text
        changes: dict[str, Any] = {
            "pinned": request.pinned,
            "tags": request.tags,
            "source": source_fields(request.source) if is_new_text and request.source else None,
        }
        wanted = {key: value for key, value in changes.items() if value is not None}
        if request.sets_expiry:
            wanted["expires_at"] = request.expires_at
        self._replace(book, fact, text, wanted, self._now())

    def _replace(
        self, book: Book, fact: Fact, text: str, changes: dict[str, Any], start: datetime
    ) -> str:
        books.note_hand_edits(book)
        current, moment = fact.current, self._now()
        content = book.content.joined()
        if text == fact.bullet.text:
            changed = current.model_copy(update=changes)
            if fact.recorded is None and changed != current:
                book.ledger.append(changed)
            elif fact.recorded is not None and changed != current:
                book.ledger.put(fact.recorded, changed.model_copy(update={"updated_at": moment}))
        else:
            if current.valid_from is not None and start < current.valid_from:
                raise Invalid(
                    "The new value would begin before the current one; give a later valid_from."
                )
            _close(book, fact, start)
            update = {
                "text": text, "valid_from": start, "valid_to": None, "updated_at": moment,
                "created_by": None, "frame": None, **changes,
            }  # fmt: skip
            book.ledger.append(current.model_copy(update=update))
            content = facts.replaced(book.content, fact.bullet, text)
            _check(book.content, content, {fact.bullet.first: text})
        self.save(book, content)
        return f"{book.path}#{fact.name}"

    def forget(self, path: str, names: Sequence[str]) -> None:
        """Remove facts from the file; their versions stay, closed."""
        book = self._to_change(path)
        books.note_hand_edits(book)
        gone = [book.facts[name] for name in names]
        natural = Counter(_natural(fact) for fact in book.facts.values())
        for fact in gone:
            family = {fact.name, _NUMBER.sub("", fact.name), _natural(fact)}
            others = sum(natural[name] for name in family) - 1
            _close(book, fact, self._now(), has_twin=others > 0)
        self.save(book, facts.removed(book.content, [fact.bullet for fact in gone]))

    def gone(self, path: str, request: EraseRequest) -> list[Version]:
        """Return the versions of facts that are gone, and erase them where that is to be applied.

        A fact that holds keeps its history, whoever it is about.
        """
        book = self.load(path)
        place, wanted = place_of(path), set(request.record_ids)
        found: list[Version] = []
        for name in dict.fromkeys(version.fact for version in book.ledger.versions if version):
            versions = book.ledger.of(name)
            if name in book.facts or not (
                f"{path}#{name}" in wanted or _is_of(request.scope, place, versions)
            ):
                continue
            found += versions
            if request.apply:
                book.ledger.set_lines(name, ())
        if request.apply and found:
            self._put_history(book)
        return found

    def save(self, book: Book, content: str, *, drop_empty: bool = False) -> None:
        """Put the file and then its history on disk, each only if it changed."""
        self._put(book.path, book.file, content, drop_empty=drop_empty)
        self._put_history(book)

    def _put_history(self, book: Book) -> None:
        self._put(history_path(book.path), book.history, book.ledger.joined(), drop_empty=True)

    def _put(
        self, path: str, before: File | None, content: str, *, drop_empty: bool = False
    ) -> None:
        if content == (before.content if before else ""):
            return
        if not content and drop_empty:
            self._folder.remove(path)
        else:
            self._folder.replace(path, content, nanoseconds(self._now()))

    def entry(self, path: str, name: str) -> Entry | None:
        """Return a fact that holds; None if it does not. Raises `Invalid` for a broken file."""
        return self.entry_in(self.load(path), name)

    def entry_in(self, book: Book, name: str) -> Entry | None:
        """Return a fact that holds in a file that was read already."""
        fact = book.facts.get(name)
        return books.entry_of(book, fact) if fact else None


def _rival(book: Book, fact: Fact, text: str) -> Fact | None:
    """The fact that has the key, or the very text, which a correction would give this one."""
    pair = facts.key_value(text)
    if text == fact.bullet.text or (pair and fact.bullet.pair and pair[0] == fact.bullet.pair[0]):
        return None
    for other in book.facts.values():
        theirs = other.bullet.pair
        is_same = theirs[0] == pair[0] if pair and theirs else other.bullet.text == text
        if is_same and other is not fact and other.bullet.namespace == fact.bullet.namespace:
            return other
    return None


def _namespace(topic: str | None) -> str | None:
    if topic is None or not topic.strip():
        return None
    notes.check_utf8(topic)
    name = topic.strip()
    heading = facts.parse(f"## {name}\n")
    if [found for _, found in heading.headings] != [name]:
        raise Invalid("A fact's topic is a heading: one line, without # at its ends.")
    return name


def _fields(request: WriteRequest, place: Place) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "created_by": request.created_by,
        "source": source_fields(request.source),
        "pinned": request.pinned,
        "expires_at": request.expires_at,
        "tags": request.tags,
        "metadata": request.metadata,
    }
    for key in ("agent_id", "issue_id", "run_id", "subject_id"):
        value = getattr(request.scope, key)
        fields[key] = None if value == getattr(place, key, None) else value
    return fields


def _is_of(scope: Scope, place: Place, versions: Sequence[Version]) -> bool:
    """Whether a fact is a project's, or about a subject, wherever it is kept."""
    if scope.project_id is not None:
        return place.project_id == scope.project_id
    if scope.subject_id is None:
        return False
    return scope.subject_id in {place.subject_id, *(version.subject_id for version in versions)}


def _with_new_fact(book: Book, text: str, namespace: str | None) -> tuple[str, Frame | None]:
    if book.file is None or not book.file.content:
        heading = f"## {namespace}\n" if namespace else ""
        head = NEW_FILE + heading
        content = f"{head}- {text}\n"
        _check(FactsFile((), (), (), 0), content, {}, added=text)
        return content, Frame(head=head, new_file=book.file is None)
    place = facts.place_for(book.content, text, namespace)
    content = facts.inserted(book.content, place)
    _check(book.content, content, {}, added=text)
    return content, _frame(place)


def _frame(place: Insertion) -> Frame | None:
    return Frame(head=place.head, tail=place.tail) if place.head or place.tail else None


def _natural(fact: Fact) -> str:
    return books.natural_name(fact.bullet.text, fact.bullet.namespace)


def _close(book: Book, fact: Fact, moment: datetime, *, has_twin: bool = False) -> None:
    ended = books.closed(fact.current, moment).model_copy(update={"has_twin": has_twin})
    if fact.recorded is None:
        book.ledger.append(ended)
    else:
        book.ledger.put(fact.recorded, ended)


def _check(before: FactsFile, content: str, changed: dict[int, str], added: str = "") -> None:
    """Raise `Invalid` unless the edit did to the facts what it was meant to do, and no more."""
    after = facts.parse(content)
    wanted = [changed.get(bullet.first, bullet.text) for bullet in before.bullets]
    found = [bullet.text for bullet in after.bullets]
    if added and added in found:
        found.remove(added)
        wanted, found = sorted(wanted), sorted(found)
    elif added:
        found = []
        wanted = [added]
    if wanted != found:
        raise Invalid(
            "This text cannot be kept as one bullet of the facts file; write it as a note."
        )
