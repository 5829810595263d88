"""basic-memory's observations: lines of notes as basic-memory 0.24 writes and reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.backends.basic_memory import observations_of
from memtui.contract import (
    Invalid,
    QueryRequest,
)
from memtui.service.memory import MemoryService
from memtui.service.visibility import Caller
from tests.backends import one_binding
from tests.backends.one_binding import SCOPE, by_text

NOTE = """\
---
title: Coffee
tags: [drinks]
permalink: coffee
---
# Coffee

Of #coffee we know:

## Observations
- [method] Pour over gives more clarity #brewing (tested in May)
- [tip] Grind late\r
- Water at 94 degrees #brewing
- [ ] buy beans #todo
- [x] done
- [empty] (only a context)
- [00:01:02] said
- [link](https://example.com)
> - [info] a callout

```
- [code] no observation
```

## Relations
- depends on [[Water]]
- pairs_with [[Chocolate]] (in winter)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "notes"
    (place / "drinks").mkdir(parents=True)
    (place / "drinks" / "Coffee.md").write_bytes(NOTE.encode())
    (place / "plain.md").write_text("Nothing to observe.\n")
    return place


async def bound(service: MemoryService, caller: Caller, folder: Path) -> None:
    await service.bindings.add(caller, "obs", "basic-memory", {"path": str(folder)})


listed = partial(by_text, key="obs")
note = partial(one_binding.note, key="obs")
corrected = partial(one_binding.corrected, key="obs")
forgetting = partial(one_binding.forgetting, key="obs")


def content(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*.md")}


async def test_each_observation_is_a_record_with_the_links_of_its_note(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert {text: (one.topic, one.tags) for text, one in found.items()} == {
        "Pour over gives more clarity #brewing (tested in May)": ("method", ("brewing",)),
        "Grind late": ("tip", ()),
        "Water at 94 degrees #brewing": (None, ("brewing",)),
    }
    first = found["Pour over gives more clarity #brewing (tested in May)"]
    assert first.metadata == {"note": "drinks/Coffee", "context": "tested in May"}
    assert first.location is not None
    assert (first.location.path, first.location.line) == (f"{folder}/drinks/Coffee.md", 11)
    asked = QueryRequest(binding_key="obs", scope=SCOPE, query="how late do we grind")
    assert (await service.query(caller, asked)).snippets[0].text == "Grind late"
    answer = await service.get(caller, first.handle, SCOPE, binding_key="obs")
    assert [(one.relation, one.target) for one in answer.links] == [
        ("depends on", "Water"), ("pairs_with", "Chocolate"),
    ]  # fmt: skip
    assert [one.location and one.location.line for one in answer.links] == [26, 27]


async def test_a_change_touches_its_line_and_an_undo_leaves_the_same_bytes(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    await bound(service, caller, folder)
    found = await listed(service, caller)
    name, before = "drinks/Coffee.md", content(folder)
    lines: list[tuple[Callable[[], Any], str, bytes, bytes]] = [
        (partial(service.correct, caller, corrected(found["Grind late"], "Grind early #fix")),
         name, b"[tip] Grind late", b"[tip] Grind early #fix"),
        (partial(service.forget, caller, forgetting(found["Grind late"])),
         name, b"- [tip] Grind late\r\n", b""),
        (partial(service.forget, caller, forgetting(*found.values())),
         name, NOTE[NOTE.index("- [method]") : NOTE.index("- [ ]")].encode(), b""),
        (partial(service.write, caller, note("Ana likes tea.", topic="taste")),
         "observations.md", b"", b"- [taste] Ana likes tea."),
        (partial(service.write, caller, note("Ben likes milk.", topic="[x]")),
         "observations.md", b"", b"- [note] Ben likes milk."),
    ]  # fmt: skip
    for change, file, old, new in lines:
        done = await change()
        after = content(folder)
        assert after[file] == before.get(file, b"").replace(old, new, 1)
        assert {one: text for one, text in after.items() if one != file} == {
            one: text for one, text in before.items() if one != file
        }
        undone = await service.undo(caller, done.operation_id)
        assert content(folder) == before
        await service.undo(caller, undone.operation_id)
        assert content(folder) == after
        await service.undo(caller)
        assert content(folder) == before


@pytest.mark.parametrize("text", ["two\nlines", " blank", "blank ", "a\rb"])
async def test_what_is_no_line_is_refused(
    service: MemoryService, caller: Caller, folder: Path, text: str
) -> None:
    await bound(service, caller, folder)
    before = content(folder)
    with pytest.raises(Invalid, match="one line"):
        await service.write(caller, note(text))
    tagged = (await listed(service, caller))["Water at 94 degrees #brewing"]
    with pytest.raises(Invalid, match="other entries"):
        await service.correct(caller, corrected(tagged, "No tag, so no observation"))
    assert content(folder) == before


async def test_a_thousand_observations(
    service: MemoryService, caller: Caller, folder: Path
) -> None:
    file = folder / "many.md"
    file.write_text("# Many\n\n" + "".join(f"- [n] Number {n}\n" for n in range(997)))
    await bound(service, caller, folder)
    found = await listed(service, caller)
    assert len(found) == 1000
    before = file.read_bytes()
    gone = [found[f"Number {n}"] for n in range(0, 997, 3)]
    await service.forget(caller, forgetting(*gone))
    assert file.read_text().count("\n") == 999 - len(gone)
    await service.undo(caller)
    assert file.read_bytes() == before


@given(st.lists(st.sampled_from([
    "- [a] one", "* two #t", "- [x] three", "1. [b c] four (x)", "  - [d] five ", "> - [e] six",
    "```", "---", "- [] seven", "- [1:02] eight", "text #t", "", "- [[Nine]]", "- [f](g)",
]), max_size=12))  # fmt: skip
def test_places_of_observations_hold_their_text(lines: list[str]) -> None:
    content = "\r\n".join(lines)
    for start, begin, end, category in observations_of(content):
        line = content[start:].split("\n")[0].rstrip()
        assert line.endswith(content[begin:end])
        assert category is None or f"[{category}] {content[begin:end]}" in line
        assert category not in {"x", "1:02", ""}
