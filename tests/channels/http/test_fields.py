"""Each field that is written over HTTP or read there, each page of a list, and moments that end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from memtui.channels.http import facts, plugin_binding, plugin_search
from memtui.channels.http.facts import FactCalls, NewFact, WireSource
from memtui.channels.http.plugin_binding import ServedBinding, _clears, is_past
from memtui.channels.http.plugin_records import KEY, Mark, mark_for
from memtui.channels.http.plugin_search import SearchPart, Wanted, _listed
from memtui.channels.http.plugin_wire import Kind, Maker, MemoryWrite
from memtui.contract import Record, RecordHandle, Scope, SourceRef
from memtui.service import Caller

NOW = datetime(2026, 3, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
WEB = Scope(company_id="acme", project_id="web")
CALLER = Caller(company_id="acme", principal="agent:coding", channel="http", acts_for="user:ana")


def record(record_id: str = "r1", **fields: Any) -> Record:
    handle = RecordHandle(provider_key="x", provider_record_id=record_id)
    return Record(handle=handle, text="a", **({"scope": WEB} | fields))


def write(**fields: Any) -> MemoryWrite:
    given = {"content": "It says so", "kind": "fact", "source": "user"}
    return MemoryWrite.model_validate(given | fields)


def served() -> ServedBinding:
    one = ServedBinding.__new__(ServedBinding)
    one.caller, one.key = CALLER, "default"
    one.places = SimpleNamespace(scope_of=lambda _: WEB)  # type: ignore[assignment]
    return one


def mark(body: MemoryWrite) -> Mark:
    return mark_for("m1", "workspace:web", body, as_line=False)


def test_a_moment_is_past_from_itself_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = SimpleNamespace(now=lambda _: NOW)
    monkeypatch.setattr(plugin_binding, "datetime", clock)
    assert [is_past(one) for one in (NOW - INSTANT, NOW, NOW + INSTANT, None)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_what_a_memory_is_written_with_is_in_its_record() -> None:
    body = write(
        kind="summary", source="agent", expires_at="2030-01-01T00:00:00Z", pin=True,
        propagation={"to": "all"}, embedding=[1.0, 2.0],
    )  # fmt: skip
    request = served()._request(mark(body), body)
    assert (request.content, request.kind, request.scope) == ("It says so", "summary", WEB)
    assert (request.pinned, request.embedding) == (True, (1.0, 2.0))
    assert request.expires_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert request.metadata == {KEY: mark(body).as_json()}
    assert mark(body).propagated == {"to": "all"}
    assert (request.source and request.source.kind, request.created_at) == ("run", None)


def test_what_takes_the_place_of_a_record_keeps_when_it_came_to_be() -> None:
    old = record(created_at=NOW, metadata={"own": 1, KEY: {"id": "old"}}, pinned=True)
    body = write()
    request = served()._request(mark(body), body, old)
    assert (request.created_at, request.pinned) == (NOW, False)
    assert request.metadata == {"own": 1, KEY: mark(body).as_json()}


@pytest.mark.parametrize(
    ("old", "new", "clears"),
    [
        ({"pinned": True}, {}, True), ({"pinned": True}, {"pin": True}, False),
        ({"expires_at": NOW}, {}, True),
        ({"expires_at": NOW}, {"expires_at": "2030-01-01T00:00:00Z"}, False),
        ({"kind": "summary"}, {}, True), ({}, {}, False), ({}, {"pin": True}, False),
    ],
)  # fmt: skip
def test_what_is_taken_away_is_told(old: dict[str, Any], new: dict[str, Any], clears: bool) -> None:
    body = write(**new)
    assert _clears(served()._request(mark(body), body), record(**old)) is clears


async def test_a_list_goes_from_part_to_part_and_page_to_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first part has pages of two and one, the second none, the third two."""
    held: dict[str, list[list[str]]] = {
        "a": [["a1", "a2"], ["a3"]],
        "b": [[]],
        "c": [["c1"], ["c2"]],
    }
    calls: list[tuple[str, int]] = []

    async def browse(_: Caller, request: Any) -> Any:
        pages = held[str(request.scope.project_id)]
        place = int(request.cursor or 0)
        calls.append((request.scope.project_id, request.limit))
        following = str(place + 1) if place + 1 < len(pages) else None
        records = [record(name) for name in pages[place]]
        return SimpleNamespace(records=records, next_cursor=following)

    async def fit(_: Any, __: Any, ___: Any, records: Any) -> Any:
        return [*records]

    monkeypatch.setattr(plugin_search, "_fit", fit)
    monkeypatch.setattr(plugin_search, "_found", lambda named, more=None: (named, more))
    parts = [
        SearchPart(scope, (scope,), frozenset({name}))
        for name in held
        for scope in [Scope(company_id="acme", project_id=name)]
    ]
    one: Any = SimpleNamespace(service=SimpleNamespace(browse=browse), caller=CALLER, key="default")
    for limit in (1, 2, 3, 5, 9):
        seen: list[str] = []
        cursor: str | None = ""
        for _ in range(9):
            found: Any = await _listed(one, parts, Wanted(frozenset(), limit), cursor or "")
            seen += [each.handle.provider_record_id for each in found[0]]
            cursor = found[1]
            if cursor is None:
                break
        assert seen == ["a1", "a2", "a3", "c1", "c2"]


