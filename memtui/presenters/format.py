"""Values as text: times, money, counts, sources and outcomes, as pure functions.

Foreign strings are returned unchanged; the caller shows them through `display()`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

from memtui.contract import (
    Embedding,
    ExplainStage,
    Link,
    Location,
    Model,
    Namespace,
    OperationStatus,
    OperationType,
    Problem,
    Record,
    SourceKind,
    SourceRef,
    Usage,
)
from memtui.store.operation import Operation, OperationHandle, Parts, set_by
from memtui.visible import visible

if TYPE_CHECKING:
    from memtui.analytics.audit import AuditCheck, Gap
    from memtui.context.assembly import ContextFact, LeftOut
    from memtui.service.answers import (
        Change,
        CompanyView,
        RetrievalCount,
        TakenBackBy,
        TargetView,
        Together,
        UndoCandidate,
    )
    from memtui.service.context.impact import Effect, Impact, ReplayProgress
    from memtui.service.home.agents import LastAnswer
    from memtui.service.spending import SpendingLimit
    from memtui.service.usecases.agent_writes import AgentWrites
    from memtui.service.usecases.checking import CheckReport
    from memtui.store.journal import OutcomeCheck

ABOUT_SECOND_YES = (
    "Whether a second owner or admin agrees to changes of bindings, targets and members."
)
_SPANS = (
    (365 * 86_400, "y"),
    (30 * 86_400, "mo"),
    (86_400, "d"),
    (3_600, "h"),
    (60, "min"),
)
_CHANGES = {
    OperationType.CORRECT: "edit",
    OperationType.FORGET: "forgetting",
    OperationType.CONFIGURE: "change of settings",
    OperationType.REVIEW: "decision",
}
"""Names of changes in a sentence; any other is named by its type."""
_SET = {
    "topic": "change of topic",
    "tags": "change of tags",
    "expires_at": "change of expiry",
    "never_expires": "change of expiry",
    "pinned": "pin",
    "unpinned": "unpin",
}
"""Names of edits that set only this field."""
_DONE = {
    OperationType.WRITE: "written",
    OperationType.CORRECT: "edited",
    OperationType.FORGET: "forgotten",
    OperationType.UNDO: "undone",
    OperationType.REVIEW: "reviewed",
}
_FILE_LINE = re.compile(r"(?P<path>.+?):(?P<line>\d{1,9})")


class Outcome(NamedTuple):
    """Symbol, word and tone of an operation's status."""

    symbol: str
    word: str
    tone: str


_OUTCOMES = {
    OperationStatus.OK: Outcome("✓", "ok", "success"),
    OperationStatus.ERROR: Outcome("✗", "failed", "error"),
    OperationStatus.DENIED: Outcome("⊘", "denied", "warning"),
    OperationStatus.CONFLICT: Outcome("≠", "conflict", "warning"),
    OperationStatus.CANCELLED: Outcome("■", "cancelled", "muted"),
    OperationStatus.PENDING: Outcome("◔", "held for review", "warning"),
    OperationStatus.UNKNOWN: Outcome("?", "unknown outcome", "warning"),
}


def outcome(status: OperationStatus, found: OutcomeCheck | None = None) -> Outcome:
    """Return the symbol, word and tone of a status, even an unknown one, or of what was found."""
    if found is not None and found.happened is not None:
        status = OperationStatus.OK if found.happened else OperationStatus.ERROR
    return _OUTCOMES.get(status) or Outcome("!", f"{status} (no status)", "error")


def ending(operation: Operation, found: OutcomeCheck | None) -> str:
    """Return the result of an outcome check, else the error of an operation."""
    return found.sentence if found is not None else operation.error_message or ""


def bindings(parts: Parts) -> str:
    """Return how many bindings a question was for: `6 bindings`, or `6 bindings, 1 failed`."""
    failed = f", {count(parts.failed)} failed" if parts.failed else ""
    return counted(parts.bindings, "binding") + failed


class Extraction(Model):
    """The text of a write, and the records that its provider made of it."""

    given: str | None
    """The beginning of the text; None: it is not in the log."""
    kept: tuple[str, ...]


