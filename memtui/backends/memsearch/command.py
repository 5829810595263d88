"""memsearch's own search by vectors and words, run as its command.

`memsearch search --top-k N --json-output --collection NAME -- QUERY` prints a list of chunks with
`content, source, heading, start_line, end_line, score`. Its plugins name a project's collection
`ms_<folder's name>_<8 characters of the SHA-256 of the folder's path>`.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memtui.contract import NotFound, Unavailable, Unsupported
from memtui.processes import end_process, kill_group

PROGRAM = "memsearch"
_MOST_BYTES = 8_000_000
_QUERY_CHARS = 4_000
"""Most characters of a query; the system limits an argument to 128 KB."""
_NAME_CHARS = 40
_SAID_CHARS = 200


class Chunk(BaseModel):
    """A part of a file in memsearch's results; lines are counted from 1."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    content: str
    source: str
    start_line: Annotated[int, Field(ge=0)]
    end_line: Annotated[int, Field(ge=0)]
    score: float | None = None


def project_of(memory: Path) -> Path:
    """Return the project folder of a `.memsearch/memory`, or else the folder itself."""
    folder = Path(os.path.realpath(memory))
    parts = folder.parent.name, folder.name
    return folder.parent.parent if parts == (".memsearch", "memory") else folder


def collection_of(project: Path) -> str:
    """Return the collection of a project, by the naming rule of memsearch's plugins."""
    name = re.sub(r"[^a-z0-9]+", "_", project.name.lower())
    name = name.removeprefix("_").removesuffix("_")[:_NAME_CHARS]
    return f"ms_{name}_{hashlib.sha256(os.fsencode(project)).hexdigest()[:8]}"


def find_program(given: Path | None) -> str:
    """Return the path of the command. Raises `Unsupported` if it is not found."""
    found = shutil.which(str(given) if given else PROGRAM)
    if found is None:
        where = f"at {given}" if given else "on the PATH"
        raise Unsupported(
            f"memsearch, whose search its agents use, was not found {where}; install it, or set "
            "the binding's command to its path."
        )
    return found


async def search(
    query: str, top_k: int, *, program: str, collection: str, folder: Path, seconds: float
) -> list[Chunk]:
    """Return the chunks that memsearch finds, best first.

    Raises:
        NotFound: memsearch has no such collection.
        Unavailable: it has no model, fails, or times out; an immediate retry does not help.
    """
    text = query[:_QUERY_CHARS].replace("\0", " ").encode("utf-8", "replace").decode()
    asked = ("--top-k", str(top_k), "--json-output", "--collection", collection, "--", text)
    try:
        code, out, err = await _run((program, "search", *asked), folder, seconds)
    except TimeoutError as error:
        raise Unavailable(
            f"memsearch did not answer within {seconds:g} s; if it was loading a model, raise the "
            "binding's search_seconds.",
            sent=True,
        ) from error
    except OSError as error:
        said = f"memsearch cannot be run ({error.strerror}); check {program}."
        raise Unavailable(said, sent=True) from error
    if len(out) > _MOST_BYTES:
        said = f"memsearch answered more than {_MOST_BYTES:,} bytes; ask for less."
        raise Unavailable(said, sent=True)
    if code != 0:
        raise _failed(err.decode("utf-8", "replace"), collection)
    return _read(out)


async def _run(command: Sequence[str], folder: Path, seconds: float) -> tuple[int, bytes, bytes]:
    """Run a program and return its exit code, output and errors; kill it after the time-out.

    Raises:
        TimeoutError: the program took too long.
        OSError: the program cannot be run.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    streams = [stream for stream in (process.stdout, process.stderr) if stream]
    try:
        async with asyncio.timeout(seconds):
            out, err = await asyncio.gather(*(_output_of(stream, process) for stream in streams))
            return await process.wait(), out, err
    finally:
        await end_process(process)


async def _output_of(stream: asyncio.StreamReader, process: asyncio.subprocess.Process) -> bytes:
    """Return a stream's whole output; kill the process if the output is too long."""
    output = bytearray()
    while part := await stream.read(65_536):
        output += part[: _MOST_BYTES + 1 - len(output)]
        if len(output) > _MOST_BYTES:
            kill_group(process)
    return bytes(output)


def _failed(said: str, collection: str) -> NotFound | Unavailable:
    """Return the error for memsearch's messages, of which the last line has the reason."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = " ".join((lines or ["it does not say why"])[-1].split())[:_SAID_CHARS].rstrip(".")
    if "does not exist" in last and collection in last:
        return NotFound(
            f"memsearch has no index {collection}; `memsearch index --collection {collection}` and "
            "the folder creates it, or set the binding's collection to the one in use."
        )
    return Unavailable(
        f"memsearch's search failed ({last}); check that its index and its embedding model are "
        "available (`memsearch config list`).",
        sent=True,
    )


def _read(out: bytes) -> list[Chunk]:
    """Parse the chunks of an output; text that libraries printed before it is skipped."""
    text = out.decode("utf-8", "replace")
    try:
        rows: Any = json.loads(text[max(text.find("["), 0) :])
        return [Chunk.model_validate(one) for one in rows]
    except (ValueError, TypeError, RecursionError, ValidationError) as error:
        start = " ".join(text.split())[:60] or "nothing"
        raise Unavailable(
            f"memsearch did not answer with a list of chunks ({start}); memtui may not support "
            "this version.",
            sent=True,
        ) from error
