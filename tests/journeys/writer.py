"""A process that writes, corrects and forgets without end, and says what was acknowledged.

It says so after the service has answered; the test kills it at any moment and compares.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from memtui.config import find_paths, load_settings
from memtui.contract import CorrectRequest, ForgetRequest, Scope, SourceRef, WriteRequest
from memtui.service import Caller, open_service


def work(home: Path, name: str, rounds: int | None, told: Connection) -> None:
    """Write in a home, so many rounds or without end."""
    asyncio.run(_work(home, name, rounds, told))


async def _work(home: Path, name: str, rounds: int | None, told: Connection) -> None:
    def say(**fact: Any) -> None:
        told.send(fact)

    paths = find_paths(home)
    service = await open_service(paths, load_settings(paths))
    caller = Caller(company_id="local", principal=f"agent:{name}", channel="test")
    scope = Scope(company_id="local", project_id="p")
    source = SourceRef(kind="run", company_id="local", run_id=name)
    chance = random.Random(name)
    held: list[tuple[str, str]] = []
    say(ready=True)
    for number in itertools.count() if rounds is None else range(rounds):
        text = f"{name} says {number}"
        if number % 5 == 3 and held:
            record_id, _ = held.pop(chance.randrange(len(held)))
            handle = {"provider_key": "vault", "provider_record_id": record_id}
            say(trying="forget", id=record_id)
            await service.forget(
                caller, ForgetRequest.model_validate({"scope": scope, "handles": [handle]})
            )
            say(done="forget", id=record_id)
        elif number % 5 == 4 and held:
            record_id, _ = held[-1]
            handle = {"provider_key": "vault", "provider_record_id": record_id}
            say(trying="correct", id=record_id, text=text)
            await service.correct(
                caller,
                CorrectRequest.model_validate({"scope": scope, "handle": handle, "text": text}),
            )
            held[-1] = (record_id, text)
            say(done="correct", id=record_id, text=text)
        else:
            kind = "fact" if number % 2 else "note"
            say(trying="write", text=text)
            answer = await service.write(
                caller, WriteRequest(scope=scope, source=source, content=text, kind=kind)
            )
            record_id = answer.handles[0].provider_record_id
            held.append((record_id, text))
            say(done="write", id=record_id, text=text)
    await service.close()
