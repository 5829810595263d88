"""What every provider shares, seen from a third-party provider."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from filelock import FileLock

from memtui import provider_kit
from memtui.contract import (
    BindingContext,
    BrowseRequest,
    Filter,
    Invalid,
    Model,
    QueryRequest,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    Term,
    Unavailable,
    sees,
)
from memtui.provider_kit import (
    blocking,
    databases,
    derived,
    is_nested_deeper,
    kept,
    matching,
    pages,
    read_config,
    read_moment,
    rows,
    search,
    server_events,
    server_provider,
    servers,
    tables,
    watching,
)
from memtui.provider_kit import flock as flock_module
from memtui.provider_kit import (
    known as known_records,
)
from memtui.provider_kit.derived import DerivedDatabase
from memtui.provider_kit.matching import matcher, translated
from memtui.provider_kit.pages import page, read_cursor, write_cursor
from memtui.provider_kit.servers import HttpReply, JsonApi

NOON, HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(hours=1)


def record(number: int = 1, **fields: Any) -> Record:
    known = {
        "handle": RecordHandle(provider_key="mine", provider_record_id=f"r{number}"),
        "text": "The Wanted Lynx", "scope": Scope(company_id="c", project_id="apollo"),
        "created_at": NOON, "topic": "cats", "tags": ("wild", "rare"),
        "source": SourceRef(kind=SourceKind.RUN, company_id="c", run_id="run-1", comment_id="7"),
    }  # fmt: skip
    return Record(**(known | fields))


@pytest.mark.parametrize(
    ("passing", "failing"),
    [
        ({"project_id": "apollo"}, {"project_id": "gemini"}),
        ({"run_id": "run-1"}, {"run_id": "run-2"}),
        ({"source_kind": "run"}, {"source_kind": "issue"}),
        ({"comment_id": "7"}, {"comment_id": "8"}),
        ({"topic": "cats"}, {"topic": "dogs"}),
        ({"tag": "rare"}, {"tag": "rar"}),
        ({"tag": "RARE"}, {"tag": "RAR"}),
        ({"since": NOON}, {"since": NOON.replace(second=1)}),
        ({"until": NOON.replace(second=1)}, {"until": NOON}),
        ({"text": "lynx WANTED"}, {"text": "lynx dog"}),
        ({"fuzzy": ("lnx",)}, {"fuzzy": ("lnx", "dgg")}),
    ],
)
def test_each_field_of_a_filter_narrows(passing: dict[str, Any], failing: dict[str, Any]) -> None:
    assert matcher(Filter(**passing))(record())
    assert not matcher(Filter(**failing))(record())


@pytest.mark.parametrize(
    ("term", "passes"),
    [
        (Term(field="topic", values=("dogs", "cats")), True),
        (Term(field="topic", values=("dogs", "owls")), False),
        (Term(field="topic", values=("cats",), excluded=True), False),
        (Term(field="topic", values=("dogs", "owls"), excluded=True), True),
        (Term(field="agent_id", values=("bob",), excluded=True), True),
        (Term(field="tag", values=("rare",), excluded=True), False),
        (Term(field="text", values=("dog", "LYNX"), excluded=True), False),
        (Term(field="fuzzy", values=("dgg",), excluded=True), True),
        (Term(field="run_id", values=("run-1",), excluded=True), False),
        (Term(field="status", values=("ok",), excluded=True), True),
    ],
)
def test_a_term_lets_any_of_its_values_through_or_none(term: Term, passes: bool) -> None:
    assert matcher(Filter(terms=(term,)))(record()) is passes


def test_an_issue_is_the_scopes_or_the_sources() -> None:
    by_scope = record(scope=Scope(company_id="c", issue_id="I-1"))
    by_source = record(
        source=SourceRef(kind=SourceKind.ISSUE, company_id="c", issue_id="I-1"),
        scope=Scope(company_id="c", issue_id="I-2"),
    )
    assert matcher(Filter(issue_id="I-1"))(by_scope)
    assert matcher(Filter(issue_id="I-1"))(by_source)


def test_a_record_without_a_time_passes_no_bound() -> None:
    undated = record(created_at=None)
    assert not matcher(Filter(since=NOON))(undated)
    assert not matcher(Filter(until=NOON))(undated)


def test_a_field_that_a_store_does_not_keep_lets_nothing_through() -> None:
    tests: Any = {"is": lambda column, value: f"{column} = {value}"}
    wanted = Filter(topic="cats", kind="note")
    assert list(translated(wanted, {"topic": "theme"}, tests)) == [
        (("theme = cats",), False),
        ((), False),
    ]


def test_another_company_is_not_seen() -> None:
    assert sees(Scope(company_id="c"), Scope(company_id="c", project_id="apollo"))
    assert not sees(Scope(company_id="d"), Scope(company_id="c"))
    assert not sees(Scope(company_id="c", agent_id="a"), Scope(company_id="c", agent_id="b"))


def test_a_cursor_is_of_its_sort_and_kinds() -> None:
    cursor = write_cursor("size", 12, "r1")
    assert read_cursor(cursor, "size", int, str) == [12, "r1"]
    for sort, kinds in (("title", (int, str)), ("size", (str, str)), ("size", (int,))):
        with pytest.raises(Invalid, match="another sort"):
            read_cursor(cursor, sort, *kinds)
    with pytest.raises(Invalid, match="another sort"):
        read_cursor(write_cursor("size", True, "r1"), "size", int, str)
    with pytest.raises(Invalid, match="not one of this list"):
        read_cursor("?", "size", int, str)


def test_the_second_page_goes_on_where_the_first_ended() -> None:
    records = [record(number, title="same") for number in range(5)]
    request = BrowseRequest(scope=Scope(company_id="c"), sort="title", limit=2)
    first = page(records, request)
    rest = page(records[1:], request.model_copy(update={"cursor": first.next_cursor, "limit": 9}))
    assert [one.handle.provider_record_id for one in rest.records] == ["r2", "r3", "r4"]
    assert rest.next_cursor is None


@pytest.mark.parametrize("sort", ["created_at", "updated_at", "title", "size", "kind", "topic"])
def test_records_come_in_the_order_of_any_field(sort: str) -> None:
    later = {"created_at": NOON, "updated_at": NOON, "title": "B", "text": "12", "kind": "b",
             "topic": "b"}  # fmt: skip
    sooner = {"created_at": NOON - HOUR, "updated_at": NOON - HOUR, "title": "a", "text": "1",
              "kind": "a", "topic": "a"}  # fmt: skip
    name = {"size": "text"}.get(sort, sort)
    same: dict[str, Any] = {"created_at": NOON, "updated_at": None, "title": None, "topic": None}
    records = [record(n, **same | {name: values[name]})
               for n, values in enumerate((later, sooner, later, sooner))]  # fmt: skip
    if sort == "updated_at":  # what was never changed is as old as it is
        records[0] = records[0].model_copy(update={"updated_at": None})
        records[1] = record(1, **same | {"created_at": NOON - HOUR})
    records += [record(4, **same | {name: None})] if sort in {"title", "topic"} else []
    for limit in (1, 2, 9):
        for is_down, wanted in ((False, [1, 3, 0, 2]), (True, [0, 2, 1, 3])):
            request = BrowseRequest(
                scope=Scope(company_id="c"), sort=f"{'-' * is_down}{sort}", limit=limit
            )
            found: list[str] = []
            while True:
                told = page(records, request)
                assert told.total == len(records)
                found += [one.handle.provider_record_id for one in told.records]
                if told.next_cursor is None:
                    break
                request = request.model_copy(update={"cursor": told.next_cursor})
            last = [4] if sort in {"title", "topic"} else []
            assert found == [f"r{number}" for number in (*wanted, *last)]


@pytest.mark.parametrize(
    "fields",
    [{"text": "A zebra."}, {"title": "Zebra"}, {"topic": "zebra"}, {"tags": ("a", "zebra")},
     {"kind": "zebra"}, {"summary": "a zebra"}],
)  # fmt: skip
def test_a_record_is_found_by_any_of_its_fields(fields: dict[str, Any]) -> None:
    plain = {"text": "None.", "topic": None, "tags": ()}
    records = [record(1, **plain), record(2, **plain | fields), record(3, **plain)]
    found = search.ranked(records, "zebra")
    assert [one.handle.provider_record_id for one in found] == ["r2"]


def test_a_topic_keeps_what_has_none_and_metadata_must_hold_all() -> None:
    asked = QueryRequest(scope=Scope(company_id="c"), query="x", topic="cats",
                         metadata_filter={"a": 1, "b": None})  # fmt: skip
    passes = matching.eligible(asked)
    held = {"a": 1, "b": None, "c": 2}
    assert passes(record(metadata=held))
    assert passes(record(metadata=held, topic=None))
    assert not passes(record(metadata=held, topic="dogs"))
    assert not passes(record(metadata={"a": 1}))
    assert not passes(record(metadata={"a": 2, "b": None}))
    assert not passes(record(metadata=held, scope=Scope(company_id="d")))


async def test_blocking_methods_run_in_threads() -> None:
    class Slow:
        @blocking
        def where(self, *, twice: bool) -> list[int]:
            return [threading.get_ident()] * (1 + twice)

    found = await Slow().where(twice=True)
    assert len(found) == 2
    assert threading.get_ident() not in found


def test_a_config_that_does_not_fit_names_the_setting(tmp_path: Path) -> None:
    class Config(Model):
        url: str

    context = BindingContext(company_id="c", binding_key="mine", data_dir=tmp_path)
    with pytest.raises(Invalid, match="setting url of the binding mine does not fit"):
        read_config(Config, context)


@pytest.mark.parametrize(
    ("said", "moment"),
    [
        ("2026-03-01T12:00:00+02:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        (" 2026-03-01 ", datetime(2026, 3, 1, tzinfo=UTC)),
        (datetime(2026, 3, 1, 12), datetime(2026, 3, 1, 12, tzinfo=UTC)),  # noqa: DTZ001
        (date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:00:00-10:00", None),
        ("tomorrow", None),
        (17, None),
        (None, None),
    ],
)
def test_a_moment_is_read_or_is_none(said: object, moment: datetime | None) -> None:
    assert read_moment(said) == moment


def test_how_deep_lists_and_objects_stand_in_each_other() -> None:
    value: object = {"a": [{"b": 1}, "x"]}  # three deep
    assert is_nested_deeper(value, 2)
    assert not is_nested_deeper(value, 3)
    assert not is_nested_deeper("text", 0)
    assert is_nested_deeper([], 0)


@pytest.mark.parametrize("held", [b"", b"no database" * 1000], ids=["nothing", "garbage"])
def test_a_derived_file_that_holds_nothing_sound_is_begun_anew(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "derived.sqlite3"
    path.write_bytes(held)
    database = DerivedDatabase(path, "CREATE TABLE kept (word);", version=1, what="The words")
    assert database.run(lambda one: one.execute("SELECT count(*) FROM kept").fetchone()[0]) == 0
    database.close()


def test_a_derived_file_that_another_program_locks_for_too_long_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "_BUSY_SECONDS", 0)
    database = DerivedDatabase(tmp_path / "a.db", "CREATE TABLE a (b);", version=1, what="A file")
    with FileLock(tmp_path / "a.lock"), pytest.raises(Unavailable, match="locked by another"):
        database.run(lambda _: None)
    database.run(lambda _: None)
    database.close()


def test_the_howto_names_the_whole_kit_and_shows_code_that_is_there() -> None:
    root = Path(__file__).parents[1]
    howto = (root / "docs" / "providers-howto.md").read_text("utf-8")
    modules = [
        provider_kit, databases, derived, flock_module, kept, known_records, matching, pages, rows,
        search, server_events, server_provider, servers, tables, watching,
    ]  # fmt: skip
    assert len(modules) == len(list(Path(provider_kit.__file__).parent.glob("*.py")))
    kit = {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, (type, FunctionType)) and name[0] != "_"
        if value.__module__ == module.__name__
    }
    untold = {name for name in kit if not re.search(rf"`@?{name}[`(]", howto)}
    assert not untold
    example = root / "examples" / "memtui-notes"
    files = ("pyproject.toml", "memtui_notes.py", "tests/test_notes.py")
    code = "\n".join((example / name).read_text("utf-8") for name in files)
    shown = re.findall(r"```(?:python|toml)\n(.*?)```", howto, re.DOTALL)
    tested_beside = [block for block in shown if "TablesAdapter" in block]
    assert len(tested_beside) == 1, "tests/backends/tables/test_howto_example.py runs it"
    assert len(shown) == 4
    assert all(block in code for block in shown if block not in tested_beside)


def test_neither_a_success_nor_a_long_reply_is_read_for_a_refusal() -> None:
    class Unread(bytes):
        def decode(self, *_: object) -> str:
            raise AssertionError("it was read")

    api = JsonApi("The server", "http://127.0.0.1:1", seconds=5, most_bytes=1_000, headers={})
    assert api.refusal(HttpReply(200, {}, Unread(b"[]")), changes=False) is None
    refused = api.refusal(HttpReply(400, {}, Unread(b"[" * 1_000_000)), changes=False)
    assert str(refused) == "The server refused the request."
    with pytest.raises(AssertionError, match="it was read"):
        api.refusal(HttpReply(400, {}, Unread(b"[]")), changes=False)


async def test_an_address_that_is_too_long_is_the_callers_mistake() -> None:
    api = JsonApi("The server", "http://127.0.0.1:1", seconds=5, most_bytes=1_000, headers={})
    with pytest.raises(Invalid, match="too long"):
        await api.ask("GET", "/search?q=" + "x" * 100_000, bytes, changes=False)
    await api.close()


def test_a_file_that_another_program_has_locked_is_said_to_be_locked(tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    from memtui.provider_kit.databases import DatabasePool

    file = tmp_path / "theirs.db"
    engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": 0})
    with closing(sqlite3.connect(file, isolation_level=None)) as theirs:
        theirs.execute("BEGIN EXCLUSIVE")
        with (
            pytest.raises(Unavailable, match="Another program has the database locked; try"),
            DatabasePool(engine).read() as ours,
        ):
            ours.execute(text("SELECT * FROM sqlite_master"))
    engine.dispose()
