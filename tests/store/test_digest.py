"""The digest is that of a document of hashes, and never changes for an operation."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.contract import OperationStatus, OperationType, Scope, SourceKind, SourceRef, Usage
from memtui.store.digest import COMMITTED, GENESIS, SUBJECT, canonical, digest_of, document_of
from memtui.store.operation import OperationDraft, OperationHandle

text = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=8)
key = st.text(max_size=8)
maybe = st.none() | text
number = st.floats(allow_nan=False, allow_infinity=False).map(
    lambda value: value + 0.0
) | st.integers(-(2**53), 2**53)
json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats().map(lambda value: value + 0.0) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(key, inner, max_size=3),
    max_leaves=5,
)
documents = st.dictionaries(key, json_value, max_size=3)
money = st.none() | st.decimals(0, 9_000_000, places=12, allow_nan=False)
usages = st.builds(
    Usage,
    provider=text,
    model=maybe,
    input_tokens=st.integers(0, 2**63 - 1),
    output_tokens=st.integers(0, 9),
    embedding_tokens=st.integers(0, 9),
    cost_usd=money,
    latency_ms=st.none() | number,
    details=documents,
)
handles = st.builds(
    OperationHandle,
    rank=st.integers(1, 9),
    provider_key=text,
    provider_record_id=text,
    score=st.none() | st.floats().map(lambda value: value + 0.0),
    binding_key=maybe,
    ghost=st.booleans(),
)
scopes = st.builds(
    Scope,
    company_id=key.filter(bool),
    **{name: maybe for name in Scope.model_fields if name != "company_id"},
)
sources = st.builds(
    SourceRef,
    kind=st.sampled_from(SourceKind),
    company_id=text,
    **{name: maybe for name in SourceRef.model_fields if name not in {"kind", "company_id"}},
)
TEXTS = (
    "binding_key provider_key binding_reason error_kind error_message undoes part_of".split()  # noqa: SIM905
)
drafts = st.builds(
    OperationDraft,
    operation_id=text,
    operation_type=st.sampled_from(OperationType),
    status=st.sampled_from(OperationStatus),
    scope=scopes,
    source=st.none() | sources,
    principal=text,
    channel=text,
    request=documents,
    result_count=st.integers(0, 9),
    capped=st.booleans(),
    handles=st.lists(handles, max_size=2, unique_by=lambda one: one.rank).map(tuple),
    usage=st.lists(usages, max_size=2).map(tuple),
    started_at=st.datetimes(timezones=st.just(UTC)),
    latency_ms=number,
    to_show=st.none() | st.booleans(),
    **dict.fromkeys(TEXTS, maybe),
)


SALT, COMPANY = bytes(range(16)), b"the company's"


def naive(draft: OperationDraft, seq: int, previous: str) -> dict[str, Any]:
    """The document as docs/audit.md describes it, written without any thought of speed."""
    document = draft.model_dump(mode="json", exclude={"absent"})
    document |= {"seq": seq, "previous_digest": previous, "withheld": []}
    committed = ("binding_reason", "error_message", "to_show", "part_of")
    values = {name: document.pop(name) for name in committed}
    values["scope.subject_id"] = document["scope"].pop("subject_id")
    for name in ("activity_id", "comment_id", "document_key", "external_ref"):
        if document["source"]:
            values[f"source.{name}"] = document["source"].pop(name)
    for handle in document["handles"]:
        path = f"handles.{handle['rank']}.provider_record_id"
        values[path] = handle.pop("provider_record_id")
    for number, usage in enumerate(document["usage"]):
        values[f"usage.{number}.details"] = usage.pop("details") or None
    request = document["request"]
    document["request"] = {}
    for name, value in (("top_k", request.pop("top_k")), ("capped", None)):
        if value is not None:
            document["request"][name] = value
    tags = request.pop("tags")
    if not tags:
        document["request"]["tags"] = []
    values |= {f"request.tags.{place}": tag for place, tag in enumerate(tags)}
    values["request.query"] = request.pop("query")
    values["request"] = request or None
    document["committed"] = {}
    for path, value in values.items():
        if value is not None:
            told = canonical(value).encode()
            salted = COMPANY + told if path == SUBJECT else SALT + path.encode()
            salt = hashlib.sha256(salted).digest()[:16]
            hashed = hashlib.sha256(path.encode() + b"\0" + salt + told).hexdigest()
            document["committed"][path] = hashed
    return document


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    draft=drafts,
    seq=st.integers(1, 2**40),
    previous=text,
    top_k=st.integers(1, 99),
    query=text,
    tags=st.lists(text, max_size=3),
)
def test_it_is_of_the_document_that_the_documentation_describes(
    draft: OperationDraft, seq: int, previous: str, top_k: int, query: str, tags: list[str]
) -> None:
    theirs = {f"{name}!": value for name, value in draft.request.items()}
    asked = {"top_k": top_k, "query": query, "tags": tags} | theirs
    draft = draft.model_copy(update={"request": asked})
    found = document_of(draft, seq=seq, previous_digest=previous, salt=SALT, company=COMPANY)
    assert found == canonical(naive(draft, seq, previous))


LONG = "a text that somebody wrote"
EVERYTHING = OperationDraft(
    operation_id="op-1",
    operation_type=OperationType.QUERY,
    status=OperationStatus.OK,
    scope=Scope(company_id="acme", agent_id="a", project_id="p", run_id="é", subject_id=LONG),
    binding_key="default",
    binding_reason=LONG,
    source=SourceRef(
        kind=SourceKind.RUN, company_id="acme", run_id="run-1", external_ref=LONG, comment_id=LONG
    ),
    principal="user:ana",
    channel="cli",
    request={
        "query": LONG,
        "top_k": 5,
        "intent": "answer",
        "tags": [LONG],
        LONG: LONG,
        "mode": LONG,
    },
    error_message=LONG,
    result_count=1,
    handles=(OperationHandle(rank=1, provider_key="vault", provider_record_id=LONG, score=1 / 3),),
    usage=(Usage(provider="voyage", embedding_tokens=9, details={LONG: LONG}),),
    started_at=datetime(2026, 1, 1, 12, 30, tzinfo=UTC),
    latency_ms=1.5,
)


def test_every_field_counts_and_existing_logs_keep_theirs() -> None:
    digest = digest_of(EVERYTHING, seq=1, previous_digest=GENESIS, salt=SALT, company=COMPANY)
    assert digest == ("d9a2691a05948fb14ccb25290ca6bf927d3fc3c228f6c29e098207d1ec063ad6")


def test_the_document_holds_no_text_that_somebody_wrote() -> None:
    document = document_of(EVERYTHING, seq=1, previous_digest=GENESIS, salt=SALT, company=COMPANY)
    assert LONG not in document
    assert json.loads(document)["request"] == {"top_k": 5, "intent": "answer"}
    again = document_of(EVERYTHING, seq=1, previous_digest=GENESIS, salt=bytes(16), company=COMPANY)
    first, other = (json.loads(one)["committed"] for one in (document, again))
    assert [path for path in first if first[path] == other[path]] == [SUBJECT]
    assert len(set(first.values())) == len(first) == 11


def test_a_field_that_was_not_there_yet_changes_no_digest_of_before() -> None:
    assert {OperationDraft.model_fields[name].default for name in COMMITTED} == {None}
