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
from tests.importing.conftest import Log, json_lines, log_of, map_of, row

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


@pytest.mark.parametrize("lines", ["", "ts,tool,team\n"])
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
    plan = await load(path, dry_run=True)
    assert (plan.created, plan.added, plan.known) == (True, 3, 0)
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    report = await load(path)
    assert report == plan.model_copy(update={"dry_run": False})
    assert {one.column: one.field for one in report.columns} == {
        "id": "operation_id", "ts": "started_at", "tool": "operation_type", "agent": "agent_id",
        "q": "query", "results": "result_count", "duration_ms": "latency_ms", "model": "model",
        "prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "cost": "cost_usd",
        "team": "imported",
    }  # fmt: skip
    assert (report.priced_here_count, report.unpriced_count) == (1, 1)
    assert (report.input_tokens, report.output_tokens) == (1010, 55)
    assert report.cost_usd == Decimal("0.25018")
    add, search, delete = await log_of(service)
    assert [one.seq for one in (add, search, delete)] == [1, 2, 3]
    assert (search.operation_type, search.status, search.channel) == ("query", "ok", "import")
    assert (search.scope.agent_id, search.principal) == ("bob", "agent:bob")
    assert (search.request["query"], search.result_count, search.latency_ms) == ("where", 3, 12.5)
    line = 1 if form != "csv" else 2
    origin = {"file": path.name, "line": line, "id": "7", "columns": {"team": "red"}}
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
    path = json_lines(tmp_path / "a.jsonl", [same, same, row(id="x")])
    assert (await load(path)).added == 3
    assert ((again := await load(path)).added, again.known) == (0, 3)
    copy = json_lines(tmp_path / "renamed.jsonl", [same, same, row(id="x"), same, row(id="y")])
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
    path = json_lines(tmp_path / "a.jsonl", [row(id=name), row(id="12"), row(id=name)])
    await load(path)
    first, second, third = await log_of(service)
    assert first.operation_id == name
    assert {len(second.operation_id), len(third.operation_id)} == {32}
    await load(path, company="others")
    assert name not in {one.operation_id for one in await log_of(service, "others")}
    assert (await load(path)).added == (await load(path, company="others")).added == 0


