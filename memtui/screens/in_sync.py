"""Two bindings kept in sync: a preview, the sync, and its conflicts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from memtui.presenters import format as fmt
from memtui.screens.dialogs import Choice, Choose, Confirm
from memtui.screens.modal import Reasons
from memtui.screens.state import AppState
from memtui.screens.steps import StepRow, StepScreen, progress_content
from memtui.widgets.detail_lines import Line, diff_lines, heading, joined, labelled, record_words
from memtui.widgets.display import BAD, DIM, OK, STRONG, WARN, display, line, lines

if TYPE_CHECKING:
    from memtui.migration.endpoints import Endpoints
    from memtui.migration.moving import MigrationProgress
    from memtui.migration.syncing import Divided, Synced
    from memtui.service.answers import BindingView

_Step = Callable[["Endpoints"], Coroutine[Any, Any, "Synced"]]
_CHANGES = "sync decide delete rebuild"


class InSyncScreen(StepScreen):
    """Syncs two bindings after a preview; deletions that were held back need a yes."""

    ACTION_GROUP = "in_sync"

    def __init__(self, state: AppState, left: BindingView, right: BindingView) -> None:
        super().__init__(state)
        self._left, self._right = left, right
        self._found: Synced | None = None

    @property
    def _conflict(self) -> Divided | None:
        """The conflict under the cursor; None: the row is another."""
        row, found = self.current, self._found
        if row is None or found is None or row.number >= len(found.conflicts):
            return None
        return found.conflicts[row.number]

    @property
    def _held_back_count(self) -> int:
        return sum(len(one.record_ids) for one in self._found.held_back) if self._found else 0

    def draw_head(self) -> Content:
        """Return the two bindings, and the status."""
        endpoints = (f"{one.provider_key}·{one.key}" for one in (self._left, self._right))
        names = Content(" ⇄ ").join(display(one, limit=100, style=STRONG) for one in endpoints)
        return lines([line("keep in sync", names), self.status])

    def detail(self, row: StepRow, width: int) -> Content:
        """Return the details of a row; of a conflict, both sides."""
        if (one := self._conflict) is None:
            return super().detail(row, width)
        return conflict_content(one, (self._left.key, self._right.key), width)

    def reasons(self) -> Reasons:
        """Return why actions cannot run now."""
        locked = next((one.key for one in (self._left, self._right) if one.read_only), "")
        lacks = bool(self._found and any(x.key == self._left.key for x in self._found.held_back))
        return (
            (f"look {_CHANGES}", self.run.busy, "Wait until this is done; ctrl+c stops it."),
            (_CHANGES, locked, f"The binding {locked} is read-only; ! on it in Bindings opens it."),
            (_CHANGES, self._found is None, "See what would be done first; r shows it."),
            ("decide", self._conflict is None, "No conflict is selected."),
            ("delete", not self._held_back_count, "No deletion is held back."),
            ("rebuild", not lacks, f"{self._right.key} lacks nothing that it held."),
        )

    def begin(self) -> None:
        """Start the preview."""
        self.action_look()

    def _take(
        self, step: _Step, waiting: str, *, done: Callable[[Synced], None] | None = None
    ) -> None:
        """Open both bindings, run a step, and show its result."""
        from memtui.migration.endpoints import open_endpoints

        session, keys = self.session, (self._left.key, self._right.key)

        async def work() -> Synced:
            endpoints = await open_endpoints(session.service, session.caller, *keys)
            self._left, self._right = endpoints.source, endpoints.destination
            return await step(endpoints)

        def show(found: Synced) -> None:
            self._found = found
            self.list_found(rows_of(found), status_words(found))

        stopped = "Stopped; what was done stays, and r continues."
        self.take(work, done or show, display(f"… {waiting}", style=WARN), stopped)

    def broken(self, status: Content, *notice: str) -> None:
        """Clear the list, and show why the step ended without a result."""
        self._found = None
        self.list_found((), status)
        super().broken(status, *notice)

    def action_look(self) -> None:
        """Preview the sync; nothing is written."""
        from memtui.migration.syncing import sync

        data = self.state.paths.data
        self.rows_list.notice = ("Reading both sides …", "Nothing is written yet.")
        self._take(lambda endpoints: sync(endpoints, data, dry_run=True), "reading both sides")

    def action_sync(self) -> None:
        """Sync both bindings; deletions that are held back stay held back."""
        self._sync()

    def _sync(self, **how: Any) -> None:
        from memtui.migration.syncing import sync

        data = self.state.paths.data

        def progress(now: MigrationProgress) -> None:
            self.tell(progress_content("syncing", now))

        self._take(partial(sync, data=data, report=progress, **how), "reading both sides")

    async def action_delete(self) -> None:
        """Carry out the deletions held back, after a yes."""
        found, number = self._found, self._held_back_count
        if found is None:
            return
        where = ", ".join(f"{len(x.record_ids):,} from {x.key}" for x in found.held_back)
        question = Confirm(
            f"Delete {fmt.counted(number, 'record')}: {where}?",
            verb="delete",
            detail="\n".join(one.reason for one in found.held_back)
            + "\nThe rest is synced too. Each deletion can be undone.",
            otherwise="leave them",
        )
        if await self.ask(question):
            self._sync(delete=number)

    async def action_rebuild(self) -> None:
        """Write the records again that the second binding lacks, after a yes."""
        question = Confirm(
            f"Write again into {self._right.key} the records that it lacks from {self._left.key}?",
            verb="write it",
            detail="Facts get their history too. Nothing is deleted.",
            otherwise="leave it",
        )
        if await self.ask(question):
            self._sync(rebuild=True)

    async def action_decide(self) -> None:
        """Ask which version of the conflict stays; both stay as two records."""
        from memtui.migration.syncing import BOTH

        kept = [Choice(one.key, f"keep what {one.key} says") for one in (self._left, self._right)]
        kept.append(Choice(BOTH, "keep both, as two records"))
        if key := await self.ask(Choose("Which version stays?", kept)):
            self._decide(key)

    def _decide(self, key: str) -> None:
        from memtui.migration.syncing import BOTH, resolve

        one = self._conflict
        record = (one.records[0] or one.records[1]) if one else None
        if record is None:
            return
        data, says = self.state.paths.data, "both versions" if key == BOTH else f"what {key} says"
        name = record.handle.provider_record_id

        def decided(done: Synced) -> None:
            if done.failures:
                self.toast(done.failures[0].reason, severity="error")
            else:
                self.toast(f"Both sides have {says} now.")
            self.action_look()

        self._take(lambda endpoints: resolve(endpoints, data, name, key), "deciding", done=decided)


# A sync in words.


def rows_of(found: Synced) -> Iterator[StepRow]:
    """Yield the conflicts, then the changes made or previewed."""
    for one in found.conflicts:
        texts = (record_words(record) if record else "gone" for record in one.records)
        yield StepRow(f"conflict: {conflict_words(one, found)}", None, " ⇄ ".join(texts), "error")
    for part in found.held_back:
        what = f"deletions held back in {part.key}"
        yield StepRow(what, len(part.record_ids), part.reason, "warning")
    yield StepRow("in sync already", found.in_sync, "the same on both sides", "success")
    would = "to be " if found.dry_run else ""
    for what, where in (("written", "new there"), ("changed", ""), ("deleted", "gone elsewhere")):
        for key, number in sorted(getattr(found, what).items()):
            yield StepRow(f"{would}{what} in {key}", number, where)
    if found.failed:
        yield StepRow("failed", found.failed, "not in sync", "error")
    for failure in found.failures:
        yield StepRow(f"failed: {failure.record_id}", None, failure.reason, "error")


def conflict_words(one: Divided, found: Synced) -> str:
    """Return a conflict in words, with the keys of the bindings."""
    words = one.what.replace("on the left", f"in {found.left}")
    return words.replace("on the right", f"in {found.right}")


def status_words(found: Synced) -> Content:
    """Return the state of the sync in one line."""
    kept = sum(len(one.record_ids) for one in found.held_back)
    numbers = {
        name: sum(getattr(found, name).values()) for name in ("written", "changed", "deleted")
    }
    would = "to be " if found.dry_run else ""
    parts = [
        display(f"{fmt.count(found.in_sync)} in sync already", style=OK),
        *(display(f"{fmt.count(n)} {would}{name}") for name, n in numbers.items() if n),
        display(fmt.counted(len(found.conflicts), "conflict"), style=BAD)
        if found.conflicts
        else None,
        display(f"{fmt.counted(kept, 'deletion')} held back", style=WARN) if kept else None,
        display(f"{fmt.count(found.failed)} failed", style=BAD) if found.failed else None,
    ]
    return line(*parts, gap="  ")


def conflict_content(one: Divided, keys: tuple[str, str], width: int) -> Content:
    """Return both sides of a conflict, and their difference."""
    left, right = one.records
    texts = [record.text if record else None for record in one.records]
    blocks: list[list[Line]] = [[heading("What differs")], list(diff_lines(texts[0], texts[1]))]
    for key, record in zip(keys, (left, right), strict=True):
        about: list[Line] = [heading(key, "" if record else "no longer has it")]
        if record is not None:
            about += [
                display(record.text, limit=4_000, keep_newlines=True),
                labelled("id", display(record.handle.provider_record_id, limit=400, style=DIM)),
                labelled("by", record.created_by),
            ]
        blocks.append(about)
    return joined(blocks, width)
