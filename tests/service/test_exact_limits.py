"""What is exactly as many, as long or as late as a limit says, and one more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memtui.channels.hooks import joining, transcript
from memtui.channels.hooks.calls import HookCall
from memtui.config import Settings
from memtui.contract import (
    Denied,
    Filter,
    Invalid,
    Problem,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    WriteRequest,
)
from memtui.filters import parse_ahead, parse_expiry, parse_when, span_words
from memtui.paths import Paths
from memtui.provider_kit.pages import read_cursor
from memtui.service import Caller
from memtui.service.answers import ReviewRule
from memtui.service.home.companies import _checked_name, link_problem
from memtui.service.home.purge import Purging
from memtui.service.operations import uses
from memtui.service.review import holding, queue
from memtui.service.review.fact_limits import check_room, check_text
from memtui.service.runtime import check_key, check_target_id, first_of_many
from memtui.service.spending import LimitState, LimitTarget, SpendingLimit, _status
from memtui.service.visibility import Membership, Role
from memtui.store.erasing import purged
from memtui.store.limits import Spent

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
PROJECT = Scope(company_id="acme", project_id="p")
SOURCE = SourceRef(kind="run", company_id="acme")


def rule(value: str) -> ReviewRule:
    return ReviewRule(action="hold", test="text", value=value)


def fact(**fields: Any) -> WriteRequest:
    given = {"scope": PROJECT, "source": SOURCE, "content": "a", "kind": "fact"}
    return WriteRequest.model_validate(given | fields)


def own_facts(count: int) -> list[Record]:
    handles = (RecordHandle(provider_key="x", provider_record_id=f"r{n}") for n in range(count))
    return [Record(handle=one, text="a", scope=PROJECT) for one in handles]


LIMITS: dict[str, tuple[int, Callable[[int], object], type[Exception]]] = {
    "held writes": (20, lambda n: holding._refuse_full(n - 1, 20, "default"), Denied),
    "fact characters": (200, lambda n: check_text("a" * n, Settings()), Invalid),
    "facts": (50, lambda n: check_room(own_facts(n - 1), fact(), Settings()), Invalid),
    "rule characters": (200, lambda n: queue._checked(rule("a" * n), "default"), Invalid),
    "key characters": (63, lambda n: check_key("a" * n, "key"), Invalid),
    "id characters": (200, lambda n: check_target_id("project", "a" * n), Invalid),
    "name characters": (200, lambda n: _checked_name("a" * n), Invalid),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_as_many_as_a_limit_says_are_let_through(name: str) -> None:
    most, check, error = LIMITS[name]
    check(most - 1)
    check(most)
    with pytest.raises(error):
        check(most + 1)


def test_a_fact_in_the_place_of_another_needs_no_room() -> None:
    limits = Settings(fact_max_count=3)
    check_room(own_facts(3), fact(mode="upsert", record_id="r2"), limits)
    for other in (fact(record_id="r2"), fact(mode="upsert", record_id="r3"), fact(mode="upsert")):
        with pytest.raises(Invalid, match="holds 3 facts"):
            check_room(own_facts(3), other, limits)
    unlimited = Settings(fact_max_count=0)
    for free in (fact(scope=Scope(company_id="acme", agent_id="a")), fact()):
        check_room(own_facts(9), free, unlimited if free.scope == PROJECT else limits)


@pytest.mark.parametrize(("count", "told"), [(19, 19), (20, 20), (21, 21), (25, 21)])
def test_of_many_problems_the_first_are_told_and_how_many_are_not(count: int, told: int) -> None:
    connection: Any = SimpleNamespace(binding=SimpleNamespace(key="default"))
    found = first_of_many([Problem(message=f"p{n}") for n in range(count)], connection)
    assert len(found) == told
    assert [one.message for one in found[:20]] == [f"p{n}" for n in range(min(count, 20))]
    assert [one.message.split()[0] for one in found[20:]] == [str(count - 20)] * (count > 20)


@pytest.mark.parametrize(
    ("spent", "state"),
    [(0, "ok"), (79, "ok"), (80, "near"), (100, "near"), (101, "passed")],
)
def test_a_limit_is_near_from_its_share_on_and_passed_above_it(spent: int, state: str) -> None:
    limit = SpendingLimit(
        target_type=LimitTarget.AGENT, target_id="a", measure="tokens", amount=100, period="day"
    )
    own = Spent("a", "p", "b", "user:ana", tokens=0, cost_pico=0, unpriced_count=0)
    parts = [replace(own, tokens=spent), replace(own, agent_id="b", tokens=9_000), own]
    found = _status(limit, (NOW, NOW), parts, Decimal("0.8"))
    assert (found.spent, found.state) == (spent, LimitState(state))


@pytest.mark.parametrize("length", [2_000, 2_001])
def test_a_link_template_has_a_longest_length(length: int) -> None:
    problem = link_problem("run", "https://x/".ljust(length, "a"))
    assert bool(problem) is (length > 2_000)


class _Asked:
    """A purge that is only asked for."""

    def __init__(self, days: int, allowed: int | None) -> None:
        self.asked: list[datetime] = []

        async def ask(*_: object) -> Any:
            return SimpleNamespace(purge_after_days=allowed, read_only=False)

        def page(chosen: Filter, **_: object) -> Any:
            return SimpleNamespace(operations=())

        async def to_its_end(change: Any) -> Any:
            return await change

        log = SimpleNamespace(page=page)
        self._runtime = SimpleNamespace(
            clock=lambda: NOW, ask=ask, log=lambda _: log, to_its_end=to_its_end,
            settings=Settings(purge_after_days=days),
        )  # fmt: skip

    async def apply(self, _: Caller, request: Any) -> None:
        self.asked.append(request.before)


@pytest.mark.parametrize(
    ("days", "allowed", "is_due"),
    [(30, 30, True), (31, 30, True), (29, 30, False), (30, None, False)],
)
async def test_what_is_older_than_was_allowed_is_due(
    days: int, allowed: int | None, is_due: bool
) -> None:
    asked: Any = _Asked(days, allowed)
    await Purging.due(asked, Caller(company_id="acme", principal="user:ana", channel="test"))
    assert asked.asked == [NOW - timedelta(days=days)] * is_due


def test_a_purge_names_what_is_older_than_itself() -> None:
    asked = {"erased": [{"fields": ["error_message"], "seqs": [[1, 3], [5, 5], [6, 9]]}]}
    operation: Any = SimpleNamespace(operation_type="purge", request=asked, seq=8)
    assert [list(seqs) for seqs, _ in purged(operation)] == [[1, 2, 3], [5], [6, 7]]


@pytest.mark.parametrize(
    ("text", "ahead"), [("12:00", False), ("12:00:00", False), ("12:01", True), ("11:59", False)]
)
def test_a_clock_shows_now_as_what_has_been(text: str, ahead: bool) -> None:
    found = parse_when(text, now=NOW)
    assert found == NOW.replace(hour=int(text[:2]), minute=int(text[3:5])) - timedelta(days=ahead)
    assert parse_expiry(text, now=NOW) > NOW


def test_a_day_with_two_midnights_begins_at_the_first() -> None:
    """In Havana 01:00 on 1 November 2026 was 00:00 again."""
    zone = ZoneInfo("America/Havana")
    for hour in (4, 5, 6):
        now = datetime(2026, 11, 1, hour, 30, tzinfo=UTC)
        assert parse_when("today", now=now, zone=zone) == datetime(2026, 11, 1, 4, tzinfo=UTC)


def test_an_end_is_later_than_now() -> None:
    for text in ((NOW + INSTANT).isoformat(), "1s"):
        assert parse_expiry(text, now=NOW) > NOW
    for text in (NOW.isoformat(), "now", (NOW - INSTANT).isoformat(), "0s"):
        with pytest.raises(Invalid, match="past"):
            parse_expiry(text, now=NOW)


def test_a_weekday_is_never_today() -> None:
    """It is Sunday; a week before and after are the Sundays that are meant."""
    days = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    midnight = NOW.replace(hour=0)
    for number, day in enumerate(days, 1):
        assert parse_when(f"last {day}", now=NOW) == midnight - timedelta(days=7 - number % 7)
        assert parse_ahead(f"next {day}", now=NOW) == midnight + timedelta(days=number)
    assert parse_ahead("next week", now=NOW) == midnight + timedelta(days=1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(86_400, "1d"), (90_000, "25h"), (3_600, "1h"), (3_660, "61min"), (60, "1min"), (61, "61s"),
     (172_800, "2d"), (21_600, "6h")],
)  # fmt: skip
def test_a_span_is_written_in_the_largest_unit_that_it_is_whole_in(
    seconds: int, words: str
) -> None:
    assert span_words(seconds) == words
    assert NOW - parse_when(words, now=NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize("words", ["1y", "2y", "1mo", "3m", "1w", "5d", "7h", "9min", "11s"])
def test_a_span_back_and_one_ahead_are_as_long(words: str) -> None:
    sizes = {"y": 365 * 86_400, "mo": 30 * 86_400, "m": 30 * 86_400, "w": 7 * 86_400, "d": 86_400,
             "h": 3_600, "min": 60, "s": 1}  # fmt: skip
    number = int(words.rstrip("ymowdhins"))
    span = timedelta(seconds=number * sizes[words.lstrip("0123456789")])
    assert parse_when(words, now=NOW) == NOW - span
    assert parse_ahead(words, now=NOW) == NOW + span


@pytest.mark.parametrize(
    ("reply", "files", "is_kept"),
    [(199, 0, False), (200, 0, True), (0, 1, True)],
)
def test_a_short_answer_that_changed_nothing_leaves_no_note(
    monkeypatch: pytest.MonkeyPatch, reply: int, files: int, is_kept: bool
) -> None:
    run = transcript._Run(asked=["Why?"], files={f"f{n}": None for n in range(files)})
    monkeypatch.setattr(transcript, "_Run", lambda: run)
    note = transcript.note_of(HookCall(event="Stop", reply="a" * reply))
    assert (note is not None) is is_kept


@pytest.mark.parametrize("files", [12, 13, 14])
def test_of_many_files_twelve_are_named(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    asked = ["First?", "Second?", "Third?"]
    run = transcript._Run(files={f"f{n}": None for n in range(files)})
    for words in asked:
        transcript._ask(run, 1, words)
    monkeypatch.setattr(transcript, "_Run", lambda: run)
    note = transcript.note_of(HookCall(event="Stop"))
    assert note is not None
    assert note.text.startswith("Asked: First?\nLast asked: Third?\nFiles changed: f0, ")
    more = note.text.rpartition("f11")[2]
    assert more == ("" if files == 12 else f" and {files - 12} more")


@pytest.mark.parametrize(("length", "is_cut"), [(79, False), (80, False), (81, True)])
def test_a_title_is_cut_where_it_is_too_long(length: int, is_cut: bool) -> None:
    cut = transcript._cut("a" * length, 80)
    assert cut == ("a" * 79 + "…" if is_cut else "a" * length)


@pytest.mark.parametrize("length", [200, 201])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_run_is_noted_under_its_whole_id(paths: Paths, length: int, compacted: bool) -> None:
    process = joining.Process(1, "2", 0, ())
    note = joining.RunNote("r" * length, compacted=compacted)
    joining.note_run(paths, process, note)
    assert joining.noted(paths, process) == (note if length == 200 else None)


@pytest.mark.parametrize("given", [2, 3, 4, 5])
async def test_a_page_that_is_just_full_goes_on_only_where_there_is_more(given: int) -> None:
    """The provider has pages of two, and a page of the list has three."""
    listed = uses.UsedRecords.__new__(uses.UsedRecords)
    records = own_facts(given)
    places = {None: 0, "2": 2, "4": 4}

    async def read(_: Filter, cursor: str | None) -> Any:
        end = places[cursor] + 2
        following = str(end) if end < given else None
        return SimpleNamespace(records=records[end - 2 : end], next_cursor=following)

    async def fitting(some: Any) -> Any:
        return [*some]

    async def answer(found: Any, following: str | None, _: Any, *, total: int | None) -> Any:
        return found, following, total

    stubs = {"_read_first": read, "_read_in_time": read, "_fitting": fitting, "_answer": answer}
    for name, stub in stubs.items():
        setattr(listed, name, stub)
    listed._chosen = Filter()
    listed._request = SimpleNamespace(limit=3, sort="title", cursor=None)  # type: ignore[assignment]
    page: Any = await listed._page_from(None, 0)
    found, following, total = page
    assert [*found] == records[:3]
    assert (following is None, total) == ((True, given) if given <= 3 else (False, None))
    if following is not None:
        cursor, skipped = read_cursor(following, "title", (str, type(None)), int)
        listed._request.cursor = following  # type: ignore[misc]
        rest: Any = await listed._page_from(cursor, skipped)
        assert [*rest[0]] == records[3:]


def test_the_last_owner_is_one_of_the_whole_company() -> None:
    from memtui.service.home.members import _owners, _with_subject

    ana = Membership(principal="user:ana", role=Role.OWNER)
    others = [
        Membership(principal="user:ben", role=Role.OWNER, project_id="p"),
        Membership(principal="user:cy", role=Role.ADMIN),
    ]
    assert _owners([*others, ana]) == [ana]
    assert _owners(others) == []
    dan = Membership(principal="user:x", role=Role.MEMBER, subject_id="dan")
    known = [ana.model_copy(update={"subject_id": "a"}), dan]
    for principal, subject in (
        ("user:ana", "a"), ("user:x", "dan"), ("user:dan", None), ("user:eve", "eve"),
    ):  # fmt: skip
        given = Membership(principal=principal, role=Role.MEMBER, project_id="p")
        assert _with_subject(given, known).subject_id == subject
