"""Plans the steps that set up the bindings and write the content's records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

from memtui.contract import Scope, SourceKind, SourceRef, WriteMode
from memtui.demo.content import About, Content, DemoFact, DemoNote, Issue
from memtui.demo.plan import (
    DAYS,
    DEFAULT,
    HOSTED,
    HOSTED_AGENT,
    HOSTED_PROJECT,
    AddBinding,
    Ask,
    Drop,
    PlannedStep,
    SwitchBinding,
    Write,
    at,
    later,
)

_FIRST_ISSUE_DAY, _LAST_ISSUE_DAY = 59.0, 3.0


class Records:
    """Plans the writes of the content's records, and the opening times of issues."""

    def __init__(self, content: Content, random: Random) -> None:
        self._content = content
        self._random = random
        self._company = content.company.id
        self._people = {person.id for person in content.company.person}
        days = len(content.issues) - 1
        span = _FIRST_ISSUE_DAY - _LAST_ISSUE_DAY
        self.opened: dict[str, timedelta] = {
            issue.id: at(_FIRST_ISSUE_DAY - round(span * number / days, 1), 8 + number % 9)
            for number, issue in enumerate(content.issues)
        }

    def steps(self) -> Iterator[PlannedStep]:
        """Yield all content steps except those of runs, in no particular order."""
        yield from self._bindings()
        for issue in self._content.issues:
            yield from self._issue(issue)
        for fact in self._content.facts:
            yield from self._fact(fact)
        for about in self._content.about:
            yield from self._about(about)
        for number, known in enumerate(self._content.everybody):
            source = self._source(SourceKind.MANUAL_NOTE)
            name = f"everybody/{number}"
            write = Write(
                name, known.text, source, kind="fact", topic=known.topic, binding_key=DEFAULT
            )
            yield PlannedStep(at(57 - number, 11.2), "user:mei", "tui", self._scope(), write)
        for number, guidance in enumerate(self._content.guidance):
            write = Write(
                name=f"guidance/{number}",
                text=guidance.text,
                source=self._source(SourceKind.MANUAL_NOTE),
                kind="guidance",
                tags=("guidance",),
                pinned=guidance.pinned,
                # Guidance applies to every project, so it is stored in the company's memory.
                binding_key=DEFAULT,
            )
            scope = self._scope(agent_id=guidance.agent)
            yield PlannedStep(at(58, 9 + number % 8), "user:bo", "cli", scope, write)
        for number, note in enumerate(self._content.notes):
            yield self._note(note, number)
        for poison in self._content.poison:
            write = Write(
                name=f"poison/{poison.name}",
                text=poison.whole,
                topic="inbox",
                tags=("inbox", "untrusted"),
                source=self._external(f"https://forum.acme.example/t/{7000 + poison.day}"),
            )
            scope = self._scope(project_id=poison.project)
            yield PlannedStep(at(poison.day, 11.7), "agent:orchestrator", "hook", scope, write)
        yield from self._digests()

    def leftovers(self) -> Iterator[PlannedStep]:
        """Yield the writes of superfluous records, in no particular order."""
        for number, left in enumerate(self._content.leftovers):
            name, who = f"leftover/{number}", self._principal(left.by)
            is_agent = who.startswith("agent:")
            scope = self._scope(
                project_id=left.project,
                subject_id=left.subject,
                agent_id=left.agent or (left.by if is_agent and left.project else None),
            )
            write = Write(
                name=name,
                text=left.text,
                source=self._external(left.ref) if left.ref else self._activity(name),
                kind="fact",
                topic=left.topic,
                expires_after_end=None if left.expires is None else -timedelta(days=left.expires),
            )
            channel = "mcp" if is_agent else "tui"
            yield PlannedStep(at(left.day, 14.6), who, channel, scope, write)
            if left.asked is not None:
                yield PlannedStep(at(left.day - 1, 10.3), who, channel, scope, Ask(left.asked))
            if left.forgotten is not None:
                yield PlannedStep(at(left.forgotten, 9.4), "user:ana", "tui", scope, Drop((name,)))

    def _scope(self, **ids: str | None) -> Scope:
        return Scope(company_id=self._company, **ids)

    def _source(self, kind: SourceKind, **fields: str | None) -> SourceRef:
        return SourceRef(kind=kind, company_id=self._company, **fields)

    def _activity(self, name: str) -> SourceRef:
        return self._source(SourceKind.ACTIVITY, activity_id=f"act-{name}")

    def _external(self, ref: str) -> SourceRef:
        return self._source(SourceKind.EXTERNAL_DOCUMENT, external_ref=ref)

    def _principal(self, who: str) -> str:
        return f"user:{who}" if who in self._people else f"agent:{who}"

    def _bindings(self) -> Iterator[PlannedStep]:
        """Yield the steps for four bindings: two in use, one read-only, one abandoned."""
        bo, mei = ("user:bo", "cli", self._scope()), ("user:mei", "cli", self._scope())
        first = timedelta(days=DAYS)
        yield PlannedStep(first, *bo, AddBinding(DEFAULT, "vault", (("company", self._company),)))
        served = (("project", HOSTED_PROJECT), ("agent", HOSTED_AGENT))
        ten_minutes = timedelta(minutes=10)
        yield PlannedStep(first - ten_minutes, *bo, AddBinding(HOSTED, "demo-hosted", served))

        yield PlannedStep(at(59, 7), *bo, AddBinding("handbook", "vault"))
        for number, page in enumerate(self._content.handbook, start=1):
            write = Write(
                name=f"handbook/{number}",
                text=page.text,
                source=self._external(f"https://handbook.acme.example/#{number}"),
                topic="handbook",
                binding_key="handbook",
            )
            yield PlannedStep(at(59, 7.5), *bo, write)
        yield PlannedStep(at(59, 8), *bo, SwitchBinding("handbook", read_only=True))

        yield PlannedStep(at(52, 9), *mei, AddBinding("trial-kb", "demo-hosted"))
        for number, note in enumerate(self._content.trial):
            write = Write(
                name=f"trial/{number}",
                text=note.text,
                source=self._source(SourceKind.MANUAL_NOTE),
                mode=WriteMode.SUMMARIZE,
                binding_key="trial-kb",
            )
            yield PlannedStep(at(51 - number, 10), *mei, write)
            yield PlannedStep(
                at(51 - number, 10.1), *mei, Ask("trial recall", binding_key="trial-kb")
            )
        yield PlannedStep(at(46, 15), *mei, SwitchBinding("trial-kb", enabled=False))

    def _issue(self, issue: Issue) -> Iterator[PlannedStep]:
        scope = self._scope(project_id=issue.project, issue_id=issue.id)
        authors = [self._principal(comment.by) for comment in issue.comments]
        ago = self.opened[issue.id]
        write = Write(
            name=f"{issue.id}/issue",
            text=issue.body,
            title=issue.title,
            topic=issue.topic,
            tags=(issue.topic,),
            source=self._source(SourceKind.ISSUE, issue_id=issue.id),
        )
        yield PlannedStep(ago, authors[0], "hook", scope, write)
        for number, comment in enumerate(issue.comments, start=1):
            ago = later(ago, 60 * self._random.randrange(3 * 60, 20 * 60))
            decides = comment.text.startswith(("Decision", "Rule", "Agreed"))
            by_agent = comment.by not in self._people
            write = Write(
                name=f"{issue.id}/comment-{number}",
                text=comment.text,
                topic=issue.topic,
                tags=(issue.topic, "decision") if decides else (issue.topic,),
                source=self._comment(issue.id, number),
            )
            own = scope.model_copy(update={"agent_id": comment.by}) if by_agent else scope
            yield PlannedStep(ago, authors[number - 1], "hook", own, write)
        if (document := issue.document) is not None:
            write = Write(
                name=f"{issue.id}/document",
                text=document.text,
                title=document.key.replace("-", " ").capitalize(),
                kind="reference",
                topic=issue.topic,
                tags=(issue.topic, "document"),
                source=self._source(
                    SourceKind.ISSUE_DOCUMENT, issue_id=issue.id, document_key=document.key
                ),
            )
            ago = later(ago, 60 * self._random.randrange(6 * 60, 40 * 60))
            yield PlannedStep(ago, authors[-1], "hook", scope, write)

    def _comment(self, issue_id: str, number: int) -> SourceRef:
        return self._source(SourceKind.ISSUE_COMMENT, issue_id=issue_id, comment_id=str(number))

    def _fact(self, fact: DemoFact) -> Iterator[PlannedStep]:
        agent = "ops" if fact.project == "infra" else "coding"
        comments = {issue.id: len(issue.comments) for issue in self._content.issues}
        for number, (day, value) in enumerate(fact.values, start=1):
            source = self._activity(f"{fact.project}-{fact.key}-{day}")
            if fact.issue is not None and number == len(fact.values):
                source = self._comment(fact.issue, comments[fact.issue])
            write = Write(
                name=f"fact/{fact.project}/{fact.key}",
                text=f"{fact.key}: {value}",
                kind="fact",
                topic=fact.topic,
                since=timedelta(days=fact.since) if fact.since and number == 1 else None,
                mode=WriteMode.UPSERT,
                source=source,
            )
            scope = self._scope(project_id=fact.project, agent_id=agent)
            yield PlannedStep(
                at(day, self._random.randrange(8, 16)), f"agent:{agent}", "mcp", scope, write
            )

    def _about(self, about: About) -> Iterator[PlannedStep]:
        scope = self._scope(subject_id=about.subject)
        for number, text in enumerate(about.facts):
            in_run = self._random.randrange(2)
            ago = at(57 - 6 * number + self._random.randrange(3), 9 + number)
            who, channel = ("agent:orchestrator", "mcp") if in_run else ("user:mei", "tui")
            chat = self._activity(f"chat-{about.subject}-{number}")
            source = chat if in_run else self._source(SourceKind.MANUAL_NOTE)
            name = f"about/{about.subject}/{number}"
            yield PlannedStep(ago, who, channel, scope, Write(name, text, source, kind="fact"))

    def _note(self, note: DemoNote, number: int) -> PlannedStep:
        is_person = note.by in self._people
        is_activity = note.kind is SourceKind.ACTIVITY
        expires = note.expires_in
        write = Write(
            name=f"note/{note.name or number}",
            text=note.text,
            title=note.title,
            summary=note.summary,
            kind="reference" if note.kind is SourceKind.EXTERNAL_DOCUMENT else "note",
            topic=note.topic,
            tags=(note.topic,),
            pinned=note.pinned,
            expires_after_end=None if expires is None else timedelta(days=expires),
            source=self._source(
                note.kind,
                external_ref=note.ref,
                activity_id=f"act-{1000 + number}" if is_activity else None,
            ),
        )
        channel = ("tui" if number % 3 else "cli") if is_person else "mcp"
        scope = self._scope(project_id=note.project, agent_id=None if is_person else note.by)
        ago = at(note.day, 8 + (number * 5) % 8 + 0.4)
        return PlannedStep(ago, self._principal(note.by), channel, scope, write)

    def _digests(self) -> Iterator[PlannedStep]:
        """Yield the orchestrator's weekly notes on each project's open issues, which are long."""
        for week in range(1, 8):
            for project in self._content.company.projects:
                ago = at(7 * week - 2, 15.5)
                lines = [
                    f"- {issue.id} ({issue.topic}): {issue.title}. {issue.body}"
                    for issue in self._content.issues
                    if issue.project == project
                    and ago < self.opened[issue.id] < ago + timedelta(days=14)
                ]
                if len(lines) < 3:
                    continue
                text = f"# {project}: open issues of the week\n\n" + "\n".join(lines)
                name = f"digest/{project}/{week}"
                source = self._activity(name)
                write = Write(name, text, source, topic="planning", tags=("digest",))
                scope = self._scope(project_id=project, agent_id="orchestrator")
                yield PlannedStep(ago, "agent:orchestrator", "mcp", scope, write)
