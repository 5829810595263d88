"""Candidates for pruning: records that could be forgotten, each with its reason and figures."""

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from memtui.contract import RISKS, Location, Model, Record, RecordHandle, UtcDatetime, owner_of
from memtui.fact_values import FACT, pair_of, stated
from memtui.pruning.claims import LABELS, Claim
from memtui.pruning.duplicates import (
    DuplicateIndex,
    Item,
    Likeness,
    Vectors,
    compare,
    find_clusters,
    form_of,
)
from memtui.pruning.folding import hidden_in
from memtui.pruning.patterns import FactVersion, Pattern, PatternKind, find_patterns
from memtui.pruning.signs import order_in, otherwise, topic_keys
from memtui.record_changes import names_beside, texts_beside

_PAIR = re.compile(r"\s*([\w.\-]+):\s+\S")

_MARK = r"[ \t]*(?:[-*+>]|\d{1,3}[.)])[ \t]+"
_BLOCK = re.compile(rf"^(?:{_MARK})*[ \t]*(\S.*(?:\n(?![ \t]*$|{_MARK}).*)*)", re.MULTILINE)
"""A paragraph, or an item of a list or quotation without the mark before it."""
_PARTS = [re.compile(one, re.DOTALL)
          for one in (r".+", r"\S.*?(?=\n(?![a-z])|\Z)", r"\S.*?(?:[.!?](?=\s)|\Z)")]  # fmt: skip
"""A whole paragraph, each of its lines, and each of its sentences."""
_TAKEN_OUT = re.compile(r"\[REDACTED:([A-Z_]+)\]")
"""The placeholder that redaction puts in place of a secret."""
_QUOTED = 60
_BUCKET = 8
"""At most so many texts are compared with each one, so that the work is never quadratic."""
_Dated = tuple[datetime, str, Record]
"""Time, id and record: sortable by time and id."""
_Said = tuple[datetime, Claim, Record]
_FLOOD, _FEW = 500, 5
"""Least number of words of a flood, and how many different ones it has at most among so many."""


class Reason(StrEnum):
    """Why a record could be forgotten: harmful records first, then in order of certainty."""

    HOLDS_SECRET = "holds_secret"  # noqa: S105 — a word, no password
    """Its text contains a secret in clear text."""
    POISONED = "poisoned"
    """It reads like an instruction to the model, or hides characters."""
    EXACT_DUPLICATE = "exact_duplicate"
    EXPIRED = "expired"
    CONTRADICTED = "contradicted"
    """A newer fact of the same key has another value."""
    NEAR_DUPLICATE = "near_duplicate"
    FORGOTTEN_BEFORE = "forgotten_before"
    """The same text was deleted by hand before."""
    SAME_MEANING = "same_meaning"
    """Another record has the same meaning, by their vectors."""
    SAYS_OTHERWISE = "says_otherwise"
    """A later text on the same subject contradicts it."""
    DISAGREES = "disagrees"
    """A record of another scope, read together with this one, has another value for its key."""
    REFERS_TO_GONE = "refers_to_gone"
    """Its workspace no longer has something that it mentions."""
    SOURCE_CHANGED = "source_changed"
    """The file that it comes from has changed since."""
    SAID_ELSEWHERE = "said_elsewhere"
    """A memory of another binding says it too."""
    CHANGES_OFTEN = "changes_often"
    CHANGED_LATE = "changed_late"
    """Its value changed after months without a change."""
    REDACTED = "redacted"
    """A secret was redacted in it."""
    DID_NOT_HELP = "did_not_help"
    """Its feedback says more often that it did not help than that it did."""
    COSTLY = "costly"
    """Long, and never read."""
    NEVER_READ = "never_read"
    STALE = "stale"
    """Read once, but not for a while."""
    TOO_LONG = "too_long"
    LEAST_WORTH = "least_worth"
    """Its context is over the budget; only a plan for a budget has this reason."""


