"""What each term of a filter leaves of the log."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from memtui.contract import Scope, SourceRef, Usage
from memtui.filters import parse_filter
from memtui.store.database import Database
from memtui.store.operation import OperationDraft, OperationHandle
from tests.store.test_log import NOW, append, draft, read

MEASURED: dict[str, list[Any]] = {
    "latency": [10, 20, 30], "results": [1, 2, 3], "tokens": [6, 12, 18],
    "score": [0.25, 0.5, 0.75], "cost": ["0.5", "1.25", "2.5"],
}  # fmt: skip
"""What the first three of the operations below have; the fourth has nothing of it."""


def _measured() -> Iterator[OperationDraft]:
    for place, number in enumerate((1, 2, 3)):
        half = Decimal(str(MEASURED["cost"][place])) / 2
        calls = [
            Usage(provider="x", input_tokens=number, output_tokens=number, embedding_tokens=number,
                  cost_usd=half)
            for _ in range(2)
        ]  # fmt: skip
        scores = (MEASURED["score"][place], 0.1, None)
        handles = [
            OperationHandle(rank=rank, provider_key="f", provider_record_id=f"r{rank}", score=score)
            for rank, score in enumerate(scores, 1)
        ]
        yield draft(
            number, usage=tuple(calls), handles=tuple(handles), result_count=number,
            latency_ms=number * 10,
        )  # fmt: skip
    yield draft(4, latency_ms=None)


def test_numbers_are_compared_exactly(database: Database) -> None:
    append(database, *_measured())
    for measure, (first, middle, last) in MEASURED.items():
        none = [4] if measure in {"tokens", "results"} else []
        lines = {
            f"<{middle}": [*none, 1], f"<={middle}": [*none, 2, 1], f"={middle}": [2],
            f">={middle}": [3, 2], f">{middle}": [3], f">{last}": [], f"<{first}": none,
            f">{first} {measure}<{last}": [2], f"<{last} {measure}>{first}": [2],
        }  # fmt: skip
        for line, expected in lines.items():
            chosen = parse_filter(f"{measure}{line}", now=NOW)
            found = [one.seq for one in read(database, chosen=chosen).operations]
            assert found == expected, (measure, line)


ASKED_OF: dict[str, dict[str, Any]] = {
    "agent": {"scope": {"agent_id": "a"}}, "project": {"scope": {"project_id": "a"}},
    "issue": {"scope": {"issue_id": "a"}}, "run": {"scope": {"run_id": "a"}},
    "subject": {"scope": {"subject_id": "a"}}, "by": {"principal": "a"},
    "binding": {"binding_key": "a"}, "channel": {"channel": "a"}, "type": {"operation_type":
    "write"}, "status": {"status": "denied"}, "issue of the source": {"source": {"issue_id": "a"}},
    "run of the source": {"source": {"run_id": "a"}}, "comment": {"source": {"comment_id": "a"}},
    "source": {"source": {"kind": "issue"}},
}  # fmt: skip
"""What an operation has that a term of the filter line asks for."""


def test_each_field_of_a_filter_narrows_in_both_ways(database: Database) -> None:
    numbers = range(2, 2 + len(ASKED_OF))
    for number, has in zip(numbers, ASKED_OF.values(), strict=True):
        fields: dict[str, Any] = {"scope": {}, **has}
        fields["scope"] = Scope(company_id="acme", **fields["scope"])
        if "source" in fields:
            fields["source"] = SourceRef(**{"kind": "run", "company_id": "acme"} | fields["source"])
        append(database, draft(number, **fields))
        fields["scope"] = fields["scope"].model_copy(update={"company_id": "other"})
        append(database, draft(number, "other", **fields))
    values = {"type": "write", "status": "denied", "source": "issue"}
    others = {"type": "get", "status": "pending", "source": "activity"}
    beside = {"issue": "issue of the source", "run": "run of the source"}
    every = [f"acme-{number}" for number in numbers[::-1]]
    seqs = dict(zip(ASKED_OF, reversed(every), strict=True))
    for term in ASKED_OF.keys() - beside.values():
        value, other = values.get(term, "a"), others.get(term, "b")
        own = {seqs[term], seqs.get(beside.get(term, ""))}
        having = [one for one in every if one in own]
        lacks = [one for one in every if one not in own]
        for line, expected in {
            f"{term}:{value}": having, f"{term}:{other}": [], f"{term}:{other},{value}": having,
            f"-{term}:{value}": lacks, f"-{term}:{other},{value}": lacks, f"-{term}:{other}": every,
        }.items():  # fmt: skip
            page = read(database, chosen=parse_filter(line, now=NOW))
            assert [one.operation_id for one in page.operations] == expected, line
            assert page.total == len(expected)
