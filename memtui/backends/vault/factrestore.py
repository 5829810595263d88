"""Put facts back exactly as they were: the line's bytes, its place, and its history lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memtui.contract import Conflict, Json

from . import book as books
from . import facts
from .book import Book, Fact
from .factstore import FactStore
from .files import readable
from .versions import Frame, Ledger

_CONTEXT = 3


@dataclass(frozen=True, slots=True)
class FactState:
    """What a snapshot of one fact holds."""

    history: tuple[str, ...] | None = None
    """The fact's exact history lines; None: unknown, nobody took a snapshot before it was made."""
    lines: tuple[str, ...] = ()
    """The bullet and its details; empty where there was no fact."""
    first: int = 0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    namespace: str | None = None
    created: str | None = None

    @classmethod
    def take(cls, book: Book, name: str) -> FactState:
        """Return the state of a fact as it stands in `book`."""
        history = tuple(book.ledger.lines_of(name))
        fact = book.facts.get(name)
        if fact is None:
            return cls(history)
        lines, bullet = book.content.lines, fact.bullet
        return cls(
            history,
            lines[bullet.first : bullet.end],
            bullet.first,
            lines[max(0, bullet.first - _CONTEXT) : bullet.first],
            lines[bullet.end : bullet.end + _CONTEXT],
            bullet.namespace,
            _created(fact),
        )

    def to_json(self) -> Json:
        """Return the state as JSON values."""
        return {
            "history": list(self.history or ()), "lines": list(self.lines), "first": self.first,
            "before": list(self.before), "after": list(self.after),
            "namespace": self.namespace, "created": self.created,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Json) -> FactState:
        """Read what `to_json` returned; an empty object is a fact that nobody had seen."""
        if not data:
            return cls()
        return cls(
            tuple(data["history"]), tuple(data["lines"]), data["first"], tuple(data["before"]),
            tuple(data["after"]), data["namespace"], data["created"],
        )  # fmt: skip


def _created(fact: Fact) -> str | None:
    moment = fact.current.created_at
    return moment.isoformat() if moment else None


def check(
    store: FactStore,
    path: str,
    states: Mapping[str, FactState],
    conflict: Callable[..., Conflict],
) -> None:
    """Raise `Conflict` if any of the facts is not what memtui itself left there."""
    book = store.load(path)
    for name, state in states.items():
        _check(book, name, state, conflict)


def restore(store: FactStore, path: str, states: Mapping[str, FactState]) -> None:
    """Put the facts of one file back."""
    book = store.load(path)
    books.note_hand_edits(book)
    slots = list(book.content.lines)
    _without(book, slots, [name for name, state in states.items() if not state.lines])
    for name, state in states.items():
        if name in book.facts and state.lines:
            slots[book.facts[name].bullet.first] = state.lines[0]
    lines = facts.split_lines("".join(slots))
    absent = [state for name, state in states.items() if state.lines and name not in book.facts]
    for state in sorted(absent, key=lambda state: state.first):
        _put_back(lines, state)
    for name, state in states.items():
        wanted = state.history
        if wanted is None:
            fact = book.facts.get(name)
            wanted = tuple(book.ledger.lines_of(name, without=fact.recorded if fact else None))
        book.ledger.set_lines(name, wanted)
    store.save(book, "".join(lines), drop_empty=not _was_there(book, states))


def _was_there(book: Book, states: Mapping[str, FactState]) -> bool:
    """Whether the file is older than every fact that is now taken out of it."""
    recorded = [fact.recorded for name, fact in book.facts.items() if name in states]
    return not any(version and version.frame and version.frame.new_file for version in recorded)


def _check(book: Book, name: str, state: FactState, conflict: Callable[..., Conflict]) -> None:
    fact = book.facts.get(name)
    if fact is None:
        return
    same = tuple(book.content.lines[fact.bullet.first : fact.bullet.end]) == state.lines
    if same:
        return
    entry = books.entry_of(book, fact)
    text = readable(state.lines[0]).strip() if state.lines else None
    if fact.recorded is None or fact.recorded.text != fact.bullet.text:
        raise conflict(
            "The fact was changed by hand since; look at both before undoing.", entry, text
        )
    if state.lines and _created(fact) != state.created:
        raise conflict("Another fact stands in its place by now.", entry, text)


def _without(book: Book, slots: list[str], names: list[str]) -> None:
    """Remove facts, and what adding each of them had put around it if nothing uses it since."""
    gone = [book.facts[name] for name in names if name in book.facts]
    going = {id(fact.bullet) for fact in gone}
    left = [bullet for bullet in book.content.bullets if id(bullet) not in going]
    order = {version.fact: i for i, version in enumerate(book.ledger.versions) if version}
    for fact in sorted(gone, key=lambda fact: -order.get(fact.name, 0)):
        bullet = fact.bullet
        is_last = not "".join(slots[bullet.end :])
        is_open_end = is_last and not "".join(slots[bullet.first : bullet.end]).endswith("\n")
        slots[bullet.first : bullet.end] = [""] * (bullet.end - bullet.first)
        frame = fact.recorded.frame if fact.recorded else None
        is_alone = all(other.namespace != bullet.namespace for other in left) and all(
            not slots[f.bullet.first] for f in gone if f.bullet.namespace == bullet.namespace
        )
        if frame and (is_alone or is_open_end):
            _unframe(slots, bullet.first, frame)


def _unframe(slots: list[str], index: int, frame: Frame) -> None:
    before, after = "".join(slots[:index]), "".join(slots[index:])
    if not (before.endswith(frame.head) and after.startswith(frame.tail)):
        return
    _cut(slots, range(index - 1, -1, -1), len(frame.head), at_end=True)
    _cut(slots, range(index, len(slots)), len(frame.tail), at_end=False)


def _cut(slots: list[str], indexes: range, count: int, *, at_end: bool) -> None:
    """Cut `count` characters off the ends, or the beginnings, of the lines at `indexes`."""
    for index in indexes:
        size = min(count, len(slots[index]))
        kept = len(slots[index]) - size
        slots[index] = slots[index][:kept] if at_end else slots[index][size:]
        count -= size


def _put_back(lines: list[str], state: FactState) -> None:
    index = _place(lines, state)
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
    """Where a fact goes whose surroundings are gone, and what it needs around it."""
    file = facts.parse(content)
    last = Ledger.parse("".join(state.history or ())).versions[-1:]
    if not content and last and last[0] and last[0].frame:
        return 0, last[0].frame.head, last[0].frame.tail
    place = facts.place_for(file, state.lines[0].strip(), state.namespace)
    return place.index, place.head.removeprefix("" if content.endswith("\n") else "\n"), place.tail


def _place(lines: list[str], state: FactState) -> int | None:
    """Where the lines stood: at the old number if a neighbour is there, else by neighbours."""

    def ahead(index: int) -> int:
        count = 0
        near = lines[max(0, index - len(state.before)) : index]
        for old, line in zip(reversed(state.before), reversed(near), strict=False):
            if old.rstrip("\r\n") != line.rstrip("\r\n"):
                break
            count += 1
        return count

    def behind(index: int) -> int:
        count = 0
        for old, line in zip(state.after, lines[index : index + _CONTEXT], strict=False):
            if old.rstrip("\r\n") != line.rstrip("\r\n"):
                break
            count += 1
        return count

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
