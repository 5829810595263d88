"""Which memories refer to what is gone from their workspace, or name a source that has changed.

The folder of a memory is that of its project in the setting `workspaces`, the one that its binding
reads, or the current folder's repository if the project is named after it. The memories of other
folders are not judged.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

from memtui.contract import Invalid, MemtuiError, Record, RecordHandle, SourceKind
from memtui.provider_kit.files.git_past import GitPast
from memtui.provider_kit.files.reading import resolved
from memtui.pruning.candidates import Reason
from memtui.pruning.still_true import StillTrue, changed_source, sentence_of
from memtui.scratch import Scratch
from memtui.service.review.issues import changed_issues
from memtui.service.runtime import ServiceModule, ServiceRuntime
from memtui.service.visibility import Caller
from memtui.store import bindings

_LOCAL = frozenset({"cli", "tui"})
"""The channels that run in a folder of the person who asks."""


class Outdated(NamedTuple):
    """The memories that refer to what is gone or has changed."""

    found: dict[RecordHandle, list[tuple[Reason, str]]]
    """Reasons, each with a sentence."""
    judged: frozenset[tuple[RecordHandle, Reason]] = frozenset()
    """The records that were looked at, each with the reason that was looked for."""
    limits: tuple[str, ...] = ()
    """What was not looked at, in sentences."""

    def why(self, handle: RecordHandle) -> list[tuple[Reason, str]]:
        """Return the reasons of one record."""
        return self.found.get(handle, [])


class Workspaces(ServiceModule):
    """Judges memories by the git history of their workspaces; nothing there is changed or run."""

    def __init__(self, runtime: ServiceRuntime) -> None:
        super().__init__(runtime)
        self._lock = threading.Lock()
        self._judges: dict[Path, tuple[Scratch, StillTrue]] = {}

    def outdated(
        self,
        caller: Caller,
        records: Collection[Record],
        known: Mapping[str | None, Path],
        chosen: Path | None = None,
    ) -> Outdated:
        """Return what is gone or has changed of what records say. Blocking.

        Args:
            caller: Who asks.
            records: The records of one binding.
            known: The folders that the binding reads, by project; None: of all its records.
            chosen: The folder of the records whose folder is not known otherwise.

        Raises:
            Invalid: the chosen folder is none.
        """
        if caller.as_of is not None:
            return Outdated({})
        refuse_no_folder(chosen)
        here = repository_of(Path()) if caller.channel in _LOCAL else None
        named = {here.name: here} if here is not None else {}
        own = {one: path.expanduser() for one, path in self._runtime.settings.workspaces.items()}
        of_folder: dict[Path, list[Record]] = defaultdict(list)
        for one in records:
            name = one.scope.project_id or ""
            folder = own.get(name) or known.get(name) or known.get(None) or chosen
            if (folder := folder or named.get(name)) is not None:
                of_folder[repository_of(folder) or folder].append(one)
        found: dict[RecordHandle, list[tuple[Reason, str]]] = defaultdict(list)
        bare = {chosen} if chosen is not None and repository_of(chosen) is None else set[Path]()
        limits = {f"{one} is no work tree of git, so nothing is known to be gone." for one in bare}
        judged = set[tuple[RecordHandle, Reason]]()
        with self._lock:
            for folder, some in of_folder.items():
                texts = {one.handle: (one.text, one.valid_from or one.created_at) for one in some}
                try:
                    judge = self._judge(folder) if (folder / ".git").exists() else None
                    gone = judge.gone(texts) if judge else {}
                    past = judge.past if judge else None
                    changed = {one.handle: changed_source(folder, past, one) for one in some}
                except MemtuiError as error:
                    limits.add(str(error))
                    continue
                judged |= {*product(texts, (Reason.REFERS_TO_GONE, Reason.SOURCE_CHANGED))}
                limits |= judge.limits if judge else set()
                for one in some:
                    if one.handle in gone:
                        sentence = sentence_of(gone[one.handle])
                        found[one.handle].append((Reason.REFERS_TO_GONE, sentence))
                    if how := changed[one.handle]:
                        found[one.handle].append((Reason.SOURCE_CHANGED, how))
        for handle, sentence in self._issues(caller, records, limits).items():
            judged.add((handle, Reason.SOURCE_CHANGED))
            found[handle] += [(Reason.SOURCE_CHANGED, sentence)] if sentence else []
        return Outdated(dict(found), frozenset(judged), tuple(sorted(limits)))

    def _issues(
        self, caller: Caller, records: Iterable[Record], limits: set[str]
    ) -> dict[RecordHandle, str]:
        with self._runtime.database.read() as database:
            company = bindings.company(database, caller.company_id)
        url = company.link_templates.get(SourceKind.ISSUE) if company else None
        try:
            return changed_issues(self._runtime.log_of(caller), records, url)
        except MemtuiError as error:  # the log is damaged
            limits.add(str(error))
            return {}

    def _judge(self, folder: Path) -> StillTrue:
        """Return the judge of a folder's checked-out commit, which remembers what it found."""
        scratch = Scratch()
        past, known = GitPast(folder, scratch.path), self._judges.get(folder)
        if known is None or known[1].past.head != past.head:
            self._judges[folder] = known = scratch, StillTrue(past)
        return known[1]


def refuse_no_folder(chosen: Path | None) -> None:
    """Raise `Invalid` where the chosen workspace is no folder. Blocking."""
    if chosen is not None and not chosen.is_dir():
        raise Invalid(f"{chosen} is no folder; name the one that the memories are about.")


def repository_of(folder: Path) -> Path | None:
    """Return the folder of the git repository that a folder is in; None: it is in none."""
    place = resolved(folder) or folder
    return next((one for one in (place, *place.parents) if (one / ".git").exists()), None)