def extraction(
    operation: Operation, changes: Sequence[Change], found: OutcomeCheck | None
) -> Extraction | None:
    """Return what a provider made of a written text; None: it kept the text, or has not yet."""
    given = operation.request.get("content")
    kept = tuple(one.after.text for one in changes if one.after is not None)
    was_later = "event" in operation.request and found is not None and found.happened
    is_same = len(kept) == 1 and (not given or kept[0].startswith(str(given)))
    if operation.operation_type is not OperationType.WRITE or not (kept or was_later):
        return None
    return None if is_same else Extraction(given=given and str(given), kept=kept)


def done(operation: Operation) -> str:
    """Return an operation as a participle: `edited`, `undone`; an undone undo is `redone`."""
    if _redoes(operation):
        return "redone"
    return _DONE.get(operation.operation_type, operation.operation_type.value)


def undone(back: TakenBackBy) -> str:
    """Return in a word or two whether all of an operation was undone, or how many records."""
    return "undone" if back.whole else f"{counted(len(back.record_ids), 'record')} undone"


def reversal(operation: Operation) -> str:
    """Return what an undo reversed: `undoes the edit`, `redoes it`; empty: it is no undo."""
    undone = operation.request.get("type")
    if operation.operation_type is not OperationType.UNDO or undone not in tuple(OperationType):
        return ""
    if _redoes(operation):
        return "redoes it"
    names = operation.request.get("set")
    operations = list(map(str, names)) if isinstance(names, list) else []
    return f"undoes the {_change(OperationType(undone), operations)}"


def _change(kind: OperationType, set_names: Collection[str]) -> str:
    """Name a change in a sentence: `edit`, `pin`, `change of tags`."""
    if kind is OperationType.CORRECT and len(set_names) == 1:
        [name] = set_names
        return _SET.get(name, _CHANGES[kind])
    return _CHANGES.get(kind, kind.value)


def beginning(text: str) -> str:
    """Return the first line of a text, followed by … if there are more."""
    first, _, rest = text.strip().partition("\n")
    return f"{first} …" if rest else first


def quoted(text: str) -> str:
    """Return the beginning of a text in quotes, on one line."""
    return f"“{' '.join(text[:60].split())}”"


_UNSAID = frozenset({"inferred", "together", "decision", "pending", "author", "reasons"})
"""Fields of a request that do not describe the setting."""


def configured(operation: Operation) -> str:
    """Return the change of a setting: `update binding default: add rule hold per-run 2`.

    Empty: the operation changes no setting.
    """
    if operation.operation_type != OperationType.CONFIGURE:
        return ""
    named = ((name, value) for name, value in operation.request.items() if name not in _UNSAID)
    words = [*filter(None, starmap(_set_words, named))]
    said = ": ".join(filter(None, ("".join(words[:1]), ", ".join(words[1:]))))
    if operation.request.get("reasons"):
        return f"{said}, once a second person agrees"
    proposer = operation.request.get("author")
    return f"{said}, proposed by {proposer}" if proposer else said


def _set_words(name: str, value: object) -> str:
    noun = "user" if name == "subject_id" else name.removesuffix("_id").replace("_", " ")
    if isinstance(value, bool):
        return noun if value else f"not {noun}"
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    said = [str(one) for one in parts or [value] if isinstance(one, str | int | float)]
    return " ".join([noun, *filter(None, said)]) if any(said) else ""


def _redoes(operation: Operation) -> bool:
    is_undo = operation.operation_type is OperationType.UNDO
    return is_undo and operation.request.get("type") == OperationType.UNDO


def who(principal: str) -> str:
    """Return a principal's name without its kind: `ana` for `user:ana`."""
    return principal.partition(":")[2] or principal


def read_words(counted: RetrievalCount, now: datetime) -> str:
    """Return the number of queries that returned a record, and when the last did, as a sentence."""
    if counted.count == 1:
        return f"1 query has returned it, {since(counted.last_at, now)}."
    return (
        f"{count(counted.count)} queries have returned it, the last {since(counted.last_at, now)}."
    )


def judged(operation: Operation) -> str:
    """Return a person's verdict on a result, or decision on a held write; empty: neither."""
    request = operation.request
    verdict = request.get("verdict")
    if isinstance(verdict, str) and verdict in VERDICTS:  # imported ones may be anything
        return VERDICTS[verdict]
    if operation.operation_type is not OperationType.REVIEW:
        return ""
    if request.get("decision") == "hold":
        return f"held for review: {request.get('reason') or ''}"
    words = f"{request.get('decision') or ''} what {request.get('author') or 'somebody'} wrote"
    return f"{words}: {request['reason']}" if request.get("reason") else words


