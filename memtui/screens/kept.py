"""Files of the app's own in the home: JSON documents that are read and written whole. Blocking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from memtui.contract import Invalid, Model
from memtui.json_text import json_text
from memtui.paths import replacing

M = TypeVar("M", bound=Model)


def load_document(path: Path, kind: type[M], problem: str) -> M:
    """Return what a file holds; there being none is an empty document.

    Raises:
        Invalid: it cannot be read, which is said as `problem`.
    """
    try:
        # By way of Python's JSON: pydantic's own refuses half a surrogate pair.
        return kind.model_validate(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, ValidationError) as error:
        raise Invalid(problem) from error


def save_document(path: Path, document: Model) -> None:
    """Write a file with mode 0600, all of it or nothing.

    Raises:
        Invalid: the file cannot be written.
    """
    try:
        with replacing(path) as fresh:
            text = json_text(document.model_dump(mode="json"), indent=1)
            fresh.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"The file {path} cannot be kept ({error.strerror}).") from error
