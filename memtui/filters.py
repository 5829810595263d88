"""Parses and formats filter lines: `agent:bob,eve -type:query since:7d cost>0.01 word`."""

import difflib
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from memtui.contract import (
    MOST_OF_A_USE,
    RISK_STATES,
    RISKS,
    RISKS_BY_SEVERITY,
    Comparison,
    Filter,
    Invalid,
    Measure,
    Term,
    Use,
    UseTest,
)
from memtui.fuzzy import MOST_CHARACTERS
from memtui.patterns import late_pattern
from memtui.wording import misfit, unknown

FIELDS: dict[str, str] = {
    "agent": "agent_id",
    "project": "project_id",
    "issue": "issue_id",
    "comment": "comment_id",
    "run": "run_id",
    "subject": "subject_id",
    "source": "source_kind",
    "type": "operation_type",
    "status": "status",
    "since": "since",
    "until": "until",
    "topic": "topic",
    "tag": "tag",
    "kind": "kind",
    "binding": "binding_key",
    "channel": "channel",
    "by": "principal",
}
"""Words before a colon, and the `Filter` field that each sets."""
WORD_OF = {field: word for word, field in FIELDS.items()} | {"subject_id": "user"}
"""Name of each field on screens and in written filters."""
_KINDS = ("user", "agent", "plugin")
"""Prefixes of principals."""
_ALSO = {"user": "subject"}
"""Aliases of words before a colon."""
_OUTCOMES = {"failed": "error", "held for review": "pending", "unknown outcome": "unknown"}
"""Names of statuses on screens."""
_IN_OUTCOMES = {shown.split()[1] for shown in _OUTCOMES if " " in shown}
"""Second words of the outcomes that have several."""

MEASURES: dict[str, Measure] = {one.value: one for one in Measure} | {"took": Measure.LATENCY}
"""Words before `<`, `<=`, `=`, `>=` or `>`, and the measure that each compares."""


USES: dict[str, Use] = {one.value: one for one in Use} | {"stale": Use.READ}
"""Words before a colon that filter by a record's usage."""
RISK_WORDS: dict[str, tuple[str, ...]] = {
    "secret": ("holds_secret",),
    "order": ("poisoned",),
    "hidden": ("poisoned",),
    "gone": ("refers_to_gone",),
    "contradiction": ("contradicted", "says_otherwise"),
    "duplicate": RISKS_BY_SEVERITY["doubled"],
    **RISKS_BY_SEVERITY,
    **{one: (one,) for one in (*RISKS, *RISK_STATES)},
}
"""Values of `risk:`, and the risks or states that each stands for."""


class FilterTarget(StrEnum):
    """The objects that a filter can narrow, by their names in messages."""

    OPERATIONS = "operations"
    RECORDS = "records"
    FACTS = "facts"
    BUDGET = "the facts of a context"
    QUESTIONS = "a question"


_WORDS = {"text", "fuzzy"}
_OWNERS = {"agent_id", "project_id", "subject_id"}
_WORK = {"issue_id", "comment_id", "run_id", "source_kind"}
_TIME = {"since", "until"}
_LOGGED = {"operation_type", "status", "channel", "principal"}
_OF_OPERATIONS = {"binding_key", "comparisons", "alternatives", "internal", Use.RISK}
_OF_RECORDS = {"topic", "tag", "binding_key", "alternatives", *Use}
SUPPORTED: dict[FilterTarget, frozenset[str]] = {
    FilterTarget.OPERATIONS: frozenset(_WORDS | _OWNERS | _WORK | _TIME | _LOGGED | _OF_OPERATIONS),
    FilterTarget.RECORDS: frozenset(_WORDS | _OWNERS | _WORK | _TIME | _OF_RECORDS | {"kind"}),
    FilterTarget.FACTS: frozenset(_WORDS | _OWNERS | _WORK | _TIME | _OF_RECORDS),
    FilterTarget.BUDGET: frozenset(
        _WORDS | _OWNERS | _TIME | {"kind", "principal", "binding_key", *Use}
    ),
    FilterTarget.QUESTIONS: frozenset(
        _OWNERS | _WORK | _TIME | {"fuzzy", "topic", "tag", "kind", "binding_key", Use.RISK}
    ),
}
"""The `Filter` fields and the uses of records that each target supports; defined only here."""


