"""How fast the vault indexes and searches 20,000 notes, next to scanning files and raw FTS5.

    python benchmarks/vault_search.py [--notes 20000]

The notes are the same every time. All figures come from one run, so their ratios can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from memtui.backends.vault import VaultAdapter
from memtui.contract import BindingContext, QueryRequest, Scope
from memtui.provider_kit import take_apart

COMPANY = "bench"
VOCABULARY = 5_000
QUERIES = 200
SCANS = 10
TOP = 10


def make_notes(folder: Path, count: int) -> list[str]:
    """Write `count` notes and return the words they are made of, commonest first."""
    chance = random.Random(7)
    letters = "bcdfghjklmnprstvz"
    vocabulary = sorted(
        {
            "".join(chance.choice(letters) + chance.choice("aeiou") for _ in range(length))
            for length in (2, 3, 4)
            for _ in range(VOCABULARY // 3)
        }
    )
    chance.shuffle(vocabulary)
    weights = [1 / (rank + 10) for rank in range(len(vocabulary))]
    for number in range(count):
        words = chance.choices(vocabulary, weights, k=chance.randint(40, 160))
        path = folder / f"projects/p{number % 20}/memory/2025-01-01-{number:05}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        front = f"created: 2025-01-{number % 28 + 1:02}\ntags: [{words[0]}, {words[1]}]\n"
        path.write_text(f"---\n{front}topic: {words[2]}\n---\n\n{' '.join(words)}\n", "utf-8")
    return vocabulary


def make_queries(vocabulary: Sequence[str]) -> list[str]:
    """Return queries of two to four words, common and rare."""
    chance = random.Random(11)
    return [
        " ".join(chance.sample(vocabulary[:2000], chance.randint(2, 4))) for _ in range(QUERIES)
    ]


def timed(work: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    """Return how many milliseconds `work` takes for each query."""
    spent = []
    for query in queries:
        began = time.perf_counter()
        work(query)
        spent.append((time.perf_counter() - began) * 1000)
    return spent


def scan(folder: Path, query: str) -> list[Path]:
    """Look for any of the words in every file, as grep would."""
    wanted = re.compile("|".join(map(re.escape, query.split())).encode(), re.IGNORECASE)
    return [path for path in folder.rglob("*.md") if wanted.search(path.read_bytes())]


def ripgrep(folder: Path, query: str) -> bytes:
    """Ask ripgrep for the files that hold any of the words."""
    command = ["rg", "--files-with-matches", "--ignore-case", "|".join(query.split()), str(folder)]
    return subprocess.run(command, capture_output=True, check=False).stdout


def raw_index(folder: Path) -> tuple[sqlite3.Connection, float]:
    """Put the same texts in a bare FTS5 table; return it and the seconds it took."""
    began = time.perf_counter()
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE notes USING fts5 (text, tokenize = 'porter unicode61')"
    )
    texts = ((path.read_text("utf-8"),) for path in folder.rglob("*.md"))
    connection.executemany("INSERT INTO notes VALUES (?)", texts)
    connection.commit()
    return connection, time.perf_counter() - began


def ask_raw(connection: sqlite3.Connection, query: str) -> list[tuple[str]]:
    sql = "SELECT text FROM notes WHERE notes MATCH ? ORDER BY rank LIMIT ?"
    return connection.execute(sql, (take_apart(query).match(), TOP)).fetchall()


async def ask_vault(adapter: VaultAdapter, queries: Sequence[str], scope: Scope) -> list[float]:
    spent = []
    for query in queries:
        began = time.perf_counter()
        await adapter.query(QueryRequest(scope=scope, query=query, top_k=TOP))
        spent.append((time.perf_counter() - began) * 1000)
    return spent


def show(name: str, spent: Sequence[float], base: float) -> None:
    cuts = statistics.quantiles(spent, n=20)
    p50, p95 = statistics.median(spent), cuts[18]
    print(f"{name:<28} p50 {p50:9.2f} ms   p95 {p95:9.2f} ms   {p50 / base:7.2f} x raw FTS5")


async def run(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "vault"
        queries = make_queries(make_notes(folder, count))
        context = BindingContext(
            company_id=COMPANY, binding_key="bench", data_dir=Path(name) / "data",
            config={"path": str(folder)},
        )  # fmt: skip
        began = time.perf_counter()
        adapter = await VaultAdapter.open(context)
        print(f"first full index of {count:,} notes: {time.perf_counter() - began:.2f} s")
        await adapter.close()
        began = time.perf_counter()
        adapter = await VaultAdapter.open(context)
        print(f"opening again, nothing changed: {time.perf_counter() - began:.2f} s")
        raw, seconds = raw_index(folder)
        print(f"raw FTS5 over the same texts: {seconds:.2f} s")
        base = timed(lambda query: ask_raw(raw, query), queries)
        reference = statistics.median(base)
        show("raw FTS5", base, reference)
        company, project = Scope(company_id=COMPANY), Scope(company_id=COMPANY, project_id="p3")
        show("vault, whole company", await ask_vault(adapter, queries, company), reference)
        show("vault, one project", await ask_vault(adapter, queries, project), reference)
        await adapter.close()
        raw.close()
        show("scan in Python", timed(lambda q: scan(folder, q), queries[:SCANS]), reference)
        if shutil.which("rg"):
            show("ripgrep", timed(lambda q: ripgrep(folder, q), queries[:SCANS]), reference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notes", type=int, default=20_000)
    asyncio.run(run(parser.parse_args().notes))


if __name__ == "__main__":
    main()
