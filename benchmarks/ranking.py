"""Which stages of the vault's ranking pay, and with which model: cross-validation over projects.

    python benchmarks/ranking.py [RECORDS.jsonl QUERIES.jsonl]… [--model words static e5]
        [--cache FOLDER]

The files are those of `benchmarks.retrieval`. Beside them it asks the questions of
`benchmarks/data/questions.jsonl`, about the demo and about memtui's own documentation, each section
of which is a note. A fold is a project of the files; the demo and the documentation are one each.

A line for each way to rank: the share of questions whose first ten records hold an answer, by fold
and of all, and how much that differs from the vault's ranking as it is, with a 95 % interval of
paired bootstrap samples. The last line takes for each fold the way that is best on the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.retrieval import (
    COMPANY,
    UNANSWERABLE,
    Row,
    answers,
    load,
    ranked_by,
    refs_of,
    rows,
    small_model,
)
from memtui.backends.vault import VaultAdapter
from memtui.config import find_paths, load_settings
from memtui.contract import BindingContext, BrowseRequest, Scope
from memtui.service import open_service

ROOT = Path(__file__).parents[1]
QUESTIONS = ROOT / "benchmarks/data/questions.jsonl"
_LIFTS = [{"lift": lift} for lift in (0.0, 0.15, 0.3, 0.5)]
_MODEL = [{"meaning": meaning} for meaning in (0.25, 0.55)] + [
    {"stands_out": deviations} for deviations in (0.0, 2.0)
]
WAYS: dict[str, list[dict[str, Any]]] = {
    "words": [{"dates": False}, *_LIFTS],
    "static": [{"dates": False}, *_LIFTS, *_MODEL],
    "e5": [{"dates": False}, *_LIFTS, *_MODEL],
}
"""What is tried beside the vault's ranking as it is, by model."""
SAMPLES = 4_000
Hits = dict[str, list[bool]]
"""For each fold, whether each of its questions was answered."""


async def written(home: Path, records: Sequence[Row]) -> Path:
    """Write records into a new vault; return its folder."""
    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths))
    await load(service, records)
    await service.close()
    return vault_in(home)


def vault_in(home: Path) -> Path:
    [vault] = home.glob("bindings/*/default/vault")
    return vault


