"""The flat row of an operation: in each format and in SQL every column is what JSON Lines say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from memtui.analytics import export
from memtui.analytics.export import COLUMNS, Exporter, ExportFormat, format_of
from memtui.analytics.rows import text_of as stored_text_of
from memtui.analytics.sql import SqlConsole
from memtui.contract import Conflict, Filter, Invalid, SourceRef
from memtui.csv_text import text_of
from memtui.store.database import Database
from memtui.store.operation import APP_CHANNEL, OperationHandle
from tests.analytics.logs import NOW, append, draft, fill
from tests.analytics.logs import seal_unlogged as seal

SOURCE = SourceRef(
    kind="issue_comment", company_id="acme", issue_id="i", comment_id="c", document_key="d",
    run_id="r", activity_id="a", external_ref="=x",
)  # fmt: skip


@pytest.fixture
def written(database: Database, root: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Two segments and hot operations, whose batches of an export are of four."""
    monkeypatch.setattr(export, "_BATCH", 4)
    fill(database, 9)
    fill(database, 3, "other")
    append(database, [
        draft(10, source=SOURCE, binding_reason="own", undoes="acme-00001", capped=True,
              error_kind="odd", error_message="-1 'x", channel=APP_CHANNEL,
              operation_type="browse"),
        draft(11, source=None, channel="mcp", to_show=True, latency_ms=0.5, result_count=7),
    ])  # fmt: skip
    seal(database, root, "acme", segment_rows=6)
    append(database, [
        draft(12, source=SOURCE, channel=APP_CHANNEL, operation_type="write", request={"é":
        ["\x00"]}), draft(13, scope={"company_id": "acme", "agent_id": "=1+1", "subject_id": "s"}),
        draft(14, binding_key="'=2", provider_key="p"),
    ])  # fmt: skip
    return database


@pytest.fixture
def exporter(written: Database, root: Path) -> Iterator[Exporter]:
    made = Exporter(written, root, "acme")
    yield made
    made.close()


