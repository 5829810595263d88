"""A year of changes to a hundred facts: any moment of it is what a generator says it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from memtui.backends.vault import VaultAdapter
from memtui.contract import (
    BrowseRequest,
    CorrectRequest,
    Filter,
    ForgetRequest,
    Record,
    Scope,
    Snapshot,
    holds_at,
)
from tests.backends.vault.conftest import COMPANY, Open, ask, fact, put, upsert

PROJECTS = tuple(f"p{number}" for number in range(8))
TOPICS = ("Project", "Conventions", "Stats", None)
KEYS = tuple(f"key{number}" for number in range(12))
FACTS, CHANGES, MOMENTS = 100, 250, 100
START, YEAR = datetime(2025, 1, 1, tzinfo=UTC), timedelta(days=365)

Fact = tuple[str, str | None, str]
"""Its project, heading and text."""


@dataclass
class Account:
    """What the generator did: of each fact the windows in which it said something."""

    now: datetime = START
    windows: list[list[tuple[datetime, datetime | None, Fact]]] = field(default_factory=list)

    def open(self) -> Iterator[tuple[int, Fact]]:
        for number, own in enumerate(self.windows):
            if own and own[-1][1] is None:
                yield number, own[-1][2]

    def put(self, number: int, said: Fact | None) -> None:
        own = self.windows[number]
        if own and own[-1][1] is None:
            since, _, before = own[-1]
            own[-1] = since, self.now, before
        if said is not None:
            own.append((self.now, None, said))

    def add(self, said: Fact) -> None:
        """Begin a fact, or go on with the one of its key that is gone."""
        self.windows.append([])
        self.put(len(self.windows) - 1, said)

    def at(self, moment: datetime) -> list[Fact]:
        found = (
            said
            for own in self.windows
            for since, until, said in own
            if since <= moment and (until is None or moment < until)
        )
        return sorted(found, key=str)


@dataclass
class Generator:
    root: Path
    random: Random
    account: Account
    adapter: VaultAdapter = field(init=False)
    number: int = 0
    """Makes every text another."""

    def fresh(self) -> str:
        self.number += 1
        return f"value {self.number}"

    def begin(self, facts: int = FACTS) -> None:
        """Write half of the facts by hand, before memtui sees the vault."""
        for project in PROJECTS:
            lines = []
            for topic in TOPICS[:3]:
                lines.append(f"## {topic}")
                for key in KEYS[: facts // 2 // 3 // len(PROJECTS)]:
                    text = f"{key}: {self.fresh()}"
                    lines.append(f"- {text}")
                    self.account.add((project, topic, text))
            put(self.root, f"projects/{project}/facts.md", "\n".join([*lines, ""]))

    async def record(self, said: Fact) -> Record:
        words = Filter(project_id=said[0], text=said[2])
        page = await self.adapter.browse(BrowseRequest(scope=COMPANY, filter=words))
        [found] = [record for record in page.records if _said(record) == said]
        return found

    async def write(self) -> None:
        """Add a plain fact, or set a key: a new one, one that holds, or one that is gone."""
        project, topic = self.random.choice(PROJECTS), self.random.choice(TOPICS)
        scope = Scope(company_id="acme", project_id=project)
        if self.random.random() < 0.3:
            text = f"Plain words of {self.fresh()}"
            await fact(self.adapter, text, scope=scope, topic=topic)
            self.account.add((project, topic, text))
            return
        key = self.random.choice(KEYS)
        # Without a heading a key means the only one of its name, wherever it stands.
        topic = topic or "Other"
        text = f"{key}: {self.fresh()}"
        same = [
            number
            for number, said in self.account.open()
            if said[:2] == (project, topic) and said[2].startswith(f"{key}: ")
        ]
        await upsert(self.adapter, text, scope=scope, topic=topic)
        self.account.put(same[0], (project, topic, text)) if same else self.account.add(
            (project, topic, text)
        )

    async def change(self) -> None:
        """Correct or forget a fact, and sometimes take that back a while later."""
        number, said = self.random.choice(list(self.account.open()))
        record = await self.record(said)
        scope = Scope(company_id="acme", project_id=said[0])
        [taken] = await self.adapter.snapshot([record.handle], scope)
        before = list(self.account.windows[number])
        if self.random.random() < 0.5:
            await self.adapter.forget(ForgetRequest(scope=scope, handles=(record.handle,)))
            self.account.put(number, None)
        else:
            text = f"{_key(said[2])}{self.fresh()}"
            await self.adapter.correct(CorrectRequest(scope=scope, handle=record.handle, text=text))
            self.account.put(number, (*said[:2], text))
        if self.random.random() < 0.4:
            self.account.now += timedelta(hours=self.random.random())
            await self.restore(taken, scope)
            self.account.windows[number] = before  # what is taken back was never so

    async def restore(self, taken: Snapshot, scope: Scope) -> None:
        await self.adapter.restore([taken], scope)

    async def edit(self) -> None:
        """Change a bullet by hand, take one out, put one in, or move one to another heading."""
        number, (project, topic, old) = self.random.choice(list(self.account.open()))
        path = self.root / f"projects/{project}/facts.md"
        text, line = path.read_text(), f"- {old}\n"
        assert text.count(line) == 1
        action = self.random.choice(["change", "remove", "add", "move"])
        new = f"{_key(old)}{self.fresh()}"
        if action == "change":
            text = text.replace(line, f"- {new}\n")
            self.account.put(number, (project, topic, new))
        elif action == "remove":
            text = text.replace(line, "")
            self.account.put(number, None)
        elif action == "add":
            words = f"By hand {self.fresh()}"
            text = text.replace(line, f"{line}- {words}\n")
            self.account.add((project, topic, words))
        else:
            heading = f"Moved {self.number}"
            text = f"{text.replace(line, '')}\n## {heading}\n{line}"
            self.account.put(number, (project, heading, old))
        path.write_text(text)
        moment = self.account.now.timestamp()
        os.utime(path, (moment, moment))
        await ask(self.adapter, "a look", scope=COMPANY)  # the next read sees it

    async def window(self) -> None:
        """Say that a key was something else for a while; before and after, it was what it was."""
        keyed = [one for one in self.account.open() if one[1][2].startswith("key")]
        number, said = self.random.choice(keyed)
        own, now = self.account.windows[number], self.account.now
        since = own[-1][0]
        begin, end = since + (now - since) / 3, since + (now - since) / 2
        text = f"{_key(said[2])}{self.fresh()}"
        scope = Scope(company_id="acme", project_id=said[0])
        await upsert(self.adapter, text, scope=scope, topic=said[1], valid_from=begin, valid_to=end)
        own[-1:] = [(since, begin, said), (begin, end, (*said[:2], text)), (end, None, said)]

    async def live(self, changes: int = CHANGES, facts: int = FACTS) -> None:
        for turn in range(1, changes):
            self.account.now = START + YEAR * (turn / changes)
            if len(list(self.account.open())) < facts:
                await self.write()
            else:
                await self.random.choice(
                    [self.write, self.change, self.change, self.edit, self.window]
                )()


def _said(record: Record) -> Fact:
    return record.scope.project_id or "", record.topic, record.text


def _key(text: str) -> str:
    key, colon, _ = text.partition(": ")
    return f"{key}{colon}" if colon else "Plain words of "


@pytest.mark.slow
async def test_any_moment_of_a_year_is_what_the_generator_says(
    open_vault: Open, root: Path, tmp_path: Path
) -> None:
    account, random = Account(), Random(11)
    generator = Generator(root, random, account)
    generator.begin()
    adapter = generator.adapter = await open_vault(now=lambda: account.now)
    await generator.live()
    await adapter.close()
    shutil.rmtree(tmp_path / "data")  # the index, which can be made anew
    adapter = await open_vault(now=lambda: account.now)
    versions = await adapter.versions(COMPANY)
    assert len({one.handle for one in versions}) >= FACTS
    for number in range(MOMENTS):
        moment = START + YEAR * random.random()
        wanted = account.at(moment)
        held = (_said(one) for one in versions if holds_at(one, moment))
        assert sorted(held, key=str) == wanted, moment
        if number % 12 == 0:
            request = BrowseRequest(scope=COMPANY, limit=1_000, as_of=moment)
            page = await adapter.browse(request)
            assert sorted(map(_said, page.records), key=str) == wanted
            assert page.total == len(wanted)