LONGEST_DAYS = 36_500
"""The largest number of days in a rule."""


class PruneRules(Model):
    """Thresholds of the reasons."""

    stale_days: Annotated[int, Field(ge=0, le=LONGEST_DAYS)] = 30
    """Days without a retrieval after which a record is stale (seed 002)."""
    max_characters: int = 200
    """Longest fact (seed 004 §6.2); other kinds of record have no limit."""
    unread_days: Annotated[int, Field(ge=0, le=LONGEST_DAYS)] = 7
    """A record that memtui has known for less does not count as unread: nothing needed it yet."""
    costly_tokens: int = 40
    """Tokens from which a record that was never read is costly."""
    likeness: float = 0.95
    """Cosine from which two vectors count as the same meaning (seed 002)."""


WhyOutdated = Callable[[RecordHandle], Iterable[tuple[Reason, str]]]
"""Returns the reasons that a record's workspace gives, each with a sentence."""


class RetrievalTally(Model):
    """How often queries returned a record, when last, and to whom."""

    count: int = 0
    last_at: UtcDatetime | None = None
    agents: tuple[str, ...] = ()
    """Names of the agents that read it; empty if a person read it too."""
    helped: int = 0
    """Number of times it was rated as helpful …"""
    not_helped: int = 0
    """… and as not helpful."""


class PruneCandidate(Model):
    """One record and one reason to forget it."""

    record: Record
    reason: Reason
    sentence: str
    cluster_id: str | None = None
    """Shared by the duplicates of one survivor."""
    survivor: RecordHandle | None = None
    """The record that stays: the one that this one repeats, or the newer one that contradicts
    it."""
    others: Annotated[tuple[RecordHandle, ...], Field(exclude=True)] = ()
    """The records that it was compared with and that the reason is about."""
    tokens_saved: int
    """0 for an expired record: no model reads it."""
    suggested: bool
    """Whether a plan marks it by default. A pinned record is never suggested."""


def find_candidates(
    records: Iterable[Record],
    *,
    now: datetime,
    tokens_of: Callable[[str], int],
    retrievals: Mapping[RecordHandle, RetrievalTally] | None = None,
    counted_since: datetime | None = None,
    forgotten: Mapping[str, datetime] | None = None,
    rules: PruneRules | None = None,
    vectors: Vectors | None = None,
    patterns: Iterable[Pattern] = (),
    secrets_of: Callable[[str], Sequence[str]] = lambda _text: (),
    outdated: WhyOutdated = lambda _handle: (),
) -> tuple[PruneCandidate, ...]:
    """Return every record that could be forgotten, with its reasons, by record id and reason.

    Only records of the same owner and subject are compared, whichever agent wrote them. A record
    whose validity window has closed is history, not a candidate; an expired one cannot be a
    survivor. A candidate is suggested if forgetting it loses nothing: duplicates by words, expired
    and contradicted facts, and texts deleted before. A person must decide on the others: the same
    meaning only, possible poison, unread records, and facts whose changes show a pattern.

    Args:
        records: The records of the scope.
        now: The time at which expiry and staleness are judged.
        tokens_of: Returns the tokens of a record's text in a prompt.
        counted_since: When memtui began to count retrievals; None: before any record was made.
        retrievals: Use of each record; a missing one was never returned. None: not known, so no
            record counts as unread.
        forgotten: Texts deleted by hand, and when. Only records created later count, so neither the
            survivor of a deleted duplicate nor a record that an undo restored does.
        rules: The thresholds; the seeds' by default.
        vectors: Embeds texts to find the same meaning; None without the semantic extra.
        patterns: Patterns in the changes of facts, of any scopes.
        secrets_of: Returns the kinds of secrets that a text contains in clear text.
        outdated: Returns the reasons that a record's workspace gives, each with a sentence.
    """
    search = _Search(now, tokens_of, secrets_of, retrievals, rules or PruneRules(), counted_since)
    current = search.current(records)
    alive = search.alive(current)
    found = [
        *search.of_one(current),
        *search.duplicates(alive, vectors),
        *search.contradicted(alive),
        *search.otherwise(alive),
        *search.forgotten(alive, forgotten or {}),
        *search.showing(alive, patterns),
        *search.outdated(alive, outdated),
    ]
    return in_order(found)