async def test_an_id_of_several_operations(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_BATCH", 2)
    times = [f"2026-03-01T10:00:0{second}Z" for second in (1, 1, 2, 3, 4)]
    path = json_lines(
        tmp_path / "a.jsonl", [row(id="a-request-of-five", timestamp=t) for t in times]
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
    path = json_lines(tmp_path / "a.jsonl", [row(id="long-enough-1"), row(id="long-enough-2")])
    report = await load(path, path)
    assert (report.files, report.operations, report.added) == ((str(path),), 2, 2)


async def test_each_call_of_an_operation_is_added_up(load: Log, tmp_path: Path) -> None:
    def call(number: int, cost: str | None) -> dict[str, Any]:
        counts = {"input_tokens": number, "output_tokens": 2 * number, "embedding_tokens": 3}
        return {"provider": "p", "model": f"m{number}", "cost_usd": cost, **counts}

    rows = [row(id=f"long-enough-{n}", usage=[call(n, "0.5"), call(10, None), call(100, "0.25")])
            for n in (1, 2)]  # fmt: skip
    rows.append(row(id="long-enough-3", unpriced_count=1_000, latency_ms=1))
    report = await load(json_lines(tmp_path / "a.jsonl", rows))
    assert (report.usage_count, report.unpriced_count, report.unmeasured_count) == (1006, 1002, 2)
    tokens = report.input_tokens, report.output_tokens, report.embedding_tokens
    assert (tokens, report.cost_usd) == ((223, 446, 18), Decimal("1.5"))
    rows = [row(id="long-enough-4", unpriced_count=1_001)]
    with pytest.raises(Invalid, match="does not fit"):
        await load(json_lines(tmp_path / "b.jsonl", rows))


async def test_what_was_sealed_is_not_added_again(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    rows = [row(id=f"a-long-enough-id-{n}", query=str(n)) for n in (0, 1, 2)]
    rows.append(row(id="a-long-enough-id-0", timestamp=1772357401))
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
        json.dumps(row()), "", "no json", "[1]", json.dumps({"action": "search"}),
        json.dumps(row(action="frob")), json.dumps(row(prompt_tokens=-1)), '{"x": NaN}',
        json.dumps(row(agent="a\nb")), json.dumps(row(duration_ms="long")), json.dumps(row(n=2)),
        json.dumps(row(usage=[{"provider": "x", "tokens": 1}])), '{"x": "\ud83d"}',
        json.dumps(row(handles=[{"rank": 1, "provider_key": "a", "provider_record_id": "b"}] * 2)),
    ]  # fmt: skip
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    work = Import([path], "theirs", map_of())
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    with pytest.raises(Invalid, match=r"^11 rows do not fit; the first is a\.jsonl line 3\. N"):
        await work.run(service, caller)
    work.close()
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    reasons = {bad.line: bad.reason for bad in work.bad}
    assert list(reasons) == [3, 4, 5, 6, 7, 8, 9, 10, 12, 13]
    assert reasons[5].startswith("no column tells started_at")
    assert "--map-type frob=TYPE" in reasons[6]
    assert reasons[7] == "input_tokens: '-1' is not a whole number from 0 on"
    assert reasons[12] == "tokens: it is not known"
    report = await load(path, skip_bad=True)
    assert (report.added, report.bad_count, len(report.bad)) == (2, 11, 10)
    plan = await load(path, dry_run=True)
    assert (plan.known, plan.bad_count) == (2, 11)


async def test_a_map_says_what_columns_and_words_are(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    table = tmp_path / "map.toml"
    table.write_text(
        'timezone = "Europe/Berlin"\n[columns]\nWann = "started_at"\nsecret = "-"\n'
        '[operation_type]\nsuche = "query"\n[status]\ngut = "ok"\n[set]\nproject_id = "p"\n'
    )
    path = tmp_path / "a.csv"
    path.write_text(
        "\ufeffWann;Was;state;secret;took;model\n"
        "2026-07-01 12:00;suche;gut;hidden;2;\n1772357400;lösche;schlecht;;;gpt-4o\n"
    )
    columns = map_of(
        str(table), "Was=operation_type", "took=latency_s", "model=imported",
        types={"lösche": "forget"}, statuses={"schlecht": "error"}, constants={"agent_id": "a"},
    )  # fmt: skip
    report = await load(path, columns=columns)
    assert (report.naive_count, report.timezone, report.unmeasured_count) == (1, "Europe/Berlin", 1)
    assert report.types == {"suche": "query", "lösche": "forget"}
    forget, query = await log_of(service)
    assert (query.started_at.hour, query.latency_ms, query.status) == (10, 2000, "ok")
    assert (forget.status, forget.scope.agent_id, forget.scope.project_id) == ("error", "a", "p")
    assert "hidden" not in str(query)
    assert forget.usage == ()
    assert forget.request["imported"]["columns"] == {"model": "gpt-4o"}


async def test_the_likelier_column_wins_and_the_other_is_kept(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    path = json_lines(
        tmp_path / "a.jsonl",
        [{"created_at": "2020-01-01", **row()}, {"created_at": "2021-01-01", "op": "add"}],
    )
    await load(path)
    second, first = await log_of(service)
    assert (second.started_at.year, first.started_at.year) == (2021, 2026)
    assert first.request["imported"]["columns"] == {"created_at": "2020-01-01"}


@pytest.mark.parametrize(
    ("words", "how", "message"),
    [
        (["nonsense"], {}, "--map takes"),
        (["a=nonsense"], {}, "There is no field nonsense"),
        (["missing=agent_id"], {}, "No row has a column missing; the columns are timestamp"),
        (["/nowhere/x.toml"], {}, "cannot be read"),
        ([], {"types": {"a": "b"}}, "each operation type is one of"),
        ([], {"types": {"a": "seal"}}, "a cannot be a seal"),
        ([], {"statuses": {"a": "b"}}, "each status is one of"),
        ([], {"constants": {"a": "b"}}, "There is no field a"),
        ([], {"timezone": "Mars/Base"}, "no time zone Mars/Base"),
        ([], {"timezone": "../x"}, "no time zone"),
    ],
)
async def test_a_map_that_makes_no_sense(
    load: Log, tmp_path: Path, words: list[str], how: dict[str, dict[str, str]], message: str
) -> None:
    path = json_lines(tmp_path / "a.jsonl", [row()])
    with pytest.raises(Invalid, match=message):
        await load(path, columns=map_of(*words, **how))  # type: ignore[arg-type]  # as given


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"x", "give --format"),
        ("a.parquet", b"PAR0", "is not a Parquet file"),
        ("a.parquet", b"PAR1 and then nothing", "cannot be read as Parquet"),
        ("a.csv", b"a,a\n1,2\n", "each once"),
        ("a.csv", b"a,\n1,2\n", "each once"),
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
        b'timestamp,action,text\n1772357400,add,"two\nlines"\n1772357400,add\n'
        b"1772357400,add,\xff\n\n1772357400,add,ok\n"
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
        query=f"the key {key}", error=f"refused {key}", note={"deep": key},
        link=f"https://me:{key}@x.test/", status=500, user=key, agent=key,
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
    await load(json_lines(tmp_path / "a.jsonl", [row(query=hostile, other={hostile: hostile})]))
    [found] = await log_of(service)
    assert found.request["query"] == hostile
    [(column, text)] = found.request["imported"]["columns"].items()
    assert (column, text) == (f"other.{hostile}".replace("\ud800", "\\ud800"), hostile)
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
    json_lines(path, [row(), row(id=2)])
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
    work = Import([path], "theirs", map_of())
    with pytest.raises(Denied, match="read-only"):
        await work.run(service, caller)
    work.close()
    work = Import([path], "theirs", map_of())
    assert (await work.run(service, caller, dry_run=True)).added == 1
    work.close()
    assert [one.company_id for one in await service.companies.all()] == ["local"]
    await service.close()


async def test_an_import_that_is_stopped_goes_on(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_BATCH", 20)
    path = json_lines(tmp_path / "a.jsonl", [row(id=n) for n in range(25)])

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
    translator = Translator("theirs", map_of())
    entry = translator.entry("a.jsonl", Row(1, row()))
    staging.add(0, entry)
    reading = staging.in_order()
    staging.close()
    staging.close()
    with pytest.raises(Unavailable, match="stopped"):
        next(reading)
    with pytest.raises(Unavailable, match="stopped"):
        staging.add(0, entry)


SPAN = {
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
    "name": "chat gpt-4o", "startTimeUnixNano": "1772359200000000000",
    "endTimeUnixNano": "1772359201500000000", "status": {"code": 2, "message": "too long"},
    "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.provider.name", "value": {"stringValue": "openai"}},
        {"key": "gen_ai.request.model", "value": {"stringValue": "gpt-4o"}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1000"}},
        {"key": "stops", "value": {"arrayValue": {"values": [{"stringValue": "."}]}}},
    ],
}  # fmt: skip


async def test_spans_in_otlp(service: MemoryService, load: Log, tmp_path: Path) -> None:
    tool = SPAN | {"spanId": "eee19b7ec3c1b175", "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]}  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    batch = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [SPAN, tool]}]}]}
    path = json_lines(tmp_path / "a.jsonl", [batch, {"resourceSpans": [{"scopeSpans": [3]}]}])
    columns = map_of("service.name=agent_id", types={"execute_tool": "-"})
    report = await load(path, columns=columns, skip_bad=True)
    assert (report.added, report.skipped) == (1, {"type execute_tool": 1})
    assert [(bad.line, bad.reason) for bad in report.bad] == [(2, "it is not OTLP JSON")]
    [found] = await log_of(service)
    assert (found.operation_id, found.operation_type, found.status, found.latency_ms) == (
        "eee19b7ec3c1b174", "context", "error", 1500,
    )  # fmt: skip
    assert (found.scope.agent_id, found.scope.run_id) == ("shop", SPAN["traceId"])
    assert (found.error_message, found.usage[0].cost_usd) == ("too long", Decimal("0.0025"))
    assert found.request["imported"]["columns"] == {"name": "chat gpt-4o", "stops": ["."]}


async def test_one_array_of_many_lines(load: Log, tmp_path: Path) -> None:
    rows = [row(id=n, query="x" * 3_000) for n in range(1_000)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows, indent=1))
    assert (await load(path)).added == 1_000
    path.write_text(json.dumps([*rows[:2], 3], indent=1)[:-2] + ',\n {"cut": ')
    report = await load(path, skip_bad=True)
    assert report.known == 2
    assert [(bad.line, bad.reason) for bad in report.bad] == [
        (14, "it is not a JSON object"),
        (15, "it is not JSON, nor is what follows"),
    ]


async def test_another_systems_sessions_are_no_transcript(
    service: MemoryService, load: Log, tmp_path: Path
) -> None:
    export = {
        "id": "observation-number-1", "type": "GENERATION", "sessionId": "s", "level": "ERROR",
        "startTime": "2026-03-01T10:00:00Z", "endTime": "2026-03-01T10:00:02Z",
        "model": "gpt-4o-mini", "usageDetails": {"input": 100, "output": 5},
    }  # fmt: skip
    path = json_lines(tmp_path / "export.jsonl", [export, export | {"endTime": "2025-01-01"}])
    report = await load(path, skip_bad=True)
    assert (report.format, report.added, report.bad_count) == ("jsonl", 1, 1)
    assert report.bad[0].reason == "ended_at: it is before started_at"
    [found] = await log_of(service)
    assert (found.operation_type, found.status, found.latency_ms) == ("context", "error", 2000)
    assert found.usage[0].input_tokens == 100


async def test_a_length_that_is_not_known_is_in_no_percentile(
    service: MemoryService, load: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rollups, "short", 0)
    rows = [row(n=n, **({"duration_ms": 100} if n < 2 else {})) for n in range(10)]
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
