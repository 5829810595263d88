"""A copy of the sealed log in an object store, by any URL that fsspec knows (`s3://bucket/log`).

Reads use the archive folder of this machine. The store has the same folders and files; a segment
that its manifest does not name is ignored. Sealing uploads segments; other machines fetch them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from memtui.analytics.archive import locked, remove_older
from memtui.analytics.layout import (
    TABLES,
    ArchiveFolder,
    Manifest,
    Segment,
    sha256_of,
    usable,
)
from memtui.contract import Conflict, Invalid, MemtuiError, Unavailable
from memtui.paths import sync_folder
from memtui.wording import missing_extra

_NEW = ".new-"


class ObjectStore:
    """The archive in an object store. Blocking."""

    def __init__(self, url: str) -> None:
        """Connect to it.

        Raises:
            Invalid: fsspec or its driver for this URL is not installed, or no driver exists for it.
        """
        try:
            import fsspec
        except ModuleNotFoundError as error:
            raise missing_extra("An object store", "archive") from error
        self._url = url
        try:
            # No cached listings: files that another machine wrote meanwhile must be seen.
            self._files, self._root = fsspec.core.url_to_fs(
                url, skip_instance_cache=True, use_listings_cache=False
            )
        except ImportError as error:
            extra = "s3" if url.startswith("s3") else "archive"
            raise missing_extra(f"archive_url {url}", extra) from error
        except ValueError as error:
            raise Invalid(f"The setting archive_url {url} cannot be used: {error}.") from error

    def keep(self, folder: ArchiveFolder) -> tuple[Segment, ...]:
        """Copy the segments that the store lacks, then its manifest; returns the segments.

        Raises:
            Conflict: the store holds another log, or more than this machine.
            Unavailable: the store cannot be reached or written.
        """
        manifest = folder.read()
        with _explained(self._url):
            there = self._manifest(folder)
            _refuse_other(there, manifest)
            missing = manifest.segments[len(there.segments) :]
            for segment in missing:
                self._upload(folder, segment)
            if missing:
                self._name(folder, manifest)
        return missing

    def fetch(self, folder: ArchiveFolder) -> tuple[Segment, ...]:
        """Download the segments that this machine lacks, each verified by its SHA-256.

        Segments that a purge rewrote replace their older revisions.

        Raises:
            Conflict: the store holds another log, or less than this machine.
            Unavailable: the store cannot be reached, or a file in it is damaged.
        """
        with usable(folder):
            folder.create()
        with locked(folder), _explained(self._url):
            manifest = folder.read()
            there = self._manifest(folder)
            renewed = _newer(manifest, there)
            for segment in renewed:
                self._download(folder, segment)
                manifest = manifest.with_segment(segment)
                folder.write(manifest)
            remove_older(folder, manifest)
            _refuse_other(manifest, there)
            missing = there.segments[len(manifest.segments) :]
            for segment in missing:
                self._download(folder, segment)
                segments = (*manifest.segments, segment)
                manifest = there.model_copy(update={"segments": segments})
                folder.write(manifest)
        return (*renewed, *missing)

    def renew(self, folder: ArchiveFolder) -> None:
        """Replace segments in the store by their rewritten revisions.

        Raises:
            Conflict: the store holds another log.
            Unavailable: the store cannot be reached or written.
        """
        here = folder.read()
        with _explained(self._url):
            there = self._manifest(folder)
            for segment in (fresh := _newer(there, here)):
                self._upload(folder, segment)
                there = there.with_segment(segment)
            if fresh:
                self._name(folder, there)
            self._remove_older(folder, {one.name for one in there.segments})

    def _remove_older(self, folder: ArchiveFolder, names: set[str]) -> None:
        """Remove revisions that the manifest no longer names, including those of a killed purge."""
        spans = {name.partition(".")[0] for name in names}
        if not names or not self._files.exists(self._place(folder)):
            return
        for path in self._files.ls(self._place(folder), detail=False):
            name = str(path).rstrip("/").rpartition("/")[2]
            if name not in names and name.partition(".")[0] in spans:
                self._files.rm(path, recursive=True)

    def remove(self, folder: ArchiveFolder) -> None:
        """Remove the copy of a company's log; the manifest first, so that no partial copy counts.

        Raises:
            Conflict: the log in the store is another company's.
            Unavailable: the store cannot be reached or written.
        """
        with _explained(self._url):
            self._manifest(folder)
            manifest = self._place(folder, folder.manifest_file.name)
            if self._files.exists(manifest):
                self._files.rm_file(manifest)
            if self._files.exists(self._place(folder)):
                self._files.rm(self._place(folder), recursive=True)

    def _manifest(self, folder: ArchiveFolder) -> Manifest:
        try:
            text = self._files.cat_file(self._place(folder, folder.manifest_file.name))
            found = Manifest.model_validate(json.loads(text))
        except FileNotFoundError:
            self._refuse_missing_bucket()
            return Manifest(company_id=folder.company_id)
        except (ValueError, ValidationError) as error:
            raise Unavailable(
                f"The manifest in {self._url} cannot be read; restore it, or name another "
                "archive_url."
            ) from error
        if found.company_id != folder.company_id or found.version != 1:
            raise Conflict(
                f"{self._url} has the log of another company or of a newer memtui; name another "
                "archive_url, or upgrade memtui."
            )
        return found

    def _name(self, folder: ArchiveFolder, manifest: Manifest) -> None:
        place = self._place(folder, folder.manifest_file.name)
        self._files.pipe_file(place, manifest.model_dump_json().encode())

    def _upload(self, folder: ArchiveFolder, segment: Segment) -> None:
        for table in TABLES:
            target = self._place(folder, segment.name, f"{table}.parquet")
            self._files.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self._files.put_file(str(folder.file(segment, table)), target)
            if self._files.size(target) != segment.files[table].bytes:
                raise Unavailable(f"{target} did not arrive whole in {self._url}; try again.")

    def _download(self, folder: ArchiveFolder, segment: Segment) -> None:
        work = folder.path / f"{_NEW}{segment.first_seq}-{segment.last_seq}"
        work.mkdir(mode=0o700, exist_ok=True)
        for table in TABLES:
            source = self._place(folder, segment.name, f"{table}.parquet")
            path = work / f"{table}.parquet"
            self._files.get_file(source, str(path))
            path.chmod(0o600)
            if sha256_of(path) != segment.files[table].sha256:
                raise Unavailable(
                    f"{source} in {self._url} was changed, so it is not used; restore it from a "
                    "backup."
                )
        sync_folder(work)
        work.rename(folder.segment(segment))
        sync_folder(folder.path)

    def _refuse_missing_bucket(self) -> None:
        """Raise `Unavailable` for a missing bucket, which drivers treat as empty and create."""
        bucket = self._root.partition("/")[0]
        if bucket and not self._files.exists(bucket):
            raise Unavailable(
                f"There is no bucket {bucket} for {self._url}, or it may not be listed; create it "
                "first, or name another archive_url."
            )

    def _place(self, folder: ArchiveFolder, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), folder.path.name, *parts))


def _newer(older: Manifest, newer: Manifest) -> list[Segment]:
    """Return the segments of `newer` that are later revisions of those in `older`."""
    known = {one.span: one for one in older.segments}
    return [
        one
        for one in newer.segments
        if one.span in known
        and known[one.span].revision < one.revision
        and known[one.span].last_digest == one.last_digest
    ]


def _refuse_other(shorter: Manifest, longer: Manifest) -> None:
    if longer.segments[: len(shorter.segments)] != shorter.segments:
        raise Conflict(
            f"The sealed log of {shorter.company_id} differs between this machine and the object "
            "store; fetch into an empty archive folder, or name another archive_url."
        )


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn any error of a store's driver into the contract's."""
    try:
        yield
    except MemtuiError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if isinstance(error, PermissionError) or "Credential" in type(error).__name__:
            raise Unavailable(
                f"The object store {url} refused ({reason}); nothing was removed here, check the "
                "credentials that its driver finds."
            ) from error
        raise Unavailable(
            f"The object store {url} failed ({reason}); nothing was removed here, try again."
        ) from error
