"""`backup` and `restore`: a whole home in one file, and a home out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtui.doors.cli.session import Invocation

_Target = Annotated[Path, typer.Argument(metavar="FILE", help="The new file, a ZIP file.")]
_Source = Annotated[Path, typer.Argument(metavar="FILE", help="What memtui backup wrote.")]


def backup(
    invocation: Invocation,
    file: _Target,
    *,
    vaults: Annotated[
        bool, typer.Option("--vaults", help="Take in the vaults that lie outside the home too.")
    ] = False,
) -> None:
    """Write everything that this home holds to one new file.

    The database, the archive, the bindings' own folders and the settings, also while memtui runs.
    Nothing out of the system's keyring. What is left out is named.
    """
    from datetime import UTC, datetime

    from memtui.service.backup import backup as write
    from memtui.widgets.format import counted

    done = write(
        invocation.paths(),
        invocation.settings(),
        file.expanduser(),
        vaults=vaults,
        now=datetime.now(UTC),
    )
    document = done.model_dump(mode="json") | {"file": str(file), "files": sorted(done.files)}
    invocation.out.answer(document, lambda: [str(file)])
    for sentence in done.left_out:
        invocation.out.say(f"Left out: {sentence}")
    if not invocation.as_json:
        operations = sum(end.seq for end in done.logs.values())
        invocation.out.say(
            f"Wrote {counted(len(done.files), 'file')} with {counted(operations, 'operation')} of "
            f"{counted(len(done.logs), 'company', 'companies')}; it holds every text, keep it safe."
        )


def restore(
    invocation: Invocation,
    file: _Source,
    to: Annotated[
        Path | None, typer.Option(help="An empty folder, in place of this home.", file_okay=False)
    ] = None,
) -> None:
    """Make a home out of a backup, where there is none.

    Every file's SHA-256, the archive and the digest of every operation are checked before anything
    is in place.
    """
    from memtui.config import find_paths
    from memtui.contract import Denied
    from memtui.service.backup import restore as read
    from memtui.widgets.format import counted

    if invocation.settings().read_only:
        raise Denied("memtui runs read-only; start it without --read-only to restore a home.")
    paths = find_paths(to) if to else invocation.paths()
    done = read(file.expanduser(), paths)
    document = done.model_dump(mode="json") | {
        "home": str(paths.data),
        "files": sorted(done.files),
    }
    invocation.out.answer(document, lambda: [str(paths.data)])
    for place, was in done.outside.items():
        key = place.removeprefix("outside/")
        invocation.out.say(
            f"The vault of {key}, which lay in {was}, is in {paths.data / place}; move it, or "
            f"`memtui bindings configure {key.partition('/')[2]} --set path=…`."
        )
    for sentence in done.left_out:
        invocation.out.say(f"Not in it: {sentence}")
    if not invocation.as_json:
        operations = sum(end.seq for end in done.logs.values())
        invocation.out.say(
            f"Restored {counted(len(done.files), 'file')} with "
            f"{counted(operations, 'operation')}, each proved."
        )