@pytest.mark.parametrize(
    ("fields", "maker"),
    [
        ({}, None), ({"created_by": "user:ana"}, "user"), ({"created_by": "agent:x"}, "ai"),
        ({"created_by": "user:ana", "metadata": {"fact_source": "ai"}}, "ai"),
        ({"created_by": "agent:x", "metadata": {"fact_source": "user"}}, "user"),
        ({"created_by": "agent:x", "metadata": {"fact_source": "other"}}, "ai"),
    ],
)  # fmt: skip
def test_every_field_of_a_fact_is_told(fields: dict[str, Any], maker: str | None) -> None:
    one = record(created_at=NOW, **fields)
    told = facts.drive_fact(one)
    assert (told.fact, told.created_at, told.source) == ("a", NOW, maker)
    assert told.created_by == one.created_by
    assert facts.decode_id(told.id, 2) == ["web", "r1"]
    user = facts.user_fact(one)
    assert (user.fact, user.created_at, user.source) == ("a", NOW, maker)
    assert facts.decode_id(user.id, 1) == ["r1"]
    assert facts.decode_id(user.id, 2) is None


async def test_the_facts_of_every_page_are_listed_and_added_with_their_source() -> None:
    written: list[Any] = []

    async def pages(*_: Any) -> Any:
        other = record("o", scope=Scope(company_id="acme", subject_id="x"))
        for ids, at_least in ((("r1", "r2"), False), (("r3",), True)):
            yield SimpleNamespace(records=[*(record(one) for one in ids), other], at_least=at_least)

    async def store(caller: Caller, request: Any) -> Any:
        written.append((caller, request))

    service: Any = SimpleNamespace(pages=pages, write=store)
    calls = FactCalls(service, CALLER)
    found, is_cut = await calls.listed(WEB)
    assert [one.handle.provider_record_id for one in found] == ["r1", "r2", "r3"]
    assert is_cut
    given = {"issue_id": "I", "comment_id": "C", "document_key": "D", "run_id": "R",
             "activity_id": "A", "external_ref": "E"}  # fmt: skip
    assert WireSource.model_fields.keys() == given.keys() | {"kind"}
    await calls.add(WEB, NewFact(fact="f", source_ref=WireSource(kind="run", **given)))
    await calls.add(WEB, NewFact(fact="f"))
    (first, request), (second, plain) = written
    assert request.source == SourceRef(kind="run", company_id="acme", **given)
    assert (request.kind, request.content, request.scope) == ("fact", "f", WEB)
    assert (first.run_id, second.run_id) == ("R", None)
    assert plain.source == SourceRef(kind="manual_note", company_id="acme")


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("maker", Maker)
def test_a_mark_says_what_a_record_has_no_field_for(kind: Kind, maker: Maker) -> None:
    body = write(kind=kind, source=maker, content="two\nlines", propagation={"a": 1})
    one = mark_for("m1", "workspace:web", body, as_line=True)
    assert (one.id, one.namespace, one.kind, one.source) == ("m1", "workspace:web", kind, maker)
    assert (one.content, one.line) == ("two\nlines", "two lines")
    kept = record().model_copy(update={"text": "two lines"})
    assert one.text_of(kept) == "two\nlines"
    assert one.text_of(kept.model_copy(update={"text": "edited"})) == "edited"
