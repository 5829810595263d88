"""Every field of a row arrives, the second of each thing too, and limits are exact."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from memtui.contract import Invalid
from memtui.importing import importer, mapping, rows, values
from memtui.importing.importer import Import, company_for
from memtui.importing.mapping import MappedRows
from memtui.importing.rows import Row, format_of, json_lines, read
from memtui.importing.staging import ParsedOperation, Staging
from memtui.importing.translating import Translator
from memtui.service import MemoryService
from memtui.store.operation import OperationDraft
from tests.importing.conftest import Log, log_of, row
from tests.importing.conftest import json_lines as write_lines

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def draft_of(given: dict[str, Any], **mapped: Any) -> OperationDraft:
    return Translator("theirs").entry("a.jsonl", Row(7, given), mapped).draft


WHOLE: dict[str, Any] = {
    "started_at": "2026-03-01T10:00:00Z", "operation_type": "write", "operation_id": " x-1 ",
    "status": "conflict", "agent_id": "a", "project_id": "p", "subject_id": "s", "issue_id": "i",
    "run_id": "r", "binding_key": "b", "provider_key": "pk", "principal": "user:eve", "channel":
    "d", "query": "q", "content": "c", "request": {"k": [1]}, "result_count": 9, "capped": "yes",
    "latency_ms": 12.5, "error_message": "went wrong", "error_kind": "odd", "source_kind":
    "issue_comment", "source_issue_id": "i2", "source_comment_id": "c2", "source_document_key":
    "d2", "source_run_id": "r2", "source_activity_id": "a2", "source_external_ref":
    "https://x.test/1", "provider": "pr", "model": "mo", "input_tokens": 11, "output_tokens": 12,
    "embedding_tokens": 13, "cache_read_tokens": 4, "cache_write_tokens": 5, "cost_usd": "0.5",
    "undoes": "before", "binding_reason": "because", "handles": [
        {"rank": 1, "provider_key": "pk", "provider_record_id": "1", "score": 0.5, "ghost": True},
        {"rank": 2, "provider_key": "pk", "provider_record_id": "2", "binding_key": "other"},
    ],
}  # fmt: skip


def test_every_field_of_a_row_arrives() -> None:
    draft = draft_of(WHOLE | {"team": "red", "floor": 2})
    scope = draft.scope
    assert (scope.company_id, scope.agent_id, scope.project_id, scope.subject_id) == (
        "theirs", "a", "p", "s",
    )  # fmt: skip
    assert (scope.issue_id, scope.run_id) == ("i", "r")
    assert (draft.operation_type, draft.status, draft.started_at.hour) == ("write", "conflict", 10)
    assert (draft.binding_key, draft.provider_key, draft.binding_reason) == ("b", "pk", "because")
    assert (draft.principal, draft.channel, draft.undoes) == ("user:eve", "d", "before")
    assert (draft.result_count, draft.capped, draft.latency_ms) == (9, True, 12.5)
    assert (draft.error_message, draft.error_kind) == ("went wrong", "odd")
    assert draft.source is not None
    assert draft.source.model_dump(mode="json") == {
        "kind": "issue_comment", "company_id": "theirs", "issue_id": "i2", "comment_id": "c2",
        "document_key": "d2", "run_id": "r2", "activity_id": "a2",
        "external_ref": "https://x.test/1",
    }  # fmt: skip
    imported = {"file": "a.jsonl", "line": 7, "id": "x-1", "columns": {"team": "red", "floor": 2}}
    assert draft.request == {"k": [1], "query": "q", "content": "c", "imported": imported}
    [usage] = draft.usage
    assert (usage.provider, usage.model, usage.cost_usd) == ("pr", "mo", Decimal("0.5"))
    assert (usage.input_tokens, usage.output_tokens, usage.embedding_tokens) == (11, 12, 13)
    first, second = draft.handles
    assert (first.score, first.ghost, first.provider_record_id) == (0.5, True, "1")
    assert (second.rank, second.binding_key, second.provider_key) == (2, "other", "pk")


def test_the_least_that_a_row_may_say() -> None:
    draft = draft_of({"started_at": 1772357400, "operation_type": "query"})
    assert (draft.principal, draft.channel, draft.status) == ("import", "import", "ok")
    assert (draft.source, draft.latency_ms, draft.usage, draft.handles) == (None, None, (), ())
    assert (draft.result_count, draft.capped, draft.error_kind) == (0, False, None)
    assert draft.request == {"imported": {"file": "a.jsonl", "line": 7}}
    assert draft_of(row(agent_id="bob")).principal == "agent:bob"
    assert draft_of(row(handles=WHOLE["handles"])).result_count == 2
    assert draft_of(row(source_external_ref="https://x.test")).source is not None
    assert draft_of(row(error_message="no")).status == "error"
    assert draft_of(row(error_message="no", status="ok")).status == "ok"
    assert {**draft_of(row(request=' {"a": 1}', content="t")).request}["a"] == 1


def test_a_mapped_value_takes_the_place_of_a_column() -> None:
    given = row(agent_id="own", team="red")
    assert draft_of(given, agent_id="mapped").scope.agent_id == "mapped"
    assert draft_of(given, agent_id=None).scope.agent_id is None
    for kept in ({"a": 1}, '{"a": 1}'):
        assert draft_of(given, imported=kept).request["imported"]["columns"] == {"a": 1}
    nothings: tuple[Any, ...] = (None, "", {})
    for nothing in nothings:
        assert "columns" not in draft_of(given, imported=nothing).request["imported"]


def test_what_a_cache_held_has_its_own_price() -> None:
    call = {"model": "claude-sonnet-4-5", "input_tokens": 100_000}
    plain, read, written = (
        draft_of(row(**call, **cached)).usage[0]
        for cached in (
            {},
            {"cache_read_tokens": 100_000},
            {"cache_write_tokens": 100_000},
        )
    )
    assert (plain.cost_usd, read.cost_usd, written.cost_usd) == (
        Decimal("0.3"), Decimal("0.03"), Decimal("0.375"),
    )  # fmt: skip
    assert (plain.provider, read.details["cache_read_tokens"]) == ("anthropic", 100_000)
    assert written.details["cache_write_tokens"] == 100_000
    both = {"cache_read_tokens": 50_000, "cache_write_tokens": 50_001}
    with pytest.raises(ValueError, match="more than input_tokens"):
        draft_of(row(**call, **both))
    both["cache_write_tokens"] -= 1
    assert draft_of(row(**call, **both)).usage[0].cost_usd == Decimal("0.2025")
    # One that both read and embedded is two calls, and one without tokens is none.
    embedded = draft_of(row(**call, embedding_tokens=1)).usage[0]
    assert (embedded.cost_usd, embedded.embedding_tokens) == (None, 1)
    [none] = draft_of(row(model="gpt-4o")).usage
    assert (none.cost_usd, none.provider, none.details) == (None, "unknown", {})
    [named] = draft_of(row(model="gpt-4o", provider="azure", input_tokens=10)).usage
    assert named.provider == "azure"
    [cost] = draft_of(row(cost_usd=0)).usage
    assert (cost.cost_usd, cost.model) == (Decimal(0), None)


def test_calls_without_a_price_count_the_known_one() -> None:
    for more, calls in (({}, 2), ({"model": "mystery"}, 2), ({"model": "m", "cost_usd": 1}, 3)):
        usage = draft_of(row(unpriced_count=2, **more)).usage
        assert len(usage) == calls
        assert sum(one.cost_usd is None for one in usage) == 2


@pytest.mark.parametrize(
    ("read", "most", "beyond"),
    [
        (values.count, 2**63 - 1, 2**63),
        (values.count, "9223372036854775807", "9223372036854775808"),
        (values.count, 0, -1),
        (values.duration, 0, -1),
        (values.duration, "999999999999999.9", 10**15),
        (values.money, 0, "-0.01"),
        (values.money, 9_000_000, "9000000.01"),
        (values.identifier, "x" * 200, "x" * 201),
        (values.identifier, " x ", " "),
    ],
)
def test_the_limits_of_a_value_are_exact(read: Any, most: Any, beyond: Any) -> None:
    read(most)
    with pytest.raises(ValueError, match=r"is not (a|an) "):
        read(beyond)


def test_a_moment_is_from_1970_to_9999() -> None:
    assert values.moment(0, UTC) == (EPOCH, False)
    assert values.moment(10**11 - 1, UTC)[0].year == 5138
    assert values.moment(10**11, UTC)[0].year == 1973
    assert values.moment("0.5", UTC)[0] == EPOCH + timedelta(seconds=0.5)
    assert values.moment("1.5e3", UTC)[0] == EPOCH + timedelta(seconds=1500)
    for wrong in (-1, -0.5, 10**20):
        with pytest.raises(ValueError, match=r"before 1970|out of range"):
            values.moment(wrong, UTC)


def test_what_json_cannot_carry_is_its_text() -> None:
    given = {
        "at": datetime(2026, 3, 1, tzinfo=UTC), "day": datetime(2026, 3, 1, tzinfo=UTC).date(),
        "raw": b"\x01\xff", "list": (1, 2.5, None), "inf": float("inf"), "cost": Decimal("1.10"),
        3: True,
    }  # fmt: skip
    assert values.plain(given) == {
        "at": "2026-03-01T00:00:00+00:00", "day": "2026-03-01", "raw": "01ff",
        "list": [1, 2.5, None], "inf": "inf", "cost": "1.10", "3": True,
    }  # fmt: skip
    assert (values.text({"é": [1, 2]}), values.text(7)) == ('{"é": [1, 2]}', "7")
    assert values.structure("[1]", list) == [1]
    for wrong in ("[", "{}", 3):
        with pytest.raises(ValueError, match="is not"):
            values.structure(wrong, list)
    assert (values.shown("x" * 60), len(values.shown("x" * 61))) == (repr("x" * 60), 62)
    assert [values.flag(word) for word in (True, " YES ", "t", 1)] == [True] * 4
    assert [values.flag(word) for word in (False, "No", "f", 0, "")] == [False] * 5
    with pytest.raises(ValueError, match="neither"):
        values.flag("maybe")


# Files


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.json", "jsonl"), ("a.csv", "csv"),
     ("a.Tsv", "csv"), ("a.parquet", "parquet"), ("", "claude-code")],
)  # fmt: skip
def test_the_end_of_a_name_tells_the_format(tmp_path: Path, name: str, form: str) -> None:
    if name:
        (tmp_path / name).write_text("")
    assert format_of(tmp_path / name) == form


def test_a_transcript_is_told_by_its_first_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_LOOKED_AT", 3)
    said = {"sessionId": "s", "type": "user", "uuid": "u"}
    for before, form in ((2, "claude-code"), (3, "jsonl")):
        path = write_lines(tmp_path / "a.jsonl", [{"type": "x"}] * before + [said])
        assert format_of(path) == form
    for missing in said:
        others = {name: value for name, value in said.items() if name != missing}
        assert format_of(write_lines(tmp_path / "a.jsonl", [others])) == "jsonl"


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_sign_between_cells(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "a.csv"
    lines = (["a", " b ", "c"], ["1", "x", "'=1+1"], ["2", "", "'quoted'"])
    path.write_text("".join(sign.join(line) + "\n" for line in lines), encoding="utf-8-sig")
    assert [(one.line, one.values) for one in read(path, "csv")] == [
        (2, {"a": "1", "b": "x", "c": "=1+1"}),
        (3, {"a": "2", "b": None, "c": "'quoted'"}),
    ]


def test_a_cell_that_is_too_long_does_not_end_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = csv.field_size_limit()
    monkeypatch.setattr(rows, "_LINE_BYTES", 20)
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n1,{'x' * 20}\n2,{'x' * 21}\n3,y\n")
    found = [(one.line, one.values is None) for one in read(path, "csv")]
    csv.field_size_limit(limit)
    assert found == [(2, False), (3, True), (4, False)]


def test_rows_of_parquet_keep_their_numbers_past_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "_BATCH", 2)
    path = tmp_path / "a.parquet"
    made = "SELECT n, {'deep': {'er': n}} AS s FROM range(5) AS t(n)"
    duckdb.execute(f"COPY ({made}) TO '{path}' (FORMAT parquet)")
    with closing(MappedRows(path, "parquet", {"query": "s.deep.er + 1", "agent_id": "n"})) as read:
        assert read.columns == {"n": "BIGINT", "s": "STRUCT(deep STRUCT(er BIGINT))"}
        assert list(read) == [
            (Row(number + 1, {"n": number, "s": {"deep": {"er": number}}}),
             {"agent_id": number, "query": number + 1})
            for number in range(5)
        ]  # fmt: skip


def test_a_line_of_our_own_export_has_the_columns_of_its_csv(tmp_path: Path) -> None:
    own = {
        "operation_id": "o", "operation_type": "query", "digest": "d", "usage": [],
        "scope": {"company_id": "c", "agent_id": "a"}, "source": {"kind": "run", "run_id": "r"},
    }  # fmt: skip
    path = write_lines(tmp_path / "a.jsonl", [own, own | {"source": None}, {"scope": {"x": 1}}])
    kept = {"operation_id": "o", "operation_type": "query", "digest": "d", "usage": [],
            "company_id": "c", "agent_id": "a"}  # fmt: skip
    assert [one.values for one in read(path, "jsonl")] == [
        kept | {"source_kind": "run", "source_run_id": "r"}, kept, {"scope": {"x": 1}},
    ]  # fmt: skip


def test_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf [\n{"a":\n1} ,\n\n{"a": "]\\ud83d"}, 5]\n')
    assert [(one.line, one.values, one.problem) for one in json_lines(path)] == [
        (1, {"a": 1}, ""),
        (2, {"a": "]\ud83d"}, ""),
        (3, None, "it is not a JSON object"),
    ]
    for wrong, why in ((b'[{"a": 1}, {"b": NaN}]', "JSON"), (b'[{"a": "\xff"}]', "UTF-8 text")):
        path.write_bytes(wrong)
        assert list(json_lines(path)) == [Row(1, None, f"it is not {why}")]
    monkeypatch.setattr(rows, "_ARRAY_BYTES", 5)
    with pytest.raises(Invalid, match="one JSON array of more than"):
        list(json_lines(path))


def test_lines_that_are_no_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n[2]\n\n{"a": Infinity}\n{"a": "\\ud83d"}\n')
    assert [(one.line, one.values is None) for one in json_lines(path)] == [
        (1, False), (2, True), (4, True), (5, False),
    ]  # fmt: skip


# What waits


def parsed(second: int, line: int, key: str, **more: Any) -> ParsedOperation:
    draft = draft_of(
        {"started_at": 1772357400 + second, "operation_type": "write", "content": f"{key} {line}"}
    )
    return ParsedOperation(line, draft, key, **more)


@pytest.fixture
def waiting() -> Iterator[Staging]:
    staging = Staging("theirs", once=False)
    yield staging
    staging.close()


@pytest.mark.parametrize("at_a_time", [1, 2, 500])
def test_they_go_in_by_time_then_file_then_line(
    waiting: Staging, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr("memtui.importing.staging._AT_A_TIME", at_a_time)
    for file, second, line in ((1, 5, 1), (0, 5, 9), (0, 5, 2), (1, 4, 7), (0, 6, 1)):
        waiting.add(file, parsed(second, line, f"k{file}"))
    assert (waiting.count, waiting.added) == (5, 5)
    found = [one.draft.request["imported"] | {"c": one.draft.request["content"]}
             for one in waiting.in_order()]  # fmt: skip
    assert [one["c"] for one in found] == ["k1 7", "k0 2", "k0 9", "k1 1", "k0 1"]


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [("a" * 15, False), ("a" * 16, True), ("a" * 64, True), ("a" * 65, False), ("1" * 16, False),
     ("1" * 15 + "a", True), ("-" + "a" * 16, False), ("a:b_c.d-e" * 2, True), ("a b" * 6, False)],
)  # fmt: skip
def test_which_ids_are_kept(waiting: Staging, name: str, is_kept: bool) -> None:
    waiting.add(0, parsed(0, 1, "k", foreign_id=name))
    waiting.add(0, parsed(0, 2, "k", foreign_id=name))
    waiting.add(1, parsed(0, 1, "other", foreign_id=None))
    first, second, third = waiting.in_order()
    assert (first.draft.operation_id == name) is is_kept
    assert (first.own_id == first.draft.operation_id) is not is_kept
    assert len({first.own_id, second.own_id, third.own_id}) == 3
    assert second.draft.operation_id == second.own_id


def test_of_what_is_one_operation_the_heaviest_counts_at_the_first_moment() -> None:
    staging = Staging("theirs", once=True)
    for second, line, weight in ((9, 1, 5), (1, 2, 5), (2, 3, 7), (3, 4, 6)):
        staging.add(0, parsed(second, line, "k", weight=weight))
    [found] = staging.in_order()
    assert (staging.added, staging.count) == (4, 1)
    assert (found.draft.request["content"], found.draft.started_at.minute) == ("k 3", 30)
    assert found.draft.started_at == EPOCH + timedelta(seconds=1772357409)
    staging.close()


# A whole import


async def test_what_is_reported_of_several_files(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "_LISTED", 2)
    days = ("2026-03-02", "2026-03-01", "2026-03-04T10:00:00Z")
    files = [
        write_lines(tmp_path / f"{name}.jsonl", [
            row(started_at=day, operation_type=kind, status=status),
            row(started_at="never"), row(skip=True),
        ])
        for name, day, kind, status in zip("abc", days, ("write", "query", "write"),
                                           ("ok", "error", "ok"), strict=True)
    ]  # fmt: skip
    report = await load(*files, where="skip IS NULL", skip_bad=True)
    assert report.files == tuple(map(str, files))
    assert (report.operations, report.added, report.known, report.created) == (3, 3, 0, True)
    assert report.types_count == {"write": 2, "query": 1}
    assert report.status_count == {"ok": 2, "error": 1}
    assert report.first == datetime(2026, 3, 1, tzinfo=UTC)
    assert report.last == datetime(2026, 3, 4, 10, tzinfo=UTC)
    assert (report.naive_count, report.timezone, report.skipped) == (
        2,
        "UTC",
        {"not in --where": 3},
    )
    assert (report.bad_count, [(one.file, one.line) for one in report.bad]) == (
        3, [("a.jsonl", 2), ("b.jsonl", 2)],
    )  # fmt: skip
    assert (report.usage_count, report.cost_usd) == (0, None)
    [theirs] = [one for one in await service.companies.all() if one.company_id == "theirs"]
    assert theirs.name == "Imported from a.jsonl and 2 more"
    asked = (await log_of(service, "local"))[-1].request
    assert (asked["files"], asked["file_count"]) == (["a.jsonl", "b.jsonl"], 3)


async def test_how_far_an_import_has_come(load: Log, tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    path = write_lines(tmp_path / "a.jsonl", [row(n=number) for number in range(1001)])
    await load(path, dry_run=True, report=lambda *said: told.append(said))
    assert [count for what, count in told if what == "read"] == [1000]
    assert ("gone through", 1001) in told


async def test_why_nothing_is_imported(load: Log, tmp_path: Path) -> None:
    one = write_lines(tmp_path / "a.jsonl", [row(n=1)])
    two = write_lines(tmp_path / "b.jsonl", [row(n=1)])
    with pytest.raises(Invalid, match=r"in a\.jsonl: the 1 row was left out"):
        await load(one, where="n > 1")
    with pytest.raises(Invalid, match="in 2 files: the 2 rows were left out"):
        await load(one, two, where="n > 1")
    plan = await load(one, where="n > 1", dry_run=True)
    assert (plan.operations, plan.skipped, plan.first, plan.last) == (
        0, {"not in --where": 1}, None, None,
    )  # fmt: skip
    write_lines(two, [row(started_at="never")])
    with pytest.raises(Invalid, match=r"1 row does not fit: b\.jsonl line 1"):
        await load(two)


@pytest.mark.parametrize(
    ("name", "company"),
    [("My Log (2).jsonl", "my-log-2"), ("é.csv", "imported"), ("x" * 70 + ".csv", "x" * 63),
     ("a.b_c-.csv", "a.b_c")],
)  # fmt: skip
def test_a_company_is_called_by_its_file(tmp_path: Path, name: str, company: str) -> None:
    path = tmp_path / name
    path.write_text("")
    assert company_for([path, tmp_path / "other.csv"]) == company
    assert company_for([tmp_path]) == company_for([path], "claude-code") == "claude-code"


async def test_files_and_folders_that_are_not_there(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [row()])
    other = tmp_path / "b.csv"
    other.write_text("ts,op\n")
    for files, why in (
        ([path, tmp_path / "none.jsonl"], r"none\.jsonl does not exist"),
        ([path, other], "one format at a time"),
    ):
        with pytest.raises(Invalid, match=why):
            Import(files, "theirs", {})
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(Invalid, match="pipe"):
        Import([tmp_path / "pipe.jsonl"], "theirs", {})
