"""The lines of the detail panes, as pure functions; control characters are made visible."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from textual.content import Content

from memtui.contract import Record, Scope
from memtui.presenters import format as fmt
from memtui.presenters.risks import HELD_WORDS, said
from memtui.record_changes import changed_fields
from memtui.store.operation import Operation, Parts
from memtui.widgets.display import (
    ACCENT,
    BAD,
    DIM,
    OK,
    STRONG,
    TONES,
    WARN,
    display,
    hanging,
    line,
    lines,
)

if TYPE_CHECKING:
    from memtui.service.answers import Change
    from memtui.service.history.past import Difference
    from memtui.service.review.known_risks import RiskMark
    from memtui.store.journal import OutcomeCheck

LABEL_CELLS = 10
_DIFF_LINES, _LINE_CHARS = 60, 2_000
_SHOWN_LINES = 4
_SHOWN_CHARS = 160
_AROUND = 40
"""Unchanged characters shown before the change in a long line."""
SCOPE_WORDS = {
    "project_id": "project",
    "agent_id": "agent",
    "subject_id": "user",
    "issue_id": "issue",
    "run_id": "run",
}
SEPARATOR = " · "
HINT_GAP = "   "
MAX_CHARACTERS = 20_000
"""Characters of a text that are compared."""
_MAX_WORDS = 400
MARKED_WORD = re.compile(r"[^\W_]+")
_WORDS = re.compile(r"\s+|\w+|[^\w\s]+")


class Labelled(NamedTuple):
    """A value after its dim label; wrapped lines align with the value."""

    label: str
    value: Content
    most: int = 0
    """Most lines of the value; 0: no limit."""


Line = Content | Labelled


def labelled(label: str, value: Content | str | None, *, most: int = 0) -> Labelled:
    """Return a value after its label; `joined` leaves out a row without a value."""
    return Labelled(label, value if isinstance(value, Content) else display(value), most)


def heading(title: str, note: str = "") -> Content:
    """Return a section's title."""
    return line(display(title, style=STRONG), display(note, style=DIM), gap="  ")


def outcome_words(operation: Operation, found: OutcomeCheck | None = None) -> Content:
    """Return the symbol and the word of an operation's status, or of what a check found."""
    ended = fmt.outcome(operation.status, found)
    return Content.styled(f"{ended.symbol} {ended.word}", TONES[ended.tone])


def ending_lines(operation: Operation, found: OutcomeCheck | None) -> Iterator[Line]:
    """Yield the result of an outcome check, then the error before it; else the error alone."""
    why = operation.error_message
    if found is not None:
        yield display(found.sentence, limit=2_000, style=STRONG)
        yield display(f"before that: {why}" if why else "", limit=2_000, style=DIM)
    elif why:
        yield display(why, limit=2_000, style=WARN)


def scope_words(scope: Scope) -> str:
    """Return a scope in words: `project mech-fighters · agent coding`, or `company acme`."""
    parts = [
        f"{word} {value.removeprefix(f'{word}-')}"
        for name, word in SCOPE_WORDS.items()
        if (value := getattr(scope, name))
    ]
    return SEPARATOR.join(parts) or f"company {scope.company_id}"


def actor(operation: Operation) -> str:
    """Return who made a change: the person, else the agent of its scope, else the principal.

    A change accepted in review was made by its author.
    """
    if (let_in := fmt.let_in(operation)) is not None:
        return fmt.author(let_in[0])
    sort, _, name = operation.principal.rpartition(":")
    return name if sort == "user" else operation.scope.agent_id or name


def who_and_when(operation: Operation, now: datetime) -> str:
    """Return `12 d ago by coding, run 4101`, and who accepted it in review."""
    let_in, run_id = fmt.let_in(operation), operation.scope.run_id
    run = f", run {run_id.removeprefix('run-')}" if run_id else ""
    accepted = f", {let_in[1]} by {fmt.author(operation.principal)}" if let_in else ""
    return f"{fmt.since(operation.started_at, now)} by {actor(operation)}{run}{accepted}"


def record_words(record: Record) -> str:
    """Return the beginning of a record's shown text, on one line."""
    return " ".join(record.shown[:2_000].split())


