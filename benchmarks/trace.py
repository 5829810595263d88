"""What `memtui trace` finds of chains planted in a log, and how long it takes.

    python -m benchmarks.trace [--rows 100000] [--hot 20000] [--chains 100] [--check]

Each chain begins with one record. It is delivered to two runs, which each write what they were
given, as it is, as a passage of a longer text, with other words here and there, or in words of
their own; that is delivered to further runs, four deliveries deep. Every run also writes notes of
its own with the sentences that everybody writes. What is found of a chain (recall), and how much of
what a trace is most certain of belongs to it (precision), are counted over all chains. The time of
a trace is held against one scan of the whole log by raw DuckDB. The ids in sealed handles have
Bloom filters, which made an archive of a million operations 9 % larger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.generated_log import COMPANY, generate
from benchmarks.log_figures import Raw
from benchmarks.table import Line, best, limited, reached, show
from memtui.config import find_paths, load_settings
from memtui.contract import RecordHandle
from memtui.service import Caller, open_service
from memtui.service.history.traces import Certainty, MemoryTrace

MOST_TIME, LEAST_FOUND, LEAST_RIGHT = 0.3, 1.0, 0.9
_GOAL_FROM = 10_000_000
"""A trace's time grows less than the log, so its goal is about long ones."""
_DEPTH, _WIDTH, _NOTES = 4, 2, 2
_COMMON = (
    "The tests pass and the change was merged into main.",
    "Started from the notes of the last run and checked them.",
    "Nothing else was changed, please have a look when you can.",
    "This was done as it is described in the handbook of the team.",
    "See the issue for the details of what was decided.",
)
_READER = Caller(company_id=COMPANY, principal="user:ana", channel="cli")


