"""Join texts of the same meaning by their vectors, without comparing every pair."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import mul

from memtui.pruning.sameness import guarded
from memtui.pruning.words import Form, form_of, is_number, names_in

_TABLES = 12
_BITS = 12
_BUCKET = 32

Guard = tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]


def join_by_meaning(
    texts: Sequence[str], vectors: Sequence[Sequence[float]], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Yield (joined, kept, cosine) for each text that repeats an earlier one in other words.

    Two texts are compared where their vectors fall into one bucket of a hash that keeps neighbours
    together (which of two coordinates is the greater, many times over), and only if their numbers,
    negations and names are the same. A kept text is never joined to another.
    """
    units = [_unit(vector) for vector in vectors]
    if not units or not units[0]:
        return
    guards = [_guard(text) for text in texts]
    tables: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(_TABLES)]
    coordinates = _coordinates(len(units[0]))
    for number, unit in enumerate(units):
        buckets = [
            table[_signature(unit, pairs)] for table, pairs in zip(tables, coordinates, strict=True)
        ]
        nearby = sorted({near for bucket in buckets for near in bucket[:_BUCKET]})
        best = max(
            (
                (sum(map(mul, unit, units[near])), -near)
                for near in nearby
                if guards[near] == guards[number]
            ),
            default=(-1.0, 0),
        )
        if best[0] >= threshold:
            yield number, -best[1], min(best[0], 1.0)
        else:
            for bucket in buckets:
                bucket.append(number)


def _guard(text: str) -> Guard:
    form = form_of(text)
    numbers, negations = guarded(form)
    return numbers, negations, _names(form)


def _names(form: Form) -> frozenset[str]:
    """Return what is written as a name: a capital anywhere but at the beginning."""
    _, _, rest = form.text.strip().partition(" ")
    return frozenset(name for name in names_in(rest) if not is_number(name))


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(map(mul, vector, vector)))
    return [value / length for value in vector] if length else [0.0] * len(vector)


def _coordinates(size: int) -> list[list[tuple[int, int]]]:
    draw = random.Random(size)  # noqa: S311 — a fixed draw, so that the result is the same each time
    return [
        [(draw.randrange(size), draw.randrange(size)) for _ in range(_BITS)] for _ in range(_TABLES)
    ]


def _signature(unit: Sequence[float], pairs: Sequence[tuple[int, int]]) -> int:
    bits = 0
    for one, other in pairs:
        bits = bits << 1 | (unit[one] > unit[other])
    return bits
