"""Precision, recall and growth of duplicate finding, and the time to assemble a context.

Usage: python benchmarks/duplicates.py [RECORDS.jsonl]

RECORDS.jsonl holds an object a line with `text`, and `project_id` and `subject_id` as its scope.
Every record is doubled by one edit of each kind. Edits of case, punctuation and word order are
duplicates that must be found; a changed number, name or negation is none and must not be.
"""

from __future__ import annotations

import json
import random
import re
import string
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

from memtui.context.assembly import ContextFact, ContextSection, SectionKind, assemble
from memtui.context.cost import TokenCounter
from memtui.pruning.duplicates import Item, find_clusters

SIZES = (1_000, 10_000, 100_000)
Edit = Callable[[str, random.Random], str | None]


def change_case(text: str, draw: random.Random) -> str:
    return draw.choice((text.upper(), text.lower(), text.title()))


def change_punctuation(text: str, draw: random.Random) -> str:
    endless = text.rstrip(".")
    return draw.choice(
        (endless, f"{endless}!", f"- {text}", endless.replace(",", ";"), f"“{endless}”…")
    )


def strip_punctuation(text: str, _draw: random.Random) -> str:
    return text.translate(str.maketrans("", "", string.punctuation))


def move_clause(text: str, draw: random.Random) -> str:
    words = text.rstrip(".").split()
    cut = draw.randrange(1, len(words))
    return " ".join((*words[cut:], *words[:cut]))


def shuffle_words(text: str, draw: random.Random) -> str:
    words = text.split()
    draw.shuffle(words)
    return " ".join(words)


def swap_neighbours(text: str, draw: random.Random) -> str:
    words = text.split()
    place = draw.randrange(len(words) - 1)
    words[place : place + 2] = reversed(words[place : place + 2])
    return " ".join(words)


NUMBER = re.compile(r"\d+|\b(?:two|three|four|five|six|ten|first|second|third)\b", re.IGNORECASE)


def change_number(text: str, _draw: random.Random) -> str | None:
    def other(match: re.Match[str]) -> str:
        found = match[0]
        return str(int(found) + 1) if found.isdigit() else "seven"

    changed = NUMBER.sub(other, text, count=1)
    return changed if changed != text else None


def put_number(text: str, _draw: random.Random) -> str:
    return f"{text.rstrip('.')} 3 times."


def change_name(text: str, _draw: random.Random) -> str:
    first, _, rest = text.partition(" ")
    return f"{'Zoe' if first != 'Zoe' else 'Ana'} {rest}"


def negate(text: str, _draw: random.Random) -> str:
    first, _, rest = text.partition(" ")
    return f"{first} never {rest}"


SAME: dict[str, Edit] = {
    "case": change_case,
    "punctuation": change_punctuation,
    "no punctuation": strip_punctuation,
    "clause moved": move_clause,
    "neighbours swapped": swap_neighbours,
    "words shuffled": shuffle_words,
}
OTHER: dict[str, Edit] = {
    "number changed": change_number,
    "name changed": change_name,
    "negated": negate,
}


def pairs_found(entries: Sequence[Item]) -> set[frozenset[str]]:
    """Return every two entries that one cluster puts together."""
    found = set()
    for cluster in find_clusters(entries):
        members = [cluster.survivor.id, *(one.item.id for one in cluster.duplicates)]
        found |= {frozenset(pair) for pair in combinations(members, 2)}
    return found


def double(originals: Sequence[Item], edit: Edit, draw: random.Random) -> list[Item]:
    """Return the edited copy of each entry that the edit can change."""
    copies = []
    for entry in originals:
        text = edit(entry.text, draw)
        if text is not None:
            copies.append(Item(id=f"{entry.id}'", text=text, group=entry.group))
    return copies


def measure_edits(originals: Sequence[Item]) -> None:
    """Print precision and recall of each edit by itself, and of all together."""
    print(f"{len(originals)} records; natural pairs: {len(pairs_found(originals))}")
    for name, edit in (SAME | OTHER).items():
        draw = random.Random(7)
        copies = double(originals, edit, draw)
        report(name, originals, copies, len(copies) if name in SAME else 0)
    draw = random.Random(11)
    kinds = [*list(SAME)[:2], *list(SAME)[3:4], "number changed"]
    copies, same = [], 0
    for place, entry in enumerate(originals):
        kind = kinds[place % len(kinds)]
        edit = (SAME | OTHER)[kind]
        text = edit(entry.text, draw) or put_number(entry.text, draw)
        same += kind in SAME
        copies.append(Item(id=f"{entry.id}'", text=text, group=entry.group))
    report("all, in turn", originals, copies, same, kinds)


