"""What the screens decide, without an app: marks, plans, scopes, news, drafts, undo and redo."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import (
    Conflict,
    Invalid,
    MemtuiError,
    NotFound,
    OperationStatus,
    OperationType,
    RecordHandle,
    Scope,
    Unavailable,
)
from memtui.filters import parse_filter
from memtui.migration.moving import Applied, Failure
from memtui.migration.syncing import Divided, HeldBack, Synced
from memtui.screens import past
from memtui.screens.base import ServiceScreen
from memtui.screens.dialogs import NewRecord
from memtui.screens.drafts import KeptDraft, keep_draft, kept_drafts, offered
from memtui.screens.editing import said
from memtui.screens.following import News, _by_whom, _since, _words, tells_of_review
from memtui.screens.in_sync import rows_of, status_words
from memtui.screens.kept import SavedView, delete_named, load_named, rename_named, save_named
from memtui.screens.migration import applied
from memtui.screens.prune_review import Narrowing, PlanPart, ReviewedPlans, Sort
from memtui.screens.session import ServiceSession
from memtui.screens.state import AppState, PruneFigures
from memtui.service import Caller, MutationAnswer
from memtui.service.usecases.undoing import Undone
from memtui.store.operation import Operation
from memtui.widgets.record_names import RecordName
from memtui.widgets.rows import AppendedRows, Selection
from tests.screens_without_app.test_prune_review import fact, part

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
LOCAL = Scope(company_id="local")
CALLER = Caller(company_id="local", principal="user:ana", channel="app")


# Marks

STEPS = st.lists(
    st.tuples(st.sampled_from(["toggle", "range", "remove", "top", "order", "clear", "drop"]),
              st.integers(0, 9)),
    max_size=25,
)  # fmt: skip


def spanned(order: list[int], anchor: int | None, cursor: int) -> list[int]:
    """The rows of a range between its begin and the cursor."""
    if anchor not in order:
        return []
    first, last = sorted((order.index(anchor), cursor))
    return order[first : last + 1]


@given(STEPS)
def test_marks_and_ranges_follow_their_rows_through_every_change(
    steps: list[tuple[str, int]],
) -> None:
    rows: AppendedRows[int] = AppendedRows(str)
    rows.replace(range(6))
    marks: Selection[int] = Selection(rows)
    order, marked, anchor, new = list(range(6)), set[int](), None, 6

    for step, at in steps:
        here = order[at] if at < len(order) else None
        if step == "toggle" and anchor is None:
            marks.toggle(at)
            marked ^= {here} - {None}  # type: ignore[arg-type]
        elif step in {"toggle", "range"}:
            marked |= set(spanned(order, anchor, at)) if anchor is not None else set()
            (marks.toggle_range if step == "range" else marks.toggle)(at)
            anchor = here if anchor is None else None
        elif step == "remove" and here is not None:
            rows.remove({str(here)})
            order.remove(here)
        elif step == "top":
            rows.change({str(new): new})
            order, new = [new, *order], new + 1
        elif step == "order":
            rows.order(lambda one: one * 7 % 5, descending=bool(at % 2))
            order.sort(key=lambda one: one * 7 % 5, reverse=bool(at % 2))
        elif step == "clear":
            marked = marked if anchor is not None else set()
            marks.clear()
            anchor = None
        elif step == "drop" and here is not None:
            marks.drop({str(here)})
            marked, anchor = marked - {here}, None if anchor == here else anchor
        assert [row for _, row in rows.held()] == order
        assert set(marks.marks.values()) == marked
        assert marks.ranging == (anchor is not None)
        assert marks.hidden == len(marked - set(order))
        chosen = marked | set(spanned(order, anchor, at))
        told = marks.rows(at)
        assert told[: len(chosen & set(order))] == [one for one in order if one in chosen]
        assert set(told) == chosen


# The review of what could go

TURNS = st.lists(
    st.tuples(st.sampled_from(["turn", "all", "none", "suggested", "narrow", "stay", "owner"]),
              st.integers(0, 11)),
    max_size=15,
)  # fmt: skip
OTHER = Scope(company_id="local", subject_id="ana")


def two_bindings() -> ReviewedPlans:
    def parts(key: str) -> PlanPart:
        return part(
            key, fact("a", "Deploy from main"), fact("b", "deploy from main."),
            fact("c", "Deploy from MAIN", pinned=True), fact("d", "Nobody asked for this"),
            fact("e", "Tea is green", scope=OTHER), fact("f", "tea is green", scope=OTHER),
            read=("a",),
        )  # fmt: skip

    return ReviewedPlans([parts("one"), parts("two")])


@given(TURNS)
def test_what_is_marked_is_what_goes_and_is_saved(turns: list[tuple[str, int]]) -> None:
    review = two_bindings()
    tokens = {name: item.tokens for name, item in review._items.items()}
    pinned = {RecordName(key, "c") for key in ("one", "two")}
    narrowed = Narrowing()
    for turn, at in turns:
        before, shown = set(review.marks), set(review._shown)
        line = review.lines[at % len(review.lines)] if review.lines else None
        if turn == "turn" and line is not None:
            review.turn(line)
            changed = before ^ review.marks
            if line.sort is Sort.GOES:
                assert changed == {line.name}
            assert changed <= shown
            assert line.sort is Sort.GOES or not changed & pinned
        elif turn in {"all", "none", "suggested"}:
            {"all": review.mark_all, "none": review.mark_none,
             "suggested": review.mark_suggested}[turn]()  # fmt: skip
            assert before - shown == review.marks - shown, "marks elsewhere wait"
            assert not review.going & pinned
        elif turn in {"narrow", "owner"}:
            narrowed = [Narrowing(), Narrowing(owner=OTHER), Narrowing(binding_key="two")][at % 3]
            review = review.arranged(narrowed, by_owner=turn == "owner")
            assert review.marks == before
        elif turn == "stay" and line is not None and line.name is not None:
            review.let_stay(line.name)
            if line.sort is Sort.GOES and line.name in shown:
                assert line.name not in review.marks or line.name in review._shown
        going = review.going
        assert review.saved == sum(tokens[one] for one in going)
        marked = ((one.binding_key, one.handle.provider_record_id) for one in review.marked)
        assert {RecordName(*one) for one in marked} == going
        groups = [one for one in review.lines if one.sort is Sort.GROUP]
        goes = [one for one in review.lines if one.sort is Sort.GOES]
        assert {one.name for one in goes if review.is_marked(one)} == going
        assert sum(review.chosen(one.group)[0] for one in groups) == len(going)
        assert sum(review.chosen(one.group)[1] for one in groups) == len(goes) == review.could
        assert sum(one.tokens for one in groups) == sum(one.tokens for one in goes)
        assert all(one.name.binding_key == "two" for one in goes if narrowed.binding_key
                   if one.name)  # fmt: skip
        stays = {
            RecordName(one.binding_key, one.handle.provider_record_id) for one in review.staying
        }
        assert not stays & going
        names = [one.name for one in review.diff()]
        assert [one for one in names if one in going] == [one.name for one in goes
                                                          if one.name in going]  # fmt: skip


def test_what_an_owner_could_lose_is_counted_over_all_bindings() -> None:
    found = two_bindings()
    assert found.owners()[OTHER] == (4, 4)
    assert found.owners()[LOCAL] == (found.could, 12)
    state = AppState(pruning=PruneFigures("local", NOW, found.owners()), scope=LOCAL)
    assert state.prune_figures is not None
    assert AppState(pruning=state.pruning, scope=Scope(company_id="o")).prune_figures is None


# Scope, filter and binding


@pytest.mark.parametrize("field", ["agent_id", "project_id", "issue_id", "run_id", "subject_id"])
def test_the_filter_line_goes_before_the_scope_and_several_names_lift_it(field: str) -> None:
    word = {"subject_id": "subject"}.get(field, field.removesuffix("_id"))
    scope = LOCAL.model_copy(update={field: "here"})

    def state(line: str) -> AppState:
        return AppState(scope=scope, filter=parse_filter(line, now=NOW), filter_line=line)

    for line, own in (("", "here"), (f"{word}:there", "there"), (f"{word}:a,b", None)):
        found = state(line)
        assert getattr(found.record_scope, field) == own
        assert getattr(found.log_filter, field) == own
        again = parse_filter(found.log_line, now=NOW)
        assert getattr(again, field) == own
        assert found.record_scope.company_id == "local"


def test_all_bindings_are_asked_unless_one_is_named() -> None:
    def asks(line: str, *, everywhere: bool) -> bool:
        return AppState(filter=parse_filter(line, now=NOW), everywhere=everywhere).asks_all

    assert [asks("", everywhere=one) for one in (True, False)] == [True, False]
    assert [asks("binding:a", everywhere=one) for one in (True, False)] == [False, False]
    assert [asks("binding:a,b", everywhere=one) for one in (True, False)] == [True, True]


def test_nothing_changes_in_the_past_or_where_all_is_read_only() -> None:
    company = cast("Any", SimpleNamespace(company_id="local"))
    service = cast("Any", SimpleNamespace(read_only=False))
    then = ServiceSession(service, CALLER.at(NOW), company)
    assert "past" in AppState(session=then).no_change
    assert AppState(read_only=True).no_change
    assert not AppState(session=ServiceSession(service, CALLER, company)).no_change


# What is told of others


def operation(seq: int, kind: OperationType = OperationType.WRITE, **fields: Any) -> Operation:
    given = {
        "operation_id": f"op-{seq}", "operation_type": kind, "status": OperationStatus.OK,
        "scope": LOCAL, "principal": "agent:bot", "channel": "mcp",
        "request": {"content": f"n{seq}"},
        "started_at": NOW, "latency_ms": 1.0, "seq": seq, "previous_digest": "", "digest": "",
    }  # fmt: skip
    return Operation.model_validate(given | fields)


def test_each_screen_hears_of_what_it_did_not_begin_itself() -> None:
    here, there = object(), object()
    done = [operation(1), operation(2), operation(3, OperationType.QUERY),
            operation(4, OperationType.CONFIGURE), operation(5, status=OperationStatus.UNKNOWN),
            operation(6, status=OperationStatus.ERROR)]  # fmt: skip
    news = News(tuple(done), begun_on={"op-1": here, "op-2": there})
    assert [one.seq for one in news.changes(here)] == [2, 5]
    assert [one.seq for one in news.changes(there)] == [1, 5]
    assert [one.seq for one in news.elsewhere] == [3, 4, 5, 6]
    assert news.configures
    assert not News(tuple(done[:3])).configures
    assert News((), is_part=True).configures
    own = News((operation(1, OperationType.UNDO),), begun_on={"op-1": here})
    assert not own.configures
    held = operation(7, status=OperationStatus.PENDING)
    accepted = operation(8, request={"pending": "x"})
    told = [tells_of_review(one) for one in (held, accepted, own.operations[0], done[0])]
    assert told == [True, True, True, False]


@pytest.mark.parametrize(
    ("seen", "newest", "after", "is_part"),
    [(None, 9, None, False), (9, 9, None, False), (7, 9, 7, False), (0, 200, 0, False),
     (0, 201, 1, True)],
)  # fmt: skip
async def test_a_look_reads_what_came_since_the_last(
    seen: int | None, newest: int, after: int | None, is_part: bool
) -> None:
    class Log:
        async def newest(self, _caller: Caller) -> int:
            return newest

        async def page(self, _caller: Caller, *, after: int, limit: int) -> Any:
            # One more came between the two questions, which the next look tells of.
            upto = range(newest + 1, max(after, newest + 1 - limit), -1)
            return SimpleNamespace(operations=[operation(n) for n in upto])

    session = cast(
        "ServiceSession", SimpleNamespace(caller=CALLER, service=SimpleNamespace(log=Log()))
    )
    last, found, part_of = await _since(session, seen)
    assert (last, part_of) == (newest, is_part)
    first = newest + 1 if after is None else max(after + 1, newest + 2 - (newest - after))
    assert [one.seq for one in found] == list(range(first, newest + 1))


def test_a_notice_names_the_first_and_counts_the_rest() -> None:
    saved = [operation(1), operation(2, channel="hook"), operation(3, principal="user:ben")]
    assert _words(saved[:1]) == "Remembered: n1"
    assert _words(saved) == "Remembered: n1, and 2 more"
    assert [_by_whom(saved[:n]) for n in (1, 2, 3)] == ["bot · mcp", "bot", "bot and 1 more"]
    long = operation(4, request={"content": "x" * 121})
    assert _words([long]) == f"Remembered: {'x' * 119}…"
    assert _words([operation(5, request={"content": "x" * 120})]).endswith("x" * 120)


# Undo and redo


def answer(number: int, **fields: Any) -> MutationAnswer:
    given = {"operation_id": f"undo-{number}", "binding_key": "b", "binding_reason": "",
             "undoes": f"op-{number}"}  # fmt: skip
    return MutationAnswer.model_validate(given | fields)


class Redoing:
    """The part of a screen that redoes, over a service that fails at one operation."""

    redo_all = ServiceScreen.redo_all
    undo_all = ServiceScreen.undo_all

    def __init__(self, *undone: list[MutationAnswer], fails: str = "", with_: Any = None) -> None:
        self.session = SimpleNamespace(undone=list(undone))
        self.acts = SimpleNamespace(settled=None)
        self.fails, self.error, self.taken, self.addition = fails, with_, list[str](), ""

    async def wait(self, *_: Any) -> None: ...

    async def take_back(self, ids: list[str], records: tuple[str, ...] = ()) -> Undone:
        done = Undone()
        for one in ids:
            if one == self.fails:
                done.failed = self.error
                break
            self.taken.append(one)
            done.answers.append(answer(0, operation_id=f"again-{one}", undoes=one))
        return done

    async def _raise_in_part(self, undone: Undone, addition: str) -> None:
        self.addition = addition
        if undone.failed is not None:
            raise undone.failed


async def test_redo_goes_back_through_what_was_undone_the_last_first() -> None:
    screen: Any = Redoing([answer(1)], [answer(2), answer(3)])
    undone, again = await screen.redo_all()
    assert [one.operation_id for one in undone] == ["undo-2", "undo-3"]
    assert screen.taken == ["undo-3", "undo-2"]
    assert len(again) == 2
    await screen.redo_all()
    assert screen.taken[2:] == ["undo-1"]
    with pytest.raises(Invalid, match="nothing to redo"):
        await screen.redo_all()
    await screen.undo_all(["op-7", "op-8"])
    assert [one.undoes for one in screen.session.undone[-1]] == ["op-7", "op-8"]


@pytest.mark.parametrize(
    ("error", "left"),
    [(Unavailable("down"), ["undo-1", "undo-2"]), (Conflict("changed"), ["undo-1"])],
)
async def test_a_redo_that_fails_leaves_the_rest(error: MemtuiError, left: list[str]) -> None:
    screen: Any = Redoing([answer(1), answer(2), answer(3)], fails="undo-2", with_=error)
    with pytest.raises(type(error)):
        await screen.redo_all()
    assert screen.taken == ["undo-3"]
    [rest] = screen.session.undone
    assert [one.operation_id for one in rest] == left
    assert "goes on with the rest" in screen.addition


def test_what_was_done_is_told_of_every_answer() -> None:
    handles = [RecordHandle(provider_key="v", provider_record_id=str(n)) for n in range(3)]
    first = answer(1, redacted=("token",), ghosts=handles[:1], missing=handles[:2],
                   refused={"a": "Pinned."}, linked={"x": "y"})  # fmt: skip
    second = answer(2, redacted=("token", "key"), ghosts=handles[1:], missing=handles[2:],
                    refused={"b": "Also pinned."}, linked={"z": "w"})  # fmt: skip
    told = said("Forgotten.", first, second)
    for words in ("stored: token, key.", "still returns 3 records", "Pinned. 1 more record stayed",
                  "3 records had gone", "id now: 2 records"):  # fmt: skip
        assert words in told
    assert said("Done.", answer(1)) == "Done."


# Drafts and views


def test_every_draft_comes_back_with_what_it_was_meant_for(tmp_path: Path) -> None:
    record = fact("notes/a", "It said this", revision="7")
    new = NewRecord("Brand new", OTHER, "note", "topic", ("a", "b"), "short")
    drafts = [KeptDraft(text="Changed\n", binding_key="one", began_from=record),
              KeptDraft(text=new.text, new=new),
              KeptDraft(text="Fixed", pending_id="h1")]  # fmt: skip
    for one in (*drafts, KeptDraft(pending_id="empty")):
        keep_draft(tmp_path, one)
    (tmp_path / "draft-broken").mkdir()
    kept = kept_drafts(tmp_path)
    assert sorted(kept.values(), key=lambda one: one.text) == drafts[1:2] + drafts[:1] + drafts[2:]
    assert all(folder.stat().st_mode & 0o77 == 0 for folder in kept)
    assert "more" not in offered(drafts)
    assert "1 more" in offered([*drafts, drafts[0]])


def test_saved_views_are_one_a_name(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    names = ("b", "A", "c")
    for name in names:
        save_named(path, SavedView(name=name, filter_line=f"run:{name}", hidden=("x",)))
    save_named(path, SavedView(name="c", column="age", descending=False, wider={"age": 2}))
    found = load_named(path, SavedView)
    assert [one.name for one in found] == ["A", "b", "c"]
    assert (found[2].column, found[2].descending, found[2].wider) == ("age", False, {"age": 2})
    assert found[1].hidden == ("x",)
    with pytest.raises(Invalid, match="already"):
        rename_named(path, found[0], "c")
    assert [one.name for one in rename_named(path, found[0], " d ")] == ["b", "c", "d"]
    with pytest.raises(NotFound):
        rename_named(path, found[0], "e")
    assert [one.name for one in delete_named(path, SavedView, "c")] == ["b", "d"]


# Rows of a sync, of a migration and of a day


def test_a_sync_and_a_migration_leave_nothing_of_what_they_did_out() -> None:
    record = fact("a", "It said this")
    split = [Divided(what="changed on the left, gone on the right", records=(record, None)),
             Divided(what="both changed", records=(record, record))]  # fmt: skip
    held = [HeldBack(key="one", record_ids=("a", "b"), reason="many"),
            HeldBack(key="two", record_ids=("c",), reason="empty")]  # fmt: skip
    failures = tuple(Failure(record_id=one, reason="down") for one in "xy")
    found = Synced(left="one", right="two", in_sync=5, written={"two": 2, "one": 1},
                   changed={"one": 3}, deleted={"two": 4}, conflicts=tuple(split),
                   held_back=tuple(held), failed=2, failures=failures)  # fmt: skip
    told = [(row.what, row.records) for row in rows_of(found)]
    assert told == [
        ("conflict: changed in one, gone in two", None), ("conflict: both changed", None),
        ("deletions held back in one", 2), ("deletions held back in two", 1),
        ("in sync already", 5), ("written in one", 1), ("written in two", 2),
        ("changed in one", 3), ("deleted in two", 4), ("failed", 2),
        ("failed: x", None), ("failed: y", None),
    ]  # fmt: skip
    words = status_words(found).plain
    for part_of in ("5 in sync", "3 written", "3 changed", "4 deleted", "2 conflicts",
                    "3 deletions held back", "2 failed"):  # fmt: skip
        assert part_of in words
    dry = [row.what for row in rows_of(found.model_copy(update={"dry_run": True}))]
    assert "to be written in one" in dry
    moved = Applied(written=1, replaced=2, unchanged=3, failed=2, failures=failures)
    rows = {row.what: row.records for row in applied(moved)}
    assert rows == {"written": 1, "replaced": 2, "unchanged": 3, "failed": 2,
                    "failed: x": None, "failed: y": None}  # fmt: skip


@pytest.mark.parametrize("day", [date(2026, 3, 28), date(2026, 3, 29), date(2026, 10, 25)])
def test_a_day_of_the_past_has_the_edges_of_its_zone(day: date) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    later = datetime(2027, 1, 1, tzinfo=UTC)
    state = AppState(zone=berlin, clock=lambda: later, true_clock=lambda: later)
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=berlin).astimezone(UTC)
    moments = [noon, noon + timedelta(minutes=1), noon + timedelta(minutes=2)]
    found = past._moments_of(day, moments, ["one", "one", None], state)
    end, *changes, begin = [one.at for one in found]
    assert changes == moments[:0:-1], "the last moment of an operation stands for it"
    assert begin.astimezone(berlin).replace(tzinfo=None) == datetime.combine(
        day, datetime.min.time()
    )
    after = end.astimezone(berlin) + timedelta(microseconds=1)
    assert (after.date(), after.hour, after.minute) == (day + timedelta(days=1), 0, 0)
    assert (end - begin) + timedelta(microseconds=1) == timedelta(
        hours={date(2026, 3, 29): 23, date(2026, 10, 25): 25}.get(day, 24)
    )
