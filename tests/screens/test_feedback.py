from __future__ import annotations

from memtui.config import Paths, Settings
from memtui.contract import Filter, OperationType
from memtui.service import Caller, MemoryService
from tests.screens.hostile import screen_text
from tests.screens.piloting import running, until, write_notes


async def test_a_person_says_whether_a_result_helped_and_takes_it_back(
    paths: Paths, settings: Settings, service: MemoryService, caller: Caller
) -> None:
    await write_notes(service, caller, ["deploy_branch: release"])
    said = Filter(operation_type=OperationType.FEEDBACK)

    async def verdicts() -> list[str]:
        page = await service.log.page(caller, said)
        return [str(one.request["verdict"]) for one in page.operations][::-1]

    async with running(paths, settings, "query") as (app, pilot):
        await pilot.press(*"deploy", "enter")
        await until(pilot, lambda: "1 result" in screen_text(app))
        await pilot.press("plus")
        await until(pilot, lambda: "✓ helped" in screen_text(app))
        await pilot.press("minus")
        await until(pilot, lambda: "✗ did not help" in screen_text(app))
        await pilot.press("minus")
        await until(pilot, lambda: "withdrawn" in screen_text(app))
        assert await verdicts() == ["helped", "not_helped", "withdrawn"]
        await pilot.press("plus", "4")
        await until(pilot, lambda: "1 × helped, 0 × did not help" in screen_text(app))
