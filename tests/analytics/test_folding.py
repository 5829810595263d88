"""A question over several bindings in the log's list, against a plain model of folding it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from memtui.analytics import reading
from memtui.analytics.company_log import CompanyLog
from memtui.analytics.engine import DuckDb
from memtui.analytics.reading import LogView
from memtui.analytics.rows import LogDatabase
from memtui.analytics.sealed import Archive
from memtui.contract import EVERYTHING, Filter, Scope, Term
from memtui.store.database import Database
from memtui.store.operation import LogFilter, Operation, OperationDraft
from memtui.store.visibility import Visibility
from tests.analytics.logs import NOW, append, draft
from tests.analytics.logs import seal_unlogged as seal
from tests.databases import ON_BOTH

pytestmark = pytest.mark.slow

COUNT = 60
SIGHTS = (
    None,
    Visibility("user:ana", frozenset({"ana"})),
    Visibility("user:ben", frozenset({"ben"}), None, manages=True),
)
PAST = Visibility("user:ben", frozenset({"ben"}), None, until=NOW + timedelta(seconds=61 * 40))
FILTERS = (
    Filter(),
    Filter(internal=True),
    Filter(operation_type="query"),
    Filter(agent_id="coding"),
    Filter(issue_id="ISS-1"),
    Filter(since=NOW + timedelta(seconds=61 * 13), until=NOW + timedelta(seconds=61 * 47)),
    Filter(terms=(Term(field="subject_id", values=("ana",), excluded=True),)),
    Filter(alternatives=(Filter(channel="tui"), Filter(subject_id="ana"))),
)


def random_log(seed: int, count: int, start: int = 1) -> list[OperationDraft]:
    """Return operations of which many are part of an earlier one, of another or of none there is.

    Two of one question often differ in type, owner, channel and what follows from these.
    """
    chance = random.Random(seed)
    drafts: list[OperationDraft] = []
    for number in range(start, start + count):
        made = draft(number)
        earlier = [f"acme-{max(1, number - chance.randrange(12)):05}" for _ in range(3)]
        part_of = chance.choice([*[None] * 5, *earlier, f"acme-{number + 1:05}", "nowhere"])
        if drafts and chance.random() < 0.6:  # as one more of the question before it
            part_of = drafts[-1].part_of or drafts[-1].operation_id
        scope = made.scope.model_dump() | {"subject_id": chance.choice([None, None, "ana", "ben"])}
        if chance.random() < 0.7:
            scope |= {"project_id": None, "agent_id": "coding", "run_id": "run-1"}
        change: dict[str, object] = {
            "part_of": part_of,
            "scope": Scope(**scope),
            "principal": chance.choice(["user:ana", "user:ben"]),
            "channel": chance.choice(["cli", "cli", "tui"]),
            "to_show": chance.choice([None, None, None, True]),
        }
        drafts.append(draft(number, "acme", **change))
    return drafts


def folded(listed: Sequence[Operation], sealed: int) -> list[Operation]:
    """The model: an operation is left out where the one that it is part of is in the list.

    That one is earlier, part of none itself, and sealed where the other one is.
    """
    firsts = {one.operation_id: one.seq for one in listed if one.part_of is None}

    def is_out(one: Operation) -> bool:
        first = firsts.get(one.part_of or "")
        return first is not None and first < one.seq and (first <= sealed) == (one.seq <= sealed)

    return [one for one in listed if not is_out(one)]


def as_folded(chosen: Filter) -> LogFilter:
    return LogFilter(**dict(chosen), folded=True)


@pytest.fixture
def duck() -> Iterator[DuckDb]:
    opened = DuckDb()
    yield opened
    opened.close()


def seqs(found: Sequence[Operation]) -> list[int]:
    return [one.seq for one in found]


@pytest.mark.parametrize(
    ("database_url", "seed", "sealed"),
    [
        ("sqlite", 1, 0), ("sqlite", 2, 31), ("sqlite", 3, COUNT),
        ("postgresql", 1, 0), ("postgresql", 2, 31),
    ],
    indirect=["database_url"],
)  # fmt: skip
def test_pages_and_views_are_those_of_the_model(
    database: Database,
    root: Path,
    duck: DuckDb,
    seed: int,
    sealed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_RECENT", 12)  # so that older hot ones are read from the copy
    append(database, random_log(seed, COUNT))
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * sealed + 1), segment_rows=13)
    left_out = 0
    for sight in (PAST, *SIGHTS):
        log = CompanyLog(database, Archive(root, duck), "acme", sight)
        assert log.sealed_through == sealed
        operations = (
            None if sight is PAST else LogDatabase(database, root, "acme", visibility=sight)
        )
        logged = {
            internal: folded(log.page(Filter(internal=internal), limit=1_000).operations, sealed)
            for internal in (False, True)
        }
        for chosen in FILTERS:
            flat = log.page(chosen, limit=1_000)
            expected = folded(flat.operations, sealed)
            left_out += len(flat.operations) - len(expected)
            asked = as_folded(chosen)
            pages, before = list[Operation](), None
            while True:
                page = log.page(asked, limit=17, before=before)
                assert (page.total, page.left_out) == (len(expected), flat.left_out)
                pages += page.operations
                if (before := page.next_before) is None:
                    break
            assert seqs(pages) == seqs(expected)
            if operations is None:  # a view has the moment in its filter
                continue
            view = LogView(operations, asked)
            assert seqs(view.window(0, 1_000)) == seqs(expected)
            assert (view.count, view.left_out) == (len(expected), flat.left_out)
            assert view.logged == len(logged[not chosen.excludes_internal])
            assert view.count + view.folded_count == len(flat.operations)
            for one in flat.operations:
                place = seqs(expected).index(one.seq) if one in expected else None
                assert view.find(one.seq) == place
            view.close()
            by_cost = LogView(operations, asked, "-cost_usd")
            assert by_cost.count == len(flat.operations)
            by_cost.close()
        if operations is not None:
            operations.close()
    assert left_out > 50


@ON_BOTH
@pytest.mark.parametrize("sealed", [0, 30])
def test_the_tail_of_a_view_is_that_of_the_model(
    database: Database, root: Path, duck: DuckDb, sealed: int
) -> None:
    drafts = random_log(5, COUNT)
    append(database, drafts[:35])
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * sealed + 1))
    archive = Archive(root, duck)
    asked = [(sight, chosen) for sight in SIGHTS for chosen in FILTERS]
    logs = {sight: LogDatabase(database, root, "acme", visibility=sight) for sight in SIGHTS}
    views = [LogView(logs[sight], as_folded(chosen), "seq") for sight, chosen in asked]
    append(database, drafts[35:])
    shown = 0
    companies = {sight: CompanyLog(database, archive, "acme", sight) for sight in SIGHTS}
    every = {
        (sight, internal): folded(
            log.page(Filter(internal=internal), limit=1_000).operations, sealed
        )
        for sight, log in companies.items()
        for internal in (False, True)
    }
    for (sight, chosen), view in zip(asked, views, strict=True):
        log = companies[sight]
        flat = log.page(chosen, limit=1_000).operations
        expected = folded(flat, sealed)
        tail = view.tail(view.last)
        newer = [one for one in expected if one.seq > view.last]
        assert seqs(tail.operations)[::-1] == seqs(newer)
        assert view.count + len(newer) == len(expected)
        parts = view.folded_count + tail.folded
        assert len(expected) + parts == len(flat)
        logged = every[sight, not chosen.excludes_internal]
        assert view.logged + tail.logged == len(logged)
        shown += len(newer)
        view.close()
    assert shown > 50
    for one in logs.values():
        one.close()


def test_a_jump_to_a_part_goes_to_its_first_one(database: Database, root: Path) -> None:
    first = draft(1).operation_id
    parts = [draft(number, part_of=first) for number in (3, 4)]
    append(database, [draft(1), draft(2), *parts, draft(5)])
    operations = LogDatabase(database, root, "acme")
    view = LogView(operations, as_folded(Filter()), "seq")
    assert seqs(view.window(0, 9)) == [1, 2, 5]
    places = [view.position(draft(number).started_at) for number in range(1, 6)]
    assert places == [0, 1, 0, 0, 2]
    operations.close()


@ON_BOTH
@pytest.mark.parametrize("sealed", [0, 31, COUNT])
def test_the_parts_are_those_that_the_reader_may_see(
    database: Database, root: Path, duck: DuckDb, sealed: int
) -> None:
    append(database, random_log(6, COUNT))
    seal(database, root, "acme", before=NOW + timedelta(seconds=61 * sealed + 1), segment_rows=13)
    found = 0
    for sight in PAST, *SIGHTS:
        log = CompanyLog(database, Archive(root, duck), "acme", sight)
        seen = log.page(EVERYTHING, limit=1_000).operations
        firsts = [one for one in seen if one.part_of is None]
        expected = {
            one.operation_id: parts
            for one in firsts
            if (
                parts := [
                    other.seq
                    for other in reversed(seen)
                    if other.part_of == one.operation_id and other.seq > one.seq
                ]
            )
        }
        parts_of = log.parts(firsts)
        assert {name: seqs(parts) for name, parts in parts_of.items()} == expected
        found += len(parts_of)
    assert found > 20
