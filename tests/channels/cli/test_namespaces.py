"""`bindings namespace put` and `delete`, over a plugin on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtui.config import find_paths, load_settings
from memtui.service import Caller, open_service
from tests.backends.plugin_v1.servers.loopback import serve, talk
from tests.backends.plugin_v1.servers.reference import Reference
from tests.channels.cli.conftest import Run
from tests.screens.piloting import write_notes

DELETE = ("bindings", "namespace", "delete", "plugin", "workspace:mech")
LIST = ("bindings", "namespaces", "plugin")


@pytest.fixture
def server() -> Iterator[tuple[Reference, str]]:
    """A reference server in a thread of its own, and its address."""
    reference, ready = Reference(), threading.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def answer() -> None:
        async with serve(talk(reference)) as url:
            found.append(url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(answer(),))
    thread.start()
    assert ready.wait(10)
    yield reference, found[0]
    loop.call_soon_threadsafe(over.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def plugin(home: Path, server: tuple[Reference, str]) -> Reference:
    """The server behind the binding `plugin`, with three notes of the project `mech`."""
    asyncio.run(_prepare(home, server[1]))
    return server[0]


async def _prepare(home: Path, url: str) -> None:
    paths = find_paths(home)
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    service = await open_service(paths, load_settings(paths))
    await service.bindings.add(caller, "plugin", "plugin-v1", {"url": url})
    await service.bindings.set_target(caller, "company", "local", "plugin")
    await write_notes(service, caller, [f"Deploy number {one} from main" for one in range(3)])
    await service.close()


def test_a_namespace_is_made_and_its_expiry_set_and_taken_away(
    plugin: Reference, here: Run
) -> None:
    put = ("bindings", "namespace", "put", "plugin", "custom:trial")
    made = here(*put, "--expires", "30d", "--json")
    assert made.code == 0
    assert made.document["name"] == "custom:trial"
    assert made.document["expires_at"] is not None
    assert "expires_at" in plugin.namespaces["custom:trial"]
    listed = here(*LIST)
    assert made.document["expires_at"][:10] in listed.out
    assert "never" in here(*put).out
    assert "expires_at" not in plugin.namespaces["custom:trial"]
    past = here(*put, "--expires", "2020-01-01")
    assert (past.code, past.out) == (2, "")
    assert "is past" in past.err
    wrong = here("bindings", "namespace", "put", "plugin", "No Name")
    assert wrong.code == 2
    assert "is not a namespace" in wrong.err
    other = here("bindings", "namespace", "put", "default", "custom:trial")
    assert other.code != 0
    assert other.err.count("\n") == 1
    locked = here("--read-only", *put)
    assert locked.code == 4


def test_a_namespace_is_deleted_only_by_its_name_and_undone(plugin: Reference, here: Run) -> None:
    refused = here(*DELETE)
    assert refused.code == 2
    assert "--confirm workspace:mech" in refused.err
    assert here(*DELETE, "--confirm", "workspace:web").code == 2
    typo = here(*DELETE, stdin=b"workspace:mecha\n", terminal=True)
    assert typo.code == 2
    assert "its 3 records" in typo.err
    assert "workspace:mech" in plugin.namespaces
    gone = here(*DELETE, "--confirm", "workspace:mech", "--json")
    assert gone.code == 0
    assert (gone.document["records"], gone.document["at_least"]) == (3, False)
    assert "workspace:mech" not in plugin.namespaces
    assert here(*DELETE, "--confirm", "workspace:mech").code == 1
    assert here("undo", gone.document["forget_operation_id"]).code == 0
    assert len(plugin.rows) == 3
    typed = here(*DELETE, stdin=b"workspace:mech\n", terminal=True)
    assert typed.code == 0
    assert "removed workspace:mech with 3 records" in typed.out
    assert "memtui undo" in typed.out


def test_more_than_can_be_listed_goes_only_unseen(plugin: Reference, here: Run) -> None:
    for number in range(130):
        body = {"content": f"Row {number}", "kind": "fact", "source": "agent"}
        plugin._write("workspace:mech", body)
    assert here("bindings", "configure", "plugin", "--set", "max_searches=1").code == 0
    assert "≥ 100" in here(*LIST).out
    kept = here(*DELETE, "--confirm", "workspace:mech")
    assert kept.code == 5
    assert "holds more than" in kept.err
    assert "--unseen" in kept.err
    assert "workspace:mech" in plugin.namespaces
    gone = here(*DELETE, "--confirm", "workspace:mech", "--unseen")
    assert gone.code == 0
    assert "more that were not listed" in gone.out
    assert "workspace:mech" not in plugin.namespaces