def sections() -> list[Row]:
    """Return the sections of memtui's documentation as records."""
    found = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        parts = re.split(r"^#{1,3} (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True):
            if text.strip() and page.name != "commands.md":
                row = {"project_id": "docs", "title": title, "text": text.strip()}
                row |= {"subject_id": None, "run_id": None, "created_at": "2026-01-01T00:00:00Z"}
                found.append({**row, "source_refs": [f"{page.name}#{title}"]})
    return found


def build_demo(home: Path) -> Path:
    """Build the demo; return its vault."""
    words = [sys.executable, "-m", "memtui", "demo", "--no-tui"]
    environment = {**os.environ, "MEMTUI_HOME": str(home), "PYTHONPATH": str(ROOT)}
    subprocess.run(words, check=True, capture_output=True, env=environment)
    return vault_in(home)


async def with_evidence(vault: Path, data: Path, questions: Sequence[Row]) -> list[Row]:
    """Return the questions, each with the records of the vault that contain its answer."""
    adapter = await opened(vault, data, None)
    page = await adapter.browse(BrowseRequest(scope=Scope(company_id=COMPANY), limit=1_000))
    await adapter.close()
    found = []
    for row in questions:
        wanted = row["answer"].casefold()
        refs = [refs_of(record) for record in page.records if wanted in record.text.casefold()]
        found.append({**row, "evidence": sorted(set().union(*refs))})
    return found


async def opened(vault: Path, data: Path, embedding: str | None) -> VaultAdapter:
    config = {"path": str(vault), "embedding": embedding, "refresh_seconds": 3600.0}
    adapter = await VaultAdapter.open(
        BindingContext(company_id=COMPANY, binding_key="bench", config=config, data_dir=data)
    )
    # A few at a time, as a slow machine needs more than a call's time for many long texts.
    while embedding and not (await adapter.embed(16)).embedding.is_done:
        pass
    return adapter


async def asked(adapter: VaultAdapter, queries: Sequence[Row], name: str) -> Hits:
    """Ask every answerable question; return the hits of each of its folds."""
    hits: Hits = defaultdict(list)
    some = [one for one in queries if one["evidence"] and one.get("category") != UNANSWERABLE]
    for row, found in zip(some, await answers(adapter, some), strict=True):
        fold = row.get("project_id") or name
        hits[fold].append(any(refs & set(row["evidence"]) for refs in found))
    return hits


def share(hits: Sequence[bool]) -> float:
    return sum(hits) / (len(hits) or 1)


def gain(hits: Hits, base: Hits) -> str:
    """Return how much more of the questions is answered, with the interval of paired samples."""
    pairs = [
        int(one) - int(other)
        for fold, some in base.items()
        for one, other in zip(hits[fold], some, strict=True)
    ]
    chance, count = random.Random(5), len(pairs)
    means = sorted(sum(chance.choices(pairs, k=count)) / count for _ in range(SAMPLES))
    low, high = means[SAMPLES // 40], means[-SAMPLES // 40]
    return f"{sum(pairs) / count:+.3f} [{low:+.3f}, {high:+.3f}]"


def chosen(tried: Mapping[str, Hits]) -> Hits:
    """Return each fold's hits by the way that answers most questions of the other folds."""
    [first, *_] = tried.values()
    hits: Hits = {}
    for fold in first:
        others = {
            way: sum(sum(some) for name, some in found.items() if name != fold)
            for way, found in tried.items()
        }
        hits[fold] = tried[max(others, key=others.__getitem__)][fold]
    return hits


def report(model: str, tried: Mapping[str, Hits]) -> None:
    """Print a line for each way to rank, the first of which is the vault's."""
    base = next(iter(tried.values()))
    sizes = "  ".join(f"{fold} {len(hits)}" for fold, hits in base.items())
    print(f"\n{model}: hit@10 of {sizes}")
    for way, hits in {**tried, "chosen on the other folds": chosen(tried)}.items():
        every = [hit for some in hits.values() for hit in some]
        folds = "  ".join(f"{share(some):.3f}" for some in hits.values())
        print(f"  {way:<26} {folds}   all {share(every):.3f}  {gain(hits, base)}", flush=True)


async def run(files: Sequence[Path], models: Sequence[str], cache: Path | None) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        home = Path(name)
        sets: dict[str, tuple[Path, list[Row]]] = {}
        for number, (records, asked_of) in enumerate(zip(files[::2], files[1::2], strict=True)):
            vault = await written(home / f"{number}", rows(records))
            sets[f"files {number}"] = vault, rows(asked_of)
        own: dict[str, list[Row]] = defaultdict(list)
        for row in rows(QUESTIONS):
            own[row["of"]].append({**row, "evidence": [row["answer"]]})
        sets["docs"] = await written(home / "docs", sections()), own["docs"]
        vault = build_demo(home / "demo")
        sets["demo"] = vault, await with_evidence(vault, home / "seen", own["demo"])
        for model in models:
            embedding = {"words": None, "static": "static"}.get(model, "")
            if embedding == "":
                embedding = stack.enter_context(small_model(cache and cache / "e5"))
            tried: dict[str, Hits] = {}
            for of, (vault, queries) in sets.items():
                adapter = await opened(vault, home / f"{of} {model}", embedding)
                for way in ({}, *WAYS[model]):
                    with ranked_by(adapter, **way):
                        label = json.dumps(way)[1:-1].replace('"', "") or "as it is"
                        tried.setdefault(label, {}).update(await asked(adapter, queries, of))
                await adapter.close()
            report(model, tried)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--model", nargs="+", choices=list(WAYS), default=["words", "static"])
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    asyncio.run(run(given.files, given.model, given.cache))


if __name__ == "__main__":
    main()