def report(
    name: str,
    originals: Sequence[Item],
    copies: Sequence[Item],
    same: int,
    kinds: Sequence[str] = (),
) -> None:
    """Print one line; with `kinds`, every last kind in turn is a difference."""
    found = pairs_found([*originals, *copies])
    ids = [entry.id for entry in originals]
    wanted = {
        frozenset((copy.id[:-1], copy.id))
        for copy in copies
        if same and (not kinds or ids.index(copy.id[:-1]) % len(kinds) != len(kinds) - 1)
    }
    right = len(found & wanted)
    precision = right / len(found) if found else 1.0
    recall = f"{right / same:.3f}" if same else "    -"
    wrong = len(found - wanted)
    print(
        f"  {name:20} {len(copies):4} copies  precision {precision:.3f}  recall {recall}"
        f"  wrong pairs {wrong}"
    )


def invented(size: int) -> list[Item]:
    """Return facts as agents write them, one in ten a repetition in another dress."""
    draw = random.Random(size)
    people = [f"{a}{b}" for a in ("An", "Bo", "Cy", "Da", "El") for b in ("na", "ris", "mo", "vid")]
    verbs = ("prefers", "decided on", "rejected", "maintains", "deploys", "documents", "reviews")
    things = [
        f"the {kind} {part}"
        for kind in ("billing", "search", "auth", "import", "report", "mobile", "audit", "queue")
        for part in ("service", "schema", "pipeline", "dashboard", "client", "worker", "tests")
    ]
    reasons = (
        "for speed",
        "to keep it simple",
        "after the incident",
        "on every release",
        "because of the budget",
        "with the platform team",
        "in staging only",
    )
    texts: list[str] = []
    for number in range(size):
        if texts and number % 10 == 0:
            edit = draw.choice((change_case, change_punctuation, move_clause))
            texts.append(edit(draw.choice(texts), draw))
            continue
        person, verb, thing = draw.choice(people), draw.choice(verbs), draw.choice(things)
        week = draw.randrange(1, 5_000)
        texts.append(f"{person} {verb} {thing} {draw.choice(reasons)} since ticket {week}.")
    return [Item(id=f"{number:06}", text=text) for number, text in enumerate(texts)]


def measure_growth() -> None:
    """Print the seconds at each size and how they grow."""
    before = None
    for size in SIZES:
        entries = invented(size)
        start = time.perf_counter()
        clusters = find_clusters(entries)
        seconds = time.perf_counter() - start
        growth = "" if before is None else f"  x{seconds / before:.1f} for x10"
        duplicates = sum(len(cluster.duplicates) for cluster in clusters)
        print(f"  {size:7,} facts  {seconds:7.3f} s  {duplicates:6,} duplicates{growth}")
        before = seconds


def measure_assembly() -> None:
    """Print the seconds to assemble 10,000 facts, each with its tokens."""
    texts = [entry.text for entry in invented(10_000)]
    counter = TokenCounter("gpt-4o")
    for limit in (None, 500):
        start = time.perf_counter()
        sections = [
            ContextSection(kind=kind, facts=tuple(ContextFact(text=text) for text in half))
            for kind, half in (
                (SectionKind.USER, texts[:5_000]),
                (SectionKind.WORKSPACE, texts[5_000:]),
            )
        ]
        context = assemble(sections, counter=counter, max_tokens=limit)
        seconds = time.perf_counter() - start
        print(f"  10,000 facts, limit {limit}: {seconds:.3f} s, {context.tokens:,} tokens")


def main(arguments: Sequence[str]) -> None:
    for path in arguments:
        rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]
        originals = [
            Item(
                id=str(number),
                text=row["text"],
                group=f"{row.get('project_id')}/{row.get('subject_id')}",
            )
            for number, row in enumerate(rows)
        ]
        measure_edits(originals)
    print("growth")
    measure_growth()
    print("assembly")
    measure_assembly()


if __name__ == "__main__":
    main(sys.argv[1:])
