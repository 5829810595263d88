"""How well memtui finds what answers a question in a vault, next to plain BM25.

    python benchmarks/retrieval.py RECORDS.jsonl QUERIES.jsonl

A record is a JSON line with `project_id`, `subject_id`, `run_id`, `text`, `created_at` and
`source_refs`; a query one with `project_id`, `query`, `category` and `evidence`. A query is a hit
when a returned record's source references meet its evidence; without evidence it is left out.
Category 5 has no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memtui.config import find_paths, load_settings
from memtui.contract import QueryRequest, Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, MemoryService, open_service

COMPANY = "local"
CALLER = Caller(company_id=COMPANY, principal="user:bench", door="benchmark")
TOP = 10
UNANSWERABLE = 5
Row = dict[str, Any]
Refs = set[str]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


async def load(service: MemoryService, records: Sequence[Row]) -> None:
    """Write every record through the service, its source references in the metadata."""
    for row in records:
        scope = Scope(
            company_id=COMPANY,
            project_id=row["project_id"],
            subject_id=row["subject_id"],
            run_id=row["run_id"],
        )
        source = SourceRef(kind=SourceKind.RUN, company_id=COMPANY, run_id=row["run_id"])
        request = WriteRequest(
            scope=scope,
            source=source,
            content=row["text"],
            created_at=row["created_at"],
            metadata={"source_refs": row["source_refs"]},
        )
        await service.write(CALLER, request)


async def answers(service: MemoryService, queries: Sequence[Row]) -> list[list[Refs]]:
    """Return, for each query, the source references of what was found, best first."""
    found = []
    for row in queries:
        scope = Scope(company_id=COMPANY, project_id=row["project_id"])
        request = QueryRequest(scope=scope, query=row["query"], top_k=TOP)
        answer = await service.query(CALLER, request)
        found.append([set(snippet.metadata["source_refs"]) for snippet in answer.snippets])
    return found


class Bm25:
    """Plain BM25 (k1 1.2, b 0.75) over lower-case words, without any trick."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._documents = [Counter(words(text)) for text in texts]
        self._lengths = [sum(document.values()) for document in self._documents]
        self._mean = sum(self._lengths) / len(self._lengths)
        self._holding = Counter(word for document in self._documents for word in document)

    def best(self, query: str, count: int) -> list[int]:
        """Return the numbers of the best texts that hold any of the words."""
        scores = [
            (self._score(words(query), index), index) for index in range(len(self._documents))
        ]
        scores.sort(key=lambda pair: (-pair[0], pair[1]))
        return [index for score, index in scores[:count] if score > 0]

    def _score(self, query: Sequence[str], index: int) -> float:
        document, total = self._documents[index], 0.0
        for word in set(query) & document.keys():
            holding = self._holding[word]
            rarity = math.log(1 + (len(self._documents) - holding + 0.5) / (holding + 0.5))
            length = 1 - 0.75 + 0.75 * self._lengths[index] / self._mean
            total += rarity * document[word] * 2.2 / (document[word] + 1.2 * length)
        return total


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def floor(
    records: Sequence[Row], queries: Sequence[Row], text: Callable[[Row], str]
) -> list[list[Refs]]:
    """Answer every query with plain BM25 within its project."""
    projects: dict[str, list[Row]] = defaultdict(list)
    for row in records:
        projects[row["project_id"]].append(row)
    ranked = {name: Bm25([text(row) for row in held]) for name, held in projects.items()}
    return [
        [
            set(projects[query["project_id"]][index]["source_refs"])
            for index in ranked[query["project_id"]].best(query["query"], TOP)
        ]
        for query in queries
    ]


def report(name: str, queries: Sequence[Row], found: Sequence[Sequence[Refs]]) -> None:
    """Print hit rates and reciprocal rank of the answerable queries, by category and together."""
    ranks: dict[int, list[int | None]] = defaultdict(list)
    for query, refs in zip(queries, found, strict=True):
        evidence = set(query["evidence"])
        if not evidence and query["category"] != UNANSWERABLE:
            continue
        rank = next((n for n, held in enumerate(refs, 1) if held & evidence), None)
        ranks[query["category"]].append(rank)
    answerable = [c for c in sorted(ranks) if c != UNANSWERABLE]
    for title, chosen in [*((f"category {c}", [c]) for c in answerable), ("1 to 4", answerable)]:
        some = [rank for category in chosen for rank in ranks[category]]
        print(f"{name:<22} {title:<11} n {len(some):>4}  {figures(some)}")
    empty = sum(
        not refs for query, refs in zip(queries, found, strict=True)
        if query["category"] == UNANSWERABLE
    )  # fmt: skip
    total = len(ranks[UNANSWERABLE])
    print(f"{name:<22} unanswerable: {total - empty} of {total} got an answer all the same")


def figures(ranks: Sequence[int | None]) -> str:
    count = len(ranks) or 1
    five = sum(rank is not None and rank <= 5 for rank in ranks) / count
    ten = sum(rank is not None for rank in ranks) / count
    mrr = sum(1 / rank for rank in ranks if rank) / count
    return f"hit@5 {five:.3f}  hit@10 {ten:.3f}  MRR {mrr:.3f}"


async def run(records: Sequence[Row], queries: Sequence[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = find_paths(Path(folder))
        service = await open_service(paths, load_settings(paths))
        began = time.perf_counter()
        await load(service, records)
        loaded = time.perf_counter()
        found = await answers(service, queries)
        ended = time.perf_counter()
        await service.close()
    print(f"{len(records)} records written in {loaded - began:.1f} s")
    print(f"{len(queries)} queries answered in {ended - loaded:.1f} s")
    report("vault", queries, found)
    report("plain BM25", queries, floor(records, queries, lambda row: row["text"]))
    named = floor(records, queries, lambda row: f"{row['subject_id']} {row['text']}")
    report("plain BM25 + subject", queries, named)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("queries", type=Path)
    given = parser.parse_args()
    asyncio.run(run(rows(given.records), rows(given.queries)))


if __name__ == "__main__":
    main()