@dataclass
class Planted:
    """The planted operations, and the records of each chain."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """Number, type, run, agent, request and record."""
    chains: list[set[str]] = field(default_factory=list)

    def into(self, duck: Any, first: int, last: int) -> None:
        """Put those between two numbers in the place of the generated ones."""
        own = [row for row in self.rows if first <= row[0] <= last]
        names = "seq BIGINT, kind VARCHAR, run VARCHAR, agent VARCHAR, said VARCHAR, record VARCHAR"
        duck.execute(f"CREATE OR REPLACE TEMP TABLE planted ({names})")
        if not own:
            return
        duck.executemany("INSERT INTO planted VALUES (?, ?, ?, ?, ?, ?)", own)
        duck.execute(
            "UPDATE raw_operations o SET operation_type = kind, status = 'ok', run_id = run, "
            "agent_id = agent, principal = 'agent:' || agent, request = said, channel = 'mcp', "
            "binding_key = 'default', error_kind = NULL, error_message = NULL, result_count = 1 "
            "FROM planted p WHERE p.seq = o.seq"
        )
        for table in ("usage", "handles"):
            duck.execute(f"DELETE FROM raw_{table} WHERE seq IN (SELECT seq FROM planted)")
        duck.execute(
            "INSERT INTO raw_handles BY NAME SELECT company_id, seq, 1 AS rank, binding_key, "
            "operation_type, provider_key, record AS provider_record_id, false AS ghost "
            "FROM raw_operations JOIN planted USING (seq)"
        )


def plant(rows: int, chains: int, chance: random.Random) -> Planted:
    """Choose where chains stand in a log of so many operations, and what they say."""
    made = Planted()
    steps = sum(_WIDTH**level for level in range(_DEPTH + 1)) * (2 + _NOTES)
    free = iter(sorted(chance.sample(range(1, rows + 1), min(rows, chains * steps))))
    vocabulary = ["".join(chance.choices("abdegiklmnoprstuvz", k=chance.randint(4, 9)))
                  for _ in range(4_000)]  # fmt: skip
    waiting: list[tuple[int, int, str | None, str]] = []
    for chain in range(chains):
        made.chains.append(set())
        waiting.append((chain, 0, None, ""))
    while waiting:
        following: list[tuple[int, int, str | None, str]] = []
        for chain, level, given, said in waiting:
            run, agent = f"planted-{chain}-{len(made.rows)}", f"agent-{chance.randrange(40)}"
            if given is not None:
                made.rows.append((next(free), "query", run, agent, '{"query": "what"}', given))
            for _ in range(chance.randrange(_NOTES + 1) if given else 0):
                note = " ".join([*chance.sample(_COMMON, 2), _sentence(vocabulary, chance)])
                made.rows.append(_write(next(free), run, agent, note))
            text = (
                _sentence(vocabulary, chance) if given is None else _taken(said, vocabulary, chance)
            )
            row = _write(next(free), run, agent, text)
            made.rows.append(row)
            made.chains[chain].add(str(row[-1]))
            if level < _DEPTH:
                following += [(chain, level + 1, str(row[-1]), text)] * _WIDTH
        waiting = following
    return made


def _write(seq: int, run: str, agent: str, text: str) -> tuple[Any, ...]:
    return seq, "write", run, agent, json.dumps({"content": text}), f"planted/{seq}.md"


def _sentence(vocabulary: list[str], chance: random.Random) -> str:
    return " ".join(chance.choices(vocabulary, k=chance.randint(14, 30))).capitalize() + "."


def _taken(said: str, vocabulary: list[str], chance: random.Random) -> str:
    """Return what a run makes of a text: three of four times some of it comes back."""
    words = said.split()
    how = chance.randrange(4)
    if how == 0:
        return said
    if how == 1:
        start = chance.randrange(max(1, len(words) - 12))
        return f"{chance.choice(_COMMON)} {' '.join(words[start : start + 12])}, it said."
    if how == 2:
        changed = [
            chance.choice(vocabulary) if at % 7 == 6 else one for at, one in enumerate(words)
        ]
        return " ".join(changed).upper()
    return f"{chance.choice(_COMMON)} {_sentence(vocabulary, chance)}"


async def run(home: Path, rows: int, hot: int, chains: int) -> list[Line]:
    """Plant, trace each chain, and count."""
    chance = random.Random(7)
    made = plant(rows, chains, chance)
    paths = find_paths(home)
    generate(paths.data, rows - hot, hot, plant=made.into)
    service = await open_service(paths, load_settings(paths), first_company=False)
    await service.companies.add(_READER, COMPANY)

    async def trace(record: str) -> MemoryTrace:
        handle = RecordHandle(provider_key="vault", provider_record_id=record)
        return await service.traces.of_record(_READER, "default", handle)

    expected = found = certain = right = 0
    for records in made.chains:
        traced = await trace(min(records, key=lambda one: int(one[8:-3])))
        there = {one.place[1] for one in traced.records}
        sure = {one.place[1] for one in traced.records if one.certainty is Certainty.RETURNED}
        expected, found = expected + len(records), found + len(records & there)
        certain, right = certain + len(sure), right + len(sure & records)
    raw = Raw(paths.data)
    tables = ("operations", "usage", "handles")
    firsts = [min(one, key=lambda name: int(name[8:-3])) for one in made.chains[:3]]
    loop = asyncio.get_running_loop()

    def ours() -> None:
        asyncio.run_coroutine_threadsafe(trace(firsts[0]), loop).result()

    def scan() -> None:
        for table in tables:
            raw.ask(f"SELECT bit_xor(hash(t)) FROM {table} t")

    mine, whole = await asyncio.to_thread(best, [ours, scan])
    await service.close()
    details = f"   {mine * 1000:,.0f} ms, one scan {whole * 1000:,.0f} ms"
    lines = [
        reached("of each chain found", found / expected, LEAST_FOUND, f"   {found} of {expected}"),
        reached("of the most certain in the chain", right / max(1, certain), LEAST_RIGHT,
                f"   {right} of {certain}"),
    ]  # fmt: skip
    if hot < rows < _GOAL_FROM:
        lines.append(Line("a trace, beside one scan of the log", f"{mine / whole:.2f} x{details}"))
    elif rows > hot:
        lines.append(
            limited("a trace, beside one scan of the log", mine / whole, MOST_TIME, details)
        )
    return lines


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--hot", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lines = asyncio.run(run(Path(name), given.rows, given.hot, given.chains))
    show(f"{given.rows:,} operations, {given.hot:,} of them in the database", lines)
    if given.check and not all(line.met for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