_CHOOSES: dict[FilterTarget, frozenset[str]] = {
    FilterTarget.FACTS: frozenset({"binding_key"}),
    FilterTarget.BUDGET: frozenset({"binding_key"} | _OWNERS),
}
"""The fields of which a target takes one value, since they choose its data: no terms."""


def supported_by(chosen: Filter, target: FilterTarget) -> Filter:
    """Return the part of a filter that a target supports."""
    supported = SUPPORTED[target]
    if _unsupported_beside_or(chosen, target):
        supported -= {"alternatives"}
    own = {name: getattr(chosen, name) for name in supported if name in chosen.model_fields_set}
    return Filter(
        **own,
        terms=tuple(one for one in chosen.terms if _holds(target, one)),
        uses=tuple(one for one in chosen.uses if one.use in supported),
    )


def _holds(target: FilterTarget, term: Term) -> bool:
    return term.field in SUPPORTED[target] - _CHOOSES.get(target, frozenset())


def unsupported(chosen: Filter, target: FilterTarget) -> list[str]:
    """Return the terms of a filter, as written, that a target does not support."""
    supported = SUPPORTED[target]
    terms = [
        f"{word}:"
        for field, word in WORD_OF.items()
        if field not in supported and getattr(chosen, field) is not None
    ]
    if "comparisons" not in supported:
        terms.extend(dict.fromkeys(one.measure.value for one in chosen.comparisons))
    terms.extend(dict.fromkeys(f"{one.use}:" for one in chosen.uses if one.use not in supported))
    if "text" not in supported and chosen.text:
        terms.append("words")
    if "fuzzy" not in supported and chosen.fuzzy:
        terms.append("~words")
    terms.extend(_written(one) for one in chosen.terms if not _holds(target, one))
    return [*terms, *_unsupported_beside_or(chosen, target)]


def _unsupported_beside_or(chosen: Filter, target: FilterTarget) -> list[str]:
    """Return what a target does not support in the alternatives of a filter.

    A condition on a binding or a use of records is none of a single record.
    """
    if chosen.alternatives and "alternatives" not in SUPPORTED[target]:
        return ["or"]
    found = [term for one in chosen.alternatives for term in unsupported(one, target)]
    if target is not FilterTarget.OPERATIONS:
        for one in chosen.alternatives:
            names = [test.field for test in one.field_tests() if test.field == "binding_key"]
            words = [*map(WORD_OF.__getitem__, names), *(str(test.use) for test in one.uses)]
            found += [f"{word}: beside “or”" for word in words]
    return list(dict.fromkeys(found))


def refuse_unsupported(chosen: Filter, target: FilterTarget) -> None:
    """Refuse a filter of which the target would ignore a part.

    Raises:
        Invalid: the target does not support some of its terms.
    """
    idle = unsupported(chosen, target)
    if target is FilterTarget.QUESTIONS and "words" in idle:
        raise Invalid(
            'words cannot narrow a query; put the whole query in quotes, such as "which branch do '
            'we deploy".'
        )
    if idle:
        supported = [f"{word}:" for field, word in WORD_OF.items() if field in SUPPORTED[target]]
        supported += [f"{word}:" for word, use in USES.items() if use in SUPPORTED[target]]
        named = {one.partition(" ")[0] for one in idle}  # such as `read: beside “or”`
        supported = [one for one in supported if one not in named]
        one = [f"{WORD_OF[field]}:" for field in WORD_OF if field in _CHOOSES.get(target, ())]
        only = (
            f" {' '.join(one)} {'takes' if len(one) == 1 else 'each take'} one value."
            if one
            else ""
        )
        is_counted = "cost" in idle and Use.COST in SUPPORTED[target]
        tokens = " Tokens are cost:>20." if is_counted else ""
        raise Invalid(
            f"{' and '.join(idle)} cannot narrow {target}; remove it.{tokens} These can: "
            f"{' '.join(supported)} and {'' if 'text' in SUPPORTED[target] else '~'}words.{only}"
        )


def names_bindings(chosen: Filter) -> bool:
    """Whether the filter selects bindings without naming one; then all are queried."""
    return chosen.binding_key is None and any(one.field == "binding_key" for one in chosen.terms)