_LET_IN = {"accept": "accepted", "fix": "fixed and accepted"}


def let_in(operation: Operation) -> tuple[str, str] | None:
    """Return author and decision of a write accepted in review; None: it is not such a write."""
    done = _LET_IN.get(str(operation.request.get("decision")))
    author = operation.request.get("author")
    return (str(author), done) if done and author else None


def doer(operation: Operation, author: str | None = None) -> str:
    """Return who made a change: `user:ana`, `agent:coding, accepted by user:ana`.

    `author` is the author that the record names.
    """
    let = let_in(operation)
    if let is None:
        return author or operation.principal
    return f"{author or let[0]}, {let[1]} by {operation.principal}"


def ago(moment: datetime | None, now: datetime) -> str:
    """Return the distance in the largest whole unit: `12 s`, `5 min`, `3 h`, `12 d`, `2 mo`, `1 y`.

    A moment after `now` reads `in 3 d`, to the nearest unit; None reads as a dash.
    """
    if moment is None:
        return "–"
    seconds = int((now - moment).total_seconds())
    span = abs(seconds)
    unit_seconds, unit = next((pair for pair in _SPANS if span >= pair[0]), (1, "s"))
    if seconds < 0:
        span += unit_seconds // 2  # what expires in 2 days is not "in 1 d" a second later
    shown = f"{span // unit_seconds} {unit}"
    return f"in {shown}" if seconds < 0 else shown


def since(moment: datetime | None, now: datetime) -> str:
    """Return `ago` as part of a sentence: `3 h ago`, `in 3 d`, `at an unknown time`."""
    if moment is None:
        return "at an unknown time"
    shown = ago(moment, now)
    return shown if shown.startswith("in ") else f"{shown} ago"


def exact(moment: datetime | None, zone: tzinfo | None = None) -> str:
    """Return the moment to the second in `zone` (None: the system's), with the zone's name."""
    if moment is None:
        return "unknown"
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()


def minute(moment: datetime, zone: tzinfo | None = None) -> str:
    """Return a moment to the minute in `zone` (None: the system's)."""
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M")