def flat(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a row has to hold of an operation of JSON Lines."""
    source, usage, handles = line["source"] or {}, line["usage"], line["handles"]
    costs = [Decimal(one["cost_usd"]) for one in usage if one["cost_usd"] is not None]
    scores = [one["score"] for one in handles if one["score"] is not None]
    row = {name: line[name] for name in COLUMNS if name in line}
    row |= line["scope"] | {f"source_{name}": source.get(name) for name in SOURCE.model_dump()}
    row |= {name: sum(one[name] for one in usage) for name in
            ("input_tokens", "output_tokens", "embedding_tokens")}  # fmt: skip
    looks = line["operation_type"] in {"browse", "get", "query", "history"}
    return row | {
        "started_at": datetime.fromisoformat(line["started_at"]),
        "request": line["request"], "absent": line["absent"] or None,
        "cost_usd": sum(costs) if costs else None, "usage_count": len(usage),
        "unpriced_count": len(usage) - len(costs), "handle_count": len(handles),
        "best_score": max(scores, default=None),
        "internal": bool(line["to_show"]) or (line["channel"] == APP_CHANNEL and looks),
    }  # fmt: skip


def read(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its JSON read, and what no database holds as it was."""
    row = {name: stored_text_of(value) for name, value in row.items()}
    row["request"] = json.loads(row["request"])
    return row | {"absent": json.loads(row["absent"]) if row["absent"] else None}


def differing(rows: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[Any]:
    return [
        (want["seq"], name, row[name], want[name])
        for row, want in zip(rows, wanted, strict=True)
        for name in COLUMNS
        if row[name] != want[name]
    ]


@pytest.mark.parametrize("chosen", [None, Filter(operation_type="query")])
def test_a_row_has_every_value_of_its_operation(
    exporter: Exporter, written: Database, root: Path, tmp_path: Path, chosen: Filter | None
) -> None:
    lines = io.BytesIO()
    done = exporter.to_stream(lines, ExportFormat.JSONL, chosen)
    documents = [json.loads(line) for line in lines.getvalue().splitlines()]
    wanted = [{name: flat(one)[name] for name in COLUMNS} for one in documents]
    assert (done.operations, done.damaged, done.problem) == (len(wanted), 0, None)
    assert len(wanted) == 14 if chosen is None else 0 < len(wanted) < 14

    file = tmp_path / "log.parquet"
    assert exporter.to_file(file, ExportFormat.PARQUET, chosen) == done
    found = duckdb.execute(f"SELECT * FROM '{file}'")
    names = [column[0] for column in found.description or ()]
    rows = [read(dict(zip(names, row, strict=True))) for row in found.fetchall()]
    assert names == list(COLUMNS)
    assert differing(rows, wanted) == []

    console = SqlConsole(written, root, "acme")
    answer = console.run("SELECT * FROM operations ORDER BY seq")
    console.close()
    shown = [read(dict(zip(answer.columns, row, strict=True))) for row in answer.rows]
    if chosen is None:  # a statement sees no half of a character in JSON
        whole = [json.loads(json.dumps(one["request"]).replace("\\ud800", "")) for one in wanted]
        asked = [one | {"request": told} for one, told in zip(wanted, whole, strict=True)]
        assert differing([row | {"company_id": "acme"} for row in shown], asked) == []

    for exact in (True, False):
        text = io.BytesIO()
        assert exporter.to_stream(text, ExportFormat.CSV, chosen, exact=exact) == done
        cells = list(csv.DictReader(io.StringIO(text.getvalue().decode(), newline="")))
        assert [one["agent_id"] for one in cells if "1+1" in one["agent_id"]] == [
            "=1+1" if exact else "'=1+1" for one in wanted if one["agent_id"] == "=1+1"
        ]
        for cell, row in zip(cells, wanted, strict=True):
            for name in COLUMNS:
                said = stored_text_of(cell[name] if exact else text_of(cell[name]))
                assert value(name, said, row[name]) == row[name], name


def value(name: str, cell: str, like: Any) -> Any:
    """Return a cell of CSV as a value like another one."""
    if name in {"request", "absent"}:
        return json.loads(cell) if cell else None
    if like is None or isinstance(like, str):
        return cell or None if like is None else cell
    if isinstance(like, bool):
        return cell == "true"
    return datetime.fromisoformat(cell) if name == "started_at" else type(like)(cell)


def test_a_file_is_told_by_its_end_and_not_written_over(exporter: Exporter, tmp_path: Path) -> None:
    names = ["a.jsonl", "a.CSV", "a.x.parquet"]
    assert [format_of(name) for name in names] == ["jsonl", "csv", "parquet"]
    for name in ("jsonl", "a.json", "a"):
        with pytest.raises(Invalid, match="--format"):
            format_of(name)
    with pytest.raises(Invalid, match="needs a file"):
        exporter.to_stream(io.BytesIO(), ExportFormat.PARQUET)
    for form in ExportFormat:
        target = tmp_path / f"log.{form}"
        target.write_text("mine")
        with pytest.raises(Conflict):
            exporter.to_file(target, form)
        assert target.read_text() == "mine"
        exporter.to_file(target, form, force=True)
        assert target.read_bytes()[:4] in {b'{"op', b"comp", b"PAR1"}


def test_what_the_view_of_records_says(database: Database, root: Path) -> None:
    def touched(kind: str, *handles: tuple[str, int, float | None], **more: Any) -> None:
        number = len(steps) + 1
        told = {"status": "ok", "binding_key": "b", "usage": (), **more}
        steps.append(draft(
            number, operation_type=kind, **told,
            handles=[OperationHandle(rank=rank, provider_key="x", provider_record_id=name,
                                     score=score, ghost=name == "ghost")
                     for name, rank, score in handles],
        ))  # fmt: skip

    steps: list[Any] = []
    touched("write", ("r", 1, None), ("s", 2, None))
    touched("query", ("s", 1, 0.9), ("r", 2, 0.5), request={"query": "q"})
    touched("context", ("r", 3, 0.7), ("ghost", 4, None))
    touched("query", ("r", 1, 0.4), status="error")
    touched("get", ("r", 1, None), channel="mcp")
    touched("history", ("r", 1, None), channel="cli")
    touched("get", ("r", 1, None), channel=APP_CHANNEL)
    touched("get", ("r", 1, None), to_show=True)
    touched("correct", ("r", 1, None))
    touched("correct", ("r", 1, None))
    touched("write", ("r", 1, None))
    touched("query", ("r", 1, 0.1), binding_key="c")
    touched("forget", ("s", 1, None))
    touched("browse", ("s", 1, None))
    touched("undo", ("s", 1, None), request={"type": "forget"})
    touched("forget", ("s", 1, None), status="denied")
    append(database, steps)
    console = SqlConsole(database, root, "acme")
    answer = console.run("SELECT * FROM records ORDER BY binding_key, provider_record_id")
    found = {
        (row["binding_key"], row["provider_record_id"]): row
        for row in (dict(zip(answer.columns, row, strict=True)) for row in answer.rows)
    }
    console.close()
    at = [NOW + timedelta(seconds=61 * number) for number in range(len(steps) + 1)]
    assert found["b", "r"] == {
        "binding_key": "b", "provider_record_id": "r", "provider_key": "x", "first_seen": at[1],
        "last_seen": at[11], "written_at": at[1], "query_count": 2, "last_query_at": at[3],
        "best_rank": 2, "best_score": 0.7, "open_count": 2, "last_opened_at": at[6],
        "correction_count": 2, "last_corrected_at": at[10], "forgotten": False, "ghost": False,
    }  # fmt: skip
    assert found.keys() == {("b", "r"), ("b", "s"), ("b", "ghost"), ("c", "r")}
    assert (found["b", "ghost"]["ghost"], found["b", "ghost"]["written_at"]) == (True, None)
    s = found["b", "s"]
    assert (s["forgotten"], s["last_seen"], s["best_rank"], s["open_count"]) == (
        False, at[15], 1, 0,
    )  # fmt: skip
    assert found["c", "r"]["query_count"] == 1
