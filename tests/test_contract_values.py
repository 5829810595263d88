"""The contract's values: where a window ends, what an owner is, what a filter lets through."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from memtui.contract import (
    Comparison,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Record,
    RecordHandle,
    Scope,
    SourceRef,
    Term,
    WriteRequest,
    distinct_tags,
    folded,
    has_tag,
    holds_at,
    own_filter,
    owned,
    owner_of,
    owner_scope,
    owner_scopes,
    owner_words,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
ACME = Scope(company_id="acme")


def record(record_id: str = "r1", scope: Scope = ACME, **fields: Any) -> Record:
    handle = RecordHandle(provider_key="x", provider_record_id=record_id)
    return Record(handle=handle, text="It says so", scope=scope, **fields)


@pytest.mark.parametrize(
    ("field", "before", "at", "after"),
    [
        ("valid_from", False, True, True),
        ("valid_to", True, False, False),
        ("expires_at", True, False, False),
    ],
)
def test_a_moment_at_an_end_of_a_window(field: str, before: bool, at: bool, after: bool) -> None:
    moments: dict[str, Any] = {field: NOW}
    one = record(**moments)
    for moment, holds in ((NOW - INSTANT, before), (NOW, at), (NOW + INSTANT, after)):
        assert holds_at(one, moment) is holds
    assert holds_at(record(), NOW)


@pytest.mark.parametrize(
    ("begins", "ends", "fits"),
    [(NOW, NOW + INSTANT, True), (NOW, NOW, False), (NOW, NOW - INSTANT, False), (None, NOW, True),
     (NOW, None, True)],
)  # fmt: skip
def test_a_window_ends_after_it_begins(
    begins: datetime | None, ends: datetime | None, fits: bool
) -> None:
    source = SourceRef(kind="run", company_id="acme")
    given: dict[str, Any] = {"scope": ACME, "source": source, "content": "a"}
    if fits:
        assert WriteRequest(**given, valid_from=begins, valid_to=ends).valid_to == ends
    else:
        with pytest.raises(ValidationError, match="end after"):
            WriteRequest(**given, valid_from=begins, valid_to=ends)


def test_the_first_that_a_scope_names_owns_what_is_written() -> None:
    ids = {"project_id": "p", "subject_id": "s", "agent_id": "a"}
    words = {"project_id": "project p", "subject_id": "user s", "agent_id": "agent a"}
    for number, field in enumerate(ids):
        named = dict([*ids.items()][number:])
        scope = Scope(company_id="acme", run_id="r", issue_id="i", **named)
        assert owner_of(scope) == (field, ids[field])
        assert owner_scope(scope) == Scope(company_id="acme", **{field: ids[field]})
        assert owner_scopes(scope) == [
            Scope(company_id="acme", **{name: value}) for name, value in named.items()
        ]
        assert owner_words(scope) == words[field]
        assert own_filter(scope, kind=None) == Filter(**{field: ids[field]})
        assert scope.outside_run() == Scope(company_id="acme", issue_id="i", **named)
    run = Scope(company_id="acme", run_id="r", issue_id="i")
    assert (owner_of(run), owner_words(run)) == (("company_id", "acme"), "company acme")
    assert owner_scopes(run) == [ACME]
    assert own_filter(ACME, kind="fact", topic="t") == Filter(kind="fact", topic="t")


def test_an_owners_records_are_those_of_no_other() -> None:
    scopes = {
        "both": Scope(company_id="acme", project_id="p", subject_id="s"),
        "project": Scope(company_id="acme", project_id="p"),
        "subject": Scope(company_id="acme", subject_id="s"),
        "other": Scope(company_id="acme", subject_id="p"),
        "company": ACME,
    }
    records = [record(name, scope) for name, scope in scopes.items()]

    def of(scope: Scope) -> list[str]:
        return [one.handle.provider_record_id for one in owned(records, scope)]

    assert of(scopes["project"]) == of(scopes["both"]) == ["both", "project"]
    assert of(scopes["subject"]) == ["subject"]
    assert of(ACME) == [*scopes]


@pytest.mark.parametrize(
    ("wanted", "has"),
    [("ops", True), ("OPS", True), ("ops/oncall", True), ("op", False), ("oncall", False),
     ("ops/oncall/eu", False), ("second", True), ("STRASSE", True), ("Straße", True)],
)  # fmt: skip
def test_a_tag_is_found_by_its_name_and_by_those_above_it(wanted: str, has: bool) -> None:
    assert has_tag(("Ops/OnCall", "Second", "straße/eins"), wanted) is has


def test_each_tag_stands_once_as_it_was_first_written() -> None:
    assert distinct_tags(("B", "a", "b", "A", "a/b", "é", "e\u0301")) == ("B", "a", "a/b", "é")
    assert folded("E\u0301") == folded("é")


def test_what_is_forgotten_is_named_with_its_revision_each() -> None:
    records = [record("r1", revision="1"), record("r2"), record("r3", revision="3")]
    request = ForgetRequest.of(records, ACME, "default")
    assert [one.provider_record_id for one in request.handles] == ["r1", "r2", "r3"]
    assert (request.revisions, request.binding_key) == ({"r1": "1", "r3": "3"}, "default")


def test_an_expiry_is_set_or_taken_away() -> None:
    given: dict[str, Any] = {"scope": ACME, "handle": record().handle}
    assert not CorrectRequest(**given).sets_expiry
    assert CorrectRequest(**given, expires_at=NOW).sets_expiry
    assert CorrectRequest(**given, never_expires=True).sets_expiry
    with pytest.raises(ValidationError, match="never"):
        CorrectRequest(**given, expires_at=NOW, never_expires=True)


def test_a_filter_lets_through_what_each_of_its_terms_does() -> None:
    either = Term(field="agent_id", values=("a", "b"))
    none = Term(field="agent_id", values=("c", "d"), excluded=True)
    chosen = Filter(project_id="p", terms=(either, none))
    for field, value, passes in (
        ("agent_id", "a", True), ("agent_id", "b", True), ("agent_id", "c", False),
        ("agent_id", None, False), ("project_id", "p", True), ("project_id", "q", False),
        ("project_id", None, False), ("channel", None, True), ("channel", "cli", True),
    ):  # fmt: skip
        assert chosen.allows(field, value) is passes
    assert Filter(terms=(none,)).allows("agent_id", None)
    assert not Filter(terms=(none,)).allows("agent_id", "d")
    assert (chosen.any_of("agent_id"), chosen.any_of("project_id")) == (("a", "b"), ("p",))
    narrowed = chosen.narrowed_to(agent_id="b")
    assert (narrowed.agent_id, narrowed.terms) == ("b", (none,))
    assert chosen.excludes_internal
    assert not chosen.with_internal().excludes_internal
    for channel in (
        Filter(channel="cli"),
        Filter(terms=(Term(field="channel", values=("a", "b")),)),
    ):
        assert not channel.excludes_internal


@pytest.mark.parametrize("count", [200, 201])
def test_a_filter_takes_two_hundred_of_a_sort(count: int) -> None:
    names = tuple(f"w{number}" for number in range(count))
    compared = [Comparison(measure="tokens", sign=">", value=number) for number in range(count)]
    for given in (
        {"text": " ".join(names)},
        {"fuzzy": names},
        {"comparisons": compared},
        {"terms": [{"field": "agent_id", "values": names}]},
    ):
        if count == 200:
            Filter.model_validate(given)
        else:
            with pytest.raises(ValidationError, match="at most 200"):
                Filter.model_validate(given)


@pytest.mark.parametrize(
    ("measure", "value", "fits"),
    [("tokens", "1.5", False), ("tokens", 2, True), ("results", "0.1", False),
     ("cost", 9_000_000, True), ("cost", "9000000.01", False), ("cost", "-9000000.01", False),
     ("latency", "0.5", True)],
)  # fmt: skip
def test_a_number_fits_what_is_compared_with_it(measure: str, value: Any, fits: bool) -> None:
    given = {"measure": measure, "sign": ">=", "value": value}
    if fits:
        Comparison.model_validate(given)
    else:
        with pytest.raises(ValidationError):
            Comparison.model_validate(given)
