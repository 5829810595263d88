"""The dialog that checks whether the log was altered: its progress and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from memtui.contract import MemtuiError, NotFound
from memtui.presenters import format as fmt
from memtui.screens.dialogs import KeyLine, Sheet
from memtui.screens.session import ServiceSession
from memtui.widgets.background import Stoppable
from memtui.widgets.detail_lines import HINT_GAP, key_hint, pairs
from memtui.widgets.display import BAD, DIM, OK, STRONG, display, line, lines

if TYPE_CHECKING:
    from memtui.analytics.audit import AuditCheck

_ABOUT = (
    "Each digest covers all operations before it. Keep the last one outside this machine: a later "
    "check, with memtui audit verify --expect, tells whether the log was rewritten or cut off."
)
_ADVICE = "docs/recovery.md says what to do"
_RUNNING = "esc stops it"


class Proof(Sheet):
    """Check every operation of the company's log; `esc` stops the check, or closes the result."""

    BINDINGS = [("y", "copy", "copy")]

    def __init__(self, session: ServiceSession) -> None:
        title = f"Was the log of {session.company.name} altered?"
        super().__init__(title, display("… checking"), keys=_RUNNING)
        self._session = session
        self._run: Stoppable[AuditCheck] = Stoppable(self, "proof")
        self._found: AuditCheck | None = None

    def on_mount(self) -> None:
        """Start the check."""
        analysis, caller = self._session.service.analysis, self._session.caller
        self._run.start(
            lambda: analysis.verify_chain(caller, self._far),
            done=self._ended,
            stopped=self._stopped,
            failed=self._failed,
        )

    def _far(self, checked: int, number: int) -> None:
        share = f"  {checked * 100 // number}%" if number else ""
        of = f" {fmt.count(checked)} of {fmt.counted(number, 'operation')}" if number else ""
        self.show(display(f"… checking{of}{share}"))

    def _ended(self, found: AuditCheck) -> None:
        self._found = found
        if found.problem is None:
            head = display("✓ Nothing was altered, removed or inserted.", style=f"bold {OK}")
            facts, about = fmt.proof_facts(found), display(_ABOUT, style=DIM)
        else:
            head = display(f"✗ {found.problem}", limit=600, style=f"bold {BAD}")
            facts = [("first broken", f"operation {fmt.count(found.broken_seq or 0)}")]
            # The problem of a damaged operation may already end with the advice.
            about = display("" if _ADVICE in found.problem else f"{_ADVICE}.", style=STRONG)
        shown = [one for one in facts if one[1]]
        self.show(
            lambda width: lines([head, Content(""), *pairs(shown, width), Content(""), about])
        )
        keys = [key_hint("y", "copy what to note")] if fmt.noted(found) else []
        self._keys_are(line(*keys, key_hint("esc", "close"), gap=HINT_GAP))

    def _stopped(self) -> None:
        self.dismiss(None)

    def _failed(self, error: MemtuiError) -> None:
        self.show(display(f"✗ {error}", limit=600, style=BAD))
        self._keys_are(key_hint("esc", "close"))

    def _keys_are(self, keys: Content) -> None:
        self.query_one(KeyLine).say(keys)

    def action_copy(self) -> None:
        """Copy the number and the digest that a later check is compared with."""
        if self._found is None or not fmt.noted(self._found):
            raise NotFound("There is nothing to note yet.")
        self.app.copy_to_clipboard(fmt.noted(self._found))
        self._keys_are(line(display("Copied.", style=OK), key_hint("esc", "close"), gap=HINT_GAP))

    def action_back(self) -> None:
        """Stop the check, or close the result."""
        if self._run.busy:
            self._run.stop()
        else:
            self.dismiss(None)

    async def on_unmount(self) -> None:
        """Stop the check when the app ends, and wait for its clean-up."""
        await self._run.end()