def count(number: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{number:,}"


def share(least: float | None, most: float | None) -> str:
    """Return a share of 0 to 1 that lies between two: `0.9 to 2.6%`; a dash: it is unknown."""
    if least is None or most is None:
        return "–"
    low, high = f"{least * 100:.1f}", f"{most * 100:.1f}"
    return f"{low}%" if low == high else f"{low} to {high}%"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 record`, `3 records`; `plural` where an s is not enough."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def author(created_by: str) -> str:
    """Return a record's author without the kind of principal: `ana`, `coding (says ana)`."""
    own, says, claimed = created_by.partition(" (says ")
    name = own.rpartition(":")[2]
    return f"{name}{says}{claimed.rpartition(':')[2]}" if says else name


def not_read(problems: Sequence[Problem]) -> str:
    """Return the first problem of an answer, with its place, and the number of others."""
    if not problems:
        return ""
    first, more = problems[0], len(problems) - 1
    place = f"not read: {place_line(first.location)}: " if first.location else ""
    return f"{place}{first.message}{f' (and {count(more)} more)' if more else ''}"


def record_name(record: Record) -> str:
    """Return a record's title, or the first line of its text that is not blank."""
    return record.title or next((part for part in record.shown.splitlines() if part.strip()), "")


_NAME_CHARS = 60
_MOST_NAMED = 3


def changed(change: UndoCandidate) -> str:
    """Name the objects of a change: `“Deploys run…”`, `3 records`, `new binding shelf`."""
    if change.together is not None:
        return taken_back(change.together)
    if change.record is not None:
        return quoted_name(change.record)
    if change.records:
        return counted(change.records, "record")
    if author := change.operation.request.get("author"):
        return f"what {author} wrote"
    return named([one.summary for one in change.settings], "setting")


def named(names: Sequence[str], what: str) -> str:
    """Return up to three names, `binding a and target project b`, else how many there are."""
    return counted(len(names), what) if len(names) > _MOST_NAMED else " and ".join(names)


def target_words(target: TargetView | SpendingLimit, whole: str = "company") -> str:
    """Return a target: `company`, or what `whole` calls it, `project x`, `agent y`."""
    if target.target_type == "company":
        return whole
    return f"{target.target_type} {target.target_id}"


def taken_back(all_of: Together) -> str:
    """Return the extent of an undo: `16 records in 2 bindings`; empty for nothing."""
    counts = {
        "record": all_of.records, "setting": all_of.settings, "held write": all_of.waiting,
    }  # fmt: skip
    parts = [counted(number, what) for what, number in counts.items() if number]
    if all_of.bindings > 1:
        parts[0] += f" in {counted(all_of.bindings, 'binding')}"
    return " and ".join(parts)


def quoted_name(record: Record) -> str:
    """Name a record in a sentence: `“Deploys run…”`."""
    name = record_name(record)
    return f"“{name[:_NAME_CHARS]}{'…' * (len(name) > _NAME_CHARS)}”"


def undo_question(operation: Operation, what: str, now: datetime, me: str) -> str:
    """Return the question `Undo the edit from 6 s ago (2 records)?`.

    It names who made the change, except the principal `me`.
    """
    of = f" ({what})" if what else ""
    return f"Undo {the_change(operation, now, me)}{of}?"


def the_change(operation: Operation, now: datetime, me: str) -> str:
    """Name a change: `the edit from 6 s ago by user:ana`; the principal `me` is not named."""
    by = "" if operation.principal == me else f" by {operation.principal}"
    change = _change(operation.operation_type, set_by(operation))
    return f"the {change} from {since(operation.started_at, now)}{by}"


def marked(number: int, hidden: int) -> str:
    """Return the number of marked rows, and how many of them the filter hides."""
    return f"{count(number)} marked" + (f", {count(hidden)} not shown" if hidden else "")


def of_total(shown: int, total: int | None, *, at_least: bool = False) -> str:
    """Return `41 of 12,204`; `214 of ≥ 1,000` where the total may be larger, `214+` if unknown."""
    if total is None:
        return f"{count(shown)}+" if at_least else count(shown)
    return f"{count(shown)} of {'≥ ' if at_least else ''}{count(max(total, shown))}"


THROUGH = {"tui": "the app", "cli": "the command line", "mcp": "MCP", "http": "HTTP",
           "wrap": "its own server"}  # fmt: skip
"""The channels that have another name for people; others are shown as `the hook`."""


def done_by(principal: str, channel: str) -> str:
    """Say who did something and how: `agent:coding through the hook`."""
    return f"{principal} through {THROUGH.get(channel, f'the {channel}')}"


VERDICTS = {"helped": "✓ helped", "not_helped": "✗ did not help", "withdrawn": "withdrawn"}
"""The words for each verdict on a result."""


def helpfulness(helped: int, not_helped: int) -> str:
    """Return the verdicts on a record: `3 × helped, 1 × did not help`; empty: there are none."""
    if not (helped or not_helped):
        return ""
    return f"{count(helped)} × helped, {count(not_helped)} × did not help"


def left_out(internal: int, *, brief: bool = False) -> str:
    """Return how many operations are not counted: `312 of memtui's own reads hidden`."""
    whose = "own" if brief else "of memtui's own"
    return f"{count(internal)} {whose} reads hidden"


def record_count(namespace: Namespace) -> str:
    """Return the number of records in a namespace: `12`, `≥ 100`; empty: unknown."""
    if namespace.records is not None:
        return count(namespace.records)
    least = namespace.metadata.get("at_least")
    return f"≥ {count(least)}" if isinstance(least, int) else ""


def records_words(namespace: Namespace) -> str:
    """Return the number of a namespace's records as part of a sentence: `its 12 records`."""
    if namespace.records is not None:
        return f"its {counted(namespace.records, 'record')}"
    least = namespace.metadata.get("at_least")
    return f"its {count(least)} records or more" if isinstance(least, int) else "all that is in it"


def embedding_words(found: Embedding) -> str:
    """Return the state of embedding: `by meaning with static`, or the remaining work."""
    if found.is_done:
        return f"by meaning with {found.model}"
    if not found.agreed:
        return f"nobody has agreed that texts go to {found.address}"
    words = f"{of_total(found.embedded, found.texts)} texts embedded with {found.model}"
    if found.serving in {None, found.model}:
        return words
    return f"needs re-index: {words}, {found.serving} answers meanwhile"


def money(amount: Decimal | None, *, unpriced: bool = False) -> str:
    """Return US dollars with at least two decimals, exactly: `$0.0125`.

    With an unpriced part: `$0.02 + unpriced`, or `unpriced` if the known part is nothing. A dash:
    nothing was measured.
    """
    if not amount:
        return _of_nothing(amount, unpriced=unpriced)
    digits = f"{amount.normalize():f}"
    whole, _, fraction = digits.partition(".")
    shown = f"${int(whole):,}.{fraction.ljust(2, '0')}"
    return f"{shown} + unpriced" if unpriced else shown


def short_money(amount: Decimal | None, *, unpriced: bool = False) -> str:
    """Return US dollars for a column: cents from $1 on, below two significant digits.

    A `+` marks an unpriced part.
    """
    if not amount:
        return _of_nothing(amount, unpriced=unpriced)
    if amount >= 1:
        shown = f"${amount:,.2f}"
    else:
        shown = f"${float(f'{amount:.2g}'):.10f}".rstrip("0")
        shown = shown + "0" if shown[-2] == "." else shown
    return shown + "+" if unpriced else shown


def _of_nothing(amount: Decimal | None, *, unpriced: bool) -> str:
    if unpriced:
        return "unpriced"
    return "–" if amount is None else "$0.00"


def relevance(fact: ContextFact | LeftOut) -> str:
    """Return why a prompt needs a fact: `pinned`, `the prompt says “port”; relevance 2.5`."""
    return fact.why if fact.relevance is None else f"{fact.why}; relevance {fact.relevance:g}"


def second_yes(company: CompanyView) -> str:
    """Return what a second person has to agree to; empty: to nothing."""
    return "on: changes of bindings, targets and members" * company.second_yes


def duration(milliseconds: float | None) -> str:
    """Return `18 ms`, `2.0 s` or `3 min 20 s`; a dash if unknown."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1_000:
        return f"{milliseconds:.1f} ms" if 0 < milliseconds < 10 else f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def tokens(usage: Iterable[Usage]) -> str:
    """Return the tokens of all rows together: `212 in · 40 embedded`, or `none`."""
    rows = list(usage)
    sums = {
        "in": sum(row.input_tokens for row in rows),
        "out": sum(row.output_tokens for row in rows),
        "embedded": sum(row.embedding_tokens for row in rows),
    }
    return " · ".join(f"{count(number)} {way}" for way, number in sums.items() if number) or "none"


def written_by_agents(found: AgentWrites, when: str) -> str:
    """Return what agents wrote in words: `Agents wrote this week: 44 writes, $0.01, 3 to look at`.

    Args:
        found: The sum.
        when: The time in words, such as `this week`.
    """
    if not found.write_count:
        return f"Agents wrote nothing {when}"
    cost = short_money(found.cost_usd, unpriced=found.unpriced)
    said = f"{counted(found.write_count, 'write')}, {cost}, {count(len(found.to_look_at))}"
    return f"Agents wrote {when}: {said} to look at{found.checked and f'; {found.checked}'}"


def operation_cost(operation: Operation | Parts) -> str:
    """Return the exact cost of an operation, with a mention of an unpriced part."""
    return money(operation.cost_usd, unpriced=operation.unpriced)


def score(value: float | None) -> str:
    """Return a relevance score to three decimals; a dash if the provider gives none."""
    return "–" if value is None else f"{value:.3f}"


def reads(times: int, last_at: datetime | None, now: datetime) -> str:
    """Return how often a record was returned and when last: `31× 3 h`, or `never`."""
    return f"{count(times)}× {ago(last_at, now)}" if times else "never"


def digest(value: str) -> str:
    """Return the first twelve characters of a digest."""
    return value[:12]


def source_line(source: SourceRef | None) -> str:
    """Return a source in a few words: `ISS-31 comment 2`, `run 4412`."""
    if source is None:
        return "no source"
    return _source_words(source) or source.kind.value.replace("_", " ")


def write_source(source: SourceRef, run_id: str | None) -> str:
    """Return the source of a write; a manual note names its run, if it has one."""
    words = source_line(source)
    is_of_run = source.kind is SourceKind.MANUAL_NOTE and run_id
    return f"{words} in {_named('run', run_id)}" if is_of_run else words


def _source_words(source: SourceRef) -> str:
    words = {
        SourceKind.ISSUE_COMMENT: _issue_part(source.issue_id, "comment", source.comment_id),
        SourceKind.ISSUE_DOCUMENT: _issue_part(source.issue_id, "document", source.document_key),
        SourceKind.ISSUE: _issue_part(source.issue_id, "", None),
        SourceKind.RUN: _named("run", source.run_id),
        SourceKind.ACTIVITY: _named("activity", source.activity_id),
        SourceKind.EXTERNAL_DOCUMENT: reference(source.external_ref or ""),
        SourceKind.MANUAL_NOTE: "manual note",
    }
    return words.get(source.kind, "")


def _named(word: str, identifier: str | None) -> str:
    return f"{word} {_bare(identifier, word)}" if identifier else ""


def _issue_part(issue_id: str | None, part: str, part_id: str | None) -> str:
    issue = "" if issue_id is None else f"issue {issue_id}" if issue_id.isdigit() else issue_id
    detail = _named(part, part_id) or part
    return f"{issue} {detail}".strip()


def _bare(identifier: str, word: str) -> str:
    """Return the id without `word` before it: `run-4412` → `4412`."""
    head, _, tail = identifier.partition("-")
    return tail if tail and head.lower() == word else identifier


def reference(external: str) -> str:
    """Return an external reference briefly: a URL without scheme, name and line of a file."""
    if "://" in external:
        return external.partition("://")[2].rstrip("/")
    place = parse_place(external)
    return place_line(place) if place else external


def parse_place(external: str) -> Location | None:
    """Return the file and line that a reference names; None: it is a URL."""
    if "://" in external:
        return None
    if found := _FILE_LINE.fullmatch(external):
        return Location(path=found["path"], line=max(int(found["line"]), 1))
    return Location(path=external)


NOWHERE = "no such note here"
"""Words for a link that leads to no record."""


def link_words(link: Link) -> str:
    """Return a link's relation, if any, and its target record."""
    name = link.title or link.words or link.target
    return f"{link.relation}: {name}" if link.relation else name


def place_line(location: Location) -> str:
    """Return `facts.md:7`; without the line if it is the first."""
    name = location.path.replace("\\", "/").rstrip("/").rpartition("/")[2] or location.path
    return f"{name}:{location.line}" if location.line > 1 else name


def by_rank(stage: ExplainStage, handles: Sequence[OperationHandle]) -> str:
    """Return a stage's score of each record of an answer, by rank: `1: 3.214 · 4: 0.5`."""
    given = ((one.rank, stage.scores.get(one.provider_record_id)) for one in handles)
    return " · ".join(f"{rank}: {value:.4g}" for rank, value in given if value is not None)


def trial_words(so_far: ReplayProgress) -> str:
    """Return the progress of a replay."""
    words = f"{count(so_far.done)} of {counted(so_far.total, 'question')} tried"
    return f"{words}, {count(so_far.differ)} differ" if so_far.differ else words


def impact_words(found: Impact) -> Iterator[str]:
    """Yield what forgetting some records would change, and which queries could not be tried."""
    them = "it" if len(found.records) + len(found.unread) == 1 else "them"
    if not found.asked:
        yield f"No query and no delivered context in the log could have found {them}."
    elif found.tried:
        all_of = "the last " if not found.is_all else "all " if found.asked > 1 else ""
        those = f"{all_of}{counted(found.asked, 'answer')}"
        some = f"{count(found.tried)} of " if found.tried < found.asked else ""
        could = "this record" if them == "it" else "these records"
        yield f"Replayed {some}{those} that could use {could}: {count(found.differ)} would change."
    if found.differ:
        yield _lost_words(found)
    for one in found.untried:
        number = len(one.with_a_record)
        note = f" ({count(number)} had {them} in the answer)" if number else ""
        yield f"{count(len(one.operation_ids))} could not be tried{note}. {one.sentence}"


def _lost_words(found: Impact) -> str:
    rest = found.differ - found.would_lose
    if not found.would_lose:
        words = "None loses a record that no other record in the answer repeats"
    elif rest:
        lose = "1 loses" if found.would_lose == 1 else f"{count(found.would_lose)} lose"
        words = f"{lose} a record; in {count(rest)} another record says the same"
    else:
        words = "Each loses a record"
    saved = found.tokens_saved
    return f"{words}; {counted(saved, 'token')} fewer in all." if saved > 0 else f"{words}."


def effect_words(effect: Effect, *, tokens: bool = True) -> str:
    """Return in a few words how an answer would differ; with `tokens`, also by how many tokens."""
    gone, come = len(effect.gone), len(effect.come)
    words = []
    if effect.emptied:
        words.append("finds nothing any more")
    elif gone:
        still = len(effect.still_said)
        said = (
            " (still said)" if still == gone else f" ({count(still)} still said)" if still else ""
        )
        words.append(f"loses {count(gone)}{said}")
    if come:
        words.append(f"{count(come)} new")
    if effect.reordered:
        words.append("another order")
    if tokens and effect.tokens_saved:
        fewer = "fewer" if effect.tokens_saved > 0 else "more"
        words.append(f"{counted(abs(effect.tokens_saved), 'token')} {fewer}")
    return ", ".join(words) or "another text"


def asked_by(effect: Effect) -> str:
    """Return agents, principals, users and projects of a question, and its run."""
    named = [*effect.agents, *effect.principals, *effect.subjects, *effect.projects]
    runs = effect.runs[0] if len(effect.runs) == 1 else counted(len(effect.runs), "run")
    return ", ".join([*named, *([runs] if effect.runs else [])])


def last_answer_words(last_answer: LastAnswer | None, now: datetime) -> str:
    """Return an agent's last answer in one line: `“deploy branch” 4 memories, 2 min ago`."""
    if last_answer is None:
        return "nothing yet"
    asked = " ".join((last_answer.asked or "").split())
    words = [f"“{asked}”" if asked else str(last_answer.operation_type)]
    if last_answer.operation_type is OperationType.CONTEXT:
        words = ["context", *(words if asked else [])]
    size_words = counted(last_answer.results, "record")
    size = f", {counted(last_answer.tokens, 'token')}" if last_answer.tokens is not None else ""
    return f"{' '.join(words)} {size_words}{size}, {ago(last_answer.at, now)} ago"


def proof_facts(found: AuditCheck) -> list[tuple[str, str]]:
    """Return the facts of a check that found the chain intact, as names and values."""
    facts = [("intact", counted(found.seq, "operation"))]
    facts += [("gap", _gap(one)) for one in found.gaps]
    seen = (
        f"operation {found.seen_seq} is the last that this machine had seen"
        if found.seen_seq
        else "this machine has seen none of it before, so a cut there would not show"
    )
    return [*facts, ("end", seen), ("note this", noted(found))]


def noted(found: AuditCheck) -> str:
    """Return number and digest of the last operation, to compare a later check with."""
    return f"{found.seq}:{found.digest}" if found.seq else ""


def _gap(gap: Gap) -> str:
    lost = f"operations from {gap.lost_from} on are lost"
    if gap.lost_through is not None:
        lost += f", as far as is known to {gap.lost_through}"
    return f"{lost}; operation {gap.seq} took their place on {gap.at:%Y-%m-%d}"


CHECK_MARKS = {"pass": "✓", "fail": "✗", "error": "▲"}


def junit(report: CheckReport) -> bytes:
    """Return the outcomes of checks in JUnit's XML, which takes no control characters."""
    from xml.etree.ElementTree import Element, SubElement, tostring

    outcomes = [one.outcome for one in report.checks]
    failures, errors = (str(outcomes.count(one)) for one in ("fail", "error"))
    about = {"name": "memtui check", "failures": failures, "errors": errors}
    suite = Element("testsuite", about, tests=str(len(outcomes)))
    for one in report.checks:
        name = visible(f"{one.number}. {one.title}")
        case = SubElement(suite, "testcase", classname="memtui", name=name)
        if one.outcome != "pass":
            kind = "failure" if one.outcome == "fail" else "error"
            SubElement(case, kind, message=visible(one.why))
    return bytes(tostring(suite, encoding="utf-8", xml_declaration=True))
