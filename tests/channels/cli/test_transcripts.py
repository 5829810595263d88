"""What commands print, to the last word: each transcript is typed again and compared.

After a change that is meant, `python -m tests.channels.cli.test_transcripts` writes them anew, and
the difference shows what people will see. `<1>` is the first id that was printed, `<time>` any
moment. `write` writes a file, and what stands behind `<<<` is typed into the command.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.channels.cli.conftest import Run

FOLDER = Path(__file__).with_name("transcripts")
_ID = re.compile(
    r"\b(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|[0-9a-f]{16}|[0-9a-f]{12}|[0-9a-f]{8})\b"
)
_PASSING = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"browse, (?:correction, )?(?:writable, )?sync, [^\n]*, impact", "<abilities>"),
        (r"\"capabilities\": {[^}]*}", '"capabilities": <abilities>'),
        (r"(\"\w*latenc(?:y|ies)_ms\":) (?:[\d.]+|\[[\d., ]*\])", r"\1 <ms>"),
        (r"(\"(?:p\d\d|max|mean)\":)\s*[\d.]+", r"\1 <ms>"),
        (r"\b[\d.,]+ (?:m?s|min|h)\b|(?<=\+)\d+:\d\d\b", "<took>"),
        (r"\b[\d.,]+ (?:[KM]?B|bytes)\b|\b\d+,\d{3}(?=  <)", "<size>"),
        (r"memtui_[\w-]{43}", "<token>"),
        (r"\b\d+ files, ", "<n> files, "),
        (r"memtui \d+\.\d+\.\d\S*", "memtui <version>"),
        (r"genai-prices [\d.]+, newest price of \S+", "genai-prices <version>"),
        (r"--cursor \w+|\"next_cursor\": \"\w+\"", "<cursor>"),
        (r'(?m)(?<="day": ")\d{4}-\d\d-\d\d(?=")|^\d{4}-\d\d-\d\d(?=  )', "<a day>"),
        (r" {3,}", "  "),
    )
)
"""What is another one each time."""
_DAY = re.compile(r"(?<=/)\d{4}-\d\d-\d\d(?=-)")
"""Today, in the name of a note."""


class Transcript:
    """Types commands and writes down what they print."""

    def __init__(self, run: Run, home: Path) -> None:
        self._run = run
        self._places = {str(home): "<home>", os.environ["HOME"]: "~"}
        self._ids: dict[str, str] = {}
        self._day = "no day yet"

    def of(self, text: str) -> str:
        """Return what the commands of a transcript print now."""
        parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
        return parts[0] + "".join(self._typed(part.partition("\n")[0]) for part in parts[1:])

    def _typed(self, line: str) -> str:
        words = shlex.split(line)
        for value, name in self._ids.items():
            words = [word.replace(name, value) for word in words]
        known = {"~": os.environ["HOME"], "<day>": self._day}
        for name, value in known.items():
            words = [word.replace(name, value) for word in words]
        if words[0] == "write":
            path = Path(words[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(words[2].replace("\\n", "\n"), encoding="utf-8")
            return f"$ {line}\n"
        *words, stdin = [*words, ""] if "<<<" not in words else [w for w in words if w != "<<<"]
        ran = self._run(*words, stdin=stdin.encode(), MEMTUI_PRINCIPAL="user:ana")
        code = f"[exits with {ran.code}]\n" if ran.code else ""
        return f"$ {line}\n{self._settled(ran.out + ran.err)}{code}\n"

    def _settled(self, text: str) -> str:
        for place, name in self._places.items():
            text = text.replace(place, name)
        if found := _DAY.search(text):
            self._day = found[0]
        text = _ID.sub(self._named, text)
        for pattern, name in _PASSING:
            text = pattern.sub(name, text)
        text = text.replace(self._day, "<day>")
        return "\n".join(map(str.rstrip, text.splitlines())) + "\n" * bool(text)

    def _named(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"<{len(self._ids) + 1}>")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.txt")))
def test_commands_print_what_they_printed(
    name: str, here: Run, home: Path, request: pytest.FixtureRequest
) -> None:
    path = FOLDER / f"{name}.txt"
    text = path.read_text("utf-8")
    if name.startswith("log"):
        request.getfixturevalue("logged")
    said = Transcript(here, home).of(text)
    if "TRANSCRIBE" in os.environ:
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text("utf-8")


if __name__ == "__main__":
    os.environ["TRANSCRIBE"] = "1"
    sys.exit(pytest.main(["-q", "-n", "0", __file__, *sys.argv[1:]]))