def asked_with(chosen: Filter) -> dict[str, Any]:
    """Return the query arguments of a filter: its topic ranks higher, the rest is required."""
    own = ("topic", "binding_key")
    narrowing = supported_by(chosen, FilterTarget.QUESTIONS).model_copy(update=dict.fromkeys(own))
    return {"filter": narrowing, **{name: getattr(chosen, name) for name in own}}


_TERM = late_pattern(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)
_PART = late_pattern(r"""(?:[^,"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)
"""A value between commas."""
_FIELD = late_pattern(r"([A-Za-z]+):(.*)", re.DOTALL)
_NUMBERED = ("run", "issue", "comment")
"""Names of sources on screens, which a number follows."""
_NUMBER = late_pattern(r"[\w.]*\d[\w.-]*|\w[\w.-]*-\d+")
_COMPARED = late_pattern(r"([a-z]+)(<=|>=|<|>|=)(.*)", re.DOTALL)
_AMOUNT = late_pattern(r"\$?(-?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20}))(ms|s|min|h)?")
_EXAMPLES = {
    Measure.COST: "cost>0.01",
    Measure.LATENCY: "latency>200 or took>2s",
    Measure.TOKENS: "tokens>1000",
    Measure.RESULTS: "results=0",
    Measure.SCORE: "score<0.3",
}
_MILLISECONDS = {None: 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}
_SEQ = late_pattern(r"#\d{1,18}")
"""Names of operations on screens."""
_CLOCK = late_pattern(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_SPAN = late_pattern(r"(\d{1,6}) ?(s|min|h|d|w|mo?|y)(?: ago)?")
_SPAN_UNITS = {
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}
_UNIT_WORDS = {
    "second": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "week": "w",
    "month": "m",
    "year": "y",
}
_WORDED_SPAN = late_pattern(rf"(an?|\d{{1,6}}) ({'|'.join(_UNIT_WORDS)})s? ago")
_DAYS_BACK = {"today": 0, "yesterday": 1}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = late_pattern(rf"(?P<back>today|yesterday)|last (?P<weekday>{'|'.join(_WEEKDAYS)})")
_SPAN_AHEAD = late_pattern(rf"in (an?|\d{{1,6}}) ({'|'.join(_UNIT_WORDS)})s?")
_DAY_AHEAD = late_pattern(rf"tomorrow|next (?P<weekday>week|{'|'.join(_WEEKDAYS)})")


def parse_filter(line: str, *, now: datetime, zone: tzinfo = UTC) -> Filter:
    """Parse a filter line; terms that are not fields become the text to search.

    `agent:bob,eve` matches either; `-` before a field, a word or a fuzzy word excludes matches.
    A value with spaces or a comma is quoted: `project:"mech fighters"`. A quoted word is never a
    field, nor is a URL, nor a word that ends in a colon and names no field. `or`
    separates alternatives, each with all terms up to the next. `cost>0.01` compares
    (`MEASURES`); a duration is in milliseconds or has a unit: `latency>200`, `took>2s`.
    `~word` is a fuzzy word (`memtui.fuzzy`); `~/notes` is a path.

    Raises:
        Invalid: an unknown field, a bad value, or an unclosed quote.
    """
    if _TERM.sub("", line).strip():
        raise Invalid("The filter has an unclosed quote; close it or take it out.")
    written = _TERM.findall(line)
    parts: list[Filter] = []
    for terms in _alternatives(list(_sources(written))):
        found = _Line(now, zone)
        for term in terms:
            found.take(term)
        parts.append(found.filter())
    return parts[0] if len(parts) == 1 else build_filter(alternatives=tuple(parts))


def _sources(written: Sequence[str]) -> Iterator[str]:
    """Yield the terms of a line, joining words that screens write with spaces into one term.

    These are a source (`run 4411`, whose id may be `run-4411`; `issue 31`; `ISS-31 comment 2`), an
    outcome (`status:held for review`), and a duration before its unit (`took>2 s`).
    """
    place = 0
    while place < len(written):
        term, word, number = (*written[place : place + 3], "", "")[:3]
        if term in _NUMBERED and _NUMBER.fullmatch(word):
            yield f"issue:{word}" if term == "issue" else f"{term}:{word},{term}-{word}"
            place += 1
        elif word == "comment" and _NUMBER.fullmatch(term) and _NUMBER.fullmatch(number):
            yield f"issue:{term}"
        elif word in _MILLISECONDS and _lacks_unit(term):
            yield term + word
            place += 1
        else:
            outcome, words = _with_outcome(term, written[place + 1 :])
            yield outcome
            place += words
        place += 1


def _with_outcome(term: str, following: Sequence[str]) -> tuple[str, int]:
    """Return a term, with its outcome completed, and the number of following words used."""
    for shown, status in _OUTCOMES.items():
        first, *others = shown.split()
        begins = re.fullmatch(rf"(-?status:(?:.*,)?){first}", term, re.IGNORECASE)
        if others and begins and [one.lower() for one in following[: len(others)]] == others:
            return begins[1] + status, len(others)
    return term, 0


def _lacks_unit(term: str) -> bool:
    """Whether a term compares a duration with a number that has no unit."""
    match = _COMPARED.fullmatch(term)
    if match is None or MEASURES.get(match[1]) is not Measure.LATENCY:
        return False
    amount = _AMOUNT.fullmatch(match[3])
    return amount is not None and amount[2] is None


class _Line:
    """Collects the terms of a line, one by one, into a filter."""

    def __init__(self, now: datetime, zone: tzinfo) -> None:
        self.now, self.zone = now, zone
        self.moments: dict[str, datetime] = {}
        self.values: dict[str, list[str]] = {}
        self.excluded: dict[str, list[str]] = defaultdict(list)
        self.words: list[str] = []
        self.fuzzy: list[str] = []
        self.compared: dict[Comparison, None] = {}
        self.uses: dict[UseTest, None] = {}

    def take(self, written: str) -> None:
        """Add one term."""
        out = _excludes(written)
        term = written[out:]
        if (comparison := _comparison(term)) is not None:
            if out:
                raise Invalid(
                    f"{written} cannot be excluded; remove the - and turn its sign round."
                )
            self.compared[comparison] = None
        elif term.startswith("~") and not term.startswith("~/"):
            (self.excluded["fuzzy"] if out else self.fuzzy).append(_fuzzy_word(_unquoted(term[1:])))
        elif (field := _field(term)) is not None and field[0] in USES:
            self.uses[_use(*field, out=out)] = None
        elif field is not None:
            self._take_field(*field, out=out)
        else:
            self._take_word(_unquoted(term), out=out)

    def _take_word(self, word: str, *, out: bool) -> None:
        if out and not word:
            raise Invalid("- needs a word or a field after it, such as -draft or -type:query.")
        (self.excluded["text"] if out else self.words).append(word)

    def _take_field(self, name: str, written: str, *, out: bool) -> None:
        if name not in FIELDS:
            known = [f"{one}:" for one in (*FIELDS, *USES)]
            raise Invalid(unknown("filter field", name, known))
        into, taken = FIELDS[name], _values(name, written)
        if into in _TIME:
            self._take_moment(name, taken, out=out)
            return
        for value in taken:
            build_filter(**{into: value})
        if out:
            self.excluded[into] += taken
        elif self.values.setdefault(into, taken) != taken:
            both = f"{name}:{','.join(as_written(name, self.values[into] + taken))}"
            raise Invalid(
                f"The filter gives {name}: twice, and nothing can be both; {both} lets either "
                "through."
            )

    def _take_moment(self, name: str, taken: Sequence[str], *, out: bool) -> None:
        if out or len(taken) > 1:
            other = "until" if name == "since" else "since"
            raise Invalid(f"{name}: takes one time and no -; use {other}: for the other side.")
        moment = parse_when(taken[0], now=self.now, zone=self.zone)
        if self.moments.setdefault(name, moment) != moment:
            raise Invalid(f"The filter gives {name}: twice; take one out.")

    def filter(self) -> Filter:
        """Return the filter of all terms taken so far."""
        single = {name: one[0] for name, one in self.values.items() if len(one) == 1}
        several = [(name, one, False) for name, one in self.values.items() if len(one) > 1]
        several += [(name, one, True) for name, one in self.excluded.items()]
        return build_filter(
            **single,
            **self.moments,
            text=" ".join(" ".join(self.words).split()) or None,
            fuzzy=tuple(self.fuzzy),
            comparisons=tuple(self.compared),
            uses=tuple(self.uses),
            terms=tuple(
                Term.model_validate({"field": name, "values": tuple(one), "excluded": out})
                for name, one, out in several
            ),
        )


_ASKED = late_pattern(r"(<=|>=|<|>)(\d{1,9})(s|min|h|d|w|m|y)?")
_USE_EXAMPLES = {
    Use.READ: "read:never, read:<30d or read:>30d",
    Use.COST: "cost:>20, which are tokens; dollars are cost>0.01",
    Use.DUP: "dup:yes or dup:no",
}


def _use(name: str, written: str, *, out: bool) -> UseTest:
    """Return the usage condition of a term."""
    use, value = USES[name], _unquoted(written)
    if use is Use.RISK:
        named = [one.casefold() for one in _values(name, written)]
        if stray := next((one for one in named if one not in RISK_WORDS), None):
            raise Invalid(unknown("risk", stray, RISK_WORDS))
        among = dict.fromkeys(one for word in named for one in RISK_WORDS[word])
        return UseTest(use=use, among=tuple(among), excluded=out)
    if (use, value) == (Use.READ, "never") and name != "stale":
        return UseTest(use=use, excluded=out)
    if use is Use.DUP and value in {"yes", "no"}:
        return UseTest(use=use, excluded=out != (value == "no"))
    asked = _ASKED.fullmatch(value)
    if asked is not None and use is Use.COST and asked[3] is None:
        sign, number = asked[1], int(asked[2])
    elif asked is not None and use is Use.READ and asked[3] and asked[1] in {"<", ">"}:
        sign, number = asked[1], int(asked[2]) * int(_SPAN_UNITS[asked[3]].total_seconds())
    else:
        example = "stale:>30d" if name == "stale" else _USE_EXAMPLES[use]
        raise Invalid(f"{name}:{written} does not fit; write {example}.")
    if number > MOST_OF_A_USE:
        raise Invalid(f"{name}:{written} is beyond the 300 years that can be asked for.")
    return UseTest.model_validate({"use": use, "sign": sign, "value": number, "excluded": out})


def _excludes(written: str) -> bool:
    """Whether a term excludes: `-x`, but neither `-` nor `--x`."""
    return written.startswith("-") and written[1:2] not in {"", "-"}


def _values(name: str, written: str) -> list[str]:
    """Return the values separated by commas outside of quotes, each once."""
    parts, commas = _PART.findall(written), _PART.sub("", written)
    values = [value for part in parts for value in _meant(name, part)]
    if len(parts) <= len(commas) or not all(values):
        where = " before and after each comma" if commas else ""
        raise Invalid(f"The filter field {name}: needs a value{where}.")
    return list(dict.fromkeys(values))


def _meant(name: str, part: str) -> tuple[str, ...]:
    """Return the field values that a written value stands for.

    `status:failed`, the screens' name, is `status:error`. `by:ana` is any kind of principal of that
    name, and `by:agent` every agent; a quoted name is taken literally.
    """
    value = _unquoted(part)
    if name == "status":
        return (_OUTCOMES.get(value.lower(), value),)
    if name == "by" and value and value == part and ":" not in value:
        return (f"{value}:",) if value in _KINDS else (value, f"user:{value}", f"agent:{value}")
    return (value,)


def _alternatives(terms: Sequence[str]) -> list[list[str]]:
    """Return the terms of a line, parted at each `or`; at an end of plain words it is a word.

    Raises:
        Invalid: an `or` has nothing on one side, or a term is joined or excluded in another way.
    """
    found: list[list[str]] = [[]]
    for before, term, following in zip(["", *terms], terms, [*terms[1:], ""], strict=False):
        word, joins = term.lower(), _is_term(following) or _is_term(before)
        if word == "or" and (joins or (before and following)):
            found.append([])
            continue
        if following and ((word == "not" and _is_term(following)) or (word == "and" and joins)):
            raise Invalid(
                f"All terms of a filter must hold: remove “{term}”, or quote it to search for the "
                "word. -type:query excludes, and “or” lets either side through."
            )
        if term[0] == "!" and _is_term(term[1:]):
            raise Invalid(f"A term is excluded by a - before it: -{term[1:]}.")
        found[-1].append(term)
    if len(found) > 1 and not all(found):
        raise Invalid("“or” needs a term on both sides; quote it to search for the word.")
    return found


def _is_term(term: str) -> bool:
    """Whether a term has a field, a comparison or a sign, so that it is no plain word."""
    if _excludes(term) or (term.startswith("~") and not term.startswith("~/")):
        return True
    if (field := _field(term)) is not None:
        return field[0] in FIELDS or field[0] in USES
    compared = _COMPARED.fullmatch(term)
    return compared is not None and compared[1] in MEASURES


def _fuzzy_word(word: str) -> str:
    if not word:
        raise Invalid(
            "~ needs a word after it, such as ~deploy; quote it to search for the sign itself."
        )
    if len(word) > MOST_CHARACTERS:
        raise Invalid(
            f"A fuzzy word has at most {MOST_CHARACTERS} characters; remove the ~ to search for "
            f"{word[:20]}… as it is."
        )
    return word


def _comparison(term: str) -> Comparison | None:
    """Return a term's comparison; None: the term is no comparison."""
    match = _COMPARED.fullmatch(term)
    if match is None:
        return None
    name, sign, written = match[1], match[2], _unquoted(match[3])
    amount = _AMOUNT.fullmatch(written)
    if name not in MEASURES:
        near = difflib.get_close_matches(name, MEASURES, n=1, cutoff=0.75)
        if near and amount is not None:
            raise Invalid(f"{name} cannot be compared; did you mean {near[0]}{sign}?")
        return None
    measure = MEASURES[name]
    if amount is None or (amount[2] and measure is not Measure.LATENCY):
        raise Invalid(
            f"{name}{sign} needs a number, such as {_EXAMPLES[measure]}; quote it to search for it "
            "as a word."
        )
    value = Decimal(amount[1]) * _MILLISECONDS[amount[2]]
    try:
        return Comparison.model_validate({"measure": measure, "sign": sign, "value": value})
    except ValidationError as error:
        why = misfit(error.errors()[0])
        raise Invalid(f"The filter {name}{sign}{written} does not fit: {why}.") from error


def _field(term: str) -> tuple[str, str] | None:
    """Return the field that a term names, in any case, and the value; None for a word.

    An unknown name before a colon is a misspelt field if it is in lower case (`agnt:a`), and
    otherwise a part of a word (`Error:x`).
    """
    match = _FIELD.fullmatch(term)
    if match is None:
        return None
    name, value = _ALSO.get(match[1].lower(), match[1].lower()), match[2]
    if name in FIELDS or name in USES:
        return name, value
    return None if name != match[1] or not value or value.startswith("//") else (name, value)


def _unquoted(term: str) -> str:
    return "".join(shlex.split(term))


_MOST_SHOWN = 60


def build_filter(**values: object) -> Filter:
    """Return a `Filter` of these values; None leaves a field unset.

    Raises:
        Invalid: a field does not take its value; the message suggests a similar one.
    """
    try:
        return Filter.model_validate(
            {name: value for name, value in values.items() if value is not None}
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        word = WORD_OF.get(field, field)
        near = difflib.get_close_matches(str(first["input"]), _expected(first), n=1)
        if near:
            raise Invalid(
                f"There is no {word} {first['input']}; did you mean {word}:{near[0]}?"
            ) from error
        given = repr(first["input"])
        given = given if len(given) <= _MOST_SHOWN else f"{given[:_MOST_SHOWN]}…'"
        raise Invalid(
            f"The filter value {given} for {word} does not fit: {misfit(first)}."
        ) from error


def _expected(found: Mapping[str, Any]) -> list[str]:
    """Return the values that a field takes; empty if it takes any."""
    return re.findall(r"'([^']*)'", str(found.get("ctx", {}).get("expected", "")))


def taken_for_words(chosen: Filter) -> Iterator[str]:
    """Yield a notice for each word that may have been meant as a time or an operation."""
    for one in chosen.alternatives:
        yield from taken_for_words(one)
    for word in (chosen.text or "").split():
        if _SEQ.fullmatch(word):
            yield (
                f"{word} is searched for as a word; `memtui ops show {word[1:]}` shows the "
                "operation."
            )
        if word.lower() in _DAYS_BACK or _SPAN.fullmatch(word):
            yield f"{word} is searched for as a word; since:{word} filters by time."


def format_filter(chosen: Filter, zone: tzinfo | None = None) -> str:
    """Return the filter line that parses to `chosen`; a `zone` shortens its times."""
    terms = []
    for name, word in WORD_OF.items():
        value = getattr(chosen, name)
        if isinstance(value, datetime):
            terms.append(f"{word}:{shlex.quote(_moment(value, zone))}")
        elif value is not None:
            terms.append(f"{word}:{written_value(word, str(value))}")
        terms.extend(_written(one) for one in chosen.terms if one.field == name)
    terms.extend(f"{one.measure}{one.sign}{one.value:f}" for one in chosen.comparisons)
    terms.extend(map(_written_use, chosen.uses))
    terms.extend(_quoted_word(word) for word in (chosen.text or "").split())
    terms.extend(_quoted_fuzzy(word) for word in chosen.fuzzy)
    terms.extend(_written(one) for one in chosen.terms if one.field not in WORD_OF)
    each = [format_filter(one, zone) for one in chosen.alternatives]
    return " or ".join(" ".join([*terms, one]) for one in each) if each else " ".join(terms)


def _written(term: Term) -> str:
    if term.field in _WORDS:
        quoted = _quoted_word if term.field == "text" else _quoted_fuzzy
        return " ".join(f"-{quoted(word)}" for word in term.values)
    sign = "-" if term.excluded else ""
    word = WORD_OF[term.field]
    return f"{sign}{word}:{','.join(as_written(word, term.values))}"


def _written_use(one: UseTest) -> str:
    sign = "-" if one.excluded and one.use is not Use.DUP else ""
    if one.use is Use.RISK:
        value = ",".join(one.among)
    elif one.use is Use.DUP:
        value = "no" if one.excluded else "yes"
    elif one.value is None:
        value = "never"
    else:
        value = one.sign + (span_words(one.value) if one.use is Use.READ else str(one.value))
    return f"{sign}{one.use}:{value}"


def span_words(seconds: int) -> str:
    """Return a duration in the largest unit without a fraction, as in filter lines: `30d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def as_written(word: str, values: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return a field's values in their written form, each with the values it stands for."""
    found: dict[str, tuple[str, ...]] = {}
    left = list(dict.fromkeys(values))
    while left:
        bare = shlex.quote(left[0])
        meant = _meant(word, bare)
        if "," in bare or len(meant) == 1 or not set(meant) <= set(left):
            bare, meant = written_value(word, left[0]), (left[0],)
        found[bare] = meant
        left = [one for one in left if one not in meant]
    return found


def written_value(word: str, value: str) -> str:
    """Return a field's value in its written form, quoted where needed."""
    bare = value.removesuffix(":")
    if bare in _KINDS and _meant(word, bare) == (value,):
        return bare
    quoted = shlex.quote(value)
    is_bare = "," in value or _meant(word, quoted) != (value,)
    return f"'{value}'" if is_bare and quoted == value else quoted


def _quoted_fuzzy(word: str) -> str:
    # Empty quotes keep a fuzzy /notes from being the path ~/notes.
    return f"~''{shlex.quote(word)}" if word[0] == "/" else f"~{shlex.quote(word)}"


def _moment(value: datetime, zone: tzinfo | None) -> str:
    """Return a moment as a local date or time where that is unambiguous, else with its offset."""
    if zone is not None:
        local = value.astimezone(zone).replace(tzinfo=None, fold=0)
        if local.replace(tzinfo=zone).astimezone(UTC) == value:
            minutes = not (local.second or local.microsecond)
            return local.isoformat(timespec="minutes" if minutes else "auto").removesuffix("T00:00")
    return value.isoformat()


def _quoted_word(word: str) -> str:
    quoted = shlex.quote(word)
    is_field = _field(quoted) is not None
    if (
        word.lower() in {*_NUMBERED, *_MILLISECONDS, "or"}
        or word.lower() in _IN_OUTCOMES
        or quoted[0] == "-"
        or is_field
        or _COMPARED.fullmatch(quoted)
    ):
        return f"'{word}'"
    return quoted


def parse_ahead(text: str, *, now: datetime, zone: tzinfo | None = UTC) -> datetime:
    """Parse an end, such as an expiry: a span from now on (`30d 6h 3mo`), or as `parse_when`.

    A span may be in words: `in 3 weeks`. `tomorrow`, `next monday` (never today) and `next week`
    (its Monday) mean the start of that day in `zone`.

    Raises:
        Invalid: the text is none of these.
    """
    written = text.strip()
    try:
        span = _SPAN.fullmatch(written)
        if span is not None and not written.endswith("ago"):
            return now.astimezone(UTC) + int(span[1]) * _SPAN_UNITS[span[2]]
        if span := _SPAN_AHEAD.fullmatch(written.lower()):
            return now.astimezone(UTC) + _of_words(span)
        if day := _DAY_AHEAD.fullmatch(written.lower()):
            return _start_of_next(day, now.astimezone(zone))
    except OverflowError as error:
        raise Invalid(f"{written} is outside of the calendar; give a nearer time.") from error
    try:
        return parse_when(written, now=now, zone=zone)
    except Invalid as error:
        if isinstance(error.__cause__, OverflowError):
            raise
        raise Invalid(
            f"{written!r} is not a time; try 30d, in 3 weeks, tomorrow, next monday, 2030-12-31 or "
            "2030-12-31T14:30."
        ) from error


def parse_expiry(text: str, *, now: datetime, zone: tzinfo | None = UTC) -> datetime:
    """Parse a future end, as `parse_ahead`; a clock time alone is its next occurrence.

    Raises:
        Invalid: the text is no moment, or a past one.
    """
    moment = parse_ahead(text, now=now, zone=zone)
    if _CLOCK.fullmatch(text.strip()):
        moment = (moment.astimezone(zone) + timedelta(days=1)).astimezone(UTC)
    if moment <= now:
        raise Invalid(f"{text.strip()!r} is past; give a time that is still to come, such as 30d.")
    return moment


def parse_when(text: str, *, now: datetime, zone: tzinfo | None = UTC) -> datetime:
    """Parse a moment: `now`, a span back (`90s 30min 6h 7d 2w 3mo 1y`), a date, or ISO 8601.

    A span may be in words: `3 weeks ago`. A date or a clock time without an offset is in `zone`;
    `today`, `yesterday` and `last monday` (never today) mean the start of that day in `zone`. A
    clock time alone (`14:30`) is its latest occurrence. `zone` None is the system's.

    Raises:
        Invalid: the text is none of these.
    """
    try:
        if span := _SPAN.fullmatch(text):
            return now.astimezone(UTC) - int(span[1]) * _SPAN_UNITS[span[2]]
        if span := _WORDED_SPAN.fullmatch(text.lower()):
            return now.astimezone(UTC) - _of_words(span)
        if text.lower() == "now":
            return now.astimezone(UTC)
        if day := _DAY.fullmatch(text.lower()):
            return _start_of(day, now.astimezone(zone))
        if clock := _CLOCK.fullmatch(text):
            return _last(clock, now.astimezone(zone))
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError as error:
        raise Invalid(f"{text} is outside of the calendar; give a nearer time.") from error
    except ValueError as error:
        raise Invalid(
            f"{text!r} is not a time; try 7d, 3 weeks ago, today, last monday, 14:30, 2026-03-01 "
            "or 2026-03-01T14:30."
        ) from error


def _of_words(span: re.Match[str]) -> timedelta:
    """Return the duration of a span in words: `3 weeks`, `an hour`."""
    number = int(span[1]) if span[1].isdigit() else 1
    return number * _SPAN_UNITS[_UNIT_WORDS[span[2]]]


def _start_of(day: re.Match[str], now: datetime) -> datetime:
    """Return the start of a named past day (`last monday`) in the zone of `now`."""
    if (name := day["weekday"]) is None:
        back = _DAYS_BACK[day["back"]]
    else:
        back = (now.weekday() - _WEEKDAYS.index(name) - 1) % 7 + 1
    return _midnight(now, -back)


def _start_of_next(day: re.Match[str], now: datetime) -> datetime:
    """Return the start of a named future day (`next monday`) in the zone of `now`."""
    ahead = 1
    if (name := day["weekday"]) is not None:
        first = 0 if name == "week" else _WEEKDAYS.index(name)
        ahead = (first - now.weekday() - 1) % 7 + 1
    return _midnight(now, ahead)


def _midnight(now: datetime, days: int) -> datetime:
    """Return the start of the day `days` after `now`, in the zone of `now`."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return (today + timedelta(days=days)).astimezone(UTC)


def _last(clock: re.Match[str], now: datetime) -> datetime:
    """Return the latest occurrence of a clock time in the zone of `now`."""
    hour, minute, second = (int(part or 0) for part in clock.groups())
    shown = now.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
    if shown.astimezone(UTC) > now.astimezone(UTC):
        shown -= timedelta(days=1)
    return shown.astimezone(UTC)
