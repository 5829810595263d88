"""JSON Lines that DuckDB writes are those that Python's `json` writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from memtui.analytics import export
from memtui.analytics.export import Exporter, ExportFormat
from memtui.contract import Filter, Invalid, SourceRef, Usage
from memtui.store.database import Database
from memtui.store.operation import OperationDraft, OperationHandle
from tests.analytics.logs import append, draft, fill
from tests.analytics.logs import seal_unlogged as seal

COSTS = (
    *(None, "0", "0.000000000001", "0.00000018", "0.0000001", "0.000000999999", "0.000001"),
    *("0.0000012", "0.1", "1", "10", "12.5", "999999.000000000001", "8999999.123456789012"),
)
NUMBERS = (0.0, 1.0, 1e-7, 0.1 + 0.2, 1e15, 1e16, 1.5e300, 5e-324, 123456789012345680.0)
TEXTS = (
    *("", "plain", 'a "quoted" \\ text', "C:\\users\\ana", "\\u00e9", "/slash/", "tab\tline\nend"),
    *("\x08\x0c\r", "\x1b[2J\x00", "\x7f", "é", "日本語 🌱", "\ue000", "\ue0000041", "\ud83d"),
    *("\ud83d\ude00", "\u2028", "\uffff"),
)


def odd() -> list[OperationDraft]:
    """Operations in which every value is one that two writers of JSON may differ in."""
    usages = [
        Usage(provider="x", cost_usd=None if cost is None else Decimal(cost)) for cost in COSTS
    ]
    timed = [Usage(provider="x", latency_ms=number) for number in NUMBERS]
    handles = [
        OperationHandle(rank=rank, provider_key="x", provider_record_id="r", score=score)
        for rank, score in enumerate((*NUMBERS, None, float("inf")), 1)
    ]
    moments = (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        for micros in (0, 1, 120_000, 10**6, 10**15 + 7, -1, 253402300799999999)
    )
    return [
        draft(201, usage=(*usages, *timed)),
        draft(202, handles=handles, binding_key=None),
        draft(203, handles=handles[:2], binding_key="own"),
        *(draft(210 + n, started_at=moment) for n, moment in enumerate(moments)),
        *(
            draft(
                220 + n,
                error_message=text,
                binding_key=text,
                request={"query": text, "deep": [{text: 1.5}, None, True]},
                source=SourceRef(kind="run", company_id="acme", external_ref=text),
                usage=(Usage(provider=text, model=text, details={"text": text}),),
                handles=(
                    OperationHandle(
                        rank=1, provider_key=text, provider_record_id=text, binding_key="else"
                    ),
                ),
            )
            for n, text in enumerate(TEXTS)
        ),
    ]


def exported(database: Database, root: Path, target: Path, chosen: Filter | None = None) -> bytes:
    exporter = Exporter(database, root, "acme")
    try:
        exporter.to_file(target, ExportFormat.JSONL, chosen)
    finally:
        exporter.close()
    return target.read_bytes()


@pytest.mark.parametrize(
    ("database_url", "sealed"),
    [
        ("sqlite", "nothing"),
        ("sqlite", "some"),
        ("sqlite", "everything"),
        ("postgresql", "nothing"),
    ],
    indirect=["database_url"],
)
def test_the_file_is_the_same_whoever_writes_it(
    database: Database, root: Path, tmp_path: Path, sealed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_BATCH", 7)
    fill(database, 25)
    if sealed == "some":
        seal(database, root, "acme", segment_rows=20)
    append(database, odd())
    if sealed == "everything":
        seal(database, root, "acme", segment_rows=20)
    found = exported(database, root, tmp_path / "log.jsonl")
    count = found.count(b"\n")
    assert count == 25 + len(odd())
    with monkeypatch.context() as patched:
        patched.setattr(export, "_may_differ", lambda _line: True)
        assert exported(database, root, tmp_path / "python.jsonl") == found
    chosen = Filter(operation_type="query")
    some = exported(database, root, tmp_path / "some.jsonl", chosen)
    wanted = [line for line in found.splitlines(keepends=True) if b'_type":"query"' in line]
    assert some == b"".join(wanted)
    assert 0 < len(wanted) < count


def test_a_stopped_export_leaves_no_file(database: Database, root: Path, tmp_path: Path) -> None:
    fill(database, 3)
    exporter = Exporter(database, root, "acme")
    exporter.stop()
    with pytest.raises(Invalid, match="stopped"):
        exporter.to_file(tmp_path / "log.jsonl", ExportFormat.JSONL)
    exporter.close()
    assert not [path for path in tmp_path.iterdir() if "log" in path.name]
