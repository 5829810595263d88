"""What is sealed is copied to an object store, and another machine brings it from there."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memtui.config import find_paths, load_settings
from memtui.contract import Conflict, Invalid, Unavailable
from memtui.service import Caller, MemoryService, open_service
from tests.service.scenario import ANA, play, told

Machine = Callable[..., Awaitable[MemoryService]]


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """Open the one control plane from the home of a machine."""
    async with AsyncExitStack() as stack:

        async def opened(name: str, url: str) -> MemoryService:
            paths = find_paths(tmp_path / name)
            database = f"sqlite:///{tmp_path / 'control-plane.db'}"
            settings = load_settings(paths, database_url=database, archive_url=url)
            service = await open_service(paths, settings)
            stack.push_async_callback(service.close)
            return service

        yield opened


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """A server that speaks S3, on loopback."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server, and the environment that leads memtui there."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL_S3": s3_server,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    yield client
    client.close()


@pytest.fixture
def bucket(s3: Any, tmp_path: Path) -> str:
    name = tmp_path.name.replace("_", "-").lower().strip("-")[:60]
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(params=["file", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/store"
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/a/log"
    return f"memory://{tmp_path.name}/store"


async def test_another_machine_answers_the_same_once_it_has_fetched(
    machine: Machine, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/store"
    here, there = await machine("here", url), await machine("there", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    with pytest.raises(Unavailable, match="memtui ops archive fetch"):
        await there.log.page(ANA)
    fetched = await there.analysis.fetch(ANA)
    assert sum(one.count for one in fetched) > 10
    assert await told(there, []) == await told(here, [])
    assert (await there.analysis.verify_archive(ANA)).problems == ()
    assert (await there.analysis.verify_chain(ANA)).broken_seq is None
    assert await there.analysis.fetch(ANA) == ()


async def test_the_machines_seal_in_turn(machine: Machine, url: str) -> None:
    here, there = await machine("here", url), await machine("there", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    fetched = await there.analysis.fetch(ANA)
    assert sum(one.count for one in fetched) > 10
    assert (await there.analysis.verify_archive(ANA)).problems == ()
    await there.analysis.seal(ANA, everything=True)
    await here.analysis.fetch(ANA)
    assert await here.analysis.segments(ANA) == await there.analysis.segments(ANA)
    assert await here.log.page(ANA) == await there.log.page(ANA)


async def test_a_damaged_copy_is_not_used(machine: Machine, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    here, there = await machine("here", url), await machine("there", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    [victim] = (tmp_path / "store").rglob("usage.parquet")
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    with pytest.raises(Unavailable, match="was changed"):
        await there.analysis.fetch(ANA)
    assert (await there.analysis.segments(ANA)).segments == ()


async def test_a_store_that_fails_loses_nothing_and_gets_it_later(
    machine: Machine, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_text("a file in the place of the folder")
    here = await machine("here", f"file://{store}")
    await play(here)
    with pytest.raises(Unavailable, match="try again"):
        await here.analysis.seal(ANA, everything=True)
    assert (await here.analysis.verify_chain(ANA)).broken_seq is None
    store.unlink()
    await here.analysis.seal(ANA, everything=True)
    there = await machine("there", f"file://{store}")
    await there.analysis.fetch(ANA)
    assert await there.analysis.segments(ANA) == await here.analysis.segments(ANA)


async def test_another_log_is_not_mixed_in(machine: Machine, tmp_path: Path, url: str) -> None:
    here = await machine("here", url)
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    (tmp_path / "control-plane.db").rename(tmp_path / "other.db")
    for rest in tmp_path.glob("control-plane.db-*"):
        rest.rename(tmp_path / rest.name.replace("control-plane", "other"))
    other = await machine("other", url)
    await play(other)
    with pytest.raises(Conflict, match="differs"):
        await other.analysis.seal(ANA, everything=True)


@pytest.mark.slow
async def test_a_damaged_object_is_not_used(machine: Machine, s3: Any, bucket: str) -> None:
    here, there = await machine("here", f"s3://{bucket}"), await machine("there", f"s3://{bucket}")
    await play(here)
    await here.analysis.seal(ANA, everything=True)
    [victim] = [key for key in keys(s3, bucket) if key.endswith("usage.parquet")]
    whole = s3.get_object(Bucket=bucket, Key=victim)["Body"].read()
    s3.put_object(Bucket=bucket, Key=victim, Body=whole[:-1] + b"?")
    with pytest.raises(Unavailable, match="was changed"):
        await there.analysis.fetch(ANA)
    s3.put_object(Bucket=bucket, Key=victim, Body=whole)
    assert await there.analysis.fetch(ANA) == (await here.analysis.segments(ANA)).segments


@pytest.mark.slow
async def test_a_bucket_is_never_made(machine: Machine, s3: Any) -> None:
    here = await machine("here", "s3://mistyped-name/log")
    await play(here)
    for ask in (here.analysis.seal(ANA, everything=True), here.analysis.fetch(ANA)):
        with pytest.raises(Unavailable, match="There is no bucket mistyped-name"):
            await ask
    assert "mistyped-name" not in [one["Name"] for one in s3.list_buckets()["Buckets"]]
    assert (await here.analysis.verify_chain(ANA)).broken_seq is None


@pytest.mark.slow
async def test_a_server_that_is_down_or_refuses_loses_nothing(
    machine: Machine, s3: Any, bucket: str, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await machine("here", f"s3://{bucket}/log")
    await play(here)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"failed \(.*; nothing was removed here, try again"):
        await here.analysis.seal(ANA, everything=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(Unavailable, match="check the credentials"):
        await here.analysis.seal(ANA, everything=True)
    assert keys(s3, bucket) == []
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    await here.analysis.seal(ANA, everything=True)
    assert len(keys(s3, bucket)) > len((await here.analysis.segments(ANA)).segments)
    assert (await here.analysis.verify_chain(ANA)).broken_seq is None


async def test_a_missing_driver_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    known = import_module("fsspec.registry")._registry  # fsspec.registry is a read-only view of it
    monkeypatch.delitem(known, "s3", raising=False)
    here = await machine("here", "s3://bucket/log")
    with pytest.raises(Invalid, match=r"pip install 'memtui\[s3\]'"):
        await here.analysis.fetch(ANA)


def keys(s3: Any, bucket: str) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]


@pytest.mark.parametrize("unfit", ["", "nonsense://x", "s3://"])
async def test_a_url_that_cannot_be_used_is_one_sentence(machine: Machine, unfit: str) -> None:
    here = await machine("here", unfit)
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    with pytest.raises((Invalid, Unavailable)) as caught:
        await here.analysis.fetch(caller)
    assert "\n" not in str(caught.value)
