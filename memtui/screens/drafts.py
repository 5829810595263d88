"""Drafts: unsaved texts when memtui was ended from outside.

Each is stored in a private folder of the home, as a failed edit in the person's editor is, with a
file that says what it was meant for; the next start offers it again. All functions block.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memtui.contract import Invalid, Model, Record
from memtui.external_editor import DRAFT_OF, DRAFT_TEXT
from memtui.paths import replacing
from memtui.presenters import format as fmt
from memtui.screens.dialogs import NewRecord
from memtui.screens.kept import load_document, save_document

_MEANT_FOR = "meant-for.json"
_NAMED = 3
"""Most texts named: as many as fit at 80x24."""


class KeptDraft(Model):
    """An unsaved text, meant to change a record, write a new one, or fix a held write."""

    text: str = ""
    binding_key: str = ""
    """Binding of the record to change."""
    began_from: Record | None = None
    """The record to change, as it was when the person began to write."""
    new: NewRecord | None = None
    """The new record."""
    pending_id: str = ""
    """The held write that was to be accepted with this text."""


def keep_draft(home: Path, draft: KeptDraft) -> None:
    """Save a draft in a new private folder. Raises `OSError`, `Invalid`."""
    folder = Path(tempfile.mkdtemp(prefix="draft-", dir=home))
    began = draft.began_from
    name = draft.pending_id if began is None else began.handle.provider_record_id
    for file, content in (
        (DRAFT_TEXT, draft.text.encode("utf-8", "surrogatepass")),
        (DRAFT_OF, json.dumps((draft.binding_key, name)).encode("ascii")),
    ):
        with replacing(folder / file) as fresh:
            fresh.write_bytes(content)
    save_document(folder / _MEANT_FOR, draft)


def kept_drafts(home: Path) -> dict[Path, KeptDraft]:
    """Return the saved drafts by folder; one that cannot be read is skipped."""
    found: dict[Path, KeptDraft] = {}
    for folder in sorted(home.glob("draft-*")):
        try:
            draft = load_document(folder / _MEANT_FOR, KeptDraft, "")
        except Invalid:
            continue
        if draft.text:
            found[folder] = draft
    return found


def offered(drafts: Sequence[KeptDraft]) -> str:
    """Return the sentence that names the saved drafts, and the keys to continue them."""
    said = []
    for draft in drafts[:_NAMED]:
        key = "a on screen 4"
        if draft.began_from is not None:
            key = f"e on {fmt.quoted(fmt.record_name(draft.began_from))}"
        elif draft.pending_id:
            key = "e on it in the review"
        said.append(f"{fmt.quoted(draft.text)} (to go on: {key})")
    if len(drafts) > _NAMED:
        said.append(f"{fmt.count(len(drafts) - _NAMED)} more")
    return f"memtui was ended before this was saved: {', '.join(said)}."
