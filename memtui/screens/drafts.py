"""Texts that were being written, or could not be saved, when memtui was ended from outside.

Each lies in the home in a private folder, as a failed edit leaves one for the person's editor, and
beside it what it was meant for: the next start offers it again. Blocking.
"""

from __future__ import annotations

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
"""As many texts are named as there is room for at 80x24."""


class KeptDraft(Model):
    """A text that was not saved, and what it was meant for: one of the three."""

    text: str = ""
    binding_key: str = ""
    """Where the record is that it was meant for."""
    began_from: Record | None = None
    """That record, as it was when the text was begun."""
    new: NewRecord | None = None
    """What was to be written anew."""
    pending_id: str = ""
    """What waits for review, and was to be accepted with it."""


def keep_draft(home: Path, draft: KeptDraft) -> None:
    """Keep a draft in a folder of its own, for this person alone. Raises `OSError`, `Invalid`."""
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
    """Return the drafts that the app kept, by folder; one that cannot be read stays there."""
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
    """Return the sentence that says which texts are kept, and what takes them up."""
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
