"""The steps that set up the company's bindings: two in use, one read-only, one given up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from memtui.contract import Scope, SourceKind, SourceRef, WriteMode
from memtui.demo.calendar import DAYS, at
from memtui.demo.content import Content
from memtui.demo.plan import (
    HOSTED,
    HOSTED_AGENT,
    HOSTED_PROJECT,
    AddBinding,
    Ask,
    Step,
    SwitchBinding,
    Write,
)


def bindings(content: Content) -> Iterator[Step]:
    """Yield every step, in no order of time."""
    scope = Scope(company_id=content.company.id)
    first = timedelta(days=DAYS)
    bo, mei = ("user:bo", "cli", scope), ("user:mei", "cli", scope)
    yield Step(first, *bo, AddBinding("default", "vault", (("company", scope.company_id),)))
    served = (("project", HOSTED_PROJECT), ("agent", HOSTED_AGENT))
    ten_minutes = timedelta(minutes=10)
    yield Step(first - ten_minutes, *bo, AddBinding(HOSTED, "demo-hosted", served))

    yield Step(at(59, 7), *bo, AddBinding("handbook", "vault"))
    for number, page in enumerate(content.handbook, start=1):
        yield Step(at(59, 7.5), *bo, _page(scope, number, page.text))
    yield Step(at(59, 8), *bo, SwitchBinding("handbook", read_only=True))

    yield Step(at(52, 9), *mei, AddBinding("trial-kb", "demo-hosted"))
    for number, note in enumerate(content.trial):
        yield Step(at(51 - number, 10), *mei, _trial(scope, number, note.text))
        yield Step(at(51 - number, 10.1), *mei, Ask("trial recall", binding_key="trial-kb"))
    yield Step(at(46, 15), *mei, SwitchBinding("trial-kb", enabled=False))


def _page(scope: Scope, number: int, text: str) -> Write:
    return Write(
        name=f"handbook/{number}",
        text=text,
        source=SourceRef(
            kind=SourceKind.EXTERNAL_DOCUMENT,
            company_id=scope.company_id,
            external_ref=f"https://handbook.acme.example/#{number}",
        ),
        topic="handbook",
        binding_key="handbook",
    )


def _trial(scope: Scope, number: int, text: str) -> Write:
    return Write(
        name=f"trial/{number}",
        text=text,
        source=SourceRef(kind=SourceKind.MANUAL_NOTE, company_id=scope.company_id),
        mode=WriteMode.SUMMARIZE,
        binding_key="trial-kb",
    )