def below_heading(text: str, title: str | None) -> str:
    """Return a text without its first line, where that is a Markdown heading equal to its title."""
    first, _, rest = text.lstrip().partition("\n")
    marks, _, words = first.partition(" ")
    is_heading = bool(title) and words.strip() == title and not marks.strip("#")
    return rest if is_heading and rest.strip() else text


def matches(word: str, words: Collection[str]) -> bool:
    """Whether a word begins with one of `words`; or, if longer than 3, one of them with it."""
    folded = word.casefold()
    return any(
        folded.startswith(asked) or (len(folded) > 3 and asked.startswith(folded))
        for asked in words
    )


def marked(content: Content, words: Collection[str]) -> Content:
    """Return the content with all words emphasised that match one of `words`."""
    for found in MARKED_WORD.finditer(content.plain) if words else ():
        if matches(found[0], words):
            content = content.stylize("bold underline", found.start(), found.end())
    return content


class DiffLine(NamedTuple):
    """One line of a diff: sign `-` removed, `+` added, a space unchanged.

    `parts` are pairs of a text and whether it changed.
    """

    sign: str
    parts: tuple[tuple[str, bool], ...]


def diff(before: str | None, after: str | None) -> list[DiffLine]:
    """Compare two texts by line, and by word where lines were replaced by as many others.

    Past 20,000 characters the rest is left out of the comparison. None: there is no text.
    """
    old = [] if before is None else before[:MAX_CHARACTERS].splitlines()
    new = [] if after is None else after[:MAX_CHARACTERS].splitlines()
    lines: list[DiffLine] = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=True)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag == "equal":
            lines.extend(_whole(" ", line) for line in old[old_from:old_to])
        elif tag == "replace" and old_to - old_from == new_to - new_from:
            for left, right in zip(old[old_from:old_to], new[new_from:new_to], strict=True):
                lines.extend(_word_diff(left, right))
        else:
            lines.extend(_whole("-", line) for line in old[old_from:old_to])
            lines.extend(_whole("+", line) for line in new[new_from:new_to])
    return lines


def _whole(sign: str, line: str) -> DiffLine:
    return DiffLine(sign, ((line, False),))


def _word_diff(before: str, after: str) -> list[DiffLine]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > _MAX_WORDS:
        return [_whole("-", before), _whole("+", after)]
    gone: list[tuple[str, bool]] = []
    come: list[tuple[str, bool]] = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        changed = tag != "equal"
        if old_to > old_from:
            gone.append(("".join(old[old_from:old_to]), changed))
        if new_to > new_from:
            come.append(("".join(new[new_from:new_to]), changed))
    return [DiffLine("-", tuple(gone)), DiffLine("+", tuple(come))]


def diff_lines(
    before: str | None, after: str | None, *, most: int = _DIFF_LINES, chars: int = _LINE_CHARS
) -> Iterator[Content]:
    """Yield the lines of a diff, changed words underlined; long unchanged stretches are shortened.

    After `most` lines, and in a line after `chars` characters, the rest is left out, which is said.
    """
    shown = 0
    for same, group in groupby(diff(before, after), key=lambda one: one.sign == " "):
        stretch = list(group)
        if same and len(stretch) > 4:
            yield _diff_line(stretch[0], chars)
            yield Content.styled(f"  … {fmt.counted(len(stretch) - 2, 'line')} as before", DIM)
            stretch = stretch[-1:]
        for one in stretch:
            if shown == most:
                yield Content.styled("  … the rest of the change is not shown", DIM)
                return
            shown += 1
            yield _diff_line(one, chars)


def made_again(now: Record, then: Record) -> str:
    """Return in a few lines what restoring the version `then` changes in the record `now`."""
    lines = [one for one in diff(now.text, then.text) if one.sign != " "]
    shown = [f"{one.sign} {_around_change(one)}" for one in lines[:_SHOWN_LINES]]
    if more := len(lines) - len(shown):
        shown.append(f"… and {fmt.counted(more, 'more line')}")
    return "\n".join([*shown, *(": ".join(one) for one in changed_fields(now, then))])


def _around_change(one: DiffLine) -> str:
    """Return a line of a diff; of a long one, the part around its first change."""
    text = "".join(part for part, _ in one.parts)
    same = "" if one.parts[0][1] else one.parts[0][0]
    start = len(same) - _AROUND if _AROUND < len(same) < len(text) else 0
    end = start + _SHOWN_CHARS
    return f"{'…' * bool(start)}{text[start:end]}{'…' * (end < len(text))}"


