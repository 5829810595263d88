from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.context.assembly import SectionKind, assemble, section_of_records
from memtui.context.cost import TokenCounter
from memtui.contract import Record, RecordHandle, Scope
from memtui.filters import parse_filter
from memtui.screens.budget.view import (
    BudgetView,
    FactRow,
    by_words,
    fact_columns,
    fact_content,
    narrowed,
    offers_content,
    offers_of,
    place_of_section,
    places_of,
    rows_of,
)
from memtui.screens.state import AppState, PruneFigures
from memtui.service.answers import RetrievalCount
from memtui.service.review.known_risks import FoundRisk, RiskMark
from memtui.service.usecases.remembered import OwnerShare
from memtui.widgets.columns import fit_cell
from tests.screens.hostile import HOSTILE, assert_content_harmless, assert_harmless

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)


def record(text: str, **changes: object) -> Record:
    values: dict[str, object] = {
        "handle": RecordHandle(provider_key="vault", provider_record_id=text[:40] or "x"),
        "text": text,
        "scope": Scope(company_id="local", subject_id="ana"),
        "kind": "fact",
        "created_at": NOW - timedelta(days=1),
        "created_by": "agent:coding",
    }
    return Record.model_validate(values | changes)


def rows(*records: Record) -> tuple[FactRow, ...]:
    section = section_of_records(SectionKind.USER, records, now=NOW)
    return rows_of(assemble([section], counter=TokenCounter("gpt-4o")))


def test_rows_stand_as_the_model_reads_them_and_what_it_lacks_comes_last() -> None:
    gone = record("old", expires_at=NOW - timedelta(hours=1))
    found = rows(gone, record("b"), record("a", pinned=True))
    assert [row.text for row in found] == ["a", "b", "old"]
    assert [row.tokens for row in found] == [3, 3, None]
    assert found[2].left_out.startswith("It expired on")
    assert len({row.key for row in found}) == 3


def test_a_filter_line_narrows_the_facts() -> None:
    found = rows(record("likes tea"), record("likes Lua", created_by="user:mei", created_at=NOW))
    tea = found[[row.text for row in found].index("likes tea")]
    repeated = {one for one in (tea.handle,) if one is not None}
    reads = RetrievalCount(count=3, last_at=NOW - timedelta(days=2), last_rank=1)
    secret = RiskMark(checked=True, risks=(FoundRisk(reason="holds_secret"),))
    marks = {tea.name: secret}

    def texts(line: str) -> list[str]:
        chosen = parse_filter(line, now=NOW)
        passing = narrowed(
            found, chosen, stats={tea.name: reads}, marks=marks, repeated=repeated, now=NOW
        )
        return [row.text for row in passing]

    for line in ("LIKES lua", "-tea", "by:user:mei", "-by:agent:coding", "since:now", "read:never",
                 "-read:<3d", "cost:>2 dup:no"):  # fmt: skip
        assert texts(line) == ["likes Lua"], line
    for line in ("until:now", "by:user:ana,agent", "read:<3d", "stale:>1d", "dup:yes"):
        assert texts(line) == ["likes tea"], line
    for line in ("kind:note,guidance", "cost:>9", "stale:>2d -dup:yes"):
        assert texts(line) == [], line

    assert texts("risk:any") == texts("risk:secret") == ["likes tea"]
    assert texts("risk:unchecked") == ["likes Lua"]
    assert texts("risk:none") == texts("-risk:any") == []  # what is not checked is neither
    marks |= {row.name: RiskMark(checked=row is not tea) for row in found}
    assert texts("risk:none") == texts("-risk:any") == ["likes Lua"]
    assert texts("risk:unchecked") == ["likes tea"]


def test_places_follow_the_scope_and_each_section_has_one() -> None:
    scope = Scope(company_id="local", subject_id="ana", project_id="mech", run_id="7")
    places = places_of(scope)
    assert [place.label for place in places] == ["user ana", "project mech"]
    assert all(place.scope.run_id is None for place in places)
    workspace = place_of_section(SectionKind.WORKSPACE, places)
    assert workspace is not None
    assert workspace.scope == Scope(company_id="local", project_id="mech")
    assert place_of_section(SectionKind.IDENTITY, places) is None
    assert places_of(Scope(company_id="local", run_id="7")) == ()


def test_who_made_a_fact_is_told_in_a_word() -> None:
    assert by_words("agent:coding") == "ai coding"
    assert by_words("user:ana") == "ana"
    assert by_words(None) == "–"


def test_offers_are_what_is_remembered_and_whom_the_log_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web").mkdir()
    monkeypatch.chdir(tmp_path / "web")
    company, web = Scope(company_id="c"), Scope(company_id="c", project_id="web")
    ana = Scope(company_id="c", subject_id="ana", project_id="p")
    shares = [
        OwnerShare(company, "notes", 160, 5_000),
        OwnerShare(web, "claude", 3, 60),
        OwnerShare(web, "facts", 3, 520, 2, 510),
    ]
    found = offers_of([ana], shares, "claude-sonnet-4-5")
    assert [(one.place.label, one.place.binding_key, one.has_context) for one in found] == [
        ("project web", "claude", False),
        ("project web", "facts", True),
        ("user ana", "", True),
        ("project p", "", True),
        ("company c", "notes", False),
    ]
    figures = PruneFigures("c", NOW, {web: (1, 5)})
    state = AppState(clock=lambda: NOW, zone=UTC, scope=company, pruning=figures)
    for width in (76, 116, 196):
        drawn = offers_content(BudgetView(offers=tuple(found)), state, width)
        assert max(one.cell_length for one in drawn) <= width
        costs = {one.plain.rindex("$0.") for one in drawn if "$0." in one.plain}
        assert len(costs) <= 1
        assert ["could go" in one.plain for one in drawn][:2] == [width >= 100, False]
        assert "510 / 500 ▲" in drawn[1].plain
        assert "5,000 tokens" in drawn[-1].plain
        assert "▲" not in drawn[-1].plain
        assert "claude" in drawn[0].plain
        assert "facts" in drawn[1].plain
        assert ("notes" in drawn[-1].plain) == (width >= 100)

    # A number whose unit has no room stands without it, and is not cut.
    shares = [OwnerShare(web, "claude", 3, 60), OwnerShare(web, "instructions", 30, 5_000)]
    found = offers_of([], shares, "claude-sonnet-4-5")
    drawn = offers_content(BudgetView(offers=tuple(found)), state, 76)
    assert [one.plain.split("records")[1].split() for one in drawn] == [
        ["60", "tokens", "$0.00"],
        ["5,000", "$0.00"],
    ]


@pytest.mark.parametrize("text", [text[:5_000] for text in HOSTILE if "\ud800" not in text])
def test_hostile_facts_are_harmless_in_list_and_detail(text: str) -> None:
    [row] = rows(record(text, created_by=text))
    for column in fact_columns(lambda: NOW, {}):
        assert_harmless(fit_cell(column.of(row).text, column.width, column.align))
        assert column.rank(row) is not None
    place = places_of(Scope(company_id="c", subject_id=text))[0]
    assert_content_harmless(
        fact_content(row, place, None, AppState(clock=lambda: NOW, zone=UTC), 60)
    )