def in_order(candidates: Iterable[PruneCandidate]) -> tuple[PruneCandidate, ...]:
    """Return candidates by record id and reason."""
    order = list(Reason)
    return tuple(sorted(candidates, key=lambda one: (_id(one.record), order.index(one.reason))))


def find_risks(
    records: Sequence[Record],
    *,
    now: datetime,
    alone: Container[RecordHandle],
    compared: Container[str],
    secrets_of: Callable[[str], Sequence[str]],
    retrievals: Mapping[RecordHandle, RetrievalTally] | None = None,
    outdated: WhyOutdated = lambda _handle: (),
) -> list[PruneCandidate]:
    """Return the candidates of `find_candidates` for which something is wrong, each once.

    Args:
        records: The records of a binding.
        now: The time at which expiry is judged.
        alone: The records whose own texts are searched.
        compared: The owners (`owner_key`) whose records are compared with each other; facts of
            several owners are always compared.
        secrets_of: Returns the kinds of secrets that a text contains in clear text.
        retrievals: Use of each record, which decides what duplicate stays.
        outdated: Returns the reasons that a record's workspace gives, each with a sentence.
    """
    search = _Search(now, lambda _text: 0, secrets_of, retrievals, PruneRules())
    current = search.current(records)
    alive = search.alive(current)
    mine = [one for one in alive if not one.read_only]
    owned = [one for one in mine if owner_key(one) in compared]
    facts = [FactVersion(binding_key="", record=one) for one in mine if one.kind == "fact"]
    patterns = find_patterns(facts, now=now)
    found = (
        *(one for record in current if record.handle in alone for one in search.of_text(record)),
        *search.duplicates(owned, None),
        *search.contradicted(owned),
        *search.otherwise(owned),
        *search.showing(mine, [one for one in patterns if one.kind is PatternKind.DISAGREES]),
        *search.outdated(mine, outdated),
    )
    risks = {(one.record.handle, one.reason, one.others): one for one in found if is_risk(one)}
    return list(risks.values())


def find_across(
    records: Mapping[str, Sequence[Record]],
    *,
    now: datetime,
    tokens_of: Callable[[str], int],
    first: Container[str] = (),
    fixed: Container[tuple[str, RecordHandle]] = (),
) -> dict[str, list[tuple[PruneCandidate, Record]]]:
    """Return the records that one of another binding repeats or contradicts, by binding.

    Each comes with that one. Only records of the same owner and subject are compared. A person
    decides on all of these. Of a binding in `first` each line and sentence counts by
    itself, as its records are sections of a file.

    Args:
        records: The records by binding.
        now: The time at which expiry is judged.
        tokens_of: Returns the tokens of a record's text in a prompt.
        first: Bindings whose records stay if another binding has the same text.
        fixed: Records, with their bindings, that cannot be forgotten: of two equal ones they stay.
    """
    search = _Search(now, tokens_of, lambda _text: (), None, PruneRules())
    own: dict[RecordHandle, tuple[str, Record]] = {}
    for key, some in records.items():
        alive = search.alive(search.current(some))
        for part in (part for one in alive for part in (_parts(one) if key in first else [one])):
            own[RecordHandle(provider_key=key, provider_record_id=str(len(own)))] = key, part
    named = [one.model_copy(update={"handle": handle, "pinned": one.pinned or key in first
                                    or (key, one.handle) in fixed})
             for handle, (key, one) in own.items()]  # fmt: skip
    found: dict[str, list[tuple[PruneCandidate, Record]]] = defaultdict(list)
    for candidate in (*search.duplicates(named, None), *search.contradicted(named),
                      *search.otherwise(named)):  # fmt: skip
        key, record = own[candidate.record.handle]
        other_key, other = own[candidate.survivor or candidate.record.handle]
        if key == other_key or key in first:
            continue
        is_same, place = candidate.reason in REPEATS, other.location
        where = f" ({place.path}:{place.line})" if place is not None else ""
        says = f"says {'it too' if is_same else 'otherwise'}: {_quoted(other.text)}."
        found[key].append((candidate.model_copy(update={
            "record": record, "survivor": None, "cluster_id": None, "suggested": False,
            "others": (),
            "reason": Reason.SAID_ELSEWHERE if is_same else Reason.SAYS_OTHERWISE,
            "sentence": f"The binding {other_key}{where} {says}",
        }), other))  # fmt: skip
    return found


