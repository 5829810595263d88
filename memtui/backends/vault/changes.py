"""Changes of facts: each edits the facts file and its history file.

The caller holds the vault's lock.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from memtui.contract import (
    Conflict,
    CorrectRequest,
    EraseRequest,
    Invalid,
    Json,
    Problem,
    Record,
    Scope,
    WriteMode,
    WriteRequest,
    folded,
)
from memtui.fact_values import pair_of

from . import facts, markdown
from .facts import FactsFile
from .files import VaultFolder, encoded, readable
from .history import FactsDocument, Frame, Ledger, VaultFact, VaultVersion, natural_name
from .layout import FACTS, VaultPath, own_ids, place_of, source_fields, split_id
from .notes import check_utf8

_NUMBER = re.compile(r"-\d+$")
_CONTEXT = 3
"""Number of lines before and after a fact that identify its place."""


def load(folder: VaultFolder, path: str) -> FactsDocument:
    """Read a facts file. Raises `Invalid` if it cannot be read."""
    loaded = FactsDocument.read(folder, path)
    if isinstance(loaded, Problem):
        raise Invalid(f"{path} cannot be read: {loaded.message} Fix the file by hand first.")
    return loaded


def _to_change(folder: VaultFolder, path: str) -> FactsDocument:
    document = load(folder, path)
    if document.content.problem:
        message = document.content.problem.message
        raise Invalid(f"{path} cannot be changed: {message} Fix the file by hand first.")
    return document


@dataclass(frozen=True, slots=True)
class ReadFact:
    """A fact's text, topic and start when it was last read."""

    text: str
    topic: str | None
    valid_from: datetime | None

    def is_of(self, fact: VaultFact) -> bool:
        """Whether a fact is still as it was read."""
        return (self.text, self.topic) == (fact.bullet.text, fact.bullet.namespace)


def note_hand_edits(folder: VaultFolder, path: str, known: Mapping[str, ReadFact]) -> None:
    """Record a person's edits of a facts file in its history, compared with the `known` facts.

    The file itself only has the present facts and its last modification time. Takes the lock.

    Raises:
        Unavailable: another program writes for too long, or the history cannot be written.
    """
    if _noted(folder, path, known) is None:
        return
    with folder.locked():
        if (document := _noted(folder, path, known)) is not None:
            document.save(document.content.joined())


def _noted(folder: VaultFolder, path: str, known: Mapping[str, ReadFact]) -> FactsDocument | None:
    """Return a facts file with manual edits added to its history; None: nothing to add."""
    document = FactsDocument.read(folder, path)
    if isinstance(document, Problem):
        return None
    moment, ledger = document.changed_at, document.ledger
    document.note_hand_edits()
    for name, old in known.items():
        fact = document.facts.get(name)
        is_recorded = fact.recorded is not None if fact else bool(ledger.of(name))
        if not is_recorded and (fact is None or not old.is_of(fact)):
            version = VaultVersion(
                fact=name, text=old.text, topic=old.topic, valid_from=old.valid_from
            )
            ledger.append(version.closed(moment))
    for name, fact in document.facts.items():
        old_fact = known.get(name)
        if fact.recorded is None and (old_fact is None or not old_fact.is_of(fact)):
            update = {
                "valid_from": moment,
                "updated_at": moment,
                "created_at": moment if old_fact is None else None,
            }
            ledger.append(fact.current.model_copy(update=update))
    before = [one.content if one else "" for one in (document.file, document.history)]
    return document if [document.content.joined(), ledger.joined()] != before else None


