"""How fast the vault indexes and searches 20,000 notes, next to raw FTS5 and to scanning files.

    python benchmarks/vault_search.py [--notes 20000] [--check]

Raw FTS5 is what a program would write that wants no more: a file with a table of paths and texts,
their full-text index with the same tokenizer, and a join that fetches the texts of the best ten.
The notes are the same every time, and one in ten is of a run. All figures come from one run, in
which what is compared takes turns; `--check` fails where a limit is not kept.
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
from importlib.util import find_spec
from pathlib import Path

from benchmarks.table import Line, limited, show
from memtui.backends.vault import VaultAdapter
from memtui.contract import BindingContext, QueryRequest, Scope
from memtui.text_analysis import take_apart

COMPANY = "bench"
VOCABULARY = 5_000
QUERIES = 200
SCANS = 10
TOP = 10
ROUNDS = 5
INDEXED = 2


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
        if number % 10 == 0:
            front += f"run_id: run-{number // 200}\n"
        path.write_text(f"---\n{front}topic: {words[2]}\n---\n\n{' '.join(words)}\n", "utf-8")
    return vocabulary


def make_queries(vocabulary: Sequence[str]) -> list[str]:
    """Return queries of two to four words, common and rare."""
    chance = random.Random(11)
    return [
        " ".join(chance.sample(vocabulary[:2000], chance.randint(2, 4))) for _ in range(QUERIES)
    ]


def timed(work: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    """Return how many milliseconds of this thread's CPU `work` takes for each query."""
    spent = []
    for query in queries:
        began = time.thread_time()
        work(query)
        spent.append((time.thread_time() - began) * 1000)
    return spent


def scan(folder: Path, query: str) -> list[Path]:
    """Look for any of the words in every file, as grep would."""
    wanted = re.compile("|".join(map(re.escape, query.split())).encode(), re.IGNORECASE)
    return [path for path in folder.rglob("*.md") if wanted.search(path.read_bytes())]


def ripgrep(folder: Path, query: str) -> bytes:
    """Ask ripgrep for the files that hold any of the words."""
    command = ["rg", "--files-with-matches", "--ignore-case", "|".join(query.split()), str(folder)]
    return subprocess.run(command, capture_output=True, check=False).stdout


def raw_index(folder: Path, path: Path) -> sqlite3.Connection:
    """Put the same texts in a file of a table and its full-text index."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, path TEXT UNIQUE, text TEXT);"
        "CREATE VIRTUAL TABLE found USING fts5 (text, content = 'notes', content_rowid = 'id',"
        ' tokenize = "porter unicode61 remove_diacritics 2");'
    )
    texts = ((str(path), path.read_text("utf-8")) for path in folder.rglob("*.md"))
    connection.executemany("INSERT INTO notes (path, text) VALUES (?, ?)", texts)
    connection.execute("INSERT INTO found (found) VALUES ('rebuild')")
    connection.commit()
    return connection


def ask_raw(connection: sqlite3.Connection, query: str) -> list[tuple[str, str]]:
    sql = (
        "SELECT path, notes.text FROM found JOIN notes ON notes.id = found.rowid "
        "WHERE found MATCH ? ORDER BY rank LIMIT ?"
    )
    return connection.execute(sql, (take_apart(query).match(), TOP)).fetchall()


def ask_vault(adapter: VaultAdapter, scope: Scope) -> Callable[[str], object]:
    """Return what asks a vault, without an event loop's share."""
    query = VaultAdapter.query.__wrapped__  # type: ignore[attr-defined]

    def ask(words: str) -> object:
        return query(adapter, QueryRequest(scope=scope, query=words, top_k=TOP))

    return ask


def row(name: str, spent: Sequence[float], base: float) -> None:
    cuts = statistics.quantiles(spent, n=20)
    p50, p95 = statistics.median(spent), cuts[18]
    print(f"{name:<28} p50 {p50:9.2f} ms   p95 {p95:9.2f} ms   {p50 / base:7.2f} x raw FTS5")


def shortest(works: Sequence[Callable[[str], object]], queries: Sequence[str]) -> list[list[float]]:
    """Return for each work how many milliseconds each query takes at best, taken in turns."""
    spent = [[float("inf")] * len(queries) for _ in works]
    for _ in range(ROUNDS):
        for place, query in enumerate(queries):
            for work, best in zip(works, spent, strict=True):
                best[place] = min(best[place], timed(work, [query])[0])
    return spent


def opened(home: Path, name: str, **config: str) -> VaultAdapter:
    context = BindingContext(
        company_id=COMPANY, binding_key="bench", data_dir=home / name,
        config={"path": str(home / "vault"), "refresh_seconds": 60.0, **config},
    )  # fmt: skip
    return asyncio.run(VaultAdapter.open(context))


def run(count: int) -> list[Line]:
    lines = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        folder = home / "vault"
        queries = make_queries(make_notes(folder, count))
        taken: dict[str, list[float]] = {"vault": [], "raw": []}
        for turn in range(INDEXED):
            began = time.process_time()
            adapter = opened(home, f"data{turn}")
            taken["vault"].append(time.process_time() - began)
            asyncio.run(adapter.close())
            began = time.process_time()
            raw = raw_index(folder, home / f"raw{turn}.sqlite3")
            taken["raw"].append(time.process_time() - began)
        seconds = [min(taken["vault"]), min(taken["raw"])]
        print(f"first index of {count:,} notes: {seconds[0]:.2f} s, raw FTS5 {seconds[1]:.2f} s")
        lines.append(limited("first index", seconds[0] / seconds[1], 5))
        began = time.perf_counter()
        adapter = opened(home, "data0")
        print(f"opening again, nothing changed: {time.perf_counter() - began:.2f} s")
        project = ask_vault(adapter, Scope(company_id=COMPANY, project_id="p3"))
        company = ask_vault(adapter, Scope(company_id=COMPANY))
        base, whole, part = shortest([lambda q: ask_raw(raw, q), company, project], queries)
        reference = statistics.median(base)
        row("raw FTS5", base, reference)
        row("vault, whole company", whole, reference)
        row("vault, one project", part, reference)
        for what, spent in (("whole company", whole), ("one project", part)):
            lines.append(limited(f"search, {what}", statistics.median(spent) / reference, 1.5))
        asyncio.run(adapter.close())
        if find_spec("wordllama"):
            lines += with_static(home, queries, reference)
        row("scan in Python", timed(lambda q: scan(folder, q), queries[:SCANS]), reference)
        if shutil.which("rg"):
            row("ripgrep", timed(lambda q: ripgrep(folder, q), queries[:SCANS]), reference)
        raw.close()
    return lines


def with_static(home: Path, queries: Sequence[str], reference: float) -> list[Line]:
    """Search by words and the model `static`."""
    adapter = opened(home, "data0", embedding="static")
    ask = ask_vault(adapter, Scope(company_id=COMPANY))
    began = time.perf_counter()
    ask("begin")
    print(f"every text embedded by static: {time.perf_counter() - began:.2f} s")
    [spent] = shortest([ask], queries)
    row("vault with static", spent, reference)
    asyncio.run(adapter.close())
    p95 = statistics.quantiles(spent, n=20)[18]
    seen = f"{statistics.median(spent):.1f} ms, p95 {p95:.1f} ms"
    return [Line("search with static", seen, "<= 30 ms", statistics.median(spent) <= 30)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notes", type=int, default=20_000)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    lines = run(given.notes)
    show("limits", lines)
    if given.check and not all(line.met for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