def _parts(record: Record) -> Iterator[Record]:
    """Yield each paragraph or list item of a record, its lines and its sentences as a record each.

    A line that goes on in lower case is none by itself. `key: value` is a fact without a topic.
    """
    ends = [one.start() for one in re.finditer("\n", record.text)]
    for block in _BLOCK.finditer(record.text):
        found = {" ".join(part[0].split()): bisect(ends, block.start(1) + part.start())
                 for pattern in _PARTS for part in pattern.finditer(block[1])}  # fmt: skip
        for text, number in found.items():
            at = record.location and Location(path=record.location.path,
                                              line=record.location.line + number)  # fmt: skip
            sort = {"kind": FACT, "topic": None} if pair_of(text) else {}
            yield record.model_copy(update={"text": text, "location": at, **sort})


def misleading(texts: Iterable[str]) -> Iterator[str]:
    """Yield in what ways texts mislead a model, in sentences.

    These are an instruction, hidden characters, and a flood of the same words.
    """
    texts = list(texts)
    if order := next(filter(None, map(order_in, texts)), None):
        yield f"It reads like an instruction to the model: {_quoted(order)}."
    if hidden := sum(map(hidden_in, texts)):
        characters = "1 character" if hidden == 1 else f"{hidden:,} characters"
        yield f"It has {characters} that people do not see and models read."
    for words in map(str.split, texts):
        if len(words) >= _FLOOD and len(set(words)) * _FLOOD <= len(words) * _FEW:
            yield f"It repeats the same few words, {len(words):,} in all."


def is_risk(candidate: PruneCandidate) -> bool:
    """Whether a candidate is one because something is wrong with it."""
    return candidate.reason in RISKS


def unread_since(record: Record, counted_since: datetime | None) -> datetime | None:
    """Return from when a record without a retrieval is unread; None: for as long as it can be.

    Retrievals before `counted_since` are not known, so the time before does not count.
    """
    times = (record.created_at or record.updated_at, counted_since)
    return max((one for one in times if one is not None), default=None)


class Repeats:
    """Finds records that repeat another; the result is cached while the records are the same."""

    def __init__(self) -> None:
        self._known: tuple[int, frozenset[RecordHandle]] = hash(()), frozenset()

    def among(
        self,
        records: Iterable[Record],
        *,
        now: datetime,
        retrievals: Mapping[RecordHandle, RetrievalTally],
        vectors: Vectors | None = None,
    ) -> frozenset[RecordHandle]:
        """Return the handles that `find_candidates` would report as repeating another record."""
        search = _Search(now, len, lambda _text: (), retrievals, PruneRules())
        alive = search.alive(search.current(records))
        looked_at = hash(search.items(alive))
        known, found = self._known
        if looked_at != known:
            found = frozenset(one.record.handle for one in search.duplicates(alive, vectors))
            self._known = looked_at, found
        return found


