"""A provider that hangs: from the third hook in a row on, nobody waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.config import Paths, load_settings
from memtui.contract import Scope, SourceRef, Unavailable, WriteRequest
from memtui.service import Caller, open_service
from memtui.service.context.contexts import ContextAnswer, ContextRequest
from memtui.service.context.late_reads import LONGEST_SECONDS, LateReads
from tests.service.fake import FakeAdapter

CALLER = Caller(company_id="local", principal="agent:coding", channel="hook")
APOLLO = Scope(company_id="local", project_id="apollo")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


async def hook(paths: Paths, now: datetime, within_ms: int | None = 100) -> ContextAnswer:
    """Assemble a context as a hook does: in a service that was opened for it alone."""
    request = ContextRequest(scope=APOLLO, prompt="which database", within_ms=within_ms)
    service = await open_service(
        paths, load_settings(paths), providers={"fake": FakeAdapter}, clock=lambda: now
    )
    try:
        return await service.context(CALLER, request)
    finally:
        await service.close()


@pytest.fixture
async def slow(paths: Paths, fake: type[FakeAdapter]) -> type[FakeAdapter]:
    """A provider that never answers, which serves the project."""
    service = await open_service(paths, load_settings(paths), providers={"fake": fake})
    await service.bindings.add(CALLER, "hosted", "fake", {})
    await service.bindings.set_target(CALLER, "project", "apollo", "hosted")
    source = SourceRef(kind="manual_note", company_id="local")
    written = WriteRequest(scope=APOLLO, source=source, content="Uses SQLite", kind="fact")
    await service.write(CALLER, written)
    await service.close()
    fake.delay = 3_600
    return fake


async def test_the_fourth_hook_does_not_ask_a_provider_that_was_late_three_times(
    paths: Paths, slow: type[FakeAdapter]
) -> None:
    for _ in range(3):
        slow.calls.clear()
        assert (await hook(paths, NOW)).late == ("workspace", "related")
        assert {"query", "browse"} <= {*slow.calls}
    slow.calls.clear()
    left_out = await hook(paths, NOW + timedelta(seconds=20))
    assert left_out.late == ("workspace", "related")
    assert not {"query", "browse"} & {*slow.calls}
    assert sorted(one.message for one in left_out.problems) == [
        "hosted: reading related was late several times in a row and is tried again in 40 s.",
        "hosted: reading workspace was late several times in a row and is tried again in 40 s.",
    ]
    slow.delay = 0
    assert (await hook(paths, NOW + timedelta(seconds=20), None)).text  # a person waits
    answered = await hook(paths, NOW + timedelta(seconds=61))
    assert not answered.late
    assert "Uses SQLite" in answered.text
    slow.delay = 3_600
    slow.calls.clear()
    await hook(paths, NOW + timedelta(seconds=62))
    assert {"query", "browse"} <= {*slow.calls}, "an answer begins the count anew"


async def test_an_error_at_once_keeps_no_later_hook_from_asking(
    paths: Paths, slow: type[FakeAdapter]
) -> None:
    slow.delay, slow.fault = 0, Unavailable("It is down; wait.", sent=True)
    for _ in range(4):
        answer = await hook(paths, NOW, within_ms=60_000)
        assert {one.message for one in answer.problems} == {"It is down; wait."}


def test_each_late_try_doubles_the_time_up_to_a_limit(tmp_path: Path) -> None:
    left = []
    for _ in range(40):
        reads = LateReads("hosted", tmp_path, NOW)
        reads.tried("related", was_late=True)
        reads.keep()
        left.append(LateReads("hosted", tmp_path, NOW).seconds_left("related"))
    assert left[:6] == [0, 0, 60, 120, 240, LONGEST_SECONDS]
    assert left[-1] == LONGEST_SECONDS
    set_back = LateReads("hosted", tmp_path, NOW - timedelta(days=1))
    assert set_back.seconds_left("related") == 0


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"related": 3}', '{"related": [1, "x"]}', "[" * 9_000], ids=len
)
def test_a_damaged_file_leaves_nothing_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "late-reads.json").write_text(text)
    reads = LateReads("hosted", tmp_path, NOW)
    assert reads.seconds_left("related") == 0
    reads.tried("related", was_late=True)
    reads.keep()
    assert (tmp_path / "late-reads.json").read_text().startswith('{"related": [1, ')


def test_a_folder_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reads = LateReads("hosted", tmp_path / "absent", NOW)
    reads.tried("related", was_late=True)
    reads.keep()
    assert "Cannot note late reads" in caplog.text
