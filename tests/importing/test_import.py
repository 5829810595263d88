"""Logs in files become a company's log: once, in order, whole or not at all."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from memtui.analytics.figures import Bucket
from memtui.analytics.stats import Rollups
from memtui.config import Paths, Settings, load_settings
from memtui.contract import Conflict, Denied, Filter, Invalid, OperationType, Unavailable
from memtui.importing.importer import Import
from memtui.importing.rows import Row
from memtui.importing.staging import Staging
from memtui.importing.translating import Translator
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.home import imports
from tests.importing.conftest import Log, json_lines, log_of, row

THEIRS = Caller(company_id="theirs", principal="user:ana", channel="test")

ROWS: list[dict[str, Any]] = [
    {"id": "7", "ts": "2026-03-01T10:00:02Z", "tool": "search_memory", "agent": "bob", "q": "where",
     "results": 3, "duration_ms": 12.5, "model": "gpt-4o-mini", "prompt_tokens": 1000,
     "completion_tokens": 50, "cost": None, "team": "red"},
    {"id": "8", "ts": "2026-03-01T10:00:01Z", "tool": "add", "agent": "bob", "q": None,
     "results": 1, "duration_ms": 8, "model": "mystery-9", "prompt_tokens": 10,
     "completion_tokens": 5, "cost": None, "team": None},
    {"id": "9", "ts": "2026-03-01T10:00:03Z", "tool": "delete", "agent": None, "q": None,
     "results": None, "duration_ms": None, "model": None, "prompt_tokens": None,
     "completion_tokens": None, "cost": 0.25, "team": None},
]  # fmt: skip


def written(folder: Path, form: str) -> Path:
    path = folder / f"log.{form}"
    if form == "jsonl":
        return json_lines(path, ROWS)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    if form == "parquet":
        json_lines(folder / "log.ndjson", ROWS)
        duckdb.execute(f"COPY (FROM '{folder}/log.ndjson') TO '{path}' (FORMAT parquet)")
    return path


MAPS = {
    "started_at": "ts",
    "operation_type": "map {'search_memory': 'query', 'add': 'write', 'delete': 'forget'}[tool]",
    "operation_id": "id", "agent_id": "agent", "query": "q", "result_count": "results",
    "latency_ms": "duration_ms", "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens", "cost_usd": "cost",
}  # fmt: skip


@pytest.mark.parametrize("lines", ["", "started_at,operation_type,team\n"])
async def test_a_file_without_operations_makes_no_company(
    service: MemoryService, caller: Caller, load: Log, tmp_path: Path, lines: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(lines)
    for dry_run in (True, False):
        with pytest.raises(Invalid, match=r"no operation in log\.csv\. Nothing was imported"):
            await load(path, dry_run=dry_run)
    assert [one.company_id for one in await service.companies.all()] == [caller.company_id]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_a_log_becomes_a_company(
    service: MemoryService, caller: Caller, load: Log, tmp_path: Path, form: str
) -> None:
    path = written(tmp_path, form)
    plan = await load(path, maps=MAPS, dry_run=True)
    assert (plan.created, plan.added, plan.known) == (True, 3, 0)
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    report = await load(path, maps=MAPS)
    assert report == plan.model_copy(update={"dry_run": False})
    assert (report.fields, report.kept) == ({"model": "model", **MAPS}, ("tool", "team"))
    assert (report.priced_here_count, report.unpriced_count) == (1, 1)
    assert (report.input_tokens, report.output_tokens) == (1010, 55)
    assert report.cost_usd == Decimal("0.25018")
    add, search, delete = await log_of(service)
    assert [one.seq for one in (add, search, delete)] == [1, 2, 3]
    assert (search.operation_type, search.status, search.channel) == ("query", "ok", "import")
    assert (search.scope.agent_id, search.principal) == ("bob", "agent:bob")
    assert (search.request["query"], search.result_count, search.latency_ms) == ("where", 3, 12.5)
    line = 1 if form != "csv" else 2
    origin = {
        "file": path.name,
        "line": line,
        "id": "7",
        "columns": {"tool": "search_memory", "team": "red"},
    }
    assert search.request["imported"] == origin
    assert search.usage[0].provider == "openai"
    assert search.usage[0].details["priced_by"].startswith("genai-prices ")
    assert add.usage[0].cost_usd is None  # unpriced is not zero
    assert (delete.principal, delete.usage[0].cost_usd) == ("import", Decimal("0.25"))
    assert (await service.analysis.verify_chain(THEIRS)).problem is None
    [theirs] = [one for one in await service.companies.all() if one.company_id == "theirs"]
    assert theirs.read_only
    done = (await log_of(service, "local"))[-1]
    assert (done.operation_type, done.result_count, done.principal) == (
        "configure", 3, "user:ana",
    )  # fmt: skip
    assert done.request == {
        "import_into": "theirs", "files": [path.name], "file_count": 1, "format": form,
        "added": 3, "known": 0,
    }  # fmt: skip


async def test_a_log_that_has_grown_adds_what_is_new(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    same = row(query="twice in the same second")
    path = json_lines(tmp_path / "a.jsonl", [same, same, row(operation_id="x")])
    assert (await load(path)).added == 3
    assert ((again := await load(path)).added, again.known) == (0, 3)
    copy = json_lines(
        tmp_path / "renamed.jsonl", [same, same, row(operation_id="x"), same, row(operation_id="y")]
    )
    plan = await load(copy, dry_run=True)
    grown = await load(copy)
    assert (plan.added, plan.known) == (grown.added, grown.known) == (2, 3)
    assert (await load(path, copy)).added == 0
    found = await log_of(service)
    assert len(found) == len({one.operation_id for one in found}) == 5


async def test_an_id_is_kept_if_it_can_be(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    name = "0190c1f2-aaaa-7bbb-8ccc-123456789abc"
    path = json_lines(
        tmp_path / "a.jsonl",
        [row(operation_id=name), row(operation_id="12"), row(operation_id=name)],
    )
    await load(path)
    first, second, third = await log_of(service)
    assert first.operation_id == name
    assert {len(second.operation_id), len(third.operation_id)} == {32}
    await load(path, company="others")
    assert name not in {one.operation_id for one in await log_of(service, "others")}
    assert (await load(path)).added == (await load(path, company="others")).added == 0


async def test_an_operation_names_the_others_by_their_ids_here(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_BATCH", 2)
    kept = "0190c1f2-aaaa-7bbb-8ccc-123456789abc"
    second = "2026-03-01T10:00:0{}Z".format
    rows = [
        row(operation_id="12", operation_type="write", started_at=second(1)),
        row(operation_id="13", part_of=kept, started_at=second(2)),  # it began before that one
        row(operation_id=kept, started_at=second(3)),
        row(operation_id="14", operation_type="undo", undoes="12", started_at=second(4)),
        row(operation_id="12", operation_type="write", started_at=second(5)),
        row(operation_id="15", operation_type="undo", undoes=kept, started_at=second(6)),
        row(operation_id="16", operation_type="undo", undoes="of another log"),
    ]
    path = json_lines(tmp_path / "a.jsonl", rows)
    await load(path)
    await load(path, company="others")  # there the kept id is taken
    for company in ("theirs", "others"):
        other, write, part, first, undo, again, last = await log_of(service, company)
        assert part.part_of == first.operation_id
        assert undo.undoes == write.operation_id != again.operation_id
        assert last.undoes == first.operation_id
        assert other.undoes == "of another log"
        assert (first.operation_id == kept) is (company == "theirs")
    rows[5] |= {"operation_id": "17", "started_at": second(7)}
    await load(json_lines(tmp_path / "b.jsonl", rows), company="others")
    assert (await log_of(service, "others"))[-1].undoes == first.operation_id


async def test_an_id_of_several_operations(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_BATCH", 2)
    times = [f"2026-03-01T10:00:0{second}Z" for second in (1, 1, 2, 3, 4)]
    path = json_lines(
        tmp_path / "a.jsonl", [row(operation_id="a-request-of-five", started_at=t) for t in times]
    )
    assert (await load(path, dry_run=True)).added == 5
    assert (await load(path)).added == 5
    assert (await load(path)).added == (await load(path, dry_run=True)).added == 0
    ids = [one.operation_id for one in await log_of(service)]
    assert ids[0] == "a-request-of-five"
    assert len(set(ids)) == 5


async def test_the_same_row_of_two_files_is_one_operation(load: Log, tmp_path: Path) -> None:
    first = json_lines(tmp_path / "a.jsonl", [row(n=1), row(n=2), row(n=2)])
    second = json_lines(tmp_path / "b.jsonl", [row(n=2), row(n=3)])
    assert (await load(first, second, dry_run=True)).added == 4
    report = await load(first, second)
    assert (report.operations, report.added, report.known) == (5, 4, 1)


async def test_a_file_that_is_named_twice_is_read_once(load: Log, tmp_path: Path) -> None:
    path = json_lines(
        tmp_path / "a.jsonl", [row(operation_id="long-enough-1"), row(operation_id="long-enough-2")]
    )
    report = await load(path, path)
    assert (report.files, report.operations, report.added) == ((str(path),), 2, 2)


async def test_each_call_of_an_operation_is_added_up(load: Log, tmp_path: Path) -> None:
    def call(number: int, cost: str | None) -> dict[str, Any]:
        counts = {"input_tokens": number, "output_tokens": 2 * number, "embedding_tokens": 3}
        return {"provider": "p", "model": f"m{number}", "cost_usd": cost, **counts}

    rows = [
        row(
            operation_id=f"long-enough-{n}",
            usage=[call(n, "0.5"), call(10, None), call(100, "0.25")],
        )
        for n in (1, 2)
    ]
    rows.append(row(operation_id="long-enough-3", unpriced_count=1_000, latency_ms=1))
    report = await load(json_lines(tmp_path / "a.jsonl", rows))
    assert (report.usage_count, report.unpriced_count, report.unmeasured_count) == (1006, 1002, 2)
    tokens = report.input_tokens, report.output_tokens, report.embedding_tokens
    assert (tokens, report.cost_usd) == ((223, 446, 18), Decimal("1.5"))
    rows = [row(operation_id="long-enough-4", unpriced_count=1_001)]
    with pytest.raises(Invalid, match="does not fit"):
        await load(json_lines(tmp_path / "b.jsonl", rows))


async def test_what_was_sealed_is_not_added_again(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    rows = [row(operation_id=f"a-long-enough-id-{n}", query=str(n)) for n in (0, 1, 2)]
    rows.append(row(operation_id="a-long-enough-id-0", started_at=1772357401))
    path = json_lines(tmp_path / "a.jsonl", rows[:2])
    await load(path)
    await service.analysis.seal(
        Caller(company_id="theirs", principal="user:ana", channel="test"), everything=True
    )
    before = (await service.log.page(THEIRS, limit=10)).total
    json_lines(path, rows)
    report = await load(path)
    assert (report.added, report.known) == (2, 2)
    found = await log_of(service)
    assert len(found) == len({one.operation_id for one in found}) == before + 2
    assert (await service.analysis.verify_chain(THEIRS)).problem is None


async def test_nothing_is_imported_if_a_row_is_bad(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        json.dumps(row()), "", "no json", "[1]", json.dumps({"operation_type": "query"}),
        json.dumps(row(operation_type="frob")), json.dumps(row(input_tokens=-1)), '{"x": NaN}',
        json.dumps(row(agent_id="a\nb")), json.dumps(row(latency_ms="long")), json.dumps(row(n=2)),
        json.dumps(row(usage=[{"provider": "x", "tokens": 1}])), '{"x": "\ud83d"}',
        json.dumps(row(handles=[{"rank": 1, "provider_key": "a", "provider_record_id": "b"}] * 2)),
    ]  # fmt: skip
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    work = Import([path], "theirs", {})
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    with pytest.raises(Invalid, match=r"^11 rows do not fit; the first is a\.jsonl line 3\. N"):
        await work.run(service, caller)
    work.close()
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    reasons = {bad.line: bad.reason for bad in work.bad}
    assert list(reasons) == [3, 4, 5, 6, 7, 8, 9, 10, 12, 13]
    assert reasons[5] == "it has no started_at"
    assert reasons[6].startswith("operation_type: 'frob' is not a type of operation; map it to")
    assert reasons[7] == "input_tokens: '-1' is not a whole number from 0 on"
    assert reasons[12] == "tokens: it is not known"
    report = await load(path, skip_bad=True)
    assert (report.added, report.bad_count, len(report.bad)) == (2, 11, 10)
    plan = await load(path, dry_run=True)
    assert (plan.known, plan.bad_count) == (2, 11)


async def test_expressions_say_what_columns_and_words_are(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "\ufeffWann;Was tat es;state;secret;took;model\n"
        '2026-07-01 12:00;suche;gut;hidden;2;\n1772357400;"lösche";schlecht;;;gpt-4o\n'
    )
    maps = {
        "started_at": "Wann",
        "operation_type": "map {'suche': 'query', 'lösche': 'forget'}[\"Was tat es\"]",
        "status": "if(state = 'gut', 'ok', 'error')",
        "latency_ms": "took::DOUBLE * 1000",
        "project_id": "'p'",
        "model": "NULL",
        "imported": "{'model': model}",
    }
    report = await load(path, maps=maps, timezone="Europe/Berlin")
    assert (report.naive_count, report.timezone, report.unmeasured_count) == (1, "Europe/Berlin", 1)
    assert report.fields == maps
    forget, query = await log_of(service)
    assert (query.operation_type, query.started_at.hour, query.latency_ms) == ("query", 10, 2000)
    assert (forget.operation_type, forget.status, query.status) == ("forget", "error", "ok")
    assert (forget.scope.project_id, forget.usage) == ("p", ())
    assert "hidden" not in str(query)
    assert forget.request["imported"]["columns"] == {"model": "gpt-4o"}


async def test_values_of_json_reach_an_expression_as_they_are(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    big = 123456789012345678901234567890
    rows = [
        {"ts": 1772357400.25, "meta": {"agent": "bob", "n": big}, "big": big, "mix": 1, "Id": 7,
         "q": "where \ud83d\x00😀", "none": None},
        {"ts": 1772357401, "meta": {"agent": "ana", "n": 0.1}, "big": 1, "mix": "x"},
    ]  # fmt: skip
    maps = {
        "started_at": "to_timestamp(ts)",
        "operation_type": "'query'",
        "agent_id": "meta->>'agent'",
        "run_id": "big",
        "issue_id": "big || '.'",
        "subject_id": "concat_ws('-', mix, \"none\", id)",
        "query": "q",
        "content": "q || '!'",
        "result_count": "((meta->>'n') = '0.1')::INT",
    }
    await load(json_lines(tmp_path / "a.jsonl", rows), maps=maps)
    bob, ana = await log_of(service)
    assert (bob.started_at.microsecond, bob.scope.agent_id) == (250_000, "bob")
    assert (bob.scope.run_id, bob.scope.issue_id) == (str(big), f"{big}.")
    assert (bob.scope.subject_id, ana.scope.subject_id) == ("1-7", "x")
    assert bob.request["query"] == "where \ud83d\x00😀"
    assert bob.request["content"] == "where \ufffd\x00😀!"
    assert bob.request["imported"]["columns"]["meta"] == {"agent": "bob", "n": big}
    assert (bob.result_count, ana.result_count) == (0, 1)


async def test_times_of_parquet_keep_their_zones(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    made = (
        "SELECT '2026-03-01 10:00:00.123456+05:30'::TIMESTAMPTZ AS began, "
        "'2026-03-01 10:00:01.5+05:30'::TIMESTAMPTZ AS ended, "
        "TIMESTAMP '2026-03-01 12:00:00' AS told, 12345678901.123456789012::DECIMAL(30, 12) AS n"
    )
    duckdb.execute(f"COPY ({made}) TO '{path}' (FORMAT parquet)")
    maps = {"started_at": "began", "operation_type": "'get'", "latency_ms": "ended - began"}
    await load(path, maps=maps, timezone="Asia/Tokyo")
    [found] = await log_of(service)
    assert found.started_at.isoformat() == "2026-03-01T04:30:00.123456+00:00"
    assert found.latency_ms == pytest.approx(1376.544)
    columns = found.request["imported"]["columns"]
    assert (columns["n"], columns["told"]) == ("12345678901.123456789012", "2026-03-01T12:00:00")


@pytest.mark.parametrize(
    ("maps", "how", "message"),
    [
        ({"agent": "a"}, {}, "There is no field agent; did you mean agent_id"),
        (
            {"agent_id": "missing"},
            {},
            r'"missing" not found.*a\.jsonl has the columns started_at \(',
        ),
        ({"agent_id": "n +"}, {}, "The expression of agent_id cannot be read: syntax error"),
        ({"agent_id": ""}, {}, "The expression of agent_id cannot be read"),
        ({"agent_id": "n, n"}, {}, "must be one expression"),
        ({"agent_id": "n], [n"}, {}, "The expression of agent_id cannot be read"),
        ({"agent_id": "n] || [n"}, {}, "The expression of agent_id cannot be read"),
        ({"agent_id": "n FROM log --"}, {}, "The expression of agent_id cannot be read"),
        ({"agent_id": "x for x in [n]"}, {}, "The expression of agent_id cannot be read"),
        ({"agent_id": "n /* "}, {}, "The expression of agent_id cannot be read"),
        ({"agent_id": "n; COPY log TO 'x'"}, {}, "Only a statement that reads"),
        ({"agent_id": "n; SELECT 1"}, {}, "Only one statement"),
        ({"agent_id": "(SELECT max(n) FROM log)"}, {}, "TRY can not be used"),
        (
            {"agent_id": "(SELECT table_name FROM information_schema.tables)"},
            {},
            "There is no",
        ),
        (
            {"agent_id": "(SELECT * FROM read_csv('/etc/passwd'))"},
            {},
            "agent_id is refused: The function r",
        ),
        ({"agent_id": "(SELECT * FROM '/etc/passwd')"}, {}, "There is no /etc/passwd"),
        ({"agent_id": "content FROM read_text('/etc/passwd')"}, {}, "read_text is not allowed"),
        ({"agent_id": "getenv('HOME')"}, {}, "getenv is not allowed"),
        ({"agent_id": "sleep_ms(100000)"}, {}, "sleep_ms is not allowed"),
        ({"agent_id": "repeat('x', 1000000000)"}, {}, "repeat is not allowed"),
        ({"agent_id": "count(*)"}, {}, "aggregates are not allowed"),
        ({"agent_id": "random()"}, {}, "volatile"),
        ({"agent_id": "unnest([1, 2])"}, {}, "UNNEST not supported"),
        ({"agent_id": "?"}, {}, "does not work"),
        ({}, {"where": "n ="}, "The expression of where cannot be read"),
        ({}, {"timezone": "Mars/Base"}, "no time zone Mars/Base"),
        ({}, {"timezone": "../x"}, "no time zone"),
    ],
)
async def test_an_expression_that_does_not_work_imports_nothing(
    service: MemoryService, load: Log, tmp_path: Path, maps: dict[str, str], how: Any, message: str
) -> None:
    path = json_lines(tmp_path / "a.jsonl", [row(n=1)])
    with pytest.raises((Denied, Invalid), match=message):
        await load(path, maps=maps, **how)
    assert [one.company_id for one in await service.companies.all()] == ["local"]


async def test_an_expression_that_runs_too_long_is_stopped(
    load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.importing.mapping.TIME_LIMIT_S", 0.05)
    path = json_lines(tmp_path / "a.jsonl", [row(n=n) for n in range(200)])
    slow = "list_sum(list_transform(range(1000000), lambda x: sin(x + n)))"
    with pytest.raises(Invalid, match=r"ran for more than 0\.05 s and was stopped; simplify it"):
        await load(path, maps={"result_count": slow})


async def test_rows_of_which_an_expression_fails_are_told_by_their_number(
    load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtui.importing.mapping._BATCH", 2)
    lines = [json.dumps(row(took=took)) for took in ("1.5", "long", "2", None, "x", "3")]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(["", *lines[:3], "no json", *lines[3:]]))
    report = await load(path, maps={"latency_ms": "took::DOUBLE"}, skip_bad=True)
    assert (report.added, report.unmeasured_count) == (4, 1)
    assert [(one.line, one.reason[:62]) for one in report.bad] == [
        (3, "latency_ms: Conversion Error: Could not convert string 'long' "),
        (5, "it is not JSON"),
        (7, "latency_ms: Conversion Error: Could not convert string 'x' to "),
    ]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
async def test_a_file_without_the_columns_that_are_needed(
    load: Log, tmp_path: Path, form: str
) -> None:
    path = written(tmp_path, form)
    kind = "BIGINT" if form != "csv" else "VARCHAR"
    with pytest.raises(Invalid) as caught:
        await load(path)
    assert str(caught.value).startswith(f"{path.name} has the columns id (VARCHAR), ts (")
    assert f"results ({kind})" in str(caught.value)
    assert str(caught.value).endswith(
        "but not started_at and operation_type; name its column or SQL expression, such as --map "
        "started_at=id --map operation_type=ts."
    )
    with pytest.raises(Invalid, match=r"but not operation_type; .* --map operation_type=id\.$"):
        await load(path, maps={"started_at": "ts"})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"x", "add --format"),
        ("a.parquet", b"PAR0", "cannot be read as Parquet"),
        ("a.parquet", b"PAR1 and then nothing", "cannot be read as Parquet"),
        ("a.csv", b"a,a\n1,2\n", "exactly once"),
        ("a.csv", b"a,\n1,2\n", "exactly once"),
    ],
)
async def test_a_file_of_another_kind(
    load: Log, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Invalid, match=message):
        await load(tmp_path / name)


async def test_a_broken_csv_row_is_told_by_its_line(load: Log, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'started_at,operation_type,text\n1772357400,write,"two\nlines"\n1772357400,write\n'
        b"1772357400,write,\xff\n\n1772357400,write,ok\n"
    )
    report = await load(path, skip_bad=True)
    assert report.added == 2
    assert [(bad.line, bad.reason) for bad in report.bad] == [
        (4, "it has 2 cells and the first line 3"),
        (5, "it is not UTF-8 text"),
    ]


async def test_secrets_of_another_system_do_not_get_in(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    key = "sk-proj-abcdefghijklmnop1234567890"
    secret = row(
        query=f"the key {key}", error_message=f"refused {key}", note={"deep": key},
        source_external_ref=f"https://me:{key}@x.test/", principal=key, agent_id=key,
    )  # fmt: skip
    usage = [{"provider": "x", "details": {"key": key}}]
    await load(json_lines(tmp_path / "a.jsonl", [secret, row(usage=usage, id=2)]))
    found = await log_of(service)
    text = "".join(one.model_dump_json() for one in found)
    assert key not in text
    assert text.count("[REDACTED:") >= 7
    assert found[0].status == "error"


async def test_hostile_text_is_kept_exactly(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    hostile = "é\x00\ud800'; DROP TABLE x; --\x1b[2J\u202e"
    await load(json_lines(tmp_path / "a.jsonl", [row(query=hostile, **{hostile: hostile})]))
    [found] = await log_of(service)
    assert found.request["query"] == hostile
    [(column, text)] = found.request["imported"]["columns"].items()
    assert (column, text) == (hostile.replace("\ud800", "\\ud800"), hostile)
    assert (await service.analysis.verify_chain(THEIRS)).problem is None


async def test_only_an_imported_log_is_imported_into(
    service: MemoryService, caller: Caller, load: Log, tmp_path: Path
) -> None:
    path = json_lines(tmp_path / "a.jsonl", [row()])
    with pytest.raises(Invalid, match="a company of its own"):
        await load(path, company="local")
    with pytest.raises(Invalid, match="is not a company id"):
        await load(path, company="No Slug")
    empty = caller.model_copy(update={"company_id": "empty"})
    await service.companies.add(empty, "Empty")
    assert not (report := await load(path, company="empty")).created
    assert report.added == 1
    json_lines(path, [row(), row(operation_id=2)])
    assert (await load(path, company="empty")).added == 1
    lived_in = caller.model_copy(update={"company_id": "lived-in"})
    await service.companies.add(lived_in, "Lived in")
    await service.bindings.add(lived_in, "default", "vault", {})
    for how in ({}, {"dry_run": True}):
        with pytest.raises(Conflict, match="of its own; import into another"):
            await load(path, company="lived-in", **how)
    denied = (await log_of(service, "local"))[-1]
    assert (denied.status, denied.request["import_into"]) == ("conflict", "lived-in")


async def test_who_may_not_configure_a_company_may_not_import_into_it(
    service: MemoryService, caller: Caller, load: Log, tmp_path: Path
) -> None:
    path = json_lines(tmp_path / "a.jsonl", [row()])
    await load(path)
    theirs = caller.model_copy(update={"company_id": "theirs"})
    await service.companies.set_read_only(theirs, read_only=False)
    await service.members.set(theirs, Membership(principal="user:eve", role=Role.OWNER))
    with pytest.raises(Denied):
        await load(path)


async def test_read_only_imports_nothing(
    paths: Paths, settings: Settings, caller: Caller, tmp_path: Path
) -> None:
    path = json_lines(tmp_path / "a.jsonl", [row()])
    await (await open_service(paths, settings)).close()
    service = await open_service(paths, load_settings(paths, principal="user:u", read_only=True))
    work = Import([path], "theirs", {})
    with pytest.raises(Denied, match="read-only"):
        await work.run(service, caller)
    work.close()
    work = Import([path], "theirs", {})
    assert (await work.run(service, caller, dry_run=True)).added == 1
    work.close()
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    await service.close()


async def test_an_import_that_is_stopped_goes_on(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_BATCH", 20)
    path = json_lines(tmp_path / "a.jsonl", [row(operation_id=n) for n in range(25)])

    def stop(what: str, count: int) -> None:
        if what == "gone through":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await load(path, report=stop)
    assert (await service.log.page(THEIRS, limit=1)).total == 20
    stopped = (await log_of(service, "local"))[-1]
    assert (stopped.status, stopped.result_count) == ("cancelled", 20)
    assert ((rest := await load(path)).added, rest.known) == (5, 20)


def test_what_was_put_aside_may_be_closed_while_it_is_read() -> None:
    staging = Staging("theirs", once=False)
    translator = Translator("theirs")
    entry = translator.entry("a.jsonl", Row(1, row()), {})
    staging.add(0, entry)
    reading = staging.in_order()
    staging.close()
    staging.close()
    with pytest.raises(Unavailable, match="stopped"):
        next(reading)
    with pytest.raises(Unavailable, match="stopped"):
        staging.add(0, entry)


async def test_a_length_that_is_not_known_is_in_no_percentile(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rollups, "short", 0)
    rows = [row(n=n, **({"latency_ms": 100} if n < 2 else {})) for n in range(10)]
    report = await load(json_lines(tmp_path / "a.jsonl", rows))
    assert report.unmeasured_count == 8
    found = await log_of(service)
    assert sorted(one.latency_ms or 0 for one in found) == [0] * 8 + [100] * 2
    for _ in ("hot", "sealed"):
        stats = await service.analysis.stats(THEIRS, Filter(operation_type=OperationType.QUERY))
        assert (stats.latency_ms.p50, stats.latency_ms.p99) == (100, 100)
        board = await service.analysis.dashboard(THEIRS, Bucket.DAY)
        [day] = [one for one in board.stats.groups if one.operation_count >= 10]
        assert day.latency_ms.p50 == pytest.approx(100, rel=0.01)  # one seal is among them
        await service.analysis.seal(THEIRS, before=found[-1].started_at + timedelta(seconds=1))
    assert [one.latency_ms for one in await log_of(service)][:10].count(None) == 8
    assert (await service.analysis.verify_chain(THEIRS)).problem is None