_LIKE = {
    Likeness.EXACT: Reason.EXACT_DUPLICATE,
    Likeness.NEAR: Reason.NEAR_DUPLICATE,
    Likeness.MEANING: Reason.SAME_MEANING,
}
REPEATS = frozenset(_LIKE.values())
"""The reasons that mean a record repeats another."""
_SAFE = frozenset(
    {
        Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE, Reason.EXPIRED, Reason.CONTRADICTED,
        Reason.FORGOTTEN_BEFORE,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Search:
    now: datetime
    tokens_of: Callable[[str], int]
    secrets_of: Callable[[str], Sequence[str]]
    retrievals: Mapping[RecordHandle, RetrievalTally] | None
    rules: PruneRules
    counted_since: datetime | None = None

    def _found(
        self,
        record: Record,
        reason: Reason,
        sentence: str,
        *,
        cluster_id: str | None = None,
        survivor: Record | None = None,
        others: tuple[RecordHandle, ...] = (),
    ) -> PruneCandidate:
        return PruneCandidate(
            record=record,
            reason=reason,
            sentence=sentence,
            cluster_id=cluster_id,
            survivor=survivor.handle if survivor else None,
            others=(survivor.handle,) if survivor else others,
            tokens_saved=0 if self.expired(record) else self.tokens_of(record.text),
            suggested=reason in _SAFE and not record.pinned,
        )

    def current(self, records: Iterable[Record]) -> list[Record]:
        """Return the records whose validity window has not closed."""
        return [one for one in records if one.valid_to is None or one.valid_to > self.now]

    def alive(self, records: Iterable[Record]) -> list[Record]:
        return [one for one in records if not self.expired(one)]

    def expired(self, record: Record) -> bool:
        return record.expires_at is not None and record.expires_at <= self.now

    def of_one(self, records: Iterable[Record]) -> Iterator[PruneCandidate]:
        """Yield the candidates for which no other record is needed: expiry, text, use."""
        most = self.rules.max_characters
        for record in records:
            if self.expired(record):
                sentence = f"It expired on {record.expires_at:%Y-%m-%d %H:%M} UTC."
                yield self._found(record, Reason.EXPIRED, sentence)
            size = len(record.text)
            if record.kind == "fact" and size > most:
                sentence = f"It has {size:,} characters; a fact has at most {most:,}."
                yield self._found(record, Reason.TOO_LONG, sentence)
            yield from self.of_text(record)
            if self.retrievals is not None:
                use = self.retrievals.get(record.handle, RetrievalTally())
                yield from self._of_use(record, use)

    def of_text(self, record: Record) -> Iterator[PruneCandidate]:
        """Yield the candidates by a record's own texts."""
        if secrets := self.secrets_of(record.text):
            sentence = f"It contains a secret in clear text: {', '.join(dict.fromkeys(secrets))}."
            yield self._found(record, Reason.HOLDS_SECRET, sentence)
        if taken_out := dict.fromkeys(_TAKEN_OUT.findall(record.text)):
            sentence = f"A secret was redacted in it: {', '.join(taken_out)}."
            yield self._found(record, Reason.REDACTED, sentence)
        for sentence in misleading((record.text, *texts_beside(record), *names_beside(record))):
            yield self._found(record, Reason.POISONED, sentence)

    def _of_use(self, record: Record, use: RetrievalTally) -> Iterator[PruneCandidate]:
        made, rules = record.created_at, self.rules
        if use.not_helped > use.helped:
            words = f"It was marked as not helpful {times(use.not_helped)}"
            sentence = (
                f"{words}, and as helpful {times(use.helped)}." if use.helped else f"{words}."
            )
            yield self._found(record, Reason.DID_NOT_HELP, sentence)
        if use.count:
            if use.last_at is not None and self.now - use.last_at >= timedelta(rules.stale_days):
                days = (self.now - use.last_at).days
                sentence = f"No query has returned it for {days:,} days."
                yield self._found(record, Reason.STALE, sentence)
            return
        since = unread_since(record, self.counted_since)
        if since is not None and self.now - since < timedelta(rules.unread_days):
            return
        began = {made: "it was made", self.counted_since: "memtui began to count"}.get(since)
        when = f" since {began} on {since:%Y-%m-%d}" if began and since else ""
        yield self._found(record, Reason.NEVER_READ, f"No query has returned it{when}.")
        if (tokens := self.tokens_of(record.text)) >= rules.costly_tokens:
            sentence = f"It costs {tokens:,} tokens in every prompt that it is part of."
            yield self._found(record, Reason.COSTLY, sentence)

    def items(self, records: Iterable[Record]) -> tuple[Item, ...]:
        """Return the records as items to cluster, with every field that clustering depends on."""
        return tuple(
            Item(
                id=_id(record),
                text=record.text,
                group=owner_key(record),
                pinned=record.pinned,
                reads=(self.retrievals or {}).get(record.handle, RetrievalTally()).count,
                at=record.updated_at or record.created_at,
            )
            for record in records
        )

    def duplicates(
        self, records: Sequence[Record], vectors: Vectors | None
    ) -> Iterator[PruneCandidate]:
        by_id = {_id(record): record for record in records}
        items = self.items(by_id.values())
        for cluster in find_clusters(items, vectors=vectors, threshold=self.rules.likeness):
            survivor = by_id[cluster.survivor.id]
            for duplicate in cluster.duplicates:
                yield self._found(
                    by_id[duplicate.item.id],
                    _LIKE[duplicate.match.likeness],
                    f"{duplicate.match.sentence} {_quoted(survivor.text)} stays. "
                    f"{cluster.why_survivor}",
                    cluster_id=cluster.id,
                    survivor=survivor,
                )

    def contradicted(self, records: Sequence[Record]) -> Iterator[PruneCandidate]:
        """Yield each fact `key: value` whose key has another value in a newer fact (seed 002 §7).

        Keys are compared within an owner and a topic, the facts file's heading. A fact without a
        time, or of the same time as the newest, is skipped: nobody knows which of them holds. The
        same words in another order are a duplicate, not a contradiction; else both facts could be
        forgotten. A fact without a topic is compared with those of every topic, as
        `SAYS_OTHERWISE`.
        """
        of_key = defaultdict[tuple[str, str], dict[str, list[_Dated]]](lambda: defaultdict(list))
        for record in records:
            match = _PAIR.match(record.text) if record.kind == "fact" else None
            key = match[1].casefold() if match else None
            at = record.valid_from or record.updated_at or record.created_at
            if key and key not in LABELS and at is not None:
                of_topic = of_key[owner_key(record), key][(record.topic or "").casefold()]
                of_topic.append((at, record.handle.provider_record_id, record))
        for topics in of_key.values():
            for facts in topics.values():
                yield from self._outdone(facts, facts, Reason.CONTRADICTED, "")
            plain = topics.pop("", [])
            filed = [one for facts in topics.values() for one in facts]
            for facts, others in ((plain, filed), (filed, plain)):
                yield from self._outdone(facts, others, Reason.SAYS_OTHERWISE, ", filed elsewhere,")

    def _outdone(
        self, facts: Sequence[_Dated], others: Sequence[_Dated], reason: Reason, where: str
    ) -> Iterator[PruneCandidate]:
        """Yield the facts of a key of which the newest of others has another value."""
        for newest_at, _, newest in sorted(others, key=lambda fact: fact[:2])[-1:]:
            holds = form_of(newest.text)
            sentence = f"A newer fact with the same key{where} says {_quoted(newest.text)}."
            for at, _, record in facts:
                if at < newest_at and compare(form_of(record.text), holds) is None:
                    yield self._found(record, reason, sentence, survivor=newest)

    def otherwise(self, records: Sequence[Record]) -> Iterator[PruneCandidate]:
        """Yield each text that a later one of the same owner contradicts.

        Two facts with a key are left to `contradicted`; a fact and a note are compared, whichever
        is newer.
        """
        dated = [
            (at, _id(record), record)
            for record in records
            if (at := record.valid_from or record.updated_at or record.created_at) is not None
        ]
        facts: dict[tuple[str, str], list[_Said]] = defaultdict(list)
        notes: list[tuple[str, _Said]] = []
        for at, _, record in sorted(dated, key=lambda one: one[:2], reverse=True):
            scope, said = owner_key(record), (at, Claim(stated(record)), record)
            if said[1].fact is None or record.kind != FACT:
                notes.append((scope, said))
                continue
            for place in (facts[scope, key] for key in said[1].keys):
                if len(place) < _BUCKET:
                    place.append(said)
        later: dict[tuple[str, str], list[_Said]] = defaultdict(list)
        found: dict[tuple[RecordHandle, str], PruneCandidate] = {}
        for scope, said in notes:
            keyed = [facts[scope, key] for key in said[1].keys if (scope, key) in facts]
            places = [later[scope, key] for key in topic_keys(said[1])]
            for other in (one for place in (*keyed, *places) for one in place):
                self._compare(said, other, found)
            for place in places:
                if len(place) < _BUCKET:
                    place.append(said)
        yield from found.values()

    def _compare(
        self, said: _Said, other: _Said, found: dict[tuple[RecordHandle, str], PruneCandidate]
    ) -> None:
        """Add the older of two records if the newer contradicts it, once for each binding."""
        older, newer = (said, other) if said[0] < other[0] else (other, said)
        place = older[2].handle, newer[2].handle.provider_key
        if older[0] == newer[0] or place in found:
            return
        if (how := otherwise(older[1], newer[1])) is not None:
            sentence = f"A later record {how}: {_quoted(newer[2].text)}."
            found[place] = self._found(older[2], Reason.SAYS_OTHERWISE, sentence, survivor=newer[2])

    def forgotten(
        self, records: Sequence[Record], texts: Mapping[str, datetime]
    ) -> Iterator[PruneCandidate]:
        index = DuplicateIndex()
        known = sorted(texts, key=lambda text: (texts[text], text))
        for text in known:
            index.add(form_of(text))
        for record in records if known else ():
            found = index.find(form_of(record.text))
            if found is None or record.created_at is None:
                continue
            text = known[found[0]]
            if record.created_at > texts[text]:
                sentence = f"You deleted {_quoted(text)} before."
                yield self._found(record, Reason.FORGOTTEN_BEFORE, sentence)

    def outdated(self, records: Iterable[Record], why: WhyOutdated) -> Iterator[PruneCandidate]:
        """Yield the records for which their workspace gives a reason."""
        for record in records:
            for reason, sentence in why(record.handle):
                yield self._found(record, reason, sentence)

    def showing(
        self, records: Sequence[Record], patterns: Iterable[Pattern]
    ) -> Iterator[PruneCandidate]:
        """Yield the records whose changes show a pattern."""
        known = {record.handle: record for record in records}
        for pattern in patterns:
            handles = tuple(dict.fromkeys(one.record.handle for one in pattern.versions))
            for handle in handles:
                if handle in known:
                    others = tuple(one for one in handles if one != handle)
                    reason = Reason(pattern.kind.value)
                    yield self._found(known[handle], reason, pattern.sentence, others=others)


def owner_key(record: Record) -> str:
    """Return the key of a record's owner and subject, whichever agent wrote it."""
    scope = record.scope
    parts = (scope.company_id, *owner_of(scope), scope.subject_id or "")
    return "\x1f".join(parts)


def _id(record: Record) -> str:
    return f"{record.handle.provider_key}\x1f{record.handle.provider_record_id}"


def times(count: int) -> str:
    """Return how often something happened: `once`, `1,200 times`."""
    return "once" if count == 1 else f"{count:,} times"


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= _QUOTED else line[: _QUOTED - 1] + '…'}”"
