"""Pictures of screens: by command, by key, and those of the README."""

from __future__ import annotations

import html
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from memtui.config import Paths
from tests.channels.cli.conftest import Run
from tests.demos import END
from tools.pictures import README, README_END, take_readme

REPOSITORY = Path(__file__).parents[3]
PICTURES = REPOSITORY / "docs" / "pictures"
_TEXT = re.compile(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
_MEASURED = re.compile(
    r"[▁-█]+|\S*[⠀-⣿]\S*|(?<!\S)[xo+](?!\S)|[\d.,]+ (?:ms|s)\b|(?<=p99 )[\d.,]+"
    r"|\d+(?= of memtui's own)"
)
"""What another machine or moment shows otherwise: how long things took, how often it was read."""


def words_of(svg: str) -> list[str]:
    """Return what a picture says, a line a row, without what was measured."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in _TEXT.findall(svg):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text)))
    lines = (" ".join(text for _, text in sorted(row)) for _, row in sorted(rows.items()))
    whole = (" ".join(line.split()) for line in lines)
    return [" ".join(_MEASURED.sub("", line).split()) for line in whole]


def test_a_picture_shows_the_screen_and_keeps_nothing(
    here: Run, home: Path, tmp_path: Path
) -> None:
    for project in ("apollo", "zephyr"):
        here("note", f"about {project} \x1b[31m $0.123456", "--project", project)
    logged = here("ops", "list", "--json").document["total"]
    picture = tmp_path / "records.svg"
    asked = ("views", "screenshot", "records", "--project", "apollo", "--to", str(picture))
    done = here(*asked, "--size", "80x24", "--theme", "ansi", "--json")
    assert done.document["whole"], done.err
    ET.fromstring(picture.read_text("utf-8"))
    said = "\n".join(words_of(picture.read_text("utf-8")))
    assert "about apollo ␛[31m $0.123456" in said
    assert "zephyr" not in said
    assert "4 Records" in said
    assert picture.stat().st_mode & 0o777 == 0o600
    assert not (home / "session.json").exists()
    assert here("ops", "list", "--json").document["total"] == logged
    again = here(*asked)
    assert (again.code, "--overwrite" in again.err) == (5, True)


@pytest.mark.parametrize(
    ("screen", "options", "said"),
    [
        ("nope", [], "choose from bindings, operations"),
        ("records", ["--size", "9x9"], "such as 120x40"),
        ("records", ["--theme", "nope"], "There is no theme 'nope'"),
        ("records", ["type:"], "type: needs a value"),
        ("records", ["--to", "picture.png"], "ends in .svg"),
        ("records", ["--to", "/nowhere/x.svg"], "The folder /nowhere does not exist"),
    ],
)
def test_what_cannot_be_pictured_is_a_sentence(
    here: Run, person: Path, screen: str, options: list[str], said: str
) -> None:
    here("note", "x")
    refused = here("views", "screenshot", screen, "--to", str(person / "x.svg"), *options)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert said in refused.err
    assert not list(person.glob("*.svg"))


def test_a_service_that_does_not_open_is_no_fault(here: Run, person: Path) -> None:
    here("note", "x")
    asked = ("views", "screenshot", "records", "--to", str(person / "x.svg"))
    refused = here("--company", "nope", *asked)
    assert (refused.code, "There is no company nope" in refused.err) == (1, True)


def test_a_home_without_anything_is_not_made(here: Run, person: Path) -> None:
    none = person / "none"
    asked = ("views", "screenshot", "records", "--to", str(person / "x.svg"))
    assert here("--home", str(none), *asked).code == 1
    assert not none.exists()


@pytest.mark.usefixtures("person")
def test_the_pictures_of_the_readme_show_the_screens_as_they_are(unread: Paths) -> None:
    assert END == README_END
    kept = {path.stem: path.read_text("utf-8") for path in PICTURES.iterdir()}
    taken = take_readme(unread)
    pages = (REPOSITORY / "README.md", REPOSITORY / "docs" / "start.md")
    shown = "".join(page.read_text("utf-8") for page in pages)
    assert kept.keys() == taken.keys() == set(README)
    for name, picture in taken.items():
        assert picture.is_whole, f"{name} was still being read"
        stale = f"{name} is stale: python -m tools.pictures docs/pictures"
        assert words_of(picture.svg) == words_of(kept[name]), stale
        assert f"pictures/{name}.svg" in shown
        assert len(kept[name].encode()) < 100_000
        assert not re.search(r"@font-face|url\((?!#)|@import", kept[name]), "it fetches something"
