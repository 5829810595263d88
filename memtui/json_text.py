"""JSON text that can be written anywhere, whatever foreign strings are in it."""

from __future__ import annotations

import json
import re


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return a document as JSON text; lone surrogates are escaped, all else stays as it is."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)