def write(
    folder: VaultFolder, request: WriteRequest, scope_folder: str
) -> tuple[str, tuple[Record, FactState] | None]:
    """Store a fact; return its id and, for an upsert, the replaced fact's earlier state."""
    check_utf8(request.content)
    text = facts.clean(request.content)
    document = _to_change(folder, f"{scope_folder}/{FACTS}")
    namespace, moment = _namespace(request.topic), folder.now()
    start = request.valid_from or request.created_at or moment
    fields = _fields(request, document)
    old = _same(document, request, text, namespace)
    before = (document.record_of(old), FactState.take(document, old.name)) if old else None
    if request.valid_to is not None or (request.valid_from or moment) > moment:
        made = {
            "created_at": old.current.created_at if old else request.created_at or moment,
            "file_before_ns": document.file_ns,
        }
        version = VaultVersion(
            fact=old.name if old else _new_name(document, text, namespace),
            text=text,
            topic=namespace if old is None else old.bullet.namespace,
            valid_from=start,
            valid_to=request.valid_to,
            updated_at=moment,
            **made,
            **fields,
        )
        _write_window(document, old, version, moment)
        return f"{document.path}#{version.fact}", before
    if old is not None:
        _replace(document, old, text, fields, start)
        return f"{document.path}#{old.name}", before
    document.note_hand_edits()
    name = _new_name(document, text, namespace)
    content, frame = _with_new_fact(document, text, namespace)
    document.ledger.append(
        VaultVersion(
            fact=name,
            text=text,
            topic=namespace,
            valid_from=start,
            created_at=request.created_at or moment,
            updated_at=moment,
            frame=frame,
            file_before_ns=document.file_ns,
            **fields,
        )
    )
    document.save(content, history_first=True)
    return f"{document.path}#{name}", None


def _new_name(document: FactsDocument, text: str, namespace: str | None) -> str:
    return document.free_name(natural_name(text, namespace), document.facts)


def _write_window(
    document: FactsDocument, old: VaultFact | None, version: VaultVersion, now: datetime
) -> None:
    """Give a fact a value within a window only; outside of it, its values stay.

    Raises:
        Invalid: an earlier value would be lost, as its whole window lies in the new one.
    """
    document.note_hand_edits()
    begin = version.valid_from
    if begin is None or (version.valid_to is not None and version.valid_to <= begin):
        raise Invalid(
            "The validity window must end after it begins; give a later end, or an earlier begin."
        )
    if old is not None and old.recorded is None:
        document.ledger.append(old.current)
    lines: list[tuple[VaultVersion, str]] = []
    own = document.ledger.of(version.fact)
    for line, one in zip(document.ledger.lines_of(version.fact), own, strict=True):
        rest = one.outside(begin, version.valid_to)
        if not rest and one.valid_from != one.valid_to:
            since = one.valid_from
            raise Invalid(
                f"The value that is valid from {since:%Y-%m-%d %H:%M} UTC would be lost entirely; "
                "give a window that leaves part of it, or correct it."
                if since
                else "The earlier value would be lost entirely; give a later begin, or correct it."
            )
        for part in rest:
            seen = part.seen_at(now)
            lines.append((seen, line if seen == one else seen.line()))
    seen = version.seen_at(now)
    lines.append((seen, seen.line()))
    lines.sort(key=lambda pair: (pair[0].valid_from is not None, pair[0].valid_from))
    document.ledger.set_lines(version.fact, [line for _, line in lines])
    holds = next((one for one, _ in lines if one.is_shown), None)
    bullet = old.bullet if old else None
    said = None if bullet is None else (bullet.namespace, bullet.text)
    if said != (None if holds is None else (holds.topic, holds.text)):
        document.show(bullet, holds)
    document.save(document.content.joined(), history_first=True)


def _same(
    document: FactsDocument, request: WriteRequest, text: str, namespace: str | None
) -> VaultFact | None:
    """Return the fact that an upsert replaces: by id, key, or text; None: it adds one."""
    if request.mode is not WriteMode.UPSERT:
        return None
    path, name = split_id(request.record_id or "")
    if path == document.path and name in document.facts:
        return document.facts[name]
    pair, found = pair_of(text), list(document.facts.values())
    if pair is None:
        same = [f for f in found if (f.bullet.namespace, f.bullet.text) == (namespace, text)]
        return same[0] if same else None
    same = [fact for fact in found if (fact.bullet.pair or ("",))[0] == pair.key]
    here = [fact for fact in same if fact.bullet.namespace == namespace]
    if here or namespace is not None or len(same) != 1:
        return here[0] if here else None
    return same[0]


