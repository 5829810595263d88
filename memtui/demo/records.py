"""The steps that write the demo's content: issues, facts, people, notes, poison."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

from memtui.contract import Scope, SourceKind, SourceRef, WriteMode
from memtui.demo.calendar import at
from memtui.demo.content import About, Comment, Content, Fact, Issue, Note, Poison
from memtui.demo.plan import Step, Write

_FIRST_ISSUE_DAY, _LAST_ISSUE_DAY = 59.0, 3.0


class Records:
    """Writes what the content says, each at its time, and says when an issue was opened."""

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

    def steps(self) -> Iterator[Step]:
        """Yield every content step but those that a run takes, in no order of time."""
        for issue in self._content.issues:
            yield from self._issue(issue)
        for fact in self._content.facts:
            yield from self._fact(fact)
        for about in self._content.about:
            yield from self._about(about)
        for number, guidance in enumerate(self._content.guidance):
            yield Step(
                at(58, 9 + number % 8),
                "user:bo",
                "cli",
                Scope(company_id=self._company, agent_id=guidance.agent),
                Write(
                    name=f"guidance/{number}",
                    text=guidance.text,
                    source=self._source(SourceKind.MANUAL_NOTE),
                    kind="guidance",
                    tags=("guidance",),
                    pinned=guidance.pinned,
                    # Guidance steers every project, so it is kept with the company's memory.
                    binding_key="default",
                ),
            )
        for number, note in enumerate(self._content.notes):
            yield self._note(note, number)
        for poison in self._content.poison:
            yield self._poison(poison)
        yield from self._digests()

    def _source(self, kind: SourceKind, **fields: str | None) -> SourceRef:
        return SourceRef(kind=kind, company_id=self._company, **fields)

    def _principal(self, who: str) -> str:
        return f"user:{who}" if who in self._people else f"agent:{who}"

    def _issue(self, issue: Issue) -> Iterator[Step]:
        opened = self.opened[issue.id]
        scope = Scope(company_id=self._company, project_id=issue.project, issue_id=issue.id)
        yield Step(
            opened,
            self._principal(issue.comments[0].by),
            "hook",
            scope,
            Write(
                name=f"{issue.id}/issue",
                text=issue.body,
                title=issue.title,
                topic=issue.topic,
                tags=(issue.topic,),
                source=self._source(SourceKind.ISSUE, issue_id=issue.id),
            ),
        )
        ago = opened
        for number, comment in enumerate(issue.comments, start=1):
            ago = _later(ago, self._random.randrange(3 * 60, 20 * 60))
            yield self._comment(issue, comment, number, ago, scope)
        if issue.document is not None:
            yield Step(
                _later(ago, self._random.randrange(6 * 60, 40 * 60)),
                self._principal(issue.comments[-1].by),
                "hook",
                scope,
                Write(
                    name=f"{issue.id}/document",
                    text=issue.document.text,
                    title=issue.document.key.replace("-", " ").capitalize(),
                    kind="reference",
                    topic=issue.topic,
                    tags=(issue.topic, "document"),
                    source=self._source(
                        SourceKind.ISSUE_DOCUMENT,
                        issue_id=issue.id,
                        document_key=issue.document.key,
                    ),
                ),
            )

    def _comment(
        self, issue: Issue, comment: Comment, number: int, ago: timedelta, scope: Scope
    ) -> Step:
        is_person = comment.by in self._people
        decides = comment.text.startswith(("Decision", "Rule", "Agreed"))
        return Step(
            ago,
            self._principal(comment.by),
            "hook",
            scope if is_person else scope.model_copy(update={"agent_id": comment.by}),
            Write(
                name=f"{issue.id}/comment-{number}",
                text=comment.text,
                topic=issue.topic,
                tags=(issue.topic, "decision") if decides else (issue.topic,),
                source=self._source(
                    SourceKind.ISSUE_COMMENT, issue_id=issue.id, comment_id=str(number)
                ),
            ),
        )

    def _fact(self, fact: Fact) -> Iterator[Step]:
        agent = "ops" if fact.project == "infra" else "coding"
        comments = {issue.id: len(issue.comments) for issue in self._content.issues}
        for number, (day, value) in enumerate(fact.values):
            if fact.issue is not None and number == len(fact.values) - 1:
                source = self._source(
                    SourceKind.ISSUE_COMMENT,
                    issue_id=fact.issue,
                    comment_id=str(comments[fact.issue]),
                )
            else:
                source = self._source(
                    SourceKind.ACTIVITY, activity_id=f"act-{fact.project}-{fact.key}-{day}"
                )
            yield Step(
                at(day, self._random.randrange(8, 16)),
                f"agent:{agent}",
                "mcp",
                Scope(company_id=self._company, project_id=fact.project, agent_id=agent),
                Write(
                    name=f"fact/{fact.project}/{fact.key}",
                    text=f"{fact.key}: {value}",
                    kind="fact",
                    topic=fact.topic,
                    mode=WriteMode.UPSERT,
                    source=source,
                ),
            )

    def _about(self, about: About) -> Iterator[Step]:
        for number, text in enumerate(about.facts):
            run = self._random.randrange(2)
            yield Step(
                at(57 - 6 * number + self._random.randrange(3), 9 + number),
                "agent:orchestrator" if run else "user:mei",
                "mcp" if run else "tui",
                Scope(company_id=self._company, subject_id=about.subject),
                Write(
                    name=f"about/{about.subject}/{number}",
                    text=text,
                    kind="fact",
                    source=self._source(
                        SourceKind.ACTIVITY, activity_id=f"act-chat-{about.subject}-{number}"
                    )
                    if run
                    else self._source(SourceKind.MANUAL_NOTE),
                ),
            )

    def _note(self, note: Note, number: int) -> Step:
        is_person = note.by in self._people
        scope = Scope(company_id=self._company, project_id=note.project)
        return Step(
            at(note.day, 8 + (number * 5) % 8 + 0.4),
            self._principal(note.by),
            ("tui" if number % 3 else "cli") if is_person else "mcp",
            scope if is_person else scope.model_copy(update={"agent_id": note.by}),
            Write(
                name=f"note/{number}",
                text=note.text,
                title=note.title,
                kind="reference" if note.kind is SourceKind.EXTERNAL_DOCUMENT else "note",
                topic=note.topic,
                tags=(note.topic,),
                pinned=note.pinned,
                expires_after_end=None
                if note.expires_in is None
                else timedelta(days=note.expires_in),
                source=self._source(
                    note.kind,
                    external_ref=note.ref,
                    activity_id=f"act-{1000 + number}"
                    if note.kind is SourceKind.ACTIVITY
                    else None,
                ),
            ),
        )

    def _poison(self, poison: Poison) -> Step:
        return Step(
            at(poison.day, 11.7),
            "agent:orchestrator",
            "hook",
            Scope(company_id=self._company, project_id=poison.project),
            Write(
                name=f"poison/{poison.name}",
                text=poison.whole,
                topic="inbox",
                tags=("inbox", "untrusted"),
                source=self._source(
                    SourceKind.EXTERNAL_DOCUMENT,
                    external_ref=f"https://forum.acme.example/t/{7000 + poison.day}",
                ),
            ),
        )

    def _digests(self) -> Iterator[Step]:
        """What the orchestrator writes each week about a project's open issues: long notes."""
        for week in range(1, 8):
            for project in self._content.company.projects:
                ago = at(7 * week - 2, 15.5)
                known = [
                    issue
                    for issue in self._content.issues
                    if issue.project == project
                    and ago < self.opened[issue.id] < ago + timedelta(days=14)
                ]
                if len(known) < 3:
                    continue
                lines = [
                    f"- {issue.id} ({issue.topic}): {issue.title}. {issue.body}" for issue in known
                ]
                text = f"# {project}: open issues of the week\n\n" + "\n".join(lines)
                name = f"digest/{project}/{week}"
                source = self._source(SourceKind.ACTIVITY, activity_id=f"act-{name}")
                yield Step(
                    ago,
                    "agent:orchestrator",
                    "mcp",
                    Scope(company_id=self._company, project_id=project, agent_id="orchestrator"),
                    Write(name=name, text=text, source=source, topic="planning", tags=("digest",)),
                )


def _later(ago: timedelta, minutes: int) -> timedelta:
    """Return a moment some minutes later, or half way to the end if that is nearer."""
    return max(ago - timedelta(minutes=minutes), ago / 2)
