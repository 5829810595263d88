"""The memory context as the seed writes it, and sections of plain texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memtui.context.assembly import ContextFact, ContextSection, SectionKind


def seed_context(user_facts: Sequence[str], drive_facts: Sequence[str] | None) -> str:
    """The TypeScript of seed 004 §6.3, statement by statement."""
    context = ""
    if len(user_facts) > 0:
        context += "## About This User\n\n"
        context += "\n".join([f"- {f}" for f in user_facts])
        context += "\n\n"
    if drive_facts and len(drive_facts) > 0:
        context += "## About This Workspace\n\n"
        context += "\n".join([f"- {f}" for f in drive_facts])
        context += "\n\n"
    return context


def section_of_texts(kind: SectionKind, texts: Iterable[str]) -> ContextSection:
    """Make a section of plain texts, every one of them, in the order given."""
    return ContextSection(kind=kind, facts=tuple(ContextFact(text=text) for text in texts))