def _namespace(topic: str | None) -> str | None:
    if topic is None or not topic.strip():
        return None
    check_utf8(topic)
    name = topic.strip()
    heading = facts.parse(f"## {name}\n")
    if [found for _, found in heading.headings] != [name]:
        raise Invalid("A fact's topic is a heading: one line, without # at its ends.")
    return name


def _fields(request: WriteRequest, document: FactsDocument) -> dict[str, Any]:
    return {
        "created_by": request.created_by,
        "source": request.source and source_fields(request.source),
        "pinned": request.pinned,
        "expires_at": request.expires_at,
        "tags": _own_tags(document, request.tags),
        "metadata": request.metadata,
        **own_ids(request.scope, place_of(document.path)),
    }


def _own_tags(document: FactsDocument, tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that a fact does not inherit from its file's frontmatter."""
    there = set(map(folded, document.content.tags))
    return tuple(tag for tag in tags if folded(tag) not in there)


def _with_new_fact(
    document: FactsDocument, text: str, namespace: str | None
) -> tuple[str, Frame | None]:
    place = facts.place_for(document.content, text, namespace)
    content = facts.inserted(document.content, place)
    _check_edit(document.content, content, added=text)
    frame = Frame(head=place.head, tail=place.tail, new_file=document.file is None)
    return content, frame if place.head or place.tail else None


def _check_edit(
    before: FactsFile, content: str, changed: Mapping[int, str] | None = None, added: str = ""
) -> None:
    """Raise `Invalid` unless the edited file parses to exactly the intended facts."""
    wanted = [(changed or {}).get(bullet.first, bullet.text) for bullet in before.bullets]
    found = [bullet.text for bullet in facts.parse(content).bullets]
    if (sorted([*wanted, added]) != sorted(found)) if added else (wanted != found):
        raise Invalid(
            "This text does not fit into one bullet of the facts file; write it as a note."
        )


def correct(folder: VaultFolder, request: CorrectRequest, path: str, name: str) -> None:
    """Change a present fact; a new text starts a new version."""
    document = _to_change(folder, path)
    fact = document.facts[name]
    check_utf8(request.text or "")
    text = fact.bullet.text if request.text is None else facts.clean(request.text)
    if request.topic is not None and _namespace(request.topic) != fact.bullet.namespace:
        raise Invalid("A fact's topic is the heading above it; move the fact in the file.")
    rival = _rival(document, fact, text)
    if rival is not None:
        raise Conflict(
            "Another fact in this namespace already has that text or that key; correct that one.",
            current=document.record_of(rival),
            proposed=text,
        )
    changes: dict[str, Any] = {"pinned": request.pinned}
    if request.tags is not None:
        said = f"{text}\n{fact.bullet.details}"
        kept = markdown.tags_beside(
            said, request.tags, fact.current.tags, stays=request.text is None
        )
        asked = set(map(folded, request.tags))
        if lost := [tag for tag in document.content.tags if folded(tag) not in asked]:
            raise Invalid(f"The tag {lost[0]} is in the frontmatter of {path}; remove it there.")
        changes["tags"] = _own_tags(document, kept)
    if text != fact.bullet.text and request.source:
        changes["source"] = source_fields(request.source)
    if text != fact.bullet.text:
        changes["created_by"] = request.created_by
    wanted = {key: value for key, value in changes.items() if value is not None}
    if request.sets_expiry:
        wanted["expires_at"] = request.expires_at
    _replace(document, fact, text, wanted, folder.now())


def _rival(document: FactsDocument, fact: VaultFact, text: str) -> VaultFact | None:
    """The other fact in this namespace that already has the corrected key or text."""
    pair = pair_of(text)
    if text == fact.bullet.text or (pair and fact.bullet.pair and pair.key == fact.bullet.pair.key):
        return None
    for other in document.facts.values():
        theirs = other.bullet.pair
        is_same = theirs.key == pair.key if pair and theirs else other.bullet.text == text
        if is_same and other is not fact and other.bullet.namespace == fact.bullet.namespace:
            return other
    return None


def _replace(
    document: FactsDocument,
    fact: VaultFact,
    text: str,
    changes: dict[str, Any],
    start: datetime,
) -> None:
    document.note_hand_edits()
    current, moment, ledger = fact.current, document.folder.now(), document.ledger
    content = document.content.joined()
    if text != fact.bullet.text:
        if current.valid_from is not None and start < current.valid_from:
            raise Invalid(
                "The new value would begin before the current one; give a later valid_from."
            )
        ahead = [one.valid_from for one in ledger.of(fact.name) if one.waits and one.valid_from]
        next_one = min(ahead, default=None)
        _close(document, fact, start)
        update = {
            "text": text, "valid_from": start, "valid_to": next_one, "updated_at": moment,
            "created_by": None, "frame": None, "leaves": next_one is not None, **changes,
        }  # fmt: skip
        ledger.append(current.model_copy(update=update))
        content = facts.replaced(document.content, fact.bullet, text)
        _check_edit(document.content, content, {fact.bullet.first: text})
    elif (changed := current.model_copy(update=changes)) != current:
        if fact.recorded is None:
            ledger.append(changed)
        else:
            ledger.put(fact.recorded, changed.model_copy(update={"updated_at": moment}))
    document.save(content)


def forget(folder: VaultFolder, path: str, names: Sequence[str]) -> None:
    """Remove facts from the file; their versions stay, closed."""
    document = _to_change(folder, path)
    document.note_hand_edits()
    gone = [document.facts[name] for name in names]
    natural = Counter(fact.natural_name for fact in document.facts.values())
    for fact in gone:
        family = {fact.name, _NUMBER.sub("", fact.name), fact.natural_name}
        others = sum(natural[name] for name in family) - 1
        _close(document, fact, folder.now(), has_twin=others > 0)
        lines = [
            line
            for line, one in zip(
                document.ledger.lines_of(fact.name), document.ledger.of(fact.name), strict=True
            )
            if not one.waits
        ]
        document.ledger.set_lines(fact.name, lines)
    document.save(facts.removed(document.content, [fact.bullet for fact in gone]))


def _close(
    document: FactsDocument, fact: VaultFact, moment: datetime, *, has_twin: bool = False
) -> None:
    ended = fact.current.closed(moment).model_copy(update={"has_twin": has_twin})
    if fact.recorded is None:
        document.ledger.append(ended)
    else:
        document.ledger.put(fact.recorded, ended)


def erase(folder: VaultFolder, path: str, request: EraseRequest) -> list[VaultVersion]:
    """Return the versions of deleted facts, and erase them if `request.apply`.

    A present fact keeps its history, whoever it is about.
    """
    document = load(folder, path)
    place, wanted = place_of(path), set(request.record_ids)
    found: list[VaultVersion] = []
    for name in dict.fromkeys(version.fact for version in document.ledger.versions):
        versions = document.ledger.of(name)
        is_meant = f"{path}#{name}" in wanted or _is_of(request.scope, place, versions)
        if is_meant and name not in document.facts:
            found += versions
            if request.apply:
                document.ledger.set_lines(name, ())
    if request.apply and found:
        document.save(document.content.joined())
    return found


def _is_of(scope: Scope, place: VaultPath, versions: Sequence[VaultVersion]) -> bool:
    """Whether a fact belongs to the scope's project, or is about its subject."""
    if scope.project_id is not None:
        return place.project_id == scope.project_id
    if scope.subject_id is None:
        return False
    return scope.subject_id in {place.subject_id, *(version.subject_id for version in versions)}


@dataclass(frozen=True, slots=True)
class FactState:
    """A fact in a snapshot."""

    history: tuple[str, ...] | None = None
    """The fact's exact history lines; None: unknown, there was no snapshot before its creation."""
    lines: tuple[str, ...] = ()
    """The bullet and its details; empty if the fact did not exist."""
    first: int = 0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """The `_mark`s of the lines around it; not the lines, which may belong to a fact that is erased
    later."""
    namespace: str | None = None
    created: str | None = None

    @classmethod
    def take(cls, document: FactsDocument, name: str) -> FactState:
        """Return the present state of a fact."""
        history = tuple(document.ledger.lines_of(name))
        fact = document.facts.get(name)
        if fact is None:
            return cls(history)
        lines, bullet = document.content.lines, fact.bullet
        return cls(
            history,
            lines[bullet.first : bullet.end],
            bullet.first,
            _marks(lines[max(0, bullet.first - _CONTEXT) : bullet.first]),
            _marks(lines[bullet.end : bullet.end + _CONTEXT]),
            bullet.namespace,
            _created(fact),
        )

    def to_json(self) -> Json:
        """Return the state as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> FactState:
        """Read the result of `to_json`; an empty object is a fact without a snapshot."""
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return cls(**data | lists)


def _created(fact: VaultFact) -> str | None:
    moment = fact.current.created_at
    return moment.isoformat() if moment else None


def check_restore(
    folder: VaultFolder, path: str, states: Mapping[str, FactState], seen: Mapping[str, str]
) -> None:
    """Raise `Conflict` if a fact is neither as it was `seen` nor as memtui last wrote it.

    `seen` has revisions by record id.
    """
    document = load(folder, path)
    for name, state in states.items():
        fact = document.facts.get(name)
        if fact is None or seen.get(f"{path}#{name}") == document.record_of(fact).revision:
            continue
        if document.content.lines[fact.bullet.first : fact.bullet.end] == state.lines:
            continue
        reason = ""
        if fact.recorded is None or fact.recorded.text != fact.bullet.text:
            reason = "The fact was changed by hand since; compare both versions before undoing."
        elif state.lines and _created(fact) != state.created:
            reason = "Another fact is in its place now; look at it before undoing."
        if reason:
            text = readable(state.lines[0]).strip() if state.lines else None
            raise Conflict(reason, current=document.record_of(fact), proposed=text)


def restore(folder: VaultFolder, path: str, states: Mapping[str, FactState]) -> None:
    """Put facts of one file back exactly: the lines' bytes, their places, their history."""
    document = load(folder, path)
    document.note_hand_edits()
    slots = list(document.content.lines)
    new = [
        document.facts[name] for name in states if name in document.facts and not states[name].lines
    ]
    _take_out(document, slots, new, forgotten=[name for name in states if states[name].history])
    for name, state in states.items():
        if name in document.facts and state.lines:
            slots[document.facts[name].bullet.first] = state.lines[0]
    lines = facts.split_lines("".join(slots))
    absent = [s for name, s in states.items() if s.lines and name not in document.facts]
    for state in sorted(absent, key=lambda state: state.first):
        _put_back(lines, state)
    # Whether the file existed before the facts that are now removed or restored.
    touched = [fact.recorded for name, fact in document.facts.items() if name in states]
    is_first = any(one and one.frame and one.frame.new_file for one in touched)
    was_there = not is_first or any(state.history for state in states.values())
    for name, state in states.items():
        wanted = state.history
        if wanted is None:
            fact = document.facts.get(name)
            wanted = tuple(document.ledger.lines_of(name, without=fact.recorded if fact else None))
        document.ledger.set_lines(name, wanted)
    document.save("".join(lines), drop_empty=not was_there)


def _take_out(
    document: FactsDocument,
    slots: list[str],
    gone: Sequence[VaultFact],
    *,
    forgotten: Collection[str],
) -> None:
    """Remove facts, and the headings and line ends that came with them if now unused.

    Those of `forgotten` facts stay, since forgetting leaves them in place.
    """
    going = {fact.bullet.first for fact in gone}
    left = [bullet for bullet in document.content.bullets if bullet.first not in going]
    order = {version.fact: place for place, version in enumerate(document.ledger.versions)}
    for fact in sorted(gone, key=lambda fact: -order.get(fact.name, 0)):
        bullet = fact.bullet
        is_last = not "".join(slots[bullet.end :])
        is_open_end = is_last and not "".join(slots[bullet.first : bullet.end]).endswith("\n")
        slots[bullet.first : bullet.end] = [""] * (bullet.end - bullet.first)
        frame = fact.recorded.frame if fact.recorded else None
        is_alone = all(other.namespace != bullet.namespace for other in left) and all(
            not slots[f.bullet.first] for f in gone if f.bullet.namespace == bullet.namespace
        )
        if frame and fact.name not in forgotten and (is_alone or is_open_end):
            _unframe(slots, bullet.first, frame)


def _unframe(slots: list[str], index: int, frame: Frame) -> None:
    before, after = "".join(slots[:index]), "".join(slots[index:])
    if not (before.endswith(frame.head) and after.startswith(frame.tail)):
        return
    cut = len(frame.head)
    for place in range(index - 1, -1, -1):
        size = min(cut, len(slots[place]))
        slots[place] = slots[place][: len(slots[place]) - size]
        cut -= size
    cut = len(frame.tail)
    for place in range(index, len(slots)):
        size = min(cut, len(slots[place]))
        slots[place] = slots[place][size:]
        cut -= size


def _put_back(lines: list[str], state: FactState) -> None:
    index = _old_place(lines, state)
    head, tail = "", ""
    if index is None:
        index, head, tail = _new_place("".join(lines), state)
    if index > 0 and not lines[index - 1].endswith("\n"):
        lines[index - 1] += "\n"
    body = "".join(state.lines)
    if index < len(lines) and not body.endswith("\n"):
        body += "\n"
    lines[index:index] = facts.split_lines(f"{head}{body}{tail}")


def _new_place(content: str, state: FactState) -> tuple[int, str, str]:
    """The line index for a fact whose surroundings are gone, and the text before and after it."""
    last = Ledger("".join(state.history or ())).versions[-1:]
    if not content and last and last[0].frame:
        return 0, last[0].frame.head, last[0].frame.tail
    place = facts.place_for(facts.parse(content), state.lines[0].strip(), state.namespace)
    return place.index, place.head.removeprefix("" if content.endswith("\n") else "\n"), place.tail


def _old_place(lines: list[str], state: FactState) -> int | None:
    """The index of removed lines: the old one if its neighbours match, else by neighbours."""
    marks = _marks(lines)

    def ahead(index: int) -> int:
        return _alike(reversed(state.before), reversed(marks[max(0, index - _CONTEXT) : index]))

    def behind(index: int) -> int:
        return _alike(state.after, marks[index : index + _CONTEXT])

    first = state.first
    if first <= len(lines) and (
        ahead(first) == len(state.before) or (state.after and behind(first) == len(state.after))
    ):
        return first
    scores = {index: ahead(index) + behind(index) for index in range(len(lines) + 1)}
    best = max(scores.values())
    if best == 0:
        return None
    return min((i for i, score in scores.items() if score == best), key=lambda i: abs(i - first))


def _alike(old: Iterable[str], new: Iterable[str]) -> int:
    """The length of the common beginning of two sequences of marks."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
    return sum(1 for _ in same)


def _marks(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_mark, lines))


def _mark(line: str) -> str:
    """Return a short digest of a line, regardless of its line end, that reveals no words."""
    return hashlib.sha256(encoded(line.rstrip("\r\n"))).hexdigest()[:4]