def change_lines(change: Change | Difference) -> Iterator[Content]:
    """Yield the diff of a record's text before and after a change."""
    return diff_lines(
        change.before.text if change.before else None, change.after.text if change.after else None
    )


def _diff_line(one: DiffLine, chars: int) -> Content:
    style = {"-": BAD, "+": OK}.get(one.sign, DIM)
    parts = [
        display(text, limit=chars, style=f"{style} underline" if changed else style)
        for text, changed in one.parts
    ]
    return Content.styled(f"{one.sign} ", style) + Content("").join(parts)


def risk_lines(mark: RiskMark | None, prune_key: str = "") -> Iterator[Line]:
    """Yield the risks of a record; `prune_key`: the key that opens the plan to remove it."""
    if mark is not None and mark.held:
        yield labelled("held", display(HELD_WORDS, style=WARN))
    if mark is not None and not mark.checked:
        yield labelled("risk", display("not checked yet", style=DIM))
    for number, one in enumerate(mark.risks if mark else ()):
        words = display(said(one), limit=400, style=DIM if one.dismissed else WARN)
        yield labelled("" if number else "risk", words)
    if mark and mark.reasons and prune_key:
        yield labelled("", key_hint(prune_key, "plan to let it go"))


def usage_lines(operation: Operation | Parts) -> Iterator[Line]:
    """Yield total tokens and cost, then each provider and model, with its part if several."""
    if not operation.usage:
        yield labelled("cost", Content.styled("nothing was reported", DIM))
        return
    yield labelled("tokens", fmt.tokens(operation.usage))
    cost = fmt.operation_cost(operation)
    yield labelled("cost", display(cost, style=WARN if operation.unpriced else ""))
    several = len(operation.usage) > 1
    for row in operation.usage:
        model = f" {row.model}" if row.model else ""
        spent = fmt.money(row.cost_usd, unpriced=row.cost_usd is None)
        words = [f"{row.provider}{model}", *([fmt.tokens([row]), spent] if several else [])]
        if row.latency_ms is not None:
            words.append(fmt.duration(row.latency_ms))
        yield labelled("", display(SEPARATOR.join(words), style=DIM))


def moment(value: datetime | None, now: datetime, zone: tzinfo | None) -> str:
    """Return the exact moment and its distance from now: `2026-… UTC (3 h ago)`."""
    return f"{fmt.exact(value, zone)} ({fmt.since(value, now)})" if value else "unknown"


def joined(blocks: Iterable[Sequence[Line]], width: int) -> Content:
    """Join the lines of each block, with a blank line between blocks; rows without value go."""
    gap = Content("\n\n")
    kept = [[one for one in block if isinstance(one, Content) or one.value] for block in blocks]
    return gap.join([_block(block, max(width, LABEL_CELLS * 2)) for block in kept if block])


def _block(block: Sequence[Line], width: int) -> Content:
    return lines(
        one
        if isinstance(one, Content)
        else hanging(
            Content.styled(f"{one.label:<{LABEL_CELLS}} ", DIM), one.value, width, most=one.most
        )
        for one in block
    )


def key_hint(key: str, what: str) -> Content:
    """Return a key with its description."""
    return Content.styled(key, ACCENT) + Content.styled(f" {what}", DIM)


def spread(parts: Iterable[Content], width: int, gap: str = HINT_GAP) -> Content:
    """Put parts beside each other; a part that does not fit begins the next line."""
    rows: list[Content] = []
    for part in parts:
        if rows and rows[-1].cell_length + len(gap) + part.cell_length <= width:
            rows[-1] += Content(gap) + part
        else:
            rows.append(part)
    return lines(rows)


def pairs(facts: Iterable[tuple[str, str]], width: int) -> list[Content]:
    """Return names and values as lines wrapped to `width` cells, without empty values."""
    shown = [(name, value) for name, value in facts if value]
    lead = max((len(name) for name, _ in shown), default=0) + 2
    return [
        hanging(Content.styled(f"{name:<{lead}}", DIM), display(value, limit=1_000), width)
        for name, value in shown
    ]
