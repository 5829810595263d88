"""What is remembered of a migration between two runs: a small private file a pair of bindings."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from memtui.config import make_private
from memtui.contract import Conflict, Invalid, Model, UtcDatetime
from memtui.migration.ends import Ends
from memtui.service import TargetView


class MigrationState(Model):
    """How far a migration has come. Every file of it may be deleted: verify makes it again."""

    begun_at: UtcDatetime | None = None
    """When records last began to be moved."""
    applied_at: UtcDatetime | None = None
    """When that was done; None where it was stopped half way."""
    verified_at: UtcDatetime | None = None
    """When all of it was found to be the same, since then."""
    verified_whole: bool = False
    """Whether the source could be listed to its end."""
    switched: tuple[TargetView, ...] = ()
    """What a cut-over took from the source, and gives back."""
    closed: bool = False
    """Whether the cut-over made the source read-only, and giving back opens it."""


class ProgressFile:
    """The state of one pair of bindings, in memtui's own data folder."""

    def __init__(self, data: Path, ends: Ends) -> None:
        self._folder = data / "migrations" / ends.caller.company_id
        self._name = f"{ends.source.key}--{ends.destination.key}.json"
        self._lock = f"{ends.destination.key}.lock"

    def read(self) -> MigrationState:
        """Return the state; a file that cannot be read tells nothing."""
        try:
            text = (self._folder / self._name).read_text(encoding="utf-8")
            return MigrationState.model_validate_json(text)
        except (FileNotFoundError, ValidationError, UnicodeDecodeError):
            return MigrationState()
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def write(self, state: MigrationState) -> None:
        """Keep the state; the file is never half written.

        Raises:
            Invalid: the folder cannot be written.
        """
        try:
            make_private(self._folder)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".tmp")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(state.model_dump_json())
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._folder / self._name)
        except OSError as error:
            raise _unusable(self._folder, error) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other migration into the destination away.

        Raises:
            Conflict: one is running.
        """
        import filelock

        try:
            make_private(self._folder)
            lock = filelock.FileLock(self._folder / self._lock, thread_local=False, mode=0o600)
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            name = self._lock.removesuffix(".lock")
            raise Conflict(
                f"Another migration into {name} is running; wait until it is done."
            ) from error
        except OSError as error:
            raise _unusable(self._folder, error) from error
        try:
            yield
        finally:
            lock.release()


def _unusable(folder: Path, error: OSError) -> Invalid:
    return Invalid(f"Cannot use the folder {folder} ({error.strerror}); make it writable.")
