"""A change that waits reads the same on the screen and in a terminal, and is shown whole."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memtui.channels.cli.review import _details, _row
from memtui.contract import (
    CorrectRequest,
    ForgetRequest,
    OperationType,
    Record,
    RecordHandle,
    Scope,
    SourceKind,
    SourceRef,
    WriteMode,
    WriteRequest,
)
from memtui.presenters import pending
from memtui.record_changes import corrected
from memtui.screens.review import about, beside, difference
from memtui.service.review.queue import PendingDetails, PendingDifference
from memtui.widgets.detail_lines import joined

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HANDLE = RecordHandle(provider_key="vault", provider_record_id="the-record")
WRITE = WriteRequest(
    scope=Scope(company_id="local", project_id="the-project", run_id="the-run"),
    source=SourceRef(kind=SourceKind.RUN, company_id="local", external_ref="https://the.example"),
    content="the-text\n" * 70 + "the-end",
    binding_key="the-binding",
    mode=WriteMode.UPSERT,
    metadata={"the-key": {"inner": ["the-value"]}, "number": 4711},
    record_id="the-id",
    kind="the-kind",
    title="the-title",
    summary="the-summary " * 90 + "its-end",
    topic="the-topic",
    tags=("the-tag", "second-tag"),
    pinned=True,
    created_at=datetime(2031, 1, 1, tzinfo=UTC),
    created_by="agent:bot (says the-author)",
    expires_at=datetime(2032, 1, 1, tzinfo=UTC),
    valid_from=datetime(2033, 1, 1, tzinfo=UTC),
    valid_to=datetime(2034, 1, 1, tzinfo=UTC),
    embedding=(1.0, 2.0),
)
SHOWN = {
    "scope": ["the-project", "the-run"], "source": ["the.example"],
    "content": ["the-text", "the-end"], "binding_key": ["the-binding"],
    "mode": ["in the place of"], "metadata": ["the-key.inner", "the-value", "4711"],
    "record_id": ["the-id"], "kind": ["the-kind"], "title": ["the-title"],
    "summary": ["the-summary", "its-end"], "topic": ["the-topic"],
    "tags": ["the-tag", "second-tag"], "pinned": ["pinned"], "created_at": ["2031"],
    "created_by": ["the-author"], "expires_at": ["2032"], "valid_from": ["2033"],
    "valid_to": ["2034"], "embedding": ["2 numbers"],
}  # fmt: skip
CORRECT = CorrectRequest(
    scope=WRITE.scope, source=WRITE.source, handle=HANDLE, binding_key="the-binding",
    text="the-text", summary=WRITE.summary, topic="the-topic", tags=("the-tag", "second-tag"),
    pinned=True, expires_at=datetime(2032, 1, 1, tzinfo=UTC), revision="of-a-provider",
    created_by=WRITE.created_by,
)  # fmt: skip
NEVER_SHOWN = {"handle", "revision", "never_expires", "replaces", "users"}


def waiting(request: WriteRequest | CorrectRequest | ForgetRequest, **more: Any) -> PendingDetails:
    there = [Record(handle=HANDLE, text="as it was", scope=WRITE.scope, pinned=False)]
    if isinstance(request, WriteRequest):
        made = Record.like(request, handle=HANDLE, text=request.content)
        differences = [PendingDifference(before=None, after=made)]
    elif isinstance(request, CorrectRequest):
        differences = [PendingDifference(before=there[0], after=corrected(there[0], request))]
    else:
        there = [
            Record.like(WRITE, handle=one, text=f"text of {one.provider_record_id}")
            for one in request.handles
        ]
        differences = [PendingDifference(before=one, after=None) for one in there]
    kinds = {WriteRequest: OperationType.WRITE, CorrectRequest: OperationType.CORRECT}
    return PendingDetails(
        pending_id="h" * 32, binding_key="the-binding", owners=(WRITE.scope,), request=request,
        operation_type=kinds.get(type(request), OperationType.FORGET),
        text=getattr(request, "content", None) or getattr(request, "text", None) or "",
        handles=getattr(request, "handles", ()), reasons=("hold all",), principal="agent:bot",
        channel="mcp", run_id="the-run", source=WRITE.source, times=1, pending_since=NOW,
        last_at=NOW, seen="s", differences=tuple(differences), **more,
    )  # fmt: skip


def told_in(channel: str, found: PendingDetails) -> str:
    if channel == "terminal":
        session = cast("Any", SimpleNamespace(now=NOW, zone=UTC))
        return "\n".join(map(str, _details(session, found)))
    state = cast("Any", SimpleNamespace(true_clock=lambda: NOW, zone=UTC))
    blocks = [difference(found, UTC), about(found, state), *beside(found)]
    return joined(blocks, 200).plain


@pytest.mark.parametrize("channel", ["screen", "terminal"])
@pytest.mark.parametrize("asked", [WRITE, CORRECT])
def test_every_field_of_what_waits_is_shown(
    channel: str, asked: WriteRequest | CorrectRequest
) -> None:
    names = set(type(asked).model_fields) - NEVER_SHOWN
    expected = SHOWN | {"text": ["the-text"]}
    assert names <= expected.keys(), "a new field of a request is shown, and told of here"
    told = told_in(channel, waiting(asked))
    for name in names:
        assert [one for one in expected[name] if one not in told] == [], name


@pytest.mark.parametrize("channel", ["screen", "terminal"])
def test_of_a_removal_every_record_is_shown_whole(channel: str) -> None:
    handles = [RecordHandle(provider_key="vault", provider_record_id=f"r{n}") for n in range(3)]
    asked = ForgetRequest(scope=WRITE.scope, handles=tuple(handles))
    told = told_in(channel, waiting(asked))
    assert [told.count(f"- text of r{n}") for n in range(3)] == [1, 1, 1]
    assert told.count("the-title") == 3


@pytest.mark.parametrize("channel", ["screen", "terminal"])
def test_what_it_contradicts_is_shown_with_its_fields(channel: str) -> None:
    known = Record(handle=HANDLE, text="three", summary="told as three", scope=WRITE.scope)
    told = told_in(channel, waiting(WRITE, contradicts=(known,), orders=True))
    assert "says otherwise than" in told
    assert "told as three" in told
    assert pending.ORDERS in told


def test_a_line_of_the_list_says_what_a_correction_sets() -> None:
    asked = CorrectRequest(
        scope=WRITE.scope, handle=HANDLE, tags=(), pinned=False, never_expires=True, topic="New"
    )
    words = "topic: New · tags: none · pinned: no · expires: never"
    assert (
        pending.briefly(
            waiting(
                asked,
            )
        )
        == words
    )
    row = _row(cast("Any", SimpleNamespace(now=NOW, zone=UTC)), waiting(asked))
    assert row[-1] == words


def test_a_line_of_the_list_says_what_would_be_forgotten() -> None:
    asked = waiting(ForgetRequest(scope=WRITE.scope, handles=(HANDLE, HANDLE)))
    held = asked.model_copy(update={"texts_before": ("It rains.", "It snows.")})
    assert pending.briefly(held) == "It rains. · It snows."


def test_who_fixes_a_text_is_told_what_goes_and_what_stays() -> None:
    one = waiting(WRITE)
    assert pending.left_out(one, "Other.") == (
        "The agent's summary and vector of its own text are left out."
    )
    assert pending.left_out(one, one.text) == ""
    kept = pending.kept_with(one, UTC)
    assert "tags: the-tag, second-tag; pinned: yes; expires: 2032-01-01 00:00:00 UTC" in kept
    assert "the-summary" not in kept
