"""What a record links to and what links to it, through the service: who asks has to see both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memtui.contract import BrowseRequest, Link, Scope
from memtui.service import Caller, Membership, MemoryService, Role

COMPANY = Scope(company_id="acme")
PLAN = "projects/apollo/notes/plan.md"


def ends(links: Sequence[Link]) -> list[str | None]:
    return [one.handle.provider_record_id if one.handle else None for one in links]


async def test_links_to_and_from_what_is_not_seen_are_not_told(
    service: MemoryService, caller: Caller, tmp_path: Path
) -> None:
    notes = {
        PLAN: "For [[diary]], [[nobody]] and [[rules]].",
        "users/ana/memory/diary.md": "My own view of the [[plan]].",
        "system/memory/rules.md": "See the [[plan]].",
    }
    for path, text in notes.items():
        file = tmp_path / "vault" / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    await service.bindings.add(caller, "notes", "vault", {"path": str(tmp_path / "vault")})
    whole = await service.get(caller, PLAN, COMPANY, binding_key="notes")
    assert ends(whole.links) == ["users/ana/memory/diary.md", None, "system/memory/rules.md"]
    assert ends(whole.backlinks) == ["system/memory/rules.md", "users/ana/memory/diary.md"]

    boss = Caller(company_id="acme", principal="user:boss", channel="test")
    for principal, role in (("user:boss", Role.OWNER), ("user:ana", Role.MEMBER)):
        member = Membership(principal=principal, role=role, subject_id=principal[5:])
        await service.members.set(boss if role is Role.MEMBER else caller, member)
    seen = await service.get(boss, PLAN, COMPANY, binding_key="notes")
    assert ends(seen.links) == [None, None, "system/memory/rules.md"]
    assert [one.title for one in seen.links] == [None, None, "rules"]
    assert ends(seen.backlinks) == ["system/memory/rules.md"]

    asked = BrowseRequest(scope=COMPANY, binding_key="notes", links=True)
    page = await service.browse(boss, asked)
    assert page.links[PLAN].links == seen.links
    assert page.links[PLAN].backlinks == seen.backlinks
    unasked = asked.model_copy(update={"links": False})
    assert (await service.browse(boss, unasked)).links == {}
