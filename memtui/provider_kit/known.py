"""memtui's fields of another program's records, by record id, in a file of a binding.

The other program has no place for these fields, and cannot lose them. The file has the owners of
records, so an unreadable one is an error.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from memtui.contract import (
    OWNER_FIELDS,
    EraseReply,
    EraseRequest,
    MemtuiError,
    Model,
    Scope,
    Unavailable,
    sees,
)
from memtui.paths import replacing
from memtui.provider_kit.flock import flock

KnownT = TypeVar("KnownT", bound=Model)

KNOWN = "known.json"


class KnownFile(Generic[KnownT]):
    """The file `known.json` of a binding's `data_dir`. Blocking; callers hold their own lock."""

    def __init__(self, data_dir: Path, model: type[KnownT], what: str) -> None:
        """Use the file in `data_dir`; `what` names the records in errors: "the memories in X"."""
        self.path = data_dir / KNOWN
        self._model, self._what = model, what

    def read(self) -> dict[str, KnownT]:
        """Return what is known by record id.

        Raises:
            Unavailable: the file cannot be read, so the records' owners are unknown.
        """
        try:
            stored = json.loads(self.path.read_bytes())
            return {name: self._model.model_validate(one) for name, one in stored.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            why = getattr(error, "strerror", None) or "it is damaged"
            raise Unavailable(
                f"The owners of {self._what} cannot be read from {self.path} ({why}); restore "
                "that file from a backup, or remove it to give all of them to the owner that the "
                "binding names, or else to the company."
            ) from error

    def change(
        self, known: Mapping[str, KnownT], changes: Mapping[str, KnownT | None]
    ) -> Mapping[str, KnownT]:
        """Store `known` with some changes, of which None removes a record; return the result.

        Raises:
            Unavailable: the file cannot be written (`Unavailable.sent`).
        """
        kept = {name: one for name, one in {**known, **changes}.items() if one is not None}
        if kept == known:
            return known
        document = {
            name: one.model_dump(mode="json", exclude_defaults=True) for name, one in kept.items()
        }
        try:
            with replacing(self.path) as fresh:
                fresh.write_text(json.dumps(document), "ascii")
        except OSError as error:
            raise Unavailable(
                f"The owner of the memory could not be saved in {self.path} ({error.strerror}); "
                "fix that, then check whether the change was made.",
                sent=True,
            ) from error
        return kept

    def change_alone(self, changes: Mapping[str, KnownT | None]) -> None:
        """Change the file under a lock of its own, where the caller holds none.

        Raises:
            Unavailable: the file cannot be locked, read or written (`Unavailable.sent`).
        """
        lock = self.path.with_suffix(".lock")
        problem = f"{lock} cannot be locked, so the owner of the memory was not saved; try again."
        try:
            with flock(lock, problem):
                self.change(self.read(), changes)
        except MemtuiError as error:
            raise Unavailable(str(error), sent=True) from error


def remains(known: Mapping[str, Scope], there: Container[str], request: EraseRequest) -> EraseReply:
    """Return what is known of deleted records that a request to erase is about."""
    asked, whole = set(request.record_ids), request.scope
    is_narrow = any(getattr(whole, field) for field in OWNER_FIELDS)
    gone = tuple(
        name
        for name, scope in known.items()
        if name not in there and (name in asked or (is_narrow and sees(whole, scope)))
    )
    return EraseReply(kept={KNOWN: len(gone)} if gone else {}, record_ids=gone)
